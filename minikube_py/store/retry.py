"""Schedules retries of failed work on files."""

from __future__ import annotations

from minikube_py.env import Clock

RETRY_S = 1.0
RETRY_S_MAX = 60.0


class Retry:
    """Work on files that may fail without harm: retried with growing delays. `failure`: why it last failed, "" once it
    has succeeded; `full`: because the disk had no space for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.pause_s = 0.0
        self._next_s = 0.0
        self.failure = ""
        self.full = False
        self.failures = 0
        """Total failures."""

    @property
    def due(self) -> bool:
        return not self.failure or self._clock.monotonic_s() >= self._next_s

    def failed(self, why: str, full: bool = False) -> float:
        """Seconds until the next retry."""
        self.failures += 1
        self.failure, self.full = why, full
        self.pause_s = min(RETRY_S_MAX, self.pause_s * 2 or RETRY_S)
        self._next_s = self._clock.monotonic_s() + self.pause_s
        return self.pause_s

    def succeeded(self) -> None:
        self.failure, self.full, self.pause_s = "", False, 0.0
