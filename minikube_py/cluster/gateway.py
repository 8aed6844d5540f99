"""HTTPS in front of a control plane in virtual time: a real kubectl may look in between two advances.

The requests are answered by the API server's core in virtual time, one at a time, while nothing else happens there.
What only reads leaves the history as it was; a write is an input of it, and is written down as such. A watch reports
what has happened after each advance or write.
"""

from __future__ import annotations

import asyncio
import atexit
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.api.service_tokens import ISSUER, InvalidToken
from minikube_py.apiserver.auth import ADMIN, Authenticator, Spoken
from minikube_py.apiserver.core import ApiServer, error_response
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_stream import TAKEN_BYTES_MAX, Batch, Stream
from minikube_py.cluster.folder import Folder
from minikube_py.cluster.loop_thread import LoopThread
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import LOOPBACK, ControlPlaneConfig
from minikube_py.control_plane.files import ensure_credentials
from minikube_py.control_plane.listen import free_address, start_http, url_of
from minikube_py.control_plane.users import users_by_token
from minikube_py.env import SystemClock, ended

T = TypeVar("T")
Answer = Callable[[Request], Response]
Aside = Callable[[Callable[[], Any]], Any]


class Gateway:
    """`answer` answers a request, `aside` runs a coroutine function that only looks; both from any thread.

    `start()` returns when it can be reached; `happened()` tells it that the history went on."""

    def __init__(self, answer: Answer, aside: Aside, port: int) -> None:
        self.folder = Folder(None, self._let_go)
        self._credentials = ensure_credentials(ControlPlaneConfig(self.folder.path))
        self._port = port
        self._core = _Core(answer, aside, users_by_token(self._credentials.by_role))
        self._http: HttpServer | None = None
        self._thread = LoopThread(self._begin, self._end)
        self.url = ""

    def start(self) -> None:
        """Raises: SetupError where the port is taken; nothing is left then."""
        atexit.register(self.stop)
        try:
            self._thread.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Idempotent."""
        atexit.unregister(self.stop)
        try:
            if self.folder.of_this_process:
                self._thread.stop()
        finally:
            self.folder.clear()

    @property
    def token(self) -> str:
        return self._credentials.by_role[tokens.ADMIN]

    @property
    def authority_pem(self) -> str:
        return self._credentials.certificates.authority_pem.decode("ascii")

    def kubeconfig(self, namespace: str) -> Path:
        return self.folder.kubeconfig(namespace, self._credentials.access(self.url))

    def happened(self) -> None:
        """Watches report it; from any thread."""
        self._thread.loop.call_soon_threadsafe(self._core.tell)

    async def _begin(self) -> None:
        host, port = free_address(LOOPBACK, self._port)
        context = self._credentials.certificates.server_context()
        http = HttpServer(cast(ApiServer, self._core), host, port, context)
        await start_http(http, host, port)
        self._http = http
        self.url = url_of(host, port)

    async def _end(self) -> None:
        self._core.stop()
        if self._http is not None:
            await self._http.stop()

    def _let_go(self) -> None:
        if self._http is not None:
            self._http.abandon()


class _Speakers:
    """Whom tokens of service accounts speak for, as a TokenReview in virtual time tells it."""

    def __init__(self, core: _Core) -> None:
        self._core = core

    async def speaker(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> Spoken | None:
        """Raises: InvalidToken."""
        if token.count(".") != 2:
            return None
        body = orjson.dumps({"spec": {"token": token, "audiences": list(audiences)}})
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = await self._core.answered(Request("POST", path, body=body, user=ADMIN))
        status = orjson.loads(answer.body)["status"]
        if not status.get("authenticated"):
            raise InvalidToken(status["error"])
        told = status["user"]
        extra = tuple(sorted((key, tuple(values)) for key, values in (told.get("extra") or {}).items()))
        return Spoken(User(told["username"], tuple(told["groups"]), told["uid"], extra), tuple(status["audiences"]))


class _Core:
    """What HttpServer asks of an API server."""

    def __init__(self, answer: Answer, aside: Aside, users: Any) -> None:
        self.limits = Limits()
        self.clock = SystemClock()
        # For the ids of answers alone, which are no part of the history.
        self.rng = random.Random(0)
        self.access = SimpleNamespace(authenticator=Authenticator(users, _Speakers(self)))
        self.connection_metrics: Any = dict
        self._answer, self._aside = answer, aside
        self._executor = ThreadPoolExecutor(1, "minikube-py-gateway")
        self._streams: dict[_Stream, None] = {}
        self._stopped = False

    def hand_work_to(self, work: object) -> None:
        """Nobody else waits for the loop while a large request is worked on."""

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
            stream = _Stream(response.stream, self)
            self._streams[stream] = None
            response.stream = cast(Stream, stream)
        return response

    async def answered(self, request: Request) -> Response:
        return await self.elsewhere(lambda: self._answer(request))

    async def elsewhere(self, work: Callable[[], T]) -> T:
        """In a thread that has no event loop: the simulated one runs there."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def take(self, stream: Stream, bytes_max: int) -> list[Batch] | None:
        """What waits in a watch in virtual time; None where nothing does, empty at its end."""

        async def look() -> list[Batch] | None:
            reading = asyncio.ensure_future(stream.next(bytes_max))
            while not reading.done() and not stream.awaited:  # noqa: ASYNC110
                await asyncio.sleep(0)
            if reading.done():
                return reading.result()
            reading.cancel()
            await ended(reading)
            return None

        found: list[Batch] | None = await self.elsewhere(lambda: self._aside(look))
        return found

    def left(self, stream: _Stream, read: Stream) -> None:
        if self._streams.pop(stream, False) is None and not self._stopped:

            async def close() -> None:
                read.close()

            self._executor.submit(self._aside, close)


class _Stream:
    """A watch in virtual time, as an HTTP connection in real time reads it."""

    def __init__(self, stream: Stream, core: _Core) -> None:
        self.news = asyncio.Event()
        self.on_cut: Callable[[], None] | None = None
        self.starting = False
        self._stream, self._core, self._closed = stream, core, False

    async def next(self, bytes_max: int = TAKEN_BYTES_MAX) -> list[Batch]:
        while not self._closed:
            self.news.clear()
            found = await self._core.take(self._stream, bytes_max)
            if found is not None:
                # An empty batch is how the beginning of a watch ends, and would end the answer here.
                return found
            await self.news.wait()
        return []

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._core.left(self, self._stream)
            self.news.set()
