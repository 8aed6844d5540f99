"""Many deadlines, one sleeping task: shared by delaying queues, heartbeats and start delays.

A task per deadline costs about 1.5 KB and a scheduler entry; a heap entry costs 100 bytes."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from minikube_py.env import Clock

logger = logging.getLogger(__name__)

ROUNDING_S: Final = 1e-6


def has_passed(duration_s: float, since_s: float, now_s: float) -> bool:
    """For loops that poll. A duration that is a multiple of the period has passed after that many rounds, as upstream,
    whose rounds take time: in virtual time they take none, and the times are rounded."""
    return now_s - since_s > duration_s - ROUNDING_S


class Timer:
    """A deadline that can be cancelled. `when_s` is on the clock's monotonic scale."""

    __slots__ = ("_callback", "_sequence", "when_s")

    def __init__(self, when_s: float, sequence: int, callback: Callable[[], None]) -> None:
        self.when_s = when_s
        self._sequence = sequence
        self._callback: Callable[[], None] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return (self.when_s, self._sequence) < (other.when_s, other._sequence)

    @property
    def cancelled(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        """Idempotent; the callback is dropped at once, the heap entry when its time comes."""
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Timers:
    """Calls back at deadlines, in order of time, ties in order of arrival. Callbacks must neither block nor raise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Timer] = []
        self._sequence = 0
        self._task: asyncio.Task[None] | None = None
        self._wakes_at_s = float("inf")
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self._clock.monotonic_s() + max(0.0, delay_s), callback)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        self._sequence += 1
        timer = Timer(when_s, self._sequence, callback)
        if self._closed:
            timer.cancel()
            return timer
        heapq.heappush(self._heap, timer)
        if when_s < self._wakes_at_s:
            self._restart()
        return timer

    async def close(self) -> None:
        """Drops all deadlines; later ones are dropped too."""
        self._closed = True
        self._heap.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _restart(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._wakes_at_s = self._heap[0].when_s
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._heap:
            self._wakes_at_s = self._heap[0].when_s
            delay_s = self._wakes_at_s - self._clock.monotonic_s()
            if delay_s > 0:
                await self._clock.sleep(delay_s)
            # While callbacks run, none of them may restart (and so cancel) this task.
            self._wakes_at_s = float("-inf")
            self._fire_due()
        self._wakes_at_s = float("inf")
        self._task = None

    def _fire_due(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0].when_s <= now_s:
            try:
                heapq.heappop(self._heap).fire()
            except Exception:
                logger.exception("a timer's callback failed")
