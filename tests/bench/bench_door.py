"""A cluster in a test: how long it takes to start and to stop, and what heartbeats cost in virtual time.

    python tests/bench/bench_door.py [--rows start,fresh,upstream,restore,heartbeats] [--turns N] [--watches N]
                                     [--nodes N] [--members 1,3] [--window-s S] [--json FILE]

`start`: wall and processor milliseconds of `start()` and `stop()` with `--watches` watches open over HTTPS, without and
with two more requests in flight: a log that is followed, and a list of 5 MB that nobody reads.
`fresh`: processor milliseconds of a new process that imports the package and starts a cluster of three nodes.
`upstream`: those of etcd and kube-apiserver until the API server is ready. etcd syncs its disk; envtest turns that off.
`restore`: processor milliseconds of `restore()` after 100 pods were created, 100 ConfigMaps changed, and 100 pods
changed: objects with a status, for which the components start again.
`heartbeats`: virtual seconds per second of processor time, with every heartbeat of `--nodes` idle nodes written, over a
window of `--window-s` virtual seconds, by number of store members. Rows take turns, so that other load falls on all of
them alike. Prints the median and the range of each figure, with the load average; `--json` writes every turn, with
commit, machine and load of each row, and keeps other rows of FILE. The table of docs/performance.md is made of that:

    python tests/bench/bench_door.py --rows start,fresh,upstream,restore,heartbeats --json docs/data/door.json
    python tools/door_table.py --write
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(1, str(Path(__file__).parents[1] / "support"))

from minikube_py import Cluster
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.kubelet.config import numbered_nodes
from minikube_py.lab import environment

ROWS = ("start", "fresh", "upstream", "restore", "heartbeats")
FRESH = "import time; from minikube_py import Cluster; Cluster(nodes=3).start(); print(time.process_time())"
OBJECTS = 100
SETTLED_S = 320
"""Nodes report their status every 300 s."""
SHAPE = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "i"}]}}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b" * 500_000}}
Figures = dict[str, float]


@contextmanager
def timed(figures: Figures, name: str) -> Iterator[None]:
    wall_s, processor_s = time.perf_counter(), time.process_time()
    yield
    figures[f"{name} wall ms"] = 1000 * (time.perf_counter() - wall_s)
    figures[f"{name} processor ms"] = 1000 * (time.process_time() - processor_s)


def start_and_stop(watches: int, in_flight: bool = False) -> Figures:
    figures: Figures = {}
    cluster = Cluster(nodes=1)
    with timed(figures, "start"):
        cluster.start()
    with ExitStack() as open_watches:
        client = cluster.client.httpx()
        for _ in range(watches):
            watch = client.stream("GET", "/api/v1/nodes", params={"watch": "true"}, timeout=None)
            response = open_watches.enter_context(watch)
            # The watch is open once its first event is here.
            next(response.iter_lines())
        if in_flight:
            cluster.apply([{**SHAPE, "metadata": {"name": "a"}}])
            cluster.apply([{**MAP, "metadata": {"name": f"a{n}"}} for n in range(10)])
            cluster.wait("pod/a", phase="Running")
            for path in ("pods/a/log?follow=true", "configmaps"):
                open_watches.enter_context(client.stream("GET", f"/api/v1/namespaces/default/{path}", timeout=None))
        with timed(figures, "stop"):
            cluster.stop()
    return figures


def heartbeats(members: int, nodes: int, window_s: float) -> Figures:
    config = VirtualConfig(nodes=tuple(numbered_nodes(nodes)), members=members)
    with VirtualCluster(seed=7, config=config) as cluster:
        # By then every node has reported its status again, and been renewed often; the rest of a day is like it.
        cluster.advance(SETTLED_S)
        changes, processor_s = cluster.history.changes, time.process_time()
        cluster.advance(window_s)
        processor_s = time.process_time() - processor_s
        changes = cluster.history.changes - changes
    return {"times real time": window_s / processor_s, "changes per virtual s": changes / window_s}


def fresh() -> Figures:
    # As installed: pip compiles modules.
    compiles = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", FRESH]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=compiles)
    return {"start processor ms": 1000 * float(ran.stdout)}


def upstream() -> Figures:
    figures: Figures = {}
    # Ours alone needs no binaries.
    import servers

    begun_s = time.perf_counter()
    with servers.original() as server:
        figures["start wall ms"] = 1000 * (time.perf_counter() - begun_s)
        figures["start processor ms"] = 1000 * sum(server.cpu_s().values())
    return figures


def restore() -> Figures:
    figures: Figures = {}
    settings = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{n}"}} for n in range(OBJECTS)]
    pods = [{**SHAPE, "metadata": {"name": f"p{n}"}} for n in range(OBJECTS)]
    with Cluster(nodes=1) as cluster:
        cluster.apply(settings)
        snapshot = cluster.snapshot()
        cluster.apply(pods)
        cluster.wait("pods", ready=OBJECTS)
        with timed(figures, "100 pods created"):
            cluster.restore(snapshot)
        cluster.apply([{**each, "data": {"a": "b"}} for each in settings])
        with timed(figures, "100 maps changed"):
            cluster.restore(snapshot)
        cluster.apply(pods)
        cluster.wait("pods", ready=OBJECTS)
        snapshot = cluster.snapshot()
        cluster.apply([{**each, "metadata": {**each["metadata"], "labels": {"a": "b"}}} for each in pods])
        with timed(figures, "100 pods changed"):
            cluster.restore(snapshot)
    return figures


def works_of(options: argparse.Namespace) -> dict[str, Callable[[], Figures]]:
    found: dict[str, Callable[[], Figures]] = {}
    if "start" in options.rows:
        row = f"start and stop, {options.watches} watches"
        found[row] = lambda: start_and_stop(options.watches)
        found[f"{row}, two requests in flight"] = lambda: start_and_stop(options.watches, in_flight=True)
    plain = {"fresh": fresh, "upstream": upstream, "restore": restore}
    found |= {name: work for name, work in plain.items() if name in options.rows}
    if "heartbeats" in options.rows:
        for each in options.members:
            name = f"heartbeats of {options.nodes} nodes, {each} member{'s' if each > 1 else ''}"
            found[name] = lambda each=each: heartbeats(each, options.nodes, options.window_s)  # type: ignore[misc]
    return found


def measured(works: dict[str, Callable[[], Figures]], turns: int) -> dict[str, dict[str, list[float]]]:
    """By row and figure, one value a turn."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in works}
    for turn in range(turns):
        for name, work in works.items():
            print(f"turn {turn + 1} of {turns}: {name}", file=sys.stderr)
            for figure, value in work().items():
                found[name][figure].append(value)
    return found


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: text.split(","), default=["start", "heartbeats"], metavar="ROW,...")
    parser.add_argument("--turns", type=int, default=5, metavar="N")
    parser.add_argument("--watches", type=int, default=10, metavar="N")
    parser.add_argument("--nodes", type=int, default=1213, metavar="N")
    parser.add_argument("--members", type=lambda text: [int(each) for each in text.split(",")], default=[1, 3])
    parser.add_argument("--window-s", type=float, default=30.0, metavar="S")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if unknown := [each for each in options.rows if each not in ROWS]:
        parser.error(f"--rows: {', '.join(unknown)}: there are {', '.join(ROWS)}")
    return options


def main(arguments: list[str]) -> None:
    options = options_of(arguments)
    before = os.getloadavg()
    found = measured(works_of(options), options.turns)
    for row, figures in found.items():
        print(row)
        for name, values in figures.items():
            print(f"  {name:24} {statistics.median(values):12,.1f}  ({min(values):,.1f} to {max(values):,.1f})")
    print(f"load average {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after")
    if options.json is not None:
        here = asdict(environment.describe(Path(tempfile.gettempdir()), "in one process"))
        about = {"environment": here, "load": [before[0], os.getloadavg()[0]], "window_s": options.window_s}
        rows: dict[str, Any] = json.loads(options.json.read_bytes())["rows"] if options.json.exists() else {}
        rows |= {name: {**about, "figures": figures} for name, figures in found.items()}
        options.json.write_text(json.dumps({"rows": dict(sorted(rows.items()))}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
