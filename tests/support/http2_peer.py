"""The client side of HTTP/2 for tests: arbitrary frames as bytes, and a server's bytes as frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
(DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION) = range(10)
REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/etcdserverpb.KV/Range"), (":authority", "a"),
           ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">HBBBL", len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(struct.pack(">HL", *each) for each in pairs))


HELLO = PREFACE + settings()


def number(value: int) -> bytes:
    return struct.pack(">L", value)


def block(*fields: tuple[str, str]) -> bytes:
    """Without the use of a table."""
    out = b""
    for name, value in fields:
        out += b"\0" + b"".join(
            bytes([len(each)]) if len(each) < 127 else b"\x7f" + varint(len(each) - 127) for each in [name.encode()]
        )
        out += name.encode()
        text = value.encode()
        out += (bytes([len(text)]) if len(text) < 127 else b"\x7f" + varint(len(text) - 127)) + text
    return out


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def request(stream: int, *more: tuple[str, str], end: bool = False, **changed: str) -> bytes:
    """`changed`: fields of REQUEST by name, with _ for - and without colons; empty: omitted."""
    fields = []
    for name, value in REQUEST:
        value = changed.get(name.lstrip(":").replace("-", "_"), value)
        if value:
            fields.append((name, value))
    return frame(HEADERS, 4 | end, stream, block(*fields, *more))


def message(data: bytes) -> bytes:
    return len(data).to_bytes(5, "big") + data


def frames_of(data: bytes) -> Iterator[Frame]:
    """The complete ones."""
    at = 0
    while len(data) - at >= 9:
        high, low, kind, flags, stream = struct.unpack_from(">HBBBL", data, at)
        size = high << 8 | low
        if len(data) - at - 9 < size:
            return
        yield Frame(kind, flags, stream, data[at + 9 : at + 9 + size])
        at += 9 + size


class RawPeer:
    """A socket that sends any bytes."""

    def __init__(self, port: int, within_s: float, hello: bytes = HELLO) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), within_s)
        self._read = b""
        self._decoder = hpack.Decoder()
        self.send(hello)

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def next(self) -> Frame | None:
        """None if the server has closed the connection. Raises: TimeoutError."""
        while True:
            found = next(frames_of(self._read), None)
            if found is not None:
                self._read = self._read[9 + len(found.payload) :]
                return found
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._read += data

    def until(self, kind: int, stream: int = 0) -> Frame | None:
        """The next of that kind and, unless it is 0, stream; others are skipped."""
        while (found := self.next()) is not None:
            if found.kind == kind and stream in (0, found.stream):
                return found
        return None

    def fields(self, found: Frame) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._decoder.decode(found.payload)}

    def answer(self, stream: int) -> dict[str, str]:
        """The fields of all its header blocks, and how it ended: `code` of a reset or of the connection."""
        got: dict[str, str] = {}
        while (found := self.next()) is not None:
            if found.kind == GOAWAY:
                return got | {
                    "goaway": str(struct.unpack(">L", found.payload[4:8])[0]),
                    "why": found.payload[8:].decode(),
                }
            # Those of other streams also change the table.
            fields = self.fields(found) if found.kind == HEADERS else {}
            if found.stream != stream:
                continue
            if found.kind == RST_STREAM:
                return got | {"code": str(struct.unpack(">L", found.payload)[0])}
            got |= fields
            if found.flags & 1 and found.kind in (DATA, HEADERS):
                return got
        return got | {"closed": "yes"}
