"""A Bloom filter over the keys without their last `shift` bits: one probe covers 2^shift values.

Known from LSM stores (RocksDB's prefix Bloom filters) for one fixed prefix length.

Bound: none. An empty range that shares a prefix with a key always passes; so do ranges next to stored keys, where
thresholds tend to be. On uniform keys in a universe U a range of L values touches t <= (L-1)/2^shift + 2 prefixes, each
of which passes with p of the Bloom table, or with n 2^shift / U because it contains a key. Updates: insert. Ranges over
more than `max_probes` prefixes are not probed: the answer is "perhaps"."""

from __future__ import annotations

import numpy as np

from minikube_py.index.filters.hashing import SIGN, Bools, as_keys, unsigned, within
from minikube_py.index.structure import IntArray
from minikube_py.studies.bloom.filters.bloom import BloomTable, probe_ranges, range_rate


class PrefixBloom:
    """`RangeFilter`, `Inserting`. `shift`: how many bits a prefix omits; best near lg(L) for ranges of L values.

    Raises: InvalidRequest for an option out of bounds."""

    filter = "prefix-bloom"

    def __init__(
        self,
        keys: IntArray,
        bits_per_key: float = 16,
        shift: int = 10,
        capacity: int = 0,
        max_probes: int = 4096,
        seed: int = 1,
    ) -> None:
        within("bits_per_key", bits_per_key, 0.5, 64)
        within("shift", shift, 0, 63)
        within("max_probes", max_probes, 1, 1 << 20)
        keys = as_keys(keys)
        self.shift, self.max_probes = shift, max_probes
        self.table = BloomTable.for_values(max(len(keys), capacity, 1), bits_per_key, seed)
        # Keys that share a prefix set the same bits: count and insert each prefix once.
        self.table.add_many(np.unique(unsigned(keys) >> np.uint64(shift)))

    def insert(self, key: int) -> None:
        prefix = (key + SIGN) >> self.shift
        if not self.table.has(prefix):
            self.table.add(prefix)

    def may_contain(self, low: int, high: int) -> bool:
        if low > high:
            return False
        first, last = (low + SIGN) >> self.shift, (high + SIGN) >> self.shift
        if last - first >= self.max_probes:
            return True
        has = self.table.has
        return any(has(prefix) for prefix in range(first, last + 1))

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Bools:
        shift = np.uint64(self.shift)
        found = probe_ranges(self.table, unsigned(lows) >> shift, unsigned(highs) >> shift, self.max_probes)
        right_way: Bools = np.asarray(lows) <= np.asarray(highs)
        return found & right_way

    def bound(self, length: int) -> float:
        """The maximum rate over empty ranges of `length` values, on any workload: not guaranteed unless prefixes are
        whole keys."""
        return range_rate(self.table.rate(), length) if self.shift == 0 and length <= self.max_probes else 1.0

    def uniform_rate(self, length: int, universe: int) -> float:
        """Approximate rate if keys and ranges are spread evenly over `universe` values."""
        touched = (length - 1) / (1 << self.shift) + 1
        if touched > self.max_probes:
            return 1.0
        holds = min(1.0, self.table.inserted * (1 << self.shift) / universe)
        # A range covers most of a prefix within it: only the prefixes at its two ends may contain a key.
        return min(1.0, range_rate(self.table.rate(), 1) * touched + min(2.0, touched) * holds)

    def size_bits(self) -> int:
        return self.table.size_bits()
