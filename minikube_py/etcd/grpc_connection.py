"""One gRPC client connection: an asyncio protocol around `http2.connection.Connection`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from minikube_py.etcd.calls import Call
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import TOO_MANY
from minikube_py.etcd.grpc_framing import ENCODINGS, Head, Heads, not_installed, trailers
from minikube_py.etcd.guard import Shown, name_shown, shown_over_grpc
from minikube_py.http2.connection import Connection
from minikube_py.http2.events import Aborted, Drained, Ended, Event, Opened, Received, Stream
from minikube_py.http2.frames import CANCEL
from minikube_py.ports.port import Incoming

if TYPE_CHECKING:
    from minikube_py.etcd.grpc_server import GrpcServer

WRITE_BUFFER_BYTES: Final = 64 << 10
LATE_LOOKS: Final = 4
"""What makes no progress between this many looks of the server is given up."""


class GrpcConnection(asyncio.BufferedProtocol):
    def __init__(self, server: GrpcServer, incoming: Incoming) -> None:
        self.server = server
        self.h2 = Connection(server.connection_limits)
        self.peer = ""
        self.name: str | None = None
        """The name in the client's certificate."""
        self.counted_bytes = 0
        """The share of `h2.waiting_bytes` counted among all connections."""
        self._heads = Heads()
        self._incoming = incoming
        self.address = incoming.peer
        self._transport: asyncio.Transport
        self._reading = False
        """Answers are collected meanwhile and sent at the end."""
        self._due = False
        self._looks = 0

    # -- from the transport --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's TLS transports are not subclasses.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.peer = _peer(transport.get_extra_info("peername"))
        self.name = name_shown(transport.get_extra_info("peercert"))
        self.server.connections[self] = None
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.pop(self, None)
        self._incoming.left()
        for stream in list(self.h2.streams.values()):
            self._cancel(stream)
        self.h2.abandon()
        self._count()
        self.server.empty()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.server.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Called by name for data the port has read, and on loops whose transports do not support buffers."""
        self._reading = True
        try:
            self._handle(self.h2.receive(data, self.server.clock.monotonic_s()))
        finally:
            self._reading = False
        self._send()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self.h2.held = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self._handle(self.h2.release())
        self._send()

    def eof_received(self) -> bool:
        return False

    # -- events --------------------------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        if self.h2.settled and not self._incoming.is_authenticated and not self._incoming.authenticated():
            self.h2.leave("too many connections")
            self._send()
            self._transport.close()
            return
        for event in events:
            kind = type(event)
            if kind is Received:
                stream, data, ended = cast(Received, event)
                if stream.owner is not None:
                    stream.owner.received(data, ended=ended)
            elif kind is Opened:
                self._open(cast(Opened, event))
            elif kind is Drained:
                call = cast(Drained, event).stream.owner
                if call is not None:
                    call.drained()
            elif kind is Aborted:
                self._cancel(cast(Aborted, event).stream)
            else:
                self.server.ended[cast(Ended, event).why] += 1

    def _open(self, event: Opened) -> None:
        stream, block, ended = event
        head = block.meaning
        if head is None:
            head = self._heads.of(block)
        refusal, server = head.refusal, self.server
        if refusal is not None:
            self._refuse(stream, head, refusal.code, refusal.text)
            return
        route = server.routes.get(head.path)
        if route is None:
            self._refuse(stream, head, StatusCode.UNIMPLEMENTED, server.unknown(head.path))
            return
        if head.encoding not in ENCODINGS:
            self._refuse(stream, head, StatusCode.UNIMPLEMENTED, not_installed(head.encoding))
            return
        holder = server.holder(self, head)
        if not server.has_room(self, holder):
            self._refuse(stream, head, *TOO_MANY)
            return
        if head.timeout_s is not None and head.timeout_s <= 0:
            self._refuse(stream, head, StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
            return
        call = stream.owner = Call(self, stream, head, route)
        server.calls.hold(call, holder, 1)
        server.silent.hold(call, holder, 1)
        if route.takes_stream:
            call.open_stream()
        if ended:
            call.received(b"", ended=True)

    def _refuse(self, stream: Stream, head: Head, code: StatusCode, text: str) -> None:
        self.h2.send_headers(stream, head.answer + trailers(code, text), end=True)

    @staticmethod
    def _cancel(stream: Stream) -> None:
        call, stream.owner = stream.owner, None
        if call is not None:
            call.cancel()

    def shown(self, head: Head) -> Shown:
        return shown_over_grpc(head.metadata, self.name, self.peer)

    # -- sending -------------------------------------------------------------------------------------------------------

    def soon(self) -> None:
        """Sends pending data at the end of this turn of the loop."""
        if not self._reading and not self._due:
            self._due = True
            self.server.loop.call_soon(self._send_due)

    def _send_due(self) -> None:
        self._due = False
        self._send()

    def _send(self) -> None:
        h2, transport = self.h2, self._transport
        while (data := h2.outgoing()) and not transport.is_closing():
            transport.write(data)
            if h2.blocked:
                self._handle(h2.release())
        self._count()
        if h2.ended or (h2.leaving and not h2.streams):
            transport.close()

    def _count(self) -> None:
        waiting_bytes = self.h2.waiting_bytes
        if waiting_bytes != self.counted_bytes:
            self.server.unsent_bytes += waiting_bytes - self.counted_bytes
            self.counted_bytes = waiting_bytes

    # -- ending --------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        self.h2.leave("server stopped")
        self._send()

    def abort(self) -> None:
        self._transport.abort()

    def look(self) -> None:
        """Gives up requests that do not complete, and answers that are not read, or too slowly for their size. What
        lasts as long as its client wants, as a watch does, may wait."""
        if self._transport.is_closing():
            self._looks += 1
            if self._looks >= LATE_LOOKS:
                self._transport.abort()
            return
        limits = self.server.limits
        for stream in list(self.h2.streams.values()):
            call = stream.owner
            waits = call is None or (call.begun and (call.route.lasts or not stream.waiting))
            if waits and not stream.ended_by_us:
                continue
            size_bytes = sum([len(data) for data, *_ in stream.waiting])
            if call is not None:
                size_bytes = max(size_bytes, call.size_bytes)
            least_bytes = max(size_bytes * limits.stalled_s / LATE_LOOKS / limits.answer_s, 1)
            stream.looks = 0 if stream.moved_bytes >= least_bytes else stream.looks + 1
            stream.moved_bytes = 0
            if stream.looks >= LATE_LOOKS:
                self._cancel(stream)
                self.h2.reset(stream, CANCEL)
        self.soon()


def _peer(name: object) -> str:
    """In gRPC's format."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "unix:"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in str(host) else f"ipv4:{host}:{port}"
