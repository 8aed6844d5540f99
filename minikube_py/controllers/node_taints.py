"""Taints that follow a node's conditions. Pure.

Source: k8s.io/kubernetes/pkg/controller/nodelifecycle (nodeConditionToTaintKeyStatusMap).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from minikube_py.api.tolerations import Tolerations, fields_of
from minikube_py.client.rest import Object
from minikube_py.controllers.views import NodeView

Taint = Mapping[str, Any]
TaintId = tuple[str, str]
"""(key, effect)"""

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"

_BY_CONDITION: Final[Mapping[str, Mapping[str, str]]] = {
    "Ready": {"False": NOT_READY, "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": "node.kubernetes.io/memory-pressure"},
    "DiskPressure": {"True": "node.kubernetes.io/disk-pressure"},
    "NetworkUnavailable": {"True": "node.kubernetes.io/network-unavailable"},
    "PIDPressure": {"True": "node.kubernetes.io/pid-pressure"},
}
_OWN_KEYS: Final = frozenset(key for keys in _BY_CONDITION.values() for key in keys.values()) | {UNSCHEDULABLE}
UNHEALTHY: Final = frozenset(((NOT_READY, NO_EXECUTE), (UNREACHABLE, NO_EXECUTE)))


def taint_ids(taints: Iterable[Taint]) -> set[TaintId]:
    return {(taint.get("key", ""), taint.get("effect", "")) for taint in taints}


def no_schedule_changes(node: NodeView) -> tuple[set[TaintId], set[TaintId]]:
    """The taints that its conditions and spec.unschedulable require: (to add, to remove)."""
    wanted = {(UNSCHEDULABLE, NO_SCHEDULE)} if node.unschedulable else set()
    for kind, keys in _BY_CONDITION.items():
        condition = node.conditions.get(kind)
        key = keys.get(condition.get("status", "")) if condition is not None else None
        if key is not None:
            wanted.add((key, NO_SCHEDULE))
    if not wanted and not node.taints:
        return set(), set()
    present = {(key, effect) for key, effect in taint_ids(node.taints) if effect == NO_SCHEDULE and key in _OWN_KEYS}
    return wanted - present, present - wanted


def unhealthy_changes(ready: str) -> tuple[set[TaintId], set[TaintId]]:
    """NoExecute taints by the status of the Ready condition: (to add, to remove)."""
    if ready == "False":
        return {(NOT_READY, NO_EXECUTE)}, {(UNREACHABLE, NO_EXECUTE)}
    if ready == "Unknown":
        return {(UNREACHABLE, NO_EXECUTE)}, {(NOT_READY, NO_EXECUTE)}
    return set(), set(UNHEALTHY)


def changed_taints(
    taints: Iterable[Taint], add: Collection[TaintId], remove: Collection[TaintId], added_at: str
) -> list[Object] | None:
    """The list after the change, None if unchanged. Other taints keep their order."""
    before = [dict(taint) for taint in taints]
    present = taint_ids(before)
    after = [taint for taint in before if (taint.get("key", ""), taint.get("effect", "")) not in remove]
    for key, effect in sorted(set(add) - present):
        after.append({"key": key, "effect": effect, "timeAdded": added_at})
    return after if after != before else None


def toleration_s(taints: Iterable[Taint], tolerations: Sequence[Mapping[str, Any]]) -> float:
    """How long a pod with these tolerations may stay on a node with these NoExecute taints: 0 not at all, inf forever.

    The shortest tolerationSeconds of those that match counts; a taint that none matches means 0."""
    found, limits = Tolerations(map(fields_of, tolerations)), []
    for taint in taints:
        place = place_of(found, taint)
        if place is None:
            return 0.0
        if (limit_s := tolerations[place].get("tolerationSeconds")) is not None:
            limits.append(limit_s)
    return float(max(0, min(limits))) if limits else float("inf")


def place_of(tolerations: Tolerations, taint: Taint) -> int | None:
    """Of the first that tolerates it."""
    return tolerations.first(taint.get("key") or "", taint.get("value") or "", taint.get("effect") or "")
