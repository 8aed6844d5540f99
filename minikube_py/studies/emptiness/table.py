"""The nodes behind a front, which every front of the studies reads and counts alike."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.front import Bools
from minikube_py.index.structure import IntArray, Point

COUNT_BITS: Final = 16


class Table:
    """The nodes behind a front. They exist independently, and count only when read again."""

    front = "none"
    bound = 1.0

    def __init__(self, points: IntArray, shards: int) -> None:
        if shards < 1 or points.ndim != 2 or not points.shape[1]:
            raise InvalidRequest("a front needs one shard at least, and points of one dimension at least")
        self.points: IntArray = np.array(points, dtype=np.int64)
        self.shards, self.dimensions = shards, self.points.shape[1]
        self.rows_read = 0
        self.visited: Bools = np.zeros(shards, dtype=np.bool_)
        """Shards whose nodes were read, for whoever clears it."""
        highest = np.maximum(self.points, 1).max(axis=0, initial=1)
        self.point_bits = sum(int(value).bit_length() for value in highest)

    def passing(self, asked: IntArray) -> Bools:
        return np.ones((len(asked), self.shards), dtype=np.bool_)

    def ask(self, asked: IntArray, start: int = 0) -> Iterator[int]:
        """The shards that pass for one request, of dimensions, in order from `start` on and round. Whoever opens them
        may end it early."""
        yield from around(self.passing(asked[None])[0], start)

    def put(self, slot: int, point: Point) -> None:
        self.points[slot] = point

    def read(self, shard: int) -> tuple[IntArray, IntArray]:
        """Rereads the slots and points of a shard."""
        slots = np.arange(shard, len(self.points), self.shards)
        self.rows_read += len(slots)
        self.visited[shard] = True
        return slots, self.points[slots]

    def size_bytes(self) -> int:
        return 0

    def held_bytes(self) -> int:
        return self.size_bytes()


def around(passing: Bools, start: int) -> list[int]:
    """The shards that pass, in order, from `start` on and then those before it."""
    found: list[int] = np.flatnonzero(passing).tolist()
    first = bisect_left(found, start)
    return found[first:] + found[:first]
