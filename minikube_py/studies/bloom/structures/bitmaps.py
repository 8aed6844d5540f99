"""Bitmaps of cumulative levels: for each dimension and each threshold, the slots with at least that value.

A box is an AND of one bitmap per side. The thresholds just outside the box give every slot that may be in it, those
just inside the slots that certainly are; slots between are in a boundary bucket and are compared exactly. Bitmaps are
Python ints, in chunks of some thousand slots. Ints are immutable, so a frozen state shares them, and a change after
`freeze` copies the lists of one chunk. The coordinates are in small immutable blocks for the same reason.

The levels are quantiles of the values, chosen again when a bucket becomes crowded (see `thresholds`).

Source: range-encoded bitmap indexes (Chan and Ioannidis, SIGMOD 1998), binned as in FastBit (Wu et al. 2009), where the
recheck of the boundary bins is called the candidate check."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from sys import getsizeof
from typing import NamedTuple

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, NO_SLOTS, NOTHING, Box, Found, IntArray, Point
from minikube_py.index.structures.boxes import Asked, asked_of
from minikube_py.index.structures.columns import Columns, Mask
from minikube_py.index.structures.options import check_dimensions, within
from minikube_py.index.structures.thresholds import Buckets

_BLOCK_BITS = 5
_BLOCK_SLOTS = 1 << _BLOCK_BITS


class _Chunk:
    """`bits[dimension][level]`: the slots, relative to the chunk's first, whose value is at or above the threshold.
    `blocks`: the coordinates, slot by slot. `epoch`: that of the chunk's creation; it may be changed only then."""

    __slots__ = ("bits", "blocks", "epoch", "taken")

    def __init__(self, bits: list[list[int]], blocks: list[array[int]], taken: int, epoch: int) -> None:
        self.bits, self.blocks, self.taken, self.epoch = bits, blocks, taken, epoch

    def copy(self, epoch: int) -> _Chunk:
        return _Chunk([levels[:] for levels in self.bits], self.blocks[:], self.taken, epoch)


class State(NamedTuple):
    """`thresholds` of each dimension, and the chunks in order of their slots."""

    thresholds: tuple[list[int], ...]
    chunks: list[_Chunk]


class _Side(NamedTuple):
    """One comparison as bitmaps: `may` and `sure` are levels, -1 for none. With `above` a point must not be in the
    bitmap."""

    dimension: int
    may: int
    sure: int
    above: bool


class Bitmaps:
    """`levels`: thresholds for each dimension; more mean fewer points to recheck, and more bits to flip per change.
    `chunk_slots`: rounded up to a power of two; larger chunks make queries faster, and changes and frozen states more
    expensive."""

    structure = "bitmaps"

    def __init__(self, dimensions: int, levels: int = 32, chunk_slots: int = 4096) -> None:
        self._columns = Columns(check_dimensions(self.structure, dimensions))
        self._levels = within(self.structure, "levels", levels, 2, 1024)
        within(self.structure, "chunk_slots", chunk_slots, 64, 1 << 17)
        self._shift = (chunk_slots - 1).bit_length()
        self._chunk_slots = 1 << self._shift
        self._vacant = (MISSING,) * dimensions
        self._no_block = array("q", self._vacant * _BLOCK_SLOTS)
        self._rows = 0
        # The list of chunks is copied like a chunk when a frozen state holds it.
        self._epoch = self._list_epoch = 0
        self._chunks: list[_Chunk] = []
        self._build()

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, slot: int, point: Point) -> None:
        columns = self._columns
        had = columns.has(slot)
        before = columns.point(slot) if had else self._vacant
        columns.put(slot, point)
        chunk = self._own_chunk(slot)
        if not had:
            chunk.taken |= 1 << (slot & (self._chunk_slots - 1))
            self._rows += 1
        for dimension in self._move(chunk, slot, before, point):
            self._buckets[dimension] = self._choose(dimension)

    def remove(self, slot: int) -> None:
        columns = self._columns
        if columns.has(slot):
            before = columns.point(slot)
            columns.remove(slot)
            chunk = self._own_chunk(slot)
            chunk.taken ^= 1 << (slot & (self._chunk_slots - 1))
            self._rows -= 1
            self._move(chunk, slot, before, self._vacant)

    def load(self, slots: IntArray, points: IntArray) -> None:
        self._columns.load(slots, points)
        self._rows = len(slots)
        self._build()

    def _move(self, chunk: _Chunk, slot: int, before: Point, after: Point) -> list[int]:
        """Flips the bits between two points of a slot; returns the dimensions with a bucket that became crowded."""
        crowded = []
        bit = 1 << (slot & (self._chunk_slots - 1))
        for dimension, (old, new) in enumerate(zip(before, after)):
            if old != new:
                buckets = self._buckets[dimension]
                left, entered = buckets.place(old), buckets.place(new)
                if left != entered:
                    levels = chunk.bits[dimension]
                    for level in range(left, entered) if left < entered else range(entered, left):
                        levels[level] ^= bit
                    buckets.leave(left)
                    if buckets.enter(entered, self._rows):
                        crowded.append(dimension)
        place = (slot & (self._chunk_slots - 1)) >> _BLOCK_BITS
        start = (slot & (_BLOCK_SLOTS - 1)) * len(after)
        block = chunk.blocks[place][:]
        for offset, value in enumerate(after, start):
            block[offset] = value
        chunk.blocks[place] = block
        return crowded

    def _own_chunk(self, slot: int) -> _Chunk:
        """The chunk of `slot`, created if missing, copied if a frozen state also holds it."""
        if self._list_epoch != self._epoch:
            self._chunks = self._chunks[:]
            self._list_epoch = self._epoch
        number = slot >> self._shift
        while number >= len(self._chunks):
            bits = [[0] * len(buckets.thresholds) for buckets in self._buckets]
            blocks = [self._no_block] * (self._chunk_slots >> _BLOCK_BITS)
            self._chunks.append(_Chunk(bits, blocks, 0, self._epoch))
        chunk = self._chunks[number]
        if chunk.epoch != self._epoch:
            chunk = self._chunks[number] = chunk.copy(self._epoch)
        return chunk

    def _build(self) -> None:
        """Builds all chunks from the points in the columns."""
        columns = self._columns
        end = self._end()
        rows = np.full((end, columns.dimensions), MISSING, dtype=np.int64)
        for dimension, column in enumerate(columns.values):
            rows[: columns.end, dimension] = column[: columns.end]
        cells = array("q", rows.tobytes())
        size = _BLOCK_SLOTS * columns.dimensions
        blocks = [cells[at : at + size] for at in range(0, len(cells), size)]
        a_chunk = self._chunk_slots >> _BLOCK_BITS
        no_bits: list[list[int]] = [[] for _ in columns.values]
        self._chunks = [
            _Chunk(no_bits[:], blocks[number * a_chunk : (number + 1) * a_chunk], taken, self._epoch)
            for number, taken in enumerate(self._split(columns.taken[: columns.end]))
        ]
        self._list_epoch = self._epoch
        self._buckets: list[Buckets] = []
        for dimension in range(columns.dimensions):
            self._buckets.append(self._choose(dimension))

    def _choose(self, dimension: int) -> Buckets:
        """New levels for the values of a dimension, whose bitmaps are rebuilt."""
        column = self._columns.values[dimension][: self._columns.end]
        buckets = Buckets(column, self._levels)
        levels = [self._split(column >= low) for low in buckets.thresholds]
        for number in range(len(self._chunks)):
            self._own_chunk(number << self._shift).bits[dimension] = [level[number] for level in levels]
        return buckets

    def _end(self) -> int:
        """The slots of all chunks."""
        return -(-self._columns.end >> self._shift) << self._shift

    def _split(self, mask: Mask) -> list[int]:
        """The bitmap of a mask, an int for each chunk."""
        size = self._chunk_slots >> 3
        packed = np.packbits(mask, bitorder="little").tobytes()
        return [int.from_bytes(packed[at : at + size], "little") for at in range(0, self._end() >> 3, size)]

    # -- queries ---------------------------------------------------------------------------------------------------

    def find(self, box: Box, limit: int = 0) -> Found:
        return self._search(self._state(), box, limit, self._columns.among)

    def freeze(self) -> State:
        self._epoch += 1
        return self._state()

    def find_frozen(self, frozen: State, box: Box, limit: int = 0) -> Found:
        def among(asked: Asked, slots: IntArray) -> IntArray:
            inside = [slot for slot in slots.tolist() if self._lay_in(frozen.chunks, slot, asked)]
            return np.array(inside, dtype=np.int64)

        return self._search(frozen, box, limit, among)

    def _state(self) -> State:
        return State(tuple([buckets.thresholds for buckets in self._buckets]), self._chunks)

    def _search(self, state: State, box: Box, limit: int, recheck: Callable[[Asked, IntArray], IntArray]) -> Found:
        asked = asked_of(box)
        if asked is None:
            return NOTHING
        sides = _sides(asked, state.thresholds)
        certain: list[int] = []
        doubtful: list[int] = []
        count = 0
        for chunk in state.chunks:
            may, sure = _candidates(chunk, sides)
            certain.append(sure)
            doubtful.append(may ^ sure)
            count += sure.bit_count()
            if limit and count >= limit:
                break
        examined = len(certain) * (len(sides) or 1)
        slots = self._slots(certain)
        if limit and count >= limit:
            return Found(slots[:limit], count == limit and _all_of(state, certain, doubtful), examined)
        unsure = self._slots(doubtful) if any(doubtful) else NO_SLOTS
        if len(unsure):
            slots = np.concatenate((slots, recheck(asked, unsure)))
        complete = not limit or len(slots) <= limit
        return Found(slots if complete else slots[:limit], complete, examined + len(unsure))

    def _slots(self, bitmaps: list[int]) -> IntArray:
        """The slots of the bits that are set in successive chunks."""
        packed = b"".join([bitmap.to_bytes(self._chunk_slots >> 3, "little") for bitmap in bitmaps])
        bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")
        # Bools are searched ten times faster than numbers.
        slots: IntArray = np.flatnonzero(bits.view(np.bool_))
        return slots

    def _lay_in(self, chunks: list[_Chunk], slot: int, asked: Asked) -> bool:
        block = chunks[slot >> self._shift].blocks[(slot & (self._chunk_slots - 1)) >> _BLOCK_BITS]
        start = (slot & (_BLOCK_SLOTS - 1)) * self._columns.dimensions
        # A generator would take three times as long.
        for dimension, low, high in asked:  # noqa: SIM110
            if not low <= block[start + dimension] <= high:
                return False
        return True

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        blocks = len(self._chunks) * (self._chunk_slots >> _BLOCK_BITS) * (getsizeof(self._no_block) + 8)
        levels = [level for chunk in self._chunks for levels in chunk.bits for level in levels]
        return self._columns.size_bytes() + blocks + sum(map(getsizeof, levels)) + 8 * len(levels)

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 16 us for the calls, 1.9 us per chunk, and 40 ns per slot found or
        rechecked. One in four of those in the box is assumed to be certain."""
        chunks = 1 + (rows >> self._shift)
        found = min(limit or rows, rows * share)
        enough = limit / (share * 0.25) / self._chunk_slots if limit and share else chunks
        looked_at = min(chunks, 1 + enough)
        return 16.0 + 1.9 * looked_at + 0.04 * found + (8.0 if looked_at == chunks else 0)


def _all_of(state: State, certain: list[int], doubtful: list[int]) -> bool:
    """Whether all candidates are certain."""
    return len(certain) == len(state.chunks) and not any(doubtful)


def _sides(asked: Asked, thresholds: tuple[list[int], ...]) -> list[_Side]:
    sides = []
    for dimension, low, high in asked:
        levels = thresholds[dimension]
        may = bisect_right(levels, low) - 1
        sure = may if levels[may] == low else may + 1
        sides.append(_Side(dimension, may, sure if sure < len(levels) else -1, False))
        if high != HIGH:
            may = bisect_right(levels, high)
            exact = may < len(levels) and levels[may] == high + 1
            sides.append(_Side(dimension, may if may < len(levels) else -1, may if exact else may - 1, True))
    return sides


def _candidates(chunk: _Chunk, sides: list[_Side]) -> tuple[int, int]:
    """The slots of a chunk that may be in the box, and those of them that certainly are."""
    may = sure = chunk.taken
    for dimension, outer, inner, above in sides:
        levels = chunk.bits[dimension]
        if above:
            if outer >= 0:
                may ^= may & levels[outer]
            sure ^= sure & levels[inner]
        else:
            may &= levels[outer]
            sure = sure & levels[inner] if inner >= 0 else 0
        if not may:
            return 0, 0
    return may, sure
