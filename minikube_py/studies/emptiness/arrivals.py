"""A cluster whose pods leave at random and arrive in proportion to what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minikube_py.index.structure import IntArray, Point


class Arrivals:
    """`points`: the free amounts now, one row per node. A subclass places pods of a shape, and takes them away."""

    points: IntArray

    def __init__(self, rng: np.random.Generator, shapes: Sequence[tuple[Any, int]]) -> None:
        self._rng = rng
        self._shapes = [shape for shape, _ in shapes]
        counts = np.array([count for _, count in shapes], dtype=np.float64)
        self._shares = counts / counts.sum()
        self._running: list[Any] = []
        """Of each pod its node, then its shape and whatever else `_take` needs."""

    def _place(self, shape: Any) -> int:
        """The chosen node; -1 if it fits nowhere and is dropped."""
        raise NotImplementedError

    def _take(self, sign: int, node: int, *pod: Any) -> None:
        """`sign`: 1 takes what the pod needs from the node, -1 returns it."""
        raise NotImplementedError

    def _asked(self, shape: Any) -> Point:
        raise NotImplementedError

    def _arriving(self) -> Iterator[Any]:
        while True:
            for number in self._rng.choice(len(self._shapes), size=512, p=self._shares).tolist():
                yield self._shapes[number]

    def change(self, count: int) -> list[tuple[int, Point]]:
        """`count` changed nodes, or one more, one after another: a pod leaves, another arrives."""
        made: list[tuple[int, Point]] = []
        arrivals = self._arriving()
        while len(made) < count:
            if self._running:
                number = int(self._rng.integers(len(self._running)))
                node, *pod = self._running[number]
                self._running[number] = self._running[-1]
                self._running.pop()
                self._take(-1, node, *pod)
                made.append((node, tuple(self.points[node].tolist())))
            for shape in arrivals:
                node = self._place(shape)
                if node >= 0:
                    made.append((node, tuple(self.points[node].tolist())))
                    break
                if self._rng.random() < 0.1:
                    break
        return made

    def requests(self, count: int) -> IntArray:
        """The requests of the next pods, as the cluster is now."""
        numbers = self._rng.choice(len(self._shapes), size=count, p=self._shares).tolist()
        return np.array([self._asked(self._shapes[number]) for number in numbers], dtype=np.int64)

    def known(self) -> IntArray:
        """What pods of each shape request, as the cluster is now."""
        return np.array([self._asked(shape) for shape in self._shapes], dtype=np.int64)
