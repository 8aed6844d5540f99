"""Leases: never expired early, and always expired eventually.

Each acknowledged renewal promises the keys a full TTL from a moment after its call, measured by clocks that may run at
different rates. A lease without renewals ends within its TTL and a bound, once nothing fails any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minikube_py.errors import LeaseNotFound
from minikube_py.mvcc.types import DeleteRange, LeaseGrant, LeaseResult, LeaseRevoke, Put, RangeResult
from minikube_py.sim.checkers.model import parts_of, within
from minikube_py.sim.checkers.transactions import NOBODY, Checked
from minikube_py.sim.checkers.verdict import OK, Verdict, violation
from minikube_py.sim.history import NEVER_US, History, KeepAlive, Operation


class Bounds(NamedTuple):
    """`fast`, `slow`: how many seconds the fastest and the slowest clock count in a second. `settled_us`: nothing
    failed from then on. `grace_us`: how long an expiry may then take beyond its TTL."""

    fast: float = 1.0
    slow: float = 1.0
    settled_us: int = NEVER_US
    grace_us: int = 0


class _Lease:
    def __init__(self) -> None:
        self.renewals: list[tuple[int, int, Operation]] = []
        """(call, TTL in seconds, operation) of the acknowledged ones."""
        self.last_touch_us = 0
        """The latest time at which it may have been granted or renewed, including requests of unknown outcome."""
        self.ttl_s = 0
        self.granted_us = NEVER_US
        self.revoke_call_us = NEVER_US
        self.ends: list[tuple[int, int, str]] = []
        """(time of the answer that there is no such lease, time of that request, a description)"""

    def end_seen(self) -> tuple[int, str]:
        """The earliest sign that it had ended; calls before that time need not find it missing."""
        signs = [(seen_us, how) for seen_us, call_us, how in self.ends if call_us > self.granted_us]
        return min(signs, default=(NEVER_US, ""))


def check(history: History, checked: Checked, bounds: Bounds) -> Verdict:
    """`checked`: the result of `transactions.check` for the same history; it must be ok."""
    leases = _gather(history)
    for number, revision in _ends(history, checked):
        if number in leases:
            gone = f"its keys were gone by revision {revision}"
            leases[number].ends.append((checked.seen_us[revision], NEVER_US + 1, gone))
    for number, lease in leases.items():
        problem = _early(number, lease, bounds)
        if problem:
            return violation(problem)
    return _outlived(history, leases, bounds)


def _ends(history: History, checked: Checked) -> Iterator[tuple[int, int]]:
    """(lease, revision by which its keys were gone), of those that expired.

    Which of several leases expired first is known if a watch saw its keys deleted. Otherwise the order found is only
    one that fits, so it is only known that they had all expired by the last of them."""
    shown = {
        (event.kv.mod_revision, event.prev_kv.lease): event.kv.key
        for watch in history.watches
        for part in watch.parts
        for delivery in part.deliveries
        for event in delivery.batch.events
        if event.type == "DELETE" and event.prev_kv is not None
    }
    perhaps = _unknown_deletes(history)
    ends = [
        (operation.request.id, revision)
        for revision, operation in checked.writers.items()
        if operation.client == NOBODY
        and isinstance(operation.request, LeaseRevoke)
        and not _may_be_another(shown.get((revision, operation.request.id)), perhaps)
    ]
    last = max((revision for number, revision in ends if (revision, number) not in shown), default=0)
    for number, revision in ends:
        yield number, revision if (revision, number) in shown else last


def _unknown_deletes(history: History) -> list[DeleteRange]:
    """Deletes of unknown outcome: they may have deleted a lease's keys."""
    unknown = (operation.request for operation in history.operations if operation.status == "unknown")
    return [part for request in unknown for part in parts_of(request) if isinstance(part, DeleteRange)]


def _may_be_another(key: bytes | None, perhaps: list[DeleteRange]) -> bool:
    """`key`: one seen to be deleted with the lease; None: none was."""
    if key is None:
        return bool(perhaps)
    return any(within(key, each.key, each.range_end) for each in perhaps)


def _gather(history: History) -> dict[int, _Lease]:
    leases: dict[int, _Lease] = {}
    for operation in history.operations:
        request, result = operation.request, operation.result
        until_us = NEVER_US if operation.return_us is None else operation.return_us
        if isinstance(request, LeaseGrant | KeepAlive) and operation.status != "refused":
            lease = leases.setdefault(request.id, _Lease())
            lease.last_touch_us = max(lease.last_touch_us, until_us)
            if isinstance(request, LeaseGrant):
                lease.ttl_s = max(lease.ttl_s, request.ttl_s)
            if isinstance(result, LeaseResult):
                lease.ttl_s = max(lease.ttl_s, result.ttl_s)
                if result.ttl_s > 0:
                    lease.renewals.append((operation.call_us, result.ttl_s, operation))
                else:
                    lease.ends.append((until_us, operation.call_us, f"{operation}"))
                if isinstance(request, LeaseGrant):
                    lease.granted_us = min(lease.granted_us, until_us)
        elif isinstance(request, LeaseRevoke) and operation.status != "refused":
            lease = leases.setdefault(request.id, _Lease())
            lease.revoke_call_us = min(lease.revoke_call_us, operation.call_us)
        if isinstance(operation.error, LeaseNotFound) and operation.status == "refused":
            named = _leases_of(request)
            if len(named) == 1:
                sign = (until_us, operation.call_us, f"{operation}")
                leases.setdefault(named.pop(), _Lease()).ends.append(sign)
    return leases


def _leases_of(request: object) -> set[int]:
    if isinstance(request, LeaseRevoke | KeepAlive):
        return {request.id}
    return {part.lease for part in parts_of(request) if isinstance(part, Put)} - {0}


def _early(number: int, lease: _Lease, bounds: Bounds) -> str:
    end_us, how = lease.end_seen()
    if lease.revoke_call_us <= end_us:
        return ""
    for call_us, ttl_s, operation in lease.renewals:
        # A call after the expiry was seen should have been refused because there is no such lease.
        due_us = call_us + ttl_s * 1e6 / bounds.fast
        if end_us < due_us:
            return (
                f"lease {number} had ended by {end_us / 1e6:.6f} ({how}); it was promised to live until "
                f"{due_us / 1e6:.6f} at least:\n  {operation}"
            )
    return ""


def _outlived(history: History, leases: dict[int, _Lease], bounds: Bounds) -> Verdict:
    for operation in history.operations:
        if not isinstance(operation.result, RangeResult) or operation.serializable:
            continue
        if getattr(operation.request, "revision", 0):
            continue
        for kv in operation.result.kvs:
            lease = leases.get(kv.lease)
            if lease is None or lease.last_touch_us == NEVER_US:
                continue
            from_us = max(lease.last_touch_us, bounds.settled_us)
            due_us = from_us + lease.ttl_s * 1e6 / bounds.slow + bounds.grace_us
            if operation.call_us > due_us:
                return violation(
                    f"lease {kv.lease} should have ended by {due_us / 1e6:.6f}; {kv.key!r} still had it:\n  {operation}"
                )
    return OK
