"""Who asks, and whether they may: bearer tokens to users, and a small table of rights by group.

Sentences are the original's (`pkg/endpoints/handlers/responsewriters/errors.go`). Rights are of three kinds: all
(`system:masters`), those of a component's group, and those everyone has (health and version).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from minikube_py.api.errors import GroupResource, StatusError, forbidden, go_quote, unauthorized
from minikube_py.apiserver.routes import ResourcePath

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
READ: Final = ("get", "list", "watch")
WRITE: Final = (*READ, "create", "update", "patch", "delete", "deletecollection")
TOKEN_BYTES_MAX: Final = 8192


@dataclass(frozen=True, slots=True)
class User:
    """`groups` as given; `system:authenticated` is added for every token."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """RBAC's PolicyRule: `*` stands for all. `paths` are for requests that name no resource, `*` at their end."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        if self.paths:
            return {"verbs": list(self.verbs), "nonResourceURLs": list(self.paths)}
        return {"verbs": list(self.verbs), "apiGroups": list(self.groups), "resources": list(self.resources)}


ADMIN: Final = User("admin", (MASTERS,), "admin-uid")
SCHEDULER: Final = User("system:kube-scheduler", ("system:kube-scheduler",))
CONTROLLER_MANAGER: Final = User("system:kube-controller-manager", ("system:kube-controller-manager",))
KUBELETS: Final = User("system:kubelets", ("system:nodes",))
ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))

_CORE: Final = ("",)
_LEASE_GROUP: Final = ("coordination.k8s.io",)
_EVENTS_RULE: Final = Rule(("create", "update", "patch"), _CORE, ("events",))
_HEALTH: Final = Rule(("get",), paths=("/healthz", "/livez", "/readyz", "/version", "/version/"))
_REVIEWS: Final = (
    Rule(("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")),
    Rule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
)
_DISCOVERY_PATHS: Final = ("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/readyz", "/openapi",
                           "/openapi/*", "/version", "/version/")  # fmt: skip

RIGHTS: Final[Mapping[str, tuple[Rule, ...]]] = {
    MASTERS: (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",))),
    UNAUTHENTICATED: (_HEALTH,),
    AUTHENTICATED: (*_REVIEWS, Rule(("get",), paths=_DISCOVERY_PATHS)),
    "system:kube-scheduler": (
        Rule(READ, _CORE, ("nodes", "pods", "namespaces", "services", "replicationcontrollers")),
        Rule(("delete",), _CORE, ("pods",)),
        Rule(("create",), _CORE, ("bindings", "pods/binding")),
        Rule(("patch", "update"), _CORE, ("pods/status",)),
        Rule(WRITE, _LEASE_GROUP, ("leases",)),
        _EVENTS_RULE,
    ),
    "system:kube-controller-manager": (
        Rule(WRITE, _CORE, ("*",)),
        Rule(WRITE, _LEASE_GROUP, ("leases",)),
    ),
    "system:nodes": (
        Rule(READ, _CORE, ("nodes", "pods", "services", "endpoints", "configmaps", "secrets", "namespaces")),
        Rule(("create", "update", "patch", "delete"), _CORE, ("nodes",)),
        Rule(("update", "patch"), _CORE, ("nodes/status", "pods/status")),
        Rule(("create", "delete"), _CORE, ("pods",)),
        Rule(("create",), _CORE, ("pods/eviction",)),
        Rule(WRITE, _LEASE_GROUP, ("leases",)),
        _EVENTS_RULE,
    ),
}


def rules_of(user: User) -> list[Rule]:
    groups = user.groups if user is ANONYMOUS else (*user.groups, AUTHENTICATED)
    return [rule for group in groups for rule in RIGHTS.get(group, ())]


def _covers(names: Iterable[str], wanted: str) -> bool:
    return any(name in ("*", wanted) for name in names)


def resource_allowed(user: User, verb: str, group: str, resource: str) -> bool:
    """`resource` is `pods` or, for a subresource, `pods/status`."""
    return any(
        _covers(rule.verbs, verb) and _covers(rule.groups, group) and _covers(rule.resources, resource)
        for rule in rules_of(user)
    )


def path_allowed(user: User, verb: str, path: str) -> bool:
    for rule in rules_of(user):
        if not _covers(rule.verbs, verb):
            continue
        for allowed in rule.paths:
            if allowed == path or (allowed.endswith("*") and path.startswith(allowed[:-1])):
                return True
    return False


class Authenticator:
    """Tokens are compared by hash lookup of the whole header, which tells a guesser nothing of its parts."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._by_header = {f"Bearer {token}": user for token, user in tokens.items()}
        self._allowed: dict[tuple[User, str, str, str], bool] = {}

    def authenticate(self, header: str | None) -> User:
        """The user of an Authorization header; anonymous where there is none. Raises: StatusError 401."""
        if not header:
            return ANONYMOUS
        user = self._by_header.get(header)
        if user is not None:
            return user
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        for known, owner in self._by_header.items():
            if hmac.compare_digest(known.encode()[7:], token.strip().encode("utf-8", "surrogateescape")):
                return owner
        raise unauthorized()

    def authorize_path(self, user: User, method: str, path: str) -> None:
        """Raises: StatusError 403."""
        if MASTERS in user.groups:
            return
        verb = method.lower()
        if not path_allowed(user, verb, path):
            why = f"User {go_quote(user.name)} cannot {verb} path {go_quote(path)}"
            raise forbidden(None, "", why)

    def authorize(self, user: User, path: ResourcePath, verb: str) -> None:
        """Raises: StatusError 403."""
        if MASTERS in user.groups:
            return
        resource = f"{path.plural}/{path.subresource}" if path.subresource else path.plural
        key = (user, verb, path.group, resource)
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = resource_allowed(user, verb, path.group, resource)
            if len(self._allowed) < 4096:
                self._allowed[key] = allowed
        if not allowed:
            raise _forbidden(user, path, verb, resource)


def _forbidden(user: User, path: ResourcePath, verb: str, resource: str) -> StatusError:
    scope = f"in the namespace {go_quote(path.namespace)}" if path.namespace else "at the cluster scope"
    why = (
        f"User {go_quote(user.name)} cannot {verb} resource {go_quote(resource)} in API group "
        f"{go_quote(path.group)} {scope}"
    )
    return forbidden(GroupResource(path.group, path.plural), path.name, why)
