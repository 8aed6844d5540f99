"""Clocks of simulated processes: each machine's clock has its own rate and wall-clock offset."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikube_py.sim.loop import SimLoop

EPOCH_S = 1_700_000_000.0


class MachineClock:
    """Outlives the processes of a machine. `rate`: its seconds per true second; `wall_offset_s`: the error of its wall
    clock, which `jump` changes at once."""

    def __init__(self, rate: float = 1.0, wall_offset_s: float = 0.0) -> None:
        self.rate = rate
        self.wall_offset_s = wall_offset_s

    def jump(self, by_s: float) -> None:
        """The wall clock is set (NTP, an administrator). The monotonic clock is unaffected."""
        self.wall_offset_s += by_s

    def wall_s(self, true_s: float) -> float:
        return EPOCH_S + true_s * self.rate + self.wall_offset_s


class SimClock:
    """A process's `Clock`. `monotonic_s` is its loop's time and never goes back; each reading costs `reading_s`, so
    that work bounded by the clock reaches its bound within one turn."""

    def __init__(self, loop: SimLoop, machine: MachineClock, reading_s: float = 0.0) -> None:
        self._loop = loop
        self._machine = machine
        self._reading_s = reading_s

    def monotonic_s(self) -> float:
        if self._reading_s:
            self._loop.charge(self._reading_s)
        return self._loop.time()

    def wall_s(self) -> float:
        return self._machine.wall_s(self._loop.scheduler.now_s)

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)
