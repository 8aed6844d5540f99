"""`Storage`: the store interface of the API server, independent of the implementation.

Three implementations: embedded (in this process), the store's own client (framed msgpack over TLS), and a real etcd
(`etcd.storage`). A write ends as done (its result), refused (RequestError, Unavailable) or unknown (OutcomeUnknown)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, cast

from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Where
from minikube_py.index.declared import IndexSpec, check_spec
from minikube_py.index.reports import Explanation, IndexReport
from minikube_py.mvcc.types import (
    Alarm,
    Compact,
    CompactResult,
    Compare,
    DeclareFields,
    DeclareIndex,
    DropIndex,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Op,
    RangeRequest,
    RangeResult,
    Release,
    Result,
    SessionCommand,
    Txn,
    TxnResult,
)
from minikube_py.mvcc.types import WatchBatch as WatchBatch

WatchSink = Callable[[WatchBatch], None]
"""Called on the event loop, in order; must neither block nor raise. On the embedded store it runs before the write's
own future resolves, so every watch cache is up to date when a writer gets its answer."""


ALARM_ADVICE: Final = (
    "`minikube-py store alarm list` shows why, `minikube-py store alarm disarm` clears it once the cause is gone"
)


class WatchHandle(Protocol):
    def cancel(self) -> None: ...


class Storage(Protocol):
    async def get(self, key: bytes, revision: int = 0) -> tuple[KeyValue | None, int]:
        """The key's state and the current revision. Linearizable."""

    async def range(self, request: RangeRequest) -> RangeResult:
        """Raises: Compacted, FutureRevision, InvalidRequest."""

    async def txn(self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()) -> TxnResult:
        """If all compares hold runs `success`, else `failure`; returns once durable and applied.

        Raises: InvalidRequest, LeaseNotFound, RequestTooLarge, Unavailable, OutcomeUnknown."""

    async def release(self, txn: Txn) -> TxnResult:
        """A write required for a deletion, permitted under alarm NOSPACE. Raises: as `txn`; NoSpace, Unavailable."""

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        """Sends every change in [key, range_end) from `start_revision` on (0: from now). prev_kv always filled.

        With `where`, an object that enters the set is reported as PUT without prev_kv, one that leaves as DELETE whose
        kv.mod_revision is the revision at which it left (prev_kv: its last state), one that changes inside as PUT with
        prev_kv; a PUT's kv keeps the object's own mod_revision.

        A watch that is refused (InvalidRequest, Unavailable) raises within the store's process; over a connection the
        sink gets it as `error`."""

    async def lease_grant(self, ttl_s: int, lease_id: int = 0) -> LeaseResult: ...

    async def lease_keep_alive(self, lease_id: int) -> int:
        """The lease's TTL in seconds, 0 if it is unknown."""

    async def lease_revoke(self, lease_id: int) -> None: ...

    async def compact(self, revision: int) -> CompactResult: ...

    async def declare(self, field_set: FieldSet) -> None:
        """Makes the fields queryable; idempotent. Returns when the index is complete."""

    async def declare_index(self, spec: IndexSpec) -> int:
        """Declares an index over fields that were declared, or that `spec` declares; idempotent. Returns the revision
        of its key; members build it in the background.

        Raises: InvalidRequest for a name that is taken, a field, structure or option that is unknown."""

    async def drop_index(self, name: str) -> int:
        """Returns the revision at which it is removed. Raises: InvalidRequest if there is no such index."""

    async def indexes(self) -> list[IndexReport]:
        """The state of the declared indexes at the connected member, by name."""

    async def explain(self, request: RangeRequest) -> Explanation:
        """The plan for a request with a `where`, and the cost of the alternatives: all are run.

        Raises: as `range`; InvalidRequest without a `where`."""

    alarm_advice: str

    @property
    def trouble(self) -> str:
        """Why watches stand still although reads are answered; "" if they do not."""

    async def alarms(self) -> list[Alarm]:
        """The alarms that all members have agreed on; see `mvcc.alarms`. `alarm_advice`: how to clear them."""

    @property
    def revision(self) -> int:
        """The latest revision this side has seen applied."""

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Prometheus name."""

    async def close(self) -> None: ...


class CommandStorage:
    """The writes of a `Storage`, each as one command. A subclass only needs to send commands."""

    alarm_advice = ALARM_ADVICE
    trouble = ""

    def command(self, command: SessionCommand) -> Awaitable[Result]:
        """Sends it through the log, once. Raises: RequestError, Unavailable, OutcomeUnknown."""
        raise NotImplementedError

    async def txn(self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()) -> TxnResult:
        result = await self.command(Txn(tuple(compare), tuple(success), tuple(failure)))
        return result  # type: ignore[return-value]

    async def release(self, txn: Txn) -> TxnResult:
        return cast(TxnResult, await self.command(Release(txn)))

    async def lease_grant(self, ttl_s: int, lease_id: int = 0) -> LeaseResult:
        return cast(LeaseResult, await self.command(LeaseGrant(lease_id, ttl_s)))

    async def lease_revoke(self, lease_id: int) -> None:
        await self.command(LeaseRevoke(lease_id))

    async def compact(self, revision: int) -> CompactResult:
        return cast(CompactResult, await self.command(Compact(revision)))

    async def declare(self, field_set: FieldSet) -> None:
        await self.command(DeclareFields(field_set))

    async def declare_index(self, spec: IndexSpec) -> int:
        check_spec(spec)
        return (await self.command(DeclareIndex(spec))).revision

    async def drop_index(self, name: str) -> int:
        return (await self.command(DropIndex(name))).revision


def begun(storage: Storage, txn: Txn) -> asyncio.Future[TxnResult]:
    """As `sent`, in a task of its own unless it is a future."""
    return asyncio.ensure_future(sent(storage, txn))


def sent(storage: Storage, txn: Txn) -> Awaitable[TxnResult]:
    """`storage.txn`, sent before this returns if the store is in this process: its result. Raises: as that."""
    if isinstance(storage, CommandStorage):
        return cast(Awaitable[TxnResult], storage.command(txn))
    return storage.txn(txn.compare, txn.success, txn.failure)
