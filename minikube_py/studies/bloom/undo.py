"""The past of a structure without history: a log of replaced values, as in the store's column host.

Revision r is the state after r updates. For a slot changed since, the oldest entry after r has its value.
"""

from __future__ import annotations

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, Box, IntArray, Point, Structure

FIRST_ENTRIES = 1024


class UndoLog:
    """`points`: the present, one row per slot."""

    def __init__(self, points: IntArray) -> None:
        self.points = points.copy()
        self.length = 0
        self._slots: IntArray = np.empty(FIRST_ENTRIES, dtype=np.int64)
        self._old: IntArray = np.empty((FIRST_ENTRIES, points.shape[1]), dtype=np.int64)

    def put(self, slot: int, point: Point) -> None:
        if self.length == len(self._slots):
            self._slots = np.concatenate([self._slots, np.empty_like(self._slots)])
            self._old = np.concatenate([self._old, np.empty_like(self._old)])
        self._slots[self.length] = slot
        self._old[self.length] = self.points[slot]
        self.points[slot] = point
        self.length += 1

    def points_at(self, revision: int) -> IntArray:
        """All points at `revision`."""
        points = self.points.copy()
        since = slice(revision, self.length)
        # Newest first, so that the oldest entry is written last and stays.
        points[self._slots[since][::-1]] = self._old[since][::-1]
        return points

    def find(self, structure: Structure, box: Box, limit: int, revision: int) -> IntArray:
        """The result of `structure`, which holds the present, at `revision`: rows changed since by their old values,
        the others by the structure, with a limit raised by the number of changed rows."""
        slots, first = np.unique(self._slots[revision : self.length], return_index=True)
        old = self._old[revision + first]
        mask = np.ones(len(slots), dtype=np.bool_)
        for column, low, high in zip(old.T, box.lows, box.highs):
            if low != MISSING:
                mask &= column >= low
            if high != HIGH:
                mask &= column <= high
        then = slots[mask]
        if limit and len(then) >= limit:
            return then[:limit]
        now = structure.find(box, limit and limit + len(slots)).slots
        unchanged = now[~np.isin(now, slots)]
        found = np.concatenate([then, unchanged])
        return found[:limit] if limit else found

    def bytes_a_revision(self) -> float:
        """For one entry: slot, revision, and old point."""
        return 16.0 + 8.0 * int(self.points.shape[1])
