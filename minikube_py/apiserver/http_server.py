"""The API server over HTTPS: accepts connections, and holds their number, their memory and their patience.

A peer has few connections on which nobody has said who they are: further ones wait, as bare sockets, for their turn.
Deadlines are looked at once a second, by the core's clock; a timer for each would cost each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections import Counter, deque
from typing import Final

from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.http import ANSWER, BODY, HEADS, IDLE, LINGER, Connection
from minikube_py.apiserver.limits import within_descriptors
from minikube_py.apiserver.memory import give_back, restore_tls_buffers, shrink_tls_buffers
from minikube_py.apiserver.workers import Workers

log = logging.getLogger(__name__)
SHUTDOWN_TIMEOUT_S: Final = 2.0
LINGER_S: Final = 0.5
"""As Go's net/http: how long a connection that is given up still takes what it is sent."""
BACKLOG: Final = 1024
RECEIVE_BUFFER_BYTES: Final = 128 << 10
"""The kernel's, for each connection: what a peer can send that nobody has asked for."""
_SWEEP_S: Final = 1.0
ENDED_PER_TRIM: Final = 64
"""After so many connections have ended, their memory is given back to the system."""
_NO_DESCRIPTOR_S: Final = 0.1
_KEEPALIVE_S: Final = 15
"""As Go's net: after how long a silent peer is asked whether it is still there, and how often."""


class HttpServer:
    """Serves `core` on `host:port` (0: any free one) with the given TLS context; without one in the clear.

    `await start()` returns the port. `await stop()` ends the connections; the core is stopped by its owner, before."""

    def __init__(
        self, core: ApiServer, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.core = core
        self.limits = within_descriptors(core.limits)
        self.stopping = False
        self._clock = core.clock
        self._host = host
        self._port = port
        self._tls = tls
        self._listeners: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._connections: dict[Connection, None] = {}
        self._waiting: dict[str, deque[tuple[socket.socket, float]]] = {}
        self._waiting_count = 0
        self._strangers: Counter[str] = Counter()
        self._phases: dict[int, dict[Connection, float]] = {phase: {} for phase in (IDLE, HEADS, BODY, LINGER)}
        self._stalled: dict[Connection, float] = {}
        self._heads_bytes = 0
        self._bodies_bytes = 0
        self._ended = 0
        self._shrunk = False
        self._workers: Workers | None = None
        self.refused: Counter[str] = Counter()
        core.connection_metrics = self.metrics

    async def start(self) -> int:
        """Raises: OSError where the address is taken."""
        # Here are others who would wait: large requests are worked on elsewhere.
        self._workers = Workers(self.limits)
        self.core.hand_work_to(self._workers)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in dict.fromkeys(found):
            listener = _listener(family, (str(address[0]), self._port or int(address[1])))
            self._listeners.append(listener)
            self._port = listener.getsockname()[1]
            self._tasks.append(loop.create_task(self._accept_forever(listener)))
        self._tasks.append(loop.create_task(self._sweep_forever()))
        # Last, as nothing fails after it: `stop` undoes it.
        shrink_tls_buffers()
        self._shrunk = True
        return self._port

    async def stop(self) -> None:
        self.stopping = True
        for task in [*self._tasks, *self._handshakes]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._handshakes, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        for queue in self._waiting.values():
            for sock, _ in queue:
                sock.close()
        self._waiting.clear()
        busy = [each.task for each in self._connections if each.task is not None]
        if busy:
            await asyncio.wait(busy, timeout=SHUTDOWN_TIMEOUT_S)
        for connection in list(self._connections):
            # A TLS peer that does not answer the goodbye would hold the connection, and with it the process.
            connection.transport.abort()
        if self._shrunk:
            self._shrunk = False
            restore_tls_buffers()
        if self._workers is not None:
            self._workers.close()
        await asyncio.sleep(0)
        await asyncio.gather(*(task for task in busy if not task.done()), return_exceptions=True)

    def abandon(self) -> None:
        """In a process that was forked off this one: it lets go of the sockets, which stay its parent's alone."""
        connected = (each.transport.get_extra_info("socket") for each in self._connections)
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for sock in (*self._listeners, *filter(None, connected)):
            if sock.fileno() >= 0:
                # Not closed: whoever closes the object later would close another file of that number.
                os.dup2(nothing, sock.fileno(), inheritable=False)
        os.close(nothing)

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {
            "apiserver_connections": len(self._connections),
            "apiserver_connections_waiting": self._waiting_count + len(self._handshakes),
            "apiserver_bodies_in_flight_bytes": self._bodies_bytes,
            "apiserver_unfinished_heads_bytes": self._heads_bytes,
        }
        for reason, count in self.refused.items():
            found[f'apiserver_connections_ended_total{{reason="{reason}"}}'] = count
        return found | (self._workers.metrics() if self._workers is not None else {})

    # --- new connections --------------------------------------------------------------------------------------------

    async def _accept_forever(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                await self._clock.sleep(_NO_DESCRIPTOR_S)
                continue
            peer = str(address[0])
            held = len(self._connections) + len(self._handshakes) + self._waiting_count
            if held >= self.limits.connections_max:
                self.refused["connections_max"] += 1
                sock.close()
            elif self._strangers[peer] < self.limits.strangers_per_peer_max:
                self._begin(sock, peer)
            elif why := self._too_many_wait(peer):
                self.refused[why] += 1
                sock.close()
            else:
                self._waiting.setdefault(peer, deque()).append((sock, self._clock.monotonic_s()))
                self._waiting_count += 1
                self._make_room(peer)

    def _too_many_wait(self, peer: str) -> str:
        """The limit that is met, if any."""
        if len(self._waiting.get(peer, ())) >= self.limits.waiting_per_peer_max:
            return "waiting_per_peer_max"
        return "waiting_max" if self._waiting_count >= self.limits.waiting_max else ""

    def _begin(self, sock: socket.socket, peer: str) -> None:
        self._strangers[peer] += 1
        task = asyncio.get_running_loop().create_task(self._connect(sock, peer))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _connect(self, sock: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        tls = self._tls
        connection = Connection(self, peer)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=tls,
                ssl_handshake_timeout=self.limits.header_timeout_s if tls is not None else None,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S if tls is not None else None,
            )
        except (OSError, TimeoutError) as error:
            self.refused["handshake"] += 1
            log.debug("TLS handshake error from %s: %s", peer, error)
        finally:
            if connection not in self._connections and not hasattr(connection, "transport"):
                sock.close()
                self._stranger_left(peer)

    def _make_room(self, peer: str) -> None:
        """Others of this peer wait: a connection that only rests, and has named nobody, is closed for them."""
        for connection in self._phases[IDLE]:
            if connection.peer == peer and not connection.proven:
                connection.transport.close()
                self.refused["strangers_per_peer_max"] += 1
                return

    def _stranger_left(self, peer: str) -> None:
        self._strangers[peer] -= 1
        queue = self._waiting.get(peer)
        if queue and not self.stopping:
            sock, _ = queue.popleft()
            self._waiting_count -= 1
            if not queue:
                del self._waiting[peer]
            self._begin(sock, peer)
        elif not self._strangers[peer]:
            del self._strangers[peer]

    # --- what connections tell --------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._connections[connection] = None
        self.enter(connection, HEADS)

    def lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._ended += 1
        self._phases.get(connection.phase, {}).pop(connection, None)
        self._stalled.pop(connection, None)
        self.head_read(connection)
        if not connection.proven:
            self._stranger_left(connection.peer)

    def proved(self, connection: Connection) -> None:
        if not connection.proven:
            connection.proven = True
            self._stranger_left(connection.peer)

    def enter(self, connection: Connection, phase: int) -> None:
        """What the connection waits for now, and since when."""
        if connection.phase != ANSWER:
            self._phases[connection.phase].pop(connection, None)
        connection.phase = phase
        if phase != ANSWER and connection in self._connections:
            self._phases[phase][connection] = self._clock.monotonic_s()

    def head_grows(self, connection: Connection) -> None:
        """Part of a head has come. All unfinished heads together are bounded too."""
        if connection.phase == IDLE:
            self.enter(connection, HEADS)
        size = connection.reader.buffered_bytes
        self._heads_bytes += size - connection.head_bytes
        connection.head_bytes = size
        if self._heads_bytes > self.limits.heads_bytes_max:
            self.refused["heads_bytes_max"] += 1
            connection.transport.abort()

    def head_read(self, connection: Connection) -> None:
        self._heads_bytes -= connection.head_bytes
        connection.head_bytes = 0

    def hold(self, size_bytes: int) -> bool:
        """Whether so much more of bodies may be held."""
        if self._bodies_bytes + size_bytes > self.limits.bodies_bytes_max:
            return False
        self._bodies_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        self._bodies_bytes -= size_bytes

    def stalled(self, connection: Connection) -> None:
        self._stalled[connection] = self._clock.monotonic_s()

    def moving(self, connection: Connection) -> None:
        self._stalled.pop(connection, None)

    # --- deadlines --------------------------------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            self.sweep(self._clock.monotonic_s())
            if self._ended >= ENDED_PER_TRIM:
                self._ended = 0
                await asyncio.to_thread(give_back)

    def sweep(self, now_s: float) -> None:
        """Ends what has waited too long. Within a phase the oldest come first."""
        limits = self.limits
        for connection in self._late(IDLE, now_s - limits.idle_timeout_s):
            self._end(connection, "idle_timeout_s")
        for connection in self._late(HEADS, now_s - limits.header_timeout_s):
            self._end(connection, "header_timeout_s")
        for connection in self._late(LINGER, now_s - LINGER_S):
            connection.transport.abort()
        for connection in self._late(BODY, now_s - limits.body_timeout_s):
            self.refused["body_timeout_s"] += 1
            connection.body_is_late(limits.body_timeout_s)
        for connection, since_s in list(self._stalled.items()):
            if since_s > now_s - limits.write_timeout_s:
                break
            left = connection.transport.get_write_buffer_size()
            if left < connection.stalled_bytes:
                connection.stalled_bytes = left
                del self._stalled[connection]
                self._stalled[connection] = now_s
            else:
                self._end(connection, "write_timeout_s")
        for peer, queue in list(self._waiting.items()):
            while queue and queue[0][1] <= now_s - limits.header_timeout_s:
                queue.popleft()[0].close()
                self._waiting_count -= 1
                self.refused["strangers_per_peer_max"] += 1
            if not queue:
                del self._waiting[peer]

    def _late(self, phase: int, since_s: float) -> list[Connection]:
        late: list[Connection] = []
        for connection, entered_s in self._phases[phase].items():
            if entered_s > since_s:
                break
            late.append(connection)
        return late

    def _end(self, connection: Connection, reason: str) -> None:
        self.refused[reason] += 1
        self._stalled.pop(connection, None)
        if connection.transport.get_write_buffer_size():
            connection.transport.abort()
        else:
            connection.transport.close()


def _listener(family: int, address: tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # What is set here holds for the connections that are accepted.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            with contextlib.suppress(AttributeError, OSError):
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), _KEEPALIVE_S)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
