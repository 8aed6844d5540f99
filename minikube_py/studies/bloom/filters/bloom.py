"""A Bloom filter, also for ranges, by probing every value in them.

Paper: Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 1970; double hashing: Kirsch and
Mitzenmacher, "Less hashing, same performance", ESA 2006. Probing each of the L values of a range is how a Bloom filter
answers inequalities on integers in the manner of willf's (bits-and-blooms) filters.

Bound: for n keys in m bits with k hashes a value that is none of them passes with p = (1 - e^(-kn/m))^k, about
0.6185^(m/n) at the best k; an empty range of L values with 1 - (1-p)^L, whatever the keys. To hold that at eps takes
1.44 n lg(L/eps) bits, which is 1.44 times the least possible (Goswami et al., 2015), but the query takes L probes.
Updates: insert. Keys cannot be deleted. Ranges longer than `max_probes` are not probed: the answer is "perhaps"."""

from __future__ import annotations

import math

import numpy as np

from minikube_py.index.filters.hashing import (
    MASK,
    SIGN,
    Bools,
    Words,
    as_keys,
    mix,
    mix_many,
    salt,
    unsigned,
    within,
)
from minikube_py.index.structure import IntArray

MOST_BITS = 1 << 32
"""A table is at most 512 MiB: positions in it are found with 32 bits of a hash."""
_SLICE = 1 << 18


class BloomTable:
    """The bits themselves, for uint64 values. `table` and `bits` are the same memory."""

    __slots__ = ("bits", "bits_count", "hashes", "inserted", "salt", "table")

    def __init__(self, bits_count: int, hashes: int, seed: int) -> None:
        self.bits_count = max(8, -(-bits_count // 8) * 8)
        within("the size of a Bloom table in bits", self.bits_count, 8, MOST_BITS)
        self.hashes = hashes
        self.salt = salt(seed)
        self.inserted = 0
        self.bits = bytearray(self.bits_count // 8)
        self.table = np.frombuffer(self.bits, dtype=np.uint8)

    @classmethod
    def for_values(cls, count: int, bits_per_value: float, seed: int) -> BloomTable:
        """With the optimal number of hashes for `count` values."""
        bits_count = math.ceil(count * bits_per_value)
        return cls(bits_count, best_hashes(bits_per_value), seed)

    def add(self, value: int) -> None:
        bits, size = self.bits, self.bits_count
        place = mix(value + self.salt & MASK)
        step = mix(place) | 1
        for _ in range(self.hashes):
            bit = (place >> 32) * size >> 32
            bits[bit >> 3] |= 1 << (bit & 7)
            place = place + step & MASK
        self.inserted += 1

    def add_many(self, values: Words) -> None:
        for start in range(0, len(values), _SLICE):
            place, step = self._places(values[start : start + _SLICE])
            for _ in range(self.hashes):
                bit = (place >> np.uint64(32)) * np.uint64(self.bits_count) >> np.uint64(32)
                flags = np.left_shift(np.uint8(1), (bit & np.uint64(7)).astype(np.uint8))
                np.bitwise_or.at(self.table, (bit >> np.uint64(3)).astype(np.intp), flags)
                place = place + step
        self.inserted += len(values)

    def has(self, value: int) -> bool:
        bits, size = self.bits, self.bits_count
        place = mix(value + self.salt & MASK)
        bit = (place >> 32) * size >> 32
        if not bits[bit >> 3] >> (bit & 7) & 1:
            return False
        step = mix(place) | 1
        for _ in range(self.hashes - 1):
            place = place + step & MASK
            bit = (place >> 32) * size >> 32
            if not bits[bit >> 3] >> (bit & 7) & 1:
                return False
        return True

    def has_many(self, values: Words) -> Bools:
        """Most absent values are rejected by the first hashes; only the rest are probed further."""
        found: Bools = np.zeros(len(values), dtype=np.bool_)
        place, step = self._places(values)
        left = np.arange(len(values))
        for _ in range(self.hashes):
            bit = (place >> np.uint64(32)) * np.uint64(self.bits_count) >> np.uint64(32)
            byte = self.table[(bit >> np.uint64(3)).astype(np.intp)]
            keep = np.flatnonzero((byte >> (bit & np.uint64(7)).astype(np.uint8)) & np.uint8(1))
            left, step = left[keep], step[keep]
            if not len(left):
                return found
            place = place[keep] + step
        found[left] = True
        return found

    def _places(self, values: Words) -> tuple[Words, Words]:
        place = mix_many(values + np.uint64(self.salt))
        return place, mix_many(place) | np.uint64(1)

    def rate(self) -> float:
        """The probability that an absent value passes."""
        return (1 - math.exp(-self.hashes * self.inserted / self.bits_count)) ** self.hashes

    def size_bits(self) -> int:
        return self.bits_count


def best_hashes(bits_per_value: float) -> int:
    """The number of hashes with the fewest false positives."""
    near = max(1, math.floor(bits_per_value * math.log(2)))
    return min((near, near + 1), key=lambda hashes: (1 - math.exp(-hashes / max(bits_per_value, 1e-9))) ** hashes)


class Bloom:
    """`RangeFilter`, `Inserting`. `capacity`: the number of keys it is sized for, if more than it is built from.

    Raises: InvalidRequest for an option out of bounds."""

    filter = "bloom"

    def __init__(
        self, keys: IntArray, bits_per_key: float = 16, capacity: int = 0, max_probes: int = 4096, seed: int = 1
    ) -> None:
        within("bits_per_key", bits_per_key, 0.5, 64)
        within("max_probes", max_probes, 1, 1 << 20)
        keys = as_keys(keys)
        self.max_probes = max_probes
        self.table = BloomTable.for_values(max(len(keys), capacity, 1), bits_per_key, seed)
        self.table.add_many(unsigned(keys))

    def insert(self, key: int) -> None:
        self.table.add(key + SIGN)

    def may_contain(self, low: int, high: int) -> bool:
        if high - low >= self.max_probes:
            return True
        has = self.table.has
        return any(has(value) for value in range(low + SIGN, high + SIGN + 1))

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Bools:
        return probe_ranges(self.table, unsigned(lows), unsigned(highs), self.max_probes)

    def bound(self, length: int) -> float:
        """The maximum rate over empty ranges of `length` values, on any workload."""
        return range_rate(self.table.rate(), length) if length <= self.max_probes else 1.0

    def size_bits(self) -> int:
        return self.table.size_bits()


def range_rate(rate: float, length: int) -> float:
    """The probability that at least one of `length` absent values passes, each with `rate`."""
    return 1.0 if rate >= 1 else -math.expm1(length * math.log1p(-rate))


def probe_ranges(table: BloomTable, lows: Words, highs: Words, max_probes: int) -> Bools:
    """Whether any value of each range is in `table`; True if a range has more than `max_probes` values."""
    spans = highs - lows
    right_way = highs >= lows
    found: Bools = right_way & (spans >= np.uint64(max_probes))
    left = np.flatnonzero(right_way & ~found)
    offset = 0
    while len(left):
        hits = table.has_many(lows[left] + np.uint64(offset))
        found[left[hits]] = True
        left = left[~hits & (spans[left] > np.uint64(offset))]
        offset += 1
    return found
