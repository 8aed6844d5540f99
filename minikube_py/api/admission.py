"""Upstream's default admission plugins: Priority, DefaultTolerationSeconds, RuntimeClass, PodTopologyLabels.

`api.strategy` applies `admit` before the rules of the kind, and the API server `validate_admission` after them, as
upstream does.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.errors import GroupResource, Json, StatusError, forbidden
from minikube_py.api.kind import Cluster
from minikube_py.api.kinds.node import RUNTIMECLASSES, take_scheduling
from minikube_py.api.kinds.scheduling import PREEMPT_LOWER, PRIORITYCLASSES, SYSTEM_PRIORITIES, default_class
from minikube_py.fields import quantity

_PODS: Final = GroupResource("", "pods", "Pod")
TOLERATION_S: Final = 300
TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"


def admit_pod(pod: Json, old: Json | None, cluster: Cluster) -> None:
    """In place; `old` is the stored pod on update. Raises: StatusError 403."""
    spec = pod["spec"]
    if old is None:
        _admit_priority(pod, spec, cluster)
    else:
        for name in ("priority", "preemptionPolicy"):
            if spec.get(name) is None and old["spec"].get(name) is not None:
                spec[name] = old["spec"][name]
    _admit_tolerations(spec)
    if old is None and (runtime := _runtime(pod, cluster)) is not None:
        if (overhead := _overhead(runtime)) is not None:
            if spec.get("overhead") and _amounts(spec["overhead"]) != _amounts(overhead):
                _refuse(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
            spec["overhead"] = overhead
        if why := take_scheduling(runtime, spec):
            _refuse(pod, why)


def take_topology(obj: Json, node: str, cluster: Cluster) -> None:
    """A pod that is created on a node, or the Binding of one, gets its zone and region, in place of what it says."""
    labels = cluster.topology_of(node)
    if taken := {key: labels[key] for key in TOPOLOGY if key in labels}:
        obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **taken}


def validate_overhead(pod: Json, cluster: Cluster) -> None:
    """Overhead must match the pod's RuntimeClass. Raises: StatusError 403."""
    runtime, own = _runtime(pod, cluster), pod["spec"].get("overhead")
    overhead = _overhead(runtime) if runtime is not None else None
    if overhead is None:
        if own is not None:
            _refuse(pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    elif _amounts(own or {}) != _amounts(overhead):
        _refuse(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")


def _runtime(pod: Json, cluster: Cluster) -> Json | None:
    """The class that a pod names. Raises: StatusError 403, 500 for an empty name, as upstream."""
    name = pod["spec"].get("runtimeClassName")
    if name is None:
        return None
    if not name:
        raise StatusError(500, "", "resource name may not be empty")
    found = cluster.get(RUNTIMECLASSES, "", name)
    if found is None:
        _refuse(pod, f'pod rejected: RuntimeClass "{name}" not found')
    return found


def _overhead(runtime: Json) -> Json | None:
    """Its pods' overhead; None without one."""
    return dict(runtime["overhead"].get("podFixed") or {}) if runtime.get("overhead") is not None else None


def _amounts(overhead: Json) -> dict[str, int]:
    return {name: quantity.parse(text).milli_value() for name, text in overhead.items()}


def _refuse(pod: Json, why: str) -> None:
    raise forbidden(_PODS, pod["metadata"].get("name") or "Unknown", why)


def _admit_priority(pod: Json, spec: Json, cluster: Cluster) -> None:
    name = spec.get("priorityClassName") or ""
    found = cluster.get(PRIORITYCLASSES, "", name) if name else default_class(cluster)
    if name and found is None:
        if name not in SYSTEM_PRIORITIES:
            _refuse(pod, f"no PriorityClass with name {name} was found")
        found = {"metadata": {"name": name}, "value": SYSTEM_PRIORITIES[name]}
    priority, wanted = 0, PREEMPT_LOWER
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
        priority, wanted = found.get("value", 0), found.get("preemptionPolicy") or PREEMPT_LOWER
    computed = "priority admission controller computed {} from the given PriorityClass name"
    given = spec.get("priority")
    if given is not None and given != priority:
        why = f"the integer value of priority ({given}) must not be provided in pod spec; {computed.format(priority)}"
        _refuse(pod, why)
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy != wanted:
        why = f"the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; "
        _refuse(pod, why + computed.format(wanted))
    spec["priority"] = priority
    spec["preemptionPolicy"] = wanted


def _admit_tolerations(spec: Json) -> None:
    """By default, pods tolerate an unreachable node for five minutes."""
    tolerations = spec.get("tolerations") or []
    missing = [_NOT_READY, _UNREACHABLE]
    for toleration in tolerations:
        if toleration.get("effect") in (None, "", "NoExecute"):
            key = toleration.get("key") or ""
            missing = [name for name in missing if key not in ("", name)]
    if missing:
        spec["tolerations"] = tolerations + [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S}
            for key in missing
        ]
