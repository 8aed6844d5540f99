"""The client's end of one connection: requests by id, answers put together from their parts."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, NamedTuple, cast

from minikube_py.errors import MinikubeError, OutcomeUnknown, RequestTooLarge, Unavailable
from minikube_py.mvcc.types import Event, WatchBatch
from minikube_py.store.limits import FRAME_BYTES_MAX
from minikube_py.store.protocol import (
    MAGIC,
    VERSION,
    Answer,
    FrameReader,
    Op,
    ProtocolError,
    decode_error,
    decode_events,
    frame,
    unpack_frame,
)
from minikube_py.store.storage import WatchSink

GOODBYE_TIMEOUT_S = 1.0


class Endpoint(NamedTuple):
    """`cluster_id` 0: whichever answers. `tls` None: in the clear."""

    host: str
    port: int
    token: str
    tls: ssl.SSLContext | None = None
    cluster_id: int = 0


class Request:
    """One request in flight. `writes`: what is sent and not answered may have been done. `sent`: handed to the
    transport. `parts` are those of a range's answer that came so far."""

    __slots__ = ("fragments", "future", "parts", "sent", "writes")

    def __init__(self, future: asyncio.Future[Any], writes: bool) -> None:
        self.future = future
        self.writes = writes
        self.sent = False
        self.parts: list[tuple[Any, Any]] = []
        self.fragments: list[bytes] = []


class ClientWatch:
    """`cancel` may be called at any time; nothing is delivered afterwards. `revision`: delivered up to there."""

    __slots__ = ("_connection", "events", "id", "revision", "sink")

    def __init__(self, connection: ClientConnection, id: int, start_revision: int, sink: WatchSink) -> None:
        self._connection = connection
        self.id = id
        self.revision = max(start_revision - 1, 0)
        self.sink = sink
        self.events: list[Event] = []

    def cancel(self) -> None:
        self._connection.cancel_watch(self.id)


class ClientConnection(asyncio.Protocol):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._transport: asyncio.Transport
        self._next_id = 1
        self._requests: dict[int, Request] = {}
        self._unsent: list[Request] = []
        self._watches: dict[int, ClientWatch] = {}
        self._out: list[bytes] = []
        self._flush_due = False
        self.cluster_id = 0
        self.revision = 0
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._ended = asyncio.Event()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        end = self._endpoint
        self._transport.write(frame((MAGIC, VERSION, end.token, end.cluster_id)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()
        self._fall(f"the connection to the store was lost{f': {exc}' if exc else ''}")

    def data_received(self, data: bytes) -> None:
        try:
            for answer in self._reader.feed(data):
                self._take(answer)
        except (ProtocolError, TypeError, ValueError) as error:
            self._fall(f"the store's answer was not understood: {error}")
            self._transport.abort()

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(self, op: Op, argument: object, *, writes: bool) -> asyncio.Future[Any]:
        """Raises: Unavailable once the connection is lost, RequestTooLarge for what no frame holds."""
        if self.lost.done():
            raise Unavailable(self.lost.result())
        request_id = self._next_id
        data = frame((request_id, op, argument))
        if len(data) > FRAME_BYTES_MAX:
            raise RequestTooLarge(len(data), FRAME_BYTES_MAX)
        self._next_id += 1
        request = Request(self._loop.create_future(), writes)
        self._requests[request_id] = request
        self._unsent.append(request)
        self._write_soon(data)
        return request.future

    def watch(self, argument: tuple[bytes, bytes, int, object], sink: WatchSink) -> ClientWatch:
        """Raises: Unavailable once the connection is lost."""
        if self.lost.done():
            raise Unavailable(self.lost.result())
        watch = ClientWatch(self, self._next_id, argument[2], sink)
        self._next_id += 1
        self._watches[watch.id] = watch
        self._write_soon(frame((watch.id, Op.WATCH, argument)))
        return watch

    def cancel_watch(self, watch_id: int) -> None:
        if self._watches.pop(watch_id, None) is not None and not self.lost.done():
            self._write_soon(frame((watch_id, Op.CANCEL, watch_id)))

    def close(self) -> None:
        self._flush()
        self._transport.close()
        self._fall("the client was closed")

    async def wait_closed(self) -> None:
        """After `close`: until the socket is closed; a peer that does not answer the goodbye is not waited for."""
        try:
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                await self._ended.wait()
        except TimeoutError:
            self._transport.abort()
            await self._ended.wait()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _take(self, answer: Any) -> None:
        if not self.greeted.done():
            self._greeting(answer)
            return
        answer_id, kind = answer[0], answer[1]
        request = self._requests.get(answer_id)
        if request is not None:
            self._take_answer(answer_id, request, kind, answer)
            return
        watch = self._watches.get(answer_id)
        if watch is not None:
            self._take_watch(watch, kind, answer)
        elif answer_id == 0:
            raise ProtocolError(str(decode_error(answer[1])))

    def _greeting(self, answer: Any) -> None:
        if answer[0] == 0:
            self.greeted.set_exception(decode_error(answer[1]))
            return
        _, self.cluster_id, self.revision = answer
        self.greeted.set_result(None)

    def _take_answer(self, answer_id: int, request: Request, kind: int, answer: Any) -> None:
        if kind == Answer.PART:
            request.parts.append((answer[2], answer[3]))
            return
        if kind == Answer.FRAGMENT:
            request.fragments.append(answer[2])
            if answer[3]:
                whole = unpack_frame(b"".join(request.fragments))
                self._take_answer(answer_id, request, whole[1], whole)
            return
        del self._requests[answer_id]
        if request.future.done():
            return
        if kind == Answer.OK:
            request.future.set_result((request.parts, answer[2]))
        else:
            request.future.set_exception(decode_error(answer[2]))

    def _take_watch(self, watch: ClientWatch, kind: int, answer: Any) -> None:
        if kind == Answer.EVENTS:
            _, _, revision, events, more = answer
            watch.events.extend(decode_events(events))
            if not more:
                batch, watch.events = watch.events, []
                self.revision = max(self.revision, revision)
                watch.revision = revision
                watch.sink(WatchBatch(batch, revision))
        else:
            del self._watches[watch.id]
            watch.sink(WatchBatch((), watch.revision, decode_error(answer[2])))

    def _fall(self, reason: str) -> None:
        """The connection is gone: everyone who waits is told what is known."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        if not self.greeted.done():
            self.greeted.set_exception(Unavailable(reason))
        requests, self._requests = self._requests, {}
        for request in requests.values():
            if request.future.done():
                continue
            if request.sent and request.writes:
                request.future.set_exception(OutcomeUnknown(f"{reason}; the write may or may not have been done"))
            else:
                request.future.set_exception(Unavailable(reason))
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.sink(WatchBatch((), watch.revision, Unavailable(reason)))

    def _write_soon(self, data: bytes) -> None:
        self._out.append(data)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._transport.is_closing() or not self._out:
            return
        out, self._out = self._out, []
        for request in self._unsent:
            request.sent = True
        self._unsent.clear()
        self._transport.write(b"".join(out))


async def connect(endpoint: Endpoint, timeout_s: float) -> ClientConnection:
    """A connection that was greeted. Raises: Unavailable; MinikubeError where the store does not want us."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: ClientConnection(endpoint), endpoint.host, endpoint.port, ssl=endpoint.tls
            )
            try:
                await connection.greeted
            except BaseException:
                connection.close()
                raise
    except MinikubeError:
        raise
    except (OSError, TimeoutError) as error:
        text = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
        raise Unavailable(f"the store at {endpoint.host}:{endpoint.port} cannot be reached: {text}") from None
    return connection
