"""One script on two servers, step by step: a step has come to rest once both say the same and change no more.

A server that is slow on a busy machine looks at rest before it is. Who waits until both agree learns the difference
between slow and different: what never agrees ends with patience, and then both answers stand for the comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from patience import PATIENCE_S

ASKED_EVERY_S = ACTS_EVERY_S = 0.05
"""Both servers share the machine with who asks: asked without a pause, they have less time for what is waited for."""
RESTS_S = 1.5
"""As long as nothing changes: longer than controllers put off the syncs of what is busy."""


class Side:
    """One of the two servers."""

    def __init__(self, agreed: dict[int, Any]) -> None:
        self._agreed = agreed
        self._other = self
        self._step = 0
        self._since_s = 0.0
        self._said: Any = None

    @staticmethod
    def both() -> tuple[Side, Side]:
        agreed: dict[int, Any] = {}
        one, two = Side(agreed), Side(agreed)
        one._other, two._other = two, one
        return one, two

    async def settle(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What is said at rest: the same on both sides, or, once patience ends, what this side says."""
        self._step, self._said = self._step + 1, None
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + PATIENCE_S
        while self._step not in self._agreed and loop.time() < ends_s:
            now = await ask()
            if now != self._said:
                self._said, self._since_s = now, loop.time()
            other = self._other
            rests = loop.time() - max(self._since_s, other._since_s) >= RESTS_S
            if rests and other._step == self._step and other._said == now:
                self._agreed[self._step] = now
            await asyncio.sleep(ASKED_EVERY_S)
        return self._agreed.get(self._step, self._said)


SIDE: ContextVar[Side] = ContextVar("SIDE")


async def in_lockstep(one: Callable[[], Awaitable[Any]], two: Callable[[], Awaitable[Any]]) -> tuple[Any, Any]:
    """What both give, run side by side; within each, `SIDE.get().settle` waits for the other."""

    async def run(side: Side, script: Callable[[], Awaitable[Any]]) -> Any:
        SIDE.set(side)
        return await script()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(side, script)) for side, script in zip(Side.both(), (one, two), strict=True)]
    return tasks[0].result(), tasks[1].result()
