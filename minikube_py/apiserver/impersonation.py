"""Impersonation by the `Impersonate-*` headers, for authorized users.

Modes are tried in order, constrained ones first. If all refuse, the first refusal is returned.

Source: apiserver `pkg/endpoints/filters/impersonation/{constrained_impersonation,mode}.go` (KEP-5284).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from minikube_py.api.errors import StatusError, bad_request, go_quote
from minikube_py.api.go_format import go_text
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.apiserver.auth import Asked, refusal
from minikube_py.apiserver.rbac import Policy
from minikube_py.apiserver.rules import AUTHENTICATED, MASTERS, NODES, UNAUTHENTICATED, Extra, User, account_groups

PREFIX: Final = "impersonate-"
_USER, _GROUP, _UID, _EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
_NODE: Final = "system:node:"
_AUTHENTICATION: Final = "authentication.k8s.io"
_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_MANY: Final = 4
"""From this many values on, `*` is checked before each value."""
_LABEL, _NAME = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", "[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?"
_ACCOUNT: Final = re.compile(f"system:serviceaccount:({_LABEL}):({_NAME})")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def wanted_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """The user in the headers, unchanged; None without one.

    Raises: StatusError 400 for groups, a uid or extra values without a user."""
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


def impersonated(requestor: User, wanted: User, asked: Asked, policy: Policy) -> tuple[User, str]:
    """The user that the request runs as, and the verb of the constrained mode that allows it, or "". Raises:
    StatusError 403."""
    only_named = not (wanted.groups or wanted.uid or wanted.extra)
    account, node = _ACCOUNT.fullmatch(wanted.name), _node_of(wanted.name)
    check = _Check(requestor, policy)
    modes = []
    if only_named and node and node in _nodes_of(requestor):
        modes.append("associated-node")
    if only_named and (node or account is not None):
        modes.append("arbitrary-node" if node else "serviceaccount")
    if not node and account is None:
        modes.append("user-info")
    first: StatusError | None = None
    for mode in (*modes, ""):
        try:
            if mode:
                check(asked._replace(verb=f"impersonate-on:{mode}:{asked.verb}"))
            return _as_wanted(check, mode, wanted, account, node), mode and f"impersonate:{mode}"
        except StatusError as error:
            first = first or error
    assert first is not None, "the last mode applies to everybody"
    raise first


class _Check(NamedTuple):
    requestor: User
    policy: Policy

    def __call__(self, asked: Asked) -> None:
        """Raises: StatusError 403."""
        if not self.policy.allowed(self.requestor, asked):
            raise refusal(self.requestor, asked, self.policy.decide(self.requestor, asked)[1])


def _as_wanted(check: _Check, mode: str, wanted: User, account: re.Match[str] | None, node: str) -> User:
    """The user that `mode` ("": unconstrained) gives for the requested one. Raises: StatusError 403."""
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group = _AUTHENTICATION if mode else ""
    named = Asked(verb, group, "users", name=wanted.name)
    groups = wanted.groups
    if mode and node:
        named = named._replace(plural="nodes", name="*" if mode == "associated-node" else node)
        groups = (NODES,)
    if account is not None:
        named = named._replace(plural="serviceaccounts", namespace=account[1], name=account[2])
        groups = groups or account_groups(account[1])
    check(named)
    if wanted.uid:
        check(Asked(verb, _AUTHENTICATION, "uids", name=wanted.uid))
    if wanted.groups:
        _check_groups(check, mode, Asked(verb, group, "groups"), wanted.groups)
    if wanted.extra:
        _check_extra(check, mode, Asked(verb, _AUTHENTICATION, "userextras"), wanted.extra)
    if wanted.name == "system:anonymous":
        groups = _with(groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups:
        groups = _with(groups, AUTHENTICATED)
    return User(wanted.name, groups, wanted.uid, wanted.extra)


def _check_groups(check: _Check, mode: str, asked: Asked, groups: tuple[str, ...]) -> None:
    if mode:
        if "" in groups:
            raise refusal(check.requestor, asked, "impersonating the empty string group is not allowed")
        if MASTERS in groups:
            why = f"impersonating the {MASTERS} group is not allowed"
            raise refusal(check.requestor, asked._replace(name=MASTERS), why)
        if len(groups) >= _MANY and check.policy.allowed(check.requestor, asked._replace(name="*")):
            return
    for group in groups:
        check(asked._replace(name=group))


def _check_extra(check: _Check, mode: str, asked: Asked, extra: Extra) -> None:
    if mode:
        for key, values in extra:
            if why := _wrong_extra(key, values):
                raise refusal(check.requestor, asked, why)
        many = sum(len(values) for _, values in extra) >= _MANY
        if many and check.policy.allowed(check.requestor, asked._replace(subresource="*", name="*")):
            return
    for key, values in extra:
        for value in values:
            check(asked._replace(subresource=key, name=value))


def _wrong_extra(key: str, values: tuple[str, ...]) -> str:
    """Why the constrained modes refuse such extra values."""
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    if errors := _domain_prefixed(key):
        listed = ", ".join(f"extra.key: Invalid value: {go_quote(value)}: {message}" for value, message in errors)
        listed = listed if len(errors) == 1 else f"[{listed}]"
        return f"impersonating an invalid key in extra is not allowed: {listed}"
    if key != key.lower():
        return f"impersonating a non-lowercase key in extra is not allowed: {go_quote(key)}"
    return "" if "" not in values else "impersonating the empty string value in extra is not allowed"


def _domain_prefixed(key: str) -> list[tuple[str, str]]:
    """The invalid part of a key, and why: it must be a domain or its path."""
    domain, _, path = key.partition("/")
    if not (domain and path):
        return [(key, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [(domain, message) for message in is_dns1123_subdomain(domain)]
    if not re.fullmatch(_PATH, path):
        errors.append((path, f"Invalid path (regex used for validation is '{_PATH}')"))
    return errors


def _nodes_of(requestor: User) -> tuple[str, ...]:
    """The node that a service account's token is bound to."""
    if _ACCOUNT.fullmatch(requestor.name) is None:
        return ()
    values = dict(requestor.extra).get("authentication.kubernetes.io/node-name", ())
    return values if len(values) == 1 else ()


def _node_of(name: str) -> str:
    """The node's name, if this is a node's user; else empty."""
    node = name.removeprefix(_NODE)
    return node if node != name and not is_dns1123_subdomain(node) else ""


def _with(groups: tuple[str, ...], group: str) -> tuple[str, ...]:
    return groups if group in groups else (*groups, group)


def _unescaped(key: str) -> str:
    """Go's url.PathUnescape; badly escaped text is unchanged."""
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
