"""Each request gets its one answer, under its number: whatever it asks, of whomever, and whoever leads."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from member_net import MemberNet, three
from patience import until

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put, RangeRequest
from minikube_py.store.connection import Connection
from minikube_py.store.framing import FrameReader, decode_error, frame
from minikube_py.store.limits import FRAME_BYTES_MAX, ServerLimits
from minikube_py.store.protocol import GREETING, Answer, Op
from minikube_py.store.server import StoreServer

TOKEN = "a token"
RANGE = pack(RangeRequest(b"/a"))
ARGUMENTS: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 1 << 63, 1.5, "text", b"", b"\xc1", [], [1], [None] * 5, {}),
    *(RANGE, pack(Put(b"/a", b"v")), msgpack.packb((1, [99, "of a later version"]))),
    *(
        [b"/a", b"", 0, None, 0],
        [b"/a", b"", 0, [], 0],
        [b"/a", b"", 0, [["x", "<", ["1"]]], 0],
        ["/a", 0, b"", 0, None],
    ),
)
UNANSWERED = (Op.CANCEL,)
"""Whoever cancels wants to hear no more."""


class Incoming:
    def authenticated(self) -> bool:
        return True

    def left(self) -> None:
        pass


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.closing = False
        self._reader = FrameReader(FRAME_BYTES_MAX)

    def write(self, data: bytes) -> None:
        self.said += self._reader.feed(data)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = write_eof = close

    def set_write_buffer_limits(self, **_: Any) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def answers(self) -> dict[int, list[Any]]:
        """By the request's number, without what is said of itself (events, who leads)."""
        found: dict[int, list[Any]] = {}
        for number, kind, *rest in self.said[1:]:  # behind the welcome
            if number:
                found.setdefault(number, []).append((kind, *rest))
        return found

    def ends(self, number: int) -> list[int]:
        """What its answer ended with, or its watch began with."""
        return [kind for kind, *_ in self.answers().get(number, ()) if kind not in (Answer.PART, Answer.FRAGMENT)]


class Asked:
    def __init__(self, net: MemberNet, id: int, limits: ServerLimits | None = None) -> None:
        self.server = StoreServer(net[id], TOKEN, limits=limits)
        self.wire = Wire()
        self.connection = Connection(self.server, Incoming())  # type: ignore[arg-type]
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]
        self.connection.data_received(GREETING.hello(TOKEN, 0))
        self._next = 0
        self.connection._flush()

    def ask(self, op: int, argument: Any, *flags: Any) -> int:
        self._next += 1
        self.connection.data_received(frame((self._next, op, argument, *flags)))
        return self._next


@asynccontextmanager
async def asked(folder: Path, follower: bool = False) -> AsyncIterator[tuple[MemberNet, Asked]]:
    async with three(folder) as net:
        await net.put(b"/a", b"v")
        leader = await net.leader()
        await net.alike()
        yield net, Asked(net, net.others(leader)[0] if follower else leader.member_id)


@pytest.mark.parametrize("follower", [False, True], ids=["the leader", "a follower"])
@pytest.mark.parametrize("apart", [False, True], ids=["all there", "cut off"])
async def test_each_request_is_answered_once(tmp_path: Path, follower: bool, apart: bool) -> None:
    async with asked(tmp_path, follower) as (net, one):
        if apart:
            net.isolate(one.server.member.member_id)
        harmless = [op for op in Op if op not in (Op.MEMBER_CHANGE, Op.TRANSFER, *UNANSWERED)]
        wanted = [(op, argument) for op in [*harmless, 77] for argument in ARGUMENTS]
        random.Random(3).shuffle(wanted)
        for op, argument in wanted:
            if one.wire.closing:
                # What is no request at all ended that connection.
                one = Asked(net, one.server.member.member_id)
            number = one.ask(op, argument)
            await until(lambda one=one, number=number: one.wire.closing or one.wire.ends(number))
            assert one.wire.closing == (op == 77), (op, argument)
            assert one.wire.closing or len(one.wire.ends(number)) == 1, (op, argument)
            one.ask(Op.CANCEL, number)
        await until(lambda: one.wire.closing or not one.connection.in_flight)
        net.heal()


async def test_a_read_of_who_is_cut_off_is_refused_and_one_of_a_follower_is_answered(tmp_path: Path) -> None:
    async with asked(tmp_path, follower=True) as (net, one):
        number = one.ask(Op.RANGE, RANGE)
        await until(lambda: number in one.wire.answers())
        [(kind, rest)] = one.wire.answers()[number]
        assert kind == Answer.OK and rest[0][0][1] == b"v" and one.connection.in_flight == 0
        net.isolate(one.server.member.member_id)
        number = one.ask(Op.RANGE, RANGE)
        assert number not in one.wire.answers() and one.connection.in_flight == 1
        await until(lambda: number in one.wire.answers())
        [(kind, error, *_)] = one.wire.answers()[number]
        assert kind == Answer.ERROR and isinstance(decode_error(error), MinikubeError)
        assert one.connection.in_flight == 0
        old = one.ask(Op.RANGE, RANGE, 1)
        await until(lambda: old in one.wire.answers())
        assert one.wire.answers()[old][0][0] == Answer.OK, "an old answer may be given by anybody"


async def test_a_ping_tells_the_revision(tmp_path: Path) -> None:
    async with asked(tmp_path) as (net, one):
        for _ in range(2):
            number = one.ask(Op.PING, None)
            await until(lambda number=number: number in one.wire.answers())
            assert one.wire.answers()[number] == [(Answer.OK, one.server.member.state.revision)]
            await net.put(b"/b")


async def test_what_does_not_read_is_the_requests_fault_and_no_others(tmp_path: Path) -> None:
    async with asked(tmp_path) as (_, one):
        bad = [one.ask(Op.COMMAND, 7), one.ask(Op.RANGE, "text"), one.ask(Op.WATCH, [1]), one.ask(Op.EXPLAIN, [])]
        good = one.ask(Op.RANGE, RANGE)
        await until(lambda: good in one.wire.answers())
        said = one.wire.answers()
        for number in bad:
            [(kind, error, *_)] = said[number]
            assert kind == Answer.ERROR and isinstance(decode_error(error), InvalidRequest), number
        assert said[good][0][0] == Answer.OK and not one.wire.closing


@pytest.mark.parametrize("request_", [[], [1], [1, 2], [1, 2, 3, 4, 5], [0, 7, None], [-1, 7, None], ["1", 7, None]])
async def test_what_is_no_request_is_told_so_and_ends_the_connection(tmp_path: Path, request_: list[Any]) -> None:
    async with asked(tmp_path) as (_, one):
        one.connection.data_received(frame(request_))
        await until(lambda: one.wire.closing)
        number, error = one.wire.said[-1]
        assert number == 0 and isinstance(decode_error(error), MinikubeError)


async def test_beyond_its_limit_requests_wait_and_all_are_answered_in_the_end(tmp_path: Path) -> None:
    async with asked(tmp_path) as (net, one):
        one = Asked(net, one.server.member.member_id, ServerLimits(in_flight_max=3))
        puts = [one.ask(Op.COMMAND, pack(Put(b"/%d" % at, b"v"))) for at in range(20)]
        assert one.connection.in_flight <= 3
        await until(lambda: set(puts) <= set(one.wire.answers()))
        counted = Counter(kind for said in one.wire.answers().values() for kind, *_ in said)
        assert counted == {Answer.OK: len(puts)} and one.connection.in_flight == 0
