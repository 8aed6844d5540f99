"""SPDY/3.1 as a server speaks it after an upgrade, without IO: bytes in, events and bytes out.

Clients before kubectl 1.30 use it for exec, attach and port-forward; every kubectl for port-forward, where newer ones
send its bytes as WebSocket messages. As in upstream's library there is no flow control: windows are neither sent nor
honoured; TCP provides backpressure.

Source: SPDY Protocol - Draft 3.1, 2.2 to 2.6; moby/spdystream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

FRAME_BYTES_MAX: Final = 64 << 10
"""Maximum control frame. Data frames of any length are passed on in parts."""
HEADERS_BYTES_MAX: Final = 16 << 10
"""Headers of a frame, unpacked."""
HEADERS_MAX: Final = 32
FRAMES_AT_ONCE: Final = 64
"""Frames read in one step."""
STREAMS_MAX: Final = 256
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_FIN: Final = 1
_CONTROL: Final = 0x8000_0000
_VERSION: Final = 3
_REFUSED: Final = 3
_CANCEL: Final = 5
_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_TEXT: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    "Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    "Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec "
    "00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8"
    "charset=iso-8859-1,utf-,*,enq=0."
)


def _counted(*words: str) -> bytes:
    return b"".join(struct.pack(">I", len(word)) + word.encode() for word in words)


DICTIONARY: Final = (
    _counted(*_WORDS.split(), "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
    + _TEXT.encode()
)
"""The initial dictionary of both sides' header compressors (2.6.10.1)."""


class Malformed(ValueError):
    """Not SPDY/3.1. The connection cannot be reused."""


class Opened(NamedTuple):
    """Names of `headers` are in lower case."""

    stream: int
    headers: Mapping[str, str]


class Data(NamedTuple):
    stream: int
    data: bytes


class Ended(NamedTuple):
    """End of this stream's input; `reset`: of its output too."""

    stream: int
    reset: bool


class Gone(NamedTuple):
    """The peer opens no new streams."""


Event: TypeAlias = Opened | Data | Ended | Gone


class Spdy:
    """The server's side of one connection. `receive` appends replies to `outgoing`; the caller sends and clears it."""

    def __init__(self) -> None:
        self.outgoing = bytearray()
        self._buffer = bytearray()
        self._data_left = 0
        self._data_stream = 0
        self._data_ends = False
        self.more = False
        """Whether received frames wait for the next step."""
        self._open: dict[int, int] = {}
        """By stream, the bytes of its headers, which are kept as long."""
        self._headers_bytes = 0
        self._last = 0
        self._unpacker = zlib.decompressobj(zdict=DICTIONARY)
        # It packs only empty headers: the usual window would take 256 KiB of each connection.
        self._packer = zlib.compressobj(wbits=9, memLevel=1, zdict=DICTIONARY)

    def receive(self, data: bytes) -> list[Event]:
        """The events of up to FRAMES_AT_ONCE frames; while there are `more`, `receive(b"")` takes the next step.

        Raises: Malformed."""
        self._buffer += data
        events: list[Event] = []
        self.more = all(self._step(events) for _ in range(FRAMES_AT_ONCE))
        return events

    @property
    def held_bytes(self) -> int:
        """Unfinished frames, and headers of open streams."""
        return len(self._buffer) + self._headers_bytes

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        return struct.pack(">II", stream, (_FIN << 24 if fin else 0) | len(data)) + data

    def reset(self, stream: int) -> bytes:
        self.forget(stream)
        return _frame(_RST_STREAM, struct.pack(">II", stream, _CANCEL))

    def forget(self, stream: int) -> None:
        """Both sides have closed it; it no longer counts."""
        self._headers_bytes -= self._open.pop(stream, 0)

    def go_away(self, *, failed: bool) -> bytes:
        """`failed`: for an error of the protocol."""
        return _frame(_GOAWAY, struct.pack(">II", self._last, failed))

    # --- frames -----------------------------------------------------------------------------------------------------

    def _step(self, events: list[Event]) -> bool:
        buffer = self._buffer
        if self._data_left:
            part = bytes(buffer[: self._data_left])
            if not part:
                return False
            del buffer[: len(part)]
            self._data_left -= len(part)
            self._deliver(part, events)
            return True
        if len(buffer) < 8:
            return False
        first, second = struct.unpack_from(">II", buffer)
        flags, length = second >> 24, second & 0xFF_FFFF
        if not first & _CONTROL:
            del buffer[:8]
            self._data_stream, self._data_left, self._data_ends = first, length, bool(flags & _FIN)
            if not length:
                self._deliver(b"", events)
            return True
        if (first >> 16) & 0x7FFF != _VERSION:
            raise Malformed(f"SPDY version {(first >> 16) & 0x7FFF}; this server speaks {_VERSION}")
        if length > FRAME_BYTES_MAX:
            raise Malformed(f"a control frame of {length} bytes; the limit is {FRAME_BYTES_MAX}")
        if len(buffer) < 8 + length:
            return False
        body = bytes(buffer[8 : 8 + length])
        del buffer[: 8 + length]
        self._control(first & 0xFFFF, flags, body, events)
        return True

    def _deliver(self, part: bytes, events: list[Event]) -> None:
        stream = self._data_stream
        if stream not in self._open:
            return
        if part:
            events.append(Data(stream, part))
        if self._data_ends and not self._data_left:
            events.append(Ended(stream, False))

    def _control(self, kind: int, flags: int, body: bytes, events: list[Event]) -> None:
        if kind == _SYN_STREAM:
            stream = _number(body, 10)
            headers = self._headers(body[10:])
            if stream <= self._last or not stream % 2:
                raise Malformed(f"stream {stream} follows stream {self._last}")
            self._last = stream
            if len(self._open) >= STREAMS_MAX:
                self.outgoing += _frame(_RST_STREAM, struct.pack(">II", stream, _REFUSED))
                return
            self._open[stream] = size = sum(map(len, headers)) + sum(map(len, headers.values()))
            self._headers_bytes += size
            self.outgoing += _frame(_SYN_REPLY, struct.pack(">I", stream) + self._no_headers())
            events.append(Opened(stream, headers))
            if flags & _FIN:
                events.append(Ended(stream, False))
        elif kind in (_SYN_REPLY, _HEADERS):
            # Unused, but needed for the compressor's state.
            self._headers(body[4:])
        elif kind == _RST_STREAM:
            stream = _number(body, 8)
            if stream in self._open:
                self.forget(stream)
                events.append(Ended(stream, True))
        elif kind == _PING:
            if _number(body, 4) % 2:
                self.outgoing += _frame(_PING, body[:4])
        elif kind == _GOAWAY:
            events.append(Gone())
        elif kind not in (_SETTINGS, _WINDOW_UPDATE):
            raise Malformed(f"a control frame of type {kind}")

    # --- headers ----------------------------------------------------------------------------------------------------

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            text = self._unpacker.decompress(block, HEADERS_BYTES_MAX)
        except zlib.error as error:
            raise Malformed(f"headers that cannot be unpacked: {error}") from None
        if self._unpacker.unconsumed_tail:
            raise Malformed(f"headers of more than {HEADERS_BYTES_MAX} bytes")
        if (count := _number(text, 4)) > HEADERS_MAX:
            raise Malformed(f"{count} headers; the limit is {HEADERS_MAX}")
        found: dict[str, str] = {}
        at = 4
        for _ in range(count):
            pair = []
            for _ in range(2):
                size = _number(text[at : at + 4], 4)
                pair.append(text[at + 4 : at + 4 + size].decode("latin-1"))
                at += 4 + size
            if at > len(text):
                raise Malformed("headers that break off")
            found[pair[0].lower()] = pair[1]
        return found

    def _no_headers(self) -> bytes:
        return self._packer.compress(bytes(4)) + self._packer.flush(zlib.Z_SYNC_FLUSH)


def _frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">HHI", 0x8000 | _VERSION, kind, len(body)) + body


def _number(data: bytes, least: int) -> int:
    """The first four bytes, of at least `least`, as a number of 31 bits. Raises: Malformed."""
    if len(data) < least:
        raise Malformed("a frame that breaks off")
    return int(struct.unpack_from(">I", data)[0]) & 0x7FFF_FFFF
