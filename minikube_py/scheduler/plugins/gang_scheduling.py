"""GangScheduling: pods of a PodGroup with a gang policy are bound once `minCount` of them have a place, or not at all.

PreEnqueue holds them back until that many exist; at Permit, placed pods wait for the others, for at most five minutes.
Behind the gates GenericWorkload and GangScheduling. Source: pkg/scheduler/framework/plugins/gangscheduling; KEP-4671.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.errors import go_quote
from minikube_py.scheduler.framework import (
    POD,
    Action,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    Handle,
    PermitResult,
    QueueingHint,
    Status,
)
from minikube_py.scheduler.groups.state import POD_GROUPS, PodGroupView
from minikube_py.scheduler.kinds import NeededKind

if TYPE_CHECKING:
    from minikube_py.scheduler.objects import PodInfo

PERMIT_TIMEOUT_S: Final = 300.0
TOO_FEW_KNOWN: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
TOO_FEW_PLACED: Final = "waiting for minCount pods from a gang to be scheduled"


class GangScheduling:
    name = "GangScheduling"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        return (POD_GROUPS,) if pod.group else ()

    def _group(self, pod: PodInfo) -> PodGroupView | None:
        found: PodGroupView | None = self._handle.kinds.of(POD_GROUPS).store.get(pod.group)
        return found

    # --- queueing hints ---------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(POD, Action.ADD), self._after_pod),
            EventRegistration(ClusterEvent(POD_GROUPS.name, Action.ADD), self._after_group),
        )

    def _after_pod(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        return QueueingHint.QUEUE if pod.group and pod.group == change.new.group else QueueingHint.SKIP

    def _after_group(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        return QueueingHint.QUEUE if pod.group and pod.group == change.new.key else QueueingHint.SKIP

    # --- points -----------------------------------------------------------------------------------------------------

    def gate_key(self, pod: PodInfo) -> object:
        return pod.group

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if not pod.group:
            return None
        group = self._group(pod)
        if group is None:
            name = go_quote(pod.group.partition("/")[2])
            text = f"waiting for pods's pod group {name} to appear in scheduling queue"
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)
        if group.min_count:
            known = self._handle.groups.get(pod.group)
            if known is None or len(known.pods) < group.min_count:
                return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, TOO_FEW_KNOWN)
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        if not pod.group:
            return PermitResult()
        group, handle = self._group(pod), self._handle
        if group is None:
            name = go_quote(pod.group.partition("/")[2])
            text = f"failed to get podGroup {pod.group}: podgroup.scheduling.k8s.io {name} not found"
            return PermitResult(Status(Code.ERROR, text))
        if not group.min_count:
            return PermitResult()
        known = handle.groups.get(pod.group)
        if known is None:
            return PermitResult(Status(Code.ERROR, f"pod group state not found for pod group {pod.group}"))
        if known.scheduled_count < group.min_count:
            handle.activate(list(known.unscheduled.values()))
            return PermitResult(Status(Code.WAIT, TOO_FEW_PLACED), PERMIT_TIMEOUT_S)
        for uid in list(known.assumed):
            handle.allow_waiting_pod(uid, self.name)
        return PermitResult()
