"""One machine of a simulated cluster: its disk, its clock, and the member's process on it, if one runs.

The process is the real `Replica`, driven as a store member drives it, but by the steps of virtual time: turns, syncs
that take their time, ticks of this machine's own clock, leases, snapshots, promotions. Nothing of asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from minikube_py.env import Rng
from minikube_py.errors import Corruption, InvalidRequest, MinikubeError, RequestTooLarge, Unavailable
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Command, LeaseResult, LeaseRevoke
from minikube_py.raft.message import Message
from minikube_py.sim.disk import SimDisk
from minikube_py.sim.indexing import build_some
from minikube_py.sim.steps import Act, Steps
from minikube_py.store.bootstrap import Answer, Enter, Form, Initial, Intent, Join, Refuse, decide, view_of
from minikube_py.store.identity import LogLost, has_log, own_identity
from minikube_py.store.lessor import Lessor
from minikube_py.store.log_files import LogFiles
from minikube_py.store.membership import ChangeKind, Member, MemberChange
from minikube_py.store.replica import Bootstrap, Failed, Replica, ReplicaConfig, Reply

TICK_US: Final = 50_000
TURN_US: Final = (20, 150)
SYNC_US: Final = (150, 900)
SLICE_US: Final = 1_000
RESUME_US: Final = 400
ASK_US: Final = 40_000
SEGMENT_BYTES: Final = 20 << 10
RECOVERY_US: Final = 2_000
CONFIG: Final = ReplicaConfig(
    tail_entries_max=40, tail_bytes_max=12 << 10, snapshot_log_bytes=24 << 10, log_bytes_max=64 << 10
)


class PowerLost(BaseException):
    """The power of a machine went, with the operation that its disk was doing. No process sees that coming."""


class MachineClock:
    """Seconds as this machine counts them, `rate` a second."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._since_us = 0
        self._since_s = 1000.0
        self.rate = 1.0

    def monotonic_s(self) -> float:
        return self._since_s + (self._steps.now_us - self._since_us) * self.rate / 1e6

    def wall_s(self) -> float:
        return self.monotonic_s()

    async def sleep(self, duration_s: float) -> None:
        raise NotImplementedError("nothing sleeps here")

    def drift(self, rate: float) -> None:
        self._since_s, self._since_us = self.monotonic_s(), self._steps.now_us
        self.rate = rate


class Surroundings(Protocol):
    """What a place asks of its cluster."""

    def send(self, place: Place, messages: Sequence[Message]) -> None: ...

    def ask(self, place: Place) -> None:
        """Asks the other places who they are; the answers come into `answers`."""

    def ask_to_join(self, place: Place, leader: Member, change: MemberChange) -> None: ...

    def gone(self, place: Place, *, silently: bool) -> None:
        """The process has ended; `silently`: nobody is told."""

    def stepped(self, place: Place) -> None:
        """Something happened to the member at this place."""

    def refused(self, place: Place, error: MinikubeError) -> None:
        """The member does not start with what is on its disk, for good."""

    def failed(self, place: Place, why: str) -> None:
        """The member is about to end itself."""


@dataclass(slots=True)
class Counts:
    """What a place has been through."""

    starts: int = 0
    syncs: int = 0
    snapshots: int = 0
    power_losses: int = 0
    failures: int = 0
    proposals: int = 0


class Place:
    """`replica` None: no process runs, or it is still finding out who it is. `life` numbers the processes, so that what
    was meant for one does not reach the next."""

    def __init__(self, number: int, steps: Steps, rng: Rng, around: Surroundings, initial: Initial) -> None:
        self.number = number
        self.name = f"m{number}"
        self.steps = steps
        self.rng = rng
        self.around = around
        self.initial = initial
        self.disk = self._fit(SimDisk(Rng(rng.getrandbits(32))))
        self.clock = MachineClock(steps)
        self.replica: Replica | None = None
        self.last: Replica | None = None
        """The latest one that ran here, to be looked at."""
        self.lost = False
        """What that one held is gone."""
        self.life = 0
        self.running = False
        self.paused = False
        self.rejoin = False
        self.member_id = 0
        self.config = CONFIG
        self.sync_us = SYNC_US
        self.tick_us = TICK_US
        self.sync_more_us = 0
        self.answers: dict[str, Answer] = {}
        self.at_next_sync: Callable[[], None] | None = None
        """To be called while the next sync of this process is under way."""
        self.counts = Counts()
        self.lessor = Lessor(self.clock)
        self._led = 0
        self._turn_due = False
        self._syncing_life = 0
        self._house: Iterator[Any] | None = None
        self._progressed = 0
        self._inbox: list[tuple[Act, tuple[Any, ...]]] = []

    @property
    def address(self) -> str:
        return f"{self.name}:1"

    @property
    def up(self) -> bool:
        """A member serves here."""
        return self.replica is not None

    def _fit(self, disk: SimDisk) -> SimDisk:
        disk.used_by(_power_lost, _nothing)
        return disk

    # -- life and death ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The process begins: with its log, or by finding out who there is."""
        if self.running:
            return
        self.running = True
        self.life += 1
        self.counts.starts += 1
        self.answers = {}
        self._turn_due = False
        self._house = None
        self.at_next_sync = None
        self.steps.tell(f"{self.name} starts")
        self.guarded(self._begin)

    def _begin(self) -> None:
        if not has_log(self.disk):
            self.member_id = own_identity(self.disk, self.rng, rejoin=self.rejoin).id
            self._discover(self.life)
        else:
            self._open(None)

    def _open(self, bootstrap: Bootstrap | None) -> None:
        replica = Replica(LogFiles(self.disk, self.rng, SEGMENT_BYTES), Rng(self.rng.getrandbits(64)), self.config)
        replica.open(bootstrap)
        replica.lease_listener = self._lease_changed
        self.replica = self.last = replica
        self.lost = False
        self.member_id = replica.member_id
        self.rejoin = False
        self.lessor = Lessor(self.clock)
        self._led = 0
        self._progressed = replica.state.revision
        self.steps.tell(f"{self.name} is member {replica.member_id:x}, at entry {replica.raft.log.applied}")
        self.around.stepped(self)
        self.turn_soon()
        self.steps.after(self._tick_us(), self._tick, self.life)

    def end(self, *, power: bool = False, silently: bool = False) -> None:
        """The process ends here and now; with `power`, so does what its disk had not made durable."""
        self.disk.lose()
        if power:
            self.counts.power_losses += 1
            self.disk = self._fit(self.disk.crash(self.rng))
        else:
            self.disk = self._fit(self.disk.killed())
        was_running = self.running
        self.running = self.paused = False
        self.replica = None
        self.life += 1
        self._inbox.clear()
        if was_running:
            self.steps.tell(f"{self.name} {'loses its power' if power else 'ends'}")
            self.around.gone(self, silently=silently)

    def wipe(self) -> None:
        """A new, empty disk. No process may run."""
        assert not self.running
        self.disk = self._fit(SimDisk(Rng(self.rng.getrandbits(32))))
        self.lost = True

    def pause(self) -> None:
        self.paused = self.running

    def resume(self) -> None:
        """What came meanwhile waits in a socket for each sender: what one sent stays in order, and that is all."""
        self.paused = False
        inbox, self._inbox = self._inbox, []
        latest_us: dict[int, int] = {}
        for act, arguments in inbox:
            delay_us = self.rng.randint(1, RESUME_US)
            if isinstance(arguments[0] if arguments else None, Message):
                sender = arguments[0].sender
                delay_us = latest_us[sender] = max(delay_us, latest_us.get(sender, 0))
            self.steps.after(delay_us, self.do, self.life, act, *arguments)

    def do(self, life: int, act: Act, *arguments: Any) -> None:
        """Lets the process of that life do something; when it is resumed, if it stands still."""
        if life != self.life or not self.running:
            return
        if self.paused:
            if len(self._inbox) < 500:
                self._inbox.append((act, arguments))
            return
        self.guarded(act, *arguments)

    def guarded(self, act: Act, *arguments: Any) -> None:
        """What the process does ends with the power, if that goes meanwhile; or with what its disk says."""
        try:
            act(*arguments)
        except PowerLost:
            self.end(power=True, silently=self.rng.random() < 0.5)
        except (Corruption, LogLost) as error:
            self.steps.tell(f"{self.name} does not start: {error}")
            self.around.refused(self, error)
            self.end()
        except (Failed, OSError) as error:
            self._failed(str(error))

    def _failed(self, why: str) -> None:
        """As the real process: it ends itself, and whoever started it starts it again."""
        self.counts.failures += 1
        self.steps.tell(f"{self.name} fails: {why}")
        self.around.failed(self, why)
        if self.replica is not None:
            self.replica.fail(why)
        self.end()

    # -- who there is --------------------------------------------------------------------------------------------------

    def intent(self) -> Intent:
        me = Member(self.member_id, self.name, self.address, self.address)  # type: ignore[arg-type]
        initial = self.initial
        if self.name not in dict(initial):
            initial = tuple(sorted((*initial, (self.name, self.address))))
        return Intent(me, initial, self.rejoin)

    def answer(self) -> Answer | None:
        """What this place says when it is asked who it is; None: nothing runs here."""
        if not self.running or self.paused:
            return None
        intent = self.intent()
        replica = self.replica
        if replica is None:
            return Answer(intent.me, initial=intent.initial, seen=view_of(intent, self.answers))
        raft = replica.raft
        return Answer(intent.me, replica.cluster_id, replica.membership, raft.leader, raft.log.applied)

    def _discover(self, life: int) -> None:
        if life != self.life or self.replica is not None:
            return
        decision = decide(self.intent(), self.answers)
        if isinstance(decision, Form):
            self._open(Bootstrap(decision.cluster_id, self.member_id, decision.members))  # type: ignore[arg-type]
            return
        if isinstance(decision, Enter):
            self._open(Bootstrap(decision.cluster_id, self.member_id))  # type: ignore[arg-type]
            return
        if isinstance(decision, Refuse):
            self.steps.tell(f"{self.name} may not start: {decision.why}")
            self.around.refused(self, MinikubeError(decision.why))
            return
        if isinstance(decision, Join):
            self.around.ask_to_join(self, decision.leader, decision.change)
        self.around.ask(self)
        self.steps.after(ASK_US + self.rng.randint(0, ASK_US), self.do, life, self._discover, life)

    # -- the loop around the replica -----------------------------------------------------------------------------------

    def turn_soon(self) -> None:
        """A turn is due: all that comes in until then is part of it."""
        if not self._turn_due:
            self._turn_due = True
            self.steps.after(self.rng.randint(*TURN_US), self.do, self.life, self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        replica = self.replica
        if replica is None:
            return
        while (turn := replica.turn()) is not None:
            if turn.messages:
                self.around.send(self, turn.messages)
            if turn.sync is not None:
                self.counts.syncs += 1
                delay_us = self._sync_takes_us()
                self.steps.after(delay_us, self.do, self.life, self._synced, turn.sync, self.disk.sequence)
                if self.at_next_sync is not None:
                    self.steps.after(self.rng.randrange(delay_us), self.at_next_sync)
                    self.at_next_sync = None
        self._follow()
        if replica.hub.behind:
            self.steps.after(SLICE_US // 2, self.do, self.life, self._catch_up)

    def _sync_takes_us(self) -> int:
        return self.rng.randint(*self.sync_us) + self.sync_more_us

    def _synced(self, sync: Callable[[], None], horizon: int) -> None:
        replica = self.replica
        assert replica is not None
        self.disk.sync_as_of(horizon, sync)
        self.steps.tell(f"{self.name} has synced")
        after = replica.synced()
        if after:
            self.around.send(self, after)
        self._turn()

    def receive(self, message: Message) -> None:
        if self.replica is not None and message.to == self.member_id:
            self.replica.receive(message)
            self.turn_soon()

    def _catch_up(self) -> None:
        if self.replica is not None and self.replica.hub.catch_up(40):
            self.steps.after(SLICE_US, self.do, self.life, self._catch_up)

    def _follow(self) -> None:
        """Leases are kept by whoever leads, each anew in full when leadership begins."""
        replica = self.replica
        if replica is None:
            return
        if replica.leading != self._led:
            self._led = replica.leading
            if self._led:
                self.steps.tell(f"{self.name} leads term {self._led}")
                self.lessor.restart(replica.state.leases())
        self.around.stepped(self)

    def _lease_changed(self, lease: LeaseResult) -> None:
        if lease.ttl_s:
            self.lessor.granted(lease.id, lease.ttl_s)
        else:
            self.lessor.revoked(lease.id)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _tick_us(self) -> int:
        return round(self.tick_us / self.clock.rate)

    def _tick(self, life: int) -> None:
        if life != self.life or self.replica is None:
            return
        self.steps.after(self._tick_us(), self._tick, life)
        if not self.paused:
            self.guarded(self._ticked)

    def _ticked(self) -> None:
        replica = self.replica
        assert replica is not None
        replica.tick()
        self._follow()
        state = replica.state
        state.trim(20)
        if build_some(state):
            replica.hub.refresh()
        if state.revision != self._progressed:
            self._progressed = state.revision
            replica.hub.progress()
        if replica.leading:
            for lease_id in self.lessor.expired():
                self.propose_own(LeaseRevoke(lease_id))
            self._promote(replica)
        self._keep_house()
        self.turn_soon()

    def _promote(self, replica: Replica) -> None:
        """A learner that is to vote does once it has what this leader has."""
        for member in replica.membership.members:
            if not (member.learner and member.auto_promote):
                continue
            status = replica.raft.status()
            peer = next((peer for peer in status.peers if peer.id == member.id), None)
            if peer is not None and peer.match >= status.commit:
                try:
                    replica.propose_change(MemberChange(ChangeKind.PROMOTE, id=member.id), _ignore)
                except (Unavailable, InvalidRequest):
                    pass
            return

    def _keep_house(self) -> None:
        """Snapshots and the next segment's file, a slice at a time."""
        replica = self.replica
        if replica is None or self._house is not None:
            return
        if replica.files.wants_spare:
            self._house = replica.files.spare_step()
        elif replica.snapshot_due:
            self.counts.snapshots += 1
            self._house = replica.take_snapshot()
        if self._house is not None:
            self.steps.after(SLICE_US, self.do, self.life, self._next_slice)

    def take_snapshot(self) -> None:
        """One that nothing made due."""
        if self.replica is not None and self._house is None and self.replica.raft.log.applied:
            self.counts.snapshots += 1
            self._house = self.replica.take_snapshot()
            self.steps.after(SLICE_US, self.do, self.life, self._next_slice)

    def _next_slice(self) -> None:
        assert self._house is not None
        try:
            sync = next(self._house)
        except StopIteration:
            self._house = None
            return
        if sync is None:
            self.steps.after(SLICE_US, self.do, self.life, self._next_slice)
        else:
            delay_us = self._sync_takes_us()
            self.steps.after(delay_us, self.do, self.life, self._sync_slice, sync, self.disk.sequence)

    def _sync_slice(self, sync: Callable[[], None], horizon: int) -> None:
        self.disk.sync_as_of(horizon, sync)
        self._next_slice()

    # -- what it is asked ----------------------------------------------------------------------------------------------

    def propose(self, command: Command, reply: Reply) -> None:
        """Raises: RequestTooLarge, Unavailable."""
        if self.replica is None:
            raise Unavailable("this member has not begun")
        self.counts.proposals += 1
        try:
            self.replica.propose(command, pack(command), reply)
        finally:
            self.turn_soon()

    def propose_own(self, command: Command) -> None:
        try:
            self.propose(command, _ignore)
        except (Unavailable, RequestTooLarge):
            pass


def _ignore(result: Any, error: MinikubeError | None) -> None:
    pass


def _nothing() -> None:
    pass


def _power_lost(text: str) -> BaseException:
    return PowerLost(text)
