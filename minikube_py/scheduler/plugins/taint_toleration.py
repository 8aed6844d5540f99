"""TaintToleration and NodeUnschedulable: nodes that repel pods.

Source: "Taints and Tolerations" in the scheduling documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from minikube_py.api.tolerations import Tolerations
from minikube_py.scheduler.framework import (
    NODE,
    OF_NO_PODS,
    UNSCHEDULED_POD,
    Action,
    BoolArray,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    IntArray,
    Normalize,
    QueueingHint,
    Status,
    own_update,
)
from minikube_py.scheduler.objects import TAINT_NODE_UNSCHEDULABLE, NodeInfo, PodInfo, PodSpec, Taint

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns, Nodes

HARD_EFFECTS = frozenset(("NoSchedule", "NoExecute"))
UNTOLERATED = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) had untolerated taint(s)")
UNSCHEDULABLE = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) were unschedulable")
_CORDON = Taint(TAINT_NODE_UNSCHEDULABLE, "", "NoSchedule")


T = TypeVar("T")


class _Table(NamedTuple, Generic[T]):
    """By taint class; `sets` and `size`: the columns' classes it covers. Classes are only ever added."""

    sets: list[tuple[Taint, ...]]
    size: int
    values: T | None


def _tolerations(spec: PodSpec) -> Tolerations:
    known: Tolerations | None = spec.cache.get("tolerations")
    if known is None:
        known = spec.cache["tolerations"] = Tolerations(spec.tolerations)
    return known


def find_untolerated(taints: Iterable[Taint], spec: PodSpec, effects: frozenset[str]) -> Taint | None:
    """The first taint with one of `effects` that the pod does not tolerate."""
    tolerations = _tolerations(spec)
    for taint in taints:
        if taint.effect in effects and tolerations.first(*taint) is None:
            return taint
    return None


def count_preferred_against(taints: Sequence[Taint], spec: PodSpec) -> int:
    """The PreferNoSchedule taints that the pod does not tolerate."""
    tolerations = _tolerations(spec)
    return sum(taint.effect == "PreferNoSchedule" and tolerations.first(*taint) is None for taint in taints)


class TaintToleration:
    """Filter: no untolerated NoSchedule or NoExecute taint. Score: fewer untolerated PreferNoSchedule taints."""

    name = "TaintToleration"
    node_local = True
    of_pods = OF_NO_PODS
    normalize = Normalize(reverse=True)

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        pass

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_TAINT)),
            EventRegistration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION), own_update),
        )

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if not node.taints or find_untolerated(node.taints, pod.spec, HARD_EFFECTS) is None:
            return None
        return UNTOLERATED

    def _tolerated(self, spec: PodSpec, columns: NodeColumns) -> BoolArray | None:
        """By taint class, whether the pod tolerates it; None if it tolerates all."""
        sets = columns.taint_sets
        known: _Table[BoolArray] | None = spec.cache.get("taints/filter")
        if known is None or known.sets is not sets or known.size != len(sets):
            table = np.array([find_untolerated(taints, spec, HARD_EFFECTS) is None for taints in sets])
            known = spec.cache["taints/filter"] = _Table(sets, len(sets), None if table.all() else table)
        return known.values

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        table = self._tolerated(pod.spec, nodes.columns)
        if table is None:
            return None
        mask: BoolArray = table[nodes.taint_classes()]
        return mask

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        return np.ones(len(nodes), np.int64), lambda code: UNTOLERATED

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return count_preferred_against(node.taints, pod.spec) if node.taints else 0

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        sets = nodes.columns.taint_sets
        known: _Table[IntArray] | None = pod.spec.cache.get("taints/score")
        if known is None or known.sets is not sets or known.size != len(sets):
            table = np.array([count_preferred_against(taints, pod.spec) for taints in sets], np.int64)
            known = pod.spec.cache["taints/score"] = _Table(sets, len(sets), table if table.any() else None)
        if known.values is None:
            return None
        scores: IntArray = known.values[nodes.taint_classes()]
        return scores if scores.any() else None


class NodeUnschedulable:
    """Filter: the node is not cordoned (`spec.unschedulable`), or the pod tolerates the corresponding taint."""

    name = "NodeUnschedulable"
    node_local = True
    of_pods = OF_NO_PODS

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        pass

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_TAINT)),
            EventRegistration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION), self._after_own_update),
        )

    def _after_own_update(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        if own_update(pod, change) is QueueingHint.SKIP:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE if self._tolerates(change.new.spec) else QueueingHint.SKIP

    @staticmethod
    def _tolerates(spec: PodSpec) -> bool:
        return _tolerations(spec).first(*_CORDON) is not None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return UNSCHEDULABLE if node.unschedulable and not self._tolerates(pod.spec) else None

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        cordoned = nodes.unschedulable()
        if self._tolerates(pod.spec) or not cordoned.any():
            return None
        return ~cordoned

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        return np.ones(len(nodes), np.int64), lambda code: UNSCHEDULABLE
