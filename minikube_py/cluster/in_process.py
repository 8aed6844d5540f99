"""HTTP clients within the process: httpx and packages based on it, kubernetes, kubernetes_asyncio and aiohttp. Their
requests reach the API server with all headers, and are parsed as if from a connection.

The caller provides `exchange`, which passes a request to the API server and its answer back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from email.utils import formatdate
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from minikube_py.api.meta import new_uid
from minikube_py.apiserver.http1 import CHUNKED, Head
from minikube_py.apiserver.http_bytes import head
from minikube_py.apiserver.messages import Response, parse_query
from minikube_py.cluster.errors import ClusterError
from minikube_py.env import Rng

SERVER: Final = "http://in-process"
WATCHES: Final = frozenset(("1", "true", "True"))
Pairs = Iterable[tuple[str, str]]


class Answered(NamedTuple):
    """`lines`: of a watch, instead of a body; an iterator, asynchronous for asynchronous clients, with `close` or
    `aclose`."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    lines: Any = None


Exchange = Callable[[Head, bytes], Answered]
AsyncExchange = Callable[[Head, bytes], Awaitable[Answered]]


def head_of(method: str, target: str, headers: Pairs, body: bytes) -> Head:
    """`target`: path and query, as sent."""
    first: dict[str, str] = {}
    repeated: list[tuple[str, str]] = []
    for name, value in headers:
        if (lower := name.lower()) in first:
            repeated.append((lower, value))
        else:
            first[lower] = value
    path, _, query = target.partition("?")
    return Head(method, path, query, 1, first, tuple(repeated), len(body), True, False)


def answered_of(response: Response, asked: Head, rng: Rng, wall_s: float) -> Answered:
    """A response without its stream, with the headers it has over a connection."""
    audit_id = asked.headers.get("audit-id") or new_uid(rng)
    body = response.whole()
    raw = head(response, True, CHUNKED if response.stream is not None else len(body), audit_id).decode("latin-1")
    pairs = [(name, value) for name, _, value in (line.partition(": ") for line in raw.split("\r\n")[1:] if line)]
    dated = [(name, formatdate(wall_s, usegmt=True) if name == "Date" else value) for name, value in pairs]
    return Answered(response.status, dated, b"" if asked.method == "HEAD" else body)


def is_watch(asked: Head) -> bool:
    return asked.method == "GET" and parse_query(asked.query).get("watch") in WATCHES


def installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ClusterError(f"{name} is not installed here ({error}); `pip install {name}`") from error


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# -- httpx, and forks of it -------------------------------------------------------------------------------------------


def _asked(request: Any, body: bytes) -> Head:
    return head_of(request.method, request.url.raw_path.decode("ascii"), request.headers.multi_items(), body)


def _given(package: Any, found: Answered, stream: Any) -> Any:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.headers]
    content = {"content": found.body} if stream is None else {"stream": stream}
    return package.Response(found.status, headers=headers, **content)


def plain_transport(package: Any, exchange: Exchange) -> Any:
    class Streamed(package.SyncByteStream):  # type: ignore[misc]
        def __init__(self, lines: Any) -> None:
            self._lines = lines

        def __iter__(self) -> Iterator[bytes]:
            yield from self._lines

        def close(self) -> None:
            self._lines.close()

    class InProcess(package.BaseTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            body = request.read()
            found = exchange(_asked(request, body), body)
            return _given(package, found, None if found.lines is None else Streamed(found.lines))

    return InProcess()


def async_transport(package: Any, exchange: AsyncExchange) -> Any:
    class Streamed(package.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, lines: Any) -> None:
            self._lines = lines

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for line in self._lines:
                yield line

        async def aclose(self) -> None:
            await self._lines.aclose()

    class InProcess(package.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            body = await request.aread()
            found = await exchange(_asked(request, body), body)
            return _given(package, found, None if found.lines is None else Streamed(found.lines))

    return InProcess()


# -- kubernetes, kubernetes_asyncio, kopf -----------------------------------------------------------------------------


def wire(method: str, url: str, headers: Mapping[str, str] | None, body: Any, fields: Any) -> tuple[Head, bytes]:
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode(fields or ()))))
    content = body.encode() if isinstance(body, str) else body or b""
    target = f"{parts.path}?{query}" if query else parts.path
    return head_of(method.upper(), target, (headers or {}).items(), content), content


class Pool:
    """The part of a urllib3 pool that the kubernetes client uses. Repeats requests by urllib3's own rules."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def request(self, method: str, url: str, **given: Any) -> PlainAnswer:
        retry = import_module("urllib3.util.retry").Retry
        asked = wire(method, url, given.get("headers"), given.get("body"), given.get("fields"))
        left = retry.from_int(given.get("retries"))
        while True:
            answer = PlainAnswer(self._exchange(*asked))
            if not left.is_retry(method, answer.status, "Retry-After" in answer.headers):
                return answer
            left = left.increment(method, url, response=answer)
            answer.close()
            left.sleep(answer)

    def clear(self) -> None:
        """There is nothing to close."""


class PlainAnswer:
    """As urllib3's."""

    reason = ""

    def __init__(self, found: Answered) -> None:
        self.status, self.headers, self.data = found.status, dict(found.headers), found.body
        self._lines = found.lines

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield from (self.data,) if self._lines is None else self._lines

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()

    release_conn = close

    def get_redirect_location(self) -> bool:
        return False


class Session:
    """The part of an aiohttp session that kubernetes_asyncio uses."""

    def __init__(self, exchange: AsyncExchange) -> None:
        self._exchange = exchange

    async def request(self, *, method: str, url: str, headers: Any = None, data: Any = None, **_: Any) -> AsyncAnswer:
        return AsyncAnswer(await self._exchange(*wire(method, url, headers, data, None)))

    async def close(self) -> None:
        """There is nothing to close."""


class AsyncAnswer:
    """As aiohttp's."""

    reason = ""

    def __init__(self, found: Answered) -> None:
        self.status, self.headers, self.body = found.status, dict(found.headers), found.body
        self.lines = found.lines
        self.content = self

    async def read(self) -> bytes:
        return self.body

    async def readline(self) -> bytes:
        """Empty at the end."""
        if self.lines is None:
            data, self.body = self.body, b""
            return data
        line: bytes = await anext(self.lines, b"")
        return line

    def close(self) -> None:
        """Its generators end with it."""

    release = close


def kubeconfig(namespace: str, token: str) -> dict[str, Any]:
    return {
        "current-context": "program",
        "contexts": [{"name": "program", "context": {"cluster": "program", "user": "program", "namespace": namespace}}],
        "clusters": [{"name": "program", "cluster": {"server": SERVER}}],
        "users": [{"name": "program", "user": {"token": token}}],
    }


def http_package(client: Any) -> Any:
    """The HTTP package of lightkube's client: httpx, or a fork of it."""
    return import_module(client.__init__.__globals__["httpx2"].__name__)


def api_client(package: str, made: Any, token: str) -> Any:
    """An ApiClient of a generated package, with its usual User-Agent."""
    version = getattr(installed(package), "__version__", "")
    made.default_headers = {"User-Agent": f"OpenAPI-Generator/{version}/python", **bearer(token)}
    return made
