"""Storage over the native protocol: one connection, many requests in flight.

A request that was not sent yet when the connection fell is Unavailable; a write that was sent and not answered is
OutcomeUnknown, and is never sent again. Watches end with Unavailable, so that their owner lists or resumes; the
connection itself comes back on its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from minikube_py.env import Clock, Rng
from minikube_py.errors import MinikubeError, Unavailable
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Where
from minikube_py.mvcc.codec import from_plain, pack, where_to_plain
from minikube_py.mvcc.types import (
    Command,
    Compact,
    CompactResult,
    Compare,
    DeclareFields,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    RangeRequest,
    RangeResult,
    Result,
    Txn,
    TxnResult,
    WatchBatch,
)
from minikube_py.mvcc.types import Op as TxnOp
from minikube_py.store.client_connection import ClientConnection, Endpoint, connect
from minikube_py.store.protocol import Op, decode_range
from minikube_py.store.query_metrics import QueryMetrics
from minikube_py.store.storage import WatchHandle, WatchSink

CONNECT_TIMEOUT_S = 10.0
RETRY_S_MIN, RETRY_S_MAX = 0.05, 2.0


class StoreClient:
    """`await start()` connects, and raises if that fails; afterwards the connection is made anew whenever it falls."""

    def __init__(self, endpoint: Endpoint, clock: Clock, rng: Rng) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._rng = rng
        self._connection: ClientConnection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._why_not = "not started"
        self._queries = QueryMetrics()
        self._revision = 0
        self._connects = 0

    async def start(self) -> None:
        """Raises: Unavailable; MinikubeError where the store refuses (token, cluster, version)."""
        self._took(await connect(self._endpoint, CONNECT_TIMEOUT_S))
        self._keeper = asyncio.get_running_loop().create_task(self._keep_connected())

    async def get(self, key: bytes, revision: int = 0) -> tuple[KeyValue | None, int]:
        result = await self.range(RangeRequest(key, revision=revision))
        return (result.kvs[0] if result.kvs else None), result.revision

    async def range(self, request: RangeRequest) -> RangeResult:
        parts, answer = await self._connected().request(Op.RANGE, pack(request), writes=False)
        result = decode_range(parts, answer)
        self._saw(result.revision)
        self._queries.observe(result)
        return result

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[TxnOp], failure: Sequence[TxnOp] = ()
    ) -> TxnResult:
        return cast(TxnResult, await self.command(Txn(tuple(compare), tuple(success), tuple(failure))))

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        argument = (key, range_end, start_revision, None if where is None else where_to_plain(where))
        try:
            return self._connected().watch(argument, sink)
        except Unavailable as error:
            batch = WatchBatch((), max(start_revision - 1, 0), error)
            handle = asyncio.get_running_loop().call_soon(sink, batch)
            return handle

    async def lease_grant(self, ttl_s: int, lease_id: int = 0) -> LeaseResult:
        return cast(LeaseResult, await self.command(LeaseGrant(lease_id, ttl_s)))

    async def lease_keep_alive(self, lease_id: int) -> int:
        _, ttl_s = await self._connected().request(Op.KEEP_ALIVE, lease_id, writes=True)
        return int(ttl_s)

    async def lease_revoke(self, lease_id: int) -> None:
        await self.command(LeaseRevoke(lease_id))

    async def compact(self, revision: int) -> CompactResult:
        return cast(CompactResult, await self.command(Compact(revision)))

    async def declare(self, field_set: FieldSet) -> None:
        await self.command(DeclareFields(field_set))

    async def command(self, command: Command) -> Result:
        """Sends any command through the log. Raises: RequestError, Unavailable, OutcomeUnknown."""
        _, answer = await self._connected().request(Op.COMMAND, pack(command), writes=True)
        result = cast(Result, from_plain(answer))
        self._saw(result.revision)
        return result

    async def server_metrics(self) -> dict[str, float]:
        """The store's own counters and gauges."""
        _, answer = await self._connected().request(Op.METRICS, None, writes=False)
        return cast(dict[str, float], answer)

    @property
    def revision(self) -> int:
        return max(self._revision, self._connection.revision if self._connection else 0)

    @property
    def cluster_id(self) -> int:
        return self._endpoint.cluster_id

    def metrics(self) -> dict[str, float]:
        prefix = "minikube_py_store_client_"
        return {
            prefix + "connected": float(self._connection is not None),
            prefix + "connects_total": self._connects,
            prefix + "revision": self.revision,
            **self._queries.samples(prefix),
        }

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        self._why_not = "the client was closed"
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            await connection.wait_closed()

    def _connected(self) -> ClientConnection:
        if self._connection is None:
            raise Unavailable(f"no connection to the store: {self._why_not}")
        return self._connection

    def _took(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._connects += 1
        self._saw(connection.revision)
        # A store that was wiped and begun anew is another cluster: its revisions mean nothing to those who saw these.
        self._endpoint = self._endpoint._replace(cluster_id=connection.cluster_id)

    def _saw(self, revision: int) -> None:
        if revision > self._revision:
            self._revision = revision

    async def _keep_connected(self) -> None:
        while True:
            assert self._connection is not None
            self._why_not = await asyncio.shield(self._connection.lost)
            self._saw(self._connection.revision)
            self._connection = None
            delay_s = RETRY_S_MIN
            while self._connection is None:
                try:
                    self._took(await connect(self._endpoint, CONNECT_TIMEOUT_S))
                except MinikubeError as error:
                    self._why_not = str(error)
                    await self._clock.sleep(delay_s * self._rng.uniform(0.5, 1.0))
                    delay_s = min(RETRY_S_MAX, delay_s * 2)
