"""`ApiTransport` over HTTPS: a pool of keep-alive connections, a bearer token or a client certificate, watches as
streams."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from typing import NoReturn

import aiohttp
import orjson
from yarl import URL

from minikube_py.client.connector import Connector
from minikube_py.client.kubeconfig import ClusterAccess
from minikube_py.client.rest import refused_watch
from minikube_py.client.transport import JSON, USER_AGENT, ApiResponse, WatchEvent
from minikube_py.errors import OutcomeUnknown, Unavailable

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
EVENT_BYTES_MAX = 64 << 20
"""A larger watch event ends the watch: upstream's objects are limited to 1.5 MB, ours to a few."""
ERROR_BODY_BYTES_MAX = 1 << 20
WATCH_GRACE_S = 30.0
"""How long a watch may exceed its timeoutSeconds before the connection is considered dead."""


class HttpTransport:
    """Create it inside a running event loop. `timeout_s` bounds one request, not a watch."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        user_agent: str = USER_AGENT,
        connections_max: int = 64,
        timeout_s: float = 60.0,
    ) -> None:
        self._server = access.server
        self._server_name = access.server_name
        headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": user_agent}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        elif access.username:
            pair = f"{access.username}:{access.password or ''}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        context = access.ssl_context()
        connector = Connector(limit=connections_max, ssl=context if context is not None else True)
        # Watches hold their connections for minutes and would exhaust the pool of requests.
        watch_connector = Connector(limit=0, ssl=context if context is not None else True)
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)
        self._watch_session = aiohttp.ClientSession(connector=watch_connector, headers=headers)
        # aiohttp repeats PUT and DELETE when a kept connection breaks; the second answer (409, 404) would then hide
        # that the first one was done.
        self._session._retry_connection = False
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """See ApiTransport. A read whose kept connection broke is sent once more."""
        try:
            return await self._send(method, path, params, body, content_type)
        except OutcomeUnknown:
            if method not in READ_METHODS:
                raise
        try:
            return await self._send(method, path, params, body, content_type)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error

    async def _send(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str
    ) -> ApiResponse:
        if self._closed:
            raise Unavailable("the transport is closed")
        headers = {"Content-Type": content_type} if body is not None else None
        try:
            async with self._session.request(
                method, self._url(path, params), data=body, headers=headers, server_hostname=self._server_name
            ) as response:
                return ApiResponse(response.status, await response.read(), response.headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._raise(method, path, error)

    def _raise(self, method: str, path: str, error: Exception) -> NoReturn:
        text = f"{method} {self._server}{path}: {error or type(error).__name__}"
        # ConnectionTimeoutError: the connection was never established. ClientConnectorError covers refusal, DNS and
        # TLS.
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)):
            raise Unavailable(text) from error
        raise OutcomeUnknown(text) from error

    def _url(self, path: str, params: Mapping[str, str] | None) -> URL:
        url = URL(self._server + path, encoded=True)
        return url.with_query(params) if params else url

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        """See ApiTransport. A batch is everything that had arrived in one turn of the loop."""
        if self._closed:
            raise Unavailable("the transport is closed")
        asked = {**(params or {}), "watch": "true"}
        total_s = float(asked["timeoutSeconds"]) + WATCH_GRACE_S if "timeoutSeconds" in asked else None
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=30.0)
        try:
            async with self._watch_session.get(
                self._url(path, asked), timeout=timeout, server_hostname=self._server_name
            ) as response:
                if response.status != 200:
                    body = await response.content.read(ERROR_BODY_BYTES_MAX)
                    yield [refused_watch(response.status, body)]
                    return
                try:
                    async for batch in _events(response.content):
                        yield batch
                finally:
                    _abort(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"watch {self._server}{path}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Ends the watches and refuses further requests."""
        self._closed = True
        await self._session.close()
        await self._watch_session.close()


def _abort(response: aiohttp.ClientResponse) -> None:
    """Aborts a connection in the middle of its stream: a TLS shutdown would wait for the server's, and keep the socket
    open for up to 30 s."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[list[WatchEvent]]:
    rest = b""
    async for chunk in content.iter_any():
        data = rest + chunk if rest else chunk
        end = data.rfind(b"\n")
        if end < 0:
            if len(data) > EVENT_BYTES_MAX:
                raise Unavailable(f"a watch event is larger than {EVENT_BYTES_MAX} bytes")
            rest = data
            continue
        rest = data[end + 1 :]
        if batch := [parse_event(line) for line in data[:end].split(b"\n") if line]:
            yield batch


_PREFIX = b'{"type":"'
_MIDDLE = b'","object":'


def parse_event(line: bytes) -> WatchEvent:
    """One line of a watch stream. The object's bytes are cut out without decoding if the line has the usual form.

    Raises: Unavailable if it is not a watch event."""
    if line.startswith(_PREFIX) and line.endswith(b"}"):
        end = line.find(_MIDDLE, 9, 40)
        if end > 0 and line[9:end].isascii():
            return WatchEvent(line[9:end].decode(), line[end + 11 : -1])
    try:
        event = orjson.loads(line)
        return WatchEvent(str(event["type"]), orjson.dumps(event["object"]))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Unavailable(f"not a watch event: {line[:100]!r}") from error
