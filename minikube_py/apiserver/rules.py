"""What each user may do: RBAC's rules, and the bootstrap roles and bindings of the original, as one static table.

`rights_of(user)` compiles the rules of a user and their groups once; a decision is then a few set lookups. Nodes and
kubelets are narrowed further by `node_access`, which also looks at names and at what pods refer to.

Source: kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`, `pkg/apis/rbac/v1/evaluation_helpers.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
NODES: Final = "system:nodes"
KUBELETS: Final = "system:kubelets"
"""Processes that each play many nodes with one identity (docs/adr). Unlike NODES, a group of this project."""

Extra = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class User:
    """`groups` are complete once a request was authenticated: with `system:authenticated`, or the other one.

    `extra` holds keys with their values, as SelfSubjectReview shows them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """RBAC's PolicyRule: `*` stands for all. `names` empty: objects of any name. `paths` are for requests that name no
    resource, `*` at their end."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        if self.paths:
            return {"verbs": list(self.verbs), "nonResourceURLs": list(self.paths)}
        shown: dict[str, Any] = {
            "verbs": list(self.verbs),
            "apiGroups": list(self.groups),
            "resources": list(self.resources),
        }
        return {**shown, "resourceNames": list(self.names)} if self.names else shown


# --- the bootstrap roles --------------------------------------------------------------------------------------------

_READ: Final = ("get", "list", "watch")
_READ_UPDATE: Final = (*_READ, "update", "patch")
_CORE: Final = ("",)
_COORDINATION: Final = ("coordination.k8s.io",)
_STORAGE: Final = ("storage.k8s.io",)
_EVENTS: Final = Rule(("create", "patch", "update"), ("", "events.k8s.io"), ("events",))
_TOKEN_REVIEWS: Final = Rule(("create",), ("authentication.k8s.io",), ("tokenreviews",))
_ACCESS_REVIEWS: Final = Rule(("create",), ("authorization.k8s.io",), ("subjectaccessreviews",))
_LEASE_CREATE: Final = Rule(("create",), _COORDINATION, ("leases",))

_ADMIN: Final = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))
_PUBLIC_INFO: Final = (Rule(("get",), paths=("/healthz", "/livez", "/readyz", "/version", "/version/")),)
_BASIC_USER: Final = (
    Rule(("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")),
    Rule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
)
_DISCOVERY: Final = (
    Rule(
        ("get",),
        paths=("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
               "/version", "/version/"),
    ),
)  # fmt: skip
_MONITORING: Final = (
    Rule(("get",), paths=("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz",
                          "/readyz/*")),
)  # fmt: skip
_SCHEDULER: Final = (
    _EVENTS,
    _LEASE_CREATE,
    Rule(("get", "update", "list", "watch"), _COORDINATION, ("leases",), ("kube-scheduler",)),
    Rule(_READ, _CORE, ("nodes", "services", "replicationcontrollers", "namespaces")),
    Rule((*_READ, "delete"), _CORE, ("pods",)),
    Rule(("create",), _CORE, ("bindings", "pods/binding")),
    Rule(("patch", "update"), _CORE, ("pods/status",)),
    Rule(_READ, ("apps", "extensions"), ("replicasets",)),
    Rule(_READ, ("apps",), ("statefulsets",)),
    Rule(_READ, ("policy",), ("poddisruptionbudgets",)),
    Rule(_READ_UPDATE, _CORE, ("persistentvolumeclaims", "persistentvolumes")),
    Rule(_READ, ("resource.k8s.io",), ("deviceclasses", "resourceslices")),
    Rule(_READ_UPDATE, ("resource.k8s.io",), ("resourceclaims", "resourceclaims/status")),
    Rule(("update",), _CORE, ("pods/finalizers",)),
    Rule(("create", "delete"), ("resource.k8s.io",), ("resourceclaims",)),
    Rule(("update", "patch"), ("resource.k8s.io",), ("resourceclaims/binding",)),
    _TOKEN_REVIEWS,
    _ACCESS_REVIEWS,
    Rule(_READ, _STORAGE, ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments")),
)
_CONTROLLER_MANAGER: Final = (
    _EVENTS,
    _LEASE_CREATE,
    Rule(("get", "update"), _COORDINATION, ("leases",), ("kube-controller-manager",)),
    Rule(("create",), _CORE, ("secrets", "serviceaccounts", "serviceaccounts/token")),
    Rule(("delete",), _CORE, ("secrets",)),
    Rule(("get",), _CORE, ("namespaces", "secrets", "serviceaccounts", "configmaps")),
    Rule(("update",), _CORE, ("secrets", "serviceaccounts")),
    _TOKEN_REVIEWS,
    _ACCESS_REVIEWS,
    Rule(("list", "watch"), ("*",), ("*",)),
)
_CONTROLLERS: Final = (
    # The original runs each controller under a service account of its own; ours share the manager's identity, which
    # therefore holds the roles of those that it runs: generic-garbage-collector, namespace-controller,
    # replication-controller, pod-garbage-collector, node-controller, endpoint-controller, service-account-controller,
    # root-ca-cert-publisher, replicaset-controller, deployment-controller, statefulset-controller,
    # daemon-set-controller, endpointslice-controller, endpointslicemirroring-controller, persistent-volume-binder,
    # job-controller, cronjob-controller, ttl-after-finished-controller.
    Rule((*_READ, "patch", "update", "delete"), ("*",), ("*",)),
    Rule((*_READ, "delete", "deletecollection"), ("*",), ("*",)),
    Rule(("update",), _CORE, ("namespaces/finalize", "namespaces/status")),
    Rule(("patch",), _CORE, ("namespaces/status", "nodes/status", "pods/status")),
    Rule(("update",), _CORE, ("nodes/status", "pods/status", "replicationcontrollers/status",
                              "replicationcontrollers/finalizers", "endpoints/restricted")),
    Rule(("create",), _CORE, ("configmaps", "endpoints", "persistentvolumeclaims", "persistentvolumes", "pods")),
    Rule(("create",), _CORE, ("endpoints/restricted",)),
    Rule(("create",), ("apps",), ("controllerrevisions", "replicasets")),
    Rule(("create",), ("batch",), ("jobs",)),
    Rule(("create",), ("discovery.k8s.io",), ("endpointslices",)),
    Rule(("create",), ("resource.k8s.io",), ("resourceclaims",)),
)  # fmt: skip
NODE_RULES: Final = (
    _TOKEN_REVIEWS,
    Rule(("create",), ("authorization.k8s.io",), ("subjectaccessreviews", "localsubjectaccessreviews")),
    Rule(_READ, _CORE, ("services",)),
    Rule(("create", *_READ), _CORE, ("nodes",)),
    Rule(("update", "patch"), _CORE, ("nodes", "nodes/status", "pods/status")),
    _EVENTS,
    Rule((*_READ, "create", "delete"), _CORE, ("pods",)),
    Rule(("create",), _CORE, ("pods/eviction",)),
    Rule(_READ, _CORE, ("configmaps", "secrets")),
    Rule(("get",), _CORE, ("endpoints", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts")),
    Rule(("create", *_READ), ("certificates.k8s.io",), ("certificatesigningrequests",)),
    Rule(("get", "create", "update", "patch", "delete"), _COORDINATION, ("leases",)),
    Rule(("create",), _CORE, ("serviceaccounts/token",)),
    Rule(("get", "update", "patch"), _CORE, ("persistentvolumeclaims/status",)),
    Rule(("get",), _STORAGE, ("volumeattachments",)),
    Rule(_READ, _STORAGE, ("csidrivers",)),
    Rule(("get", "create", "update", "patch", "delete"), _STORAGE, ("csinodes",)),
    Rule(_READ, ("node.k8s.io",), ("runtimeclasses",)),
    Rule(("get",), ("resource.k8s.io",), ("resourceclaims",)),
    Rule(("deletecollection",), ("resource.k8s.io",), ("resourceslices",)),
)
"""Role `system:node`. No binding gives it: `node_access` applies it to users that it knows for a node."""

GROUP_BINDINGS: Final[Mapping[str, tuple[Rule, ...]]] = {
    MASTERS: _ADMIN,
    "system:monitoring": _MONITORING,
    AUTHENTICATED: (*_DISCOVERY, *_BASIC_USER, *_PUBLIC_INFO),
    UNAUTHENTICATED: _PUBLIC_INFO,
}
USER_BINDINGS: Final[Mapping[str, tuple[Rule, ...]]] = {
    "system:kube-scheduler": _SCHEDULER,
    "system:kube-controller-manager": (*_CONTROLLER_MANAGER, *_CONTROLLERS),
}


def rules_of(user: User) -> list[Rule]:
    """Each rule once, in the order of bindings."""
    found = [rule for group in user.groups for rule in GROUP_BINDINGS.get(group, ())]
    return list(dict.fromkeys([*found, *USER_BINDINGS.get(user.name, ())]))


# --- decisions ------------------------------------------------------------------------------------------------------


class Rights(NamedTuple):
    """`resources` holds (verb, group, resource) of rules without names; `named` those with, and the names."""

    everything: bool
    resources: frozenset[tuple[str, str, str]]
    named: Mapping[tuple[str, str, str], frozenset[str]]
    paths: frozenset[tuple[str, str]]
    path_prefixes: tuple[tuple[str, str], ...]

    def allow(self, verb: str, group: str, resource: str, name: str) -> bool:
        """`resource` is `pods` or, for a subresource, `pods/status`."""
        if self.everything:
            return True
        held, named = self.resources, self.named
        if (verb, group, resource) in held or (verb, "*", "*") in held:
            return True
        if any(key in held for key in _wider(verb, group, resource)):
            return True
        return bool(named) and name in named.get((verb, group, resource), ())

    def allow_path(self, verb: str, path: str) -> bool:
        if self.everything or any((each, path) in self.paths for each in (verb, "*")):
            return True
        return any(held in (verb, "*") and path.startswith(prefix) for held, prefix in self.path_prefixes)


def _wider(verb: str, group: str, resource: str) -> Iterable[tuple[str, str, str]]:
    """The keys with `*` that cover this one, too. `*/status` covers the status of every resource."""
    _, slash, sub = resource.partition("/")
    resources = (resource, f"*/{sub}", "*") if slash else (resource, "*")
    return ((v, g, r) for v in (verb, "*") for g in (group, "*") for r in resources)


def compiled(rules: Iterable[Rule]) -> Rights:
    resources: set[tuple[str, str, str]] = set()
    named: dict[tuple[str, str, str], frozenset[str]] = {}
    paths: set[tuple[str, str]] = set()
    prefixes: list[tuple[str, str]] = []
    for rule in rules:
        for key in ((v, g, r) for v in rule.verbs for g in rule.groups for r in rule.resources):
            if rule.names:
                named[key] = named.get(key, frozenset()) | frozenset(rule.names)
            else:
                resources.add(key)
        for verb in rule.verbs:
            for path in rule.paths:
                if path.endswith("*"):
                    prefixes.append((verb, path[:-1]))
                else:
                    paths.add((verb, path))
    everything = ("*", "*", "*") in resources and ("*", "") in prefixes
    return Rights(everything, frozenset(resources), named, frozenset(paths), tuple(prefixes))


@lru_cache(4096)
def rights_of(user: User) -> Rights:
    return compiled(rules_of(user))


NODE_RIGHTS: Final = compiled(NODE_RULES)
