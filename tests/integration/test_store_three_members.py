"""Clients of three real members, whose leader is killed, cut off, or changes: answers are true, and service goes on."""

from __future__ import annotations

import asyncio
import random

import pytest
from patience import until
from served_net import ServedNet, served

from minikube_py.errors import MinikubeError, NotLeader, OutcomeUnknown, Unavailable
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Compare, Put, RangeRequest, WatchBatch
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import connect
from minikube_py.store.member import MemberConfig
from minikube_py.store.protocol import Op

pytestmark = pytest.mark.virtual_time


async def put(client: StoreClient, key: bytes, value: bytes = b"v") -> int:
    return (await client.txn((), (Put(key, value),))).revision


async def create(client: StoreClient, key: bytes) -> bool:
    return (await client.txn((Compare(key, "CREATE", "=", 0),), (Put(key, b"v"),))).succeeded


class Asked:
    """One connection to one member, for questions it cannot pass on."""

    def __init__(self) -> None:
        self.results: asyncio.Queue[object] = asyncio.Queue()

    def answered(self, call, value) -> None:
        self.results.put_nowait((call.parts, value))

    def refused(self, call, error, connection) -> None:
        self.results.put_nowait(error)

    def leader_told(self, connection) -> None:
        pass

    def fell(self, connection, calls, reason) -> None:
        pass


async def ask(net: ServedNet, id: int, op: Op, argument: object, flags: int = 0):
    from minikube_py.store.client_connection import Call

    connection = await connect(net.endpoint(id), net.clock, 5)
    connection.owner = asked = Asked()
    connection.send(Call(op, argument, asyncio.get_running_loop().create_future(), flags))
    try:
        async with asyncio.timeout(10):
            return await asked.results.get()
    finally:
        connection.close()
        await connection.wait_closed()


async def test_followers_refuse_writes_and_say_who_leads_but_read_and_watch(tmp_path):
    async with served(tmp_path) as net, net.connected() as client:
        revision = await put(client, b"/a", b"1")
        leader = await net.leader()
        for id in net.others(leader):
            refusal = await ask(net, id, Op.COMMAND, pack(Put(b"/b", b"")))
            assert isinstance(refusal, NotLeader)
            assert (refusal.leader_id, refusal.address) == (leader.member_id, net.endpoint(leader.member_id).address)
            assert isinstance(await ask(net, id, Op.KEEP_ALIVE, 1), NotLeader)
            # Linearizable: also right after the write, when this follower may not know yet that it is committed.
            revision = await put(client, b"/a", b"%d" % id)
            _, answer = await ask(net, id, Op.RANGE, pack(RangeRequest(b"/a")))
            [kv], *_ = answer
            assert kv[1] == b"%d" % id and answer[3] == revision
            _, status = await ask(net, id, Op.STATUS, None)
            assert (status["role"], status["leader"]) == ("FOLLOWER", leader.member_id)
        async with net.connected(net.others(leader)[0]) as other:
            other._route._told.clear()
            seen: list[WatchBatch] = []
            other.watch(b"/a", b"", 0, seen.append)
            await put(client, b"/a")
            await until(lambda: any(batch.events for batch in seen))


@pytest.mark.parametrize("how", ["killed", "cut off", "transferred"])
async def test_when_the_leader_changes_writes_go_on_and_are_done_once(tmp_path, how):
    async with served(tmp_path) as net, net.connected() as client:
        await put(client, b"/warm")
        outcomes: dict[bytes, bool] = {}
        stop = asyncio.Event()

        async def write(name: int) -> None:
            number = 0
            while not stop.is_set():
                key = b"/w/%d/%d" % (name, number)
                outcomes[key] = await create(client, key)
                number += 1

        seen: list[WatchBatch] = []
        client.watch(b"/w/", b"/w0", 0, seen.append)
        writers = [asyncio.ensure_future(write(name)) for name in range(10)]
        await until(lambda: len(outcomes) > 100)
        leader = await net.leader()
        if how == "killed":
            net.kill(leader.member_id)
        elif how == "cut off":
            net.isolate(leader.member_id)
        else:
            await net.moved(leader.member_id % 3 + 1, client.transfer)
        before = len(outcomes)
        await until(lambda: len(outcomes) > before + 100)
        stop.set()
        await asyncio.gather(*writers)
        assert all(outcomes.values())
        there = (await client.range(RangeRequest(b"/w/", b"/w0"))).kvs
        assert {kv.key for kv in there} == set(outcomes) and {kv.version for kv in there} == {1}
        await until(lambda: sum(len(batch.events) for batch in seen) >= len(there))
        shown = [event for batch in seen for event in batch.events]
        assert [event.kv.mod_revision for event in shown] == sorted(kv.mod_revision for kv in there)
        assert {event.kv.key for event in shown} == set(outcomes)


async def test_without_a_majority_writes_end_as_unknown_or_refused_and_reads_as_refused(tmp_path):
    async with served(tmp_path) as net, net.connected(request_timeout_s=6) as client:
        await put(client, b"/a")
        leader = await net.leader()
        for id in net.others(leader):
            net.kill(id)
        with pytest.raises(OutcomeUnknown, match="may or may not have taken effect"):
            await put(client, b"/b")
        await until(lambda: not leader.replica.leading)
        with pytest.raises(Unavailable, match="no leader of the store was reached within 6 s"):
            await put(client, b"/c")
        with pytest.raises(Unavailable):
            await client.get(b"/a")
        old = await client.range(RangeRequest(b"/a"), serializable=True)
        assert old.kvs[0].key == b"/a"


async def test_a_member_that_was_away_serves_a_watch_from_where_it_was(tmp_path):
    """It comes back by a snapshot: what it did not see happen, its clients see all the same."""
    config = MemberConfig(own_gc=False, snapshot_log_bytes=20_000, segment_bytes=1 << 16, tail_entries_max=5)
    async with served(tmp_path, config) as net, net.connected() as client:
        leader = await net.leader()
        away = net.others(leader)[0]
        async with net.connected(away) as other:
            other._route._given = {net.endpoint(away).address: net.endpoint(away)}
            seen: list[WatchBatch] = []
            other.watch(b"/w/", b"/w0", 0, seen.append)
            await put(client, b"/w/0")
            await until(lambda: any(batch.events for batch in seen))
            net.isolate(away)
            for number in range(100):
                await put(client, b"/w/%d" % number, bytes(2000))
            await until(lambda: leader.raft.log.offset > 50)
            net.heal()
            last = await put(client, b"/w/last")
            await until(lambda: seen[-1].revision >= last)
            revisions = [event.kv.mod_revision for batch in seen for event in batch.events]
            assert revisions == list(range(revisions[0], last + 1)) and len(revisions) == 102


async def test_a_watch_on_fields_moves_to_another_member(tmp_path):
    where = Where((Comparison("allocatable.cpu", ">=", ("4",)),))
    node = b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"%d"}}}'
    async with served(tmp_path) as net, net.connected() as client:
        await client.declare(NODES)
        seen: list[WatchBatch] = []
        client.watch(NODES.prefix, NODES.prefix[:-1] + b"0", 0, seen.append, where)
        for cpu in (8, 2, 8, 1):
            await put(client, NODES.prefix + b"n", node % cpu)
            leader = await net.leader()
            await net.moved(net.others(leader)[0], client.transfer)
        kinds = lambda: [event.type for batch in seen for event in batch.events]  # noqa: E731
        await until(lambda: len(kinds()) == 4)
        assert kinds() == ["PUT", "DELETE", "PUT", "DELETE"]
        assert all(batch.error is None for batch in seen)


async def test_leases_are_granted_and_renewed_by_whoever_leads(tmp_path):
    async with served(tmp_path) as net, net.connected() as client:
        lease = await client.lease_grant(60)
        await client.txn((), (Put(b"/leased", b"", lease.id),))
        net.kill((await net.leader()).member_id)
        assert await client.lease_keep_alive(lease.id) == 60
        ids = [(await client.lease_grant(60)).id for _ in range(5)]
        assert len({lease.id, *ids}) == 6
        await client.lease_revoke(lease.id)
        assert (await client.get(b"/leased"))[0] is None
        assert await client.lease_keep_alive(lease.id) == 0


async def test_sessions_are_alike_on_all_members_and_outlive_them(tmp_path):
    async with served(tmp_path) as net:
        async with net.connected() as client:
            for number in range(20):
                await put(client, b"/%d" % number)
            await net.alike()
            tables = [list(member.state.sessions.by_id) for member in net.members.values()]
            assert tables[0] == tables[1] == tables[2] and len(tables[0]) == 1
            killed = (await net.leader()).member_id
            net.kill(killed)
            await put(client, b"/more")
            assert client.metrics()["minikube_py_store_client_sessions_renewed_total"] == 0
            await net.start(killed)
            await put(client, b"/again")
            await net.alike()
        await until(lambda: not any(member.state.sessions.by_id for member in net.members.values()))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_under_kills_cuts_and_transfers_nothing_acknowledged_is_lost_or_doubled(tmp_path, seed):
    rng = random.Random(seed)
    outcomes: dict[bytes, object] = {}
    async with served(tmp_path) as net:

        async def disturb() -> None:
            while True:
                await asyncio.sleep(rng.uniform(0.1, 0.4))
                roll, id = rng.random(), rng.randrange(1, 4)
                if roll < 0.25:
                    net.kill(id)
                    await asyncio.sleep(rng.uniform(0.05, 0.3))
                    await net.start(id)
                elif roll < 0.5:
                    net.isolate(id)
                    await asyncio.sleep(rng.uniform(0.05, 0.5))
                    net.heal()
                elif roll < 0.75:
                    net.cut_clients(id)
                else:
                    for member in net.leaders():
                        member.replica.transfer(net.members[id].member_id)
                        member.turn_soon()

        async def work(client: StoreClient, name: int) -> None:
            for number in range(60):
                key = b"/w/%d/%d" % (name, number)
                try:
                    outcomes[key] = await create(client, key)
                except MinikubeError as error:
                    outcomes[key] = error
                await asyncio.sleep(0.02)

        async with net.connected(seed=seed) as one, net.connected(seed=seed, request_timeout_s=1.0) as other:
            seen: list[WatchBatch] = []
            one.watch(b"/w/", b"/w0", 0, seen.append)
            disturbing = asyncio.ensure_future(disturb())
            await asyncio.gather(*(work(client, name) for name, client in enumerate([one, other] * 4)))
            disturbing.cancel()
            await asyncio.gather(disturbing, return_exceptions=True)
            net.heal()
            for id in net.ports:
                if id not in net.members:
                    await net.start(id)
            there = {kv.key: kv.version for kv in (await one.range(RangeRequest(b"/w/", b"/w0"))).kvs}
            revision = one.revision
            await until(lambda: seen[-1].revision >= revision)
            await net.alike()
    assert set(there.values()) == {1}
    for key, outcome in outcomes.items():
        if outcome is True:
            assert key in there, f"{key!r} was acknowledged and is lost"
        elif not isinstance(outcome, OutcomeUnknown):
            assert isinstance(outcome, Unavailable) and key not in there, f"{key!r}: {outcome!r}"
    assert sum(outcome is True for outcome in outcomes.values()) > 300
    assert sorted(event.kv.key for batch in seen for event in batch.events) == sorted(there)
