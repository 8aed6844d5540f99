"""Grafite: locality-preserving hashes of the keys, kept in order; a range of L values is a range of hashes.

Paper: Costa, Ferragina and Vinciguerra, "Grafite: taming adversarial queries with optimal range filters", SIGMOD 2024.
With r = n 2^(B-2) the hash of x is (q(x // r) + x) mod r, q pairwise independent: within a block of r values it only
shifts. The hashes of the keys, sorted and without duplicates, are an Elias-Fano sequence of about B bits per key.

Bound: B = bits_per_key; an empty range of L values passes with at most L / 2^(B-2), whatever the keys and the workload,
which is within 2 bits per key and a lower-order term of the optimum. Queries take O(1) searches for any L. Updates:
none; it is rebuilt.

`storage`: "elias-fano" takes those bits and about 3 us more in Python; "codes" keeps 64 bits per key for speed, and
counts them in `size_bits`. Many ranges at once are looked up in the unpacked codes."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.hashing import SIGN, Bools, Words, as_keys, mix, salt, unsigned, within
from minikube_py.index.structure import IntArray
from minikube_py.studies.bloom.filters.elias_fano import EliasFano

PRIME = (1 << 61) - 1
"""Multiplication modulo it is the pairwise independent family of Carter and Wegman (1979)."""
LEAST_REDUCED = 16
"""Keeps the numbers of blocks below the prime."""


class Grafite:
    """`RangeFilter`. Raises: InvalidRequest for an option out of bounds."""

    filter = "grafite"

    def __init__(self, keys: IntArray, bits_per_key: float = 16, storage: str = "elias-fano", seed: int = 1) -> None:
        within("bits_per_key", bits_per_key, 2.5, 60)
        if storage not in ("elias-fano", "codes"):
            raise InvalidRequest(f'storage is "{storage}": it must be "elias-fano" or "codes"')
        values = unsigned(as_keys(keys))
        self.count = len(values)
        self.reduced = min(1 << 60, max(LEAST_REDUCED, math.ceil(len(values) * 2 ** (bits_per_key - 2))))
        self._factor = 1 + mix(salt(seed)) % (PRIME - 1)
        self._term = mix(salt(seed + 1)) % PRIME
        codes = np.unique(self._hash_many(values))
        self._packed = EliasFano(codes, self.reduced) if storage == "elias-fano" else None
        self._codes = array("Q") if self._packed is not None else array("Q", codes.tobytes())

    def _shift(self, block: int) -> int:
        return (self._factor * block + self._term) % PRIME % self.reduced

    def _hash_many(self, values: Words) -> Words:
        reduced = np.uint64(self.reduced)
        shift = (times_mod_prime(self._factor, values // reduced) + np.uint64(self._term)) % np.uint64(PRIME) % reduced
        hashes: Words = (shift + values % reduced) % reduced
        return hashes

    def may_contain(self, low: int, high: int) -> bool:
        reduced = self.reduced
        if low > high or not self.count:
            return False
        if high - low >= reduced:
            return True
        low_block, low_rest = divmod(low + SIGN, reduced)
        high_block, high_rest = divmod(high + SIGN, reduced)
        if low_block == high_block:
            return self._any(self._shift(low_block), low_rest, high_rest)
        return self._any(self._shift(low_block), low_rest, reduced - 1) or self._any(
            self._shift(high_block), 0, high_rest
        )

    def _any(self, shift: int, first: int, last: int) -> bool:
        """Whether any code is among the hashes of `first` to `last` of a block with this shift."""
        low, high = (shift + first) % self.reduced, (shift + last) % self.reduced
        if low <= high:
            return self._any_code(low, high)
        return self._any_code(low, self.reduced - 1) or self._any_code(0, high)

    def _any_code(self, low: int, high: int) -> bool:
        if self._packed is not None:
            return self._packed.any_in(low, high)
        codes = self._codes
        place = bisect_left(codes, low)
        return place < len(codes) and codes[place] <= high

    def codes(self) -> Words:
        """The hashes of the keys, ascending."""
        return np.frombuffer(self._codes, dtype=np.uint64) if self._packed is None else self._packed.numbers()

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Bools:
        first, last = unsigned(lows), unsigned(highs)
        right_way = (first <= last) & (self.count > 0)
        codes, reduced = self.codes(), np.uint64(self.reduced)
        wide = last - first >= reduced
        low, high = self._hash_many(first), self._hash_many(last)
        # A shifted block ends one code before its start.
        turn = self._hash_many(last - last % reduced)
        end = (self._hash_many(first - first % reduced) + reduced - np.uint64(1)) % reduced
        one_block = first // reduced == last // reduced
        found = np.where(
            one_block, _any_between(codes, low, high), _any_between(codes, low, end) | _any_between(codes, turn, high)
        )
        answer: Bools = right_way & (wide | found)
        return answer

    def bound(self, length: int) -> float:
        """The maximum rate over empty ranges of `length` values, on any workload."""
        return min(1.0, self.count * length / self.reduced)

    def uniform_rate(self, length: int) -> float:
        """The same, taking collisions of hashes into account."""
        return -math.expm1(-self.count * length / self.reduced)

    def size_bits(self) -> int:
        return self._packed.size_bits() if self._packed is not None else 64 * len(self._codes)


def _any_between(codes: Words, lows: Words, highs: Words) -> Bools:
    """Whether any code is in each closed interval; one with low above high wraps around."""
    before_low = np.searchsorted(codes, lows, side="left")
    up_to_high = np.searchsorted(codes, highs, side="right")
    found: Bools = np.where(lows <= highs, before_low < up_to_high, (before_low < len(codes)) | (up_to_high > 0))
    return found


def times_mod_prime(factor: int, values: Words) -> Words:
    """`factor * values % PRIME`; `factor` below 2^61, `values` below 2^61."""
    factor_high, factor_low = np.uint64(factor >> 31), np.uint64(factor & 0x7FFFFFFF)
    high, low = values >> np.uint64(31), values & np.uint64(0x7FFFFFFF)
    middle = factor_high * low + factor_low * high
    # 2^62 is 2 modulo the prime, and 2^61 is 1. All sums stay below 2^64.
    total = factor_high * high * np.uint64(2) + factor_low * low
    total += (middle >> np.uint64(30)) + ((middle & np.uint64(0x3FFFFFFF)) << np.uint64(31))
    total = (total & np.uint64(PRIME)) + (total >> np.uint64(61))
    product: Words = np.where(total >= np.uint64(PRIME), total - np.uint64(PRIME), total)
    return product
