"""Heartbeats of all nodes from one loop: a tick renews those whose turn it is.

A queue goes round: each tick takes nodes from its front, as many as make one round last one interval, and puts them
back at its end. So the load is even, and a new node has its turn within one interval. Source: KEP-589.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from minikube_py.env import Clock
from minikube_py.errors import MinikubeError

logger = logging.getLogger(__name__)

TICKS_PER_INTERVAL = 40
TICK_MAX_S = 1.0


def micro_timestamp(wall_s: float) -> str:
    """metav1.MicroTime."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Round:
    """Calls `beat(names)` with each node's name once an interval, evenly. `interval_s()` is asked at each tick."""

    def __init__(
        self, clock: Clock, interval_s: Callable[[], float], beat: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._beat = beat
        self._order: deque[str] = deque()
        self._members: set[str] = set()
        self._credit = 0.0
        self._task: asyncio.Task[None] | None = None
        self.late_s = 0.0
        """How far the last tick was behind."""

    def __len__(self) -> int:
        return len(self._members)

    def add(self, name: str) -> None:
        if name not in self._members:
            self._members.add(name)
            self._order.append(name)

    def discard(self, name: str) -> None:
        """Its place in the queue goes when its turn comes."""
        self._members.discard(name)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def due(self, elapsed_s: float) -> list[str]:
        """The nodes whose turn comes within the next `elapsed_s`."""
        self._credit += len(self._members) * elapsed_s / self._interval_s()
        count = min(int(self._credit), len(self._members))
        self._credit = min(self._credit - count, float(len(self._members)))
        names: list[str] = []
        while len(names) < count and self._order:
            name = self._order.popleft()
            if name in self._members:
                names.append(name)
                self._order.append(name)
        return names

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


async def in_batches(calls: Sequence[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """All calls, `at_once` together: they share the store's group commits."""
    for first in range(0, len(calls), at_once):
        await asyncio.gather(*(call() for call in calls[first : first + at_once]))
