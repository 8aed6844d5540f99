"""A coordination.k8s.io/v1 Lease as a lock: one candidate's view of it, and its permitted actions.

The times written into a lease are never compared with a clock: a changed record shows that its holder is alive, and the
time since WE saw it change is measured on our monotonic clock. So clocks may differ by any amount, but must run at
similar rates. Source: client-go `tools/leaderelection`, its package comment and `tryAcquireOrRenew`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import LEASES, Object, RestClient
from minikube_py.errors import RequestError

JITTER_FACTOR: Final = 1.2
"""The wait between two attempts is multiplied by a random factor of 1 to 1 + this."""
RELEASED_DURATION_S: Final = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """Upstream's `--leader-elect-*` durations and defaults.

    A candidate waits `lease_duration_s` since it last saw the lease change before it takes it; a holder renews every
    `retry_period_s`, and stops after `renew_deadline_s` without success. Raises: RequestError."""

    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    def __post_init__(self) -> None:
        if self.retry_period_s <= 0:
            raise RequestError(f"the retry period must be above zero, not {self.retry_period_s:g} s")
        if self.renew_deadline_s <= JITTER_FACTOR * self.retry_period_s:
            least = JITTER_FACTOR * self.retry_period_s
            raise RequestError(
                f"the renew deadline must be above {JITTER_FACTOR} x the retry period, {least:g} s, "
                f"not {self.renew_deadline_s:g} s"
            )
        if self.lease_duration_s <= self.renew_deadline_s:
            raise RequestError(
                f"the lease duration must be above the renew deadline, {self.renew_deadline_s:g} s, "
                f"not {self.lease_duration_s:g} s"
            )
        if self.lease_duration_s < 1:
            raise RequestError(f"the lease duration must be at least 1 s, not {self.lease_duration_s:g} s")

    @property
    def written_s(self) -> int:
        """The duration as a lease holds it, in whole seconds."""
        return int(self.lease_duration_s)

    @property
    def acts_s(self) -> float:
        """How long after sending a renewal its sender may act: until the renew deadline of the next attempt, and always
        less than another candidate takes to consider the lease expired."""
        return min(self.retry_period_s + self.renew_deadline_s, float(self.written_s))

    @property
    def request_s(self) -> float:
        """Timeout of one request for the lease, so that another attempt fits before the deadline."""
        return max(1.0, self.renew_deadline_s / 2)


class LeaseRecord(NamedTuple):
    """The content of a lease. `holder` "": none, it was released. Times are metav1.MicroTime texts."""

    holder: str = ""
    duration_s: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    transitions: int = 0


def record_of(lease: Object) -> LeaseRecord:
    spec = lease.get("spec") or {}
    return LeaseRecord(
        spec.get("holderIdentity") or "",
        spec.get("leaseDurationSeconds") or 0,
        spec.get("acquireTime") or "",
        spec.get("renewTime") or "",
        spec.get("leaseTransitions") or 0,
    )


def spec_of(record: LeaseRecord) -> Object:
    spec: Object = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquire_time,
        "renewTime": record.renew_time,
        "leaseTransitions": record.transitions,
    }
    return {name: value for name, value in spec.items() if value or name == "leaseTransitions"}


class Candidate:
    """One candidate's decisions. All times are of its monotonic clock, in seconds."""

    def __init__(self, identity: str, timing: Timing) -> None:
        self.identity = identity
        self.timing = timing
        self.seen = LeaseRecord()
        self.seen_s = float("-inf")
        self.acts_until_s = float("-inf")
        """Until then no other candidate can have taken the lease, if clocks run at the same rate."""

    @property
    def holds(self) -> bool:
        """Whether this candidate holds the lease, as last seen; it may have expired since."""
        return self.seen.holder == self.identity

    def is_valid(self, now_s: float) -> bool:
        """Whether the lease as last seen has not expired."""
        return self.seen_s + self.seen.duration_s > now_s

    def may_act(self, now_s: float) -> bool:
        return self.holds and now_s < self.acts_until_s

    def saw(self, record: LeaseRecord, now_s: float) -> bool:
        """Processes the content of the lease; returns whether it changed."""
        if record == self.seen:
            return False
        self.seen, self.seen_s = record, now_s
        return True

    def may_take(self, now_s: float) -> bool:
        """Whether the lease as last seen is free, expired, or this candidate's."""
        return not self.seen.holder or self.holds or not self.is_valid(now_s)

    def claim(self, stamp: str, exists: bool = True) -> LeaseRecord:
        """The record to take or renew the lease. `stamp` is the wall clock's, for display."""
        if exists and self.holds:
            return self.seen._replace(duration_s=self.timing.written_s, renew_time=stamp)
        transitions = self.seen.transitions + 1 if exists else 0
        return LeaseRecord(self.identity, self.timing.written_s, stamp, stamp, transitions)

    def wrote(self, record: LeaseRecord, sent_s: float, now_s: float) -> None:
        """A claim sent at `sent_s` was acknowledged: others saw it no earlier than `sent_s`."""
        self.seen, self.seen_s = record, now_s
        self.acts_until_s = sent_s + self.timing.acts_s

    def give_up(self, stamp: str) -> LeaseRecord:
        """The record that releases the lease; from now on this candidate does not act."""
        self.acts_until_s = float("-inf")
        return LeaseRecord("", RELEASED_DURATION_S, stamp, stamp, self.seen.transitions)


class LeaseLock:
    """The lease object in the API. `get`, then `write`: a write succeeds only on the version seen last.

    All methods raise: StatusError, Unavailable; writes also OutcomeUnknown."""

    def __init__(self, client: RestClient, namespace: str, name: str) -> None:
        self._client = client
        self.namespace, self.name = namespace, name
        self.lease: Object | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def uid(self) -> str:
        return str(self.lease["metadata"]["uid"]) if self.lease is not None else ""

    async def get(self) -> LeaseRecord | None:
        """None if there is no such lease."""
        try:
            return self.found(await self._client.get(LEASES, self.name, self.namespace))
        except StatusError as error:
            if error.code != 404:
                raise
            self.lease = None
            return None

    def found(self, lease: Object) -> LeaseRecord:
        """Takes a lease that was read by other means."""
        self.lease = lease
        return record_of(lease)

    async def write(self, record: LeaseRecord) -> None:
        """Creates the lease if none was seen. StatusError 409: another client wrote it since."""
        if self.lease is None:
            metadata = {"name": self.name, "namespace": self.namespace}
            body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec_of(record)}
            self.lease = await self._client.create(LEASES, body, self.namespace)
            return
        # Do not keep unknown fields of the spec: they described another holder.
        body = {**self.lease, "spec": spec_of(record)}
        self.lease = await self._client.update(LEASES, body)

    def reference(self) -> dict[str, Any]:
        """Of the lease, for events about it."""
        return {"kind": "Lease", "namespace": self.namespace, "name": self.name, "uid": self.uid}
