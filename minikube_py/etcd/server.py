"""The gRPC server: one member's part of etcd's API, on the member's event loop.

Methods are those of the table of `schema`; missing ones answer Unimplemented."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from minikube_py.errors import MinikubeError
from minikube_py.etcd.calls import Call, Route
from minikube_py.etcd.cluster import Cluster
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import FOR_LEARNER, NO_LEADER, Refused
from minikube_py.etcd.grpc_server import GrpcServer, Limits
from minikube_py.etcd.guard import SHOWN
from minikube_py.etcd.kv import KV
from minikube_py.etcd.lease import Lease
from minikube_py.etcd.locks import Locks, as_client
from minikube_py.etcd.maintenance import Maintenance
from minikube_py.etcd.messages import BY_NAME
from minikube_py.etcd.node import Node, Soon
from minikube_py.etcd.schema import Method, methods
from minikube_py.etcd.users import Users
from minikube_py.etcd.watch import WatchStream, opened
from minikube_py.ports.descriptors import Descriptors

Unary = Callable[[Any], Awaitable[Any]]
Stream = Callable[[Any], AsyncGenerator[Any, None]]
HAS_LEADER: Final = "hasleader"
"""The metadata by which a client refuses to be served by a member without a leader."""
LEADERLESS_TIMEOUTS: Final = 3
FOR_LEARNERS: Final = frozenset({"Status", "Snapshot", "Check", "List"})
LASTING: Final = frozenset({"Election/Observe", "Health/Watch"})
SERVING, NOT_SERVING = 1, 2


class EtcdServer:
    """Serves `node` at `addresses`, host and port, 0 for any free one; `port` is the first one's. `tls`: requires
    client certificates."""

    def __init__(
        self,
        node: Node,
        addresses: Sequence[tuple[str, int]],
        tls: ssl.SSLContext | None,
        limits: Limits | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.node = node
        self.limits = limits or Limits()
        self._streams: dict[WatchStream, None] = {}
        self._needing_leader: dict[asyncio.Task[Any], None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.kv = kv = KV(node)
        lease, cluster, maintenance, locks = Lease(node), Cluster(node), Maintenance(node), Locks(node)
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
        routes = {f"/{method.service}/{method.name}": self._route(method) for method in methods()}
        known_as, clock = node.guard.known_as, node.member.clock
        self._grpc = GrpcServer(routes, addresses, tls, self.limits, clock, descriptors, known_as)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises: MinikubeError if the address cannot be bound."""
        await self._grpc.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch_leader()), loop.create_task(self._tell_progress())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for stream in list(self._streams):
            stream.end(Refused(StatusCode.UNAVAILABLE, "etcdserver: server stopped"))
        await self._grpc.stop()
        await self.node.close()

    @property
    def port(self) -> int:
        return self._grpc.port

    def metrics(self) -> dict[str, float]:
        prefix = "minikube_py_etcd_"
        return {
            prefix + "watch_streams": len(self._streams),
            prefix + "watches": sum(map(len, self._streams)),
            prefix + "watch_bytes_waiting": self.node.watch_bytes,
            prefix + "answers_waiting": sum(stream.waiting for stream in self._streams),
            **{f"{prefix}grpc_{name}": value for name, value in self._grpc.metrics().items()},
        }

    # -- methods -------------------------------------------------------------------------------------------------------

    def _route(self, method: Method) -> Route:
        name, soon = method.short, self.kv.soon.get(method.short)
        run: Callable[[Call, Any], Awaitable[Any]]
        if method.service == "etcdserverpb.Watch":
            run = self._watch
        elif method.takes_stream:
            run = self._keep_alive
        elif method.gives_stream:
            run = self._streaming(name)
        else:
            run = self._answering(name)
        kind, guarded = BY_NAME[method.request], self._guarded(method, run)
        lasts = method.takes_stream or name in LASTING
        return Route(kind, method.takes_stream, guarded, soon and self._soon(soon), lasts)

    def _answering(self, name: str) -> Callable[[Call, Any], Awaitable[Any]]:
        answer = self.unary.get(name)

        async def run(call: Call, request: Any) -> Any:
            if answer is None:
                raise not_built(name)
            return await answer(request)

        return run

    def _streaming(self, name: str) -> Callable[[Call, Any], Awaitable[Any]]:
        answer = self.streams.get(name)

        async def run(call: Call, request: Any) -> None:
            if answer is None:
                raise not_built(name)
            async with contextlib.aclosing(answer(request)) as answers:
                async for each in answers:
                    # A snapshot says how much is to come.
                    call.size_bytes = max(call.size_bytes, getattr(each, "remaining_bytes", 0))
                    await call.write(each)

        return run

    def _guarded(
        self, method: Method, run: Callable[[Call, Any], Awaitable[Any]]
    ) -> Callable[[Call, Any], Awaitable[Any]]:
        streams = method.takes_stream or method.gives_stream

        async def guarded(call: Call, request: Any) -> Any:
            SHOWN.set(partial(call.connection.shown, call.head))
            needs_leader = self._admit(method, request, call)
            if not (streams and needs_leader):
                return await run(call, request)
            return await self._while_led(run(call, request))

        return guarded

    def _soon(self, soon: Soon) -> Soon:
        """If it needs no authentication check, and how."""

        def begun(request: Any, call: Call) -> bool:
            return not self.node.learner and not call.wants(HAS_LEADER) and soon(request, call)

        return begun  # type: ignore[return-value]

    def _admit(self, method: Method, request: Any, call: Call) -> bool:
        """Whether the client requires a member with a leader. Raises: Refused."""
        served = method.name in FOR_LEARNERS or (method.name == "Range" and request.serializable)
        if self.node.learner and not served:
            raise Refused(*FOR_LEARNER)
        wanted = call.wants(HAS_LEADER)
        if wanted and self.node.member.replica.leader() is None:
            raise Refused(*NO_LEADER)
        return wanted

    async def _while_led(self, work: Awaitable[Any]) -> Any:
        """The result of `work`. Raises: Refused once no leader was known for some election timeouts."""
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
        with opened(self.node) as stream:
            self._streams[stream] = None
            try:
                yield stream
            finally:
                self._streams.pop(stream, None)

    async def _watch(self, call: Call, requests: Any) -> None:
        with self.watch_stream() as stream:
            reader = asyncio.get_running_loop().create_task(self._read(stream, requests))
            try:
                while True:
                    await call.write(await stream.next())
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
        """Serving if the leader is known; of the whole server, for which etcd uses the empty name."""
        if request.service:
            raise Refused(StatusCode.NOT_FOUND, "unknown service")
        led = self.node.member.replica.leader() is not None
        return BY_NAME["HealthCheckResponse"](status=SERVING if led else NOT_SERVING)

    async def _list_health(self, request: Any) -> Any:
        found = await self._health(BY_NAME["HealthCheckRequest"]())
        return BY_NAME["HealthListResponse"](statuses=[BY_NAME["HealthEntry"](key="", value=found)])

    async def _watch_health(self, request: Any) -> AsyncGenerator[Any, None]:
        """Initially, and after each change."""
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

    async def _keep_alive(self, call: Call, requests: Any) -> None:
        async for request in requests:
            await call.write(await self.lease.keep_alive(request))


WAITING_ANSWERS_MAX: Final = 10_000
"""No more requests are read from a stream whose answers are not read."""


def not_built(name: str) -> Refused:
    return Refused(StatusCode.UNIMPLEMENTED, f"etcdserver: {name} is not served by this store")
