"""Clients of members' etcd API over gRPC, recorded and checked like those of the simulator."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import grpc
import grpc.aio
from etcd_traffic import PROFILES, EtcdTraffic
from ports import free_ports
from store_cluster import HOST, Role, StoreCluster
from store_load import Life, RealProcess, StoreLoad

from minikube_py.env import Rng, ended
from minikube_py.errors import Compacted, InvalidRequest, MinikubeError, Unavailable
from minikube_py.etcd.client import Endpoints, EtcdClient, quietly
from minikube_py.etcd.errors import COMPACTED
from minikube_py.etcd.keys import Keys
from minikube_py.etcd.messages import BY_NAME, pb
from minikube_py.etcd.wording import Wording
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import (
    Compact,
    CompactResult,
    DeleteRange,
    DeleteResult,
    Event,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Put,
    PutResult,
    RangeRequest,
    Txn,
    WatchBatch,
)
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.sim.checkers.leases import Bounds
from minikube_py.sim.checkers.verdict import Verdict
from minikube_py.sim.clients import Client, Follower, Watched
from minikube_py.sim.history import History, Request, WatchPart
from minikube_py.sim.workload import ALL
from minikube_py.store.storage import WatchHandle, WatchSink

TIMEOUTS_S: Final = (1.0, 3.0, 8.0)
ASK_S: Final = 0.25
"""How often a watch requests its progress."""
SILENT_S: Final = 4.0
"""A member silent on a watch for this long is left: it may be stopped."""
STREAMED: Final = 0.4
"""Share of the lists that use RangeStream."""
NOT_TOLD: Final = 0
"""etcd refuses a read as compacted without a revision; `name_compactions` fills it in."""
BRIEF_S: Final = 1.5
BRIEF_WATCHES: Final = 4


class SameKeys(Keys):
    """Keys without a prefix."""

    def out(self, key: bytes) -> bytes:
        return key

    def back(self, key: bytes) -> bytes:
        return key


WORDING: Final = Wording(SameKeys())


class Seen:
    """What one run's clients count together."""

    def __init__(self) -> None:
        self.progress = 0
        self.without_previous = 0
        self.streamed = 0


class EtcdAccess:
    """sim.access.Access by etcd's API: one member at a time, the next after a failure; no sessions."""

    def __init__(self, endpoints: Endpoints, process: RealProcess, seen: Seen) -> None:
        self._endpoints, self._process, self._seen = endpoints, process, seen
        self._watching: set[asyncio.Task[None]] = set()
        self._channels: list[Any] = []
        self.client: EtcdClient

    async def start(self) -> None:
        """A new one each time; older watches continue with theirs."""
        rng = self._process.rng
        places = tuple(rng.sample(self._endpoints.places, len(self._endpoints.places)))
        mine = replace(self._endpoints, places=places)
        self.client = EtcdClient(mine, self._process.clock, lambda *_: None, rng.choice(TIMEOUTS_S))
        self._channels.append(self.client)
        options = [("grpc.max_receive_message_length", -1)]
        self._streaming = grpc.aio.secure_channel(places[0], mine.credentials(), options)
        self._channels.append(self._streaming)

    async def close(self) -> None:
        """There is no session to end."""

    async def end(self) -> None:
        for task in self._watching:
            task.cancel()
        for task in list(self._watching):
            await ended(task)
        for channel in self._channels:
            await channel.close()

    async def ask(self, request: Request, serializable: bool) -> Any:
        try:
            return await self._asked(request, serializable)
        except InvalidRequest as error:
            if str(error) == COMPACTED[1] and isinstance(request, RangeRequest):
                raise Compacted(request.revision, NOT_TOLD) from None
            raise

    async def _asked(self, request: Any, serializable: bool) -> Any:
        client = self.client
        if isinstance(request, RangeRequest):
            message = WORDING.range(request)
            message.serializable = serializable
            whole = request.range_end and not request.limit and not serializable
            if whole and self._process.rng.random() < STREAMED:
                return await self._streamed(message)
            answer = await client.read("KV/Range", message)
            return WORDING.ranged(answer, answer.header.revision)
        if isinstance(request, Txn):
            answer = await client.write("KV/Txn", WORDING.txn(request))
            return WORDING.done(answer, answer.header.revision)
        if isinstance(request, Put | DeleteRange):
            return await self._single(request)
        if isinstance(request, Compact):
            answer = await client.write("KV/Compact", pb.CompactionRequest(revision=request.revision))
            return CompactResult(answer.header.revision)
        if isinstance(request, LeaseGrant):
            answer = await client.write("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=request.id, TTL=request.ttl_s))
            return LeaseResult(answer.header.revision, answer.ID, answer.TTL)
        assert isinstance(request, LeaseRevoke), request
        answer = await client.write("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=request.id))
        return LeaseResult(answer.header.revision, request.id, 0)

    async def _single(self, request: Put | DeleteRange) -> Any:
        if isinstance(request, Put):
            answer = await self.client.write("KV/Put", WORDING._op(request).request_put)
            previous = WORDING.kv(answer.prev_kv) if answer.HasField("prev_kv") else None
            return PutResult(answer.header.revision, previous)
        answer = await self.client.write("KV/DeleteRange", WORDING._op(request).request_delete_range)
        return DeleteResult(answer.header.revision, answer.deleted, tuple(WORDING.kvs(answer.prev_kvs)))

    async def _streamed(self, message: Any) -> Any:
        """The parts of a list, as one answer. Raises: InvalidRequest, Unavailable."""
        stream = self._streaming.unary_stream(
            "/etcdserverpb.KV/RangeStream",
            request_serializer=lambda it: it.SerializeToString(),
            response_deserializer=BY_NAME["RangeStreamResponse"].FromString,
        )
        found = pb.RangeResponse()
        try:
            async for part in stream(message, timeout=self.client.timeout_s):
                found.MergeFrom(part.range_response)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                raise InvalidRequest(str(error.details())) from None
            raise Unavailable(str(error.details())) from None
        self._seen.streamed += 1
        return WORDING.ranged(found, found.header.revision)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None
    ) -> WatchHandle:
        assert where is None
        create = pb.WatchCreateRequest(
            key=key, range_end=range_end, start_revision=start_revision, prev_kv=True, progress_notify=True,
            fragment=self._process.rng.random() < 0.5,
        )  # fmt: skip
        watching = Watching(self.client, create, sink, self._seen)
        task = watching.task = asyncio.create_task(watching.run())
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return watching


class Watching:
    """One stream with one watch. A batch reaches to its last event; one without events is progress."""

    def __init__(self, client: EtcdClient, create: Any, sink: WatchSink, seen: Seen) -> None:
        self._client, self._create, self._sink, self._seen = client, create, sink, seen
        self._told = create.start_revision - 1
        self._parts: list[Event] = []
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        place, error = self._client.place, cast(MinikubeError, Unavailable("the stream ended"))
        stream = self._client.stream("Watch/Watch")
        asking = asyncio.create_task(self._ask(stream))
        try:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                await stream.write(pb.WatchRequest(create_request=self._create))
                while True:
                    async with asyncio.timeout(SILENT_S):
                        answer = await stream.read()
                    if answer is grpc.aio.EOF:
                        break
                    if answer.canceled:
                        if answer.compact_revision:
                            error = Compacted(self._told + 1, answer.compact_revision)
                        break
                    self._take(answer)
        finally:
            asking.cancel()
            await ended(asking)
            stream.cancel()
        if not isinstance(error, Compacted):
            self._client.pass_over(place)
        self._sink(WatchBatch((), self._told, error))

    async def _ask(self, stream: Any) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            if not await quietly(stream, pb.WatchRequest(progress_request=pb.WatchProgressRequest())):
                return

    def _take(self, answer: Any) -> None:
        if answer.created:
            return
        if not answer.events:
            self._seen.progress += 1
            self._told = answer.header.revision
            self._sink(WatchBatch((), self._told))
            return
        self._parts += [self._event(each) for each in answer.events]
        if answer.fragment:
            return
        events, self._parts = self._parts, []
        self._told = events[-1].kv.mod_revision
        self._sink(WatchBatch(events, self._told))

    def _event(self, event: Any) -> Event:
        previous = WORDING.kv(event.prev_kv) if event.HasField("prev_kv") else None
        return Event("DELETE" if event.type else "PUT", WORDING.kv(event.kv), previous)


class Leaving(Follower):
    """Stops once it has seen enough."""

    def end(self) -> None:
        self._watch.live, self._part = False, None
        for each in (self._handle, self._task):
            if each is not None:
                each.cancel()


@dataclass(eq=False)
class TrafficClient(Client):
    """With the traffic of one profile. After a list it watches from there on for a while, if the profile does."""

    profile: type[EtcdTraffic] = EtcdTraffic

    def __post_init__(self) -> None:
        traffic = self.profile(Rng(self.process.rng.getrandbits(64)), self.number)
        traffic.listed = self._listed
        self._workload = traffic  # type: ignore[assignment]
        self._brief: set[asyncio.Task[None]] = set()

    def _listed(self, revision: int) -> None:
        if len(self._brief) < BRIEF_WATCHES:
            task = asyncio.get_running_loop().create_task(self._watch_briefly(revision + 1))
            self._brief.add(task)
            task.add_done_callback(self._brief.discard)

    async def _watch_briefly(self, start_revision: int) -> None:
        watched = Watched(self.profile.prefix, self.profile.end)
        process = self.process
        follower = Leaving(self.number, self.access, self.recorder, process.clock, process.rng, watched)
        follower.begin(start_revision)
        try:
            await process.clock.sleep(process.rng.random() * BRIEF_S)
        finally:
            follower.end()


class DoorCluster(StoreCluster):
    """Members that also serve etcd's API, and compact at a client's request."""

    def __init__(self, folder: Path, secrets: Path, rng: random.Random, scheme: str = "https") -> None:
        super().__init__(folder, secrets, rng)
        self._scheme = scheme
        self.doors: dict[str, int] = {}

    def url(self, name: str) -> str:
        return f"{self._scheme}://{HOST}:{self.doors[name]}"

    async def spawn(self, name: str, *flags: str, file_bytes_max: int | None = None) -> Role:
        self.doors.setdefault(name, free_ports(1)[0])
        more = ("--listen-client-urls", self.url(name), "--auto-compaction-retention", "0")
        return await super().spawn(name, *flags, *more, file_bytes_max=file_bytes_max)

    def etcd_endpoints(self) -> Endpoints:
        store = self.secrets / "store"
        pem = [(store / name).read_bytes() for name in ("authority.pem", "peer.pem", "peer.key")]
        return Endpoints(tuple(f"{HOST}:{port}" for port in self.doors.values()), *pem, secure=True)


class EtcdLoad(StoreLoad):
    """All clients of one run, of one profile. The first one watches everything."""

    def __init__(self, cluster: DoorCluster, rng: random.Random, profile: str, think_s: float = 0.02) -> None:
        super().__init__(cluster, rng, think_s=think_s)
        self._doors, self._profile, self.seen = cluster, PROFILES[profile], Seen()

    async def __aenter__(self) -> EtcdLoad:
        for _ in range(self._clients):
            self.be_born()
        self.traffic.watching = True
        self.traffic.ask(quota=1 << 60)
        await self.progress(20)
        return self

    def _made(self, process: RealProcess, number: int) -> tuple[Any, Client]:
        access = EtcdAccess(self._doors.etcd_endpoints(), process, self.seen)
        profile = self._profile
        watched = [Watched(profile.prefix, profile.end), Watched(profile.prefix, profile.end, None, 1, roams=True)]
        if number == 1:
            watched.append(Watched(ALL, ALL, None, 1))
        given: Any = process, number, access, self.traffic, self.recorder, self._workers, watched
        return access, TrafficClient(*given, profile=profile)

    async def _end(self, life: Life) -> None:
        await super()._end(life)
        await cast(EtcdAccess, life.access).end()

    def judged(self, history: History, views: Sequence[MemberView], bounds: Bounds) -> dict[str, Verdict]:
        name_compactions(history)
        self.seen.without_previous = fill_in(history)
        return super().judged(history, views, bounds)

    def counts(self) -> Counter[str]:
        return super().counts() + Counter({
            "progress": self.seen.progress, "lists in parts": self.seen.streamed,
            "compacted prev_kv": self.seen.without_previous,
        })  # fmt: skip


def name_compactions(history: History) -> None:
    """Names the compaction each read was refused for: the highest that was requested before the refusal and was not
    refused itself, as one of a future revision is. If there is none, the refusal stays without."""
    compacts = [each for each in history.operations if isinstance(each.request, Compact) and each.status != "refused"]
    for place, operation in enumerate(history.operations):
        error, return_us = operation.error, operation.return_us
        if isinstance(error, Compacted) and error.compact_revision == NOT_TOLD and return_us is not None:
            asked = (cast(Compact, each.request).revision for each in compacts if each.call_us <= return_us)
            named = Compacted(error.requested, max(asked, default=NOT_TOLD))
            history.operations[place] = operation._replace(error=named)


def fill_in(history: History) -> int:
    """etcd omits prev_kv if that revision was compacted meanwhile; fills in what others saw. Returns how many there
    were."""
    known: dict[bytes, dict[int, Any]] = {}
    compacts = [each for each in history.operations if isinstance(each.request, Compact) and each.status != "refused"]
    parts = [part for watch in history.watches for part in watch.parts]
    for part in parts:
        for delivery in part.deliveries:
            for event in delivery.batch.events:
                if event.type == "PUT":
                    known.setdefault(event.kv.key, {})[event.kv.mod_revision] = event.kv
                if event.prev_kv is not None:
                    known.setdefault(event.kv.key, {})[event.prev_kv.mod_revision] = event.prev_kv
    ordered = {key: sorted(found.items()) for key, found in known.items()}
    return sum(_fill_in_part(part, ordered, compacts) for part in parts)


def _fill_in_part(part: WatchPart, known: dict[bytes, list[tuple[int, Any]]], compacts: list[Any]) -> int:
    count = 0
    for place, (at_us, batch) in enumerate(part.deliveries):
        asked = max((each.request.revision for each in compacts if each.call_us < at_us), default=0)
        events = []
        for event in batch.events:
            lacks = event.prev_kv is None and event.kv.mod_revision - 1 < asked
            if lacks and (event.type == "DELETE" or event.kv.version > 1):
                before = [kv for revision, kv in known.get(event.kv.key, ()) if revision < event.kv.mod_revision]
                event, count = event._replace(prev_kv=before[-1] if before else None), count + 1
            events.append(event)
        part.deliveries[place] = part.deliveries[place]._replace(batch=batch._replace(events=events))
    return count
