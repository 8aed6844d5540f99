"""Leader election by a coordination.k8s.io/v1 Lease: one of several candidates acts, and another one when it is gone.

As in client-go, but stricter in one respect: a leader may act until a moment known in advance (`may_act`), counted from
when its last renewal was SENT. A leader that was paused beyond it detects that before its next write (`fencing`),
whichever leads by then; client-go's tries to renew for another deadline first.

And more tolerant in another: a leader that could not renew in time stops acting but does not exit. Client-go's exits,
so after a slow period of the API all leaders restart at once and list everything again. Here the fence blocks it; if
the lease is unchanged, no other candidate acted in between, and it resumes.

Guaranteed: a candidate starts no write after another could have taken the lease, if monotonic clocks run at about the
same rate (15 s : 12 s by default) and the lease is not deleted or edited by hand. Not guaranteed: a write started in
time may be delayed and arrive late. The API's preconditions protect against those: a bound pod is not bound again
(409), an update carries its base version, a deletion the uid.

Source: client-go `tools/leaderelection/leaderelection.go`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import micro_timestamp
from minikube_py.client.events import NORMAL, EventRecorder, Involved
from minikube_py.client.lease_lock import JITTER_FACTOR, Candidate, LeaseLock, LeaseRecord, Timing
from minikube_py.client.rest import LEASES, RestClient
from minikube_py.env import Clock, Rng, run_until
from minikube_py.errors import MinikubeError, OutcomeUnknown, Unavailable

T = TypeVar("T")

logger = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
EVENT_REASON: Final = "LeaderElection"

NewLeader = Callable[[str], None]
"""Called with each new leader; "" if the lease was released."""


def new_identity(rng: Rng) -> str:
    """A unique name of this process: `HOST_<random>`, as upstream's `hostname_uuid`."""
    return f"{socket.gethostname()}_{rng.getrandbits(64):016x}"


class LeadershipLost(MinikubeError):
    """Another candidate holds the lease, or held it in between."""


class LeaderElector:
    """`acquire`, then `hold` until it is lost, then start again; or `release`. One candidate for one lease.

    `on_held(may_act)` is called when a holder must pause, and when it may resume."""

    def __init__(
        self,
        client: RestClient,
        clock: Clock,
        rng: Rng,
        name: str,
        identity: str,
        *,
        namespace: str = NAMESPACE,
        timing: Timing | None = None,
        recorder: EventRecorder | None = None,
        on_new_leader: NewLeader = lambda _: None,
        on_held: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.lock = LeaseLock(client, namespace, name)
        self.candidate = Candidate(identity, timing or Timing())
        self._clock, self._rng = clock, rng
        self._recorder = recorder
        self._on_new_leader, self._on_held = on_new_leader, on_held
        self._reported = ""
        self._last_error = ""
        self.transitions = self.failed_attempts = 0

    @property
    def leader(self) -> str:
        """The lease's holder as last seen; "" if there is none or it has not been read yet."""
        return self.candidate.seen.holder

    def may_act(self) -> bool:
        """False from the moment another candidate may have taken over, even if this one has not noticed."""
        return self.candidate.may_act(self._clock.monotonic_s())

    async def acquire(self) -> None:
        """Returns when this candidate leads; tries every 2 to 4.4 s by default."""
        while not await self.attempt():
            stretch = 1.0 + self._rng.random() * JITTER_FACTOR
            await self._clock.sleep(self.candidate.timing.retry_period_s * stretch)

    async def look(self) -> None:
        """Reads the lease to update `leader`; a failure changes nothing."""
        try:
            found = await self._asked(self.lock.get())
        except MinikubeError as error:
            logger.debug("lease %s: %s", self.lock, error)
            return
        if found is not None:
            self.saw(found)
        self._report()

    async def hold(self) -> None:
        """Renews the lease; never returns. After `may_act` became False it resumes only if the lease is unchanged.
        Raises: LeadershipLost."""
        candidate = self.candidate
        held = True
        while True:
            if held and not self.may_act():
                held = False
                why = f": {self._last_error}" if self._last_error else ""
                logger.warning("lease %s is not renewed for %g s%s", self.lock, candidate.timing.acts_s, why)
                self._event("stopped leading")
                self._on_held(False)
            if held:
                try:
                    await run_until(self._clock, candidate.acts_until_s, self._renew_later())
                except TimeoutError:
                    continue
            else:
                await self._renew(candidate.seen)
                if self.may_act():
                    held = True
                    self._event("became leader")
                    self._on_held(True)
                else:
                    await self._clock.sleep(candidate.timing.retry_period_s)

    async def release(self) -> None:
        """Releases the lease, if it is held; after a failure it expires. All work that it guarded must have ended.

        Also if it was not renewed in time: the write is refused if another has taken the lease meanwhile."""
        candidate = self.candidate
        if not candidate.holds:
            return
        record = candidate.give_up(micro_timestamp(self._clock.wall_s()))
        try:
            await self._asked(self.lock.write(record))
        except MinikubeError as error:
            logger.info("lease %s is not released: %s", self.lock, error)
            return
        candidate.saw(record, self._clock.monotonic_s())
        self._report()

    async def attempt(self, only: LeaseRecord | None = None) -> bool:
        """One attempt to take or renew the lease; with `only`, if it is still the same holding. False if another holds
        it, or the API failed."""
        try:
            done = await self._try(only)
        except (StatusError, Unavailable, OutcomeUnknown) as error:
            # The next attempt reads the lease first, and so learns whether a lost write was done. Losing the race to
            # another candidate is normal; any other error is logged once.
            lost_race = isinstance(error, StatusError) and error.code == 409
            if not lost_race and str(error) != self._last_error:
                logger.warning("lease %s: %s", self.lock, error)
            self._last_error = str(error)
            done = False
        else:
            self._last_error = ""
        self.failed_attempts += not done
        self._report()
        return done

    def saw(self, record: LeaseRecord) -> bool:
        """Processes a lease that another caller read; returns whether it changed."""
        return self.candidate.saw(record, self._clock.monotonic_s())

    def metrics(self) -> dict[str, float]:
        """As upstream's `leader_election_master_status`."""
        label = f'{{name="{self.lock.name}"}}'
        return {
            f"leader_election_master_status{label}": float(self.may_act()),
            f"leader_election_transitions_total{label}": self.transitions,
            f"leader_election_failed_attempts_total{label}": self.failed_attempts,
        }

    async def _renew_later(self) -> None:
        await self._clock.sleep(self.candidate.timing.retry_period_s)
        await self._renew()

    async def _renew(self, only: LeaseRecord | None = None) -> None:
        """Raises: LeadershipLost if another holds or held the lease, or with `only` if it is gone."""
        done = await self.attempt(only)
        candidate = self.candidate
        another = self.leader not in ("", candidate.identity)
        if not done and (another or (only is not None and not _same_holding(candidate.seen, only))):
            why = f"was taken by {self.leader}" if another else "was given up by another, or deleted"
            raise LeadershipLost(f"the lease {self.lock} {why}")

    async def _try(self, only: LeaseRecord | None) -> bool:
        candidate, clock = self.candidate, self._clock
        if candidate.holds and candidate.is_valid(clock.monotonic_s()) and self.lock.lease is not None:
            # Only the holder writes a held lease: most renewals need not read it first.
            try:
                await self._write(candidate.claim(micro_timestamp(clock.wall_s())))
                return True
            except (StatusError, OutcomeUnknown, Unavailable) as error:
                self._last_error = str(error)
        found = await self._asked(self.lock.get())
        if only is not None and not _same_holding(found or LeaseRecord(), only):
            self.saw(found or LeaseRecord())
            return False
        if found is not None:
            self.saw(found)
            if not candidate.may_take(clock.monotonic_s()):
                return False
        await self._write(candidate.claim(micro_timestamp(clock.wall_s()), exists=found is not None))
        return True

    async def _write(self, record: LeaseRecord) -> None:
        sent_s = self._clock.monotonic_s()
        await self._asked(self.lock.write(record))
        self.candidate.wrote(record, sent_s, self._clock.monotonic_s())

    def _report(self) -> None:
        leader = self.leader
        if leader == self._reported:
            return
        self._reported = leader
        self.transitions += 1
        logger.info("lease %s: %s leads", self.lock, leader or "nobody")
        if leader == self.candidate.identity:
            self._event("became leader")
        self._on_new_leader(leader)

    def _event(self, what: str) -> None:
        if self._recorder is not None:
            lock = self.lock
            involved = Involved("Lease", lock.namespace, lock.name, lock.uid, LEASES.api_version)
            self._recorder.event(involved, NORMAL, EVENT_REASON, f"{self.candidate.identity} {what}")

    async def _asked(self, request: Awaitable[T]) -> T:
        """Raises: OutcomeUnknown after a timeout; what `request` raises."""
        duration_s = self.candidate.timing.request_s
        try:
            return await run_until(self._clock, self._clock.monotonic_s() + duration_s, request)
        except TimeoutError:
            raise OutcomeUnknown(f"no answer within {duration_s:g} s") from None


def _same_holding(record: LeaseRecord, before: LeaseRecord) -> bool:
    """Whether no other candidate held the lease in between."""
    fields = (record.holder, record.acquire_time, record.transitions)
    return fields == (before.holder, before.acquire_time, before.transitions)
