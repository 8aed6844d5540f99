"""A summary of points made of one range filter for each dimension.

A box passes if each of its intervals passes the filter of its dimension. That is sound, but cannot detect joint
emptiness: values of different points satisfy different intervals. With `clip` an interval is first cut to the least and
greatest value, two words per dimension. A half-line `x >= a` that survives the cut ends at an existing value, so no
filter can reject it: for half-lines the greatest value is sufficient.

For a filter without insert, new keys are kept in a short sorted list, counted in `size_bits`, until the summary is
rebuilt. A point may be put more than once; `remove` exists only if the filters can delete, and only for points that
were put."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from typing import Any, cast

from minikube_py.index.filters.contract import Deleting, Inserting, RangeFilter
from minikube_py.index.filters.max_vector import MaxVector
from minikube_py.index.structure import MISSING, Box, IntArray, Point

Build = Callable[..., RangeFilter]


class PerDimension:
    """`Summary`; `build(keys, **options)` makes a filter."""

    def __init__(self, points: IntArray, build: Build, clip: int = 1, options: Mapping[str, Any] | None = None) -> None:
        self.bounds = MaxVector(points)
        self.clip = bool(clip)
        self.filters: list[RangeFilter] = []
        for column in points.T:
            self.filters.append(build(column[column != MISSING], **(options or {})))
        self.filter = self.filters[0].filter if self.filters else "none"
        self._inserts = all(isinstance(held, Inserting) for held in self.filters)
        self._new: list[list[int]] = [[] for _ in self.filters]

    def may_match(self, box: Box) -> bool:
        bounds = self.bounds
        if not bounds.count or box.empty:
            return False
        if self.clip and not bounds.may_match(box):
            return False
        for dimension, (low, high) in enumerate(zip(box.lows, box.highs)):
            if low == MISSING:
                continue
            if self.clip and (low <= bounds.lows[dimension] or high >= bounds.highs[dimension]):
                if not self._may_shrink:
                    # The interval contains the least or the greatest value, so the filter passes it.
                    continue
                low, high = max(low, bounds.lows[dimension]), min(high, bounds.highs[dimension])
            if not self.filters[dimension].may_contain(low, high) and not self._is_new(dimension, low, high):
                return False
        return True

    _may_shrink = False

    def _is_new(self, dimension: int, low: int, high: int) -> bool:
        new = self._new[dimension]
        place = bisect_left(new, low)
        return place < len(new) and new[place] <= high

    def put(self, point: Point) -> None:
        self.bounds.put(point)
        for dimension, value in enumerate(point):
            if value == MISSING:
                continue
            if self._inserts:
                cast(Inserting, self.filters[dimension]).insert(value)
            else:
                insort(self._new[dimension], value)

    def size_bits(self) -> int:
        bits = sum(held.size_bits() for held in self.filters) + 64 * sum(map(len, self._new))
        return bits + (self.bounds.size_bits() if self.clip else 0)


class ForgettingPerDimension(PerDimension):
    """The same over filters that can delete. The least and greatest values do not shrink when points are removed, so a
    clipped end may no longer be an existing value."""

    _may_shrink = True

    def remove(self, point: Point) -> None:
        self.bounds.count -= 1
        for held, value in zip(self.filters, point):
            if value != MISSING:
                cast(Deleting, held).delete(value)


def per_dimension(
    points: IntArray, build: Build, clip: int = 1, options: Mapping[str, Any] | None = None
) -> PerDimension:
    """The one or the other, depending on the filters of `build`."""
    # A class shows what its instances support; a factory function has to build an empty one.
    sample = build if isinstance(build, type) else build(points[:0, 0])
    kind = ForgettingPerDimension if hasattr(sample, "delete") else PerDimension
    return kind(points, build, clip, options)
