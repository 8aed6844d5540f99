"""What a structure for matching is: points in slots, and which of the slots lie in a box.

A structure knows no keys, revisions, objects or text. Whoever hosts it (`index.hosted` in the store, the scheduler's
matcher) turns rows into points and comparisons into boxes, keeps the past, and tests what a box cannot say. So the
same structure serves both, and one of your own is a class with the methods of `Structure`:

    class MyIndex:
        structure = "mine"
        def __init__(self, dimensions: int) -> None: ...
        def put(self, slot: int, point: Point) -> None: ...
        def remove(self, slot: int) -> None: ...
        def find(self, box: Box, limit: int = 0) -> Found: ...
        def may_match(self, box: Box) -> bool: ...
        def size_bytes(self) -> int: ...

Slots are small non-negative ints, reused after `remove`. All structures give the same answers, and differ in cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

MISSING = -(1 << 63)
"""The coordinate of a row that has no value of that field. No interval that is asked about holds it."""
LOW, HIGH = MISSING + 1, (1 << 63) - 1
"""The least and the greatest value there can be."""

Point = tuple[int, ...]
"""One int64 for each dimension, MISSING where there is none."""


class Box(NamedTuple):
    """Closed intervals, one for each dimension: `lows[i] <= point[i] <= highs[i]`.

    A dimension that is not asked about is MISSING..HIGH: it holds every coordinate, MISSING too. Any other interval
    begins at LOW or above. Where some low is above its high, nothing lies in the box."""

    lows: Point
    highs: Point

    def holds(self, point: Sequence[int]) -> bool:
        return all(low <= value <= high for low, value, high in zip(self.lows, point, self.highs))

    @property
    def empty(self) -> bool:
        return any(low > high for low, high in zip(self.lows, self.highs))


class Found(NamedTuple):
    """`slots`: distinct, in no order. `complete`: they are all there are. `examined`: how many points were compared
    with the box; a structure that compares summaries of many counts each as one. `shards` were opened, of which
    `false_positives` held nothing, after `pruned` had been passed over unopened."""

    slots: IntArray
    complete: bool
    examined: int
    shards: int = 0
    pruned: int = 0
    false_positives: int = 0


NO_SLOTS: IntArray = np.empty(0, dtype=np.int64)
NO_SLOTS.flags.writeable = False
NOTHING = Found(NO_SLOTS, True, 0)
"""The answer to a box in which nothing can lie."""


@runtime_checkable
class Structure(Protocol):
    """See the module. Built as `Structure(dimensions, **options)`, options being ints or texts with defaults."""

    structure: str
    """Its name among the others."""

    def put(self, slot: int, point: Point) -> None:
        """The point in `slot` is now `point`, whatever it was."""

    def remove(self, slot: int) -> None:
        """`slot` is empty; no error if it was."""

    def find(self, box: Box, limit: int = 0) -> Found:
        """The slots whose points lie in `box`: all of them, or any `limit` of them if that is not 0 and fewer."""

    def may_match(self, box: Box) -> bool:
        """False only if no point lies in `box`."""

    def size_bytes(self) -> int:
        """About how much memory it takes, without what it was built from."""


@runtime_checkable
class Loading(Structure, Protocol):
    """A structure that is built faster from many points at once than one by one. Only ever called when empty."""

    def load(self, slots: IntArray, points: IntArray) -> None:
        """`points[i]`, of as many columns as dimensions, stands in `slots[i]`."""


@runtime_checkable
class Versioned(Structure, Protocol):
    """A structure whose earlier states cost little to keep. Any other's past is found by its host, from the log of
    what each change replaced."""

    def freeze(self) -> Any:
        """The state as it stands; later changes do not alter it. O(1), or nearly."""

    def find_frozen(self, frozen: Any, box: Box, limit: int = 0) -> Found:
        """`find` on a state that `freeze` gave."""


@runtime_checkable
class Estimating(Structure, Protocol):
    """A structure that says what a question would cost, so that a planner need not ask all of them."""

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """About how many microseconds `find` takes where `share` (0 to 1) of `rows` lie in the box."""


def load(structure: Structure, slots: IntArray, points: IntArray) -> None:
    """Fills an empty structure, in one go where it can."""
    if isinstance(structure, Loading):
        structure.load(slots, points)
        return
    for slot, point in zip(slots.tolist(), points.tolist()):
        structure.put(slot, tuple(point))
