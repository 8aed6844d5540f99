"""The least and the greatest value in each dimension, as in a zone map.

Known as zone maps, small materialized aggregates (Moerkotte, VLDB 1998) or block range indexes. Two words per dimension
answer "is there a value of at least a" exactly. For several dimensions they may err: the maxima may be of different
points. Updates: insert; deleted points are still counted."""

from __future__ import annotations

import numpy as np

from minikube_py.index.structure import HIGH, LOW, MISSING, Box, IntArray, Point


class MaxVector:
    """`Summary`."""

    filter = "max-vector"

    def __init__(self, points: IntArray) -> None:
        self.count = len(points)
        dimensions = points.shape[1]
        self.highs = points.max(axis=0).tolist() if self.count else [MISSING] * dimensions
        there = np.where(points == MISSING, HIGH, points)
        self.lows = there.min(axis=0).tolist() if self.count else [HIGH] * dimensions

    def may_match(self, box: Box) -> bool:
        if not self.count:
            return False
        for low, high, least, greatest in zip(box.lows, box.highs, self.lows, self.highs):
            if low > greatest or (high < least and low >= LOW) or low > high:
                return False
        return True

    def put(self, point: Point) -> None:
        self.count += 1
        for dimension, value in enumerate(point):
            if value > self.highs[dimension]:
                self.highs[dimension] = value
            if MISSING < value < self.lows[dimension]:
                self.lows[dimension] = value

    def size_bits(self) -> int:
        return 128 * len(self.lows)
