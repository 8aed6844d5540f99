"""How simulated clients reach the simulated store: by the product's StoreClient, which follows the leader, and by the
product's connections and watches to any member, leader or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from minikube_py.errors import MinikubeError, OutcomeUnknown, Unavailable
from minikube_py.fields.where import Where
from minikube_py.mvcc.codec import from_plain, pack, where_to_plain
from minikube_py.mvcc.types import LeaseResult, RangeRequest, SessionCommand
from minikube_py.sim.history import KeepAlive, Request
from minikube_py.sim.member_process import CLIENT_PORT, TOKEN
from minikube_py.sim.world import Process
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Call, ClientConnection, Endpoint, connect
from minikube_py.store.client_watch import Watches
from minikube_py.store.protocol import SERIALIZABLE, Op, WatchRequest, decode_range
from minikube_py.store.storage import WatchHandle, WatchSink

TIMEOUTS_S: Final = (0.7, 1.5, 4.0)
"""Short ones lead to more writes of unknown outcome."""
CONNECT_S: Final = 0.5
PING_S: Final = 1.0


class Access(Protocol):
    """A client's access to the store."""

    async def start(self) -> None:
        """Raises: MinikubeError if no member could be reached."""

    async def ask(self, request: Request, serializable: bool) -> Any:
        """Raises: RequestError, Unavailable: refused. OutcomeUnknown."""

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None
    ) -> WatchHandle: ...

    async def close(self) -> None:
        """Ends cleanly; it may be started again."""


def endpoint(host: str) -> Endpoint:
    return Endpoint(host, CLIENT_PORT, TOKEN)


class StoreAccess:
    """Access by a StoreClient."""

    def __init__(self, process: Process, hosts: Sequence[str]) -> None:
        self._process = process
        self._endpoints = [endpoint(host) for host in hosts]
        self.client: StoreClient

    async def start(self) -> None:
        process = self._process
        timeout_s = process.rng.choice(TIMEOUTS_S)
        self.client = StoreClient(self._endpoints, process.clock, process.rng, request_timeout_s=timeout_s)
        await self.client.start()

    async def ask(self, request: Request, serializable: bool) -> Any:
        return await asked_of(self.client, request, serializable)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None
    ) -> WatchHandle:
        return self.client.watch(key, range_end, start_revision, sink, where)

    async def close(self) -> None:
        await self.client.close()


async def asked_of(client: StoreClient, request: Request, serializable: bool) -> Any:
    """The answer to `request`. Raises: as `Access.ask`."""
    if isinstance(request, RangeRequest):
        return await client.range(request, serializable=serializable)
    if isinstance(request, KeepAlive):
        return LeaseResult(0, request.id, await client.lease_keep_alive(request.id))
    return await client.command(cast(SessionCommand, request))


class RoamingAccess:
    """Access to any member: writes without a session, sent once; reads of the connected member, leader or not; watches
    that end with their connection. `host`, if given, is the member's."""

    def __init__(self, process: Process, hosts: Sequence[str]) -> None:
        self._process = process
        self._hosts = list(hosts)
        self._connections: dict[str, ClientConnection] = {}
        self._watches: dict[ClientConnection, list[Watches]] = {}

    async def start(self) -> None:
        """Connections are made on demand."""

    async def close(self) -> None:
        """There is no session; watches continue."""

    async def ask(self, request: Request, serializable: bool, host: str = "") -> Any:
        timeout_s = self._process.rng.choice(TIMEOUTS_S)
        connection = await self._connected(host or self._process.rng.choice(self._hosts))
        call = _call(request, serializable)
        connection.send(call)
        try:
            async with asyncio.timeout(timeout_s):
                parts, answer = await call.future
        except TimeoutError:
            connection.abort("it gave no answer in time")
            raise _lost(call) from None
        if isinstance(request, RangeRequest):
            return decode_range(parts, answer)
        return LeaseResult(0, request.id, answer) if isinstance(request, KeepAlive) else from_plain(answer)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None
    ) -> WatchHandle:
        plain = None if where is None else where_to_plain(where)
        watches = Watches(lambda: watches.close(Unavailable("the member does not go on with it")))
        watch = watches.add(WatchRequest(key, range_end, start_revision, plain), sink, None)
        self._process.errands.append(self._process.loop.create_task(self._begin(watches)))
        return watch

    async def _begin(self, watches: Watches) -> None:
        try:
            connection = await self._connected(self._process.rng.choice(self._hosts))
        except MinikubeError as error:
            watches.close(error)
            return
        self._watches.setdefault(connection, []).append(watches)
        watches.begin(connection, again=False)

    async def _connected(self, host: str) -> ClientConnection:
        """Raises: Unavailable."""
        connection = self._connections.get(host)
        if connection is None or connection.why_lost:
            connection = self._connections[host] = await connect(endpoint(host), self._process.clock, CONNECT_S)
            if connection.why_lost:
                raise Unavailable(connection.why_lost)
            connection.owner = self
            self._process.errands.append(self._process.loop.create_task(self._ping(connection)))
        return connection

    async def _ping(self, connection: ClientConnection) -> None:
        """A connection that only receives may have died long ago."""
        while not connection.why_lost:
            connection.send(Call(Op.PING, None, asyncio.get_running_loop().create_future()))
            await self._process.clock.sleep(PING_S)
            if connection.silent_s(self._process.clock.monotonic_s()) >= PING_S:
                connection.abort("it says nothing")

    # -- client_connection.Owner ---------------------------------------------------------------------------------------

    def answered(self, call: Call, value: Any) -> None:
        if not call.future.done():
            call.future.set_result((call.parts, value))

    def refused(self, call: Call, error: MinikubeError, connection: ClientConnection) -> None:
        if not call.future.done():
            call.future.set_exception(error)

    def leader_told(self, connection: ClientConnection) -> None:
        """Leaders are not followed here."""

    def fell(self, connection: ClientConnection, calls: list[Call], reason: str) -> None:
        for call in calls:
            if not call.future.done() and call.op != Op.PING:
                call.future.set_exception(_lost(call))
        for watches in self._watches.pop(connection, ()):
            watches.close(Unavailable(reason))


def _call(request: Request, serializable: bool) -> Call:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if isinstance(request, RangeRequest):
        return Call(Op.RANGE, pack(request), future, SERIALIZABLE if serializable else 0)
    if isinstance(request, KeepAlive):
        return Call(Op.KEEP_ALIVE, request.id, future)
    return Call(Op.COMMAND, pack(request), future)


def _lost(call: Call) -> MinikubeError:
    if call.op == Op.RANGE or not call.sent:
        return Unavailable("there was no answer")
    return OutcomeUnknown("there was no answer")
