"""What the column index costs: queries and updates by number of rows, in microseconds.

    python tests/bench/bench_index.py [--rows 1000,10000,100000] [--json FILE]

Rows are nodes with six resources, 90 % used on average. `feasible` matches about one row in fifty, `tight` none;
`past` asks 1,000 changes ago. The scan is the same question over Python dictionaries. Medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where, compile_where
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.contract import RowChange

FEASIBLE = Where((Comparison("free.cpu", ">=", ("12",)), Comparison("free.memory", ">=", ("32Gi",))))
TIGHT = Where((*FEASIBLE.comparisons, Comparison("free.openb.io/gpu-milli", ">=", ("9000",))))


def microseconds(call: Callable[[], object], at_least_s: float = 0.2) -> float:
    samples = []
    until = time.perf_counter() + at_least_s
    while time.perf_counter() < until or len(samples) < 5:
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e6)
    return statistics.median(samples)


def row(name: int, rng: random.Random) -> dict[str, int | str]:
    used = min(1.0, rng.betavariate(9, 1))
    free = {"cpu": 64000, "memory": 256 << 30, "pods": 110, "openb.io/gpu-milli": 8000}
    cells: dict[str, int | str] = {"metadata.name": f"node-{name:06d}", "spec.unschedulable": "false"}
    for resource, amount in free.items():
        left = int(amount * (1 - used) * rng.uniform(0.5, 1.5))
        cells |= {f"free.{resource}": left, f"allocatable.{resource}": amount, f"requested.{resource}": amount - left}
    return cells


def measure(rows: int) -> dict[str, float]:
    rng = random.Random(7)
    order = list(range(rows))
    rng.shuffle(order)
    standing = {b"/registry/nodes/node-%06d" % name: row(name, rng) for name in order}
    index = ColumnIndex(NODES, 1, [RowChange(*item) for item in standing.items()])
    keys = list(standing)
    fresh = [row(number, rng) for number in range(1000)]
    results = {}
    revision = 1

    def bind() -> None:
        """A bind's effect on a row: three sums and the free amounts."""
        nonlocal revision
        revision += 1
        key = keys[revision * 7919 % rows]
        now = dict(standing[key])
        for resource in ("cpu", "memory", "pods"):
            value = fresh[revision % 1000][f"free.{resource}"]
            now[f"free.{resource}"] = now[f"requested.{resource}"] = value
        standing[key] = now
        index.apply(revision, (RowChange(key, now),))

    bind_alone = microseconds(lambda: dict(standing[keys[0]]))
    results["update"] = microseconds(bind) - bind_alone
    now = index.revision
    for name, where in (("feasible", FEASIBLE), ("tight", TIGHT)):
        results[f"{name} ANY 10"] = microseconds(lambda where=where: index.query(where, now, 10, order="ANY"))
        results[f"{name} KEY 10"] = microseconds(lambda where=where: index.query(where, now, 10))
        results[f"{name} KEY 10 past"] = microseconds(lambda where=where: index.query(where, now - 1000, 10))
    results["feasible all"] = microseconds(lambda: index.query(FEASIBLE, now))
    matches = compile_where(NODES, FEASIBLE).matches
    results["scan of dictionaries"] = microseconds(lambda: [key for key, cells in standing.items() if matches(cells)])
    results["matching share"] = index.query(FEASIBLE, now).count / rows
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000,10000,100000")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.rows.split(",")]
    measured = {size: measure(size) for size in sizes}
    print(f"{'us':24}" + "".join(f"{size:>12,}" for size in sizes))
    for name in next(iter(measured.values())):
        print(f"{name:24}" + "".join(f"{measured[size][name]:12.3f}" for size in sizes))
    if arguments.json:
        arguments.json.write_text(json.dumps({"unit": "us", "rows": measured}, indent=2))


if __name__ == "__main__":
    main()
