"""Advice as a decision tree with thresholds from the results; branches without a cell are omitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from minikube_py.studies.bloom.ledger import BASE, JOINT, PLAIN, Cell, Price
from minikube_py.studies.bloom.predictions import Evidence
from minikube_py.studies.bloom.settings import costs_behind_us, updates_per_query
from minikube_py.studies.bloom.tables import cost_text, microseconds, number, percent, updates_text

NEAR = 1.1
"""Structures within 10 % of the cheapest are listed beside it."""


def tree(evidence: Evidence) -> list[str]:
    """Markdown lines."""
    lines = [
        "1. **Are the nodes' free resources at hand in this process, all of them?** Then no filter; choose by size:"
    ]
    lines += _in_process(evidence)
    lines += _repeated(evidence)
    lines += ["2. **Do they lie in shards that cost something to open (cold on disk, at another member)?**"]
    lines += _behind(evidence)
    lines += _joint(evidence)
    lines += _updates(evidence)
    lines += ["3. **Would a range filter (Bloom probed L times, prefix Bloom, Rosetta, Grafite, Memento) do better?**"]
    lines += _half_lines(evidence)
    lines += _narrow(evidence)
    return lines


def _in_process(evidence: Evidence) -> list[str]:
    lines = []
    grid = [cell for cell in evidence.cells("grid") if cell.limit == "1"]
    for nodes in sorted({int(cell.levels["n"]) for cell in grid}):
        parts = []
        for ratio in updates_per_query(evidence.design):
            means = _means([cell for cell in grid if cell.levels["n"] == nodes], Price(0.0, ratio))
            if means:
                least = min(means.values())
                near = [f"{name} ({number(cost)} us)" for name, cost in sorted(means.items(), key=lambda each: each[1])]
                count = sum(cost <= NEAR * least for cost in means.values())
                parts.append(f"{updates_text(ratio)}: {', '.join(near[: max(1, min(3, count))])}")
        lines.append(
            f"   - {nodes:,} nodes, first node that fits, cost of a request with its updates: {'; '.join(parts)}."
        )
    return lines


def _means(cells: Sequence[Cell], price: Price) -> dict[str, float]:
    """Of the exact structures that all cells contain."""
    if not cells:
        return {}
    names = [
        name for name in cells[0].names if cells[0].kind(name) == "whole" and all(name in each.names for each in cells)
    ]
    return {name: fmean(cell.mean(name, price) for cell in cells) for name in names}


def _repeated(evidence: Evidence) -> list[str]:
    lines = []
    cells = [cell for cell in evidence.cells("repetition") if "shapes" in cell.names]
    for ratio in updates_per_query(evidence.design):
        price = Price(0.0, ratio)
        won: dict[float, list[bool]] = {}
        for cell in cells:
            others = [name for name in cell.names if name != "shapes" and cell.kind(name) == "whole"]
            ahead = cell.mean("shapes", price) < min(cell.mean(name, price) for name in others)
            won.setdefault(float(cell.levels["repetition"]), []).append(ahead)
        text = ", ".join(f"{share:g}: {percent(sum(each), len(each))}" for share, each in sorted(won.items()))
        if won:
            lines.append(
                f"   - Requests that repeat, {updates_text(ratio)}: `shapes` is the cheapest in these shares "
                "of cells, "
                f"by repetition {text}."
            )
    return lines


def _fronts(evidence: Evidence, name: str) -> list[Cell]:
    cells = [cell for cell in evidence.cells("grid") if cell.limit == "1" and int(cell.levels["shards"]) > 1]
    return [cell for cell in cells if name in cell.names and BASE in cell.names and PLAIN in cell.names]


def _behind(evidence: Evidence) -> list[str]:
    lines = []
    groups: dict[float, list[Cell]] = {}
    for cell in _fronts(evidence, PLAIN):
        groups.setdefault(float(cell.levels["utilisation"]), []).append(cell)
    parts = []
    for utilisation, group in sorted(groups.items()):
        even = median(cell.break_even_us(PLAIN, 1.0) for cell in group)
        parts.append(f"{utilisation:g}: {microseconds(even)}")
    if parts:
        lines.append(
            "   - Put the max vector in front of each shard from this cost of opening it on, by utilisation (medians; "
            "one update for a request; "
            f"0: it pays even in process, as looking through a shard costs time too): {', '.join(parts)}."
        )
    whole = [cell for cell in evidence.cells("grid") if cell.limit == "1" and PLAIN in cell.names]
    wins = 0
    for cell in whole:
        structures = [name for name in cell.names if cell.kind(name) == "whole"]
        price = Price(1000.0, 1.0)
        fronts = [name for name in cell.names if cell.kind(name) == "front" and name != "oracle"]
        wins += bool(structures) and cell.mean(cell.winner(structures, price), price) <= cell.mean(
            cell.winner(fronts, price), price
        )
    if whole:
        lines.append(
            "   - But first ask whether an exact structure of all nodes fits in memory: it opens only the shard of the "
            "node it found, and where opening a shard costs 1 ms it costs no more than the best front in "
            f"{percent(wins, len(whole))} of cells."
        )
    return lines


def _joint(evidence: Evidence) -> list[str]:
    lines = []
    for cost in (each for each in costs_behind_us(evidence.design) if each):
        parts = []
        groups: dict[float, list[bool]] = {}
        for cell in _fronts(evidence, JOINT):
            price = Price(cost, 1.0)
            wins = cell.mean(JOINT, price) < (1 - evidence.design.raw["margin"]) * cell.mean(PLAIN, price)
            groups.setdefault(float(cell.levels["utilisation"]), []).append(wins)
        for utilisation, found in sorted(groups.items()):
            parts.append(f"{utilisation:g}: {percent(sum(found), len(found))}")
        if parts:
            lines.append(
                f"   - Where opening a shard costs {cost_text(cost)}, a joint bitset beats the max vector by 5 % and "
                "more in, "
                f"by utilisation, {', '.join(parts)} of cells."
            )
    return lines


def _updates(evidence: Evidence) -> list[str]:
    parts = []
    for ratio in updates_per_query(evidence.design):
        evens = [
            cell.break_even_us(JOINT, ratio, PLAIN)
            for cell in _fronts(evidence, JOINT)
            if float(cell.levels["utilisation"]) >= 0.9
        ]
        if evens:
            parts.append(
                f"{updates_text(ratio)}: {microseconds(median(evens))} "
                f"({sum(map(math.isinf, evens))} of {len(evens)} never)"
            )
    if not parts:
        return []
    return [
        "   - The joint bitset breaks even with the max vector at utilisation 0.9 and more from, in the median, "
        f"{'; '.join(parts)}."
    ]


def _half_lines(evidence: Evidence) -> list[str]:
    wins = total = 0
    for cell in evidence.cells("grid", "bits"):
        for name in evidence.filters(cell):
            for price in evidence.prices(lambda _: True, lambda _: True):
                total += 1
                wins += cell.verdict(evidence.design, name, price, free=False) == "win"
    if not total:
        return []
    return [
        f"   - For inequalities (`free >= a`): it won {wins} of {total:,} comparisons against none, max vector and "
        "joint bitset."
    ]


def _narrow(evidence: Evidence) -> list[str]:
    lines = []
    for universe in sorted({int(cell.levels["universe"]) for cell in evidence.cells("ranges")}):
        for cost in costs_behind_us(evidence.design):
            found: dict[str, list[bool]] = {}
            for cell in evidence.cells("ranges"):
                if int(cell.levels["universe"]) == universe:
                    for name in evidence.filters(cell):
                        won = cell.verdict(evidence.design, name, Price(cost, 0.01), free=False) == "win"
                        found.setdefault(name, []).append(won)
            parts = [f"{name} {percent(sum(each), len(each))}" for name, each in found.items()]
            if parts:
                lines.append(
                    f"   - For short ranges and equality over 2^{round(math.log2(universe))} values, "
                    f"opening a shard at {cost_text(cost)}, 0.01 updates for a request, it wins with tight memory in "
                    "these shares of cells: "
                    f"{', '.join(parts)}."
                )
    return lines
