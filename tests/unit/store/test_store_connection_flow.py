"""What flows through the server's end of a connection: nothing is lost, doubled or out of order, whatever the reader
takes and when; and each bound is where it says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import until
from served_wire import Served, batch, event, shown
from virtual_time import run_virtually

from minikube_py.errors import InvalidRequest, MinikubeError, NotLeader, OutcomeUnknown, Unavailable
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import InSession, LeaseGrant, LeaseResult, Put, PutResult, RangeRequest, WatchBatch
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import LogIndex, SnapshotMeta, Term
from minikube_py.store import connection as module
from minikube_py.store.framing import decode_error, frame
from minikube_py.store.limits import PART_BYTES, ServerLimits
from minikube_py.store.protocol import GREETING, SERIALIZABLE, Answer, Op, decode_range, event_bytes
from minikube_py.store.snapshot_transfer import SnapshotOffer

PUT = pack(Put(b"a", b"v"))
ONE = pack(RangeRequest(b"a"))
DONE = PutResult(2)


def flushed(served: Served) -> None:
    served.connection._flush()


def error_of(answer: tuple[Any, ...]) -> MinikubeError:
    assert answer[0] in (Answer.ERROR, Answer.END)
    return decode_error(answer[1])


# -- requests in flight ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3, 8])
async def test_a_connection_is_read_until_its_limit_and_again_once_half_is_answered(most: int) -> None:
    served = Served(ServerLimits(in_flight_max=most)).greet()
    waiting = most + 4
    numbers = [served.ask(Op.COMMAND, PUT) for _ in range(most)]
    assert len(served.member.proposals) == served.connection.in_flight == most and served.wire.reading == []
    numbers += [served.ask(Op.COMMAND, PUT) for _ in range(waiting)]
    assert len(served.member.proposals) == most and served.wire.reading == [False], "it is not read any further"
    taken = most
    for at, number in enumerate(numbers):
        served.member.proposals[at][1](DONE, None)
        in_flight = taken - at - 1
        if taken < len(numbers) and in_flight <= most // 2:
            taken = min(len(numbers), at + 1 + most)
        assert len(served.member.proposals) == taken and served.connection.in_flight == taken - at - 1
        flushed(served)
        assert [kind for kind, *_ in served.wire.answers(number)] == [Answer.OK]
    assert served.wire.reading == [False, True]


async def test_each_way_of_asking_is_counted_until_its_answer() -> None:
    served = Served().greet()
    served.member.readable = False
    for number, (op, argument, answered) in enumerate(
        [
            (Op.COMMAND, PUT, lambda: served.member.proposals[0][1](DONE, None)),
            (Op.RANGE, ONE, lambda: served.member.readers[0](None)),
            (Op.KEEP_ALIVE, 5, lambda: served.member.renewals[0][1](10, None)),
        ],
        1,
    ):
        served.ask(op, argument)
        assert served.connection.in_flight == 1, op
        answered()
        flushed(served)
        assert served.connection.in_flight == 0 and served.wire.answers(number)[0][0] == Answer.OK, op
    assert served.wire.answers(3) == [(Answer.OK, 10)]
    assert served.ask(Op.RANGE, ONE, SERIALIZABLE) == 4
    flushed(served)
    assert served.wire.answers(4)[0][0] == Answer.OK and served.connection.in_flight == 0, "it needs nobody's word"


@pytest.mark.parametrize("op", [Op.COMMAND, Op.RANGE, Op.KEEP_ALIVE, Op.WATCH])
async def test_what_the_member_refuses_is_answered_with_the_refusal(op: Op) -> None:
    """Before it began (then it says so), or later."""
    served = Served().greet()
    served.member.refuses = NotLeader(NodeId(3), "there")
    argument = {Op.COMMAND: b"nonsense", Op.KEEP_ALIVE: 5, Op.WATCH: (b"a", b"", 1, None, 0)}.get(op, ONE)
    number = served.ask(op, argument)
    flushed(served)
    [answer] = served.wire.answers(number)
    assert isinstance(error_of(answer), InvalidRequest if op == Op.COMMAND else NotLeader) and answer[2:] == (True,)
    assert served.connection.in_flight == 0 and not served.connection.watches
    served.member.refuses, served.member.readable = None, False
    if op == Op.WATCH:
        return
    number = served.ask(op, PUT if op == Op.COMMAND else argument)
    why = Unavailable("later")
    if op == Op.COMMAND:
        served.member.proposals[-1][1](None, why)
    elif op == Op.RANGE:
        served.member.readers[-1](why)
    else:
        served.member.renewals[-1][1](0, why)
    flushed(served)
    [answer] = served.wire.answers(number)
    assert str(error_of(answer)) == "later" and len(answer) == 2 and served.connection.in_flight == 0


async def test_a_lease_without_a_name_gets_one_before_the_log() -> None:
    served = Served().greet()
    served.ask(Op.COMMAND, pack(LeaseGrant(0, 5)))
    served.ask(Op.COMMAND, pack(InSession(1, 2, 1, LeaseGrant(0, 6))))
    served.ask(Op.COMMAND, pack(LeaseGrant(9, 7)))
    found = [command for command, _ in served.member.proposals]
    assert found == [LeaseGrant(4711, 5), InSession(1, 2, 1, LeaseGrant(4711, 6)), LeaseGrant(9, 7)]
    served.member.proposals[0][1](LeaseResult(2, 4711, 5), None)
    flushed(served)
    assert served.wire.answers(1)[0][0] == Answer.OK


@pytest.mark.parametrize("over", [-1, 0, 1])
async def test_an_answer_larger_than_a_part_comes_in_pieces_and_whole(over: int) -> None:
    served = Served().greet()
    number = served.ask(Op.COMMAND, PUT)
    empty = len(frame((number, Answer.OK, module.to_plain(PutResult(2, event(1, 1).kv)))))
    while True:  # msgpack's own heads grow with what they announce
        size = PART_BYTES + over - empty + 1
        result = PutResult(2, event(1, size).kv)
        whole = frame((number, Answer.OK, module.to_plain(result)))
        if len(whole) == PART_BYTES + over:
            break
        empty += len(whole) - PART_BYTES - over
    served.member.proposals[0][1](result, None)
    flushed(served)
    answers = served.wire.answers(number)
    if over <= 0:
        assert [kind for kind, *_ in answers] == [Answer.OK]
    else:
        assert [(kind, last) for kind, _, last in answers] == [(Answer.FRAGMENT, False), (Answer.FRAGMENT, True)] or [
            (kind, last) for kind, _, last in answers
        ] == [(Answer.FRAGMENT, True)]
        assert b"".join(piece for _, piece, _ in answers) == whole[4:]
    assert served.connection.in_flight == 0


# -- watches -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("events"), st.lists(st.integers(0, 3000), max_size=4)),
            st.just(("drain", [])),
            st.just(("turn", [])),
        ),
        max_size=25,
    ),
    st.integers(0, 6000),
)
def test_a_watch_shows_each_batch_once_whole_and_in_order(steps: list[tuple[str, list[int]]], room: int) -> None:
    async def main() -> None:
        served = Served().greet()
        served.wire.room_bytes = room
        number, sink, _ = served.watch()
        wanted: list[tuple[int, int]] = []
        for revision, (what, sizes) in enumerate(steps, 2):
            if what == "events":
                sink(batch(revision, *sizes))
                wanted.append((revision, len(sizes)))
            elif what == "drain":
                served.wire.drain()
            else:
                await asyncio.sleep(0)
            watch = served.connection.watches[number]
            assert watch.pending_bytes == sum(event_bytes(each) for one in watch.pending for each in one.events)
        for _ in range(len(steps) + 2):
            served.wire.drain()
            await asyncio.sleep(0)
        assert [(revision, count) for revision, count, _ in shown(served.wire.answers(number))] == wanted
        assert not served.connection.watches[number].pending and served.connection.in_flight == 0

    run_virtually(main)


@pytest.mark.parametrize("over", [0, 1])
async def test_a_watch_may_wait_with_as_many_bytes_as_the_limit_and_no_more(over: int) -> None:
    """Only while the reader takes nothing; his other watches go on."""
    sizes = (100, 200)
    most = sum(event_bytes(event(1, size)) for size in sizes)
    served = Served(ServerLimits(watch_bytes_max=most - over)).greet()
    slow, sink, handle = served.watch()
    quick, other, other_handle = served.watch()
    served.connection.pause_writing()
    for revision, size in enumerate(sizes, 2):
        sink(batch(revision, size))
    other(batch(9, 1))
    assert handle.cancelled == bool(over) and served.server.watches_cut_off == over and not other_handle.cancelled
    served.connection.resume_writing()
    flushed(served)
    if over:
        [end] = served.wire.answers(slow)
        assert f"over {most - over} bytes" in str(error_of(end)) and isinstance(error_of(end), Unavailable)
        assert slow not in served.connection.watches
    else:
        assert shown(served.wire.answers(slow)) == [(2, 1, False), (3, 1, False)]
    assert shown(served.wire.answers(quick)) == [(9, 1, False)] and quick in served.connection.watches


async def test_a_watch_that_is_cut_off_in_the_middle_of_a_batch_ends_with_the_error_alone() -> None:
    served = Served(ServerLimits(watch_bytes_max=1000)).greet()
    number, sink, _ = served.watch()
    served.connection.pause_writing()
    served.connection.watches[number].frames = iter([frame((number, Answer.EVENTS, 2, (), True))])
    sink(batch(3, 1000))
    served.connection.resume_writing()
    flushed(served)
    assert [kind for kind, *_ in served.wire.answers(number)] == [Answer.END]


@pytest.mark.parametrize("most", [1, 3])
async def test_a_connection_may_hold_so_many_watches(most: int) -> None:
    served = Served(ServerLimits(watches_max=most)).greet()
    numbers = [served.watch()[0] for _ in range(most)]
    refused = served.ask(Op.WATCH, (b"a", b"b", 1, None, 0))
    flushed(served)
    assert f"{most} watches" in str(error_of(served.wire.answers(refused)[0]))
    served.ask(Op.CANCEL, numbers[0])
    assert served.member.watches[0][2].cancelled and not any(each[2].cancelled for each in served.member.watches[1:])
    served.watch()
    assert len(served.connection.watches) == most
    served.connection.connection_lost(None)
    assert all(each[2].cancelled for each in served.member.watches) and served.gone == 1


async def test_a_watch_from_now_on_is_told_where_now_is() -> None:
    """Not before what the client has seen elsewhere."""
    served = Served().greet()
    for _ in range(4):
        served.member.state.apply(Put(b"a", b"v"))
    for after in (0, 5, 9):
        number = served.ask(Op.WATCH, (b"a", b"b", 0, None, after))
        (_, _, start, _), _, _ = served.member.watches[-1]
        flushed(served)
        assert start == max(after, 5) + 1 and shown(served.wire.answers(number)) == [(start - 1, 0, False)]
    again = served.ask(Op.WATCH, (b"a", b"b", 7, None, 0))
    assert served.member.watches[-1][0][2] == 7
    flushed(served)
    assert served.wire.answers(again) == [], "from a revision on nothing is said before there is something"


async def test_a_watch_with_a_condition_waits_for_the_members_word_and_may_end_before() -> None:
    served = Served().greet()
    plain = (b"a", b"b", 1, [["node", "=", ["n1"]]], 0)
    cancelled, refused, begun, unfit = (served.ask(Op.WATCH, plain) for _ in range(4))
    assert not served.member.watches and len(served.member.readers) == 4
    served.ask(Op.CANCEL, cancelled)
    served.member.readers[0](None)
    served.member.readers[1](Unavailable("no leader"))
    served.member.readers[2](None)
    served.member.refuses = InvalidRequest("no such field")
    served.member.readers[3](None)
    flushed(served)
    assert len(served.member.watches) == 1 and set(served.connection.watches) == {begun}
    assert served.wire.answers(cancelled) == served.wire.answers(begun) == []
    assert isinstance(error_of(served.wire.answers(refused)[0]), NotLeader)
    assert isinstance(error_of(served.wire.answers(unfit)[0]), InvalidRequest)


async def test_a_watch_that_the_store_ends_is_over_and_says_why() -> None:
    served = Served().greet()
    number, sink, _ = served.watch()
    sink(WatchBatch((), 3, Unavailable("the store stops")))
    sink(batch(4, 1))
    flushed(served)
    assert [kind for kind, *_ in served.wire.answers(number)][:1] == [Answer.END]
    assert not served.connection.watches


async def test_events_are_gathered_for_one_write_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    part = len(frame((1, Answer.EVENTS, 2, [event(2, 100)], False)))
    for over in (0, 1):
        monkeypatch.setattr(module, "FLUSH_BYTES", 3 * part - over)
        served = Served().greet()
        before = len(served.wire.writes)
        _, sink, _ = served.watch()
        for _ in range(3):
            sink(batch(2, 100))
        assert len(served.wire.writes) - before == over, "at once as soon as it is more"
        await asyncio.sleep(0)
        assert len(served.wire.writes) - before == 1, "else at the end of the turn, in one piece"
        sink(batch(3, 100))
        sink(batch(4, 100))
        assert len(served.wire.writes) - before == 1, "what was written counts no more"


# -- large answers -----------------------------------------------------------------------------------------------------


async def test_large_answers_take_turns_and_each_is_whole() -> None:
    served = Served().greet()
    for at in range(5):
        served.member.state.apply(Put(b"k%d" % at, bytes([at]) * PART_BYTES))
    whole = pack(RangeRequest(b"k", b"l"))
    served.member.readable = False
    numbers = [served.ask(Op.RANGE, whole), served.ask(Op.RANGE, whole)]
    served.wire.room_bytes = 0
    for answer in served.member.readers:
        answer(None)
    small = served.ask(Op.RANGE, ONE, SERIALIZABLE)
    assert served.connection.in_flight == 2 and served.wire.reading == [False], "what comes behind is not read yet"
    while served.connection.in_flight:
        assert served.wire.paused, "one part at a time: the wire is full with each"
        served.wire.drain()
    parts = [number for number, kind, *_ in served.wire.said[1:] if kind == Answer.PART]
    assert parts == [numbers[0], *numbers * 3, numbers[1]], "the first began before the second came"
    for number in numbers:
        *first, (kind, rest) = served.wire.answers(number)
        found = decode_range([(kvs, fields) for _, kvs, fields in first], rest)
        assert kind == Answer.OK and [kv.value for kv in found.kvs] == [bytes([at]) * PART_BYTES for at in range(5)]
    served.wire.drain()
    flushed(served)
    served.wire.drain()
    assert served.wire.answers(small)[0][0] == Answer.OK and served.wire.reading[-1] is True
    assert served.connection._transport is not None and not served.connection._backlog


def source(data: bytes, *, short: bool = False, fails: bool = False) -> Any:
    meta = SnapshotMeta(LogIndex(7), Term(2), Configuration(frozenset((NodeId(1),))))

    def read(offset: int) -> bytes:
        if fails and offset:
            raise OSError(5, "an error of the disk")
        return b"" if short and offset else data[offset : offset + 1000]

    closed: list[int] = []
    return SimpleNamespace(
        offer=SnapshotOffer(meta, len(data), bytes(32)), read=read, close=lambda: closed.append(1), closed=closed
    )


@pytest.mark.parametrize("fault", ["", "short", "fails", "not taken"])
async def test_a_snapshot_comes_whole_or_says_why_not(fault: str) -> None:
    served = Served().greet()
    data = bytes(range(250)) * 10
    snapshot = source(data, short=fault == "short", fails=fault == "fails")
    served.member.snapshot = OSError(28, "no space left") if fault == "not taken" else snapshot
    number = served.ask(Op.SNAPSHOT, None)
    for _ in range(3):
        await asyncio.sleep(0)
    flushed(served)
    *parts, (kind, last, *_) = served.wire.answers(number)
    if fault:
        assert kind == Answer.ERROR and isinstance(decode_error(last), Unavailable)
        said = {"short": "ends at 1000 of its 2500", "fails": "an error of the disk", "not taken": "no space left"}
        assert said[fault] in str(decode_error(last))
    else:
        assert b"".join(data for _, data, _ in parts) == data and {kind for kind, *_ in parts} == {Answer.PART}
        assert (kind, last) == (Answer.OK, (2500, bytes(32), 7, 2))
    assert served.connection.in_flight == 0 and snapshot.closed == ([] if fault == "not taken" else [1])


async def test_work_that_the_stop_cuts_short_is_of_unknown_outcome() -> None:
    served = Served().greet()

    async def endless() -> None:
        await asyncio.get_running_loop().create_future()

    served.connection._work(5, endless())
    await asyncio.sleep(0)
    assert served.connection.in_flight == 1 and len(served.server.work) == 1
    for task in list(served.server.work):
        task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    flushed(served)
    assert isinstance(error_of(served.wire.answers(5)[0]), OutcomeUnknown)
    assert served.connection.in_flight == 0 and not served.server.work


# -- time and ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stall_s", [0.5, 60.0])
async def test_a_reader_that_takes_nothing_is_waited_for_so_long(stall_s: float) -> None:
    loop = asyncio.get_running_loop()
    served = Served(replace(ServerLimits(), stall_s=stall_s)).greet()
    served.connection.pause_writing()
    await asyncio.sleep(stall_s * 0.9)
    served.connection.resume_writing()
    await asyncio.sleep(2 * stall_s)
    assert served.wire.closed_by == [], "it has taken something"
    served.connection.pause_writing()
    began_s = loop.time()
    await until(lambda: bool(served.wire.closed_by), within_s=100.0)
    assert served.wire.closed_by == ["abort"] and stall_s <= loop.time() - began_s < stall_s + 0.01


@pytest.mark.parametrize("drain_s", [0.25, 2.0])
async def test_a_connection_that_ends_has_so_long_for_its_last_answers(drain_s: float) -> None:
    loop = asyncio.get_running_loop()
    served = Served(replace(ServerLimits(), drain_s=drain_s)).greet()
    served.connection.finish()
    assert served.wire.closed_by == ["close"]
    began_s = loop.time()
    await until(lambda: len(served.wire.closed_by) == 2)
    assert served.wire.closed_by == ["close", "abort"] and drain_s <= loop.time() - began_s < drain_s + 0.01
    served = Served(replace(ServerLimits(), drain_s=drain_s)).greet()
    await asyncio.sleep(0)
    served.connection.finish()
    served.connection.connection_lost(None)
    await asyncio.sleep(3 * drain_s)
    assert served.wire.closed_by == ["close"] and served.connection.closed.done() and not served.server.connections


@pytest.mark.parametrize("tls", [False, True])
async def test_who_sends_no_more_gets_what_was_asked_for_first(tls: bool) -> None:
    served = Served(tls=tls).greet()
    number = served.ask(Op.COMMAND, PUT)
    assert served.connection.eof_received() is (not tls), "only without TLS the other half stays open"
    assert served.wire.closed_by == []
    served.member.proposals[0][1](DONE, None)
    await asyncio.sleep(0)
    assert served.wire.answers(number)[0][0] == Answer.OK and served.wire.closed_by == ["close"]
    served.connection.data_received(b"\xff" * 9)
    assert len(served.member.proposals) == 1, "what comes behind the end is not looked at"


async def test_who_is_not_let_in_hears_why_and_no_more() -> None:
    for hello, authenticated, said in (
        (GREETING.hello("wrong", 0), True, "token"),
        (GREETING.hello("a token", 0), False, "limit of 9 connections"),
        (frame(["x"]), True, "not its handshake"),
    ):
        served = Served(authenticated=authenticated)
        served.connection.data_received(hello)
        [(number, error)] = served.wire.said
        assert number == 0 and said in str(decode_error(error)) and served.wire.closed_by == ["close"]
    served = Served()
    served.connection.tell(frame((0, Answer.LEADER, 1, "", 1, ())))
    await asyncio.sleep(0)
    assert served.wire.said == [], "nothing is sent before the welcome"
    served.greet().connection.tell(frame((0, Answer.LEADER, 1, "", 1, ())))
    await asyncio.sleep(0)
    assert [kind for _, kind, *_ in served.wire.said[1:]] == [Answer.LEADER]
    served.connection.finish()
    served.connection.tell(frame((0, Answer.LEADER, 1, "", 1, ())))
    await asyncio.sleep(0)
    assert len(served.wire.said) == 2


async def test_the_transport_holds_no_more_than_the_limit_says() -> None:
    assert Served(ServerLimits(write_buffer_bytes=12345)).wire.high == 12345
