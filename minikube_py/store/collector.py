"""Garbage collection for a process that keeps millions of objects for long.

Python's full collections walk every object at unpredictable times: over 100 ms each with a million objects, a fifth of
the time under write load. Here a full collection walks only objects new since the last one and then freezes them
(74,000 puts/s became 110,000). Frozen objects that become cyclic garbage would leak, so everything is walked once the
frozen set has grown by a quarter. That costs over a second with 100,000 nodes, and never happens in a process whose
objects are short-lived."""

from __future__ import annotations

import gc
from typing import ClassVar

THRESHOLDS = (5_000, 10, 1_000_000_000)
"""New objects before a young collection; young ones before a middle one; Python never runs a full one itself."""
MIDDLE_PER_FREEZE = 1
FREEZES_PER_FULL = 200
GROWTH_PER_FULL = 1.25


class Collector:
    """Takes over this process's full collections between `start` and `stop`. Call `step` regularly.

    Collections are per process, so of several collectors only the first does anything."""

    _owner: ClassVar[Collector | None] = None

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._freezes = self._frozen = 0

    def start(self) -> None:
        if Collector._owner is not None:
            return
        Collector._owner, self._before = self, gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        # Existing objects were just loaded or belong to the host: not worth a walk before serving.
        gc.freeze()
        self._freezes = self._frozen = 0

    def step(self) -> None:
        """Walks the new objects, if there are enough: some 10 ms per 100,000 objects."""
        if Collector._owner is not self or gc.get_count()[2] < MIDDLE_PER_FREEZE:
            return
        self._freezes += 1
        if self._freezes >= FREEZES_PER_FULL and self._has_grown():
            self._full()
        else:
            gc.collect()
            gc.freeze()

    def _has_grown(self) -> bool:
        """Counting takes 50 ms for a million objects, so do it rarely."""
        self._freezes, count = 0, gc.get_freeze_count()
        self._frozen = self._frozen if self._frozen >= 0 else count
        return count >= self._frozen * GROWTH_PER_FULL

    def keep(self, *, most: bool = False) -> None:
        """Objects just made are long-lived and not worth a walk now: with tens of thousands, the young collections
        would take longer than making them. `most`: growth is counted from here."""
        if Collector._owner is self:
            gc.freeze()
            self._frozen = -1 if most else self._frozen

    def stop(self) -> None:
        if Collector._owner is self:
            Collector._owner = None
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def _full(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._frozen = gc.get_freeze_count()
