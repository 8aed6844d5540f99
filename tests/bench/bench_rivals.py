"""Which of 100,000 nodes have cpu >= a, memory >= b and GPUs >= c: ours beside databases, indexes and upstream.

  python tests/bench/bench_rivals.py                          every rival that is installed (some 10 minutes)
  python tests/bench/bench_rivals.py --only ours,sqlite --nodes 10000 --budget .5
  python tests/bench/bench_rivals.py --structures columns,max-tree,bitmaps --json rivals.json

One process or server at a time, the same nodes, updates and queries for each, every result checked by brute force
(outside the timing). Queries of three classes: `none` (no node has all three, though one has each), `few` and `many`.
`1:1` and `1:100`: a change of one node and then one or a hundred queries (few, first 10), per query, changes
included. Rivals are used if installed: pip duckdb, tantivy, rocksdict, psycopg[binary]; apt postgresql
postgresql-contrib; `make upstream` for etcd and kube-apiserver.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from rivals import duck, originals, ours_https, ours_index, ours_store, postgres, rocks, sqlite, tantivy_index
from rivals.contract import Absent, Entry, Question, Rival
from rivals.workload import CLASSES, Workload

FIRST = 10
QUESTIONS = 16
ROUNDS_MAX, ROUNDS_MIN, ROUNDS_SLOW = 400, 5, 2
COLUMNS = ("none", "few, first 10", "few, all", "many, first 10", "many, all", "update", "1:1", "1:100")


def groups(structures: Sequence[str], https_structures: Sequence[str], synced: bool) -> dict[str, list[Entry]]:
    return {
        "index": ours_index.entries(structures),
        "ours": ours_store.entries(structures, synced),
        "https": ours_https.entries(https_structures),
        "sqlite": sqlite.entries(synced),
        "postgres": postgres.entries(synced),
        "duckdb": duck.entries(synced),
        "tantivy": tantivy_index.entries(synced),
        "rocksdb": rocks.entries(synced),
        "originals": originals.entries(),
    }


class Bench:
    """`budget_s`: the time limit of each cell."""

    def __init__(self, nodes: int, seed: int, budget_s: float) -> None:
        self._count, self._seed, self._budget_s = nodes, seed, budget_s
        self._asked: dict[str, list[Question]] = {}

    def measure(self, entry: Entry) -> dict[str, Any]:
        work = Workload(self._count, self._seed)
        if not self._asked:
            self._asked = {name: work.questions(name, QUESTIONS) for name in CLASSES}
        with entry.start() as rival:
            started_s = time.perf_counter()
            rival.load(work.nodes)
            load_s = time.perf_counter() - started_s
            gc.collect()
            cells = self._reads(rival, work, entry.slow)
            cells["update"] = self._cell(entry.slow, self._updates(rival, work))
            cells["1:1"] = self._mixed(rival, work, 1, entry.slow)
            cells["1:100"] = self._mixed(rival, work, 100, entry.slow)
            told = {"answered_by": dict(getattr(rival, "answered", {}))}
        return {"title": entry.title, "write": entry.write, "load_s": round(load_s, 2), "ms": cells, **told}

    def _reads(self, rival: Rival, work: Workload, slow: bool) -> dict[str, dict[str, float]]:
        def first(name: str) -> Iterator[float]:
            for question in cycle(self._asked[name]):
                answer, took_s = timed(rival.first, question, FIRST)
                work.truth.check_first(question, FIRST, answer)
                yield took_s

        def every(name: str) -> Iterator[float]:
            for question in cycle(self._asked[name]):
                answer, took_s = timed(rival.every, question)
                work.truth.check_every(question, answer)
                yield took_s

        return {
            "none": self._cell(slow, first("none")),
            "few, first 10": self._cell(slow, first("few")),
            "few, all": self._cell(slow, every("few")),
            "many, first 10": self._cell(slow, first("many")),
            "many, all": self._cell(slow, every("many")),
        }

    def _updates(self, rival: Rival, work: Workload) -> Iterator[float]:
        while True:
            number, node = work.update()
            yield timed(rival.update, number, node)[1]

    def _mixed(self, rival: Rival, work: Workload, questions: int, slow: bool) -> dict[str, float]:
        """Per query: a change and its queries together. For slow rivals a few queries stand for a hundred."""
        asked = cycle(self._asked["few"])
        told = min(questions, ROUNDS_SLOW) if slow else questions

        def rounds() -> Iterator[float]:
            while True:
                number, node = work.update()
                spent_s = timed(rival.update, number, node)[1]
                asked_s = 0.0
                for _ in range(told):
                    question = next(asked)
                    answer, took_s = timed(rival.first, question, FIRST)
                    work.truth.check_first(question, FIRST, answer)
                    asked_s += took_s
                yield spent_s / questions + asked_s / told

        return self._cell(slow, rounds(), mean=True)

    def _cell(self, slow: bool, rounds: Iterator[float], mean: bool = False) -> dict[str, float]:
        """Rounds until the budget is spent; milliseconds."""
        took_s: list[float] = []
        deadline_s = time.perf_counter() + self._budget_s
        least = ROUNDS_SLOW if slow else ROUNDS_MIN
        while len(took_s) < least or (time.perf_counter() < deadline_s and len(took_s) < ROUNDS_MAX):
            took_s.append(next(rounds))
        ordered = sorted(took_s)
        middle = statistics.fmean(took_s) if mean else statistics.median(took_s)
        return {
            "ms": round(middle * 1e3, 5),
            "median_ms": round(statistics.median(took_s) * 1e3, 5),
            "p99_ms": round(ordered[max(0, -(-len(ordered) * 99 // 100) - 1)] * 1e3, 5),
            "rounds": len(took_s),
        }


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    started_s = time.perf_counter()
    result = work(*arguments)
    return result, time.perf_counter() - started_s


def text_of(value_ms: float) -> str:
    digits = 0 if value_ms >= 100 else 1 if value_ms >= 10 else 2 if value_ms >= 1 else 3
    return f"{value_ms:,.{digits}f}"


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    print(
        f"\n| ms, median (1:1, 1:100: mean) | {' | '.join(COLUMNS)} | a write is |\n|---|{'---|' * (len(COLUMNS) + 1)}"
    )
    for row in rows:
        cells = " | ".join(text_of(row["ms"][name]["ms"]) for name in COLUMNS)
        print(f"| {row['title']} | {cells} | {row['write']} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each cell (default: 2)")
    parser.add_argument("--only", default="", help="groups, by comma: " + ", ".join(groups((), (), False)))
    parser.add_argument("--structures", default="columns,shapes,max-tree,kd-tree,bitmaps", help="ours, in the store")
    parser.add_argument("--https-structures", default="columns,max-tree", help="ours, by HTTPS")
    synced_help = "writes are forced to the disk, as the API servers and etcd do always (default: written only)"
    parser.add_argument("--synced", action="store_true", help=synced_help)
    parser.add_argument("--json", type=Path, help="write all figures there")
    args = parser.parse_args()
    offered = groups(args.structures.split(","), args.https_structures.split(","), args.synced)
    wanted = args.only.split(",") if args.only else list(offered)
    if unknown := [name for name in wanted if name not in offered]:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(offered)}")
    # Also ends servers and removes folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(args.nodes, args.seed, args.budget)
    rows, absent = [], {}
    load_1m = os.getloadavg()[0]
    for entry in (entry for name in wanted for entry in offered[name]):
        try:
            row = bench.measure(entry)
        except Absent as error:
            absent[entry.title] = str(error)
            print(f"{entry.title}: absent: {error}", file=sys.stderr, flush=True)
            continue
        rows.append(row)
        shown = ", ".join(f"{name} {text_of(row['ms'][name]['ms'])}" for name in COLUMNS)
        print(f"{entry.title}: {shown} ms; loaded in {row['load_s']} s", file=sys.stderr, flush=True)
    print_table(rows)
    if args.json:
        machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
        told = {
            "nodes": args.nodes,
            "seed": args.seed,
            "budget_s": args.budget,
            "synced": args.synced,
            "load_average": load_1m,
            **machine,
        }
        args.json.write_text(json.dumps({**told, "rows": rows, "absent": absent}, indent=1) + "\n")


if __name__ == "__main__":
    main()
