"""gRPC over HTTP/2, as a server: its ports, its methods, and limits over all connections."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, cast

from minikube_py.api.errors import go_quote
from minikube_py.env import Clock, ended
from minikube_py.errors import MinikubeError
from minikube_py.etcd.calls import Call, Route
from minikube_py.etcd.errors import TIMED_OUT, Refused
from minikube_py.etcd.grpc_connection import LATE_LOOKS, GrpcConnection
from minikube_py.etcd.grpc_framing import Head
from minikube_py.etcd.guard import Shown
from minikube_py.etcd.node import REQUEST_S
from minikube_py.http2.limits import ConnectionLimits
from minikube_py.ports.descriptors import Descriptors, PortLimits
from minikube_py.ports.port import Incoming, Port
from minikube_py.ports.shares import Shares

READ_BYTES: Final = 16 << 10
"""Bytes read from a connection at once, so that none blocks the loop for long."""
SWEEP_S: Final = 0.5
STOP_S: Final = 1.0
ROOM_LOOKS: Final = 64
"""Calls of whoever has most that are asked to give way."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`streams_max`: requests and streams of all connections, which users share, and addresses without one.
    `stalled_s`: for a request to arrive, or an answer to be
    read, without progress. `message_bytes_max`: one message. `messages_bytes_max`: of all incomplete or unprocessed
    ones. `unsent_bytes_max`: unsent answers of all clients; beyond it, requests of connections with more than
    an equal share of it are refused. `answer_s`: for an answer to be read, however large. `progress_s`: how often a
    watch that requested it gets its progress (etcd's --watch-progress-notify-interval). The others are those of
    `http2.limits`."""

    connections_max: int = 1024
    streams_max: int = 4096
    per_connection_max: int = 1024
    handshake_s: float = 5.0
    stalled_s: float = 60.0
    answer_s: float = 3600.0
    message_bytes_max: int = (3 << 19) + (512 << 10)
    messages_bytes_max: int = 64 << 20
    unsent_bytes_max: int = 256 << 20
    ping_least_s: float = 5.0
    progress_s: float = 600.0


class GrpcServer:
    """Serves `routes`, by path, at `addresses`: host and port, 0 for any free one; `port` says which the first is."""

    def __init__(
        self,
        routes: dict[str, Route],
        addresses: Sequence[tuple[str, int]],
        tls: ssl.SSLContext | None,
        limits: Limits,
        clock: Clock,
        descriptors: Descriptors | None = None,
        known_as: Callable[[Shown], str] = lambda shown: "",
    ) -> None:
        self.routes = routes
        self.limits = limits
        self.clock = clock
        self.connection_limits = ConnectionLimits(limits.per_connection_max, ping_least_s=limits.ping_least_s)
        self.bodies = Shares[Call](limits.messages_bytes_max)
        self.unsent_bytes = 0
        self.connections: dict[GrpcConnection, None] = {}
        self.calls, self.silent = Shares[Call](limits.streams_max), Shares[Call](limits.streams_max)
        """All, and those that wait for their first message."""
        self._known_as = known_as
        self.ended: Counter[str] = Counter()
        """Connections ended because of their input, by reason."""
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.loop: asyncio.AbstractEventLoop
        self._services = frozenset([path[1:].rpartition("/")[0] for path in routes])
        self._waiting: dict[Call, float] = {}
        """Calls without a task, in the order of their deadlines."""
        self._addresses = tuple(addresses)
        wanted = PortLimits.proving(limits.connections_max, limits.handshake_s)
        # A port passes data it has read to `data_received`, which this protocol also has.
        make = cast(Callable[[Incoming], asyncio.Protocol], partial(GrpcConnection, self))
        self._ports = [Port("etcd clients", make, wanted, clock, tls, descriptors) for _ in self._addresses]
        self._tasks: list[asyncio.Task[None]] = []
        self._empty = asyncio.Event()

    async def start(self) -> None:
        """Raises: MinikubeError if an address cannot be bound."""
        self.loop = asyncio.get_running_loop()
        for port, (host, number) in zip(self._ports, self._addresses, strict=True):
            try:
                await port.listen(host, number)
            except OSError as error:
                await self.stop()
                why = error.strerror or error
                raise MinikubeError(f"cannot serve etcd's API at {host}:{number}: {why}") from None
        self._tasks = [self.loop.create_task(self._sweep()), self.loop.create_task(self._look())]

    async def stop(self) -> None:
        """Accepts no more requests; the existing ones have STOP_S to end."""
        for task in self._tasks:
            task.cancel()
        for port in self._ports:
            port.stop_listening()
        for connection in list(self.connections):
            connection.leave()
        self._empty.clear()
        if self.connections:
            timer = self.loop.call_later(STOP_S, self._abort_all)
            await self._empty.wait()
            timer.cancel()
        for port in self._ports:
            await port.close()
            await port.wait_closed()
        await ended(*self._tasks)

    def _abort_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def empty(self) -> None:
        """A connection has ended."""
        if not self.connections:
            self._empty.set()

    @property
    def port(self) -> int:
        return self._ports[0].address[1]

    # -- for its connections -------------------------------------------------------------------------------------------

    def unknown(self, path: str) -> str:
        """The error for an unknown method."""
        service, slash, name = path.removeprefix("/").rpartition("/")
        if not path.startswith("/") or not slash:
            return f"malformed method name: {go_quote(path)}"
        if service not in self._services:
            return f"unknown service {service}"
        return f"unknown method {name} for service {service}"

    def holder(self, connection: GrpcConnection, head: Head) -> str:
        """Who shares: the user, where one is known, or the address."""
        user = self._known_as(connection.shown(head))
        return f"user {user}" if user else connection.address

    def has_room(self, connection: GrpcConnection, holder: str) -> bool:
        """For one more request of it. A connection with less than its share unsent is served whatever the others do
        not read."""
        limits, waiting_bytes = self.limits, connection.h2.waiting_bytes
        if self.calls.total >= limits.streams_max and not self._makes_room(holder):
            return False
        if waiting_bytes < limits.unsent_bytes_max // limits.connections_max:
            return True
        return self.unsent_bytes - connection.counted_bytes + waiting_bytes < limits.unsent_bytes_max

    def _makes_room(self, holder: str) -> bool:
        """Whoever has most calls loses one to whoever has fewer even with one more: the oldest that waits for its first
        message, else a stream, which clients open again. Of one's own, those that wait make room."""
        most = self.calls.most()
        fewer = self.calls.of(holder) + 1 < self.calls.of(most)
        found = list(islice(self.silent.holders(most if fewer else holder), 1))
        if fewer:
            found += islice(self.calls.holders(most), ROOM_LOOKS)
        return any(call.give_way() for call in found)

    def wait_for(self, call: Call) -> None:
        """It is answered once the event it waits for calls it, or its deadline passes."""
        self._waiting[call] = self.clock.monotonic_s() + REQUEST_S
        if call.head.timeout_s is not None and call.head.timeout_s < REQUEST_S:
            call.limit(call.head.timeout_s)

    def waits_no_more(self, call: Call) -> None:
        """Its task handles its deadline."""
        self._waiting.pop(call, None)

    def left(self, call: Call) -> None:
        """It has ended."""
        self.calls.let_go(call)
        self.silent.let_go(call)
        self._waiting.pop(call, None)

    # -- periodic work -------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await self.clock.sleep(SWEEP_S)
            now_s = self.clock.monotonic_s()
            for call, until_s in list(self._waiting.items()):
                if until_s > now_s:
                    break
                call.failed(Refused(*TIMED_OUT))

    async def _look(self) -> None:
        while True:
            await self.clock.sleep(self.limits.stalled_s / LATE_LOOKS)
            for connection in list(self.connections):
                connection.look()

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {"calls": self.calls.total, "unsent_bytes": self.unsent_bytes}
        found["unread_bytes"] = self.bodies.total
        for port in self._ports[:1]:
            found |= port.metrics()
        for why, count in self.ended.items():
            found[f'connections_broken_total{{reason="{why}"}}'] = count
        return found
