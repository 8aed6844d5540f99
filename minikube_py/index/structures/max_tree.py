"""A binary tree over the slots whose nodes hold the greatest value of each dimension below them.

A subtree is passed over if its greatest value falls short of a low in any dimension, so a question that some point
answers costs about log2(slots) steps. One that none answers can cost many: no single point need have all the greatest
values together (the more the dimensions disagree, the more such subtrees). Therefore a question that has visited as
many nodes as a scan of the columns would have cost gives up and scans: a question never
costs much more than twice the better of both.
Highs prune nothing; they are tested at the leaves.

Source: a tournament tree (Knuth, TAOCP 3, 5.4.1) for each dimension over the same leaves. To give up for the other way
when it would have been paid for is the rule of ski rental (Karlin et al. 1988), which costs at most twice the optimum.
"""

from __future__ import annotations

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, NOTHING, Box, Found, IntArray, Point
from minikube_py.index.structures.boxes import Asked, asked_of, found_of
from minikube_py.index.structures.columns import Columns
from minikube_py.index.structures.options import check_dimensions, within

_SLOTS_PER_VISIT = 300
"""A scan compares as many slots in the time of one visit."""
_LEAST_VISITS = 40
"""The time of the calls of numpy alone."""


def visits_of_a_scan(slots: int) -> int:
    """How many visits take as long as a scan of so many slots."""
    return _LEAST_VISITS + slots // _SLOTS_PER_VISIT


class MaxTree:
    """Node 1 is the root, nodes 2n and 2n+1 stand below node n, and the leaves, from `_capacity` on, are the slots.

    `visit_limit`: after how many visited nodes, at the most, a question gives up and scans."""

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

    def find(self, box: Box, limit: int = 0) -> Found:
        asked = asked_of(box)
        if asked is None:
            return NOTHING
        visits_left = min(self._visit_limit, visits_of_a_scan(self.columns.end))
        if not asked or limit > visits_left:
            return self.columns.scan(asked, limit)
        slots, examined = self._walk(asked, limit, visits_left)
        if slots is None:
            scanned = self.columns.scan(asked, limit)
            return scanned._replace(examined=scanned.examined + examined)
        return found_of(slots, not limit or len(slots) < limit, examined)

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        return self.columns.size_bytes() + self._capacity * 16 * self.columns.dimensions

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 0.18 us a visit, two visits a level for each point found, a scan above
        the limit. Where nothing is found, how many are visited depends on the data: half of the limit is assumed."""
        visits = min(self._visit_limit, visits_of_a_scan(rows))
        found = min(limit or rows, rows * share)
        needed = 2 * max(1, rows).bit_length() * found if found >= 1 else visits / 2
        if needed <= visits:
            return 1.5 + 0.18 * needed
        return (0.18 * visits if limit <= visits else 0) + self.columns.cost_us(rows, share, limit)

    def _walk(self, asked: Asked, limit: int, visits_left: int) -> tuple[list[int] | None, int]:
        """The slots, None if the visits did not suffice; and how many nodes were compared, leaves among them."""
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
        """Mends the maxima from the leaf of `slot` on, in each dimension as far up as they change."""
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
