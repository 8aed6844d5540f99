"""SchedulingGates and PrioritySort: which pods are tried, and in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minikube_py.scheduler.framework import (
    UNSCHEDULED_POD,
    Action,
    ClusterEvent,
    Code,
    EventRegistration,
    Status,
    own_update,
)

if TYPE_CHECKING:
    from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo


class SchedulingGates:
    """PreEnqueue: a pod waits until its `spec.schedulingGates` are gone (KEP-3521)."""

    name = "SchedulingGates"

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        pass

    def events_to_register(self) -> Sequence[EventRegistration]:
        gone = ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        return (EventRegistration(gone, own_update),)

    def gate_key(self, pod: PodInfo) -> object:
        """Only a pod's own update helps, which the queue puts to that pod alone."""
        return ()

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if not pod.gates:
            return None
        reason = f"waiting for scheduling gates: [{' '.join(pod.gates)}]"
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason)


class PrioritySort:
    """QueueSort: higher `spec.priority` first, then the longest waiting."""

    name = "PrioritySort"

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        pass

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        return (-queued.pod.priority, queued.timestamp_s)

    def less(self, a: QueuedPodInfo, b: QueuedPodInfo) -> bool:
        return self.sort_key(a) < self.sort_key(b)
