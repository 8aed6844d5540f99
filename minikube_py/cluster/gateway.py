"""HTTPS in front of a control plane in virtual time: a real kubectl may use it between two advances.

The requests are answered by the API server's core in virtual time, one at a time, while nothing else happens there.
Reads do not change the history; a write is an input of it, and is recorded as such. A watch reports what has happened
after each advance or write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from minikube_py.api.errors import StatusError
from minikube_py.apiserver.auth import Authenticator, Spoken
from minikube_py.apiserver.core import ApiServer, error_response
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_stream import TAKEN_BYTES_MAX, Batch, Stream
from minikube_py.cluster.folder import Folder
from minikube_py.cluster.virtual_watch import VirtualWatch
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import LOOPBACK, ControlPlaneConfig
from minikube_py.control_plane.files import ensure_credentials
from minikube_py.control_plane.listen import free_address, start_http, url_of
from minikube_py.control_plane.users import users_by_token
from minikube_py.env import SystemClock

T = TypeVar("T")
Answer = Callable[[Request], Response]
Asker = Callable[[str], Spoken]


class Gateway:
    """`answer` answers a request, `asker` authenticates an Authorization header; both from any thread.

    `start()` returns when it is reachable."""

    def __init__(self, answer: Answer, asker: Asker, port: int) -> None:
        self.folder = Folder(None, self._let_go)
        try:
            self._credentials = ensure_credentials(ControlPlaneConfig(self.folder.path))
        except BaseException:
            self.folder.clear()
            raise
        self._port = port
        self._core = _Core(answer, asker, users_by_token(self._credentials.by_role))
        self._http: HttpServer | None = None
        self._loop: asyncio.AbstractEventLoop
        self.url = ""

    @property
    def token(self) -> str:
        return self._credentials.by_role[tokens.ADMIN]

    @property
    def authority_pem(self) -> str:
        return self._credentials.certificates.authority_pem.decode("ascii")

    def kubeconfig(self, namespace: str) -> Path:
        return self.folder.kubeconfig(namespace, self._credentials.access(self.url))

    def happened(self) -> None:
        """The history continued: watches report the changes; from any thread."""
        self._loop.call_soon_threadsafe(self._core.tell)

    async def start(self) -> None:
        """Raises: SetupError if the port is taken; nothing is left then."""
        self._loop = asyncio.get_running_loop()
        try:
            host, port = free_address(LOOPBACK, self._port)
            context = self._credentials.certificates.server_context()
            http = HttpServer(cast(ApiServer, self._core), host, port, context)
            await start_http(http, host, port)
        except BaseException:
            self.folder.clear()
            raise
        self._http = http
        self.url = url_of(host, port)

    async def stop(self) -> None:
        try:
            self._core.stop()
            if self._http is not None:
                await self._http.stop()
        finally:
            self.folder.clear()

    def _let_go(self) -> None:
        if self._http is not None:
            self._http.abandon()


class _Authenticator(Authenticator):
    """Knows the gateway's tokens itself, and passes all others to the API server in virtual time."""

    def __init__(self, core: _Core, users: Mapping[str, User]) -> None:
        super().__init__(users)
        self._core = core

    async def asker(self, header: str) -> Spoken:
        """Raises: StatusError 401."""
        return cast(Spoken, await self._core.elsewhere(lambda: self._core.asker(header)))


class _Core:
    """The part of an API server that HttpServer uses."""

    def __init__(self, answer: Answer, asker: Asker, users: Mapping[str, User]) -> None:
        self.limits = Limits()
        self.clock = SystemClock()
        # Only for the ids of answers, which are not part of the history.
        self.rng = random.Random(0)
        self.access = SimpleNamespace(authenticator=_Authenticator(self, users))
        self.connection_metrics: Any = dict
        self.auditor = None
        self._answer, self.asker = answer, asker
        self._executor = ThreadPoolExecutor(1, "minikube-py-gateway")
        self._streams: dict[_Stream, None] = {}
        self._stopped = False

    def hand_work_to(self, work: object) -> None:
        """No other task waits for the loop during a large request."""

    def tell(self) -> None:
        for each in self._streams:
            each.news.set()

    def stop(self) -> None:
        self._stopped = True
        for each in list(self._streams):
            each.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def handle(self, request: Request) -> Response:
        receive, request.receive = request.receive, None
        try:
            if receive is not None:
                request.body = await receive()
        except StatusError as error:
            return error_response(error)
        response = await self.answered(request)
        if response.stream is not None:
            stream = _Stream(cast(VirtualWatch, response.stream), self)
            self._streams[stream] = None
            response.stream = cast(Stream, stream)
        return response

    async def answered(self, request: Request) -> Response:
        return await self.elsewhere(lambda: self._answer(request))

    async def elsewhere(self, work: Callable[[], T]) -> T:
        """In a thread without an event loop, because the simulated one runs there."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def left(self, stream: _Stream, read: VirtualWatch) -> None:
        if self._streams.pop(stream, False) is None and not self._stopped:
            self._executor.submit(read.close)


class _Stream:
    """A watch in virtual time, for an HTTP connection in real time. It times out by whichever of both clocks comes
    first: the client that waits may be the one whose `advance` it waits for."""

    def __init__(self, stream: VirtualWatch, core: _Core) -> None:
        self.news = asyncio.Event()
        self.on_cut: Callable[[], None] | None = None
        self.starting = False
        self._stream, self._core, self._closed = stream, core, False
        self._ends_s = core.clock.monotonic_s() + stream.timeout_s

    async def next(self, bytes_max: int = TAKEN_BYTES_MAX) -> list[Batch]:
        while not self._closed:
            self.news.clear()
            left_s = self._ends_s - self._core.clock.monotonic_s()
            found = await self._core.elsewhere(partial(self._stream.take, left_s <= 0))
            if found is not None:
                # An empty batch marks the end of a watch's initial events; here it would end the answer.
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self.news.wait()
        return []

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._core.left(self, self._stream)
            self.news.set()
