"""Each rule of RFC 9113 that a client can break, and each flood: how the connection or the stream ends."""

from __future__ import annotations

import struct

import pytest
from http2_peer import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    HELLO,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    block,
    frame,
    frames_of,
    message,
    number,
    request,
    settings,
)

from minikube_py.http2.connection import Connection
from minikube_py.http2.events import Aborted, Drained, Ended, Opened, Received
from minikube_py.http2.limits import ConnectionLimits

NO_ERROR, PROTOCOL, _, FLOW, _, CLOSED, SIZE, REFUSED, _, COMPRESSION, _, CALM = range(12)
OPEN = request(1)
WHOLE = block((":method", "POST"), (":scheme", "http"), (":path", "/"))
BARE = block((":method", "POST"), (":scheme", "http"))


def run(*parts: bytes, limits: ConnectionLimits | None = None) -> tuple[Connection, list, list[Frame]]:
    connection = Connection(limits)
    events = [event for part in parts for event in connection.receive(part, 0.0)]
    return connection, events, list(frames_of(connection.outgoing()))


def codes(sent: list[Frame]) -> list[tuple[str, int]]:
    """How streams and connections were ended."""
    found = []
    for each in sent:
        if each.kind == GOAWAY:
            found.append(("connection", struct.unpack(">L", each.payload[4:8])[0]))
        elif each.kind == RST_STREAM:
            found.append(("stream", struct.unpack(">L", each.payload)[0]))
    return found


@pytest.mark.parametrize(
    ("what", "sent", "code"),
    [
        ("no preface", b"GET / HTTP/1.1\r\n", PROTOCOL),
        ("a preface and no settings", PREFACE + OPEN, PROTOCOL),
        ("an acknowledgement of nothing first", PREFACE + frame(SETTINGS, 1), PROTOCOL),
        ("a frame too large", HELLO + frame(DATA, 0, 1, bytes(16_385)), SIZE),
        ("data of the connection", HELLO + frame(DATA, 0, 0, b"a"), PROTOCOL),
        ("data of a stream that is none", HELLO + frame(DATA, 0, 1, b"a"), PROTOCOL),
        ("padding beyond the frame", HELLO + OPEN + frame(DATA, 8, 1, b"\x02a"), PROTOCOL),
        ("padding of a frame with no room for its length", HELLO + OPEN + frame(DATA, 8, 1), PROTOCOL),
        ("a server's stream", HELLO + request(2), PROTOCOL),
        ("headers of the connection", HELLO + request(0), PROTOCOL),
        ("headers that end within the priority", HELLO + frame(HEADERS, 0x24, 1, b"\0\0\0\0"), SIZE),
        ("a header block that cannot be read", HELLO + frame(HEADERS, 4, 1, b"\xff"), COMPRESSION),
        ("a frame between header frames", HELLO + frame(HEADERS, 0, 1, WHOLE) + frame(PING, 0, 0, bytes(8)), PROTOCOL),
        ("an unknown frame between them", HELLO + frame(HEADERS, 0, 1, WHOLE) + frame(99, 0, 1), PROTOCOL),
        ("another stream's continuation", HELLO + frame(HEADERS, 0, 1) + frame(CONTINUATION, 4, 3, WHOLE), PROTOCOL),
        ("a continuation of nothing", HELLO + frame(CONTINUATION, 4, 1, WHOLE), PROTOCOL),
        ("a priority of the connection", HELLO + frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
        ("a short priority", HELLO + frame(PRIORITY, 0, 1, bytes(4)), SIZE),
        ("a short reset", HELLO + OPEN + frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
        ("a reset of the connection", HELLO + frame(RST_STREAM, 0, 0, bytes(4)), PROTOCOL),
        ("a reset of a stream that is none", HELLO + frame(RST_STREAM, 0, 1, bytes(4)), PROTOCOL),
        ("settings of a stream", HELLO + frame(SETTINGS, 0, 1), PROTOCOL),
        ("half a setting", HELLO + frame(SETTINGS, 0, 0, bytes(7)), SIZE),
        ("an acknowledgement with words", HELLO + frame(SETTINGS, 1, 0, bytes(6)), SIZE),
        ("push that is neither on nor off", PREFACE + settings((2, 2)), PROTOCOL),
        ("a window too large", PREFACE + settings((4, 1 << 31)), FLOW),
        ("frames too small", PREFACE + settings((5, 16_383)), PROTOCOL),
        ("frames too large", PREFACE + settings((5, 1 << 24)), PROTOCOL),
        ("a number that was used", HELLO + request(1, end=True) + request(1), PROTOCOL),
        ("a number below one that was used", HELLO + request(3) + request(1), PROTOCOL),
        ("a promise", HELLO + frame(PUSH_PROMISE, 4, 1, number(2) + WHOLE), PROTOCOL),
        ("a ping of a stream", HELLO + frame(PING, 0, 1, bytes(8)), PROTOCOL),
        ("a short ping", HELLO + frame(PING, 0, 0, bytes(7)), SIZE),
        ("a stream that goes away", HELLO + frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
        ("a short farewell", HELLO + frame(GOAWAY, 0, 0, bytes(7)), SIZE),
        ("a short window", HELLO + frame(WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
        ("a window that grows by nothing", HELLO + frame(WINDOW_UPDATE, 0, 0, number(0)), PROTOCOL),
        ("a window beyond the largest", HELLO + frame(WINDOW_UPDATE, 0, 0, number((1 << 31) - 1)), FLOW),
        ("a window of a stream that is none", HELLO + frame(WINDOW_UPDATE, 0, 5, number(1)), PROTOCOL),
        ("settings that make a window too large",
         HELLO + OPEN + frame(WINDOW_UPDATE, 0, 1, number((1 << 31) - 65_536)) + settings((4, 1 << 20)), FLOW),
    ],
)  # fmt: skip
def test_the_connection_ends(what: str, sent: bytes, code: int) -> None:
    connection, events, out = run(sent)
    assert codes(out) == [("connection", code)]
    assert type(events[-1]) is Ended and events[-1].code == code
    assert connection.ended and not connection.streams
    # Nothing is read or said any more.
    assert connection.receive(HELLO + request(9), 0.0) == [] and connection.outgoing() == b""


@pytest.mark.parametrize(
    ("what", "sent", "code"),
    [
        ("data after the end", frame(DATA, 1, 1, b"a") + frame(DATA, 0, 1, b"b"), CLOSED),
        ("trailers that do not end it", frame(HEADERS, 4, 1, block(("a", "b"))), PROTOCOL),
        ("trailers with a pseudo field", frame(HEADERS, 5, 1, block((":path", "/"))), PROTOCOL),
        ("a window that grows by nothing", frame(WINDOW_UPDATE, 0, 1, number(0)), PROTOCOL),
        ("a window beyond the largest", frame(WINDOW_UPDATE, 0, 1, number((1 << 31) - 1)), FLOW),
        ("a long priority", frame(PRIORITY, 0, 1, bytes(6)), SIZE),
        ("more data than its window", b"".join([frame(DATA, 0, 1, bytes(16_384))] * 4), FLOW),
    ],
)
def test_the_stream_ends_and_the_connection_goes_on(what: str, sent: bytes, code: int) -> None:
    connection, events, out = run(HELLO + OPEN + sent + request(3) + frame(PING, 0, 0, bytes(8)))
    assert codes(out) == [("stream", code)]
    assert [type(each) for each in events if type(each) is not Received] == [Opened, Aborted, Opened]
    assert list(connection.streams) == [3]
    assert Frame(PING, 1, 0, bytes(8)) in out


@pytest.mark.parametrize(
    "fields",
    [
        BARE,
        BARE + block((":path", "")),
        block((":method", "POST"), (":path", "/")),
        block((":scheme", "http"), (":path", "/")),
        WHOLE + block((":path", "/")),
        WHOLE + block((":status", "200")),
        block(("a", "b")) + WHOLE,
        WHOLE + block(("A", "b")),
        WHOLE + block(("", "b")),
        WHOLE + block(("a b", "c")),
        WHOLE + block(("a", "b\n")),
        WHOLE + block(("a", "b\0")),
        WHOLE + block(("a", " b")),
        WHOLE + block(("connection", "close")),
        WHOLE + block(("transfer-encoding", "chunked")),
    ],
)
def test_a_malformed_request_ends_its_stream_and_is_told_to_nobody(fields: bytes) -> None:
    _connection, events, out = run(HELLO + frame(HEADERS, 4, 1, fields) + request(3))
    assert codes(out) == [("stream", PROTOCOL)]
    assert [event.stream.id for event in events] == [3]


def test_what_means_nothing_to_a_server_is_passed_over() -> None:
    priority = frame(HEADERS, 0x2C, 1, b"\x01" + bytes(5) + WHOLE + b"\0")
    _connection, events, out = run(
        HELLO
        + priority
        + frame(DATA, 9, 1, b"\x03ab\0\0\0")
        + frame(PRIORITY, 0, 7, bytes(5))
        + frame(99, 255, 1, b"?")
    )
    assert [type(each) for each in events] == [Opened, Received] and codes(out) == []
    assert events[1].data == b"ab" and events[1].ended


def test_streams_beyond_the_limit_are_refused_and_their_headers_still_read() -> None:
    limits = ConnectionLimits(streams_max=2)
    indexed = frame(HEADERS, 4, 5, WHOLE + b"\x40\x01a\x011"), frame(HEADERS, 4, 7, WHOLE + b"\xbe")
    connection, events, out = run(HELLO + request(1) + request(3) + indexed[0], limits=limits)
    assert codes(out) == [("stream", REFUSED)] and len(events) == 2
    connection.reset(events[0].stream, 0)
    (opened,) = connection.receive(indexed[1], 0.0)
    assert opened.block.fields[-1] == (b"a", b"1")


def test_fields_beyond_the_limit_end_the_stream_alone() -> None:
    limits = ConnectionLimits(header_bytes_max=300)
    huge = WHOLE + b"\x40\x01a\x40" + b"v" * 64 + b"\xbe" * 5
    _connection, events, out = run(HELLO + frame(HEADERS, 4, 1, huge) + request(3), limits=limits)
    assert codes(out) == [("stream", SIZE)] and [event.stream.id for event in events] == [3]


# -- floods ------------------------------------------------------------------------------------------------------------

LIMITS = ConnectionLimits(idle_frames_max=50, resets_max=50, resets_per_s=10.0)


@pytest.mark.parametrize(
    ("what", "flood"),
    [
        ("settings", settings((3, 1))),
        ("acknowledgements of settings", frame(SETTINGS, 1)),
        ("acknowledgements of pings", frame(PING, 1, 0, bytes(8))),
        ("priorities", frame(PRIORITY, 0, 1, bytes(5))),
        ("data that is empty", frame(DATA, 0, 1)),
        ("data that is padding alone", frame(DATA, 8, 1, b"\x03" + bytes(3))),
        ("windows", frame(WINDOW_UPDATE, 0, 0, number(1))),
        ("windows of a stream", frame(WINDOW_UPDATE, 0, 1, number(1))),
        ("unknown frames", frame(99, 0, 1, b"a")),
        ("farewells", frame(GOAWAY, 0, 0, bytes(8))),
    ],
)
def test_frames_that_ask_for_nothing_end_the_connection_when_there_are_too_many(what: str, flood: bytes) -> None:
    connection, *_ = run(HELLO + OPEN + flood * 49, limits=LIMITS)
    assert not connection.ended
    connection.receive(flood * 3, 0.0)
    assert connection.ended
    assert codes(list(frames_of(connection.outgoing()))) == [("connection", CALM)]
    # Requests between them make them few.
    connection, _events, _out = run(
        HELLO + OPEN, *[flood * 20 + request(each) for each in range(3, 99, 2)], limits=LIMITS
    )
    assert not connection.ended or what == "farewells"


def test_streams_that_are_reset_as_they_come_end_the_connection_when_there_are_too_many() -> None:
    """CVE-2023-44487."""
    connection = Connection(LIMITS)
    connection.receive(HELLO, 0.0)
    opened = 0
    for each in range(1, 2_001, 2):
        opened += 1
        connection.receive(request(each) + frame(RST_STREAM, 0, each, number(8)), opened * 0.01)
        if connection.ended:
            break
    assert 50 < opened < 60
    # As many as that in time are a client that changes its mind.
    connection = Connection(LIMITS)
    connection.receive(HELLO, 0.0)
    for each in range(1, 2_001, 2):
        connection.receive(request(each) + frame(RST_STREAM, 0, each, number(8)), each * 0.06)
    assert not connection.ended


def test_refused_and_malformed_streams_count_as_floods() -> None:
    limits = ConnectionLimits(streams_max=1, idle_frames_max=50)
    connection, _, _ = run(HELLO + b"".join(map(request, range(1, 201, 2))), limits=limits)
    assert connection.ended
    bad = b"".join([frame(HEADERS, 4, each, BARE) for each in range(1, 201, 2)])
    connection, _, _ = run(HELLO + bad, limits=LIMITS)
    assert connection.ended


@pytest.mark.parametrize("part", [b"", b"\0"])
def test_a_header_block_in_too_many_frames_ends_the_connection(part: bytes) -> None:
    """CVE-2024-27316."""
    begun = HELLO + frame(HEADERS, 0, 1, WHOLE)
    connection, _, _out = run(begun + frame(CONTINUATION, 0, 1, part) * 8)
    assert not connection.ended
    connection.receive(frame(CONTINUATION, 0, 1, part), 0.0)
    assert codes(list(frames_of(connection.outgoing()))) == [("connection", CALM)]


def test_a_header_block_that_is_too_long_ends_the_connection_before_it_is_whole() -> None:
    _connection, _, out = run(HELLO + frame(HEADERS, 0, 1, bytes(16_000)) + frame(CONTINUATION, 0, 1, bytes(400)))
    assert codes(out) == [("connection", CALM)]


def test_pings_too_close_to_each_other_end_the_connection_as_gos_do() -> None:
    ping = frame(PING, 0, 0, b"12345678")
    connection, _, out = run(HELLO + ping * 3)
    assert Frame(PING, 1, 0, b"12345678") in out and not connection.ended
    connection.receive(ping, 1.0)
    (goaway,) = [each for each in frames_of(connection.outgoing()) if each.kind == GOAWAY]
    assert goaway.payload[8:] == b"too_many_pings"
    # Each after something was sent, or seldom enough.
    connection, events, _ = run(HELLO + OPEN)
    for second in range(100):
        connection.send(events[0].stream, b"a")
        connection.receive(ping, float(second))
    for second in range(100, 1_000, 5):
        connection.receive(ping, float(second))
    assert not connection.ended


# -- answers -----------------------------------------------------------------------------------------------------------


def test_a_whole_answer_ends_the_stream_and_tells_a_client_that_goes_on_to_stop() -> None:
    connection, events, _ = run(HELLO + request(1, end=True) + request(3))
    for event in events:
        connection.answer(event.stream, b"\x88", message(b"abc"), b"\x89")
    sent = list(frames_of(connection.outgoing()))
    assert [(each.kind, each.flags, each.stream) for each in sent] == [
        (HEADERS, 4, 1), (DATA, 0, 1), (HEADERS, 5, 1), (HEADERS, 4, 3), (DATA, 0, 3), (HEADERS, 5, 3),
        (RST_STREAM, 0, 3),
    ]  # fmt: skip
    assert codes(sent) == [("stream", NO_ERROR)] and not connection.streams
    # What the client had sent before it knew is passed over, and its window given back.
    assert connection.receive(frame(DATA, 0, 3, b"late") + frame(RST_STREAM, 0, 3, number(8)), 0.0) == []
    assert not connection.ended


def test_an_answer_waits_for_room_and_what_it_holds_is_counted() -> None:
    connection, events, _ = run(PREFACE + settings((4, 10)) + request(1) + request(3))
    first, second = (event.stream for event in events)
    connection.answer(first, b"\x88", b"a" * 25, b"\x89")
    connection.answer(second, b"\x88", b"b" * 10, b"\x89")
    sent = [(each.kind, each.stream, len(each.payload)) for each in frames_of(connection.outgoing())]
    assert sent[:5] == [(HEADERS, 1, 1), (DATA, 1, 10), (HEADERS, 3, 1), (DATA, 3, 10), (HEADERS, 3, 1)]
    assert connection.waiting_bytes == 16
    connection.receive(frame(WINDOW_UPDATE, 0, 1, number(15)), 0.0)
    assert [len(each.payload) for each in frames_of(connection.outgoing())][:2] == [15, 1]
    assert connection.waiting_bytes == 0 and not connection.streams


def test_one_that_waits_for_the_connections_window_lets_others_go_in_turn() -> None:
    connection, events, _ = run(PREFACE + settings((4, 1 << 20)) + request(1) + request(3))
    streams = [event.stream for event in events]
    for stream in streams:
        connection.send(stream, bytes(60_000))
        connection.send(stream, bytes(60_000))
    connection.outgoing()
    got, events = {1: 0, 3: 0}, []
    for _ in range(12):
        events += connection.receive(frame(WINDOW_UPDATE, 0, 0, number(10_000)), 0.0)
        for each in frames_of(connection.outgoing()):
            got[each.stream] += len(each.payload) if each.kind == DATA else 0
    assert min(got.values()) >= 25_000
    events += connection.receive(frame(WINDOW_UPDATE, 0, 0, number(1 << 20)), 0.0)
    assert {event.stream.id for event in events if type(event) is Drained} == {1, 3}


def test_nothing_is_made_ready_while_the_peer_does_not_read_and_not_much_at_once() -> None:
    connection, events, _ = run(PREFACE + settings((4, 1 << 30)) + frame(WINDOW_UPDATE, 0, 0, number(1 << 30)), OPEN)
    stream = events[0].stream
    connection.held = True
    connection.answer(stream, b"\x88", bytes(1 << 20), b"\x89")
    assert connection.outgoing() == b"" and connection.waiting_bytes == (1 << 20) + 2
    connection.release()
    sizes = []
    while data := connection.outgoing():
        sizes.append(len(data))
        connection.release()
    assert max(sizes) < 300_000 and len(sizes) >= 4 and connection.waiting_bytes == 0


def test_a_peer_without_room_for_a_table_is_told_that_ours_has_none() -> None:
    connection, events, _ = run(PREFACE + settings((1, 0)) + request(1, end=True) + request(3, end=True))
    for event in events:
        connection.answer(event.stream, b"\x88", b"a", b"\x89")
    blocks = [each.payload for each in frames_of(connection.outgoing()) if each.kind == HEADERS]
    assert blocks == [b"\x20\x88", b"\x89", b"\x88", b"\x89"]


def test_who_leaves_takes_no_more_streams_and_ends_those_there_are() -> None:
    connection, events, _ = run(HELLO + OPEN)
    connection.leave("server stopped")
    connection.receive(request(3), 0.0)
    connection.answer(events[0].stream, b"\x88", b"a", b"\x89")
    sent = list(frames_of(connection.outgoing()))
    assert codes(sent) == [("connection", NO_ERROR), ("stream", REFUSED), ("stream", NO_ERROR)]
    assert sent[0].payload[:4] == number(1) and connection.leaving and not connection.streams


def test_long_header_blocks_go_out_in_several_frames() -> None:
    connection, events, _ = run(HELLO + OPEN)
    connection.send_headers(events[0].stream, bytes(40_000), end=True)
    sent = [each for each in frames_of(connection.outgoing()) if each.kind in (HEADERS, CONTINUATION)]
    assert [(each.kind, each.flags) for each in sent] == [(HEADERS, 1), (CONTINUATION, 0), (CONTINUATION, 4)]
    assert b"".join(each.payload for each in sent) == bytes(40_000)


def test_a_client_that_reads_a_large_answer_bit_by_bit_is_no_flood() -> None:
    connection, events, _ = run(PREFACE + settings((4, 1 << 30)), frame(WINDOW_UPDATE, 0, 0, number(1 << 29)) + OPEN)
    connection.send(events[-1].stream, bytes(16 << 20))
    while connection.outgoing():
        connection.release()
    step = frame(WINDOW_UPDATE, 0, 0, number(1_024)) + frame(WINDOW_UPDATE, 0, 1, number(1_024))
    connection.receive(step * ((16 << 20) // 1_024), 0.0)
    assert not connection.ended
