"""Puts per second of the store, over the native protocol and within the process, alone or beside a real etcd.

usage: python tests/bench/bench_store.py [--peer] [--seconds S] [--turns N] [--fsync auto|inline|thread] [--out FILE]

256-byte values, every put synced to disk before its answer; the load comes from another process than the server's.
`--peer` runs etcd (as `make upstream` built it) under h2load interleaved with ours in the same run, and
prints ratios. Without the peer, or on tmpfs where a sync costs nothing, `--peer` exits with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minikube_py.env import SystemClock, SystemDisk, SystemFile
from minikube_py.lab import environment
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put
from minikube_py.store.framing import FrameReader, frame
from minikube_py.store.limits import FRAME_BYTES_MAX
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.protocol import GREETING, VERSION, Answer, Op
from minikube_py.store.server import StoreServer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import upstream

TOKEN = "bench"
VALUE = bytes(range(256))
KEYS = 20_000
CONNECTIONS = 4


# -- the server's side ------------------------------------------------------------------------------------------------


async def serve(folder: Path, fsync: str) -> None:
    """A member behind the native protocol, until stdin closes."""
    member = StoreMember(SystemDisk(folder), SystemClock(), random.Random(), MemberConfig(fsync=fsync, own_gc=True))
    await member.start()
    server = StoreServer(member, TOKEN)
    await server.start()
    print(server.address[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    metrics = member.metrics()
    await server.stop()
    await member.stop()
    print(json.dumps(metrics), flush=True)


class SlowFile(SystemFile):
    """A file on a slower disk: each sync takes `delay_s` longer, without the GIL, like a real one."""

    delay_s = 0.0

    def sync(self) -> None:
        super().sync()
        if self.delay_s:
            time.sleep(self.delay_s)


class SlowDisk(SystemDisk):
    def open(self, name: str, *, create: bool = False) -> SlowFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return SlowFile(os.open(self.folder / name, flags, 0o600))


async def embedded(args: argparse.Namespace) -> None:
    """Puts by tasks in the member's process; a callback keeps the loop busy for `busy_us` of each millisecond, and
    counts its turns."""
    fsync, in_flight, seconds, busy_us = args.fsync, args.in_flight, args.seconds, args.busy_us
    SlowFile.delay_s = args.sync_delay_us / 1e6
    config = MemberConfig(fsync=fsync, own_gc=True)
    member = StoreMember(SlowDisk(args.embedded), SystemClock(), random.Random(), config)
    await member.start()
    storage = member.storage
    latencies: list[float] = []
    stop_at = time.perf_counter() + seconds
    loop = asyncio.get_running_loop()
    turns = 0

    def occupy() -> None:
        nonlocal turns
        turns += 1
        until = time.perf_counter() + busy_us / 1e6
        while time.perf_counter() < until:
            pass
        if time.perf_counter() < stop_at:
            loop.call_later(max(0.0, (1000 - busy_us) / 1e6), occupy)

    async def one(worker: int) -> None:
        ops = [(Put(f"/registry/pods/default/{worker}-{i}".encode(), VALUE),) for i in range(max(1, KEYS // in_flight))]
        turn = 0
        while (now := time.perf_counter()) < stop_at:
            await storage.txn((), ops[turn % len(ops)])
            latencies.append(time.perf_counter() - now)
            turn += 1

    if busy_us:
        occupy()
    started = time.perf_counter()
    await asyncio.gather(*(one(worker) for worker in range(in_flight)))
    took_s = time.perf_counter() - started
    await member.stop()
    print(json.dumps(figures(latencies, took_s) | {"other work": turns * busy_us / 1e6 / took_s}), flush=True)


# -- the load's side --------------------------------------------------------------------------------------------------


def figures(latencies: list[float], took_s: float) -> dict[str, float]:
    ordered = sorted(latencies)
    return {
        "puts/s": len(ordered) / took_s,
        "p50 ms": ordered[len(ordered) // 2] * 1e3,
        "p99 ms": ordered[len(ordered) * 99 // 100] * 1e3,
    }


def put_frames(worker: int) -> list[bytes]:
    return [
        frame((i + 1, Op.COMMAND, pack(Put(f"/registry/pods/default/{worker}-{i}".encode(), VALUE))))
        for i in range(KEYS // CONNECTIONS)
    ]


class Load(asyncio.Protocol):
    """Keeps `window` of the requests in `frames` in flight on one connection."""

    def __init__(self, frames: list[bytes], window: int) -> None:
        self.window = window
        self.frames = frames
        self.turn = 0
        self.reader = FrameReader(FRAME_BYTES_MAX)
        self.ready = asyncio.get_running_loop().create_future()
        self.sent: deque[tuple[float, int]] = deque()
        self.latencies: list[float] = []
        self.stop_at: float | None = None
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.write(frame((GREETING.magic, VERSION, TOKEN, 0)))

    def send(self, count: int) -> None:
        frames, turn = self.frames, self.turn
        self.transport.write(b"".join([frames[(turn + i) % len(frames)] for i in range(count)]))
        self.turn += count
        self.sent.append((time.perf_counter(), count))

    def data_received(self, data: bytes) -> None:
        answers = self.reader.feed(data)
        if not self.ready.done():
            self.ready.set_result(None)
            return
        now = time.perf_counter()
        # Messages under 0 are unsolicited.
        answers = [answer for answer in answers if answer[0]]
        for answer in answers:
            if answer[1] != Answer.OK:
                raise SystemExit(f"a request failed: {answer}")
        # Responses of a connection are in order, so they belong to the oldest pending batches.
        left = len(answers)
        while left:
            at, count = self.sent.popleft()
            taken = min(left, count)
            self.latencies.extend([now - at] * taken)
            left -= taken
            if taken < count:
                self.sent.appendleft((at, count - taken))
        if self.stop_at is None or now < self.stop_at:
            self.send(len(answers))
        elif not self.sent and not self.done.done():
            self.done.set_result(None)


async def drive(
    port: int, in_flight: int, seconds: float, frames: Callable[[int], list[bytes]] = put_frames
) -> dict[str, float]:
    """`frames`: the i-th connection's requests, repeated."""
    loop = asyncio.get_running_loop()
    connections = min(CONNECTIONS, in_flight)
    loads = [
        (await loop.create_connection(lambda i=i: Load(frames(i), in_flight // connections), "127.0.0.1", port))[1]
        for i in range(connections)
    ]
    for load in loads:
        await load.ready
    started = time.perf_counter()
    for load in loads:
        load.stop_at = started + seconds
        load.send(load.window)
    for load in loads:
        await load.done
    took_s = time.perf_counter() - started
    for load in loads:
        load.transport.close()
    return figures([latency for load in loads for latency in load.latencies], took_s)


@contextlib.contextmanager
def child_of(script: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when its stdin closes."""
    process = subprocess.Popen(
        [sys.executable, script, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def child(*args: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return child_of(__file__, *args)


def native(folder: Path, fsync: str, in_flight: int, seconds: float) -> dict[str, float]:
    with child("--serve", str(folder), "--fsync", fsync) as process:
        port = int(process.stdout.readline())
        before_s = cpu_s(process.pid)
        run = asyncio.run(drive(port, in_flight, seconds))
        return run | {"server CPU us per put": (cpu_s(process.pid) - before_s) / (run["puts/s"] * seconds) * 1e6}


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_process(
    folder: Path, fsync: str, in_flight: int, seconds: float, busy_us: int = 0, delay_us: int = 0
) -> dict[str, float]:
    arguments = ("--embedded", str(folder), "--fsync", fsync, "--seconds", str(seconds), "--in-flight", str(in_flight))
    with child(*arguments, "--busy-us", str(busy_us), "--sync-delay-us", str(delay_us)) as process:
        return json.loads(process.stdout.readline())


# -- the peer ---------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes((value & 127 | 128,))
        value >>= 7
    return out + bytes((value,))


def grpc_put(key: bytes, value: bytes) -> bytes:
    message = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(value)) + value
    return b"\0" + len(message).to_bytes(4, "big") + message


@contextlib.contextmanager
def etcd(folder: Path, binary: Path) -> Iterator[tuple[int, int]]:
    client, peer = free_port(), free_port()
    url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [str(binary), "--data-dir", str(folder), "--log-level", "error", "--name", "bench"]
    command += ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer_url]
    command += ["--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"bench={peer_url}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", client), 1):
                break
            time.sleep(0.05)
        else:
            raise SystemExit("etcd did not start")
        yield client, process.pid
    finally:
        process.terminate()
        process.wait(30)


def peer_puts(folder: Path, binary: Path, in_flight: int, seconds: float) -> dict[str, float]:
    """etcd under h2load; the store's own revision tells how many puts were really done."""
    body = folder.parent / "put.grpc"
    body.write_bytes(grpc_put(b"/registry/pods/default/0-0", VALUE))
    connections = min(16, in_flight)
    with etcd(folder, binary) as (port, pid):
        url = f"http://127.0.0.1:{port}/etcdserverpb.KV/Put"
        load = ["h2load", "-c", str(connections), "-m", str(in_flight // connections), "-t", "1", "-d", str(body)]
        load += ["-H", "content-type: application/grpc", "-H", "te: trailers", url]
        # One connection is limited by count, not by time: h2load ends a timed run with requests in flight.
        subprocess.run([*load, "-n", "200"], capture_output=True, text=True, check=True)
        before, before_s = revision(port, binary), cpu_s(pid)
        count = max(in_flight, int(seconds * (12_000 if in_flight > 1 else 1_000)))
        started = time.perf_counter()
        out = subprocess.run([*load, "-n", str(count)], capture_output=True, text=True, check=True).stdout
        took_s = time.perf_counter() - started
        used_s = cpu_s(pid) - before_s
        done = revision(port, binary) - before
        if done != count:
            raise SystemExit(f"etcd did {done} of {count} puts:\n{out}")
        match = re.search(r"time for request:\s+\S+\s+\S+\s+(\S+)", out)
        p50_ms = milliseconds(match[1]) if match else float("nan")
        return {"puts/s": count / took_s, "p50 ms": p50_ms, "server CPU us per put": used_s / count * 1e6}


def revision(port: int, binary: Path) -> int:
    command = [str(binary.parent / "etcdctl"), "--endpoints", f"127.0.0.1:{port}", "endpoint", "status", "-w", "json"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(json.loads(out)[0]["Status"]["header"]["revision"])


def milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(\D+)", text).groups()
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


# -- all of it --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="run etcd too, interleaved")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--fsync", default="auto", choices=("auto", "inline", "thread"))
    parser.add_argument("--busy", action="store_true", help="compare the ways to sync under a loaded loop instead")
    parser.add_argument("--out", default="results/store.json")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--embedded", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--in-flight", type=int, default=256, help=argparse.SUPPRESS)
    parser.add_argument("--sync-delay-us", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--busy-us", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.serve, args.fsync))
    elif args.embedded:
        asyncio.run(embedded(args))
    elif args.busy:
        compare_fsync(args)
    else:
        beside(args)


@contextlib.contextmanager
def fresh_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bench-store-"))
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder)


def lacking() -> str:
    """What a comparison with etcd would need; empty if it is all there."""
    try:
        upstream.binary("etcd")
        upstream.binary("etcdctl")
    except upstream.Absent as reason:
        return str(reason)
    return "" if shutil.which("h2load") else "h2load is not installed (Debian: nghttp2-client)"


def beside(args: argparse.Namespace) -> None:
    here = environment.describe(Path(tempfile.gettempdir()), "server and load in two processes, on the same cores")
    print("  ".join(f"{key}: {value}" for key, value in asdict(here).items()))
    if args.peer and here.filesystem == "tmpfs":
        raise SystemExit("the temporary folder is on tmpfs, where a sync costs nothing: set TMPDIR to a disk")
    if args.peer and (lacking_now := lacking()):
        raise SystemExit(f"no peer: {lacking_now}")
    sides: dict[str, dict[int, list[dict[str, float]]]] = {}
    for _ in range(args.turns):
        for in_flight in (256, 1):
            with fresh_folder() as folder:
                ours = native(folder, args.fsync, in_flight, args.seconds)
                sides.setdefault("native protocol", {}).setdefault(in_flight, []).append(ours)
            with fresh_folder() as folder:
                within = in_process(folder, args.fsync, in_flight, args.seconds)
                sides.setdefault("embedded", {}).setdefault(in_flight, []).append(within)
            if args.peer:
                with fresh_folder() as folder:
                    folder.parent.mkdir(exist_ok=True)
                    theirs = peer_puts(folder, upstream.binary("etcd"), in_flight, args.seconds)
                    sides.setdefault("etcd", {}).setdefault(in_flight, []).append(theirs)
    lines = [row(side, in_flight, runs, sides) for side, by in sides.items() for in_flight, runs in by.items()]
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"environment": asdict(here), "figures": lines}, indent=1, default=str) + "\n")
    print(f"written to {out}")


def row(side: str, in_flight: int, runs: list[dict[str, float]], sides: dict[str, Any]) -> dict[str, Any]:
    """Prints and returns one line: medians over the turns, and the ratio to the peer."""
    line: dict[str, Any] = {"side": side, "in_flight": in_flight, "runs": runs}
    line |= {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
    ratio = ""
    if "etcd" in sides and side != "etcd":
        theirs = statistics.median(run["puts/s"] for run in sides["etcd"][in_flight])
        line["times_etcd"] = line["puts/s"] / theirs
        ratio = f"   {line['times_etcd']:6.2f} x etcd"
    figure = f"{line['puts/s']:>10,.0f} puts/s   p50 {line['p50 ms']:8.3f} ms"
    if "server CPU us per put" in line:
        figure += f"   {line['server CPU us per put']:6.1f} us CPU"
    print(f"  {side:<16} {in_flight:>4} in flight {figure}{ratio}", flush=True)
    return line


def compare_fsync(args: argparse.Namespace) -> None:
    """The embedded store while something else wants the loop for a share of each millisecond, on faster and slower
    disks. `other work` is the share of its time that the something else got."""
    print("sync delay us  busy us/ms  in flight  mode        puts/s    p50 ms    p99 ms  other work")
    for delay_us in (0, 3000, 10_000):
        for busy_us in (0, 900, 5000):
            for in_flight in (1, 64):
                for mode in ("inline", "thread"):
                    runs = []
                    for _ in range(args.turns):
                        with fresh_folder() as folder:
                            runs.append(in_process(folder, mode, in_flight, args.seconds, busy_us, delay_us))
                    rate, p50, p99, other = (statistics.median(run[figure] for run in runs) for figure in runs[0])
                    case = f"{delay_us:>13} {busy_us:>11} {in_flight:>10}  {mode:<8}"
                    print(f"{case} {rate:>9,.0f} {p50:>9.3f} {p99:>9.3f} {other:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
