"""The costs of each structure: queries and changes in microseconds, memory in bytes.

    python tests/bench/bench_structures.py [--rows 1000,10000,100000] [--structures a,b] [--json FILE]

Points have three dimensions, the free cpu, memory and GPU at 90 % utilisation, each correlated with the
next by +0.8, 0 or -0.8. `feasible`: the lower bounds are quantiles (equal for all three, within a twentieth) that about
one point in a hundred satisfies. `tight`: quantiles just above what any point satisfies, the worst case for a summary
per dimension. A put changes a random slot like a bind. Medians over 24 boxes;
`looked`: the mean number of points that a query for 10 reports as examined.

Bytes per revision: what one put and one freeze keep alive, measured; for a structure that is not Versioned, the size
of its host's undo log: a cell per dimension, plus revision, slot and existence.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from minikube_py.index import catalogue
from minikube_py.index.structure import HIGH, Box, IntArray, Structure, Versioned, load

DIMENSIONS = 3
CORRELATIONS = (0.8, 0.0, -0.8)
AMOUNTS = np.array([64_000, 256 << 30, 8_000])
BOXES = 24

KNOWN = """Measured before on the like (us at 1k / 10k / 100k rows, first fit; feasible unless said otherwise)
  etcd's way: decode JSON and filter     3011 / 30660 / 280294
  Python objects, one by one             51 / 4851 / 47852
  numpy int32 columns                    3.4 / 5.6 / 26            put 0.12
  max-tree, correlation .8 (16k, 131k)   2.2 / 2.5 / 3.2           put 1.4 / 3.7 / 6.1
  max-tree, correlation -.8, worst       447 mean, 5864 p99        put 4.9
  k-d ordered max-tree (131k)            1.1 to 5.5                put 6.0 to 6.7
  bitmaps, superset only                 0.17 / 0.67 / 4.1         put 0.06 / 0.12 / 0.54 a flip"""


@cache
def points_of(rows: int, correlation: float, seed: int = 7) -> IntArray:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((rows, DIMENSIONS))
    for dimension in range(1, DIMENSIONS):
        normal[:, dimension] *= (1 - correlation**2) ** 0.5
        normal[:, dimension] += correlation * normal[:, dimension - 1]
    # The free share of a node that is nine tenths used: exponential, cut at one.
    uniform = np.argsort(np.argsort(normal, axis=0), axis=0) / rows
    free = np.minimum(-np.log1p(-uniform) * 0.1, 1.0)
    points: IntArray = (free * AMOUNTS).astype(np.int64)
    return points


@cache
def boxes_of(rows: int, correlation: float, share: float, seed: int = 11) -> list[Box]:
    """`share` 0: just above any point."""
    points = points_of(rows, correlation)
    rng = random.Random(seed)
    ordered = np.sort(points, axis=0)

    def lows(quantile: float, jitter: Sequence[float]) -> IntArray:
        places = [min(rows - 1, max(0, int(rows * (1 - (1 - quantile) * one)))) for one in jitter]
        return np.array([ordered[place, dimension] for dimension, place in enumerate(places)])

    boxes = []
    for _ in range(BOXES):
        jitter = [rng.uniform(0.95, 1.05) for _ in range(DIMENSIONS)]
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            if np.count_nonzero((points >= lows(middle, jitter)).all(axis=1)) > rows * share:
                low = middle
            else:
                high = middle
        boxes.append(Box(tuple(lows(high, jitter).tolist()), (HIGH,) * DIMENSIONS))
    return boxes


def microseconds(calls: Sequence[Callable[[], object]], at_least_s: float = 0.03) -> float:
    """The median over the calls of each one's minimum time: other work on the machine only adds.

    Slow calls are made twice, and only for every fourth box."""
    start = time.perf_counter()
    calls[0]()
    if time.perf_counter() - start > 2e-3:
        calls = calls[::4]
    least = [float("inf")] * len(calls)
    until = time.perf_counter() + at_least_s
    rounds = 0
    while rounds < 2 or time.perf_counter() < until:
        rounds += 1
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            least[number] = min(least[number], time.perf_counter() - start)
    return statistics.median(least) * 1e6


Change = tuple[int, list[int]]


def binds_of(points: IntArray, number: int, seed: int) -> list[Change]:
    """Changes as a pod makes them that is bound or done: all three values of a random slot, a little up or down."""
    rng = np.random.default_rng(seed)
    standing = points.copy()
    changes = []
    for slot in rng.integers(0, len(points), number).tolist():
        moved = rng.choice((-1, 1)) * rng.uniform(0.002, 0.02, DIMENSIONS) * AMOUNTS
        standing[slot] = np.clip(standing[slot] + moved.astype(np.int64), 0, AMOUNTS)
        changes.append((slot, standing[slot].tolist()))
    return changes


def mean_put_us(structure: Structure, changes: list[Change]) -> float:
    """The mean CPU time, so that occasional rebuilds are included."""
    start = time.process_time()
    for slot, point in changes:
        structure.put(slot, tuple(point))
    return (time.process_time() - start) * 1e6 / len(changes)


def revision_bytes(structure: Structure, changes: list[Change]) -> float:
    if not isinstance(structure, Versioned):
        return 8.0 * (DIMENSIONS + 3)
    kept = [structure.freeze()]
    # Tuples from Python's free list would not be counted.
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for slot, point in changes:
        structure.put(slot, tuple(point))
        kept.append(structure.freeze())
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(changes)


def measure(name: str, rows: int, correlation: float) -> dict[str, float]:
    points = points_of(rows, correlation)
    structure = catalogue.build(name, DIMENSIONS, {})
    start = time.perf_counter()
    load(structure, np.arange(rows, dtype=np.int64), points)
    results = {"load ms": (time.perf_counter() - start) * 1e3}
    for kind, share in (("feasible", 0.01), ("tight", 0.0)):
        boxes = boxes_of(rows, correlation, share)
        for limit in (1, 10, 0):
            calls = [lambda box=box, limit=limit: structure.find(box, limit) for box in boxes]
            results[f"{kind} {limit or 'all'}"] = microseconds(calls)
        examined = [structure.find(box, 10).examined for box in boxes]
        results[f"{kind[:4]}. looked"] = sum(examined) / len(examined)
    results["put"] = mean_put_us(structure, binds_of(points, 4000, seed=3))
    results["bytes/row"] = structure.size_bytes() / rows
    results["bytes/rev."] = revision_bytes(structure, binds_of(points, 300, seed=4))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000,10000,100000")
    parser.add_argument("--structures", default=",".join(catalogue.built_in()))
    parser.add_argument("--correlations", default=",".join(str(correlation) for correlation in CORRELATIONS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measured = []
    for correlation in [float(text) for text in arguments.correlations.split(",")]:
        for rows in [int(text) for text in arguments.rows.split(",")]:
            cells = {name: measure(name, rows, correlation) for name in arguments.structures.split(",")}
            measured.append({"correlation": correlation, "rows": rows, "structures": cells})
            columns = list(next(iter(cells.values())))
            print(f"\n{rows:,} rows, correlation {correlation:+.1f}")
            print(f"{'':13}" + "".join(f"{column:>12}" for column in columns))
            for name, cell in cells.items():
                print(f"{name:13}" + "".join(f"{cell[column]:12,.1f}" for column in columns), flush=True)
    print("\n" + KNOWN)
    if arguments.json:
        arguments.json.write_text(json.dumps({"unit": "us", "measured": measured}, indent=2))


if __name__ == "__main__":
    main()
