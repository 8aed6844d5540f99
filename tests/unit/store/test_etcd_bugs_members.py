"""etcd's own bugs, by their numbers there, that need whole members or clients. See test_etcd_bugs.py."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from fake_store import FakeStore, Fate, fake_store
from member_net import PLAIN, MemberNet, MemoryLinks
from step_clock import StepClock, settle
from virtual_time import LoopClock, LoopSyncs

from minikube_py.env import Disk
from minikube_py.errors import Compacted, MinikubeError, OutcomeUnknown, Unavailable
from minikube_py.mvcc.types import Compare, Put, RangeRequest, WatchBatch
from minikube_py.raft.configuration import NodeId
from minikube_py.sim.disk import SimDisk
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.fsync import Done, FsyncMode, Histogram
from minikube_py.store.limits import ServerLimits
from minikube_py.store.member import StoreMember
from minikube_py.store.membership import Member
from minikube_py.store.replica_config import Bootstrap
from minikube_py.store.server import StoreServer

TICK_S = 0.05


# -- leases -----------------------------------------------------------------------------------------------------------


class HeldSyncs:
    """A SyncRunner whose syncs do not end while they are `held`; the loop goes on, as with a thread."""

    def __init__(self) -> None:
        self.histogram = Histogram(())
        self._held = False
        self._waiting: list[tuple[Callable[[], None], Done]] = []

    @property
    def held(self) -> bool:
        return self._held

    @held.setter
    def held(self, held: bool) -> None:
        self._held = held
        while self._waiting and not self._held:
            sync, done = self._waiting.pop(0)
            sync()
            done(None)

    def use(self, mode: FsyncMode) -> None:
        pass

    def run(self, sync: Callable[[], None], done: Done) -> None:
        self._waiting.append((sync, done))
        asyncio.get_running_loop().call_soon(setattr, self, "held", self._held)

    async def wait(self, sync: Callable[[], None]) -> None:
        sync()

    def close(self) -> None:
        pass


class SteppedNet(MemberNet):
    """Each member has a clock of its own, and syncs that can be held."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clocks: dict[int, StepClock] = {}
        self.syncs: dict[int, HeldSyncs] = {}

    async def start(self, id: int, bootstrap: Bootstrap | None = None, disk: Disk | None = None) -> StoreMember:
        fatal = self.fatal.setdefault(id, [])
        self.clocks[id], self.syncs[id] = StepClock(), HeldSyncs()
        member = self.members[id] = StoreMember(
            disk or SimDisk(), self.clocks[id], random.Random(id), self.config, fatal.append, syncs=self.syncs[id]
        )
        self.links[id] = MemoryLinks(self, id)
        await member.start(bootstrap, self.links[id])
        return member

    async def tick(self, ticks: int = 1, *, but: int = 0) -> None:
        for _ in range(ticks):
            for id, clock in self.clocks.items():
                if id != but:
                    await clock.advance(TICK_S)

    async def elected(self, *, but: int = 0) -> StoreMember:
        for _ in range(100):
            if self.leaders(but=but):
                return await self.leader(but=but)
            await self.tick(but=but)
        raise AssertionError("nobody was elected")


@contextlib.asynccontextmanager
async def stepped(folder: Path) -> AsyncIterator[SteppedNet]:
    net = SteppedNet(folder)
    await net.form()
    try:
        yield net
    finally:
        for syncs in net.syncs.values():
            syncs.held = False
        stopping = asyncio.ensure_future(net.stop())
        while not stopping.done():
            await net.tick()
        await stopping


async def asked(member: StoreMember, lease_id: int) -> asyncio.Task[int]:
    """A renewal that was sent to `member`, and may be answered later."""

    async def ask() -> int:
        return await member.storage.lease_keep_alive(lease_id)

    task = asyncio.ensure_future(ask())
    await settle()
    return task


@pytest.mark.parametrize("how", ["its disk stands still", "the process was paused"])
async def test_15247_a_stale_leader_neither_renews_nor_ends_a_lease(tmp_path, how):
    async with stepped(tmp_path) as net:
        old = await net.elected()
        lease = await old.storage.lease_grant(10)
        written = await old.storage.txn((), (Put(b"/leased", b"v", lease.id),))
        away, paused = old.member_id, how == "the process was paused"
        net.isolate(away)
        net.syncs[away].held = True
        new = await net.elected(but=away)
        asking = [await asked(old, lease.id)] if not paused else []
        for _ in range(15):
            await net.tick(20, but=away if paused else 0)
            assert await new.storage.lease_keep_alive(lease.id) == 10
            if not paused:
                asking.append(await asked(old, lease.id))
        # It goes on where it was; its clock, and the lease in it, are far beyond the end.
        net.clocks[away].now_s = new.clock.monotonic_s()
        asking.append(await asked(old, lease.id))
        await net.clocks[away].advance(3 * TICK_S)
        assert bool(old.replica.leading) == paused == bool(old.replica.waiting), "if it leads, it has proposed the end"
        asking.append(await asked(old, lease.id))
        net.syncs[away].held = False
        net.heal()
        for _ in range(3):
            await net.tick(20)
            assert await new.storage.lease_keep_alive(lease.id) == 10
        for task in asking:
            with pytest.raises(Unavailable):
                await task
        for member in net.members.values():
            assert member.state.revision == written.revision and member.state.get(b"/leased") is not None
        # And one that nobody renews does end.
        await net.tick(250)
        assert all(member.state.get(b"/leased") is None for member in net.members.values())


# -- retries ----------------------------------------------------------------------------------------------------------

LOSSES: list[Fate] = ["lost before", "lost after", "unknown before", "unknown after", "refused"]


@pytest.mark.parametrize("seed", range(3))
async def test_jepsen_a_client_that_sends_again_loses_no_update_and_makes_none_twice(seed: int) -> None:
    """Appends to one list, each guarded by what was read: to find one's own write in the way is no failure."""
    rng = random.Random(seed)
    async with fake_store() as store:
        appended: set[bytes] = set()
        unknown: set[bytes] = set()

        async def append(client: StoreClient, item: bytes) -> None:
            while True:
                kv, _ = await client.get(b"/list")
                had, at = (kv.value, kv.mod_revision) if kv else (b"", 0)
                guard = (Compare(b"/list", "MOD", "=", at),)
                try:
                    if (await client.txn(guard, (Put(b"/list", had + item + b" "),))).succeeded:
                        appended.add(item)
                        return
                except OutcomeUnknown:
                    unknown.add(item)
                    return

        async def work(client: StoreClient, name: int) -> None:
            for number in range(10):
                await append(client, b"%d.%d" % (name, number))
                await client.txn((), (Put(b"/count/%d" % name, b"v"),))

        clients = [StoreClient(store.endpoints(), LoopClock(), random.Random(name)) for name in range(3)]
        for client in clients:
            await client.start()
        store.fate = lambda: rng.choice([*LOSSES, *["done"] * 8])
        await asyncio.gather(*(work(client, name) for name, client in enumerate(clients)))
        store.fate = lambda: "done"
        for client in clients:
            await client.close()
        check_list(store, appended, unknown)


def check_list(store: FakeStore, appended: set[bytes], unknown: set[bytes]) -> None:
    kv = store.state.get(b"/list")
    assert kv is not None
    there = kv.value.split()
    assert len(there) == len(set(there)), "none twice"
    assert appended <= set(there) <= appended | unknown, "none lost"
    counts = store.state.range(RangeRequest(b"/count/", b"/count0")).kvs
    assert [kv.version for kv in counts] == [10, 10, 10], "each once, guarded or not"


# -- watches over a connection ----------------------------------------------------------------------------------------


async def test_17529_watches_of_a_reader_who_stops_reading_end_or_go_on_without_gap():
    """Several on one connection; what they wait for is compacted away meanwhile, and they are cut off."""
    limits = ServerLimits(watch_bytes_max=200_000, write_buffer_bytes=64 << 10)
    member = StoreMember(SimDisk(), LoopClock(), random.Random(1), PLAIN, pytest.fail, syncs=LoopSyncs())
    await member.start(Bootstrap(1, NodeId(1), (Member(NodeId(1), "a", "h:1", "h:2"),)))
    server = StoreServer(member, "t", limits=limits)
    await server.start()
    host, port = server.address
    client = StoreClient(Endpoint(host, port, "t"), LoopClock(), random.Random(2))
    await client.start()
    ends: dict[bytes, list[int]] = {b"/big": [], b"/small": [], b"/quiet": []}
    errors: dict[bytes, MinikubeError] = {}

    def sink(key: bytes, batch: WatchBatch) -> None:
        ends[key] += [event.kv.mod_revision for event in batch.events]
        if batch.error is not None:
            errors[key] = batch.error

    for key in ends:
        client.watch(key, key + b"0", 2, lambda batch, key=key: sink(key, batch))
    await client.txn((), (Put(b"/big", b"v"),))
    connection = client._connection
    assert connection is not None and connection._transport is not None
    connection._transport.pause_reading()
    written: dict[bytes, list[int]] = {b"/big": [2], b"/small": [], b"/quiet": []}
    for _ in range(200):
        for key, value in ((b"/big", bytes(400_000)), (b"/small", b"v")):
            result = await member.storage.txn((), (Put(key, value),))
            written[key].append(result.revision)
            await asyncio.sleep(0)
        if server.watches_cut_off:
            break
    # What the one that was cut off has not seen, it will never see.
    for _ in range(3):
        written[b"/big"].append((await member.storage.txn((), (Put(b"/big", b"v"),))).revision)
    await member.storage.compact(member.state.revision)
    connection._transport.resume_reading()
    last = (await member.storage.txn((), (Put(b"/quiet", b"v"), Put(b"/small", b"v")))).revision
    written[b"/quiet"].append(last)
    written[b"/small"].append(last)
    async with asyncio.timeout(20):
        while not all(key in errors or ends[key][-1:] == written[key][-1:] for key in ends):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    assert isinstance(errors[b"/big"], Compacted) and list(errors) == [b"/big"]
    assert ends[b"/big"] == written[b"/big"][: len(ends[b"/big"])]
    assert (ends[b"/small"], ends[b"/quiet"]) == (written[b"/small"], written[b"/quiet"])
    await client.close()
    await server.stop()
    await member.stop()
