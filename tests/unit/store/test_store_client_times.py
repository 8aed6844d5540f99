"""When a client does what: how long it waits for an answer, an address or a sign of life, and how soon it tries again.
All of it in virtual time, to the step of its own clock."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from fake_store import FakeConnection, FakeMember, FakeStore, fake_store
from patience import until
from virtual_time import LoopClock

from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.mvcc.types import Put, RangeRequest
from minikube_py.store import client as module
from minikube_py.store import client_connection, client_route
from minikube_py.store.client import StoreClient
from minikube_py.store.client_session import SessionWrites, Write
from minikube_py.store.protocol import Op


class EvenRng:
    """Draws the middle of any range, and leaves every order as it is."""

    def __init__(self) -> None:
        self._bits = 0

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def shuffle(self, items: list[Any]) -> None:
        pass

    def getrandbits(self, count: int) -> int:
        self._bits += 1
        return self._bits


@asynccontextmanager
async def connected(
    store: FakeStore, *numbers: int, timeout_s: float = 10.0, **options: Any
) -> AsyncIterator[StoreClient]:
    endpoints = [store.members[number - 1].endpoint for number in numbers or range(1, len(store.members) + 1)]
    rng: Any = EvenRng()
    client = StoreClient(endpoints, LoopClock(), rng, request_timeout_s=timeout_s, **options)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def noted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[tuple[float, int, Any]]]:
    """What members hear, and when: (seconds, member, op; None for a connection that is made)."""
    loop = asyncio.get_running_loop()
    found: list[tuple[float, int, Any]] = []
    take, made = FakeConnection._take, FakeConnection.connection_made

    def _take(self: FakeConnection, request: Any) -> None:
        if self.greeted:
            found.append((loop.time(), self.member.number, request[1]))
        take(self, request)

    def connection_made(self: FakeConnection, transport: Any) -> None:
        found.append((loop.time(), self.member.number, None))
        made(self, transport)

    monkeypatch.setattr(FakeConnection, "_take", _take)
    monkeypatch.setattr(FakeConnection, "connection_made", connection_made)
    yield found


def silence(*members: FakeMember) -> None:
    for member in members:
        member.silent = True


def now() -> float:
    return asyncio.get_running_loop().time()


async def ends(work: Any) -> tuple[float, BaseException]:
    """After how long it fails, and with what."""
    began_s = now()
    try:
        await work
    except (Unavailable, OutcomeUnknown) as error:
        return now() - began_s, error
    raise AssertionError("it did not fail")


@pytest.mark.parametrize("timeout_s", [0.5, 3.0])
async def test_a_request_ends_when_its_time_is_over_and_says_how_long_it_was(timeout_s: float) -> None:
    """To the client's next look, a tenth of a second."""
    async with fake_store(1) as store, connected(store, timeout_s=timeout_s) as client:
        await client.txn((), (Put(b"a", b"v"),))
        silence(store.members[0])
        for work, kind, said in (
            (client.get(b"a"), Unavailable, f"the store gave no answer within {timeout_s:g} s"),
            (client.txn((), (Put(b"a", b"v"),)), OutcomeUnknown, f"the store gave no answer within {timeout_s:g} s"),
        ):
            took_s, error = await ends(work)
            assert timeout_s <= took_s <= timeout_s + module.SWEEP_S + 0.01, said
            assert isinstance(error, kind) and str(error).startswith(said)
        assert client.metrics()["minikube_py_store_client_requests_pending"] <= 1, "a ping may be left"


async def test_what_waits_for_a_leader_in_vain_says_so_when_its_time_is_over() -> None:
    async with fake_store(2) as store, connected(store, timeout_s=1.0) as client:
        await client.txn((), (Put(b"a", b"v"),))
        store.elect(0)
        await asyncio.sleep(0.01)
        took_s, error = await ends(client.lease_keep_alive(5))
        assert 1.0 <= took_s <= 1.11 and str(error).startswith("no leader of the store was reached within 1 s: ")
        assert "it knows no leader" in str(error)


async def test_what_a_member_refused_is_not_called_unanswered() -> None:
    async with fake_store(2) as store, connected(store, timeout_s=1.0) as client:
        await client.txn((), (Put(b"a", b"v"),))
        store.elect(0, tell=False)
        took_s, error = await ends(client.lease_keep_alive(5))
        assert 1.0 <= took_s <= 1.11 and str(error).startswith("no leader of the store was reached within 1 s: ")
        assert "; the last answer was: " in str(error)


async def test_addresses_are_tried_one_soon_after_the_other_and_each_has_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (client_route.STAGGER_S, client_route.CONNECT_TIMEOUT_S) == (0.3, 10.0)
    async with fake_store(3) as store, noted(monkeypatch) as heard:
        silence(*store.members)
        began_s = now()
        took_s, error = await ends(StoreClient(store.endpoints(), LoopClock(), EvenRng()).start())  # type: ignore[arg-type]
        assert [(round(at - began_s, 1), number) for at, number, op in heard if op is None] == [
            (0.0, 1),
            (0.3, 2),
            (0.6, 3),
        ]
        assert took_s == pytest.approx(10.6, abs=0.05) and str(error).count("no answer within 10 s") == 3


async def test_behind_one_that_is_silent_the_next_one_is_found_and_the_silent_one_not_waited_for() -> None:
    async with fake_store(3) as store:
        silence(store.members[0])
        store.elect(2)
        began_s = now()
        async with connected(store) as client:
            assert now() - began_s == pytest.approx(0.3, abs=0.05)
            assert client.metrics()["minikube_py_store_client_leader_connected"] == 1
        store.elect(0)
        began_s = now()
        async with connected(store) as client:
            # Members 2 and 3 serve, neither leads: the first of them, once the last one tried had its time.
            assert now() - began_s == pytest.approx(0.6, abs=0.1)
            assert client.metrics()["minikube_py_store_client_connected"] == 1
            assert client.metrics()["minikube_py_store_client_leader_connected"] == 0
            assert (await client.range(RangeRequest(b"a"), serializable=True)).kvs == []


async def test_while_nobody_leads_rounds_of_questions_are_further_and_further_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_store(2) as store, connected(store) as client, noted(monkeypatch) as heard:
        assert (client_route.RETRY_S_MIN, client_route.RETRY_S_MAX) == (0.05, 1.0)
        began_s = now()
        store.elect(0)
        await asyncio.sleep(6.0)
        rounds = [at for at, number, op in heard if op is None]
        apart = [round(after - before, 3) for before, after in itertools.pairwise(rounds)]
        wanted = [0.75 * pause for pause in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0)]
        assert rounds[0] - began_s < 0.01 and apart[:7] == pytest.approx(wanted[:7], abs=0.02)
        assert {number for _, number, op in heard if op is None} == {2}, "the one at hand is not asked again"
        store.elect(1)
        await client.txn((), (Put(b"a", b"v"),))
        await asyncio.sleep(1.0)
        heard.clear()
        store.elect(0)
        await asyncio.sleep(0.2)
        again = [at for at, _, op in heard if op is None]
        assert again[1] - again[0] == pytest.approx(wanted[0], abs=0.02), "a leader in between ends them"


async def test_an_idle_connection_is_asked_for_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.PING_S == 2.0
    async with fake_store(1) as store, connected(store) as client, noted(monkeypatch) as heard:
        began_s = now()
        await asyncio.sleep(7.0)
        assert [round(at - began_s) for at, _, op in heard if op == Op.PING] == [2, 6], (
            "at 4 s the first was just answered"
        )
        heard.clear()
        until_s = now() + 7.0
        while now() < until_s:
            await client.get(b"a")
            await asyncio.sleep(0.5)
        assert not [op for _, _, op in heard if op == Op.PING], "who answers needs no other sign"
        silence(store.members[0])
        heard.clear()
        await asyncio.sleep(9.0)
        assert client.metrics()["minikube_py_store_client_requests_pending"] == 1, "one at a time"


async def test_a_member_that_owes_an_answer_is_doubted_after_1_s_and_given_up_after_10(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (module.SILENT_S, module.DEAD_S) == (1.0, 10.0)
    async with fake_store(2) as store, connected(store, timeout_s=30.0) as client, noted(monkeypatch) as heard:
        await client.txn((), (Put(b"a", b"v"),))
        heard.clear()
        silence(store.members[0])
        began_s = now()
        read = asyncio.ensure_future(client.get(b"a"))

        def doubts() -> list[float]:
            return [at - began_s for at, number, op in heard if (number, op) == (2, None)]

        await until(lambda: bool(doubts()))
        assert 1.0 < doubts()[0] <= 1.12
        # The other one does not know of another leader: the read waits for the one that is silent.
        await asyncio.sleep(8.5)
        assert not read.done() and len(store.members[0].connections) == 1
        given_up: list[float] = []
        await until(lambda: not store.members[0].connections or given_up.append(now()) or now() - began_s > 10.3)
        gone_s = now() - began_s
        assert 10.0 < gone_s <= 10.35
        store.members[0].silent = False
        kv, _ = await read
        assert kv is not None and kv.value == b"v"


async def test_what_was_refused_for_now_is_sent_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.RETRY_S == 0.05
    fates = ["refused"] * 4 + ["done"]
    async with fake_store(1) as store, connected(store) as client, noted(monkeypatch) as heard:
        await client.txn((), (Put(b"a", b"v"),))
        heard.clear()
        store.fate = lambda: fates.pop(0)  # type: ignore[return-value, assignment]
        await client.txn((), (Put(b"b", b"v"),))
        times = [at for at, _, op in heard if op == Op.COMMAND]
        assert len(times) == 5
        assert [after - before for before, after in itertools.pairwise(times)] == pytest.approx([0.05] * 4, abs=0.01)
        assert client.metrics()["minikube_py_store_client_writes_resent_total"] == 4


@pytest.mark.parametrize("timeout_s", [0.2, 0.5])
async def test_an_answer_that_is_older_than_what_was_seen_is_asked_for_again_and_in_the_end_refused(
    timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_store(1) as store, connected(store, timeout_s=timeout_s) as client, noted(monkeypatch) as heard:
        await client.txn((), (Put(b"a", b"v"),))
        client._saw(9)
        heard.clear()
        took_s, error = await ends(client.get(b"a"))
        asked = len([op for _, _, op in heard if op == Op.RANGE])
        assert took_s == pytest.approx(timeout_s - 0.05, abs=0.03) and asked == round(timeout_s / 0.05)
        assert str(error) == "the store answers at revision 2, but 9 was seen earlier"
        assert client.metrics()["minikube_py_store_client_stale_reads_total"] == asked
        assert client.revision == 9


async def test_one_that_says_no_goodbye_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_connection.GOODBYE_TIMEOUT_S == 1.0
    async with fake_store(1) as store, connected(store) as client:
        connection = client._connection
        assert connection is not None and connection._transport is not None
        aborted: list[float] = []
        monkeypatch.setattr(connection, "connection_lost", lambda error: None)
        monkeypatch.setattr(connection._transport, "abort", lambda: aborted.append(now()))
        began_s = now()
        closing = asyncio.ensure_future(client.close())
        await until(lambda: bool(aborted))
        assert aborted[0] - began_s == pytest.approx(1.0, abs=0.01) and not closing.done()
        connection._ended.set()
        await closing


async def test_metrics_say_what_happened() -> None:
    prefix = "minikube_py_store_client_"
    async with fake_store(2) as store, connected(store, timeout_s=5.0) as client:
        first = client.metrics()
        assert (first[prefix + "connected"], first[prefix + "leader_connected"]) == (1, 1)
        assert (first[prefix + "connects_total"], first[prefix + "watches"]) == (1, 0)
        await client.txn((), (Put(b"a", b"v"),))
        watch = client.watch(b"a", b"b", 1, lambda batch: None)
        assert client.metrics()[prefix + "watches"] == 1 and client.metrics()[prefix + "revision"] == 2
        store.elect(2)
        await client.txn((), (Put(b"b", b"v"),))
        later = client.metrics()
        assert (later[prefix + "connects_total"], later[prefix + "watches_resumed_total"]) == (2, 1)
        assert later[prefix + "revision"] == 3 and later[prefix + "sessions_renewed_total"] == 0
        watch.cancel()
        assert client.metrics()[prefix + "watches"] == 0
        assert client.cluster_id == 77
    assert client.metrics()[prefix + "connected"] == 0


async def test_with_fail_fast_nothing_waits_for_a_connection_or_a_leader() -> None:
    async with fake_store(1) as store, connected(store, fail_fast=True) as client:
        await client.txn((), (Put(b"a", b"v"),))
        store.elect(0)
        await asyncio.sleep(0.01)
        took_s, error = await ends(client.txn((), (Put(b"a", b"v"),)))
        assert took_s == 0.0 and str(error).startswith("no connection to the leader of the store: ")
        assert (await client.range(RangeRequest(b"a"), serializable=True)).kvs[0].value == b"v"
        await store.members[0].stop()
        await asyncio.sleep(0.01)
        ended: list[Any] = []
        client.watch(b"a", b"b", 1, ended.append)
        assert ended == [], "not within the call"
        await asyncio.sleep(0)
        [batch] = ended
        assert isinstance(batch.error, Unavailable)
        took_s, error = await ends(client.get(b"a"))
        assert took_s == 0.0


async def test_a_write_that_nobody_waits_for_keeps_no_other_from_its_next_connection() -> None:
    rng: Any = EvenRng()
    session = SessionWrites(rng, lambda opening: None)
    session.opened(5, None)
    loop = asyncio.get_running_loop()
    sent: dict[str, list[int]] = {"old": [], "new": []}

    def connection(name: str) -> Any:
        return SimpleNamespace(send=lambda write: sent[name].append(write.sequence), why_lost="")

    writes = [Write(Put(b"a", b"v"), loop.create_future()) for _ in range(4)]
    old = connection("old")
    for write in writes:
        session.add(write, old)
    writes[0].future.cancel()
    writes[2].future.cancel()
    session.flush(connection("new"))
    assert sent == {"old": [1, 2, 3, 4], "new": [2, 4]} and session.resent == 2
    assert list(session.unanswered) == [2, 4] and session.lowest == 2
