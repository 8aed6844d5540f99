"""A role's health endpoint: `GET /readyz` over plain HTTP, for its own host only.

Ready (`/readyz`, and `/healthz`) means that a linearizable read passes; alive (`/livez`), that the event loop runs. It
answers `ok` or the reason, in the format of Kubernetes' servers, with `?verbose` and `?exclude=`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qs

from minikube_py.apiserver import health
from minikube_py.control_plane.errors import SetupError
from minikube_py.env import SystemClock
from minikube_py.ports.descriptors import PROCESS, PortLimits
from minikube_py.ports.metric_lines import lines_of
from minikube_py.ports.port import Incoming, Port

REQUEST_BYTES_MAX = 8192
REQUEST_S = 5.0
LIMITS = PortLimits(
    0, waiting_max=32, waiting_per_peer_max=32, strangers_max=16, strangers_per_peer_max=16, proof_s=REQUEST_S
)
"""No authentication here."""

Metrics = Callable[[], Mapping[str, float]]


class Healthz:
    """`ready()` is "" if the role is ready, else the reason; `name` is the name of that check. `metrics`: the answer to
    `GET /metrics`."""

    def __init__(
        self, host: str, port: int, name: str, ready: health.Check, metrics: Metrics = dict
    ) -> None:
        self._host, self._port = host, port
        self._metrics = metrics
        alive: dict[str, health.Check] = {"ping": health.well}
        in_time: dict[str, health.Check] = {**alive, name: ready}
        self._kinds: dict[str, dict[str, health.Check]] = {"livez": alive, "readyz": in_time, "healthz": in_time}
        self.listening = Port("health", partial(_Connection, self), LIMITS, SystemClock(), descriptors=PROCESS)

    async def start(self) -> None:
        """Raises: SetupError if the address is taken."""
        try:
            await self.listening.listen(self._host, self._port)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"cannot listen on {self._host}:{self._port}: {reason}; name another with --healthz"
            raise SetupError(text) from error

    async def stop(self) -> None:
        await self.listening.close()
        await self.listening.wait_closed()

    @property
    def port(self) -> int:
        return self.listening.address[1]

    async def answer(self, line: bytes) -> bytes:
        """For a request that begins with `line`."""
        method, _, rest = line.partition(b" ")
        path, _, query = rest.partition(b" ")[0].decode("latin-1").partition("?")
        if path == "/metrics" and method in (b"GET", b"HEAD"):
            return _response(200, "\n".join(lines_of(self._metrics())))
        kind, _, name = path.strip("/").partition("/")
        checks = self._kinds.get(kind, {})
        if method not in (b"GET", b"HEAD") or not checks or (name and name not in checks):
            return _response(404, "only /readyz is served")
        if name:
            return _response(*await health.one(checks[name]))
        asked = parse_qs(query, keep_blank_values=True)
        excluded = ",".join(asked.get("exclude", ())).split(",")
        return _response(*await health.all_of(kind, checks, excluded, verbose="verbose" in asked, reasons=True))


class _Connection(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, health: Healthz, incoming: Incoming) -> None:
        self._health = health
        self._incoming = incoming
        self._head = b""
        self._transport: asyncio.Transport
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answering is not None:
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._incoming.busy()
            self._answering = asyncio.get_running_loop().create_task(self._answer(self._head.partition(b"\r\n")[0]))
        elif len(self._head) > REQUEST_BYTES_MAX:
            self._transport.abort()

    async def _answer(self, line: bytes) -> None:
        self._transport.write(await self._health.answer(line))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._incoming.left()
        if self._answering is not None:
            self._answering.cancel()


def _response(status: int, text: str) -> bytes:
    body = f"{text.rstrip()}\n".encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
