#!/usr/bin/env python3
"""How far packing can go, beside the table of docs/how-to/packing-quality.md: bounds from above, and compaction.

python tools/packing_limits.py --journal results/packing-limits.jsonl --write      (resumable; needs scipy)
python tools/packing_limits.py --page                     (writes the page's table from docs/data/packing-limits.json)

A bound is the greatest share of GPUs that any choice of the pods that have arrived could allocate, by a linear program
(HiGHS). `lp` knows for each shape of nodes the sums of CPU, memory and GPU. `configuration` also fills devices one by
one: with patterns of shares, of which each device has one. Compaction is Borg's (Verma et al., EuroSys 2015, section
5.1): nodes are removed in random order until the pods no longer fit, repacked from scratch each time.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import page_table
from page_table import DOCS, table

from minikube_py.lab import pod_lists
from minikube_py.lab.trace import TraceNode, load
from minikube_py.studies.packing.arrivals import Arrival, drawn
from minikube_py.studies.packing.replay import MARKS, Placing
from minikube_py.studies.packing.study import begun

PAGE, DATA = DOCS / "how-to" / "packing-quality.md", DOCS / "data" / "packing-limits.json"
WHOLE: Final = 1000
KINDS: Final = ("lp", "configuration")
POLICIES: Final[tuple[str, ...]] = ("random", "bestfit", "fgd")
SEEDS: Final = range(42, 52)
TRIALS: Final = 11
FILLED: Final = 0.7
"""GPUs that the compacted workload asks for, of all."""
NEAR: Final = 5
"""Nodes within which the smallest number is found, upwards."""
PENDING: Final = 0.002
"""Pods that may be left over, as in the paper."""


# --- bounds ---------------------------------------------------------------------------------------------------------


class _Rows:
    """A sparse matrix of constraints `row . x <= limit`."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self.entries: list[tuple[int, int, float]] = []

    def add(self, limit: float, entries: Iterator[tuple[int, float]]) -> None:
        self.entries += [(len(self.limits), column, value) for column, value in entries]
        self.limits.append(limit)


def patterns(sizes: Sequence[int], room: int = WHOLE) -> Iterator[tuple[int, ...]]:
    """How many of each size fit together on a device, in all ways that leave no room for one more."""
    least = min(sizes, default=room + 1)
    if not sizes:
        return

    def filled(at: int, left: int, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if at == len(sizes):
            if left < least:
                yield counts
            return
        for count in range(left // sizes[at], -1, -1):
            yield from filled(at + 1, left - count * sizes[at], (*counts, count))

    yield from filled(0, room, ())


def bound(nodes: Sequence[TraceNode], arrivals: Sequence[Arrival], kind: str) -> float:
    """Percent of the GPUs."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    wanted, groups = Counter(arrivals), Counter((n.cpu_milli, n.memory_mib, n.gpus, n.model) for n in nodes)
    sizes = sorted({each.shape.gpu_milli for each in wanted if 0 < each.gpu_total_milli < WHOLE})
    known = list(patterns(sizes)) if kind == "configuration" else []
    gains: list[float] = []
    rows = _Rows()
    places: dict[Arrival, list[int]] = {each: [] for each in wanted}
    for (cpu, memory, gpus, model), count in groups.items():
        here: dict[Arrival, int] = {}
        for each in wanted:
            shape = each.shape
            accepted = not shape.models or model in shape.models
            if accepted and shape.cpu_milli <= cpu and each.memory_mib <= memory and shape.gpus <= gpus:
                here[each] = len(gains)
                places[each].append(len(gains))
                gains.append(each.gpu_total_milli)
        rows.add(cpu * count, ((at, each.shape.cpu_milli) for each, at in here.items()))
        rows.add(memory * count, ((at, each.memory_mib) for each, at in here.items()))
        rows.add(WHOLE * gpus * count, ((at, each.gpu_total_milli) for each, at in here.items()))
        if known:
            first = len(gains)
            gains += [0.0] * len(known)
            used = ((at, float(each.shape.gpus)) for each, at in here.items() if each.gpu_total_milli >= WHOLE)
            rows.add(gpus * count, iter([*used, *((first + i, 1.0) for i in range(len(known)))]))
            for number, size in enumerate(sizes):
                shares = ((at, 1.0) for each, at in here.items() if each.gpu_total_milli == size)
                held = ((first + i, -float(p[number])) for i, p in enumerate(known) if p[number])
                rows.add(0.0, iter([*shares, *held]))
    for each, at in places.items():
        rows.add(wanted[each], ((column, 1.0) for column in at))
    row, column, value = (np.array(part) for part in zip(*rows.entries, strict=True))
    matrix = csr_array((value, (row, column)), shape=(len(rows.limits), len(gains)))
    found = linprog(-np.array(gains), A_ub=matrix, b_ub=np.array(rows.limits), method="highs")
    if not found.success:
        raise RuntimeError(found.message)
    return 100 * -float(found.fun) / sum(WHOLE * node.gpus for node in nodes)


def until(arrivals: Sequence[Arrival], capacity_milli: int, mark: int) -> list[Arrival]:
    """Those that arrived while the requested share rounded to at most `mark`: the table's mean is of no later ones."""
    asked, found = 0, []
    for each in arrivals:
        asked += each.gpu_total_milli
        if round(100 * asked / capacity_milli) > mark:
            break
        found.append(each)
    return found


# --- compaction -----------------------------------------------------------------------------------------------------


def fits(nodes: Sequence[TraceNode], pods: pod_lists.Pods, arrivals: Sequence[Arrival], policy: str, seed: int) -> bool:
    placing, pending = Placing(nodes, pods, policy, seed), 0
    for each in arrivals:
        pending += not placing.place(each)[0]
        if pending > PENDING * len(arrivals):
            return False
    return True


def compacted(
    nodes: Sequence[TraceNode], pods: pod_lists.Pods, arrivals: Sequence[Arrival], policy: str, trial: int
) -> int | None:
    """How many nodes are enough: those that are removed last. None if all are too few. By bisection, as if no smaller
    number would do where a greater one does not; fewer GPUs than are asked for never do."""
    order = list(nodes)
    random.Random(f"removal {trial}").shuffle(order)
    asked, gpus = sum(each.gpu_total_milli for each in arrivals), accumulate(WHOLE * node.gpus for node in order)
    low, high = sum(reached < (1 - PENDING) * asked for reached in gpus), len(order) + 1
    while high - low > NEAR:
        middle = (low + high) // 2
        if fits(order[:middle], pods, arrivals, policy, trial):
            high = middle
        else:
            low = middle
    return high if high <= len(order) else None


# --- the run --------------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A bound at a mark in percent, of a seed, or the compaction under a policy, of a trial."""

    kind: str
    at: int
    number: int


def tasks() -> list[Task]:
    bounds = [Task(kind, mark, seed) for kind in KINDS for mark in MARKS for seed in SEEDS]
    return [*bounds, *(Task(policy, 0, trial) for trial in range(TRIALS) for policy in POLICIES)]


def value_of(task: Task, nodes: Sequence[TraceNode], pods: pod_lists.Pods) -> float | None:
    capacity = sum(WHOLE * node.gpus for node in nodes)
    if task.kind in KINDS:
        return round(bound(nodes, until(drawn(pods, capacity, task.number), capacity, task.at), task.kind), 4)
    return compacted(nodes, pods, drawn(pods, capacity, SEEDS[0], FILLED), task.kind, task.number)


def found(path: Path) -> dict[Task, float | None]:
    nodes, pods = load().nodes, pod_lists.read("default")
    with closing(begun(path, "packing-limits", print)) as journal:
        for task in tasks():
            if str(task) not in journal.records:
                journal.add({"key": str(task), "value": value_of(task, nodes, pods)})
                print(*task, journal.records[str(task)]["value"], flush=True)
        return {task: journal.records[str(task)]["value"] for task in tasks()}


def as_json(known: dict[Task, float | None]) -> str:
    rows: dict[tuple[str, int], list[float | None]] = {}
    for task, value in known.items():
        rows.setdefault((task.kind, task.at), []).append(value)
    lines = [json.dumps({"kind": kind, "at": at, "values": values}) for (kind, at), values in rows.items()]
    return f'{{"nodes":{len(load().nodes)},"filled":{FILLED},"rows":[\n' + ",\n".join(lines) + "\n]}\n"


def rendered(document: dict[str, Any]) -> str:
    bounds, compactions = [], []
    for row in document["rows"]:
        values = sorted(row["values"])
        if row["kind"] in KINDS:
            mean = sum(values) / len(values)
            bounds.append([row["kind"], f"{row['at']} %", f"{mean:.2f}", f"{values[0]:.2f} to {values[-1]:.2f}"])
        else:
            # The 90th percentile of eleven is the tenth.
            worst = values[ceil(0.9 * len(values)) - 1]
            share = 100 * worst / document["nodes"]
            compactions.append([row["kind"], f"{worst} ({share:.1f} %)", f"{values[0]} to {values[-1]}"])
    told = table(["Bound", "Arrivals", "Allocated at most, mean", "Seeds"], bounds)
    return told + "\n" + table(["Policy", "Nodes that suffice, 90th percentile", "Least and most"], compactions)


def main(arguments: list[str]) -> int:
    if "--journal" not in arguments:
        words = ["--write" if each == "--page" else each for each in arguments]
        return page_table.main(words, "packing_limits", PAGE, DATA, rendered)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    document = as_json(found(asked.journal))
    if asked.write:
        DATA.write_text(document, encoding="utf-8")
    print(rendered(json.loads(document)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
