"""Asynchronous evictions for preempting pods.

A victim gets a condition with the reason, then it is deleted. One that is not bound yet only loses its node: while it
waits at Permit or is in PreBind, its binding is cancelled. The last victim is evicted after all others, so that its
deletion finds the preemptor awake.
Source: pkg/scheduler/framework/preemption/executor.go; KEP-4832.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, timestamp
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.env import ended
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.metrics import Metrics, exponential
from minikube_py.scheduler.objects import PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import ProfileRun, Scheduler

logger = logging.getLogger(__name__)

PLUGIN = "DefaultPreemption"
VICTIM_BUCKETS = exponential(1, 2, 7)
DURATION_BUCKETS = exponential(0.01, 2, 20)


@dataclass(slots=True, eq=False)
class Evictions:
    """Of one preemption; `last`: its last victim, once all others are evicted."""

    last: PodInfo | None = None


class Preemptions:
    def __init__(self, scheduler: Scheduler, metrics: Metrics) -> None:
        self._scheduler = scheduler
        self._metrics = metrics
        self._tasks: dict[asyncio.Task[None], None] = {}
        # By preemptor uid, its newest: as soon as the last victim is gone, the pod may preempt again.
        self._running: dict[str, Evictions] = {}

    def is_running(self, uid: str) -> bool:
        """Whether the pod must wait for its evictions."""
        if uid not in self._running:
            return False
        last = self._running[uid].last
        if last is None:
            return True
        known = self._scheduler.pod(last.key)
        return known is not None and known.uid == last.uid and not known.deleting

    def start(self, run: ProfileRun, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Victims already terminating are left alone."""
        staying = [victim for victim in victims if not victim.deleting]
        if not staying:
            return
        self._metrics.histogram("scheduler_preemption_victims", VICTIM_BUCKETS).observe(len(victims))
        evictions = self._running[pod.uid] = Evictions()
        task = asyncio.get_running_loop().create_task(self._run(run, pod, node_name, staying, evictions))
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await ended(*tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a preemption failed", exc_info=error)

    async def _run(
        self, run: ProfileRun, pod: PodInfo, node_name: str, victims: Sequence[PodInfo], evictions: Evictions
    ) -> None:
        since_s = self._scheduler.clock.monotonic_s()
        well = False
        try:
            well = await self._clear_lower(pod, node_name)
            well &= await self._evict_all(run, pod, node_name, victims, evictions)
        finally:
            if self._running.get(pod.uid) is evictions:
                del self._running[pod.uid]
        labels = (("result", "success" if well else "error"),)
        self._metrics.count("scheduler_preemption_goroutines_execution_total", labels)
        took_s = self._scheduler.clock.monotonic_s() - since_s
        taken = self._metrics.histogram("scheduler_preemption_goroutines_duration_seconds", DURATION_BUCKETS, labels)
        taken.observe(took_s)
        if not well:
            # No event may come to wake the pod.
            self._scheduler.activate((pod,), after_error=True)
        self._scheduler.wake()

    async def _clear_lower(self, pod: PodInfo, node_name: str) -> bool:
        """Pods of lower priority nominated to the node may fit elsewhere sooner."""
        well = True
        for other in [o for o in self._scheduler.nominations.on(node_name) if o.priority < pod.priority]:
            if not other.nominated_node:
                continue
            try:
                await self._patch(other, {"nominatedNodeName": None})
            except MinikubeError as error:
                logger.warning("the nomination of pod %s to %s stays: %s", other.key, node_name, error)
                well = False
        return well

    async def _evict_all(
        self, run: ProfileRun, pod: PodInfo, node_name: str, victims: Sequence[PodInfo], evictions: Evictions
    ) -> bool:
        *first, last = victims
        told = await asyncio.gather(
            *(self._evict_whole(run, pod, node_name, victim) for victim in first), return_exceptions=True
        )
        for failure in told:
            if isinstance(failure, MinikubeError):
                logger.warning("preemption for pod %s on %s: %s", pod.key, node_name, failure)
                return False
            if failure is not None:
                raise failure
        evictions.last = last
        try:
            await self._evict(run, pod, node_name, last)
        except MinikubeError as error:
            logger.warning("preemption for pod %s on %s: %s", pod.key, node_name, error)
            return False
        return True

    async def _evict_whole(self, run: ProfileRun, pod: PodInfo, node_name: str, victim: PodInfo) -> None:
        """Until a cancelled binding has given back its room; that of a deleted pod may go on for long. The end of the
        last victim wakes the preemptor."""
        if await self._evict(run, pod, node_name, victim):
            await self._scheduler.bindings.an_end_of(victim.uid)

    async def _evict(self, run: ProfileRun, pod: PodInfo, node_name: str, victim: PodInfo) -> bool:
        """True if only its binding was cancelled."""
        cancelled = self._is_cancelled(victim.uid)
        if not cancelled and not await self._delete(pod, victim):
            return False
        where = " (in kube-scheduler memory)." if cancelled else ""
        run.events.about(victim, NORMAL, "Preempted", f"Preempted by pod {pod.uid} on node {node_name}{where}")
        return cancelled

    def _is_cancelled(self, uid: str) -> bool:
        """Whether the victim was not bound yet, and will not be now."""
        waiting = self._scheduler.waiting_pods.get(uid)
        if waiting is not None:
            return waiting.preempt(PLUGIN)
        return self._scheduler.pre_bindings.cancel(uid, f"preempted by {PLUGIN}")

    async def _delete(self, pod: PodInfo, victim: PodInfo) -> bool:
        """False if it is already gone."""
        condition: dict[str, object] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{pod.scheduler_name}: preempting to accommodate a {_better(pod, victim)} pod",
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(self._scheduler.clock.wall_s()),
        }
        if victim.generation:
            condition["observedGeneration"] = victim.generation
        try:
            await self._patch(victim, {"conditions": [condition]})
            await self._scheduler.client.raw("DELETE", _path(victim), None, _DELETE)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def _patch(self, pod: PodInfo, status: dict[str, object]) -> None:
        body = orjson.dumps({"metadata": {"uid": pod.uid}, "status": status})
        await self._scheduler.client.raw("PATCH", f"{_path(pod)}/status", None, body, STRATEGIC_MERGE_PATCH)


def _better(pod: PodInfo, victim: PodInfo) -> str:
    """Flow scheduling also evicts by price, at equal priority."""
    return "higher priority" if pod.priority > victim.priority else "better priced"


_DELETE = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1"})


def _path(pod: PodInfo) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
