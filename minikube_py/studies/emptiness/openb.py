"""The openb cluster as shards see it: 1,213 GPU nodes, kept full with the pods of one of its 23 lists.

`openb_shapes.csv` holds the lists' pod shapes with counts. Source: hkust-adsl/kubernetes-scheduler-simulator
(Apache-2.0), Alibaba's cluster-trace-gpu-v2023; `python -m minikube_py.studies.emptiness.openb FOLDER` recreates it
from the published lists. GPU models are omitted: they are labels, not inequalities.

A node's point: free CPU (milli), free memory (MiB), fully free GPUs, and the largest free share of one GPU (milli).
"""

from __future__ import annotations

import csv
import lzma
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from minikube_py.index.structure import MISSING, IntArray, Point
from minikube_py.lab.trace import load

TABLE: Final = "openb_shapes.csv"
COLUMNS: Final = ("list", "cpu_milli", "memory_mib", "gpus", "gpu_milli", "pods")
WHOLE: Final = 1000
MOST_GPUS: Final = 8


class Shape(NamedTuple):
    """`gpu_milli` of each of `gpus`; a pod shares a GPU if it requests only part of one."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int

    def asked(self) -> Point:
        shares = self.gpus == 1 and self.gpu_milli < WHOLE
        whole = self.gpus if self.gpus and not shares else MISSING
        return (self.cpu_milli, self.memory_mib, whole, self.gpu_milli if shares else MISSING)


@cache
def shapes() -> dict[str, list[tuple[Shape, int]]]:
    """By list, its pods' requests with counts."""
    text = resources.files(__package__).joinpath(TABLE).read_text(encoding="utf-8")
    found: dict[str, list[tuple[Shape, int]]] = {}
    for row in csv.DictReader(text.splitlines()):
        shape = Shape(*(int(row[column]) for column in COLUMNS[1:5]))
        found.setdefault(row["list"], []).append((shape, int(row["pods"])))
    return found


class OpenbCluster:
    """`points`: the free amounts. Pods arrive until they have requested `arrived` percent of all GPUs; those that fit
    nowhere are dropped. Then one leaves at random and others arrive. `packed`: on the node with the least left,
    otherwise on the emptiest."""

    def __init__(self, name: str, arrived: int, packed: bool, seed: int) -> None:
        nodes = [node for node in load().nodes if node.gpus]
        self._rng = np.random.default_rng([seed, arrived, packed, *name.encode()])
        self._cpu = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self._memory = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self._whole_cpu = self._cpu.copy()
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        self._gpus: IntArray = np.where(np.arange(MOST_GPUS) < gpus[:, None], WHOLE, 0).astype(np.int64)
        self._packed = packed
        listed = shapes()[name]
        self._shapes = [shape for shape, _ in listed]
        counts = np.array([count for _, count in listed], dtype=np.float64)
        self._shares = counts / counts.sum()
        self._running: list[tuple[int, Shape, IntArray]] = []
        wanted, asked = int(gpus.sum()) * WHOLE * arrived // 100, 0
        for shape in self._arrivals():
            asked += shape.gpus * shape.gpu_milli
            if asked > wanted:
                break
            self._place(shape)
        self.points = self._point(np.arange(len(nodes)))

    def _arrivals(self) -> Iterator[Shape]:
        while True:
            for number in self._rng.choice(len(self._shapes), size=512, p=self._shares).tolist():
                yield self._shapes[number]

    def _point(self, rows: IntArray) -> IntArray:
        gpus = self._gpus[rows]
        columns = (self._cpu[rows], self._memory[rows], (gpus == WHOLE).sum(axis=1), gpus.max(axis=1))
        return np.stack(columns, axis=1).astype(np.int64)

    def _place(self, shape: Shape) -> int:
        """The chosen node; -1 if it fits nowhere and is dropped."""
        fits = (self._cpu >= shape.cpu_milli) & (self._memory >= shape.memory_mib)
        if shape.gpus:
            fits &= (self._gpus >= shape.gpu_milli).sum(axis=1) >= shape.gpus
        there = np.flatnonzero(fits)
        if not len(there):
            return -1
        left = self._gpus[there].sum(axis=1) * 1_000_000 + self._cpu[there] * 1000 // self._whole_cpu[there]
        node = int(there[left.argmin() if self._packed else left.argmax()])
        taken = np.zeros(MOST_GPUS, dtype=np.int64)
        if shape.gpus:
            free = self._gpus[node]
            # The fullest devices that still have room.
            order = np.argsort(np.where(free >= shape.gpu_milli, free, 2 * WHOLE), kind="stable")
            taken[order[: shape.gpus]] = shape.gpu_milli
        self._take(node, shape, taken, 1)
        self._running.append((node, shape, taken))
        return node

    def _take(self, node: int, shape: Shape, taken: IntArray, sign: int) -> None:
        self._cpu[node] -= sign * shape.cpu_milli
        self._memory[node] -= sign * shape.memory_mib
        self._gpus[node] -= sign * taken

    def change(self, count: int) -> list[tuple[int, Point]]:
        """`count` changed nodes, or one more, one after another: a pod leaves, another arrives."""
        made: list[tuple[int, Point]] = []
        arrivals = self._arrivals()
        while len(made) < count:
            if self._running:
                number = int(self._rng.integers(len(self._running)))
                node, shape, taken = self._running[number]
                self._running[number] = self._running[-1]
                self._running.pop()
                self._take(node, shape, taken, -1)
                made.append(self._changed(node))
            for shape in arrivals:
                node = self._place(shape)
                if node >= 0:
                    made.append(self._changed(node))
                    break
                if self._rng.random() < 0.1:
                    break
        return made

    def _changed(self, node: int) -> tuple[int, Point]:
        point = self._point(np.array([node]))[0]
        self.points[node] = point
        return node, tuple(point.tolist())

    def requests(self, count: int) -> IntArray:
        """The requests of the next pods."""
        numbers = self._rng.choice(len(self._shapes), size=count, p=self._shares).tolist()
        return np.array([self._shapes[number].asked() for number in numbers], dtype=np.int64)


def convert(folder: Path) -> str:
    """The table, from the published lists in `folder`."""
    lines = [",".join(COLUMNS)]
    for path in sorted(folder.glob("openb_pod_list_*")):
        packed = path.suffix == ".xz"
        with lzma.open(path, "rt") if packed else path.open() as file:
            columns = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
            counted = Counter(tuple(int(row[column]) for column in columns) for row in csv.DictReader(file))
        name = path.name.removeprefix("openb_pod_list_").partition(".")[0]
        lines += [",".join(map(str, (name, *shape, count))) for shape, count in sorted(counted.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(convert(Path(sys.argv[1])))
