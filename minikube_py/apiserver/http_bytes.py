"""The bytes of an HTTP/1.1 response: head, chunks, date (updated each second) and gzip."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from minikube_py.apiserver.messages import NO_HEADERS, Response
from minikube_py.apiserver.watch_stream import Batch

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_OBJECTS: Final = ("application/json", "application/yaml")
_NO_CACHE: Final = b"Cache-Control: no-cache, private\r\n"
_starts: dict[tuple[int, str], bytes] = {}


def chunk(*parts: bytes) -> bytes:
    """One copy of the parts: those of a list are large."""
    size = sum(map(len, parts))
    return b"".join((b"%x\r\n" % size, *parts, b"\r\n")) if size else b""


def wire(batch: Batch) -> bytes:
    """The chunk of an event batch, shared by all connections."""
    found = batch.wire
    if found is None:
        found = batch.wire = chunk(batch.lines())
    return found


class _Date:
    second = 0
    line = b""


def _date() -> bytes:
    now = int(time.time())
    if now != _Date.second:
        _Date.second = now
        _Date.line = f"Date: {formatdate(now, usegmt=True)}\r\n".encode()
    return _Date.line


def _start(response: Response) -> bytes:
    key = (response.status, response.content_type)
    found = _starts.get(key)
    if found is None:
        line = f"HTTP/1.1 {response.status} {_REASONS.get(response.status, '')}\r\n".encode()
        found = line + _NO_CACHE + (_line("Content-Type", response.content_type) if response.content_type else b"")
        # What other servers call the content of their answers is without end.
        if len(_starts) < 1024 and not response.exact:
            _starts[key] = found
    return found


def _line(name: str, value: str) -> bytes:
    """Bytes of another server's header that are no UTF-8 are passed on as they came."""
    return f"{name}: {value}\r\n".encode("utf-8", "surrogateescape")


def switching(headers: Mapping[str, str], audit_id: str) -> bytes:
    """The response that upgrades a connection."""
    told = f"Audit-Id: {audit_id}\r\n".encode("latin-1")
    lines = [_line(*each) for each in headers.items() if each[0] != "Audit-Id"]
    return b"".join((b"HTTP/1.1 101 Switching Protocols\r\n", told, *lines, b"\r\n"))


def head(response: Response, keep_alive: bool, length: int | None, audit_id: str) -> bytes:
    """Everything before the body. `length` -1: chunked; None: until the connection closes."""
    start = _start(response)
    if "Cache-Control" in response.headers:
        start = start.replace(_NO_CACHE, b"")
    parts = [start, _date(), f"Audit-Id: {audit_id}\r\n".encode("latin-1")]
    if response.headers is not NO_HEADERS:
        for name, value in response.headers.items():
            parts += [_line(name, line) for line in value.split("\n")]
    if length == -1:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif length is not None and "Content-Length" not in response.headers:
        parts.append(b"Content-Length: %d\r\n" % length)
    if not keep_alive:
        parts.append(b"Connection: close\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def encode(response: Response, keep_alive: bool, audit_id: str) -> bytes:
    """A whole answer."""
    body = response.body
    if keep_alive and response.headers is NO_HEADERS:
        start, told = _start(response), audit_id.encode("latin-1")
        return b"%b%bAudit-Id: %b\r\nContent-Length: %d\r\n\r\n%b" % (start, _date(), told, len(body), body)
    return head(response, keep_alive, len(body), audit_id) + body


# --- compression ----------------------------------------------------------------------------------------------------

PACKED_ABOVE_BYTES: Final = 128 << 10
_PACKED: Final = {"Content-Encoding": "gzip"}
_GZIP: Final = zlib.MAX_WBITS | 16


def packs(response: Response, accepted: str) -> int | None:
    """The length above which to compress for this Accept-Encoding; None: never.

    Source: apiserver `pkg/endpoints/handlers/responsewriters/writers.go`: weights are not read."""
    if "gzip" not in map(str.strip, accepted.split(",")):
        return None
    if response.packed_above_bytes is None and not response.exact:
        return PACKED_ABOVE_BYTES if response.content_type.startswith(_OBJECTS) else None
    return response.packed_above_bytes


class Packer:
    """Gzips a response part by part, at upstream's level."""

    def __init__(self, response: Response) -> None:
        varies = {} if response.packed_above_bytes is not None else {"Vary": "Accept-Encoding"}
        response.headers = {**response.headers, **_PACKED, **varies}
        self._stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP)

    def pack(self, data: bytes, last: bool) -> bytes:
        packed = self._stream.compress(data)
        return packed + self._stream.flush() if last else packed
