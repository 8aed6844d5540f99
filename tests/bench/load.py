"""Load for the API: creates by h2load, lists and watches over plain TLS sockets. Bounded in count and time."""

from __future__ import annotations

import http.client
import json
import re
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from servers import Server

JSON = "application/json"
RUN_TIMEOUT_S = 300


def pod(name: str | None = None, node: str | None = None, cpu: str = "10m", memory: str = "10Mi") -> dict[str, Any]:
    """A typical pod: some 600 bytes as sent, 1.8 KB as stored."""
    meta = {"name": name} if name else {"generateName": "load-"}
    container = {
        "name": "main",
        "image": "registry.example.com/team/service:1.2.3",
        "ports": [{"containerPort": 8080, "name": "http"}],
        "env": [{"name": "MODE", "value": "fast"}, {"name": "LEVEL", "value": "info"}],
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "1", "memory": "1Gi"}},
    }
    spec: dict[str, Any] = {"containers": [container], **({"nodeName": node} if node else {})}
    labels = {"app": "load", "tier": "backend", "release": "stable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "labels": labels, "annotations": {"team": "bench"}},
        "spec": spec,
    }


def node(name: str) -> dict[str, Any]:
    resources = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{hash_of(name) % 3}"}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def hash_of(name: str) -> int:
    return sum(name.encode())


class Connection:
    """One keep-alive HTTPS connection."""

    def __init__(self, server: Server) -> None:
        where = urlsplit(server.url)
        self._http = http.client.HTTPSConnection(
            where.hostname or "", where.port, timeout=RUN_TIMEOUT_S, context=ssl._create_unverified_context()
        )
        self._headers = {"Authorization": f"Bearer {server.token}", "Accept": JSON, "Content-Type": JSON}

    def send(self, method: str, path: str, body: Any = None, accept: str = JSON) -> tuple[int, bytes]:
        payload = None if body is None else json.dumps(body).encode()
        self._http.request(method, path, payload, {**self._headers, "Accept": accept})
        answer = self._http.getresponse()
        return answer.status, answer.read()

    def must(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.send(method, path, body)
        if status >= 300:
            raise SystemExit(f"{method} {path}: {status} {answer[:300]!r}")
        return json.loads(answer)

    def close(self) -> None:
        self._http.close()


def namespace(server: Server, name: str) -> None:
    """Creates the namespace, with the service account that admission may require."""
    connection = Connection(server)
    connection.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    connection.close()


def h2load_creates(server: Server, path: str, body: Any, count: int, connections: int) -> float:
    """Creates per second: `count` POSTs of one body (with generateName) over HTTP/1.1 connections."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(body, file)
        file.flush()
        done = subprocess.run(
            [
                "h2load",
                "--h1",
                "-n",
                str(count),
                "-c",
                str(connections),
                "-d",
                file.name,
                "-H",
                f"authorization: Bearer {server.token}",
                "-H",
                "content-type: application/json",
                server.url + path,
            ],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=True,
        )
    if f" {count} succeeded" not in done.stdout or f"{count} 2xx" not in done.stdout:
        raise SystemExit(f"not every create succeeded: {re.findall(r'requests:.*|status codes:.*', done.stdout)}")
    found = re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", done.stdout)
    assert found, done.stdout
    return float(found.group(1))


def timed_get(server: Server, path: str, accept: str = JSON, times: int = 5) -> tuple[float, int]:
    """Median seconds from the request to its last byte, and the body's size in bytes."""
    connection = Connection(server)
    took, size = [], 0
    for _ in range(times):
        started = time.perf_counter()
        status, body = connection.send("GET", path, accept=accept)
        took.append(time.perf_counter() - started)
        size = len(body)
        assert status == 200, body[:300]
    connection.close()
    return sorted(took)[times // 2], size


def version(server: Server, path: str) -> str:
    """The resource version of the collection now."""
    connection = Connection(server)
    try:
        return str(connection.must("GET", f"{path}?limit=1")["metadata"]["resourceVersion"])
    finally:
        connection.close()


class _Pipe:
    """One keep-alive TLS connection that sends prepared requests one after another."""

    def __init__(self, server: Server, requests: list[bytes]) -> None:
        where = urlsplit(server.url)
        raw = socket.create_connection((where.hostname or "", where.port or 443), timeout=RUN_TIMEOUT_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = ssl._create_unverified_context().wrap_socket(raw)
        self._requests = iter(requests)
        self._answer = b""

    def send_next(self) -> bool:
        request = next(self._requests, None)
        if request is None:
            return False
        self.tls.sendall(request)
        return True

    def read(self) -> bool:
        """Reads available data; True once a response is complete. Raises SystemExit on failure."""
        while True:
            try:
                self._answer += self.tls.recv(1 << 16)
            except (ssl.SSLWantReadError, BlockingIOError):
                return False
            head, found, body = self._answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            whole = len(body) >= int(length.group(1)) if length else body.endswith(b"0\r\n\r\n")
            if found and whole:
                if not head.startswith(b"HTTP/1.1 2"):
                    raise SystemExit(f"not a success: {self._answer[:400]!r}")
                self._answer = b""
                return True


def send_all(server: Server, connections: int, requests: list[tuple[str, str, Any]]) -> None:
    """Sends every request over keep-alive connections, one at a time on each; all must succeed."""
    prepared = [_wire(server, *request) for request in requests]
    pipes = [_Pipe(server, prepared[i::connections]) for i in range(connections)]
    poll = selectors.DefaultSelector()
    for pipe in pipes:
        if pipe.send_next():
            pipe.tls.setblocking(False)
            poll.register(pipe.tls, selectors.EVENT_READ, pipe)
    while poll.get_map():
        for key, _ in poll.select(RUN_TIMEOUT_S):
            if key.data.read():
                key.data.tls.setblocking(True)
                if not key.data.send_next():
                    poll.unregister(key.data.tls)
                key.data.tls.setblocking(False)
    for pipe in pipes:
        pipe.tls.close()


def _wire(server: Server, method: str, path: str, body: Any) -> bytes:
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.token}", f"Accept: {JSON}"]
    if payload:
        lines.append(f"Content-Type: {JSON}")
    return "\r\n".join([*lines, f"Content-Length: {len(payload)}", "", ""]).encode() + payload


class Watchers:
    """Watches held by a separate process, which counts their events."""

    def __init__(self, server: Server, path: str, count: int, events: int, timeout_s: float) -> None:
        where = urlsplit(server.url)
        script = str(Path(__file__).with_name("watch_client.py"))
        arguments = [where.hostname, where.port, server.token, path, count, events, timeout_s]
        self._process = subprocess.Popen(
            [sys.executable, script, *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit("the watches were not answered")
        self._wanted = events

    def last_seen_s(self) -> float:
        """Waits for all events; the monotonic time of the last. Cut-off watches resume, and are reported."""
        assert self._process.stdout is not None
        seen = json.loads(self._process.stdout.readline())
        self._process.wait(10)
        if min(seen["events"]) < self._wanted:
            seen_range = f"{min(seen['events'])} to {max(seen['events'])}"
            raise SystemExit(f"watchers saw {seen_range} of {self._wanted} events, {seen['cuts']} cut off")
        if seen["cuts"]:
            print(f"  {seen['cuts']} watches were cut off by the server and resumed")
        return float(seen["last_s"])
