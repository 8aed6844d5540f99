"""A max-tree with leaves in k-d order, so that the points below a node are similar in every dimension.

So the greatest values below a node are close to those of each of its points, and false positives are rare. The order
comes from cutting the points at the median of a dimension, each half at the median of its dimension with the widest
spread by rank, and so on; the greater half comes first, where a query with a limit looks first.

A changed point keeps its place, so the order decays: hardly if values move a little, as with binds, but after changes
to a hundredth of the points if values are arbitrary. So reordering is triggered by queries, not changes: each adds its
wasted visits to a debt, and when the debt equals the cost of ordering, all are reordered; also when more than a fifth
of the points are new. The following puts do it in steps, each some passes of numpy, a few ms for 100,000 points;
queries use the old tree until the last step applies the changes made meanwhile.

Source: Bentley, "Multidimensional binary search trees used for associative searching", 1975, made implicit; maxima at
its nodes are those of a priority search tree (McCreight 1985) in every dimension at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

import numpy as np

from minikube_py.index.structure import Box, Found, IntArray, Point
from minikube_py.index.structures.max_tree import MaxTree
from minikube_py.index.structures.options import check_dimensions, check_slot, grown, within
from minikube_py.index.structures.visits import visits_of_a_scan

_LEAF_PLACES = 4
"""Smaller groups are not ordered internally."""
_LEAST_CHANGED = 64
_VISITS_TO_ORDER = 5
"""Ordering costs as much time as this many visits per point."""
_NEEDED_VISITS = 2.2
"""A query needs this many visits per level, and for each point found."""
_NEW_SHARE = 5
"""All are reordered when more than one point in this many is new."""
_PUTS_A_STEP_BITS = 11
"""There is a step every (rows >> this) + 1 puts, so ordering 100,000 points takes about a thousand."""


class KdTree:
    """`decay_percent`: the percentage of points that must have changed before queries trigger reordering.
    `visit_limit`: as that of `MaxTree`."""

    structure = "kd-tree"

    def __init__(self, dimensions: int, decay_percent: int = 1, visit_limit: int = 300) -> None:
        self._dimensions = check_dimensions(self.structure, dimensions)
        self._decay_percent = within(self.structure, "decay_percent", decay_percent, 1, 100)
        self._visit_limit = within(self.structure, "visit_limit", visit_limit, 1, 1 << 20)
        self._tree = MaxTree(dimensions, visit_limit)
        # -1 if a slot has no place, or a place no slot.
        self._place_of = self._slot_at = np.empty(0, dtype=np.int64)
        self._free: list[int] = []
        self._rows = 0
        self._changed: set[int] = set()
        self._new = 0
        self._debt_visits = 0.0
        self._ordering: Iterator[None] | None = None
        self._puts_to_step = 0

    def put(self, slot: int, point: Point) -> None:
        place = self._place(slot)
        if place < 0:
            place = self._take_place(slot)
        self._tree.put(place, point)
        self._decay(slot)

    def remove(self, slot: int) -> None:
        place = self._place(slot)
        if place >= 0:
            self._give_place(slot, place)
            self._decay(slot)

    def load(self, slots: IntArray, points: IntArray) -> None:
        for _ in self._order_anew(slots, points):
            pass

    def find(self, box: Box, limit: int = 0) -> Found:
        found = self._tree.find(box, limit)
        if found.examined > _LEAST_CHANGED:
            self._count_waste(found)
        return found._replace(slots=self._slot_at[found.slots])

    def may_match(self, box: Box) -> bool:
        return self._tree.may_match(box)

    def size_bytes(self) -> int:
        places = self._slot_at.nbytes + self._place_of.nbytes + 40 * len(self._free)
        return self._tree.size_bytes() + places + 60 * len(self._changed)

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`, and `index explain` of few, many and no points: 0.2 us per visit, four per
        level to the first point or to learn that there is none, and more for each further one the rarer they are,
        because it is in another part of the tree."""
        found = min(limit or rows, rows * share)
        needed = 4 * max(1, rows).bit_length() + found * (2 + log2(1 / share) if share else 1)
        visits = min(self._visit_limit, visits_of_a_scan(rows))
        if needed <= visits:
            return 2.5 + 0.2 * needed
        return (0.2 * visits if limit <= visits else 0) + self._tree.columns.cost_us(rows, share, limit)

    # -- places ----------------------------------------------------------------------------------------------------

    def _place(self, slot: int) -> int:
        return int(self._place_of[slot]) if 0 <= slot < len(self._place_of) else -1

    def _take_place(self, slot: int) -> int:
        if not 0 <= slot < len(self._place_of):
            self._place_of = _longer(self._place_of, grown(len(self._place_of), slot))
        if not self._free:
            first = len(self._slot_at)
            self._slot_at = _longer(self._slot_at, grown(first, first + 63))
            self._free = list(range(len(self._slot_at) - 1, first - 1, -1))
        place = self._free.pop()
        self._slot_at[place], self._place_of[slot] = slot, place
        self._rows += 1
        self._new += 1
        return place

    def _give_place(self, slot: int, place: int) -> None:
        self._tree.remove(place)
        self._slot_at[place] = self._place_of[slot] = -1
        self._free.append(place)
        self._rows -= 1

    # -- order -----------------------------------------------------------------------------------------------------

    def _count_waste(self, found: Found) -> None:
        """Adds to the debt the cost of a query beyond that in a good order."""
        visits: float = found.examined
        if visits > visits_of_a_scan(self._tree.columns.end):
            # It gave up and scanned.
            visits = 2.0 * visits_of_a_scan(self._tree.columns.end)
        needed = _NEEDED_VISITS * (len(self._slot_at).bit_length() + len(found.slots))
        self._debt_visits += max(0.0, visits - needed)

    def _decay(self, slot: int) -> None:
        """Records a change. Starts reordering if that pays, and then takes a step from time to time."""
        self._changed.add(slot)
        if self._ordering is not None:
            self._puts_to_step -= 1
            if self._puts_to_step < 0:
                self._puts_to_step = self._rows >> _PUTS_A_STEP_BITS
                next(self._ordering, None)
        elif len(self._changed) > _LEAST_CHANGED and (
            self._new * _NEW_SHARE > self._rows
            or (
                self._debt_visits > self._rows * _VISITS_TO_ORDER
                and len(self._changed) * 100 >= self._rows * self._decay_percent
            )
        ):
            self._changed.clear()
            places = np.flatnonzero(self._slot_at >= 0)
            points = np.stack([column[places] for column in self._tree.columns.values], axis=1)
            self._ordering = self._order_anew(self._slot_at[places], points)

    def _order_anew(self, slots: IntArray, points: IntArray) -> Iterator[None]:
        """Reorders these points in steps; the last one replaces the old tree."""
        rows = len(slots)
        size = max(64, 1 << (rows - 1).bit_length())
        # Rank 0 is the greatest. Empty places rank below all. Ranks are distinct: numpy orders equal values differently
        # on each kind of processor, and the tree must be the same on all.
        ranks = np.tile(np.arange(size, dtype=np.int32), (self._dimensions, 1))
        for rank, column in zip(ranks, points.T):
            rank[np.argsort(column, kind="stable")[::-1]] = np.arange(rows, dtype=np.int32)
            yield
        groups = np.arange(size).reshape(1, size)
        while groups.shape[1] > _LEAF_PLACES:
            groups = _halved(groups, ranks)
            yield
        groups.sort(axis=1)
        order = groups.reshape(-1)
        places = np.flatnonzero(order < rows)
        slots, points = slots[order[places]], points[order[places]]
        tree = MaxTree(self._dimensions, self._visit_limit)
        tree.load(places, points)
        yield
        self._replace_tree(tree, slots, places, size)

    def _replace_tree(self, tree: MaxTree, slots: IntArray, places: IntArray, size: int) -> None:
        changed = [(slot, self._place(slot)) for slot in self._changed]
        before = [(slot, self._tree.columns.point(place) if place >= 0 else None) for slot, place in changed]
        self._tree = tree
        self._place_of = np.full(len(self._place_of), -1, dtype=np.int64)
        if len(slots):
            check_slot(int(slots.min()))
            self._place_of = _longer(self._place_of, grown(len(self._place_of) // 2, int(slots.max())))
        self._place_of[slots] = places
        self._slot_at = np.full(size, -1, dtype=np.int64)
        self._slot_at[places] = slots
        self._free = np.flatnonzero(self._slot_at < 0)[::-1].tolist()
        self._rows = len(slots)
        self._ordering = None
        self._new, self._debt_visits = 0, 0.0
        for slot, point in before:
            place = self._place(slot)
            if point is not None:
                tree.put(place if place >= 0 else self._take_place(slot), point)
            elif place >= 0:
                self._give_place(slot, place)


def _halved(groups: IntArray, ranks: np.ndarray[tuple[int, int], np.dtype[np.int32]]) -> IntArray:
    """Splits each row of `groups` in two; the half that is greater in the row's widest dimension comes first."""
    width = groups.shape[1]
    spreads = []
    for rank in ranks:
        of_groups = rank[groups]
        spreads.append(of_groups.max(axis=1) - of_groups.min(axis=1))
    widest = np.argmax(spreads, axis=0)
    halves = np.argpartition(ranks[widest[:, None], groups], width // 2, axis=1)
    return np.take_along_axis(groups, halves, axis=1).reshape(-1, width // 2)


def _longer(array: IntArray, length: int) -> IntArray:
    """The array, filled with -1 up to `length`."""
    longer = np.full(max(length, len(array)), -1, dtype=np.int64)
    longer[: len(array)] = array
    return longer
