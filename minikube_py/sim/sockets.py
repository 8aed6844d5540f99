"""The two ends of a simulated connection, and the pipes between them.

A `Pipe` is one direction on the wire: segments in order, each with its time of arrival. A `SimTransport` is an end's
socket and asyncio transport in one: `write` puts data on the wire as the window allows and buffers the rest; incoming
data is buffered until the process reads. The calls of the protocol follow asyncio's selector transports."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from minikube_py.sim.loop import Killed
from minikube_py.store.embedded import settle

if TYPE_CHECKING:
    from minikube_py.sim.loop import SimLoop
    from minikube_py.sim.network import Link, Network

Address = tuple[str, int]
READ_BYTES_MAX = 256 << 10
HIGH_WATER_BYTES = 64 << 10
PIECES_MAX = 4


class Kind(IntEnum):
    """Control segments. ACK: this many bytes were read, for a sender whose window was full."""

    SYN = 0
    SYN_ACK = 1
    ACK = 2
    FIN = 3
    RST = 4


class Segment(NamedTuple):
    """A control segment; data is sent as its bytes."""

    kind: Kind
    size_bytes: int = 0


class Pipe:
    """One direction of a connection. Arrivals on a clogged link or at a dark host wait in `held`."""

    __slots__ = ("arrived_ns", "connection", "held", "held_since_ns", "link", "number", "releasing", "to")

    def __init__(self, connection: Connection, link: Link, to: str, number: int) -> None:
        self.connection = connection
        self.link = link
        self.to = to
        self.number = number
        self.held: deque[Segment | bytes] = deque()
        self.held_since_ns = -1
        self.arrived_ns = 0
        self.releasing = False
        link.pipes[number] = self

    def send(self, segment: Segment | bytes) -> None:
        network = self.connection.network
        network.segments += 1
        size = len(segment) if type(segment) is bytes else 0
        network.bytes += size
        arrived_ns = network.arrival_ns(self.link, size)
        if arrived_ns > self.arrived_ns:
            self.arrived_ns = arrived_ns
        network.scheduler.at(self.arrived_ns, self._arrive, segment)

    def _arrive(self, segment: Segment | bytes) -> None:
        connection, link = self.connection, self.link
        if connection.over:
            return
        if self.held or link.clogs or link.destination in connection.network.off:
            self.held.append(segment)
            if self.held_since_ns < 0:
                self._begin_to_hold()
            return
        connection.end(self.to).arrived(segment)

    def _begin_to_hold(self) -> None:
        scheduler = self.connection.network.scheduler
        self.held_since_ns = scheduler.now_ns
        scheduler.after(self.link.quality.give_up_s, self._give_up, self.held_since_ns)

    def _give_up(self, since_ns: int) -> None:
        """The sender's kernel got no acknowledgement for too long. The other end is not notified."""
        if self.held_since_ns == since_ns and not self.connection.over:
            error = TimeoutError(errno.ETIMEDOUT, "the connection timed out")
            self.connection.end("server" if self.to == "client" else "client").broken(error)

    def release_soon(self) -> None:
        if self.held and not self.releasing:
            self.releasing = True
            network = self.connection.network
            network.scheduler.at(network.arrival_ns(self.link, 0), self._release)

    def _release(self, _: None) -> None:
        self.releasing = False
        if self.connection.over or self.link.clogs or self.link.destination in self.connection.network.off:
            return
        self.held_since_ns = -1
        held, self.held = self.held, deque()
        for segment in held:
            if not self.connection.over:
                self.connection.end(self.to).arrived(segment)


class Connection:
    """Two ends and two pipes. `over` when neither end is open any more."""

    def __init__(self, network: Network, loop: SimLoop, source: Address, target: Address) -> None:
        self.network = network
        self.over = False
        self.number = network.scheduler.next_number()
        there = network.link(source[0], target[0])
        back = network.link(target[0], source[0])
        self.server: SimTransport | None = None
        self.client = SimTransport(self, loop, source, target, Pipe(self, there, "server", self.number))
        self._back = Pipe(self, back, "client", -self.number)
        self._vanished: SimTransport | None = None
        network.connections[self.number] = self

    def end(self, name: str) -> SimTransport:
        if name == "client":
            return self.client
        if self.server is None:
            # Not accepted yet: the kernel answers, whether or not a process listens there.
            if self._vanished is None:
                self._vanished = SimTransport(self, None, self.client.peer, self.client.own, self._back)
            return self._vanished
        return self.server

    def accept(self) -> None:
        """A SYN reached the target."""
        network, target = self.network, self.client.peer
        server = network.listener(target)
        if server is None or self._back.link.cut or self.client.out.link.cut:
            self._back.send(Segment(Kind.RST))
            return
        self.server = SimTransport(self, server.loop, target, self.client.own, self._back)
        self._back.send(Segment(Kind.SYN_ACK))
        self.server.open = True
        server.loop.call_soon(self.server.accepted, server)

    def reset(self) -> None:
        """Both ends learn now that the connection is broken."""
        error = ConnectionResetError(errno.ECONNRESET, "the connection was reset by the peer")
        for each in (self.client, self.server):
            if each is not None:
                each.broken(error)
        self._finish()

    def drop(self, loop: SimLoop, *, silently: bool) -> None:
        """A process ended. Its kernel sends a random part of the buffered data, then a reset or FIN."""
        for each in (self.client, self.server):
            if each is not None and each.loop is loop and each.open:
                each.vanish()
                if not silently:
                    kind = Kind.RST if self.network.rng.random() < 0.5 or each.unread else Kind.FIN
                    each.out.send(Segment(kind))
        self.finish_if_closed()

    def finish_if_closed(self) -> None:
        """No end is left to be notified."""
        if not self.client.open and (self.server is None or not self.server.open) and not self.client.connecting:
            self._finish()

    def _finish(self) -> None:
        self.over = True
        self.network.connections.pop(self.number, None)
        self.client.out.link.pipes.pop(self.client.out.number, None)
        self._back.link.pipes.pop(self._back.number, None)


class SimTransport(asyncio.Transport):
    """One end. `open`: its socket is open; `unread`: it has bytes that will never be read."""

    def __init__(self, connection: Connection, loop: SimLoop | None, own: Address, peer: Address, out: Pipe) -> None:
        super().__init__({"peername": peer, "sockname": own})
        self.connection = connection
        self.loop = loop
        self.own = own
        self.peer = peer
        self.out = out
        self.open = False
        self.connecting = False
        self._protocol: asyncio.Protocol | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._closing = False
        self._lost = False
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self._in_flight = 0
        self._blocked = False
        self._eof = False
        self._fin_sent = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._protocol_paused = False
        self._received: deque[bytes] = deque()
        self._reading = True
        self._read_due = False
        self._fin_came = False
        self._eof_told = False
        self._error: OSError | None = None

    # -- beginnings ---------------------------------------------------------------------------------------------------

    async def establish(self) -> None:
        """Raises: ConnectionRefusedError, TimeoutError."""
        assert self.loop is not None
        network = self.connection.network
        self.connecting = True
        self._waiter = self.loop.create_future()
        self.out.send(Segment(Kind.SYN))
        network.scheduler.after(self.out.link.quality.connect_timeout_s, self._connect_timed_out)
        try:
            await self._waiter
        except BaseException:
            self.connecting = False
            if self.open:
                self.vanish()
                self.out.send(Segment(Kind.RST))
            self.connection.finish_if_closed()
            raise
        finally:
            self._waiter = None

    def _connect_timed_out(self, _: None) -> None:
        where = f"{self.peer[0]}:{self.peer[1]}"
        self._connected(TimeoutError(errno.ETIMEDOUT, f"no answer from {where} to the connect call"))

    def _connected(self, error: OSError | None) -> None:
        if not self.connecting:
            return
        self.connecting = False
        self.open = error is None
        if self.loop is not None and self._waiter is not None:
            self.loop.call_soon(settle, self._waiter, None, error)

    def attach(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._read_soon()

    def accepted(self, server: SimServer) -> None:
        """The listening process accepts the connection."""
        if not self.open:
            return
        self.attach(server.factory())

    # -- arrivals (in the kernel: the process may be stopped) ---------------------------------------------------------

    def arrived(self, segment: Segment | bytes) -> None:
        if type(segment) is bytes:
            if not self.open:
                self._refuse()
                return
            self._received.append(segment)
            self._read_soon()
            return
        assert type(segment) is Segment
        kind = segment.kind
        if kind == Kind.ACK:
            self._in_flight -= segment.size_bytes
            if self.open and self._blocked and self.loop is not None:
                self.loop.call_soon(self._write_ready)
        elif kind == Kind.SYN:
            self.connection.accept()
        elif kind == Kind.SYN_ACK:
            if self.connecting:
                self._connected(None)
            elif not self.open:
                self._refuse()
        elif self.connecting:
            where = f"{self.peer[0]}:{self.peer[1]}"
            self._connected(ConnectionRefusedError(errno.ECONNREFUSED, f"{where} refused the connection"))
            self.connection.finish_if_closed()
        elif kind == Kind.RST:
            self.broken(ConnectionResetError(errno.ECONNRESET, "the connection was reset by the peer"))
        elif self.open:
            self._fin_came = True
            self._read_soon()

    def _refuse(self) -> None:
        """Bytes for a closed socket."""
        self.out.send(Segment(Kind.RST))

    def broken(self, error: OSError) -> None:
        """The kernel has given the connection up. An end that neither reads nor has bytes to write does not notice."""
        if self.connecting:
            self._connected(error)
        elif self.open and self._error is None:
            self._error = error
            self._read_soon()
            if self._buffer and self.loop is not None:
                self.loop.call_soon(self._write_ready)

    def vanish(self) -> None:
        """The socket is closed with its process."""
        self.open = False
        self._buffer.clear()
        self._buffer_bytes = 0

    @property
    def unread(self) -> bool:
        return bool(self._received)

    def _read_soon(self) -> None:
        if self._read_due or self._protocol is None or self.loop is None:
            return
        if self._reading and not self._closing and not self._eof_told:
            self._read_due = True
            self.loop.call_soon(self._read_ready)

    # -- received by the process --------------------------------------------------------------------------------------

    def _read_ready(self) -> None:
        self._read_due = False
        if self._protocol is None or not self._reading or self._closing or self._eof_told:
            return
        if self._received:
            data = self._take()
            self._acknowledge(len(data))
            self._protocol.data_received(data)
            if self._received or self._fin_came or self._error is not None:
                self._read_soon()
        elif self._error is not None:
            self._fatal(self._error)
        elif self._fin_came:
            self._eof_told = True
            if not self._protocol.eof_received():
                self.close()

    def _take(self) -> bytes:
        """Returns the received data in one piece, as recv does, up to a bound."""
        received = self._received
        if len(received) == 1:
            return received.popleft()
        parts: list[bytes] = []
        size = 0
        while received and size < READ_BYTES_MAX:
            parts.append(received.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def _acknowledge(self, size_bytes: int) -> None:
        connection = self.connection
        sender = connection.server if self is connection.client else connection.client
        if sender is None or connection.over:
            return
        if sender._blocked or self.out.link.clogs:
            self.out.send(Segment(Kind.ACK, size_bytes))
        else:
            sender._in_flight -= size_bytes

    def _fatal(self, error: Exception | None) -> None:
        """asyncio's `_force_close`: drops the write buffer; `connection_lost` is called soon."""
        if self._lost or (self.loop is not None and self.loop.dead):
            return
        self._lost = True
        self._closing = True
        self._buffer.clear()
        self._buffer_bytes = 0
        if self.loop is not None:
            self.loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)
        self._close_socket()

    def _close_socket(self) -> None:
        if not self.open:
            return
        self.open = False
        if self._error is None and not self.connection.over:
            if self._received:
                self.out.send(Segment(Kind.RST))
            elif not self._fin_sent:
                self._fin_sent = True
                self.out.send(Segment(Kind.FIN))
        self._received.clear()
        self.connection.finish_if_closed()

    # -- sending ------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Sends what the window permits."""
        buffer = self._buffer
        window_bytes = self.out.link.quality.window_bytes
        self._blocked = False
        while buffer:
            room = window_bytes - self._in_flight
            if room <= 0:
                self._blocked = True
                return
            data = buffer[0]
            if len(data) > room:
                buffer[0] = data[room:]
                data = data[:room]
            else:
                buffer.popleft()
            self._buffer_bytes -= len(data)
            self._in_flight += len(data)
            self._send_in_pieces(data)
        if self._eof and not self._fin_sent:
            self._fin_sent = True
            self.out.send(Segment(Kind.FIN))

    def _send_in_pieces(self, data: bytes) -> None:
        out = self.out
        random, split = self.connection.network.rng.random, out.link.quality.split
        pieces = 1
        while pieces < PIECES_MAX and random() < split:
            at = int(random() * len(data))
            if at:
                out.send(data[:at])
                data = data[at:]
            pieces += 1
        out.send(data)

    def _write_ready(self) -> None:
        """The window opened, or never will again."""
        if self._lost or not self._buffer:
            return
        if self._error is not None:
            self._fatal(self._error)
            return
        self._pump()
        if self._protocol_paused and self._buffer_bytes <= self._low:
            self._protocol_paused = False
            if self._protocol is not None:
                self._protocol.resume_writing()
        if self._closing and not self._buffer:
            self._fatal(None)

    def _check_alive(self) -> None:
        if self.loop is not None and self.loop.dead:
            raise Killed(f"{self.loop.name} is dead")

    # -- asyncio.Transport --------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
            data = bytes(data)
        self._check_alive()
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._lost:
            return
        if self._error is not None:
            # As send on a reset socket does.
            self._fatal(self._error)
            return
        self._buffer.append(data)
        self._buffer_bytes += len(data)
        self._pump()
        if self._buffer_bytes > self._high and not self._protocol_paused and self._protocol is not None:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        self._check_alive()
        if self._closing or self._eof:
            return
        self._eof = True
        self._pump()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self.is_closing():
            return
        self._closing = True
        if not self._buffer:
            self._fatal(None)

    def abort(self) -> None:
        self._fatal(None)

    def is_closing(self) -> bool:
        # A dead process's sockets are closed; the cleanup of its frames (`StreamWriter.__del__`) calls this.
        return self._closing or (self.loop is not None and self.loop.dead)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        if not self._closing:
            self._reading = False

    def resume_reading(self) -> None:
        if not self._closing and not self._reading:
            self._reading = True
            if self._received or self._fin_came or self._error is not None:
                self._read_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)


class SimServer:
    """A listening socket. Raises: OSError if the port is taken."""

    def __init__(self, network: Network, loop: SimLoop, factory: Callable[[], Any], host: str, port: int) -> None:
        self._network = network
        self.loop = loop
        self.factory = factory
        self.host = host
        self.port = port or network.free_port(loop.host)
        self._serving = True
        network.listen(self)

    @property
    def sockets(self) -> tuple[BoundSocket, ...]:
        return (BoundSocket((self.host, self.port)),) if self._serving else ()

    def close(self) -> None:
        """Accepts no more connections; existing ones continue."""
        self._serving = False
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """Returns at once, as in Python 3.11."""


class BoundSocket(NamedTuple):
    address: Address

    def getsockname(self) -> Address:
        return self.address
