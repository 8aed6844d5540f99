"""Memento: a quotient filter of key prefixes, whose slots carry the suffixes too, so that it can answer for ranges.

Paper: Eslami and Dayan, "Memento filter: a fast, dynamic, and robust range filter", SIGMOD 2025. A key is a prefix and
a memento, its last r bits. The prefix is hashed to a quotient, which selects the slot, and a fingerprint of f bits; a
slot holds fingerprint and memento, mementos of equal fingerprints in order. A range of up to 2^r values touches at most
two prefixes, and searches each for a memento in an interval.

Bound: an absent prefix collides with n/N of the n keys, N = quotients 2^f. An empty range of L values that touches t
prefixes, t <= (L-1)/2^r + 2, passes with at most t n/N on any workload (the memento of the colliding key may be in
every interval), and with n L / (N 2^r) if mementos are spread evenly. A slot takes f + r + 2.125 bits, at a load of
0.95. Unlike in the paper, equal fingerprints are stored once for each memento, not once for all. Updates: insert,
delete, expand. Growing beyond the load doubles the quotients and takes a bit of every fingerprint, so that the rate
doubles each time; when none is left it answers "perhaps" to everything (`saturated`) until it is rebuilt."""

from __future__ import annotations

import math

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.hashing import MASK, SIGN, Bools, Words, as_keys, mix, mix_many, salt, unsigned, within
from minikube_py.index.structure import IntArray
from minikube_py.studies.bloom.filters.quotient_slots import QuotientSlots

LOAD = 0.95
SLOT_BITS = 2.125
LEAST_QUOTIENTS = 64
MOST_CODE_BITS = 63


class Memento:
    """`RangeFilter`, `Deleting`. `memento_bits`: r, ideally lg of the longest frequent range; fewer if `bits_per_key`
    has no space for them and a bit of fingerprint.

    Raises: InvalidRequest for an option out of bounds."""

    filter = "memento"

    def __init__(
        self,
        keys: IntArray,
        bits_per_key: float = 16,
        memento_bits: int = 10,
        capacity: int = 0,
        max_probes: int = 1024,
        seed: int = 1,
    ) -> None:
        within("bits_per_key", bits_per_key, 4, 60)
        within("memento_bits", memento_bits, 0, 32)
        within("max_probes", max_probes, 2, 1 << 20)
        values = unsigned(as_keys(keys))
        room = int(bits_per_key * LOAD - SLOT_BITS)
        self.memento_bits = min(memento_bits, max(0, room - 1))
        self.max_probes = max_probes
        quotients = max(LEAST_QUOTIENTS, math.ceil(max(len(values), capacity) / LOAD))
        if quotients.bit_length() + room > MOST_CODE_BITS:
            raise InvalidRequest(
                f"{quotients} slots of {room} bits are more than {MOST_CODE_BITS} bits of hash can say"
            )
        self.fingerprint_bits = room - self.memento_bits
        self._hashes = quotients << self.fingerprint_bits
        self._salt = salt(seed)
        self.saturated = False
        codes = self._codes_of(values)
        codes.sort()
        self.slots = QuotientSlots(codes, quotients, self.fingerprint_bits + self.memento_bits)

    def _codes_of(self, values: Words) -> Words:
        """Hash of the prefix and memento, combined."""
        bits = np.uint64(self.memento_bits)
        hashes = mix_many((values >> bits) + np.uint64(self._salt)) % np.uint64(self._hashes)
        codes: Words = hashes << bits | values & ((np.uint64(1) << bits) - np.uint64(1))
        return codes

    def _code(self, value: int) -> tuple[int, int]:
        """Quotient and remainder of a value."""
        bits = self.memento_bits
        code = mix((value >> bits) + self._salt & MASK) % self._hashes << bits | value & ((1 << bits) - 1)
        return code >> self.slots.width, code & ((1 << self.slots.width) - 1)

    @property
    def count(self) -> int:
        return self.slots.count

    def insert(self, key: int) -> None:
        if self.slots.count >= self.slots.quotients * (1 + LOAD) / 2 and not self.saturated:
            self.expand()
        if not self.saturated:
            self.slots.insert(*self._code(key + SIGN))

    def delete(self, key: int) -> None:
        """Raises: ValueError if no inserted key can have this code."""
        if not self.saturated and not self.slots.delete(*self._code(key + SIGN)):
            raise ValueError(f"{key} was never inserted")

    def expand(self) -> None:
        """Doubles the quotients, at a bit of each fingerprint. Each code still represents the same hash."""
        if self.fingerprint_bits == 0:
            self.saturated = True
            return
        codes = self.slots.codes()
        self.fingerprint_bits -= 1
        self.slots = QuotientSlots(codes, 2 * self.slots.quotients, self.slots.width - 1)

    def may_contain(self, low: int, high: int) -> bool:
        if low > high:
            return False
        if self.saturated:
            return True
        bits = self.memento_bits
        low, high = low + SIGN, high + SIGN
        first, last = low >> bits, high >> bits
        if first == last:
            return self._any(low, high)
        if last - first >= self.max_probes:
            return True
        whole = (1 << bits) - 1
        if self._any(low, low | whole) or self._any(last << bits, high):
            return True
        return any(self._any(prefix << bits, prefix << bits | whole) for prefix in range(first + 1, last))

    def _any(self, low: int, high: int) -> bool:
        """For two values of one prefix."""
        quotient, remainder = self._code(low)
        return self.slots.any_in(quotient, remainder, remainder + high - low)

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Bools:
        bits = np.uint64(self.memento_bits)
        whole = (np.uint64(1) << bits) - np.uint64(1)
        low, high = unsigned(lows), unsigned(highs)
        right_way = low <= high
        first, last = low >> bits, high >> bits
        found: Bools = right_way & ((last - first >= np.uint64(self.max_probes)) | self.saturated)
        codes = self.slots.codes()
        left = np.flatnonzero(right_way & ~found)
        offset = 0
        while len(left):
            prefix = first[left] + np.uint64(offset)
            start = np.maximum(prefix << bits, low[left])
            hits = _any_between(codes, self._codes_of(start), np.minimum(prefix << bits | whole, high[left]) - start)
            found[left[hits]] = True
            left = left[~hits & (prefix < last[left])]
            offset += 1
        return found

    def bound(self, length: int) -> float:
        """The maximum rate over empty ranges of `length` values, on any workload."""
        touched = 1 if length == 1 else (length - 1 >> self.memento_bits) + 2
        if self.saturated or touched > self.max_probes:
            return 1.0
        return min(1.0, self.count * touched / self._hashes)

    def uniform_rate(self, length: int) -> float:
        """The same if mementos are spread evenly."""
        if self.saturated or (length >> self.memento_bits) + 2 > self.max_probes:
            return 1.0
        return -math.expm1(-self.count * length / (self._hashes << self.memento_bits))

    def size_bits(self) -> int:
        return self.slots.size_bits()


def _any_between(codes: Words, lows: Words, spans: Words) -> Bools:
    found: Bools = np.searchsorted(codes, lows, side="left") < np.searchsorted(codes, lows + spans, side="right")
    return found
