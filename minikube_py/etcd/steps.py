"""Work in slices, with the loop's other work between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar, cast

T = TypeVar("T")


async def in_steps(work: Generator[None, None, T], between: Callable[[], object] = int) -> T:
    """What it returns."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return cast(T, ended.value)
        between()
        await asyncio.sleep(0)
