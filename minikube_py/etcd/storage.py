"""`Storage` on an external etcd, for users who outgrow one machine and keep everything else.

Writes and reads of keys go to etcd. Features beyond etcd (fields, sums, indexes, watches with a `where`) are answered
by a mirror in this process, fed by etcd's watch, at a revision not below any acknowledged before (docs/adr, "A real
etcd behind the API server")."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from minikube_py.env import Clock, ended
from minikube_py.errors import Compacted, FutureRevision, InvalidRequest, Unavailable
from minikube_py.etcd.client import REQUEST_TIMEOUT_S, Endpoints, EtcdClient
from minikube_py.etcd.compactor import Compactor, Forgetting
from minikube_py.etcd.errors import COMPACTED, FUTURE, EtcdNoSpace
from minikube_py.etcd.feed import Feed
from minikube_py.etcd.keys import PREFIX, Keys
from minikube_py.etcd.kv import ALARMS
from minikube_py.etcd.messages import pb
from minikube_py.etcd.mirror import Mirror, fields_key, fields_value
from minikube_py.etcd.steps import in_steps
from minikube_py.etcd.wording import Wording
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Where
from minikube_py.index.declared import IndexSpec, dump, key_of
from minikube_py.index.reports import Explanation, IndexReport
from minikube_py.index.running import check_buildable
from minikube_py.mvcc.types import (
    Alarm,
    CompactResult,
    Compare,
    DeleteRange,
    KeyValue,
    LeaseResult,
    Op,
    Put,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
    prefix_end,
)
from minikube_py.mvcc.validate import validate
from minikube_py.mvcc.versions import LATEST
from minikube_py.store.explaining import explained, measured
from minikube_py.store.storage import WatchHandle, WatchSink

ANY_KEY: Final = b"/registry/"


class EtcdStorage:
    """`await start()` loads the content; raises if no member can be reached. Create it within the loop."""

    alarm_advice = EtcdNoSpace.advice

    def __init__(
        self,
        endpoints: Endpoints,
        clock: Clock,
        *,
        prefix: str = PREFIX,
        compaction_interval_s: float,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._clock, self._timeout_s = clock, request_timeout_s
        self._wording = Wording(Keys(prefix))
        self._client = EtcdClient(endpoints, clock, self._answered, request_timeout_s)
        self.feed = Feed(self._client, self._wording, clock)
        self.compactor = Compactor(self._client, clock, compaction_interval_s, self._compacted)
        self.forgetting = Forgetting(self._client, clock, self.feed)
        self._compacting: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises: Unavailable; InvalidRequest if the content is not ours."""
        await self.feed.start()
        loop = asyncio.get_running_loop()
        self._compacting = [loop.create_task(each.run()) for each in (self.compactor, self.forgetting)]

    def wait_at_most(self, request_timeout_s: float) -> None:
        """Sets the timeout for answers of etcd."""
        self._timeout_s = self._client.timeout_s = request_timeout_s

    async def close(self) -> None:
        for task in self._compacting:
            task.cancel()
        await ended(*self._compacting)
        await self.feed.stop(Unavailable("the connection to etcd was closed"))
        await self._client.close()

    def _answered(self, header: Any, seen: int) -> None:
        self.feed.answered(header, seen)

    def _compacted(self, revision: int) -> None:
        self.feed.mirror.compact(revision)

    # -- keys ----------------------------------------------------------------------------------------------------------

    async def get(self, key: bytes, revision: int = 0) -> tuple[KeyValue | None, int]:
        result = await self.range(RangeRequest(key, revision=revision))
        return (result.kvs[0] if result.kvs else None), result.revision

    async def range(self, request: RangeRequest) -> RangeResult:
        """Past revisions that the mirror holds are read there: they cannot change any more."""
        validate(request)
        if request.where is not None or request.fields:
            return await self._indexed(request)
        state = self.feed.mirror.state
        if request.revision and state.compact_revision <= request.revision <= state.revision:
            return state.range(request)._replace(revision=self.revision)
        return await self._asked(request)

    async def _asked(self, request: RangeRequest) -> RangeResult:
        if request == RangeRequest(request.key, request.range_end, revision=request.revision) and request.range_end:
            found: RangeResult = await self._of_past(self._paged(request), request.revision)
            return found
        answer = await self._of_past(self._client.read("KV/Range", self._wording.range(request)), request.revision)
        return self._wording.ranged(answer, answer.header.revision)

    async def _paged(self, request: RangeRequest) -> RangeResult:
        kvs: list[KeyValue] = []
        revision = 0
        async for answer in self.feed.pages.read(self._wording.range(request)):
            revision = revision or answer.header.revision
            kvs += self._wording.kvs(answer.kvs)
        return RangeResult(kvs, len(kvs), False, revision)

    async def txn(self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()) -> TxnResult:
        txn = Txn(tuple(compare), tuple(success), tuple(failure))
        validate(txn)
        return await self._written(txn)

    async def _written(self, txn: Txn) -> TxnResult:
        answer = await self._of_past(self._client.write("KV/Txn", self._wording.txn(txn)))
        return self._wording.done(answer, answer.header.revision)

    async def _of_past(self, answer: Awaitable[Any], revision: int = 0) -> Any:
        """Raises: Compacted, FutureRevision, if etcd's message says so."""
        try:
            return await answer
        except InvalidRequest as error:
            if str(error) == COMPACTED[1]:
                raise Compacted(revision, self.feed.mirror.state.compact_revision) from None
            if str(error) == FUTURE[1]:
                raise FutureRevision(revision, self.revision) from None
            raise

    async def release(self, txn: Txn) -> TxnResult:
        """etcd makes no such distinction: under an alarm it accepts only deletions."""
        return await self.txn(txn.compare, txn.success, txn.failure)

    async def compact(self, revision: int) -> CompactResult:
        request = pb.CompactionRequest(revision=revision)
        answer = await self._of_past(self._client.write("KV/Compact", request), revision)
        await self.feed.reached(revision, self._timeout_s)
        self._compacted(revision)
        return CompactResult(answer.header.revision)

    async def lease_grant(self, ttl_s: int, lease_id: int = 0) -> LeaseResult:
        answer = await self._client.write("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=ttl_s, ID=lease_id))
        return LeaseResult(answer.header.revision, answer.ID, answer.TTL)

    async def lease_keep_alive(self, lease_id: int) -> int:
        answer = await self._client.exchange("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=lease_id))
        return int(answer.TTL)

    async def lease_revoke(self, lease_id: int) -> None:
        await self._client.write("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease_id))

    async def alarms(self) -> list[Alarm]:
        answer = await self._client.read("Maintenance/Alarm", pb.AlarmRequest())
        return sorted(Alarm(each.memberID, ALARMS[each.alarm]) for each in answer.alarms)

    # -- answered by the mirror ----------------------------------------------------------------------------------------

    async def _fresh(self) -> Mirror:
        """The mirror, including everything acknowledged before this call."""
        _, revision = await self.get(ANY_KEY)
        await self.feed.reached(revision, self._timeout_s)
        return self.feed.mirror

    async def _indexed(self, request: RangeRequest) -> RangeResult:
        """An exact older revision that the mirror does not have is read completely from etcd, and scanned."""
        state = self.feed.mirror.state
        if not state.compact_revision <= request.revision <= state.revision:
            state = (await self._fresh()).state
        if request.revision and request.revision < state.compact_revision:
            return await self._scanned(request)
        result = measured(state, request, self._clock)
        return result._replace(revision=self.revision) if request.revision else result

    async def _scanned(self, request: RangeRequest) -> RangeResult:
        compared = request.where.comparisons if request.where is not None else ()
        asked = [*request.fields, *(each.field for each in compared)]
        field_set, _ = self.feed.mirror.state.tables.covering(request.key, request.range_end, asked)
        prefixes = dict.fromkeys([field_set.prefix, *(each.source_prefix for each in field_set.sums)])
        kvs: list[KeyValue] = []
        for prefix in prefixes:
            found = await self._asked(RangeRequest(prefix, prefix_end(prefix), revision=request.revision))
            kvs += found.kvs
        mirror = await in_steps(Mirror.loading(kvs, request.revision, (field_set,)))
        result = mirror.state.range(request)
        assert result.stats is not None
        stats = result.stats._replace(structure="scan", index="", objects_decoded=len(kvs))
        return result._replace(revision=self.revision, stats=stats)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        handle = self.feed.hub.add(key, range_end, start_revision, sink, where)
        self.feed.catch_up_soon()
        return handle

    async def declare(self, field_set: FieldSet) -> None:
        """For this server only; others declare their own."""
        self.feed.mirror.declare(field_set)
        self.feed.field_sets[field_set.name] = field_set

    async def declare_index(self, spec: IndexSpec) -> int:
        """Stored in etcd, with its fields, for all servers: each builds its own."""
        check_buildable(spec)
        tables = (await self._fresh()).state.tables
        if not tables.check_index(spec, LATEST):
            return self.revision
        key = key_of(spec.name)
        base = tables.declared[spec.on]
        ops = (Put(fields_key(base.name), fields_value(base)), Put(key, dump(spec)))
        result = await self._written(Txn((Compare(key, "CREATE", "=", 0),), ops))
        await self.feed.reached(result.revision, self._timeout_s)
        if not result.succeeded:
            self.feed.mirror.state.tables.check_index(spec, LATEST)
        return result.revision

    async def drop_index(self, name: str) -> int:
        (await self._fresh()).state.tables.check_drop(name)
        result = await self._written(Txn((), (DeleteRange(key_of(name)),)))
        await self.feed.reached(result.revision, self._timeout_s)
        return result.revision

    async def indexes(self) -> list[IndexReport]:
        return (await self._fresh()).state.tables.reports()

    async def explain(self, request: RangeRequest) -> Explanation:
        state = (await self._fresh()).state
        explanation = await explained(state, request, self._clock)
        return explanation._replace(scanned_below=state.compact_revision)

    # -- status --------------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        return self.feed.trouble

    @property
    def revision(self) -> int:
        return max(self.feed.mirror.revision, self._client.seen_revision)

    def metrics(self) -> dict[str, float]:
        prefix, feed, client = "minikube_py_etcd_client_", self.feed, self._client
        return {
            prefix + "following": float(feed.following),
            prefix + "revision": client.seen_revision,
            prefix + "watch_revision": feed.mirror.revision,
            prefix + "compact_revision": feed.mirror.state.compact_revision,
            prefix + "requests_total": client.requests,
            prefix + "requests_retried_total": client.retries,
            prefix + "writes_unknown_total": client.unknown,
            prefix + "progress_requests_total": feed.asked,
            prefix + "watch_streams_total": feed.streams,
            prefix + "loads_total": feed.loads,
            prefix + "mirror_bytes": feed.mirror.state.size_bytes,
            prefix + "watches": len(feed.hub),
        }
