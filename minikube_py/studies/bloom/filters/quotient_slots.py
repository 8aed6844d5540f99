"""A quotient filter's slots: remainders kept in order of their quotient, near the slot of that number.

Paper: Pandey, Bender, Johnson and Patro, "A general-purpose counting filter", SIGMOD 2017 (the rank-and-select quotient
filter). The remainders of one quotient are adjacent and in order: a run. A run begins in the slot of its quotient, or
right after the previous run. Two bits per slot locate it: whether the slot's number is the quotient of any run
(occupied), and whether the slot ends a run; the i-th run belongs to the i-th occupied quotient. For every BLOCK-th slot
there is a count of how many slots from there the runs of earlier quotients reach: 32/BLOCK bits per slot. Runs beyond
the last quotient's slot are in slots added at the end."""

from __future__ import annotations

from array import array

import numpy as np

from minikube_py.index.filters.hashing import Words
from minikube_py.studies.bloom.filters.bit_strings import WINDOW, get, insert, pack, select_from, take, unpack

BLOCK = WINDOW
_BLOCK_BYTES = BLOCK // 8


class QuotientSlots:
    """Built from `codes`, ascending uint64: quotient times 2^width, plus remainder. Equal ones are adjacent."""

    def __init__(self, codes: Words, quotients: int, width: int) -> None:
        self.quotients, self.width = quotients, width
        self.count = len(codes)
        quotient = (codes >> np.uint64(width)).astype(np.int64)
        index = np.arange(self.count)
        places = index + np.maximum.accumulate(quotient - index) if self.count else index
        beyond = int(places[-1]) + 1 if self.count else 0
        self.slots = (max(quotients, beyond) + 7) // 8 * 8
        remainders = np.zeros(self.slots, dtype=np.uint64)
        remainders[places] = codes & np.uint64((1 << width) - 1)
        self._remainders = bytearray(pack(remainders, width))
        occupied = np.zeros(self.slots, dtype=np.uint8)
        occupied[quotient] = 1
        self._occupied = bytearray(np.packbits(occupied, bitorder="little").tobytes())
        ends = np.zeros(self.slots, dtype=np.uint8)
        last = np.append(quotient[1:] != quotient[:-1], True)[: self.count]
        ends[places[last]] = 1
        self._ends = bytearray(np.packbits(ends, bitorder="little").tobytes())
        starts = np.arange(0, self.slots, BLOCK)
        before = np.searchsorted(quotient, starts, side="left")
        reach = np.append(places, 0)[before - 1] + 1 - starts
        self._offsets = array("I", np.where(before > 0, np.maximum(reach, 0), 0).astype(np.uint32).tobytes())

    # -- lookup ----------------------------------------------------------------------------------------------------

    def _runs_to(self, quotient: int) -> tuple[int, int]:
        """How many runs of the quotient's block have a quotient not above it, and where the block's runs begin."""
        block = quotient >> 8
        word = int.from_bytes(self._occupied[block * _BLOCK_BYTES : (block + 1) * _BLOCK_BYTES], "little")
        runs = (word & ((2 << (quotient & 255)) - 1)).bit_count()
        return runs, block * BLOCK + self._offsets[block]

    def _end_to(self, quotient: int) -> int:
        """Where the runs of all quotients up to this one end, exclusive; possibly before the quotient's own slot."""
        runs, begin = self._runs_to(quotient)
        return select_from(self._ends, begin, runs - 1) + 1 if runs else begin

    def _run(self, quotient: int) -> tuple[int, int]:
        """The slots of an occupied quotient's run, end exclusive."""
        runs, begin = self._runs_to(quotient)
        if runs == 1:
            first = max(begin, quotient)
            return first, select_from(self._ends, first, 0) + 1
        first = max(select_from(self._ends, begin, runs - 2) + 1, quotient)
        return first, select_from(self._ends, first, 0) + 1

    def _is_occupied(self, quotient: int) -> int:
        return self._occupied[quotient >> 3] >> (quotient & 7) & 1

    def _lower_bound(self, first: int, end: int, remainder: int) -> int:
        """The first slot of a run whose remainder is not below `remainder`; its end if there is none."""
        width, remainders = self.width, self._remainders
        while first < end:
            middle = (first + end) >> 1
            if get(remainders, middle * width, width) < remainder:
                first = middle + 1
            else:
                end = middle
        return first

    def _free_slot(self, slot: int) -> int:
        """The first slot from `slot` on without a run."""
        while (end := self._end_to(slot)) > slot:
            slot = end
            if slot == self.slots:
                self._lengthen()
        return slot

    def _lengthen(self) -> None:
        """Appends slots, a 64th or eight. All previous slots are taken, from some quotient's on."""
        more = max(8, self.slots // 512 * 8)
        self.slots += more
        self._remainders.extend(bytes(more * self.width // 8))
        self._occupied.extend(bytes(more // 8))
        self._ends.extend(bytes(more // 8))
        # The runs end where the new slots begin: none reaches into a new block.
        self._offsets.extend([0] * (-(-self.slots // BLOCK) - len(self._offsets)))

    # -- operations ------------------------------------------------------------------------------------------------

    def any_in(self, quotient: int, low: int, high: int) -> bool:
        """Whether the quotient has a remainder in [low, high]."""
        if not self._is_occupied(quotient):
            return False
        first, end = self._run(quotient)
        slot = self._lower_bound(first, end, low)
        return slot < end and get(self._remainders, slot * self.width, self.width) <= high

    def insert(self, quotient: int, remainder: int) -> None:
        free = self._free_slot(quotient)
        occupied = self._is_occupied(quotient)
        if occupied:
            first, end = self._run(quotient)
            slot = self._lower_bound(first, end, remainder)
        else:
            slot = end = max(self._end_to(quotient), quotient)
        width = self.width
        insert(self._remainders, slot * width, free * width, width, remainder)
        insert(self._ends, slot, free, 1, slot == end)
        if not occupied:
            self._occupied[quotient >> 3] |= 1 << (quotient & 7)
        elif slot == end:
            self._ends[(end - 1) >> 3] &= ~(1 << ((end - 1) & 7))
        for block in range((quotient >> 8) + 1, (free >> 8) + 1):
            self._offsets[block] += 1
        self.count += 1

    def delete(self, quotient: int, remainder: int) -> bool:
        """Deletes one such remainder; False if there is none."""
        if not self._is_occupied(quotient):
            return False
        first, end = self._run(quotient)
        slot = self._lower_bound(first, end, remainder)
        width = self.width
        if slot == end or get(self._remainders, slot * width, width) != remainder:
            return False
        # Slots up to here move down: the next is free, or a run in its quotient's own slot.
        stop = end
        while (reach := self._end_to(stop - 1)) > stop:
            stop = reach
        take(self._remainders, slot * width, stop * width, width)
        take(self._ends, slot, stop, 1)
        if end - first == 1:
            self._occupied[quotient >> 3] &= ~(1 << (quotient & 7))
        elif slot == end - 1:
            self._ends[(slot - 1) >> 3] |= 1 << ((slot - 1) & 7)
        for block in range((quotient >> 8) + 1, ((stop - 1) >> 8) + 1):
            self._offsets[block] -= 1
        self.count -= 1
        return True

    def codes(self) -> Words:
        """All of them, ascending."""
        if not self.count:
            return np.empty(0, dtype=np.uint64)
        quotient = np.flatnonzero(np.unpackbits(np.frombuffer(self._occupied, dtype=np.uint8), bitorder="little"))
        last = np.flatnonzero(np.unpackbits(np.frombuffer(self._ends, dtype=np.uint8), bitorder="little"))
        first = np.maximum(quotient, np.append(-1, last[:-1]) + 1)
        lengths = last + 1 - first
        begins = np.cumsum(lengths) - lengths
        places = np.arange(self.count) + np.repeat(first - begins, lengths)
        remainders = unpack(self._remainders, self.width, self.slots)[places]
        codes: Words = np.repeat(quotient, lengths).astype(np.uint64) << np.uint64(self.width) | remainders
        return codes

    def size_bits(self) -> int:
        return 8 * (len(self._remainders) + len(self._occupied) + len(self._ends)) + 32 * len(self._offsets)
