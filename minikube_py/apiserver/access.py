"""The one gate of a request: as whom it runs, whether it may, and what its writes are held to.

Nothing of a request is looked at before, beyond its line and headers: neither whether the path is served nor its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.core import NAMESPACES, PODS
from minikube_py.api.selectors import parse_field_selector
from minikube_py.apiserver.auth import ANONYMOUS, Asked, Authenticator, allowed, authorize, is_narrowed
from minikube_py.apiserver.impersonation import impersonated
from minikube_py.apiserver.messages import Request, decode_path
from minikube_py.apiserver.node_access import NodeAccess
from minikube_py.apiserver.node_claims import NodeClaims
from minikube_py.apiserver.node_restriction import NodeRestriction
from minikube_py.apiserver.routes import ResourcePath
from minikube_py.apiserver.rules import MASTERS, User
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock

_NAMED_BY_SELECTOR: Final = ("list", "watch", "deletecollection")


class Access:
    """`tokens` maps bearer tokens to users; `authenticator` knows them."""

    def __init__(self, tokens: Mapping[str, User], cache: WatchCache, clock: Clock) -> None:
        self.authenticator = Authenticator(tokens)
        claims = NodeClaims(cache, clock)
        self._nodes = NodeAccess(cache, claims)
        self._restriction = NodeRestriction(self._nodes, claims, cache)

    async def admit(self, request: Request, path: ResourcePath | None, verb: str) -> User:
        """Who the request runs as; notes it in the request, with what its writes are held to. Raises: StatusError."""
        user = request.user or ANONYMOUS
        if request.wanted is None and MASTERS in user.groups:
            return user
        asked = _asked(request, path, verb)
        if request.wanted is not None:
            user = request.user = impersonated(user, request.wanted, asked)
        if not is_narrowed(user) or MASTERS in user.groups:
            authorize(user, asked)
            return user
        await self._nodes.authorize(user, asked, request.query.get("fieldSelector", ""))
        request.admit = self._restriction.admission_of(user)
        return user

    async def may_create(self, request: Request, path: ResourcePath | None) -> None:
        """For what an apply makes: its sender was admitted to patch it. Raises: StatusError 403."""
        user = request.user or ANONYMOUS
        if MASTERS in user.groups:
            return
        asked = _asked(request, path, "create")
        if is_narrowed(user):
            await self._nodes.authorize(user, asked, "")
        else:
            authorize(user, asked)

    async def may(self, user: User, asked: Asked) -> tuple[bool, str]:
        """What a SelfSubjectAccessReview is told: whether, and why not where a node's rules say."""
        if not is_narrowed(user):
            return allowed(user, asked), ""
        reason = await self._nodes.reason(user, asked)
        return reason is None, reason or ""


def _asked(request: Request, path: ResourcePath | None, verb: str) -> Asked:
    if path is None:
        return Asked(verb, path=decode_path(request.path))
    name, namespace = path.name, path.namespace
    if not name and verb in _NAMED_BY_SELECTOR and (selector := request.query.get("fieldSelector")):
        name = _selected_name(selector)
    if path.plural == NAMESPACES.plural and not path.group and path.name:
        namespace = path.name
    return Asked(verb, path.group, path.plural, path.subresource, namespace, name)


def _selected_name(selector: str) -> str:
    """The one name that a field selector lets through, "" where there is no such; every kind has this field."""
    try:
        requirements = parse_field_selector(PODS, selector).requirements
    except StatusError:
        return ""
    return next((each.value for each in requirements if each.field == "metadata.name" and each.op == "="), "")
