"""Exponential backoff with jitter, for loops that must neither give up nor overload the server."""

from __future__ import annotations

from minikube_py.env import Rng


class Backoff:
    """Delays base, 2 x base, ... up to `max_s`, each stretched by a random factor in [1, 1 + jitter)."""

    def __init__(
        self, rng: Rng, base_s: float = 0.1, max_s: float = 10.0, factor: float = 2.0, jitter: float = 1.0
    ) -> None:
        self._rng = rng
        self._base_s = base_s
        self._max_s = max_s
        self._factor = factor
        self._jitter = jitter
        self._next_s = base_s

    def next_s(self) -> float:
        delay_s = self._next_s
        self._next_s = min(self._max_s, self._next_s * self._factor)
        return min(self._max_s, delay_s * (1.0 + self._jitter * self._rng.random()))

    def reset(self) -> None:
        self._next_s = self._base_s
