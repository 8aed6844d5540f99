"""Where a sync runs: on the event loop, or in a separate thread. docs/adr/0002-fsync-inline-or-thread.md says why.

A sync in a thread leaves the loop free, but its completion waits for the interpreter lock, which a busy loop releases
only after the switch interval (5 ms by default), and then for the loop's next turn. On the loop it has no such
overhead. So syncs run on the loop while they are fast, and in the thread, with a shorter switch interval, once they are
slow."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Literal, Protocol

from minikube_py.env import Clock, ended

FsyncMode = Literal["auto", "inline", "thread"]
SLOW_SYNC_S = 0.002
"""Slower syncs on average move to the thread; when faster than half of it they move back."""
AVERAGE_WEIGHT = 0.1
SWITCH_INTERVAL_S = 0.0005

Done = Callable[[OSError | None], None]


class SyncRunner(Protocol):
    """Runs a member's syncs. See `FsyncRunner`; the simulator's syncs take virtual time."""

    histogram: Histogram

    def use(self, mode: FsyncMode) -> None: ...

    def run(self, sync: Callable[[], None], done: Done) -> None: ...

    async def wait(self, sync: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class FsyncRunner:
    """Runs one sync at a time per caller's promise, and counts them. `done` gets the error, None if there was none."""

    def __init__(self, clock: Clock, mode: FsyncMode = "auto") -> None:
        self._clock = clock
        self._mode = mode
        self.threaded = mode == "thread"
        """False: `run` calls `done` before it returns."""
        self._average_s = 0.0
        self._queue: SimpleQueue[tuple[Callable[[], None], Done] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._switch_interval_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.histogram = Histogram((0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0))

    def use(self, mode: FsyncMode) -> None:
        """Takes effect from the next sync on."""
        self._mode = mode
        self.threaded = mode == "thread" or (mode == "auto" and self._average_s > SLOW_SYNC_S)

    def run(self, sync: Callable[[], None], done: Done) -> None:
        """Calls `sync`, then `done` on the loop."""
        if self.threaded or getattr(sync, "syncs", 1) > 1:
            # One fast sync may block the loop; several in a row may not.
            self._start_thread()
            self._queue.put((sync, done))
            return
        self._finish(*self._timed(sync), done)

    async def wait(self, sync: Callable[[], None]) -> None:
        """Like `run`, but awaited; for files other than the log, possibly in parallel with it. A cancellation takes
        effect after the sync: its file may be closed then. Raises: OSError."""
        if not self.threaded:
            sync()
            return
        await to_its_end(asyncio.get_running_loop().run_in_executor(None, sync))

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
            sys.setswitchinterval(self._switch_interval_s)

    def _start_thread(self) -> None:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            thread = threading.Thread(target=self._serve, name="fsync", daemon=True)
            thread.start()
            self._thread = thread
            self._switch_interval_s = sys.getswitchinterval()
            sys.setswitchinterval(min(self._switch_interval_s, SWITCH_INTERVAL_S))

    def _serve(self) -> None:
        assert self._loop is not None
        while (job := self._queue.get()) is not None:
            sync, done = job
            try:
                duration_s, error = self._timed(sync)
            except Exception as raised:
                # A bug; if it ended this thread, writers would wait forever.
                duration_s, error = 0.0, OSError(f"{type(raised).__name__}: {raised}")
            self._loop.call_soon_threadsafe(self._finish, duration_s, error, done)

    def _timed(self, sync: Callable[[], None]) -> tuple[float, OSError | None]:
        start_s, error = self._clock.monotonic_s(), None
        try:
            sync()
        except OSError as raised:
            error = raised
        return self._clock.monotonic_s() - start_s, error

    def _finish(self, duration_s: float, error: OSError | None, done: Done) -> None:
        self._took(duration_s)
        done(error)

    def _took(self, duration_s: float) -> None:
        self.histogram.observe(duration_s)
        self._average_s += (duration_s - self._average_s) * AVERAGE_WEIGHT
        if self._mode == "auto":
            self.threaded = self._average_s > (SLOW_SYNC_S / 2 if self.threaded else SLOW_SYNC_S)


async def to_its_end(running: asyncio.Future[None]) -> None:
    """Waits for it; a cancellation takes effect when it has ended. Raises: its exception."""
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await ended(running)
        raise


class Histogram:
    """Cumulative counts by upper bound, as in Prometheus."""

    __slots__ = ("_bounds", "_counts", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.count += 1
        self.sum += value
        for position, bound in enumerate(self._bounds):
            if value <= bound:
                self._counts[position] += 1
                return

    def samples(self, name: str) -> dict[str, float]:
        """`name_bucket{le="..."}`, `name_sum`, `name_count`."""
        out: dict[str, float] = {}
        total = 0
        for bound, count in zip(self._bounds, self._counts, strict=True):
            total += count
            out[f'{name}_bucket{{le="{bound:g}"}}'] = total
        out[f'{name}_bucket{{le="+Inf"}}'] = self.count
        out[f"{name}_sum"] = self.sum
        out[f"{name}_count"] = self.count
        return out
