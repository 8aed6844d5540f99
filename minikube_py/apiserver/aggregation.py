"""Groups and versions of other API servers: requests are passed on to the service that their APIService names.

The request has been authorized here. `X-Remote-*` headers name who sent it to the other server, which believes them
because of this server's client certificate.

Source: kube-aggregator `pkg/apiserver/handler_proxy.go`; apimachinery `pkg/util/proxy/{upgradeaware,transport}.go`;
client-go `transport/round_trippers.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import ExitStack, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, urlencode

from minikube_py.api.discovery import Remote
from minikube_py.api.errors import Json, StatusError, go_quote
from minikube_py.api.kinds.apiregistration import GROUP
from minikube_py.api.kinds.core import SERVICES
from minikube_py.api.kinds.discovery import ENDPOINTSLICES
from minikube_py.apiserver.api_services import ApiServices, Known
from minikube_py.apiserver.audit_requests import lasts
from minikube_py.apiserver.auth import ANONYMOUS
from minikube_py.apiserver.forwarding import Asked, Forwarder, Opened, Target, Tunnel
from minikube_py.apiserver.inflight import Slots
from minikube_py.apiserver.messages import TEXT, Request, Response, decode_path, query_terms
from minikube_py.apiserver.outgoing import ANSWER_BYTES_MAX, DEADLINE, BadAuthority, FrontProxy, NoAnswer
from minikube_py.apiserver.remote_services import RemoteService
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import USER_AGENT
from minikube_py.containers.channels import Duplex
from minikube_py.containers.remote import Upgrade
from minikube_py.env import Clock, ended

if TYPE_CHECKING:
    from minikube_py.api.openapi_merging import Foreign
    from minikube_py.apiserver.core import ApiServer

CHECKS_MAX: Final = 10
"""How many other servers are asked at a time for what discovery tells."""
DISCOVERY_S: Final = 5.0
_AT_ONCE_BYTES: Final = 64 << 10
_MOVED_EVERY_S: Final = 0.5
_HOPS: Final = frozenset((
    "connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
))  # fmt: skip
_OURS: Final = frozenset((
    "authorization", "host", "content-length", "expect", "audit-id", "x-forwarded-uri", "x-forwarded-host",
    "x-forwarded-proto", "x-forwarded-for", "x-remote-user", "x-remote-uid", "x-remote-group",
))  # fmt: skip
_OUR_PREFIXES: Final = ("x-remote-extra-", "impersonate-")
_OF_THE_ANSWER: Final = frozenset(("Content-Length", "Content-Type", "Date", "Audit-Id"))
_BODILESS: Final = (204, 304)
_PLAIN: Final = frozenset("!#$&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""Of the characters of a header's name, those that are not escaped: `%` is."""
_PROTOCOLS: Final = ("websocket", "spdy/3.1")
_UNESCAPED: Final = "$&+,/:;=@"
"""Of a path, beside letters, digits and `-._~`. Source: Go `net/url` shouldEscape."""
_REDIRECTED: Final = b"the backend attempted to redirect this request, which is not permitted"


@final
class Aggregation:
    """`follow` is to be called whenever the cache has changed."""

    def __init__(self, server: ApiServer, services: ApiServices, proxy: FrontProxy) -> None:
        self.server = server
        self.services = services
        self.forwarder = Forwarder(proxy)
        self.checks = asyncio.Semaphore(CHECKS_MAX)
        self._remote: dict[str, RemoteService] = {}
        self._by_version: dict[tuple[str, str], RemoteService] = {}
        self._seen = (-1, -1)
        self._moved = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __bool__(self) -> bool:
        return bool(self._remote)

    def follow(self) -> None:
        of = self.server.cache.of
        seen = of(SERVICES).last_change, of(ENDPOINTSLICES).last_change
        if seen != self._seen:
            self._seen = seen
            self._moved.set()

    def take(self, known: Mapping[str, Known]) -> None:
        """The APIServices have changed."""
        found = {name: each for name, each in known.items() if not each.local}
        for name in [name for name in self._remote if name not in found]:
            del self._remote[name]
            self._tasks.pop(name).cancel()
        for name, each in found.items():
            if each.service["spec"].get("group") == GROUP:
                continue
            if (remote := self._remote.get(name)) is not None:
                remote.take(each)
                continue
            remote = self._remote[name] = RemoteService(self, each)
            self._tasks[name] = asyncio.get_running_loop().create_task(remote.run())
        if self._remote and "" not in self._tasks:
            self._tasks[""] = asyncio.get_running_loop().create_task(self._follow_services())
        self._by_version = {(each.group, each.version): each for each in self._remote.values()}
        self.publish()

    def publish(self) -> None:
        """What discovery tells has changed."""
        told: list[Remote] = [self._remote[name].discovered for name in sorted(self._remote)]
        self.services.remote = tuple(told)

    async def _follow_services(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            for remote in list(self._remote.values()):
                remote.look()
                await asyncio.sleep(0)
            await self.server.clock.sleep(_MOVED_EVERY_S)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await ended(*tasks)
        await self.forwarder.close()

    def openapi_paths(self) -> Json:
        """The documents of other servers, by path, as the index of version 3 tells them."""
        return {path: told for each in self._remote.values() for path, told in each.openapi.items()}

    @property
    def swaggers(self) -> tuple[Foreign, ...]:
        """Of their documents of version 2, in the order of their groups' priorities, then of names."""
        told, best = list(self._remote.values()), dict[str, int]()
        for each in told:
            best[each.group] = max(best.get(each.group, 0), each.discovered.priorities[0])
        told.sort(key=lambda each: (-best[each.group], each.name))
        return tuple(each.swagger for each in told if each.swagger is not None)

    def of(self, path: str) -> RemoteService | None:
        """Whose path it is, if it is another server's."""
        parts = decode_path(path).split("/", 6)
        if parts[1:3] == ["openapi", "v3"]:
            found = self._by_version.get((parts[4], parts[5])) if len(parts) == 6 else None
            return found if found is not None and "/".join(parts[3:]) in found.openapi else None
        if parts[1:2] == ["api"]:
            return self._by_version.get(("", "v1"))
        return self._by_version.get((parts[2], parts[3])) if parts[1:2] == ["apis"] and len(parts) > 3 else None

    # --- requests ---------------------------------------------------------------------------------------------------

    async def forward(
        self, remote: RemoteService, request: Request, verb: str, slots: Slots | None = None
    ) -> Response:
        """The request counts, and its body, until it is answered. Raises: StatusError if the body cannot be read, or
        too many are in flight."""
        if not remote.available:
            return _refused(503, "service unavailable")
        try:
            target = remote.target(remote.address())
        except (StatusError, NoAnswer):
            return _refused(503, "service unavailable")
        await request.read_body()
        with ExitStack() as counted:
            if slots is not None:
                # Only now: a slow sender must not occupy a slot.
                slots.take()
                counted.callback(slots.give_back)
            if request.receive is not None:
                counted.enter_context(request.receive.holding(len(request.body)))
            response = await self._forward(target, request, verb)
            if response.text is not None:
                response.sent = counted.pop_all().close
        return response

    async def _forward(self, target: Target, request: Request, verb: str) -> Response:
        upgrades = _upgrades(request)
        if upgrades and (unknown := _unknown_protocol(request)):
            return _refused(400, f"an upgrade to {go_quote(unknown)} is not passed on, only to websocket and SPDY/3.1")
        user = request.user or ANONYMOUS
        headers = [*_passed_on(request, upgrades), *_forwarded(request, target), *identity(user)]
        asked = Asked(request.method, _path(request), headers, request.body)
        limit_s: float | None = self.server.limits.request_timeout_s
        if len(request.path.strip("/").split("/")) == 3 and request.path.startswith("/apis/"):
            limit_s = DISCOVERY_S
        elif verb == "watch" or lasts(request.path, request.method, request.query):
            limit_s = None
        try:
            if upgrades:
                return await self._upgraded(await self.forwarder.upgrade(target, asked), request.method)
            async with asyncio.timeout(limit_s):
                opened = await self.forwarder.open(target, asked)
        except BadAuthority as error:
            return _refused(500, str(error))
        except (NoAnswer, TimeoutError) as error:
            return _refused(503, f"error trying to reach service: {str(error) or DEADLINE}")
        return await self._answered(opened, request, limit_s)

    async def _answered(self, opened: Opened, request: Request, limit_s: float | None) -> Response:
        if 300 <= opened.status < 400 and opened.headers.get("Location"):
            opened.response.close()
            return Response(502, _REDIRECTED, TEXT)
        if opened.status == 101:
            opened.response.close()
            protocol = "".join(opened.headers.get("Upgrade", ()))
            return _refused(503, f'backend tried to switch protocol {go_quote(protocol)} when "" was requested')
        response = _head(opened.status, opened.headers)
        length = opened.response.content_length
        if request.method == "HEAD" and length is not None:
            response.headers = {**response.headers, "Content-Length": str(length)}
        if request.method == "HEAD" or opened.status in _BODILESS:
            opened.response.close()
            return response
        small = length is not None and length <= _AT_ONCE_BYTES
        if small or (_is_component(request) and limit_s is not None):
            try:
                response.body = await opened.body(ANSWER_BYTES_MAX, limit_s or self.server.limits.request_timeout_s)
            except NoAnswer as error:
                return _refused(503, f"error trying to reach service: {error}")
            return response
        response.text = _parts(opened, limit_s, self.server.clock)
        return response

    async def _upgraded(self, tunnel: Tunnel, method: str) -> Response:
        """Raises: NoAnswer if the other server refuses without saying why."""
        if tunnel.status != 101:
            try:
                if tunnel.status < 400:
                    return _refused(503, f"invalid upgrade response: status code {tunnel.status}")
                response = _head(tunnel.status, tunnel.headers)
                response.body = await tunnel.body(ANSWER_BYTES_MAX) if method != "HEAD" else b""
                return response
            finally:
                tunnel.close()

        async def serve(connection: Duplex) -> None:
            await _pumped(connection, tunnel)

        response = Response(101)
        response.upgrade = Upgrade({name: ", ".join(values) for name, values in tunnel.headers.items()}, serve)
        return response


def _is_component(request: Request) -> bool:
    """It reads answers as a whole, and does not know whose they are."""
    return request.head is None or request.user_agent.startswith(USER_AGENT)


def _upgrades(request: Request) -> bool:
    return request.head is not None and any("upgrade" in each.lower() for each in request.head.values("connection"))


def _unknown_protocol(request: Request) -> str:
    """One that this server does not know, or "". A connection in it would be trusted as this server's: over HTTP/2, its
    client could name any user."""
    assert request.head is not None
    named = [each.strip() for value in request.head.values("upgrade") for each in value.split(",")]
    return next((each for each in named if each.lower() not in _PROTOCOLS), "")


def _path(request: Request) -> str:
    """The path and the query that were authorized, escaped again as Go does: what the sender escaped, or did not, may
    mean another path to the other server."""
    given = request.query.items() if request.head is None else query_terms(request.head.query)
    path = quote(decode_path(request.path), _UNESCAPED)
    query = urlencode(sorted(given, key=itemgetter(0)))
    return f"{path}?{query}" if query else path


def _passed_on(request: Request, upgrades: bool) -> Iterable[tuple[str, str]]:
    """The headers of the sender that the other server gets."""
    if request.head is None:
        yield from (("Accept", request.accept), ("User-Agent", request.user_agent or USER_AGENT))
        if request.body:
            yield "Content-Type", request.content_type
        return
    named = {each.strip().lower() for value in request.head.values("connection") for each in value.split(",")}
    for name, value in (*request.head.headers.items(), *request.head.repeated):
        if name not in _OURS and name not in _HOPS and name not in named and not name.startswith(_OUR_PREFIXES):
            yield name, value
    if upgrades:
        yield "Connection", "Upgrade"
        yield from (("Upgrade", value) for value in request.head.values("upgrade"))


def _forwarded(request: Request, target: Target) -> Iterable[tuple[str, str]]:
    yield "Host", target.address
    yield from (("X-Forwarded-Uri", request.path), ("X-Forwarded-Host", target.address), ("X-Forwarded-Proto", "https"))
    if request.head is not None and (before := ", ".join(request.head.values("x-forwarded-for"))):
        yield "X-Forwarded-For", before
    if request.head is not None and (audit_id := request.head.headers.get("audit-id")):
        yield "Audit-Id", audit_id


def identity(user: User) -> Iterable[tuple[str, str]]:
    """How the other server learns who asks. A value that is no header's is refused by `Forwarder`."""
    yield "X-Remote-User", user.name
    if user.uid:
        yield "X-Remote-Uid", user.uid
    yield from (("X-Remote-Group", group) for group in user.groups)
    for key, values in user.extra:
        name = "".join(char if char in _PLAIN else "".join(f"%{byte:02X}" for byte in char.encode()) for char in key)
        yield from ((f"X-Remote-Extra-{name}", value) for value in values)


def _head(status: int, headers: Mapping[str, Iterable[str]]) -> Response:
    named = {each.strip().lower() for value in headers.get("Connection", ()) for each in value.split(",")}
    kept = {
        name: "\n".join(values)
        for name, values in headers.items()
        if name not in _OF_THE_ANSWER and name.lower() not in _HOPS and name.lower() not in named
    }
    response = Response(status, b"", "".join(list(headers.get("Content-Type", ()))[:1]), kept)
    response.exact = True
    return response


def _refused(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode(), TEXT, {"X-Content-Type-Options": "nosniff"})


async def _parts(opened: Opened, limit_s: float | None, clock: Clock) -> AsyncGenerator[bytes, None]:
    """Raises: ConnectionResetError if the answer breaks off, or takes too long."""
    end_s = None if limit_s is None else clock.monotonic_s() + limit_s
    parts = opened.parts()
    try:
        while True:
            async with asyncio.timeout(None if end_s is None else end_s - clock.monotonic_s()):
                part = await anext(parts, b"")
            if not part:
                return
            yield part
    except (NoAnswer, TimeoutError) as error:
        raise ConnectionResetError(f"the answer of another server broke off: {error}") from None
    finally:
        await parts.aclose()
        opened.response.close()


async def _pumped(connection: Duplex, tunnel: Tunnel) -> None:
    """Until one side ends."""

    async def out() -> None:
        with suppress(OSError):
            while data := await connection.read():
                await tunnel.write(data)

    async def back() -> None:
        with suppress(OSError):
            while data := await tunnel.read():
                await connection.write(data)

    tasks = [asyncio.create_task(out()), asyncio.create_task(back())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await ended(*tasks)
        tunnel.close()
