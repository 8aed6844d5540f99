"""Delays of faults, which end when all is well."""

from __future__ import annotations

import asyncio


class Delays:
    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], None] = {}

    async def wait(self, seconds: float) -> bool:
        """As the clock's sleep; False if `end` ended it early."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()
        alarm = loop.call_later(seconds, _settle, over, True)
        self._waiting[over] = None
        try:
            return await over
        finally:
            alarm.cancel()
            del self._waiting[over]

    def end(self) -> None:
        for each in self._waiting:
            _settle(each, False)


def _settle(over: asyncio.Future[bool], whole: bool) -> None:
    if not over.done():
        over.set_result(whole)
