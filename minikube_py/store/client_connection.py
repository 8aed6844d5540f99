"""The client's end of one connection: requests by id, answers reassembled from their parts.

A connection knows nothing of sessions, leaders or retries: it reports to its owner how each request ended, and when the
connection was lost."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from minikube_py.env import Clock
from minikube_py.errors import MinikubeError, RequestTooLarge, Unavailable
from minikube_py.ports.addresses import join_address
from minikube_py.store.framing import FrameReader, ProtocolError, decode_error, frame, unpack_frame
from minikube_py.store.limits import FRAME_BYTES_MAX
from minikube_py.store.protocol import (
    GREETING,
    Answer,
    Leadership,
    Op,
    WatchRequest,
    Welcome,
    leadership_from_plain,
    welcome_from_plain,
)

if TYPE_CHECKING:
    from minikube_py.store.client_watch import ClientWatch

GOODBYE_TIMEOUT_S = 1.0


class Endpoint(NamedTuple):
    """`cluster_id` 0: any cluster. `tls` None: plain TCP."""

    host: str
    port: int
    token: str
    tls: ssl.SSLContext | None = None
    cluster_id: int = 0

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)


class Call:
    """One request until `future` is settled; it may be sent over several connections in turn.

    `sent`: handed to the current transport, so it may have been executed. `parts`: the parts of a range's answer
    received so far; `on_part` takes them instead. `refusal`: why it was last retried. `unlogged`: this sending was
    refused before it reached the log."""

    __slots__ = (
        "argument", "deadline_s", "flags", "fragments", "future", "on_part", "op", "parts", "refusal", "sent",
        "since_s", "unlogged",
    )  # fmt: skip

    def __init__(self, op: Op, argument: object, future: asyncio.Future[Any], flags: int = 0) -> None:
        self.op = op
        self.argument = argument
        self.flags = flags
        self.future = future
        self.since_s = self.deadline_s = 0.0
        self.sent = self.unlogged = False
        self.parts: list[tuple[Any, Any]] = []
        self.fragments: list[bytes] = []
        self.on_part: Callable[[Any], None] | None = None
        self.refusal: MinikubeError | None = None

    @property
    def writes(self) -> bool:
        """If unanswered it may have been executed, so a lost connection alone is no reason to repeat it."""
        return self.op == Op.MEMBER_CHANGE

    @property
    def deliberate(self) -> bool:
        """The caller needs the reason for a failure; do not retry."""
        return self.op in (Op.MEMBER_CHANGE, Op.TRANSFER, Op.SNAPSHOT)

    @property
    def for_leader(self) -> bool:
        """Only the leader can answer it."""
        return self.op in (Op.COMMAND, Op.KEEP_ALIVE, Op.REMAINING, Op.MEMBER_CHANGE, Op.TRANSFER)


class Owner(Protocol):
    """Receives the outcome of everything sent over a connection; must not raise."""

    def answered(self, call: Call, value: Any) -> None: ...

    def refused(self, call: Call, error: MinikubeError, connection: ClientConnection) -> None: ...

    def leader_told(self, connection: ClientConnection) -> None: ...

    def fell(self, connection: ClientConnection, calls: list[Call], reason: str) -> None:
        """`calls` were not answered; watchers are not notified."""


class ClientConnection(asyncio.Protocol):
    """`leads`: the peer is the leader, as far as it knows. `heard_s`: when it last sent anything. `why_lost` is empty
    while the connection is up."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._next_id = 1
        self._calls: dict[int, Call] = {}
        self._watches: dict[int, ClientWatch] = {}
        self._out: list[tuple[int, Call | None, bytes]] = []
        self._flush_due = False
        self.owner: Owner | None = None
        self.welcome = Welcome(0, 0, 0, Leadership())
        self.leadership = Leadership()
        self.leads = False
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self.why_lost = ""
        self.heard_s = clock.monotonic_s()
        self._asked_s = 0.0
        self._ended = asyncio.Event()

    def silent_s(self, now_s: float) -> float:
        """How long the member has owed an answer and sent nothing."""
        return now_s - self._asked_s if self._calls and self._asked_s > self.heard_s else 0.0

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.why_lost:
            self._transport.abort()
            return
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        end = self.endpoint
        self._transport.write(GREETING.hello(end.token, end.cluster_id))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()
        self._fall(f"the connection to the store was lost{f': {exc}' if exc else ''}")

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._clock.monotonic_s()
        try:
            for answer in self._reader.feed(data):
                self._take(answer)
        except (ProtocolError, TypeError, ValueError, IndexError) as error:
            self.abort(f"the store's answer was not understood: {error}")

    # -- requests -----------------------------------------------------------------------------------------------------

    def send(self, call: Call) -> None:
        """Raises: RequestTooLarge if it does not fit a frame."""
        request_id = self._next_id
        if call.flags:
            data = frame((request_id, call.op, call.argument, call.flags))
        else:
            data = frame((request_id, call.op, call.argument))
        if len(data) > FRAME_BYTES_MAX:
            raise RequestTooLarge(len(data), FRAME_BYTES_MAX)
        self._next_id += 1
        call.sent = False
        if call.parts:
            call.parts = []
        if call.fragments:
            call.fragments = []
        self._calls[request_id] = call
        self._write_soon(data, request_id, call)

    def watch(self, request: WatchRequest, watching: ClientWatch) -> int:
        """The id by which to cancel it."""
        watch_id = self._next_id
        self._next_id += 1
        self._watches[watch_id] = watching
        self._write_soon(frame((watch_id, Op.WATCH, request)))
        return watch_id

    def cancel_watch(self, watch_id: int) -> None:
        if self._watches.pop(watch_id, None) is not None and not self.why_lost:
            self._write_soon(frame((watch_id, Op.CANCEL, watch_id)))

    def take_over(self) -> list[Call]:
        """Returns everything unanswered to the caller, watches included; nothing more is delivered here."""
        calls, self._calls = self._calls, {}
        self._watches = {}
        return list(calls.values())

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._fall("the client was closed")

    def abort(self, reason: str) -> None:
        """Ends it at once, without waiting for outstanding answers."""
        self._fall(reason)
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """After `close`: until the socket is closed, without waiting for a peer that does not answer the TLS close."""
        if self._transport is None:
            return
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
        call = self._calls.get(answer_id)
        if call is not None:
            self._take_answer(answer_id, call, kind, answer)
            return
        watching = self._watches.get(answer_id)
        if watching is not None:
            if kind == Answer.END:
                del self._watches[answer_id]
            watching.take(self, kind, answer)
        elif answer_id == 0:
            if kind != Answer.LEADER:
                raise ProtocolError(str(decode_error(answer[1])))
            self._told(leadership_from_plain(answer[2:]))
            if self.owner is not None:
                self.owner.leader_told(self)

    def _greeting(self, answer: Any) -> None:
        if answer[0] == 0:
            self.greeted.set_exception(decode_error(answer[1]))
            return
        self.welcome = welcome_from_plain(answer)
        self._told(self.welcome.leadership)
        self.greeted.set_result(None)

    def leads_no_more(self, leader_id: int, leader_address: str) -> None:
        """The member refused because it is not the leader, and named the leader."""
        self._told(self.leadership._replace(leader_id=leader_id, leader_address=leader_address))

    def _told(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.leads = leadership.leader_id == self.welcome.member_id != 0

    def _take_answer(self, answer_id: int, call: Call, kind: int, answer: Any) -> None:
        if kind == Answer.PART:
            if call.on_part is not None:
                call.on_part(answer[2])
            else:
                call.parts.append((answer[2], answer[3]))
            return
        if kind == Answer.FRAGMENT:
            call.fragments.append(answer[2])
            if answer[3]:
                whole = unpack_frame(b"".join(call.fragments))
                self._take_answer(answer_id, call, whole[1], whole)
            return
        del self._calls[answer_id]
        owner = self.owner
        if owner is None:
            return
        if kind == Answer.OK:
            owner.answered(call, answer[2])
        else:
            call.unlogged = len(answer) > 3 and bool(answer[3])
            owner.refused(call, decode_error(answer[2]), self)

    def _fall(self, reason: str) -> None:
        if self.why_lost:
            return
        self.why_lost = reason
        if not self.greeted.done():
            self.greeted.set_exception(Unavailable(reason))
            # The caller has stopped waiting for it.
            self.greeted.exception()
        calls = self.take_over()
        if self.owner is not None:
            self.owner.fell(self, calls, reason)

    def _write_soon(self, data: bytes, request_id: int = 0, call: Call | None = None) -> None:
        self._out.append((request_id, call, data))
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._transport is None or self._transport.is_closing() or not self._out:
            return
        out, self._out = self._out, []
        frames: list[bytes] = []
        for request_id, call, data in out:
            if call is not None:
                if call.future.done():
                    # It was reported as refused or given up, so it must no longer be executed.
                    self._calls.pop(request_id, None)
                    continue
                call.sent = True
            frames.append(data)
        if not frames:
            return
        if self._asked_s <= self.heard_s:
            self._asked_s = self._clock.monotonic_s()
        self._transport.write(b"".join(frames))


async def connect(endpoint: Endpoint, clock: Clock, timeout_s: float) -> ClientConnection:
    """A connection that was greeted. Raises: Unavailable; MinikubeError if the store refuses this client."""
    loop = asyncio.get_running_loop()
    made: list[ClientConnection] = []

    def make() -> ClientConnection:
        made.append(ClientConnection(endpoint, clock))
        return made[0]

    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(make, endpoint.host, endpoint.port, ssl=endpoint.tls)
            await made[0].greeted
    except (OSError, TimeoutError, ValueError) as error:
        # ValueError: an invalid address, which members may report.
        text = str(error) or "it ended the connection"
        if isinstance(error, TimeoutError):
            text = f"no answer within {timeout_s:g} s"
        if made:
            made[0].abort(text)
        raise Unavailable(f"the store at {endpoint.address} cannot be reached: {text}") from None
    except BaseException:
        if made:
            made[0].abort("it is no longer needed")
        raise
    return made[0]
