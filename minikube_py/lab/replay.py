"""Replays a trace: pods in arrival order, their outcomes, and the nodes' fill level over time.

By default pods never leave and arrive without delay, as in the trace's paper. With `departures` each pod is deleted at
its time, in the trace's order; `speed`: trace seconds per second (0: as fast as the API accepts them).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import truediv

from minikube_py.client.transport import ApiTransport
from minikube_py.env import Clock, ended
from minikube_py.lab.load import IN_FLIGHT, LoadError, create_namespaces, create_pod, delete_pod, run_bounded
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.progress import Progress
from minikube_py.lab.trace import Trace
from minikube_py.lab.workload import RUN_LABEL, PodBody, trace_pods

NAMESPACE = "openb"
RUN = "openb"
SAMPLE_EVERY_S = 0.25
SAMPLES_MAX = 1000
QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class Mark:
    """When this share of the GPUs is allocated, the replay pauses until `action` ends.

    `action` gets the reached share; it is below `share` if the trace ended or nothing more fits."""

    share: float
    action: Callable[[float], Awaitable[None]]


class Replay:
    """One replay of `trace` over `transport`; the nodes must exist already."""

    def __init__(self, trace: Trace, transport: ApiTransport, clock: Clock, in_flight: int = IN_FLIGHT) -> None:
        self.recorder = PodRecorder(transport, clock, f"{RUN_LABEL}={RUN}")
        self.series: list[tuple[float, array[float]]] = []
        self.live_series: list[tuple[float, int]] = []
        self.duration_s = self.standing_s = 0.0
        self._standing_since_s: float | None = None
        self.live_max = self._gone = 0
        self._sample_every_s = SAMPLE_EVERY_S
        self._trace, self._transport, self._clock, self._in_flight = trace, transport, clock, in_flight
        self._bodies = trace_pods(trace.pods, NAMESPACE, RUN)
        sizes = zip(self._bodies, trace.pods, strict=True)
        self._gpu_milli: dict[str, int] = {body.key: pod.gpu_total_milli for body, pod in sizes}
        self._node_of: dict[str, str] = {}
        self._number = {node.name: number for number, node in enumerate(trace.nodes)}
        self._used_milli = array("d", bytes(8 * len(trace.nodes)))
        self._capacity_milli = [node.gpus * 1000 or math.inf for node in trace.nodes]
        self._sent_milli = 0
        self._sent_count = 0
        self.recorder.on_bound = lambda key, node: self._account(key, node, 1)
        self.recorder.on_gone = self._leave

    @property
    def allocated_share(self) -> float:
        """Bound GPU thousandths as a share of the total; 0 of a trace without GPUs."""
        return sum(self._used_milli) / max(1, self._trace.gpu_capacity_milli)

    def placements_sum(self) -> str:
        """SHA-256 over each pod and its node, in the trace's order."""
        lines = (f"{body.key} {self._node_of.get(body.key, '')}\n" for body in self._bodies)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    async def run(self, shown: Progress, marks: Sequence[Mark] = ()) -> None:
        """Until every pod is Running or known to fit nowhere. Raises: LoadError, Unavailable, OutcomeUnknown."""
        await self._around(shown, lambda: self._feed(shown, list(marks)))

    async def run_with_departures(self, shown: Progress, speed: float = 0.0) -> None:
        """Until every pod has arrived and left. Raises: as `run`."""
        if speed:
            last_s = max(pod.arrival_s + pod.duration_s for pod in self._trace.pods)
            self._sample_every_s = max(SAMPLE_EVERY_S, last_s / speed / SAMPLES_MAX)
        await self._around(shown, lambda: self._feed_with_departures(speed))

    async def _around(self, shown: Progress, feed: Callable[[], Awaitable[None]]) -> None:
        await create_namespaces(self._transport, [NAMESPACE])
        await self.recorder.start()
        started_s = self._clock.monotonic_s()
        sampler = asyncio.create_task(self._sample(started_s, shown))
        try:
            await feed()
        finally:
            sampler.cancel()
            await ended(sampler)
            await self.recorder.stop()
        self.duration_s = self._clock.monotonic_s() - started_s - self.standing_s
        self._take_sample(started_s, shown)

    async def _feed(self, shown: Progress, marks: list[Mark]) -> None:
        waiting = iter(self._bodies)
        while True:
            upto = marks[0].share * self._trace.gpu_capacity_milli if marks else None
            await run_bounded(self._creations(waiting, upto), self._in_flight)
            await self._settle()
            ended = self._sent_count == len(self._bodies)
            while marks and (ended or self.allocated_share >= marks[0].share):
                mark = marks.pop(0)
                self._standing_since_s = self._clock.monotonic_s()
                await mark.action(self.allocated_share)
                self.standing_s += self._clock.monotonic_s() - self._standing_since_s
                self._standing_since_s = None
            if ended:
                return

    async def _creations(
        self, waiting: Iterator[PodBody], upto_milli: float | None
    ) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        """Pods until those not refused would bring the allocation to `upto_milli`."""
        for body in waiting:
            self._sent_milli += self._gpu_milli[body.key]
            self._sent_count += 1
            yield partial(create_pod, self._transport, body, self.recorder)
            if upto_milli is not None and self._sent_milli - self._refused_milli() >= upto_milli:
                return

    def _refused_milli(self) -> int:
        return sum(self._gpu_milli[key] for key in self.recorder.unschedulable)

    async def _settle(self) -> None:
        """Until every pod sent is Running, or known to fit nowhere."""
        recorder = self.recorder
        done = await recorder.wait_until(
            lambda: recorder.running + len(recorder.unschedulable) >= self._sent_count, QUIET_S
        )
        if not done:
            raise LoadError(
                f"of {self._sent_count} pods {recorder.bound} were bound and {recorder.running} became Running, "
                f"then nothing happened for {QUIET_S:.0f} s; look at the scheduler's and the kubelet's messages"
            )

    async def _feed_with_departures(self, speed: float) -> None:
        moments: list[tuple[int, int, int]] = []
        for number, pod in enumerate(self._trace.pods):
            moments.append((pod.arrival_s, 1, number))
            moments.append((pod.arrival_s + pod.duration_s, 2, number))
        await run_bounded(self._comings_and_goings(sorted(moments), speed), self._in_flight)
        recorder = self.recorder
        gone = await recorder.wait_until(lambda: all(times.deleted for times in recorder.pods.values()), QUIET_S)
        if not gone:
            left = sum(not times.deleted for times in recorder.pods.values())
            raise LoadError(f"{left} deleted pods were still there after {QUIET_S:.0f} s without an event")

    async def _comings_and_goings(
        self, moments: Sequence[tuple[int, int, int]], speed: float
    ) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        started_s = self._clock.monotonic_s()
        for at_s, kind, number in moments:
            if speed and (wait_s := started_s + at_s / speed - self._clock.monotonic_s()) > 0:
                await self._clock.sleep(wait_s)
            body = self._bodies[number]
            if kind == 1:
                self._sent_count += 1
                yield partial(create_pod, self._transport, body, self.recorder)
            else:
                await self._settled(body)
                yield partial(delete_pod, self._transport, body)

    async def _settled(self, body: PodBody) -> None:
        recorder = self.recorder

        def ran() -> bool:
            times = recorder.pods.get(body.key)
            return times is not None and (times.running_s is not None or body.key in recorder.unschedulable)

        if not await recorder.wait_until(ran, QUIET_S):
            raise LoadError(f"pod {body.key} was not Running {QUIET_S:.0f} s after the last event")

    def _leave(self, key: str, node: str) -> None:
        self._gone += 1
        self._account(key, node, -1)

    def _account(self, key: str, node: str, sign: int) -> None:
        self.live_max = max(self.live_max, self.recorder.created - self._gone)
        if sign > 0:
            self._node_of[key] = node
        number = self._number.get(node)
        if number is not None:
            self._used_milli[number] += sign * self._gpu_milli.get(key, 0)

    async def _sample(self, started_s: float, shown: Progress) -> None:
        while True:
            self._take_sample(started_s, shown)
            await self._clock.sleep(self._sample_every_s)

    def _take_sample(self, started_s: float, shown: Progress) -> None:
        until_s = self._clock.monotonic_s() if self._standing_since_s is None else self._standing_since_s
        now_s = until_s - started_s - self.standing_s
        shares = array("d", map(truediv, self._used_milli, self._capacity_milli))
        recorder = self.recorder
        self.series.append((now_s, shares))
        self.live_series.append((now_s, recorder.created - self._gone))
        note = f"{recorder.bound:,} bound, {self.allocated_share:.0%} of the GPUs"
        shown.update(recorder.running + len(recorder.unschedulable), note)
