"""What clients of etcd's gateway can make a member hold: ended with them, and bounded."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_api import Ours, ours
from patience import PATIENCE_S, eventually

from minikube_py.etcd.http import HttpLimits

LOCKED = {"key": "bGsv", "range_end": "bGsw", "count_only": True}


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ours]:
    with ours(tmp_path, http=getattr(request, "param", True)) as found:
        yield found


def post(server: Ours, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=PATIENCE_S)
    connection.request("POST", f"/v3/{path}", json.dumps(body))
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def begun(server: Ours, path: str, body: bytes, length: int = 0) -> socket.socket:
    """A request of which this much is sent."""
    connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE_S)
    head = f"POST /v3/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length or len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(1 << 16).split()[1])


def test_who_leaves_waits_no_longer_for_a_lock(server: Ours) -> None:
    for lease in (1, 2, 3):
        assert post(server, "lease/grant", {"ID": lease, "TTL": 600})[0] == 200
    key = post(server, "lock/lock", {"name": "bGs=", "lease": 1})[1]["key"]
    waiting = begun(server, "lock/lock", b'{"name":"bGs=","lease":2}')
    eventually(lambda: post(server, "kv/range", LOCKED)[1].get("count") == "2", "the second one waits")
    waiting.close()
    eventually(lambda: post(server, "kv/range", LOCKED)[1].get("count") == "1", "it has left no key")
    post(server, "lock/unlock", {"key": key})
    assert post(server, "lock/lock", {"name": "bGs=", "lease": 3})[0] == 200


def test_watches_end_with_their_client(server: Ours) -> None:
    streams = [begun(server, "watch", b'{"create_request":{"key":"YQ=="}}' * 5) for _ in range(10)]
    watches = "minikube_py_etcd_watches"
    eventually(lambda: server.metrics()[watches] == 50, "the watches are there")
    for stream in streams[:9]:
        stream.close()
    eventually(lambda: server.metrics()[watches] == 5, "their watches have ended")
    # One that only sends no more has gone too, as for Go's server.
    streams[9].shutdown(socket.SHUT_WR)
    eventually(lambda: server.metrics()[watches] == 0, "its watches have ended")
    streams[9].close()
    assert server.node.watch_bytes == 0


@pytest.mark.parametrize("server", [HttpLimits(bodies_bytes_max=100_000, body_bytes_max=90_000)], indirect=True)
def test_bodies_are_bounded_each_and_together(server: Ours) -> None:
    held = server.door.bodies
    unfinished = [begun(server, "kv/put", b"x" * 30_000, 40_000) for _ in range(3)]
    eventually(lambda: held.total == 90_000, "three unfinished bodies are held")
    fourth = begun(server, "kv/put", b"x" * 30_000, 40_000)
    # All are of one address: the oldest makes room.
    assert status_of(unfinished[0]) == 429
    eventually(lambda: held.total == 90_000, "the fourth is held")
    for each in (*unfinished, fourth):
        each.close()
    eventually(lambda: held.total == 0, "they are let go of")
    large = begun(server, "kv/put", b"x" * 95_000, 95_000)
    assert status_of(large) == 429
    large.close()
    assert post(server, "kv/put", {"key": "YQ==", "value": "QUJD" * 10_000})[0] == 200


SHORT = HttpLimits(header_timeout_s=0.5, body_timeout_s=0.5, idle_timeout_s=0.5)


@pytest.mark.parametrize("server", [SHORT], indirect=True)
def test_heads_and_bodies_arrive_in_time_and_idle_connections_end(server: Ours) -> None:
    late = begun(server, "kv/put", b"{", 100)
    assert status_of(late) == 408
    late.close()
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE_S) as half:
        half.sendall(b"POST /v3/kv/put HT")
        assert half.recv(100) == b""
    with begun(server, "kv/range", b'{"key":"YQ=="}') as idle:
        assert status_of(idle) == 200
        idle.sendall(b"POST /v3/kv/put HT")
        assert idle.recv(100) == b""


@pytest.mark.parametrize("server", [HttpLimits(connections_max=2)], indirect=True)
def test_connections_are_bounded(server: Ours) -> None:
    known = [begun(server, "kv/range", b'{"key":"YQ=="}') for _ in range(2)]
    assert [status_of(each) for each in known] == [200, 200]
    third = begun(server, "kv/range", b'{"key":"YQ=="}')
    assert status_of(third) == 429
    third.close()
    known.pop().close()
    eventually(lambda: post(server, "kv/range", {"key": "YQ=="})[0] == 200, "there is room again")
    known[0].close()


@pytest.mark.parametrize("server", [HttpLimits(write_timeout_s=0.5)], indirect=True)
def test_who_takes_no_answer_is_cut_off(server: Ours) -> None:
    assert post(server, "kv/put", {"key": "YQ==", "value": "QUJD" * 300_000})[0] == 200
    reading = begun(server, "watch", b'{"create_request":{"key":"YQ==","start_revision":2}}' * 20)
    assert reading.recv(10)
    eventually(lambda: not server.door.connections, "it is cut off")
    eventually(lambda: server.metrics()["minikube_py_etcd_watches"] == 0, "its watches have ended")
    reading.close()
    assert server.node.watch_bytes == 0
