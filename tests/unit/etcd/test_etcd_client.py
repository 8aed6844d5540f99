"""Requests to several members of an etcd: which is asked next, and which is named in an error."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.etcd.client import RETRY_S, Endpoints, EtcdClient
from minikube_py.etcd.messages import pb

PLACES = ("one:1", "two:2", "three:3")
KEEP_ALIVE = "Lease/LeaseKeepAlive"
WAYS = ("read", "write", "exchange")
Outcome = Callable[[str], Any]
"""Of an attempt at a place: an answer, or an error."""


def fails(code: grpc.StatusCode, text: str = "broken") -> Outcome:
    def outcome(place: str) -> Any:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)

    return outcome


def ends(_place: str) -> Any:
    return grpc.aio.EOF


def was_ended(_place: str) -> Any:
    raise asyncio.InvalidStateError


def answers(place: str) -> Any:
    header = SimpleNamespace(revision=len(place), cluster_id=1)
    return SimpleNamespace(header=header, TTL=PLACES.index(place) + 1)


UNREACHABLE = fails(grpc.StatusCode.UNAVAILABLE)
LATE = fails(grpc.StatusCode.DEADLINE_EXCEEDED)
BROKEN = (UNREACHABLE, LATE, fails(grpc.StatusCode.UNKNOWN, "?"))
STREAM_BROKEN = (*BROKEN, ends, was_ended)


class SteppingClock:
    """Moves by what is slept, so that the number of attempts does not depend on the machine."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s

    async def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s
        await asyncio.sleep(0)


class FakeStream:
    def __init__(self, attempt: Callable[[], Any]) -> None:
        self._attempt = attempt
        self.cancelled = False

    async def write(self, request: Any) -> None:
        pass

    async def read(self) -> Any:
        return await self._attempt()

    def cancel(self) -> None:
        self.cancelled = True


class Members(EtcdClient):
    """Each attempt has its outcome by place, once `released` is set for its number."""

    def __init__(self, outcomes: dict[str, Outcome], timeout_s: float, held: bool = False) -> None:
        super().__init__(Endpoints(PLACES), SteppingClock(), lambda header, seen: None, timeout_s)
        self._outcomes = outcomes
        self._held = held
        self.asked: list[str] = []
        self.released: list[asyncio.Event] = []
        self.made_streams: list[FakeStream] = []

    def _method(self, at: int, name: str) -> Any:
        place, released = PLACES[at], asyncio.Event()

        async def attempt() -> Any:
            if self._held:
                await released.wait()
            return self._outcomes[place](place)

        def begun(request: Any = None, timeout: float | None = None, metadata: Any = ()) -> Any:
            self.asked.append(place)
            self.released.append(released)
            if name != KEEP_ALIVE:
                return attempt()
            self.made_streams.append(FakeStream(attempt))
            return self.made_streams[-1]

        return begun


def sent(client: EtcdClient, way: str) -> Any:
    if way == "exchange":
        return client.exchange(KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=7))
    return getattr(client, way)("KV/Range" if way == "read" else "KV/Put", pb.RangeRequest(key=b"a"))


@pytest.mark.parametrize("way", ["read", "exchange"])
@pytest.mark.parametrize("broken", [(), (0,), (0, 1), (0, 2), (1, 2)])
async def test_what_may_be_repeated_is_asked_of_the_next_member(way: str, broken: tuple[int, ...]) -> None:
    for how in STREAM_BROKEN if way == "exchange" else BROKEN:
        client = Members({place: how if at in broken else answers for at, place in enumerate(PLACES)}, 10.0)
        alive = next(at for at in range(3) if at not in broken)
        for _ in range(3):
            answer = await sent(client, way)
            assert PLACES[answer.TTL - 1] == PLACES[alive]
        # Each member was asked once at most, and the one that answered is kept.
        assert client.asked == [*PLACES[:alive], *[PLACES[alive]] * 3] and client.place == PLACES[alive]
        assert all(each.cancelled for each in client.made_streams)
        await client.close()


@pytest.mark.parametrize("way", WAYS)
async def test_when_none_answers_each_attempt_has_been_at_another_member(way: str) -> None:
    # A write is repeated only if it cannot have begun.
    not_begun = fails(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
    for how in {"read": BROKEN, "write": (not_begun,), "exchange": STREAM_BROKEN}[way]:
        client = Members(dict.fromkeys(PLACES, how), 4.5 * RETRY_S)
        with pytest.raises(Unavailable):
            await sent(client, way)
        assert client.asked == list(itertools.islice(itertools.cycle(PLACES), len(client.asked)))
        assert len(client.asked) == 5
        await client.close()


@pytest.mark.parametrize(
    "how", [*BROKEN, fails(grpc.StatusCode.UNAVAILABLE, "etcdserver: request timed out, possibly due to a lost leader")]
)
async def test_a_write_that_may_have_been_done_is_not_repeated(how: Outcome) -> None:
    client = Members(dict.fromkeys(PLACES, how), 10.0)
    with pytest.raises(OutcomeUnknown):
        await sent(client, "write")
    assert client.asked == [PLACES[0]] and client.unknown == 1
    await client.close()


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_restored_etcd_has_written_was_not_refused(way: str) -> None:
    def gone_back(header: Any, seen: int) -> None:
        client.forget()
        raise Unavailable("etcd is at an earlier revision")

    client = Members(dict.fromkeys(PLACES, answers), 10.0)
    client._answered, client.seen_revision = gone_back, 1_000
    if way == "write":
        # Its answer is the first of the new history.
        assert (await sent(client, way)).header.revision == client.seen_revision == len(PLACES[0])
    else:
        with pytest.raises(Unavailable, match="earlier revision"):
            await sent(client, way)
    assert len(client.asked) == 1
    await client.close()


@given(
    st.lists(st.tuples(st.sampled_from(WAYS), st.sampled_from(range(len(STREAM_BROKEN)))), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_an_error_names_the_member_that_was_asked(requests: list[tuple[str, int]], order: Any) -> None:
    """Whichever fails first makes the others' member the former one."""

    async def run() -> None:
        client = Members({}, 0.0, held=True)
        tasks, hows = [], []
        for way, index in requests:
            hows.append(STREAM_BROKEN[index] if way == "exchange" else BROKEN[index % len(BROKEN)])
            tasks.append(asyncio.ensure_future(sent(client, way)))
            await asyncio.sleep(0)
            # Some begin when the client already uses the next member.
            if order.random() < 0.3:
                client.pass_over(client.place)
        assert len(client.asked) == len(requests)
        asked = list(client.asked)
        for at in order.sample(range(len(tasks)), len(tasks)):
            client._outcomes = dict.fromkeys(PLACES, hows[at])
            client.released[at].set()
            with pytest.raises((Unavailable, OutcomeUnknown)) as failed:
                await tasks[at]
            assert [place for place in PLACES if place in str(failed.value)] == [asked[at]]
        await client.close()

    run_virtually(run)
