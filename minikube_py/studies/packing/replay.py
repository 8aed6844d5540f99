"""One list, one policy, one seed: the scheduler's own decisions over nodes in memory, pod by pod.

Pods never leave, and one that fits nowhere is not retried.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.lab.compare.alone import reserved
from minikube_py.lab.pod_lists import Pods
from minikube_py.lab.trace import TraceNode, TracePod
from minikube_py.lab.workload import GPU_MODEL_LABEL, GPU_RESOURCE, trace_nodes, trace_pods
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig, SchedulerConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.configuration.merging import PluginSet
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import FitError
from minikube_py.scheduler.objects import CPU, PodInfo, PodSpec, project_node, project_pod
from minikube_py.scheduler.packing.fragmentation import Fragmentation, Shape, typical
from minikube_py.scheduler.packing.policies import POLICIES, GpuPolicy
from minikube_py.scheduler.profile import Profile
from minikube_py.studies.packing.arrivals import Arrival, drawn, order_of_nodes

PODS_PER_NODE: Final = 1001
NO_ARGS: Final[Mapping[str, Any]] = MappingProxyType({})
MARKS: Final = (100, 130)
"""Arrivals, in percent of the total GPUs."""


class Replayed(NamedTuple):
    """By mark, percent of the GPUs: `allocated` is the mean over the arrivals nearest to the mark, like the published
    figures; `fragmented` is of the last of them."""

    allocated: Mapping[int, float]
    fragmented: Mapping[int, float]
    placed: int
    unplaced: int
    digest: str


class FirstOfTies(random.Random):
    """Of nodes with equal scores, the first in the seed's order."""

    def randrange(self, *args: Any) -> int:
        return 0


def configuration(policy: str, pods: Pods, more: Mapping[str, Any] = NO_ARGS) -> SchedulerConfig:
    """A scheduler that filters by resources, GPU model and devices, and scores only by the policy. `more`: its args."""
    name = POLICIES[policy].name
    args: dict[str, Any] = {"resource": GPU_RESOURCE, "modelLabel": GPU_MODEL_LABEL, **more}
    if "typicalPods" in POLICIES[policy].known:
        judged: Any = POLICIES[policy]
        args["typicalPods"] = [
            {"cpuMilli": s.cpu_milli, "gpuMilli": s.gpu_milli, "gpus": s.gpus, "models": s.models, "weight": weight}
            for s, weight in typical(shapes(pods), judged.typical_share).items()
        ]
    used = ("PrioritySort", "NodeAffinity", "NodeResourcesFit", "DefaultBinder", name)
    scoring = ((name, 1),) if hasattr(POLICIES[policy], "score") else ()
    plugins = {
        "multiPoint": PluginSet(tuple((each, 0) for each in used), ("*",)),
        "score": PluginSet(scoring, ("*",)),
        "preScore": PluginSet((), ("*",)),
    }
    return SchedulerConfig(profiles=(ProfileConfig(plugins=plugins, plugin_args={name: args}),))


def shapes(pods: Pods) -> dict[Shape, int]:
    """The distinctions that the measure makes, which exclude memory."""
    found: dict[Shape, int] = {}
    for (shape, _), count in pods.items():
        found[shape] = found.get(shape, 0) + count
    return found


class Placing:
    """A scheduler on empty nodes in memory, which takes the pods of a list one by one. Deterministic per seed.

    `more`: args of the policy. Raises: ConfigError, PluginError."""

    def __init__(
        self, nodes: Sequence[TraceNode], pods: Pods, policy: str, seed: int, more: Mapping[str, Any] = NO_ARGS
    ) -> None:
        self.cache, handle = Cache(), _Lent(seed)
        handle.columns = self.cache.columns
        for number in order_of_nodes(len(nodes), seed):
            _add_node(self.cache, nodes[number], number)
        lent: Any = handle
        config = configuration(policy, pods, more)
        self._profile = Profile(config.profiles[0], lent, config.registry)
        # Without scores all fitting nodes are equal: the random policy.
        scored = bool(self._profile.looking.scorers)
        ties = FirstOfTies() if scored else random.Random(f"nodes in random order {seed}")
        self._evaluator = Evaluator(self._profile, self.cache.columns, ties, config.percentage_of_nodes_to_score)
        self.plugin: Any = self._profile.plugin(POLICIES[policy].name)
        self._specs: dict[Arrival, PodSpec] = {}
        # Pods never leave: what fitted nowhere never will.
        self._nowhere: set[Arrival] = set()
        self._count = 0

    def place(self, arrival: Arrival) -> tuple[str, tuple[int, ...]]:
        """The node, or "", and the devices."""
        if arrival not in self._specs:
            self._specs[arrival] = _spec(arrival)
        pod = PodInfo("packing", f"pod-{self._count:05d}", f"pod-{self._count}", self._specs[arrival])
        self._count += 1
        node = "" if arrival in self._nowhere else _place(self._profile, self._evaluator, self.cache, pod)
        if not node:
            self._nowhere.add(arrival)
        return node, self.plugin.devices.chosen.get(pod.uid, ())


def replay(
    nodes: Sequence[TraceNode], pods: Pods, policy: str, seed: int, more: Mapping[str, Any] = NO_ARGS
) -> Replayed:
    """As Placing, with the arrivals of the seed."""
    capacity = sum(node.gpus for node in nodes) * 1000
    placing = Placing(nodes, pods, policy, seed, more)
    tally = _Tally(capacity, placing.plugin, placing.cache, Fragmentation(typical(shapes(pods))))
    for arrival in drawn(pods, capacity, seed):
        tally.add(arrival, *placing.place(arrival))
    return tally.replayed()


class _Lent(NoCluster):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(f"devices {seed}")


def _add_node(cache: Cache, node: TraceNode, number: int) -> None:
    (shape,) = trace_nodes((node,))
    allocatable = {**shape.capacity, "pods": str(PODS_PER_NODE)}
    metadata = {"name": shape.name, "uid": f"node-{number}", "labels": shape.labels}
    cache.put_node(project_node({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}))


def _spec(arrival: Arrival) -> PodSpec:
    cpu, milli, gpus, models = arrival.shape
    (body,) = trace_pods((TracePod("pod", 0, 0, cpu, arrival.memory_mib, gpus, milli, models),), "packing", "packing")
    obj = orjson.loads(body.body)
    obj["metadata"]["uid"] = "pod"
    return project_pod({**obj, "status": {}}).spec


def _place(profile: Profile, evaluator: Evaluator, cache: Cache, pod: PodInfo) -> str:
    """The node, or ""."""
    try:
        choice = evaluator.choose(pod)
    except FitError:
        return ""
    return reserved(profile, cache, pod, choice)


class _Tally:
    def __init__(self, capacity_milli: int, plugin: GpuPolicy, cache: Cache, measure: Fragmentation) -> None:
        self._capacity, self._plugin, self._cache, self._measure = capacity_milli, plugin, cache, measure
        self._arrived = self._allocated = 0
        self._near: dict[int, list[float]] = {mark: [] for mark in MARKS}
        self._fragmented: dict[int, float] = {}
        self._where: list[str] = []

    def add(self, arrival: Arrival, node: str, devices: Sequence[int]) -> None:
        before = self._mark()
        self._arrived += arrival.gpu_total_milli
        if node:
            self._allocated += arrival.gpu_total_milli
        self._where.append(f"{node} {'-'.join(map(str, devices))}")
        mark = self._mark()
        if before in self._near and mark != before:
            self._fragmented[before] = self._lost()
        if mark in self._near:
            self._near[mark].append(100 * self._allocated / self._capacity)

    def _mark(self) -> int:
        return round(100 * self._arrived / self._capacity)

    def _lost(self) -> float:
        devices = self._plugin.devices
        nodes = [node for node in self._cache.columns.by_slot if node is not None]
        free = (
            (
                node.allocatable[CPU] - node.requested.get(CPU, 0),
                node.labels.get(GPU_MODEL_LABEL, ""),
                devices.known(node),
            )
            for node in nodes
        )
        return 100 * self._measure.share(free) / self._capacity

    def replayed(self) -> Replayed:
        self._fragmented.setdefault(self._mark(), self._lost())
        allocated = {mark: sum(shares) / len(shares) for mark, shares in self._near.items() if shares}
        fragmented = {mark: self._fragmented[mark] for mark in allocated}
        digest = hashlib.sha256("\n".join(self._where).encode()).hexdigest()
        placed = sum(not each.startswith(" ") for each in self._where)
        return Replayed(allocated, fragmented, placed, len(self._where) - placed, digest)
