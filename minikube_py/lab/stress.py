"""`bench schedule`: pods with inequality requirements on nearly full nodes, from create to bind.

Each pod goes through the API, the store's log and the scheduler, and is bound; leaving pods make room. It measures the
binding rate and the cost of a scheduling decision. Then a ledger independent of the scheduler checks everything:
`lab.ledger`. Sources: the cases of scheduler_perf; KEP-5598 for equal pods.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from minikube_py.client.outside import HttpOutside
from minikube_py.client.transport import ApiTransport
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.control_plane.config import Step
from minikube_py.env import ended
from minikube_py.lab.cluster import running
from minikube_py.lab.density import throughput
from minikube_py.lab.environment import Environment
from minikube_py.lab.ledger import Ledger, Misplaced, Verdict
from minikube_py.lab.load import LoadError, create_namespaces, create_pod, delete_pod, run_bounded
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.predicates import (
    NAMESPACE,
    RUN,
    LabNode,
    LabPod,
    filler_object,
    lab_nodes,
    lab_pods,
    lifetime_pods,
    node_object,
)
from minikube_py.lab.progress import progress
from minikube_py.lab.stage import Stage, keyed, numbered_uid, stage, write_all
from minikube_py.lab.store_indexes import Asker, StoreIndex, declare_and_wait
from minikube_py.lab.workload import RUN_LABEL
from minikube_py.mvcc.types import Put
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER, ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.scheduler.matcher import COLUMNS
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME
from minikube_py.scheduler.scheduler import Scheduler

SAMPLINGS = {"all": 100, "upstream": 0}
"""Name to percentageOfNodesToScore."""
QUIET_S = 60.0
SETTLE_S = 15.0
"""A pod that fits somewhere is in backoff for at most ten seconds."""
DELETES_IN_FLIGHT = 64
UNDECIDED_PER_CREATE = 4
"""Creates pause while this many pods per concurrent create are neither bound nor refused."""


@dataclass(frozen=True, slots=True)
class StressOptions:
    """`churn`: the share of bound pods that leave later, 0 to 1. `repetition`: the share of equal pods. `ask_store`:
    also queries the store for a node for each pod, besides the scheduler's work."""

    pods: int
    utilisation: float
    churn: float
    mix: str
    repetition: float
    members: int
    store_indexes: tuple[StoreIndex, ...]
    ask_store: bool
    in_flight: int
    seed: int
    nodes: int = 1000
    sampling: str = "all"
    matcher: str = COLUMNS
    chosen: ChosenScheduler = DEFAULT_SCHEDULER


@dataclass(frozen=True, slots=True)
class Outcome:
    """`decision_us`: the mean over all attempts; `cpu_ms_per_pod`: CPU time of this process, including all its roles;
    `load_average`: of the machine, at the end. `matcher`: the index's counters, empty without one; `store`: from
    `Asker.figures`, empty if the store was not queried."""

    options: StressOptions
    pods_per_s: float
    bound_per_s: Mapping[str, float]
    cpu_ms_per_pod: float
    decision_us: float
    attempts: int
    built: int
    reused: int
    left: int
    verdict: Verdict
    matcher: Mapping[str, int] = field(default_factory=dict)
    load_average: float = 0.0
    store: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, Any] = field(default_factory=dict)
    """For a run in virtual time: its digest and duration."""


async def run_stress(
    options: StressOptions, *, data_dir: Path | None, step: Step, virtual: VirtualCluster | None = None
) -> tuple[Environment, Outcome]:
    """Raises: Misplaced if a pod is where it does not fit; RoleFailed if the scheduler ended itself; MinikubeError of
    every kind."""
    rng = random.Random(options.seed)
    nodes = lab_nodes(rng, options.nodes, options.utilisation)
    pods = lab_pods(rng, options.pods, options.mix, options.repetition)
    config = read_scheduler(options.chosen, options.matcher, needed=DEFAULT_SCHEDULER_NAME)
    if options.chosen.file is None:
        config = replace(config, percentage_of_nodes_to_score=SAMPLINGS[options.sampling])
    percent = config.percentage_of_nodes_to_score
    scene = stage(options.members, data_dir=data_dir, scored_percent=percent, step=step, virtual=virtual)
    async with scene as standing:
        await create_namespaces(standing.transport, [NAMESPACE])
        await write_all(standing.storage, _objects(nodes), 2 * len(nodes), "nodes, and pods that fill them, written")
        for index in options.store_indexes:
            await declare_and_wait(standing.transport, index)
        outside = None if virtual else HttpOutside()
        scheduler = Scheduler(standing.scheduler, standing.clock, random.Random(options.seed), config, outside)
        async with running(scheduler):
            step("scheduler", f"{scheduler.columns.count:,} nodes, matcher {options.matcher}")
            outcome = await _Load(options, standing, scheduler, nodes, pods).run()
    return standing.environment, outcome


def _objects(nodes: list[LabNode]) -> Iterator[Put]:
    yield from keyed(
        b"/registry/nodes/", ((node.name, node_object(node, numbered_uid(i))) for i, node in enumerate(nodes))
    )
    fillers = ((f"filler-{i:06d}", node, numbered_uid(len(nodes) + i)) for i, node in enumerate(nodes))
    prefix = f"/registry/pods/{NAMESPACE}/".encode()
    yield from keyed(prefix, ((name, filler_object(node, name, uid)) for name, node, uid in fillers))


class _Load:
    """Creates the pods, deletes some again, and tracks all of them."""

    def __init__(
        self, options: StressOptions, standing: Stage, scheduler: Scheduler, nodes: list[LabNode], pods: list[LabPod]
    ) -> None:
        self._options, self._scheduler, self._pods = options, scheduler, pods
        self._transport, self._clock = standing.transport, standing.clock
        self._recorder = PodRecorder(standing.transport, standing.clock, f"{RUN_LABEL}={RUN}")
        self._recorder.on_bound, self._recorder.on_gone = self._bound, self._gone
        self._asker = Asker(standing.transport, standing.clock)
        self._ledger = Ledger(nodes, pods)
        self._bodies = {pod.body.key: pod.body for pod in pods}
        self._lifetime = lifetime_pods(nodes, pods)
        self._rng = random.Random(options.seed + 1)
        self._alive: deque[str] = deque()
        self._leaving: asyncio.Queue[str] = asyncio.Queue()
        self._created = self._left = self._asked_to_leave = 0

    async def run(self) -> Outcome:
        recorder = self._recorder
        await recorder.start()
        deleting = [asyncio.create_task(self._delete()) for _ in range(DELETES_IN_FLIGHT)]
        show = asyncio.create_task(self._show())
        before = self._decisions()
        started_s, cpu_started_s = self._clock.monotonic_s(), time.process_time()
        try:
            await run_bounded(self._creates(), self._options.in_flight)
            await self._wait(self._all_decided, "to be placed or refused", QUIET_S)
            cpu_s = time.process_time() - cpu_started_s
            await self._wait(lambda: self._left == self._asked_to_leave, "to leave", QUIET_S)
            verdict = await self._settle(deleting)
        finally:
            for task in (*deleting, show):
                task.cancel()
            await ended(*deleting, show)
            await recorder.stop()
        asked = await self._asker.figures() if self._options.ask_store else {}
        return replace(self._outcome(before, started_s, cpu_s, verdict), store=asked)

    # --- the load ---------------------------------------------------------------------------------------------------

    async def _creates(self) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        for pod in self._pods:
            if not self._may_go_on():
                await self._wait(self._may_go_on, "to be placed, or to leave", QUIET_S)
            self._created += 1
            yield partial(self._create, pod)

    async def _create(self, pod: LabPod) -> None:
        if self._options.ask_store:
            await self._asker.ask(pod.shape.amounts)
        await create_pod(self._transport, pod.body, self._recorder)

    def _may_go_on(self) -> bool:
        """Whether placements and departures keep up: otherwise the nodes would be fuller than configured."""
        recorder = self._recorder
        undecided = self._created - recorder.bound - len(recorder.unschedulable)
        backlog = self._asked_to_leave - self._left
        return undecided < UNDECIDED_PER_CREATE * self._options.in_flight and backlog <= self._lifetime

    def _bound(self, key: str, node: str) -> None:
        self._ledger.bound(key, node)
        if self._rng.random() < self._options.churn:
            self._alive.append(key)
        if len(self._alive) > self._lifetime:
            self._asked_to_leave += 1
            self._leaving.put_nowait(self._alive.popleft())

    def _gone(self, key: str, node: str) -> None:
        self._ledger.gone(key)
        self._left += 1

    async def _delete(self) -> None:
        while True:
            await delete_pod(self._transport, self._bodies[await self._leaving.get()])

    async def _show(self) -> None:
        with progress("pods bound", len(self._pods)) as shown:
            while True:
                note = f"{len(self._recorder.unschedulable):,} fit nowhere now, {self._left:,} left"
                shown.update(self._recorder.bound, note)
                await asyncio.sleep(0.25)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _all_decided(self) -> bool:
        return self._recorder.bound + len(self._recorder.unschedulable) >= len(self._pods)

    async def _wait(self, reached: Callable[[], bool], what: str, quiet_s: float) -> None:
        if not await self._recorder.wait_until(reached, quiet_s):
            raise LoadError(
                f"{self._recorder.bound:,} of {len(self._pods):,} pods were bound, "
                f"{len(self._recorder.unschedulable):,} fit nowhere, and for {quiet_s:.0f} s there were none {what}"
            )

    def _more_than(self, bound: int) -> bool:
        return self._recorder.bound > bound

    def _pending(self) -> list[str]:
        return [key for key, times in self._recorder.pods.items() if times.bound_s is None and not times.deleted]

    async def _settle(self, deleting: list[asyncio.Task[None]]) -> Verdict:
        """Until no pending pod fits somewhere, or nothing changes for too long."""
        while any(self._ledger.fits_on(key) for key in self._pending()):
            if not await self._recorder.wait_until(partial(self._more_than, self._recorder.bound), SETTLE_S):
                break
            await self._wait(lambda: self._left == self._asked_to_leave, "to leave", QUIET_S)
        for task in deleting:
            if task.done():
                task.result()
        if (matcher := self._scheduler.matcher) is not None and matcher.let_go:
            raise Misplaced(f"the matcher failed, and columns did its work: {matcher.let_go}")
        self._ledger.compare(await _placed(self._transport))
        return self._ledger.verdict(self._pending())

    def _decisions(self) -> tuple[float, int]:
        (run,) = self._scheduler.profiles.values()
        return run.attempts.algorithm.total, run.attempts.algorithm.count

    def _outcome(self, before: tuple[float, int], started_s: float, cpu_s: float, verdict: Verdict) -> Outcome:
        (run,) = self._scheduler.profiles.values()
        total_s, count = self._decisions()
        moments_s = sorted(times.bound_s for times in self._recorder.pods.values() if times.bound_s is not None)
        attempts = count - before[1]
        matcher = self._scheduler.matcher
        return Outcome(
            self._options,
            pods_per_s=round(len(moments_s) / (moments_s[-1] - started_s), 1) if moments_s else 0.0,
            bound_per_s=throughput(moments_s),
            cpu_ms_per_pod=round(cpu_s * 1000 / max(1, len(moments_s)), 3),
            decision_us=round((total_s - before[0]) * 1e6 / max(1, attempts), 1),
            attempts=attempts,
            built=run.evaluator.built,
            reused=run.evaluator.reused,
            left=self._left,
            verdict=verdict,
            matcher={} if matcher is None else matcher.counts(),
            load_average=round(os.getloadavg()[0], 2),
        )


async def _placed(transport: ApiTransport) -> dict[str, str]:
    """Pod to node for this run's bound pods, from a list."""
    params = {"labelSelector": f"{RUN_LABEL}={RUN}"}
    answer = await transport.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", params)
    if answer.status != 200:
        raise Misplaced(f"the list of pods, to check their places, answered {answer.status}")
    found: list[dict[str, Any]] = orjson.loads(answer.body)["items"]
    nodes = {f"{NAMESPACE}/{pod['metadata']['name']}": pod["spec"].get("nodeName", "") for pod in found}
    return {key: node for key, node in nodes.items() if node}
