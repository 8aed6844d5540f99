"""The API server over HTTPS: the listener, and memory limits and deadlines of connections.

Deadlines are checked once a second, which is cheaper than a timer each.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from minikube_py.api.errors import too_many_requests
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.http import ANSWER, BODY, HEADS, IDLE, LINGER, UPGRADED, Connection
from minikube_py.apiserver.http_bytes import Packer
from minikube_py.apiserver.workers import Workers
from minikube_py.ports.descriptors import PROCESS, PortLimits
from minikube_py.ports.port import SHUTDOWN_TIMEOUT_S, Port
from minikube_py.ports.shares import Shares

LINGER_S: Final = 0.5
"""As Go's net/http: how long a closing connection keeps reading."""
_SWEEP_S: Final = 1.0


class HttpServer:
    """Serves `core` on `host:port` (0: any free one) with the given TLS context; without one, plain HTTP.

    `await start()` returns the port. `await stop()` closes connections; the owner stops the core first."""

    def __init__(
        self, core: ApiServer, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.core = core
        self.limits = limits = core.limits
        self.stopping = False
        self.grace_s = SHUTDOWN_TIMEOUT_S
        """For requests in flight when it stops."""
        self._clock = core.clock
        self._host = host
        self._wanted_port = port
        wanted = PortLimits(
            limits.connections_max,
            limits.waiting_max,
            limits.waiting_per_peer_max,
            limits.strangers_max,
            limits.strangers_per_peer_max,
            handshake_s=limits.header_timeout_s,
            patience_s=limits.stranger_patience_s,
        )
        self.port = Port("API clients", partial(Connection, self), wanted, core.clock, tls=tls, descriptors=PROCESS)
        self._sweeping: asyncio.Task[None] | None = None
        self._connections: dict[Connection, None] = {}
        self._phases: dict[int, dict[Connection, float]] = {
            phase: {} for phase in (IDLE, HEADS, BODY, LINGER, UPGRADED)
        }
        self._stalled: dict[Connection, float] = {}
        self._heads_bytes = 0
        self.bodies = Shares[Connection](limits.bodies_bytes_max)
        self.unsent = Shares[Connection](limits.unsent_bytes_max)
        self._workers: Workers | None = None
        self.refused: Counter[str] = Counter()
        self._packing: ThreadPoolExecutor | None = None
        core.connection_metrics = self.metrics

    async def start(self) -> int:
        """Raises: OSError where the address is taken."""
        # Other clients would wait, so large requests go to workers.
        self._workers = Workers(self.limits)
        self.core.hand_work_to(self._workers)
        await self.port.listen(self._host or None, self._wanted_port)
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep_forever())
        return self.port.address[1]

    async def stop(self) -> None:
        self.stopping = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self.port.close()
        busy = [each.task for each in self._connections if each.task is not None]
        if busy:
            await asyncio.wait(busy, timeout=self.grace_s)
        for connection in list(self._connections):
            # A TLS peer that ignores close_notify would block the connection and the process.
            connection.transport.abort()
        if self._workers is not None:
            self._workers.close()
        if self._packing is not None:
            self._packing.shutdown(wait=False)
        await asyncio.sleep(0)
        await asyncio.gather(*(task for task in busy if not task.done()), return_exceptions=True)

    def abandon(self) -> None:
        """In a forked child: detaches the sockets, which belong to the parent."""
        connected = (each.transport.get_extra_info("socket") for each in self._connections)
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for sock in (*self.port.sockets(), *filter(None, connected)):
            if sock.fileno() >= 0:
                # Not closed: closing the object later could close a reused descriptor.
                os.dup2(nothing, sock.fileno(), inheritable=False)
        os.close(nothing)

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {
            "apiserver_connections": len(self._connections),
            "apiserver_connections_waiting": self.port.waiting_count,
            "apiserver_bodies_in_flight_bytes": self.bodies.total,
            "apiserver_unfinished_heads_bytes": self._heads_bytes,
            "apiserver_unsent_answers_bytes": self.unsent.total,
        }
        for reason, count in (self.refused + self.port.ended).items():
            found[f'apiserver_connections_ended_total{{reason="{reason}"}}'] = count
        return found | (self._workers.metrics() if self._workers is not None else {})

    async def pack(self, packer: Packer, data: bytes, last: bool) -> bytes:
        """In a separate thread, so that an in-process store's syncs do not queue behind it."""
        if self._packing is None:
            self._packing = ThreadPoolExecutor(1, "packing")
        return await asyncio.get_running_loop().run_in_executor(self._packing, packer.pack, data, last)

    # --- calls from connections --------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._connections[connection] = None
        self.enter(connection, HEADS)

    def lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._phases.get(connection.phase, {}).pop(connection, None)
        self._stalled.pop(connection, None)
        self.unsent.let_go(connection)
        self.bodies.let_go(connection)
        self.head_read(connection)
        connection.incoming.left()

    def enter(self, connection: Connection, phase: int) -> None:
        """What the connection waits for now, and since when."""
        if connection.phase != ANSWER:
            self._phases[connection.phase].pop(connection, None)
        connection.phase = phase
        (connection.incoming.waits if phase in (IDLE, HEADS) else connection.incoming.busy)()
        if phase != ANSWER and connection in self._connections:
            self._phases[phase][connection] = self._clock.monotonic_s()

    def head_grows(self, connection: Connection) -> None:
        """Part of a head was received. The total of unfinished heads is bounded too."""
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

    def receives(self, connection: Connection, size_bytes: int) -> None:
        """It has this much of a body. Raises: StatusError 429 if that is too much of all bodies, and its user's."""
        self.bodies.hold(connection, connection.user, size_bytes)
        while (loser := self.bodies.loser()) is not None:
            self.bodies.let_go(loser)
            self.refused["bodies_bytes_max"] += 1
            message = (
                f"too many requests: the bodies being received reach {self.bodies.limit} bytes, which is the limit; "
                "please try again later"
            )
            error = too_many_requests(message, 1)
            if loser is connection:
                raise error
            loser.refuse_body(error)

    def stalled(self, connection: Connection) -> None:
        """Its client reads more slowly than it is written to."""
        if connection not in self._stalled:
            connection.stalled_since_s = self._stalled[connection] = self._clock.monotonic_s()
        held_bytes = connection.stalled_bytes + connection.body_bytes
        self.unsent.hold(connection, connection.user, held_bytes)
        while (slow := self.unsent.loser()) is not None:
            self._end(slow, "unsent_bytes_max")

    def moving(self, connection: Connection) -> None:
        if self._stalled.pop(connection, None) is not None:
            self.unsent.let_go(connection)
            connection.waited_s += self._clock.monotonic_s() - connection.stalled_since_s

    # --- deadlines --------------------------------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            self.sweep(self._clock.monotonic_s())

    def sweep(self, now_s: float) -> None:
        """Closes connections past their deadline. Within a phase the oldest come first."""
        limits = self.limits
        for connection in self._late(IDLE, now_s - limits.idle_timeout_s):
            self._end(connection, "idle_timeout_s")
        for connection in self._late(UPGRADED, now_s - limits.upgraded_idle_timeout_s):
            self._end(connection, "upgraded_idle_timeout_s")
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
        for connection in list(self._stalled):
            waited_s = connection.waited_s + now_s - connection.stalled_since_s
            if connection.answers and waited_s > limits.request_timeout_s:
                self._end(connection, "request_timeout_s")

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
        self.unsent.let_go(connection)
        if connection.transport.get_write_buffer_size():
            connection.transport.abort()
        else:
            connection.transport.close()

