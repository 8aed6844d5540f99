"""A Storage that records the requests to another one, for the checkers of the store beneath an API server."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from minikube_py.errors import MinikubeError, OutcomeUnknown
from minikube_py.fields.where import Where
from minikube_py.index.reports import Explanation, IndexReport
from minikube_py.mvcc.types import (
    Alarm,
    KeyValue,
    LeaseResult,
    RangeRequest,
    RangeResult,
    Result,
    SessionCommand,
)
from minikube_py.sim.history import KeepAlive, Request
from minikube_py.sim.recorder import Recorder
from minikube_py.store.client import StoreClient
from minikube_py.store.storage import CommandStorage, WatchHandle, WatchSink


class RecordedStorage(CommandStorage):
    """As `client`. Watches are not recorded: their results are checked at the receiver."""

    def __init__(self, storage: StoreClient, recorder: Recorder, client: int) -> None:
        self._storage = storage
        self._recorder = recorder
        self._client = client

    async def _record(self, request: Request, asked: Awaitable[Any]) -> Any:
        number = self._recorder.begin(self._client, request, False)
        try:
            result = await asked
        except OutcomeUnknown as error:
            self._recorder.end(number, "unknown", None, error)
            raise
        except MinikubeError as error:
            self._recorder.end(number, "refused", None, error)
            raise
        except BaseException:
            # The caller gave up; the request continues.
            self._recorder.end(number, "unknown")
            raise
        self._recorder.end(number, "done", result)
        return result

    async def get(self, key: bytes, revision: int = 0) -> tuple[KeyValue | None, int]:
        result = await self.range(RangeRequest(key, revision=revision))
        return (result.kvs[0] if result.kvs else None), result.revision

    async def range(self, request: RangeRequest) -> RangeResult:
        return cast(RangeResult, await self._record(request, self._storage.range(request)))

    async def command(self, command: SessionCommand) -> Result:
        return cast(Result, await self._record(command, self._storage.command(command)))

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        return self._storage.watch(key, range_end, start_revision, sink, where)

    async def lease_keep_alive(self, lease_id: int) -> int:
        async def asked() -> LeaseResult:
            return LeaseResult(0, lease_id, await self._storage.lease_keep_alive(lease_id))

        return cast(LeaseResult, await self._record(KeepAlive(lease_id), asked())).ttl_s

    async def indexes(self) -> list[IndexReport]:
        return await self._storage.indexes()

    async def alarms(self) -> list[Alarm]:
        return await self._storage.alarms()

    async def explain(self, request: RangeRequest) -> Explanation:
        return await self._storage.explain(request)

    @property
    def revision(self) -> int:
        return self._storage.revision

    def metrics(self) -> dict[str, float]:
        return self._storage.metrics()

    async def close(self) -> None:
        await self._storage.close()
