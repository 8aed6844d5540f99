"""Sets process-wide state of Python as simulated code needs it, and restores it afterwards."""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

from minikube_py.sim.replaced import COLLECTING


def simulated(loop: object) -> bool:
    return hasattr(loop, "next_number")


@contextmanager
def around(dropped: Dropped) -> Iterator[None]:
    """Another event loop running here, such as a notebook's, waits meanwhile."""
    outside = events._get_running_loop()
    if simulated(outside):
        raise RuntimeError("a simulation cannot run inside another one")
    task = outside and asyncio.current_task(outside)
    if outside and task:
        asyncio.tasks._leave_task(outside, task)
    hooks = sys.get_asyncgen_hooks()
    COLLECTING.hold()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=dropped.found)
    try:
        yield
    finally:
        events._set_running_loop(outside)
        if outside and task:
            asyncio.tasks._enter_task(outside, task)
        sys.set_asyncgen_hooks(*hooks)
        COLLECTING.release()


class Dropped:
    """Async generators that are no longer referenced: each is closed on the loop that dropped it, as in asyncio. Those
    that a collection of another thread has found, or one between two runs, wait for the simulation's own. `over`: it
    has ended."""

    def __init__(self) -> None:
        self.over = False
        self._kept: list[AsyncGenerator[Any, Any]] = []

    def found(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop: Any = events._get_running_loop()
        if self.over:
            return
        if not simulated(loop) or loop.scheduler.dropped is not self:
            self._kept.append(generator)
        elif not loop.is_closed():
            loop.create_task(_close_generator(generator))

    def close(self) -> None:
        """On the running loop, after a collection."""
        kept, self._kept = self._kept, []
        for each in kept:
            self.found(each)


async def _close_generator(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()
