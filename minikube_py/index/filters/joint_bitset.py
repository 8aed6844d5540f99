"""A bit for each cell of a grid over all dimensions: whether any point is in it.

The grid has `buckets` steps in each dimension, so a summary has buckets^dimensions bits. Unlike the max vector it
records which values occur together; it errs only at the edge of a box, in cells that the box cuts. Steps are even
between the least and the greatest value at building (`spacing="even"`), or have about as many points each ("quantile").
No bound: if points lie near the edge of every queried box, it passes them all. (Multi-resolution bitmaps and grid files
are its relatives: Nievergelt et al., TODS 1984.) Updates: insert, values outside the grid count as its outermost step;
deleted points are still counted."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.hashing import within
from minikube_py.index.filters.max_vector import MaxVector
from minikube_py.index.structure import HIGH, MISSING, Box, IntArray, Point

MOST_CELLS = 1 << 20


class JointBitset:
    """`Summary`. Also holds the max vector, because the outermost steps are unbounded.

    Raises: InvalidRequest for options out of bounds, or more than MOST_CELLS cells."""

    filter = "joint-bitset"

    def __init__(self, points: IntArray, buckets: int = 8, spacing: str = "even") -> None:
        dimensions = points.shape[1]
        within("buckets", buckets, 2, 1024)
        if spacing not in ("even", "quantile"):
            raise InvalidRequest(f'spacing is "{spacing}": it must be "even" or "quantile"')
        if buckets**dimensions > MOST_CELLS:
            raise InvalidRequest(
                f"{buckets} buckets in each of {dimensions} dimensions are more than {MOST_CELLS} cells: ask for fewer"
            )
        self.buckets = buckets
        self.bounds = MaxVector(points)
        self._even = spacing == "even"
        self._cuts = [_cuts(points[:, dimension], buckets, self._even) for dimension in range(dimensions)]
        self._masks = _masks(buckets, dimensions)
        self.cells = 0
        if len(points):
            cell = np.zeros(len(points), dtype=np.int64)
            for dimension, cuts in enumerate(self._cuts):
                inner = np.array(cuts, dtype=np.int64)
                cell = cell * buckets + np.searchsorted(inner, points[:, dimension], side="right")
            flags = np.zeros(buckets**dimensions, dtype=np.uint8)
            flags[cell] = 1
            self.cells = int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")

    def may_match(self, box: Box) -> bool:
        if not self.bounds.may_match(box):
            return False
        left = self.cells
        for low, high, cuts, (from_step, to_step) in zip(box.lows, box.highs, self._cuts, self._masks):
            if low != MISSING:
                left &= from_step[bisect_right(cuts, low)]
            if high != HIGH:
                left &= to_step[bisect_right(cuts, high)]
            if not left:
                return False
        return True

    def put(self, point: Point) -> None:
        self.bounds.put(point)
        cell = 0
        for value, cuts in zip(point, self._cuts):
            cell = cell * self.buckets + bisect_right(cuts, value)
        self.cells |= 1 << cell

    def size_bits(self) -> int:
        dimensions = len(self._cuts)
        # Even steps need only start and end; others are listed.
        steps = 2 if self._even else self.buckets - 1
        return int(self.buckets**dimensions) + 64 * steps * dimensions + self.bounds.size_bits()


def _cuts(values: IntArray, buckets: int, even: bool) -> list[int]:
    """Ascending; a value's step is the number of cuts not above it."""
    there = values[values != MISSING]
    if not len(there):
        return [0] * (buckets - 1)
    if even:
        least, span = int(there.min()), int(there.max()) - int(there.min()) + 1
        return [least + span * step // buckets for step in range(1, buckets)]
    ordered = np.sort(there)
    return [int(ordered[len(ordered) * step // buckets]) for step in range(1, buckets)]


@lru_cache(maxsize=64)
def _masks(buckets: int, dimensions: int) -> list[tuple[list[int], list[int]]]:
    """For each dimension: the cells at or above each step, and those at or below it."""
    masks = []
    for dimension in range(dimensions):
        run = buckets ** (dimensions - 1 - dimension)
        repeats = buckets**dimension
        ones = (1 << run) - 1
        stride = run * buckets
        comb = sum(1 << (stride * repeat) for repeat in range(repeats))
        single = [(ones << (run * step)) * comb for step in range(buckets)]
        from_step = [0] * buckets
        to_step = [0] * buckets
        above = below = 0
        for step in range(buckets):
            below |= single[step]
            to_step[step] = below
            above |= single[-1 - step]
            from_step[-1 - step] = above
        masks.append((from_step, to_step))
    return masks
