"""What the original's default admission plugins do to pods: Priority, DefaultTolerationSeconds, RuntimeClass.

`api.strategy` applies it before the rules of the kind, as the original does. Priority classes beyond the two that
every cluster has are not served, so any other name is refused.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.errors import GroupResource, Json, forbidden

_PODS: Final = GroupResource("", "pods", "Pod")
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
TOLERATION_S: Final = 300
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
PREEMPT_LOWER: Final = "PreemptLowerPriority"


def admit_pod(pod: Json, old: Json | None = None) -> None:
    """In place; `old` is the stored pod on update. Raises: StatusError 403."""
    spec = pod["spec"]
    if old is None:
        _admit_priority(pod, spec)
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


def _admit_priority(pod: Json, spec: Json) -> None:
    name = spec.get("priorityClassName") or ""
    priority = SYSTEM_PRIORITIES.get(name, 0)
    if name and name not in SYSTEM_PRIORITIES:
        _refuse(pod, f"no PriorityClass with name {name} was found")
    computed = "priority admission controller computed {} from the given PriorityClass name"
    given = spec.get("priority")
    if given is not None and given != priority:
        why = f"the integer value of priority ({given}) must not be provided in pod spec; {computed.format(priority)}"
        _refuse(pod, why)
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy != PREEMPT_LOWER:
        why = f"the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; "
        _refuse(pod, why + computed.format(PREEMPT_LOWER))
    spec["priority"] = priority
    spec["preemptionPolicy"] = PREEMPT_LOWER


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
