"""The openb cluster as shards see it: 1,213 GPU nodes, filled with the pods of one of its 23 lists.

The lists are those of `lab packing` (lab/traces/SOURCES.md has source and licence).

A node's point: free CPU (milli), free memory (MiB), fully free GPUs, and the largest free share of one GPU (milli).
With labels, a column follows for each set of GPU models that pods accept: 1 on nodes of these models.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.index.structure import MISSING, IntArray, Point
from minikube_py.lab import pod_lists
from minikube_py.lab.trace import load
from minikube_py.studies.emptiness.arrivals import Arrivals, nearest

WHOLE: Final = 1000
MOST_GPUS: Final = 8


class Shape(NamedTuple):
    """`gpu_milli` of each of `gpus`; a pod shares a GPU if it requests only part of one. `models`: () for any."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    def asked(self) -> Point:
        shares = self.gpus == 1 and self.gpu_milli < WHOLE
        whole = self.gpus if self.gpus and not shares else MISSING
        return (self.cpu_milli, self.memory_mib, whole, self.gpu_milli if shares else MISSING)


def shapes(name: str, labelled: bool = False) -> list[tuple[Shape, int]]:
    """A list's pod shapes with counts, in order; without labels, pods that differ in models are of one shape."""
    counts: dict[Shape, int] = {}
    for (shape, memory_mib), count in pod_lists.read(name).items():
        models = shape.models if labelled else ()
        found = Shape(shape.cpu_milli, memory_mib, shape.gpus, shape.gpu_milli, models)
        counts[found] = counts.get(found, 0) + count
    return sorted(counts.items())


class OpenbCluster(Arrivals):
    """`points`: the free amounts. Pods arrive until they have requested `arrived` percent of all GPUs; those that fit
    nowhere are dropped. Then one leaves at random and others arrive: with `tries`
    it stays as full, without it empties slowly. `packed`: on the node with the least left,
    otherwise on the emptiest. `labelled`: pods go only to nodes of a GPU model that they accept."""

    resources = 4
    """Leading columns of a point that are amounts; labels follow."""

    def __init__(self, name: str, arrived: int, packed: bool, seed: int, labelled: bool = False) -> None:
        nodes = [node for node in load().nodes if node.gpus]
        listed = shapes(name, labelled)
        super().__init__(np.random.default_rng([seed, arrived, packed, *name.encode()]), listed)
        self._cpu = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self._memory = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self._whole_cpu = self._cpu.copy()
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        self._gpus: IntArray = np.where(np.arange(MOST_GPUS) < gpus[:, None], WHOLE, 0).astype(np.int64)
        self._packed = packed
        self._accepted = sorted({shape.models for shape, _ in listed if shape.models})
        labels = [[node.model in models for models in self._accepted] for node in nodes]
        self._labels: IntArray = np.array(labels, dtype=np.int64).reshape(len(nodes), -1)
        wanted, asked = int(gpus.sum()) * WHOLE * arrived // 100, 0
        self.points = self._point(np.arange(len(nodes)))
        for shape in self._arriving():
            asked += shape.gpus * shape.gpu_milli
            if asked > wanted:
                break
            self._place(shape)

    def _point(self, rows: IntArray) -> IntArray:
        gpus = self._gpus[rows]
        columns = (
            self._cpu[rows],
            self._memory[rows],
            (gpus == WHOLE).sum(axis=1),
            gpus.max(axis=1),
            *self._labels[rows].T,
        )
        return np.stack(columns, axis=1).astype(np.int64)

    def _place(self, shape: Shape, shards: int = 1, start: int = 0) -> int:
        fits = (self._cpu >= shape.cpu_milli) & (self._memory >= shape.memory_mib)
        if shape.gpus:
            fits &= (self._gpus >= shape.gpu_milli).sum(axis=1) >= shape.gpus
        if shape.models:
            fits &= self._labels[:, self._accepted.index(shape.models)] > 0
        there = np.flatnonzero(fits)
        if not len(there):
            return -1
        there = nearest(there, shards, start)
        left = self._gpus[there].sum(axis=1) * 1_000_000 + self._cpu[there] * 1000 // self._whole_cpu[there]
        node = int(there[left.argmin() if self._packed else left.argmax()])
        taken = np.zeros(MOST_GPUS, dtype=np.int64)
        if shape.gpus:
            free = self._gpus[node]
            # The fullest devices that still have room.
            order = np.argsort(np.where(free >= shape.gpu_milli, free, 2 * WHOLE), kind="stable")
            taken[order[: shape.gpus]] = shape.gpu_milli
        self._take(1, node, shape, taken)
        self._running.append((node, shape, taken))
        return node

    def _take(self, sign: int, node: int, *pod: Any) -> None:
        shape, taken = pod
        self._cpu[node] -= sign * shape.cpu_milli
        self._memory[node] -= sign * shape.memory_mib
        self._gpus[node] -= sign * taken
        self.points[node] = self._point(np.array([node]))[0]

    def _asked(self, shape: Shape) -> Point:
        return (*shape.asked(), *(1 if shape.models == models else MISSING for models in self._accepted))
