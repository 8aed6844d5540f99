"""Replicas wired by hand, for tests: nothing moves by itself. Disks are the simulator's, links lose what the test asks
for; a message goes through its packed form, as over a wire."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import msgpack

from minikube_py.errors import MinikubeError, NotLeader
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import rest_hash
from minikube_py.mvcc.types import Command, Put, RangeRequest, Result
from minikube_py.raft.codec import message_from_plain, message_to_plain
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType
from minikube_py.sim.disk import SimDisk
from minikube_py.store.applying import Failed
from minikube_py.store.log_files import LogFiles
from minikube_py.store.membership import ChangeKind, Member, MemberChange
from minikube_py.store.replica import Replica
from minikube_py.store.replica_config import Bootstrap, ReplicaConfig, Turn
from minikube_py.store.snapshot_transfer import TransferRefused

CLUSTER = 77
ALL = RangeRequest(b"\0", b"\0")
SMALL = ReplicaConfig(tail_entries_max=5, snapshot_log_bytes=1 << 20)


class Outcome:
    """How a proposal or a read ended."""

    def __init__(self) -> None:
        self.ended = False
        self.result: Result | None = None
        self.error: MinikubeError | None = None

    def __call__(self, result: Result | None, error: MinikubeError | None) -> None:
        assert not self.ended, "told twice"
        self.ended, self.result, self.error = True, result, error

    def read(self, error: MinikubeError | None) -> None:
        self(None, error)

    @property
    def done(self) -> bool:
        return self.ended and self.error is None


class Node:
    """One member: its disk, and its replica while it runs."""

    def __init__(self, net: ReplicaNet, id: int, disk: SimDisk, bootstrap: Bootstrap | None) -> None:
        self.net = net
        self.id = NodeId(id)
        self.disk = disk
        self.bootstrap = bootstrap
        self.replica: Replica | None = None
        self.sync: Turn | None = None
        self.slow = False
        self.failed = ""

    def start(self) -> Replica:
        rng = random.Random(self.net.rng.getrandbits(64))
        files = LogFiles(self.disk, rng, self.net.segment_bytes)
        self.replica = Replica(files, rng, self.net.config)
        self.sync, self.failed = None, ""
        self.replica.open(self.bootstrap)
        self.bootstrap = None
        return self.replica

    def work(self) -> bool:
        """All available turns, with their syncs unless this member's disk is slow. False: there were none."""
        worked = False
        while self.replica is not None and not self.failed:
            try:
                if self.sync is not None and not self.slow:
                    sync, self.sync = self.sync.sync, None
                    sync()
                    self.net.send(self.replica.synced())
                    worked = True
                turn = self.replica.turn()
            except (Failed, OSError) as error:
                self.failed = str(error)
                self.replica.fail(self.failed)
                break
            if turn is None:
                if (self.sync is None or self.slow) and not self.replica.unfinished:
                    break
                continue
            worked = True
            self.net.send(turn.messages)
            if turn.sync is not None:
                assert self.sync is None, "two syncs at once"
                self.sync = turn
        return worked

    def crash(self, *, power: bool = True) -> None:
        """The process dies; with `power`, a random part of unsynced data is lost."""
        disk = self.disk
        self.disk = disk.crash(self.net.rng) if power else disk.killed()
        disk.lose()
        self.replica = self.sync = None


class ReplicaNet:
    def __init__(
        self, seed: int = 0, members: int = 3, config: ReplicaConfig = SMALL, segment_bytes: int = 64 << 10
    ) -> None:
        self.rng = random.Random(seed)
        self.config = config
        self.segment_bytes = segment_bytes
        self.queue: deque[Message] = deque()
        self.cut: set[tuple[int, int]] = set()
        self.drop: Callable[[Message], bool] = lambda message: False
        self.nodes: dict[int, Node] = {}
        first = tuple(Member(NodeId(id), f"store-{id}", f"h{id}:1", f"h{id}:2") for id in range(1, members + 1))
        for member in first:
            self.add(member.id, Bootstrap(CLUSTER, member.id, first, config.version)).start()

    def add(self, id: int, bootstrap: Bootstrap | None) -> Node:
        node = self.nodes[id] = Node(self, id, SimDisk(random.Random(id)), bootstrap)
        return node

    def __getitem__(self, id: int) -> Replica:
        replica = self.nodes[id].replica
        assert replica is not None, f"member {id} is down"
        return replica

    # -- moving -------------------------------------------------------------------------------------------------------

    def send(self, messages: list[Message]) -> None:
        self.queue.extend(messages)

    def settle(self) -> None:
        """Until there is nothing left to do."""
        while sum(node.work() for node in self.nodes.values()) or self.queue:
            while self.queue:
                self.deliver(self.queue.popleft())

    def deliver(self, message: Message) -> None:
        plain = msgpack.unpackb(msgpack.packb(message_to_plain(message)))
        message = message_from_plain(plain)
        target, source = self.nodes.get(message.to), self.nodes.get(message.sender)
        lost = (message.sender, message.to) in self.cut or self.drop(message)
        if lost or target is None or target.replica is None or target.failed:
            if message.type == MessageType.SNAPSHOT and source is not None and source.replica is not None:
                # The driver must report this: Raft sends that peer nothing else meanwhile.
                source.replica.report(message.to, False, snapshot=False)
            return
        if message.type == MessageType.SNAPSHOT:
            assert source is not None
            if source.replica is not None:
                self.transfer(source, target, message)
            return
        target.replica.receive(message)

    def transfer(self, source: Node, target: Node, message: Message, chunk_bytes: int = 4096) -> None:
        assert source.replica is not None and target.replica is not None
        try:
            file = source.replica.snapshot_source()
        except OSError:
            source.replica.report(target.id, True, snapshot=False)
            return
        assert file is not None
        try:
            incoming = target.replica.incoming_snapshot(file.offer)
            while incoming.offset < file.offer.size_bytes:
                sync = incoming.write(incoming.offset, file.read(incoming.offset, chunk_bytes))
                if sync is not None:
                    sync()
            for sync in incoming.finish():
                if sync is not None:
                    sync()
        except (TransferRefused, OSError):
            source.replica.report(target.id, True, snapshot=False)
            return
        finally:
            file.close()
        target.replica.receive(message._replace(snapshot=file.offer.meta))
        source.replica.report(target.id, True, snapshot=True)

    def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            for node in self.nodes.values():
                if node.replica is not None and not node.failed:
                    node.replica.tick()
            self.settle()
            for id, node in self.nodes.items():
                if node.replica is not None and not node.failed and node.replica.snapshot_due:
                    self.snapshot(id)

    def until(self, condition: Callable[[], bool], ticks: int = 200) -> None:
        for _ in range(ticks):
            if condition():
                return
            self.tick()
        assert condition(), f"not within {ticks} ticks"

    def isolate(self, *ids: int) -> None:
        """Cuts these off from all others, both ways."""
        for one in ids:
            for other in self.nodes:
                if other not in ids:
                    self.cut |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.cut.clear()

    # -- asking -------------------------------------------------------------------------------------------------------

    def leader(self, *, of: tuple[int, ...] = ()) -> Replica:
        """The leader of the latest term, after as many ticks as needed."""

        def leaders() -> list[Replica]:
            running = [node.replica for id, node in self.nodes.items() if node.replica and (not of or id in of)]
            return [replica for replica in running if replica.leading and not replica.failure]

        self.until(lambda: bool(leaders()))
        return max(leaders(), key=lambda replica: replica.leading)

    def propose(self, replica: Replica, command: Command) -> Outcome:
        outcome = Outcome()
        replica.propose(command, pack(command), outcome)
        return outcome

    def put(self, key: bytes, value: bytes = b"v") -> Outcome:
        """Through the current leader, until it is done."""
        outcome = self.propose(self.leader(), Put(key, value))
        self.until(lambda: outcome.ended)
        return outcome

    def change(self, kind: ChangeKind, **fields: object) -> Outcome:
        """A change of members, retried until it is accepted and has ended."""
        outcome = Outcome()

        def taken() -> bool:
            try:
                self.leader().propose_change(MemberChange(kind, **fields), outcome)
            except (NotLeader, MinikubeError) as error:
                if isinstance(error, NotLeader) or "one at a time" in str(error):
                    return False
                raise
            return True

        self.until(taken)
        self.until(lambda: outcome.ended)
        return outcome

    def snapshot(self, id: int) -> None:
        """Takes one, while everything else continues."""
        for sync in self[id].take_snapshot():
            if sync is not None:
                sync()
            self.settle()

    def snapshot_of(self, id: int) -> None:
        """Takes one while everything else is stopped. Raises: OSError."""
        for sync in self[id].take_snapshot():
            if sync is not None:
                sync()

    def contents(self, id: int) -> dict[bytes, bytes]:
        return {kv.key: kv.value for kv in self[id].state.range(ALL).kvs}

    def assert_alike(self, *ids: int) -> None:
        """They have applied the same, and have the same content."""
        running = [self[id] for id in ids or [id for id, node in self.nodes.items() if node.replica]]
        self.until(lambda: len({replica.raft.log.applied for replica in running}) == 1)
        assert len({(replica.state.hash(), rest_hash(replica.state)) for replica in running}) == 1
        assert len({replica.membership for replica in running}) == 1
        assert len({replica.raft.configuration for replica in running}) == 1
