"""RBAC rules and their evaluation.

`compiled` turns rules into a few set lookups, as far as their product allows it. Also the built-in rules without role
or binding: those of nodes, which `node_access` narrows, and of this project's controllers.

Source: kubernetes `pkg/apis/rbac/v1/evaluation_helpers.go`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from minikube_py.env import at_once

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
NODES: Final = "system:nodes"
KUBELETS: Final = "system:kubelets"
"""Processes that each play many nodes with one identity (docs/adr). Unlike NODES, a group of this project."""

Extra = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class User:
    """`groups` are complete after authentication: with `system:authenticated` or `system:unauthenticated`.

    `extra` holds keys with their values, as SelfSubjectReview shows them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = ()


def account_groups(namespace: str) -> tuple[str, str]:
    """The groups of a service account, beside that of all who are authenticated."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


@dataclass(frozen=True, slots=True)
class Rule:
    """RBAC's PolicyRule: `*` stands for all. `names` empty: objects of any name. `paths` are for requests that name no
    resource, `*` at their end."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many permissions it gives, one verb and resource or path each."""
        resources = len(self.groups) * len(self.resources) * max(len(self.names), 1)
        return len(self.verbs) * (resources + len(self.paths))

    def to_json(self) -> dict[str, Any]:
        """Non-empty fields, in upstream's order."""
        return {field: list(held) for field, held in zip(_FIELDS, self.in_order()) if held}

    def in_order(self) -> tuple[tuple[str, ...], ...]:
        return self.verbs, self.groups, self.resources, self.names, self.paths

    def allows(self, verb: str, group: str, resource: str, name: str, path: str | None = None) -> bool:
        """Whether `verb` is allowed on a resource, or on `path` if given."""
        if not ("*" in self.verbs or verb in self.verbs):
            return False
        if path is not None:
            return path in self.paths or path.startswith(tuple(prefix for _, prefix in prefixes(self.paths)))
        named = not self.names or name in self.names
        _, _, sub = resource.partition("/")
        wider = ("*", resource, f"*/{sub}") if sub else ("*", resource)
        return named and not {group, "*"}.isdisjoint(self.groups) and not set(wider).isdisjoint(self.resources)


def prefixes(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Those of a rule's paths that cover others besides themselves, each with the prefix of all that it covers."""
    return [(path, path.rstrip("*")) for path in paths if path.endswith("*")]


_FIELDS: Final = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def rule_of(shown: Mapping[str, Any]) -> Rule:
    """From a role's JSON."""
    return Rule(*(tuple(shown.get(field) or ()) for field in _FIELDS))


# --- rules that no role gives -----------------------------------------------------------------------------------------

_READ: Final = ("get", "list", "watch")
_CORE: Final = ("",)
_STORAGE: Final = ("storage.k8s.io",)
_CERTIFICATES: Final = ("certificates.k8s.io",)
_SIGNERS: Final = ("kubelet-serving", "kube-apiserver-client-kubelet", "kube-apiserver-client")
_CONTROLLERS: Final = (
    # Upstream runs each controller under a service account of its own; ours share the manager's identity, which
    # therefore holds the roles of those that it runs: generic-garbage-collector, namespace-controller,
    # replication-controller, pod-garbage-collector, node-controller, endpoint-controller, service-account-controller,
    # root-ca-cert-publisher, replicaset-controller, deployment-controller, statefulset-controller,
    # daemon-set-controller, endpointslice-controller, endpointslicemirroring-controller, persistent-volume-binder,
    # job-controller, cronjob-controller, ttl-after-finished-controller, clusterrole-aggregation-controller,
    # certificate-controller, device-taint-eviction-controller, attachdetach-controller, expand-controller,
    # ttl-controller.
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
    Rule(("create",), _STORAGE, ("volumeattachments",)),
    Rule(("create",), ("discovery.k8s.io",), ("endpointslices",)),
    Rule(("create",), ("resource.k8s.io",), ("resourceclaims",)),
    Rule(("escalate",), ("rbac.authorization.k8s.io",), ("clusterroles",)),
    Rule(("patch",), ("networking.k8s.io",), ("servicecidrs/status",)),
    Rule(("update",), _CERTIFICATES, ("certificatesigningrequests/approval", "certificatesigningrequests/status")),
    Rule(("approve",), _CERTIFICATES, ("signers",), ("kubernetes.io/kube-apiserver-client-kubelet",)),
    Rule(("sign",), _CERTIFICATES, ("signers",), tuple(f"kubernetes.io/{signer}" for signer in _SIGNERS)),
    Rule(("create",), ("authorization.k8s.io",), ("subjectaccessreviews",)),
)  # fmt: skip
NODE_RULES: Final = (
    Rule(("create",), ("authentication.k8s.io",), ("tokenreviews",)),
    Rule(("create",), ("authorization.k8s.io",), ("subjectaccessreviews", "localsubjectaccessreviews")),
    Rule(_READ, _CORE, ("services",)),
    Rule(("create", *_READ), _CORE, ("nodes",)),
    Rule(("update", "patch"), _CORE, ("nodes", "nodes/status", "pods/status")),
    Rule(("create", "patch", "update"), ("", "events.k8s.io"), ("events",)),
    Rule((*_READ, "create", "delete"), _CORE, ("pods",)),
    Rule(("create",), _CORE, ("pods/eviction",)),
    Rule(_READ, _CORE, ("configmaps", "secrets")),
    Rule(("get",), _CORE, ("endpoints", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts")),
    Rule(("create", *_READ), _CERTIFICATES, ("certificatesigningrequests",)),
    Rule(("get", "create", "update", "patch", "delete"), ("coordination.k8s.io",), ("leases",)),
    Rule(("create",), _CORE, ("serviceaccounts/token",)),
    Rule(("get", "update", "patch"), _CORE, ("persistentvolumeclaims/status",)),
    Rule(("get",), _STORAGE, ("volumeattachments",)),
    Rule(_READ, _STORAGE, ("csidrivers",)),
    Rule(("get", "create", "update", "patch", "delete"), _STORAGE, ("csinodes",)),
    Rule(_READ, ("node.k8s.io",), ("runtimeclasses",)),
    Rule(("get",), ("resource.k8s.io",), ("resourceclaims",)),
    Rule(("deletecollection",), ("resource.k8s.io",), ("resourceslices",)),
)
"""Role `system:node`. No binding gives it: `node_access` applies it to nodes."""
COMPONENT_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "system:kube-controller-manager": _CONTROLLERS,
    "system:kube-scheduler": (
        Rule(("get", "post"), paths=("/minikube-py/v1/scheduler/*",)),
        Rule(("get", "list"), ("metrics.k8s.io",), ("nodes", "pods")),
    ),
}
"""Components' rules beyond those of upstream's bindings."""


# --- decisions ------------------------------------------------------------------------------------------------------

Key = tuple[str, str, str]
"""Verb, group and resource."""
KEY_BYTES: Final = 150
"""About what one takes in memory."""
COMPILED_AT_ONCE: Final = 200
"""Rules and keys of one slice."""
KEYS_MAX: Final = 20_000
"""Keys of one user's rights. A rule of a few kilobytes may have millions; rules beyond are evaluated one by one."""


class Rights(NamedTuple):
    """`resources` come from rules without names; `named` from those with names; `others`: rules of too many keys."""

    everything: bool
    resources: frozenset[Key]
    named: Mapping[Key, frozenset[str]]
    paths: frozenset[tuple[str, str]]
    path_prefixes: tuple[tuple[str, str], ...]
    others: tuple[Rule, ...] = ()

    @property
    def size(self) -> int:
        """About how many keys and names it holds."""
        return 8 + len(self.resources) + sum(map(len, self.named.values())) + len(self.paths)

    def allow(self, verb: str, group: str, resource: str, name: str) -> bool:
        """`resource` is `pods` or, for a subresource, `pods/status`."""
        if self.everything:
            return True
        held, named = self.resources, self.named
        if (verb, group, resource) in held or (verb, "*", "*") in held:
            return True
        keys = _wider(verb, group, resource)
        if not held.isdisjoint(keys):
            return True
        if named and any(name in named.get(key, ()) for key in keys):
            return True
        return any(rule.allows(verb, group, resource, name) for rule in self.others)

    def allow_path(self, verb: str, path: str) -> bool:
        if self.everything or any((each, path) in self.paths for each in (verb, "*")):
            return True
        if any(held in (verb, "*") and path.startswith(prefix) for held, prefix in self.path_prefixes):
            return True
        return any(rule.allows(verb, "", "", "", path) for rule in self.others)


@lru_cache(4096)
def _wider(verb: str, group: str, resource: str) -> tuple[Key, ...]:
    """The keys that cover this one, itself first. `*/status` covers the status of every resource."""
    _, _, sub = resource.partition("/")
    resources = (resource, f"*/{sub}", "*") if sub else (resource, "*")
    return tuple([(v, g, r) for v in (verb, "*") for g in (group, "*") for r in resources])


def compiled(rules: Iterable[Rule]) -> Rights:
    return at_once(compile_steps(rules))


def compile_steps(rules: Iterable[Rule]) -> Generator[int, None, Rights]:
    """In slices; yields how many rules and keys each has taken: some microseconds for each."""
    taken = 0
    resources: set[Key] = set()
    named: dict[Key, set[str]] = {}
    paths: set[tuple[str, str]] = set()
    begun: list[tuple[str, str]] = []
    others: list[Rule] = []
    room = KEYS_MAX
    for rule in rules:
        taken += 1
        if taken >= COMPILED_AT_ONCE:
            yield taken
            taken = 0
        if rule.count > room:
            others.append(rule)
            continue
        taken += rule.count
        room -= rule.count
        for key in ((v, g, r) for v in rule.verbs for g in rule.groups for r in rule.resources):
            if rule.names:
                named.setdefault(key, set()).update(rule.names)
            else:
                resources.add(key)
        paths.update((verb, path) for verb in rule.verbs for path in rule.paths)
        begun += ((verb, prefix) for verb in rule.verbs for _, prefix in prefixes(rule.paths))
    everything = ("*", "*", "*") in resources and ("*", "") in begun
    names = {key: frozenset(each) for key, each in named.items()}
    return Rights(everything, frozenset(resources), names, frozenset(paths), tuple(begun), tuple(others))


NODE_RIGHTS: Final = compiled(NODE_RULES)
