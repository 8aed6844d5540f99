"""A kopf operator as a program in virtual time: on the program's loop, over its simulated connection to the API server.

kopf runs on asyncio, with the caller's HTTP session and the loop's time. Three things come from elsewhere: signals,
which a program does not have; threads for handlers that are plain functions, which here run only while the simulation
is stopped; and the date, which here is the cluster's."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

import orjson

from minikube_py.client.transport import JSON
from minikube_py.cluster.in_process import SERVER, Answered, AsyncAnswer, bearer, installed, wire
from minikube_py.cluster.program import Remote
from minikube_py.cluster.program_clients import ProgramClients
from minikube_py.cluster.program_plain import Baton, PlainClients, on_its_thread
from minikube_py.errors import MinikubeError
from minikube_py.sim.replaced import Replaced

DATED: Final = ("_core.actions.progression", "_core.actions.application", "_cogs.clients.events")
"""The modules of kopf that write dates."""
_now_s: ContextVar[Callable[[], float]] = ContextVar("now_s")


async def operate(clients: ProgramClients, wall_s: Callable[[], float], registry: Any, options: dict[str, Any]) -> None:
    """`kopf.operator(...)`, with a session, a memo that has `clients`, and no peers."""
    kopf, loop = installed("kopf"), asyncio.get_running_loop()
    for attribute in (*_dated(), *_stoppers()):
        clients.transport.replace(attribute)
    _now_s.set(wall_s)

    def run_in_executor(executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return loop.create_task(Baton(lambda: func(*args), clients.transport).carry())

    loop.run_in_executor = run_in_executor  # type: ignore[method-assign,assignment]
    # Without it kopf warns at each start.
    loop.add_signal_handler = lambda *_: None  # type: ignore[method-assign,assignment]
    info = kopf.AiohttpSession(server=SERVER, default_namespace=clients.namespace, aiohttp_session=_Session(clients))
    vault = installed("kopf._cogs.structs.credentials").Vault({"program": info})
    memo = options.pop("memo", None) or kopf.Memo()
    memo.clients = OperatorClients(clients.transport, clients.namespace)
    given = {"standalone": True, "vault": vault, "memo": memo, "registry": registry} | options
    if not (given.get("namespaces") or given.get("clusterwide")):
        given["namespaces"] = [clients.namespace]
    await kopf.operator(**given)


class OperatorClients(PlainClients):
    """For handlers of both kinds: asynchronous clients on the loop, plain ones on a handler's thread."""

    def __init__(self, transport: Remote, namespace: str) -> None:
        super().__init__(transport, namespace, None)


class _Date(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Date:
        now_s = _now_s.get(None)
        return super().now(tz) if now_s is None else cls.fromtimestamp(now_s(), tz)


_DATES: Final = SimpleNamespace(**{name: getattr(datetime, name) for name in datetime.__all__} | {"datetime": _Date})


@cache
def _dated() -> tuple[Replaced, ...]:
    return tuple(Replaced(installed(f"kopf.{name}"), "datetime", _DATES) for name in DATED)


@cache
def _stoppers() -> tuple[Replaced]:
    """`stopped.wait()` of a plain daemon: set by the simulation, so it waits in virtual time without a timeout, too."""

    def wait(self: Any, timeout: float | None = None) -> Any:
        return found.own(self, threading.TIMEOUT_MAX if timeout is None and on_its_thread() else timeout)

    found = Replaced(installed("kopf._cogs.aiokits.aioenums").SyncFlagWaiter, "wait", wait)
    return (found,)


class _Session:
    """The part of an aiohttp session that kopf uses."""

    closed = False

    def __init__(self, clients: ProgramClients) -> None:
        self.headers = bearer(clients.transport.token)
        self._exchange = clients.transport.exchange
        self._aiohttp = installed("aiohttp")

    async def request(self, *, method: str, url: str, json: Any, headers: Any, **_: Any) -> _Answer:
        body = None if json is None else orjson.dumps(json)
        kind = {} if body is None else {"Content-Type": JSON}
        try:
            found = await self._exchange(*wire(method, url, {**kind, **self.headers, **(headers or {})}, body, None))
        except MinikubeError as error:
            raise self._aiohttp.ClientConnectionError(str(error)) from error
        return _Answer(self._aiohttp, found)

    async def close(self) -> None:
        """There is nothing to close."""


class _Answer(AsyncAnswer):
    closed = False

    def __init__(self, aiohttp: Any, found: Answered) -> None:
        super().__init__(found)
        self._aiohttp = aiohttp
        self._reads: asyncio.Task[bytes] | None = None

    async def json(self) -> Any:
        return orjson.loads(self.body)

    async def text(self) -> str:
        return self.body.decode()

    def raise_for_status(self) -> None:
        if self.status >= 400:
            raise self._aiohttp.ClientResponseError(None, (), status=self.status, headers=self.headers)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Raises: aiohttp.ClientConnectionError if it was closed or broke."""
        try:
            while not self.closed:
                self._reads = asyncio.get_running_loop().create_task(self.readline())
                if not (line := await self._reads):
                    return
                yield line
        except (MinikubeError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not self.closed:
                raise
            raise self._aiohttp.ClientConnectionError(str(error)) from error

    def close(self) -> None:
        self.closed = True
        if self._reads is not None:
            self._reads.cancel()

    async def __aenter__(self) -> _Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        if self.lines is not None:
            await self.lines.aclose()
