"""Readers of shards: the contents behind a filter, in memory, at a simulated cost, or in a custom reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from minikube_py.index.structure import HIGH, MISSING, Box, IntArray, Point

BLOCK_ROWS = 8192


class Read(NamedTuple):
    """`slots` in the box, at most `limit` of them if one was given; `examined` rows were compared."""

    slots: IntArray
    examined: int
    complete: bool


class ShardReader(Protocol):
    """The points of all shards, by shard and slot. A slot is in at most one shard; shards are numbered from 0."""

    def fill(self, shard: int, slots: IntArray, points: IntArray) -> None:
        """Replaces the shard's contents by these slots, with one row of `points` each."""

    def put(self, shard: int, slot: int, point: Point) -> None: ...

    def remove(self, shard: int, slot: int) -> None:
        """Only called for an existing slot."""

    def point(self, shard: int, slot: int) -> Point:
        """The point of an existing slot: called only for filters that support deletion."""

    def find(self, shard: int, box: Box, limit: int = 0) -> Read:
        """Opens and searches the shard."""

    def contents(self, shard: int) -> tuple[IntArray, IntArray]:
        """All slots and their points, one row each: to rebuild a filter."""

    def size_bytes(self) -> int:
        """In this process's memory."""


@dataclass(slots=True)
class Ledger:
    """The operations done and their charged cost. A charge is counted, not waited for."""

    questions: int = 0
    probed: int = 0
    opened: int = 0
    pruned: int = 0
    false_positives: int = 0
    rebuilds: int = 0
    rebuilt_points: int = 0
    arranged_points: int = 0
    charged_us: float = 0.0


class Rows:
    """Points in columns, dense: the last row replaces a removed one."""

    __slots__ = ("columns", "count", "rows", "slots")

    def __init__(self, dimensions: int) -> None:
        self.columns: IntArray = np.empty((dimensions, 8), dtype=np.int64)
        self.slots: IntArray = np.empty(8, dtype=np.int64)
        self.rows: dict[int, int] = {}
        self.count = 0

    def fill(self, slots: IntArray, points: IntArray) -> None:
        self.columns = np.array(points.T, dtype=np.int64, order="C")
        self.slots = np.array(slots, dtype=np.int64)
        self.rows = dict(zip(self.slots.tolist(), range(len(self.slots))))
        self.count = len(self.slots)

    def put(self, slot: int, point: Point) -> None:
        row = self.rows.get(slot)
        if row is None:
            row = self.count
            if row == len(self.slots):
                self._widen()
            self.rows[slot] = row
            self.slots[row] = slot
            self.count += 1
        self.columns[:, row] = point

    def remove(self, slot: int) -> None:
        row = self.rows.pop(slot)
        self.count -= 1
        last = self.count
        if row != last:
            moved = int(self.slots[last])
            self.columns[:, row] = self.columns[:, last]
            self.slots[row] = moved
            self.rows[moved] = row

    def _widen(self) -> None:
        room = max(8, 2 * self.count)
        columns = np.empty((self.columns.shape[0], room), dtype=np.int64)
        columns[:, : self.count] = self.columns[:, : self.count]
        slots = np.empty(room, dtype=np.int64)
        slots[: self.count] = self.slots[: self.count]
        self.columns, self.slots = columns, slots

    def find(self, box: Box, limit: int = 0) -> Read:
        return find_in(self.slots, self.columns, self.count, box, limit)

    def size_bytes(self) -> int:
        # A slot in the dictionary takes about 100 bytes with its two ints.
        return self.columns.nbytes + self.slots.nbytes + 100 * self.count


def find_in(slots: IntArray, columns: IntArray, count: int, box: Box, limit: int) -> Read:
    """The first `count` of `slots` whose points, one column each in `columns`, are in `box`."""
    asked = [
        (columns[dimension], low, high)
        for dimension, (low, high) in enumerate(zip(box.lows, box.highs))
        if low != MISSING or high != HIGH
    ]
    block = count if not limit else BLOCK_ROWS
    pieces: list[IntArray] = []
    found = start = 0
    while start < count:
        stop = min(start + block, count)
        here = slots[start:stop]
        mask = _mask(asked, start, stop)
        if mask is not None:
            here = here[mask]
        if limit and found + len(here) > limit:
            pieces.append(here[: limit - found])
            return Read(np.concatenate(pieces), stop, False)
        pieces.append(here)
        found += len(here)
        start = stop
    if not pieces:
        return Read(np.empty(0, dtype=np.int64), 0, True)
    # Copied, because rows may move while the caller keeps the answer.
    return Read(np.concatenate(pieces), count, True)


def _mask(asked: list[tuple[IntArray, int, int]], start: int, stop: int) -> npt.NDArray[np.bool_] | None:
    mask: npt.NDArray[np.bool_] | None = None
    for column, low, high in asked:
        values = column[start:stop]
        if low != MISSING:
            test = values >= low
            mask = test if mask is None else mask & test
        if high != HIGH:
            test = values <= high
            mask = test if mask is None else mask & test
    return mask


class MemoryShards:
    """`ShardReader`: everything in this process."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._shards: dict[int, Rows] = {}

    def _rows(self, shard: int) -> Rows:
        rows = self._shards.get(shard)
        if rows is None:
            rows = self._shards[shard] = Rows(self._dimensions)
        return rows

    def fill(self, shard: int, slots: IntArray, points: IntArray) -> None:
        self._rows(shard).fill(slots, points)

    def put(self, shard: int, slot: int, point: Point) -> None:
        self._rows(shard).put(slot, point)

    def remove(self, shard: int, slot: int) -> None:
        self._rows(shard).remove(slot)

    def point(self, shard: int, slot: int) -> Point:
        rows = self._rows(shard)
        return tuple(rows.columns[:, rows.rows[slot]].tolist())

    def find(self, shard: int, box: Box, limit: int = 0) -> Read:
        return self._rows(shard).find(box, limit)

    def contents(self, shard: int) -> tuple[IntArray, IntArray]:
        rows = self._rows(shard)
        return rows.slots[: rows.count].copy(), np.ascontiguousarray(rows.columns[:, : rows.count].T)

    def size_bytes(self) -> int:
        return sum(rows.size_bytes() for rows in self._shards.values())


class ChargedShards:
    """`ShardReader`: wraps another one, with shards that cost `open_cost_us` more to open.

    The charge is recorded in `ledger` and added by the measurement; with `wait`, which gets seconds, it is really
    waited for. `find` opens a shard, and so does `contents` during a rebuild."""

    def __init__(
        self, inner: ShardReader, open_cost_us: float, ledger: Ledger, wait: Callable[[float], None] | None = None
    ) -> None:
        self.inner, self.open_cost_us, self.ledger, self.wait = inner, open_cost_us, ledger, wait
        self.fill, self.put, self.remove = inner.fill, inner.put, inner.remove
        self.point, self.size_bytes = inner.point, inner.size_bytes

    def _charge(self) -> None:
        if self.wait is not None:
            self.wait(self.open_cost_us / 1e6)
        else:
            self.ledger.charged_us += self.open_cost_us

    def find(self, shard: int, box: Box, limit: int = 0) -> Read:
        self._charge()
        return self.inner.find(shard, box, limit)

    def contents(self, shard: int) -> tuple[IntArray, IntArray]:
        self._charge()
        return self.inner.contents(shard)
