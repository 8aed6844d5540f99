"""Members that only communicate: `Peers` with a driver that records its calls, and snapshots in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Callable
from hashlib import sha256

from patience import until
from ports import free_ports

from minikube_py.env import Clock, SystemClock
from minikube_py.errors import MinikubeError, NotLeader
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import Entry, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.store.bootstrap import Answer
from minikube_py.store.membership import Member, MemberChange, Membership
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peers import Peers
from minikube_py.store.snapshot_transfer import SnapshotOffer, TransferRefused

TOKEN = "between us members"
CLUSTER = 0xC1
FAST = PeerLimits(beat_s=0.1, retry_s_max=0.2, connect_s=5.0)


class MemorySource:
    """A snapshot at its sender. `spoil` changes bytes as they are read."""

    def __init__(self, data: bytes, index: int = 100, spoil: Callable[[int, bytes], bytes] | None = None) -> None:
        meta = SnapshotMeta(LogIndex(index), Term(3), Configuration(frozenset((NodeId(1), NodeId(2)))))
        self.offer = SnapshotOffer(meta, len(data), sha256(data).digest())
        self.closed = False
        self._data = memoryview(data)
        self._spoil = spoil

    def read(self, offset: int, size_bytes: int) -> bytes:
        assert not self.closed
        data = bytes(self._data[offset : offset + size_bytes])
        return self._spoil(offset, data) if self._spoil else data

    def close(self) -> None:
        self.closed = True


class MemoryIncoming:
    """A snapshot at its receiver; requests a sync after each `sync_bytes`."""

    def __init__(self, offer: SnapshotOffer, sync_bytes: int = 1 << 20) -> None:
        self.offer = offer
        self.data = bytearray()
        self.writes = 0
        self.syncs = 0
        self._sync_bytes = sync_bytes
        self._synced_bytes = 0

    @property
    def offset(self) -> int:
        return len(self.data)

    def write(self, offset: int, data: bytes) -> Callable[[], None] | None:
        if offset != self.offset or not data or offset + len(data) > self.offer.size_bytes:
            raise TransferRefused(f"{len(data)} bytes at {offset}, at {self.offset} of {self.offer.size_bytes}")
        self.data += data
        self.writes += 1
        if self.offset - self._synced_bytes < self._sync_bytes:
            return None
        self._synced_bytes = self.offset
        return self._sync

    def _sync(self) -> None:
        self.syncs += 1


class Driver:
    """Replaces a `StoreMember` for its links: records calls."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.reports: list[tuple[int, bool, bool | None]] = []
        self.ended: list[NodeId] = []
        self.expulsions: list[str] = []
        self.source: MemorySource | None = None
        self.make_source: Callable[[], MemorySource | None] = lambda: self.source
        self.incoming: MemoryIncoming | None = None
        self.on_receive: Callable[[Message], None] | None = None
        self.restores: list[bytes] = []
        self.restores_begun = 0
        self.may_restore = asyncio.Event()
        self.may_restore.set()

    def receive(self, message: Message) -> None:
        self.received.append(message)
        if self.on_receive is not None:
            self.on_receive(message)

    def report(self, to: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        self.reports.append((to, reachable, snapshot))

    def gone(self, peer: NodeId) -> None:
        self.ended.append(peer)

    def expelled(self, reason: str) -> None:
        self.expulsions.append(reason)

    def snapshot_source(self) -> MemorySource | None:
        return self.make_source()

    def incoming_snapshot(self, offer: SnapshotOffer) -> MemoryIncoming:
        if self.incoming is None or self.incoming.offer != offer:
            self.incoming = MemoryIncoming(offer)
        return self.incoming

    async def snapshot_arrived(self, incoming: MemoryIncoming) -> None:
        self.restores_begun += 1
        await asyncio.sleep(0)
        await self.may_restore.wait()
        if sha256(incoming.data).digest() != incoming.offer.sha256:
            self.incoming = None
            raise TransferRefused("its hash differs from the announced one")
        self.restores.append(bytes(incoming.data))


class Talker:
    """One member. `membership` and `applied` are those of its log."""

    def __init__(self, member: Member, peers: Peers, membership: Membership, cluster_id: int = CLUSTER) -> None:
        self.member = member
        self.peers = peers
        self.driver = Driver()
        self.membership = membership
        self.cluster_id = cluster_id
        self.applied = 1
        self.leader = NodeId(0)
        self.joins: list[MemberChange] = []
        self.join_error: MinikubeError | None = None
        self.join_later = False
        self.words: list[str] = []

    @property
    def id(self) -> NodeId:
        return self.member.id

    def who(self) -> Answer:
        return Answer(self.member, self.cluster_id, self.membership, self.leader, self.applied)

    def join(self, change: MemberChange, joined) -> None:
        if self.leader != self.id:
            raise NotLeader(self.leader)
        self.joins.append(change)
        if self.join_later:
            asyncio.get_running_loop().call_later(1.0, joined, self.join_error)
        else:
            joined(self.join_error)

    def begin(self) -> None:
        members = self.membership.members
        self.peers.begin(self.driver, self.cluster_id, self.who, self.join, members)  # type: ignore[arg-type]

    def update(self, membership: Membership, applied: int) -> None:
        self.membership, self.applied = membership, applied
        self.peers.update(membership.members, membership.removed)

    def send(self, *messages: Message) -> None:
        self.peers.send(messages)


async def listening(
    member: Member,
    membership: Membership,
    *,
    cluster_id: int = CLUSTER,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    limits: PeerLimits = FAST,
    clock: Clock | None = None,
    token: str = TOKEN,
) -> Talker:
    """On the port of its address; not begun yet."""
    words: list[str] = []
    server, client = tls or (None, None)
    peers = Peers(
        member,
        token,
        clock or SystemClock(),
        random.Random(member.id),
        tls_server=server,
        tls_client=client,
        limits=limits,
        say=words.append,
    )
    host, _, port = member.peer.rpartition(":")
    await peers.listen(host, int(port))
    talker = Talker(member, peers, membership, cluster_id)
    talker.words = words
    return talker


@contextlib.asynccontextmanager
async def talking(count: int = 3, ports: list[int] | None = None, **options) -> AsyncIterator[list[Talker]]:
    """Members 1 to `count` of one cluster, all links up."""
    found = ports or free_ports(count)
    members = [Member(NodeId(i + 1), f"store-{i + 1}", f"localhost:{found[i]}") for i in range(count)]
    membership = Membership.of(members)
    talkers = [await listening(member, membership, **options) for member in members]
    try:
        for talker in talkers:
            talker.begin()
        await until(lambda: all(linked(talker) == count - 1 for talker in talkers))
        yield talkers
    finally:
        for talker in talkers:
            await talker.peers.stop()


def linked(talker: Talker) -> int:
    return sum(sender.linked for sender in talker.peers._senders.values())


def heartbeat(sender: int, to: int, number: int = 0) -> Message:
    return Message(MessageType.HEARTBEAT, NodeId(sender), NodeId(to), Term(1), commit=LogIndex(number))


def append(sender: int, to: int, entries: list[Entry]) -> Message:
    index = LogIndex(entries[0].index - 1)
    return Message(MessageType.APPEND, NodeId(sender), NodeId(to), Term(3), Term(1), index, entries=entries)


def entries_from(first: int, count: int, size_bytes: int = 256, term: int = 3) -> list[Entry]:
    return [Entry(Term(term), LogIndex(first + i), bytes(size_bytes)) for i in range(count)]


def snapshot_message(sender: int, to: int, source: MemorySource) -> Message:
    return Message(MessageType.SNAPSHOT, NodeId(sender), NodeId(to), Term(3), snapshot=source.offer.meta)
