"""The contract of a matching structure: points in slots, and queries for the slots in a box.

A structure has no keys, revisions, objects or text. Its host (`index.hosted` in the store, the scheduler's matcher)
converts rows to points and comparisons to boxes, keeps the history, and tests what a box cannot express. So the same
structure serves both, and a custom one is a class with the methods of `Structure`:

    class MyIndex:
        structure = "mine"
        def __init__(self, dimensions: int) -> None: ...
        def put(self, slot: int, point: Point) -> None: ...
        def remove(self, slot: int) -> None: ...
        def find(self, box: Box, limit: int = 0) -> Found: ...
        def may_match(self, box: Box) -> bool: ...
        def size_bytes(self) -> int: ...

Slots are small non-negative ints, reused after `remove`. All structures give the same answers and differ only in
cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

MISSING = -(1 << 63)
"""The coordinate of a row without a value of that field. No constrained interval contains it."""
LOW, HIGH = MISSING + 1, (1 << 63) - 1
"""The least and the greatest possible value."""

Point = tuple[int, ...]
"""One int64 for each dimension, MISSING if there is no value."""


class Box(NamedTuple):
    """Closed intervals, one for each dimension: `lows[i] <= point[i] <= highs[i]`.

    An unconstrained dimension is MISSING..HIGH: it contains every coordinate, including MISSING. Any other interval
    begins at LOW or above. If some low is above its high, the box is empty."""

    lows: Point
    highs: Point

    def holds(self, point: Sequence[int]) -> bool:
        return all(low <= value <= high for low, value, high in zip(self.lows, point, self.highs))

    @property
    def empty(self) -> bool:
        return any(low > high for low, high in zip(self.lows, self.highs))


class Found(NamedTuple):
    """`slots`: distinct, in no order. `complete`: they are all matches. `examined`: how many points were compared with
    the box; a structure that compares summaries of many counts each as one. `shards` were opened, of which
    `false_positives` had no match, after `pruned` were skipped unopened."""

    slots: IntArray
    complete: bool
    examined: int
    shards: int = 0
    pruned: int = 0
    false_positives: int = 0


NO_SLOTS: IntArray = np.empty(0, dtype=np.int64)
NO_SLOTS.flags.writeable = False
NOTHING = Found(NO_SLOTS, True, 0)
"""The answer for an empty box."""


@runtime_checkable
class Structure(Protocol):
    """See the module. Built as `Structure(dimensions, **options)`, options being ints or texts with defaults."""

    structure: str
    """Its unique name."""

    def put(self, slot: int, point: Point) -> None:
        """The point in `slot` is now `point`."""

    def remove(self, slot: int) -> None:
        """`slot` is empty; no error if it was."""

    def find(self, box: Box, limit: int = 0) -> Found:
        """The slots whose points lie in `box`: all of them, or any `limit` of them if that is not 0 and fewer."""

    def may_match(self, box: Box) -> bool:
        """False only if no point is in `box`."""

    def size_bytes(self) -> int:
        """Approximate memory, without the data it was built from."""


@runtime_checkable
class Loading(Structure, Protocol):
    """A structure that is built faster from many points at once than one by one. Only ever called when empty."""

    def load(self, slots: IntArray, points: IntArray) -> None:
        """`points[i]`, with a column per dimension, is in `slots[i]`."""


@runtime_checkable
class Versioned(Structure, Protocol):
    """A structure whose earlier states are cheap to keep. For others the host finds past states from its log of
    changes."""

    def freeze(self) -> Any:
        """The current state; later changes do not alter it. O(1), or nearly."""

    def find_frozen(self, frozen: Any, box: Box, limit: int = 0) -> Found:
        """`find` on a state that `freeze` gave."""


@runtime_checkable
class Estimating(Structure, Protocol):
    """A structure that estimates the cost of a query, so that a planner need not run all of them."""

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """Estimated microseconds of `find` if `share` (0 to 1) of `rows` are in the box."""


def load(structure: Structure, slots: IntArray, points: IntArray) -> None:
    """Fills an empty structure, in bulk if it supports that."""
    if isinstance(structure, Loading):
        structure.load(slots, points)
        return
    for slot, point in zip(slots.tolist(), points.tolist()):
        structure.put(slot, tuple(point))
