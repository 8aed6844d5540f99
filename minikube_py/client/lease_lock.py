"""A coordination.k8s.io/v1 Lease as a lock: what one candidate has seen of it, and what it may do with it.

The times written into a lease are never compared with a clock: a record that changed shows that its holder lives, and
the time since WE saw it change is measured on our own monotonic clock. So clocks may differ by any amount, but not run
at very different rates. Source: client-go `tools/leaderelection`, its package comment and `tryAcquireOrRenew`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import LEASES, Object, RestClient
from minikube_py.errors import RequestError

JITTER_FACTOR: Final = 1.2
"""The wait between two tries to acquire is stretched by a random factor of 1 to 1 + this."""
RELEASED_DURATION_S: Final = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """Upstream's `--leader-elect-*` durations and defaults.

    A candidate waits `lease_duration_s` since it last saw the lease change before it takes it; a holder renews every
    `retry_period_s`, and stops when it could not for `renew_deadline_s`. Raises: RequestError."""

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
        """For so long after a renewal was sent its sender may act: until the renew deadline of the next try, and never
        as long as it takes another candidate to hold the lease for expired."""
        return min(self.retry_period_s + self.renew_deadline_s, float(self.written_s))

    @property
    def request_s(self) -> float:
        """How long one request for the lease may take, so that another fits in before the deadline."""
        return max(1.0, self.renew_deadline_s / 2)


class LeaseRecord(NamedTuple):
    """What a lease says. `holder` "": nobody, it was released. Times are metav1.MicroTime texts."""

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
    """One candidate's side of an election: decisions only. All times are of its own monotonic clock, in seconds."""

    def __init__(self, identity: str, timing: Timing) -> None:
        self.identity = identity
        self.timing = timing
        self.seen = LeaseRecord()
        self.seen_s = float("-inf")
        self.acts_until_s = float("-inf")
        """Until then no other candidate can have taken the lease, as far as clocks run at the same rate."""

    @property
    def holds(self) -> bool:
        """Whether the lease, as last seen, is this candidate's; it may have run out since."""
        return self.seen.holder == self.identity

    def is_valid(self, now_s: float) -> bool:
        """Whether the lease as last seen has not run out."""
        return self.seen_s + self.seen.duration_s > now_s

    def may_act(self, now_s: float) -> bool:
        return self.holds and now_s < self.acts_until_s

    def saw(self, record: LeaseRecord, now_s: float) -> bool:
        """Told what the lease says; whether it changed."""
        if record == self.seen:
            return False
        self.seen, self.seen_s = record, now_s
        return True

    def may_take(self, now_s: float) -> bool:
        """Whether the lease as last seen is nobody's, has run out, or is this candidate's own."""
        return not self.seen.holder or self.holds or not self.is_valid(now_s)

    def claim(self, stamp: str, exists: bool = True) -> LeaseRecord:
        """What to write to take the lease, or to renew it. `stamp` is the wall clock's, for people to read."""
        if exists and self.holds:
            return self.seen._replace(duration_s=self.timing.written_s, renew_time=stamp)
        transitions = self.seen.transitions + 1 if exists else 0
        return LeaseRecord(self.identity, self.timing.written_s, stamp, stamp, transitions)

    def wrote(self, record: LeaseRecord, sent_s: float, now_s: float) -> None:
        """The write of a claim, sent at `sent_s`, was acknowledged: others saw it at `sent_s` at the earliest."""
        self.seen, self.seen_s = record, now_s
        self.acts_until_s = sent_s + self.timing.acts_s

    def give_up(self, stamp: str) -> LeaseRecord:
        """What to write so that others need not wait; from now on this candidate does not act."""
        self.acts_until_s = float("-inf")
        return LeaseRecord("", RELEASED_DURATION_S, stamp, stamp, self.seen.transitions)


class LeaseLock:
    """The lease object in the API. `get`, then `write`: a write stands only on the version seen last.

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
        """None where there is no such lease."""
        try:
            return self.found(await self._client.get(LEASES, self.name, self.namespace))
        except StatusError as error:
            if error.code != 404:
                raise
            self.lease = None
            return None

    def found(self, lease: Object) -> LeaseRecord:
        """Takes up a lease that was read by other means."""
        self.lease = lease
        return record_of(lease)

    async def write(self, record: LeaseRecord) -> None:
        """Makes the lease where none was seen. StatusError 409: somebody else wrote it since."""
        if self.lease is None:
            metadata = {"name": self.name, "namespace": self.namespace}
            body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec_of(record)}
            self.lease = await self._client.create(LEASES, body, self.namespace)
            return
        # Fields of the spec that this code does not know are not its to keep: they were said of another holder.
        body = {**self.lease, "spec": spec_of(record)}
        self.lease = await self._client.update(LEASES, body)

    def reference(self) -> dict[str, Any]:
        """Of the lease, for events about it."""
        return {"kind": "Lease", "namespace": self.namespace, "name": self.name, "uid": self.uid}
