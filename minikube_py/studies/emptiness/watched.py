"""The study `watched`: which of N watchers has to be woken by a change of a node, where each watches an inequality?

A watcher names the least of each amount. It is woken if a node enters or leaves what it watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from minikube_py.index.filters.front import Bools
from minikube_py.index.structure import IntArray
from minikube_py.lab.study.contest import Batch, Contest
from minikube_py.lab.study.design import Design, Levels
from minikube_py.lab.study.experiment import Absent
from minikube_py.studies.bloom.workload import SYNTHETIC
from minikube_py.studies.emptiness.study import cluster_of


def crossing(watched: IntArray, steps: IntArray) -> Bools:
    """Changes x watchers: whether exactly one of a node's two points has everything. `steps`: changes x (old, new)."""
    inside: Bools = np.all(steps[:, :, None] >= watched, axis=3)
    crossed: Bools = inside[:, 0] != inside[:, 1]
    return crossed


class Watching:
    """`watched`: watchers x dimensions, the requests of as many pods. A batch asks about changes in order."""

    def __init__(self, design: Design, levels: Levels, seed: int) -> None:
        cluster = cluster_of(design, levels, seed)
        self.watched = np.array(cluster.requests(int(levels["watchers"])), dtype=np.int64)
        points = cluster.points.copy()
        self.batches: list[Batch] = []
        for _ in range(int(design.raw["batches"])):
            steps = []
            for slot, point in cluster.change(int(design.raw["changes_per_batch"])):
                steps.append((points[slot].copy(), point))
                points[slot] = point
            asked = np.array(steps, dtype=np.int64)
            self.batches.append(Batch(asked, crossing(self.watched, asked)))


class Broadcast:
    """Wakes everybody."""

    def __init__(self, watched: IntArray) -> None:
        self.rows: IntArray = watched
        self._compared = self._changes = 0

    def answer(self, asked: IntArray) -> Bools:
        self._changes, self._compared = len(asked), 0
        return self.woken(asked)

    def woken(self, asked: IntArray) -> Bools:
        return np.ones((len(asked), len(self.rows)), dtype=np.bool_)

    def compare(self, rows: IntArray, asked: IntArray) -> Bools:
        self._compared += len(rows) * len(asked)
        return crossing(rows, asked)

    def change(self, changes: Any) -> None:
        """Watchers stay."""

    def figures(self) -> Mapping[str, float]:
        return {"rows": len(self.rows), "compared": self._compared / max(1, self._changes)}


class Scan(Broadcast):
    """Compares the node with every watcher."""

    def woken(self, asked: IntArray) -> Bools:
        return self.compare(self.rows, asked)


class Sorted(Broadcast):
    """Thresholds in order, by dimension: a watcher can be concerned only if one of its thresholds lies between the old
    amount and the new one. `verifies`: compares those that are; else they are woken as they are."""

    def __init__(self, watched: IntArray, verifies: int = 1) -> None:
        super().__init__(watched)
        self._verifies = verifies
        self._order = np.argsort(watched, axis=0, kind="stable")
        self._sorted = np.take_along_axis(watched, self._order, axis=0)

    def woken(self, asked: IntArray) -> Bools:
        woken = np.zeros((len(asked), len(self.rows)), dtype=np.bool_)
        for row, (old, new) in enumerate(asked):
            for dimension in np.flatnonzero(old != new):
                ends = sorted((old[dimension], new[dimension]))
                first, last = np.searchsorted(self._sorted[:, dimension], ends, side="right")
                woken[row, self._order[first:last, dimension]] = True
            if self._verifies:
                there = np.flatnonzero(woken[row])
                woken[row, there] = self.compare(self.rows[there], asked[row : row + 1])[0]
        return woken


class Shapes:
    """Another candidate over the distinct requests; whoever watches the same is woken together."""

    def __init__(self, watched: IntArray, kind: type[Broadcast]) -> None:
        rows, of = np.unique(watched, axis=0, return_inverse=True)
        self._inner, self._of = kind(rows), of.reshape(-1)
        self.change, self.figures = self._inner.change, self._inner.figures

    def answer(self, asked: IntArray) -> Bools:
        return self._inner.answer(asked)[:, self._of]


KINDS: Final[Mapping[str, tuple[type[Any], Mapping[str, Any]]]] = {
    "broadcast": (Broadcast, {}),
    "scan": (Scan, {}),
    "sorted-unverified": (Sorted, {"verifies": 0}),
    "sorted": (Sorted, {}),
    "shapes": (Shapes, {"kind": Scan}),
    "sorted-shapes": (Shapes, {"kind": Sorted}),
}


class Watched(Contest):
    """See docs/studies/watched.md."""

    settings = ("batches", "changes_per_batch", *SYNTHETIC)
    shares = {"in_vain": "woken"}
    words = {
        "woken": "watchers that are woken for each change of a node",
        "concerned": "watchers for whom the node enters or leaves what they watch, for each change",
        "in_vain": "of the watchers that are woken, the share that is not concerned",
        "compared": "watchers, or distinct requests, that the node is compared with for each change",
        "rows": "watchers, or distinct requests, that are kept",
    }

    def world(self, design: Design, levels: Levels, seed: int) -> Watching:
        return Watching(design, levels, seed)

    def candidate(self, name: str, world: Watching, design: Design, levels: Levels) -> Any:
        if name not in KINDS:
            raise Absent(f"it is none of {', '.join(KINDS)}")
        kind, options = KINDS[name]
        return kind(world.watched, **options)

    def mistakes(self, batch: Batch, answers: Bools) -> int:
        """Changes by which somebody concerned was not woken."""
        return int(np.count_nonzero((batch.right[: len(answers)] & ~answers).any(axis=1)))

    def score(self, batch: Batch, answers: Bools) -> Mapping[str, float]:
        woken, right = int(np.count_nonzero(answers)), int(np.count_nonzero(answers & batch.right[: len(answers)]))
        count = max(1, len(answers))
        return {"woken": woken / count, "concerned": right / count, "in_vain": (woken - right) / max(1, woken)}
