"""A cluster whose pods leave at random and arrive in proportion to what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from minikube_py.index.structure import IntArray, Point


class Arrivals:
    """`points`: the free amounts now, one row per node. A subclass places pods of a shape, and takes them away.

    Of `tries` pods that arrive for each that leaves, those that fit nowhere are dropped: in the long run one of `tries`
    finds room, so the cluster stays as full. With 0 it empties slowly: pods arrive for each that leaves until one fits,
    or until a tenth of those that do not has ended it, and small ones take the places of large ones."""

    points: IntArray
    tries = 0.0
    placed = -1
    """The node of the pod that was asked for last; -1 if it was dropped."""

    def __init__(self, rng: np.random.Generator, shapes: Sequence[tuple[Any, int]]) -> None:
        self._rng = rng
        self._shapes = [shape for shape, _ in shapes]
        counts = np.array([count for _, count in shapes], dtype=np.float64)
        self._shares = counts / counts.sum()
        self._running: list[Any] = []
        """Of each pod its node, then its shape and whatever else `_take` needs."""

    def _place(self, shape: Any, shards: int = 1, start: int = 0) -> int:
        """The chosen node of the first of `shards` with room, from `start` on and round; -1 if it fits on none and is
        dropped."""
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
        """`count` changed nodes, or some more, one after another: a pod leaves, others arrive."""
        made: list[tuple[int, Point]] = []
        arrivals = self._arriving()
        while len(made) < count:
            made += self._leave()
            if self.tries:
                for shape in islice(arrivals, int(self.tries + self._rng.random())):
                    made += self._changed(self._place(shape))
                continue
            for shape in arrivals:
                node = self._place(shape)
                made += self._changed(node)
                if node >= 0 or self._rng.random() < 0.1:
                    break
        return made

    def bind(self, shards: int, start: int) -> list[tuple[int, Point]]:
        """The pod that was asked for last is placed in the first shard with room. For `tries` such calls one leaves."""
        made = self._changed(self._place(self._last, shards, start))
        self.placed = made[0][0] if made else -1
        return made + (self._leave() if self._rng.random() * self.tries < 1 else [])

    def _leave(self) -> list[tuple[int, Point]]:
        if not self._running:
            return []
        number = int(self._rng.integers(len(self._running)))
        node, *pod = self._running[number]
        self._running[number] = self._running[-1]
        self._running.pop()
        self._take(-1, node, *pod)
        return self._changed(node)

    def _changed(self, node: int) -> list[tuple[int, Point]]:
        return [(node, tuple(self.points[node].tolist()))] if node >= 0 else []

    def requests(self, count: int) -> IntArray:
        """The requests of the next pods, as the cluster is now."""
        shapes = [self._shapes[each] for each in self._rng.choice(len(self._shapes), size=count, p=self._shares)]
        self._last = shapes[-1]
        return np.array([self._asked(shape) for shape in shapes], dtype=np.int64)

    def known(self) -> IntArray:
        """What pods of each shape request, as the cluster is now."""
        return np.array([self._asked(shape) for shape in self._shapes], dtype=np.int64)


def nearest(nodes: IntArray, shards: int, start: int) -> IntArray:
    """Those of the first shard, from `start` on and round, that has any of them."""
    away = (nodes - start) % shards
    found: IntArray = nodes[away == away.min()]
    return found
