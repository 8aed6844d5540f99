"""One connection over HTTP/1.1: an `asyncio.Protocol` around `http1.RequestReader`, and the core behind it.

The head alone decides authentication and authorization; only then is a body read (`Request.receive`). Small responses
are one write. A watch is chunked: connections with the same events share the bytes. A slow reader delays only itself;
one that reads nothing is disconnected. Connections come from `http_server`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from minikube_py.api.errors import StatusError, bad_request, internal, request_entity_too_large, too_many_requests
from minikube_py.api.meta import new_uid
from minikube_py.apiserver.asking import audit_refusal, refusal_of, request_of
from minikube_py.apiserver.auth import Shown, shown_by
from minikube_py.apiserver.http1 import CHUNKED, Head, Malformed, Refused, RequestReader
from minikube_py.apiserver.http_bytes import CONTINUE, LAST_CHUNK, Packer, chunk, encode, head, packs, switching, wire
from minikube_py.apiserver.messages import Response
from minikube_py.apiserver.rules import MASTERS, User
from minikube_py.apiserver.watch_stream import Batch, Stream, error_event
from minikube_py.ports.port import Incoming

if TYPE_CHECKING:
    from minikube_py.apiserver.http_server import HttpServer
    from minikube_py.containers.remote import Upgrade

log = logging.getLogger(__name__)
READ_AHEAD_BYTES: Final = 64 << 10
"""Read-ahead of a connection."""
WRITE_BUFFER_BYTES: Final = 64 << 10
GATHERED_BYTES: Final = 256 << 10
"""Parts of a large list are made across event loop turns and written in batches of this size: each write costs a system
call and wakes the reader."""
DISCARDED_BYTES_MAX: Final = 256 << 10
"""Of an unread body, this much is drained to keep the connection (as Go's net/http)."""

# What a connection waits for; see HttpServer.deadlines_s.
IDLE: Final = 0
HEADS: Final = 1
BODY: Final = 2
ANSWER: Final = 3
LINGER: Final = 4
UPGRADED: Final = 5


def sliced(body: bytes) -> Iterator[bytes]:
    return (body[at : at + GATHERED_BYTES] for at in range(0, len(body), GATHERED_BYTES))


class Connection(asyncio.Protocol):
    """`incoming`: authenticated once a request on it has named a user. While its client reads too slowly, since
    `stalled_since_s`: `stalled_bytes` are written and `body_bytes` are of the body being sent. `answers`: what is sent
    ends, and may wait for its client only so long; `waited_s` of that have passed."""

    __slots__ = ("_audit_id", "_body_error", "_data_waiter", "_drained", "_reading_paused", "answers", "body_bytes",
                 "head_bytes", "incoming", "phase", "reader", "server", "shown", "stalled_bytes", "stalled_since_s",
                 "task", "transport", "user", "waited_s")  # fmt: skip

    def __init__(self, server: HttpServer, incoming: Incoming) -> None:
        self.server = server
        self.incoming = incoming
        self.phase = HEADS
        self.reader = RequestReader(server.limits.header_bytes_max, server.limits.headers_max)
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport
        self.shown: Shown | None = None
        self._audit_id = ""
        self.head_bytes = 0
        self.user = ""
        self.answers = False
        self.stalled_bytes = self.body_bytes = 0
        self.stalled_since_s = self.waited_s = 0.0
        self._reading_paused = False
        self._data_waiter: asyncio.Future[None] | None = None
        self._body_error: StatusError | None = None
        self._drained: asyncio.Future[None] | None = None

    # --- from the transport -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's TLS transports are not subclasses.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if certificate := transport.get_extra_info("peercert"):
            self.shown = shown_by(certificate, transport.get_extra_info("ssl_object").getpeercert(True))
        self.server.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.lost(self)
        # Avoid reference cycles: the cyclic collector runs rarely (store.collector).
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
        self._wake_reader()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.phase == LINGER:
            return
        self.reader.receive(data)
        if self.task is None:
            self._next_request()
        elif self._data_waiter is not None:
            self._wake_reader()
        elif self.reader.buffered_bytes > READ_AHEAD_BYTES:
            self._pause_reading()

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        self.server.moving(self)

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self.transport.is_closing():
            self._reading_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and not self.transport.is_closing():
            self._reading_paused = False
            self.transport.resume_reading()

    def _wake_reader(self) -> None:
        waiter = self._data_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _drain(self) -> None:
        """Waits until the peer has read enough. Raises: ConnectionResetError."""
        if self._drained is not None:
            self.stalled_bytes = self.transport.get_write_buffer_size()
            self.server.stalled(self)
            await self._drained
        if self.transport.is_closing():
            raise ConnectionResetError("the connection is closed")

    def _send(self, data: bytes) -> None:
        """Writes in slices: the transport below TLS takes a whole write once, and does not say that it holds it."""
        if len(data) <= WRITE_BUFFER_BYTES:
            self.transport.write(data)
            return
        view = memoryview(data)
        for at in range(0, len(data), WRITE_BUFFER_BYTES):
            if self.transport.is_closing():
                return
            self.transport.write(view[at : at + WRITE_BUFFER_BYTES])

    # --- requests ---------------------------------------------------------------------------------------------------

    def _next_request(self) -> None:
        """Starts the request if its head is complete."""
        try:
            head = self.reader.head()
        except Refused as refused:
            self.server.head_read(self)
            self.transport.write(refused.answer())
            self.server.enter(self, LINGER)
            return
        if head is None:
            self.server.head_grows(self)
            return
        self.server.head_read(self)
        self.server.enter(self, ANSWER)
        self.task = asyncio.get_running_loop().create_task(self._serve(head))

    async def _serve(self, head: Head) -> None:
        try:
            keep = await self._answer(head)
            if keep and not self.reader.body_ended:
                keep = await self._discard()
            if self._drained is not None:
                await self._drain()
        except ConnectionError:
            self.transport.abort()
            return
        except asyncio.CancelledError:
            if not self.transport.is_closing():
                self.transport.abort()
            raise
        except Exception:
            log.exception("%s %s", head.method, head.path)
            self.transport.abort()
            return
        self.task = None
        if not keep:
            self._linger()
            return
        if self.server.stopping:
            self.transport.close()
            return
        self.server.enter(self, IDLE)
        self._resume_reading()
        if self.reader.buffered_bytes:
            self._next_request()

    def _linger(self) -> None:
        """Closes, with a delay while the client still sends: a reset could overtake the response."""
        if self.transport.is_closing():
            return
        if self.reader.body_ended:
            self.transport.close()
        else:
            self.server.enter(self, LINGER)
            self._resume_reading()

    async def _answer(self, asked: Head) -> bool:
        """Whether the connection can be used again."""
        headers = asked.headers
        keep_alive = asked.keep_alive
        core = self.server.core
        self._audit_id = headers.get("audit-id") or new_uid(core.rng)
        try:
            authenticator = core.access.authenticator
            request, warning = await request_of(asked, authenticator, core.clock, self.shown, self._identified)
        except StatusError as error:
            keep_alive = keep_alive and error.code != 429
            response = refusal_of(error, asked)
            if core.auditor is not None:
                audited = core.auditor.seen(asked, self._audit_id, self._peer())
                await audit_refusal(core, audited, asked, error, self.shown)
        else:
            if core.auditor is not None:
                request.audit = core.auditor.seen(asked, self._audit_id, self._peer())
            request.receive = Body(self, asked)
            self.user = request.user.name if request.user is not None else ""
            response = await core.handle(request)
            if warning:
                response = response.warning(warning)
            lasting = self._lasting(asked, response)
            self.answers, self.waited_s = lasting is None, 0.0
            if lasting is not None:
                try:
                    return await lasting
                finally:
                    response.sent()
            packed_above = packs(response, headers.get("accept-encoding") or "")
            if packed_above is not None and len(response.body) > packed_above:
                response.pieces = sliced(response.body)
            if response.pieces is not None:
                try:
                    return await self._pieces(asked, response, packed_above)
                finally:
                    response.sent()
        if not self.reader.body_ended:
            small = self.reader.body_left_bytes() <= DISCARDED_BYTES_MAX
            keep_alive = keep_alive and small and not asked.expects_continue and self._body_error is None
        if asked.method == "HEAD":
            self.transport.write(head(response, keep_alive, len(response.body), self._audit_id))
        elif len(response.body) > GATHERED_BYTES:
            await self._large(response, keep_alive)
        else:
            self._send(encode(response, keep_alive, self._audit_id))
        return keep_alive

    def _peer(self) -> str:
        named = self.transport.get_extra_info("peername")
        return str(named[0]) if isinstance(named, tuple) else ""

    def _identified(self, user: User) -> None:
        """Raises: StatusError 429."""
        incoming = self.incoming
        if not incoming.is_authenticated and not incoming.authenticated(user.name, preferred=MASTERS in user.groups):
            limit = self.server.port.limits.connections_max
            raise too_many_requests(f"too many connections: {limit} is the limit; please try again later", 1)

    # --- bodies -----------------------------------------------------------------------------------------------------

    async def more(self) -> bytes:
        """The next bytes of the body; empty at its end. Raises: StatusError 400, 408."""
        reader = self.reader
        while True:
            if self._body_error is not None:
                raise self._body_error
            try:
                data = reader.data()
            except Malformed as error:
                self._body_error = bad_request(f"the request's body could not be read: {error}")
                continue
            if data or reader.body_ended:
                return data
            if reader.has_more:
                # Many small chunks are read a few at a time.
                await asyncio.sleep(0)
                continue
            await self._arrival()

    async def _arrival(self) -> None:
        """Waits until more was received. Raises: ConnectionResetError if the peer is gone."""
        if self.transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._data_waiter = asyncio.get_running_loop().create_future()
        self._resume_reading()
        try:
            await self._data_waiter
        finally:
            self._data_waiter = None

    async def read(self) -> bytes:
        """Reads from an upgraded connection, at least one byte. Raises: ConnectionResetError."""
        while not self.reader.buffered_bytes:
            await self._arrival()
        self.server.enter(self, UPGRADED)
        return self.reader.rest()

    async def write(self, data: bytes) -> None:
        """Writes to an upgraded connection, or a part of a text. Raises: ConnectionResetError."""
        if self.transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        if self.phase == UPGRADED:
            self.server.enter(self, UPGRADED)
        self._send(data)
        await self._drain()

    def body_is_late(self, timeout_s: float) -> None:
        """Called by the server when the body has taken too long."""
        message = f"the body of the request did not arrive within {timeout_s:g} s, which is the limit"
        self.refuse_body(StatusError(408, "Timeout", message, {}))

    def refuse_body(self, error: StatusError) -> None:
        """Called by the server. A body that was received, and is being passed on, ends with its connection."""
        self._body_error = error
        if self.phase == BODY:
            self._wake_reader()
        else:
            self.transport.abort()

    async def _discard(self) -> bool:
        """Drains the rest of an unread body, unless it is too long."""
        self.server.enter(self, BODY)
        left = DISCARDED_BYTES_MAX
        try:
            while part := await self.more():
                left -= len(part)
                if left < 0:
                    return False
        except StatusError:
            return False
        return True

    # --- long answers -----------------------------------------------------------------------------------------------

    def _lasting(self, asked: Head, response: Response) -> Awaitable[bool] | None:
        """Sends a streaming response, if it is one; returns whether the connection is reusable."""
        if response.stream is not None:
            return self._stream(asked, response.stream)
        if response.upgrade is not None:
            return self._upgrade(response.upgrade)
        if response.text is not None:
            return self._text(asked, response, response.text)
        return None

    async def _large(self, response: Response, keep_alive: bool) -> None:
        """Sends a large body without a copy of all of it. Raises: ConnectionResetError."""
        start = head(response, keep_alive, len(response.body), self._audit_id)
        self.body_bytes = len(response.body)
        try:
            for piece in sliced(response.body):
                self._send(start + piece)
                start = b""
                await self._drain()
        finally:
            self.body_bytes = 0

    async def _pieces(self, asked: Head, response: Response, packed_above: int | None) -> bool:
        """Sends a large response in parts, with backpressure."""
        transport = self.transport
        assert response.pieces is not None
        chunked = asked.minor > 0
        keep_alive = asked.keep_alive and chunked and self.reader.body_ended
        length = CHUNKED if chunked else None
        if asked.method == "HEAD":
            transport.write(head(response, keep_alive, length, self._audit_id))
            return keep_alive
        parts: list[bytes] = []
        size_bytes = 0
        begun, packer = False, None

        async def send(last: bool) -> None:
            nonlocal begun, packer, parts
            made, parts, start = parts, [], b""
            if not begun:
                begun = True
                if packed_above is not None and sum(map(len, made)) > packed_above:
                    packer = Packer(response)
                start = head(response, keep_alive, length, self._audit_id)
            if packer is not None:
                made = [await self.server.pack(packer, b"".join(made), last)]
            end = LAST_CHUNK if chunked and last else b""
            self._send(start + (chunk(*made) if chunked else b"".join(made)) + end)

        try:
            for piece in response.pieces:
                parts.append(piece)
                size_bytes += len(piece)
                if size_bytes >= GATHERED_BYTES:
                    await send(False)
                    size_bytes = 0
                    await self._drain()
                await asyncio.sleep(0)
            await send(True)
        except Exception as error:
            if not isinstance(error, ConnectionError):
                log.exception("a list broke off: %s", asked.path)
                with suppress(Exception):
                    await send(False)
            # The head said 200; without a last chunk, the client sees that the body is incomplete.
            transport.abort()
            return False
        return keep_alive

    async def _upgrade(self, upgrade: Upgrade) -> bool:
        self.server.enter(self, UPGRADED)
        self.transport.write(switching(upgrade.headers, self._audit_id))
        await upgrade.serve(self)
        return False

    async def _text(self, asked: Head, response: Response, parts: AsyncGenerator[bytes, None]) -> bool:
        """Sends parts of a text as they arrive, with backpressure."""
        chunked = asked.minor > 0
        keep_alive = chunked and asked.keep_alive and self.reader.body_ended
        self.transport.write(head(response, keep_alive, CHUNKED if chunked else None, self._audit_id))
        async with aclosing(parts):
            async for part in parts:
                await self.write(chunk(part) if chunked else part)
        if chunked:
            self.transport.write(LAST_CHUNK)
        return keep_alive

    async def _stream(self, asked: Head, stream: Stream) -> bool:
        transport = self.transport
        stream.on_cut = transport.abort
        chunked = asked.minor > 0
        keep_alive = chunked and asked.keep_alive and self.reader.body_ended
        encoding: Any = wire if chunked else Batch.lines
        transport.write(head(Response(200), keep_alive, CHUNKED if chunked else None, self._audit_id))
        try:
            while batches := await stream.next(WRITE_BUFFER_BYTES):
                if transport.is_closing():
                    return False
                self._send(encoding(batches[0]) if len(batches) == 1 else b"".join(map(encoding, batches)))
                batches = []
                if self._drained is not None:
                    await self._drain()
                if stream.starting:
                    await asyncio.sleep(0)
        except ConnectionError:
            return False
        except Exception:
            # The response head was sent, so the error can only be the last event of the stream.
            log.exception("a watch broke off: %s", asked.path)
            last = Batch([error_event(internal("the server met a condition that it does not know"))])
            if not transport.is_closing():
                transport.write(encoding(last))
        finally:
            stream.on_cut = None
            stream.close()
        if chunked and not transport.is_closing():
            transport.write(LAST_CHUNK)
        return keep_alive


class Body:
    """Reads a request's body, once its sender is authorized."""

    __slots__ = ("_asked", "_connection")

    def __init__(self, connection: Connection, asked: Head) -> None:
        self._connection = connection
        self._asked = asked

    async def __call__(self) -> bytes:
        """Raises: StatusError 400 if it is cut off, 408, 413 if it is too long, and 429 if all bodies together are."""
        asked, connection = self._asked, self._connection
        if not asked.length:
            return b""
        server = connection.server
        limits = server.limits
        if asked.length > limits.body_bytes_max:
            raise request_entity_too_large(f"limit is {limits.body_bytes_max}")
        if asked.expects_continue:
            connection.transport.write(CONTINUE)
        if 0 < asked.length <= connection.reader.buffered_bytes:
            return connection.reader.data()
        body = bytearray()
        held = 0
        server.enter(connection, BODY)
        try:
            while part := await connection.more():
                held += len(part)
                server.receives(connection, held)
                if held == asked.length == len(part):
                    return part
                body += part
                if held > limits.body_bytes_max:
                    raise request_entity_too_large(f"limit is {limits.body_bytes_max}")
            return bytes(body)
        finally:
            server.bodies.let_go(connection)
            server.enter(connection, ANSWER)

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Counts the body that was read for as long as it is kept. Raises: StatusError 429."""
        connection = self._connection
        connection.server.receives(connection, size_bytes)
        try:
            yield
        finally:
            connection.server.bodies.let_go(connection)
