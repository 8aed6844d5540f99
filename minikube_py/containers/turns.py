"""Whose slice of work is next: one in each turn of the loop, however many sessions work at once."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary


class Turns:
    """First come, first served. After `asyncio.sleep(0)`, all of them would work in each turn of the loop, and others
    would wait for the sum."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def next(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append(waiter)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._give)
        await waiter

    def _give(self) -> None:
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        self._scheduled = bool(self._waiting)
        if self._waiting:
            self._waiting.popleft().set_result(None)
            # After the slice, which may ask for another turn at its end.
            asyncio.get_running_loop().call_soon(self._give)


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()


async def turn() -> None:
    """Returns when the caller may do a slice of its work."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns()
    await turns.next()
