"""The API server over HTTPS: aiohttp's parser and connections, with answers written straight to the transport.

What is small leaves as one write of headers and body. A watch is chunked: what waits for a connection leaves in one
write per turn of the loop, and connections with the same events share the bytes. A reader that is slow holds up itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler

from minikube_py.api.errors import StatusError, bad_request, internal, method_not_allowed, request_entity_too_large
from minikube_py.apiserver.core import ApiServer, error_response
from minikube_py.apiserver.messages import NO_HEADERS, NO_QUERY, Request, Response, parse_query
from minikube_py.apiserver.watch import Batch, Stream, error_event

log = logging.getLogger(__name__)
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_UNKNOWN_METHOD: Final = re.compile(r"b['\"][A-Z]{1,32} /")
"""How aiohttp shows a request line whose method it does not know, unlike bytes that are no request at all."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_NO_CACHE: Final = b"Cache-Control: no-cache, private\r\n"
KEEPALIVE_TIMEOUT_S: Final = 3630.0
SHUTDOWN_TIMEOUT_S: Final = 2.0
BACKLOG: Final = 1024


class HttpServer:
    """Serves `core` on `host:port` (0: any free one) with the given TLS context; without one in the clear.

    `await start()` returns the port. `await stop()` ends the connections; the core is stopped by its owner, before."""

    def __init__(
        self, core: ApiServer, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._core = core
        self._host = host
        self._port = port
        self._tls = tls
        self._server: asyncio.Server | None = None
        limits = core.limits
        self._web = _Server(
            _Connection(core).answer,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_TIMEOUT_S,
            max_line_size=limits.url_bytes_max,
            max_field_size=limits.header_bytes_max,
            max_headers=limits.headers_max,
        )

    async def start(self) -> int:
        """Raises: OSError where the address is taken."""
        loop = asyncio.get_running_loop()
        timeout_s = SHUTDOWN_TIMEOUT_S if self._tls is not None else None
        self._server = await loop.create_server(
            self._web, self._host, self._port, ssl=self._tls, backlog=BACKLOG, ssl_shutdown_timeout=timeout_s
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        transports = [each.transport for each in self._web.connections if each.transport is not None]
        await self._web.shutdown(SHUTDOWN_TIMEOUT_S)
        for transport in transports:
            # A TLS peer that does not answer the goodbye would hold the connection, and with it the process.
            transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)


class _Handler(RequestHandler):
    """A connection whose errors of parsing are answered as the API's own are."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> Any:
        self.log_debug("request refused: %s", message or exc)
        if isinstance(exc, http_exceptions.LineTooLong):
            text = f"Request Header Fields Too Large: limits are {self.max_line_size} bytes for the request line"
            error = StatusError(431, "RequestHeaderFieldsTooLarge", f"{text} and for a header")
        elif isinstance(exc, http_exceptions.BadHttpMethod) and _UNKNOWN_METHOD.search(message or ""):
            error = method_not_allowed()
        elif status < 500:
            text = (message or "the request could not be read").strip().splitlines()[0]
            error = StatusError(status, "BadRequest", f"400 Bad Request: {text}")
        else:
            error = StatusError(status, "InternalError", "the connection's request could not be answered")
        return _Reply(_encode(error_response(error), False), False)


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)


class _Reply:
    """What aiohttp's connection loop needs of a response: it writes itself, whole, in one go."""

    __slots__ = ("_data", "keep_alive")

    def __init__(self, data: bytes, keep_alive: bool) -> None:
        self._data = data
        self.keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        transport = request.transport
        if self._data and transport is not None and not transport.is_closing():
            transport.write(self._data)

    async def write_eof(self) -> None:
        pass


class _Connection:
    """Requests of all connections; holds no state of any of them."""

    def __init__(self, core: ApiServer) -> None:
        self._core = core
        self._body_max = core.limits.body_bytes_max

    async def answer(self, request: web.BaseRequest) -> Any:
        headers = request.headers
        keep_alive = request.keep_alive
        try:
            user = self._core.auth.authenticate(headers.get("Authorization"))
            body = await self._body(request) if request.body_exists else b""
            url = request.rel_url
            text = url.raw_query_string
            query: Mapping[str, str] = parse_query(text) if text else NO_QUERY
        except StatusError as error:
            if error.code == 413:
                keep_alive = False
            return _Reply(_encode(error_response(error), keep_alive), keep_alive)
        asked = Request(
            request.method,
            url.raw_path,
            query,
            body,
            user,
            headers.get("Accept", "application/json"),
            headers.get("Content-Type", "application/json"),
            headers.get("If-None-Match"),
        )
        response = await self._core.handle(asked)
        if response.stream is not None:
            return await self._stream(request, response.stream)
        if response.pieces is not None:
            return await self._pieces(request, response, keep_alive)
        if request.method == "HEAD":
            return _Reply(_head(response, keep_alive, len(response.body)), keep_alive)
        return _Reply(_encode(response, keep_alive), keep_alive)

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Raises: StatusError 413 once it is known to be too long, 400 where it breaks off."""
        limit = self._body_max
        length = request.content_length
        if length is not None and length > limit:
            raise request_entity_too_large(f"limit is {limit}")
        expect = request.headers.get("Expect")
        if expect is not None and expect.lower() == "100-continue" and request.transport is not None:
            request.transport.write(_CONTINUE)
        content = request.content
        parts: list[bytes] = []
        size = 0
        try:
            while not content.at_eof():
                part = content.read_nowait(-1) if content.is_eof() else await content.readany()
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise request_entity_too_large(f"limit is {limit}")
        except web.RequestPayloadError as error:
            raise bad_request(f"the request's body could not be read: {error}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _pieces(self, request: web.BaseRequest, response: Response, keep_alive: bool) -> _Reply:
        """A large list, a part at a time, no faster than it is read."""
        transport = request.transport
        assert response.pieces is not None
        if transport is None:
            return _Reply(b"", False)
        chunked = request.version >= (1, 1)
        transport.write(_head(response, keep_alive and chunked, -1 if chunked else None))
        try:
            for piece in response.pieces:
                if transport.is_closing():
                    return _Reply(b"", False)
                transport.write(_chunk(piece) if chunked else piece)
                await request.writer.drain()
        except Exception as error:
            if not isinstance(error, ConnectionError):
                log.exception("a list broke off: %s", request.path)
            # Its head has said that all is well. Without a last chunk, it is seen not to be whole.
            transport.abort()
            return _Reply(b"", False)
        return _Reply(_LAST_CHUNK if chunked else b"", keep_alive and chunked)

    async def _stream(self, request: web.BaseRequest, stream: Stream) -> _Reply:
        transport = request.transport
        if transport is None:
            stream.close()
            return _Reply(b"", False)
        stream.on_cut = transport.abort
        chunked = request.version >= (1, 1)
        transport.write(_head(Response(200), chunked and request.keep_alive, -1 if chunked else None))
        drain = request.writer.drain
        try:
            while batches := await stream.next():
                if transport.is_closing():
                    return _Reply(b"", False)
                if len(batches) == 1:
                    transport.write(_wire(batches[0]) if chunked else batches[0].lines())
                else:
                    transport.write(b"".join([_wire(batch) if chunked else batch.lines() for batch in batches]))
                await drain()
        except ConnectionError:
            return _Reply(b"", False)
        except Exception:
            # The head was sent: what goes wrong now is told as the last event.
            log.exception("a watch broke off: %s", request.path)
            last = Batch([error_event(internal("the server met a condition that it does not know"))])
            if not transport.is_closing():
                transport.write(_wire(last) if chunked else last.lines())
        finally:
            stream.on_cut = None
            stream.close()
        return _Reply(_LAST_CHUNK if chunked else b"", chunked and request.keep_alive)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _wire(batch: Batch) -> bytes:
    wire = batch.wire
    if wire is None:
        wire = batch.wire = _chunk(batch.lines())
    return wire


# --- bytes of an answer ---------------------------------------------------------------------------------------------

_starts: dict[tuple[int, str], bytes] = {}


class _Date:
    """The Date header, made once a second."""

    second = 0
    line = b""


def _date() -> bytes:
    now = int(time.time())
    if now != _Date.second:
        _Date.second = now
        _Date.line = f"Date: {formatdate(now, usegmt=True)}\r\n".encode()
    return _Date.line


def _start(status: int, content_type: str) -> bytes:
    key = (status, content_type)
    found = _starts.get(key)
    if found is None:
        line = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n".encode()
        found = line + _NO_CACHE + f"Content-Type: {content_type}\r\n".encode()
        if len(_starts) < 1024:
            _starts[key] = found
    return found


def _head(response: Response, keep_alive: bool, length: int | None) -> bytes:
    """Everything before the body. `length` -1: chunked; None: until the connection closes."""
    start = _start(response.status, response.content_type)
    if "Cache-Control" in response.headers:
        start = start.replace(_NO_CACHE, b"")
    parts = [start, _date()]
    if response.headers is not NO_HEADERS:
        for name, value in response.headers.items():
            parts += [f"{name}: {line}\r\n".encode() for line in value.split("\n")]
    if length == -1:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif length is not None:
        parts.append(b"Content-Length: %d\r\n" % length)
    if not keep_alive:
        parts.append(b"Connection: close\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def _encode(response: Response, keep_alive: bool) -> bytes:
    body = response.body
    if keep_alive and response.headers is NO_HEADERS:
        start = _start(response.status, response.content_type)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (start, _date(), len(body), body)
    return _head(response, keep_alive, len(body)) + body
