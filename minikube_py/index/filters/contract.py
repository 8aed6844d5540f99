"""What a filter in front of a shard promises: it may say "perhaps" in vain, and never "no" in vain.

Two kinds. A `RangeFilter` holds int64 keys of one dimension and is asked for closed ranges; a `Summary` holds points
and is asked for boxes, all dimensions at once. `per_dimension` makes a Summary of a RangeFilter for each dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from minikube_py.index.structure import Box, IntArray, Point


@runtime_checkable
class RangeFilter(Protocol):
    """Built as `Filter(keys, bits_per_key=..., **options)` over an int64 array, which may hold keys more than once."""

    filter: str
    """Its name among the others."""

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
        """Takes out one key that was inserted, once for each time it was."""


@runtime_checkable
class Summary(Protocol):
    """Built as `Summary(points, **options)` over an int64 array of one row per point."""

    filter: str

    def may_match(self, box: Box) -> bool:
        """False only if no point lies in `box`."""

    def put(self, point: Point) -> None:
        """One point more. A point that left may go on to be counted until the summary is built again."""

    def size_bits(self) -> int: ...


@runtime_checkable
class Forgetting(Summary, Protocol):
    """A summary that points can leave."""

    def remove(self, point: Point) -> None:
        """Takes out a point that was put in or built from, once for each time it was."""


@runtime_checkable
class Bounded(RangeFilter, Protocol):
    """A filter with a guarantee."""

    def bound(self, length: int) -> float:
        """The most that the rate of false positives over empty ranges of `length` values can be, on any workload."""
