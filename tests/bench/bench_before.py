"""The CPU that a request costs the server, in two checkouts beside each other, in interleaved pairs.

    PYTHONPATH=tests/support python tests/bench/bench_before.py OLD [--new DIR] [--pairs N] [--pods N] [--rows R,...]
                                                                [--out FILE]

`OLD` is another checkout (`git worktree add --detach OLD COMMIT`), `--new` this one by default; both run under this
Python. Each serves store and API server in one process, over HTTPS, with fsync; the load is this process and h2load.
Both servers are up; each row is a batch of requests to one, then to the other, so that other work on the machine
falls on both alike; the sides take turns in going first. CPU is that of the server's process alone. Prints the median
of each side, and the median and the quartiles of the pairs' ratios, with the load average.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import load
import yaml
from servers import Server

SERVE = """
import asyncio, gc, random, signal, sys
from pathlib import Path
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.env import SystemClock

async def main(folder):
    config = ControlPlaneConfig(Path(folder), port=0, nodes=0, components=())
    plane = ControlPlane(config, SystemClock(), random.Random(0))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await plane.start()
    print("ready", flush=True)
    await stop.wait()
    await plane.stop()

asyncio.run(main(sys.argv[1]))
"""
PODS = "/api/v1/namespaces/bench/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NODES = 1_000
LEASES_HELD = 50


@contextmanager
def serving(checkout: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SERVE, folder + "/data"]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit(f"the server of {checkout} did not start")
            config = yaml.safe_load(Path(folder, "data", "kubeconfig").read_text())
            url, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
            yield Server(str(checkout), url, token, {"minikube-py": process.pid})
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


def cpu_s(pid: int) -> float:
    """Of another process, to the nanosecond: the clock that `clock_getcpuclockid` names."""
    return time.clock_gettime((~pid << 3) | 2)


def lease(index: int) -> dict[str, Any]:
    name, renewed = f"node-{index}", "2026-01-01T00:00:00.000000Z"
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
    metadata = {"name": name, "namespace": "kube-node-lease"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


class Side:
    """One server. Each batch is one row's requests, as often as `count` says."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pid = server.pids["minikube-py"]
        self.nodes = 0
        self.held: list[Any] = []
        self.connection = load.Connection(server)

    def cost_ms(self, batch: Callable[[Side], int]) -> float:
        """CPU of one request of the batch."""
        before = cpu_s(self.pid)
        count = batch(self)
        return (cpu_s(self.pid) - before) * 1e3 / count

    def pods(self, count: int, connections: int) -> int:
        load.h2load_creates(self.server, PODS, load.pod(), count, connections)
        return count

    def more_nodes(self, count: int) -> int:
        names = [f"node-{self.nodes + i}" for i in range(count)]
        load.send_all(self.server, 16, [("POST", "/api/v1/nodes", load.node(name)) for name in names])
        self.nodes += count
        return count

    def hold_leases(self) -> int:
        self.held = [self.connection.must("POST", LEASES, lease(index)) for index in range(LEASES_HELD)]
        return LEASES_HELD

    def renew(self) -> int:
        for index, each in enumerate(self.held):
            second = int(each["spec"]["renewTime"][17:19]) + 1
            each["spec"]["renewTime"] = f"2026-01-01T00:00:{second % 60:02}.000000Z"
            self.held[index] = self.connection.must("PUT", f"{LEASES}/node-{index}", each)
        return len(self.held)

    def get(self, count: int) -> int:
        asked = [("GET", f"/api/v1/nodes/node-{i % self.nodes}", None) for i in range(count)]
        load.send_all(self.server, 16, asked)
        return count

    def list(self, path: str, accept: str, count: int) -> int:
        for _ in range(count):
            status, body = self.connection.send("GET", path, accept=accept)
            if status != 200:
                raise SystemExit(f"{path}: {status} {body[:300]!r}")
        return count


Batch = Callable[[Side], int]


def creates(pairs: int, pods: int) -> Iterator[tuple[str, Batch]]:
    yield "", lambda side: side.pods(500, 64)
    each = (pods - 500) // pairs // 2
    yield "create of a pod, 64 connections", lambda side: side.pods(each, 64)
    yield "create of a pod, 1 connection", lambda side: side.pods(each, 1)


def nodes(pairs: int, pods: int) -> Iterator[tuple[str, Batch]]:
    yield "create of a node, 16 connections", lambda side: side.more_nodes(NODES // pairs)
    yield "GET of a node, 16 connections", lambda side: side.get(500)


def leases(pairs: int, pods: int) -> Iterator[tuple[str, Batch]]:
    yield "", Side.hold_leases
    yield "renewal of a lease, 1 connection", Side.renew


def lists(pairs: int, pods: int) -> Iterator[tuple[str, Batch]]:
    asked = (
        ("LIST of all pods", PODS, load.JSON, 4),
        ("LIST of all pods as Table", PODS, TABLE, 2),
        ("LIST of all pods by label", PODS + "?labelSelector=app%3Dload", load.JSON, 3),
        ("page of 500 pods", PODS + "?limit=500", load.JSON, 20),
        ("page of 500 pods as Table", PODS + "?limit=500", TABLE, 8),
        ("LIST of all nodes", "/api/v1/nodes", load.JSON, 20),
        ("LIST of all nodes as Table", "/api/v1/nodes", TABLE, 5),
    )
    for name, path, accept, count in asked:
        yield "", partial(Side.list, path=path, accept=accept, count=1)
        yield name, partial(Side.list, path=path, accept=accept, count=count)


ROWS = {row.__name__: row for row in (creates, nodes, leases, lists)}


def measured(sides: tuple[Side, Side], rows: list[str], pairs: int, pods: int) -> dict[str, list[tuple[float, float]]]:
    """By row the milliseconds of each pair, old and new. A batch without a name only prepares."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, batch in ROWS[row](pairs, pods):
            for pair in range(pairs if name else 1):
                first = pair % 2
                took = {each: sides[each].cost_ms(batch) for each in (first, 1 - first)}
                found.setdefault(name, []).append((took[0], took[1]))
    found.pop("", None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--pods", type=int, default=15_000, help="how many are there in the end")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {', '.join(ROWS)}; lists need what the others make")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows = args.rows.split(",")
    if unknown := [each for each in rows if each not in ROWS]:
        parser.error(f"--rows: {', '.join(unknown)}: there are {', '.join(ROWS)}")
    before = os.getloadavg()
    with ExitStack() as running:
        both = [running.enter_context(serving(checkout.resolve())) for checkout in (args.old, args.new)]
        for server in both:
            load.namespace(server, "bench")
        found = measured((Side(both[0]), Side(both[1])), rows, args.pairs, args.pods)
    print(f"{'CPU of the server, ms':36}{'old':>9}{'new':>9}{'new/old':>9}   quartiles of the pairs")
    for name, pairs in found.items():
        low, middle, high = statistics.quantiles([new / old for old, new in pairs], n=4)
        old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(f"{name:36}{old:9.3f}{new:9.3f}{middle:9.2f}   {low:.2f} to {high:.2f}")
    load_after = os.getloadavg()
    print(f"{args.pairs} pairs, {args.pods:,} pods; load average {before[0]:.1f} before, {load_after[0]:.1f} after")
    if args.out is not None:
        report = {"load": [before[0], load_after[0]], "pods": args.pods, "old and new, ms": found}
        args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
