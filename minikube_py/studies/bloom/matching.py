"""Measures one unit: every candidate on the same nodes, requests and updates, checked by brute force."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import thread_time_ns
from typing import Any

import numpy as np

from minikube_py.index.filters.contract import Forgetting
from minikube_py.index.structure import HIGH, MISSING, Box, Found, IntArray, load
from minikube_py.index.structures.sharded import REBUILD_AT_LEAST, Sharded
from minikube_py.lab.study.design import Design, Levels, Unit
from minikube_py.lab.study.experiment import Absent
from minikube_py.studies.bloom import timing
from minikube_py.studies.bloom.candidates import Candidate, candidate, shards_of
from minikube_py.studies.bloom.ledger import oracle_can_win
from minikube_py.studies.bloom.settings import batch_count, limits, of_mode
from minikube_py.studies.bloom.workload import Cluster, RangeCluster, Update, boxes, matching

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """The input of every candidate of a unit. `asked[limit][batch]`; `right`: the number of slots in each box."""

    nodes: int
    shards: int
    universe: int
    initial: IntArray
    churn: list[Update]
    asked: dict[int, list[list[Box]]]
    right: dict[int, list[list[int]]]
    updates: list[list[Update]]
    limit_s: float
    overhead: timing.Overhead


def script(design: Design, unit: Unit) -> Script:
    levels = dict(unit.levels)
    cluster = RangeCluster(levels, unit.seed) if "universe" in levels else Cluster(design, levels, unit.seed)
    initial = cluster.points.copy()
    churn = cluster.change(cluster.nodes // 10)
    each = int(of_mode(design, "queries_per_batch"))
    asked: dict[int, list[list[Box]]] = {}
    for limit in limits(design, unit.block):
        count = each * batch_count(design)
        made = cluster.ranges(count) if isinstance(cluster, RangeCluster) else boxes(cluster.requests(count))
        asked[limit] = [made[start : start + each] for start in range(0, count, each)]
    right: dict[int, list[list[int]]] = {limit: [] for limit in asked}
    updates = []
    for batch in range(batch_count(design)):
        for limit, batches in asked.items():
            right[limit].append([len(matching(cluster.points, box)) for box in batches[batch]])
        updates.append(cluster.change(int(of_mode(design, "updates_per_batch"))))
    universe = int(levels.get("universe", design.raw["capacity"] + 1))
    first = next(iter(asked.values()))[0]
    overhead = timing.overhead(first, updates[0])
    limit_s = float(of_mode(design, "batch_limit_s"))
    shards = min(int(levels["shards"]), cluster.nodes)
    return Script(cluster.nodes, shards, universe, initial, churn, asked, right, updates, limit_s, overhead)


@dataclass(slots=True)
class LimitReport:
    """For one limit, by batch: means per request."""

    query_us: list[float] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    pruned: list[float] = field(default_factory=list)
    false: list[float] = field(default_factory=list)
    examined: list[float] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    feasible: timing.Histogram = field(default_factory=timing.Histogram)
    infeasible: timing.Histogram = field(default_factory=timing.Histogram)

    def as_dict(self) -> Report:
        names = ("query_us", "opened", "pruned", "false", "examined")
        figures: Report = {name: [round(value, 4) for value in getattr(self, name)] for name in names}
        return {
            **figures,
            "asked": self.asked,
            "feasible": self.feasible.as_dict(),
            "infeasible": self.infeasible.as_dict(),
        }

    def add(self, answers: timing.Answers, right: Sequence[int], overhead_us: float, opened: Sequence[int]) -> None:
        count = len(answers.found)
        self.asked.append(count)
        self.query_us.append(max(0.01, answers.cpu_us / count - overhead_us))
        self.opened.append(sum(opened) / count)
        self.pruned.append(sum(found.pruned for found in answers.found) / count)
        self.false.append(sum(found.false_positives for found in answers.found) / count)
        self.examined.append(sum(found.examined for found in answers.found) / count)
        for latency_us, matches in zip(answers.latencies_us, right):
            (self.feasible if matches else self.infeasible).add(latency_us)


def measure(design: Design, unit: Unit) -> Report:
    """The blocks whose candidates are queried and updated alternately."""
    plan = script(design, unit)
    levels = dict(unit.levels)
    names = design.candidates(unit.block)
    filters = [name for name in names if name in design.raw["filters"]]
    found: dict[str, Report] = {}
    absent: dict[str, str] = {}
    for name in names:
        if name not in filters:
            _one(design, levels, name, plan, found, absent)
    skipped = ""
    if filters:
        if plan.nodes > of_mode(design, "filter_rows_max"):
            skipped = "rows"
        elif design.blocks[unit.block].get("ablation") and not oracle_can_win(design, found):
            skipped = "oracle"
        else:
            for name in filters:
                _one(design, levels, name, plan, found, absent)
    return {"candidates": found, "absent": absent, "skipped": skipped, **describe(plan)}


def describe(plan: Script) -> Report:
    """Describes the requests, independent of candidates."""
    feasible = {
        str(limit): float(np.mean([matches > 0 for batch in batches for matches in batch]))
        for limit, batches in plan.right.items()
    }
    return {"feasible_share": feasible, "nodes": plan.nodes, "shards": plan.shards}


def _one(
    design: Design, levels: Levels, name: str, plan: Script, found: dict[str, Report], absent: dict[str, str]
) -> None:
    if plan.nodes > design.raw["exact_rows_max"].get(name, plan.nodes):
        return
    try:
        found[name] = run(candidate(name, design, levels), plan)
    except Absent as error:
        absent[name] = str(error)
    except Exception as error:
        # A failing candidate is reported, and the others continue.
        absent[name] = f"{name} (failed): {type(error).__name__}: {error}"


def run(tried: Candidate, plan: Script) -> Report:
    """Runs one candidate through the whole script."""
    structure = tried.structure
    load_us = loaded(tried, plan.initial)
    for slot, point in plan.churn:
        structure.put(slot, point)
    reports = {limit: LimitReport() for limit in plan.asked}
    update_us: list[float] = []
    wrong, cut = 0, False
    rebuilt = structure.ledger.rebuilt_points if isinstance(structure, Sharded) else 0
    for batch, updates in enumerate(plan.updates):
        for limit, batches in plan.asked.items():
            answers = timing.ask(structure, ended(batches[batch], tried.high), limit, plan.limit_s)
            right = plan.right[limit][batch]
            wrong += mistaken(answers.found, right, limit)
            cut = cut or answers.cut
            reports[limit].add(answers, right, plan.overhead.request_us, opened_by(tried, answers.found, plan.shards))
        each_us, stopped = timing.put(structure, updates, plan.limit_s)
        update_us.append(max(0.01, each_us - plan.overhead.update_us))
        cut = cut or stopped
    figures: Report = {
        "kind": tried.kind,
        "limits": {str(limit): each.as_dict() for limit, each in reports.items()},
        "update_us": [round(value, 4) for value in update_us],
        "load_us_per_node": round(load_us, 4),
        "size_bytes": structure.size_bytes(),
        "filter_bytes": tried.filter_bytes(plan.universe),
        "cut": cut,
        "wrong": wrong,
    }
    if isinstance(structure, Sharded):
        count = sum(map(len, plan.updates))
        figures["rebuilt_share"] = (structure.ledger.rebuilt_points - rebuilt) / count
        figures["rebuilt_share_expected"] = expected_rebuilds(structure, plan)
    return figures


def expected_rebuilds(structure: Sharded, plan: Script) -> float:
    """Nodes whose filter is rebuilt per update, in the long run."""
    if any(isinstance(summary, Forgetting) for summary in structure._summaries):
        return 0.0
    rows = plan.nodes / plan.shards
    return rows / (max(REBUILD_AT_LEAST, structure._rebuild_share * rows) + 1)


def loaded(tried: Candidate, points: IntArray) -> float:
    """Loads it; returns CPU time per node in us."""
    began_ns = thread_time_ns()
    load(tried.structure, np.arange(len(points), dtype=np.int64), points)
    return (thread_time_ns() - began_ns) / 1000 / max(1, len(points))


def ended(asked: Sequence[Box], high: int) -> list[Box]:
    """Half-lines that end at `high`."""
    if high == HIGH:
        return list(asked)
    return [
        Box(box.lows, tuple(high if end == HIGH and low != MISSING else end for low, end in zip(*box))) for box in asked
    ]


def opened_by(tried: Candidate, found: Sequence[Found], shards: int) -> list[int]:
    """Shards opened per request; without shards, those needed to read the objects found."""
    if tried.kind == "front":
        return [each.shards for each in found]
    return [shards_of(each.slots, shards) for each in found]


def mistaken(found: Sequence[Found], right: Sequence[int], limit: int) -> int:
    """The number of answers of the wrong size."""
    return sum(len(each.slots) != (min(limit, matches) if limit else matches) for each, matches in zip(found, right))


Measure = Callable[[Design, Unit], Report]
