"""A binary tree over the slots whose nodes hold the greatest value of each dimension below them.

A subtree is skipped if its greatest value is below a low in any dimension, so a query with a match costs about
log2(slots) steps. One without may cost many: no single point need have all the greatest values together (the more
negative the correlation, the more such subtrees). Therefore a query gives up and scans in time (see `visits`). Highs
prune nothing; they are tested at the leaves.

Source: a tournament tree (Knuth, TAOCP 3, 5.4.1) for each dimension over the same leaves."""

from __future__ import annotations

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, IntArray, Point
from minikube_py.index.structures.boxes import Asked
from minikube_py.index.structures.columns import Columns
from minikube_py.index.structures.options import check_dimensions, within
from minikube_py.index.structures.visits import WalkOrScan, visits_of_a_scan


class MaxTree(WalkOrScan):
    """Node 1 is the root, nodes 2n and 2n+1 are below node n, and the leaves, from `_capacity` on, are the slots.

    `visit_limit`: the number of visited nodes after which a query gives up and scans."""

    structure = "max-tree"

    def __init__(self, dimensions: int, visit_limit: int = 300) -> None:
        self._visit_limit = within(self.structure, "visit_limit", visit_limit, 1, 1 << 20)
        self.columns = Columns(check_dimensions(self.structure, dimensions))
        self._build()

    def put(self, slot: int, point: Point) -> None:
        columns = self.columns
        columns.put(slot, point)
        if columns.capacity != self._capacity:
            self._build()
        else:
            self._climb(slot, point)

    def remove(self, slot: int) -> None:
        if self.columns.has(slot):
            self.columns.remove(slot)
            self._climb(slot, (MISSING,) * self.columns.dimensions)

    def load(self, slots: IntArray, points: IntArray) -> None:
        self.columns.load(slots, points)
        self._build()

    def size_bytes(self) -> int:
        return self.columns.size_bytes() + self._capacity * 16 * self.columns.dimensions

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 0.18 us per visit, two visits per level for each point found, a scan above
        the limit. If nothing is found, the number depends on the data: half of the limit is assumed."""
        visits = min(self._visit_limit, visits_of_a_scan(rows))
        found = min(limit or rows, rows * share)
        needed = 2 * max(1, rows).bit_length() * found if found >= 1 else visits / 2
        if needed <= visits:
            return 1.5 + 0.18 * needed
        return (0.18 * visits if limit <= visits else 0) + self.columns.cost_us(rows, share, limit)

    def _walk(self, asked: Asked, limit: int, visits_left: int) -> tuple[list[int] | None, int]:
        lows = [(self._cells[dimension], low) for dimension, low, _ in asked]
        highs = [(self._cells[dimension], high) for dimension, _, high in asked if high != HIGH]
        capacity = self._capacity
        slots: list[int] = []
        pending = [1]
        visits = 0
        while pending and visits <= visits_left:
            node = pending.pop() * 2
            visits += 2
            for child in (node + 1, node):
                for maxima, low in lows:
                    if maxima[child] < low:
                        break
                else:
                    if child < capacity:
                        pending.append(child)
                        continue
                    for values, high in highs:
                        if values[child] > high:
                            break
                    else:
                        slots.append(child - capacity)
            if limit and len(slots) >= limit:
                return slots[:limit], visits
        return (None if pending else slots), visits

    def _climb(self, slot: int, point: Point) -> None:
        """Updates the maxima from the leaf of `slot` up, in each dimension as far as they change."""
        leaf = self._capacity + slot
        for maxima, greatest in zip(self._cells, point):
            node = leaf
            while maxima[node] != greatest:
                maxima[node] = greatest
                if node == 1:
                    break
                beside = maxima[node ^ 1]
                if beside > greatest:
                    greatest = beside
                node >>= 1

    def _build(self) -> None:
        self._capacity = width = self.columns.capacity
        levels = self.columns.values
        self._maxima = [np.full(2 * width, MISSING, dtype=np.int64) for _ in levels]
        while True:
            for maxima, level in zip(self._maxima, levels):
                maxima[width : 2 * width] = level
            if width == 1:
                break
            levels = [np.maximum(level[0::2], level[1::2]) for level in levels]
            width >>= 1
        self._cells = [maxima.data for maxima in self._maxima]
