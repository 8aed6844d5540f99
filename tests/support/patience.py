"""How long a test in real time waits before it considers something hung.

No test measures time: a deadline only prevents waiting forever, so it is generous. On a machine so slow that even this
is too short, set MINIKUBE_PY_TEST_PATIENCE to 4, say."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

FACTOR = float(os.environ.get("MINIKUBE_PY_TEST_PATIENCE", "1"))
PATIENCE_S = 60.0 * FACTOR
PAUSE_S = 0.005
PAUSE_MAX_S = 0.05


def next_pause_s(waited_s: float, least_s: float = PAUSE_S) -> float:
    """Until the next question, in real time: a twentieth of the wait so far. Asked every few milliseconds, what is
    waited for has less of the machine; and so has every other test."""
    return min(max(least_s, waited_s / 20), max(least_s, PAUSE_MAX_S))


class Deadline:
    """For polling loops: `check` raises once it has taken too long."""

    def __init__(self, within_s: float = 0.0) -> None:
        self._within_s = max(within_s, PATIENCE_S)
        self._ends_s = time.monotonic() + self._within_s

    def check(self, what: str | Callable[[], str]) -> None:
        assert time.monotonic() < self._ends_s, f"not within {self._within_s:g} s: {what() if callable(what) else what}"


def patience() -> asyncio.Timeout:
    """`async with patience():` ends a hung block."""
    return asyncio.timeout(PATIENCE_S)


async def until(
    condition: Callable[[], Any | Awaitable[Any]], what: str | Callable[[], str] = "", within_s: float = 0.0
) -> Any:
    """The result of `condition`, once it is true; polled. `what`: for the failure's text. `within_s`: if the default is
    too short."""
    loop = asyncio.get_running_loop()
    within_s = max(within_s, PATIENCE_S)
    began_s = loop.time()
    virtual = not isinstance(loop, asyncio.BaseEventLoop)
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if (waited_s := loop.time() - began_s) >= within_s:
            raise AssertionError(f"not within {within_s:g} s: {what() if callable(what) else what or condition}")
        await asyncio.sleep(PAUSE_S if virtual else next_pause_s(waited_s))


def eventually(
    condition: Callable[[], Any], what: str | Callable[[], str], within_s: float = 0.0, pause_s: float = 0.02
) -> Any:
    """As `until`, for plain code and expensive conditions: the first pause is `pause_s`."""
    deadline, began_s = Deadline(within_s), time.monotonic()
    while not (found := condition()):
        deadline.check(what)
        time.sleep(next_pause_s(time.monotonic() - began_s, pause_s))
    return found
