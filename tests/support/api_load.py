"""Users of several API servers on one store: they write, read and watch, and every answer is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson
from api_records import DONE, OTHERS, PREFIX, REFUSED, STORE_WATCHER, ApiRecord, ApiWatch, Asked, Told, version_of
from patience import PATIENCE_S, until
from store_members import Members

from minikube_py.client.connector import Connector
from minikube_py.client.kubeconfig import ClusterAccess
from minikube_py.env import SystemClock
from minikube_py.mvcc.types import Event
from minikube_py.sim.checkers.verdict import Verdict
from minikube_py.sim.history import Delivery, History
from minikube_py.sim.judge import judge
from minikube_py.store.client import StoreClient

PATH = "/api/v1/namespaces/default/configmaps"
SHARED = 8
"""Objects that all users write, through whichever API server."""
OWN = 6
REQUEST_TIMEOUT_S = 30.0
WITHIN_S = PATIENCE_S
RETRY_S = 0.05


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
        self._begin(access, rng, users, think_s)
        self._cluster = cluster
        self._client = StoreClient(cluster.endpoints(), SystemClock(), random.Random(rng.getrandbits(64)))

    def _begin(self, access: Sequence[ClusterAccess], rng: random.Random, users: int, think_s: float) -> None:
        self._access, self._rng = list(access), rng
        self._users, self._think_s = users, think_s
        self._sessions: list[aiohttp.ClientSession] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._watchers: list[asyncio.Task[None]] = []
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
            connector = Connector(ssl=access.ssl_context() or False, limit=0)
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
        """Returns when this many more have been done."""
        wanted = self._done() + operations

        async def done() -> bool:
            self._check()
            return self._done() >= wanted

        await until(done, lambda: f"{operations} requests done, {wanted - self._done()} missing", WITHIN_S)

    def _done(self) -> int:
        return sum(asked.status in DONE for asked in self.asked)

    def _check(self) -> None:
        """No task has failed, neither the load's nor ours."""
        for task in (*self._tasks, *self._watchers):
            if task.done() and not task.cancelled():
                task.result()

    async def stop_users(self) -> None:
        self._stopping = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), WITHIN_S)

    async def finish(self) -> dict[str, Verdict]:
        """Ends the requests; once all watches have received everything, returns a verdict of each checker."""
        await self.stop_users()
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
            found.append((self.record.history(), views))
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
                # A name never used before or again.
                self._drawn += 1
                await self._post(session, user, f"new-{user}-{self._drawn}")
            elif kind < 0.35:
                await self._list(session, user)
            elif name not in known:
                asked = await self._post(session, user, name)
                if asked.status == 409:
                    asked = await self._send(session, Asked(user, "GET", name, now_us()))
                if asked.status in DONE:
                    known[name] = asked.answer
            elif kind < 0.75:
                asked = await self._put(session, user, name, version_of(known.pop(name)))
                if asked.status == 200:
                    known[name] = asked.answer
            elif kind < 0.9:
                known.pop(name)
                asked = await self._send(session, Asked(user, "GET", name, now_us()))
                if asked.status == 200:
                    known[name] = asked.answer
            else:
                version = version_of(known.pop(name))
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
        if answer.status not in (*DONE, *REFUSED):
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
                return version_of(asked.answer)

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

    # -- the results --------------------------------------------------------------------------------------------------

    def _events(self) -> list[Event]:
        return [event for delivery in self.store for event in delivery.batch.events]

    @property
    def record(self) -> ApiRecord:
        return ApiRecord(self.store, self._store_from_us, self.asked, self.watches)

    def check_all(self, verdicts: dict[str, Verdict]) -> None:
        """By the checkers, and by comparison with the final content of each API server."""
        assert all(verdict.ok for verdict in verdicts.values()), verdicts
        problems = self.record.problems()
        assert not problems, problems
        assert len(self.record.created_for_good()) > 10

    def stall_s(self, since_us: int) -> float:
        """The longest time from then on without an acknowledged write."""
        moments = sorted(
            asked.return_us
            for asked in self.asked
            if asked.return_us and asked.return_us >= since_us and asked.status in DONE and asked.value
        )
        return max((later - earlier for earlier, later in zip([since_us, *moments], moments)), default=0) / 1e6

    def counts(self) -> Counter[str]:
        found = Counter(f"{asked.method} {asked.status or 'unanswered'}" for asked in self.asked)
        found["requests"] = len(self.asked)
        found["watch events"] = sum(len(events) for watch in self.watches for _, _, events in watch.parts)
        found["watch streams"] = sum(len(watch.parts) for watch in self.watches)
        return found


def now_us() -> int:
    return time.monotonic_ns() // 1000


def _mod(event: Event) -> int:
    return event.kv.mod_revision
