"""A role's own word on how it is, for healthchecks: `GET /readyz` over plain HTTP, meant for its own host alone.

Ready (`/readyz`, and `/healthz`) means that a linearizable read passes; alive (`/livez`), that the process turns. It
says `ok` or why not, in the words of Kubernetes' servers; `?verbose` and `?exclude=` as there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qs

from minikube_py.apiserver import health
from minikube_py.control_plane.errors import SetupError

REQUEST_BYTES_MAX = 8192
REQUEST_S = 5.0
CONNECTIONS_MAX = 16


class Healthz:
    """`ready()` is "" while the role is, else why it is not; `name` is what that check is called."""

    def __init__(self, host: str, port: int, name: str, ready: health.Check) -> None:
        self._host, self._port = host, port
        alive: dict[str, health.Check] = {"ping": health.well}
        in_time: dict[str, health.Check] = {**alive, name: partial(health.within, ready, "it does not know")}
        self._kinds: dict[str, dict[str, health.Check]] = {"livez": alive, "readyz": in_time, "healthz": in_time}
        self._server: asyncio.Server | None = None
        self.connections = 0

    async def start(self) -> None:
        """Raises: SetupError where the address is taken."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Connection(self), self._host, self._port)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"cannot listen on {self._host}:{self._port}: {reason}; name another with --healthz"
            raise SetupError(text) from error

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None, "not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def answer(self, line: bytes) -> bytes:
        """To a request that begins with `line`."""
        method, _, rest = line.partition(b" ")
        path, _, query = rest.partition(b" ")[0].decode("latin-1").partition("?")
        kind, _, name = path.strip("/").partition("/")
        checks = self._kinds.get(kind, {})
        if method not in (b"GET", b"HEAD") or not checks or (name and name not in checks):
            return _response(404, "there is /readyz here")
        if name:
            return _response(*await health.one(checks[name]))
        asked = parse_qs(query, keep_blank_values=True)
        excluded = ",".join(asked.get("exclude", ())).split(",")
        return _response(*await health.all_of(kind, checks, excluded, verbose="verbose" in asked, reasons=True))


class _Connection(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, health: Healthz) -> None:
        self._health = health
        self._head = b""
        self._transport: asyncio.Transport
        self._answering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._health.connections += 1
        if self._health.connections > CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answering is not None:
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._answering = asyncio.get_running_loop().create_task(self._answer(self._head.partition(b"\r\n")[0]))
        elif len(self._head) > REQUEST_BYTES_MAX:
            self._transport.abort()

    async def _answer(self, line: bytes) -> None:
        self._transport.write(await self._health.answer(line))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._health.connections -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()


def _response(status: int, text: str) -> bytes:
    body = f"{text.rstrip()}\n".encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
