"""Progress of a long start: registering tens of thousands of nodes takes a minute."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from minikube_py import env
from minikube_py.env import Clock

EVERY_S = 2.0
PATIENCE_S = 3.0

Say = Callable[[str], None]


def say(text: str) -> None:
    """On standard output: a supervisor passes it on before the role is ready, and logs it afterwards."""
    env.say(text, sys.stdout)


class Registered:
    """Counts registered nodes; reports the number at most every 2 s."""

    def __init__(self, clock: Clock, say: Say) -> None:
        self._clock, self._say = clock, say
        self._said_s = clock.monotonic_s()

    def __call__(self, done: int, total: int) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s >= EVERY_S:
            self._said_s = now_s
            self._say(f"{done:,} of {total:,} nodes registered")


class Patient:
    """Passes on progress of `name`, starting with the latest after PATIENCE_S."""

    def __init__(self, name: str, say: Say) -> None:
        self._name, self._say = name, say
        self._last = ""
        self._patience: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(PATIENCE_S, self._over)

    def __call__(self, text: str) -> None:
        self._last = f"{self._name}: {text}"
        if self._patience is None:
            self._say(self._last)

    def end(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    def _over(self) -> None:
        self._patience = None
        if self._last:
            self._say(self._last)
