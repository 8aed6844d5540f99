"""Blocks in which a cluster passes through stages: changes without rebuilds, queries of the past, or updates between
requests.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from time import thread_time_ns
from typing import Any

import numpy as np

from minikube_py.index.filters.catalogue import summary_of
from minikube_py.index.structure import Box, Found, IntArray, Versioned
from minikube_py.lab.study.design import Design, Levels, Unit
from minikube_py.lab.study.experiment import Absent
from minikube_py.studies.bloom import timing
from minikube_py.studies.bloom.candidates import Candidate, candidate, joint_buckets
from minikube_py.studies.bloom.matching import LimitReport, Report, ended, loaded, mistaken, opened_by
from minikube_py.studies.bloom.settings import batch_count, limits, of_mode
from minikube_py.studies.bloom.undo import UndoLog
from minikube_py.studies.bloom.workload import Cluster, Update, boxes, matching

HISTORY_REQUESTS_SHARE = 4
"""A quarter as many requests at old revisions: each is checked against a reconstructed state."""


def _available(
    design: Design, block: str, levels: Levels, absent: dict[str, str], rebuilding: bool = True
) -> list[Candidate]:
    found = []
    for name in design.candidates(block):
        if int(levels["n"]) > design.raw["exact_rows_max"].get(name, 1 << 60):
            continue
        try:
            found.append(candidate(name, design, levels, rebuilding))
        except Absent as error:
            absent[name] = str(error)
    return found


def churn(design: Design, unit: Unit) -> Report:
    """Requests as nodes change without rebuilds: one report per share of changed nodes."""
    levels = dict(unit.levels)
    cluster = Cluster(design, levels, unit.seed)
    initial = cluster.points.copy()
    each, limit = int(of_mode(design, "queries_per_batch")), limits(design, "churn")[0]
    stages: list[tuple[str, list[Update], list[list[Box]], list[list[int]]]] = []
    before = 0.0
    for share in design.levels("churn", "changed_share"):
        changes = cluster.change(round((float(share) - before) * cluster.nodes))
        before = float(share)
        made = boxes(cluster.requests(each * batch_count(design)))
        asked = [made[start : start + each] for start in range(0, len(made), each)]
        right = [[len(matching(cluster.points, box)) for box in batch] for batch in asked]
        stages.append((f"{share:g}", changes, asked, right))
    overhead = timing.overhead(stages[0][2][0], stages[-1][1] or [(0, tuple(initial[0].tolist()))])
    absent: dict[str, str] = {}
    found: dict[str, Report] = {}
    for tried in _available(design, "churn", levels, absent, rebuilding=False):
        loaded(tried, initial)
        report: dict[str, Any] = {}
        wrong = 0
        for share, changes, asked, right in stages:
            for slot, point in changes:
                tried.structure.put(slot, point)
            of_stage = LimitReport()
            for batch, truth in zip(asked, right):
                answers = timing.ask(tried.structure, ended(batch, tried.high), limit, of_mode(design, "batch_limit_s"))
                wrong += mistaken(answers.found, truth, limit)
                of_stage.add(answers, truth, overhead.request_us, opened_by(tried, answers.found, cluster.shards))
            report[share] = of_stage.as_dict()
        found[tried.name] = {"kind": tried.kind, "stages": report, "wrong": wrong}
    return {"candidates": found, "absent": absent}


def stream(design: Design, unit: Unit) -> Report:
    """Requests and updates interleaved at each ratio, timed together; a test of the ledger's arithmetic."""
    levels = dict(unit.levels)
    each = int(of_mode(design, "queries_per_batch")) * batch_count(design)
    ratios = [float(level) for level in design.levels("stream", "updates")]
    plans = []
    cluster = Cluster(design, levels, unit.seed)
    initial = cluster.points.copy()
    for ratio in ratios:
        asked = boxes(cluster.requests(each))
        plans.append((ratio, asked, [cluster.change(int((i + 1) * ratio) - int(i * ratio)) for i in range(each)]))
    # The overhead of the loop and its clock, by a structure that does nothing.
    nothing = Candidate("idle", "whole", timing.Idle())
    idle = [_by_turns(nothing, asked, changes, cluster.shards) for _, asked, changes in plans]
    absent: dict[str, str] = {}
    found: dict[str, Report] = {}
    for tried in _available(design, "stream", levels, absent):
        loaded(tried, initial)
        figures: Report = {}
        for (ratio, asked, changes), (idle_us, idle_query_us, _) in zip(plans, idle):
            together_us, query_us, opened = _by_turns(tried, asked, changes, cluster.shards)
            together_us, query_us = together_us - idle_us, query_us - idle_query_us
            count = sum(map(len, changes))
            figures[f"{ratio:g}"] = {
                "each_us": together_us / each,
                "query_us": query_us / each,
                "update_us": max(0.0, (together_us - query_us) / count) if count else 0.0,
                "opened": opened / each,
            }
        found[tried.name] = {"kind": tried.kind, "ratios": figures, "wrong": 0}
    return {"candidates": found, "absent": absent}


def _by_turns(
    tried: Candidate, asked: Sequence[Box], changes: Sequence[Sequence[Update]], shards: int
) -> tuple[float, float, int]:
    """Total CPU time and that of the requests alone, in us; and the shards opened."""
    structure, limit = tried.structure, 1
    wanted = ended(asked, tried.high)
    found: list[Found] = []
    query_ns = 0
    began_ns = thread_time_ns()
    for box, updates in zip(wanted, changes):
        for slot, point in updates:
            structure.put(slot, point)
        asked_ns = thread_time_ns()
        found.append(structure.find(box, limit))
        query_ns += thread_time_ns() - asked_ns
    together_ns = thread_time_ns() - began_ns
    return together_ns / 1000, query_ns / 1000, sum(opened_by(tried, found, shards))


def history(design: Design, unit: Unit) -> Report:
    """The past: bytes per revision, requests at old ones, and what a summary of the whole window still prunes."""
    levels = dict(unit.levels)
    cluster = Cluster(design, levels, unit.seed)
    initial = cluster.points.copy()
    window = max(1, round(float(levels["window_share"]) * cluster.nodes))
    updates = cluster.change(window)
    count = max(8, int(of_mode(design, "queries_per_batch")) * batch_count(design) // HISTORY_REQUESTS_SHARE)
    asked = boxes(cluster.requests(count))
    revisions = np.random.default_rng([unit.seed, 7]).integers(0, window, size=count).tolist()
    log = UndoLog(initial)
    for slot, point in updates:
        log.put(slot, point)
    right = [len(matching(log.points_at(revision), box)) for revision, box in zip(revisions, asked)]
    idle = timing.overhead(asked, updates[:64])
    absent: dict[str, str] = {}
    found: dict[str, Report] = {}
    for tried in _available(design, "history", levels, absent):
        if tried.kind == "front":
            found[tried.name] = _window_summary(design, levels, tried.name, initial, updates, asked, revisions, log)
            continue
        limit = limits(design, "history")[0]
        found[tried.name] = _past(tried, initial, updates, asked, revisions, right, limit, idle)
    return {"candidates": found, "absent": absent, "window": window}


def _past(
    tried: Candidate,
    initial: IntArray,
    updates: Sequence[Update],
    asked: Sequence[Box],
    revisions: Sequence[int],
    right: Sequence[int],
    limit: int,
    idle: timing.Overhead,
) -> Report:
    structure: Any = tried.structure
    loaded(tried, initial)
    versioned = isinstance(structure, Versioned)
    log = UndoLog(initial)
    states: list[Any] = []
    began_ns = thread_time_ns()
    for slot, point in updates:
        if versioned:
            states.append(structure.freeze())
        else:
            log.put(slot, point)
        structure.put(slot, point)
    update_us = (thread_time_ns() - began_ns) / 1000 / len(updates)
    # Repeated for the memory, as measuring it takes extra time.
    size = _bytes_a_revision(structure, updates, states) if versioned else log.bytes_a_revision()
    wrong = 0
    present = timing.ask(structure, asked, limit, 10.0)
    began_ns = thread_time_ns()
    for box, revision, matches in zip(asked, revisions, right):
        if versioned:
            slots = structure.find_frozen(states[revision], box, limit).slots
        else:
            slots = log.find(structure, box, limit, revision)
        wrong += len(slots) != (min(limit, matches) if limit else matches)
    old_us = (thread_time_ns() - began_ns) / 1000 / len(asked)
    return {
        "kind": tried.kind,
        "past": "frozen states" if versioned else "undo log",
        "update_us": max(0.0, update_us - idle.update_us),
        "bytes_a_revision": size,
        "query_us": max(0.01, present.cpu_us / len(present.found) - idle.request_us),
        "old_query_us": old_us,
        "wrong": wrong,
    }


def _bytes_a_revision(structure: Any, updates: Sequence[Update], states: list[Any]) -> float:
    """The bytes that frozen states keep alive, beyond one: the same updates again, with tracemalloc on."""
    again = updates[: min(len(updates), 2000)]
    kept: list[Any] = []
    tracemalloc.start()
    try:
        for slot, point in again[: len(again) // 4]:
            kept.append(structure.freeze())
            structure.put(slot, point)
        before, _ = tracemalloc.get_traced_memory()
        for slot, point in again[len(again) // 4 :]:
            kept.append(structure.freeze())
            structure.put(slot, point)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / max(1, len(again) - len(again) // 4)


def _window_summary(
    design: Design,
    levels: Levels,
    name: str,
    initial: IntArray,
    updates: Sequence[Update],
    asked: Sequence[Box],
    revisions: Sequence[int],
    log: UndoLog,
) -> Report:
    """One summary per shard of all its points within the window: sound at all its revisions, but less selective."""
    shards, dimensions = min(int(levels["shards"]), len(initial)), int(levels["d"])
    options: dict[str, Any] = {}
    if name == "joint-bitset":
        bits = int(levels["bits_per_key"]) * dimensions * max(1, len(initial) // shards)
        options["buckets"] = joint_buckets(design, dimensions, bits)
    summaries = [summary_of(name, initial[shard::shards], **options) for shard in range(shards)]
    for slot, point in updates:
        summaries[slot % shards].put(point)
    let = kept = missed = 0
    for box, revision in zip(asked, revisions):
        slots = matching(log.points_at(revision), box)
        holds = set((slots % shards).tolist())
        for shard, summary in enumerate(summaries):
            says = summary.may_match(box)
            missed += shard in holds and not says
            if shard not in holds:
                let, kept = let + says, kept + (not says)
    present = [summary_of(name, log.points[shard::shards], **options) for shard in range(shards)]
    now_let = now_kept = 0
    for box in asked:
        slots = matching(log.points, box)
        holds = set((slots % shards).tolist())
        let_in = sum(summary.may_match(box) for shard, summary in enumerate(present) if shard not in holds)
        now_let, now_kept = now_let + let_in, now_kept + shards - len(holds) - let_in
    return {
        "kind": "front",
        "past": "one summary of the window",
        "false_positives": let / max(1, let + kept),
        "false_positives_present": now_let / max(1, now_let + now_kept),
        "bytes_a_revision": 0.0,
        "wrong": missed,
    }
