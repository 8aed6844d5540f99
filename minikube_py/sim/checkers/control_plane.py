"""Invariants of a control plane's objects whatever its components do: at every revision, and at rest.

It knows the Kubernetes API, and nothing of this implementation: it gets each change of an object, in order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import orjson

from minikube_py.fields.quantity import resource_units
from minikube_py.sim.checkers.plane_laws import (
    TERMINAL,
    Change,
    Laws,
    Object,
    controller_of,
    is_active,
    phase_of,
    pinned_to,
    selects,
)

PASSING: Final = frozenset(("events", "leases"))
"""Kinds of which only the last state matters, and to no component."""
GROUPS: Final = frozenset(("apps", "autoscaling", "batch", "policy"))
"""Group names without a dot, which precede the plural in a key."""
MEASURED: Final = ("cpu", "memory")


class Acknowledged(NamedTuple):
    """A write whose answer the client received: the object and the revision. `verb`: create, patch or delete."""

    verb: str
    key: str
    uid: str
    revision: int


class History:
    """`objects`: the current ones by plural and key (`namespace/name`); `problem`: the first broken invariant.
    `changes`: their number by plural; `last_change`: the last one other than a heartbeat. For the laws: `lag_s`: how
    late the components' views may be; `unknown`: by namespace, how many creations of pods by controllers have an
    unknown outcome; `counts`: what the laws have judged."""

    def __init__(self, unknown: Callable[[str], int] = lambda namespace: 0) -> None:
        self.objects: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        self.problem = ""
        self.changes: Counter[str] = Counter()
        self.last_change = ""
        self.lag_s = math.inf
        self.unknown = unknown
        self.counts: Counter[str] = Counter()
        self._laws = Laws()
        self._written: dict[tuple[int, str, str], str] = {}
        self._alive: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._on_node: defaultdict[str, dict[str, Object]] = defaultdict(dict)

    def add(self, key: bytes, value: bytes | None, revision: int, at_s: float = 0.0) -> None:
        """`value` None: it was deleted. `at_s`: when it was seen."""
        parts = key.decode().split("/")[2:]
        if parts[0] in GROUPS or "." in parts[0]:
            parts = parts[1:]
        plural, name = parts[0], "/".join(parts[1:])
        self.changes[plural] += 1
        if plural in PASSING:
            return
        known = self.objects[plural]
        old = known.get(name)
        if value is None:
            known.pop(name, None)
            if old is not None:
                uid = old["metadata"]["uid"]
                self._written[revision, plural, name] = uid
                self._alive.pop(uid, None)
                self._ended[uid] = revision
                if plural == "pods":
                    self._leave(old)
                self._judge(Change(plural, name, old, None, revision, at_s))
            self.last_change = f"{revision} {plural} {name} deleted"
            return
        new = known[name] = orjson.loads(value)
        uid = new["metadata"]["uid"]
        self._written[revision, plural, name] = uid
        self._alive[uid] = revision
        if plural == "pods":
            self._pod(old, new, revision)
        self._judge(Change(plural, name, old, new, revision, at_s))
        if plural != "nodes":
            self.last_change = f"{revision} {plural} {name} written"

    def fail(self, text: str) -> None:
        self.problem = self.problem or text

    def _judge(self, change: Change) -> None:
        if broken := self._laws.broken(change, self):
            self.fail(broken)

    # -- at every revision --------------------------------------------------------------------------------------------

    def _pod(self, old: Object | None, new: Object, revision: int) -> None:
        name, node = _name(new), new["spec"].get("nodeName", "")
        if old is not None and old["metadata"]["uid"] != new["metadata"]["uid"]:
            self._leave(old)
            old = None
        before = old["spec"].get("nodeName", "") if old is not None else ""
        if before and before != node:
            self.fail(f"bound once: pod {name} was bound to {before}, and at revision {revision} to {node or 'none'}")
        if old is not None and _ended(old) and not _ended(new):
            self.fail(f"phases: pod {name} had ended, and is {phase_of(new)} again at revision {revision}")
        if not node:
            return
        on_node = self._on_node[node]
        if _ended(new):
            on_node.pop(new["metadata"]["uid"], None)
            return
        arrived = new["metadata"]["uid"] not in on_node
        on_node[new["metadata"]["uid"]] = new
        if arrived and (over := overcommitted(self.objects["nodes"].get(node), list(on_node.values()))):
            self.fail(f"overcommitted: node {node} at revision {revision}, by pod {name}: {over}")

    def _leave(self, pod: Object) -> None:
        self._on_node[pod["spec"].get("nodeName", "")].pop(pod["metadata"]["uid"], None)

    # -- at the end ---------------------------------------------------------------------------------------------------

    def lost(self, acknowledged: Iterable[Acknowledged]) -> str:
        """An acknowledged write without any trace, "" if there is none."""
        for verb, key, uid, revision in acknowledged:
            plural, _, name = key.partition("/")
            if verb == "delete":
                deleted = self.objects[plural].get(name, {}).get("metadata", {})
                if deleted.get("uid") == uid:
                    return f"{key} ({uid}) is there, and its deletion was acknowledged"
            elif self._written.get((revision, plural, name)) != uid:
                return f"a {verb} of {key} ({uid}) was acknowledged with revision {revision}, at which there is none"
        return ""


def overcommitted(node: Object | None, pods: list[Object]) -> str:
    """The amounts by which the pods' requests exceed the node's capacity."""
    if node is None:
        return ""
    has = node["status"].get("allocatable", {})
    if len(pods) > _amount("pods", has.get("pods")):
        return f"{len(pods)} pods of {has.get('pods')}"
    for resource in MEASURED:
        asked = sum(requested(pod, resource) for pod in pods)
        if asked > _amount(resource, has.get(resource)):
            return f"{asked} of {has.get(resource)} {resource}"
    return ""


def requested(pod: Object, resource: str) -> int:
    containers = pod["spec"]["containers"]
    return sum(_amount(resource, each.get("resources", {}).get("requests", {}).get(resource)) for each in containers)


def _amount(resource: str, text: str | None) -> int:
    return 0 if text is None else resource_units(resource, text)


def _name(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def _ended(pod: Object) -> bool:
    return phase_of(pod) in TERMINAL


def is_true(obj: Object, condition: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


# -- at rest -----------------------------------------------------------------------------------------------------------

Objects = Mapping[str, Mapping[str, Object]]
Judge = Callable[[Objects], Iterator[str]]


def unrest(objects: Objects, promises: Iterable[str] = ()) -> list[str]:
    """What does not hold yet, by invariant: of all, or of those named. Once nothing fails and all pods fit, it must
    become empty."""
    return [f"{promise}: {text}" for promise in promises or AT_REST for text in AT_REST[promise](objects)]


def _live(objects: Objects) -> list[Object]:
    return [pod for pod in objects["pods"].values() if not _ended(pod)]


def _serving(objects: Objects) -> list[Object]:
    """Pods that are ready and not terminating."""
    return [pod for pod in _live(objects) if is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]]


def _by_controller(objects: Objects, plural: str) -> dict[str, list[Object]]:
    found: defaultdict[str, list[Object]] = defaultdict(list)
    for obj in objects[plural].values():
        if (owner := controller_of(obj)) is not None:
            found[owner["uid"]].append(obj)
    return found


def _deletions(objects: Objects) -> Iterator[str]:
    for plural, those in objects.items():
        for key, obj in those.items():
            if "deletionTimestamp" in obj["metadata"]:
                yield f"{plural} {key} is being deleted, finalizers {obj['metadata'].get('finalizers') or 'none'}"


def _orphans(objects: Objects) -> Iterator[str]:
    uids = {obj["metadata"]["uid"] for those in objects.values() for obj in those.values()}
    for plural, those in objects.items():
        for key, obj in those.items():
            owners = obj["metadata"].get("ownerReferences") or ()
            if owners and not any(owner["uid"] in uids for owner in owners):
                yield f"{plural} {key} is owned by {owners[0]['kind']} {owners[0]['name']}, which is not there"
    for key, pod in objects["pods"].items():
        node = pod["spec"].get("nodeName", "")
        if node and node not in objects["nodes"]:
            yield f"pod {key} is bound to {node}, which is not there"


def _pods(objects: Objects) -> Iterator[str]:
    for pod in _live(objects):
        if not pod["spec"].get("nodeName"):
            told = [each.get("message", "") for each in pod["status"].get("conditions") or ()]
            yield f"{_name(pod)} has no node: {told}"
        elif phase_of(pod) != "Running" or not is_true(pod, "Ready"):
            yield f"{_name(pod)} on {pod['spec']['nodeName']} is {phase_of(pod)}, and not ready"
    addresses = Counter(pod["status"].get("podIP") for pod in _live(objects))
    yield from (f"{count} pods have the address {each}" for each, count in addresses.items() if each and count > 1)


def _nodes(objects: Objects) -> Iterator[str]:
    for name, node in objects["nodes"].items():
        if not is_true(node, "Ready"):
            yield f"{name} is not ready"
        if taints := node["spec"].get("taints"):
            yield f"{name} has taints {taints}"


def _replicas(objects: Objects) -> Iterator[str]:
    pods = _by_controller(objects, "pods")
    for plural in ("replicationcontrollers", "replicasets"):
        for key, obj in objects[plural].items():
            spec, status = obj["spec"], obj.get("status", {})
            live = [pod for pod in pods.get(obj["metadata"]["uid"], []) if not _ended(pod)]
            wanted = spec.get("replicas", 1)
            ready = sum(is_true(pod, "Ready") for pod in live)
            told = status.get("replicas", 0), status.get("readyReplicas", 0)
            if len(live) != wanted:
                yield f"{plural} {key} wants {wanted} pods, and has {len(live)}"
            elif told != (len(live), ready):
                yield f"{plural} {key} has {len(live)} pods, {ready} ready, and says {told}"
            elif status.get("observedGeneration", 0) != obj["metadata"].get("generation", 0):
                yield f"{plural} {key} has not seen its last change"


def _deployments(objects: Objects) -> Iterator[str]:
    sets = _by_controller(objects, "replicasets")
    for key, obj in objects["deployments"].items():
        status, wanted = obj.get("status", {}), obj["spec"].get("replicas", 1)
        mine = sets.get(obj["metadata"]["uid"], [])
        template = obj["spec"]["template"]["spec"]
        newest = [each for each in mine if each["spec"]["template"]["spec"] == template]
        counts = [status.get(each, 0) for each in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
        if len(newest) != 1 or newest[0]["spec"].get("replicas") != wanted:
            yield f"{key} wants {wanted} of its template, and has {len(newest)} ReplicaSets of it"
        elif any(each["spec"].get("replicas") for each in mine if each is not newest[0]):
            yield f"{key} keeps pods of an older template"
        elif counts != [wanted] * 4 or status.get("observedGeneration") != obj["metadata"]["generation"]:
            yield f"{key} wants {wanted}, and says {counts}"


def _stateful_sets(objects: Objects) -> Iterator[str]:
    pods = _by_controller(objects, "pods")
    for key, obj in objects["statefulsets"].items():
        status, wanted = obj.get("status", {}), obj["spec"].get("replicas", 1)
        names = sorted(pod["metadata"]["name"] for pod in pods.get(obj["metadata"]["uid"], []))
        ordinals = sorted(f"{obj['metadata']['name']}-{ordinal}" for ordinal in range(wanted))
        counts = [status.get(each, 0) for each in ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas")]
        if names != ordinals:
            yield f"{key} wants {wanted} pods, and has {names}"
        elif counts != [wanted] * 4 or status.get("observedGeneration") != obj["metadata"]["generation"]:
            yield f"{key} wants {wanted}, and says {counts}"


def _daemon_sets(objects: Objects) -> Iterator[str]:
    pods = _by_controller(objects, "pods")
    for key, obj in objects["daemonsets"].items():
        status, wanted = obj.get("status", {}), sorted(objects["nodes"])
        nodes = sorted(map(pinned_to, filter(is_active, pods.get(obj["metadata"]["uid"], []))))
        counts = [status.get(f"{each}Scheduled", 0) for each in ("desiredNumber", "currentNumber")]
        counts += [status.get(each, 0) for each in ("numberReady", "updatedNumberScheduled")]
        if nodes != wanted:
            yield f"{key} wants a pod on each of {wanted}, and has them on {nodes}"
        elif counts != [len(wanted)] * 4 or status.get("observedGeneration") != obj["metadata"]["generation"]:
            yield f"{key} wants {len(wanted)}, and says {counts}"


def _volumes(objects: Objects) -> Iterator[str]:
    claims = {obj["metadata"]["uid"]: obj for obj in objects["persistentvolumeclaims"].values()}
    for key, claim in objects["persistentvolumeclaims"].items():
        if claim.get("status", {}).get("phase") != "Bound":
            yield f"claim {key} is {claim.get('status', {}).get('phase')}"
    for key, volume in objects["persistentvolumes"].items():
        claim = claims.get((volume["spec"].get("claimRef") or {}).get("uid", ""), {})
        if claim.get("spec", {}).get("volumeName") != key:
            yield f"volume {key} is no claim's"


def _autoscalers(objects: Objects) -> Iterator[str]:
    for key, scaler in objects["horizontalpodautoscalers"].items():
        spec = scaler["spec"]
        target = objects["deployments"].get(f"{key.partition('/')[0]}/{spec['scaleTargetRef']['name']}")
        replicas = 0 if target is None else target["spec"].get("replicas", 1)
        if replicas and not spec.get("minReplicas", 1) <= replicas <= spec["maxReplicas"]:
            yield f"the target of {key} has {replicas} replicas"


def _jobs(objects: Objects) -> Iterator[str]:
    for key, obj in objects["jobs"].items():
        status, wanted = obj.get("status", {}), obj["spec"].get("completions", 1)
        if not is_true(obj, "Complete") and not is_true(obj, "Failed"):
            yield f"{key} has not ended: {status.get('active', 0)} active, {status.get('succeeded', 0)} of {wanted}"
        elif is_true(obj, "Complete") and status.get("succeeded", 0) != wanted:
            yield f"{key} is complete with {status.get('succeeded', 0)} of {wanted}"
        elif status.get("active") or status.get("uncountedTerminatedPods", {}).get("succeeded"):
            yield f"{key} has ended, and counts on"


def _endpoints(objects: Objects) -> Iterator[str]:
    for key, service in objects["services"].items():
        selector = service["spec"].get("selector")
        if not selector:
            continue
        namespace, _, name = key.partition("/")
        ready = sorted(
            pod["status"].get("podIP", "") for pod in _serving(objects)
            if pod["metadata"]["namespace"] == namespace
            and selector.items() <= (pod["metadata"].get("labels") or {}).items()
        )  # fmt: skip
        told = sorted(
            address for piece in objects["endpointslices"].values()
            if piece["metadata"]["namespace"] == namespace
            and (piece["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == name
            for each in piece.get("endpoints") or () if each.get("conditions", {}).get("ready")
            for address in each["addresses"]
        )  # fmt: skip
        if ready != told:
            yield f"the pods of service {key} have {ready}, and its slices {told}"


def _quotas(objects: Objects) -> Iterator[str]:
    for key, quota in objects["resourcequotas"].items():
        namespace = key.partition("/")[0]
        pods = sum(pod["metadata"]["namespace"] == namespace for pod in _live(objects))
        told, hard = quota.get("status", {}).get("used", {}).get("pods"), quota["spec"]["hard"].get("pods")
        if hard is not None and told != str(pods):
            yield f"in {key} are {pods} pods, and it says {told}"


def _budgets(objects: Objects) -> Iterator[str]:
    for key, budget in objects["poddisruptionbudgets"].items():
        healthy = sum(selects(budget, pod) for pod in _serving(objects))
        status = budget.get("status", {})
        allowed = max(0, healthy - budget["spec"].get("minAvailable", 0))
        if (status.get("currentHealthy"), status.get("disruptionsAllowed")) != (healthy, allowed):
            yield f"of {key} are {healthy} healthy, {allowed} may go, and it says {status}"


AT_REST: Final[Mapping[str, Judge]] = {
    "deletions end": _deletions,
    "no orphan": _orphans,
    "nodes are healthy": _nodes,
    "pods run": _pods,
    "replicas": _replicas,
    "deployments": _deployments,
    "stateful sets": _stateful_sets,
    "daemon sets": _daemon_sets,
    "volumes": _volumes,
    "autoscalers": _autoscalers,
    "jobs end": _jobs,
    "endpoints": _endpoints,
    "quotas": _quotas,
    "budgets": _budgets,
}
