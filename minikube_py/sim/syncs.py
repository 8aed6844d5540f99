"""Syncs that take virtual time, in place of a real member's thread.

A sync covers data written before it began. It is done when its time is over; a crash before that keeps a random part of
it, as of all data that is not synced.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from minikube_py.env import Rng
from minikube_py.sim.disk import SimDisk
from minikube_py.sim.loop import SimLoop
from minikube_py.store.fsync import Done, FsyncMode, Histogram, to_its_end


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """A sync takes `sync_s` plus an exponential share of mean `jitter_s`; one in `stall_every` (0: none) up to
    `stall_s` more."""

    sync_s: float = 0.0002
    jitter_s: float = 0.0001
    stall_every: int = 0
    stall_s: float = 0.0

    def draw_s(self, rng: Rng) -> float:
        duration_s = self.sync_s - self.jitter_s * math.log(1.0 - rng.random())
        if self.stall_every and rng.random() * self.stall_every < 1:
            duration_s += rng.random() * self.stall_s
        return duration_s


class SimSyncs:
    """The `SyncRunner` of a simulated process. `times` is called at each sync: a disk may become slow."""

    def __init__(self, loop: SimLoop, disk: SimDisk, rng: Rng, times: Callable[[], SyncTimes]) -> None:
        self._loop = loop
        self._disk = disk
        self._rng = rng
        self._times = times
        self._amid: Callable[[], None] | None = None
        self.histogram = Histogram((0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0))

    def use(self, mode: FsyncMode) -> None:
        """All run as in a thread."""

    def in_the_next(self, call: Callable[[], None] | None) -> None:
        """Calls it once during the next sync. None: cancels it."""
        self._amid = call

    def run(self, sync: Callable[[], None], done: Done) -> None:
        """Calls `sync`, then `done`, once it has taken its time."""
        duration_s = self._duration_s()
        self.histogram.observe(duration_s)
        self._loop.call_later(duration_s, self._end, self._disk.sequence, sync, done)

    async def wait(self, sync: Callable[[], None]) -> None:
        """As `run`, awaited; it ends with the sync even if cancelled. Raises: OSError."""

        async def run(horizon: int, duration_s: float) -> None:
            await asyncio.sleep(duration_s)
            self._disk.sync_as_of(horizon, sync)

        await to_its_end(self._loop.create_task(run(self._disk.sequence, self._duration_s())))

    def close(self) -> None:
        """There are no threads to end."""

    def _duration_s(self) -> float:
        duration_s = self._times().draw_s(self._rng)
        if self._amid is not None:
            amid, self._amid = self._amid, None
            # By true time and from outside, so that the process does not run its next step first.
            self._loop.scheduler.after(duration_s * self._rng.random(), _call, amid)
        return duration_s

    def _end(self, horizon: int, sync: Callable[[], None], done: Done) -> None:
        error: OSError | None = None
        try:
            self._disk.sync_as_of(horizon, sync)
        except OSError as raised:
            error = raised
        done(error)


def _call(call: Callable[[], None]) -> None:
    call()
