"""A synchronous network of Raft members with their own disks: time and messages advance only on request.

    net = Net((1, 2, 3), seed=1, election_ticks=10)     voters 1, 2, 3; further keywords go to RaftConfig
    net = Net((1,), joining=(2, 3))                      2 and 3 run, but are not in the configuration yet
    net.elect(1)                  1 campaigns; then everything settles
    index = net.propose(1, b"x")  proposes to 1 and settles; `net[1].raft` is its Raft, for anything else
    net.settle()                  works and delivers until nothing is left; net.work(1), net.deliver() do one part each
    net.tick(5) / net.tick(5, 2)  passes time for all / for one, and settles after each tick
    net.cut(1, 2) net.isolate(3) net.heal()   links, both ways; net.cut_one_way(1, 2)
    net.drop = lambda message: ...             loses those for which it is true
    net.hold_disk(2) net.release_disk(2)       2's syncs complete only once released
    net.crash(2) net.restart(2)                loses unsynced data; restarts from synced data
    net.snapshot(1, keep=0)                    takes a snapshot of 1 and truncates its log to `keep` entries
    net.applied(2)                             data of the entries that 2 applied, without empty ones
    net.leader()                               the leader of the highest term, or None
    net.mail                                   messages in flight; may be edited

The first members start with a snapshot at entry 1 of term 1, so joining members need one too; if a leader requires a
newer snapshot for that, it is taken. After each step it asserts the invariants: at most one leader per term, and all
members apply the same entries.
SNAPSHOT messages include their data; their arrival is reported to the sender, as by a driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from minikube_py.raft.configuration import ConfChange, Configuration, NodeId
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import Entry, HardState, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.raft.node import Raft, RaftConfig
from minikube_py.raft.ready import ReadState, Ready, UnknownPeer

SETTLE_STEPS_MAX = 10_000
KEPT = 1 << 30
UNBORN = HardState()


class Write(NamedTuple):
    """A Ready in flight to the disk, the hard state written with it, and the state of its snapshot."""

    ready: Ready
    hard_state: HardState
    state: tuple[Entry, ...]


@dataclass
class Disk:
    """Durable state. `written` is handed over but not synced, oldest first."""

    configuration: Configuration
    hard_state: HardState = UNBORN
    snapshot: SnapshotMeta | None = None
    snapshot_state: tuple[Entry, ...] = ()
    entries: list[Entry] = field(default_factory=list)
    written: deque[Write] = field(default_factory=deque)
    held: bool = False

    def sync_one(self) -> Write:
        """The oldest write becomes durable."""
        write = self.written.popleft()
        ready = write.ready
        if ready.snapshot is not None:
            self.snapshot = ready.snapshot
            self.snapshot_state = write.state
            self.entries = []
        for entry in ready.entries:
            first = self.first_index
            assert first <= entry.index <= first + len(self.entries), "a gap in the log on disk"
            del self.entries[entry.index - first :]
            self.entries.append(entry)
        self.hard_state = write.hard_state
        return write

    @property
    def first_index(self) -> int:
        return (self.snapshot.index if self.snapshot else 0) + 1


class Node:
    """One member: its Raft, its disk, and everything it has applied."""

    def __init__(self, net: Net, node: NodeId, disk: Disk) -> None:
        self.net = net
        self.id = node
        self.disk = disk
        self.up = True
        self.read_states: list[ReadState] = []
        self.start()

    def start(self) -> None:
        disk = self.disk
        meta = disk.snapshot
        self.state: list[Entry] = list(disk.snapshot_state)
        log = RaftLog(meta.index if meta else LogIndex(0), meta.term if meta else Term(0), disk.entries)
        configuration = meta.configuration if meta else disk.configuration
        config = RaftConfig(self.id, **self.net.config)
        self.raft = Raft(config, log, disk.hard_state, configuration, self.net.rng)
        if meta is not None:
            self.raft.snapshot_taken(meta)

    def work(self) -> bool:
        """Handles one Ready as a driver does; and a sync, unless the disk is held. False: there was nothing."""
        can_write = not self.disk.written
        ready = self.raft.ready(can_write)
        self.net.post(ready.messages)
        if ready.must_sync:
            assert can_write
            state = self.net.states[ready.snapshot.index] if ready.snapshot else ()
            self.disk.written.append(Write(ready, ready.hard_state or self.raft.hard_state(), state))
            if ready.snapshot is not None:
                self.state = list(state)
        if ready.committed:
            self.state.extend(ready.committed)
            self.net.check_applied(self)
            self.raft.applied(ready.committed[-1].index)
        self.read_states.extend(ready.read_states)
        if self.raft.snapshot_wanted and not self.disk.written and self.raft.log.applied > self.disk.first_index - 1:
            self.net.snapshot(self.id, keep=KEPT)
            return True
        synced = bool(self.disk.written) and not self.disk.held
        while self.disk.written and not self.disk.held:
            self.sync()
        return synced or any(ready)

    def sync(self) -> None:
        ready, hard_state, _ = self.disk.sync_one()
        last = ready.entries[-1].index if ready.entries else ready.snapshot.index if ready.snapshot else LogIndex(0)
        self.raft.persisted(hard_state.term, last)
        self.net.post(ready.messages_after)


class Net:
    def __init__(
        self,
        voters: Iterable[int] = (1, 2, 3),
        *,
        learners: Iterable[int] = (),
        joining: Iterable[int] = (),
        seed: int = 1,
        **config: object,
    ) -> None:
        self.config = config
        self.rng = Random(seed)
        self.mail: deque[Message] = deque()
        self.drop: Callable[[Message], bool] = lambda message: False
        self.severed: set[tuple[int, int]] = set()
        self.states: dict[int, tuple[Entry, ...]] = {}
        self.leaders: dict[int, int] = {}
        self.canon: dict[int, Entry] = {}
        configuration = Configuration(frozenset(map(NodeId, voters)), learners=frozenset(map(NodeId, learners)))
        self.nodes: dict[int, Node] = {}
        first = Entry(Term(1), LogIndex(1), b"")
        meta = SnapshotMeta(first.index, first.term, configuration)
        self.states[first.index] = (first,)
        for node in configuration.members():
            self.nodes[node] = Node(self, node, Disk(configuration, HardState(Term(1)), meta, (first,)))
        for node in sorted(joining):
            self.add(node)

    def add(self, node: int) -> None:
        """A member with an empty disk that is in no configuration yet."""
        self.nodes[node] = Node(self, NodeId(node), Disk(Configuration(frozenset())))

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    @property
    def up(self) -> list[Node]:
        return [self.nodes[node] for node in sorted(self.nodes) if self.nodes[node].up]

    # What happens

    def elect(self, node: int) -> None:
        self[node].raft.step(Message(MessageType.HUP, NodeId(node), NodeId(node)))
        self.settle()

    def propose(self, node: int, data: bytes) -> int:
        index = self[node].raft.propose(data)
        self.settle()
        return index

    def change(self, node: int, change: ConfChange) -> int:
        index = self[node].raft.propose_change(change)
        self.settle()
        return index

    def read(self, node: int, context: bytes) -> list[ReadState]:
        """Requests a read and settles; all answers that `node` got since the last call."""
        self[node].raft.read_index(context)
        self.settle()
        answers, self[node].read_states = self[node].read_states, []
        return answers

    def tick(self, times: int = 1, node: int | None = None) -> None:
        for _ in range(times):
            for one in self.up:
                if node is None or one.id == node:
                    one.raft.tick()
            self.settle()

    def work(self, *nodes: int) -> bool:
        """One turn of each of the nodes (default: all running). False: there was no work."""
        busy = [node.work() for node in self.up if not nodes or node.id in nodes]
        self.check_leaders()
        return any(busy)

    def deliver(self, most: int | None = None) -> int:
        """Delivers messages now in flight (at most a number), oldest first; returns how many were removed."""
        count = len(self.mail) if most is None else min(most, len(self.mail))
        for _ in range(count):
            self.hand_over(self.mail.popleft())
        self.check_leaders()
        return count

    def settle(self) -> None:
        for _ in range(SETTLE_STEPS_MAX):
            if not (self.work() | bool(self.deliver())):
                return
        raise AssertionError(f"no peace after {SETTLE_STEPS_MAX} rounds; under way: {list(self.mail)[:5]}")

    # What goes wrong

    def cut(self, one: int, other: int) -> None:
        self.severed |= {(one, other), (other, one)}

    def cut_one_way(self, sender: int, to: int) -> None:
        self.severed.add((sender, to))

    def isolate(self, node: int) -> None:
        for other in self.nodes:
            if other != node:
                self.cut(node, other)

    def heal(self) -> None:
        self.severed.clear()

    def hold_disk(self, node: int) -> None:
        self[node].disk.held = True

    def release_disk(self, node: int) -> None:
        self[node].disk.held = False
        while self[node].disk.written:
            self[node].sync()

    def crash(self, node: int) -> None:
        self[node].up = False
        self[node].disk.written.clear()
        self[node].disk.held = False

    def restart(self, node: int) -> None:
        self[node].up = True
        self[node].start()

    def snapshot(self, node: int, keep: int = 0) -> SnapshotMeta:
        one = self[node]
        index = one.raft.log.applied
        meta = SnapshotMeta(index, one.raft.log.term(index), one.raft.configuration)
        self.states[index] = tuple(one.state)
        disk = one.disk
        assert not disk.written, "the helper takes snapshots between writes only"
        disk.entries = [entry for entry in disk.entries if entry.index > index]
        disk.snapshot, disk.snapshot_state = meta, tuple(one.state)
        one.raft.snapshot_taken(meta)
        one.raft.compact(max(index - keep, one.raft.log.offset))
        return meta

    # What is seen

    def applied(self, node: int) -> list[bytes]:
        return [entry.data for entry in self[node].state if entry.data and not entry.kind]

    def leader(self) -> int | None:
        leading = [(node.raft.term, node.id) for node in self.up if node.raft.role == "LEADER"]
        return max(leading)[1] if leading else None

    # Inside

    def post(self, messages: Sequence[Message]) -> None:
        for message in messages:
            assert message.type != MessageType.HUP, "HUP never travels"
            self.mail.append(message)

    def hand_over(self, message: Message) -> None:
        receiver = self.nodes.get(message.to)
        lost = (message.sender, message.to) in self.severed or self.drop(message)
        if lost or receiver is None or not receiver.up:
            self.report_snapshot(message, arrived=False)
            return
        try:
            receiver.raft.step(message)
        except UnknownPeer:
            pass  # as a driver does: a removed member may keep sending for a while
        self.report_snapshot(message, arrived=True)

    def report_snapshot(self, message: Message, *, arrived: bool) -> None:
        sender = self.nodes.get(message.sender)
        if message.type == MessageType.SNAPSHOT and sender is not None and sender.up:
            sender.raft.report(message.to, True, snapshot=arrived)

    def check_leaders(self) -> None:
        for node in self.up:
            if node.raft.role == "LEADER":
                first = self.leaders.setdefault(node.raft.term, node.id)
                assert first == node.id, f"{first} and {node.id} both lead term {node.raft.term}"

    def check_applied(self, node: Node) -> None:
        for place, entry in enumerate(node.state[-100:], max(len(node.state) - 100, 0)):
            assert entry.index == place + 1, f"{node.id} applied {entry.index} at place {place + 1}"
            first = self.canon.setdefault(entry.index, entry)
            assert first == entry, f"{node.id} applied {entry}, another {first}"
