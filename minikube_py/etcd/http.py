"""etcd's HTTP beside its gRPC: the JSON gateway, health, version and metrics, at `--listen-client-http-urls`.

aiohttp parses and writes it; connections are accepted, limited and timed out as at every other port (`ports.port`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from aiohttp import web

from minikube_py.errors import MinikubeError
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Refused, status_of
from minikube_py.etcd.guard import SHOWN, name_shown, shown_over_http
from minikube_py.etcd.maintenance import STORAGE_VERSION, VERSION
from minikube_py.etcd.messages import BY_NAME
from minikube_py.etcd.metrics import KNOWN, under_etcds_names
from minikube_py.etcd.node import REQUEST_S
from minikube_py.etcd.pieces import message_of
from minikube_py.etcd.proto_json import Values, Wrong, read, write
from minikube_py.etcd.schema import Method, methods
from minikube_py.etcd.server import EtcdServer, not_built
from minikube_py.etcd.steps import in_steps
from minikube_py.etcd.watch import FRAGMENT_BYTES
from minikube_py.mvcc.types import RangeRequest
from minikube_py.mvcc.validate import INT64_MAX, INT64_MIN
from minikube_py.ports.descriptors import PROCESS, PortLimits
from minikube_py.ports.metric_lines import lines_of
from minikube_py.ports.port import Incoming, Port, address_of
from minikube_py.ports.shares import Shares

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """As those of the API server (docs/reference/limits.md)."""

    connections_max: int = 256
    header_timeout_s: float = 32.0
    idle_timeout_s: float = 90.0
    body_timeout_s: float = 30.0
    write_timeout_s: float = 60.0
    body_bytes_max: int = FRAGMENT_BYTES * 2
    bodies_bytes_max: int = 64 << 20


READY_S: Final = 2.0
"""Readiness means what it means at every server here (`apiserver.health`); etcd waits as long as for any request."""
MESSAGES_MAX: Final = 1_000
"""In one body: they are decoded in one turn of the loop."""
NO_ROOM: Final = -1.0
"""The deadline of a body that makes room for others'."""
UNUSUAL: Final = {"MoveLeader": "transfer-leadership", "Compact": "compaction"}
STATUS_OF: Final = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}
NAMED: Final = "CommonName of client sending a request against gateway will be ignored and not used as expected"
Check = Callable[[], Awaitable[str]]
"""Why it is not healthy, "" if it is."""


class HttpDoor:
    """Serves `server` over HTTP at `where`: port 0 takes a free one, see `port`."""

    def __init__(
        self,
        server: EtcdServer,
        where: tuple[str, int],
        tls: ssl.SSLContext | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self._server = server
        self.limits = limits = limits or HttpLimits()
        self.bodies = Shares[asyncio.Timeout](limits.bodies_bytes_max)
        self.connections: dict[Any, Incoming] = {}
        """By aiohttp's protocol of each."""
        self._where = where
        self._routes = {f"/v3/{path}": method for method in methods() for path in paths_of(method)}
        # The handler of a disconnected client is cancelled, so no lock, watch or lease waits in vain.
        options: dict[str, Any] = {"keepalive_timeout": limits.idle_timeout_s, "handler_cancellation": True}
        # Like etcd, which reads a body as it comes whatever its Content-Encoding.
        options["auto_decompress"] = False
        self._http = web.Server(self._answered, **options)
        wanted = PortLimits(limits.connections_max, proof_s=limits.header_timeout_s)
        self._port = Port("etcd clients over HTTP", self._connected, wanted, server.node.member.clock, tls, PROCESS)

    async def start(self) -> None:
        """Raises: OSError if the address cannot be bound."""
        await self._port.listen(*self._where)

    async def stop(self) -> None:
        await self._port.close()
        await self._http.shutdown(1.0)
        await self._port.wait_closed()

    @property
    def port(self) -> int:
        return self._port.address[1]

    def _connected(self, incoming: Incoming) -> asyncio.Protocol:
        return _Connection(self, self._http(), incoming)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        incoming = self.connections.get(request.protocol)
        if incoming is None or not incoming.authenticated():
            text = f"too many connections: {self._port.limits.connections_max} is the limit; please try again later"
            refused = _failure(StatusCode.RESOURCE_EXHAUSTED, text)
            refused.force_close()
            return refused
        return await self._answer(request)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        below = request.path.replace("/v3beta/", "/v3/", 1)
        method, guard = self._routes.get(below), self._server.node.guard
        if guard.auth.enabled and below.startswith("/v3/") and name_shown(request.get_extra_info("peercert")):
            return web.Response(text=f"{NAMED}\n", status=400, headers={"X-Content-Type-Options": "nosniff"})
        if method is not None:
            return await self._gateway(method, request)
        if below.startswith("/v3/"):
            return _failure(StatusCode.NOT_FOUND, "Not Found")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405 if request.path in PLAIN else 404, headers={"Allow": "GET"})
        if request.path == "/version":
            told = {"etcdserver": VERSION, "etcdcluster": STORAGE_VERSION, "storage": STORAGE_VERSION}
            return web.json_response(told)
        if request.path == "/metrics":
            own = {**self._server.node.member.metrics(), **self._server.metrics(), **self._own_metrics()}
            lines = lines_of({**under_etcds_names(self._server), **dict(sorted(own.items()))}, KNOWN)
            return web.Response(body="".join(f"{line}\n" for line in lines), headers=METRICS_HEADERS)
        if request.path == "/health":
            return await self._health(request)
        return await self._checked(request)

    def _own_metrics(self) -> dict[str, float]:
        return {f"minikube_py_etcd_http_{name}": value for name, value in self._port.metrics().items()}

    # -- health --------------------------------------------------------------------------------------------------------

    async def _health(self, request: web.BaseRequest) -> web.Response:
        member, serializable = self._server.node.member, request.query.get("serializable") == "true"
        excluded = request.query.getall("exclude", [])
        kinds = [alarm.kind for alarm in sorted(member.state.alarms.raised) if alarm.kind not in excluded]
        why = f"ALARM {kinds[0]}" if kinds else ""
        if not why and not serializable and member.replica.leader() is None:
            why = "RAFT NO LEADER"
        if not why and (error := await self._reads(0 if serializable else REQUEST_S)):
            why = f"RANGE ERROR:{error}"
        body = json.dumps({"health": "false" if why else "true", "reason": why}, separators=(",", ":"))
        return web.Response(text=f"{body}\n" if why else body, status=503 if why else 200)

    async def _checked(self, request: web.BaseRequest) -> web.Response:
        kind, slash, name = request.path[1:].partition("/")
        local, confirmed = self._reads, partial(self._reads, READY_S)
        checks: dict[str, dict[str, Check]] = {
            "livez": {"serializable_read": local},
            "readyz": {
                "data_corruption": self._whole,
                "serializable_read": local,
                "linearizable_read": confirmed,
                "non_learner": self._votes,
            },
        }
        found = checks.get(kind, {})
        wanted = [name] if name else [each for each in found if each not in request.query.getall("exclude", [])]
        if kind not in checks or (slash and name not in found):
            return web.Response(text="404 page not found\n", status=404)
        told = {each: await found[each]() for each in wanted}
        lines = [f"[-]{each} failed: {why}" if why else f"[+]{each} ok" for each, why in told.items()]
        well = not any(told.values())
        if well and "verbose" not in request.query:
            return web.Response(text="ok\n")
        return web.Response(
            text="\n".join([*lines, "ok" if well else f"{kind} check failed", ""]), status=200 if well else 503
        )

    async def _reads(self, within_s: float = 0) -> str:
        """Why no read passes within that time; 0: none of local data."""
        try:
            if within_s:
                await self._server.node.confirmed(within_s=within_s)
            self._server.node.member.read(RangeRequest(b"\0", limit=1, keys_only=True))
        except (Refused, MinikubeError) as error:
            return str(error)
        return ""

    async def _whole(self) -> str:
        alarms = self._server.node.member.state.alarms.raised
        return "alarm activated: CORRUPT" if any(alarm.kind == "CORRUPT" for alarm in alarms) else ""

    async def _votes(self) -> str:
        return "local member is learner" if self._server.node.learner else ""

    # -- the gateway ---------------------------------------------------------------------------------------------------

    async def _gateway(self, method: Method, request: web.BaseRequest) -> web.StreamResponse:
        """A stream's requests are all in the body; its answers are lines, until the client disconnects."""
        if request.method != "POST":
            return _failure(StatusCode.UNIMPLEMENTED, "Method Not Allowed")
        clock = self._server.node.member.clock
        SHOWN.set(partial(shown_over_http, request.headers, request.remote or ""))
        try:
            within_s, since_s = timeout_s(request.headers.get("Grpc-Timeout", "")), clock.monotonic_s()
            values = Values(await self._body(request))
            if within_s is not None and (within_s := within_s + since_s - clock.monotonic_s()) <= 0:
                return _failure(*LATE)
            return await self._called(method, values, request, within_s)
        except _BodyLate:
            text = f"the body did not arrive within {self.limits.body_timeout_s:g} s, which is the limit"
            late = _told(_error(StatusCode.DEADLINE_EXCEEDED, text), 408)
            late.force_close()
            return late
        except TimeoutError:
            return _failure(*LATE)
        except Wrong as wrong:
            return _failure(StatusCode.INVALID_ARGUMENT, str(wrong))
        except (Refused, MinikubeError) as error:
            return _failure(*status_of(error))

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Raises: Refused, _BodyLate."""
        limits, bodies, body = self.limits, self.bodies, bytearray()
        deadline, address = asyncio.timeout(limits.body_timeout_s), address_of((request.remote or "",))
        try:
            async with deadline:
                async for chunk in request.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > limits.body_bytes_max:
                        text = f"the body is larger than {limits.body_bytes_max} bytes, which is the limit"
                        raise Refused(StatusCode.RESOURCE_EXHAUSTED, text)
                    bodies.hold(deadline, address, len(body))
                    while (loser := bodies.loser()) is not None:
                        bodies.let_go(loser)
                        if not loser.expired():
                            loser.reschedule(NO_ROOM)
            return bytes(body)
        except TimeoutError:
            if deadline.when() != NO_ROOM:
                raise _BodyLate from None
            text = f"the bodies being received reach {bodies.limit} bytes, which is the limit"
            raise Refused(StatusCode.RESOURCE_EXHAUSTED, f"{text}; please try again later") from None
        finally:
            bodies.let_go(deadline)

    async def _called(
        self, method: Method, bodies: Values, request: web.BaseRequest, within_s: float | None
    ) -> web.StreamResponse:
        name = method.short
        if method.takes_stream:
            # As in etcd: invalid input ends the requests, but not the stream.
            asked: list[Any] = []
            with contextlib.suppress(Wrong):
                while (each := await _message(method, bodies)) is not None:
                    asked.append(each)
                    if len(asked) > MESSAGES_MAX:
                        text = f"the body has more than {MESSAGES_MAX:,} messages"
                        raise Refused(StatusCode.RESOURCE_EXHAUSTED, text)
            return await self._stream(self._answers(name, asked), request, within_s)
        message = await _message(method, bodies)
        if message is None:
            message = BY_NAME[method.request]()
        if method.gives_stream:
            stream = self._server.streams.get(name)
            if stream is None:
                raise not_built(name)
            return await self._stream(stream(message), request, within_s)
        call = self._server.unary.get(name)
        if call is None:
            raise not_built(name)
        async with asyncio.timeout(within_s):
            answer = await call(message)
            return _told(await in_steps(write(await message_of(method.response, answer))))

    async def _stream(
        self, answers: AsyncIterator[Any], request: web.BaseRequest, within_s: float | None
    ) -> web.StreamResponse:
        """Its last line is the error that ended it; so is the status, if none was sent before."""
        response: web.StreamResponse | None = None
        try:
            async with asyncio.timeout(within_s), contextlib.aclosing(answers):  # type: ignore[type-var]
                async for each in answers:
                    if response is None:
                        response = web.StreamResponse(headers={"Content-Type": "application/json"})
                        await response.prepare(request)
                    await response.write(f'{{"result":{await in_steps(write(each))}}}\n'.encode())
        except TimeoutError:
            code, text = LATE
        except (Refused, MinikubeError) as error:
            code, text = status_of(error)
        else:
            return response or web.Response()
        told = f'{{"error":{_error(code, text)}}}\n'
        if response is None:
            return _told(told, STATUS_OF.get(code, HTTPStatus.INTERNAL_SERVER_ERROR))
        await response.write(told.encode())
        return response

    async def _answers(self, name: str, asked: list[Any]) -> AsyncIterator[Any]:
        if name == "Watch/Watch":
            with self._server.watch_stream() as stream:
                for each in asked:
                    await stream.take(each)
                while True:
                    yield await stream.next_message()
        for each in asked:
            yield await self._server.lease.keep_alive(each)


METRICS_HEADERS: Final = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
PLAIN: Final = ("/version", "/metrics", "/health", "/livez", "/readyz")


class _BodyLate(Exception):
    pass


class _Connection(asyncio.Protocol):
    """aiohttp's protocol on a connection of a `Port`, authenticated from its first complete request on."""

    def __init__(self, door: HttpDoor, inner: Any, incoming: Incoming) -> None:
        self._door = door
        self._inner = inner
        self._incoming = incoming
        self._stalled: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        within_s = self._door.limits.write_timeout_s
        self._stalled = asyncio.get_running_loop().call_later(within_s, self._transport.abort)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._moves()
        self._inner.resume_writing()

    def _moves(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._door.connections[self._inner] = self._incoming
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._moves()
        self._door.connections.pop(self._inner, None)
        self._inner.connection_lost(exc)
        self._incoming.left()


_AUTH: Final = re.compile("^auth(?!enticate)")


def paths_of(method: Method) -> Iterator[str]:
    """Below /v3/. RangeStream and gRPC's health service have none."""
    service = method.service.rpartition(".")[2]
    lower = UNUSUAL.get(method.name, method.name.lower())
    if service == "Watch":
        yield "watch"
    elif service == "KV" and method.name != "RangeStream":
        yield f"kv/{lower}"
    elif service == "Lease":
        name = lower.removeprefix("lease")
        yield f"lease/{name}"
        if name in ("revoke", "timetolive", "leases"):
            yield f"kv/lease/{name}"
    elif service == "Cluster":
        yield f"cluster/member/{lower.removeprefix('member')}"
    elif service == "Auth":
        found = re.match("(user|role)(changep|[a-z]+?(?=role|permission|$))", lower)
        yield f"auth/{found[1]}/{found[2].replace('changep', 'changepw')}" if found else f"auth/{_AUTH.sub('', lower)}"
    elif service in ("Maintenance", "Lock", "Election"):
        yield f"{service.lower()}/{lower}"


async def _message(method: Method, bodies: Values) -> Any:
    """The next message of the body, None at its end. Raises: Wrong, Refused."""
    text = bodies.next()
    if text is None:
        return None
    return await in_steps(read(method.request, text))


LATE: Final = (StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
_UNITS_NS: Final = {"H": 3600 * 10**9, "M": 60 * 10**9, "S": 10**9, "m": 10**6, "u": 1000, "n": 1}
_TIMEOUT: Final = re.compile(r"([+-]?[0-9]{1,19})([HMSmun])")


def timeout_s(header: str) -> float | None:
    """From `Grpc-Timeout`: the time limit of a call. One too long for Go has already passed. Raises: Refused."""
    if not header:
        return None
    found = _TIMEOUT.fullmatch(header)
    if found is None or not INT64_MIN <= int(found[1]) <= INT64_MAX:
        raise Refused(StatusCode.INVALID_ARGUMENT, f"invalid grpc-timeout: {header}")
    wrapped_ns = (int(found[1]) * _UNITS_NS[found[2]] - INT64_MIN) % (1 << 64) + INT64_MIN
    return wrapped_ns / 10**9 if wrapped_ns else None


def _error(code: Any, text: str) -> str:
    return json.dumps({"code": int(code), "message": text}, separators=(",", ":"), ensure_ascii=False)


def _failure(code: Any, text: str) -> web.Response:
    return _told(_error(code, text), STATUS_OF.get(code, HTTPStatus.INTERNAL_SERVER_ERROR))


def _told(body: str, status: int = 200) -> web.Response:
    return web.Response(body=body.encode("utf-8", "replace"), status=status, content_type="application/json")
