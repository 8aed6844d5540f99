"""Costs and benefits of declared indexes, end to end: binds/s with three and without, pauses, a query over HTTPS.

usage: python tests/bench/bench_declared.py [--nodes N] [--binds N] [--turns N] [--json FILE]

One process with store and API server, no scheduler. Binds go through the API like a scheduler's (POST .../binding, 64
at once), alternating between no index and three over the nodes, which every bind changes. Then the three are declared
during binds, and a task that yields continuously measures the longest time the event loop was blocked, compared with a
run without a declaration. The query has three inequalities and asks for the first 10 as a Table, like kubectl.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.env import SystemClock
from minikube_py.lab import environment
from minikube_py.lab.load import create_namespaces
from minikube_py.lab.query import QueryOptions, fill
from minikube_py.lab.store_indexes import INDEXES_PATH, StoreIndex, declare_and_wait

THREE = (StoreIndex("one", "max-tree"), StoreIndex("two", "bitmaps"), StoreIndex("three", "sorted-runs"))
NAMESPACE = "bench"
IN_FLIGHT = 64
QUERY_ROUNDS = 201
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
SELECTOR = "free.cpu>=48,free.memory>=100Gi,free.pods>=100"


class Binds:
    """Pods created in advance, bound one after another to random nodes."""

    def __init__(self, transport: ApiTransport, nodes: list[str]) -> None:
        self._transport, self._nodes = transport, nodes
        self._rng = random.Random(1)
        self._made = self._bound = 0

    async def make(self, count: int) -> None:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}

        async def one(number: int) -> None:
            pod = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}
            path = f"/api/v1/namespaces/{NAMESPACE}/pods"
            assert (await self._transport.request("POST", path, body=orjson.dumps(pod))).status == 201

        await in_flight([lambda n=n: one(n) for n in range(self._made, self._made + count)])
        self._made += count

    async def bind(self, count: int) -> float:
        """Binds per second."""

        async def one(number: int) -> None:
            target = {"kind": "Node", "name": self._rng.choice(self._nodes)}
            body = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": f"p{number}"}, "target": target}
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/p{number}/binding"
            assert (await self._transport.request("POST", path, body=orjson.dumps(body))).status == 201

        assert self._bound + count <= self._made
        started_s = time.perf_counter()
        await in_flight([lambda n=n: one(n) for n in range(self._bound, self._bound + count)])
        self._bound += count
        return count / (time.perf_counter() - started_s)


async def in_flight(work: list[Callable[[], Awaitable[None]]]) -> None:
    waiting = iter(work)

    async def worker() -> None:
        for each in waiting:
            await each()

    await asyncio.gather(*[worker() for _ in range(IN_FLIGHT)])


async def longest_pause_ms(work: Awaitable[Any]) -> float:
    """The longest time the loop was blocked while `work` ran."""
    longest_s, before_s = 0.0, time.perf_counter()
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        now_s = time.perf_counter()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    await task
    return longest_s * 1e3


async def drop(transport: ApiTransport, name: str) -> None:
    assert (await transport.request("DELETE", f"{INDEXES_PATH}/{name}")).status == 200


async def binds_by_turns(transport: ApiTransport, binds: Binds, count: int, turns: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {"without": [], "with three": []}
    for _ in range(turns):
        await binds.make(2 * count)
        figures["without"].append(await binds.bind(count))
        for index in THREE:
            await declare_and_wait(transport, index)
        figures["with three"].append(await binds.bind(count))
        for index in THREE:
            await drop(transport, index.name)
    return figures


async def pauses_ms(transport: ApiTransport, binds: Binds, count: int) -> dict[str, float]:
    await binds.make(2 * count)
    without = await longest_pause_ms(binds.bind(count))

    async def both() -> None:
        await asyncio.gather(binds.bind(count), *[declare_and_wait(transport, index) for index in THREE])

    return {"without": without, "declaring three": await longest_pause_ms(both())}


def table_ms(kubeconfig: Path) -> float:
    """From a thread of the serving process, over HTTPS, decoded."""
    access = load_kubeconfig(kubeconfig)
    url = urlsplit(access.server)
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=access.ssl_context())
    path = "/api/v1/nodes?" + urlencode({"fieldSelector": SELECTOR, "limit": "10"})
    took_s = []
    for _ in range(QUERY_ROUNDS):
        started_s = time.perf_counter()
        connection.request("GET", path, headers={"Authorization": f"Bearer {access.token}", "Accept": TABLE})
        found = orjson.loads(connection.getresponse().read())
        took_s.append(time.perf_counter() - started_s)
    connection.close()
    assert found["kind"] == "Table" and len(found["rows"]) == 10, found
    return statistics.median(took_s) * 1e3


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="minikube-py-bench-") as name:
        folder = Path(name)
        plane = ControlPlane(ControlPlaneConfig(folder, port=0, components=()), SystemClock(), random.Random(0))
        here = environment.describe(folder, "one process: store and API server")
        for line in here.lines():
            print(line)
        await plane.start()
        try:
            await fill(plane.storage, QueryOptions(nodes=arguments.nodes, pods=0, seed=0))
            transport = plane.transport()
            answer = await transport.request("GET", "/api/v1/nodes", {"limit": "5000"})
            nodes = [node["metadata"]["name"] for node in orjson.loads(answer.body)["items"]]
            await create_namespaces(transport, [NAMESPACE])
            binds = Binds(transport, nodes)
            rates = await binds_by_turns(transport, binds, arguments.binds, arguments.turns)
            medians = {name: statistics.median(each) for name, each in rates.items()}
            share = medians["with three"] / medians["without"]
            print(f"binds/s, interleaved: {rates}\n  with three indexes {share:.2f} of without")
            held = await pauses_ms(transport, binds, arguments.binds)
            print(f"longest pause of the loop, ms: {held}")
            query_ms = await asyncio.to_thread(table_ms, folder / "kubeconfig")
            print(f"{SELECTOR}, first 10, as Table over HTTPS: {query_ms:.2f} ms")
            return {
                "environment": here.as_dict(),
                "nodes": arguments.nodes,
                "binds_per_s": rates,
                "binds_share": share,
                "pause_ms": held,
                "table_ms": query_ms,
            }
        finally:
            await plane.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--binds", type=int, default=4000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = asyncio.run(run(arguments))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
