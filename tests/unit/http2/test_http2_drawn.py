"""Legal and illegal frames in any order, and answers of any size: windows, memory and work keep their laws.

A model of the peer follows what it has sent, and reads what it gets."""

from __future__ import annotations

import random

import pytest
from http2_peer import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    HELLO,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    frames_of,
    number,
    request,
    settings,
)
from test_http2_work import STEPS_PER_BYTE, STEPS_PER_WINDOW, steps

from minikube_py.http2.connection import Connection
from minikube_py.http2.events import Aborted, Ended, Event, Opened, Received, Stream
from minikube_py.http2.frames import FRAME_BYTES, WINDOW_BYTES, WINDOW_MAX
from minikube_py.http2.limits import ConnectionLimits
from minikube_py.http2.sending import CUT_OFF_MAX, OUT_BYTES

LIMITS = ConnectionLimits(streams_max=8, header_bytes_max=2_000, idle_frames_max=40, resets_max=20, resized_max=64)
LONGEST_BYTES = 9 + FRAME_BYTES
STEPS_PER_READ = 400
STEPS_PER_ANSWERED = 60
"""For each 16 KiB that a read makes be sent, and each stream that it touches."""
SIZES = [0, 1, 4, 5, 6, 7, 8, 9, 100, 1_000, FRAME_BYTES - 1, FRAME_BYTES]
WINDOWS = [0, 1, 2, 100, 1_024, WINDOW_BYTES - 1, WINDOW_BYTES, 1 << 20, WINDOW_MAX - WINDOW_BYTES, WINDOW_MAX]
ANSWERS = [0, 1, 5, 100, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, WINDOW_BYTES, 300_000]
TRAILERS = block(("a", "b"))


class Peer:
    """Draws frames, and checks what comes against the windows that it gave."""

    def __init__(self, drawn: random.Random, careful: bool) -> None:
        self.drawn, self.careful = drawn, careful
        self.next_id = 1
        self.initial = self.window = WINDOW_BYTES
        self.windows: dict[int, int] = {}
        self.shrunk = False
        """Since the last read: what was sent before is above the windows."""

    def frame(self) -> bytes:
        draw = self.drawn
        if not self.careful and draw.random() < 0.05:
            return self.illegal()
        stream = draw.choice(range(1, self.next_id + 2, 2)[-12:])
        kind = draw.choice(
            [HEADERS] * 4 + [DATA] * 4 + [WINDOW_UPDATE] * 4 + [SETTINGS, SETTINGS, PING, PRIORITY, RST_STREAM]
        )
        if kind == HEADERS:
            stream, self.next_id = self.next_id, self.next_id + draw.choice([2, 2, 2, 4])
            self.windows[stream] = self.initial
            return self.opening(stream)
        if kind == DATA:
            size, known = draw.choice(SIZES), draw.choice([*self.windows] or [1])
            return frame(DATA, draw.choice([0, 0, 0, 1]), known, bytes(size))
        if kind == WINDOW_UPDATE:
            return self.widened(draw.choice([0, 0, *self.windows]), draw.choice(WINDOWS[1:]))
        if kind == SETTINGS:
            pairs = [(draw.choice([1, 2, 3, 4, 4, 4, 6, 9]), 0) for _ in range(draw.choice([0, 1, 1, 2, 5]))]
            return self.set([(name, draw.choice(WINDOWS) if name == 4 else 0) for name, _ in pairs])
        if kind == PING:
            return frame(PING, 1, 0, bytes(8))
        if kind == PRIORITY:
            return frame(PRIORITY, 0, stream, bytes(5))
        return frame(RST_STREAM, 0, draw.choice([*self.windows] or [stream]), number(8))

    def opening(self, stream: int) -> bytes:
        draw, head = self.drawn, block(*REQUEST)
        cut = draw.choice([0, 0, 1, len(head) // 2, len(head)])
        if not cut:
            return request(stream, end=draw.random() < 0.5)
        return frame(HEADERS, draw.choice([0, 1]), stream, head[:cut]) + frame(CONTINUATION, 4, stream, head[cut:])

    def widened(self, stream: int, more: int) -> bytes:
        if self.careful:
            more = min(more, WINDOW_MAX - (self.windows[stream] if stream else self.window))
            more = more if not stream else min(more, WINDOW_MAX - self.initial)
            if more <= 0:
                return b""
        if not stream:
            self.window += more
        else:
            self.windows[stream] += more
        return frame(WINDOW_UPDATE, 0, stream, number(more))

    def set(self, pairs: list[tuple[int, int]]) -> bytes:
        if self.careful:
            most = WINDOW_MAX - max([0, *(window - self.initial for window in self.windows.values())])
            pairs = [(name, min(value, most) if name == 4 else value) for name, value in pairs if name in (3, 4, 9)]
        for name, value in pairs:
            if name == 4:
                self.windows = {stream: window + value - self.initial for stream, window in self.windows.items()}
                self.shrunk |= value < self.initial
                self.initial = value
        return settings(*pairs)

    def illegal(self) -> bytes:
        """Any kind, flags, stream and size."""
        draw = self.drawn
        stream = draw.choice([0, 1, 2, self.next_id - 2 if self.next_id > 2 else 1, self.next_id, 0x7FFFFFFF])
        payload = draw.randbytes(draw.choice(SIZES)) if draw.random() < 0.5 else bytes(draw.choice(SIZES))
        kinds = [
            DATA,
            HEADERS,
            PRIORITY,
            RST_STREAM,
            SETTINGS,
            PUSH_PROMISE,
            PING,
            GOAWAY,
            WINDOW_UPDATE,
            CONTINUATION,
            10,
            255,
        ]
        return frame(draw.choice(kinds), draw.choice([0, 1, 4, 5, 8, 12, 32, 255]), stream, payload)

    def read(self, data: bytes, strict: bool) -> None:
        """`strict`: the windows are known."""
        for each in frames_of(data):
            if each.kind == DATA and each.stream in self.windows:
                self.window -= len(each.payload)
                self.windows[each.stream] -= len(each.payload)
                if each.payload and strict:
                    assert self.window >= 0 and self.windows[each.stream] >= 0
            assert len(each.payload) <= FRAME_BYTES


class Server:
    """Takes what it gets, sooner or later, and answers with any size."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn = drawn
        self.connection = Connection(LIMITS)
        self.open: list[Stream] = []
        self.untaken: dict[Stream, int] = {}
        self.ended = False

    def handle(self, events: list[Event]) -> None:
        for event in events:
            assert not self.ended
            if type(event) is Opened:
                self.open.append(event.stream)
            elif type(event) is Received:
                held = self.untaken.get(event.stream, 0) + len(event.data)
                assert held <= WINDOW_BYTES
                self.untaken[event.stream] = held
            elif type(event) is Aborted:
                self.untaken.pop(event.stream, None)
            self.ended = type(event) is Ended

    def work(self) -> None:
        draw, connection = self.drawn, self.connection
        for stream in draw.sample(list(self.untaken), len(self.untaken) // 2):
            connection.took(stream, self.untaken.pop(stream))
        for stream in draw.sample(self.open, len(self.open) // 2):
            size = draw.choice(ANSWERS)
            way = draw.randrange(4)
            if way == 0:
                connection.answer(stream, TRAILERS, bytes(size), TRAILERS)
            elif way == 1:
                connection.send(stream, bytes(size))
                continue
            elif way == 2:
                connection.send(stream, bytes(size), end=True)
            else:
                connection.reset(stream, 8)
            self.open.remove(stream)


def check(connection: Connection) -> None:
    """What is held is bounded, counted, and waits for a window alone."""
    streams = connection.streams.values()
    assert len(connection.streams) <= LIMITS.streams_max and len(connection._cut_off) <= CUT_OFF_MAX
    assert len(connection._rest) < LONGEST_BYTES and set(connection._blocked) <= set(streams)
    if connection._collected is not None and not connection.ended:
        assert connection._collected_bytes <= LIMITS.header_bytes_max
    assert connection.waiting_bytes == sum(len(data) for stream in streams for data, *_ in stream.waiting) >= 0
    assert all(stream.receive_window <= WINDOW_BYTES for stream in streams)
    if connection._send_window > 0 and not connection.held:
        assert not [each.id for each in streams if each.waiting and each.send_window > 0]


@pytest.mark.parametrize("careful", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_whatever_frames_come_windows_memory_and_work_keep_their_laws(seed: int, careful: bool) -> None:
    drawn = random.Random(seed * 2 + careful)
    peer, server = Peer(drawn, careful), Server(drawn)
    connection, now_s = server.connection, 0.0
    connection.receive(HELLO, now_s)
    connection.outgoing()
    for _ in range(150):
        now_s += drawn.choice([0.0, 0.01, 1.0])
        data = b"".join([peer.frame() for _ in range(drawn.choice([1, 1, 2, 8]))])
        cut, events = drawn.choice([len(data), drawn.randint(0, len(data))]), list[Event]()
        resized = sum(each.kind == SETTINGS for each in frames_of(data))
        spent = steps(lambda: events.extend(connection.receive(data[:cut], now_s)))  # noqa: B023
        spent += steps(lambda: events.extend(connection.receive(data[cut:], now_s)))  # noqa: B023
        server.handle(events)
        out = connection.outgoing()
        touched = (1 + resized) * LIMITS.streams_max
        most = 2 * STEPS_PER_READ + STEPS_PER_BYTE * len(data) + STEPS_PER_WINDOW * touched
        assert spent <= most + STEPS_PER_ANSWERED * (len(out) // FRAME_BYTES + touched)
        assert len(out) <= OUT_BYTES + 13 * len(data) + LONGEST_BYTES
        peer.read(out, careful and not connection.ended and not peer.shrunk)
        peer.shrunk = False
        server.work()
        while connection.blocked or connection._out:
            out = connection.outgoing()
            peer.read(out, careful and not connection.ended)
            server.handle(connection.release())
            if not out and not connection._out:
                break
        check(connection)
        if connection.ended:
            assert connection.receive(HELLO, now_s) == []
            break
    connection.abandon()
    assert connection.waiting_bytes == 0 and not connection._blocked
