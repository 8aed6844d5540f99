"""Whose slice of work is next, however many sessions work at once: slices of STEPS_AT_ONCE together in each turn of the
loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

STEPS_AT_ONCE: Final = 2_000
"""Between two turns of the loop, of all sessions together."""


class Turns:
    """First come, first served. After `asyncio.sleep(0)`, all of them would work in each turn of the loop, and others
    would wait for the sum."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._scheduled = False
        self.number = 0
        """Of the turn: what was granted in an earlier one has lapsed."""

    async def next(self, steps: int) -> None:
        """Returns when so many steps may be taken, at once."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append((waiter, steps))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._give)
        await waiter

    def _give(self) -> None:
        self.number += 1
        left = STEPS_AT_ONCE
        while self._waiting and (left >= self._waiting[0][1] or left == STEPS_AT_ONCE):
            waiter, steps = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                left -= steps
        self._scheduled = left < STEPS_AT_ONCE
        if self._scheduled:
            # After these slices, whose ends may ask for another one.
            asyncio.get_running_loop().call_soon(self._give)


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()


def turns() -> Turns:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _TURNS.get(loop)
    if found is None:
        found = _TURNS[loop] = Turns()
    return found
