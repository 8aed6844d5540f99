"""Laws of an HTTP/2 connection: how bytes are cut changes nothing, whatever comes ends in a state that is named, and
windows are kept on both sides. The judge of what is sent is the library `h2` as the client."""

from __future__ import annotations

import itertools
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from http2_peer import HELLO, PREFACE, REQUEST, block, frame, frames_of, number, settings
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from minikube_py.http2.connection import Connection
from minikube_py.http2.events import Aborted, Drained, Ended, Event, Opened, Received
from minikube_py.http2.hpack import encode
from minikube_py.http2.limits import ConnectionLimits

LIMITS = ConnectionLimits(streams_max=4, idle_frames_max=30, resets_max=2, resets_per_s=0.0, window_bytes=1 << 17)
FIELDS = block(*[(name, value) for name, value in REQUEST])
PAYLOADS = st.sampled_from(
    [b"", b"\0", bytes(4), bytes(5), bytes(6), bytes(8), bytes(12), number(1), number(1 << 31), number((1 << 31) - 1),
     FIELDS, FIELDS[:40], b"\x40\x01a\x011", b"\xbe", b"\x3f\xe1\x1f" + FIELDS, b"\x03" + FIELDS + bytes(3),
     bytes(5) + FIELDS,
     b"\0\x03\0\0\0\x01", b"\0\x04\0\0\0\x05", b"\0\x04\x7f\xff\xff\xff", b"\0\x01\0\0\0\0", bytes(16_384)]
)  # fmt: skip
FRAMES = st.builds(
    frame,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 0x20, 0x24, 0x25, 0x2D, 255]),
    st.sampled_from([0, 1, 1, 1, 3, 5, 7, 9, 2, (1 << 31) - 1]),
    PAYLOADS | st.binary(max_size=20),
)
LIKELY = st.one_of(
    FRAMES,
    st.builds(lambda stream, end: frame(1, 4 | end, stream, FIELDS), st.sampled_from(range(1, 20, 2)), st.booleans()),
    st.builds(lambda stream, size, end: frame(0, end, stream, bytes(size)), st.sampled_from([1, 3, 5]),
              st.sampled_from([0, 1, 100, 16_384]), st.booleans()),
)  # fmt: skip
SENT = st.builds(
    lambda start, parts: start + b"".join(parts),
    st.sampled_from([HELLO, HELLO, HELLO, PREFACE, b"", b"PRI * HTTP/1.1\r\n", PREFACE + settings((4, 3), (1, 0))]),
    st.lists(LIKELY, max_size=25),
)


def told(event: Event) -> tuple[Any, ...]:
    if type(event) is Opened:
        return "opened", event.stream.id, tuple(event.block.fields or ()), event.ended
    if type(event) is Received:
        return "received", event.stream.id, event.data, event.ended
    if type(event) is Ended:
        return "ended", event.code, event.why
    assert type(event) in (Aborted, Drained)
    return type(event).__name__, event.stream.id


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({min(each, len(data)) for each in places} | {0, len(data)})
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


@given(SENT, st.lists(st.integers(0, 2_000), max_size=30), st.booleans())
@runs(max_examples=400)
def test_how_bytes_are_cut_changes_neither_what_is_told_nor_what_is_sent(data: bytes, places: list, drip: bool) -> None:
    whole, parts = Connection(LIMITS), Connection(LIMITS)
    expected = [told(event) for event in whole.receive(data, 0.0)]
    pieces = [bytes([byte]) for byte in data[:3_000]] + [data[3_000:]] if drip else cut(data, places)
    assert [told(event) for piece in pieces for event in parts.receive(piece, 0.0)] == expected
    assert parts.outgoing() == whole.outgoing()


@given(SENT)
@runs(max_examples=600)
def test_whatever_comes_each_stream_and_the_connection_are_in_a_state_that_is_named(data: bytes) -> None:
    connection = Connection(LIMITS)
    events = connection.receive(data, 0.0)
    list(frames_of(connection.outgoing()))
    state: dict[int, str] = {}
    for event in events:
        if type(event) is Ended:
            assert event is events[-1] and connection.ended
            continue
        number_ = event.stream.id
        if type(event) is Opened:
            assert number_ % 2 and number_ not in state and number_ > max(state, default=0)
            state[number_] = "half" if event.ended else "open"
        elif type(event) is Received:
            assert state[number_] == "open"
            state[number_] = "half" if event.ended else "open"
        elif type(event) is Aborted:
            assert state[number_] in ("open", "half")
            state[number_] = "closed"
    alive = {each: what for each, what in state.items() if what != "closed"}
    assert set(connection.streams) == set(alive) and len(alive) <= LIMITS.streams_max
    assert all(connection.streams[each].ended_by_peer == (what == "half") for each, what in alive.items())
    if connection.ended:
        assert not alive and connection.receive(data, 0.0) == [] == list(frames_of(connection.outgoing()))
    # It holds no more than a frame, a header block and a table.
    assert len(connection._rest) <= 16_393
    assert connection._collected_bytes <= LIMITS.header_bytes_max + 16_384
    assert connection.waiting_bytes == 0


@given(st.lists(st.sampled_from([0, 1, 5_000, 16_384]), max_size=60), st.integers(0, 70_000))
def test_a_peer_may_send_what_it_was_allowed_and_not_a_byte_more(sizes: list[int], taken_each: int) -> None:
    connection = Connection(LIMITS)
    (opened,) = connection.receive(HELLO + frame(1, 4, 1, FIELDS), 0.0)
    stream = opened.stream
    stream_window, window, owed = 65_535, 65_535, 0
    for size in [*sizes, 16_384, 16_384, 16_384, 16_384, 16_384, 16_384, 16_384, 16_384]:
        for each in frames_of(connection.outgoing()):
            if each.kind == 8:
                more = int.from_bytes(each.payload, "big")
                assert more > 0
                stream_window, window = (
                    (stream_window + more, window) if each.stream else (stream_window, window + more)
                )
        assert window <= LIMITS.window_bytes and stream_window <= 65_535
        stream_window, window = stream_window - size, window - size
        events = connection.receive(frame(0, 0, 1, bytes(size)), 0.0)
        if window < 0:
            assert connection.ended
            return
        if stream_window < 0:
            assert [type(event) for event in events] == [Aborted] and not connection.streams
            return
        assert size == 0 or (len(events) == 1 and len(events[0].data) == size)
        owed += size
        took, owed = min(owed, taken_each), owed - min(owed, taken_each)
        connection.took(stream, took)
    assert taken_each


class Client:
    """The library as the peer of one connection of ours, which answers as the test says."""

    def __init__(self, window: int, table: int) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        codes = h2.settings.SettingCodes
        self.h2.initiate_connection()
        self.h2.update_settings({codes.INITIAL_WINDOW_SIZE: window, codes.HEADER_TABLE_SIZE: table})
        self.server = Connection(LIMITS)
        self.streams: dict[int, Any] = {}
        self.sent: dict[int, bytes] = {}
        self.came: dict[int, bytes] = {}
        self.read: dict[int, bytes] = {}
        self.done: set[int] = set()
        self.fields: dict[int, list[Any]] = {}

    def exchange(self, size: int = 1 << 30) -> None:
        """Until neither has anything to say, in pieces of `size`."""
        while True:
            up = self.h2.data_to_send() or b""
            for start in range(0, len(up), size):
                self._events(self.server.receive(up[start : start + size], 0.0))
            down = self.server.outgoing()
            if not up and not down:
                return
            for start in range(0, len(down), size):
                self._theirs(self.h2.receive_data(down[start : start + size]))
            self._events(self.server.release())

    def _events(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is Opened:
                self.streams[event.stream.id] = event.stream
                self.came[event.stream.id] = b""
            elif type(event) is Received:
                self.came[event.stream.id] += event.data
                self.server.took(event.stream, len(event.data))
            else:
                assert type(event) is Drained, event

    def _theirs(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.read[event.stream_id] = self.read.get(event.stream_id, b"") + event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                self.fields.setdefault(event.stream_id, []).append(event.headers)
            elif isinstance(event, h2.events.StreamEnded):
                self.done.add(event.stream_id)


HEAD, TRAILERS = encode((b":status", b"200"), (b"content-type", b"a/b")), encode((b"grpc-status", b"0"))
STEPS = st.lists(
    st.tuples(st.sampled_from(["openn", "send", "end", "answer", "stream"]), st.integers(0, 200_000)), max_size=40
)


@given(
    STEPS,
    st.sampled_from([1, 100, 65_535, 1 << 20]),
    st.sampled_from([0, 100, 4_096]),
    st.sampled_from([7, 1_000, 1 << 30]),
)
@runs(max_examples=150, deadline=None)
def test_all_that_is_sent_either_way_arrives_and_the_library_finds_no_fault(
    steps: list[tuple[str, int]], window: int, table: int, piece: int
) -> None:
    client = Client(window, table)
    client.exchange(piece)
    answered: dict[int, bytes] = {}
    most = 200 if window == 1 else 200_000
    for what, size in steps:
        size = min(size, most)
        live = [each for each in client.streams if each not in answered]
        if what == "openn" and client.h2.open_outbound_streams < LIMITS.streams_max:
            stream = client.h2.get_next_available_stream_id()
            client.h2.send_headers(stream, REQUEST)
            client.sent[stream] = b""
        elif live and what == "send" and not client.streams[live[0]].ended_by_peer:
            room = min(client.h2.local_flow_control_window(live[0]), size, 16_384)
            client.h2.send_data(live[0], bytes([size % 251]) * room)
            client.sent[live[0]] += bytes([size % 251]) * room
        elif live and what == "end" and not client.streams[live[-1]].ended_by_peer:
            client.h2.end_stream(live[-1])
        elif live and what == "answer":
            stream = live[size % len(live)]
            answered[stream] = bytes([size % 251]) * size
            client.server.answer(client.streams[stream], HEAD, answered[stream], TRAILERS)
        elif live and what == "stream":
            answered[live[0]] = b""
            client.server.send_headers(client.streams[live[0]], HEAD)
            for part in range(3):
                data = bytes([part]) * (size // 3)
                answered[live[0]] += data
                client.server.send(client.streams[live[0]], data)
            client.server.send_headers(client.streams[live[0]], TRAILERS, end=True)
        client.exchange(piece)
    assert client.came == client.sent
    assert {each: client.read.get(each, b"") for each in answered} == answered and client.done == set(answered)
    assert all(len(client.fields[each]) == 2 for each in answered)
    assert client.server.waiting_bytes == 0 and not client.server.ended
    assert set(client.server.streams) == set(client.streams) - set(answered)
