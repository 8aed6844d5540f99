"""Requests passed on to another API server: whom it names, what comes back, and what it cannot do to others."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import warnings
from collections.abc import AsyncIterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from api_core import MAPS, Core
from extension_server import GROUP, NAME, OPENAPI, ROOT, VERSION, Extension, extension
from patience import patience, until

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.discovery import ENDPOINTSLICES
from minikube_py.apiserver import http_bytes
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import ClusterAccess
from minikube_py.control_plane.certificates import ensure_certificates, ensure_front_proxy

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
PLAIN = "/api/v1/namespaces/default/services"
SOUNDS = f"{ROOT}/namespaces/default/sounds"
WHO = User("ann", ("singers", "system:authenticated"), "7", (("a/B%", ("x", "y")),))
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class World(NamedTuple):
    """Our server over HTTPS, the other one, and a client of ours."""

    core: Core
    other: Extension
    url: str
    session: aiohttp.ClientSession
    context: ssl.SSLContext

    async def ask(self, method: str, path: str, body: Any = None, token: str = "admin-token", **headers: str) -> Any:
        given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
        data = None if body is None else BytesIO(json.dumps(body).encode())
        async with self.session.request(
            method, self.url + path, data=data, headers=given, allow_redirects=False
        ) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text[:1] == "{" else text, answer.headers

    async def condition(self) -> tuple[str, str, str]:
        found = await self.core.done("GET", f"{SERVICES}/{NAME}")
        told = (found["status"].get("conditions") or [{"status": "", "reason": "", "message": ""}])[0]
        return told["status"], told["reason"], told["message"]

    async def registered(self, status: str = "True", **spec: Any) -> None:
        await self.core.done("POST", PLAIN, self.other.service())
        await self.core.done("POST", SERVICES, self.other.api_service(**spec))
        await self.told(status)

    async def told(self, status: str, reason: str = "") -> None:
        async def is_told() -> bool:
            told = await self.condition()
            return told[0] == status and reason in ("", told[1])

        await until(is_told, f"Available is {status} {reason}")

    async def aggregated(self) -> dict[str, Any]:
        _, found, _ = await self.ask("GET", "/apis", Accept=AGGREGATED)
        return {each["metadata"]["name"]: each["versions"] for each in found["items"]}


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    core = Core(tmp_path, Limits(request_timeout_s=20))
    core.tokens["ann-token"] = WHO
    await core.start()
    certificates = ensure_certificates(tmp_path / "certificates", ["127.0.0.1"])
    proxy = ensure_front_proxy(tmp_path / "certificates")
    core.api.services.pass_on(proxy.read(certificates.clients_file))
    http = HttpServer(core.api, tls=certificates.server_context())
    port = await http.start()
    assert proxy.authority is not None
    context = certificates.client_context()
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        extension(tmp_path / "other", proxy.authority.read_bytes()) as other,
        aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session,
    ):
        yield World(core, other, f"https://127.0.0.1:{port}", session, context)
        await core.api.stop()
    await http.stop()
    await core.member.stop()
    await asyncio.sleep(0)


async def raw(world: World, method: str, path: str, *lines: str, token: str = "admin-token") -> bytes:
    """The beginning of the answer to a request that no client library would send, up to its end if it ends soon."""
    port = int(world.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=world.context)
    try:
        head = (f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *lines, "", "")
        writer.write("\r\n".join(head).encode("latin-1"))
        async with patience():
            found = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?m)^Content-Length: ([0-9]+)\r$", found)
            return found + (await reader.readexactly(int(length[1])) if length and method != "HEAD" else b"")
    finally:
        writer.transport.abort()


async def allowed(world: World, *verbs: str) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [GROUP], "resources": ["sounds"], "verbs": verbs or ["get", "list"]}]
    await world.core.done("POST", f"{rbac}/clusterroles", {"metadata": {"name": "sounds"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sounds"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}
    binding = {"metadata": {"name": "sounds"}, "roleRef": reference, "subjects": [subject]}
    await world.core.done("POST", f"{rbac}/clusterrolebindings", binding)


async def test_the_other_server_is_told_who_asks_and_by_whom(world: World) -> None:
    await world.registered()
    status, refused, _ = await world.ask("GET", SOUNDS, token="ann-token")
    assert (status, refused["reason"]) == (403, "Forbidden")
    await allowed(world)
    forged = {"X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-Z": "1", "X-Mine": "kept"}
    status, told, headers = await world.ask(
        "GET", f"{SOUNDS}?labelSelector=a%3Db&x=%2B", token="ann-token", Connection="X-Hop", **forged, **{"X-Hop": "1"}
    )
    assert (status, told["target"]) == (200, f"{SOUNDS}?labelSelector=a%3Db&x=%2B")
    assert headers.getall("X-Echo") == ["a", "b"]
    assert "X-Hop" not in headers
    seen = world.other.passed_on[-1]
    remote = {name: values for name, values in seen.headers.items() if name.startswith("x-remote-")}
    assert remote == {
        "x-remote-user": ["ann"], "x-remote-uid": ["7"], "x-remote-group": ["singers", "system:authenticated"],
        "x-remote-extra-a%2fb%25": ["x", "y"],
    }  # fmt: skip
    assert seen.headers["x-mine"] == ["kept"]
    assert seen.headers["host"] == [f"localhost:{world.other.port}"]
    assert seen.headers.keys().isdisjoint(("authorization", "x-hop", "transfer-encoding"))
    assert seen.certificate is not None
    assert seen.certificate["subject"] == ((("commonName", "front-proxy-client"),),)
    status, told, _ = await world.ask("POST", SOUNDS, {"a": 1})
    assert (status, told["method"], told["body"]) == (201, "POST", '{"a": 1}')


@pytest.mark.parametrize("how", [(), ("Connection: Upgrade", "Upgrade: websocket")])
async def test_the_path_that_is_sent_is_the_one_that_was_authorized(world: World, how: tuple[str, ...]) -> None:
    """Nothing after the name of one object makes it the request for all of them."""
    await world.registered()
    await allowed(world, "get", "delete")
    for method, given, sent in (
        ("GET", "/#x", "/%23x"), ("DELETE", "/#x?labelSelector=a", "/%23x?labelSelector=a"), ("GET", "/%23x", "/%23x"),
        ("DELETE", "/a%2Fstatus", "/a/status"), ("GET", "/a%3Fwatch=1", "/a%3Fwatch=1"), ("GET", "/%61'%2e", "/a%27."),
        ("GET", "/a?x=%zz&x=1;y&x=%23", "/a?x=%23"), ("GET", "/a/..", "/a/.."),
    ):  # fmt: skip
        passed_on = len(world.other.passed_on)
        answer = await raw(world, method, SOUNDS + given, *how, token="ann-token")
        if given.startswith(("/a%2Fstatus", "/a/..")):
            assert (answer[:12], len(world.other.passed_on)) == (b"HTTP/1.1 403", passed_on), given
        else:
            assert world.other.passed_on[passed_on:][0].target == SOUNDS + sent, (given, answer)


async def test_what_others_need_to_know_of_this_server_is_in_a_configmap(world: World) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

    async def there() -> bool:
        return (await world.core.respond("GET", path)).status == 200

    await until(there, "the ConfigMap is made")
    data = (await world.core.done("GET", path))["data"]
    assert json.loads(data["requestheader-allowed-names"]) == ["front-proxy-client"]
    assert json.loads(data["requestheader-extra-headers-prefix"]) == ["X-Remote-Extra-"]
    assert data["requestheader-client-ca-file"].startswith("-----BEGIN CERTIFICATE-----")
    assert data["client-ca-file"] != data["requestheader-client-ca-file"]
    await world.core.done("DELETE", path)
    await until(there, "the ConfigMap is made again")


async def test_discovery_tells_what_the_other_server_serves(world: World) -> None:
    await world.registered()
    groups = {each["name"]: each for each in (await world.ask("GET", "/apis"))[1]["groups"]}
    assert groups[GROUP]["preferredVersion"] == {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}

    async def current() -> bool:
        return (await world.aggregated()).get(GROUP, [{}])[0].get("freshness") == "Current"

    await until(current, "its discovery is read")
    (version,) = (await world.aggregated())[GROUP]
    assert [each["resource"] for each in version["resources"]] == ["sounds"]
    assert version["resources"][0]["subresources"][0]["subresource"] == "status"
    assert (await world.ask("GET", ROOT))[1]["groupVersion"] == f"{GROUP}/{VERSION}"
    paths = (await world.ask("GET", "/openapi/v3"))[1]["paths"]
    assert paths[ROOT[1:]] == {"serverRelativeURL": f"/openapi/v3{ROOT}?hash=ECHO"}
    assert "apis/other.example.com/v1" not in paths
    assert (await world.ask("GET", f"/openapi/v3{ROOT}?hash=ECHO"))[1] == OPENAPI
    world.other.grouped = False
    await world.core.done("DELETE", f"{SERVICES}/{NAME}")
    assert GROUP not in await world.aggregated()
    assert (await world.ask("GET", SOUNDS))[0] == 404
    await world.core.done("POST", SERVICES, world.other.api_service())
    await until(current, "its older form of discovery is read")
    # Its kinds are without group and version, which it does not say.
    nameless = {"group": "", "version": "", "kind": "Sound"}
    version["resources"][0]["responseKind"] = version["resources"][0]["subresources"][0]["responseKind"] = nameless
    assert (await world.aggregated())[GROUP] == [version]


async def test_a_watch_is_passed_on_event_by_event_and_ends_with_its_reader(world: World) -> None:
    await world.registered()
    given = {"Authorization": "Bearer admin-token"}
    async with patience(), world.session.get(f"{world.url}{SOUNDS}?watch=true", headers=given) as answer:
        for name in ("a", "b"):
            world.other.events.put_nowait(name)
            assert json.loads(await answer.content.readline())["object"]["metadata"]["name"] == name
    transport = InProcessTransport(world.core.api, ADMIN)
    # The first one ends the watch that nobody reads any more.
    for name in ("", "c", "d", ""):
        world.other.events.put_nowait(name)
    async with patience():
        found = [event async for events in transport.watch(SOUNDS) for event in events]
    assert [json.loads(event.object)["metadata"]["name"] for event in found] == ["c", "d"]
    assert json.loads((await transport.request("GET", SOUNDS)).body)["kind"] == "Sound"
    # One that goes on ends with the transport.
    watching = transport.watch(SOUNDS)
    world.other.events.put_nowait("e")
    async with patience():
        assert len(await anext(watching)) == 1
        waiting = asyncio.ensure_future(anext(watching, None))
        await asyncio.sleep(0)
        await transport.close()
        assert await waiting is None


async def test_why_a_watch_is_refused_is_passed_on_and_its_answer_closed(world: World) -> None:
    await world.registered()
    body = b'{"kind":"Status","code":403,"message":"quiet"}'
    head = b"HTTP/1.1 403 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    world.other.says[SOUNDS] = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    transport = InProcessTransport(world.core.api, ADMIN)
    async with patience():
        ((event,),) = [events async for events in transport.watch(SOUNDS)]
    assert (event.type, json.loads(event.object)["message"]) == ("ERROR", "quiet")
    await transport.close()


async def test_a_request_that_was_another_servers_is_answered_by_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its APIService goes while the sender's rights are looked at."""
    await world.registered()
    admit = world.core.api.access.admit

    async def slowly(*asked: Any) -> None:
        await admit(*asked)
        monkeypatch.undo()
        await world.core.done("DELETE", f"{SERVICES}/{NAME}")

    monkeypatch.setattr(world.core.api.access, "admit", slowly)
    status, found, _ = await world.ask("GET", SOUNDS)
    assert (status, found["kind"]) == (200, "Sound")
    assert (await world.ask("GET", SOUNDS))[0] == 404


async def test_an_upgraded_connection_leads_to_the_other_server(world: World) -> None:
    await world.registered()
    port = int(world.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=world.context)
    lines = [f"GET {SOUNDS}/a/exec HTTP/1.1", "Host: x", "Authorization: Bearer admin-token", "Connection: Upgrade"]
    writer.write("\r\n".join((*lines, "Upgrade: websocket", "", "")).encode())
    async with patience():
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols")
        assert b"Upgrade: websocket" in head
        writer.write(b"sing")
        assert await reader.readexactly(4) == b"SING"
    writer.transport.abort()
    assert world.other.passed_on[-1].headers["x-remote-user"] == ["admin"]
    # Certificates may name anybody: no name may begin another header.
    world.core.tokens["b"] = User("b\r\nX-Remote-Group: system:masters", ("system:masters",))
    world.core.api.access.authenticator.add("b-token", world.core.tokens["b"])
    for how in ({}, {"Connection": "Upgrade", "Upgrade": "websocket"}):
        status, told, _ = await world.ask("GET", f"{SOUNDS}/a/exec", token="b-token", **how)
        assert (status, "error trying to reach service" in told) == (503, True)


async def test_why_an_apiservice_is_not_available(world: World) -> None:
    await world.core.done("POST", SERVICES, world.other.api_service())
    await world.told("False", "ServiceNotFound")
    assert (await world.condition())[2] == 'service/echo in "default" is not present'
    assert (await world.ask("GET", SOUNDS))[:2] == (503, "service unavailable\n")
    (version,) = (await world.aggregated())[GROUP]
    assert version == {"version": VERSION, "freshness": "Stale"}
    ports = [{"name": "https", "port": 1}]
    plain = world.other.service(type="ClusterIP", externalName=None, ports=ports)
    await world.core.done("POST", PLAIN, plain)
    await world.told("False", "ServicePortError")
    ports[0]["port"] = world.other.port
    await world.core.done("PATCH", f"{PLAIN}/echo", {"spec": {"ports": ports}}, "application/merge-patch+json")
    await world.told("False", "EndpointsNotFound")
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    labels = {"kubernetes.io/service-name": "echo"}
    piece = {
        "metadata": {"name": "echo", "labels": labels}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": world.other.port}],
        "endpoints": [{"addresses": ["10.1.1.1"], "conditions": {"ready": False}}],
    }  # fmt: skip
    await world.core.done("POST", slices, piece)
    await world.told("False", "MissingEndpoints")
    assert (await world.condition())[2] == (
        'endpointslices for service/echo in "default" have no addresses with port name "https"'
    )
    await world.core.done("DELETE", f"{slices}/echo")
    await world.core.done("DELETE", f"{PLAIN}/echo")
    await world.core.done("POST", PLAIN, world.other.service())
    await world.told("True", "Passed")


async def test_a_server_that_is_not_trusted_is_not_asked(world: World) -> None:
    await world.registered("False", caBundle=None)
    assert "certificate signed by unknown authority" in (await world.condition())[2]
    change = {"spec": {"insecureSkipTLSVerify": True}}
    await world.core.done("PATCH", f"{SERVICES}/{NAME}", change, "application/merge-patch+json")
    await world.told("True")
    assert (await world.ask("GET", SOUNDS))[0] == 200
    other = {"insecureSkipTLSVerify": False, "caBundle": world.other.bundle}
    named = {"service": {"namespace": "default", "name": "others", "port": world.other.port}}
    await world.core.done("POST", PLAIN, world.other.service("others"))
    await world.core.done("PATCH", f"{SERVICES}/{NAME}", {"spec": other | named}, "application/merge-patch+json")
    await world.told("False", "FailedDiscoveryCheck")
    assert "tls: failed to verify certificate" in (await world.condition())[2]


async def test_failures_of_the_other_server_are_told_as_upstream_tells_them(world: World) -> None:
    await world.registered()
    assert (await world.ask("GET", f"{ROOT}/redirect"))[:2] == (
        502, "the backend attempted to redirect this request, which is not permitted",
    )  # fmt: skip
    world.other.fails = 500
    assert (await world.ask("GET", SOUNDS))[:2] == (500, {"failed": 500})
    port, world.other.fails = world.other.port, 0
    change = {"spec": {"service": {"namespace": "default", "name": "echo", "port": 1}}}
    await world.core.done("PATCH", f"{SERVICES}/{NAME}", change, "application/merge-patch+json")
    status, told, _ = await world.ask("GET", SOUNDS)
    assert status == 503
    refused = "error trying to reach service: dial tcp localhost:1: connect: connection refused\n"
    assert told in (refused, "service unavailable\n")
    await world.told("False", "FailedDiscoveryCheck")
    assert (await world.condition())[2].endswith("connect: connection refused")
    change["spec"]["service"]["port"] = port
    await world.core.done("PATCH", f"{SERVICES}/{NAME}", change, "application/merge-patch+json")
    await world.told("True")


async def test_requests_that_are_passed_on_are_in_flight_here(world: World) -> None:
    """So that a server that does not answer fills no memory: neither they nor their bodies are without a limit."""
    await world.registered()
    await allowed(world, "*")
    in_flight = world.core.api.in_flight
    in_flight.writes.limit = in_flight.reads.limit = 2
    bodies = world.core.api.connection_metrics

    def held() -> float:
        return bodies()["apiserver_bodies_in_flight_bytes"]

    def sent(path: str, how: str) -> list[asyncio.Task[Any]]:
        body = {"a": "x" * 1000} if how == "POST" else None
        return [asyncio.create_task(world.ask(how, path, body, token="ann-token")) for _ in range(5)]

    world.other.hangs.add(SOUNDS)
    for how, slots in (("POST", in_flight.writes), ("GET", in_flight.reads)):
        asked = len(world.other.passed_on)
        tasks = sent(SOUNDS, how)
        async with patience():
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 3:
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
        assert {task.result()[0] for task in done} == {429}
        await until(partial(lambda most: len(world.other.passed_on) == most, asked + 2), "two are passed on")
        assert (slots.taken, held() > 2000) == (2, how == "POST")
        world.other.release.set()
        assert {(await task)[0] for task in waiting} <= {200, 201}
        await until(partial(lambda each: (each.taken, held()) == (0, 0), slots), "all are given back")
        world.other.release.clear()
    # An answer that has no end is in flight until its reader is gone.
    world.other.huge.add(f"{SOUNDS}/a")
    given = {"Authorization": "Bearer ann-token"}
    async with patience(), world.session.get(f"{world.url}{SOUNDS}/a", headers=given) as answer:
        assert await answer.content.readany()
        assert in_flight.reads.taken == 1
    await until(lambda: in_flight.reads.taken == 0, "it is given back")


async def test_a_request_reads_no_endpoints_of_other_services(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = world.other.service(type="ClusterIP", externalName=None, ports=[{"name": "https", "port": 443}])
    await world.core.done("POST", PLAIN, plain)
    for number in range(20):
        labels = {"kubernetes.io/service-name": "echo" if number < 2 else f"other-{number}"}
        piece = {
            "metadata": {"name": f"s-{number}", "labels": labels}, "addressType": "IPv4",
            "ports": [{"name": "https", "port": 443}], "endpoints": [{"addresses": [f"10.1.1.{number}"]}],
        }  # fmt: skip
        await world.core.done("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", piece)
    decode, decoded = Entry.decode, []

    def counted(entry: Entry) -> Any:
        decoded.append(entry.key)
        return decode(entry)

    asked, caller = {"namespace": "default", "name": "echo", "port": 443}, world.core.api.webhook_caller
    assert all(each.labels for each in world.core.api.cache.of(ENDPOINTSLICES).entries.values())
    monkeypatch.setattr(Entry, "decode", counted)
    assert caller.addresses(asked) == caller.addresses(asked) == ["10.1.1.0:443", "10.1.1.1:443"]
    assert len(decoded) == 3, "once the service, and two of twenty EndpointSlices"
    await world.core.done("PATCH", f"{PLAIN}/echo", {"spec": {"ports": [{"port": 1}]}}, "application/merge-patch+json")
    with pytest.raises(StatusError, match="no service port 443"):
        caller.addresses(asked)


async def test_headers_of_the_other_server_are_passed_on_as_they_came(world: World) -> None:
    await world.registered()
    world.other.says[SOUNDS] = b"HTTP/1.1 200 OK\r\nX-Name: M\xfcller \xc3\xbc\r\nContent-Length: 2\r\n\r\nok"
    answer = await raw(world, "GET", SOUNDS)
    assert b"\r\nX-Name: M\xfcller \xc3\xbc\r\n" in answer and answer.endswith(b"ok")
    kept = len(http_bytes._starts)
    for number in range(3):
        world.other.says[SOUNDS] = b"HTTP/1.1 200 OK\r\nContent-Type: x/%d\xfc\r\nContent-Length: 0\r\n\r\n" % number
        assert b"\r\nContent-Type: x/%d\xfc\r\n" % number in await raw(world, "GET", SOUNDS)
    assert len(http_bytes._starts) == kept


UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")


@pytest.mark.parametrize(
    ("said", "given", "status", "expected"),
    [
        (b"403 No\r\nContent-Length: 0\r\n\r\n", UPGRADE, 403, b""),
        (b"403 No\r\nContent-Length: 5\r\nX-A: \xfc\r\n\r\nhello", UPGRADE, 403, b"hello"),
        (b"403 No\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", UPGRADE, 403, b"hello!"),
        (b"403 No\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", UPGRADE, 503, b"unexpected EOF\n"),
        (b"403 No\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (9 << 20), UPGRADE, 503, b"8388608 bytes, which is"),
        (b"200 OK\r\nContent-Length: 2\r\n\r\nok", UPGRADE, 503, b"invalid upgrade response: status code 200\n"),
        (b"101 X\r\nUpgrade: websocket\r\nX-Y: a\nSet-Cookie: z\r\n\r\n", UPGRADE, 503, b"malformed MIME header line"),
        (b"101 X\r\nUpgrade: websocket\r\nX Y\x01: a\r\n\r\n", UPGRADE, 503, b"malformed MIME header line"),
        (b"101 X\r\nUpgrade: x\r\n\r\n", (), 503, b'backend tried to switch protocol "x" when "" was requested\n'),
        (b"101 X\r\nUpgrade: h2c\r\n\r\n", ("Connection: Upgrade", "Upgrade: websocket, h2c"), 400, b'to "h2c" is not'),
    ],
)  # fmt: skip
async def test_an_upgrade_that_is_refused_or_that_nobody_asked_for(
    world: World, said: bytes, given: tuple[str, ...], status: int, expected: bytes
) -> None:
    await world.registered()
    world.other.says[SOUNDS] = b"HTTP/1.1 " + said
    assert world.core.api.services.elsewhere is not None
    for _ in range(2):
        head, _, body = (await raw(world, "GET", SOUNDS, *given)).partition(b"\r\n\r\n")
        assert (int(head.split(b" ")[1]), expected in body, bool(body)) == (status, True, bool(expected)), (head, body)
        assert b"Set-Cookie" not in head
        assert not world.core.api.services.elsewhere.forwarder._tunnels, "its connection is closed"


async def test_the_length_that_the_other_server_tells_is_passed_on(world: World) -> None:
    await world.registered()
    world.other.says[SOUNDS] = b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"
    assert (await raw(world, "HEAD", SOUNDS)).count(b"Content-Length: 77\r\n") == 1


async def test_a_name_that_is_no_host_is_a_server_that_cannot_be_reached(world: World) -> None:
    await world.registered()
    world.core.api.webhook_caller.addresses = lambda service: [f"{'a' * 100}.example:443"]  # type: ignore[method-assign]
    for given in ((), UPGRADE):
        answer = await raw(world, "GET", SOUNDS, *given)
        assert (answer[:12], b"error trying to reach service" in answer) == (b"HTTP/1.1 503", True), answer


async def test_large_bodies_are_sent_in_parts(world: World) -> None:
    await world.registered()
    body = {"a": "x" * (2 << 20)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        status, told, _ = await world.ask("POST", SOUNDS, body)
    assert (status, json.loads(told["body"])) == (201, body)


async def test_tunnels_end_with_the_server_and_nothing_is_passed_on_after(world: World) -> None:
    await world.registered()
    port = int(world.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=world.context)
    head = (f"GET {SOUNDS}/a/exec HTTP/1.1", "Host: x", "Authorization: Bearer admin-token", *UPGRADE, "", "")
    writer.write("\r\n".join(head).encode())
    async with patience():
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        await world.core.api.stop()
        assert await reader.read() == b""
    writer.transport.abort()
    for given in ((), UPGRADE):
        answer = await raw(world, "GET", SOUNDS, *given)
        assert answer[:12] == b"HTTP/1.1 503"
        assert answer.endswith(b"this server is stopping\n")


@pytest.mark.parametrize("how", ["hangs", "huge"])
async def test_a_server_that_hangs_or_never_ends_holds_up_nobody(world: World, how: str) -> None:
    """Neither other requests, nor discovery, nor the other groups."""
    paths = getattr(world.other, how)
    paths.update(("/apis", ROOT, "/openapi/v3", SOUNDS))
    await world.core.done("POST", PLAIN, world.other.service())
    await world.core.done("POST", SERVICES, world.other.api_service())
    for _ in range(20):
        assert (await world.ask("GET", MAPS))[0] == 200
        assert (await world.ask("GET", "/apis"))[0] == 200
        assert (await world.aggregated())[GROUP][0]["freshness"] == "Stale"
    if how == "hangs":
        await world.told("False", "FailedDiscoveryCheck")
        assert "context deadline exceeded" in (await world.condition())[2]
        return
    await world.told("True")
    given = {"Authorization": "Bearer admin-token"}
    before = world.other.sent_bytes
    async with patience(), world.session.get(world.url + SOUNDS, headers=given) as answer:
        async for _ in answer.content.iter_chunked(1 << 16):
            if world.other.sent_bytes - before > 32 << 20:
                break
    # Components read an answer as a whole, in this process or in another.
    told = await InProcessTransport(world.core.api, ADMIN).request("GET", SOUNDS)
    assert (told.status, b"longer than" in told.body) == (503, True)
    transport = HttpTransport(ClusterAccess(world.url, token="admin-token", insecure=True))
    told = await transport.request("GET", SOUNDS)
    assert (told.status, b"longer than" in told.body) == (503, True)
    await transport.close()
