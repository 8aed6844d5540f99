"""Clients for a program in virtual time: asynchronous ones, over the program's own way to the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from minikube_py.client.transport import JSON, ApiTransport, WatchEvent
from minikube_py.cluster.errors import ClusterError

if TYPE_CHECKING:
    import httpx as of_httpx
    import kubernetes_asyncio as of_kubernetes_asyncio
    import lightkube as of_lightkube

SERVER: Final = "http://in-process"
PLAIN: Final = ("httpx", "kubernetes", "lightkube")
OUTSIDE: Final = ("kr8s", "kr8s_asyncio")
WATCHES: Final = frozenset(("1", "true", "True"))


class ProgramClients:
    """What a program is given. Each raises ClusterError where its package is not installed."""

    def __init__(self, transport: ApiTransport, namespace: str) -> None:
        self.transport, self.namespace = transport, namespace

    def __getattr__(self, name: str) -> Any:
        if name in PLAIN:
            raise ClusterError(f"{name}() is for a program that is a plain function; this one is asynchronous")
        if name in OUTSIDE:
            raise ClusterError(f"{name}() opens sockets on a loop of its own: it works in real time only")
        raise AttributeError(name)

    def httpx_asyncio(self) -> of_httpx.AsyncClient:
        """Plain HTTP: `await client.get("/api/v1/pods")`; a watch by `client.stream(...)` and `aiter_lines()`."""
        package = installed("httpx")
        found: of_httpx.AsyncClient = package.AsyncClient(
            transport=_transport_for(package, self.transport), base_url=SERVER, trust_env=False
        )
        return found

    def lightkube_asyncio(self) -> of_lightkube.AsyncClient:
        module = installed("lightkube")
        package = http_package(module.AsyncClient)
        found: of_lightkube.AsyncClient = module.AsyncClient(
            config=module.KubeConfig.from_dict(kubeconfig(self.namespace)),
            transport=_transport_for(package, self.transport),
            trust_env=False,
        )
        return found

    async def kopf(self, registry: Any = None, **options: Any) -> None:
        """Runs the handlers of a registry (the default one) for ever, as `kopf.operator(**options)` does. Handlers find
        these clients, and for plain functions the plain ones, as `memo.clients`."""
        from minikube_py.cluster.program_kopf import operate

        await operate(self, self.transport.wall_s, registry, options)  # type: ignore[attr-defined]

    async def kubernetes_asyncio(self) -> of_kubernetes_asyncio.client.ApiClient:
        """For `kubernetes_asyncio.client.CoreV1Api(...)` and `kubernetes_asyncio.watch.Watch()`."""
        module: Any = installed("kubernetes_asyncio").client
        configuration = module.Configuration(host=SERVER)
        # Its own constructor opens sockets and reads certificates.
        found: Any = module.ApiClient.__new__(module.ApiClient)
        rest: Any = module.rest.RESTClientObject.__new__(module.rest.RESTClientObject)
        rest.pool_manager = _Session(self.transport)
        rest.proxy = rest.proxy_headers = rest.server_hostname = None
        found.configuration, found.rest_client = configuration, rest
        found.pool_threads, found.default_headers, found.cookie = 1, {}, None
        found.user_agent = "program"
        found.client_side_validation = configuration.client_side_validation
        api: of_kubernetes_asyncio.client.ApiClient = found
        return api


def installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ClusterError(f"{name} is not installed here ({error}); `pip install {name}`") from error


def http_package(client: Any) -> Any:
    """The package of HTTP that a client of lightkube is built on: httpx, or a fork of it."""
    return import_module(client.__init__.__globals__["httpx2"].__name__)


def kubeconfig(namespace: str) -> dict[str, Any]:
    return {
        "current-context": "program",
        "contexts": [{"name": "program", "context": {"cluster": "program", "user": "program", "namespace": namespace}}],
        "clusters": [{"name": "program", "cluster": {"server": SERVER}}],
        "users": [{"name": "program", "user": {"token": "none is asked for"}}],
    }


def line_of(event: WatchEvent) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event.type.encode(), event.object)


async def lines_of(batches: AsyncIterator[list[WatchEvent]]) -> AsyncIterator[bytes]:
    async for batch in batches:
        for each in batch:
            yield line_of(each)


def watched(method: str, query: dict[str, str]) -> bool:
    return method == "GET" and query.get("watch") in WATCHES


def _transport_for(package: Any, transport: ApiTransport) -> Any:
    """Of httpx or a fork of it."""

    class Streamed(package.AsyncByteStream):  # type: ignore[misc,name-defined]
        def __init__(self, batches: Any) -> None:
            self._batches = batches

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for line in lines_of(self._batches):
                yield line

        async def aclose(self) -> None:
            await self._batches.aclose()

    class InProcess(package.AsyncBaseTransport):  # type: ignore[misc,name-defined]
        async def handle_async_request(self, request: Any) -> Any:
            path, query = request.url.raw_path.decode().partition("?")[0], dict(request.url.params)
            if watched(request.method, query):
                query.pop("watch")
                stream = Streamed(transport.watch(path, query))
                return package.Response(200, headers={"content-type": JSON}, stream=stream)
            body = await request.aread()
            kind = request.headers.get("content-type") or JSON
            found = await transport.request(request.method, path, query, body, kind)
            headers = {**found.headers, "content-type": JSON}
            return package.Response(found.status, headers=headers, content=found.body)

    return InProcess()


class _Session:
    """What kubernetes_asyncio asks of an aiohttp session."""

    def __init__(self, transport: ApiTransport) -> None:
        self._transport = transport

    async def request(self, *, method: str, url: str, headers: Any = None, data: Any = None, **_: Any) -> Any:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if watched(method, query):
            query.pop("watch")
            return _Answer(200, {"content-type": JSON}, b"", lines_of(self._transport.watch(parts.path, query)))
        body = data.encode() if isinstance(data, str) else data
        kind = (headers or {}).get("Content-Type") or JSON
        found = await self._transport.request(method, parts.path, query, body, kind)
        return _Answer(found.status, {**found.headers, "content-type": JSON}, found.body, None)

    async def close(self) -> None:
        """Nothing is open."""


class _Answer:
    reason = ""

    def __init__(self, status: int, headers: dict[str, str], body: bytes, lines: Any) -> None:
        self.status, self.headers = status, headers
        self.content = self
        self._body, self._lines = body, lines

    async def read(self) -> bytes:
        return self._body

    async def readline(self) -> bytes:
        """Empty at the end."""
        async for line in self._lines:
            found: bytes = line
            return found
        return b""

    def close(self) -> None:
        """Its generators end with it."""

    release = close
