"""Users of several API servers, written down in the checkers' own records, as if they had asked the store itself.

What the API does to an object is a transaction on its key: a create is guarded by its absence, an update by its
version. So the checkers of the store's histories judge the API's: nothing acknowledged lost, no read older than what
was seen before, no watch event missed or repeated. A client of the store watches all there is from its first revision
on: what others than these users write (API servers have affairs of their own) is taken from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from store_members import Members, until

from minikube_py.apiserver.object_store import encode
from minikube_py.client.kubeconfig import ClusterAccess
from minikube_py.env import SystemClock
from minikube_py.errors import RequestError
from minikube_py.mvcc.types import (
    Compare,
    DeleteRange,
    DeleteResult,
    Event,
    KeyValue,
    LeaseGrant,
    Op,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
)
from minikube_py.sim.checkers.verdict import Verdict
from minikube_py.sim.history import Delivery, History, Operation, Watch, WatchPart
from minikube_py.sim.judge import judge
from minikube_py.store.client import StoreClient

NAMESPACE = "default"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PREFIX = f"/registry/configmaps/{NAMESPACE}/".encode()
PREFIX_END = PREFIX[:-1] + b"0"
SHARED = 8
"""Objects that all users write, through whichever API server."""
OWN = 6
REQUEST_TIMEOUT_S = 30.0
WITHIN_S = 60.0
RETRY_S = 0.05
REFUSED = (404, 409, 410, 422)
"""Nothing was changed."""
OTHERS = -1
"""Whoever else writes."""
STORE_WATCHER = 1


@dataclass(slots=True)
class Asked:
    """One request to an API server. `version`: of the object before, where the request names it."""

    user: int
    method: str
    name: str
    call_us: int
    value: str = ""
    version: int = 0
    return_us: int | None = None
    status: int = 0
    """0: no answer came."""
    answer: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Told:
    """One event of a watch; `kind` as the API has it."""

    at_us: int
    kind: str
    obj: dict[str, Any]


@dataclass(slots=True)
class ApiWatch:
    """A watch through one API server, gone on with where its stream ended. `parts`: when each stream was opened, the
    version it starts after, its events."""

    user: int
    live: bool = True
    parts: list[tuple[int, int, list[Told]]] = field(default_factory=list)

    @property
    def version(self) -> int:
        """It has seen all up to there."""
        _, after, events = self.parts[-1]
        return _version(events[-1].obj) if events else after


class ApiLoad:
    """Users of API servers at `urls`, `users` of each and a watch through each; until `finish`."""

    def __init__(
        self,
        cluster: Members,
        access: Sequence[ClusterAccess],
        rng: random.Random,
        users: int = 3,
        think_s: float = 0.02,
    ) -> None:
        self._cluster, self._access, self._rng = cluster, list(access), rng
        self._users, self._think_s = users, think_s
        self._sessions: list[aiohttp.ClientSession] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._client = StoreClient(cluster.endpoints(), SystemClock(), random.Random(rng.getrandbits(64)))
        self._stopping = False
        self._drawn = 0
        self.asked: list[Asked] = []
        self.watches: list[ApiWatch] = []
        self.store: list[Delivery] = []
        self._store_from_us = 0

    # -- the run ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> ApiLoad:
        await self._client.start()
        self._store_from_us = now_us()
        self._client.watch(b"\0", b"\0", 1, lambda batch: self.store.append(Delivery(now_us(), batch)))
        user = STORE_WATCHER
        for access in self._access:
            timeout = aiohttp.ClientTimeout(REQUEST_TIMEOUT_S)
            connector = aiohttp.TCPConnector(ssl=access.ssl_context() or False, limit=0)
            headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
            session = aiohttp.ClientSession(access.server, connector=connector, headers=headers, timeout=timeout)
            session._retry_connection = False
            self._sessions.append(session)
            user += 1
            self.watches.append(ApiWatch(user))
            self._watchers.append(asyncio.create_task(self._watch(session, self.watches[-1])))
            for _ in range(self._users):
                user += 1
                rng = random.Random(self._rng.getrandbits(64))
                self._tasks.append(asyncio.create_task(self._use(session, user, rng)))
        await self.progress(20)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._tasks, *self._watchers):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._watchers, return_exceptions=True)
        for session in self._sessions:
            await session.close()
        await self._client.close()

    async def progress(self, operations: int) -> None:
        """Returns when so many more have been done."""
        wanted = self._done() + operations

        async def done() -> bool:
            self._check()
            return self._done() >= wanted

        await until(done, lambda: f"{operations} requests done, {wanted - self._done()} missing", WITHIN_S)

    def _done(self) -> int:
        return sum(asked.status in (200, 201) for asked in self.asked)

    def _check(self) -> None:
        """Nobody has ended by a mistake of theirs, or of ours."""
        for task in (*self._tasks, *self._watchers):
            if task.done() and not task.cancelled():
                task.result()

    async def finish(self) -> dict[str, Verdict]:
        """No more requests; once everybody has heard of all there is, a verdict by each checker."""
        self._stopping = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), WITHIN_S)
        await self._cluster.settle()
        for session in self._sessions:
            while (await self._list(session, OTHERS)).status != 200:
                self._check()
        found: list[tuple[History, list[Any]]] = []

        async def all_is_seen() -> bool:
            self._check()
            views = await self._cluster.views()
            revision = max(view.revision for view in views)
            last = max((_mod(event) for event in self._events() if event.kv.key.startswith(PREFIX)), default=0)
            if self.store[-1].batch.revision != revision or any(watch.version < last for watch in self.watches):
                return False
            found.append((self.history(), views))
            return True

        await until(all_is_seen, "what happened has been seen by all", WITHIN_S)
        [(history, views)] = found
        return await asyncio.to_thread(judge, history, views)

    # -- users --------------------------------------------------------------------------------------------------------

    async def _use(self, session: aiohttp.ClientSession, user: int, rng: random.Random) -> None:
        known: dict[str, dict[str, Any]] = {}
        while not self._stopping:
            await asyncio.sleep(rng.random() * self._think_s)
            own = rng.random() < 0.6
            name = f"own-{user}-{rng.randrange(OWN)}" if own else f"shared-{rng.randrange(SHARED)}"
            kind = rng.random()
            if kind < 0.25:
                # One that nobody has named before or will again.
                self._drawn += 1
                await self._post(session, user, f"new-{user}-{self._drawn}")
            elif kind < 0.35:
                await self._list(session, user)
            elif name not in known:
                asked = await self._post(session, user, name)
                if asked.status == 409:
                    asked = await self._send(session, Asked(user, "GET", name, now_us()))
                if asked.status in (200, 201):
                    known[name] = asked.answer
            elif kind < 0.75:
                asked = await self._put(session, user, name, _version(known.pop(name)))
                if asked.status == 200:
                    known[name] = asked.answer
            elif kind < 0.9:
                known.pop(name)
                asked = await self._send(session, Asked(user, "GET", name, now_us()))
                if asked.status == 200:
                    known[name] = asked.answer
            else:
                version = _version(known.pop(name))
                body = {"preconditions": {"resourceVersion": str(version)}}
                await self._send(session, Asked(user, "DELETE", name, now_us(), version=version), body)

    def _draw(self, user: int) -> str:
        self._drawn += 1
        return f"{user}.{self._drawn}"

    async def _post(self, session: aiohttp.ClientSession, user: int, name: str) -> Asked:
        value = self._draw(user)
        body = {"metadata": {"name": name}, "data": {"value": value}}
        return await self._send(session, Asked(user, "POST", name, now_us(), value), body)

    async def _put(self, session: aiohttp.ClientSession, user: int, name: str, version: int) -> Asked:
        value = self._draw(user)
        body = {"metadata": {"name": name, "resourceVersion": str(version)}, "data": {"value": value}}
        return await self._send(session, Asked(user, "PUT", name, now_us(), value, version), body)

    async def _list(self, session: aiohttp.ClientSession, user: int) -> Asked:
        return await self._send(session, Asked(user, "LIST", "", now_us()))

    async def _send(self, session: aiohttp.ClientSession, asked: Asked, body: Any = None) -> Asked:
        method = "GET" if asked.method == "LIST" else asked.method
        path = PATH if asked.method in ("LIST", "POST") else f"{PATH}/{asked.name}"
        self.asked.append(asked)
        try:
            async with session.request(method, path, data=None if body is None else orjson.dumps(body)) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            await asyncio.sleep(RETRY_S)
            return asked
        asked.return_us, asked.status = now_us(), answer.status
        asked.answer = orjson.loads(text)
        if answer.status not in (200, 201, *REFUSED):
            assert answer.status in (429, 500, 503, 504), (answer.status, text)
            await asyncio.sleep(RETRY_S)
        return asked

    # -- watchers -----------------------------------------------------------------------------------------------------

    async def _watch(self, session: aiohttp.ClientSession, watch: ApiWatch) -> None:
        while True:
            after = watch.version if watch.parts else await self._first_version(session, watch.user)
            events: list[Told] = []
            watch.parts.append((now_us(), after, events))
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                await self._follow(session, after, events)
            await asyncio.sleep(RETRY_S)

    async def _first_version(self, session: aiohttp.ClientSession, user: int) -> int:
        while True:
            asked = await self._list(session, user)
            if asked.status == 200:
                return _version(asked.answer)

    async def _follow(self, session: aiohttp.ClientSession, after: int, events: list[Told]) -> None:
        query = f"?watch=true&allowWatchBookmarks=true&resourceVersion={after}"
        async with session.get(PATH + query, timeout=aiohttp.ClientTimeout(None, sock_connect=10)) as answer:
            assert answer.status in (200, 429, 500, 503, 504), await answer.text()
            if answer.status != 200:
                return
            async for line in answer.content:
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    code = event["object"]["code"]
                    assert code in (429, 500, 503, 504), event
                    return
                events.append(Told(now_us(), event["type"], event["object"]))

    # -- as the checkers' records -------------------------------------------------------------------------------------

    def _events(self) -> list[Event]:
        return [event for delivery in self.store for event in delivery.batch.events]

    def history(self) -> History:
        """Everything up to now."""
        truth = Truth(self.store)
        operations = [operation for asked in self.asked if (operation := truth.operation(asked)) is not None]
        operations += truth.others()
        operations.sort(key=lambda each: (each.return_us is None, each.return_us or 0))
        watches = [truth.watch(watch) for watch in self.watches]
        part = WatchPart(1, self._store_from_us, deliveries=list(self.store))
        watches.append(Watch(STORE_WATCHER, b"\0", b"\0", parts=[part], live=True))
        return History(operations, watches)

    def stale_reads(self) -> list[str]:
        """Reads of one object that show it older than what was known before they were asked: the API does not tell the
        revision of such a read, so no other checker can know."""
        truth = Truth(self.store)
        for asked in self.asked:
            truth.operation(asked)
        return [problem for asked in self.asked if asked.method == "GET" and (problem := truth.stale(asked))]

    def wrong_refusals(self) -> list[Asked]:
        """A name that was never used before was taken; or one that only this user writes had another version than the
        last one it was told: a request was done twice."""
        doubtful = {asked.name for asked in self.asked if asked.value and asked.status not in (200, 201, *REFUSED)}
        doubtful |= {asked.name for asked in self.asked if asked.method == "DELETE" and not asked.status}
        return [
            asked
            for asked in self.asked
            if asked.status in REFUSED
            and (
                (asked.method == "POST" and asked.name.startswith("new-"))
                or (asked.method in ("PUT", "DELETE") and asked.name.startswith("own-") and asked.name not in doubtful)
            )
        ]

    def check_all(self, verdicts: dict[str, Verdict]) -> None:
        """By the checkers, and by plain comparison with what each API server shows in the end."""
        assert all(verdict.ok for verdict in verdicts.values()), verdicts
        created = self.acknowledged()
        lists = [asked for asked in self.asked if asked.user == OTHERS and asked.status == 200]
        assert len(lists) == len(self._access) and len(created) > 10, (len(lists), len(created))
        for found in lists:
            there = {item["metadata"]["name"]: _version(item) for item in found.answer["items"]}
            lost = {name: version for name, version in created.items() if there.get(name) != version}
            assert not lost, f"created, and not there: {lost}"
        stale = self.stale_reads()
        assert not stale, stale
        wrong = self.wrong_refusals()
        assert not wrong, wrong

    def acknowledged(self) -> dict[str, int]:
        """The objects that were created and that nobody ever asked to change or delete, and their versions."""
        touched = {asked.name for asked in self.asked if asked.method in ("PUT", "DELETE")}
        return {
            asked.name: _version(asked.answer)
            for asked in self.asked
            if asked.status == 201 and asked.name not in touched
        }

    def stall_s(self, since_us: int) -> float:
        """The longest time from then on in which no write was acknowledged."""
        moments = sorted(
            asked.return_us
            for asked in self.asked
            if asked.return_us and asked.return_us >= since_us and asked.status in (200, 201) and asked.value
        )
        return max((later - earlier for earlier, later in zip([since_us, *moments], moments)), default=0) / 1e6

    def counts(self) -> Counter[str]:
        found = Counter(f"{asked.method} {asked.status or 'unanswered'}" for asked in self.asked)
        found["requests"] = len(self.asked)
        found["watch events"] = sum(len(events) for watch in self.watches for _, _, events in watch.parts)
        found["watch streams"] = sum(len(watch.parts) for watch in self.watches)
        return found


class Truth:
    """What a watch of the whole store says: each version of each object, and which revisions nobody has claimed."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._seen_us: dict[int, int] = {}
        self._events: dict[int, list[Event]] = {}
        self._by_value: dict[tuple[bytes, str], Event] = {}
        self._deleted: dict[tuple[bytes, int], int] = {}
        self._claimed: set[int] = set()
        self._of_key: dict[bytes, list[int]] = {}
        for at_us, batch in deliveries:
            assert batch.error is None, batch.error
            for event in batch.events:
                self._take(event, at_us)

    def _take(self, event: Event, at_us: int) -> None:
        kv = event.kv
        self._seen_us[kv.mod_revision] = at_us
        self._events.setdefault(kv.mod_revision, []).append(event)
        if not kv.key.startswith(PREFIX):
            return
        self._of_key.setdefault(kv.key, []).append(kv.mod_revision)
        if event.type == "PUT":
            self._by_value[kv.key, orjson.loads(kv.value).get("data", {}).get("value", "")] = event
        elif event.prev_kv is not None:
            self._deleted[kv.key, event.prev_kv.mod_revision] = kv.mod_revision

    def operation(self, asked: Asked) -> Operation | None:
        """None: it does not count, as a write whose answer never came and which was never done."""
        if asked.status in REFUSED:
            refused = RequestError(f"HTTP {asked.status}")
            return self._made(asked, RangeRequest(_key(asked.name)), "refused", None)._replace(error=refused)
        well = asked.status in (200, 201)
        if asked.method in ("GET", "LIST"):
            return self._read(asked) if well else None
        key = _key(asked.name)
        if asked.method == "DELETE":
            revision = self._deleted.get((key, asked.version), 0)
            result: Any = DeleteResult(revision, 1)
            request: Txn = Txn((Compare(key, "MOD", "=", asked.version),), (DeleteRange(key),))
        else:
            event = self._by_value.get((key, asked.value))
            revision = _version(asked.answer) if well else event.kv.mod_revision if event else 0
            value = encode(_copy(asked.answer)) if well else event.kv.value if event else b""
            result = PutResult(revision)
            request = Txn((Compare(key, "MOD", "=", asked.version),), (Put(key, value),))
        if well:
            self._claimed.add(revision)
            assert asked.return_us is not None
            self._seen_us[revision] = min(asked.return_us, self._seen_us.get(revision, asked.return_us))
            return self._made(asked, request, "done", TxnResult(revision, True, (result,)))
        if not revision:
            return None
        self._claimed.add(revision)
        return self._made(asked, request, "unknown", None)

    def _read(self, asked: Asked) -> Operation:
        if asked.method == "GET":
            # The API tells the object's version, and not that of the read: it was not before the object's own.
            kv = self._as_kv(asked.answer)
            request = RangeRequest(kv.key, revision=kv.mod_revision)
            return self._made(asked, request, "done", RangeResult([kv], 1, False, kv.mod_revision))._replace(
                serializable=True
            )
        revision = _version(asked.answer)
        kvs = [self._as_kv(item) for item in asked.answer["items"]]
        return self._made(asked, RangeRequest(PREFIX, PREFIX_END), "done", RangeResult(kvs, len(kvs), False, revision))

    def _as_kv(self, obj: dict[str, Any]) -> KeyValue:
        """As the API shows it; what the API does not show of it is as in the store."""
        key, revision = _key(obj["metadata"]["name"]), _version(obj)
        known = next((event.kv for event in self._events.get(revision, ()) if event.kv.key == key), None)
        value = encode(_copy(obj))
        return KeyValue(key, value, -1, revision, -1, 0) if known is None else known._replace(value=value)

    def stale(self, asked: Asked) -> str:
        """Why this read is too old, once all writes were asked about; "" where it is not."""
        key = _key(asked.name)
        known = {
            revision: event.type
            for revision in self._of_key.get(key, ())
            if self._seen_us[revision] < asked.call_us
            for event in self._events[revision]
            if event.kv.key == key
        }
        newest = max(known, default=0)
        if asked.status == 200 and _version(asked.answer) < newest:
            return f"{asked.name} was shown as of {_version(asked.answer)}, {newest} was known before: {asked}"
        later = any(
            event.type == "DELETE"
            for revision in self._of_key.get(key, ())
            if revision > newest
            for event in self._events[revision]
            if event.kv.key == key
        )
        if asked.status == 404 and known.get(newest) == "PUT" and not later:
            return f"{asked.name} was not found, it was there as of {newest} and nobody has deleted it: {asked}"
        return ""

    def _made(self, asked: Asked, request: Any, status: Any, result: Any) -> Operation:
        return_us = asked.return_us if status != "unknown" else None
        return Operation(asked.user, asked.call_us, return_us, request, status, result)

    def others(self) -> list[Operation]:
        """Who made the revisions that no user has claimed, after all users were asked about."""
        found = []
        leases = {event.kv.lease for events in self._events.values() for event in events if event.kv.lease}
        found += [Operation(OTHERS, 0, None, LeaseGrant(lease, 1), "unknown") for lease in sorted(leases)]
        for revision, events in self._events.items():
            if revision in self._claimed:
                continue
            ops: list[Op] = []
            results: list[Any] = []
            for event in events:
                key, value, lease = event.kv.key, event.kv.value, event.kv.lease
                put = event.type == "PUT"
                ops.append(Put(key, value, lease) if put else DeleteRange(key))
                results.append(PutResult(revision) if put else DeleteResult(revision, 1))
            result = TxnResult(revision, True, tuple(results))
            at_us = self._seen_us[revision]
            found.append(Operation(OTHERS, 0, at_us, Txn((), tuple(ops)), "done", result))
        return found

    def watch(self, watch: ApiWatch) -> Watch:
        parts = []
        for opened_us, after, events in watch.parts:
            deliveries = [Delivery(told.at_us, self._batch(told)) for told in events]
            parts.append(WatchPart(after + 1, opened_us, watch.user, deliveries))
        return Watch(watch.user, PREFIX, PREFIX_END, parts=parts, live=watch.live)

    def _batch(self, told: Told) -> WatchBatch:
        revision = _version(told.obj)
        if told.kind == "BOOKMARK":
            return WatchBatch((), revision)
        key = _key(told.obj["metadata"]["name"])
        known = next((event for event in self._events.get(revision, ()) if event.kv.key == key), None)
        before = known.prev_kv if known else None
        if told.kind == "DELETED":
            # It shows the object as it was.
            shown = before and before._replace(value=encode(_copy(told.obj)))
            return WatchBatch((Event("DELETE", KeyValue(key, b"", 0, revision, 0, 0), shown),), revision)
        kv = self._as_kv(told.obj)
        return WatchBatch((Event("PUT", kv, None if told.kind == "ADDED" else before or kv),), revision)


def now_us() -> int:
    return time.monotonic_ns() // 1000


def _key(name: str) -> bytes:
    return PREFIX + name.encode()


def _version(obj: dict[str, Any]) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def _mod(event: Event) -> int:
    return event.kv.mod_revision


def _copy(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": dict(obj["metadata"])}
