"""A role's own word on how it is, for healthchecks: `GET /healthz` over plain HTTP, meant for its own host alone.

It says `ok` or why not, and nothing else. That it answers at all says that its event loop turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from minikube_py.control_plane.errors import SetupError

REQUEST_BYTES_MAX = 8192
REQUEST_S = 5.0
CONNECTIONS_MAX = 16


class Healthz:
    """`state()` is "" while the role is well, else why it is not."""

    def __init__(self, host: str, port: int, state: Callable[[], str]) -> None:
        self._host, self._port, self._state = host, port, state
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

    def answer(self, line: bytes) -> bytes:
        """To a request that begins with `line`."""
        method, _, rest = line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD") or path not in (b"/healthz", b"/livez", b"/readyz"):
            return _response(404, "Not Found", "there is /healthz here")
        why = self._state()
        return _response(503, "Service Unavailable", why) if why else _response(200, "OK", "ok")


class _Connection(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, health: Healthz) -> None:
        self._health = health
        self._head = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._health.connections += 1
        if self._health.connections > CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._transport.write(self._health.answer(self._head.partition(b"\r\n")[0]))
            self._transport.close()
        elif len(self._head) > REQUEST_BYTES_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._health.connections -= 1
        if self._timer is not None:
            self._timer.cancel()


def _response(status: int, reason: str, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
