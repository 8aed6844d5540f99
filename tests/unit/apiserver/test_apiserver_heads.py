# ruff: noqa: E501
"""What only the head of a request says: a token among subprotocols, a deadline, a watch over a WebSocket. Expected values: answers of
kube-apiserver 1.36."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from api_core import MAPS, MERGE, PODS, Core, config_map, pod
from patience import patience
from wsproto.connection import Connection as WebSocketFrames
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage

from minikube_py.apiserver.asking import answer_of
from minikube_py.apiserver.auth import ADMIN, ANONYMOUS
from minikube_py.apiserver.http1 import Head, RequestReader
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.rules import User
from minikube_py.containers.remote import Upgrade

SOCKET = {
    "Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "http://x",
}  # fmt: skip
EXEC = f"{PODS}/p/exec?command=id&stdout=1"


def head(method: str, target: str, *headers: tuple[str, str]) -> Head:
    lines = [f"{method} {target} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in headers)]
    reader = RequestReader(16 << 10, 100)
    reader.receive("\r\n".join((*lines, "", "")).encode())
    found = reader.head()
    assert found is not None
    return found


def token(text: str) -> str:
    return "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


async def spoken(core: Core, *protocols: str, **more: str) -> Response:
    state = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "containerID": "c://1", "state": {"running": {}}}
    await core.ask("POST", PODS, pod("p", "n"))
    await core.done("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running", "containerStatuses": [state]}}, MERGE)
    given = [("Sec-WebSocket-Protocol", each) for each in protocols]
    return await answer_of(core.api, head("GET", EXEC, *({**SOCKET, **more}).items(), *given), b"")


@pytest.mark.parametrize("protocols", [
    (f"v4.channel.k8s.io, {token('admin-token')}",), (token("admin-token"), "v4.channel.k8s.io"),
    ("other", f"{token('admin-token')},v4.channel.k8s.io"),
])  # fmt: skip
async def test_a_browser_says_its_token_as_a_subprotocol(core: Core, protocols: tuple[str, ...]) -> None:
    answer = await spoken(core, *protocols)
    assert answer.upgrade is not None, answer.body
    assert answer.upgrade.headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"
    wrong = await spoken(core, *protocols, Authorization="Bearer wrong")
    assert wrong.upgrade is not None, "one credential that is valid suffices"


@pytest.mark.parametrize(("protocols", "code"), [
    ((f"v4.channel.k8s.io, {token('wrong')}",), 401), ((token("admin-token"),), 401),
    ((f"v4.channel.k8s.io, {token('admin-token')}, {token('admin-token')}",), 401),
    (("v4.channel.k8s.io", token("admin-token") + "=="), 401), (("v4.channel.k8s.io", token("admin-token")[:-1] + "+"), 401),
    (("v4.channel.k8s.io", "base64url.bearer.authorization.k8s.io._w"), 401),
    (("v4.channel.k8s.io", "base64url.bearer.authorization.k8s.io."), 403), (("v4.channel.k8s.io",), 403),
])  # fmt: skip
async def test_wrong_tokens_among_subprotocols_are_refused(core: Core, protocols: tuple[str, ...], code: int) -> None:
    answer = await spoken(core, *protocols)
    assert (answer.status, answer.upgrade) == (code, None)


async def test_only_a_websocket_has_subprotocols(core: Core) -> None:
    answer = await spoken(core, f"v4.channel.k8s.io, {token('admin-token')}", Upgrade="SPDY/3.1")
    assert answer.status == 403


async def test_a_token_is_not_passed_on(core: Core) -> None:
    seen: list[tuple[User | None, list[str]]] = []
    handle = core.api.handle

    async def note(request: Request) -> Response:
        if request.head is None:
            return await handle(request)
        seen.append((request.user, request.head.values("sec-websocket-protocol")))
        return Response()

    core.api.handle = note  # type: ignore[method-assign]
    await spoken(core, "a", f"{token('admin-token')}, b")
    await spoken(core, "a", "b")
    assert seen[-2:] == [(ADMIN, ["a,b"]), (ANONYMOUS, ["a", "b"])]


# --- deadlines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "why"), [
    ("abc", 'time: invalid duration "abc"'), ("1", 'time: missing unit in duration "1"'),
    ("1x", 'time: unknown unit "x" in duration "1x"'), ("1.5.5s", 'time: missing unit in duration "1.5.5s"'),
])  # fmt: skip
@pytest.mark.parametrize("path", [MAPS, "/healthz", "/nowhere"])
async def test_a_wrong_timeout_is_refused_before_anything_is_done(core: Core, path: str, text: str, why: str) -> None:
    for user in (("Authorization", "Bearer admin-token"), ("Authorization", "Bearer wrong")):
        body = b'{"metadata":{"name":"a"}}'
        answer = await answer_of(core.api, head("POST", f"{path}?timeout={text}", user), body)
        assert answer.status == 400 and f"invalid timeout specified in the request URL - {why}".encode() in answer.body.replace(b"\\", b"")
        assert "X-Content-Type-Options" not in answer.headers
    assert (await core.ask("GET", f"{MAPS}/a"))[0] == 404


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1h", "60s"])
async def test_a_timeout_of_nothing_or_longer_than_ours_is_none(core: Core, text: str) -> None:
    answer = await answer_of(core.api, head("GET", f"{MAPS}?timeout={text}", ("Authorization", "Bearer admin-token")), b"")
    assert answer.status == 200


async def test_a_watch_has_no_deadline(core: Core) -> None:
    for target in (f"{MAPS}?watch=1&timeout=abc", "/api/v1/watch/configmaps?timeout=1ns&watch=1"):
        answer = await answer_of(core.api, head("GET", target, ("Authorization", "Bearer admin-token")), b"")
        assert answer.stream is not None, answer.body
        answer.stream.close()


OUT_OF_TIME = b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}\n'


async def test_a_request_ends_when_its_client_said(core: Core) -> None:
    started_s = core.clock.monotonic_s()
    late = Request("POST", MAPS, {}, b'{"metadata":{"name":"a"}}', ADMIN)
    late.deadline_s = started_s
    answer = await core.api.handle(late)
    assert (answer.status, answer.body, answer.content_type) == (504, OUT_OF_TIME, "text/plain; charset=utf-8")
    assert (await core.ask("GET", f"{MAPS}/a"))[0] == 404
    core.api.limits = Limits(request_timeout_s=3600.0)
    core.api._dispatch = hung  # type: ignore[method-assign]
    asked = head("GET", f"{MAPS}?timeout=50ms", ("Authorization", "Bearer admin-token"))
    answer = await answer_of(core.api, asked, b"")
    assert (answer.status, answer.body) == (504, OUT_OF_TIME)
    assert core.api.metrics()["apiserver_current_inflight_requests"] == 0
    assert core.clock.monotonic_s() - started_s < 3600.0


async def hung(*given: object) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


# --- watches and logs over WebSockets -------------------------------------------------------------------------------


class Client:
    """The other end of an upgraded connection: frames as they are sent; says nothing until `close`."""

    def __init__(self) -> None:
        self.frames = WebSocketFrames(ConnectionType.CLIENT)
        self.sent: list[TextMessage | BytesMessage | CloseConnection] = []
        self.news = asyncio.Event()
        self._closing = asyncio.Event()

    async def read(self) -> bytes:
        await self._closing.wait()
        return b""

    async def write(self, data: bytes) -> None:
        self.frames.receive_data(data)
        self.sent += [each for each in self.frames.events() if isinstance(each, (TextMessage, BytesMessage, CloseConnection))]
        self.news.set()

    def close(self) -> None:
        self._closing.set()

    async def texts(self, count: int) -> list[str]:
        async with patience():
            while len(self.sent) < count:
                self.news.clear()
                await self.news.wait()
        return [each.data for each in self.sent[:count] if isinstance(each, TextMessage)]


async def opened(core: Core, target: str, *headers: tuple[str, str]) -> Response:
    given = [*SOCKET.items(), ("Authorization", "Bearer admin-token"), *headers]
    names = {name for name, _ in headers}
    return await answer_of(core.api, head("GET", target, *(each for each in given if each[0] not in names or each in headers)), b"")


@pytest.mark.parametrize("protocol", [(), (("Sec-WebSocket-Protocol", "base64.binary.k8s.io"),)])
async def test_a_watch_over_a_websocket_is_one_frame_an_event(core: Core, protocol: tuple[tuple[str, str], ...]) -> None:
    await core.done("POST", MAPS, config_map("a", x="é"))
    answer = await opened(core, f"{MAPS}?watch=1", *protocol)
    assert answer.upgrade is not None, answer.body
    assert answer.upgrade.headers.get("Sec-WebSocket-Protocol") == (protocol[0][1] if protocol else None)
    client = Client()
    serving = asyncio.create_task(_serve(answer.upgrade, client))
    await client.texts(1)
    await core.done("POST", MAPS, config_map("b"))
    events = [json.loads(each) for each in await client.texts(2)]
    assert [(each["type"], each["object"]["metadata"]["name"]) for each in events] == [("ADDED", "a"), ("ADDED", "b")]
    assert events[0]["object"]["data"] == {"x": "é"}
    streams = [each.streams for each in core.api.watching.broadcasters.values()]
    client.close()
    async with patience():
        await serving
    assert sum(streams) == sum(each.streams for each in core.api.watching.broadcasters.values()) + 1


async def test_a_watch_over_a_websocket_ends_with_a_close_frame(core: Core) -> None:
    answer = await opened(core, f"{MAPS}?watch=1")
    client = Client()
    assert answer.upgrade is not None
    serving = asyncio.create_task(_serve(answer.upgrade, client))
    core.api.watching.finish_all()
    async with patience():
        await serving
    assert [type(each) for each in client.sent] == [CloseConnection]


async def _serve(upgrade: Upgrade, client: Client) -> None:
    await upgrade.serve(client)


@pytest.mark.parametrize(("headers", "code"), [
    ((("Origin", ""),), 403), ((("Origin", "null"),), 403), ((("Origin", "/x"),), 101), ((("Sec-WebSocket-Version", "8"),), 400),
    ((("Sec-WebSocket-Protocol", "a, b"),), 400), ((("Upgrade", "other"),), 200), ((("Sec-WebSocket-Key", ""),), 400),
])  # fmt: skip
async def test_what_no_page_would_send_opens_no_watch(core: Core, headers: tuple[tuple[str, str], ...], code: int) -> None:
    answer = await opened(core, f"{MAPS}?watch=1", *headers)
    assert answer.status == code
    assert core.api.watching.streams() == (answer.stream is not None or answer.upgrade is not None)
    if answer.stream is not None:
        answer.stream.close()
    assert (await opened(core, MAPS)).status == 200, "lists are not sent in frames"


@pytest.mark.parametrize(("protocol", "taken"), [("", True), ("binary.k8s.io", True), ("base64.binary.k8s.io", True), ("v4.channel.k8s.io", False)])
async def test_a_log_over_a_websocket(core: Core, protocol: str, taken: bool) -> None:
    made = pod("p", "n")
    made["spec"]["containers"][0]["command"] = ["echo", "hi"]
    state = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "containerID": "c://1", "state": {"running": {}}}
    await core.done("POST", PODS, made)
    await core.done("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running", "containerStatuses": [state]}}, MERGE)
    given = (("Sec-WebSocket-Protocol", protocol),) if protocol else ()
    for follow in ("", "?follow=1"):
        answer = await opened(core, f"{PODS}/p/log{follow}", *given, ("Origin", ""))
        assert (answer.upgrade is not None) == taken and answer.status == (101 if taken else 403)
        if answer.upgrade is None:
            continue
        client = Client()
        async with patience():
            await answer.upgrade.serve(client)
        said = [each.data for each in client.sent if isinstance(each, (TextMessage, BytesMessage))]
        assert said == (["", "aGkK"] if "base64" in protocol else [b"", b"hi\n"]) and isinstance(client.sent[-1], CloseConnection)
