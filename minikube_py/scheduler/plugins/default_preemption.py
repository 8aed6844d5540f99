"""DefaultPreemption: says what preemption could do for a pod that fits nowhere.

The point stands, and its verdict is the original's where no lower-priority pod runs; evicting victims is not done yet,
and where it would be tried the message says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minikube_py.scheduler.framework import Code, CycleState, Diagnosis, PostFilterResult, Status

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.objects import PodInfo

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_DONE = "Preemption of lower-priority pods is not supported yet"


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        # The original asks two plugins in turn: DynamicResources, which has no claims to give back, then this one.
        if diagnosis.pre_filter_message:
            return None, Status(Code.ERROR, "not found")
        reasons = ("no new claims to deallocate", self._verdict(pod, diagnosis))
        return PostFilterResult(""), Status(Code.UNSCHEDULABLE, *reasons)

    def _verdict(self, pod: PodInfo, diagnosis: Diagnosis) -> str:
        if pod.preemption_policy == "Never":
            return "preemption: not eligible due to preemptionPolicy=Never."
        candidates = diagnosis.unschedulable_nodes
        others = diagnosis.node_count - candidates
        reason = NOT_DONE if candidates and self._lower_priority_exists(pod) else NO_VICTIMS
        counted = sorted(f"{n} {text}" for n, text in ((others, NOT_HELPFUL), (candidates, reason)) if n)
        return f"preemption: 0/{diagnosis.node_count} nodes are available: {', '.join(counted)}."

    def _lower_priority_exists(self, pod: PodInfo) -> bool:
        return self._handle.columns.lowest_priority() < pod.priority
