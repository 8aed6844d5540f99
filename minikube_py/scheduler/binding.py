"""The binding cycle: each pod with a chosen node is bound asynchronously, independently of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import PODS
from minikube_py.env import ended
from minikube_py.errors import MinikubeError, OutcomeUnknown
from minikube_py.scheduler.framework import CODE_NAMES, SUCCESS, Code, CycleState, Status
from minikube_py.scheduler.metrics import ATTEMPT_BUCKETS
from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo
from minikube_py.scheduler.permit import WaitingPod
from minikube_py.scheduler.scoring import Choice

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import ProfileRun, Scheduler

logger = logging.getLogger(__name__)

UNKNOWN_RETRY_S = 0.5


class Bindings:
    """`in_flight`: pods being bound, except those waiting at Permit or PreBind, which may take long. Bindings do not
    wait for each other."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._waiting = 0
        self._an_end = asyncio.Event()

    @property
    def has_room(self) -> bool:
        """Whether another binding may start."""
        return self.in_flight < self._scheduler.config.binds_in_flight_max

    async def an_end(self) -> None:
        """Until a binding ends or starts a long wait."""
        self._an_end.clear()
        await self._an_end.wait()

    async def an_end_of(self, uid: str) -> None:
        """Until the pod's binding has ended, if there is one."""
        await ended(*(task for task, pod_uid in self._tasks.items() if pod_uid == uid))

    @property
    def in_flight(self) -> int:
        return len(self._tasks) - self._waiting

    def start(
        self, run: ProfileRun, queued: QueuedPodInfo, choice: Choice, waits: dict[str, float], started_s: float
    ) -> None:
        waiting = None
        if waits:
            waiting = self._scheduler.waiting_pods.add(queued.pod, choice.node.name, waits)
        else:
            # From here on a failure is an error, not a rejection: events need not be kept for the pod.
            self._scheduler.queue.done(queued.pod.uid)
        cycle = self._cycle(run, queued, choice.state, choice.node.name, waiting, started_s)
        task = asyncio.get_running_loop().create_task(cycle)
        self._tasks[task] = queued.pod.uid
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._an_end.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a binding cycle failed", exc_info=error)
        self._scheduler.wake()

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await ended(*tasks)

    async def _cycle(
        self,
        run: ProfileRun,
        queued: QueuedPodInfo,
        state: CycleState,
        node_name: str,
        waiting: WaitingPod | None,
        started_s: float,
    ) -> None:
        try:
            status = await self._ready(run, queued.pod, state, node_name, waiting)
            if status.is_success:
                since_s = self._scheduler.clock.monotonic_s()
                status = await self._bind(run, queued.pod, state, node_name)
                took_s = self._scheduler.clock.monotonic_s() - since_s
                run.attempts.point("Bind", CODE_NAMES[status.code], took_s)
        except MinikubeError as error:
            status = Status(Code.ERROR, str(error) or type(error).__name__)
        except Exception as error:
            logger.exception("binding of pod %s", queued.pod.key)
            status = Status(Code.ERROR, str(error) or type(error).__name__)
        if status.is_success:
            self._scheduler.bound(run, queued, node_name, started_s)
            if run.profile.post_binders:
                run.profile.run_post_bind(state, queued.pod, node_name)
        else:
            self._failed(run, queued, state, node_name, status, started_s)

    async def _ready(
        self, run: ProfileRun, pod: PodInfo, state: CycleState, node_name: str, waiting: WaitingPod | None
    ) -> Status:
        """Waits at Permit, and runs PreBind. A pod with neither is bound at once; of any other, the nominated node says
        where it is going to run, to an autoscaler for example."""
        scheduler, status = self._scheduler, SUCCESS
        try:
            pre_binders = run.profile.pre_binders_of(state, pod, node_name)
            if waiting is None and not pre_binders:
                return status
            with self._let_others_go():
                known = scheduler.pod(pod.key)
                await scheduler.conditions.nominate(known if known and known.uid == pod.uid else pod, node_name)
                if waiting is not None:
                    status = await self._permitted(waiting)
                if status.is_success and pre_binders:
                    since_s = scheduler.clock.monotonic_s()
                    status = await scheduler.pre_bindings.run(pre_binders, state, pod, node_name)
                    run.attempts.point("PreBind", CODE_NAMES[status.code], scheduler.clock.monotonic_s() - since_s)
        finally:
            if waiting is not None:
                scheduler.waiting_pods.remove(pod.uid)
        return status

    @contextmanager
    def _let_others_go(self) -> Iterator[None]:
        self._waiting += 1
        self._an_end.set()
        self._scheduler.wake()
        try:
            yield
        finally:
            self._waiting -= 1

    async def _permitted(self, waiting: WaitingPod) -> Status:
        scheduler, uid = self._scheduler, waiting.pod.uid
        since_s = scheduler.clock.monotonic_s()
        status = await waiting.result
        scheduler.waiting_pods.remove(uid)
        waited_s = scheduler.clock.monotonic_s() - since_s
        labels = (("result", CODE_NAMES[status.code]),)
        scheduler.observe("scheduler_permit_wait_duration_seconds", ATTEMPT_BUCKETS, labels, waited_s)
        if status.is_success:
            scheduler.queue.done(uid)
        return status

    async def _bind(self, run: ProfileRun, pod: PodInfo, state: CycleState, node_name: str) -> Status:
        """If the response is lost, the node stays charged until the outcome is known: the pod is read, and bound again
        to the same node if it is unbound. Giving up would be wrong: the API server may process the lost request after
        the read, which uses another connection."""
        lost = False
        while True:
            refusal: StatusError | None = None
            try:
                bound = await self._scheduler.extenders.bind(pod, node_name) if not lost else None
                return bound or await run.profile.run_bind(state, pod, node_name)
            except OutcomeUnknown:
                lost = True
            except StatusError as error:
                # 504: the API server lost its store during the write, or timed out waiting for it.
                lost = lost or error.code == 504
                if error.code == 409:
                    refusal = error
                elif not (lost and _may_pass(error)):
                    raise
            except MinikubeError:
                if not lost:
                    raise
            found = await self._look_up(pod)
            if found == node_name:
                return Status(Code.SUCCESS)
            if refusal is not None:
                raise refusal
            if found:
                return Status(Code.ERROR, f"the answer to the binding was lost, and the pod is bound to {found}")
            await self._scheduler.clock.sleep(UNKNOWN_RETRY_S)

    async def _look_up(self, pod: PodInfo) -> str:
        """`_bound_to`, retried until the API server responds. Raises: StatusError."""
        while True:
            try:
                return await self._bound_to(pod)
            except StatusError as error:
                if not _may_pass(error):
                    raise
            except MinikubeError:
                pass
            await self._scheduler.clock.sleep(UNKNOWN_RETRY_S)

    async def _bound_to(self, pod: PodInfo) -> str:
        """The pod's node according to the API server, "" if none. Raises: StatusError (404 too), Unavailable."""
        obj = await self._scheduler.client.get(PODS, pod.name, pod.namespace)
        if obj["metadata"].get("uid") != pod.uid:
            raise StatusError(404, "NotFound", f'pods "{pod.name}" not found', None)
        return str((obj.get("spec") or {}).get("nodeName") or "")

    def _failed(
        self,
        run: ProfileRun,
        queued: QueuedPodInfo,
        state: CycleState,
        node_name: str,
        status: Status,
        started_s: float,
    ) -> None:
        scheduler, pod = self._scheduler, queued.pod
        released = scheduler.release(run, state, pod, node_name)
        if released and not status.is_rejected:
            scheduler.unassumed(pod, node_name, rejected=False)
        scheduler.fail_by_status(run, queued, status, started_s)
        if released and status.is_rejected:
            # Only now: while the pod is in flight, the event would wake the pod that was just rejected.
            scheduler.unassumed(pod, node_name, rejected=True)


def _may_pass(error: StatusError) -> bool:
    """Whether a retry may succeed."""
    return error.code >= 500 or error.code == 429
