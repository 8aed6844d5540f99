"""Three store members on one host beside three of etcd: puts, linearizable reads, the stall when a leader dies.

usage: python tests/bench/bench_cluster.py [--rows puts,reads,stall,restart] [--turns N] [--seconds S] [--no-peer]

256-byte values, each synced on a majority before its answer; in the clear on both sides, as `tools/upstream` runs etcd.
Interleaved in one run; the load comes from another process. Needs `make upstream` and h2load for the peer.
On tmpfs, where a sync costs nothing, it exits with 1. `restart`: a sole member with a million keys, killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import bench_store
from bench_store import TOKEN, VALUE, cpu_s, free_port, grpc_put, milliseconds, upstream

from minikube_py.env import SystemClock, SystemDisk
from minikube_py.errors import MinikubeError
from minikube_py.lab import environment
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put, RangeRequest
from minikube_py.raft.configuration import NodeId
from minikube_py.store.bootstrap import Answer as Who
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.membership import Member
from minikube_py.store.peers import Peers
from minikube_py.store.protocol import Op, frame
from minikube_py.store.replica_config import Bootstrap
from minikube_py.store.server import StoreServer

MEMBERS = 3
CLUSTER_ID = 77
IN_FLIGHT = (256, 64, 1)
READS_IN_FLIGHT = 256
RESTART_KEYS = 1_000_000


# -- our side: a process per member -----------------------------------------------------------------------------------


async def serve(own: int, folder: Path, ports: list[int]) -> None:
    """Runs one member with its links and server until stdin closes. `ports`: first the peers', then the clients'."""
    count = len(ports) // 2
    members = tuple(
        Member(NodeId(i + 1), f"store-{i + 1}", f"127.0.0.1:{ports[i]}", f"127.0.0.1:{ports[count + i]}")
        for i in range(count)
    )
    me, clock, rng = members[own], SystemClock(), random.Random()
    member = StoreMember(SystemDisk(folder), clock, rng, MemberConfig(own_gc=True))
    peers = Peers(me, TOKEN, clock, rng, say=lambda text: None)
    await peers.listen("127.0.0.1", ports[own])
    await member.start(Bootstrap(CLUSTER_ID, me.id, members), peers)
    peers.begin(member, CLUSTER_ID, lambda: Who(me), lambda change, joined: None, members)
    server = StoreServer(member, TOKEN, "127.0.0.1", ports[count + own])
    await server.start()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


class Cluster(NamedTuple):
    """`processes[i]` serves clients at `ports[i]`."""

    processes: list[subprocess.Popen[str]]
    ports: list[int]

    def client(self) -> StoreClient:
        endpoints = [Endpoint("127.0.0.1", port, TOKEN) for port in self.ports]
        return StoreClient(endpoints, SystemClock(), random.Random())

    def leader(self) -> int:
        """The index of the leader, once it has led for a second."""
        while True:
            found = asyncio.run(_leader(self))
            time.sleep(1)
            if asyncio.run(_leader(self)) == found:
                return found

    def cpu_s(self) -> float:
        return sum(cpu_s(process.pid) for process in self.processes)


async def _leader(cluster: Cluster) -> int:
    """Queries each member in turn until one is the leader."""
    while True:
        for place, port in enumerate(cluster.ports):
            client = StoreClient([Endpoint("127.0.0.1", port, TOKEN)], SystemClock(), random.Random())
            with contextlib.suppress(MinikubeError):
                await client.start()
                status = await client.status()
                if status["role"] == "LEADER":
                    await client.close()
                    return place
            await client.close()
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def cluster(folder: Path, members: int = MEMBERS) -> Iterator[Cluster]:
    ports = [free_port() for _ in range(2 * members)]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                bench_store.child_of(__file__, "--serve", str(own), str(folder / str(own)), ",".join(map(str, ports)))
            )
            for own in range(members)
        ]
        for process in processes:
            if process.stdout.readline().strip() != "ready":
                raise SystemExit("a member did not start")
        yield Cluster(processes, ports[members:])


def our_puts(folder: Path, in_flight: int, seconds: float) -> dict[str, float]:
    with cluster(folder) as ours:
        leader = ours.leader()
        before_s = ours.cpu_s()
        run = asyncio.run(bench_store.drive(ours.ports[leader], in_flight, seconds))
        return run | {"servers' CPU us each": (ours.cpu_s() - before_s) / (run["puts/s"] * seconds) * 1e6}


def read_frames(_: int) -> list[bytes]:
    request = pack(RangeRequest(b"/registry/pods/default/0-0"))
    return [frame((i + 1, Op.RANGE, request)) for i in range(1000)]


def our_reads(folder: Path, in_flight: int, seconds: float) -> dict[str, float]:
    with cluster(folder) as ours:
        port = ours.ports[ours.leader()]
        asyncio.run(bench_store.drive(port, 16, 0.2))
        run = asyncio.run(bench_store.drive(port, in_flight, seconds, read_frames))
        return {"reads/s": run["puts/s"], "p50 ms": run["p50 ms"]}


# -- the stall: puts one after another while the leader is killed ------------------------------------------------------


async def _our_stall(ours: Cluster, leader: int) -> float:
    """The longest wait of a put by a client that follows the leader."""
    client = ours.client()
    await client.start()
    longest_s, killed_at = 0.0, 0.0
    started = time.monotonic()
    number = 0
    while (now := time.monotonic()) < started + 5:
        if not killed_at and now > started + 1:
            ours.processes[leader].send_signal(signal.SIGKILL)
            killed_at = now
        await client.txn((), (Put(f"/registry/stall/{number % 100}".encode(), VALUE),))
        longest_s = max(longest_s, time.monotonic() - now)
        number += 1
    await client.close()
    return longest_s


def our_stall(folder: Path) -> dict[str, float]:
    with cluster(folder) as ours:
        return {"stall s": asyncio.run(_our_stall(ours, ours.leader()))}


# -- a sole member with many keys, killed and started again ------------------------------------------------------------


def our_restart(folder: Path) -> dict[str, float]:
    with cluster(folder, 1) as ours:
        asyncio.run(_fill(ours.ports[0]))
        ours.processes[0].kill()
        ours.processes[0].wait()
        ports = [free_port() for _ in range(2)]
        started = time.monotonic()
        again = (__file__, "--serve", "0", str(folder / "0"), ",".join(map(str, ports)))
        with bench_store.child_of(*again) as process:
            process.stdout.readline()
            took_s = time.monotonic() - started
            count = asyncio.run(_count(ports[1]))
        if count != RESTART_KEYS:
            raise SystemExit(f"{count} of {RESTART_KEYS} keys are there")
        return {"restart with 1,000,000 keys s": took_s}


async def _fill(port: int) -> None:
    client = StoreClient([Endpoint("127.0.0.1", port, TOKEN)], SystemClock(), random.Random())
    await client.start()
    for start in range(0, RESTART_KEYS, 10_000):
        txns = [
            client.txn((), tuple(Put(f"/registry/pods/{i:07d}".encode(), VALUE) for i in range(first, first + 100)))
            for first in range(start, start + 10_000, 100)
        ]
        await asyncio.gather(*txns)
    await client.close()


async def _count(port: int) -> int:
    client = StoreClient([Endpoint("127.0.0.1", port, TOKEN)], SystemClock(), random.Random())
    await client.start()
    result = await client.range(RangeRequest(b"/registry/pods/", b"/registry/pods0", count_only=True))
    await client.close()
    return result.count


# -- the peer ---------------------------------------------------------------------------------------------------------


class Etcd(NamedTuple):
    ports: list[int]
    pids: list[int]

    def leader(self) -> int:
        """The index of the leader."""
        for place, status in enumerate(self._status()):
            if status["leader"] == status["header"]["member_id"]:
                return place
        raise SystemExit("etcd has no leader")

    def revision(self) -> int:
        return int(self._status()[self.leader()]["header"]["revision"])

    def _status(self) -> list[dict[str, Any]]:
        ends = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        command = [str(upstream.binary("etcdctl")), "--endpoints", ends, "endpoint", "status"]
        out = subprocess.run([*command, "-w", "json"], capture_output=True, text=True, check=True).stdout
        found = {each["Endpoint"].rsplit(":", 1)[1]: each["Status"] for each in json.loads(out)}
        return [found[str(port)] for port in self.ports]


@contextlib.contextmanager
def etcd() -> Iterator[Etcd]:
    with upstream.running("etcd", "--members", str(MEMBERS)) as ready:
        ports = [int(end.rsplit(":", 1)[1]) for end in ready["etcd"]]
        yield Etcd(ports, list(ready["pids"].values()))


def _h2load(port: int, method: str, body: Path, in_flight: int, count: int) -> tuple[float, str]:
    """Seconds for `count` requests, and h2load's output."""
    connections = min(16, in_flight)
    load = ["h2load", "-c", str(connections), "-m", str(in_flight // connections), "-t", "1", "-d", str(body)]
    load += ["-H", "content-type: application/grpc", "-H", "te: trailers", "-n", str(count)]
    started = time.perf_counter()
    url = f"http://127.0.0.1:{port}/etcdserverpb.KV/{method}"
    out = subprocess.run([*load, url], capture_output=True, text=True, check=True).stdout
    return time.perf_counter() - started, out


def _p50_ms(out: str) -> float:
    match = re.search(r"time for request:\s+\S+\s+\S+\s+(\S+)", out)
    return milliseconds(match[1]) if match else float("nan")


def their_puts(folder: Path, in_flight: int, seconds: float) -> dict[str, float]:
    body = folder.parent / "put.grpc"
    body.write_bytes(grpc_put(b"/registry/pods/default/0-0", VALUE))
    with etcd() as peer:
        port = peer.ports[peer.leader()]
        _h2load(port, "Put", body, in_flight, 512)
        before, before_s = peer.revision(), sum(map(cpu_s, peer.pids))
        count = max(in_flight, int(seconds * {256: 7_600, 64: 5_300, 1: 920}[in_flight]))
        took_s, out = _h2load(port, "Put", body, in_flight, count)
        used_s = sum(map(cpu_s, peer.pids)) - before_s
        if (done := peer.revision() - before) != count:
            raise SystemExit(f"etcd did {done} of {count} puts:\n{out}")
        return {"puts/s": count / took_s, "p50 ms": _p50_ms(out), "servers' CPU us each": used_s / count * 1e6}


def their_reads(folder: Path, in_flight: int, seconds: float) -> dict[str, float]:
    key = b"/registry/pods/default/0-0"
    put, get = folder.parent / "put.grpc", folder.parent / "get.grpc"
    put.write_bytes(grpc_put(key, VALUE))
    message = b"\x0a" + bytes((len(key),)) + key
    get.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    with etcd() as peer:
        port = peer.ports[peer.leader()]
        _h2load(port, "Put", put, 1, 1)
        count = int(seconds * 15_000)
        took_s, out = _h2load(port, "Range", get, in_flight, count)
        if f"{count} succeeded" not in out:
            raise SystemExit(f"etcd did not answer all reads:\n{out}")
        return {"reads/s": count / took_s, "p50 ms": _p50_ms(out)}


# -- all of it --------------------------------------------------------------------------------------------------------


def rows(arguments: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[Path], dict[str, float]]]]:
    """(row, side, runner), interleaved."""
    wanted, seconds, peer = arguments.rows.split(","), arguments.seconds, not arguments.no_peer
    for _ in range(arguments.turns):
        for in_flight in IN_FLIGHT if "puts" in wanted else ():
            yield f"puts, {in_flight} in flight", "ours", lambda f, n=in_flight: our_puts(f, n, seconds)
            if peer:
                yield f"puts, {in_flight} in flight", "etcd", lambda f, n=in_flight: their_puts(f, n, seconds)
        if "reads" in wanted:
            yield "linearizable reads", "ours", lambda folder: our_reads(folder, READS_IN_FLIGHT, seconds)
            if peer:
                yield "linearizable reads", "etcd", lambda folder: their_reads(folder, READS_IN_FLIGHT, seconds)
        if "stall" in wanted:
            yield "leader killed", "ours", our_stall
    if "restart" in wanted:
        yield "restart", "ours", our_restart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="puts,reads,stall,restart")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/cluster.json"))
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        own, folder, ports = arguments.serve
        asyncio.run(serve(int(own), Path(folder), [int(port) for port in ports.split(",")]))
        return
    here = environment.describe(Path(tempfile.gettempdir()), "three members and the load in processes, on one host")
    print("  ".join(f"{key}: {value}" for key, value in asdict(here).items()))
    if here.filesystem == "tmpfs":
        raise SystemExit("the temporary folder is on tmpfs, where a sync costs nothing: set TMPDIR to a disk")
    if not arguments.no_peer and (lacking := bench_store.lacking()):
        raise SystemExit(f"no peer: {lacking}; --no-peer measures ours alone")
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    for row, side, run in rows(arguments):
        with bench_store.fresh_folder() as folder:
            figures = run(folder)
        results.setdefault(row, {}).setdefault(side, []).append(figures)
        told = "   ".join(f"{name} {value:,.3f}" for name, value in figures.items())
        print(f"  {row:<24} {side:<5} {told}", flush=True)
    print("\nmedians")
    table = [line for row, sides in results.items() for line in medians(row, sides)]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"environment": asdict(here), "figures": table}, indent=1, default=str) + "\n")
    print(f"written to {arguments.out}")


def medians(row: str, sides: dict[str, list[dict[str, float]]]) -> Iterator[dict[str, Any]]:
    for figure in sides["ours"][0]:
        line: dict[str, Any] = {"row": row, "figure": figure, "runs": sides}
        for side, runs in sides.items():
            if figure in runs[0]:
                line[side] = statistics.median(run[figure] for run in runs)
        ratio = ""
        if "etcd" in line:
            line["ratio"] = line["ours"] / line["etcd"]
            ratio = f"etcd {line['etcd']:>12,.2f}   {line['ratio']:6.2f} x"
        print(f"  {row:<24} {figure:<30} {line['ours']:>12,.2f}   {ratio}")
        yield line


if __name__ == "__main__":
    main()
