"""A manual clock, for code that only waits through it."""

from __future__ import annotations

import asyncio
import heapq

from virtual_time import VirtualLoop

EPOCH_S = 1_700_000_000.0
TURNS_MAX = 200_000


class StepClock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._sequence = 0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return EPOCH_S + self.now_s

    async def sleep(self, duration_s: float) -> None:
        if duration_s <= 0:
            await asyncio.sleep(0)
            return
        self._sequence += 1
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + duration_s, self._sequence, future))
        await future

    async def advance(self, duration_s: float) -> None:
        """Advances, waking sleepers in order, and lets the consequences of each settle."""
        target_s = self.now_s + duration_s
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target_s:
            when_s, _, future = heapq.heappop(self._sleepers)
            self.now_s = max(self.now_s, when_s)
            if not future.done():
                future.set_result(None)
                await settle()
        self.now_s = target_s
        await settle()


async def settle() -> None:
    """Returns when no task is ready to run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "only a virtual loop knows that it is at rest"
    for _ in range(TURNS_MAX):
        before = loop.scheduler.steps
        await asyncio.sleep(0)
        if loop.scheduler.steps == before + 1:
            # Only this task was ready since the last check.
            return
    raise AssertionError("the loop never comes to rest")
