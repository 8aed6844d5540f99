"""Heartbeats of all nodes from one loop: each tick renews those that are due.

A circular queue: each tick takes nodes from the front, so that a round lasts one interval, and appends them at the end.
So the load is even. New nodes do not wait for a round (minutes for very many nodes): their first heartbeat is within
`soon_s`. Source: KEP-589.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from minikube_py.env import Clock, ended
from minikube_py.errors import MinikubeError

logger = logging.getLogger(__name__)

T = TypeVar("T")

TICKS_PER_INTERVAL = 40
TICK_MAX_S = 1.0
AT_ONCE_MIN = 32
BATCHES_MAX = 8
"""With a slow server more heartbeats are due per tick; they are sent in larger batches, not more, as each batch waits
for its responses."""


class Place(NamedTuple):
    """A node's place in the queue, by the number of its `add`."""

    name: str
    number: int


class Round:
    """Calls `beat(names)` with each node's name once an interval, evenly. `interval_s()` is asked at each tick."""

    def __init__(
        self,
        clock: Clock,
        interval_s: Callable[[], float],
        beat: Callable[[Sequence[str]], Awaitable[None]],
        soon_s: float = 10.0,
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._beat = beat
        self._soon_s = soon_s
        self._soon: deque[Place] = deque()
        self._soon_rate_per_s = self._soon_credit = 0.0
        self._order: deque[Place] = deque()
        self._members: dict[str, int] = {}
        self._added = 0
        self._credit = 0.0
        self._task: asyncio.Task[None] | None = None
        self.late_s = 0.0
        """The last tick's lag."""

    def __len__(self) -> int:
        return len(self._members)

    def add(self, name: str, soon: bool = False) -> None:
        if name not in self._members:
            # Numbered to distinguish it from an entry before a `discard`.
            self._added += 1
            self._members[name] = self._added
            (self._soon if soon else self._order).append(Place(name, self._added))

    def discard(self, name: str) -> None:
        """Its queue entry is dropped at its turn."""
        self._members.pop(name, None)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)

    def due(self, elapsed_s: float) -> list[str]:
        """The nodes whose turn comes within the next `elapsed_s`."""
        self._credit += len(self._members) * elapsed_s / self._interval_s()
        count = min(int(self._credit), len(self._members))
        self._credit = min(self._credit - count, float(len(self._members)))
        first = self._first_turns(elapsed_s)
        names: list[str] = []
        while len(names) < count and self._order:
            place = self._order.popleft()
            if self._stands(place):
                names.append(place.name)
                self._order.append(place)
        self._order.extend(first)
        return [place.name for place in first] + names

    def _stands(self, place: Place) -> bool:
        return self._members.get(place.name) == place.number

    def _first_turns(self, elapsed_s: float) -> list[Place]:
        soon = self._soon
        if not soon:
            self._soon_rate_per_s = self._soon_credit = 0.0
            return []
        # At the rate of the longest queue since it was last empty, the last of it is through in time.
        self._soon_rate_per_s = max(self._soon_rate_per_s, len(soon) / self._soon_s)
        self._soon_credit += self._soon_rate_per_s * elapsed_s
        count = min(int(self._soon_credit), len(soon))
        self._soon_credit -= count
        places = [soon.popleft() for _ in range(count)]
        return [place for place in places if self._stands(place)]

    async def _run(self) -> None:
        last_s = self._clock.monotonic_s()
        while True:
            tick_s = min(TICK_MAX_S, self._interval_s() / TICKS_PER_INTERVAL)
            await self._clock.sleep(tick_s)
            now_s = self._clock.monotonic_s()
            self.late_s = max(0.0, now_s - last_s - tick_s)
            names = self.due(now_s - last_s)
            last_s = now_s
            if not names:
                continue
            try:
                await self._beat(names)
            except MinikubeError as error:
                logger.warning("heartbeat: %s", error or type(error).__name__)


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """What is sent at once, to share the store's group commits."""
    at_once = max(AT_ONCE_MIN, -(-len(items) // BATCHES_MAX))
    for first in range(0, len(items), at_once):
        yield items[first : first + at_once]
