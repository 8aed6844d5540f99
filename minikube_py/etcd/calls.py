"""One call of a client: its requests and its answer or answers.

A call is answered at once if possible; else the event it waits for calls it back, and only longer work runs in a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.errors import MinikubeError, NotLeader
from minikube_py.etcd import wire
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import TOO_MANY, Refused, status_of
from minikube_py.etcd.grpc_framing import (
    OK_TRAILERS,
    PREFIX_BYTES,
    Head,
    Messages,
    Unreadable,
    framed,
    prefix,
    trailers,
)
from minikube_py.etcd.node import Soon
from minikube_py.etcd.pieces import Pieces
from minikube_py.http2 import frames
from minikube_py.http2.events import Stream

if TYPE_CHECKING:
    from minikube_py.etcd.grpc_connection import GrpcConnection

log = logging.getLogger(__name__)
UNREAD_BYTES: Final = 64 << 10
"""Limit of unprocessed messages of a stream; beyond it, the client waits."""
MESSAGE_COST_BYTES: Final = 48
"""Counted with each unprocessed message: its prefix, or what the object takes, which is more."""


class Route(NamedTuple):
    """A method. `run` returns the answer, or None if it wrote answers itself. Its argument is the message, with
    `takes_stream` an iterator over messages. `lasts`: as long as its client wants, so its answers may wait."""

    kind: Any
    takes_stream: bool
    run: Callable[[Call, Any], Awaitable[Any]]
    soon: Soon | None = None
    lasts: bool = False


class Call:
    __slots__ = ("_drained", "_headed", "_held_bytes", "_messages", "_more", "_owed_bytes", "_request", "_task",
                 "_timer", "_unread", "_unread_bytes", "begun", "connection",
                 "head", "over", "route", "size_bytes", "stream")  # fmt: skip

    def __init__(self, connection: GrpcConnection, stream: Stream, head: Head, route: Route) -> None:
        self.connection = connection
        self.stream = stream
        self.head = head
        self.route = route
        self.over = False
        self.size_bytes = 0
        """Of an answer in pieces."""
        self._messages: Messages | None = None
        self._unread: deque[bytes] = deque()
        """Unprocessed messages."""
        self._unread_bytes = self._owed_bytes = self._held_bytes = 0
        self._more: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._request: Any = None
        self.begun = self._headed = False

    def wants(self, name: str) -> bool:
        """Whether the client has set that metadata to true."""
        return (name, "true") in self.head.metadata

    # -- input ---------------------------------------------------------------------------------------------------------

    def received(self, data: bytes, *, ended: bool) -> None:
        if self.over:
            return
        if not self.begun and self._messages is None and not self.route.takes_stream and _is_whole(data):
            # The usual case: one message in one frame.
            self._begin(data[PREFIX_BYTES:])
            return
        self._owed_bytes += len(data)
        if self.begun and not self.route.takes_stream:
            # It is under way, so it must not be told that there was too much: it may have been done.
            self._take()
            return
        if self._messages is None:
            self._messages = Messages(self.connection.server.limits.message_bytes_max, self.head.encoding)
        messages, before = self._messages, self._messages.held_bytes
        try:
            found = messages.receive(data)
        except Unreadable as unreadable:
            self._give_up(unreadable.code, unreadable.text)
            return
        unread_bytes = sum(map(_cost_bytes, found)) if self.route.takes_stream else 0
        self._hold(messages.held_bytes - before + unread_bytes)
        if self.over:
            return
        if self.route.takes_stream:
            if found:
                self._says_something()
            self._unread.extend(found)
            self._unread_bytes += unread_bytes
            self._wake()
        elif found and not self.begun:
            self._begin(found[0])
        elif ended and not self.begun:
            self.end(StatusCode.UNKNOWN, "unexpected EOF" if messages.held_bytes >= PREFIX_BYTES else "EOF")
        self._take()

    def _take(self) -> None:
        """Lets the client send more, unless its data is not being processed."""
        if self._owed_bytes and self._unread_bytes < UNREAD_BYTES and not self.over:
            self.connection.h2.took(self.stream, self._owed_bytes)
            self._owed_bytes = 0
            self.connection.soon()

    def _hold(self, more_bytes: int) -> None:
        """This many more, or fewer; beyond the server's limit, calls of the address that holds most end."""
        bodies = self.connection.server.bodies
        self._held_bytes += more_bytes
        bodies.hold(self, self.connection.address, self._held_bytes)
        while (loser := bodies.loser()) is not None:
            loser._give_up(*TOO_MANY)

    def _says_something(self) -> None:
        self.begun = True
        self.connection.server.silent.let_go(self)

    def _begin(self, data: bytes) -> None:
        self._says_something()
        route = self.route
        try:
            self._request = request = wire.read(route.kind, data)
            if route.soon is not None and route.soon(request, self):
                if not self.over:
                    self.connection.server.wait_for(self)
                return
        except (Refused, MinikubeError) as error:
            self.failed(error)
            return
        self.later()

    def open_stream(self) -> None:
        """For a method with a stream of messages: starts it; it has begun with the first message."""
        self._request = self._requests()
        self.later()

    async def _requests(self) -> AsyncGenerator[Any, None]:
        """Raises: Refused."""
        while True:
            while self._unread:
                data = self._unread.popleft()
                self._unread_bytes -= _cost_bytes(data)
                self._hold(-_cost_bytes(data))
                self._take()
                yield wire.read(self.route.kind, data, wire.STREAM)
            if self.stream.ended_by_peer or self.over:
                return
            self._more = asyncio.get_running_loop().create_future()
            await self._more

    def _wake(self) -> None:
        more, self._more = self._more, None
        if more is not None and not more.done():
            more.set_result(None)

    # -- ending --------------------------------------------------------------------------------------------------------

    def give_way(self) -> bool:
        """Ends it for another one, unless it is a request that may have been done. False: it does not end."""
        if self.begun and not self.route.lasts:
            return False
        self._give_up(StatusCode.UNAVAILABLE if self.begun else StatusCode.RESOURCE_EXHAUSTED, TOO_MANY[1])
        return True

    def limit(self, timeout_s: float) -> None:
        """As in Go, it ends without a message: the client knows its own deadline."""
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._late)

    def _late(self) -> None:
        self._timer = None
        self.reset(frames.CANCEL)

    def reset(self, code: int) -> None:
        if not self.over:
            self.connection.h2.reset(self.stream, code)
            self.cancel()
            self.connection.soon()

    def cancel(self) -> None:
        """The stream has ended."""
        self._close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self.drained()

    def _give_up(self, code: StatusCode, text: str) -> None:
        """Ends the call: its input cannot be accepted."""
        self.end(code, text)
        self.cancel()

    def drained(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _close(self) -> None:
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.connection.server.bodies.let_go(self)
        self._messages = None
        self._unread.clear()
        self._request = None
        self._wake()
        self.connection.server.left(self)

    # -- answers -------------------------------------------------------------------------------------------------------

    def done(self, answer: Any) -> None:
        if self.over:
            return
        data = answer if type(answer) is bytes else answer.SerializeToString()
        connection = self.connection
        connection.h2.answer(self.stream, self.head.answer, framed(data), OK_TRAILERS)
        self._sent()

    def failed(self, error: MinikubeError | Refused) -> None:
        if type(error) is NotLeader and self.route.soon is not None and self._task is None:
            # It was the leader when it took the request, whose entry is in no log.
            self.later()
            return
        self.end(*status_of(error))

    def end(self, code: StatusCode, text: str = "") -> None:
        """Sends the trailers."""
        if self.over:
            return
        head = b"" if self._headed else self.head.answer
        self.connection.h2.send_headers(self.stream, head + trailers(code, text), end=True)
        self._sent()

    def _sent(self) -> None:
        """Everything is done except sending what waits for window space."""
        self._close()
        self.connection.soon()

    # -- calls in a task
    # ---------------------------------------------------------------------------------------------------

    def later(self) -> None:
        if self.over:
            return
        self.connection.server.waits_no_more(self)
        if self._timer is None and self.head.timeout_s is not None:
            self.limit(self.head.timeout_s)
        self._task = asyncio.get_running_loop().create_task(self._run(self.route.run, self, self._request))

    def slowly(self, work: Callable[..., Awaitable[Any]], *given: Any) -> None:
        if self.over:
            return
        self.connection.server.waits_no_more(self)
        self._task = asyncio.get_running_loop().create_task(self._run(work, *given))

    async def _run(self, work: Callable[..., Awaitable[Any]], *given: Any) -> None:
        """Begins the work itself: a task that is cancelled before its first step leaves nothing unawaited."""
        try:
            answer = await work(*given)
            if type(answer) is Pieces:
                await self.write(answer)
                answer = None
        except (Refused, MinikubeError) as error:
            self.end(*status_of(error))
        except Exception as error:
            log.exception("a request for %s failed", self.head.path)
            self.end(StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
        else:
            if answer is None:
                self.end(StatusCode.OK)
            else:
                self.done(answer)

    async def write(self, answer: Any) -> None:
        """Returns when the client accepts more."""
        if self.over:
            return
        h2, stream = self.connection.h2, self.stream
        if not self._headed:
            self._headed = True
            h2.send_headers(stream, self.head.answer)
        if type(answer) is not Pieces:
            h2.send(stream, framed(answer if type(answer) is bytes else answer.SerializeToString()))
            await self._read()
            return
        self.size_bytes = answer.size_bytes
        h2.send(stream, prefix(answer.size_bytes))
        for piece in answer.pieces:
            h2.send(stream, piece)
            await self._read()
            # The window may have been large enough for all.
            await asyncio.sleep(0)
            if self.over:
                return

    async def _read(self) -> None:
        self.connection.soon()
        while self.stream.waiting:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained


def _cost_bytes(message: bytes) -> int:
    return len(message) + MESSAGE_COST_BYTES


def _is_whole(data: bytes) -> bool:
    return len(data) >= PREFIX_BYTES and int.from_bytes(data[:PREFIX_BYTES], "big") == len(data) - PREFIX_BYTES
