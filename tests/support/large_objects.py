"""Large legal objects, each below 256 KiB: what one part multiplies by another. A case creates some, waits, and creates
or changes others; whatever any component does about them must be bounded in each step of the loop.

Anybody who may edit one namespace can create most of them; nodes and cluster roles need more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

Json = dict[str, Any]
BYTES_MAX: Final = 256 << 10
API: Final = "/api/v1"
IN: Final = f"{API}/namespaces/default"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
SETS: Final = "/apis/apps/v1/namespaces/default/daemonsets"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Ask:
    """One request. `type`: of a PATCH. `uid_of`: a path whose object's uid replaces UID in the body."""

    verb: str
    path: str
    body: Json | None = None
    type: str = ""
    uid_of: str = ""


@dataclass(frozen=True)
class Case:
    """`after`: counted, request by request; the components then have `rest_s` to act."""

    before: tuple[Ask, ...]
    after: tuple[Ask, ...]
    nodes: int = 2
    rest_s: float = 20.0


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def pod(name: str, labels: Json | None = None, **spec: Any) -> Ask:
    containers = [{"name": "c", "image": "i"}]
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    return Ask("POST", f"{IN}/pods", {"metadata": metadata, "spec": {"containers": containers, **spec}})


def tolerations(count: int) -> list[Json]:
    return [{"key": key, "operator": "Exists"} for key in names("k", count)]


def taints(count: int, effect: str) -> Ask:
    """Of node-0; none of the first is tolerated by the first of `tolerations`."""
    given = [{"key": key, "effect": effect} for key in reversed(names("k", count))]
    return Ask("PATCH", f"{API}/nodes/node-0", {"spec": {"taints": given}}, MERGE)


def node_terms(count: int) -> Json:
    """None of which matches a node."""
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": [each]}]} for each in names("v", count)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def pod_terms(kind: str, count: int, key: str = "") -> Json:
    """`kind`: podAffinity or podAntiAffinity. `key`: begins the topology key of each term, which is its own then."""
    terms = [
        {"topologyKey": key + each if key else "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": each}}}
        for each in names("v", count)
    ]
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def apart_from(labels: int) -> Json:
    """No pod has them."""
    selector = {"matchLabels": dict.fromkeys(names("a", labels), "b")}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def daemon_set(name: str, **spec: Any) -> Ask:
    labels = {"set": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    return Ask("POST", SETS, {
        "metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template},
    })  # fmt: skip


def service(name: str, selector: Json | None, ports: list[Json]) -> Ask:
    spec: Json = {"ports": ports} | ({"selector": selector} if selector else {})
    return Ask("POST", f"{IN}/services", {"metadata": {"name": name}, "spec": spec})


def endpoints(name: str, addresses: int, ports: int) -> Ask:
    subset = {
        "addresses": [{"ip": f"10.1.{each >> 8}.{each & 255}"} for each in range(addresses)],
        "ports": [{"name": f"p{each}", "port": 1 + each} for each in range(ports)],
    }
    return Ask("POST", f"{IN}/endpoints", {"metadata": {"name": name}, "subsets": [subset]})


def named_ports(count: int) -> tuple[Ask, Ask]:
    """A pod, and a service that names its ports from the last to the first."""
    ports = [{"containerPort": 1 + number, "name": name} for number, name in enumerate(names("p", count))]
    asked = [
        {"name": f"q{number}", "port": 1 + number, "targetPort": f"p{count - 1 - number}"} for number in range(count)
    ]
    return pod("p", {"a": "b"}, containers=[{"name": "c", "image": "i", "ports": ports}]), service(
        "s", {"a": "b"}, asked
    )


def role(name: str, rules: int, labels: Json | None = None) -> Ask:
    given = [{"verbs": ["get"], "apiGroups": ["g"], "resources": [each]} for each in names("r", rules)]
    return Ask("POST", ROLES, {"metadata": {"name": name, "labels": labels or {}}, "rules": given})


def aggregating(name: str, count: int) -> Ask:
    """Half of its selectors name no label."""
    selectors = [
        {"matchLabels": {each: "b"}} if at % 2 else {"matchExpressions": [{"key": each, "operator": "Exists"}]}
        for at, each in enumerate(names("s", count))
    ]
    return Ask("POST", ROLES, {
        "metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": [],
    })  # fmt: skip


def budget(name: str, labels: int) -> Ask:
    spec = {"minAvailable": 1, "selector": {"matchLabels": dict.fromkeys(names("a", labels), "b")}}
    return Ask("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})


def budget_of_expressions(name: str, count: int) -> Ask:
    """All of which hold for any pod."""
    expressions = [{"key": key, "operator": "DoesNotExist"} for key in names("a", count)]
    return Ask("POST", BUDGETS, {
        "metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchExpressions": expressions}},
    })  # fmt: skip


def owned(name: str, owners: int) -> Ask:
    """By the ConfigMap `owner`, and by absent ones of a kind that is not served."""
    absent = [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": uid} for uid in names("u", owners)]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "UID"}
    body = {"metadata": {"name": name, "ownerReferences": [owner, *absent]}}
    return Ask("POST", f"{IN}/configmaps", body, uid_of=f"{IN}/configmaps/owner")


def absent_owners(name: str, count: int) -> Ask:
    """Of a kind that is served: the garbage collector asks for each."""
    absent = [{"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid} for uid in names("u", count)]
    return Ask("POST", f"{IN}/configmaps", {"metadata": {"name": name, "ownerReferences": absent}})


def ephemeral(pod_name: str, count: int) -> Ask:
    given = [{"name": name, "image": "i"} for name in names("e", count)]
    path = f"{IN}/pods/{pod_name}/ephemeralcontainers"
    return Ask("PATCH", path, {"spec": {"ephemeralContainers": given}}, STRATEGIC)


_AGGREGATED: Final = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
_OWNER: Final = Ask("POST", f"{IN}/configmaps", {"metadata": {"name": "owner"}})
_LABEL: Final = Ask("PATCH", f"{API}/nodes/node-1", {"metadata": {"labels": {"l": "1"}}}, MERGE)

CASES: Final[dict[str, Case]] = {
    "endpoints": Case((service("e", None, [{"port": 1}]),), (endpoints("e", 2500, 2500),)),
    "named ports": Case((named_ports(3000)[0],), (named_ports(3000)[1],)),
    "taints and tolerations": Case(
        (taints(4000, "NoSchedule"),), (pod("p", tolerations=tolerations(4000), nodeName=""),)
    ),
    "taints that evict": Case(
        (pod("p", tolerations=tolerations(4000), nodeName="node-0"),), (taints(4000, "NoExecute"),)
    ),
    "node terms of a DaemonSet": Case((), (daemon_set("d", affinity=node_terms(3000)), _LABEL), nodes=50),
    "labels that pods of a DaemonSet avoid": Case((), (daemon_set("d", affinity=apart_from(13_000)),)),
    "tolerations of a DaemonSet": Case(
        (), (daemon_set("d", nodeName="node-0", tolerations=tolerations(5000)), _LABEL), nodes=50
    ),
    "an aggregated role": Case((), (role("agg", 3600, _AGGREGATED), role("small", 0))),
    "budgets": Case(tuple(budget(name, 18_000) for name in names("b", 4)), (pod("p"), pod("q"))),
    "budgets of expressions": Case(
        tuple(budget_of_expressions(name, 5_000) for name in names("b", 4)), (pod("p"), pod("q"))
    ),
    "owners": Case((_OWNER, owned("c", 3500)), (Ask("DELETE", f"{IN}/configmaps/c"),)),
    "selectors of an aggregated role": Case((), (aggregating("agg", 4000), role("small", 0))),
    "absent owners": Case((), (absent_owners("c", 2500),)),
    "affinity to pods": Case((pod("q"),), (pod("p", affinity=pod_terms("podAffinity", 2500)), pod("r"))),
    "affinity to pods by a key each": Case(
        (pod("q"),), (pod("p", affinity=pod_terms("podAffinity", 2500, "k")), pod("r")), nodes=50
    ),
    "anti-affinity to pods": Case((pod("q"),), (pod("p", affinity=pod_terms("podAntiAffinity", 1500)), pod("r"))),
    "ephemeral containers": Case((pod("p"),), (ephemeral("p", 2500),)),
}


def size(ask: Ask) -> int:
    return len(orjson.dumps(ask.body)) if ask.body is not None else 0
