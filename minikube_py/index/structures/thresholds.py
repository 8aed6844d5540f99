"""Thresholds that cut the values of a dimension into buckets of about equal size, and detection of imbalance.

Buckets are half-open: bucket b holds the values of [thresholds[b], thresholds[b + 1]). The first threshold is LOW, so
that a missing value precedes all buckets. A value shared by many points has a separate bucket, which no choice of
thresholds could make smaller."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from minikube_py.index.structure import HIGH, LOW, MISSING, IntArray

_SAMPLE = 8192
_LEAST_CROWD = 64
"""Fewer points than this in one bucket do not trigger a new choice."""
_CROWDING = 4
"""A bucket is crowded at this many times its share. Just after a choice none has three times as much."""


def choose(column: IntArray, buckets: int) -> list[int]:
    """Ascending thresholds for at most `buckets` buckets of the values in `column`."""
    values = column[column != MISSING]
    ordered = np.sort(values[:: len(values) // _SAMPLE + 1])
    if not len(ordered):
        return [LOW]
    picks = ordered[np.arange(1, buckets) * len(ordered) // buckets]
    chosen, times = np.unique(picks, return_counts=True)
    thresholds = {LOW, *chosen.tolist()}
    thresholds |= {value + 1 for value in chosen[times > 1].tolist() if value < HIGH}
    return sorted(thresholds)


class Buckets:
    """The thresholds of one dimension, and how many points are in each bucket.

    `thresholds` is never changed: a new choice is a new object."""

    __slots__ = ("_counts", "_share", "thresholds")

    def __init__(self, column: IntArray, buckets: int) -> None:
        self.thresholds = choose(column, buckets)
        self._share = _CROWDING / buckets
        # One more count, for missing values; it is never crowded, nor is a bucket of a single value.
        at_or_above = [int(np.count_nonzero(column >= threshold)) for threshold in self.thresholds]
        counts = [at - after for at, after in zip(at_or_above, [*at_or_above[1:], 0])]
        self._counts: list[float] = [float("-inf"), *counts]
        for bucket, (first, after) in enumerate(zip(self.thresholds, [*self.thresholds[1:], HIGH + 1])):
            if after == first + 1:
                self._counts[bucket + 1] = float("-inf")

    def place(self, value: int) -> int:
        """How many thresholds are at or below `value`: 0 if it is MISSING, else one more than its bucket."""
        return bisect_right(self.thresholds, value)

    def places(self, values: IntArray) -> IntArray:
        """`place` of each: by comparing all with every threshold, which beats a search as long as those are few."""
        if len(self.thresholds) > 255:
            found: IntArray = np.searchsorted(np.array(self.thresholds), values, side="right")
            return found
        places = np.zeros(len(values), dtype=np.uint8)
        for threshold in self.thresholds:
            places += (values >= threshold).view(np.uint8)
        return places.astype(np.int64)

    def leave(self, place: int) -> None:
        self._counts[place] -= 1

    def enter(self, place: int, rows: int) -> bool:
        """Counts one more point; True if its bucket is crowded, so that new thresholds would be better."""
        self._counts[place] += 1
        count = self._counts[place]
        return count > _LEAST_CROWD and count > self._share * rows
