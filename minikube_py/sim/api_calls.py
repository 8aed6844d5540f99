"""Requests between simulated processes and simulated API servers, in place of HTTP.

aiohttp is not simulated: an answer takes time, is refused if no server runs, and is lost when its server's process
ends. The client then switches to another API server. Messages sent while a link is cut arrive when it is healed, as TCP
retransmits them; a waiting client times out before. For single clients, the next writes can fail, and watches can be
delayed."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import StatusError
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer, error_response
from minikube_py.apiserver.messages import NO_QUERY, Request
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import JSON, ApiResponse, WatchEvent
from minikube_py.env import Rng
from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.sim.inject_api import too_old
from minikube_py.sim.inject_parts import CARRIED_OUT, ENDS_AFTER, ENDS_BEFORE, FAILS, LOST
from minikube_py.sim.loop import NS_PER_S, SimLoop
from minikube_py.sim.world import Process, World

DELAYS_S: Final = (0.0003, 0.0003, 0.005, 0.05)
"""Minimum delay of a message: if it is long, much happens while a component waits for an answer."""
PATIENCE_S: Final = 8.0
"""A client's timeout for an answer."""
PASSING: Final = ("/leases/", "/events")
"""Writes of these paths are never spoiled: they are most of all writes, and each repeats the last."""
VERSION: Final = re.compile(rb'"resourceVersion":"(\d+)"')
FAILURE: Final = error_response(StatusError(500, "InternalError", "Internal error occurred: injected", None))

Link = tuple[str, str]
"""A client's name and an API server's host."""


class Served:
    """One run of one API server. `owed`: clients notified when it ends."""

    def __init__(self, process: Process, core: ApiServer) -> None:
        self.process = process
        self.core = core
        self.owed: dict[int, Callable[[], None]] = {}
        self.tasks: dict[asyncio.Task[None], None] = {}

    def do(self, work: Callable[[], Any]) -> None:
        """Runs in the server's process, which may be dead by then."""
        loop = self.process.loop

        def begin() -> None:
            task = loop.create_task(work())
            self.tasks[task] = None
            task.add_done_callback(self.tasks.pop)

        loop.call_soon(begin)


class Watched(NamedTuple):
    """A client's watch. `expire` ends it with 410."""

    served: Served
    expire: Callable[[], None]


class ApiCalls:
    """The API servers, by host. `held`: messages waiting for a link."""

    def __init__(self, world: World, rng: Rng) -> None:
        self.world = world
        self.rng = rng
        self.delay_s = rng.choice(DELAYS_S)
        self.served: dict[str, Served] = {}
        self.held = 0
        self._number = 0
        self._last_ns: dict[Link, int] = {}
        self._cuts: dict[Link, int] = {}
        self._waiting: dict[Link, list[Callable[[], None]]] = {}
        self._fates: defaultdict[str, deque[str]] = defaultdict(deque)
        self._late: dict[Link, list[tuple[str, Callable[[], None]]]] = {}
        """By client and plural, "" for all: what is not delivered yet, with its plural."""
        self._delays: Counter[Link] = Counter()
        self._expired_at: dict[str, int] = {}
        self.watches: defaultdict[str, dict[int, Watched]] = defaultdict(dict)
        self.unknown: Counter[Link] = Counter()
        """Creations without an answer, by client and path."""
        self._asked: dict[int, Link] = {}

    def serve(self, process: Process, core: ApiServer) -> None:
        self.served[process.name] = Served(process, core)

    def asked(self, number: int, method: str, client: str, path: str) -> None:
        if method == "POST":
            self._asked[number] = client, path

    def answered(self, number: int, *, known: bool) -> None:
        created = self._asked.pop(number, None)
        if created is not None and not known:
            self.unknown[created] += 1

    def ended(self, process: Process) -> None:
        for number in [number for number, (client, _) in self._asked.items() if client == process.name]:
            self.answered(number, known=False)
        for number, watched in self.watches.pop(process.name, {}).items():
            # The server notices at the next event, as when a client leaves.
            watched.served.owed.pop(number, None)
        served = self.served.get(process.name)
        if served is not None and served.process is process:
            del self.served[process.name]
            for tell in list(served.owed.values()):
                tell()

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def cut(self, link: Link) -> None:
        """Nothing passes until it was healed as often."""
        self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, link: Link) -> None:
        left = self._cuts.pop(link, 0) - 1
        if left > 0:
            self._cuts[link] = left
            return
        for call in self._waiting.pop(link, ()):
            self.later(call, link)

    # -- for a single client ------------------------------------------------------------------------------------------

    def spoil(self, client: str, fates: Sequence[str]) -> None:
        """Determines the outcome of its next writes, after those spoiled earlier."""
        self._fates[client].extend(fates)

    def fate(self, client: str, method: str, path: str) -> str:
        fates = self._fates[client]
        if not fates or method == "GET" or any(each in path for each in PASSING):
            return CARRIED_OUT
        return fates.popleft()

    def delay_watches(self, client: str, plural: str = "") -> None:
        """Of one kind, or all, until they are resumed or expired as often."""
        self._delays[client, plural] += 1
        self._late.setdefault((client, plural), [])

    def resume_watches(self, client: str, plural: str = "") -> None:
        self._delays[client, plural] = max(0, self._delays[client, plural] - 1)
        if not self._delays[client, plural]:
            for of, send in self._late.pop((client, plural), ()):
                self.deliver(client, of, send)

    def expire_watches(self, client: str) -> None:
        """Drops undelivered events: the watches end with 410, and cannot be resumed from before."""
        for (name, _), late in self._late.items():
            if name == client:
                late.clear()
        self.resume_watches(client)
        revisions = [served.core.cache.revision for served in self.served.values()]
        self._expired_at[client] = max(revisions, default=self._expired_at.get(client, 0))
        for watched in list(self.watches.pop(client, {}).values()):
            watched.expire()

    def too_old(self, client: str, since: str) -> bytes | None:
        """The error for a watch requested from `since` on, if any."""
        error = too_old(since, self._expired_at.get(client, 0))
        return None if error is None else error_response(error).body

    def deliver(self, client: str, plural: str, send: Callable[[], None]) -> None:
        """Delivers a watch event to its client."""
        late = self._late.get((client, ""), self._late.get((client, plural)))
        if late is None:
            send()
        else:
            late.append((plural, send))

    def all_well(self) -> None:
        self.delay_s = DELAYS_S[0]
        self._fates.clear()
        self._delays.clear()
        for client, plural in list(self._late):
            self.resume_watches(client, plural)

    # -- messages -----------------------------------------------------------------------------------------------------

    def later(self, call: Callable[[], None], link: Link) -> None:
        """After the delay of a link, and never before an earlier message on it."""
        if link in self._cuts:
            self.held += 1
            self._waiting.setdefault(link, []).append(call)
            return
        delay_ns = int(self.delay_s * (1 + 4 * self.rng.random()) * NS_PER_S)
        self._last_ns[link] = max(self._last_ns.get(link, 0), self.world.scheduler.now_ns + delay_ns)
        self.world.scheduler.at(self._last_ns[link], _run, call)


class CallTransport:
    """Implements `ApiTransport` for a process on `loop`; tries `hosts` in turn, as `user`."""

    def __init__(
        self, calls: ApiCalls, loop: SimLoop, rng: Rng, hosts: Sequence[str], user: User = ADMIN, name: str = ""
    ) -> None:
        self._calls = calls
        self._user = user
        self._name = name or loop.name
        self._loop = loop
        self._hosts = list(hosts)
        self._at = rng.randrange(len(self._hosts))
        self._seen: dict[tuple[str, ...], int] = {}

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        asked = Request(method, path, params or NO_QUERY, body or b"", self._user, JSON, content_type)
        calls, loop = self._calls, self._loop
        self._seen.pop(_selected(path, asked.query), None)
        answer: asyncio.Future[ApiResponse] = loop.create_future()
        served = await self._server()
        link = self._name, served.process.name
        number = calls.next_number()
        fate = calls.fate(self._name, method, path)
        if fate == ENDS_BEFORE:
            await self._end()

        def lost() -> None:
            gone = OutcomeUnknown("the API server is gone; nobody knows what it did")
            calls.later(lambda: _fail_soon(loop, answer, gone), link)

        async def work() -> None:
            response = FAILURE if fate == FAILS else await served.core.handle(asked)
            if fate == ENDS_AFTER:
                calls.world.scheduler.after(0, calls.world.kill, self._name)
            elif fate == LOST and served.owed.pop(number, None) is not None:
                lost()
            content = response.whole()
            if served.owed.pop(number, None) is not None:
                got = ApiResponse(response.status, content, response.headers)
                calls.later(lambda: _settle_soon(loop, answer, got), link)

        served.owed[number] = lost
        calls.asked(number, method, self._name, path)
        calls.later(lambda: served.do(work), link)
        try:
            async with asyncio.timeout(PATIENCE_S):
                response = await answer
            calls.answered(number, known=response.status < 500)
            return response
        except TimeoutError:
            self._elsewhere()
            raise OutcomeUnknown(f"no answer within {PATIENCE_S:g} s") from None
        except OutcomeUnknown:
            self._elsewhere()
            raise
        finally:
            calls.answered(number, known=False)

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        calls, loop = self._calls, self._loop
        queue: asyncio.Queue[list[WatchEvent] | Unavailable | None] = asyncio.Queue()
        arrived: deque[list[WatchEvent] | Unavailable | None] = deque()
        served = await self._server()
        name, link = self._name, (self._name, served.process.name)
        asked = Request("GET", path, {**(params or {}), "watch": "true"}, b"", self._user)
        number, plural = calls.next_number(), path.rpartition("/")[2]
        selected, since = _selected(path, asked.query), asked.query.get("resourceVersion", "")
        if since.isdigit() and int(since) < (seen := self._seen.get(selected, 0)):
            # Its knowledge would go back in time.
            calls.world.scheduler.fail(f"{name} has seen {path} up to {seen}, and watches it from {since} on")

        def take() -> None:
            # Callbacks of one turn run in any order; events are processed in order of arrival.
            queue.put_nowait(arrived.popleft())

        def arrive(item: list[WatchEvent] | Unavailable | None) -> None:
            arrived.append(item)
            loop.call_soon(take)

        def lost() -> None:
            calls.later(lambda: arrive(Unavailable("the API server is gone")), link)

        def send(item: list[WatchEvent] | None) -> None:
            calls.deliver(name, plural, partial(calls.later, partial(arrive, item), link))

        def expire() -> None:
            # Also one that has ended, and at once: news of its end may have been dropped, or may be by the next fault.
            served.owed.pop(number, None)
            for item in ([WatchEvent("ERROR", calls.too_old(name, "1") or b"")], None):
                calls.later(partial(arrive, item), link)

        def refuse(body: bytes) -> None:
            send([WatchEvent("ERROR", body)])

        async def work() -> None:
            if (gone := calls.too_old(name, since)) is not None:
                refuse(gone)
                send(None)
                return
            response = await served.core.handle(asked)
            stream = response.stream
            if stream is None:
                refuse(response.body)
            while stream is not None and number in served.owed and (batches := await stream.next()):
                for batch in batches:
                    send(list(batch.events))
            if stream is not None:
                stream.close()
            if served.owed.pop(number, None) is not None:
                send(None)

        served.owed[number] = lost
        calls.watches[name][number] = Watched(served, expire)
        calls.later(lambda: served.do(work), link)
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, Unavailable):
                    self._elsewhere()
                    raise item
                if (version := _version(item)) > self._seen.get(selected, 0):
                    self._seen[selected] = version
                yield item
        finally:
            # The stream of a client that left is served until its next event, and then closed. For a client that was
            # killed, `ended` does the same.
            if not loop.dead:
                served.owed.pop(number, None)
                calls.watches[name].pop(number, None)

    async def close(self) -> None:
        """There is nothing to close."""

    async def _server(self) -> Served:
        """Raises: Unavailable if no server runs."""
        served = self._calls.served.get(self._hosts[self._at])
        if served is None:
            self._elsewhere()
            await asyncio.sleep(self._calls.delay_s)
            raise Unavailable("the API server refused the connection")
        return served

    async def _end(self) -> None:
        """The client ends."""
        self._calls.world.scheduler.after(0, self._calls.world.kill, self._name)
        await self._loop.create_future()

    def _elsewhere(self) -> None:
        self._at = (self._at + 1) % len(self._hosts)


def _selected(path: str, query: Mapping[str, str]) -> tuple[str, ...]:
    return path, query.get("labelSelector", ""), query.get("fieldSelector", "")


def _version(events: list[WatchEvent]) -> int:
    """The version of the last event."""
    found = VERSION.search(events[-1].object) if events and events[-1].type != "ERROR" else None
    return int(found[1]) if found else 0


def _run(call: Callable[[], None]) -> None:
    call()


def _fail_soon(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[ApiResponse], error: Exception) -> None:
    loop.call_soon(_fail, answer, error)


def _fail(answer: asyncio.Future[ApiResponse], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _settle_soon(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[ApiResponse], response: ApiResponse) -> None:
    loop.call_soon(_settle, answer, response)


def _settle(answer: asyncio.Future[ApiResponse], response: ApiResponse) -> None:
    if not answer.done():
        answer.set_result(response)
