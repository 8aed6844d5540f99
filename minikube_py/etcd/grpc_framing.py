"""gRPC over HTTP/2, without IO: parsing of a request's fields, messages from data, and statuses as trailers.

Texts and order of refusals are those of Go's gRPC, which etcd uses. Source: its internal/transport/http2_server.go and
rpc_util.go.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from minikube_py.api.errors import go_quote
from minikube_py.api.go_format import go_text
from minikube_py.etcd.codes import StatusCode
from minikube_py.http2.hpack import Block, Field, encode

CONTENT_TYPE: Final = b"application/grpc"
ENCODINGS: Final = ("", "identity", "gzip")
"""Compression is supported for received messages; sent ones are uncompressed."""
PREFIX_BYTES: Final = 5
"""Prefix of a message: whether it is compressed, and its size."""
OK_TRAILERS: Final = encode((b"grpc-status", b"0"))
_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT_LENGTHS: Final = (2, 9)
_DIGITS: Final = re.compile(rb"[0-9]{1,8}")
_UNSAFE: Final = re.compile(rb"[^ -$&-~]")
_RESERVED: Final = frozenset(
    [b"content-type", b"grpc-message-type", b"grpc-encoding", b"grpc-message", b"grpc-status", b"grpc-timeout", b"te"]
)
Metadata = Sequence[tuple[str, str]]


class Refusal(NamedTuple):
    """Before a method is looked up: an HTTP status, and gRPC's."""

    http_status: int
    code: StatusCode
    text: str


class Head(NamedTuple):
    """`answer`: the header block with which each answer begins. `timeout_s` None: unlimited. `encoding`: of compressed
    messages."""

    path: str
    answer: bytes
    timeout_s: float | None
    encoding: str
    metadata: Metadata
    refusal: Refusal | None


HEADS_MAX: Final = 16
HEAD_BYTES_MAX: Final = 6144
_FIELD_COST_BYTES: Final = 256


class Heads:
    """The heads of a connection: most requests differ from earlier ones only by timeout. Long ones are not kept."""

    def __init__(self) -> None:
        self._by_rest: dict[tuple[Field, ...], Head] = {}

    def of(self, block: Block) -> Head:
        """Of a request's block, which keeps it."""
        fields = block.fields or ()
        if sum([_FIELD_COST_BYTES + len(name) + len(value) for name, value in fields]) > HEAD_BYTES_MAX:
            return head_of(fields)
        head = block.meaning = self._of(fields)
        return head

    def _of(self, fields: Sequence[Field]) -> Head:
        rest = tuple([field for field in fields if field[0] != b"grpc-timeout"])
        head = self._by_rest.get(rest)
        if head is None:
            if len(self._by_rest) >= HEADS_MAX:
                self._by_rest.clear()
            head = self._by_rest[rest] = head_of(rest)
        if len(rest) == len(fields):
            return head
        try:
            timeouts = [timeout_of(value) for name, value in fields if name == b"grpc-timeout"]
        except ValueError:
            return head_of(fields)
        return head._replace(timeout_s=timeouts[-1])


def head_of(fields: Sequence[Field]) -> Head:
    """From the fields of a well-formed request."""
    method = path = encoding = b""
    content_type: bytes | None = None
    subtype: bytes | None = None
    timeout_s: float | None = None
    authorities, hosts = 0, 0
    metadata: list[tuple[str, str]] = []
    wrong = ""
    for name, value in fields:
        if name == b":path":
            path = value
        elif name == b":method":
            method = value
        elif name == b"content-type":
            found = _subtype(value)
            content_type, subtype = (content_type, found) if found is not None else (value, subtype)
        elif name == b"grpc-encoding":
            encoding = value
        elif name == b"grpc-timeout":
            try:
                timeout_s = timeout_of(value)
            except ValueError as error:
                wrong = f"malformed grpc-timeout: {error}"
        elif name[:1] == b":":
            authorities += name == b":authority"
        elif name not in _RESERVED:
            hosts += name == b"host"
            text = go_text(value)
            if name.endswith(b"-bin") and (flaw := _not_binary(value)):
                wrong = f"malformed binary metadata {go_quote(text)} in header {go_quote(go_text(name))}: {flaw}"
            metadata.append((go_text(name), text))
    refusal: Refusal | None = None
    if authorities > 1 or hosts > 1:
        text = f"num values of :authority: {authorities}, num values of host: {hosts}"
        refusal = Refusal(400, StatusCode.INTERNAL, f"{text}, both must only have 1 value as per HTTP/2 spec")
    elif subtype is None:
        text = f"invalid gRPC request content-type {go_quote(go_text(content_type or b''))}"
        refusal = Refusal(415, StatusCode.INVALID_ARGUMENT, text)
    elif wrong:
        refusal = Refusal(400, StatusCode.INTERNAL, wrong)
    elif not authorities and not hosts:
        refusal = Refusal(400, StatusCode.INTERNAL, "no host or :authority header present")
    elif method != b"POST":
        text = f"Received a HEADERS frame with :method {go_quote(go_text(method))} which should be POST"
        refusal = Refusal(405, StatusCode.INTERNAL, text)
    answer = _answer(subtype or b"", 200 if refusal is None else refusal.http_status)
    return Head(go_text(path), answer, timeout_s, go_text(encoding), metadata, refusal)


@lru_cache(8)
def _answer(subtype: bytes, http_status: int) -> bytes:
    full_type = CONTENT_TYPE + b"+" + subtype if subtype else CONTENT_TYPE
    return encode((b":status", b"%d" % http_status), (b"content-type", full_type))


def _subtype(content_type: bytes) -> bytes | None:
    """The suffix in `application/grpc+proto`; None for another type."""
    lower = content_type.lower()
    if lower == CONTENT_TYPE:
        return b""
    if lower.startswith(CONTENT_TYPE) and lower[len(CONTENT_TYPE)] in b"+;":
        return lower[len(CONTENT_TYPE) + 1 :]
    return None


def timeout_of(value: bytes) -> float:
    """Seconds. Raises: ValueError with Go's message."""
    unit_s = _UNITS_S.get(value[-1:])
    if unit_s is not None and _DIGITS.fullmatch(value, 0, len(value) - 1) is not None:
        return int(value[:-1]) * unit_s
    shown = go_quote(go_text(value))
    least, most = _TIMEOUT_LENGTHS
    if len(value) < least:
        raise ValueError(f"transport: timeout string is too short: {shown}")
    if len(value) > most:
        raise ValueError(f"transport: timeout string is too long: {shown}")
    if unit_s is None:
        raise ValueError(f"transport: timeout unit is not recognized: {shown}")
    raise ValueError(f"strconv.ParseUint: parsing {go_quote(go_text(value[:-1]))}: invalid syntax")


def _not_binary(value: bytes) -> str:
    """Why it is not base64, padded or not; "" if it is."""
    try:
        base64.b64decode(value if len(value) % 4 == 0 else value.rstrip(b"=") + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return "illegal base64 data"
    return ""


# -- messages ----------------------------------------------------------------------------------------------------------


class Unreadable(Exception):
    """Ends the call with this status."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Messages:
    """Messages from the data of one stream."""

    __slots__ = ("_encoding", "_held", "_size_max", "_wanted_bytes")

    def __init__(self, size_max: int, encoding: str) -> None:
        self._size_max = size_max
        self._encoding = encoding
        self._held = bytearray()
        """One object, however small the pieces are that a client sends."""
        self._wanted_bytes = PREFIX_BYTES

    @property
    def held_bytes(self) -> int:
        """Of an incomplete message."""
        return len(self._held)

    def receive(self, data: bytes) -> list[bytes]:
        """The messages complete so far. Raises: Unreadable."""
        held = self._held
        if len(held) + len(data) < self._wanted_bytes:
            held += data
            return []
        joined = data
        if held:
            held += data
            joined, self._held = bytes(held), bytearray()
        found, at = [], 0
        while len(joined) - at >= PREFIX_BYTES:
            size = self._size(joined, at)
            stop = at + PREFIX_BYTES + size
            if stop > len(joined):
                break
            data = joined[at + PREFIX_BYTES : stop]
            found.append(self._inflated(data) if joined[at] else data)
            at = stop
        rest = joined[at:]
        self._held += rest
        self._wanted_bytes = PREFIX_BYTES + (self._size(rest, 0) if len(rest) >= PREFIX_BYTES else 0)
        return found

    def _size(self, data: bytes, at: int) -> int:
        """Raises: Unreadable."""
        size = int.from_bytes(data[at + 1 : at + PREFIX_BYTES], "big")
        if size > self._size_max:
            text = f"grpc: received message larger than max ({size} vs. {self._size_max})"
            raise Unreadable(StatusCode.RESOURCE_EXHAUSTED, text)
        if data[at] == 1:
            if self._encoding in ("", "identity"):
                text = "grpc: compressed flag set with identity or empty encoding"
                raise Unreadable(StatusCode.INTERNAL, text)
        elif data[at]:
            raise Unreadable(StatusCode.INTERNAL, f"grpc: received unexpected payload format {data[at]}")
        return size

    def _inflated(self, data: bytes) -> bytes:
        """Raises: Unreadable before it exceeds the size limit."""
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            found = inflater.decompress(data, self._size_max + 1)
        except zlib.error as error:
            raise Unreadable(StatusCode.INTERNAL, f"grpc: failed to decompress the received message: {error}") from None
        if len(found) > self._size_max:
            text = f"grpc: received message after decompression larger than max {self._size_max}"
            raise Unreadable(StatusCode.RESOURCE_EXHAUSTED, text)
        if not inflater.eof:
            text = "grpc: failed to decompress the received message: unexpected EOF"
            raise Unreadable(StatusCode.INTERNAL, text)
        return found


def not_installed(encoding: str) -> str:
    return f"grpc: Decompressor is not installed for grpc-encoding {go_quote(encoding)}"


def prefix(size: int) -> bytes:
    return size.to_bytes(PREFIX_BYTES, "big")


def framed(message: bytes) -> bytes:
    return prefix(len(message)) + message


# -- statuses ----------------------------------------------------------------------------------------------------------


def trailers(code: StatusCode, text: str) -> bytes:
    """The header block that ends an answer; after `Head.answer` in one block it is a complete one."""
    return OK_TRAILERS if not code else encode(*_status(code, text))


def _status(code: StatusCode, text: str) -> list[Field]:
    fields = [(b"grpc-status", b"%d" % code)]
    if text:
        fields.append((b"grpc-message", percent_encoded(text)))
    return fields


def percent_encoded(text: str) -> bytes:
    """Escapes % and everything but printable ASCII, byte by byte."""
    return _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], text.encode("utf-8", "replace"))
