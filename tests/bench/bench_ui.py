"""What an open live page costs the control plane: its processor time with and without a page, at the same load.

    python tests/bench/bench_ui.py [--cases 1000x20,1000x0,5000x20] [--blocks 8] [--window-s 12] [--json FILE]

A case is nodes x pods created, and deleted, per second, by a process of their own: `minikube-py up --ui`. Each block
measures three windows, in an order drawn by a seed: `closed`, without a page; `open`, with one that asks as a browser
does; `panel`, which besides asks about a waiting pod every two seconds, as an open panel does. Before a window the page
has been open, or closed, so long that the watches have started, or ended. The browser's own time is not counted.
Prints the mean of the differences within blocks, in percent of a core, with a 95 % interval by Student's t, and the
load average; FILE keeps every window, and other cases that it has. The figures of docs/how-to/live-page.md:

    python tests/bench/bench_ui.py --json docs/data/ui-cost.json
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(1, str(Path(__file__).parents[1] / "support"))

from up_process import Up, up

from minikube_py.lab import environment
from minikube_py.lab.statistics import Interval, of_clusters
from minikube_py.ui.page import IDLE_S

ARMS = ("closed", "open", "panel")
PAIRS = (("open", "closed"), ("panel", "open"))
CONFIDENCE = 0.95
SEED = 17
ALIVE_S = 3
"""How long a pod lives."""
SETTLED_S = {"closed": IDLE_S + 2, "open": 3.0, "panel": 3.0}
PANEL_S = 2.0
Windows = list[dict[str, Any]]


def differences(windows: Windows, arm: str, other: str) -> list[float]:
    """Of the processor time, in percent of a core, by block."""
    by = {(each["block"], each["arm"]): each["cpu_percent"] for each in windows}
    return [by[block, arm] - by[block, other] for block in sorted({block for block, _ in by})]


def figures(windows: Windows) -> Iterator[tuple[str, Interval]]:
    for arm in ARMS:
        yield arm, of_clusters([each["cpu_percent"] for each in windows if each["arm"] == arm], CONFIDENCE)
    for arm, other in PAIRS:
        yield f"{arm} less {other}", of_clusters(differences(windows, arm, other), CONFIDENCE)


@dataclass(slots=True)
class Cluster:
    running: Up
    session: aiohttp.ClientSession
    bearer: str = ""
    created: int = 0
    answers: int = 0
    problems: list[str] = field(default_factory=list)

    async def ask(self, method: str, path: str, bearer: str = "", body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {bearer or self.running.access.token}"}
        url = self.running.access.server + path
        async with self.session.request(method, url, json=body, headers=headers) as answer:
            if answer.status >= 300:
                self.problems.append(f"{method} {path}: {answer.status} {await answer.text()}")
                return {}
            return json.loads(await answer.read())

    def cpu_s(self) -> float:
        found = Path(f"/proc/{self.running.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(found[11]) + int(found[12])) / os.sysconf("SC_CLK_TCK")

    async def load(self, per_s: int) -> None:
        """An open loop: each request at its time, however long others take."""
        pods = "/api/v1/namespaces/default/pods"
        tasks: set[asyncio.Task[Any]] = set()
        started_s = time.monotonic()
        try:
            for number in itertools.count():
                await asyncio.sleep(max(0.0, started_s + number / per_s - time.monotonic()))
                asked = [self.ask("POST", pods, body=pod(f"p{number}", "100m"))]
                if (old := number - ALIVE_S * per_s) >= 0:
                    asked.append(self.ask("DELETE", f"{pods}/p{old}?gracePeriodSeconds=0"))
                for each in asked:
                    task = asyncio.ensure_future(each)
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                self.created += 1
        finally:
            for task in tasks:
                task.cancel()

    async def look(self) -> None:
        """As page.js: the next question follows each answer."""
        sequence = 0
        while True:
            answer = await self.ask("GET", f"/minikube-py/ui/state?since={sequence}&group=", self.bearer)
            sequence = answer["sequence"]
            self.answers += 1

    async def look_at_a_pod(self) -> None:
        while True:
            await self.ask("GET", "/minikube-py/ui/pod?key=default/too-large", self.bearer)
            await asyncio.sleep(PANEL_S)


def pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


@contextmanager
def during(*works: Any) -> Iterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()


async def window(cluster: Cluster, arm: str, window_s: float) -> dict[str, Any]:
    works = [cluster.look()] if arm != "closed" else []
    works += [cluster.look_at_a_pod()] if arm == "panel" else []
    with during(*works):
        await asyncio.sleep(SETTLED_S[arm])
        cpu_s, began_s, created, answers = cluster.cpu_s(), time.monotonic(), cluster.created, cluster.answers
        await asyncio.sleep(window_s)
        lasted_s = time.monotonic() - began_s
        return {
            "arm": arm,
            "cpu_percent": round(100 * (cluster.cpu_s() - cpu_s) / lasted_s, 3),
            "created_per_s": round((cluster.created - created) / lasted_s, 2),
            "answers_per_s": round((cluster.answers - answers) / lasted_s, 2),
        }


async def measure(nodes: int, per_s: int, blocks: int, window_s: float) -> Windows:
    rng, windows = random.Random(SEED), []
    with up("--nodes", str(nodes), "--ui") as running:
        assert running.until_said("/ui/#") and running.ready()
        link = next(found[1] for line in running.lines if (found := re.search(r"https://\S+/ui/#(\S+)", line)))
        connector = aiohttp.TCPConnector(limit=0, ssl=running.tls())
        async with aiohttp.ClientSession(connector=connector) as session:
            cluster = Cluster(running, session)
            cluster.bearer = (await cluster.ask("POST", "/minikube-py/ui/login", link))["session"]
            await cluster.ask("POST", "/api/v1/namespaces/default/pods", body=pod("too-large", "4000"))
            with during(*([cluster.load(per_s)] if per_s else [])):
                await asyncio.sleep(SETTLED_S["closed"])
                for block in range(blocks):
                    for arm in rng.sample(ARMS, len(ARMS)):
                        windows.append({"block": block, **await window(cluster, arm, window_s)})
                        print(windows[-1], flush=True)
            assert not cluster.problems, cluster.problems[:3]
    return windows


def say(case: str, measured: dict[str, Any]) -> None:
    print(f"{case}: percent of a core; load average {measured['load'][0]:.2f} to {measured['load'][1]:.2f}")
    for name, (value, low, high) in figures(measured["windows"]):
        print(f"  {name:18} {value:6.2f} [{low:.2f}, {high:.2f}]")


async def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="1000x20,1000x0,5000x20")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--window-s", type=float, default=12.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    kept: dict[str, Any] = {}
    if options.json is not None and options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
    for case in options.cases.split(","):
        nodes, _, per_s = case.partition("x")
        with tempfile.TemporaryDirectory() as folder:
            here = environment.describe(Path(folder), "in one process")
        before = os.getloadavg()[0]
        windows = await measure(int(nodes), int(per_s), options.blocks, options.window_s)
        kept[case] = {
            "environment": here.as_dict(), "load": [before, os.getloadavg()[0]], "window_s": options.window_s,
            "windows": windows,
        }  # fmt: skip
        say(case, kept[case])
        if options.json is not None:
            options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
