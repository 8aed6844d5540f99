"""Creations and deletions a controller has requested but not yet observed; until then it must not act on its counts.

Source: k8s.io/kubernetes/pkg/controller/controller_utils.go (UIDTrackingControllerExpectations).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minikube_py.env import Clock


@dataclass(slots=True)
class _Expected:
    creations: int
    deletions: set[str]
    since_s: float


class Expectations:
    """By controller key. Unmet expectations expire after `timeout_s`: a repeated request is better than a hang."""

    def __init__(self, clock: Clock, timeout_s: float = 300.0) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._expected: dict[str, _Expected] = {}

    def expect(self, key: str, creations: int, deletions: Iterable[str]) -> None:
        self._expected[key] = _Expected(creations, set(deletions), self._clock.monotonic_s())

    def expect_creations(self, key: str, count: int) -> None:
        self.expect(key, count, ())

    def expect_deletions(self, key: str, uids: Iterable[str]) -> None:
        self.expect(key, 0, uids)

    def creation_observed(self, key: str) -> None:
        expected = self._expected.get(key)
        if expected is not None and expected.creations > 0:
            expected.creations -= 1

    def deletion_observed(self, key: str, uid: str) -> None:
        """Each pod counts once, by its deletionTimestamp or by its removal."""
        expected = self._expected.get(key)
        if expected is not None:
            expected.deletions.discard(uid)

    def satisfied(self, key: str) -> bool:
        expected = self._expected.get(key)
        if expected is None or (expected.creations <= 0 and not expected.deletions):
            return True
        return self._clock.monotonic_s() - expected.since_s > self._timeout_s

    def forget(self, key: str) -> None:
        self._expected.pop(key, None)
