"""The ledger: a request's cost with shards at C_behind and U/Q updates per query, and which filters pay and win.

    cost = query_us + opened * C_behind + U/Q * update_us

as registered; `C_behind` and `U/Q` are parameters here, so that one measurement covers all their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from minikube_py.lab.statistics import Floats, Interval
from minikube_py.lab.study.design import Design, Levels, cell_name
from minikube_py.studies.bloom.settings import costs_behind_us, updates_per_query
from minikube_py.studies.bloom.statistics import Verdict, against_all, ratios

Report = Mapping[str, Any]
BASE, IDEAL, PLAIN, JOINT = "always", "oracle", "max-vector", "joint-bitset"


class Price(NamedTuple):
    """A point of the ledger."""

    c_behind_us: float
    updates_per_query: float


def prices(design: Design) -> list[Price]:
    return [Price(cost, updates) for cost in costs_behind_us(design) for updates in updates_per_query(design)]


def update_us(found: Mapping[str, Report], name: str) -> Floats:
    """Per batch; the random share of rebuilds is replaced by the long-run share. The oracle's upkeep is free."""
    if name == IDEAL and BASE in found:
        name = BASE
    report = found[name]
    measured = np.array(report["update_us"], dtype=np.float64)
    if "rebuilt_share" not in report or BASE not in found:
        return measured
    build_us = max(0.0, report["load_us_per_node"] - found[BASE]["load_us_per_node"])
    adjusted: Floats = np.maximum(
        0.01, measured + (report["rebuilt_share_expected"] - report["rebuilt_share"]) * build_us
    )
    return adjusted


def query_us(found: Mapping[str, Report], name: str, limit: str) -> Floats:
    """Per batch. The oracle's is that of `always`, scaled to the shards it opens."""
    report = found[name]["limits"][limit]
    if name != IDEAL or BASE not in found:
        return np.array(report["query_us"], dtype=np.float64)
    base = found[BASE]["limits"][limit]
    opened = np.array(report["opened"]) / np.maximum(np.array(base["opened"]), 1e-9)
    scaled: Floats = np.maximum(0.01, np.array(base["query_us"]) * np.minimum(1.0, opened))
    return scaled


def opened(found: Mapping[str, Report], name: str, limit: str) -> Floats:
    return np.array(found[name]["limits"][limit]["opened"], dtype=np.float64)


def oracle_can_win(design: Design, found: Mapping[str, Report]) -> bool:
    """Whether the ideal filter beats its tight-memory rivals by the margin at any point of the ledger."""
    if any(name not in found for name in (IDEAL, BASE)):
        return True
    rivals = [name for name in (BASE, PLAIN, JOINT) if name in found]
    for limit in found[IDEAL]["limits"]:
        for price in prices(design):
            ours = mean_cost(found, IDEAL, limit, price)
            if ours < (1 - design.raw["margin"]) * min(mean_cost(found, name, limit, price) for name in rivals):
                return True
    return False


def mean_cost(found: Mapping[str, Report], name: str, limit: str, price: Price) -> float:
    return float(np.mean(batch_costs(found, name, limit, price)))


def batch_costs(found: Mapping[str, Report], name: str, limit: str, price: Price) -> Floats:
    costs = query_us(found, name, limit) + opened(found, name, limit) * price.c_behind_us
    return costs + price.updates_per_query * update_us(found, name)


@dataclass(frozen=True)
class Cell:
    """One cell and limit, over all finished seeds. `records` are ordered by seed."""

    block: str
    levels: Levels
    limit: str
    records: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        return f"{self.block}/{cell_name(self.levels)},limit={self.limit}"

    @cached_property
    def names(self) -> list[str]:
        """Candidates present in every seed and never wrong."""
        reports = [record["candidates"] for record in self.records]
        return [name for name in reports[0] if all(name in each and not each[name]["wrong"] for each in reports)]

    @cached_property
    def _parts(self) -> dict[str, tuple[Floats, Floats, Floats]]:
        parts = {}
        for name in self.names:
            each = [record["candidates"] for record in self.records]
            parts[name] = (
                np.array([query_us(found, name, self.limit) for found in each]),
                np.array([opened(found, name, self.limit) for found in each]),
                np.array([update_us(found, name) for found in each]),
            )
        return parts

    def costs(self, name: str, price: Price) -> Floats:
        """seeds x batches."""
        query, open_, update = self._parts[name]
        costs: Floats = query + open_ * price.c_behind_us + price.updates_per_query * update
        return costs

    def mean(self, name: str, price: Price) -> float:
        return float(self.costs(name, price).mean())

    def query(self, name: str) -> float:
        return float(self._parts[name][0].mean())

    def opened(self, name: str) -> float:
        return float(self._parts[name][1].mean())

    def update(self, name: str) -> float:
        return float(self._parts[name][2].mean())

    def figure(self, name: str, what: str) -> float:
        """The mean over seeds and batches of one of `pruned`, `false`, `examined`."""
        reports = [record["candidates"][name]["limits"][self.limit] for record in self.records]
        return float(np.mean([report[what] for report in reports]))

    def bytes(self, name: str) -> int:
        return int(np.mean([record["candidates"][name]["filter_bytes"] for record in self.records]))

    def kind(self, name: str) -> str:
        return str(self.records[0]["candidates"][name]["kind"])

    def p_empty(self) -> float:
        """The share of shards that need not be opened, of those probed without a filter."""
        if BASE not in self.names:
            return float("nan")
        probed = self.opened(BASE) + self.figure(BASE, "pruned")
        return self.figure(BASE, "false") / probed if probed else 0.0

    def false_positive_rate(self, name: str) -> float:
        """The share of empty shards that passed the filter; nan if there were none."""
        let, kept = self.figure(name, "false"), self.figure(name, "pruned")
        return let / (let + kept) if let + kept else float("nan")

    def rivals(self, name: str, free: bool) -> list[str]:
        """With tight memory: no filter, max vector, a joint bitset of this size at most; with free memory all
        structures too."""
        tight = [BASE, PLAIN]
        if JOINT in self.names and (self.bytes(JOINT) <= self.bytes(name) or name in (IDEAL, PLAIN)):
            tight.append(JOINT)
        whole = [each for each in self.names if self.kind(each) == "whole" or each == "exact-copy"] if free else []
        return [each for each in [*tight, *whole] if each in self.names and each != name]

    def against(self, design: Design, name: str, rivals: Sequence[str], price: Price) -> list[Interval]:
        if not rivals:
            return []
        theirs = np.array([self.costs(each, price) for each in rivals])
        return ratios(self.costs(name, price), theirs, design.raw["resamples"], design.raw["confidence"])

    def verdict(self, design: Design, name: str, price: Price, free: bool) -> Verdict:
        return against_all(self.against(design, name, self.rivals(name, free), price), design.raw["margin"])

    def pays(self, name: str, price: Price) -> bool:
        """The registered rule, per shard probed."""
        if name not in self.names or BASE not in self.names or IDEAL not in self.names:
            return False
        probed = self.opened(name) + self.figure(name, "pruned")
        if not probed:
            return False
        saved = self.figure(name, "pruned") / probed * price.c_behind_us
        probe_us = max(0.0, self.query(name) - self.query(IDEAL)) / probed
        upkeep_us = max(0.0, self.update(name) - self.update(BASE)) / probed
        return saved > probe_us + price.updates_per_query * upkeep_us

    def break_even_us(self, name: str, updates_per_query: float, rival: str = BASE) -> float:
        """C_behind from which on `name` costs less than `rival`: 0 if always; inf if never, or only below some
        C_behind, for a candidate that is faster but opens more."""
        free = Price(0.0, updates_per_query)
        more_us = self.mean(name, free) - self.mean(rival, free)
        fewer = self.opened(rival) - self.opened(name)
        if more_us <= 0:
            return 0.0 if fewer >= 0 else float("inf")
        return more_us / fewer if fewer > 0 else float("inf")

    def winner(self, names: Iterable[str], price: Price) -> str:
        """The cheapest one; "" if there is none."""
        there = [name for name in names if name in self.names]
        return min(there, key=lambda name: self.mean(name, price)) if there else ""


def cells(records: Iterable[Mapping[str, Any]], block: str) -> list[Cell]:
    """All cells of a block with at least one finished seed."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record["block"] == block:
            groups.setdefault(cell_name(record["levels"]), []).append(record)
    found: list[Cell] = []
    for group in groups.values():
        group.sort(key=lambda record: record["seed"])
        limits: list[str] = next((list(each["limits"]) for each in group[0]["candidates"].values()), [])
        found.extend(Cell(block, group[0]["levels"], limit, group) for limit in limits)
    return sorted(found, key=lambda cell: cell.name)
