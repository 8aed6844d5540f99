"""A follower is offered snapshots without end, whatever it is doing: receiving another, verifying it, putting it in
force on a disk that is slow, that fails, or that loses its power at any operation; its process ends at any operation,
too, and so does any start after that. What it acknowledged to its leader it has after every restart; and a snapshot
that Raft accepted comes into force whatever else is offered."""

from __future__ import annotations

import contextlib
import copy
import random
from functools import cache

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import records
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Put
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.sim.disk import SimDisk
from minikube_py.store.applying import Failed
from minikube_py.store.folder import Steps
from minikube_py.store.identity import Identity, load_identity
from minikube_py.store.log_files import LogFiles
from minikube_py.store.membership import Member, Membership
from minikube_py.store.replica import Bootstrap, Replica, ReplicaConfig
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, TransferRefused, head_of
from minikube_py.wal.snapshot import SnapshotWriter

CLUSTER, OWN, LEADER, THIRD = 5, NodeId(1), NodeId(2), NodeId(3)
MEMBERS = Membership.of(tuple(Member(NodeId(id), f"store-{id}", f"h{id}:1", f"h{id}:2") for id in (1, 2, 3)))
TERM = Term(2)
LAST = 60
NEWEST = 70
COUNTS = st.integers(0, 12)
STARTS = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=2)


def command(index: int) -> Put:
    return Put(b"/%d" % (index % 7), b"%d" % index)


@cache
def state_at(index: int) -> StateMachine:
    """Entry 1 says who the members are; each one after it is a command."""
    state = StateMachine()
    for each in range(2, index + 1):
        state.apply(command(each))
    return state


@cache
def written(member: int, index: int) -> tuple[SnapshotOffer, bytes]:
    """As `member` wrote it: each writes another file of the same state."""
    meta = SnapshotMeta(LogIndex(index), TERM, MEMBERS.configuration())
    writer = SnapshotWriter(head_of(CLUSTER, member, meta, MEMBERS.to_plain()))
    chunks = [writer.chunk(each) for each in records(state_at(index)) if each]
    data = b"".join([writer.head_bytes, *chunks, writer.end()])
    return SnapshotOffer(meta, writer.size_bytes, writer.sha256()), data


class Offers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(0)
        self.disk = SimDisk(random.Random(1))
        self.acknowledged = 0
        self.troubled = False
        self.cuts: list[tuple[int, bool]] = []
        """Of the starts to come, the next one last: at which operation it ends, and whether with the power."""
        self.by_power = True

    @initialize(seed=st.integers(0, 1 << 16), segment_kib=st.sampled_from((8, 64)))
    def begin(self, seed: int, segment_kib: int) -> None:
        self.rng.seed(seed)
        self.segment_bytes = segment_kib << 10
        self.start(Bootstrap(CLUSTER, OWN, MEMBERS.members))

    def start(self, bootstrap: Bootstrap | None = None) -> None:
        files = LogFiles(self.disk, random.Random(self.rng.getrandbits(32)), self.segment_bytes)
        self.replica = Replica(files, self.rng, ReplicaConfig(tail_entries_max=3))
        self.replica.open(bootstrap)
        self.sync = None
        self.transfers: list[tuple[IncomingSnapshot, bytes, Steps]] = []
        self.taking: Steps | None = None
        self.removing: Steps | None = None
        log = self.replica.raft.log
        assert log.last_index >= self.acknowledged, "what was acknowledged to the leader is gone"
        self.check()

    def check(self) -> None:
        assert self.replica.state.hash() == state_at(max(1, self.replica.raft.log.applied)).hash()

    def restart(self, *, power: bool) -> None:
        """Until a start comes to its end."""
        while True:
            disk, power = self.disk, power or (self.by_power and not self.disk.powered)
            self.disk = disk.crash(self.rng) if power else disk.killed()
            disk.lose()
            self.troubled = bool(self.cuts)
            if self.cuts:
                operations, self.by_power = self.cuts.pop()
                self.disk.cut_after(operations)
            try:
                self.start()
                return
            except OSError as error:
                assert self.troubled and not self.disk.powered, error
                power = False

    def hears(self, messages) -> None:
        self.acknowledged = max([self.acknowledged, *(
            message.index for message in messages if message.type == MessageType.APPEND_REPLY and not message.reject
        )])  # fmt: skip

    def failed(self, error: Exception) -> None:
        """A member ends over its log's disk, and over nothing else."""
        assert self.troubled, f"ended though its disk works: {error}"
        self.restart(power=False)

    @rule()
    def work(self) -> None:
        """All turns; the sync that one of them begins is still to end."""
        try:
            while (turn := self.replica.turn()) is not None:
                self.hears(turn.messages)
                if turn.sync is not None:
                    assert self.sync is None
                    self.sync = turn.sync
        except Failed as error:
            self.failed(error)
        self.check()

    @precondition(lambda self: self.sync is not None)
    @rule()
    def sync_ends(self) -> None:
        sync, self.sync = self.sync, None
        try:
            sync()
            self.hears(self.replica.synced())
        except (OSError, Failed) as error:
            self.failed(error)

    @rule(index=st.integers(2, LAST), member=st.sampled_from((LEADER, THIRD)))
    def offer(self, index: int, member: int) -> None:
        """Also where it is known already, older, or the same again."""
        offer, data = written(member, index)
        try:
            incoming = self.replica.incoming_snapshot(offer)
        except TransferRefused:
            return
        except OSError as error:
            self.failed(error)
            return
        self.transfers.append((incoming, data, incoming.finish()))

    @precondition(lambda self: self.transfers)
    @rule(which=st.integers(0, 3), size_bytes=st.sampled_from((1, 100, 1 << 20)), steps=COUNTS)
    def transfer(self, which: int, size_bytes: int, steps: int) -> None:
        """Bytes come, or what came is verified, of whichever offer; the newest most of the time."""
        incoming, data, finishing = each = self.transfers[-1 - which % len(self.transfers)]
        try:
            if incoming.offset < len(data):
                if sync := incoming.write(incoming.offset, data[incoming.offset : incoming.offset + size_bytes]):
                    sync()
                return
            for _ in range(steps):
                if sync := next(finishing):
                    sync()
        except StopIteration:
            meta = incoming.offer.meta
            self.replica.receive(Message(MessageType.SNAPSHOT, LEADER, OWN, TERM, snapshot=meta))
        except TransferRefused:
            self.transfers.remove(each)
        except OSError as error:
            assert self.troubled, error
            self.transfers.remove(each)
            if not self.disk.powered:
                self.restart(power=False)

    @rule(before=st.integers(1, LAST), count=st.integers(0, 6))
    def append(self, before: int, count: int) -> None:
        entries = [Entry(TERM, LogIndex(before + 1 + i), pack(command(before + 1 + i))) for i in range(count)]
        log_term = TERM if before > 1 else Term(1)
        last = LogIndex(before + count)
        self.replica.receive(Message(
            MessageType.APPEND, LEADER, OWN, TERM, log_term, LogIndex(before), commit=last, entries=entries
        ))  # fmt: skip

    def ended(self, work: Steps, steps: int) -> bool:
        """Whether it came to its end within so many steps."""
        try:
            for _ in range(steps):
                if sync := next(work):
                    sync()
        except StopIteration:
            return True
        except OSError as error:
            self.failed(error)
        return False

    @rule(steps=COUNTS)
    def take_own(self, steps: int) -> None:
        """A snapshot of its own, while others come."""
        if self.taking is None:
            self.taking = self.replica.take_snapshot()
        if self.ended(self.taking, steps):
            self.taking = None

    @rule(steps=COUNTS)
    def tidy(self, steps: int) -> None:
        """Files that are not needed any more go, a step at a time, while others come."""
        if self.removing is None:
            self.removing = self.replica.files.upkeep()
        if self.ended(self.removing, steps):
            self.removing = None

    @rule(syncs=COUNTS)
    def sync_will_fail(self, syncs: int) -> None:
        self.troubled = True
        self.disk.fail_sync_after(syncs)

    @rule(operations=st.integers(1, 40), power=st.booleans(), starts=STARTS)
    def will_end(self, operations: int, power: bool, starts: list[tuple[int, bool]]) -> None:
        """At that operation, the process or the machine; and so do the next starts."""
        self.troubled = True
        self.by_power, self.cuts = power, starts
        self.disk.cut_after(operations)

    @rule(power=st.booleans(), starts=STARTS)
    def ends(self, power: bool, starts: list[tuple[int, bool]]) -> None:
        self.cuts = starts
        self.restart(power=power)

    @rule(index=st.integers(2, LAST), member=st.sampled_from((LEADER, THIRD)))
    def comes_whole(self, index: int, member: int) -> None:
        self.offer(index, member)
        for _ in range(3):
            if self.transfers:
                self.transfer(0, 1 << 20, 12)

    def teardown(self) -> None:
        """All is well, the disk is busy, offers go on; and the newest snapshot comes into force."""
        if not hasattr(self, "replica"):
            return
        self.cuts = []
        self.restart(power=False)
        self.disk.mend()
        self.work()
        if self.sync is not None:
            self.sync_ends()
        self.append(self.replica.raft.log.last_index, 1)
        self.work()
        assert self.sync is not None
        self.comes_whole(NEWEST, LEADER)
        while self.acknowledged < NEWEST:
            self.offer(LAST, THIRD)
            if self.sync is not None:
                self.sync_ends()
            self.offer(NEWEST - 1, LEADER)
            self.work()
        self.restart(power=True)
        assert self.replica.raft.log.applied >= NEWEST
        self.replica.close()


def test_what_is_in_force_stays_while_another_is_installed() -> None:
    """The removal that the first installation asked for comes when the second has no durable name yet."""
    offers = Offers()
    offers.begin(seed=0, segment_kib=8)
    for index in (20, 40):
        offers.append(1, 1)
        offers.comes_whole(index, LEADER)
        offers.work()
        assert offers.sync is not None
        if index == 20:
            while offers.sync is not None:
                offers.sync_ends()
                offers.work()
    assert offers.acknowledged == 20 and offers.replica.files.wants_upkeep
    offers.tidy(99)
    offers.restart(power=True)
    assert offers.replica.raft.log.applied >= 20


def test_what_came_before_a_failed_sync_comes_again() -> None:
    offers = Offers()
    offers.begin(seed=0, segment_kib=8)
    offer, data = written(LEADER, 20)
    incoming = offers.replica.incoming_snapshot(offer)
    incoming.write(0, data)
    offers.disk.fail_sync_after(0)
    with pytest.raises(OSError, match="could not sync"):
        for sync in incoming.finish():
            assert sync is not None
            sync()
    again = offers.replica.incoming_snapshot(offer)
    assert again is not incoming and again.offset == 0


def test_who_took_part_is_durable_when_a_member_opens() -> None:
    offers = Offers()
    offers.begin(seed=0, segment_kib=8)
    for seed in range(8):
        assert load_identity(offers.disk.crash(random.Random(seed))) == Identity(OWN, CLUSTER)


class Ended(Exception):
    """The process or its machine came to an end."""


class Noting(SimDisk):
    """Knows the operations before which a name was new and not durable: there an end can take what another needs."""

    def __init__(self) -> None:
        super().__init__()
        self.between: list[int] = []

    def step(self) -> bool:
        if self._pending_names and "identity" in self._durable_names:
            self.between.append(self.sequence + 1)
        return super().step()


class Life(Offers):
    """All that a member does with its files, once; it ends at the first operation that fails."""

    def failed(self, error: Exception) -> None:
        raise Ended from error

    def restart(self, *, power: bool) -> None:
        raise Ended

    def live(self, end_at: int = 0) -> None:
        self.disk = Noting()
        self.begin(seed=0, segment_kib=8)
        self.troubled = bool(end_at)
        if end_at:
            self.disk.cut_after(end_at - self.disk.sequence)
        with contextlib.suppress(Ended):
            for index in (20, 40):
                self.append(1, 1)
                self.comes_whole(index, LEADER)
                self.settle()
                self.tidy(99)
            for _ in range(3):
                self.append(self.replica.raft.log.last_index, 60)
                self.settle()
                self.take_own(99)
                self.tidy(99)

    def settle(self) -> None:
        self.work()
        while self.sync is not None:
            self.sync_ends()
            self.work()


def started(disk: SimDisk) -> int:
    """What is in the log after a start. Raises: OSError."""
    files = LogFiles(disk, random.Random(0), 8 << 10)
    replica = Replica(files, random.Random(1), ReplicaConfig(tail_entries_max=3))
    replica.open()
    assert replica.state.hash() == state_at(max(1, replica.raft.log.applied)).hash()
    replica.close()
    return replica.raft.log.last_index


def test_a_process_may_end_between_any_two_names_and_the_power_go_at_any_operation_of_the_next_start() -> None:
    whole = Life()
    whole.live()
    assert isinstance(whole.disk, Noting) and len(whole.disk.between) > 30
    for end_at in whole.disk.between:
        life = Life()
        life.live(end_at)
        for start_end_at in range(1, 16):
            disk = copy.deepcopy(life.disk).killed()
            disk.cut_after(start_end_at)
            with contextlib.suppress(OSError):
                started(disk)
            for seed in range(4):
                assert started(disk.crash(random.Random(seed))) >= life.acknowledged
            if disk.powered:
                break


Offers.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_what_raft_accepted_comes_into_force = Offers.TestCase
