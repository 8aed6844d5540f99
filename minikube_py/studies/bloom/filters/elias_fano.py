"""A sorted sequence of n numbers below a bound U in about n (lg(U/n) + 2) bits, with search.

Papers: Elias, "Efficient storage and retrieval by content and address of static files", JACM 1974; Fano, 1971. The low
lg(U/n) bits of each number are packed; the high ones are in unary: for each value of the high bits as many ones as
numbers have it, and a zero. The numbers of one high value begin at a zero, found from a list of each SAMPLE-th one:
32/SAMPLE more bits per value."""

from __future__ import annotations

from array import array

import numpy as np

from minikube_py.index.filters.hashing import Words
from minikube_py.studies.bloom.filters.bit_strings import get, pack, select, unpack

SAMPLE = 128


class EliasFano:
    """`numbers` ascending, all below `universe`."""

    __slots__ = ("_low", "_low_bits", "_samples", "_unary", "_zeros", "count")

    def __init__(self, numbers: Words, universe: int) -> None:
        self.count = len(numbers)
        self._low_bits = max(0, (universe // max(1, self.count)).bit_length() - 1)
        high = (numbers >> np.uint64(self._low_bits)).astype(np.int64)
        self._zeros = ((universe - 1) >> self._low_bits) + 1
        unary = np.zeros(self.count + self._zeros, dtype=np.uint8)
        unary[high + np.arange(self.count)] = 1
        self._samples = array("I", np.flatnonzero(unary == 0)[::SAMPLE].astype(np.uint32).tobytes())
        self._unary = np.packbits(unary, bitorder="little").tobytes()
        self._low = pack(numbers, self._low_bits)

    def any_in(self, low: int, high: int) -> bool:
        """Whether any number is in [low, high], both below the universe."""
        bits = self._low_bits
        last = high >> bits
        value = low >> bits
        place = self._end_of(value - 1) + 1 if value else 0
        # `place - value` numbers precede those with this high value.
        while value <= last:
            if self._unary[place >> 3] >> (place & 7) & 1:
                number = value << bits | get(self._low, (place - value) * bits, bits)
                if number >= low:
                    return number <= high
                place += 1
            elif place & 7 == 0 and self._unary[place >> 3] == 0:
                value += 8
                place += 8
            else:
                value += 1
                place += 1
        return False

    def _end_of(self, value: int) -> int:
        """The position of the zero that ends the numbers with the high bits `value`."""
        place = self._samples[value // SAMPLE]
        left = value % SAMPLE
        if not left:
            return place
        place += 1
        unary = self._unary
        # Skip `left` zeros from here: first in pieces of 64 bits, then bit by bit from the last byte.
        while True:
            byte, skip = place >> 3, place & 7
            word = ~int.from_bytes(unary[byte : byte + 8], "little") & ((1 << 64) - 1)
            word = word >> skip
            zeros = word.bit_count()
            if zeros >= left:
                return place + select(word, left - 1)
            left -= zeros
            place += 64 - skip

    def numbers(self) -> Words:
        """All of them, unpacked into an array."""
        unary = np.unpackbits(np.frombuffer(self._unary, dtype=np.uint8), bitorder="little")
        high = np.flatnonzero(unary[: self.count + self._zeros])
        high -= np.arange(self.count)
        return high.astype(np.uint64) << np.uint64(self._low_bits) | unpack(self._low, self._low_bits, self.count)

    def size_bits(self) -> int:
        return 8 * (len(self._unary) + len(self._low)) + 32 * len(self._samples)
