"""Inequalities answered by etcd itself: secondary keys ordered by a value, beside reading all and beside our index.

  nice python tests/bench/bench_etcd_keys.py                               1,000, 20,000 and 100,000 nodes, some minutes
  nice python tests/bench/bench_etcd_keys.py --nodes 1000 --budget .3 --json etcd-keys.json

One real etcd (`make upstream`), which syncs its writes. Each way has separate keys; all get the same queries,
alternately, and every result is checked by brute force outside the timing. The cost of a write is its latency (one
client, alternating), and etcd's own CPU time and bytes written with 64 writes in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
import upstream
from rivals.etcd_keys import END, Bounds, ByCpu, Grid, KeysByCpu, Kv, Mirrored, OfEach, Scan, Way
from rivals.workload import Workload

FIRST, IN_FLIGHT = 10, 64
QUESTIONS = 12
UPDATES, BULK, WHOLE = 60, 30, 40
"""Rounds of single writes, of `IN_FLIGHT` writes at once, and of ranges of all second keys."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ASKED: dict[str, tuple[int, tuple[float, float, float]]] = {
    "cpu = a, all": (0, (-1, 0, 0)),
    "cpu >= a, 0.1 %, first 10": (FIRST, (0.001, 0, 0)),
    "cpu >= a, 10 %, first 10": (FIRST, (0.1, 0, 0)),
    "cpu >= a, 1 %, all": (0, (0.01, 0, 0)),
    "cpu, memory >= a, b, 0.1 %, first 10": (FIRST, (0.03, 0.03, 0)),
    "cpu, memory >= a, b, 0.1 %, all": (0, (0.03, 0.03, 0)),
    "gpus = a, cpu >= b, 1 %, first 10": (FIRST, (0.1, 0, -1)),
    "cpu, memory, gpus >= a, b, c, few, first 10": (FIRST, (0.1, 0.1, 0.1)),
}
"""A name, how many are wanted (0: all), and for each field the share of nodes within its bound; -1 for equality, 0 for
no bound."""


class Asked:
    """Queries of one kind at existing values, and the true results."""

    def __init__(self, work: Workload, seed: int) -> None:
        self._rows, self._rng = work.truth.rows, random.Random(seed)

    def bounds(self, shares: tuple[float, float, float]) -> Bounds:
        found = []
        for row, share in zip(self._rows, shares):
            value = int(row[self._rng.randrange(len(row))])
            if share > 0:
                value = int(np.quantile(row, 1 - share * self._rng.uniform(0.7, 1.3)))
            found.append((0, END) if share == 0 else (value, value + 1) if share < 0 else (value, END))
        return Bounds(*found)

    def check(self, bounds: Bounds, limit: int, answer: Sequence[int]) -> None:
        """Raises: AssertionError."""
        held = [(row >= low) & (row < high) for row, (low, high) in zip(self._rows, bounds)]
        truth = set(np.flatnonzero(held[0] & held[1] & held[2]).tolist())
        wanted = min(limit, len(truth)) if limit else len(truth)
        assert len(set(answer)) == len(answer) == wanted and set(answer) <= truth, (bounds, len(answer), len(truth))


def measure(
    work: Workload, ways: Sequence[Way], budget_s: float, seed: int, pid: int
) -> dict[str, dict[str, dict[str, float]]]:
    """By query and way milliseconds, and those of etcd's CPU; ways alternate until each one's share of time is used."""
    asked = Asked(work, seed)
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, (limit, shares) in ASKED.items():
        questions = [asked.bounds(shares) for _ in range(QUESTIONS)]
        took_s: dict[str, list[float]] = {way.name: [] for way in ways}
        cpu_s = dict.fromkeys(took_s, 0.0)
        for number in range(400):
            going = [way for way in ways if number < 3 or sum(took_s[way.name]) < budget_s]
            if not going:
                break
            bounds = questions[number % QUESTIONS]
            for way in going:
                before_s, started_s = process(pid)[0], time.perf_counter()
                answer = way.ask(bounds, limit)
                took_s[way.name].append(time.perf_counter() - started_s)
                cpu_s[way.name] += process(pid)[0] - before_s
                asked.check(bounds, limit, answer)
        table[name] = {
            way: {**summary(times), "etcd_cpu_ms": round(cpu_s[way] / len(times) * 1e3, 4)}
            for way, times in took_s.items()
        }
        shown = ", ".join(f"{way} {cell['ms']:g}" for way, cell in table[name].items())
        print(f"  {name}: {shown}", file=sys.stderr, flush=True)
    return table


def summary(took_s: Sequence[float]) -> dict[str, float]:
    ordered = sorted(took_s)
    p90 = ordered[-(-len(ordered) * 9 // 10) - 1]
    return {"ms": round(statistics.median(ordered) * 1e3, 3), "p90_ms": round(p90 * 1e3, 3), "rounds": len(ordered)}


def all_keys(kv: Kv, ways: Sequence[Scan], pid: int) -> dict[str, dict[str, float]]:
    """For each way: milliseconds for a range of all its second keys, and those of etcd's CPU; in turns."""
    took_s: dict[str, list[float]] = {way.name: [] for way in ways}
    cpu_s = dict.fromkeys(took_s, 0.0)
    for _ in range(WHOLE):
        for way in ways:
            request = way.all_keys()
            before_s, started_s = process(pid)[0], time.perf_counter()
            answer = kv.range(request)
            took_s[way.name].append(time.perf_counter() - started_s)
            cpu_s[way.name] += process(pid)[0] - before_s
            assert len(answer.kvs) == len(way.rows)
    return {
        name: {**summary(times), "etcd_cpu_ms": round(cpu_s[name] / WHOLE * 1e3, 2)} for name, times in took_s.items()
    }


def upkeep(work: Workload, ways: Sequence[Scan], pid: int) -> dict[str, dict[str, float]]:
    """For each way: the latency of single writes, and etcd's resource use under many concurrent ones."""
    single: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(UPDATES):
        number, node = work.update()
        for way in ways:
            started_s = time.perf_counter()
            way.update(number, node)
            single[way.name].append(time.perf_counter() - started_s)
    cpu_s = dict.fromkeys(single, 0.0)
    written = dict.fromkeys(single, 0)
    spent_s = dict.fromkeys(single, 0.0)
    for _ in range(BULK):
        changes = dict(work.update() for _ in range(IN_FLIGHT))
        for way in ways:
            before = process(pid)
            started_s = time.perf_counter()
            answers = [(number, node, way.update_soon(number, node)) for number, node in changes.items()]
            for number, node, answer in answers:
                way.updated(number, node, answer.result())
            spent_s[way.name] += time.perf_counter() - started_s
            after = process(pid)
            cpu_s[way.name] += after[0] - before[0]
            written[way.name] += after[1] - before[1]
    count = BULK * IN_FLIGHT
    return {
        name: {
            **summary(times), "etcd_cpu_ms": round(cpu_s[name] / count * 1e3, 4),
            "etcd_bytes": round(written[name] / count), "in_flight_per_s": round(count / spent_s[name]),
        }
        for name, times in single.items()
    }  # fmt: skip


def process(pid: int) -> tuple[float, int]:
    """A process's CPU seconds and bytes handed to the kernel so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return (int(fields[11]) + int(fields[12])) * TICK_S, int(io["wchar"])


def one_size(ready: dict[str, Any], nodes: int, seed: int, budget_s: float) -> dict[str, Any]:
    """All measurements for one number of nodes, on an empty etcd."""
    work = Workload(nodes, seed)
    url, pid = ready["etcd"][0], ready["pids"]["etcd-0"]
    kv, loop = Kv(url), asyncio.new_event_loop()
    own: list[Scan] = [kind(kv, kind.__name__.lower()) for kind in (Scan, ByCpu, KeysByCpu, OfEach, Grid)]
    newest = Mirrored(loop, url, "ours")
    held = Mirrored(loop, url, "ours", newest=False)
    load_s = {}
    for way in (*own, newest):
        started_s = time.perf_counter()
        way.load(work.nodes)
        load_s[way.name] = round(time.perf_counter() - started_s, 2)
        print(f"  {way.name}: loaded in {load_s[way.name]} s", file=sys.stderr, flush=True)
    held.share(newest)
    questions = measure(work, [*own, newest, held], budget_s, seed, pid)
    whole = all_keys(kv, [way for way in own if isinstance(way, ByCpu | KeysByCpu)], pid)
    writes = upkeep(work, own, pid)
    newest.close()
    loop.close()
    kv.close()
    return {"nodes": nodes, "load_s": load_s, "questions": questions, "all_keys": whole, "writes": writes}


def tables(sizes: Sequence[dict[str, Any]]) -> Iterator[str]:
    for size in sizes:
        ways = list(next(iter(size["questions"].values())))
        yield f"\n{size['nodes']:,} nodes; milliseconds, median\n"
        yield f"| | {' | '.join(ASKED)} |"
        yield f"|---|{'---:|' * len(ASKED)}"
        for way in ways:
            yield f"| {way} | {' | '.join(short(size['questions'][name][way]['ms']) for name in ASKED)} |"
        for way, cells in size["all_keys"].items():
            yield f"\nall second keys, {way}: {cells['ms']:.3g} ms, etcd's CPU {cells['etcd_cpu_ms']:.3g} ms"
        yield "\netcd's CPU for a query, milliseconds, mean\n"
        yield f"| | {' | '.join(ASKED)} |"
        yield f"|---|{'---:|' * len(ASKED)}"
        for way in ways:
            yield f"| {way} | {' | '.join(short(size['questions'][name][way]['etcd_cpu_ms']) for name in ASKED)} |"
        yield "\n| A write with | ms, alone | etcd's CPU, ms | bytes written | a second, 64 in flight |"
        yield "|---|---:|---:|---:|---:|"
        for way, cells in size["writes"].items():
            figures = (cells["ms"], cells["etcd_cpu_ms"], cells["etcd_bytes"], cells["in_flight_per_s"])
            yield f"| {way} | {' | '.join(map(short, figures))} |"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1000,20000,100000", help="how many, by comma")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds for each way and question (default: 1.5)")
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    load_1m = os.getloadavg()[0]
    sizes = []
    for nodes in map(int, arguments.nodes.split(",")):
        with upstream.running("etcd") as ready:
            sizes.append(one_size(ready, nodes, arguments.seed, arguments.budget))
        if arguments.json:
            machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
            told = {"seed": arguments.seed, "budget_s": arguments.budget, "load_average": load_1m, **machine}
            arguments.json.write_text(json.dumps({**told, "sizes": sizes}, indent=1) + "\n")
    print("\n".join(tables(sizes)))


if __name__ == "__main__":
    main()
