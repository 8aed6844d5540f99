"""Counts the cost of a turn of the loop, or of a call: lines of Python run, and bytes of JSON read and written in C."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import orjson

from minikube_py.apiserver.work import WorkHere
from minikube_py.sim.loop import SimLoop

LINES_MAX = 300_000
"""Some 10 ms of CPU without tracing."""


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Python are run."""
    count = 0

    def each(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return each

    before = sys.gettrace()
    # A collection in between would run the finalizers of what other tests left behind, and count them as this work's.
    gc.collect()
    gc.disable()
    sys.settrace(each)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


class Turns:
    """The maximum of each in one turn. The work of `Elsewhere` does not count."""

    def __init__(self) -> None:
        self.most = 0
        self.most_bytes = 0
        self._count = 0
        self._bytes = 0

    def _each(self, frame: FrameType, event: str, _: object) -> Any:
        self._count += event == "line"
        return self._each

    async def of(self, work: Awaitable[Any]) -> Any:
        loop, run = asyncio.get_running_loop(), SimLoop._turn
        assert isinstance(loop, SimLoop) and loop.after_step is None
        loads, dumps = orjson.loads, orjson.dumps

        def counted(of: SimLoop) -> None:
            before = sys.gettrace()
            self._count = self._bytes = 0
            sys.settrace(self._each)
            try:
                run(of)
            finally:
                sys.settrace(before)

        def stepped() -> None:
            """A callback, which cannot be interrupted, has ended."""
            self.most = max(self.most, self._count)
            self.most_bytes = max(self.most_bytes, self._bytes)
            self._count = self._bytes = 0

        def loaded(text: Any) -> Any:
            self._bytes += len(text)
            return loads(text)

        def dumped(*given: Any, **more: Any) -> bytes:
            text = dumps(*given, **more)
            self._bytes += len(text)
            return text

        SimLoop._turn = counted  # type: ignore[method-assign]
        loop.after_step = stepped
        orjson.loads, orjson.dumps = loaded, dumped
        try:
            await asyncio.sleep(0)
            result = await work
            # A turn that counts nothing would let everything pass.
            await asyncio.sleep(0)
            assert self.most
            return result
        finally:
            SimLoop._turn = run  # type: ignore[method-assign]
            loop.after_step = None
            orjson.loads, orjson.dumps = loads, dumps

    def uncounted(self, work: Any) -> Any:
        """Work of another process."""
        before, count, size = sys.gettrace(), self._count, self._bytes
        sys.settrace(None)
        try:
            return work()
        finally:
            self._count, self._bytes = count, size
            sys.settrace(before)


class Elsewhere(WorkHere):
    """Replaces worker processes: its jobs are not counted."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns
        self.jobs = 0

    async def run(self, job: str, *given: Any) -> Any:
        self.jobs += 1
        return self.turns.uncounted(lambda: self.now(job, *given))
