"""Rosetta: a Bloom filter for each length of prefix, so that a range takes a probe per dyadic interval, not per
value.

Paper: Luo, Chatterjee, Ketsetsidis, Dayan, Qin and Idreos, "Rosetta: a robust space-time optimized range filter for
key-value stores", SIGMOD 2020. Level i holds the keys without their last i bits. A range is cut into at most 2 lg(L)
dyadic intervals; if its level passes one, both halves are probed at the level below, down to whole keys. Only the
lowest level's "perhaps" counts.

Bound: let p_i be the rate of level i's table, 1 if it has none. An empty dyadic interval of level i passes with f_0 =
p_0, f_i = p_i (1 - (1 - f_(i-1))^2), whatever the keys, as all probed prefixes are absent; a range with at most the sum
over its intervals. With every upper level at 1/(2 - eps) and the lowest at eps all f_i <= eps, so a range of L values
passes with at most 2 lg(L) eps, in n (1.44 lg(1/eps) + 1.44 lg(L)) bits or fewer. Queries take up to 2 lg(L) probes if
nothing passes, and O(L) at worst. Updates: insert. Ranges longer than `max_probes` are not probed.

How the bits are dealt out (`allocation`); upper levels only save probes, the lowest alone decides:
- "bottom-heavy", the paper's result for few bits: the lowest level gets 7/8 of them, and of the rest as many
  upper levels as it gives a bit a key, spread evenly.
- "equilibrium", the paper's first method: as in the bound above. It starves the lowest level where there are less
  than about 1.44 lg(L) + 8 bits a key.
- "single": all to the lowest level; the same as probing a Bloom filter L times.
- "equal": the same to each level."""

from __future__ import annotations

import math

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.hashing import SIGN, Bools, Words, as_keys, unsigned, within
from minikube_py.index.structure import IntArray
from minikube_py.studies.bloom.filters.bloom import BloomTable, range_rate

LOWEST_SHARE = 7 / 8
LEAST_BITS = 0.1
"""A level with fewer bits per key is useless, and gets no table."""
LN2_SQUARED = math.log(2) ** 2
_SLICE_PROBES = 1 << 20


def bottom_heavy(bits_per_key: float, top: int) -> list[float]:
    rest = bits_per_key * (1 - LOWEST_SHARE)
    tables = min(top, int(rest))
    if not tables:
        return [bits_per_key] + [0.0] * top
    bits = [bits_per_key * LOWEST_SHARE] + [0.0] * top
    for number in range(1, tables + 1):
        bits[top * number // tables] = rest / tables
    return bits


def equilibrium(bits_per_key: float, top: int) -> list[float]:
    low, high = 1e-12, 1.0
    for _ in range(80):
        rate = math.sqrt(low * high)
        if (math.log(1 / rate) + top * math.log(2 - rate)) / LN2_SQUARED > bits_per_key:
            low = rate
        else:
            high = rate
    return [math.log(1 / high) / LN2_SQUARED] + [math.log(2 - high) / LN2_SQUARED] * top


def single(bits_per_key: float, top: int) -> list[float]:
    return [bits_per_key] + [0.0] * top


def equal(bits_per_key: float, top: int) -> list[float]:
    return [bits_per_key / (top + 1)] * (top + 1)


ALLOCATIONS = {"bottom-heavy": bottom_heavy, "equilibrium": equilibrium, "single": single, "equal": equal}
"""Bits per key for each level, from the lowest to `top`."""


class Rosetta:
    """`RangeFilter`, `Inserting`. `max_length`: the range length it is designed for; longer ones take more probes.

    Raises: InvalidRequest for an option out of bounds."""

    filter = "rosetta"

    def __init__(
        self,
        keys: IntArray,
        bits_per_key: float = 16,
        max_length: int = 1024,
        allocation: str = "bottom-heavy",
        capacity: int = 0,
        max_probes: int = 4096,
        seed: int = 1,
    ) -> None:
        within("bits_per_key", bits_per_key, 0.5, 64)
        within("max_length", max_length, 1, 1 << 20)
        within("max_probes", max_probes, 1, 1 << 20)
        if allocation not in ALLOCATIONS:
            raise InvalidRequest(f'allocation is "{allocation}": it must be one of {", ".join(ALLOCATIONS)}')
        keys = as_keys(keys)
        self.max_probes = max_probes
        self.top = max_length.bit_length() - 1
        self.tables: list[BloomTable | None] = []
        prefixes = np.unique(unsigned(keys))
        for level, bits in enumerate(ALLOCATIONS[allocation](bits_per_key, self.top)):
            table = None
            if bits >= LEAST_BITS or level == 0:
                table = BloomTable.for_values(max(len(keys), capacity, 1), max(bits, LEAST_BITS), seed + level)
                table.add_many(np.unique(prefixes >> np.uint64(level)))
            self.tables.append(table)

    def insert(self, key: int) -> None:
        value = key + SIGN
        for level, table in enumerate(self.tables):
            if table is not None and not table.has(value >> level):
                table.add(value >> level)

    def may_contain(self, low: int, high: int) -> bool:
        if high - low >= self.max_probes:
            return True
        value, last = low + SIGN, high + SIGN
        while value <= last:
            level = self.top
            while value & ((1 << level) - 1) or value + (1 << level) - 1 > last:
                level -= 1
            if self._passes(value >> level, level):
                return True
            value += 1 << level
        return False

    def _passes(self, prefix: int, level: int) -> bool:
        table = self.tables[level]
        if table is not None and not table.has(prefix):
            return False
        return level == 0 or self._passes(2 * prefix, level - 1) or self._passes(2 * prefix + 1, level - 1)

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Bools:
        first, last = unsigned(lows), unsigned(highs)
        right_way = first <= last
        found: Bools = right_way & (last - first >= np.uint64(self.max_probes))
        asked = np.flatnonzero(right_way & ~found)
        if len(asked):
            longest = int((last[asked] - first[asked]).max()) + 1
            rows = max(1, _SLICE_PROBES // longest)
            for start in range(0, len(asked), rows):
                part = asked[start : start + rows]
                found[part] = self._passing(first[part], last[part])
        return found

    def _passing(self, first: Words, last: Words) -> Bools:
        """Level by level from the top: the intervals of all ranges, and the halves of those that passed."""
        found: Bools = np.zeros(len(first), dtype=np.bool_)
        levels = self._intervals(first, last)
        ranges, prefixes = levels[self.top]
        for level in range(self.top, -1, -1):
            table = self.tables[level]
            if table is not None:
                passed = table.has_many(prefixes)
                ranges, prefixes = ranges[passed], prefixes[passed]
            if level == 0:
                break
            more_ranges, more_prefixes = levels[level - 1]
            ranges = np.concatenate((ranges, ranges, more_ranges))
            prefixes = prefixes << np.uint64(1)
            prefixes = np.concatenate((prefixes, prefixes | np.uint64(1), more_prefixes))
        found[ranges] = True
        return found

    def _intervals(self, first: Words, last: Words) -> list[tuple[IntArray, Words]]:
        """For each level the dyadic intervals that the ranges are cut into: (number of the range, prefix)."""
        one = np.uint64(1)
        levels = []
        ranges = np.arange(len(first))
        for level in range(self.top + 1):
            if level == self.top:
                counts = (last - first).astype(np.int64) + 1
                whole = np.repeat(first, counts)
                steps = np.arange(len(whole)) - np.repeat(np.cumsum(counts) - counts, counts)
                levels.append((np.repeat(ranges, counts), whole + steps.astype(np.uint64)))
                break
            odd = (first & one) == one
            # The first of a range is alone if it is a right half, the last if it is a left one.
            even = (last & one) == 0
            levels.append((np.concatenate((ranges[odd], ranges[even])), np.concatenate((first[odd], last[even]))))
            left = last - first + one > odd.astype(np.uint64) + even
            first, last = (first >> one) + odd, (last >> one) - even
            ranges, first, last = ranges[left], first[left], last[left]
        return levels

    def rates(self) -> list[float]:
        """The probability that an empty dyadic interval of each level passes."""
        rates: list[float] = []
        for table in self.tables:
            rate = 1.0 if table is None else table.rate()
            rates.append(rate * (range_rate(rates[-1], 2) if rates else 1.0))
        return rates

    def bound(self, length: int) -> float:
        """The maximum rate over empty ranges of `length` values, on any workload."""
        if length > self.max_probes:
            return 1.0
        rates = self.rates()
        none_passes = 1.0
        for level in range(min(self.top, length.bit_length() - 1) + 1):
            intervals = 2 if level < self.top else -(-length >> level)
            none_passes *= (1 - rates[level]) ** min(intervals, length >> level)
        return min(1 - none_passes, range_rate(rates[0], length))

    def size_bits(self) -> int:
        return sum(table.size_bits() for table in self.tables if table is not None)
