"""Sends answers within the peer's windows, streams in turn."""

from __future__ import annotations

from typing import Final

from minikube_py.http2 import frames
from minikube_py.http2.events import Drained, Event, Stream
from minikube_py.http2.frames import DATA, END_HEADERS, END_STREAM, FRAME_BYTES, HEAD, HEADERS, WINDOW_BYTES

OUT_BYTES: Final = 256 << 10
"""About this much is prepared to be sent at once."""
CUT_OFF_MAX: Final = 1_000
SHRINK: Final = b"\x20"
"""The start of a header block that sets the size of the sender's unused table to 0."""


class Sending:
    """`held`: sending is paused, because the peer does not read. `waiting_bytes`: of all streams, waiting for window
    space."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        """Streams not fully answered, or whose answer waits for window space."""
        self.held = False
        self.waiting_bytes = 0
        self._send_window = self._stream_window = WINDOW_BYTES
        self._table_shrunk = False
        self._blocked: dict[Stream, None] = {}
        """Streams that wait for anything but a window of their own. Others cost nothing until theirs grows."""
        self._cut_off: dict[int, None] = {}
        """The last streams that we ended before the peer did."""
        self._events: list[Event] = []
        self._idle_frames = self._pings_early = 0
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0

    def outgoing(self) -> bytes:
        """The bytes to send now."""
        out = self._out
        if not out:
            return b""
        self._out, self._out_bytes = [], 0
        return b"".join(out)

    def took(self, stream: Stream, size_bytes: int) -> None:
        """This much data was consumed, so the peer may send as much again."""
        stream.given_bytes += size_bytes
        if stream.given_bytes * 2 >= WINDOW_BYTES and not stream.ended_by_peer and stream.open:
            self._out.append(frames.window_update(stream.id, stream.given_bytes))
            stream.receive_window += stream.given_bytes
            stream.given_bytes = 0

    def answer(self, stream: Stream, head: bytes, data: bytes, trailers: bytes) -> None:
        """A complete answer: two header blocks and the data between them."""
        size = len(data)
        room = min(stream.send_window, self._send_window, FRAME_BYTES)
        if size > room or self.held or stream.waiting or self._table_shrunk:
            self.send_headers(stream, head)
            self.send(stream, data)
            self.send_headers(stream, trailers, end=True)
            return
        if not stream.open:
            return
        self._send_window -= size
        self._idle_frames = self._pings_early = 0
        number, pack = stream.id, HEAD.pack
        self._out += (
            pack(0, len(head), HEADERS, END_HEADERS, number), head,
            pack(size >> 8, size & 0xFF, DATA, 0, number), data,
            pack(0, len(trailers), HEADERS, END_HEADERS | END_STREAM, number), trailers,
        )  # fmt: skip
        self._finish(stream)

    def send_headers(self, stream: Stream, block: bytes, *, end: bool = False) -> None:
        self._put(stream, block, headers=True, end=end)

    def send(self, stream: Stream, data: bytes, *, end: bool = False) -> None:
        self._put(stream, data, headers=False, end=end)

    def _put(self, stream: Stream, data: bytes, *, headers: bool, end: bool) -> None:
        if not stream.open or stream.ended_by_us:
            return
        stream.ended_by_us = end
        stream.waiting.append((data, headers, end))
        self.waiting_bytes += len(data)
        self._blocked[stream] = None
        self._send_waiting(stream)

    def reset(self, stream: Stream, code: int) -> None:
        if stream.open:
            self._cut(stream, code)
            self.streams.pop(stream.id, None)
            self._close(stream)

    def release(self) -> list[Event]:
        """Sending may continue: the peer reads again, or `outgoing` was taken."""
        self.held = False
        self._pump()
        events, self._events = self._events, []
        return events

    @property
    def blocked(self) -> bool:
        """Some prepared data has not been sent yet."""
        return bool(self._blocked) and not self.held

    def _pump(self, stream: Stream | None = None) -> None:
        """Sends waiting data that has window space, streams in turn."""
        for each in [stream] if stream is not None else list(self._blocked):
            if self.held or self._send_window <= 0 or self._out_bytes >= OUT_BYTES:
                break
            self._send_waiting(each)
            if each.open and not each.waiting:
                self._events.append(Drained(each))

    def _send_waiting(self, stream: Stream) -> None:
        waiting = stream.waiting
        while waiting and not self.held:
            data, headers, end = waiting[0]
            if headers:
                self._send_block(stream, bytes(data), end=end)
                sent = len(data)
            else:
                sent = self._send_data(stream, data, end=end)
                if sent < len(data):
                    # Avoids copying the rest each time.
                    waiting[0] = (memoryview(data)[sent:], headers, end)
                    self.waiting_bytes -= sent
                    break
            self.waiting_bytes -= sent
            waiting.popleft()
            if end:
                self._finish(stream)
                return
        self._blocked.pop(stream, None)
        if waiting and (self.held or stream.send_window > 0):
            # Behind others that also wait.
            self._blocked[stream] = None

    def _send_block(self, stream: Stream, block: bytes, *, end: bool) -> None:
        if self._table_shrunk:
            block, self._table_shrunk = SHRINK + block, False
        self._out += frames.header_frames(stream.id, block, END_STREAM if end else 0)
        self._out_bytes += len(block)
        self._idle_frames = self._pings_early = 0

    def _send_data(self, stream: Stream, data: bytes | memoryview, *, end: bool) -> int:
        """Sends as much as has window space; returns how much."""
        size = len(data)
        # Settings may have made a window negative, which an empty frame does not need.
        most = max(min(size, stream.send_window, self._send_window, OUT_BYTES - self._out_bytes), 0)
        if not most and size:
            return 0
        for start in range(0, most, FRAME_BYTES) if size else (0,):
            part = data[start : min(start + FRAME_BYTES, most)]
            flags = END_STREAM if end and start + len(part) == size else 0
            length = len(part)
            self._out += (HEAD.pack(length >> 8, length & 0xFF, DATA, flags, stream.id), part)
        stream.send_window -= most
        stream.moved_bytes += most
        self._idle_frames = self._pings_early = 0
        self._send_window -= most
        self._out_bytes += most
        return most

    def _finish(self, stream: Stream) -> None:
        """Its answer was sent completely."""
        if not stream.ended_by_peer:
            self._cut(stream, frames.NO_ERROR)
        self.streams.pop(stream.id, None)
        self._close(stream)

    def _cut(self, stream: Stream, code: int) -> None:
        """Frames of it still in flight are ignored."""
        self._out.append(frames.reset(stream.id, code))
        self._cut_off[stream.id] = None
        if len(self._cut_off) > CUT_OFF_MAX:
            del self._cut_off[next(iter(self._cut_off))]

    def _close(self, stream: Stream) -> None:
        stream.open = False
        self._blocked.pop(stream, None)
        self.waiting_bytes -= sum([len(data) for data, *_ in stream.waiting])
        stream.waiting.clear()

    def abandon(self) -> None:
        """The peer is gone."""
        for stream in self.streams.values():
            self._close(stream)
        self.streams.clear()
        self._out, self._out_bytes = [], 0
