"""Store members in one event loop, with links in memory between them, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from patience import patience, until
from virtual_time import LoopClock, LoopSyncs

from minikube_py.env import Disk, SystemDisk
from minikube_py.errors import MinikubeError, OutcomeUnknown, Unavailable
from minikube_py.mvcc.snapshot import rest_hash
from minikube_py.mvcc.types import Put
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.membership import Member
from minikube_py.store.replica_config import Bootstrap
from minikube_py.store.snapshot_transfer import TransferRefused

CLUSTER = 99
PLAIN = MemberConfig(own_gc=False)


class MemoryLinks:
    """One member's PeerLinks."""

    def __init__(self, net: MemberNet, own: int) -> None:
        self.net = net
        self.own = own
        self.members: tuple[Member, ...] = ()
        self.removed: tuple[NodeId, ...] = ()
        self.transfers: set[asyncio.Task[None]] = set()

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if (message.sender, message.to) not in self.net.cut:
                if message.type == MessageType.SNAPSHOT:
                    task = asyncio.get_running_loop().create_task(self.transfer(message))
                    self.transfers.add(task)
                    task.add_done_callback(self.transfers.discard)
                else:
                    asyncio.get_running_loop().call_soon(self.net.deliver, message)
            elif message.type == MessageType.SNAPSHOT:
                asyncio.get_running_loop().call_soon(self.net[self.own].report, message.to, False, False)

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        self.members, self.removed = tuple(members), tuple(removed)

    async def transfer(self, message: Message) -> None:
        source, target = self.net.members.get(self.own), self.net.members.get(message.to)
        well = False
        if source is not None and target is not None:
            file = source.snapshot_source()
            assert file is not None
            try:
                incoming = target.incoming_snapshot(file.offer)
                while incoming.offset < file.offer.size_bytes:
                    sync = incoming.write(incoming.offset, file.read(incoming.offset, 16 << 10))
                    if sync is not None:
                        sync()
                    await asyncio.sleep(0)
                await target.snapshot_arrived(incoming)
                target.receive(message._replace(snapshot=file.offer.meta))
                well = True
            except (TransferRefused, OSError):
                pass
            finally:
                file.close()
        if source is not None:
            source.report(message.to, True, well)


class MemberNet:
    def __init__(self, folder: Path, config: MemberConfig = PLAIN) -> None:
        self.folder = folder
        self.config = config
        self.clock = LoopClock()
        self.syncs: dict[int, LoopSyncs] = {}
        self.members: dict[int, StoreMember] = {}
        self.links: dict[int, MemoryLinks] = {}
        self.fatal: dict[int, list[str]] = {}
        self.removed: dict[int, list[str]] = {}
        self.cut: set[tuple[int, int]] = set()
        self.arrives: Callable[[Message], Message | None] = lambda message: message
        """The message delivered in place of one that was sent; None: none."""

    def __getitem__(self, id: int) -> StoreMember:
        return self.members[id]

    def deliver(self, message: Message) -> None:
        target = self.members.get(message.to)
        arrived = self.arrives(message)
        if target is None or arrived is None:
            return
        if message.sender not in self.links[message.to].removed:
            target.receive(arrived)
        elif message.sender in self.members:
            # As the links between processes: a removed member is refused, with the reason.
            self.members[message.sender].expelled(f"member {message.sender:x} was removed from the cluster")

    async def start(self, id: int, bootstrap: Bootstrap | None = None, disk: Disk | None = None) -> StoreMember:
        fatal, removed = self.fatal.setdefault(id, []), self.removed.setdefault(id, [])
        syncs = self.syncs[id] = LoopSyncs()
        member = StoreMember(
            disk or SystemDisk(self.folder / str(id)), self.clock, random.Random(id), self.config, fatal.append,
            removed.append, syncs,
        )  # fmt: skip
        self.members[id] = member
        self.links[id] = MemoryLinks(self, id)
        await member.start(bootstrap, self.links[id])
        return member

    async def form(self, count: int = 3, disks: dict[int, Disk] | None = None) -> None:
        first = tuple(Member(NodeId(id), f"store-{id}", f"h{id}:1", f"h{id}:2") for id in range(1, count + 1))
        for member in first:
            bootstrap = Bootstrap(CLUSTER, member.id, first)
            await self.start(member.id, bootstrap, (disks or {}).get(member.id))

    def kill(self, id: int) -> None:
        """As if its process had ended: no messages from it or to it. Its writes are in the page cache."""
        member = self.members.pop(id)
        member.failed = True
        member._turns.stop()
        for task in member._tasks:
            task.cancel()
        member.replica.failure = "killed"

    async def stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members.values()))
        self.members.clear()

    def isolate(self, id: int) -> None:
        for other in [*self.members, *self.links]:
            if other != id:
                self.cut |= {(id, other), (other, id)}

    def heal(self) -> None:
        self.cut.clear()
        self.arrives = lambda message: message

    def leaders(self, *, but: int = 0) -> list[StoreMember]:
        return [member for id, member in self.members.items() if id != but and member.replica.leading]

    async def leader(self, *, but: int = 0) -> StoreMember:
        await until(lambda: bool(self.leaders(but=but)))
        return max(self.leaders(but=but), key=lambda member: member.replica.leading)

    async def settled(self) -> StoreMember:
        """The leader, once it has applied an entry of its term and all others follow it, so that it is stable."""

        def lasts(leader: StoreMember) -> bool:
            term = leader.replica.leading
            following = ((each.raft.leader, each.raft.term) for each in self.members.values())
            return leader.replica._opened == term and set(following) == {(leader.member_id, term)}

        await until(lambda: any(map(lasts, self.leaders())))
        return await self.leader()

    async def moved(self, id: int, transfer: Callable[[NodeId], Awaitable[None]] | None = None) -> None:
        """Leadership moves to `id`, with as many calls of `transfer` (by default, the leader's) as needed: one may be
        too late on a slow disk."""
        while not self.members[id].replica.leading:
            ask = transfer or (await self.leader()).transfer
            with contextlib.suppress(Unavailable, OutcomeUnknown):
                await ask(NodeId(id))
            await asyncio.sleep(0.002)

    def others(self, member: StoreMember) -> list[int]:
        return [id for id in self.members if id != member.member_id]

    async def put(self, key: bytes, value: bytes = b"v") -> int:
        """Through the current leader, until it is done."""
        async with patience():
            while True:
                try:
                    return (await (await self.leader()).storage.txn((), (Put(key, value),))).revision
                except (Unavailable, OutcomeUnknown):
                    await asyncio.sleep(0.01)

    async def alike(self, *ids: int) -> None:
        running = [self.members[id] for id in ids or self.members]
        await until(lambda: len({member.raft.log.applied for member in running}) == 1)
        assert len({(member.state.hash(), rest_hash(member.state)) for member in running}) == 1


@contextlib.asynccontextmanager
async def three(folder: Path, config: MemberConfig = PLAIN) -> AsyncIterator[MemberNet]:
    net = MemberNet(folder, config)
    await net.form()
    try:
        await net.settled()
        yield net
    finally:
        await net.stop()


async def refused(work: object) -> MinikubeError:
    """The error that `work` ends with."""
    try:
        await work  # type: ignore[misc]
    except MinikubeError as error:
        return error
    raise AssertionError("nothing was refused")
