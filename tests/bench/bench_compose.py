"""Pods created to bound on 1,000 fake nodes, by the same load over HTTPS: one process, and docker-compose's eight.

usage: python tests/bench/bench_compose.py [--pods N] [--turns N] [--layouts one,members,compose]

`one`: `minikube-py up`. `members`: `minikube-py up --members 3`, the processes of compose without its containers.
`compose`: `docker compose up` (three store members, API server, scheduler, controllers, two kubelets); needs Docker.
They run interleaved; the load is this process. Each pod counts from the first create sent to the last pod seen bound.
For the first two, the processor time that each role took for a pod is printed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench_store import cpu_s, free_port

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.env import SystemClock
from minikube_py.lab import environment
from minikube_py.lab.load import create_namespaces, create_pod, run_bounded
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.nodes import wait_ready
from minikube_py.lab.workload import RUN_LABEL, seeded_pods

ROOT = Path(__file__).parents[2]
NODES = 1000
RUN = "bench"
QUIET_S = 60.0
ROLES = ("store", "apiserver", "scheduler", "controllers", "kubelet")


class Running(NamedTuple):
    """`pid`: of `minikube-py up`, whose children are the roles; 0 if they are in containers."""

    kubeconfig: Path
    pid: int = 0

    def cpu_by_role(self) -> dict[str, float]:
        """Seconds so far; `up` is the process itself, with the roles inside it."""
        if not self.pid:
            return {}
        found: Counter[str] = Counter({"up": cpu_s(self.pid)})
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self.pid:
                    arguments = stat.with_name("cmdline").read_text().split("\0")
                    role = next((name for name in ROLES if name in arguments), "other")
                    found[role] += cpu_s(int(stat.parent.name))
        return dict(found)


@contextlib.contextmanager
def up(folder: Path, *arguments: str) -> Iterator[Running]:
    """`minikube-py up` until the block ends."""
    file = folder / "kubeconfig"
    command = [sys.executable, "-m", "minikube_py", "up", "--nodes", str(NODES), "--port", str(free_port())]
    command += ["--data-dir", str(folder), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in process.stdout:
            if "kubeconfig" in line.lower() and file.exists():
                break
        else:
            raise SystemExit("minikube-py up ended before it was ready")
        yield Running(file, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@contextlib.contextmanager
def compose(folder: Path) -> Iterator[Running]:
    """`docker compose up` as a separate project, removed when the block ends."""
    env = {**os.environ, "MINIKUBE_PY_PORT": str(free_port())}
    base = ["docker", "compose", "--project-name", f"minikube-py-bench-{os.getpid()}"]

    def run(*arguments: str) -> str:
        done = subprocess.run([*base, *arguments], cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"docker compose {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    try:
        run("up", "-d", "--build", "--wait")
        file = folder / "kubeconfig"
        file.write_text(run("run", "--rm", "-T", "kubeconfig"))
        file.chmod(0o600)
        yield Running(file)
    finally:
        run("down", "-v")


LAYOUTS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Running]]] = {
    "one": up,
    "members": lambda folder: up(folder, "--members", "3"),
    "compose": compose,
}


async def drive(running: Running, count: int, in_flight: int) -> dict[str, float]:
    clock = SystemClock()
    transport = HttpTransport(load_kubeconfig(running.kubeconfig))
    try:
        await wait_ready(transport, NODES)
        load = seeded_pods(random.Random(0), count, 1, RUN)
        await create_namespaces(transport, {pod.namespace for pod in load})
        recorder = PodRecorder(transport, clock, f"{RUN_LABEL}={RUN}")
        await recorder.start()

        async def each():  # type: ignore[no-untyped-def]
            for pod in load:
                yield partial(create_pod, transport, pod, recorder)

        before = running.cpu_by_role() | {"load": time.process_time()}
        await run_bounded(each(), in_flight)
        if not await recorder.wait_until(lambda: recorder.running >= count, QUIET_S):
            raise SystemExit(f"{recorder.bound} of {count} pods were bound")
        after = running.cpu_by_role() | {"load": time.process_time()}
        await recorder.stop()
        times = list(recorder.pods.values())
        sent_s = min(each.sent_s for each in times if each.sent_s is not None)
        last = {name: max(getattr(each, name) for each in times) - sent_s for name in ("bound_s", "running_s")}
        cpu = {f"CPU us a pod, {role}": (after[role] - before[role]) / count * 1e6 for role in before}
        return {"bound pods/s": count / last["bound_s"], "running pods/s": count / last["running_s"], **cpu}
    finally:
        await transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--layouts", default="one,members,compose")
    parser.add_argument("--out", type=Path, default=Path("results/compose.json"))
    arguments = parser.parse_args()
    here = environment.describe(Path(tempfile.gettempdir()), "by layout, on one host")
    print("  ".join(f"{key}: {value}" for key, value in asdict(here).items()))
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(arguments.turns):
        for layout in arguments.layouts.split(","):
            with contextlib.ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minikube-py-bench-")))
                running = stack.enter_context(LAYOUTS[layout](folder))
                figures = asyncio.run(drive(running, arguments.pods, arguments.in_flight))
            runs.setdefault(layout, []).append(figures)
            told = "   ".join(f"{figure} {value:,.0f}" for figure, value in figures.items())
            print(f"  {layout:<8} {told}", flush=True)
    table = []
    print("\nmedians")
    for layout, each in runs.items():
        line: dict[str, object] = {"layout": layout, "pods": arguments.pods, "nodes": NODES, "runs": each}
        for figure in each[0]:
            line[figure] = statistics.median(run[figure] for run in each)
        if "one" in runs:
            ours = statistics.median(run["bound pods/s"] for run in runs["one"])
            line["bound, of one process"] = float(line["bound pods/s"]) / ours  # type: ignore[arg-type]
        shown = "   ".join(f"{key} {value:,.2f}" for key, value in line.items() if isinstance(value, float))
        print(f"  {layout:<8} {shown}")
        table.append(line)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"environment": asdict(here), "figures": table}, indent=1) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
