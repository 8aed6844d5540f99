"""A control plane that records API requests, their store calls, and watch deliveries.

The plain control plane uses the plain classes, without any of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast

import orjson

from minikube_py.apiserver.auth import ADMIN, ANONYMOUS, CONTROLLER_MANAGER, SCHEDULER, SHARED_KUBELET
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.routes import parse_path, verb_of
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import ApiResponse, ApiTransport, WatchEvent
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import ControlPlaneConfig, Step
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.control_plane.progress import Say
from minikube_py.control_plane.users import USERS
from minikube_py.env import Clock, Rng
from minikube_py.errors import MinikubeError, Unavailable
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Where
from minikube_py.lab.calls.recorder import API_SERVER, CALLER, ITSELF, Call, Caller, Kind, Recorder
from minikube_py.lab.calls.shapes import Shape, name_of, range_shape, resource_of, txn_shape, watch_shape
from minikube_py.mvcc.types import (
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
)
from minikube_py.store.storage import Storage, WatchBatch, WatchHandle, WatchSink

T = TypeVar("T")
ROLES: Mapping[str, str] = {
    ADMIN.name: "user",
    SCHEDULER.name: "scheduler",
    CONTROLLER_MANAGER.name: "controllers",
    SHARED_KUBELET.name: "kubelet",
}
_NAMES_KEPT = 256
"""Of the objects in one batch."""


class _Cuttable:
    """A watch that this side can end, like a lost connection."""

    def __init__(self, sink: WatchSink) -> None:
        self.sink = sink
        self.handle: WatchHandle | None = None

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()


class RecordedStorage:
    """Wraps the Storage for the API server named `server`. Methods added to the protocol later are not recorded."""

    def __init__(self, storage: Storage, recorder: Recorder, server: str = API_SERVER) -> None:
        self._storage, self._recorder, self._server = storage, recorder, server
        self._watches: list[_Cuttable] = []
        self._cut = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def recorded(*args: Any, **kwargs: Any) -> Any:
            return await self._record(Shape(name, name), resource_of(b"/registry/"), (), found(*args, **kwargs))

        return recorded

    async def _record(self, shape: Shape, resource: str, names: tuple[str, ...], asked: Awaitable[T]) -> T:
        recorder, caller = self._recorder, CALLER.get()
        sent_s = recorder.clock.monotonic_s()
        outcome, note = "given up", ""
        try:
            if self._cut:
                cast(Any, asked).close()
                raise Unavailable("the connection to the store is lost")
            result = await asked
            outcome, note = "done", _note(result)
            if isinstance(result, TxnResult) and not result.succeeded:
                recorder.failures["txn: compare failed"] += 1
        except MinikubeError as error:
            outcome = type(error).__name__
            raise
        finally:
            role = self._server if caller is ITSELF else caller.role
            recorder.stored(shape, resource, names, role, self._server, sent_s, outcome, caller.request, note)
        return result

    async def get(self, key: bytes, revision: int = 0) -> tuple[KeyValue | None, int]:
        self._recorder.parts["get"] += 1
        shape = range_shape(RangeRequest(key, revision=revision))
        asked = self._storage.get(key, revision)
        return await self._record(shape, resource_of(key), (name_of(key),), asked)

    async def range(self, request: RangeRequest) -> RangeResult:
        names = () if request.range_end else (name_of(request.key),)
        asked = self._storage.range(request)
        if request.keys_only:
            self._recorder.parts["range.keys_only"] += 1
        return await self._record(range_shape(request), resource_of(request.key), names, asked)

    async def txn(self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()) -> TxnResult:
        caller = CALLER.get()
        keys = [op.key for op in success if isinstance(op, Put | DeleteRange)]
        shape = txn_shape(compare, success, failure, caller.purpose)
        resource = resource_of(keys[0]) if keys else resource_of(b"/registry/")
        names = tuple(filter(None, map(name_of, keys)))
        return await self._record(shape, resource, names, self._storage.txn(compare, success, failure))

    async def release(self, txn: Txn) -> TxnResult:
        """Not recorded: called only for a store that is out of space."""
        return await self._storage.release(txn)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        recorder, caller = self._recorder, CALLER.get()
        shape = watch_shape(key, range_end, start_revision, where is not None)
        role = self._server if caller is ITSELF else caller.role
        now_s = recorder.clock.monotonic_s()
        if self._cut:
            raise Unavailable("the connection to the store is lost")
        watch = _Cuttable(self._recorded_sink(role, sink))
        text = f"watch: {shape.text}".replace("a revision", f"revision {start_revision:,}")
        recorder.keep(
            Call("store", role, self._server, text, resource_of(key), (), now_s, now_s, "open", caller.request)
        )
        watch.handle = self._storage.watch(key, range_end, start_revision, watch.sink, where)
        took_s = recorder.clock.monotonic_s() - now_s
        recorder.count(Kind("watch", shape.text, resource_of(key), role), shape, took_s, "done")
        self._watches.append(watch)
        return watch

    def _recorded_sink(self, role: str, sink: WatchSink) -> WatchSink:
        recorder, server = self._recorder, self._server

        def take(batch: WatchBatch) -> None:
            now_s = recorder.clock.monotonic_s()
            if batch.events or batch.error is not None:
                recorder.events["from the store: batches"] += 1
                recorder.events["from the store: events"] += len(batch.events)
                names = tuple(name_of(event.kv.key) for event in batch.events[:_NAMES_KEPT])
                resource = resource_of(batch.events[0].kv.key) if batch.events else ""
                outcome = type(batch.error).__name__ if batch.error is not None else "done"
                text = outcome if batch.error is not None else _events_text(len(batch.events), batch.revision)
                recorder.keep(Call("events", role, server, text, resource, names, now_s, now_s, outcome, 0))
            sink(batch)

        return take

    def cut(self) -> None:
        """Simulates a lost connection: watches end and calls are refused, until `mend`."""
        self._cut = True
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.cancel()
            watch.sink(WatchBatch((), self._storage.revision, Unavailable("the connection to the store is lost")))

    def mend(self) -> None:
        self._cut = False

    async def lease_grant(self, ttl_s: int, lease_id: int = 0) -> LeaseResult:
        asked = self._storage.lease_grant(ttl_s, lease_id)
        return await self._record(Shape("lease_grant", "lease_grant"), resource_of(b"/registry/"), (), asked)

    async def compact(self, revision: int) -> CompactResult:
        asked = self._storage.compact(revision)
        return await self._record(Shape("compact", "compact"), resource_of(b"/registry/"), (), asked)

    async def declare(self, field_set: FieldSet) -> None:
        asked = self._storage.declare(field_set)
        await self._record(Shape("declare", "declare"), resource_of(field_set.prefix), (), asked)

    @property
    def revision(self) -> int:
        return self._storage.revision

    def metrics(self) -> dict[str, float]:
        return self._storage.metrics()

    async def close(self) -> None:
        await self._storage.close()


def _note(result: object) -> str:
    if isinstance(result, RangeResult):
        return f"{len(result.kvs):,} of {result.count:,}" if result.more else f"{len(result.kvs):,} found"
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], int):
        found, revision = result
        return f"revision {revision:,}" if found is None else f"found, revision {found.mod_revision:,}"
    if isinstance(result, TxnResult):
        return f"revision {result.revision:,}" if result.succeeded else "compare failed"
    return ""


def _events_text(count: int, revision: int) -> str:
    return f"event, revision {revision:,}" if count == 1 else f"{count:,} events, to revision {revision:,}"


class RecordedApiServer(ApiServer):
    """Passes each request's caller to the storage below, and records the request. `name`: as in its storage."""

    def __init__(self, recorder: Recorder, name: str, storage: RecordedStorage, *args: Any, **kwargs: Any) -> None:
        super().__init__(cast(Storage, storage), *args, **kwargs)
        self._recorder, self.name = recorder, name

    async def handle(self, request: Request) -> Response:
        recorder = self._recorder
        caller, resource, name = _caller(request, recorder.next_number())
        sent_s = recorder.clock.monotonic_s()
        token = CALLER.set(caller)
        try:
            response = await super().handle(request)
        finally:
            CALLER.reset(token)
        ended_s = recorder.clock.monotonic_s()
        if not name and request.method == "POST":
            name = _name_in(request.body)
        recorder.requests[caller.role, caller.purpose or caller.verb, resource] += 1
        text = f"{request.method} {_path_text(request)}"
        size = "in pieces" if response.pieces is not None else _size(len(response.body))
        note = "stream" if response.stream is not None else size
        names = (name,) if name else ()
        recorder.keep(
            Call(
                "api", caller.role, self.name, text, resource, names, sent_s, ended_s,
                str(response.status), caller.request, note,
            )
        )  # fmt: skip
        return response

    async def renew(self, user: User, writes: Sequence[tuple[str, bytes]]) -> Sequence[ApiResponse | None]:
        """Each is recorded as a request of its own."""
        return [None] * len(writes)


def _caller(request: Request, number: int) -> tuple[Caller, str, str]:
    """The caller, with the requested resource and object."""
    role = ROLES.get((request.user or ANONYMOUS).name, (request.user or ANONYMOUS).name)
    path = parse_path(request.path)
    if path is None:
        return Caller(role, request.method.lower(), "", number), request.path, ""
    verb = verb_of(path, request.method, request.query.get("watch") in ("true", "1"))
    purpose = {"binding": "bind"}.get(path.subresource, path.subresource)
    name = f"{path.namespace}/{path.name}" if path.namespace and path.name else path.name
    return Caller(role, verb, purpose, number), path.plural, name


def _name_in(body: bytes) -> str:
    try:
        metadata = orjson.loads(body)["metadata"]
        namespace, name = metadata.get("namespace"), metadata["name"]
    except (ValueError, LookupError, TypeError):
        return ""
    return f"{namespace}/{name}" if namespace else str(name)


_SHOWN = ("watch", "resourceVersion", "fieldSelector", "limit", "continue")


def _path_text(request: Request) -> str:
    """The path below the API version, and the relevant parameters."""
    path = parse_path(request.path)
    if path is None:
        return request.path
    shown = [f"{key}={'...' if key == 'continue' else request.query[key]}" for key in _SHOWN if key in request.query]
    place = "/".join(filter(None, (path.namespace, path.name)))
    text = f"{path.plural} {place}".rstrip() + (f"/{path.subresource}" if path.subresource else "")
    return f"{text}?{'&'.join(shown)}" if shown else text


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1000:,.0f} kB" if size_bytes >= 10_000 else f"{size_bytes:,} B"


class RecordedTransport(InProcessTransport):
    """Records watch deliveries to this user."""

    def __init__(self, recorder: Recorder, core: RecordedApiServer, user: User) -> None:
        super().__init__(core, user)
        self._recorder, self._server = recorder, core.name
        self._role = ROLES.get(user.name, user.name)

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        recorder = self._recorder
        parsed = parse_path(path)
        resource = parsed.plural if parsed is not None else path
        async with aclosing(cast(Any, super().watch(path, params))) as batches:
            async for events in batches:
                now_s = recorder.clock.monotonic_s()
                recorder.events[f"to {self._role}: events"] += len(events)
                names = tuple(_name_in(event.object) for event in events[:_NAMES_KEPT])
                kinds = dict.fromkeys(event.type for event in events)
                text = f"{'/'.join(kinds)} {resource}" + (f" ×{len(events):,}" if len(events) > 1 else "")
                outcome = "done"
                if "ERROR" in kinds:
                    status = orjson.loads(events[-1].object)
                    text = outcome = f"{status.get('code')} {status.get('reason')}"
                recorder.keep(
                    Call("delivery", self._role, self._server, text, resource, names, now_s, now_s, outcome, 0)
                )
                yield events


class RecordedControlPlane(ControlPlane):
    """Like `minikube-py up` in one process, with a recorder on both sides of the API server."""

    def __init__(
        self,
        recorder: Recorder,
        config: ControlPlaneConfig,
        clock: Clock,
        rng: Rng,
        step: Step = lambda *_: None,
        progress: Say = lambda _: None,
    ) -> None:
        super().__init__(config, clock, rng, step, progress)
        self.recorder = recorder
        self.recorded: RecordedStorage

    def transport(self, user: User = USERS[tokens.ADMIN]) -> ApiTransport:
        return RecordedTransport(self.recorder, cast(RecordedApiServer, self.core), user)

    def new_core(self, storage: Storage, clock: Clock, rng: Rng, **options: Any) -> ApiServer:
        self.recorded = RecordedStorage(storage, self.recorder)
        return RecordedApiServer(self.recorder, API_SERVER, self.recorded, clock, rng, **options)

    async def another_core(self, name: str, rng: Rng) -> RecordedApiServer:
        """An additional API server on the same store; the caller must stop it."""
        storage = RecordedStorage(self.member.storage, self.recorder, name)
        key = self.credentials.signing_key
        core = RecordedApiServer(self.recorder, name, storage, self._clock, rng, signing_key=key)
        await core.start()
        return core
