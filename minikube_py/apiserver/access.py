"""Authentication, impersonation and authorization of a request, and the checks on its writes.

Before this, only the request line and headers are read: neither the path's existence nor the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kind import Kind, NoteSender
from minikube_py.api.kinds.coordination import LEASES
from minikube_py.api.kinds.core import NAMESPACES, NODES, PODS
from minikube_py.api.kinds.rbac import GROUP as RBAC
from minikube_py.api.kinds.resource import RESOURCECLAIMS
from minikube_py.api.registry import Registry
from minikube_py.api.selectors import parse_field_selector
from minikube_py.apiserver import claim_rights, escalation, policy_references
from minikube_py.apiserver.auth import ANONYMOUS, Asked, Authenticator, Speakers, is_narrowed, refusal
from minikube_py.apiserver.impersonation import impersonated
from minikube_py.apiserver.messages import Admission, Request, Standing, decode_path
from minikube_py.apiserver.node_access import NodeAccess
from minikube_py.apiserver.node_claims import NodeClaims
from minikube_py.apiserver.node_restriction import NodeRestriction
from minikube_py.apiserver.rbac import Policy
from minikube_py.apiserver.routes import ResourcePath
from minikube_py.apiserver.rules import MASTERS, User
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock

if TYPE_CHECKING:
    from minikube_py.apiserver.audit import Audited

_NAMED_BY_SELECTOR: Final = ("list", "watch")
_CHANGES: Final = ("update", "patch")
"""Allowed by user and path through roles alone, never by what pods refer to."""
_OF_NODES: Final = (LEASES, NODES, PODS)
_HELD_MAX: Final = 10_000
_HELD_CHARS_MAX: Final = 200


class _Held(NamedTuple):
    """The checks on an authorized user's changes to an object."""

    user: User
    admit: Admission | None
    standing: Standing | None


class Access:
    """`tokens` maps bearer tokens to users; `authenticator` knows these and the users of `speakers`."""

    def __init__(
        self,
        tokens: Mapping[str, User],
        cache: WatchCache,
        clock: Clock,
        speakers: Speakers,
        registry: Callable[[], Registry],
    ) -> None:
        self._cache, self._registry = cache, registry
        self.authenticator = Authenticator(tokens, speakers)
        claims = NodeClaims(cache, clock)
        self._held: dict[tuple[str, str, str], _Held] = {}
        self.policy = Policy(cache, self._held.clear)
        self._nodes = NodeAccess(cache, claims, self.policy)
        self._restriction = NodeRestriction(self._nodes, claims, cache)

    async def admit(self, request: Request, path: ResourcePath | None, verb: str) -> User:
        """Sets the request's effective user and the checks on its writes. The checks are cached until roles change.
        Raises: StatusError."""
        if request.audit is not None:
            await self._note(request.audit, request, path, verb)
        user = await self._admit(request, path, verb)
        kind = path.resource if path is not None and verb == "create" and not path.subresource else None
        if kind is not None and kind.note_sender is not None:
            request.admit = both(request.admit, _noting(kind.note_sender, user))
        return user

    async def _note(self, audit: Audited, request: Request, path: ResourcePath | None, verb: str) -> None:
        """Records whom the request runs as, and why it may. Raises: StatusError 403."""
        user, asked = request.user or ANONYMOUS, _asked(request, path, verb)
        if request.wanted is not None:
            user, audit.constraint = impersonated(user, request.wanted, asked, self.policy)
            audit.impersonated = user
        audit.authorized(*await self.may(user, asked))

    def holds(self, path: str, user: User, verb: str) -> bool:
        """Whether a user's change of an object is known to be allowed. Not a substitute for the checks on the write."""
        held = self._held.get((path, verb, user.name))
        return MASTERS in user.groups or (held is not None and (held.user is user or held.user == user))

    async def _admit(self, request: Request, path: ResourcePath | None, verb: str) -> User:
        user, key = request.user or ANONYMOUS, None
        if request.wanted is None:
            if MASTERS in user.groups:
                return user
            if path is not None and _is_held(user, verb, path.resource):
                key = request.path, verb, user.name
                if (held := self._held.get(key)) is not None and (held.user is user or held.user == user):
                    _, request.admit, request.standing = held
                    return user
        asked = _asked(request, path, verb)
        if request.wanted is not None:
            user, _ = impersonated(user, request.wanted, asked, self.policy)
            request.user = user
        if MASTERS in user.groups:
            return user
        if is_narrowed(user):
            await self._nodes.authorize(user, asked, request.query.get("fieldSelector", ""))
            request.admit, request.standing = self._restriction.admission_of(user)
        else:
            await self.policy.ready(user, asked)
            self._authorize(user, asked)
        if path is not None and verb in escalation.WRITES:
            self._hold(request, path, user, asked)
        if key is not None and len(request.path) <= _HELD_CHARS_MAX:
            if len(self._held) >= _HELD_MAX:
                self._held.clear()
            self._held[key] = _Held(user, request.admit, request.standing)
        return user

    async def may_create(self, request: Request, path: ResourcePath | None) -> None:
        """For an object that an apply creates: so far only the patch was authorized. Raises: StatusError 403."""
        await self.check(request, path, "create")

    async def check(self, request: Request, path: ResourcePath | None, verb: str) -> None:
        """Authorizes a verb other than the request's. Raises: StatusError 403."""
        user = request.user or ANONYMOUS
        if MASTERS in user.groups:
            return
        asked = _asked(request, path, verb)
        if is_narrowed(user):
            await self._nodes.authorize(user, asked, "")
        else:
            await self.policy.ready(user, asked)
            self._authorize(user, asked)

    def _authorize(self, user: User, asked: Asked) -> None:
        """Authorizes by the user's roles. Raises: StatusError 403."""
        if not self.policy.allowed(user, asked):
            raise refusal(user, asked, self.policy.decide(user, asked)[1])

    def _hold(self, request: Request, path: ResourcePath, user: User, asked: Asked) -> None:
        """Adds the checks on writes of this kind."""
        if path.resource in policy_references.REFERRING:
            admit = policy_references.admission_of(self.policy, user, self._cache, self._registry)
            request.admit, request.standing = both(request.admit, admit), None
        if asked.group == RBAC:
            admit = escalation.admission_of(self.policy, user, asked)
            request.admit, request.standing = both(request.admit, admit), None
        if path.resource is RESOURCECLAIMS and asked.subresource == "status":
            admit = claim_rights.admission_of(self.policy, user, asked)
            request.admit, request.standing = both(request.admit, admit), None
        creates = path.resource is not None and path.resource.allow_create_on_update and not asked.subresource
        if creates and asked.verb == "update" and not is_narrowed(user):
            request.admit = both(request.admit, self._admission_of_create(user, asked._replace(verb="create")))

    def _admission_of_create(self, user: User, asked: Asked) -> Admission:
        """An update that creates its object also needs the verb `create`."""

        def admit(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
            if old is None:
                self._authorize(user, asked)

        return admit

    async def may(self, user: User, asked: Asked, field_selector: str = "") -> tuple[bool, str]:
        """The result of an access review: whether it is allowed, and the reason."""
        may, why = self.policy.decide(user, asked)
        if may or not is_narrowed(user):
            return may, why
        reason = await self._nodes.reason(user, asked, field_selector)
        return reason is None, "\n".join(filter(None, (reason, why)))


def _is_held(user: User, verb: str, kind: Kind | None) -> bool:
    """Whether roles alone decide: what a node may change of other kinds depends on its pods."""
    if verb not in _CHANGES or kind is None or kind.definition:
        return False
    return not is_narrowed(user) or kind in _OF_NODES


def both(first: Admission | None, second: Admission) -> Admission:
    """The second, then the first."""
    if first is None:
        return second

    def admit(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        second(kind, sub, name, old, new)
        first(kind, sub, name, old, new)

    return admit


def _noting(note: NoteSender, user: User) -> Admission:
    def admit(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        if new is not None:
            note(new, user.name, user.uid, user.groups, user.extra)

    return admit


def _asked(request: Request, path: ResourcePath | None, verb: str) -> Asked:
    if path is None:
        return Asked(verb, path=decode_path(request.path))
    name, namespace = path.name, path.namespace
    if not name and verb in _NAMED_BY_SELECTOR and (selector := request.query.get("fieldSelector")):
        name = selected_name(selector)
    if path.plural == NAMESPACES.plural and not path.group and path.name:
        namespace = path.name
    return Asked(verb, path.group, path.plural, path.subresource, namespace, name)


def selected_name(selector: str) -> str:
    """The one name that a field selector matches, or ""; every kind has this field."""
    try:
        requirements = parse_field_selector(PODS, selector).requirements
    except StatusError:
        return ""
    return next((each.value for each in requirements if each.field == "metadata.name" and each.op == "="), "")
