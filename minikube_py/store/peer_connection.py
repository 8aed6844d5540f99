"""A connection between two members, at either end, and one for a single question."""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from minikube_py.errors import Unavailable, shown
from minikube_py.ports.addresses import split_address
from minikube_py.ports.port import Incoming
from minikube_py.raft.configuration import NodeId
from minikube_py.store.framing import FrameReader, ProtocolError, frame
from minikube_py.store.peer_protocol import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    Refusal,
    Refused,
    Reply,
    refusal_frame,
    refused,
)

if TYPE_CHECKING:
    from minikube_py.store.peer_sender import PeerSender
    from minikube_py.store.peers import Peers

T = TypeVar("T")
SHUTDOWN_S = 1.0


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Limits between members; those in bytes are per peer.

    `queue_bytes_max`: messages queued while a peer takes none; `urgent_bytes_max`: further ones that are not an APPEND,
    which are sent first. Beyond it they are dropped. `write_buffer_bytes`: handed to the transport, and not taken by
    the kernel. `turn_bytes_max`: written in one turn of the loop. Each side sends a beat every `beat_s`; a side that
    receives nothing for `silent_beats_max` of its own beats drops the link. A new connection has `connect_s` to be
    established and `hello_s` to identify itself. A snapshot goes in chunks, `snapshot_window_bytes` of them
    unacknowledged, so that no message waits behind more than that; a transfer without progress for
    `snapshot_patience_s` is given up."""

    queue_bytes_max: int = 16 << 20
    urgent_bytes_max: int = 1 << 20
    write_buffer_bytes: int = 256 << 10
    turn_bytes_max: int = 1 << 20
    beat_s: float = 0.5
    silent_beats_max: int = 4
    connect_s: float = 2.0
    hello_s: float = 5.0
    ask_s: float = 3.0
    join_s: float = 20.0
    retry_s_min: float = 0.05
    retry_s_max: float = 1.0
    connections_max: int = 128
    snapshot_chunk_bytes: int = 64 << 10
    snapshot_window_bytes: int = 256 << 10
    snapshot_bytes_per_s: int = 64 << 20
    snapshot_patience_s: float = 60.0


class PeerConnection(asyncio.Protocol):
    """Frames in, bytes out, and a liveness check of the other side.

    `paused`: the other side takes no more for now. `lost` gets the reason when the connection ends."""

    def __init__(self, limits: PeerLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.limits = limits
        self.loop = loop
        self.reader = FrameReader(HELLO_BYTES_MAX)
        self.paused = False
        self.lost: asyncio.Future[str] = loop.create_future()
        self.received_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._silent_beats = 0
        self._silent_beats_max = limits.silent_beats_max
        self._timer: asyncio.TimerHandle | None = None
        self._why = ""

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.limits.write_buffer_bytes)
        self._timer = self.loop.call_later(self.limits.beat_s, self._beat)
        self.made()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.lost.done():
            self.lost.set_result(self._why or (str(exc) if exc else "the other side closed the connection"))
        self.gone()

    def data_received(self, data: bytes) -> None:
        self._silent_beats = 0
        self.received_bytes += len(data)
        if self.ending:
            return
        try:
            for each in self.reader.feed(data):
                self.take(each)
                if self.ending:
                    return
        except ProtocolError as error:
            self.garbled(error)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.resumed()

    # -- what subclasses implement ------------------------------------------------------------------------------------

    def made(self) -> None: ...

    def take(self, received: tuple[Any, ...]) -> None:
        """Raises: ProtocolError."""
        raise NotImplementedError

    def garbled(self, error: ProtocolError) -> None:
        self.abort(f"the received data was not understood: {error}")

    def resumed(self) -> None: ...

    def beat(self) -> None: ...

    def gone(self) -> None: ...

    # -- for its owner ------------------------------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self, why: str) -> None:
        """Still sends what was written, for a moment."""
        if self._transport is None or self._transport.is_closing():
            return
        self._why = why
        transport = self._transport
        transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(SHUTDOWN_S, transport.abort)

    def abort(self, why: str) -> None:
        if self._transport is not None:
            self._why = self._why or why
            self._transport.abort()

    def be_patient(self, duration_s: float) -> None:
        """The other side has asked something, and is silent until it is answered."""
        self._silent_beats_max = int(duration_s / self.limits.beat_s) + self.limits.silent_beats_max

    def _beat(self) -> None:
        # Beats are counted, not seconds: a pause of this process is not the peer's fault.
        self._silent_beats += 1
        if self._silent_beats > self._silent_beats_max:
            silent_s = self._silent_beats_max * self.limits.beat_s
            self.abort(f"nothing received for {silent_s:g} s")
            return
        self.beat()
        self._timer = self.loop.call_later(self.limits.beat_s, self._beat)


# -- the connecting side
# -----------------------------------------------------------------------------------------------------


class OutgoingLink(PeerConnection):
    """The sending end of a link. `greeted` gets None once the other side has confirmed its identity, or the reason why
    not."""

    def __init__(
        self,
        owner: PeerSender,
        hello: bytes,
        cluster_id: int,
        to: NodeId,
        limits: PeerLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(limits, loop)
        self._owner = owner
        self._hello = hello
        self._expected = (cluster_id, to)
        self.greeted: asyncio.Future[Refused | None] = loop.create_future()

    def made(self) -> None:
        self.write(self._hello)

    def take(self, received: tuple[Any, ...]) -> None:
        kind, *arguments = received
        if kind == Reply.REFUSED:
            self._refuse(refused(arguments))
        elif not self.greeted.done():
            if kind != Reply.WELCOME or len(arguments) != 2:
                raise ProtocolError("the hello was not answered with a welcome")
            if tuple(arguments) != self._expected:
                raise ProtocolError("a different member than the addressed one answered")
            self.greeted.set_result(None)
        elif kind == Reply.ALIVE:
            pass
        elif kind == Reply.PONG and _ints(arguments, 1):
            self._owner.ponged(arguments[0])
        elif kind == Reply.WANT and _ints(arguments, 1):
            self._owner.snapshot_wanted(arguments[0])
        elif kind == Reply.DONE and len(arguments) == 2:
            self._owner.snapshot_done(arguments[0] is True, arguments[1] if type(arguments[1]) is str else "")
        else:
            raise ProtocolError(f"a reply of kind {shown(kind)} is unknown here")

    def garbled(self, error: ProtocolError) -> None:
        self._refuse(Refused(Refusal.GARBLED, f"the received data was not understood: {error}"))

    def resumed(self) -> None:
        if self._welcome:
            self._owner.flush()

    def beat(self) -> None:
        if self._welcome and not self.paused:
            self.write(self._owner.ping())

    def gone(self) -> None:
        if not self.greeted.done():
            self.greeted.set_result(Refused(Refusal.GARBLED, self.lost.result()))

    @property
    def _welcome(self) -> bool:
        return self.greeted.done() and self.greeted.result() is None

    def _refuse(self, why: Refused) -> None:
        if not self.greeted.done():
            self.greeted.set_result(why)
        else:
            self._owner.refused(why)
        self.abort(str(why))


class AskingConnection(PeerConnection):
    """One question, and its raw answer, or the reason why there is none."""

    def __init__(self, question: bytes, limits: PeerLimits, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limits, loop)
        self.reader.limit_bytes = FRAME_BYTES_MAX
        self._question = question
        self.answer: asyncio.Future[tuple[Any, ...] | None] = loop.create_future()

    def made(self) -> None:
        self.write(self._question)

    def take(self, received: tuple[Any, ...]) -> None:
        if received[0] == Reply.ALIVE:
            return
        if not self.answer.done():
            self.answer.set_result(received)
        self.close("answered")

    def gone(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


# -- the accepting side
# ------------------------------------------------------------------------------------------------------


class IncomingConnection(PeerConnection):
    """`sender`: the other side, once it has a link."""

    def __init__(self, port: Peers, incoming: Incoming, limits: PeerLimits, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limits, loop)
        self._port = port
        self.incoming = incoming
        self._greeted = False
        self.sender: NodeId | None = None
        self.snapshot_offset: Callable[[], int] | None = None
        """Progress of a snapshot received over this connection."""

    def made(self) -> None:
        self._port.opened(self)

    def take(self, received: tuple[Any, ...]) -> None:
        if self._greeted:
            self._port.said(self, received)
            return
        self._greeted = True
        self._port.greeted(self, received)

    def garbled(self, error: ProtocolError) -> None:
        self.refuse(Refusal.GARBLED, str(error))

    def welcome(self, sender: NodeId, cluster_id: int, own: NodeId) -> None:
        self.sender = sender
        self.reader.limit_bytes = FRAME_BYTES_MAX
        self.write(frame((Reply.WELCOME, cluster_id, own)))

    def reply(self, data: bytes) -> None:
        """An optional reply: a peer that does not read has too many queued already."""
        if not self.paused:
            self.write(data)

    def refuse(self, refusal: Refusal, text: str) -> None:
        self.write(refusal_frame(refusal, text))
        self.close(text)

    def beat(self) -> None:
        if self.snapshot_offset is not None:
            self.reply(frame((Reply.WANT, self.snapshot_offset())))
        elif self._greeted:
            self.reply(ALIVE)

    def gone(self) -> None:
        self.incoming.left()
        self._port.closed(self)


ALIVE = frame((Reply.ALIVE,))


async def answered(
    connection: PeerConnection, address: str, tls: ssl.SSLContext | None, answer: Awaitable[T], within_s: float
) -> T:
    """Connects, and returns the answer. Raises: Unavailable; on any error the caller aborts the connection."""
    try:
        async with asyncio.timeout(within_s):
            await _connect(connection, address, tls)
            return await answer
    except TimeoutError:
        raise Unavailable(f"no answer within {within_s:g} s") from None
    except OSError as error:
        # If a connection ends during the TLS handshake, asyncio's error has no text.
        raise Unavailable(error.strerror or str(error) or "the other side ended the connection") from error


_REFUSAL = rf"\[Errno {errno.ECONNREFUSED}\] Connect call failed \([^()]*\)"
_REFUSALS = re.compile(rf"Multiple exceptions: {_REFUSAL}(, {_REFUSAL})*")


def is_refusal(error: BaseException | None) -> bool:
    """Whether nothing listens at a place: each of its addresses refused. Of several, asyncio joins the texts."""
    return isinstance(error, ConnectionRefusedError) or bool(_REFUSALS.fullmatch(str(error)))


async def _connect(connection: PeerConnection, address: str, tls: ssl.SSLContext | None) -> None:
    place = split_address(address)
    if place is None:
        raise Unavailable(f"{address!r} is not host:port")
    try:
        await connection.loop.create_connection(lambda: connection, *place, ssl=tls)
    except ValueError as error:
        if isinstance(error, OSError):
            raise  # A certificate that does not hold is both.
        raise Unavailable(f"{address!r} is not a resolvable host: {error}") from None


def _ints(values: list[Any], count: int) -> bool:
    return len(values) == count and all(type(value) is int and value >= 0 for value in values)
