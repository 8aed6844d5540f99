"""The client against members that lose, delay, refuse and change leaders as told: what it does, and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_store import TOKEN, FakeStore, Fate, fake_store
from virtual_time import LoopClock

from minikube_py.errors import (
    Compacted,
    FieldsRedeclared,
    LeaseExists,
    MinikubeError,
    OutcomeUnknown,
    RequestTooLarge,
    SessionExpired,
    Unavailable,
)
from minikube_py.fields.builtin import NODES
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc import sessions
from minikube_py.mvcc.types import Compact, Compare, Put, RangeRequest, WatchBatch
from minikube_py.raft.configuration import NodeId
from minikube_py.store import client as client_module
from minikube_py.store import client_session
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.limits import FRAME_BYTES_MAX
from minikube_py.store.membership import ChangeKind, MemberChange


@contextlib.asynccontextmanager
async def connected(store: FakeStore, seed: int = 1, **options: Any) -> AsyncIterator[StoreClient]:
    client = StoreClient(store.endpoints(), LoopClock(), random.Random(seed), **options)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def put(client: StoreClient, key: bytes, value: bytes = b"v") -> int:
    return (await client.txn((), (Put(key, value),))).revision


async def create(client: StoreClient, key: bytes) -> bool:
    """True where it was not there before."""
    return (await client.txn((Compare(key, "CREATE", "=", 0),), (Put(key, b"v"),))).succeeded


async def until(condition: Any, pause_s: float = 0.002) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(pause_s)


def leads(client: StoreClient, number: int) -> bool:
    connection = client._connection
    return connection is not None and connection.leads and connection.welcome.member_id == number


# -- finding the leader -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_whichever_member_is_asked_first_the_leader_is_found(seed: int) -> None:
    async with fake_store() as store:
        store.leader = 3
        async with connected(store, seed) as client:
            assert await put(client, b"/a") == 2
            assert leads(client, 3)


async def test_one_address_is_enough() -> None:
    """The others are learned from the member's welcome."""
    async with fake_store() as store:
        client = StoreClient(store.members[0].endpoint, LoopClock(), random.Random(1))
        await client.start()
        await put(client, b"/a")
        await store.members[0].stop()
        store.elect(2)
        assert await put(client, b"/b") == 3
        assert leads(client, 2)
        await client.close()


async def test_members_that_advertise_what_leads_nowhere_are_found_where_they_were_met() -> None:
    """As from outside of a network in which members call each other by names of their own."""
    async with fake_store() as store:
        for member in store.members:
            member.advertised = f"store-{member.number}.invalid:1" if member.number < 3 else f"{'x' * 99}.invalid:1"
        async with connected(store) as client:
            for number in (2, 3, 1):
                store.elect(number)
                await put(client, b"/a")
                assert leads(client, number)


async def test_a_leader_that_steps_down_says_so_and_is_followed_at_once() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        for number in (2, 3, 1, 3):
            store.elect(number)
            await until(lambda number=number: leads(client, number))
            await put(client, b"/a")
        assert client.metrics()["minikube_py_store_client_writes_resent_total"] == 0


async def test_without_a_word_a_refusal_tells_who_leads() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        store.elect(2, tell=False)
        assert await put(client, b"/b") == 3


async def test_requests_wait_while_nobody_leads() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        store.elect(0)
        writes = [asyncio.ensure_future(put(client, b"/%d" % i)) for i in range(20)]
        read = asyncio.ensure_future(client.get(b"/a"))
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in [*writes, read])
        store.elect(3)
        assert sorted(await asyncio.gather(*writes)) == list(range(3, 23))
        assert (await read)[0] is not None
        assert leads(client, 3)


async def test_a_silent_leader_is_doubted_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process stands still, its connections do not fall: the others say who leads now."""
    monkeypatch.setattr(client_module, "SILENT_S", 0.1)
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        store.members[0].silent = True
        store.elect(2, tell=False)
        assert await put(client, b"/b") == 3
        assert leads(client, 2)


async def test_a_leader_nobody_else_replaces_is_not_left_for_being_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SILENT_S", 0.05)
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        connection = client._connection
        store.fate = lambda: "never answered"
        write = asyncio.ensure_future(put(client, b"/b"))
        await asyncio.sleep(0.5)
        assert client._connection is connection and not write.done()
        write.cancel()


async def test_a_member_that_was_dead_for_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only watches are open: nothing comes by itself that would tell."""
    monkeypatch.setattr(client_module, "DEAD_S", 0.2)
    monkeypatch.setattr(client_module, "PING_S", 0.05)
    async with fake_store(1) as store, connected(store) as client:
        seen: list[WatchBatch] = []
        client.watch(b"/", b"0", 0, seen.append)
        await until(lambda: seen)
        store.members[0].silent = True
        await until(lambda: client._connection is None)
        store.members[0].silent = False
        store.execute(client_session.pack(Put(b"/a", b"")))
        await until(lambda: any(batch.events for batch in seen))


async def test_a_claim_to_lead_from_an_earlier_term_counts_for_nothing() -> None:
    async with fake_store() as store:
        store.elect(2)
        async with connected(store) as client:
            await put(client, b"/a")
            # Member 2 falls; member 1 has not heard of anything since it led itself.
            earlier = store.leadership()._replace(leader_id=1, leader_address=store.members[0].advertised, term=1)
            store.leadership = lambda: earlier  # type: ignore[method-assign]
            store.leader = 3
            await store.members[1].stop()
            write = asyncio.ensure_future(put(client, b"/b"))
            await until(lambda: store.members[0].greeted > 0)
            await asyncio.sleep(0.3)
            assert not write.done() and store.members[0].commands == 0
            del store.leadership  # type: ignore[misc]
            store.elect(3)
            assert await write == 3


# -- writes -----------------------------------------------------------------------------------------------------------

FATES: list[Fate] = ["lost before", "lost after", "unknown before", "unknown after", "refused"]


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("times", [1, 3])
async def test_a_write_is_done_once_whatever_becomes_of_its_first_sendings(fate: Fate, times: int) -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/warm")
        fates = iter([fate] * times)
        store.fate = lambda: next(fates, "done")
        # Had a first sending been executed and a second one as well, that would have found the key.
        assert await create(client, b"/a")
        kv = store.state.get(b"/a")
        assert kv is not None and kv.version == 1


@pytest.mark.parametrize("fate", FATES)
async def test_of_many_in_flight_those_that_failed_are_not_taken_for_answered(fate: Fate) -> None:
    """What the client says it has the answers to is what it has the answers to: the session is kept."""
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/warm")
        fates = iter([fate, "done", "done", fate, "done", fate])
        store.fate = lambda: next(fates, "done")
        assert await asyncio.gather(*(create(client, b"/%d" % i) for i in range(20))) == [True] * 20
        assert [await create(client, b"/more/%d" % i) for i in range(5)] == [True] * 5
        assert client.metrics()["minikube_py_store_client_sessions_renewed_total"] == 0


async def test_what_still_waits_is_not_acknowledged_by_those_that_overtook_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikube_py.store.client.RETRY_S", 1.0)
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/warm")
        fates: Any = iter(["refused"])
        store.fate = lambda: next(fates, "done")
        waiting = asyncio.ensure_future(create(client, b"/a"))
        await until(lambda: store.commands == 3)
        for number in range(3):
            assert await create(client, b"/b/%d" % number)
        assert not waiting.done() and await waiting
        assert client.metrics()["minikube_py_store_client_sessions_renewed_total"] == 0


@pytest.mark.parametrize("fate", FATES)
async def test_refusals_are_kept_as_well(fate: Fate) -> None:
    """The first execution is the one that counts, even if a later one could do it."""
    async with fake_store() as store, connected(store) as client:
        await client.lease_grant(60, 5)
        fates = iter([fate])
        store.fate = lambda: next(fates, "done")
        with pytest.raises(LeaseExists):
            await client.lease_grant(60, 5)


async def test_opening_a_session_is_tried_again_too() -> None:
    async with fake_store() as store:
        fates: Any = iter(["lost after", "unknown before", "refused", "lost before"])
        store.fate = lambda: next(fates, "done")
        async with connected(store) as client:
            assert await put(client, b"/a") == 2


async def test_when_its_time_is_over_a_write_that_was_sent_is_unknown() -> None:
    async with fake_store() as store, connected(store, request_timeout_s=1.5) as client:
        await put(client, b"/a")
        store.fate = lambda: "never answered"
        with pytest.raises(OutcomeUnknown, match=r"no answer within 1\.5 s; the write may or may not"):
            await put(client, b"/b")
        store.fate = lambda: "done"
        # What was given up is never answered; what comes after does not wait for it.
        for _ in range(3):
            await put(client, b"/c")
        assert client._session.lowest == client._session._next
        assert store.state.get(b"/b") is None


async def test_when_its_time_is_over_a_write_that_was_never_sent_is_refused_with_all_reasons() -> None:
    async with fake_store() as store, connected(store, request_timeout_s=1.5) as client:
        await put(client, b"/a")
        store.elect(0)
        await store.members[0].stop()
        await until(lambda: not leads(client, 1))
        with pytest.raises(Unavailable, match=r"no leader of the store was reached within 1\.5 s") as refused:
            await put(client, b"/b")
        text = str(refused.value)
        for member in store.members:
            assert f"{member.endpoint.address}: " in text
        assert "cannot be reached" in text and "it knows no leader" in text


async def test_a_write_called_refused_before_it_left_never_leaves() -> None:
    """Seed 1073: a client that stood still sends a write and finds its time over in the same turn of the loop."""
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        late = asyncio.ensure_future(put(client, b"/b"))
        await asyncio.sleep(0)
        for call in client._pending:
            call.deadline_s = 0.0
        client._sweep()
        with pytest.raises(Unavailable):
            await late
        await put(client, b"/c")
        assert store.state.get(b"/b") is None and client._session.lowest == client._session._next


async def test_a_write_refused_until_its_time_is_over_says_by_what() -> None:
    async with fake_store() as store, connected(store, request_timeout_s=1.5) as client:
        await put(client, b"/a")
        store.fate = lambda: "refused"
        with pytest.raises(Unavailable, match="the last answer was: too much waits"):
            await put(client, b"/b")


async def test_a_session_that_ended_under_a_lost_write_leaves_it_unknown() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        session = client._session.id
        fates: Any = iter(["unknown before"])
        store.fate = lambda: next(fates, "done")
        write = asyncio.ensure_future(put(client, b"/b"))
        await until(lambda: store.commands == 3)
        store.state.sessions.close(session)
        with pytest.raises(SessionExpired, match="may or may not have taken effect"):
            await write
        assert await put(client, b"/c") == 3
        assert client._session.id != session


async def test_when_a_session_has_ended_nobody_in_it_is_left_waiting() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        for fates, outcome in ((["done", "lost before"], SessionExpired), (["refused", "done"], type(None))):
            store.state.sessions.close(client._session.id)
            next_fate = iter(fates)
            store.fate = lambda next_fate=next_fate: next(next_fate, "done")
            async with asyncio.timeout(5):
                results = await asyncio.gather(
                    create(client, b"/b/%d" % store.commands), create(client, b"/c/%d" % store.commands),
                    return_exceptions=True,
                )  # fmt: skip
            errors = [type(each) for each in results if each is not True]
            assert errors == ([outcome] if outcome is SessionExpired else [])


async def test_a_session_that_ended_without_use_costs_nothing() -> None:
    """A request that was answered with "session ended" was not done: it is sent again in the next session."""
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        store.state.sessions.close(client._session.id)
        assert await asyncio.gather(*(create(client, b"/b/%d" % i) for i in range(30))) == [True] * 30
        assert client.metrics()["minikube_py_store_client_sessions_renewed_total"] == 1
        assert [kv.version for kv in store.state.range(RangeRequest(b"/b/", b"/b0")).kvs] == [1] * 30


async def test_a_client_does_not_run_ahead_of_what_the_store_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT_MAX", 10)
    monkeypatch.setattr(client_session, "KEPT_MAX", 10)
    async with fake_store() as store, connected(store) as client:
        assert await asyncio.gather(*(create(client, b"/%d" % i) for i in range(200))) == [True] * 200
        [session] = store.state.sessions.by_id.values()
        assert len(session.replies) <= 10


async def test_too_large_for_any_frame_harms_nobody_else() -> None:
    async with fake_store() as store, connected(store) as client:
        results = await asyncio.gather(
            put(client, b"/a"), put(client, b"/b", bytes(FRAME_BYTES_MAX)), put(client, b"/c"), return_exceptions=True
        )
        assert results[0] == 2 and isinstance(results[1], RequestTooLarge) and results[2] == 3


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        store.fate = lambda: "never answered"
        tasks = [asyncio.ensure_future(put(client, b"/b")), asyncio.ensure_future(client.get(b"/a"))]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await until(lambda: client.metrics()["minikube_py_store_client_requests_pending"] == 0)
        store.fate = lambda: "done"
        await put(client, b"/c")
        assert client._session.lowest == client._session._next


async def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PENDING_MAX", 5)
    async with fake_store() as store, connected(store) as client:
        store.elect(0)
        waiting = [asyncio.ensure_future(put(client, b"/a")) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="5 requests to the store are waiting"):
            await put(client, b"/b")
        store.elect(1)
        await asyncio.gather(*waiting)


async def test_a_change_of_members_is_never_sent_twice() -> None:
    async with fake_store() as store, connected(store) as client:
        for fate in ("lost after", "unknown after", "lost before"):
            fates: Any = iter([fate])
            store.fate = lambda fates=fates: next(fates, "done")
            before = len(store.changes)
            with pytest.raises(OutcomeUnknown):
                await client.change_members(MemberChange(ChangeKind.EXPECT, name="store-4"))
            assert len(store.changes) == before + (fate != "lost before")
        store.elect(2, tell=False)
        await client.change_members(MemberChange(ChangeKind.EXPECT, name="store-5"))
        assert [change.name for change in store.changes] == ["store-4", "store-4", "store-5"]


async def test_to_make_another_lead_is_asked_until_it_is_so() -> None:
    async with fake_store() as store, connected(store) as client:
        fates: Any = iter(["lost after", "lost before"])
        store.fate = lambda: next(fates, "done")
        await client.transfer(NodeId(2))
        assert store.leader == 2
        store.fate = lambda: "refused"
        with pytest.raises(Unavailable, match="too much waits"):
            await client.transfer(NodeId(3))


async def test_a_closed_client_leaves_nobody_waiting() -> None:
    async with fake_store() as store:
        async with connected(store) as client:
            await put(client, b"/a")
            store.fate = lambda: "never answered"
            sent = asyncio.ensure_future(put(client, b"/b"))
            await asyncio.sleep(0.01)
            seen: list[WatchBatch] = []
            client.watch(b"/", b"0", 1, seen.append)
        with pytest.raises(OutcomeUnknown, match="the client was closed"):
            await sent
        with pytest.raises(Unavailable, match="the client was closed"):
            await put(client, b"/c")
        assert isinstance(seen[-1].error, Unavailable)


async def test_a_watch_begun_while_a_client_starts_in_vain_ends_with_it() -> None:
    """Seed 1050."""
    client = StoreClient(Endpoint("127.0.0.1", 1, "token"), LoopClock(), random.Random(1))
    start = asyncio.ensure_future(client.start())
    await asyncio.sleep(0)
    seen: list[WatchBatch] = []
    client.watch(b"/", b"0", 1, seen.append)
    with pytest.raises(Unavailable):
        await start
    assert isinstance(seen[-1].error, Unavailable)


# -- reads ------------------------------------------------------------------------------------------------------------


async def test_nobody_is_told_that_the_end_of_a_session_had_no_answer() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with fake_store() as store:
        async with connected(store, fail_fast=True) as client:
            await put(client, b"/a")
        del client
        gc.collect()
        await asyncio.sleep(0)
    assert not complaints


async def test_a_read_that_may_be_old_is_never_older_than_what_was_seen() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        store.members[0].lag = 1
        result = await client.range(RangeRequest(b"/a"), serializable=True)
        assert result.revision == 2 and result.kvs
        assert client.metrics()["minikube_py_store_client_stale_reads_total"] == 1


async def test_a_follower_that_is_reached_serves_reads_while_the_leader_is_not() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        # The leader lives, for the others, but not for this client.
        store.members[0].advertised = "127.0.0.1:1"
        await store.members[0].stop()
        assert (await client.get(b"/a"))[0] is not None


async def test_renewals_are_tried_again() -> None:
    async with fake_store() as store, connected(store) as client:
        lease = await client.lease_grant(60)
        store.elect(2, tell=False)
        store.members[0].cut()
        assert await client.lease_keep_alive(lease.id) == 60
        assert await client.lease_keep_alive(7) == 0


# -- watches ----------------------------------------------------------------------------------------------------------


async def test_a_watch_shows_each_revision_once_and_whole_whoever_serves_it() -> None:
    async with fake_store() as store, connected(store) as client:
        rng = random.Random(5)
        seen: list[WatchBatch] = []
        client.watch(b"/w/", b"/w0", 0, seen.append)
        await until(lambda: seen)
        for i in range(300):
            ops = [Put(b"/w/%d" % key, bytes(5)) for key in range(rng.randrange(1, 4))]
            await client.txn((), ops)
            roll = rng.random()
            if roll < 0.1:
                store.members[store.leader - 1].cut()
            elif roll < 0.2:
                store.elect(rng.randrange(1, 4), tell=rng.random() < 0.5)
            if i % 10 == 0:
                await asyncio.sleep(0)
        final = store.state.revision
        await until(lambda: seen[-1].revision == final)
        expected = list(store.state.events(b"/w/", b"/w0", 2, final))
        assert [event for batch in seen for event in batch.events] == expected
        assert client.metrics()["minikube_py_store_client_watches_resumed_total"] > 20
        revisions = [batch.revision for batch in seen]
        assert revisions == sorted(revisions)


async def test_a_batch_cut_in_the_middle_comes_again_whole() -> None:
    async with fake_store() as store, connected(store) as client:
        seen: list[WatchBatch] = []
        client.watch(b"/w/", b"/w0", 2, seen.append)
        await client.get(b"/w/1")
        store.members[0].silent = True
        store.execute(client_session.pack(Put(b"/w/1", b"")))
        [connection] = store.members[0].connections
        [event] = store.state.events(b"/w/", b"/w0", 2, 2)
        [watch_id] = connection._watches
        from minikube_py.store.protocol import Answer, frame

        connection.transport.write(frame((watch_id, Answer.EVENTS, 2, (event,), True)))
        await until(lambda: next(iter(client._watches._watches))._events)
        store.members[0].silent = False
        store.members[0].cut()
        await until(lambda: seen)
        assert [event for batch in seen for event in batch.events] == [event]


async def test_history_that_is_gone_ends_a_watch_and_says_from_where() -> None:
    async with fake_store() as store, connected(store) as client:
        seen: list[WatchBatch] = []
        client.watch(b"/w", b"", 0, seen.append)
        await until(lambda: seen)
        for member in store.members:
            await member.stop()
        for _ in range(5):
            store.execute(client_session.pack(Put(b"/w", b"")))
        store.execute(client_session.pack(Compact(5)))
        for member in store.members:
            await member.start()
        await until(lambda: seen[-1].error is not None)
        error = seen[-1].error
        assert isinstance(error, Compacted) and (error.requested, error.compact_revision) == (2, 5)
        assert len(client._watches) == 0


async def test_a_watch_on_fields_goes_on_elsewhere_and_ends_when_they_are_declared_anew() -> None:
    where = Where((Comparison("allocatable.cpu", ">=", ("4",)),))
    node = b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"%d"}}}'
    async with fake_store() as store, connected(store) as client:
        await client.declare(NODES)
        seen: list[WatchBatch] = []
        client.watch(NODES.prefix, NODES.prefix[:-1] + b"0", 0, seen.append, where)
        for cpu in (8, 2, 8):
            await put(client, NODES.prefix + b"n", node % cpu)
            store.elect(store.leader % 3 + 1)
            store.members[store.leader - 2].cut()
        kinds = lambda: [event.type for batch in seen for event in batch.events]  # noqa: E731
        await until(lambda: len(kinds()) == 3)
        assert kinds() == ["PUT", "DELETE", "PUT"]
        await client.declare(FieldSet(NODES.name, NODES.prefix, NODES.fields[3:4], ()))
        await put(client, NODES.prefix + b"n", node % 1)
        await until(lambda: seen[-1].error is not None)
        assert isinstance(seen[-1].error, FieldsRedeclared)


async def test_a_cancelled_watch_stays_cancelled() -> None:
    async with fake_store() as store, connected(store) as client:
        seen: list[WatchBatch] = []
        watch = client.watch(b"/w", b"", 0, seen.append)
        await put(client, b"/w")
        watch.cancel()
        count = len(seen)
        store.members[0].cut()
        await put(client, b"/w")
        await client.get(b"/w")
        assert len(seen) == count and not store.hub._synced


async def test_a_watch_from_now_on_sees_what_its_own_client_writes_next_even_if_its_first_word_was_lost() -> None:
    async with fake_store() as store, connected(store) as client:
        await put(client, b"/a")
        seen: list[WatchBatch] = []
        store.members[0].deaf_to_watches = True
        client.watch(b"/w", b"", 0, seen.append)
        await put(client, b"/w")
        store.members[0].deaf_to_watches = False
        store.members[0].cut()
        await put(client, b"/b")
        await put(client, b"/w")
        await until(lambda: seen and seen[-1].revision == 5)
        assert [event.kv.mod_revision for batch in seen for event in batch.events] == [3, 5]


# -- all of it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_each_write_is_done_once_or_not_at_all(seed: int) -> None:
    """Clients that create, over members that lose, refuse and change leaders at random. At the end each key that was
    said to be done is there once, each that was refused is not, and a watch has seen exactly what there is."""
    rng = random.Random(seed)
    outcomes: dict[bytes, object] = {}
    async with fake_store() as store:
        chances: list[Fate] = ["done"] * 12 + [*FATES, "never answered"]
        store.fate = lambda: rng.choice(chances)

        async def disturb() -> None:
            while True:
                await asyncio.sleep(rng.random() * 0.02)
                roll = rng.random()
                if roll < 0.5:
                    store.elect(rng.randrange(0, 4), tell=rng.random() < 0.7)
                elif roll < 0.8:
                    rng.choice(store.members).cut()
                elif store.state.sessions.by_id:
                    store.state.sessions.close(rng.choice(list(store.state.sessions.by_id)))

        async def work(client: StoreClient, name: int) -> None:
            for number in range(25):
                key = b"/w/%d/%d" % (name, number)
                try:
                    outcomes[key] = await create(client, key)
                except MinikubeError as error:
                    outcomes[key] = error

        async with connected(store, seed, request_timeout_s=0.5) as one, connected(store, seed) as other:
            seen: list[WatchBatch] = []
            other.watch(b"/w/", b"/w0", 0, seen.append)
            disturbing = asyncio.ensure_future(disturb())
            await asyncio.gather(*(work(client, name) for name, client in enumerate([one] * 8 + [other] * 2)))
            disturbing.cancel()
            store.fate = lambda: "done"
            store.elect(1)
            await until(lambda: seen[-1].revision == store.state.revision)
    there = {kv.key: kv.version for kv in store.state.range(RangeRequest(b"/w/", b"/w0")).kvs}
    assert set(there.values()) == {1}
    for key, outcome in outcomes.items():
        if outcome is True:
            assert key in there, f"{key!r} was acknowledged and is lost"
        elif isinstance(outcome, OutcomeUnknown):
            continue
        else:
            assert isinstance(outcome, Unavailable), f"{key!r}: {outcome!r}"
            assert key not in there, f"{key!r} was refused and is there"
    assert sum(outcome is True for outcome in outcomes.values()) > 150
    assert sorted(event.kv.key for batch in seen for event in batch.events) == sorted(there)


async def test_every_member_says_no_and_why() -> None:
    async with fake_store() as store:
        for member in store.members:
            await member.stop()
        client = StoreClient(store.endpoints(), LoopClock(), random.Random(1))
        with pytest.raises(Unavailable) as refused:
            await client.start()
        for member in store.members:
            assert f"{member.endpoint.address}: the store at" in str(refused.value)


def test_a_client_without_an_address_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="1 to 64 endpoints, not 0"):
        StoreClient([], LoopClock(), random.Random(1))
    assert Endpoint("::1", 7, TOKEN).address == "[::1]:7"
