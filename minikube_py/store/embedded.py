"""Storage within the member's own process."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from minikube_py.errors import MinikubeError
from minikube_py.fields.where import Where
from minikube_py.index.declared import IndexSpec
from minikube_py.index.reports import Explanation, IndexReport
from minikube_py.index.running import check_buildable
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Alarm, Command, KeyValue, LeaseResult, RangeRequest, RangeResult, Result
from minikube_py.store import paging
from minikube_py.store.explaining import explained
from minikube_py.store.storage import CommandStorage, WatchHandle, WatchSink

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember


class EmbeddedStorage(CommandStorage):
    """Reads are linearizable: at once with one voter, where everything acknowledged is applied; with other members once
    a majority has confirmed the leader."""

    def __init__(self, member: StoreMember) -> None:
        self._member = member

    async def get(self, key: bytes, revision: int = 0) -> tuple[KeyValue | None, int]:
        if not self._member.readable:
            await self._member.confirmed()
        result = self._member.state.range(RangeRequest(key, revision=revision))
        return (result.kvs[0] if result.kvs else None), result.revision

    async def range(self, request: RangeRequest) -> RangeResult:
        if not self._member.readable:
            await self._member.confirmed()
        return await paging.read(self._member, request)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        return self._member.watch(key, range_end, start_revision, sink, where)

    async def lease_grant(self, ttl_s: int, lease_id: int = 0) -> LeaseResult:
        return await super().lease_grant(ttl_s, lease_id or self._member.new_lease_id())

    async def declare_index(self, spec: IndexSpec) -> int:
        check_buildable(spec)
        return await super().declare_index(spec)

    async def lease_keep_alive(self, lease_id: int) -> int:
        future: asyncio.Future[int] = self._member.loop.create_future()
        self._member.keep_alive(lease_id, partial(settle, future))
        return await future

    async def indexes(self) -> list[IndexReport]:
        await self._member.confirmed()
        return self._member.state.tables.reports()

    async def explain(self, request: RangeRequest) -> Explanation:
        await self._member.confirmed()
        return await explained(self._member.state, request, self._member.clock)

    async def alarms(self) -> list[Alarm]:
        return sorted(self._member.state.alarms.raised)

    @property
    def revision(self) -> int:
        return self._member.state.revision

    def metrics(self) -> dict[str, float]:
        return self._member.metrics()

    async def close(self) -> None:
        """The member keeps running; its owner stops it."""

    def command(self, command: Command) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = self._member.loop.create_future()
        self._member.propose(command, pack(command), partial(settle, future))
        return future


def settle(future: asyncio.Future[Any], result: object, error: MinikubeError | None) -> None:
    """The caller may have gone."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
