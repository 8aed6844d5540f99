"""Creations and deletions a controller has requested but not yet observed; until then it must not act on its counts.

Source: k8s.io/kubernetes/pkg/controller/controller_utils.go (UIDTrackingControllerExpectations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from minikube_py.env import Clock

MARGIN_S: Final = 1.0


@dataclass(slots=True)
class _Expected:
    creations: int
    deletions: set[str]
    since_s: float
    missed: bool = False


class Expectations:
    """By controller key. Unmet expectations expire after `timeout_s`: a repeated request is better than a hang.

    `add_after`: of the queue."""

    def __init__(self, add_after: Callable[[str, float], None], clock: Clock, timeout_s: float = 300.0) -> None:
        self._add_after = add_after
        self._clock = clock
        self._timeout_s = timeout_s
        self._expected: dict[str, _Expected] = {}

    def expect(self, key: str, creations: int, deletions: Iterable[str] = ()) -> None:
        self._expected[key] = _Expected(creations, set(deletions), self._clock.monotonic_s())

    def creation_observed(self, key: str) -> None:
        if (expected := self._expected.get(key)) is not None and expected.creations > 0:
            expected.creations -= 1

    def deletion_observed(self, key: str, uid: str) -> None:
        """Each pod counts once, by its deletionTimestamp or by its removal."""
        if (expected := self._expected.get(key)) is not None:
            expected.deletions.discard(uid)

    def pods_listed(self) -> None:
        """A pod that came and went before this list is never observed, and nothing else may cause a sync after the
        expiry."""
        for key, expected in self._expected.items():
            expected.missed = True
            self.satisfied(key)

    def satisfied(self, key: str) -> bool:
        expected = self._expected.get(key)
        if expected is None or (expected.creations <= 0 and not expected.deletions):
            return True
        left_s = expected.since_s + self._timeout_s - self._clock.monotonic_s()
        if expected.missed and left_s >= 0:
            # In each sync: an earlier delay of the same key replaces this one.
            self._add_after(key, left_s + MARGIN_S)
        return left_s < 0

    def forget(self, key: str) -> None:
        self._expected.pop(key, None)
