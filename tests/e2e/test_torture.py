"""Bad, broken and heavy input over HTTPS: the server answers, stays small, stays quick, and says nothing ugly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from up_process import Up, up

from minikube_py.client.connector import Connector

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
GROWTH_BYTES_MAX = 200 << 20
STALL_S_MAX = 10.0
"""The longest that a body of the largest size allowed may keep all others waiting, where others use the machine too:
well above what is measured on an idle one (about half a second), well below what costs that grow by the square take."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up("--nodes", "1", "--data-dir", str(tmp_path_factory.mktemp("torture"))) as running:
        yield running


class Wire:
    def __init__(self, running: Up) -> None:
        self.running = running
        self.access = running.access
        self.authorization = f"Authorization: Bearer {self.access.token}\r\n".encode()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.running.address, ssl=self.running.tls())

    def head(self, method: str, path: str, *lines: str) -> bytes:
        start = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        return start.encode() + self.authorization + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"

    async def say(self, data: bytes, answer_bytes: int = 65_536, timeout_s: float = 10) -> bytes:
        """What comes back until the server closes, has said so much, or has nothing more to say."""
        reader, writer = await self.open()
        got = b""
        with contextlib.suppress(ConnectionError, TimeoutError, OSError):
            writer.write(data)
            await writer.drain()
            async with asyncio.timeout(timeout_s):
                while len(got) < answer_bytes and (part := await reader.read(65_536)):
                    got += part
                    if got.endswith(b"}") or b"Content-Length: 2\r\n" in got:
                        break
        writer.transport.abort()
        return got


@pytest.fixture
async def wire(running: Up) -> Any:
    """Afterwards the server is ready, creates, and has not grown."""
    before = running.resident_bytes()
    wire = Wire(running)
    yield wire
    async with client(running) as session:
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        async with session.post(MAPS, json={"metadata": {"generateName": "after-"}}) as answer:
            assert answer.status == 201, await answer.text()
    assert running.process.poll() is None
    assert running.resident_bytes() - before < GROWTH_BYTES_MAX


@contextlib.asynccontextmanager
async def client(running: Up) -> Any:
    connector = Connector(ssl=running.tls())
    headers = {"Authorization": f"Bearer {running.access.token}"}
    timeout = aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(
        running.access.server, connector=connector, headers=headers, timeout=timeout
    ) as session:
        yield session


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


WELL = json.dumps({"metadata": {"generateName": "m-"}}).encode()


async def test_half_closed_and_slow_connections_hold_up_nobody(wire: Wire) -> None:
    opened = [await wire.open() for _ in range(60)]
    for number, (_, writer) in enumerate(opened):
        if number % 3 == 0:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        elif number % 3 == 1:
            writer.write(wire.head("POST", MAPS, "Content-Length: 1000") + b'{"meta')
        else:
            writer.write(wire.head("POST", MAPS, "Transfer-Encoding: chunked") + b"4\r\n{\"me\r\n")
    for _ in range(20):
        for number, (_, writer) in enumerate(opened):
            writer.write(b"a" if number % 3 == 0 else b"" if number % 3 == 1 else b"1\r\na\r\n")
        async with asyncio.timeout(STALL_S_MAX), client(wire.running) as session, session.get("/healthz") as answer:
            assert answer.status == 200
    for _, writer in opened:
        writer.transport.abort()


async def test_pipelined_requests_are_answered_in_order_until_garbage(wire: Wire) -> None:
    reader, writer = await wire.open()
    writer.write(wire.head("GET", "/healthz") + wire.head("GET", "/nope") + wire.head("GET", "/livez"))
    async with asyncio.timeout(10):
        for code in (b"200", b"404", b"200"):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 " + code)
            await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
        writer.write(b"\x01 garbage\r\n\r\n" + wire.head("POST", MAPS, f"Content-Length: {len(WELL)}") + WELL)
        rest = await reader.read()
    assert status_of(rest) == 400 and rest.count(b"HTTP/1.1") == 1, "what follows garbage is not done"
    writer.close()


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        pytest.param(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", {400, 414, 431}, id="a long URL"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", {400, 431}, id="a long header"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 5000 + b"\r\n", {400, 431}, id="many headers"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", {400, 505}, id="a version to come"),
        pytest.param(b"GET\r\n\r\n", {400}, id="no path"),
        pytest.param(b"\xff" * 3000 + b"\r\n\r\n", {400}, id="bytes"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", {400}, id="a negative length"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", {400}, id="two lengths"),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400},
            id="a length and chunks",
        ),
        pytest.param(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", {400, 403}, id="no chunk size"),
        pytest.param(b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n", {400, 403, 404}, id="a broken absolute URL"),
        pytest.param(b"GET //evil/%zz?%zz=%f HTTP/1.1\r\nHost: x\r\n\r\n", {400, 403, 404}, id="broken escapes"),
        pytest.param(b"GET /\r\n X: y\r\n\r\n HTTP/1.1\r\n\r\n", {400}, id="lines in the path"),
    ],
)  # fmt: skip
async def test_what_is_no_request(wire: Wire, data: bytes, codes: set[int]) -> None:
    answer = await wire.say(data)
    assert answer == b"" or status_of(answer) in codes, answer[:500]


async def test_bodies_over_the_limit(wire: Wire) -> None:
    async with client(wire.running) as session:
        for body in (b"x" * (20 << 20), b'{"a":"' + b"x" * (3 << 20) + b'"}'):
            with contextlib.suppress(aiohttp.ClientOSError):
                async with session.post(MAPS, data=_parts(body)) as answer:
                    assert answer.status == 413 and "limit is 3145728" in (await answer.json())["message"]
    answer = await wire.say(wire.head("POST", MAPS, "Content-Length: 20971520"))
    assert status_of(answer) == 413
    assert status_of(await wire.say(wire.head("POST", MAPS, "Content-Length: 99999999999999999999"))) in (400, 413)


async def _parts(body: bytes) -> Any:
    for start in range(0, len(body), 1 << 18):
        yield body[start : start + (1 << 18)]


DEEP = 100_000
BODIES: dict[str, tuple[str, bytes]] = {
    "no JSON": ("application/json", b'{"metadata":'),
    "deep lists": ("application/json", b'{"data":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "deep maps": ("application/json", b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "open brackets": ("application/json", b"[" * (2 << 20)),
    "not UTF-8": ("application/json", b'{"metadata":{"name":"\xc3\x28"}}'),
    "no YAML": ("application/yaml", b"a: [1\nb: }"),
    "deep YAML": ("application/yaml", b"[" * DEEP),
    "YAML that refers to itself": ("application/yaml", b"a: &a [*a]"),
    "a billion laughs": (
        "application/yaml",
        b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)),
    ),
    "no protobuf": ("application/vnd.kubernetes.protobuf", b"k8s\0" + b"\xff" * 5000),
    "deep protobuf": ("application/vnd.kubernetes.protobuf", b"k8s\0" + b"\x12\xff\x7f" * 10_000),
    "a strange type": ("x/y; charset=e", b"abc"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_bodies_that_are_none(wire: Wire, name: str) -> None:
    content_type, body = BODIES[name]
    async with client(wire.running) as session:
        for method, path in (("POST", MAPS), ("POST", PODS), ("PUT", f"{MAPS}/x"), ("DELETE", f"{MAPS}/x")):
            async with session.request(method, path, data=_parts(body), headers={"Content-Type": content_type}) as got:
                assert 400 <= got.status < 500, await got.text()
                assert (await got.json())["kind"] == "Status"
        for kind in ("merge-patch", "json-patch", "strategic-merge-patch"):
            headers = {"Content-Type": f"application/{kind}+json"}
            async with session.patch(f"{MAPS}/kube-root-ca.crt", data=_parts(body), headers=headers) as got:
                assert 400 <= got.status < 500, await got.text()


async def test_random_requests_never_cost_a_500(wire: Wire) -> None:
    rng = random.Random(4)
    words = [
        "api", "apis", "v1", "namespaces", "default", "pods", "nodes", "configmaps", "status", "scale", "binding", "x",
        "eviction", "coordination.k8s.io", "leases", "..", "%2e%2e", "%00", "%ff", "é", "a" * 300, "", "watch", "log",
        "openapi", "v2", "v3", "metrics", "healthz", "version", "serviceaccounts", "token", "finalize", "proxy",
    ]  # fmt: skip
    names = [
        "watch", "limit", "continue", "fieldSelector", "labelSelector", "resourceVersion", "resourceVersionMatch",
        "timeoutSeconds", "dryRun", "fieldManager", "fieldValidation", "sendInitialEvents", "allowWatchBookmarks",
        "gracePeriodSeconds", "propagationPolicy", "pretty", "x",
    ]  # fmt: skip
    values = ["1", "0", "-1", "true", "All", "Exact", "9" * 20, "a=b", "a in (b", "%00", "é", "", "free.cpu>=4"]
    bodies = [b"", b"{}", b"[]", b"null", b'"a"', b"1", b'{"metadata":null}', b'{"metadata":{"name":5}}', WELL,
              b'{"spec":{"containers":[null]}}', b'{"spec":{"replicas":1e99}}']  # fmt: skip
    async with client(wire.running) as session:
        for _ in range(1500):
            method = rng.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"])
            path = "/" + "/".join(rng.choice(words) for _ in range(rng.randrange(7))).lstrip("/")
            if rng.random() < 0.5:
                path = rng.choice([MAPS, PODS, "/api/v1/nodes", "/api/v1/pods", f"{PODS}/x/status"])
                path += rng.choice(["", "/x"])
            query = "&".join(f"{rng.choice(names)}={rng.choice(values)}" for _ in range(rng.randrange(4)))
            headers = {"Accept": rng.choice(["*/*", "application/json", "x", "application/yaml", "a;q=x,,;"])}
            headers["Content-Type"] = rng.choice(["application/json", "application/merge-patch+json",
                                                  "application/json-patch+json", "x"])  # fmt: skip
            url = f"{path}?{query}" + ("&timeoutSeconds=1" if "watch" in query else "")
            if method == "DELETE" and path.endswith("nodes"):
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5), session.request(
                    method, url, data=rng.choice(bodies), headers=headers, allow_redirects=False
                ) as answer:
                    text = await answer.read()
                    assert answer.status < 500 or answer.status in (503, 504), (method, url, answer.status, text)


def heavy() -> dict[str, tuple[str, bytes, str]]:
    """Bodies near the limit, or near what the store takes: path, body, content type."""
    meta = {"generateName": "heavy-"}
    services = "/api/v1/namespaces/default/services"

    def pod(variables: int) -> dict[str, Any]:
        container = {"name": "c", "image": "i", "env": [{"name": f"E{i}", "value": "v"} for i in range(variables)]}
        return {"metadata": meta, "spec": {"containers": [container], "schedulerName": "nobody"}}

    def keys(count: int) -> dict[str, str]:
        return {f"key-{i:06}": "value" for i in range(count)}

    ports = [{"name": f"p{i}", "port": i % 65_535 + 1} for i in range(70_000)]
    bodies: dict[str, tuple[str, Any]] = {
        "a pod of 40,000 variables": (PODS, pod(40_000)),
        "a pod of 85,000 variables": (PODS, pod(85_000)),
        "50,000 labels": (MAPS, {"metadata": meta | {"labels": keys(50_000)}}),
        "120,000 labels": (MAPS, {"metadata": meta | {"labels": keys(120_000)}}),
        "120,000 annotations": (MAPS, {"metadata": meta | {"annotations": keys(120_000)}}),
        "70,000 ports": (services, {"metadata": meta, "spec": {"ports": ports}}),
        "100,000 unknown fields": (MAPS, {"metadata": meta, **{f"u{i:06}": [] for i in range(100_000)}}),
        "100,000 bad names": (PODS, {"metadata": meta, "spec": {"containers": [{"name": "_"}] * 100_000}}),
    }
    cases = {name: (path, json.dumps(body).encode(), "application/json") for name, (path, body) in bodies.items()}
    text = b"metadata: {generateName: heavy-}\ndata:\n" + b"".join(b"  k%06d: v\n" % i for i in range(100_000))
    return cases | {"YAML of 100,000 keys": (MAPS, text, "application/yaml")}


HEAVY = heavy()


@pytest.mark.parametrize("name", HEAVY)
async def test_heavy_bodies_do_not_keep_others_waiting(wire: Wire, name: str) -> None:
    path, body, content_type = HEAVY[name]
    assert len(body) < 3 << 20
    waits: list[float] = []
    async with client(wire.running) as session, client(wire.running) as other:

        async def ask() -> None:
            while True:
                start_s = time.monotonic()
                async with other.get("/healthz") as answer:
                    await answer.read()
                waits.append(time.monotonic() - start_s)
                await asyncio.sleep(0.02)

        async def asked(count: int) -> None:
            while len(waits) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

        asking = asyncio.create_task(ask())
        await asked(1)
        async with session.post(path, data=_parts(body), headers={"Content-Type": content_type}) as answer:
            text = await answer.text()
            assert answer.status == 201 or 400 <= answer.status < 500, text[:500]
        # The one under way now was begun before the answer; it counts as well.
        await asked(len(waits) + 1)
        asking.cancel()
    print(f"{name}: {answer.status}, {len(body):,} bytes, longest wait {max(waits):.3f} s")
    assert len(text) < 2 * len(body) + 10_000, "no small body makes a large answer"
    assert max(waits) < STALL_S_MAX
