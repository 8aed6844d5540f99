"""Virtual time for tests: a loop that jumps to the next timer instead of waiting for it, and its clock.

All asynchronous tests below `tests/unit` run on such a loop (`tests/conftest.py`), so the machine's speed and load do
not matter. An awaited event happens, or the loop raises Deadlock because it never will."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from minikube_py.sim.loop import LoopOptions, Scheduler, SimLoop
from minikube_py.sim.network import Network
from minikube_py.store.fsync import Done, FsyncMode, Histogram

T = TypeVar("T")
WALL_S = 1_800_000_000.0
"""The date at which tests begin, as Unix time: later than any they record."""
OPTIONS = LoopOptions(turn_s=0.00002)
"""A turn of the loop takes a little time, so that busy tasks do not delay timers forever."""


class VirtualLoop(SimLoop):
    """A loop of one test: the interface `asyncio.Runner` needs, on simulated time and a simulated network."""

    def __init__(self, seed: object = 0, options: LoopOptions = OPTIONS) -> None:
        scheduler = Scheduler(seed, options)
        super().__init__(scheduler, sockets=Network(scheduler))

    def run_until_complete(self, future: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        self.scheduler.run(task.done)
        return task.result()

    def set_debug(self, enabled: bool) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        """Abandoned generators end when they are collected."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    def close(self) -> None:
        if not self.dead:
            # Without the collection of `finish`, which would cost more than most tests do.
            self.kill()
            self.scheduler._reap()
            if self.scheduler._failure is not None:
                raise self.scheduler._failure


class LoopClock:
    """The `Clock` of the running loop: its time advances with that loop's timers, virtual or not. On a virtual loop
    each reading costs `reading_s`."""

    def __init__(self, reading_s: float = 0.0) -> None:
        self._reading_s = reading_s

    def monotonic_s(self) -> float:
        loop = asyncio.get_running_loop()
        if self._reading_s and isinstance(loop, SimLoop):
            loop.charge(self._reading_s)
        return loop.time()

    def wall_s(self) -> float:
        return WALL_S + asyncio.get_running_loop().time()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)


class LoopSyncs:
    """A `SyncRunner` on the running loop: a sync completes after `sync_s` of its time; `inline`: before `run` returns.
    `running`: one is in progress; `held`: how many a closed gate delays."""

    def __init__(self, sync_s: float = 0.0005, *, inline: bool = False) -> None:
        self.sync_s = sync_s
        self.inline = inline
        self.running = False
        self.held = 0
        self.mode: FsyncMode = "auto"
        self.histogram = Histogram((0.001, 0.01, 0.1, 1.0))
        self._gate = asyncio.Event()
        self._gate.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def use(self, mode: FsyncMode) -> None:
        """All run as in a thread, whatever is requested."""
        self.mode = mode

    def run(self, sync: Callable[[], None], done: Done) -> None:
        self.histogram.observe(self.sync_s)
        if self.inline:
            self._charge()
            self._end(sync, done)
        else:
            task = asyncio.ensure_future(self._later(partial(self._end, sync, done)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def wait(self, sync: Callable[[], None]) -> None:
        """Continues even if cancelled, as a thread does. Raises: OSError."""
        if self.inline:
            self._charge()
            self._sync(sync)
            return
        ended = asyncio.ensure_future(self._later(partial(self._sync, sync)))
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            while not ended.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((ended,))
            ended.result()
            raise

    def close_gate(self) -> None:
        """No sync completes."""
        self._gate.clear()

    def open_gate(self) -> None:
        self._gate.set()

    def close(self) -> None:
        """There are no threads to end."""

    def _charge(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop):
            loop.charge(self.sync_s)

    async def _later(self, call: Callable[[], None]) -> None:
        await asyncio.sleep(self.sync_s)
        if not self._gate.is_set():
            self.held += 1
            await self._gate.wait()
            self.held -= 1
        call()

    def _sync(self, sync: Callable[[], None]) -> None:
        self.running = True
        try:
            sync()
        finally:
            self.running = False

    def _end(self, sync: Callable[[], None], done: Done) -> None:
        error: OSError | None = None
        try:
            self._sync(sync)
        except OSError as raised:
            error = raised
        done(error)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]], seed: object = 0) -> T:
    """As `asyncio.run(main())`, for tests that are plain functions, such as those of hypothesis."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(main())
