"""Frames and hellos, of clients and members: length-prefixed msgpack arrays, of which the first identifies the
sender.

    length 4 (little endian, of what follows) | msgpack array

The hello is [magic, version, token, ...]; each protocol defines what follows the token."""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import msgpack

from minikube_py.errors import InvalidRequest, MinikubeError, shown
from minikube_py.mvcc.codec import from_plain, to_plain

LENGTH: Final = struct.Struct("<I")


class ProtocolError(Exception):
    """The other side does not speak this protocol; the connection ends."""


def frame(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return LENGTH.pack(len(body)) + body


def unpack_frame(body: bytes) -> tuple[Any, ...]:
    """A frame's array. Raises: ProtocolError."""
    try:
        value = msgpack.unpackb(body, use_list=False, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a frame cannot be decoded: {error}") from None
    if type(value) is not tuple or not value:
        raise ProtocolError("a frame is not an array")
    return value


def encode_error(error: MinikubeError) -> object:
    return to_plain(error)


def decode_error(plain: Any) -> MinikubeError:
    """Raises: ProtocolError if it is not an error."""
    try:
        error = from_plain(plain)
    except InvalidRequest as malformed:
        raise ProtocolError(f"an error cannot be decoded: {malformed}") from None
    if not isinstance(error, MinikubeError):
        raise ProtocolError("an error was announced, but something else was received")
    return error


class FrameReader:
    """Cuts a stream of bytes into frames. A fragmented frame is assembled once, when it is complete."""

    __slots__ = ("_have_bytes", "_need_bytes", "_pieces", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._have_bytes = 0
        self._need_bytes = LENGTH.size

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """The frames complete so far; each is unpacked lazily. Raises: ProtocolError."""
        if self._pieces:
            self._pieces.append(data)
            self._have_bytes += len(data)
            if self._have_bytes < self._need_bytes:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        offset, size = 0, len(data)
        while offset + 4 <= size:
            (length,) = LENGTH.unpack_from(data, offset)
            if length > self.limit_bytes:
                raise ProtocolError(f"a frame of {length} bytes is over the limit of {self.limit_bytes}")
            end = offset + 4 + length
            if end > size:
                break
            yield unpack_frame(data[offset + 4 : end])
            offset = end
        if offset < size:
            rest = data[offset:] if offset else data
            self._pieces.append(rest)
            self._have_bytes = len(rest)
            self._need_bytes = 4 if len(rest) < 4 else 4 + LENGTH.unpack_from(rest)[0]


class Greeting(NamedTuple):
    """How a protocol begins. `whose`: the port's purpose, reported to clients of another protocol."""

    magic: str
    version: int
    whose: str

    def hello(self, token: str, *arguments: object) -> bytes:
        return frame((self.magic, self.version, token, *arguments))

    def refuses(self, hello: tuple[Any, ...], token: str) -> tuple[Literal["hello", "version", "token"], str] | None:
        """Why it is refused, as code and text; None: the sender knows `token`."""
        if len(hello) < 4 or hello[0] != self.magic:
            return "hello", f"this port {self.whose}; this is not its handshake"
        _, version, given, *_ = hello
        if version != self.version:
            return "version", f"protocol version {shown(version)} is not supported, only {self.version}"
        if type(given) is not str or not hmac.compare_digest(given.encode(), token.encode()):
            return "token", "the token is wrong"
        return None
