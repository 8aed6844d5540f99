"""Acting as somebody else: the `Impersonate-*` headers, honoured for those who may, refused for all others.

The original tries its modes in turn, the constrained ones first, and tells of the first that refused. With the static
bindings of `rules`, only `system:masters` may impersonate at all; whoever else tries gets that first refusal.

Source: apiserver `pkg/endpoints/filters/impersonation/{constrained_impersonation,mode}.go` (KEP-5284).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

from minikube_py.api.errors import bad_request, go_quote
from minikube_py.api.go_format import go_text
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.apiserver.auth import Asked, allowed, refusal
from minikube_py.apiserver.rules import AUTHENTICATED, NODES, UNAUTHENTICATED, User

PREFIX: Final = "impersonate-"
_USER, _GROUP, _UID, _EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
_NODE: Final = "system:node:"
_LABEL, _NAME = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", "[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?"
_ACCOUNT: Final = re.compile(f"system:serviceaccount:({_LABEL}):({_NAME})")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def wanted_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """Whom the headers name, as they name it; None where they name nobody.

    Raises: StatusError 400 where groups, a uid or extra values come without a user."""
    name: str | None = None
    uid: str | None = None
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        lower = header.lower()
        if not lower.startswith(PREFIX):
            continue
        if lower == _USER:
            name = value if name is None else name
        elif lower == _UID:
            uid = value if uid is None else uid
        elif lower == _GROUP:
            groups.append(value)
        elif lower.startswith(_EXTRA):
            extra.setdefault(_unescaped(lower[len(_EXTRA) :]), []).append(value)
    if not name:
        if groups or uid or extra:
            raise bad_request(f"requested {_printed(uid or '', groups, extra)} without impersonating a user name")
        return None
    return User(name, tuple(groups), uid or "", tuple(sorted((key, tuple(values)) for key, values in extra.items())))


def impersonated(requestor: User, wanted: User, asked: Asked) -> User:
    """The user that the request runs as. Raises: StatusError 403."""
    name, groups = wanted.name, wanted.groups
    only_named = not (groups or wanted.uid or wanted.extra)
    account, is_node = _ACCOUNT.fullmatch(name), _is_node(name)
    first = asked._replace(verb=f"impersonate-on:user-info:{asked.verb}")
    if account is not None:
        first = Asked("impersonate", "", "serviceaccounts", "", account[1], account[2])
        if only_named:
            first = asked._replace(verb=f"impersonate-on:serviceaccount:{asked.verb}")
    elif is_node:
        first = Asked("impersonate", "", "users", "", "", name)
        if only_named:
            first = asked._replace(verb=f"impersonate-on:arbitrary-node:{asked.verb}")
    # Whoever may do the first check of a mode may do all of them: no binding is finer than `system:masters`.
    if not allowed(requestor, first):
        raise refusal(requestor, first)
    if is_node and only_named:
        groups = (NODES,)
    elif account is not None and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[1]}")
    if name == "system:anonymous":
        groups = _with(groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups:
        groups = _with(groups, AUTHENTICATED)
    return User(name, groups, wanted.uid, wanted.extra)


def _is_node(name: str) -> bool:
    node = name.removeprefix(_NODE)
    return node != name and not is_dns1123_subdomain(node)


def _with(groups: tuple[str, ...], group: str) -> tuple[str, ...]:
    return groups if group in groups else (*groups, group)


def _unescaped(key: str) -> str:
    """Go's url.PathUnescape; what is not well escaped stays as it is."""
    if "%" not in key or _BAD_ESCAPE.search(key):
        return key
    return go_text(unquote_to_bytes(key))


def _printed(uid: str, groups: list[str], extra: dict[str, list[str]]) -> str:
    """The user as Go's `%#v` prints it."""
    listed = _go_strings(groups)
    values = ", ".join(f"{go_quote(key)}:{_go_strings(extra[key])}" for key in sorted(extra))
    mapped = f"map[string][]string{{{values}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{go_quote(uid)}, Groups:{listed}, Extra:{mapped}}}'


def _go_strings(texts: list[str]) -> str:
    return f"[]string{{{', '.join(map(go_quote, texts))}}}" if texts else "[]string(nil)"
