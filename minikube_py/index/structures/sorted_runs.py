"""Dimensions sorted by value: a query searches the narrowest of its intervals, and rechecks the others.

Each sorted dimension is a run of (value, slot). Changes since the runs were made are in a small list of fresh slots
that every query also examines; when the list is full it is merged into the runs, in a pass of numpy. So a query costs
the rows of its most selective interval, and a change its share of a merge. If even that interval is wide, all columns
are scanned: reading rows in the order of a run costs four times as much as reading them in place.

Source: the sorted run and its memtable of a log-structured merge-tree (O'Neil et al. 1996), with two levels; databases
with several single-column indexes likewise read the most selective one and test the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import sqrt

import numpy as np

from minikube_py.index.structure import NO_SLOTS, NOTHING, Box, Found, IntArray, Point
from minikube_py.index.structures.boxes import Asked, asked_of
from minikube_py.index.structures.columns import Columns
from minikube_py.index.structures.options import check_dimensions, within

_FIRST_BLOCK = 256
_SCAN_SHARE = 4
"""If more than one row in this many is in the interval, scan instead of using a run."""


class _Run:
    """`values` ascending, and the slot of each; `cells` are the values for a search by Python."""

    __slots__ = ("cells", "slots", "values")

    def __init__(self, values: IntArray, slots: IntArray) -> None:
        self.values, self.slots = values, slots
        self.cells = values.data

    def merged(self, fresh: np.ndarray[tuple[int], np.dtype[np.bool_]], column: IntArray, slots: IntArray) -> _Run:
        """The run without the slots that are `fresh`, and with `slots` at their values in `column`."""
        kept = ~fresh[self.slots]
        values, new = self.values[kept], column[slots]
        order = np.argsort(new, kind="stable")
        places = np.searchsorted(values, new[order])
        return _Run(np.insert(values, places, new[order]), np.insert(self.slots[kept], places, slots[order]))


class SortedRuns:
    """`dimension`: the only one that is kept sorted, counted from 0; -1 sorts all of them. `fresh_slots`: how many
    changed slots are collected before they are merged."""

    structure = "sorted-runs"

    def __init__(self, dimensions: int, dimension: int = -1, fresh_slots: int = 1024) -> None:
        self._columns = Columns(check_dimensions(self.structure, dimensions))
        within(self.structure, "dimension", dimension, -1, dimensions - 1)
        within(self.structure, "fresh_slots", fresh_slots, 16, 1 << 16)
        kept = range(dimensions) if dimension < 0 else (dimension,)
        self._runs = {one: _Run(np.empty(0, dtype=np.int64), NO_SLOTS) for one in kept}
        self._fresh = np.empty(fresh_slots, dtype=np.int64)
        self._fresh_count = 0
        self._follow_capacity()

    def put(self, slot: int, point: Point) -> None:
        columns = self._columns
        columns.put(slot, point)
        if columns.capacity != len(self._is_fresh):
            self._follow_capacity()
        if not self._fresh_cells[slot]:
            self._freshen(slot)

    def remove(self, slot: int) -> None:
        if self._columns.has(slot):
            self._columns.remove(slot)
            if not self._fresh_cells[slot]:
                self._freshen(slot)

    def load(self, slots: IntArray, points: IntArray) -> None:
        self._columns.load(slots, points)
        self._follow_capacity()
        for dimension in self._runs:
            order = np.argsort(points[:, dimension], kind="stable")
            self._runs[dimension] = _Run(points[order, dimension], slots[order])

    def find(self, box: Box, limit: int = 0) -> Found:
        asked = asked_of(box)
        if asked is None:
            return NOTHING
        narrowest = self._narrowest(asked)
        bearable = max(_FIRST_BLOCK, self._columns.end // _SCAN_SHARE)
        if narrowest is None or (not limit and narrowest[2] - narrowest[1] > bearable):
            return self._columns.scan(asked, limit)
        run, first, last = narrowest
        pieces: list[IntArray] = []
        count = examined = 0
        # From the greatest value down: a row with much of one resource has more of the others, if they correlate.
        block = _FIRST_BLOCK if limit else last - first
        while first < last:
            start = max(first, last - block)
            slots = run.slots[start:last]
            slots = self._columns.among(asked, slots[~self._is_fresh[slots]])
            examined += last - start
            count += len(slots)
            pieces.append(slots)
            if limit and count >= limit:
                break
            if examined > bearable:
                scanned = self._columns.scan(asked, limit)
                return scanned._replace(examined=scanned.examined + examined)
            last, block = start, min(block * 4, bearable)
        if not limit or count < limit:
            pieces.append(self._columns.among(asked, self._fresh[: self._fresh_count]))
            examined += self._fresh_count
            count += len(pieces[-1])
            if not limit or count <= limit:
                return Found(np.concatenate(pieces), True, examined)
        return Found(np.concatenate(pieces)[:limit], False, examined)

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        runs = sum(run.values.nbytes + run.slots.nbytes for run in self._runs.values())
        return self._columns.size_bytes() + runs + self._is_fresh.nbytes + self._fresh.nbytes

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 10 us for the calls of numpy, and 9 ns per row of the interval. The
        narrowest is estimated as if there were two independent dimensions of equal width."""
        interval = rows * sqrt(share)
        if limit and share:
            interval = min(interval, max(_FIRST_BLOCK, limit / sqrt(share)))
        scan_us = self._columns.cost_us(rows, share, limit)
        if interval * _SCAN_SHARE > rows and rows > _FIRST_BLOCK:
            return 10.0 + scan_us
        return 10.0 + 0.009 * interval

    def _narrowest(self, asked: Asked) -> tuple[_Run, int, int] | None:
        """The run and its part with the fewest rows of a constrained interval; None if none is sorted."""
        best: tuple[_Run, int, int] | None = None
        for dimension, low, high in asked:
            run = self._runs.get(dimension)
            if run is not None:
                first, last = bisect_left(run.cells, low), bisect_right(run.cells, high)
                if best is None or last - first < best[2] - best[1]:
                    best = run, first, last
        return best

    def _freshen(self, slot: int) -> None:
        self._fresh_cells[slot] = True
        self._fresh[self._fresh_count] = slot
        self._fresh_count += 1
        if self._fresh_count == len(self._fresh):
            slots = self._fresh[self._columns.taken[self._fresh]]
            for dimension, run in self._runs.items():
                self._runs[dimension] = run.merged(self._is_fresh, self._columns.values[dimension], slots)
            self._is_fresh[self._fresh] = False
            self._fresh_count = 0

    def _follow_capacity(self) -> None:
        self._is_fresh = np.zeros(self._columns.capacity, dtype=np.bool_)
        self._is_fresh[self._fresh[: self._fresh_count]] = True
        self._fresh_cells = self._is_fresh.data
