"""etcd in both directions, beside etcd, interleaved in one run, each turn with new servers.

usage: PYTHONPATH=tests/support:tests/bench python tests/bench/bench_etcd_api.py [--rows api,kube,planes] [--turns N]
                                                                             [--count N] [--json FILE]

`api`: puts and linearizable reads on one member of ours and on etcd, by h2load, 256 in flight on 16 connections.
`kube`: kube-apiserver on our member and on etcd; creates by h2load on 64 connections, a list, events to 20 watches.
`planes`: creates to our API server on its own store, on etcd, and to kube-apiserver on etcd.
Values of 256 bytes, each synced before its answer, stores in the clear. `cpu_us`: of the server (`kube`: of the store,
`planes`: of all but h2load) for each request, in microseconds, which says more than the rate where others work too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import load as http
from bench_store import VALUE, cpu_s, grpc_put
from etcd_api import Caller
from needs import original_program
from ours import SERVE, serve
from ports import free_ports
from upstream_run import Parts, Upstream

from minikube_py.etcd.messages import pb

Row = dict[str, dict[str, float]]
KEY = b"/registry/pods/default/0-0"
CONNECTIONS, STREAMS = 16, 16
WARM = 2_000
HTTP_CONNECTIONS = 64
WATCHES = 20
MAPS = "/api/v1/namespaces/bench/configmaps"
WATCHED = "/api/v1/namespaces/watched/configmaps"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "c-"}, "data": {"a": "x" * 256}}
RATE = re.compile(r"finished in .*?, ([0-9.]+) req/s")


class Server(NamedTuple):
    port: int
    pid: int


Start = Callable[[Path], AbstractContextManager[Server]]
Side = Callable[[], AbstractContextManager[http.Server]]


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[Server]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    caller = Caller(f"127.0.0.1:{port}")
    try:
        while caller.call("KV/Range", pb.RangeRequest(key=KEY))[0] != "ok":
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} has ended: {process.returncode}")
        yield Server(port, process.pid)
    finally:
        caller.close()
        process.kill()
        process.wait()


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Server]:
    client, api = free_ports(2)
    secrets = ["init-secrets", "--dir", str(folder / "secrets")]
    subprocess.run([sys.executable, "-m", "minikube_py", *secrets], check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "minikube_py", "store", "--data-dir", str(folder / "data")]
    command += ["--secrets-dir", str(folder / "secrets" / "store"), "--listen", f"127.0.0.1:{client}"]
    with serving([*command, "--listen-client-urls", f"http://127.0.0.1:{api}"], api) as server:
        yield server


@contextlib.contextmanager
def theirs(folder: Path) -> Iterator[Server]:
    client, peer = free_ports(2)
    urls = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [str(original_program("etcd")), f"--data-dir={folder / 'data'}", "--log-level=error", "--name=one"]
    command += [
        f"--listen-client-urls={urls[0]}",
        f"--advertise-client-urls={urls[0]}",
        f"--listen-peer-urls={urls[1]}",
    ]
    command += [f"--initial-advertise-peer-urls={urls[1]}", f"--initial-cluster=one={urls[1]}"]
    with serving(command, client) as server:
        yield server


def load(server: Server, method: str, body: Path, count: int) -> dict[str, float]:
    command = ["h2load", "-c", str(CONNECTIONS), "-m", str(STREAMS), "-t", "1", "-d", str(body), "-n", str(count)]
    command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    url = f"http://127.0.0.1:{server.port}/etcdserverpb.KV/{method}"
    before_s = cpu_s(server.pid)
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    used_s = cpu_s(server.pid) - before_s
    found = RATE.search(out)
    if found is None or f"{count} succeeded" not in out:
        raise SystemExit(out)
    return {"per_s": float(found[1]), "cpu_us": used_s / count * 1e6}


def measured(server: Server, folder: Path, count: int) -> dict[str, dict[str, float]]:
    put, get = folder / "put", folder / "get"
    put.write_bytes(grpc_put(KEY, VALUE))
    message = pb.RangeRequest(key=KEY).SerializeToString()
    get.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    load(server, "Put", put, WARM)
    revision = revision_of(server)
    found = {"puts": load(server, "Put", put, count)}
    if revision_of(server) != revision + count:
        raise SystemExit("not all puts were done")
    return found | {"reads": load(server, "Range", get, count)}


def revision_of(server: Server) -> int:
    caller = Caller(f"127.0.0.1:{server.port}")
    _, answer = caller.call("KV/Range", pb.RangeRequest(key=KEY))
    caller.close()
    return int(answer["header"]["revision"])


def api(start: Start, count: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="etcd-api-") as folder, start(Path(folder)) as server:
        return measured(server, Path(folder), count)


def kube(start: Start, count: int) -> Row:
    with kube_on(start) as (upstream_server, store):
        http.namespace(upstream_server, "bench")
        http.h2load_creates(upstream_server, MAPS, MAP, WARM // 4, HTTP_CONNECTIONS)
        before_s = cpu_s(store.pid)
        creates = http.h2load_creates(upstream_server, MAPS, MAP, count, HTTP_CONNECTIONS)
        created = {"per_s": creates, "cpu_us": (cpu_s(store.pid) - before_s) / count * 1e6}
        took_s, _ = http.timed_get(upstream_server, MAPS)
        http.namespace(upstream_server, "watched")
        watchers = http.Watchers(upstream_server, f"{WATCHED}?watch=true", WATCHES, count // 4, 120)
        started = time.monotonic()
        http.h2load_creates(upstream_server, WATCHED, MAP, count // 4, HTTP_CONNECTIONS)
        events = WATCHES * (count // 4) / (watchers.last_seen_s() - started)
        return {"creates": created, "lists": {"per_s": 1 / took_s}, "watched events": {"per_s": events}}


@contextlib.contextmanager
def kube_on(start: Start) -> Iterator[tuple[http.Server, Server]]:
    with tempfile.TemporaryDirectory(prefix="etcd-api-") as name, start(Path(name)) as store:
        folder = Path(name, "kube")
        folder.mkdir()
        found = Upstream(folder)
        try:
            url = found._start_api_server([f"http://127.0.0.1:{store.port}"], Parts())
            pids = {"store": store.pid, "kube-apiserver": found.children["kube-apiserver"].pid}
            yield http.Server("kube-apiserver", url, found.token, pids), store
        finally:
            found.kill()


def plane(side: Side, count: int) -> Row:
    with side() as server:
        http.namespace(server, "bench")
        http.h2load_creates(server, MAPS, MAP, WARM // 4, HTTP_CONNECTIONS)
        before_s = sum(server.cpu_s().values())
        rate = http.h2load_creates(server, MAPS, MAP, count, HTTP_CONNECTIONS)
        return {"creates": {"per_s": rate, "cpu_us": (sum(server.cpu_s().values()) - before_s) / count * 1e6}}


@contextlib.contextmanager
def own_store() -> Iterator[http.Server]:
    with serve() as ready:
        yield http.Server("ours", ready["url"], ready["token"], {"minikube-py": ready["pid"]})


@contextlib.contextmanager
def on_etcd() -> Iterator[http.Server]:
    with tempfile.TemporaryDirectory(prefix="etcd-api-") as folder, theirs(Path(folder)) as etcd:
        script = SERVE.replace('ETCD = ""', f'ETCD = "http://127.0.0.1:{etcd.port}"')
        with serve((), (sys.executable, "-c", script)) as ready:
            pids = {"minikube-py": ready["pid"], "etcd": etcd.pid}
            yield http.Server("ours on etcd", ready["url"], ready["token"], pids)


@contextlib.contextmanager
def kube_plane() -> Iterator[http.Server]:
    with kube_on(theirs) as (server, _):
        yield server


ROWS: dict[str, dict[str, Callable[[int], Row]]] = {
    "api": {"ours": partial(api, ours), "etcd": partial(api, theirs)},
    "kube": {"on ours": partial(kube, ours), "on etcd": partial(kube, theirs)},
    "planes": {
        "ours on etcd": partial(plane, on_etcd),
        "ours on ours": partial(plane, own_store),
        "kube-apiserver on etcd": partial(plane, kube_plane),
    },
}
"""The first side of each is compared with the others."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, dict[str, list[Row]]] = {}
    for row in arguments.rows.split(","):
        sides = found[row] = {side: [] for side in ROWS[row]}
        for _ in range(arguments.turns):
            for side, run in ROWS[row].items():
                sides[side].append(run(arguments.count))
                print(row, side, json.dumps(sides[side][-1]), f"load {os.getloadavg()[0]:.0f}", flush=True)
        show(row, sides)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def show(row: str, sides: dict[str, list[Row]]) -> None:
    """Medians, and the ratio of the first side to each other."""
    first, *others = sides
    for what, units in sides[first][0].items():
        for unit in units:
            mine, *rest = (statistics.median(each[what][unit] for each in sides[side]) for side in sides)
            compared = "   ".join(f"{side} {value:,.1f} ({mine / value:.3f})" for side, value in zip(others, rest))
            print(f"{row}: {what}, {unit}: {first} {mine:,.1f}   {compared}")


if __name__ == "__main__":
    main()
