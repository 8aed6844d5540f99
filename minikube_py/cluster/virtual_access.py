"""Access to a cluster in virtual time: from plain code between two advances, which nothing waits for, and from
coroutines of the cluster's loop (`run(main)`), for which time passes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

from minikube_py.apiserver.asking import answer_of
from minikube_py.apiserver.http1 import Head
from minikube_py.apiserver.messages import NO_QUERY, Request
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_stream import Stream
from minikube_py.client.transport import JSON, USER_AGENT, ApiResponse, WatchEvent
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.in_process import Answered, answered_of

if TYPE_CHECKING:
    from minikube_py.cluster.surroundings import Surroundings
    from minikube_py.cluster.virtual_engine import VirtualEngine
    from minikube_py.sim.replaced import Replaced

NO_WATCH: Final = "in virtual time, a watch is for coroutines within run(main), or for clients over HTTPS"


class Access:
    """`ApiTransport`. On the cluster's loop it is that of the control plane; elsewhere requests are answered before it
    returns."""

    def __init__(self, engine: VirtualEngine, user: User) -> None:
        self._engine, self._user = engine, user

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        if self._engine.on_its_loop:
            return await self._engine.virtual.transport(self._user).request(method, path, params, body, content_type)
        asked = Request(method, path, params or NO_QUERY, body or b"", self._user, JSON, content_type)
        asked.user_agent = USER_AGENT
        response = self._engine.answer(asked)
        if response.stream is not None:
            response.stream.close()
            raise ClusterError(NO_WATCH)
        return ApiResponse(response.status, response.whole(), response.headers)

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        if not self._engine.on_its_loop:
            raise ClusterError(NO_WATCH)
        return self._engine.virtual.transport(self._user).watch(path, params)

    async def close(self) -> None:
        """There is nothing to close."""


class Near:
    """HTTP for coroutines on the cluster's loop, as an administrator; as `program.Remote`, but without a network."""

    def __init__(self, engine: VirtualEngine) -> None:
        self._engine, self.token = engine, engine.virtual.token

    @property
    def around(self) -> Surroundings:
        return self._engine.around

    def replace(self, attribute: Replaced) -> None:
        self._engine.programs.replace(attribute)

    async def exchange(self, asked: Head, body: bytes) -> Answered:
        virtual = self._engine.virtual
        response = await answer_of(virtual.plane.core, asked, body)
        found = answered_of(response, asked, self.around.rng, virtual.clock.wall_s())
        response.sent()
        return found if response.stream is None else found._replace(lines=_Lines(response.stream))


class _Lines:
    """Of a watch."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lines: deque[bytes] = deque()

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> bytes:
        while not self._lines:
            if not (batches := await self._stream.next()):
                await self.aclose()
                raise StopAsyncIteration
            self._lines += (each.lines() for each in batches)
        return self._lines.popleft()

    async def aclose(self) -> None:
        self._stream.close()
