"""A plain function as a program in virtual time: on a thread of its own, which runs only while the simulation stands.

The function asks for what takes time - an answer, an event, a sleep - and waits; the simulation goes on until that is
there, and hands over again. One of the two runs at any moment, so a seed is one history. Killed, the function ends
where it waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from minikube_py.client.transport import JSON, ApiResponse, ApiTransport, WatchEvent
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.program import Main
from minikube_py.cluster.program_clients import (
    SERVER,
    ProgramClients,
    http_package,
    installed,
    kubeconfig,
    line_of,
    watched,
)
from minikube_py.sim.loop import Killed

if TYPE_CHECKING:
    import httpx as of_httpx
    import kubernetes as of_kubernetes
    import lightkube as of_lightkube

ONE_THREAD: Final = "a plain program in virtual time has one thread: only the one that it was started on may wait here"
Errand = Callable[[], Awaitable[Any]]
_thread = threading.local()


class Baton:
    """What the function's thread and the simulation hand each other."""

    def __init__(self, main: Callable[[], object], name: str) -> None:
        self._main = main
        self._thread = threading.Thread(target=self._body, name=name, daemon=True)
        self._to_thread, self._to_loop = threading.Semaphore(0), threading.Semaphore(0)
        self._errand: Errand | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._killed = False

    async def carry(self) -> object:
        """On the program's loop: what the function returns or raises."""
        self._thread.start()
        try:
            self._hand_over()
            while (errand := self._errand) is not None:
                self._value = self._error = self._errand = None
                try:
                    self._value = await errand()
                except Exception as error:
                    self._error = error
                self._hand_over()
        finally:
            self._killed = True
            self._to_thread.release()
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self, errand: Errand) -> Any:
        """On the function's thread: what `errand()` returns or raises on the loop, once it is there."""
        if threading.current_thread() is not self._thread:
            raise ClusterError(ONE_THREAD)
        if not self._killed:
            self._errand = errand
            self._to_loop.release()
            self._to_thread.acquire()
        if self._killed:
            raise Killed
        if self._error is not None:
            raise self._error
        return self._value

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: asyncio.sleep(seconds))

    def _hand_over(self) -> None:
        """Whoever sleeps there by `time.sleep` lets virtual time pass; all others sleep as they do."""
        really = time.sleep

        def sleep(seconds: float) -> None:
            (self.sleep if threading.current_thread() is self._thread else really)(seconds)

        time.sleep = sleep  # type: ignore[assignment]
        try:
            self._to_thread.release()
            self._to_loop.acquire()
        finally:
            time.sleep = really

    def _body(self) -> None:
        _thread.baton = self
        self._to_thread.acquire()
        value: object = None
        error: Exception | None = None
        try:
            value = self._main()
        except Killed:
            pass
        except BaseException as raised:
            error = raised if isinstance(raised, Exception) else RuntimeError(f"{type(raised).__name__}: {raised}")
        self._errand, self._value, self._error = None, value, error
        self._to_loop.release()


def begun(main: Callable[[Any], object], namespace: str, name: str) -> Main:
    """A program that runs `main(clients)`: where that is no coroutine function, on a thread. What it gives back may be
    a coroutine still, which then runs as one."""
    if iscoroutinefunction(main):
        return lambda transport: main(ProgramClients(transport, namespace))

    async def whole(transport: ApiTransport) -> None:
        baton = Baton(lambda: main(PlainClients(transport, namespace, baton)), name)
        found = await baton.carry()
        if isawaitable(found):
            await found

    return whole


class PlainClients(ProgramClients):
    """What a plain function is given. Each raises ClusterError where its package is not installed."""

    def __init__(self, transport: ApiTransport, namespace: str, baton: Baton | None) -> None:
        """`baton` None: that of the thread which asks."""
        super().__init__(transport, namespace)
        self._given = baton

    @property
    def _baton(self) -> Baton:
        if (found := self._given or getattr(_thread, "baton", None)) is None:
            raise ClusterError(ONE_THREAD)
        return found

    def httpx(self) -> of_httpx.Client:
        """Plain HTTP: `client.get("/api/v1/pods")`; a watch by `client.stream(...)` and `iter_lines()`."""
        package = installed("httpx")
        found: of_httpx.Client = package.Client(transport=self._http(package), base_url=SERVER, trust_env=False)
        return found

    def lightkube(self) -> of_lightkube.Client:
        module = installed("lightkube")
        package = http_package(module.Client)
        config = module.KubeConfig.from_dict(kubeconfig(self.namespace))
        found: of_lightkube.Client = module.Client(config=config, transport=self._http(package), trust_env=False)
        return found

    def kubernetes(self) -> of_kubernetes.client.ApiClient:
        """For `kubernetes.client.CoreV1Api(...)` and `kubernetes.watch.Watch()`."""
        module: Any = installed("kubernetes").client
        found: of_kubernetes.client.ApiClient = module.ApiClient(module.Configuration(host=SERVER))
        pool: Any = _Pool(self)
        found.rest_client.pool_manager = pool
        return found

    # -- for the clients ----------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, query: dict[str, str], body: bytes | None, kind: str) -> ApiResponse:
        found: ApiResponse = self._baton.wait(lambda: self.transport.request(method, path, query, body, kind))
        return found

    def lines(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        """Of a watch."""
        query = {name: value for name, value in query.items() if name != "watch"}
        batches: Any = self.transport.watch(path, query)
        try:
            while batch := self._baton.wait(lambda: _next(batches)):
                yield from map(line_of, batch)
        except GeneratorExit:
            self._baton.wait(batches.aclose)
            raise

    def _http(self, package: Any) -> Any:
        clients = self

        class Streamed(package.SyncByteStream):  # type: ignore[misc,name-defined]
            def __init__(self, lines: Iterator[bytes]) -> None:
                self._lines: Any = lines

            def __iter__(self) -> Iterator[bytes]:
                yield from self._lines

            def close(self) -> None:
                self._lines.close()

        class InProcess(package.BaseTransport):  # type: ignore[misc,name-defined]
            def handle_request(self, request: Any) -> Any:
                path, query = request.url.raw_path.decode().partition("?")[0], dict(request.url.params)
                if watched(request.method, query):
                    stream = Streamed(clients.lines(path, query))
                    return package.Response(200, headers={"content-type": JSON}, stream=stream)
                kind = request.headers.get("content-type") or JSON
                found = clients.request(request.method, path, query, request.read(), kind)
                headers = {**found.headers, "content-type": JSON}
                return package.Response(found.status, headers=headers, content=found.body)

        return InProcess()


async def _next(batches: AsyncIterator[list[WatchEvent]]) -> list[WatchEvent] | None:
    return await anext(batches, None)


class _Pool:
    """What the kubernetes client asks of a urllib3 pool."""

    def __init__(self, clients: PlainClients) -> None:
        self._clients = clients

    def request(self, method: str, url: str, **given: Any) -> _Answer:
        parts, body, fields = urlsplit(url), given.get("body"), given.get("fields") or {}
        query = dict(parse_qsl(parts.query, keep_blank_values=True)) | dict(fields)
        if watched(method, query):
            return _Answer(200, {"content-type": JSON}, b"", self._clients.lines(parts.path, query))
        kind = (given.get("headers") or {}).get("Content-Type") or JSON
        content = body.encode() if isinstance(body, str) else body
        found = self._clients.request(method, parts.path, query, content, kind)
        return _Answer(found.status, {**found.headers, "content-type": JSON}, found.body, iter(()))

    def clear(self) -> None:
        """Nothing is open."""


class _Answer:
    reason = ""

    def __init__(self, status: int, headers: dict[str, str], data: bytes, lines: Iterator[bytes]) -> None:
        self.status, self.headers, self.data = status, headers, data
        self._lines: Any = lines

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield from self._lines

    def close(self) -> None:
        if isinstance(self._lines, Iterator) and hasattr(self._lines, "close"):
            self._lines.close()

    release_conn = close
