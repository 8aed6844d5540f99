"""The study `end-to-end`: does the scheduler's matcher change how soon pods are bound and Running?

Each candidate is a matcher, and has a whole control plane of its own in this process: store on disk, API server,
controllers, scheduler, fake kubelets. Nearly full nodes, pods with inequalities at a steady rate, and other clients
that write beside them. Latencies begin when a pod was due, not when a busy process came to send it.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.env import Clock, ended
from minikube_py.kubelet.config import NodeSpec
from minikube_py.lab.cluster import Cluster, Ground, cluster
from minikube_py.lab.ledger import Ledger
from minikube_py.lab.load import LoadError, create_namespaces, create_pod, delete_pod, run_bounded
from minikube_py.lab.measure import PodRecorder, percentile
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
from minikube_py.lab.study.contest import Contest
from minikube_py.lab.study.design import Design, Levels, Unit
from minikube_py.lab.study.experiment import Report
from minikube_py.lab.workload import RUN_LABEL, PodBody

FILLED_AT_ONCE: Final = 64
QUIET_S: Final = 5.0
"""Pods that fit somewhere are bound or refused long before nothing was seen for this long."""


class EndToEnd(Contest):
    """See docs/studies/end-to-end.md."""

    def measure(self, design: Design, unit: Unit) -> Report:
        # A control plane makes garbage; the runner turned its collection off.
        gc.enable()
        levels = dict(unit.levels)
        order = self.turns(design.candidates(unit.block), unit, unit.seed)
        found = {name: asyncio.run(_run(name, levels, unit.seed)) for name in order}
        return {"candidates": found, "absent": {}, "planned": [int(levels["pods"])], "order": [order]}


async def _run(matcher: str, levels: Levels, seed: int) -> Report:
    """Raises: LoadError if a pod or a write is refused."""
    rng = random.Random(seed)
    nodes = lab_nodes(rng, int(levels["nodes"]), float(levels["utilisation"]))
    pods = lab_pods(rng, int(levels["pods"]), str(levels["mix"]), 0.0)
    specs = [NodeSpec(node.name, _capacity(node), node.labels) for node in nodes]
    async with cluster(specs, Ground(step=_silent, seed=seed, matcher=matcher)) as running:
        await create_namespaces(running.transport, [NAMESPACE])
        await _fill(running, nodes)
        return await _Load(running, nodes, pods, levels).run()


def _silent(name: str, text: str) -> None:
    pass


def _capacity(node: LabNode) -> Mapping[str, str]:
    capacity: Mapping[str, str] = orjson.loads(node_object(node, ""))["status"]["capacity"]
    return capacity


async def _fill(running: Cluster, nodes: list[LabNode]) -> None:
    """One bound pod on each node, and until all of them run."""
    recorder = PodRecorder(running.transport, running.clock, "filler=true")
    await recorder.start()

    async def creates() -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        for node in nodes:
            name = f"filler-{node.name}"
            pod = {"apiVersion": "v1", "kind": "Pod", **orjson.loads(filler_object(node, name, ""))}
            pod["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": {"filler": "true"}}
            yield partial(create_pod, running.transport, PodBody(NAMESPACE, name, orjson.dumps(pod)), recorder)

    try:
        await run_bounded(creates(), FILLED_AT_ONCE)
        if not await recorder.wait_until(lambda: recorder.running >= len(nodes), 60.0):
            raise LoadError(f"{recorder.running:,} of {len(nodes):,} nodes were filled, then nothing happened")
    finally:
        await recorder.stop()


class _Load:
    """Pods at a steady rate, which leave again so that the nodes stay as full; and writers beside them."""

    def __init__(self, running: Cluster, nodes: list[LabNode], pods: list[LabPod], levels: Levels) -> None:
        self._transport, self._clock, self._pods, self._levels = running.transport, running.clock, pods, levels
        self._recorder = PodRecorder(running.transport, running.clock, f"{RUN_LABEL}={RUN}")
        self._recorder.on_bound, self._recorder.on_gone = self._bound, self._gone
        self._ledger = Ledger(nodes, pods)
        self._lifetime = lifetime_pods(nodes, pods)
        self._bodies = {pod.body.key: pod.body for pod in pods}
        self._alive: deque[str] = deque()
        self._tasks: asyncio.TaskGroup
        self._due_s: dict[str, float] = {}

    async def run(self) -> Report:
        recorder, writers = self._recorder, _Writers(self._transport, self._clock, self._levels)
        await recorder.start()
        writing = asyncio.create_task(writers.run())
        started_s, rate = self._clock.monotonic_s(), float(self._levels["pods_per_s"])
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for number, pod in enumerate(self._pods):
                    self._due_s[pod.body.key] = due_s = started_s + number / rate
                    await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))
                    self._tasks.create_task(create_pod(self._transport, pod.body, recorder))
                await recorder.wait_until(self._all_decided, QUIET_S)
        finally:
            writers.stopped = True
            await ended(writing)
            await recorder.stop()
        if writers.failure:
            raise LoadError(writers.failure)
        figures = self._figures(writers, self._clock.monotonic_s() - started_s)
        return {"asked": [len(self._pods)], "wrong": len(self._ledger.wrong), "figures": figures}

    def _all_decided(self) -> bool:
        recorder = self._recorder
        started = sum(times.running_s is not None or times.deleted for times in recorder.pods.values())
        return started + len(recorder.unschedulable) >= len(self._pods)

    def _bound(self, key: str, node: str) -> None:
        self._ledger.bound(key, node)
        self._alive.append(key)
        if len(self._alive) > self._lifetime:
            self._tasks.create_task(delete_pod(self._transport, self._bodies[self._alive.popleft()]))

    def _gone(self, key: str, node: str) -> None:
        self._ledger.gone(key)

    def _figures(self, writers: _Writers, took_s: float) -> Mapping[str, list[float]]:
        figures: dict[str, float] = {"unbound": len(self._pods) - self._recorder.bound}
        for event in ("bound", "running"):
            moments = {key: getattr(times, f"{event}_s") for key, times in self._recorder.pods.items()}
            # A pod that never came counts with the time that the whole run took, longer than any other.
            waits_s = [
                took_s if (at_s := moments.get(key)) is None else at_s - due_s for key, due_s in self._due_s.items()
            ]
            for percent in (50, 99):
                figures[f"{event}_p{percent}_ms"] = percentile(waits_s, percent) * 1000
        figures["writes_per_s"], figures["write_p99_ms"] = writers.rate(), percentile(writers.waits_s, 99) * 1000
        return {name: [round(float(value), 6)] for name, value in figures.items()}


class _Writers:
    """Clients that update an object of their own each, at `writes_per_s` together; as late writes they count too."""

    def __init__(self, transport: ApiTransport, clock: Clock, levels: Levels) -> None:
        self._transport, self._clock = transport, clock
        self._count, self._rate = int(levels["writers"]), float(levels["writes_per_s"])
        self._text = "x" * int(levels["write_bytes"])
        self.waits_s: list[float] = []
        self.failure = ""
        self.stopped = False
        self._took_s = 0.0

    def rate(self) -> float:
        return len(self.waits_s) / self._took_s if self._took_s else 0.0

    async def run(self) -> None:
        started_s = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._write(number, started_s))

    async def _write(self, number: int, started_s: float) -> None:
        path, name = f"/api/v1/namespaces/{NAMESPACE}/configmaps", f"written-{number}"
        done = 0
        while not (self.failure or self.stopped):
            due_s = started_s + (done + number / self._count) * self._count / self._rate
            await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            body["data"] = {"text": self._text, "number": str(done)}
            ask = ("PUT", f"{path}/{name}") if done else ("POST", path)
            answer = await self._transport.request(*ask, body=orjson.dumps(body))
            if answer.status not in (200, 201):
                self.failure = f"a write beside the pods answered {answer.status}: {answer.body[:200]!r}"
            now_s = self._clock.monotonic_s()
            self.waits_s.append(now_s - due_s)
            self._took_s = now_s - started_s
            done += 1
