"""The contract of a filter in front of a shard: false positives are permitted, false negatives are not.

Two kinds. A `RangeFilter` holds int64 keys of one dimension and is queried with closed ranges; a `Summary` holds points
and is queried with boxes, all dimensions at once. `per_dimension` makes a Summary of a RangeFilter for each dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from minikube_py.index.structure import Box, IntArray, Point


@runtime_checkable
class RangeFilter(Protocol):
    """Built as `Filter(keys, bits_per_key=..., **options)` over an int64 array, which may have duplicates."""

    filter: str
    """Its unique name."""

    def may_contain(self, low: int, high: int) -> bool:
        """False only if no key lies in [low, high]."""

    def may_contain_many(self, lows: IntArray, highs: IntArray) -> Iterable[bool]:
        """The same for many ranges, in numpy; a bool array."""

    def size_bits(self) -> int: ...


@runtime_checkable
class Inserting(RangeFilter, Protocol):
    def insert(self, key: int) -> None: ...


@runtime_checkable
class Deleting(Inserting, Protocol):
    def delete(self, key: int) -> None:
        """Deletes one inserted key, once for each time it was inserted."""


@runtime_checkable
class Summary(Protocol):
    """Built as `Summary(points, **options)` over an int64 array of one row per point."""

    filter: str

    def may_match(self, box: Box) -> bool:
        """False only if no point lies in `box`."""

    def put(self, point: Point) -> None:
        """Adds a point. A deleted point may still be counted until the summary is rebuilt."""

    def size_bits(self) -> int: ...


@runtime_checkable
class Forgetting(Summary, Protocol):
    """A summary that supports deletion."""

    def remove(self, point: Point) -> None:
        """Removes a point that was put in or built from, once for each time it was."""


@runtime_checkable
class Bounded(RangeFilter, Protocol):
    """A filter with a guarantee."""

    def bound(self, length: int) -> float:
        """The maximum rate of false positives over empty ranges of `length` values, on any workload."""
