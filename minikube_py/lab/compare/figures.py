"""The measures of a run, from the final placement of pods, whatever decided it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from minikube_py.lab.measure import percentile
from minikube_py.lab.trace import TraceNode, TracePod


class Measure(NamedTuple):
    """`better`: 1 where more is better, -1 where less is. `of_bound`: it leaves out pods that were never bound.
    `of_placed`: who places less has less of it."""

    name: str
    unit: str
    better: int
    what: str
    of_bound: bool = False
    of_placed: bool = False


MEASURES: Final = (
    Measure("packing", "%", 1, "share of GPU thousandths that are allocated"),
    Measure(
        "fragmentation",
        "%",
        -1,
        "free GPU thousandths that a drawn GPU pod could not use on their nodes",
        of_placed=True,
    ),
    Measure("unschedulable", "pods", -1, "pods without a node at the end"),
    Measure("preempted", "pods", -1, "pods evicted for others", of_placed=True),
    Measure("nodes used", "nodes", -1, "nodes with a pod", of_placed=True),
    Measure("imbalance", "%", -1, "standard deviation over the nodes of their requested share of cpu", of_placed=True),
    Measure("latency p50", "ms", -1, "from the create request to the binding, median", True),
    Measure("latency p99", "ms", -1, "the same, 99th percentile", True),
)


class Ended(NamedTuple):
    """`placed`: pod number to node number. `latencies_s`: by number of each bound pod; empty if no time passes.
    `errors`: attempts that ended in one."""

    placed: Mapping[int, int]
    preempted: int
    latencies_s: Mapping[int, float]
    digest: str
    errors: int = 0


def figures(nodes: Sequence[TraceNode], pods: Sequence[TracePod], ended: Ended) -> dict[str, float | None]:
    """By name of MEASURES; None if undefined."""
    free = np.array([(node.cpu_milli, node.memory_mib, node.gpus * 1000) for node in nodes], np.int64)
    capacity = free.copy()
    for pod, node in ended.placed.items():
        free[node] -= demand(pods[pod])
    gpu_total = int(capacity[:, 2].sum())
    found: dict[str, float | None] = {
        "packing": 100 * (1 - int(free[:, 2].sum()) / gpu_total) if gpu_total else None,
        "fragmentation": fragmentation(free, pods),
        "unschedulable": float(len(pods) - len(ended.placed) - ended.preempted),
        "preempted": float(ended.preempted),
        "nodes used": float(len(set(ended.placed.values()))),
        "imbalance": float(np.std(100 * (1 - free[:, 0] / np.maximum(capacity[:, 0], 1)))),
        "latency p50": None,
        "latency p99": None,
    }
    if ended.latencies_s:
        latencies_s = list(ended.latencies_s.values())
        found["latency p50"] = 1000 * percentile(latencies_s, 50)
        found["latency p99"] = 1000 * percentile(latencies_s, 99)
    return found


def placed_load(pods: Sequence[TracePod], ended: Ended) -> tuple[int, ...]:
    """What has a node: pods, CPU, memory and GPUs, as of `demand`."""
    return tuple(map(sum, zip((0, 0, 0, 0), *((1, *demand(pods[pod])) for pod in ended.placed))))


def demand(pod: TracePod) -> tuple[int, int, int]:
    return pod.cpu_milli, pod.memory_mib, pod.gpu_total_milli


def fragmentation(free: np.ndarray[tuple[int, int], np.dtype[np.int64]], pods: Sequence[TracePod]) -> float | None:
    """The mean over pods that request GPUs; None if no GPU is free or none is requested.

    After the fragmentation measure of Weng et al., Beware of Fragmentation (USENIX ATC 2023), section 4."""
    shapes = Counter(demand(pod) for pod in pods if pod.gpu_total_milli)
    free_gpu = np.maximum(free[:, 2], 0)
    total = int(free_gpu.sum())
    if not shapes or not total:
        return None
    lost = sum(count * int(free_gpu[(free < np.array(shape)).any(axis=1)].sum()) for shape, count in shapes.items())
    return 100 * lost / (total * sum(shapes.values()))
