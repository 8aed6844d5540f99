"""What a controller has asked for and not yet seen: until then it must not count its pods and ask again.

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
    """By controller key. Unmet expectations are dropped after `timeout_s`: better to count twice than to hang."""

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
        """Each pod counts once, be it seen by its deletionTimestamp or by its going."""
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
