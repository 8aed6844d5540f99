"""The filter that never errs: the upper bound for any filter.

It is not a real filter, since it holds all points; it shows the most that others could reach. If it makes a system no
faster, no filter will. `size_bits` is 0, since a bound must not lose for its size; `held_bits` is the real size.
Updates: insert and delete."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from minikube_py.index.filters.hashing import Bools, as_keys
from minikube_py.index.structure import Box, IntArray, Point


class Oracle:
    """`Summary`, `Forgetting`. Points are kept in columns; one pass over them answers."""

    filter = "oracle"

    def __init__(self, points: IntArray) -> None:
        self._points = np.array(points, dtype=np.int64, order="F")
        self._count = len(points)

    def may_match(self, box: Box) -> bool:
        left: Bools | None = None
        for dimension, (low, high) in enumerate(zip(box.lows, box.highs)):
            column = self._points[: self._count, dimension]
            test = (column >= low) & (column <= high)
            left = test if left is None else left & test
        return self._count > 0 and left is not None and bool(left.any())

    def put(self, point: Point) -> None:
        if self._count == len(self._points):
            wider = np.empty((max(8, 2 * self._count), self._points.shape[1]), dtype=np.int64, order="F")
            wider[: self._count] = self._points
            self._points = wider
        self._points[self._count] = point
        self._count += 1

    def remove(self, point: Point) -> None:
        places = np.flatnonzero((self._points[: self._count] == np.array(point, dtype=np.int64)).all(axis=1))
        if not len(places):
            raise ValueError(f"{point} was never put")
        self._count -= 1
        self._points[places[0]] = self._points[self._count]

    def size_bits(self) -> int:
        return 0

    def held_bits(self) -> int:
        return 8 * self._points.nbytes


class OracleKeys:
    """`RangeFilter`, `Deleting`: the sorted keys themselves. `bits_per_key` exists only for a common signature."""

    filter = "oracle"

    def __init__(self, keys: IntArray, bits_per_key: float = 64) -> None:
        self._keys: list[int] = np.sort(as_keys(keys)).tolist()

    def may_contain(self, low: int, high: int) -> bool:
        place = bisect_left(self._keys, low)
        return place < len(self._keys) and self._keys[place] <= high

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Bools:
        keys = np.array(self._keys, dtype=np.int64)
        found: Bools = np.searchsorted(keys, lows, side="left") < np.searchsorted(keys, highs, side="right")
        return found

    def insert(self, key: int) -> None:
        insort(self._keys, key)

    def delete(self, key: int) -> None:
        place = bisect_left(self._keys, key)
        if place == len(self._keys) or self._keys[place] != key:
            raise ValueError(f"{key} was never inserted")
        del self._keys[place]

    def bound(self, length: int) -> float:
        return 0.0

    def size_bits(self) -> int:
        return 0

    def held_bits(self) -> int:
        return 64 * len(self._keys)
