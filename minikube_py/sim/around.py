"""Sets process-wide state of Python as simulated code needs it, and restores it afterwards."""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio import events
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any


def simulated(loop: object) -> bool:
    return hasattr(loop, "next_number")


@contextmanager
def around() -> Iterator[None]:
    """Another event loop running here, such as a notebook's, waits meanwhile."""
    outside = events._get_running_loop()
    if simulated(outside):
        raise RuntimeError("a simulation cannot run inside another one")
    task = outside and asyncio.current_task(outside)
    if outside and task:
        asyncio.tasks._leave_task(outside, task)
    hooks = sys.get_asyncgen_hooks()
    collecting = gc.isenabled()
    # Automatic collections would happen at other moments in another process, and with them the end of lost tasks.
    gc.disable()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=_end_generator)
    try:
        yield
    finally:
        events._set_running_loop(outside)
        if outside and task:
            asyncio.tasks._enter_task(outside, task)
        sys.set_asyncgen_hooks(*hooks)
        if collecting:
            gc.enable()


def _end_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """An async generator that is no longer referenced is closed on the loop that dropped it, as in asyncio."""
    loop = events._get_running_loop()
    if loop is not None and simulated(loop) and not loop.is_closed():
        loop.create_task(_close_generator(generator))


async def _close_generator(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()
