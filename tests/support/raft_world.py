"""Raft members on simulated disks and links, stepped by hand: nothing happens by itself.

Each member has a driver that does exactly what `Ready` requires: writes wait in order until they are synced, dependent
messages are sent then, and a crash keeps a prefix of the waiting writes. Its observations go to `Laws`."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from raft_laws import Laws

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import Entry, HardState, Message, MessageType, SnapshotMeta
from minikube_py.raft.node import Raft, RaftConfig
from minikube_py.raft.ready import ProposalDropped, ReadState, Ready, UnknownPeer

NOTHING = Configuration(frozenset())
WRITES_MAX = 3
"""Limit of writes waiting for a slow disk."""


class FixedRng(random.Random):
    """Always draws the same: by default the least, so that timeouts are exactly as configured."""

    value = 0

    def _randbelow(self, n: int) -> int:
        return min(self.value, n - 1)

    def random(self) -> float:
        return 0.0


class Snapshot(NamedTuple):
    """The state is the list of applied entries: equal prefixes are equal states."""

    meta: SnapshotMeta
    state: tuple[Entry, ...]


class Write(NamedTuple):
    """The content of one Ready to make durable, in disk order, and the actions that follow."""

    records: tuple[HardState | Entry | Snapshot, ...]
    messages: tuple[Message, ...]
    term: int
    index: int


class Envelope(NamedTuple):
    """A message in flight. `snapshot` is the data of a SNAPSHOT message."""

    message: Message
    snapshot: Snapshot | None = None


class Disk:
    """Durable state: a snapshot, the entries after it, the hard state. Then the writes that are not durable."""

    def __init__(self, snapshot: Snapshot, entries: Iterable[Entry] = (), hard_state: HardState | None = None) -> None:
        self.snapshot = snapshot
        self.entries = list(entries)
        self.hard_state = hard_state or HardState(snapshot.meta.term, 0, snapshot.meta.index)
        self.pending: deque[Write] = deque()

    @property
    def last_index(self) -> int:
        return self.snapshot.meta.index + len(self.entries)

    def term(self, index: int) -> int | None:
        """None if there is no such entry; entries below the snapshot count as the snapshot's."""
        first = self.snapshot.meta.index
        if first < index <= self.last_index:
            return self.entries[index - first - 1].term
        return self.snapshot.meta.term if index == first else None

    def holds(self, index: int, term: int) -> bool:
        return index < self.snapshot.meta.index or self.term(index) == term

    def put(self, record: HardState | Entry | Snapshot) -> None:
        if isinstance(record, HardState):
            self.hard_state = record
        elif isinstance(record, Snapshot):
            self.install(record)
        else:
            position = record.index - self.snapshot.meta.index - 1
            assert 0 <= position <= len(self.entries), f"entry {record.index} leaves a hole after {self.last_index}"
            self.entries[position:] = [record]

    def install(self, snapshot: Snapshot) -> None:
        """One from another member: a new log begins after it."""
        self.snapshot, self.entries = snapshot, []

    def take(self, snapshot: Snapshot) -> None:
        """Its own: the entries below it are removed."""
        self.entries = self.entries[snapshot.meta.index - self.snapshot.meta.index :]
        self.snapshot = snapshot


@dataclass(slots=True, eq=False)
class Member:
    """One member and its driver's state. `raft` None: it is down."""

    config: RaftConfig
    disk: Disk
    raft: Raft | None = None
    state: list[Entry] = field(default_factory=list)
    applied: int = 0
    reads: list[ReadState] = field(default_factory=list)
    lives: int = 0

    @property
    def id(self) -> int:
        return self.config.id

    @property
    def up(self) -> Raft:
        assert self.raft is not None, f"node {self.id} is down"
        return self.raft


class Listener:
    """Events for a transcript. Each method is called before its effect on others."""

    def sent(self, member: Member, message: Message, *, after: bool) -> None: ...

    def handed(self, member: Member, ready: Ready) -> None: ...


class World:
    """`links` holds messages in flight, oldest first; a message over a cut link is lost when sent. The disks of `slow`
    members sync only on request."""

    def __init__(self, *, seed: int | None = None, listener: Listener | None = None) -> None:
        self.members: dict[int, Member] = {}
        self.links: list[Envelope] = []
        self.cut: set[tuple[int, int]] = set()
        self.slow: set[int] = set()
        self._incoming: dict[tuple[int, int, int], Snapshot] = {}
        self.seed = seed
        self.listener = listener or Listener()
        self.laws = Laws(self)

    # Members

    def add(
        self,
        id: int,
        configuration: Configuration = NOTHING,
        *,
        index: int = 0,
        term: int = 0,
        entries: Iterable[Entry] = (),
        hard_state: HardState | None = None,
        **knobs: object,
    ) -> Member:
        """A member with `entries` after a snapshot at `index`, where `configuration` is in force."""
        snapshot = Snapshot(SnapshotMeta(index, term, configuration), ())
        member = Member(RaftConfig(id=id, **knobs), Disk(snapshot, entries, hard_state))
        self.members[id] = member
        self.laws.born(member)
        self.restart(id)
        return member

    def __getitem__(self, id: int) -> Raft:
        return self.members[id].up

    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.raft is not None]

    def crash(self, id: int, kept: int = 0) -> None:
        """Keeps the first `kept` unsynced records."""
        member = self.members[id]
        pending = [record for write in member.disk.pending for record in write.records]
        member.disk.pending.clear()
        for record in pending[:kept]:
            self.laws.durable(member, record)
            member.disk.put(record)
        member.raft = None

    def unsynced(self, id: int) -> int:
        return sum(len(write.records) for write in self.members[id].disk.pending)

    def restart(self, id: int) -> None:
        member = self.members[id]
        assert member.raft is None
        member.lives += 1
        disk, meta = member.disk, member.disk.snapshot.meta
        if self.seed is None:
            rng: random.Random = FixedRng(0)
        else:
            rng = random.Random(f"{self.seed} {id} {member.lives}")
        log = RaftLog(meta.index, meta.term, list(disk.entries))
        member.state, member.applied, member.reads = list(disk.snapshot.state), meta.index, []
        member.raft = Raft(member.config, log, disk.hard_state, meta.configuration, rng)
        if meta.index:
            member.raft.snapshot_taken(meta)
        self.laws.started(member)

    # The driver

    def call(self, id: int, what: Callable[[Raft], object]) -> None:
        """Any method of Raft that only changes it; then checks the invariants."""
        member = self.members[id]
        what(member.up)
        self.laws.observe(member)

    def turn(self, id: int, *, can_write: bool = True) -> Ready:
        """Handles one Ready up to the write, which then waits for `sync`."""
        member = self.members[id]
        raft = member.up
        self.laws.evidence.time += 1
        ready = raft.ready(can_write)
        self.laws.handed(member, ready, can_write=can_write)
        self.listener.handed(member, ready)
        for message in ready.messages:
            self._send(member, message, after=False)
        installed: tuple[Snapshot, ...] = ()
        if ready.snapshot is not None:
            installed = (self._incoming[id, ready.snapshot.index, ready.snapshot.term],)
            member.state, member.applied = list(installed[0].state), ready.snapshot.index
        if ready.must_sync:
            hard_state = (ready.hard_state,) if ready.hard_state is not None else ()
            index = ready.entries[-1].index if ready.entries else ready.snapshot.index if ready.snapshot else 0
            records = (*installed, *hard_state, *ready.entries)
            member.disk.pending.append(Write(records, tuple(ready.messages_after), raft.term, index))
        self.laws.observe(member)
        if ready.committed:
            for entry in ready.committed:
                self.laws.applying(member, entry)
                member.state.append(entry)
                member.applied = entry.index
            raft.applied(member.applied)
            self.laws.applied(member)
        for state in ready.read_states:
            self.laws.answered(member, state)
            member.reads.append(state)
        return ready

    def sync(self, id: int) -> Write:
        """Makes the oldest write durable, and sends what waited for it."""
        member = self.members[id]
        write = member.disk.pending.popleft()
        for record in write.records:
            self.laws.durable(member, record)
            member.disk.put(record)
        for message in write.messages:
            self._send(member, message, after=True)
        member.up.persisted(write.term, write.index)
        self.laws.observe(member)
        return write

    def work(self, id: int) -> None:
        """Turns and syncs until there is nothing to do; with a slow disk one turn without a sync."""
        member = self.members[id]
        if id in self.slow:
            self.turn(id, can_write=len(member.disk.pending) < WRITES_MAX)
            return
        for _ in range(1000):
            ready = self.turn(id)
            if not member.disk.pending and is_idle(ready):
                return
            while member.disk.pending:
                self.sync(id)
        raise AssertionError(f"node {id} is never done")

    def take_snapshot(self, id: int, index: int | None = None, *, compact: int | None = None) -> SnapshotMeta:
        """A snapshot of the applied state, durable at once; then the log may be compacted up to `compact`."""
        member = self.members[id]
        raft = member.up
        index = member.applied if index is None else index
        configuration = self.laws.configuration_at(index)
        first = member.disk.snapshot.meta.index
        term = raft.log.term(index)
        meta = SnapshotMeta(index, term, configuration)
        base = len(member.state) - (member.applied - index)
        if index > first:
            member.disk.take(Snapshot(meta, tuple(member.state[:base])))
            raft.snapshot_taken(meta)
        raft.compact(index if compact is None else compact)
        self.laws.observe(member)
        return meta

    def give_wanted_snapshots(self) -> None:
        """As drivers do when a peer needs a newer snapshot."""
        for member in self.up():
            if member.up.snapshot_wanted and member.disk.last_index >= member.applied > member.disk.snapshot.meta.index:
                self.take_snapshot(member.id, compact=member.up.log.offset)

    def read_index(self, id: int, context: bytes) -> None:
        self.laws.asked(self.members[id], context)
        self.call(id, lambda raft: raft.read_index(context))

    # The links

    def _send(self, member: Member, message: Message, *, after: bool) -> None:
        self.laws.sending(member, message)
        self.listener.sent(member, message, after=after)
        if (message.sender, message.to) in self.cut or message.to not in self.members:
            self._lost(message)
            return
        snapshot = None
        if message.type == MessageType.SNAPSHOT:
            snapshot = member.disk.snapshot
            assert message.snapshot == snapshot.meta, f"not the newest snapshot: {message.snapshot}"
        self.links.append(Envelope(message, snapshot))

    def _lost(self, message: Message) -> None:
        """A lost snapshot is always detected by its stream; other losses only if a test reports them."""
        if message.type == MessageType.SNAPSHOT:
            self._ended(message, whole=False)

    def _ended(self, message: Message, *, whole: bool) -> None:
        sender = self.members[message.sender]
        if sender.raft is not None:
            self.call(message.sender, lambda raft: raft.report(message.to, True, snapshot=whole))

    def deliver(self, position: int = 0, *, keep: bool = False) -> Message:
        """Delivers the message at `position`; `keep`: a duplicate stays in flight."""
        envelope = self.links[position] if keep else self.links.pop(position)
        message = envelope.message
        target = self.members.get(message.to)
        if target is None or target.raft is None:
            self._lost(message)
            return message
        if envelope.snapshot is not None:
            self._incoming[message.to, message.snapshot.index, message.snapshot.term] = envelope.snapshot
        evidence = self.laws.evidence
        evidence.delivering(target, message)
        try:
            self.call(message.to, lambda raft: raft.step(message))
        except UnknownPeer:
            self.laws.observe(target)
        evidence.delivered(target, message)
        if envelope.snapshot is not None and not keep:
            self._ended(message, whole=True)
        return message

    def drop(self, position: int = 0) -> Message:
        envelope = self.links.pop(position)
        self._lost(envelope.message)
        return envelope.message

    def partition(self, *groups: Iterable[int]) -> None:
        """Only members of the same group are connected; messages between groups are lost."""
        group_of = {id: number for number, group in enumerate(groups) for id in group}
        ids = list(self.members)
        self.cut = {(a, b) for a in ids for b in ids if a != b and group_of.get(a, -a) != group_of.get(b, -b)}
        self._lose_cut()

    def cut_off(self, sender: int, to: int) -> None:
        self.cut.add((sender, to))
        self._lose_cut()

    def _lose_cut(self) -> None:
        lost = [envelope for envelope in self.links if (envelope.message.sender, envelope.message.to) in self.cut]
        self.links = [envelope for envelope in self.links if envelope not in lost]
        for envelope in lost:
            self._lost(envelope.message)

    def heal(self) -> None:
        self.cut = set()

    # All at once

    def settle(self, rounds_max: int = 200, only: Callable[[Message], bool] | None = None) -> None:
        """Works and delivers until nothing is left to do, in order; `only`: messages that pass, the rest is lost."""
        for _ in range(rounds_max):
            busy = False
            for member in self.up():
                ready = self.turn(member.id, can_write=len(member.disk.pending) < WRITES_MAX)
                busy = busy or not is_idle(ready)
                while member.disk.pending and member.id not in self.slow:
                    busy = True
                    self.sync(member.id)
            batch, count = len(self.links), 0
            while count < batch and self.links:
                count += 1
                if only is not None and not only(self.links[0].message):
                    self.drop()
                else:
                    self.deliver()
            if not busy and not batch:
                return
        raise AssertionError(f"not quiet after {rounds_max} rounds")

    def tick(self, id: int, count: int = 1) -> None:
        for _ in range(count):
            self.call(id, lambda raft: raft.tick())
            self.laws.evidence.ticked(self.members[id])

    def leader(self) -> Member | None:
        """Of those that believe to lead, the one with the highest term."""
        leaders = [member for member in self.up() if member.up.role == "LEADER"]
        return max(leaders, key=lambda member: member.up.term, default=None)

    def campaign(self, id: int) -> None:
        self.call(id, lambda raft: raft.step(Message(MessageType.HUP, id, id)))

    def elect(self, id: int) -> None:
        """Makes `id` the leader, by an election among all running members."""
        self.campaign(id)
        self.settle()
        assert self[id].role == "LEADER", f"node {id} is {self[id].role}"

    def propose(self, id: int, data: bytes) -> int | None:
        """None if it was refused."""
        try:
            index = self[id].propose(data)
        except ProposalDropped:
            return None
        self.laws.observe(self.members[id])
        return index


def is_idle(ready: Ready) -> bool:
    return not (ready.must_sync or ready.messages or ready.committed or ready.read_states)


def entries_of(raft: Raft) -> list[Entry]:
    return list(raft.log.slice(raft.log.offset, raft.log.last_index))


def cluster(size: int, *, seed: int | None = None, **knobs: object) -> World:
    """`size` voters with empty logs, configured from the start."""
    world = World(seed=seed)
    voters = Configuration(frozenset(range(1, size + 1)))
    for id in range(1, size + 1):
        world.add(id, voters, **knobs)
    return world


def with_config(config: RaftConfig, **knobs: object) -> RaftConfig:
    return replace(config, **knobs)
