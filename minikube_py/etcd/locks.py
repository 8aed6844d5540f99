"""Election and Lock, on keys with leases: the owner of the earliest key under a name has the lock, or leads.

A key is the name and the lease in hexadecimal, so that a client that retries keeps its place. Each waits for the end of
the key just before its own, so a lock that is passed on wakes one. Source: etcd's client/v3/concurrency and
server/etcdserver/api/v3election, v3lock. Where etcd ends an observer's stream without a word, the status says why."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Literal, NamedTuple, cast

from minikube_py.errors import InvalidRequest, MinikubeError, Unavailable
from minikube_py.etcd.answers import kv_of
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import COMPACTED, EMPTY_KEY, NOT_PROPOSED, Refused, status_of
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.etcd.watch import TYPES, opened
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
    prefix_end,
)

Order = Literal["ASCEND", "DESCEND"]
OWN_TTL_S = 60
"""TTL of the lease of a client that brought none, as in etcd."""
NO_LEADER_GIVEN = (StatusCode.UNKNOWN, '"leader" field must be provided')
NOT_LEADING = (StatusCode.UNKNOWN, "election: not leader")
NO_ELECTED = (StatusCode.UNKNOWN, "election: no leader")
EXPIRED = (StatusCode.UNKNOWN, "mutex: session is expired")


def as_client(call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """As in etcd, where these services are clients of the others: etcd's own errors have lost their code."""

    async def called(request: Any) -> Any:
        try:
            return await call(request)
        except (Refused, MinikubeError) as error:
            status = status_of(error)
            if status != NOT_PROPOSED and type(error) is not Unavailable:
                status = StatusCode.UNKNOWN, status[1]
            raise Refused(*status) from None

    return called


class Place(NamedTuple):
    """A caller's key under a name, created at revision `created`; `result`: of the txn that put or found it."""

    prefix: bytes
    key: bytes
    lease: int
    created: int
    result: TxnResult


class Locks:
    def __init__(self, node: Node) -> None:
        self._node = node

    # -- Lock ----------------------------------------------------------------------------------------------------------

    async def lock(self, request: Any) -> Any:
        async with self._in_line(request, b"", _by_creation(request.name + b"/", "ASCEND")) as place:
            header = self._node.header(place.result.revision)
            (owner,) = cast(RangeResult, place.result.responses[1]).kvs
            if owner.create_revision != place.created:
                await self._wait(place)
                await self._node.confirmed()
                header = self._node.header_now()
        if owner.create_revision != place.created and self._node.member.state.get(place.key) is None:
            raise Refused(*EXPIRED)
        return pb.LockResponse(header=header, key=place.key)

    async def unlock(self, request: Any) -> Any:
        if not request.key:
            raise Refused(*EMPTY_KEY)
        result = await self._node.command(DeleteRange(request.key))
        return pb.UnlockResponse(header=self._node.header(result.revision))

    # -- Election ------------------------------------------------------------------------------------------------------

    async def campaign(self, request: Any) -> Any:
        async with self._in_line(request, request.value) as place:
            leader = pb.LeaderKey(name=request.name, key=place.key, rev=place.created, lease=place.lease)
            if not place.result.succeeded and _found(place.result).value != request.value:
                await self._proclaim(leader, place.lease, request.value)
            await self._wait(place)
        return pb.CampaignResponse(header=self._node.header(place.result.revision), leader=leader)

    async def proclaim(self, request: Any) -> Any:
        lease = await self._session_of_leader(request)
        result = await self._proclaim(request.leader, lease, request.value)
        return pb.ProclaimResponse(header=self._node.header(result.revision))

    async def resign(self, request: Any) -> Any:
        await self._session_of_leader(request)
        result = await self._txn(_own(request.leader), (DeleteRange(request.leader.key),))
        return pb.ResignResponse(header=self._node.header(result.revision))

    async def leader(self, request: Any) -> Any:
        found = await self._first(request.name + b"/", "ASCEND")
        if found is None:
            raise Refused(*NO_ELECTED)
        return pb.LeaderResponse(header=self._node.header_now(), kv=kv_of(found))

    async def observe(self, request: Any) -> AsyncGenerator[Any, None]:
        """Each leader, and each value that one proclaims until its key is deleted."""
        prefix = request.name + b"/"
        while True:
            found = await self._first(prefix, "ASCEND")
            answer = pb.LeaderResponse(header=self._node.header_now(), kv=found and kv_of(found))
            if found is None:
                header, event = await self._next("PUT", prefix, prefix_end(prefix), answer.header.revision)
                answer = pb.LeaderResponse(header=header, kv=event.kv)
                answer.header.revision = event.kv.mod_revision
            yield answer
            async with contextlib.aclosing(self._events(answer.kv.key, b"", answer.header.revision + 1)) as events:
                async for header, event in events:
                    if event.type == TYPES["DELETE"]:
                        break
                    yield pb.LeaderResponse(header=header, kv=event.kv)

    # -- shared --------------------------------------------------------------------------------------------------------

    async def _session(self, lease: int) -> int:
        """Raises: Refused, RequestError, Unavailable."""
        return lease or cast(LeaseResult, await self._node.command(LeaseGrant(0, OWN_TTL_S))).id

    async def _session_of_leader(self, request: Any) -> int:
        if not request.HasField("leader"):
            raise Refused(*NO_LEADER_GIVEN)
        return await self._session(request.leader.lease)

    @contextlib.asynccontextmanager
    async def _in_line(self, request: Any, value: bytes, *reads: Op) -> AsyncIterator[Place]:
        """Its key is under the request's name, put now or before; `reads` are part of that txn. A caller that
        stops waiting leaves no key behind. Raises: Refused, RequestError, Unavailable."""
        lease = await self._session(request.lease)
        prefix = request.name + b"/"
        key = prefix + b"%x" % lease
        placing = asyncio.ensure_future(
            self._txn(Compare(key, "CREATE", "=", 0), (Put(key, value, lease), *reads), (RangeRequest(key), *reads))
        )
        try:
            # Once it is in flight, only its answer names the key to delete.
            result = await asyncio.shield(placing)
            yield Place(prefix, key, lease, _created(result), result)
        except (asyncio.CancelledError, Refused, InvalidRequest):
            await asyncio.shield(self._take_back(key, placing))
            raise

    async def _take_back(self, key: bytes, placing: asyncio.Future[TxnResult]) -> None:
        """Only the key it had: etcd's Lock also deletes one made since with the same lease."""
        with contextlib.suppress(MinikubeError, Refused):
            await self._txn(Compare(key, "CREATE", "=", _created(await placing)), (DeleteRange(key),))

    async def _proclaim(self, leader: Any, lease: int, value: bytes) -> TxnResult:
        result = await self._txn(_own(leader), (Put(leader.key, value, lease),))
        if not result.succeeded:
            raise Refused(*NOT_LEADING)
        return result

    async def _wait(self, place: Place) -> None:
        """Returns once no key under the name was created before."""
        while (before := await self._first(place.prefix, "DESCEND", place.created - 1)) is not None:
            await self._next("DELETE", before.key, b"", self._node.member.state.revision)

    async def _next(self, kind: str, key: bytes, range_end: bytes, start_revision: int) -> tuple[Any, Any]:
        async with contextlib.aclosing(self._events(key, range_end, start_revision)) as events:
            while (found := await anext(events))[1].type != TYPES[kind]:
                pass
            return found

    async def _events(self, key: bytes, range_end: bytes, start_revision: int) -> AsyncGenerator[tuple[Any, Any], None]:
        """What a watch tells: headers with events. Raises: Refused, MinikubeError once it ends."""
        asked = pb.WatchCreateRequest(key=key, range_end=range_end, start_revision=start_revision)
        with opened(self._node) as stream:
            await stream.take(pb.WatchRequest(create_request=asked))
            while not (answer := await stream.next_message()).canceled:
                for event in answer.events:
                    yield answer.header, event
        raise Refused(StatusCode.UNKNOWN, answer.cancel_reason or COMPACTED[1])

    async def _first(self, prefix: bytes, order: Order, created_max: int = 0) -> KeyValue | None:
        await self._node.confirmed()
        await self._node.guard.read(prefix, prefix_end(prefix))
        kvs = self._node.member.read(_by_creation(prefix, order)._replace(max_create_revision=created_max)).kvs
        return kvs[0] if kvs else None

    async def _txn(self, compare: Compare, success: tuple[Op, ...], failure: tuple[Op, ...] = ()) -> TxnResult:
        return cast(TxnResult, await self._node.command(Txn((compare,), success, failure)))


def _by_creation(prefix: bytes, order: Order) -> RangeRequest:
    return RangeRequest(prefix, prefix_end(prefix), limit=1, sort_target="CREATE", sort_order=order)


def _own(leader: Any) -> Compare:
    """Raises: Refused."""
    if not leader.key:
        raise Refused(*EMPTY_KEY)
    return Compare(leader.key, "CREATE", "=", leader.rev)


def _found(result: TxnResult) -> KeyValue:
    return cast(RangeResult, result.responses[0]).kvs[0]


def _created(result: TxnResult) -> int:
    return result.revision if result.succeeded else _found(result).create_revision
