"""One listening port: connections count from their acceptance on, and unauthenticated ones cost neither memory nor
others' time.

A connection is SILENT until its first bytes arrive; until then it costs a socket, and no TLS. Then it takes one of a
few places for strangers, and keeps it through its handshake until it is authenticated. Without a free place it is
QUEUED; the newest is served first, and a place with an idle peer is reclaimed: a flood delays its own connections.
Everything that waits is bounded, in number and in time, and the oldest make room for the newest.

Source: adaptive LIFO, "Fail at Scale" (Maurer, ACM Queue 13(8), 2015)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from minikube_py.env import Clock
from minikube_py.ports.descriptors import Descriptors, PortLimits
from minikube_py.ports.memory import give_back, restore_tls_buffers, shrink_tls_buffers
from minikube_py.ports.shares import Shares

log = logging.getLogger(__name__)
BACKLOG: Final = 512
"""Connections in the kernel's backlog."""
ACCEPTED_PER_TURN: Final = 4
"""asyncio accepts this many before it reports the first: this many descriptors exceed the limits, for a turn or two."""
TICK_S: Final = 0.25
SHUTDOWN_TIMEOUT_S: Final = 2.0
FIRST_BYTES_MAX: Final = 2048
"""Bytes read from a connection before it has a place; a TLS client's first message fits."""
RECEIVE_BUFFER_BYTES: Final = 128 << 10
"""The kernel's buffer of each connection: what a peer can send without being read."""
ENDED_PER_TRIM: Final = 64
"""After this many connections have ended, their memory is returned to the system."""
_KEEPALIVE_S: Final = 15
"""As Go's net package: TCP keep-alive's idle time, interval and count."""

SILENT: Final = 0
QUEUED: Final = 1
STRANGER: Final = 2
AUTHENTICATED: Final = 3
GONE: Final = 4


class Incoming(asyncio.BufferedProtocol):
    """A connection in its port. Its protocol calls `waits` when it is the peer's turn, `busy` when it is the server's,
    `authenticated` once, and `left` when it has ended."""

    __slots__ = ("_port", "accepted_s", "early", "peer", "since_s", "state", "transport")

    def __init__(self, port: Port) -> None:
        self._port = port
        self.state = GONE
        self.peer = ""
        self.accepted_s = self.since_s = 0.0
        self.early = b""
        self.transport: asyncio.Transport

    # -- for its protocol ---------------------------------------------------------------------------------------------

    @property
    def is_authenticated(self) -> bool:
        return self.state == AUTHENTICATED

    def waits(self) -> None:
        """For its peer, from now on."""
        self.since_s = self._port.clock.monotonic_s()

    def busy(self) -> None:
        """Its peer waits for an answer: its place is not reclaimed."""
        self.since_s = math.inf

    def authenticated(self, user: str = "", *, preferred: bool = False) -> bool:
        """False: the limit of connections is reached, and this one should be closed. `user`: who shares the limit with
        others; without one, no other is closed for it. `preferred`: never closed for others, who are closed for it."""
        return self.state == AUTHENTICATED or self._port.authenticate(self, user, preferred)

    def left(self) -> None:
        self._port.forget(self)

    # -- asyncio.BufferedProtocol, up to the handshake's end ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = address_of(transport.get_extra_info("peername"))
        self._port.accepted(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._port.first_bytes

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._port.first_bytes[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Called by name on loops whose transports do not support buffers."""
        self.early += data
        if self.state == SILENT:
            self.transport.pause_reading()
            self._port.spoke(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.left()


class _Peer:
    """The unauthenticated connections from one address, each kind in order of arrival."""

    __slots__ = ("queued", "silent", "strangers")

    def __init__(self) -> None:
        self.silent: dict[Incoming, None] = {}
        self.queued: dict[Incoming, None] = {}
        self.strangers: dict[Incoming, None] = {}


class Port:
    """`name`: the kind of client, for display. `factory` makes the protocol of a connection that gets a place.

    `wanted` applies if `descriptors` permit it; `limits` is in effect now."""

    def __init__(
        self,
        name: str,
        factory: Callable[[Incoming], asyncio.Protocol],
        limits: PortLimits,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.name = name
        self.wanted = self.limits = limits
        self.clock = clock
        self.first_bytes = memoryview(bytearray(FIRST_BYTES_MAX))
        self.ended: Counter[str] = Counter()
        """Connections closed or refused, by limit."""
        self.authenticated_count = self.strangers_count = 0
        self._factory = factory
        self._tls = tls
        self._descriptors = descriptors
        self._server: asyncio.Server | None = None
        self._peers: dict[str, _Peer] = {}
        self._users = Shares[Incoming](limits.connections_max)
        """Authenticated connections; those of preferred users count 0."""
        self._queued: dict[str, _Peer] = {}
        self._waiting: dict[Incoming, None] = {}
        self._handshakes: dict[asyncio.Task[None], Incoming] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ended_count = 0
        self._begins_tls = self._closed = False

    # -- beginning and end --------------------------------------------------------------------------------------------

    async def listen(self, host: str | None, port: int) -> None:
        """`port` 0: any free one, the same for all addresses of the host. Raises: OSError if it is taken."""
        server = await self._listen(host, port)
        given = {each.getsockname()[1] for each in server.sockets}
        if len(given) > 1:
            server.close()
            server = await self._listen(host, min(given))
        self._server = server
        if isinstance(server, asyncio.Server):
            for listener in server.sockets:
                _adjust(listener)
        if self._descriptors is not None:
            self._descriptors.add(self)
        if self._tls is not None:
            shrink_tls_buffers()

    async def _listen(self, host: str | None, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._tls is not None and not isinstance(loop, asyncio.SelectorEventLoop):
            # Another loop's TLS (uvloop's) cannot accept data already read: it begins with the acceptance, and a
            # connection counts from the end of its handshake.
            tls = {"ssl": self._tls, "ssl_handshake_timeout": self.limits.handshake_s}
        self._begins_tls = not tls and self._tls is not None
        return await loop.create_server(lambda: Incoming(self), host, port, backlog=ACCEPTED_PER_TURN, **tls)

    @property
    def waiting_count(self) -> int:
        """Connections that are not authenticated and have no protocol yet."""
        return len(self._waiting) + len(self._handshakes)

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "not listening"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def sockets(self) -> list[Any]:
        """Of the port itself, and of connections without a protocol yet."""
        waiting = [each.transport.get_extra_info("socket") for each in (*self._waiting, *self._handshakes.values())]
        return [*(self._server.sockets if self._server is not None else ()), *filter(None, waiting)]

    def stop_listening(self) -> None:
        """Accepts no more connections, and closes those without a protocol. The others belong to their owner."""
        if self._server is None or self._closed:
            return
        self._closed = True
        self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptors is not None:
            self._descriptors.remove(self)
        if self._tls is not None:
            restore_tls_buffers()
        for incoming in [*self._waiting, *self._handshakes.values()]:
            self._end(incoming, "")

    async def close(self) -> None:
        """As `stop_listening`, and waits for the handshakes that it aborted."""
        self.stop_listening()
        if self._handshakes:
            await asyncio.wait(list(self._handshakes))

    async def wait_closed(self) -> None:
        if self._server is not None:
            await self._server.wait_closed()

    # -- from acceptance to authentication ----------------------------------------------------------------------------

    def accepted(self, incoming: Incoming) -> None:
        limits = self.limits
        if self._closed:
            incoming.transport.abort()
            return
        peer = self._peers.setdefault(incoming.peer, _Peer())
        if len(peer.silent) + len(peer.queued) >= limits.waiting_per_peer_max:
            self._end(next(iter(peer.silent or peer.queued)), "waiting_per_peer_max")
        elif len(self._waiting) >= limits.waiting_max:
            self._end(next(iter(self._waiting)), "waiting_max")
        # The closed one may have been the peer's last.
        peer = self._peers.setdefault(incoming.peer, peer)
        incoming.state = SILENT
        incoming.accepted_s = incoming.since_s = self.clock.monotonic_s()
        self._waiting[incoming] = peer.silent[incoming] = None
        self._wake()

    def spoke(self, incoming: Incoming) -> None:
        """The first bytes of a connection have arrived."""
        peer = self._peers[incoming.peer]
        del peer.silent[incoming]
        incoming.state = QUEUED
        peer.queued[incoming] = None
        self._queued[incoming.peer] = peer
        self._serve()

    def _serve(self) -> None:
        """Gives free places to the address that has the fewest, to its newest connection first."""
        limits = self.limits
        while self._queued and self.strangers_count < limits.strangers_max and not self._closed:
            peer = min(self._queued.values(), key=lambda each: len(each.strangers))
            if len(peer.strangers) >= limits.strangers_per_peer_max:
                return
            incoming, _ = peer.queued.popitem()
            if not peer.queued:
                del self._queued[incoming.peer]
            del self._waiting[incoming]
            peer.strangers[incoming] = None
            self.strangers_count += 1
            incoming.state = STRANGER
            incoming.waits()
            self._begin(incoming)

    def _begin(self, incoming: Incoming) -> None:
        if not self._begins_tls or self._tls is None:
            self._open(incoming, incoming.transport)
            return
        task = asyncio.get_running_loop().create_task(self._handshake(incoming, self._tls))
        self._handshakes[task] = incoming
        task.add_done_callback(self._handshakes.pop)

    async def _handshake(self, incoming: Incoming, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        raw, transport = incoming.transport, None
        try:
            if incoming.state == STRANGER:
                # Data already read is delivered after `start_tls` has given its protocol the transport, one turn later,
                # and before the transport reads more.
                loop.call_soon(loop.call_soon, self._feed, incoming)
                transport = await loop.start_tls(
                    raw,
                    incoming,
                    tls,
                    server_side=True,
                    ssl_handshake_timeout=self.limits.handshake_s,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
        except (Exception, asyncio.CancelledError) as error:
            # Its traceback refers to the holder of the error: a cycle around the TLS buffers, which only a full
            # collection frees, and those are rare (store.collector).
            error.__traceback__ = None
            log.debug("TLS handshake error from %s: %s", incoming.peer, error)
        if transport is not None and not transport.is_closing():
            self._open(incoming, transport)
        else:
            self.ended["handshake"] += 1
            raw.abort()
            self.forget(incoming)

    def _feed(self, incoming: Incoming) -> None:
        early, incoming.early = incoming.early, b""
        protocol = incoming.transport.get_protocol()
        if isinstance(protocol, asyncio.BufferedProtocol) and protocol is not incoming:
            memoryview(protocol.get_buffer(len(early)))[: len(early)] = early
            protocol.buffer_updated(len(early))
        incoming.waits()

    def _open(self, incoming: Incoming, transport: asyncio.Transport) -> None:
        incoming.waits()
        protocol = self._factory(incoming)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        early, incoming.early = incoming.early, b""
        if not transport.is_closing():
            transport.resume_reading()
            if early:
                protocol.data_received(early)

    def authenticate(self, incoming: Incoming, user: str, preferred: bool) -> bool:
        if incoming.state != STRANGER:
            return False
        if self.authenticated_count >= self.limits.connections_max and not (user and self._make_room(user, preferred)):
            self.ended["connections_max"] += 1
            return False
        self._release(incoming)
        incoming.state = AUTHENTICATED
        self.authenticated_count += 1
        self._users.hold(incoming, user, 0 if preferred else 1)
        self._serve()
        return True

    def _make_room(self, user: str, preferred: bool) -> bool:
        """Closes the connection that has waited longest for its client, of the user who has most."""
        most, own = self._users.most(), 0 if preferred else self._users.of(user)
        # With less between them, two users would take the same place from each other in turns.
        if self._users.of(most) <= own + (not preferred):
            return False
        self._end(min(self._users.holders(most), key=lambda each: each.since_s), "connections_max")
        return True

    def forget(self, incoming: Incoming) -> None:
        """It has ended. May be called again."""
        state, incoming.early = incoming.state, b""
        if state == GONE:
            return
        if state == AUTHENTICATED:
            self.authenticated_count -= 1
            self._users.let_go(incoming)
        else:
            self._release(incoming)
        incoming.state = GONE
        self._ended_count += 1
        if self._ended_count >= ENDED_PER_TRIM:
            self._wake()
        if state == STRANGER:
            self._serve()

    def _release(self, incoming: Incoming) -> None:
        """It is no longer unauthenticated."""
        peer = self._peers[incoming.peer]
        if incoming.state == STRANGER:
            del peer.strangers[incoming]
            self.strangers_count -= 1
        else:
            del self._waiting[incoming]
            del (peer.silent if incoming.state == SILENT else peer.queued)[incoming]
            if not peer.queued:
                self._queued.pop(incoming.peer, None)
        if not (peer.silent or peer.queued or peer.strangers):
            del self._peers[incoming.peer]

    def _end(self, incoming: Incoming, limit: str) -> None:
        if limit:
            self.ended[limit] += 1
        self.forget(incoming)
        incoming.transport.abort()

    # -- deadlines ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.sweep(self.clock.monotonic_s())
        if self._ended_count >= ENDED_PER_TRIM:
            self._ended_count = 0
            if self._tls is not None:
                asyncio.get_running_loop().run_in_executor(None, give_back)
        if self._peers:
            self._wake()

    def sweep(self, now_s: float) -> None:
        """Closes connections that have waited too long, and reclaims places for queued ones."""
        limits = self.limits
        for incoming in list(self._waiting):
            if incoming.accepted_s > now_s - limits.handshake_s:
                break
            self._end(incoming, "handshake_s")
        for peer in list(self._peers.values()):
            late = [each for each in peer.strangers if each.accepted_s <= now_s - limits.proof_s]
            for incoming in late:
                self._end(incoming, "proof_s")
        self._take_back(now_s - limits.patience_s)

    def _take_back(self, since_s: float) -> None:
        for peer in list(self._queued.values()):
            # If the address has places to give up, those; else the oldest of all, one for each in turn.
            held = list(peer.strangers)
            if self.strangers_count >= self.limits.strangers_max and len(held) < self.limits.strangers_per_peer_max:
                held = [each for other in self._peers.values() for each in other.strangers]
            held = sorted((each for each in held if each.since_s <= since_s), key=lambda each: each.since_s)
            for incoming in held[: len(peer.queued)]:
                self._end(incoming, "strangers_per_peer_max")
        self._serve()

    def metrics(self) -> dict[str, float]:
        """Gauges and counters, by suffix of their Prometheus name."""
        found: dict[str, float] = {
            "connections_authenticated": self.authenticated_count,
            "connections_unauthenticated": self.strangers_count,
            "connections_waiting": len(self._waiting),
        }
        return found | {f'connections_ended_total{{reason="{why}"}}': count for why, count in self.ended.items()}


def _adjust(listener: Any) -> None:
    """Options set here apply to accepted connections."""
    with listener.dup() as same:
        same.listen(BACKLOG)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        with contextlib.suppress(AttributeError, OSError):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), _KEEPALIVE_S)


def address_of(peername: Any) -> str:
    """The address under which connections are counted: an IPv4 address, or the /64 network that one IPv6 host usually
    has."""
    host = str(peername[0]) if isinstance(peername, tuple) and peername else ""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
