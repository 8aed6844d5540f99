"""The server's side of a connection, without IO: bytes and time in, events and bytes out.

It bounds what a peer can make us hold or do: header blocks and their frames, concurrent streams, data by windows, and,
by `Allowance`, work without effect. Whatever the peer sends, each stream and the connection end in a state defined by
RFC 9113."""

from __future__ import annotations

from typing import Final

from minikube_py.http2 import frames
from minikube_py.http2.events import Aborted, Ended, Event, Opened, Received, Stream
from minikube_py.http2.fields import Judge, trailers_well_formed
from minikube_py.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES,
    FRAME_SIZE_ERROR,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    LONG,
    PADDED,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    STREAM_MASK,
    WINDOW_BYTES,
    WINDOW_MAX,
    WINDOW_UPDATE,
)
from minikube_py.http2.hpack import TABLE_BYTES, BadBlock, Block, Decoder
from minikube_py.http2.limits import Allowance, ConnectionLimits
from minikube_py.http2.sending import Sending

STEP_BYTES: Final = 1_024
"""A client reading a large answer, which was sent at once, enlarges its windows by at least this much."""


class Broken(Exception):
    """Ends the connection."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class Connection(Sending):
    """Pass the peer's bytes to `receive`, and send it `outgoing`."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        super().__init__()
        self.limits = limits = limits or ConnectionLimits()
        self.settled = False
        """The peer has sent its preface and its settings."""
        self.leaving = self.ended = False
        self._rest = b""
        self._prefaced = False
        self._decoder = Decoder(limits.header_bytes_max)
        self._judge = Judge()
        self._last_id = 0
        self._collected: tuple[int, int, list[bytes]] | None = None
        """An incomplete header block: stream, flags, parts."""
        self._collected_bytes = 0
        self._receive_window = limits.window_bytes
        self._given_bytes = 0
        self._pinged_s = float("-inf")
        self._resets = Allowance(limits.resets_max, limits.resets_per_s)
        self._resized = Allowance(limits.resized_max, limits.resized_per_s)
        self._now_s = 0.0
        announced = {
            frames.MAX_CONCURRENT_STREAMS: limits.streams_max,
            frames.MAX_HEADER_LIST_SIZE: limits.header_bytes_max,
        }
        self._out += (frames.settings(announced), frames.window_update(0, limits.window_bytes - WINDOW_BYTES))

    # -- input ---------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """Accepts the peer's bytes in pieces of any size."""
        events, self._events = self._events, []
        self._now_s = now_s
        if self.ended:
            return events
        self._events = events
        try:
            self._read(self._rest + data if self._rest else data)
        except Broken as broken:
            self._end(broken.code, broken.why)
        self._events = []
        return events

    def _read(self, data: bytes) -> None:
        """Raises: Broken."""
        at, size = 0, len(data)
        if not self._prefaced:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise Broken(PROTOCOL_ERROR, "no preface of HTTP/2")
            if size < len(PREFACE):
                self._rest = data
                return
            self._prefaced, at = True, len(PREFACE)
        unpack, handlers = HEAD.unpack_from, _HANDLERS
        while size - at >= HEAD_BYTES:
            high, low, kind, flags, stream_id = unpack(data, at)
            start = at + HEAD_BYTES
            stop = start + (high << 8 | low)
            if stop - start > FRAME_BYTES:
                raise Broken(FRAME_SIZE_ERROR, "a frame is larger than was allowed")
            if stop > size:
                break
            if self._collected is not None and kind != CONTINUATION:
                raise Broken(PROTOCOL_ERROR, "a header block is interrupted")
            if not self.settled and kind != SETTINGS:
                raise Broken(PROTOCOL_ERROR, "the first frame is not one of settings")
            handler = handlers.get(kind)
            if handler is None:
                self._idle()
            else:
                handler(self, stream_id & STREAM_MASK, flags, data[start:stop])
            at = stop
        self._rest = data[at:]

    def _on_headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise Broken(PROTOCOL_ERROR, "a client's streams have odd numbers")
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & PRIORITIZED:
            if len(payload) < 5:
                raise Broken(FRAME_SIZE_ERROR, "a frame ends within its priority")
            payload = payload[5:]
        if not flags & END_HEADERS:
            self._collected, self._collected_bytes = (stream_id, flags, [payload]), len(payload)
            self._check_collected()
            return
        self._on_block(stream_id, flags, payload)

    def _on_continuation(self, stream_id: int, flags: int, payload: bytes) -> None:
        if self._collected is None or self._collected[0] != stream_id:
            raise Broken(PROTOCOL_ERROR, "a header block goes on that did not begin")
        _, first_flags, parts = self._collected
        parts.append(payload)
        self._collected_bytes += len(payload)
        self._check_collected()
        if flags & END_HEADERS:
            self._collected = None
            self._on_block(stream_id, first_flags, b"".join(parts))

    def _check_collected(self) -> None:
        assert self._collected is not None
        limits, parts = self.limits, self._collected[2]
        if self._collected_bytes > limits.header_bytes_max or len(parts) > limits.continuations_max + 1:
            raise Broken(frames.ENHANCE_YOUR_CALM, "a header block is too long")

    def _on_block(self, stream_id: int, flags: int, data: bytes) -> None:
        if len(data) > self.limits.header_bytes_max:
            raise Broken(frames.ENHANCE_YOUR_CALM, "a header block is too long")
        try:
            block = self._decoder.decode(data)
        except BadBlock as error:
            raise Broken(frames.COMPRESSION_ERROR, str(error)) from None
        ended = flags & END_STREAM != 0
        if stream_id <= self._last_id:
            self._on_trailers(stream_id, block, ended=ended)
            return
        self._last_id = stream_id
        if self.leaving or len(self.streams) >= self.limits.streams_max:
            self._idle()
            self._out.append(frames.reset(stream_id, REFUSED_STREAM))
            return
        if block.fields is None:
            self._idle()
            self._out.append(frames.reset(stream_id, FRAME_SIZE_ERROR))
            return
        if block.request is None:
            block.request = self._judge.well_formed(block.fields)
        if not block.request:
            self._idle()
            self._out.append(frames.reset(stream_id, PROTOCOL_ERROR))
            return
        self._idle_frames = 0
        stream = self.streams[stream_id] = Stream(stream_id, self._stream_window)
        stream.ended_by_peer = ended
        self._events.append(Opened(stream, block, ended))

    def _on_trailers(self, stream_id: int, block: Block, *, ended: bool) -> None:
        """Decoded for the table's sake; they are ignored."""
        stream = self.streams.get(stream_id)
        if stream is None and stream_id in self._cut_off:
            self._idle()
        elif stream is None or stream.ended_by_peer:
            raise Broken(PROTOCOL_ERROR, "the number of a stream is used again")
        elif not ended or block.fields is None or not trailers_well_formed(block.fields):
            self._abort(stream, PROTOCOL_ERROR)
        else:
            stream.ended_by_peer = True
            self._events.append(Received(stream, b"", True))

    def _on_data(self, stream_id: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise Broken(FLOW_CONTROL_ERROR, "more data than the connection's window")
        self._given_bytes += size
        if self._given_bytes * 2 >= self.limits.window_bytes:
            self._out.append(frames.window_update(0, self._given_bytes))
            self._receive_window += self._given_bytes
            self._given_bytes = 0
        if flags & PADDED:
            payload = _unpadded(payload)
        stream = self.streams.get(stream_id)
        if stream is None:
            self._require_known(stream_id)
            self._idle()
            return
        if stream.ended_by_peer:
            self._abort(stream, STREAM_CLOSED)
            return
        stream.moved_bytes += 1
        stream.receive_window -= size
        if stream.receive_window < 0:
            self._abort(stream, FLOW_CONTROL_ERROR)
            return
        ended = flags & END_STREAM != 0
        stream.ended_by_peer = ended
        if not payload and not ended:
            self._idle()
        if size > len(payload):
            self.took(stream, size - len(payload))
        if payload or ended:
            self._events.append(Received(stream, payload, ended))

    def _on_priority(self, stream_id: int, flags: int, payload: bytes) -> None:
        self._idle()
        if not stream_id:
            raise Broken(PROTOCOL_ERROR, "the connection has no priority")
        stream = self.streams.get(stream_id)
        if len(payload) != 5:
            if stream is None:
                raise Broken(FRAME_SIZE_ERROR, "a priority has five bytes")
            self._abort(stream, FRAME_SIZE_ERROR)

    def _on_reset(self, stream_id: int, flags: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Broken(FRAME_SIZE_ERROR, "a reset has four bytes")
        self._require_known(stream_id)
        stream = self.streams.pop(stream_id, None)
        if stream is None:
            self._idle()
            return
        self._close(stream)
        self._events.append(Aborted(stream))
        self._take_reset()

    def _on_settings(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise Broken(PROTOCOL_ERROR, "settings are the connection's")
        if flags & frames.ACK:
            if payload:
                raise Broken(FRAME_SIZE_ERROR, "settings are taken without words")
            if not self.settled:
                raise Broken(PROTOCOL_ERROR, "the first frame is not one of settings")
            self._idle()
            return
        if len(payload) % frames.SETTING.size:
            raise Broken(FRAME_SIZE_ERROR, "settings have six bytes each")
        self._idle()
        window = self._stream_window
        for name, value in frames.SETTING.iter_unpack(payload):
            if name == frames.INITIAL_WINDOW_SIZE:
                window = value
            self._check_setting(name, value)
        if window != self._stream_window:
            self._resize_windows(window)
        self.settled = True
        self._out.append(frames.frame(SETTINGS, frames.ACK, 0))

    def _check_setting(self, name: int, value: int) -> None:
        if name == frames.INITIAL_WINDOW_SIZE and value > WINDOW_MAX:
            raise Broken(FLOW_CONTROL_ERROR, "a window is too large")
        if name == frames.MAX_FRAME_SIZE and not FRAME_BYTES <= value <= frames.FRAME_SIZE_MAX:
            raise Broken(PROTOCOL_ERROR, "no frame has such a size")
        elif name == frames.ENABLE_PUSH and value > 1:
            raise Broken(PROTOCOL_ERROR, "push is on or off")
        elif name == frames.HEADER_TABLE_SIZE and value < TABLE_BYTES:
            # Our encoder uses no table, but must announce that it became smaller (RFC 7541, 4.2).
            self._table_shrunk = True

    def _resize_windows(self, window: int) -> None:
        """Once per frame, to the last value: it visits every stream."""
        if not self._resized.take(self._now_s, len(self.streams)):
            raise Broken(frames.ENHANCE_YOUR_CALM, "too many windows are changed by settings")
        more, self._stream_window = window - self._stream_window, window
        for stream in self.streams.values():
            stream.send_window += more
            if stream.send_window > WINDOW_MAX:
                raise Broken(FLOW_CONTROL_ERROR, "a window is too large")
            if stream.waiting:
                self._blocked[stream] = None
        self._pump()

    def _on_push_promise(self, stream_id: int, flags: int, payload: bytes) -> None:
        raise Broken(PROTOCOL_ERROR, "a client promises nothing")

    def _on_ping(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise Broken(PROTOCOL_ERROR, "pings are the connection's")
        if len(payload) != 8:
            raise Broken(FRAME_SIZE_ERROR, "a ping has eight bytes")
        if flags & frames.ACK:
            self._idle()
            return
        self._out.append(frames.frame(frames.PING, frames.ACK, 0, payload))
        if self._now_s - self._pinged_s < self.limits.ping_least_s:
            self._pings_early += 1
            if self._pings_early > self.limits.pings_early_max:
                raise Broken(frames.ENHANCE_YOUR_CALM, "too_many_pings")
        self._pinged_s = self._now_s

    def _on_goaway(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise Broken(PROTOCOL_ERROR, "the connection goes away, no stream")
        if len(payload) < 8:
            raise Broken(FRAME_SIZE_ERROR, "it ends too early")
        self._idle()
        self.leaving = True

    def _on_window_update(self, stream_id: int, flags: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Broken(FRAME_SIZE_ERROR, "a window grows by four bytes")
        more = LONG.unpack(payload)[0] & STREAM_MASK
        if more < STEP_BYTES:
            # Larger answers are few: windows are bounded.
            self._idle()
        if not stream_id:
            if not more:
                raise Broken(PROTOCOL_ERROR, "a window grows by nothing")
            self._send_window += more
            if self._send_window > WINDOW_MAX:
                raise Broken(FLOW_CONTROL_ERROR, "a window is too large")
            if self._blocked:
                self._pump()
            return
        self._require_known(stream_id)
        stream = self.streams.get(stream_id)
        if stream is None:
            self._idle()
            return
        if not more:
            self._abort(stream, PROTOCOL_ERROR)
            return
        stream.send_window += more
        if stream.send_window > WINDOW_MAX:
            self._abort(stream, FLOW_CONTROL_ERROR)
        elif stream.waiting:
            self._blocked[stream] = None
            self._pump(stream)

    def _require_known(self, stream_id: int) -> None:
        if not stream_id or not stream_id & 1 or stream_id > self._last_id:
            raise Broken(PROTOCOL_ERROR, "a frame of a stream that did not begin")

    def _idle(self) -> None:
        """Counts a frame without effect."""
        self._idle_frames += 1
        if self._idle_frames > self.limits.idle_frames_max:
            raise Broken(frames.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def _take_reset(self) -> None:
        if not self._resets.take(self._now_s):
            raise Broken(frames.ENHANCE_YOUR_CALM, "too many streams are reset")

    def _abort(self, stream: Stream, code: int) -> None:
        """For an error of the peer: the number of these is also bounded."""
        self._idle()
        self._take_reset()
        self.reset(stream, code)
        self._events.append(Aborted(stream))

    def leave(self, text: str = "") -> None:
        """Accepts no more streams; existing ones continue."""
        if not self.leaving:
            self.leaving = True
            self._out.append(frames.goaway(self._last_id, frames.NO_ERROR, text.encode()))

    def _end(self, code: int, why: str) -> None:
        self.ended = self.leaving = True
        self._rest = b""
        self._collected = None
        for stream in list(self.streams.values()):
            self._close(stream)
            self._events.append(Aborted(stream))
        self.streams.clear()
        self._out.append(frames.goaway(self._last_id, code, why.encode()))
        self._events.append(Ended(code, why))


def _unpadded(payload: bytes) -> bytes:
    """Raises: Broken."""
    if not payload or payload[0] >= len(payload):
        raise Broken(PROTOCOL_ERROR, "more padding than there is")
    return payload[1 : len(payload) - payload[0]]


_HANDLERS: Final = {
    DATA: Connection._on_data,
    HEADERS: Connection._on_headers,
    PRIORITY: Connection._on_priority,
    RST_STREAM: Connection._on_reset,
    SETTINGS: Connection._on_settings,
    frames.PUSH_PROMISE: Connection._on_push_promise,
    frames.PING: Connection._on_ping,
    frames.GOAWAY: Connection._on_goaway,
    WINDOW_UPDATE: Connection._on_window_update,
    CONTINUATION: Connection._on_continuation,
}
