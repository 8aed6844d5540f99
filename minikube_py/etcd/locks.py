"""Election and Lock, on keys with leases: the owner of the earliest key under a name has the lock, or leads.

A key is the name and the lease in hexadecimal, so that a client that retries keeps its place. Source: etcd's
client/v3/concurrency and server/etcdserver/api/v3election, v3lock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, cast

from minikube_py.errors import InvalidRequest, MinikubeError, RequestError
from minikube_py.etcd.answers import kv_of
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import EMPTY_KEY, LEASE_NOT_FOUND, Refused, status_of
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.mvcc.types import (
    Compare,
    DeleteRange,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    Op,
    Put,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
    prefix_end,
)

OWN_TTL_S = 60
"""TTL of the lease of a client that brought none, as in etcd."""
NOT_LEADING = (StatusCode.UNKNOWN, "election: not leader")
NO_ELECTED = (StatusCode.UNKNOWN, "election: no leader")
EXPIRED = (StatusCode.UNKNOWN, "mutex: session is expired")


def as_client(call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """As in etcd, where these services are clients of the others: refusals have lost their code."""

    async def called(request: Any) -> Any:
        try:
            return await call(request)
        except (Refused, RequestError) as error:
            raise Refused(StatusCode.UNKNOWN, status_of(error)[1]) from None

    return called


class Locks:
    def __init__(self, node: Node) -> None:
        self._node = node

    # -- Lock ----------------------------------------------------------------------------------------------------------

    async def lock(self, request: Any) -> Any:
        key, *_ = await self._take(request.name, request.lease, b"")
        await self._node.confirmed()
        if self._node.member.state.get(key) is None:
            raise Refused(*EXPIRED)
        return pb.LockResponse(header=self._node.header_now(), key=key)

    async def unlock(self, request: Any) -> Any:
        if not request.key:
            raise Refused(*EMPTY_KEY)
        result = await self._node.command(DeleteRange(request.key))
        return pb.UnlockResponse(header=self._node.header(result.revision))

    # -- Election ------------------------------------------------------------------------------------------------------

    async def campaign(self, request: Any) -> Any:
        key, created, lease = await self._take(request.name, request.lease, request.value)
        leader = pb.LeaderKey(name=request.name, key=key, rev=created, lease=lease)
        return pb.CampaignResponse(header=self._node.header_now(), leader=leader)

    async def proclaim(self, request: Any) -> Any:
        own = self._own(request.leader)
        result = await self._txn(own, (Put(request.leader.key, request.value, request.leader.lease),))
        if not result.succeeded:
            raise Refused(*NOT_LEADING)
        return pb.ProclaimResponse(header=self._node.header(result.revision))

    async def resign(self, request: Any) -> Any:
        result = await self._txn(self._own(request.leader), (DeleteRange(request.leader.key),))
        return pb.ResignResponse(header=self._node.header(result.revision))

    async def leader(self, request: Any) -> Any:
        found = await self._first(request.name + b"/")
        if found is None:
            raise Refused(*NO_ELECTED)
        return pb.LeaderResponse(header=self._node.header_now(), kv=kv_of(found))

    async def observe(self, request: Any) -> AsyncGenerator[Any, None]:
        """Each leader, and each value that one proclaims."""
        prefix, seen = request.name + b"/", 0
        with self._changes(prefix) as changed:
            while True:
                found = await self._first(prefix)
                if found is not None and found.mod_revision > seen:
                    seen = found.mod_revision
                    yield pb.LeaderResponse(header=self._node.header_now(), kv=kv_of(found))
                await changed()

    def _own(self, leader: Any) -> Compare:
        """Raises: Refused."""
        if not leader.key:
            raise Refused(*EMPTY_KEY)
        return Compare(leader.key, "CREATE", "=", leader.rev)

    # -- shared --------------------------------------------------------------------------------------------------------

    async def _take(self, name: bytes, lease: int, value: bytes) -> tuple[bytes, int, int]:
        """Returns the key, its create revision and its lease once no earlier key exists under the name. A caller that
        stops waiting leaves no key behind. Raises: Refused, RequestError, Unavailable."""
        await self._node.guard.known()
        if not lease:
            lease = cast(LeaseResult, await self._node.command(LeaseGrant(0, OWN_TTL_S))).id
        elif lease not in self._node.member.state.lessor.by_id and not self._node.guard.auth.enabled:
            # On the same member, permission is checked first.
            await self._node.confirmed()
            if lease not in self._node.member.state.lessor.by_id:
                raise Refused(*LEASE_NOT_FOUND)
        prefix = name + b"/"
        key = prefix + b"%x" % lease
        placing = asyncio.ensure_future(self._place(key, lease, value))
        try:
            # Once it is in flight, only its answer names the key to delete.
            created = await asyncio.shield(placing)
            await self._wait(prefix, created)
            return key, created, lease
        except (asyncio.CancelledError, Refused, InvalidRequest):
            await asyncio.shield(self._take_back(key, placing))
            raise

    async def _place(self, key: bytes, lease: int, value: bytes) -> int:
        """The revision at which the key was created, now or before."""
        put = Put(key, value, lease)
        result = await self._txn(Compare(key, "CREATE", "=", 0), (put,), (RangeRequest(key),))
        if result.succeeded:
            return result.revision
        (standing,) = cast(RangeResult, result.responses[0]).kvs
        if standing.value != value:
            await self._txn(Compare(key, "CREATE", "=", standing.create_revision), (put,))
        return standing.create_revision

    async def _take_back(self, key: bytes, placing: asyncio.Future[int]) -> None:
        with contextlib.suppress(MinikubeError, Refused):
            await self._txn(Compare(key, "CREATE", "=", await placing), (DeleteRange(key),))

    async def _wait(self, prefix: bytes, created: int) -> None:
        earlier = RangeRequest(prefix, prefix_end(prefix), limit=1, keys_only=True, max_create_revision=created - 1)
        with self._changes(prefix) as changed:
            while True:
                await self._node.confirmed()
                await self._node.guard.read(prefix, prefix_end(prefix))
                if not self._node.member.read(earlier).kvs:
                    return
                await changed()

    @contextlib.contextmanager
    def _changes(self, prefix: bytes) -> Iterator[Callable[[], Awaitable[None]]]:
        """Returns a function that waits for the next change under the prefix since its last call."""
        node, changed, errors = self._node, asyncio.Event(), list[MinikubeError]()

        def sink(batch: WatchBatch) -> None:
            if batch.error is not None:
                errors.append(batch.error)
            if batch.error is not None or batch.events:
                changed.set()

        async def wait() -> None:
            await changed.wait()
            changed.clear()
            if errors:
                raise errors[0]

        handle = node.member.watch(prefix, prefix_end(prefix), 0, sink)
        try:
            yield wait
        finally:
            handle.cancel()

    async def _first(self, prefix: bytes) -> KeyValue | None:
        await self._node.confirmed()
        await self._node.guard.read(prefix, prefix_end(prefix))
        asked = RangeRequest(prefix, prefix_end(prefix), limit=1, sort_target="CREATE", sort_order="ASCEND")
        kvs = self._node.member.read(asked).kvs
        return kvs[0] if kvs else None

    async def _txn(self, compare: Compare, success: tuple[Op, ...], failure: tuple[Op, ...] = ()) -> TxnResult:
        return cast(TxnResult, await self._node.command(Txn((compare,), success, failure)))
