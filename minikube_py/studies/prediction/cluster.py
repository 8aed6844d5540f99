"""One day of a small cluster, minute by minute: the scheduler's own decisions by OvercommitByPrediction over nodes in
memory, and the pods' actual usage.

Pods arrive every five minutes, more than fit; one that fits nowhere is dropped. A node whose pods want more CPU than it
has slows them down (a violation); one whose pods want more memory evicts those that use most, like a kubelet.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from minikube_py.lab import pod_lists
from minikube_py.lab.compare.alone import reserved
from minikube_py.lab.prediction.generator import MINUTES, Generator
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.configuration.merging import PluginSet
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import FitError
from minikube_py.scheduler.objects import CPU, MEMORY, PodInfo, project_node, project_pod
from minikube_py.scheduler.prediction.predictor import STEP_MINUTES, FloatArray
from minikube_py.scheduler.prediction.usage import RESOURCES
from minikube_py.scheduler.profile import Profile
from minikube_py.studies.prediction.day import Day

WARM_UP_MINUTES: Final = 120
"""Excluded: until then, most predictors do not know the pods."""
OVERCOMMIT: Final = "OvercommitByPrediction"
SCORERS: Final[Mapping[str, str]] = {"target-load": "TargetLoadPacking", "risk": "LoadVariationRiskBalancing"}
MIB: Final = 1 << 20
PLENTY: Final = 100
"""Times what a node has: more than its pods can reserve."""


class Days(Protocol):
    """By pod name, the used share of its reservation by minute of the day."""

    def cpu(self, pod: str) -> FloatArray: ...

    def memory(self, pod: str) -> FloatArray: ...


class RealDays:
    """Each pod is one of a real day's containers, drawn by the seed."""

    def __init__(self, day: Day, seed: int) -> None:
        self._day = day
        self._names = sorted(day.duty.keys() & day.memory.keys())
        self._seed = seed

    def _name(self, pod: str) -> str:
        return random.Random(f"container {self._seed} {pod}").choice(self._names)

    def cpu(self, pod: str) -> FloatArray:
        return self._day.duty[self._name(pod)]

    def memory(self, pod: str) -> FloatArray:
        return self._day.memory[self._name(pod)]


class Size(NamedTuple):
    """`first` pods arrive at once, then `more` every five minutes; they stay `stay_minutes` on average."""

    nodes: int
    cpu_milli: int
    memory_mib: int
    first: int
    more: int
    stay_minutes: int


class Arrival(NamedTuple):
    pod: PodInfo
    minute: int
    end: int


class World:
    """A seed's arrivals and their usage, identical for all candidates."""

    def __init__(self, size: Size, days: Days | Generator, seed: int) -> None:
        self.size = size
        self.seed = seed
        rng = random.Random(f"prediction {seed}")
        shapes = [
            (shape.cpu_milli, memory)
            for (shape, memory), count in sorted(pod_lists.read("default").items())
            for _ in range(count)
            if 0 < shape.cpu_milli <= size.cpu_milli and 0 < memory <= size.memory_mib
        ]
        self.arrivals: list[Arrival] = []
        self.used: dict[str, Mapping[str, list[float]]] = {}
        for minute in range(0, MINUTES, STEP_MINUTES):
            for _ in range(size.more if minute else size.first):
                name = f"pod-{len(self.arrivals):05d}"
                cpu, memory = rng.choice(shapes)
                stay = max(2 * STEP_MINUTES, round(rng.expovariate(1 / size.stay_minutes)))
                self.arrivals.append(Arrival(_pod(name, cpu, memory), minute, min(minute + stay, MINUTES)))
                self.used[name] = {
                    CPU: (days.cpu(name) * cpu).tolist(),
                    MEMORY: (days.memory(name) * memory * MIB).tolist(),
                }
        self.ends = {each.pod.uid: each.end for each in self.arrivals}


def _pod(name: str, cpu_milli: int, memory_mib: int) -> PodInfo:
    requests = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]}
    return project_pod({"metadata": {"name": name, "namespace": "prediction", "uid": name}, "spec": spec})


class Played:
    """The world as a usage source, which also knows the future."""

    name = "Played"

    def __init__(self, world: World) -> None:
        self._world = world

    def usage(self, pod: PodInfo, minute: int) -> Mapping[str, float]:
        used = self._world.used[pod.uid]
        return {CPU: used[CPU][minute], MEMORY: used[MEMORY][minute]}

    def ahead(self, pod: PodInfo, minute: int) -> Mapping[str, list[float]]:
        end = self._world.ends[pod.uid]
        return {resource: row[minute:end] for resource, row in self._world.used[pod.uid].items()}


class _Clock:
    minute = 0

    def wall_s(self) -> float:
        return 60.0 * self.minute


class Outcome(NamedTuple):
    """`usable`: reserved CPU as a share of the nodes' capacity; `used`: actually used CPU. `violations`: share of node
    minutes in which pods want more CPU than available; `slowed`: share of the wanted CPU not granted. `evictions`: per
    100 placed pods."""

    usable: float
    used: float
    violations: float
    slowed: float
    evictions: float
    placed: int
    arrived: int


class Cluster:
    """`predictor`: a name or `FILE.py:CLASS`; `scorer`: one of SCORERS, replacing the plugin's own score. `unseen`: a
    resource that the scheduler does not look at: it takes nodes to have plenty of it."""

    def __init__(
        self, world: World, predictor: str, args: Mapping[str, Any], scorer: str = "", unseen: str = ""
    ) -> None:
        """Raises: ConfigError."""
        self.world = world
        self.cache, self.clock = Cache(), _Clock()
        handle: Any = NoCluster(self.cache.columns)
        handle.clock = self.clock
        size = world.size
        for number in range(size.nodes):
            cpu_milli, memory_mib = (
                amount * (PLENTY if resource == unseen else 1)
                for resource, amount in ((CPU, size.cpu_milli), (MEMORY, size.memory_mib))
            )
            allocatable = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi", "pods": "1000"}
            metadata = {"name": f"node-{number:03d}", "uid": f"node-{number}"}
            self.cache.put_node(project_node({"metadata": metadata, "status": {"allocatable": allocatable}}))
        source = {"usage": f"{__name__}:{Played.__name__}", "usageArgs": {"world": world}}
        scoring = SCORERS.get(scorer, OVERCOMMIT)
        plugins = {
            "multiPoint": PluginSet((("PrioritySort", 0), ("DefaultBinder", 0)), ("*",)),
            "filter": PluginSet(((OVERCOMMIT, 0),), ("*",)),
            "score": PluginSet(((scoring, 1),), ("*",)),
        }
        seen = [each for each in RESOURCES if each != unseen]
        given: dict[str, Any] = {
            OVERCOMMIT: {**source, "predictor": predictor, "predictorArgs": args, "resources": seen}
        }
        if scoring != OVERCOMMIT:
            given[scoring] = dict(source)
        self.profile = Profile(ProfileConfig(plugins=plugins, plugin_args=given), handle, {})
        self.evaluator = Evaluator(self.profile, self.cache.columns, random.Random(f"ties {world.seed}"), 100)
        self._on: dict[str, dict[str, PodInfo]] = {node.name: {} for node in self.cache.columns.by_name.values()}

    def run(self) -> Outcome:
        """Raises: PluginError."""
        tally = _Tally(self.world.size)
        arrivals = iter([*self.world.arrivals, None])
        coming = next(arrivals)
        for minute in range(0, MINUTES, STEP_MINUTES):
            self.clock.minute = minute
            self._depart(minute)
            while coming is not None and coming.minute == minute:
                node = self._place(coming.pod)
                if node:
                    self._on[node][coming.pod.uid] = coming.pod
                    tally.placed += 1
                coming = next(arrivals)
            for node, pods in self._on.items():
                self._minutes(node, pods, minute, tally)
        return tally.outcome(len(self.world.arrivals))

    def _place(self, pod: PodInfo) -> str:
        try:
            choice = self.evaluator.choose(pod)
        except FitError:
            return ""
        return reserved(self.profile, self.cache, pod, choice)

    def _depart(self, minute: int) -> None:
        for pods in self._on.values():
            for uid in [uid for uid in pods if self.world.ends[uid] <= minute]:
                self.cache.forget(uid)
                del pods[uid]

    def _minutes(self, node: str, pods: dict[str, PodInfo], minute: int, tally: _Tally) -> None:
        size, used = self.world.size, self.world.used
        capacity = size.memory_mib * MIB
        for at in range(minute, minute + STEP_MINUTES):
            wanted = {uid: used[uid][MEMORY][at] for uid in pods}
            while sum(wanted.values()) > capacity:
                # No pod exceeds its request, so the one nearest to it is evicted first, as by a kubelet.
                worst = max(wanted, key=lambda uid: (wanted[uid] - pods[uid].spec.request(MEMORY), uid))
                self.cache.forget(worst)
                del wanted[worst], pods[worst]
                tally.evicted += 1
            if at >= WARM_UP_MINUTES:
                cpu = float(sum(used[uid][CPU][at] for uid in pods))
                tally.minute(cpu, sum(pod.spec.request(CPU) for pod in pods.values()))


class _Tally:
    def __init__(self, size: Size) -> None:
        self._capacity = size.cpu_milli
        self.placed = self.evicted = 0
        self._minutes = self._violations = 0
        self._reserved = self._wanted = self._got = 0.0

    def minute(self, wanted: float, reserved_: int) -> None:
        self._minutes += 1
        self._violations += wanted > self._capacity
        self._reserved += reserved_
        self._wanted += wanted
        self._got += min(wanted, self._capacity)

    def outcome(self, arrived: int) -> Outcome:
        whole = max(1, self._minutes * self._capacity)
        return Outcome(
            usable=self._reserved / whole,
            used=self._got / whole,
            violations=self._violations / max(1, self._minutes),
            slowed=1 - self._got / self._wanted if self._wanted else 0.0,
            evictions=100 * self.evicted / max(1, self.placed),
            placed=self.placed,
            arrived=arrived,
        )


def faults(outcome: Outcome) -> Sequence[str]:
    """Impossible results, whatever a predictor returns."""
    found = []
    if not np.isfinite(outcome).all() or min(outcome) < 0:
        found.append("a figure is not an amount")
    if outcome.used > 1 or outcome.violations > 1 or outcome.slowed > 1:
        found.append("a share is above 1")
    if outcome.placed > outcome.arrived or outcome.used > outcome.usable * (1 + 1e-9):
        found.append("more than existed")
    return found
