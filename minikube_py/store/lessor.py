"""Lease expiry. The leader alone decides, by its monotonic clock; expiry itself is a replicated revoke.

A follower keeps no deadlines: it does not learn of renewals."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from minikube_py.env import Clock

HEAP_SLACK = 64
RETRY_S = 1.0
"""How long a revoke may stay unapplied before it is proposed again."""


class Lessor:
    """Deadlines by lease. Never early: a lease lives at least its TTL after its last renewal, and a new or restarted
    leader gives each its full TTL again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._leases: dict[int, tuple[int, float]] = {}
        self._heap: list[tuple[float, int]] = []
        # Returned by `expired`, and not again before then: a revoke in the log cannot be cancelled.
        self._ending: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def restart(self, leases: Iterable[tuple[int, int]]) -> None:
        """Takes over all (id, ttl_s), each with its full TTL from now."""
        self._leases.clear()
        self._heap.clear()
        self._ending.clear()
        now_s = self._clock.monotonic_s()
        self._leases.update([(lease_id, (ttl_s, now_s + ttl_s)) for lease_id, ttl_s in leases])
        self._heap.extend([(deadline_s, lease_id) for lease_id, (_, deadline_s) in self._leases.items()])
        heapq.heapify(self._heap)

    def clear(self) -> None:
        """Another member leads."""
        self.restart(())

    def granted(self, lease_id: int, ttl_s: int) -> None:
        """A grant was applied; `ttl_s` is what was granted."""
        self._set(lease_id, ttl_s)

    def revoked(self, lease_id: int) -> None:
        self._leases.pop(lease_id, None)
        self._ending.pop(lease_id, None)
        if len(self._heap) > 2 * len(self._leases) + HEAP_SLACK:
            self._heap = [(deadline_s, lease_id) for lease_id, (_, deadline_s) in self._leases.items()]
            heapq.heapify(self._heap)

    def renew(self, lease_id: int) -> int:
        """Extends the lease to its full TTL from now; returns it in seconds, 0 if the lease is unknown or ending."""
        lease = self._leases.get(lease_id)
        if lease is None or lease_id in self._ending:
            return 0
        self._leases[lease_id] = (lease[0], self._clock.monotonic_s() + lease[0])
        return lease[0]

    def remaining_s(self, lease_id: int) -> float | None:
        lease = self._leases.get(lease_id)
        return None if lease is None else max(0.0, lease[1] - self._clock.monotonic_s())

    def expired(self) -> Iterator[int]:
        """Leases that have expired and whose revoke is to be proposed now. Those that are not taken come again."""
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now_s:
            _, lease_id = heapq.heappop(self._heap)
            lease = self._leases.get(lease_id)
            if lease is None or self._ending.get(lease_id, now_s) > now_s:
                continue
            if lease[1] > now_s:
                # Renewed since: a renewal only moves the deadline; the heap is corrected when the old one comes up.
                heapq.heappush(self._heap, (lease[1], lease_id))
                continue
            self._ending[lease_id] = now_s + RETRY_S
            heapq.heappush(self._heap, (now_s + RETRY_S, lease_id))
            yield lease_id

    def _set(self, lease_id: int, ttl_s: int) -> None:
        deadline_s = self._clock.monotonic_s() + ttl_s
        self._leases[lease_id] = (ttl_s, deadline_s)
        self._ending.pop(lease_id, None)
        heapq.heappush(self._heap, (deadline_s, lease_id))
