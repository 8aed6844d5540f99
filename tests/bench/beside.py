"""Upstream and ours beside each other, interleaved, in one run; prints ratios, writes JSON.

usage: PYTHONPATH=tests/support python tests/bench/beside.py
           [--rows creates,lists,watchers,store,binds,constraints,query,kubelets] [--adaptive] [--turns N] [--out FILE]

Needs h2load, and upstream as `make upstream` builds it.
On tmpfs, or without the peer, it exits with 1: a ratio to nothing proves nothing. Absolute figures on shared cores are
noise; compare within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bench_query
import bench_store
import load
import upstream
from servers import Server, original, ours, ours_adaptive

from minikube_py.lab import environment
from minikube_py.scheduler.config import SCORE_ALL_NODES

Start = Callable[..., AbstractContextManager[Server]]
PODS = "/api/v1/namespaces/bench/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def creates(start: Start) -> dict[str, float]:
    """Pod creates over HTTPS, 64 keep-alive connections."""
    with start() as server:
        load.namespace(server, "bench")
        load.h2load_creates(server, PODS, load.pod(), 1_000, 64)
        before = sum(server.cpu_s().values())
        rate = load.h2load_creates(server, PODS, load.pod(), 10_000, 64)
        return {"pod creates/s": rate, "CPU ms per create": (sum(server.cpu_s().values()) - before) / 10}


def lists(start: Start) -> dict[str, float]:
    """LIST of 15,000 pods, as objects, as Table, as a page of 500; and memory."""
    with start() as server:
        load.namespace(server, "bench")
        empty = sum(server.memory_bytes().values())
        load.h2load_creates(server, PODS, load.pod(), 15_000, 64)
        whole_s, size_bytes = load.timed_get(server, PODS)
        table_s, _ = load.timed_get(server, PODS, TABLE, times=3)
        page_s, _ = load.timed_get(server, PODS + "?limit=500", times=15)
        memory = sum(server.memory_bytes().values())
        return {
            "LIST 15,000 pods s": whole_s,
            "LIST MB": size_bytes / 1e6,
            "LIST as Table s": table_s,
            "page of 500 ms": page_s * 1e3,
            "memory MB": memory / 1e6,
            "KB per pod": (memory - empty) / 15_000 / 1e3,
        }


def watchers(start: Start) -> dict[str, float]:
    """50 watchers while pods are created: events per second until the last watcher has seen the last event."""
    count, pods = 50, 4_000
    with start() as server:
        load.namespace(server, "bench")
        watching = load.Watchers(server, PODS + "?watch=true", count, pods, 120)
        started = time.monotonic()
        load.h2load_creates(server, PODS, load.pod(), pods, 64)
        created_s = time.monotonic() - started
        took_s = watching.last_seen_s() - started
        return {"events/s to 50 watchers": count * pods / took_s, "creates/s meanwhile": pods / created_s}


def binds(start: Start) -> dict[str, float]:
    """Pods created over HTTPS by 16 connections while they are scheduled: until a watch has seen the last bound."""
    result: dict[str, float] = {}
    for nodes in (1_000, 5_000):
        with start("scheduler") as server:
            bound_s, created_s = _bound(server, nodes, {"": load.pod()}, 5_000)[""]
            result[f"pods bound/s, {nodes} nodes"] = 5_000 / bound_s
            result[f"creates/s meanwhile, {nodes} nodes"] = 5_000 / created_s
    return result


def constraints(start: Start) -> dict[str, float]:
    """As `binds`, of pods with one constraint each, one kind after the other on the same nodes in three zones, after
    some that warm both sides up."""
    result: dict[str, float] = {}
    for nodes in (1_000, 5_000):
        with start("scheduler") as server:
            took = _bound(server, nodes, {"warm-up": load.pod(), **constrained()}, CONSTRAINED_PODS)
            del took["warm-up"]
            for kind, (took_s, _) in took.items():
                result[f"{kind}, pods/s, {nodes} nodes"] = CONSTRAINED_PODS / took_s
    return result


CONSTRAINED_PODS = 1_000
"""At most one a node, for anti-affinity by host."""


def constrained() -> dict[str, dict[str, Any]]:
    """A pod by its constraint."""
    host, zone = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
    required, preferred = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))

    def of(name: str, spec: dict[str, Any]) -> dict[str, Any]:
        made = load.pod()
        made["metadata"]["labels"]["constraint"] = name
        return {**made, "spec": {**made["spec"], **spec}}

    def near(name: str, key: str) -> dict[str, Any]:
        return {"topologyKey": key, "labelSelector": {"matchLabels": {"constraint": name}}}

    spread = {**near("spread", zone), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    weighted = {"weight": 1, "podAffinityTerm": near("preferred", host)}
    return {
        "none": of("none", {}),
        "anti-affinity by host": of("apart", {"affinity": {"podAntiAffinity": {required: [near("apart", host)]}}}),
        "affinity by zone": of("near", {"affinity": {"podAffinity": {required: [near("near", zone)]}}}),
        "spread by zone": of("spread", {"topologySpreadConstraints": [spread]}),
        "preferred anti-affinity": of("preferred", {"affinity": {"podAntiAffinity": {preferred: [weighted]}}}),
    }


def _bound(server: Server, nodes: int, bodies: dict[str, dict[str, Any]], pods: int) -> dict[str, tuple[float, float]]:
    """Seconds until `pods` pods of each body are bound, one body after the other, and until they are created."""
    load.namespace(server, "bench")
    load.send_all(server, 16, [("POST", "/api/v1/nodes", load.node(f"node-{i}")) for i in range(nodes)])
    result = {}
    for name, body in bodies.items():
        # A pod enters this watch when it is bound, and no kubelet changes it afterwards: one event per pod. It begins
        # after the earlier ones: a watch is sent these in order of names, and the last does not tell where to resume.
        watch = f"{PODS}?watch=true&fieldSelector=spec.nodeName!=&resourceVersion={load.version(server, PODS)}"
        bound = load.Watchers(server, watch, 1, pods, 240)
        started = time.monotonic()
        load.h2load_creates(server, PODS, body, pods, 16)
        created_s = time.monotonic() - started
        result[name] = bound.last_seen_s() - started, created_s
    return result


def kubelets(start: Start) -> dict[str, float]:
    """5,000 nodes Ready; 5,000 pre-bound pods Running; deleted one by one until gone."""
    nodes = pods = 5_000
    with start("kubelets") as server:
        load.namespace(server, "bench")
        started = time.perf_counter()
        load.send_all(server, 16, [("POST", "/api/v1/nodes", bare_node(f"node-{i}")) for i in range(nodes)])
        poll(lambda: count_where(server, "/api/v1/nodes", ready) == nodes, 120)
        nodes_s = time.perf_counter() - started
        started = time.perf_counter()
        load.send_all(server, 16, [("POST", PODS, load.pod(f"p-{i}", f"node-{i}")) for i in range(pods)])
        poll(lambda: field_count(server, "status.phase!=Running") == 0, 180)
        running_s = time.perf_counter() - started
        started = time.perf_counter()
        load.send_all(server, 16, [("DELETE", f"{PODS}/p-{i}", None) for i in range(pods)])
        poll(lambda: field_count(server, "metadata.namespace=bench") == 0, 180)
        return {
            "5,000 nodes Ready s": nodes_s,
            "5,000 pods Running s": running_s,
            "5,000 pods deleted s": time.perf_counter() - started,
        }


def store(of: str) -> dict[str, float]:
    """Puts of 256 bytes in the store's own protocol, each synced before its answer."""
    result: dict[str, float] = {}
    for in_flight in (256, 1):
        with bench_store.fresh_folder() as folder:
            if of == "ours":
                run = bench_store.native(folder, "auto", in_flight, STORE_RUN_S)
            else:
                run = bench_store.peer_puts(folder, upstream.binary("etcd"), in_flight, STORE_RUN_S)
        result[f"puts/s, {in_flight} in flight"] = run["puts/s"]
    return result


def query(of: str) -> dict[str, float]:
    """Which of 100,000 nodes have 64 CPUs and 256Gi free, the first 10; etcd's client ranges, decodes and filters."""
    return bench_query.query_ours() if of == "ours" else bench_query.query_etcd()


STORE_RUN_S = 4.0
ROWS: dict[str, Callable[[Start], dict[str, float]]] = {
    f.__name__: f for f in (creates, lists, watchers, binds, constraints, kubelets)
}
STORE_ROWS: dict[str, Callable[[str], dict[str, float]]] = {f.__name__: f for f in (store, query)}
ALL_ROWS = ("creates", "lists", "watchers", "store", "binds", "constraints", "query", "kubelets")
SIDES: dict[str, Start] = {"original": original, "ours": ours}
LOWER_IS_BETTER = (" s", " ms", "MB", "KB per pod", "CPU ms per create")


def bare_node(name: str) -> dict[str, Any]:
    made = load.node(name)
    made["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    del made["status"]["conditions"]
    return made


def ready(item: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", ()))


def count_where(server: Server, path: str, wanted: Callable[[dict[str, Any]], bool]) -> int:
    connection = load.Connection(server)
    try:
        return sum(map(wanted, connection.must("GET", path)["items"]))
    finally:
        connection.close()


def field_count(server: Server, selector: str) -> int:
    """How many pods match, by listing them."""
    connection = load.Connection(server)
    try:
        return len(connection.must("GET", f"{PODS}?fieldSelector={selector}&resourceVersion=0")["items"])
    finally:
        connection.close()


def poll(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not reached within {timeout_s} s")
        time.sleep(0.2)


def show(row: str, sides: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    lines = []
    for figure in sides["ours"][0]:
        theirs = statistics.median(run[figure] for run in sides["original"])
        mine = statistics.median(run[figure] for run in sides["ours"])
        better = theirs / mine if figure.endswith(LOWER_IS_BETTER) else mine / theirs
        lines.append(
            {
                "row": row,
                "figure": figure,
                "original": theirs,
                "ours": mine,
                "times_better": better,
                "runs": {side: [run[figure] for run in runs] for side, runs in sides.items()},
            }
        )
        print(f"  {figure:<34} {theirs:>12,.2f} {mine:>12,.2f} {better:>9.2f}x", flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ALL_ROWS), help="which rows, by name")
    parser.add_argument("--turns", type=int, default=1, help="how often each side runs each row (median is shown)")
    parser.add_argument("--out", default="results/beside.json")
    adaptive_help = "our scheduler scores upstream's adaptive share of the nodes, not all"
    parser.add_argument("--adaptive", action="store_true", help=adaptive_help)
    args = parser.parse_args()
    if args.adaptive:
        SIDES["ours"] = ours_adaptive
    if lacking := bench_store.lacking():
        raise SystemExit(f"there is no peer to measure beside: {lacking}")
    layout = "ours one process, upstream one for each part; the load from another, on the same cores"
    here = environment.describe(Path(tempfile.gettempdir()), layout, 0 if args.adaptive else SCORE_ALL_NODES)
    print("  ".join(f"{key}: {value}" for key, value in asdict(here).items()))
    if here.filesystem == "tmpfs":
        raise SystemExit("the temporary folder is on tmpfs, where fsync costs nothing: set TMPDIR to a disk")
    unknown = set(args.rows.split(",")) - {*ALL_ROWS}
    if unknown:
        raise SystemExit(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(ALL_ROWS)}")
    lines: list[dict[str, Any]] = []
    for row in args.rows.split(","):
        print(f"{row}: {(ROWS.get(row) or STORE_ROWS[row]).__doc__}\n  {'':<34} {'original':>12} {'ours':>12}")
        # Over the last minute, before we add to it: other processes slow both sides, not equally.
        others = round(os.getloadavg()[0], 1)
        sides: dict[str, list[dict[str, float]]] = {"original": [], "ours": []}
        for _ in range(args.turns):
            for of, runs in sides.items():
                runs.append(ROWS[row](SIDES[of]) if row in ROWS else STORE_ROWS[row](of))
        lines += [{**line, "load_average_before": others} for line in show(row, sides)]
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"environment": asdict(here), "figures": lines}, indent=1, default=str) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    sys.exit(main())
