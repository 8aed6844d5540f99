"""The monotonic clock of a simulated process: it starts anywhere, runs at a rate, and advances within a turn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikube_py.sim.loop import Scheduler

NS_PER_S = 1_000_000_000


class LocalTime:
    scheduler: Scheduler
    _rate_changed = False
    _cost_ns = 0

    def _base_on(self, now_s: float, rate: float) -> None:
        self._base_s, self._base_ns, self._rate = now_s, self.scheduler.now_ns + self._cost_ns, rate

    def time(self) -> float:
        """This process's monotonic clock, in seconds."""
        return self._base_s + (self.scheduler.now_ns + self._cost_ns - self._base_ns) * self._rate / NS_PER_S

    def set_rate(self, rate: float) -> None:
        """From now on this clock runs at `rate` times the true rate. Timers already set keep their local time."""
        self._base_on(self.time(), rate)
        self._rate_changed = True

    def charge(self, duration_s: float) -> None:
        """Adds to the duration of the current turn: this process's time advances at once, its next turn is later."""
        self._cost_ns += int(duration_s * NS_PER_S)

    def _true_ns(self, when_s: float) -> int:
        """The first moment at which `time()` is at least `when_s`."""
        if not math.isfinite(when_s):
            raise ValueError(f"a timer at {when_s} never comes")
        base_s, base_ns, rate = self._base_s, self._base_ns, self._rate
        when_ns = base_ns + int((when_s - base_s) / rate * NS_PER_S)
        while base_s + (when_ns - base_ns) * rate / NS_PER_S < when_s:
            when_ns += 1
        return max(when_ns, self.scheduler.now_ns)
