"""The first 10 of 100,000 nodes with enough free: by our index, and by a client of a real etcd.

Both stores hold the same node objects, without pods, so that etcd's client need not read and sum them: it ranges
over all nodes by etcdctl, decodes each by orjson and stops at the tenth that fits; only few nodes match the query. Ours
is queried through its native client from another process, and within the store's process.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
from bench_store import TOKEN, child_of, etcd, fresh_folder, upstream

from minikube_py.env import SystemClock, SystemDisk
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.types import Put, RangeRequest, prefix_end
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.server import StoreServer

COUNT = 100_000
FIRST = 10
TXN_PUTS = 100
ROUNDS, SCAN_ROUNDS = 201, 5
PREFIX = b"/registry/nodes/"
BIG_ONE_OF = 8_000
"""One in this many nodes is large enough: the tenth is found near the end of a scan."""
WHERE = Where((Comparison("free.cpu", ">=", ("64",)), Comparison("free.memory", ">=", ("256Gi",))))


def nodes() -> Iterator[tuple[bytes, bytes]]:
    """Key and stored value of each; identical on both sides."""
    for number in range(COUNT):
        name = f"node-{number:06d}"
        big = number % BIG_ONE_OF == BIG_ONE_OF - 1
        amounts = {"cpu": "96" if big else "32", "memory": "512Gi" if big else "128Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
        uid = f"00000000-0000-4000-8000-{number:012x}"
        metadata = {"name": name, "uid": uid, "labels": labels, "creationTimestamp": "2025-01-01T00:00:00Z"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        yield PREFIX + name.encode(), orjson.dumps({"metadata": metadata, "spec": {}, "status": status})


def _in_txns() -> Iterator[list[tuple[bytes, bytes]]]:
    batch: list[tuple[bytes, bytes]] = []
    for item in nodes():
        batch.append(item)
        if len(batch) == TXN_PUTS:
            yield batch
            batch = []
    if batch:
        yield batch


# -- ours --------------------------------------------------------------------------------------------------------------


async def serve(folder: Path) -> None:
    """A filled member behind the native protocol, until stdin closes; prints its port and the in-process query time."""
    member = StoreMember(SystemDisk(folder), SystemClock(), random.Random(), MemberConfig(own_gc=True))
    await member.start()
    await member.storage.declare(NODES)
    for batch in _in_txns():
        await member.storage.txn((), [Put(key, value) for key, value in batch])
    server = StoreServer(member, TOKEN)
    await server.start()
    request = RangeRequest(PREFIX, prefix_end(PREFIX), FIRST, where=WHERE)
    took_s = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        result = await member.storage.range(request)
        took_s.append(time.perf_counter() - started)
    assert len(result.kvs) == FIRST and result.stats is not None and result.stats.objects_decoded == 0
    print(json.dumps({"port": server.address[1], "within_ms": statistics.median(took_s) * 1e3}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()
    await member.stop()


async def _by_client(port: int) -> float:
    client = StoreClient(Endpoint("127.0.0.1", port, TOKEN), SystemClock(), random.Random())
    await client.start()
    request = RangeRequest(PREFIX, prefix_end(PREFIX), FIRST, where=WHERE)
    took_s = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        result = await client.range(request)
        took_s.append(time.perf_counter() - started)
    assert len(result.kvs) == FIRST
    await client.close()
    return statistics.median(took_s) * 1e3


def query_ours() -> dict[str, float]:
    with fresh_folder() as folder, child_of(__file__, str(folder)) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        return {
            "first 10, within the store ms": ready["within_ms"],
            "first 10, by a client ms": asyncio.run(_by_client(ready["port"])),
        }


# -- the peer ----------------------------------------------------------------------------------------------------------


def query_etcd() -> dict[str, float]:
    """The same figure twice: etcd has no in-process query."""
    binary = upstream.binary("etcd")
    with fresh_folder() as folder, etcd(folder, binary) as (port, _):
        for batch in _in_txns():
            puts = [{"requestPut": {"key": _text(key), "value": _text(value)}} for key, value in batch]
            url = f"http://127.0.0.1:{port}/v3/kv/txn"
            with urllib.request.urlopen(url, orjson.dumps({"success": puts}), timeout=30) as answer:
                assert orjson.loads(answer.read())["succeeded"]
        took_ms = statistics.median(_scan(binary.parent / "etcdctl", port) for _ in range(SCAN_ROUNDS)) * 1e3
    return {"first 10, within the store ms": took_ms, "first 10, by a client ms": took_ms}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _scan(etcdctl: Path, port: int) -> float:
    """Seconds from the query to the tenth node. Values are lines without embedded newlines."""
    command = [str(etcdctl), "--endpoints", f"127.0.0.1:{port}", "get", "--prefix", PREFIX.decode()]
    found = []
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        subprocess.run([*command, "--print-value-only"], stdout=out, check=True)
        out.seek(0)
        for line in out:
            node = orjson.loads(line)
            free = node["status"]["allocatable"]
            if int(free["cpu"]) >= 64 and int(free["memory"][:-2]) >= 256:
                found.append(node)
                if len(found) == FIRST:
                    break
        took_s = time.perf_counter() - started
    assert len(found) == FIRST
    return took_s


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
