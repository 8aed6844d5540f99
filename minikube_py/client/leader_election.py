"""Leader election by a coordination.k8s.io/v1 Lease: of several candidates one acts, and another when it is gone.

As client-go does it, with one thing stricter: who leads may act until a moment it knows beforehand (`may_act`), counted
from when its last renewal was SENT. A leader that was paused past it finds that out before its next write (`fencing`),
whoever leads by then; client-go's tries to renew for another deadline first.

And one thing milder: a leader that could not renew in time does not act, but neither does it end. Client-go's ends its
process, and where the API was slow for a while, all leaders start again at once and list everything again. Here the
fence holds it; if it finds the lease as it left it, nobody acted in between, and it goes on.

What is guaranteed: no write is begun by a candidate after another could have taken the lease, as long as monotonic
clocks run at about the same rate (15 s : 12 s by default) and nobody deletes or edits the lease by hand. What is not: a
write begun in time may arrive late, held up on its way. For those the API's own conditions stand guard: a pod that is
bound is not bound again (409), an update carries the version it was made from, a deletion the uid.

Source: client-go `tools/leaderelection/leaderelection.go`.
"""

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
"""Told of each leader that was not the one before; "" where the lease was released."""


def new_identity(rng: Rng) -> str:
    """A name no other process has: `HOST_<random>`, as upstream's `hostname_uuid`."""
    return f"{socket.gethostname()}_{rng.getrandbits(64):016x}"


class LeadershipLost(MinikubeError):
    """The lease is another's, or was in between."""


class LeaderElector:
    """`acquire`, then `hold` until it is lost, then start again; or `release`. One candidate for one lease.

    `on_held(may_act)` is called when a holder must pause, and when it may act again."""

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
        """Who holds the lease as last seen; "" where nobody does or it was not seen yet."""
        return self.candidate.seen.holder

    def may_act(self) -> bool:
        """False from the moment another candidate may have taken over, whether or not this one has noticed."""
        return self.candidate.may_act(self._clock.monotonic_s())

    async def acquire(self) -> None:
        """Returns when this candidate leads; tries every 2 to 4.4 s by default."""
        while not await self.attempt():
            stretch = 1.0 + self._rng.random() * JITTER_FACTOR
            await self._clock.sleep(self.candidate.timing.retry_period_s * stretch)

    async def look(self) -> None:
        """Reads the lease, so that `leader` is known; a failure leaves it as it was."""
        try:
            found = await self._asked(self.lock.get())
        except MinikubeError as error:
            logger.debug("lease %s: %s", self.lock, error)
            return
        if found is not None:
            self.saw(found)
        self._report()

    async def hold(self) -> None:
        """Renews the lease; returns never. From when `may_act` has become False it goes on only with the lease as it
        left it. Raises: LeadershipLost."""
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
        """Gives the lease up, if it is held; a failure is left to run out. All that it guarded must have ended.

        Also where it was not renewed in time: the write is refused if another has taken the lease meanwhile."""
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
        """One try to take the lease or to renew it; with `only`, if it is still the same holding. False where it is
        another's, or the API did not do it."""
        try:
            done = await self._try(only)
        except (StatusError, Unavailable, OutcomeUnknown) as error:
            # Whether a lost write was done shows at the next try, which reads the lease first.
            # Losing the race to another candidate is normal; any other error is logged once.
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
        """Told what the lease says by somebody who read it; whether it changed."""
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
        """Raises: LeadershipLost where the lease is another's, or was, or with `only` is gone."""
        done = await self.attempt(only)
        candidate = self.candidate
        another = self.leader not in ("", candidate.identity)
        if not done and (another or (only is not None and not _same_holding(candidate.seen, only))):
            why = f"was taken by {self.leader}" if another else "was given up by another, or deleted"
            raise LeadershipLost(f"the lease {self.lock} {why}")

    async def _try(self, only: LeaseRecord | None) -> bool:
        candidate, clock = self.candidate, self._clock
        if candidate.holds and candidate.is_valid(clock.monotonic_s()) and self.lock.lease is not None:
            # Nobody else writes a lease that is held: most renewals need not read it first.
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
        """Raises: OutcomeUnknown where it takes too long; what `request` raises."""
        duration_s = self.candidate.timing.request_s
        try:
            return await run_until(self._clock, self._clock.monotonic_s() + duration_s, request)
        except TimeoutError:
            raise OutcomeUnknown(f"no answer within {duration_s:g} s") from None


def _same_holding(record: LeaseRecord, before: LeaseRecord) -> bool:
    """Whether nobody else held the lease in between."""
    fields = (record.holder, record.acquire_time, record.transitions)
    return fields == (before.holder, before.acquire_time, before.transitions)
