"""The gRPC door: one member's part of etcd's API, over grpcio, on the member's own event loop.

Methods are generic handlers over the table of `schema`; what is not built answers Unimplemented, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc

from minikube_py.errors import MinikubeError
from minikube_py.etcd import wire
from minikube_py.etcd.cluster import Cluster
from minikube_py.etcd.errors import FOR_LEARNER, NO_LEADER, Refused, status_of
from minikube_py.etcd.guard import SHOWN, shown_over_grpc
from minikube_py.etcd.kv import KV
from minikube_py.etcd.lease import Lease
from minikube_py.etcd.locks import Locks, as_client
from minikube_py.etcd.maintenance import Maintenance
from minikube_py.etcd.messages import BY_NAME
from minikube_py.etcd.node import Node
from minikube_py.etcd.schema import Method, methods
from minikube_py.etcd.users import Users
from minikube_py.etcd.watch import FRAGMENT_BYTES, WatchStream
from minikube_py.ports.descriptors import Descriptors, PortLimits

Unary = Callable[[Any], Awaitable[Any]]
Stream = Callable[[Any], AsyncGenerator[Any, None]]
HAS_LEADER: Final = "hasleader"
"""The metadata by which a client asks not to be served by a member that knows no leader."""
LEADERLESS_TIMEOUTS: Final = 3
FOR_LEARNERS: Final = frozenset({"Status", "Snapshot", "Check", "List"})
STOP_S: Final = 1.0
SERVING, NOT_SERVING = 1, 2


@dataclass(frozen=True, slots=True)
class Limits:
    """`streams_max`: requests and streams of all connections. `progress_s`: how often a watch that wants to hear it is
    told how far it is (etcd's --watch-progress-notify-interval)."""

    connections_max: int = 1024
    streams_max: int = 4096
    per_connection_max: int = 1024
    handshake_s: float = 5.0
    ping_least_s: float = 5.0
    progress_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM. `authority`: who signs the certificates that clients must show; empty: they show none."""

    certificate: bytes
    key: bytes
    authority: bytes = b""


class Held:
    """The descriptors of grpcio's connections, among those of all ports of the process."""

    name = "etcd clients"

    def __init__(self, connections_max: int) -> None:
        self.wanted = self.limits = PortLimits(connections_max, waiting_max=0, strangers_max=0)


class EtcdServer:
    """Serves `node` at `addresses`, each `host:port`, with port 0 for any free one; `port` says which the first is."""

    def __init__(
        self,
        node: Node,
        addresses: Sequence[str],
        tls: Tls | None,
        limits: Limits | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.node = node
        self._addresses = tuple(addresses)
        self._tls = tls
        self.limits = limits or Limits()
        self._descriptors = descriptors
        self._held = Held(self.limits.connections_max)
        self.port = 0
        self._server: Any = None
        self._streams: dict[WatchStream, None] = {}
        self._needing_leader: dict[asyncio.Task[Any], None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        kv, lease, cluster, maintenance, locks = KV(node), Lease(node), Cluster(node), Maintenance(node), Locks(node)
        self.unary: dict[str, Unary] = {
            "KV/Range": kv.range,
            "KV/Put": kv.put,
            "KV/DeleteRange": kv.delete_range,
            "KV/Txn": kv.txn,
            "KV/Compact": kv.compact,
            "Lease/LeaseGrant": lease.grant,
            "Lease/LeaseRevoke": lease.revoke,
            "Lease/LeaseTimeToLive": lease.time_to_live,
            "Lease/LeaseLeases": lease.leases,
            "Cluster/MemberList": cluster.list,
            "Cluster/MemberAdd": cluster.add,
            "Cluster/MemberRemove": cluster.remove,
            "Cluster/MemberUpdate": cluster.update,
            "Cluster/MemberPromote": cluster.promote,
            "Maintenance/Status": maintenance.status,
            "Maintenance/Alarm": maintenance.alarm,
            "Maintenance/Downgrade": maintenance.downgrade,
            "Maintenance/Defragment": maintenance.defragment,
            "Maintenance/Hash": maintenance.hash,
            "Maintenance/HashKV": maintenance.hash_kv,
            "Maintenance/MoveLeader": maintenance.move_leader,
            "Lock/Lock": as_client(locks.lock),
            "Lock/Unlock": as_client(locks.unlock),
            "Election/Campaign": as_client(locks.campaign),
            "Election/Proclaim": as_client(locks.proclaim),
            "Election/Leader": as_client(locks.leader),
            "Election/Resign": as_client(locks.resign),
            **Users(node).unary,
            "Health/Check": self._health,
            "Health/List": self._list_health,
        }
        self.streams: dict[str, Stream] = {"KV/RangeStream": kv.range_stream, "Election/Observe": locks.observe}
        self.streams |= {"Health/Watch": self._watch_health, "Maintenance/Snapshot": maintenance.snapshot}
        self.lease = lease

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises: MinikubeError where the address cannot be had, or certificates do not read."""
        limits = self.limits
        if self._descriptors is not None:
            self._descriptors.add(self._held)
        options = (
            ("grpc.max_receive_message_length", FRAGMENT_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", limits.per_connection_max),
            ("grpc.max_allowed_incoming_connections", self._held.limits.connections_max),
            ("grpc.server_handshake_timeout_ms", int(limits.handshake_s * 1000)),
            ("grpc.http2.min_ping_interval_without_data_ms", int(limits.ping_least_s * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.so_reuseport", 0),
        )
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.streams_max)
        by_service: dict[str, dict[str, Any]] = {}
        for method in methods():
            by_service.setdefault(method.service, {})[method.name] = self._handler(method)
        handlers = [grpc.method_handlers_generic_handler(name, found) for name, found in by_service.items()]
        server.add_generic_rpc_handlers((*handlers, _Unknown(frozenset(by_service))))
        try:
            self.port, *_ = [self._listen(server, address) for address in self._addresses]
        except RuntimeError as error:
            raise MinikubeError(f"cannot serve etcd's API at {', '.join(self._addresses)}: {error}") from None
        self._server = server
        await server.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch_leader()), loop.create_task(self._tell_progress())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for stream in list(self._streams):
            stream.end(Refused(grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped"))
        if self._server is not None:
            await self._server.stop(STOP_S)
        await self.node.close()
        if self._descriptors is not None:
            self._descriptors.remove(self._held)

    def _listen(self, server: Any, address: str) -> int:
        tls = self._tls
        if tls is None:
            return int(server.add_insecure_port(address))
        credentials = grpc.ssl_server_credentials(
            [(tls.key, tls.certificate)], tls.authority or None, require_client_auth=bool(tls.authority)
        )
        return int(server.add_secure_port(address, credentials))

    def metrics(self) -> dict[str, float]:
        prefix = "minikube_py_etcd_"
        return {
            prefix + "watch_streams": len(self._streams),
            prefix + "watches": sum(map(len, self._streams)),
            prefix + "watch_bytes_waiting": self.node.watch_bytes,
            prefix + "answers_waiting": sum(stream.waiting for stream in self._streams),
        }

    # -- methods -------------------------------------------------------------------------------------------------------

    def _handler(self, method: Method) -> Any:
        name = method.short
        if method.service == "etcdserverpb.Watch":
            kind, call = grpc.stream_stream_rpc_method_handler, self._guarded(method, self._watch)
        elif method.takes_stream:
            kind, call = grpc.stream_stream_rpc_method_handler, self._guarded(method, self._keep_alive)
        elif method.gives_stream:
            kind, call = grpc.unary_stream_rpc_method_handler, self._guarded(method, self._streaming(name))
        else:
            kind, call = grpc.unary_unary_rpc_method_handler, self._guarded(method, self._answering(name))
        return kind(call, response_serializer=encoded)

    def _answering(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        call = self.unary.get(name)

        async def answer(request: Any, context: Any) -> Any:
            if call is None:
                raise not_built(name)
            return await call(request)

        return answer

    def _streaming(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        call = self.streams.get(name)

        async def answer(request: Any, context: Any) -> None:
            if call is None:
                raise not_built(name)
            async with contextlib.aclosing(call(request)) as answers:
                async for each in answers:
                    await context.write(each)

        return answer

    def _guarded(
        self, method: Method, call: Callable[[Any, Any], Awaitable[Any]]
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        streams, kind = method.takes_stream or method.gives_stream, BY_NAME[method.request]

        async def guarded(request: Any, context: Any) -> Any:
            SHOWN.set(partial(shown_over_grpc, context))
            try:
                request = _read(kind, request) if method.takes_stream else wire.read(kind, request)
                needs_leader = self._admit(method, request, context)
                if not (streams and needs_leader):
                    return await call(request, context)
                return await self._while_led(call(request, context))
            except (Refused, MinikubeError) as error:
                code, text = status_of(error)
            await context.abort(code, text)

        return guarded

    def _admit(self, method: Method, request: Any, context: Any) -> bool:
        """Whether the client wants a member that knows a leader. Raises: Refused."""
        served = method.name in FOR_LEARNERS or (method.name == "Range" and request.serializable)
        if self.node.learner and not served:
            raise Refused(*FOR_LEARNER)
        wanted = any(key == HAS_LEADER and value == "true" for key, value in context.invocation_metadata() or ())
        if wanted and self.node.member.replica.leader() is None:
            raise Refused(*NO_LEADER)
        return wanted

    async def _while_led(self, work: Awaitable[Any]) -> Any:
        """What `work` gives. Raises: Refused once no leader was known for some election timeouts."""
        task = asyncio.ensure_future(work)
        self._needing_leader[task] = None
        try:
            return await task
        except asyncio.CancelledError:
            if task not in self._needing_leader:
                raise Refused(*NO_LEADER) from None
            raise
        finally:
            self._needing_leader.pop(task, None)
            task.cancel()

    async def _watch_leader(self) -> None:
        config = self.node.member.config
        missed = 0
        while True:
            await self.node.member.clock.sleep(config.election_ticks * config.tick_s)
            self.node.guard.sweep()
            missed = 0 if self.node.member.replica.leader() is not None else missed + 1
            if missed >= LEADERLESS_TIMEOUTS:
                for task in list(self._needing_leader):
                    del self._needing_leader[task]
                    task.cancel()

    # -- streams -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watch_stream(self) -> Iterator[WatchStream]:
        stream = WatchStream(self.node)
        self._streams[stream] = None
        try:
            yield stream
        finally:
            self._streams.pop(stream, None)
            stream.close()
            self.node.watch_bytes -= stream.waiting_bytes

    async def _watch(self, requests: Any, context: Any) -> None:
        with self.watch_stream() as stream:
            reader = asyncio.get_running_loop().create_task(self._read(stream, requests))
            try:
                while True:
                    await context.write(await stream.next())
            finally:
                reader.cancel()

    async def _read(self, stream: WatchStream, requests: Any) -> None:
        """A client that sends no more may still read."""
        try:
            async for request in requests:
                await stream.take(request)
                while stream.waiting > WAITING_ANSWERS_MAX:
                    await stream.read_on()
        except (MinikubeError, Refused) as error:
            stream.end(error)

    async def _health(self, request: Any) -> Any:
        """Serving, where it is known who leads; of the whole server, for which etcd has the empty name."""
        if request.service:
            raise Refused(grpc.StatusCode.NOT_FOUND, "unknown service")
        led = self.node.member.replica.leader() is not None
        return BY_NAME["HealthCheckResponse"](status=SERVING if led else NOT_SERVING)

    async def _list_health(self, request: Any) -> Any:
        found = await self._health(BY_NAME["HealthCheckRequest"]())
        return BY_NAME["HealthListResponse"](statuses=[BY_NAME["HealthEntry"](key="", value=found)])

    async def _watch_health(self, request: Any) -> AsyncGenerator[Any, None]:
        """At first, and whenever it changes."""
        changed, listeners, said = asyncio.Event(), self.node.member.leader_listeners, 0
        listeners.append(changed.set)
        try:
            while True:
                changed.clear()
                answer = await self._health(request)
                if answer.status != said:
                    said = answer.status
                    yield answer
                await changed.wait()
        finally:
            listeners.remove(changed.set)

    async def _tell_progress(self) -> None:
        while True:
            await self.node.member.clock.sleep(self.limits.progress_s)
            for stream in list(self._streams):
                stream.progress()

    async def _keep_alive(self, requests: Any, context: Any) -> None:
        async for request in requests:
            await context.write(await self.lease.keep_alive(request))


def encoded(answer: Any) -> bytes:
    """A large one is bytes already."""
    return answer if type(answer) is bytes else bytes(answer.SerializeToString())


async def _read(kind: Any, requests: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
    async for data in requests:
        yield wire.read(kind, data, wire.STREAM)


class _Unknown(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers requests for methods that there are not, in the words of Go's gRPC."""

    def __init__(self, services: frozenset[str]) -> None:
        self._services = services

    def service(self, details: Any) -> Any:
        service, slash, name = details.method.removeprefix("/").rpartition("/")
        why = (
            f"unknown method {name} for service {service}"
            if service in self._services
            else f"unknown service {service}"
        )
        if not slash:
            why = f"malformed method name: {json.dumps(details.method, ensure_ascii=False)}"

        async def refuse(requests: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, why)

        return grpc.stream_stream_rpc_method_handler(refuse)


WAITING_ANSWERS_MAX: Final = 10_000
"""A stream that does not read its answers has its requests read no more."""


def not_built(name: str) -> Refused:
    return Refused(grpc.StatusCode.UNIMPLEMENTED, f"etcdserver: {name} is not served by this store")
