"""Authentication: maps tokens and certificates to users, and words refusals.

The messages are upstream's (`pkg/endpoints/handlers/responsewriters/errors.go`). See `rbac` for authorization,
`impersonation`, and `node_access` for nodes and kubelets.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from minikube_py.api.errors import GroupResource, StatusError, forbidden, go_quote, unauthorized
from minikube_py.api.service_tokens import ISSUER, InvalidToken
from minikube_py.apiserver.rules import AUTHENTICATED, KUBELETS, MASTERS, NODES, UNAUTHENTICATED, User

ADMIN: Final = User("admin", (MASTERS, AUTHENTICATED), "admin-uid")
SCHEDULER: Final = User("system:kube-scheduler", ("system:kube-scheduler", AUTHENTICATED))
CONTROLLER_MANAGER: Final = User("system:kube-controller-manager", ("system:kube-controller-manager", AUTHENTICATED))
SHARED_KUBELET: Final = User("system:kubelets", (KUBELETS, AUTHENTICATED))
ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))
_UID: Final = "1.3.6.1.4.1.57683.2"
"""The subject attribute that holds a user's uid."""
_SANITIZED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Asked(NamedTuple):
    """A request's authorization attributes. `path` is None for resource requests."""

    verb: str
    group: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def refusal(user: User, asked: Asked, reason: str = "") -> StatusError:
    """Upstream's sentence; `reason` says which rule denied it, if one did."""
    why = f"User {go_quote(user.name)} cannot {asked.verb} "
    if asked.path is None:
        scope = f"in the namespace {go_quote(asked.namespace)}" if asked.namespace else "at the cluster scope"
        why += f"resource {go_quote(asked.resource)} in API group {go_quote(asked.group)} {scope}"
    else:
        why += f"path {go_quote(asked.path)}"
    why = why.translate(_SANITIZED) + (f": {reason}" if reason else "")
    about = GroupResource(asked.group, asked.plural) if asked.path is None else None
    return forbidden(about, asked.name if asked.path is None else "", why)


def is_narrowed(user: User) -> bool:
    """Whether the user is a node or plays nodes, so that `node_access` decides."""
    return NODES in user.groups or KUBELETS in user.groups


class Spoken(NamedTuple):
    """A token's user, and which of the requested audiences it is valid for."""

    user: User
    audiences: tuple[str, ...]
    warning: str = ""
    """Sent with each answer."""


class Speakers(Protocol):
    """Authenticates signed tokens."""

    async def speaker(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> Spoken | None:
        """None for a token of another sort. Raises: InvalidToken."""
        ...


class Shown(NamedTuple):
    """The user of a client certificate that TLS has verified, and its expiry."""

    user: User
    ends_s: float


def shown_by(certificate: Mapping[str, Any], der: bytes) -> Shown | None:
    """From the dict of `ssl`. None: it names no user."""

    def held(name: str) -> list[str]:
        return [value for part in certificate["subject"] for key, value in part if key == name]

    names, uids = held("commonName"), held(_UID)
    if not names or not names[-1]:
        return None
    spoilt = len(uids) > 1 or uids == [""]
    extra = (("authentication.kubernetes.io/credential-id", (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)),)
    user = User(names[-1], tuple(held("organizationName")), "".join(uids), extra)
    return Shown(known(user), -math.inf if spoilt else ssl.cert_time_to_seconds(certificate["notAfter"]))


class Authenticator:
    """Tokens are looked up by a hash of the whole header: timing reveals nothing about parts. `add` adds no group."""

    def __init__(self, tokens: Mapping[str, User], speakers: Speakers | None = None) -> None:
        self._by_header = {f"Bearer {token}": known(user) for token, user in tokens.items()}
        self._speakers = speakers

    def known(self, header: str | None) -> User | None:
        """The user of an Authorization header; anonymous without one, None if `asker` must be called."""
        return self._by_header.get(header) if header else ANONYMOUS

    def add(self, token: str, user: User) -> None:
        self._by_header[f"Bearer {token}"] = user

    def remove(self, token: str) -> None:
        self._by_header.pop(f"Bearer {token}", None)

    async def shower(self, shown: Shown, now_s: float, header: str | None) -> Spoken:
        """A certificate takes precedence over a token, unless it has expired. Raises: StatusError 401."""
        if now_s <= shown.ends_s:
            return Spoken(shown.user, ())
        spoken = await self.asker(header or "")
        if spoken.user is ANONYMOUS:
            raise unauthorized()
        return spoken

    async def asker(self, header: str) -> Spoken:
        """Raises: StatusError 401."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Spoken(ANONYMOUS, ())
        try:
            spoken = await self.speaker(token.strip())
        except InvalidToken:
            spoken = None
        if spoken is None:
            raise unauthorized()
        return spoken

    async def speaker(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> Spoken | None:
        """The token's user; None if it is unknown. Raises: InvalidToken."""
        if ISSUER in audiences:
            given = token.encode("utf-8", "surrogateescape")
            for header, owner in self._by_header.items():
                if hmac.compare_digest(header.encode()[7:], given):
                    return Spoken(owner, (ISSUER,))
        return None if self._speakers is None else await self._speakers.speaker(token, audiences)


def known(user: User) -> User:
    """Adds the group of all authenticated users, as upstream does."""
    return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))
