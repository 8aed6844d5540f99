"""The filter that always answers "perhaps": the cost of a system without filters, measured through the same code."""

from __future__ import annotations

import numpy as np

from minikube_py.index.filters.hashing import Bools
from minikube_py.index.structure import Box, IntArray, Point


class Always:
    """`Summary`, `Forgetting`."""

    filter = "always"

    def __init__(self, points: IntArray) -> None:
        pass

    def may_match(self, box: Box) -> bool:
        return True

    def put(self, point: Point) -> None:
        pass

    def remove(self, point: Point) -> None:
        pass

    def size_bits(self) -> int:
        return 0


class AlwaysKeys:
    """`RangeFilter`, `Deleting`."""

    filter = "always"

    def __init__(self, keys: IntArray, bits_per_key: float = 0) -> None:
        pass

    def may_contain(self, low: int, high: int) -> bool:
        return True

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Bools:
        return np.ones(len(lows), dtype=np.bool_)

    def insert(self, key: int) -> None:
        pass

    def delete(self, key: int) -> None:
        pass

    def bound(self, length: int) -> float:
        return 1.0

    def size_bits(self) -> int:
        return 0
