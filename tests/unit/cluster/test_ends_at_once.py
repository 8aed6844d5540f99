"""A cluster ends without waiting: for no time to pass, no client and no disk, whatever its clients have in flight."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from minikube_py import Cluster
from minikube_py.cluster import temporary
from minikube_py.cluster.local import AsyncCluster
from tests.support.patience import until

pytestmark = pytest.mark.real_time("real sockets")
WATCH = "GET /api/v1/nodes?watch=true HTTP/1.1"
MAPS = "/api/v1/namespaces/default/configmaps"
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip
IN_FLIGHT = {
    "nothing": "",
    "a body that does not arrive": f"POST {MAPS} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9",
    "a log that is followed": "GET /api/v1/namespaces/default/pods/a/log?follow=true HTTP/1.1",
    "a list that nobody reads": f"GET {MAPS} HTTP/1.1",
    "a request that a fault holds": "GET /api/v1/namespaces/default/secrets HTTP/1.1",
}
LARGE = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b" * 500_000}}


@asynccontextmanager
async def timers_waited_for() -> AsyncIterator[list[float]]:
    """Whenever the loop had nothing to do until a timer was due: how long that was to take, in seconds."""
    selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    select, waited = selector.select, []

    def counted(timeout: float | None = None) -> Any:
        found = select(timeout)
        if not found and timeout:
            waited.append(timeout)
        return found

    selector.select = counted
    try:
        yield waited
    finally:
        del selector.select


async def asked(cluster: AsyncCluster, request: str) -> tuple[StreamReader, StreamWriter]:
    at, context = urlsplit(cluster.url), ssl.create_default_context(cadata=cluster.authority_pem)
    reader, writer = await asyncio.open_connection(at.hostname, at.port, ssl=context)
    writer.write(f"{request}\r\nHost: x\r\nAuthorization: Bearer {cluster.token}\r\n\r\n".encode())
    return reader, writer


@pytest.mark.parametrize("in_flight", IN_FLIGHT.values(), ids=IN_FLIGHT)
async def test_a_cluster_ends_at_once(in_flight: str) -> None:
    async with Cluster() as cluster:
        watches = [await asked(cluster, WATCH) for _ in range(10)]
        for reader, _ in watches:
            await reader.readuntil(b'"ADDED"')
        clients = [writer for _, writer in watches]
        if in_flight:
            await cluster.apply(POD)
            await cluster.wait("pod/a", phase="Running")
            # More than the buffers of a connection hold.
            await cluster.apply([{**LARGE, "metadata": {"name": f"a{n}"}} for n in range(20)])
            cluster.slow(1e6, on="secrets")
            clients.append((await asked(cluster, in_flight))[1])
            http = cluster._reached().plane.http
            assert http is not None
            await until(lambda: sum(each.task is not None for each in http._connections) == len(clients))
        async with timers_waited_for() as waited:
            await cluster.stop()
        assert waited == []
    for reader, _ in watches:
        assert (await reader.read()).endswith(b"\r\n0\r\n\r\n")
    for writer in clients:
        writer.close()


def test_its_files_are_in_memory_unless_a_place_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    assert temporary.place() == ("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert temporary.place() == str(tmp_path)
