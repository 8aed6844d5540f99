"""A column of int64 for each dimension, compared as a whole in numpy.

O(rows) per query, at about 0.3 ns per row and comparison; with a limit, blocks of growing size until enough are found.
The other structures also keep their points in one of these, and fall back on its scan. Each column is one buffer with
two views: an array for numpy, and a memoryview, whose single cells Python reads and writes in a third of the time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minikube_py.index.structure import HIGH, MISSING, NO_SLOTS, NOTHING, Box, Found, IntArray, Point
from minikube_py.index.structures.boxes import Asked, asked_of
from minikube_py.index.structures.options import check_dimensions, grown, within

Mask = npt.NDArray[np.bool_]

_FIRST_SLOTS = 64


class Columns:
    """`values[dimension][slot]`: MISSING if the slot is vacant or its point has no value. `end`: above every slot ever
    used. `cells`: the same columns for single reads and writes. All are replaced when the structure grows.

    `block_slots`: how many slots a query with a limit compares first; four times as many at each further step."""

    structure = "columns"

    def __init__(self, dimensions: int, block_slots: int = 4096) -> None:
        self.dimensions = check_dimensions(self.structure, dimensions)
        self._block_slots = within(self.structure, "block_slots", block_slots, 64, 1 << 20)
        self.capacity = 0
        self.end = 0
        self.values: list[IntArray] = []
        self.taken: Mask = np.empty(0, dtype=np.bool_)
        self._resize(_FIRST_SLOTS)

    def put(self, slot: int, point: Point) -> None:
        if not 0 <= slot < self.end:
            self._reach(slot)
        for column, value in zip(self.cells, point, strict=True):
            column[slot] = value
        self._taken_cells[slot] = True

    def remove(self, slot: int) -> None:
        if 0 <= slot < self.end:
            for column in self.cells:
                column[slot] = MISSING
            self._taken_cells[slot] = False

    def load(self, slots: IntArray, points: IntArray) -> None:
        if len(slots):
            self._reach(int(slots.min()))
            self._reach(int(slots.max()))
            for dimension, column in enumerate(self.values):
                column[slots] = points[:, dimension]
            self.taken[slots] = True

    def reserve(self, capacity: int) -> None:
        """Reserves memory for a power of two of slots, without using any."""
        if capacity > self.capacity:
            self._resize(capacity)

    def has(self, slot: int) -> bool:
        return 0 <= slot < self.end and bool(self._taken_cells[slot])

    def point(self, slot: int) -> Point:
        return tuple([column[slot] for column in self.cells])

    def find(self, box: Box, limit: int = 0) -> Found:
        asked = asked_of(box)
        return NOTHING if asked is None else self.scan(asked, limit)

    def scan(self, asked: Asked, limit: int) -> Found:
        end = self.end
        if not limit:
            return Found(self.among_range(asked, 0, end), True, end)
        pieces = []
        start, block, room = 0, self._block_slots, limit
        while start < end and room > 0:
            stop = min(start + block, end)
            slots = self.among_range(asked, start, stop)
            pieces.append(slots[:room])
            if len(slots) > room:
                return Found(np.concatenate(pieces), False, stop)
            room -= len(slots)
            # The rarer the matches, the larger the blocks, to save numpy calls.
            start, block = stop, block * 4
        return Found(np.concatenate(pieces) if pieces else NO_SLOTS, start >= end, start)

    def among_range(self, asked: Asked, start: int, stop: int) -> IntArray:
        """The slots of [start, stop) whose points are in the box."""
        mask: Mask | None = None
        for dimension, low, high in asked:
            column = self.values[dimension][start:stop]
            one: Mask = column >= low
            if high != HIGH:
                one &= column <= high
            mask = one if mask is None else np.logical_and(mask, one, out=mask)
        slots: IntArray = np.flatnonzero(self.taken[start:stop] if mask is None else mask)
        return slots + start if start else slots

    def among(self, asked: Asked, slots: IntArray) -> IntArray:
        """Those of `slots`, none of them vacant, whose points are in the box."""
        for dimension, low, high in asked:
            column = self.values[dimension][slots]
            mask = column >= low
            if high != HIGH:
                mask &= column <= high
            slots = slots[mask]
        return slots

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        return self.capacity * (8 * self.dimensions + 1)

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 6 us for the calls of numpy, 0.55 ns per row and 10 more per match; 3 us
        per block of a query with a limit."""
        looked_at = float(rows)
        blocks = 0
        if limit:
            looked_at = min(rows, max(limit / share, self._block_slots)) if share else rows
            blocks = (int(looked_at) // self._block_slots).bit_length() // 2 + 1
        return 6.0 + 3.0 * blocks + 0.00055 * looked_at + 0.01 * min(limit or rows, rows * share)

    def _reach(self, slot: int) -> None:
        """Extends the queried range to include `slot`."""
        if not 0 <= slot < self.capacity:
            self._resize(grown(self.capacity, slot))
        self.end = max(self.end, slot + 1)

    def _resize(self, capacity: int) -> None:
        old, kept = self.values, self.capacity
        self.capacity = capacity
        self.values = [np.full(capacity, MISSING, dtype=np.int64) for _ in range(self.dimensions)]
        for column, before in zip(self.values, old):
            column[:kept] = before
        taken = np.zeros(capacity, dtype=np.bool_)
        taken[:kept] = self.taken
        self.taken = taken
        self.cells = [column.data for column in self.values]
        self._taken_cells = taken.data
