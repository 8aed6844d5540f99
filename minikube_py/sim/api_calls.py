"""Requests between simulated processes and simulated API servers, in place of HTTP.

aiohttp is not simulated: an answer takes its time, is refused where nobody serves, and is lost with the process that
owes it. A client turns to another API server when that happens. What is said while a link is cut arrives when it is
mended, as TCP sends it again; who waits for an answer gives up before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.messages import NO_QUERY, Request
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import JSON, ApiResponse, WatchEvent
from minikube_py.env import Rng
from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.sim.loop import NS_PER_S, SimLoop
from minikube_py.sim.world import Process, World

DELAY_S: Final = 0.0003
PATIENCE_S: Final = 8.0
"""A client takes an answer that does not come for so long for lost."""

Link = tuple[str, str]
"""A client's name and an API server's host."""


class Served:
    """One life of one API server. `owed`: who is notified when it ends."""

    def __init__(self, process: Process, core: ApiServer) -> None:
        self.process = process
        self.core = core
        self.owed: dict[int, Callable[[], None]] = {}
        self.tasks: dict[asyncio.Task[None], None] = {}

    def do(self, work: Callable[[], Any]) -> None:
        """In the server's own process, which may be dead by then."""
        loop = self.process.loop

        def begin() -> None:
            task = loop.create_task(work())
            self.tasks[task] = None
            task.add_done_callback(self.tasks.pop)

        loop.call_soon(begin)


class ApiCalls:
    """Which API servers there are, by host. `held`: messages that waited for a link."""

    def __init__(self, world: World, rng: Rng) -> None:
        self.world = world
        self.rng = rng
        self.served: dict[str, Served] = {}
        self.held = 0
        self._number = 0
        self._last_ns: dict[Link, int] = {}
        self._cuts: dict[Link, int] = {}
        self._waiting: dict[Link, list[Callable[[], None]]] = {}

    def serve(self, process: Process, core: ApiServer) -> None:
        self.served[process.name] = Served(process, core)

    def ended(self, process: Process) -> None:
        served = self.served.get(process.name)
        if served is not None and served.process is process:
            del self.served[process.name]
            for tell in list(served.owed.values()):
                tell()

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def cut(self, link: Link) -> None:
        """Nothing passes until it was mended as often."""
        self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, link: Link) -> None:
        left = self._cuts.pop(link, 0) - 1
        if left > 0:
            self._cuts[link] = left
            return
        for call in self._waiting.pop(link, ()):
            self.later(call, link)

    def later(self, call: Callable[[], None], link: Link) -> None:
        """After the delay of a link; never before what was said there earlier."""
        if link in self._cuts:
            self.held += 1
            self._waiting.setdefault(link, []).append(call)
            return
        delay_ns = int(DELAY_S * (1 + 4 * self.rng.random()) * NS_PER_S)
        self._last_ns[link] = max(self._last_ns.get(link, 0), self.world.scheduler.now_ns + delay_ns)
        self.world.scheduler.at(self._last_ns[link], _run, call)


class CallTransport:
    """Implements `ApiTransport` for whoever lives on `loop`; asks `hosts`, one after the other, as `user`."""

    def __init__(
        self, calls: ApiCalls, loop: SimLoop, rng: Rng, hosts: Sequence[str], user: User = ADMIN, name: str = ""
    ) -> None:
        self._calls = calls
        self._user = user
        self._name = name or loop.name
        self._loop = loop
        self._hosts = list(hosts)
        self._at = rng.randrange(len(self._hosts))

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
        answer: asyncio.Future[ApiResponse] = loop.create_future()
        served = await self._server()
        link = self._name, served.process.name
        number = calls.next_number()

        def lost() -> None:
            gone = OutcomeUnknown("the API server is gone; nobody knows what it did")
            calls.later(lambda: _fail_soon(loop, answer, gone), link)

        async def work() -> None:
            response = await served.core.handle(asked)
            content = b"".join(response.pieces) if response.pieces is not None else response.body
            if served.owed.pop(number, None) is not None:
                got = ApiResponse(response.status, content, response.headers)
                calls.later(lambda: _settle_soon(loop, answer, got), link)

        served.owed[number] = lost
        calls.later(lambda: served.do(work), link)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await answer
        except TimeoutError:
            self._elsewhere()
            raise OutcomeUnknown(f"no answer within {PATIENCE_S:g} s") from None
        except OutcomeUnknown:
            self._elsewhere()
            raise

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        calls, loop = self._calls, self._loop
        queue: asyncio.Queue[list[WatchEvent] | Unavailable | None] = asyncio.Queue()
        arrived: deque[list[WatchEvent] | Unavailable | None] = deque()
        served = await self._server()
        link = self._name, served.process.name
        asked = Request("GET", path, {**(params or {}), "watch": "true"}, b"", self._user)
        number = calls.next_number()

        def take() -> None:
            # Callbacks of one turn run in any order; what came in order is taken in order.
            queue.put_nowait(arrived.popleft())

        def arrive(item: list[WatchEvent] | Unavailable | None) -> None:
            arrived.append(item)
            loop.call_soon(take)

        def lost() -> None:
            calls.later(lambda: arrive(Unavailable("the API server is gone")), link)

        def send(item: list[WatchEvent] | None) -> None:
            calls.later(lambda: arrive(item), link)

        async def work() -> None:
            response = await served.core.handle(asked)
            stream = response.stream
            if stream is None:
                send([WatchEvent("ERROR", response.body)])
            while stream is not None and number in served.owed and (batches := await stream.next()):
                for batch in batches:
                    send(list(batch.events))
            if stream is not None:
                stream.close()
            served.owed.pop(number, None)
            send(None)

        served.owed[number] = lost
        calls.later(lambda: served.do(work), link)
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, Unavailable):
                    self._elsewhere()
                    raise item
                yield item
        finally:
            # The stream of one who left is served to its next event, and closed then.
            served.owed.pop(number, None)

    async def close(self) -> None:
        """Nothing is held."""

    async def _server(self) -> Served:
        """Raises: Unavailable where nobody serves."""
        served = self._calls.served.get(self._hosts[self._at])
        if served is None:
            self._elsewhere()
            await asyncio.sleep(DELAY_S)
            raise Unavailable("the API server refused the connection")
        return served

    def _elsewhere(self) -> None:
        self._at = (self._at + 1) % len(self._hosts)


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
