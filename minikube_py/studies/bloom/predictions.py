"""The registered predictions, each tested on the measurements. The thresholds are those of docs/studies/bloom.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from minikube_py.lab.study.design import Design
from minikube_py.lab.study.experiment import Finding
from minikube_py.lab.study.journal import Record, fingerprint
from minikube_py.studies.bloom.ledger import BASE, JOINT, PLAIN, Cell, Price, cells
from minikube_py.studies.bloom.settings import costs_behind_us, updates_per_query
from minikube_py.studies.bloom.statistics import ratios, share_interval

TREES: Final = ("max-tree", "cow-max-tree", "kd-tree", "bitmaps")


class Evidence:
    """The predictions' input: all records, and the cells of each block, computed once."""

    def __init__(self, design: Design, records: Sequence[Record]) -> None:
        self.design = design
        self.records = [record for record in records if "failed" not in record]
        self._cells: dict[str, list[Cell]] = {}

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.records)

    def cells(self, *blocks: str) -> list[Cell]:
        for block in blocks:
            if block not in self._cells:
                self._cells[block] = cells(self.records, block)
        return [cell for block in blocks for cell in self._cells[block]]

    def of_block(self, block: str) -> list[Record]:
        return [record for record in self.records if record["block"] == block]

    def filters(self, cell: Cell) -> list[str]:
        return [name for name in self.design.raw["filters"] if name in cell.names]

    def prices(self, c_behind: Callable[[float], bool], updates: Callable[[float], bool]) -> list[Price]:
        return [
            Price(cost, ratio)
            for cost in costs_behind_us(self.design)
            for ratio in updates_per_query(self.design)
            if c_behind(cost) and updates(ratio)
        ]


def share(outcomes: Iterable[bool]) -> tuple[int, int]:
    found = list(outcomes)
    return sum(found), len(found)


def _told(hits: int, total: int, what: str, holds: bool, name: str, claim: str) -> Finding:
    if not total:
        return Finding(name, claim, "not tested", "no such cell has finished, or a candidate is absent")
    evidence = f"{hits} of {total} {what} ({share_interval(hits, total).text()})"
    return Finding(name, claim, "held" if holds else "falsified", evidence)


def in_process(evidence: Evidence) -> Finding:
    claim = "In process (C_behind = 0) no range filter wins at any n"
    wins: list[bool] = []
    for cell in evidence.cells("grid"):
        for price in evidence.prices(lambda cost: cost == 0, lambda _: True):
            names = evidence.filters(cell)
            wins += [cell.verdict(evidence.design, name, price, free=True) == "win" for name in names]
            if not names and all(record.get("skipped") == "oracle" for record in cell.records):
                wins.append(False)
    hits, total = share(wins)
    return _told(hits, total, "comparisons are wins", hits <= 0.025 * total, "P1", claim)


def joint_beats_max(evidence: Evidence) -> Finding:
    claim = "A joint bitset beats the max vector at utilisation >= 0.97, correlation <= 0, C_behind >= 50 us, U/Q <= 1"
    wins = []
    for cell in evidence.cells("grid"):
        levels = cell.levels
        busy = float(levels["utilisation"]) >= 0.97 and float(levels["correlation"]) <= 0 and levels["shards"] == 256
        if busy and JOINT in cell.names and PLAIN in cell.names:
            prices = evidence.prices(lambda cost: cost >= 50, lambda ratio: ratio <= 1)
            wins += [_beats(evidence, cell, JOINT, [PLAIN], price) for price in prices]
    hits, total = share(wins)
    return _told(hits, total, "are wins", 2 * hits >= total, "P2", claim)


def _beats(evidence: Evidence, cell: Cell, name: str, rivals: Sequence[str], price: Price) -> bool:
    margin = float(evidence.design.raw["margin"])
    return all(each.high < 1 - margin for each in cell.against(evidence.design, name, rivals, price))


def shapes_win(evidence: Evidence) -> Finding:
    claim = "`shapes` beats every other exact structure at repetition >= 0.8, U/Q <= 1"
    wins = []
    for cell in evidence.cells("repetition"):
        if float(cell.levels["repetition"]) >= 0.8 and "shapes" in cell.names:
            rivals = [name for name in cell.names if name != "shapes" and cell.kind(name) == "whole"]
            free = evidence.prices(lambda cost: cost == 0, lambda ratio: ratio <= 1)
            wins += [_beats(evidence, cell, "shapes", rivals, price) for price in free]
    hits, total = share(wins)
    return _told(hits, total, "are wins", 2 * hits >= total, "P3", claim)


def max_is_exact(evidence: Evidence) -> Finding:
    claim = "For half-lines no filter of single resources opens fewer shards than the max vector"
    fewer: dict[str, int] = {}
    total = 0
    for cell in evidence.cells("grid", "bits"):
        if PLAIN not in cell.names:
            continue
        for record in cell.records:
            reports = {name: each["limits"][cell.limit] for name, each in record["candidates"].items()}
            plain = reports[PLAIN]
            for name in evidence.filters(cell):
                for batch, asked in enumerate(reports[name]["asked"]):
                    # A batch cut short had other requests on average.
                    if asked == plain["asked"][batch]:
                        total += 1
                        less = reports[name]["opened"][batch] < plain["opened"][batch] - 1e-3
                        fewer[name] = fewer.get(name, 0) + less
    hits = sum(fewer.values())
    who = ", ".join(f"{name} {count}" for name, count in fewer.items() if count)
    return _told(hits, total, f"whole batches opened fewer{': ' + who if who else ''}", not hits, "P4", claim)


def exact_ladder(evidence: Evidence) -> Finding:
    claim = "1:1 updates, limit 1, in process: columns within 2x of the best at 1,000 nodes, 3x a tree at 100,000"
    price = Price(0.0, 1.0)
    small, large = [], []
    for cell in evidence.cells("grid"):
        if cell.limit != "1" or "columns" not in cell.names:
            continue
        whole = [name for name in cell.names if cell.kind(name) == "whole"]
        trees = [name for name in TREES if name in cell.names]
        if cell.levels["n"] == 1000:
            small.append(cell.mean("columns", price) / min(cell.mean(name, price) for name in whole))
        elif cell.levels["n"] == 100_000 and trees:
            large.append(cell.mean("columns", price) / min(cell.mean(name, price) for name in trees))
    if not small or not large:
        return Finding("P5", claim, "not tested", "cells of 1,000 or of 100,000 nodes have not finished")
    holds = fmean(small) <= 2 and fmean(large) >= 3
    evidence_text = (
        f"columns cost {fmean(small):.2f} times the best at 1,000 nodes (mean of {len(small)} cells), and "
        f"{fmean(large):.2f} times the best tree or bitmaps at 100,000 (mean of {len(large)})"
    )
    return Finding("P5", claim, "held" if holds else "falsified", evidence_text)


def decay(evidence: Evidence) -> Finding:
    claim = "kd-tree without rebuilding: after 10 % of nodes changed a request takes at least 3 times as long"
    before, after = [], []
    for record in evidence.of_block("churn"):
        stages = record["candidates"].get("kd-tree", {}).get("stages", {})
        if "0" in stages and "0.1" in stages:
            before.append(stages["0"]["query_us"])
            after.append(stages["0.1"]["query_us"])
    if not before:
        return Finding("P6", claim, "not tested", "no unit of the block has finished with a kd-tree")
    raw = evidence.design.raw
    found = ratios(np.array(after), np.array([before]), raw["resamples"], raw["confidence"])[0]
    return Finding("P6", claim, "falsified" if found.high < 3 else "held", f"{found.text()} times as long")


def narrow_ranges(evidence: Evidence) -> Finding:
    claim = (
        "Ranges of L <= 32 in a universe of 2^40, C_behind >= 50 us, U/Q = 0.01: Grafite or Memento at 12 bits and "
        "more wins; in 2^12 no filter is smaller than the exact copy"
    )
    wins, smaller = [], []
    for cell in evidence.cells("ranges"):
        if int(cell.levels["bits_per_key"]) < 12:
            continue
        if int(cell.levels["universe"]) == 4096:
            if "exact-copy" in cell.names:
                smaller += [cell.bytes(name) < cell.bytes("exact-copy") for name in evidence.filters(cell)]
        elif int(cell.levels["length"]) <= 32:
            names = [name for name in ("grafite", "memento") if name in cell.names]
            prices = evidence.prices(lambda cost: cost >= 50, lambda ratio: ratio == 0.01) if names else []
            wins += [
                any(cell.verdict(evidence.design, name, each, free=False) == "win" for name in names) for each in prices
            ]
    hits, total = share(wins)
    found = _told(hits, total, "are wins", 2 * hits >= total and not any(smaller), "P7", claim)
    more = f"; in 2^12 {sum(smaller)} of {len(smaller)} filters are smaller than the exact copy"
    return Finding(found.name, found.claim, found.outcome, found.evidence + (more if total else ""))


def joint_breaks_even(evidence: Evidence) -> Finding:
    claim = "At 256 shards where p_empty >= 0.5, the joint bitset breaks even with `always` below 50 us at U/Q <= 1"
    below = []
    for cell in evidence.cells("grid"):
        if cell.levels["shards"] == 256 and JOINT in cell.names and cell.p_empty() >= 0.5:
            below += [
                cell.break_even_us(JOINT, ratio) < 50 for ratio in updates_per_query(evidence.design) if ratio <= 1
            ]
    hits, total = share(below)
    return _told(hits, total, "break even below 50 us", 2 * hits >= total, "P8", claim)


def compiled_probes(evidence: Evidence) -> Finding:
    claim = "Compiled probes move the break-even at least 10 times lower and change no winner at C_behind = 0"
    lower: list[float] = []
    changed = total = 0
    for record in evidence.of_block("probes"):
        if "compiled" not in record["ways"]:
            continue
        totals = {way: in_process_costs(figures, record["shards"]) for way, figures in record["ways"].items()}
        total += 1
        changed += kind_of(min(totals["compiled"], key=totals["compiled"].__getitem__)) != kind_of(
            min(totals["python"], key=totals["python"].__getitem__)
        )
        for front in (PLAIN, JOINT, "bloom"):
            slow, fast = (
                probe_break_even_us(record["ways"][way], front, record["shards"]) for way in ("python", "compiled")
            )
            if 0 < slow < math.inf:
                lower.append(slow / max(fast, 0.001))
    if not total:
        return Finding("P9", claim, "not tested", "numba is not installed, or no unit of the block has finished")
    factor = median(lower) if lower else float("nan")
    text = f"where a front breaks even above 0 in Python, it does {factor:.3g} times lower (median of {len(lower)}); "
    text += "the winner in process "
    text += f"changes between exact and filter in {changed} of {total} cells"
    return Finding("P9", claim, "held" if factor >= 10 and not changed else "falsified", text)


def kind_of(name: str) -> str:
    return "exact" if name in ("first-fit", "max-tree") else "filter"


def in_process_costs(figures: dict[str, Any], shards: int) -> dict[str, float]:
    """The cost in us of a request that fits no node, if opening shards is free."""
    costs = {"first-fit": figures["first_fit_us"]["infeasible"], "always": shards * figures["shard_us"]}
    if "tree_us" in figures:
        costs["max-tree"] = figures["tree_us"]["infeasible"]
    for name in (PLAIN, JOINT, "bloom"):
        costs[name] = figures[name] + figures["opened"][name] * figures["shard_us"]
    return {name: cost for name, cost in costs.items() if not math.isnan(cost)}


def probe_break_even_us(figures: dict[str, Any], name: str, shards: int) -> float:
    """C_behind from which probing all shards costs less than opening all; 0 if scanning them costs more."""
    fewer = shards - figures["opened"][name]
    return max(0.0, figures[name] / fewer - figures["shard_us"]) if fewer > 0 else float("inf")


def real_shards(evidence: Evidence) -> Finding:
    claim = "Both real cases (cold on disk, remote) cost 50 us or more for each shard"
    costs: dict[str, list[float]] = {}
    for record in evidence.of_block("behind"):
        for name, figures in record.get("cases", {}).items():
            costs.setdefault(name, []).append(figures["c_behind_us"])
    if not costs:
        return Finding("P10", claim, "not tested", "no unit of the block has finished")
    means = {name: fmean(values) for name, values in costs.items()}
    text = "; ".join(f"{name}: {mean:.3g} us" for name, mean in means.items())
    return Finding("P10", claim, "held" if min(means.values()) >= 50 else "falsified", text)


def correlated(evidence: Evidence) -> Finding:
    claim = "Correlated requests: prefix Bloom's FPR is above 0.2 at L = 32; Grafite's stays within its bound"
    prefix: list[float] = []
    above = bounded = 0
    for record in evidence.of_block("rates"):
        if record["levels"]["queries"] != "correlated":
            continue
        found = record["candidates"]
        if record["levels"]["length"] == 32 and "prefix-bloom" in found:
            prefix.append(found["prefix-bloom"]["false_positives"] / max(1, found["prefix-bloom"]["asked"]))
        grafite = found.get("grafite")
        if grafite and grafite["bound"] is not None:
            bounded += 1
            above += share_interval(grafite["false_positives"], grafite["asked"]).low > grafite["bound"]
    if not prefix or not bounded:
        return Finding("P11", claim, "not tested", "prefix-bloom or grafite is absent, or no unit has finished")
    text = (
        f"prefix Bloom: {min(prefix):.3g} to {max(prefix):.3g}; Grafite above its bound in {above} of {bounded} cells"
    )
    return Finding("P11", claim, "held" if min(prefix) > 0.2 and not above else "falsified", text)


def clustered(evidence: Evidence) -> Finding:
    claim = "Clustered placement moves p_empty up by 0.1 or more at utilisation >= 0.9"
    empties: dict[str, dict[str, float]] = {}
    for cell in evidence.cells("placement"):
        levels = dict(cell.levels)
        placement = str(levels.pop("placement"))
        empties.setdefault(str(sorted(levels.items())), {})[placement] = cell.p_empty()
    moved = [each["clustered"] - each["random"] for each in empties.values() if len(each) == 2]
    hits, total = share(each >= 0.1 for each in moved)
    found = _told(hits, total, "cells do", 2 * hits >= total, "P12", claim)
    more = f"; by {fmean(moved):+.3f} on average" if moved else ""
    return Finding(found.name, found.claim, found.outcome, found.evidence + more)


ALL: Final = (
    in_process,
    joint_beats_max,
    shapes_win,
    max_is_exact,
    exact_ladder,
    decay,
    narrow_ranges,
    joint_breaks_even,
    compiled_probes,
    real_shards,
    correlated,
    clustered,
)


def judge(evidence: Evidence) -> list[Finding]:
    return [each(evidence) for each in ALL]


__all__ = ["ALL", "BASE", "Evidence", "Finding", "in_process_costs", "judge", "probe_break_even_us"]
