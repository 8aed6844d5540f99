"""How far a start is that takes long: nodes by the ten thousand register for a minute."""

from __future__ import annotations

from collections.abc import Callable

from minikube_py.env import Clock

EVERY_S = 2.0

Say = Callable[[str], None]


class Registered:
    """Told of each node that registered; says how many there are, at most every 2 s."""

    def __init__(self, clock: Clock, say: Say) -> None:
        self._clock, self._say = clock, say
        self._said_s = clock.monotonic_s()

    def __call__(self, done: int, total: int) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s >= EVERY_S:
            self._said_s = now_s
            self._say(f"{done:,} of {total:,} nodes registered")
