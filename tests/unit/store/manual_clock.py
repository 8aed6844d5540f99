"""A clock that moves only when told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.now_s

    async def sleep(self, duration_s: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + duration_s, next(self._order), future))
        await future

    async def advance(self, duration_s: float) -> None:
        """Lets `duration_s` pass; who wakes meanwhile runs at its time."""
        end_s = self.now_s + duration_s
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            self.now_s, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await self._settle()
        self.now_s = end_s

    async def _settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)
