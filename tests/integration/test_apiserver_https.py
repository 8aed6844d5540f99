"""The API server on a real HTTPS socket: clients, bad input, limits, connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import ssl
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import kubernetes
import pytest
import pytest_asyncio
from api_core import MAPS, PODS, TABLE, Core, config_map, names, node, pod
from patience import patience

from minikube_py.api.errors import service_unavailable
from minikube_py.apiserver import lists
from minikube_py.apiserver.auth import SCHEDULER
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.limits import Limits
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import ClusterAccess
from minikube_py.control_plane.certificates import Certificates, ensure_certificates

JSON = {"Content-Type": "application/json"}
LIMITS = Limits(header_bytes_max=4096, headers_max=64)


class Served:
    """A core behind HTTPS, and a session of an administrator on it."""

    def __init__(self, core: Core, http: HttpServer, port: int, certificates: Certificates) -> None:
        self.core = core
        self.http = http
        self.port = port
        self.certificates = certificates
        self.url = f"https://127.0.0.1:{port}"
        self.session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: Any = None, token: str | None = "admin-token", **headers: str) -> tuple[int, Any]:  # noqa: E501
        given = {"Authorization": f"Bearer {token}"} if token else {}
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        data = io.BytesIO(sent) if sent is not None and len(sent) > 1 << 20 else sent
        extra = JSON if data is not None else {}
        async with self.session.request(method, self.url + path, data=data, headers=given | extra | headers) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if text[:1] == b"{" else text.decode()

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.certificates.client_context())


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    core = Core(tmp_path, LIMITS)
    core.tokens["scheduler-token"] = SCHEDULER
    await core.start()
    certificates = ensure_certificates(tmp_path / "certificates", ["127.0.0.1"])
    http = HttpServer(core.api, tls=certificates.server_context())
    port = await http.start()
    await core.api.publish("127.0.0.1", port)
    served = Served(core, http, port, certificates)
    connector = aiohttp.TCPConnector(ssl=certificates.client_context())
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(30)) as session:
        served.session = session
        yield served
    await core.api.stop()
    await http.stop()
    await core.member.stop()
    await asyncio.sleep(0)


async def test_the_official_client(served: Served) -> None:
    def use() -> None:
        configuration = kubernetes.client.Configuration()
        configuration.host = served.url
        configuration.verify_ssl = False
        configuration.api_key = {"authorization": "Bearer admin-token"}
        with kubernetes.client.ApiClient(configuration) as api:
            v1 = kubernetes.client.CoreV1Api(api)
            v1.create_namespaced_pod("default", pod("p"))
            assert [p.metadata.name for p in v1.list_namespaced_pod("default").items] == ["p"]
            seen = []
            for event in kubernetes.watch.Watch().stream(v1.list_namespaced_pod, "default", timeout_seconds=5):
                seen.append((event["type"], event["object"].metadata.name))
                if len(seen) == 1:
                    assert v1.delete_namespaced_pod("p", "default").metadata.name == "p"
                if event["type"] == "DELETED":
                    break
            assert seen[0] == ("ADDED", "p") and seen[-1] == ("DELETED", "p")
            v1.create_namespaced_config_map("default", config_map("c", x="1"))
            v1.patch_namespaced_config_map("c", "default", {"data": {"y": "2"}})
            assert v1.read_namespaced_config_map("c", "default").data == {"x": "1", "y": "2"}
            v1.delete_namespaced_config_map("c", "default")
            with pytest.raises(kubernetes.client.ApiException) as gone:
                v1.read_namespaced_config_map("c", "default")
            assert gone.value.status == 404

    import urllib3

    urllib3.disable_warnings()
    await asyncio.to_thread(use)


async def test_who_asks(served: Served) -> None:
    status, answer = await served.ask("GET", PODS, token="wrong")
    assert (status, answer["reason"], answer["message"]) == (401, "Unauthorized", "Unauthorized")
    assert (await served.ask("GET", "/healthz", token="wrong"))[0] == 401
    status, answer = await served.ask("GET", "/api/v1/pods", token=None)
    assert (status, answer["message"]) == (
        403, 'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope',  # noqa: E501
    )  # fmt: skip
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert (await served.ask("GET", path, token=None))[0] == 200
    status, answer = await served.ask("GET", "/metrics", token=None)
    assert (status, answer["message"]) == (403, 'forbidden: User "system:anonymous" cannot get path "/metrics"')
    assert (await served.ask("GET", PODS, token="scheduler-token"))[0] == 200
    status, answer = await served.ask("POST", MAPS, config_map("a"), token="scheduler-token")
    assert status == 403 and 'User "system:kube-scheduler" cannot create resource "configmaps"' in answer["message"]


DEEP = b'{"metadata":{"name":"deep"},"data":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001
BAD_INPUT: dict[str, tuple[str, str, bytes | None, dict[str, str], int, str]] = {
    "no JSON": ("POST", MAPS, b"{", {}, 400, "unexpected end of JSON input"),
    "nothing": ("POST", MAPS, b"", {}, 400, "unexpected end of JSON input"),
    "an array": ("POST", MAPS, b"[]", {}, 400, "cannot unmarshal array"),
    "no YAML": ("POST", MAPS, b"a: b: c", {"Content-Type": "application/yaml"}, 400, ""),
    "no protobuf": ("POST", MAPS, b"k8s\0\xff\xff\xff", {"Content-Type": "application/vnd.kubernetes.protobuf"}, 400, ""),  # noqa: E501
    "another type": ("POST", MAPS, b"x", {"Content-Type": "text/plain"}, 415, "the body of the request was in an unknown format"),  # noqa: E501
    "another kind": ("POST", MAPS, b'{"kind":"Pod","apiVersion":"v1"}', {}, 400, "unknown conversion"),
    "deep nesting": ("POST", MAPS, DEEP, {}, 400, ""),
    "not UTF-8": ("POST", MAPS, b'{"metadata":{"name":"\xff\xfe"}}', {}, 422, ""),
    "a lone surrogate": ("POST", MAPS, b'{"metadata":{"name":"a","labels":{"a":"\\ud800"}}}', {}, 422, ""),
    "a huge number": ("POST", MAPS, b'{"metadata":{"name":"a","generation":1e400}}', {}, 400, ""),
    "a wrong type": ("POST", PODS, b'{"metadata":{"name":"a"},"spec":{"containers":5}}', {}, 400, "cannot unmarshal number"),  # noqa: E501
    "a wrong quantity": (
        "POST", PODS,
        b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"x"}}}]}}',
        {}, 400, "quantities must match the regular expression",
    ),
    "a body over the limit": ("POST", MAPS, b"x" * (20 << 20), {}, 413, "Request entity too large: limit is 3145728"),
    "an object the store refuses": (
        "POST", "/api/v1/nodes",
        json.dumps({"metadata": {"name": "a"}, "status": {"images": [{"names": ["x" * 900_000, "y" * 900_000]}]}}).encode(),  # noqa: E501
        {}, 413, "limit is ",
    ),
    "a patch of no type": ("PATCH", f"{MAPS}/there", b"{}", {}, 415, "415: Unsupported Media Type"),
    "a broken patch": ("PATCH", f"{MAPS}/there", b'{"a"', {"Content-Type": "application/merge-patch+json"}, 400, ""),
    "a patch of nothing": ("PATCH", f"{MAPS}/there", b"", {"Content-Type": "application/merge-patch+json"}, 400, ""),
    "unknown verb": ("BREW", PODS, None, {}, 405, "the server does not allow this method on the requested resource"),
    "unknown resource": ("GET", "/api/v1/foos", None, {}, 404, "the server could not find the requested resource"),
    "unknown path": ("GET", "/foo", None, {}, 404, "404 page not found"),
    "strange escapes": ("GET", "/api/v1/namespaces/default/pods/%00%0d%0a", None, {}, 404, "not found"),
    "bad continue": ("GET", f"{MAPS}?continue=%FF", None, {}, 400, "invalid continue token"),
    "bad selector": ("GET", f"{MAPS}?labelSelector=(((", None, {}, 400, ""),
    "bad number": ("GET", f"{MAPS}?limit=1e5", None, {}, 400, "strconv.ParseInt"),
    "many terms": ("GET", f"{MAPS}?" + "&".join(f"a{i}=1" for i in range(400)), None, {}, 400, "the query has more than 256 terms"),  # noqa: E501
    "delete options of another kind": ("DELETE", f"{MAPS}/there", b'{"kind":"Foo","apiVersion":"v1"}', {}, 400, 'no kind "Foo"'),  # noqa: E501
    "delete options that are none": ("DELETE", f"{MAPS}/there", b"{bad", {}, 400, "invalid character 'b'"),
    "a wrong grace": ("DELETE", f"{MAPS}/there?gracePeriodSeconds=a", None, {}, 400, "invalid syntax"),
}  # fmt: skip


async def test_bad_input_is_refused_in_the_originals_way_and_changes_nothing(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await served.ask("POST", MAPS, config_map("there"))
    before = served.core.member.storage.revision
    for name, (method, path, body, headers, code, message) in BAD_INPUT.items():
        status, answer = await served.ask(method, path, body, **headers)
        text = answer["message"] if isinstance(answer, dict) else answer
        assert (status, message in text) == (code, True), f"{name}: {status} {text[:300]}"
        if isinstance(answer, dict):
            assert answer["kind"] == "Status" and answer["status"] == "Failure" and answer["code"] == code, name
    assert served.core.member.storage.revision == before
    assert not caplog.records, caplog.text


async def test_lines_that_are_too_long(served: Served) -> None:
    for path, headers in ((f"{MAPS}?labelSelector={'a' * 5000}", {}), (MAPS, {"X-Long": "a" * 5000})):
        status, answer = await served.ask("GET", path, **headers)
        assert status == 431 and "the limit is 4096 bytes" in answer


async def test_garbage_on_the_wire_is_answered_and_forgotten(served: Served) -> None:
    reader, writer = await served.raw()
    writer.write(b"\x00\x01\x02 garbage\r\n\r\n")
    assert (await reader.read(12)).startswith(b"HTTP/1.1 400")
    writer.close()
    assert (await served.ask("GET", "/healthz"))[0] == 200


async def test_connections_that_end_in_the_middle(served: Served) -> None:
    for data in (b"POST " + MAPS.encode() + b" HTTP/1.1\r\nContent-Length: 100\r\nAuthorization: Bearer admin-token\r\n\r\n{", b"GET /"):  # noqa: E501
        _, writer = await served.raw()
        writer.write(data)
        await writer.drain()
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
    events = await served.session.get(f"{served.url}{MAPS}?watch=true", headers={"Authorization": "Bearer admin-token"})
    assert served.core.api.watching.streams() == 1
    events.close()
    async with patience():
        while served.core.api.watching.streams():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await served.ask("GET", "/healthz"))[0] == 200


async def test_put_without_a_content_type(served: Served) -> None:
    await served.ask("POST", MAPS, config_map("a"))
    reader, writer = await served.raw()
    body = json.dumps(config_map("a", x="1")).encode()
    head = f"PUT {MAPS}/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nContent-Length: {len(body)}\r\n\r\n"  # noqa: E501
    writer.write(head.encode() + body)
    assert (await reader.read(15)) == b"HTTP/1.1 200 OK"
    writer.close()


async def test_expect_continue_and_chunked_bodies(served: Served) -> None:
    status, _ = await served.ask("POST", MAPS, config_map("a"), Expect="100-continue")
    assert status == 201

    async def parts() -> AsyncIterator[bytes]:
        for byte in json.dumps(config_map("b")).encode():
            yield bytes((byte,))

    headers = {"Authorization": "Bearer admin-token", **JSON}
    async with served.session.post(served.url + MAPS, data=parts(), headers=headers) as answer:
        assert answer.status == 201

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 100_000

    async with served.session.post(served.url + MAPS, data=endless(), headers=headers) as answer:
        assert answer.status == 413


async def test_a_reader_that_stops_reading_is_cut_off_alone(served: Served) -> None:
    object.__setattr__(served.core.api.limits, "watcher_queue_bytes", 3_000_000)
    reader, writer = await served.raw()
    request = f"GET {MAPS}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n\r\n"
    writer.write(request.encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    quick = await served.core.watch(MAPS)
    await served.ask("POST", MAPS, config_map("m"))
    await quick.take(1)
    for i in range(40):
        await served.core.done("PUT", f"{MAPS}/m", config_map("m", x=f"{i}" + "y" * 500_000))
        await quick.take(1)
    assert served.core.api.watching.streams() == 1
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()


async def test_large_lists_and_watches_through_our_own_client(served: Served) -> None:
    object.__setattr__(served.core.api.limits, "list_slice", 50)
    for i in range(120):
        await served.core.done("POST", PODS, pod(f"p{i:03}"))
    transport = HttpTransport(ClusterAccess(server=served.url, token="admin-token", insecure=True))
    answer = await transport.request("GET", PODS)
    assert answer.status == 200 and names(json.loads(answer.body)) == [f"p{i:03}" for i in range(120)]
    seen: list[str] = []
    async with contextlib.aclosing(transport.watch(PODS)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            seen += [json.loads(event.object)["metadata"]["name"] for event in batch]
            if len(seen) >= 120:
                break
    assert seen == [f"p{i:03}" for i in range(120)]
    await transport.close()


async def test_long_answers_are_compressed_for_those_who_accept_it(served: Served) -> None:
    async def asked(path: str, coding: str, accept: str = "application/json") -> tuple[Any, bytes]:
        headers = {"Authorization": "Bearer admin-token", "Accept-Encoding": coding, "Accept": accept}
        async with served.session.get(served.url + path, headers=headers, auto_decompress=False) as answer:
            return answer.headers, await answer.read()

    for index in range(3):
        assert (await served.ask("POST", MAPS, config_map(f"c{index}", x=chr(97 + index) * 128_000)))[0] == 201
    assert (await served.ask("POST", MAPS, config_map("long", x="l" * 132_000)))[0] == 201
    long, pieces = f"{MAPS}/long", f"{MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt"
    asks = [(each, "*/*") for each in (long, f"{long}?pretty=1", MAPS, pieces)]
    for path, accept in (*asks, (long, "application/yaml")):
        headers, packed = await asked(path, "br, gzip", accept)
        assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
        plain_headers, plain = await asked(path, "gzip;q=1", accept)
        assert "Content-Encoding" not in plain_headers
        assert gzip.decompress(packed) == plain and len(packed) < 20_000 < 128 << 10 < len(plain)
    for path in (f"{MAPS}/c0", f"{MAPS}?limit=1", f"{MAPS}?watch=1&timeoutSeconds=1", "/version"):
        assert "Content-Encoding" not in (await asked(path, "gzip"))[0]


async def test_each_answer_tells_the_id_that_was_sent_or_a_new_one(served: Served) -> None:
    found = []
    for path in ("/version", "/nope", MAPS, f"{MAPS}/absent", f"{MAPS}?watch=1&timeoutSeconds=1"):
        for sent, expected in (("", None), ("mine", "mine"), ("x" * 300, "x" * 300)):
            headers = {"Authorization": "Bearer admin-token", **({"Audit-Id": sent} if sent else {})}
            async with served.session.get(served.url + path, headers=headers) as answer:
                told = answer.headers["Audit-Id"]
                await answer.read()
            assert told == expected if expected else str(uuid.UUID(told)) == told
            found.append(told)
    assert len(set(found)) == 5 + 2


async def test_metrics_count_what_was_asked(served: Served) -> None:
    await served.ask("POST", MAPS, config_map("a"))
    _, text = await served.ask("GET", "/metrics")
    assert 'apiserver_request_total{verb="POST",group="",version="v1",resource="configmaps"' in text
    assert 'apiserver_request_sli_duration_seconds_bucket{verb="POST"' in text and 'le="+Inf"' in text
    for line in text.splitlines():
        if not line.startswith("#"):
            float(line.rsplit(" ", 1)[1])


async def test_health_tells_of_a_store_that_is_gone(served: Served) -> None:
    status, text = await served.ask("GET", "/readyz?verbose")
    assert status == 200 and "[+]etcd ok" in text and "readyz check passed" in text
    await served.core.member.stop()
    status, text = await served.ask("GET", "/readyz")
    assert status == 500 and "readyz check failed" in text



@pytest.mark.parametrize("failure", [service_unavailable("the store is not available"), RuntimeError("a bug")], ids=str)
@pytest.mark.parametrize("initial", [True, False])
async def test_a_watch_that_fails_says_so_and_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch, failure: Exception, initial: bool
) -> None:
    real = served.core.api.lister.field_texts
    failing = initial

    async def field_texts(key: bytes, fields: tuple[str, ...]) -> dict[str, str]:
        if failing:
            raise failure
        return await real(key, fields)

    monkeypatch.setattr(served.core.api.lister, "field_texts", field_texts)
    await served.ask("POST", "/api/v1/nodes", node("n1"))
    reader, writer = await served.raw()
    accept = f"Accept: {TABLE}\r\nAuthorization: Bearer admin-token\r\nHost: x\r\n\r\n"
    writer.write(f"GET /api/v1/nodes?watch=true HTTP/1.1\r\n{accept}".encode())
    seen = await reader.readuntil(b"\r\n\r\n")
    if not initial:
        seen += await reader.readuntil(b"}\n\r\n")
        failing = True
        await served.ask("POST", "/api/v1/nodes", node("n2"))
    async with patience():
        ended = await reader.readuntil(b"0\r\n\r\n")
    assert b'{"type":"ERROR"' in ended and b"HTTP/1.1" not in ended
    writer.write(f"GET /version HTTP/1.1\r\n{accept}".encode())
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()


async def test_a_large_list_that_fails_is_broken_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has begun as a success cannot become a failure; that it has no end tells that it is not whole."""
    def pieces(*given: Any) -> Any:
        yield b'{"items":['
        raise RuntimeError("a bug")

    object.__setattr__(served.core.api.limits, "list_slice", 1)
    monkeypatch.setattr(lists, "_pieces", pieces)
    for name in ("a", "b"):
        await served.ask("POST", MAPS, config_map(name))
    reader, writer = await served.raw()
    writer.write(f"GET {MAPS} HTTP/1.1\r\nAuthorization: Bearer admin-token\r\nHost: x\r\n\r\n".encode())
    async with patience():
        seen = await reader.read()
    assert seen.count(b"HTTP/1.1") == 1 and not seen.endswith(b"0\r\n\r\n")
    writer.close()
