"""What upstream's default admission plugins do: Priority, DefaultTolerationSeconds, RuntimeClass.

`api.strategy` applies `admit` before the rules of the kind, and the API server `validate_admission` after them, as
upstream does.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.errors import GroupResource, Json, forbidden
from minikube_py.api.kind import Cluster
from minikube_py.api.kinds.scheduling import PREEMPT_LOWER, PRIORITYCLASSES, SYSTEM_PRIORITIES, default_class

_PODS: Final = GroupResource("", "pods", "Pod")
TOLERATION_S: Final = 300
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"


def admit_pod(pod: Json, old: Json | None, cluster: Cluster) -> None:
    """In place; `old` is the stored pod on update. Raises: StatusError 403."""
    spec = pod["spec"]
    if old is None:
        _admit_priority(pod, spec, cluster)
        if spec.get("runtimeClassName"):
            _refuse(pod, f'pod rejected: RuntimeClass "{spec["runtimeClassName"]}" not found')
        if spec.get("overhead") is not None:
            _refuse(pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    else:
        for name in ("priority", "preemptionPolicy"):
            if spec.get(name) is None and old["spec"].get(name) is not None:
                spec[name] = old["spec"][name]
    _admit_tolerations(spec)


def _refuse(pod: Json, why: str) -> None:
    raise forbidden(_PODS, pod["metadata"].get("name") or "", why)


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
    """Pods outlive a lost node by five minutes, unless they say otherwise."""
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
