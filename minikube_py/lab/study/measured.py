"""A contest's measurements and its design's predictions, as data.

A cluster (seed) is the unit of inference: its batches and cells are averaged before any comparison, so that many
requests on few clusters do not give a narrow interval. Two candidates are compared over batches that both finished.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from minikube_py.lab import plots
from minikube_py.lab.report import Table
from minikube_py.lab.study.audit import biased_orders, wrong_candidates
from minikube_py.lab.study.design import Design, StudyError, cell_name
from minikube_py.lab.study.experiment import Finding, Outcome
from minikube_py.lab.study.journal import Record
from minikube_py.lab.study.statistics import Interval, of_clusters

TIMED = "_us"
"""Suffix of figures that depend on the order of turns."""
Prediction = Mapping[str, Any]
Cells = dict[str, dict[int, tuple[float, float]]]
"""By cell and seed, the figures of a candidate and of its rival."""


class Measured:
    """Figures by candidate, cell and cluster; candidates with any wrong answer are excluded."""

    def __init__(self, design: Design, records: Sequence[Record], labels: Mapping[str, str] | None = None) -> None:
        """`labels`: what readers call the names of the design; those of the report's tables and pictures."""
        self.design, self.labels = design, labels or {}
        self.records = sorted(
            (record for record in records if "failed" not in record), key=lambda record: record["key"]
        )
        self.wrong = wrong_candidates(records)
        self.biased = biased_orders(records)
        self.confidence = float(design.raw.get("confidence", 0.95))

    def names(self, block: str) -> list[str]:
        return [name for name in self.design.candidates(block) if name not in self.wrong]

    def _of_block(self, block: str, where: Mapping[str, Any]) -> Iterator[Record]:
        for record in self.records:
            if record["block"] == block and all(
                record["levels"].get(factor) in (level if isinstance(level, list) else [level])
                for factor, level in where.items()
            ):
                yield record

    def pairs(
        self, block: str, figure: str, of: str, over: str | None = None, where: Mapping[str, Any] | None = None
    ) -> Cells:
        """By cell and seed: both means over the batches that both finished; units without such a batch are skipped.
        Without `over` the second is 1."""
        found: Cells = {}
        for record in self._of_block(block, where or {}):
            two = [record["candidates"].get(name) for name in (of, over) if name is not None]
            if any(each is None or figure not in each["figures"] for each in two):
                continue
            whole = [
                batch
                for batch, planned in enumerate(record["planned"])
                if all(batch < len(each["asked"]) and each["asked"][batch] == planned for each in two)
            ]
            if whole:
                means = [fmean(each["figures"][figure][batch] for batch in whole) for each in two]
                cell = found.setdefault(cell_name(record["levels"]), {})
                cell[record["seed"]] = (means[0], means[1] if over is not None else 1.0)
        return found

    def by_cluster(
        self, block: str, figure: str, of: str, over: str | None = None, where: Mapping[str, Any] | None = None
    ) -> list[float]:
        """One value per cluster that has every cell: the mean over cells, geometric for ratios."""
        cells = self.pairs(block, figure, of, over, where)
        seeds = set.intersection(*(set(each) for each in cells.values())) if cells else set()
        values = []
        for seed in sorted(seeds):
            each = [cells[cell][seed] for cell in cells]
            if over is None:
                values.append(fmean(ours for ours, _ in each))
            elif all(ours > 0 and theirs > 0 for ours, theirs in each):
                values.append(math.exp(fmean(math.log(ours / theirs) for ours, theirs in each)))
            else:
                # If a figure is 0 in some cell, the ratio of the sums.
                mine, least = (sum(one[part] for one in each) for part in (0, 1))
                values.append(mine / least if least else math.inf if mine else 1.0)
        return values

    def interval(self, values: Sequence[float], ratio: bool) -> Interval:
        return of_clusters(values, self.confidence, ratio and all(value > 0 for value in values))

    # -- predictions -----------------------------------------------------------------------------------------------

    def judge(self) -> list[Finding]:
        """Every prediction of the design. Raises: StudyError for an incomplete one."""
        return [self._judged(each) for each in self.design.raw.get("predictions", [])]

    def _judged(self, foretold: Prediction) -> Finding:
        try:
            name, claim, block, figure, of = (foretold[part] for part in ("name", "claim", "block", "figure", "of"))
            below, bound = foretold["is"] == "below", float(foretold["than"])
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(
                f"a prediction lacks or has a wrong {error}: {dict(foretold)}; correct the design"
            ) from error
        over, where = foretold.get("over"), foretold.get("where", {})
        lying = [each for each in (of, over) if each in self.wrong]
        if lying:
            return Finding(name, claim, "not tested", f"{' and '.join(lying)} gave wrong answers")
        if figure.endswith(TIMED) and block in self.biased:
            return Finding(name, claim, "not tested", f"the order of turns was biased: {', '.join(self.biased[block])}")
        values = self.by_cluster(block, figure, of, over, where)
        if len(values) < 2:
            return Finding(name, claim, "not tested", f"{len(values)} clusters have all of its cells in whole batches")
        found = self.interval(values, over is not None)
        of_cells = self._cells_that_hold(self.pairs(block, figure, of, over, where), below, bound)
        what = f"{figure} of {of}" + (f" over that of {over}" if over else "")
        evidence = f"{what}: {found.text()}, {len(values)} clusters; so in {of_cells} cells"
        return Finding(name, claim, outcome(found, below, bound), evidence)

    def _cells_that_hold(self, cells: Cells, below: bool, bound: float) -> str:
        held = 0
        for by_seed in cells.values():
            ours, theirs = (fmean(each[part] for each in by_seed.values()) for part in (0, 1))
            held += (ours < bound * theirs) if below else (ours > bound * theirs)
        return f"{held} of {len(cells)}"

    # -- tables and pictures ---------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> list[str]:
        return list(dict.fromkeys(record["block"] for record in self.records))

    def tables(self) -> list[Table]:
        """Those requested by the design; otherwise one per block, by all varying factors."""
        asked = self.design.raw.get("tables") or [{"block": block} for block in self.blocks]
        return [table for each in asked if (table := self._table(each)).rows]

    def _table(self, asked: Mapping[str, Any]) -> Table:
        block = asked["block"]
        by = list(asked.get("by", self._varied(block)))
        records = list(self._of_block(block, asked.get("where", {})))
        figures = list(asked.get("figures", _figures(records)))
        title = str(asked.get("title", f"Block {block}"))
        heads = [self.labels.get(f"column {figure}", figure) for figure in figures]
        table = Table(self.labels.get(f"table {title}", title), ("", *by, "clusters", *heads))
        for name in self.names(block):
            for levels in _levels(records, by):
                cells = [
                    self.by_cluster(block, figure, name, None, {**asked.get("where", {}), **levels})
                    for figure in figures
                ]
                if any(cells):
                    told = [self.interval(values, False).text() if values else "-" for values in cells]
                    table.add(name, *levels.values(), max(map(len, cells)), *told)
        return table

    def _varied(self, block: str) -> list[str]:
        cells = self.design.cells(block)
        return [factor for factor in cells[0] if len({str(cell[factor]) for cell in cells}) > 1]

    def rows(self) -> list[Sequence[object]]:
        """One per unit, candidate and figure: the mean over its batches, and their number."""
        rows: list[Sequence[object]] = [["block", "cell", "seed", "candidate", "figure", "mean", "batches"]]
        for record in self.records:
            for name, report in record["candidates"].items():
                for figure, values in report["figures"].items():
                    mean = f"{fmean(values):.6g}"
                    at = (record["block"], cell_name(record["levels"]), record["seed"])
                    rows.append([*at, name, figure, mean, len(values)])
        return rows

    def draw(self, folder: Path, name: str) -> list[tuple[str, Path]]:
        """One picture per entry of the design's `pictures`: a figure by a factor, a line per candidate, a panel per
        level of `panels`."""
        wanted = self.design.raw.get("pictures", []) if plots.available() else []
        made = [(each, folder / f"{name}-{each['name']}.png") for each in wanted]
        return [
            (self.labels.get(f"caption {each['name']}", str(each["caption"])), self._draw(each, path, self.labels))
            for each, path in made
        ]

    def _draw(self, asked: Mapping[str, Any], path: Path, labels: Mapping[str, str]) -> Path:
        block, x, y, where = asked["block"], asked["x"], asked["y"], dict(asked.get("where", {}))
        records = list(self._of_block(block, where))
        panels = _levels(records, [asked["panels"]] if "panels" in asked else [])
        names = list(asked.get("candidates", self.names(block)))
        levels = _levels(records, [x])
        # A connecting line would be wrong for a single level, or for levels that are words.
        lines = len(levels) > 1 and all(isinstance(level[x], int | float) for level in levels)
        beside = [(0.12 if lines else 0.6) * (at / max(1, len(names) - 1) - 0.5) for at in range(len(names))]
        most = 1.0 if labels.get(y, y).startswith("share") else math.inf  # An interval is symmetric, and may exceed it.
        figure, axes = plots.figure(1, len(panels), (4.2 * len(panels) + (0 if lines else 1.5), 3.8))
        # Consistent across all pictures of a study; beyond the colours, markers distinguish candidates.
        every = dict.fromkeys(each for each_block in self.blocks for each in self.names(each_block))
        place_of = {name: at for at, name in enumerate(every)}
        for panel, axis in zip(panels, axes[0]):
            for number, name in enumerate(names):
                points = []
                for place, level in enumerate(levels):
                    if values := self.by_cluster(block, y, name, None, {**where, **panel, **level}):
                        mean, low, high = self.interval(values, False)
                        points.append((place + beside[number], (mean, low, min(high, most))))
                again, ink = divmod(place_of[name], len(plots.SAFE)) if len(levels) > 1 else (0, 0)
                dashes = ((0, (1, 1.5)) if again else ("-", (0, (4, 3)))[number % 2]) if lines else "none"
                style = (plots.SAFE[ink], dashes, plots.MARKERS[again])
                plots.draw_intervals(axis, labels.get(name, name), points, *style)
            axis.set_title(", ".join(f"{labels.get(factor, factor)} {level}" for factor, level in panel.items()))
            if len(levels) == 1:  # A place for each candidate, and no legend.
                level = labels.get(str(levels[0][x]), levels[0][x])
                axis.set_xlabel(f"{labels.get('candidates', 'candidates')} ({labels.get(x, x)}: {level})")
                axis.set_xticks(beside, [labels.get(name, name) for name in names], rotation=35, ha="right")
            else:
                axis.set_xlabel(labels.get(x, x))
                axis.set_xticks(range(len(levels)), [labels.get(str(level[x]), str(level[x])) for level in levels])
            axis.tick_params(axis="x", labelsize=7)
            axis.set_ylabel(labels.get(y, y) + (" (logarithmic)" if asked.get("log") else ""))
            if asked.get("log"):
                axis.set_yscale("log")
            else:
                axis.set_ylim(bottom=-0.02 * axis.get_ylim()[1])
        if len(levels) > 1:
            axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
        title = labels.get(f"picture {asked['name']}", asked["caption"])
        figure.suptitle(f"{title}\nBars: {self.confidence:.0%} confidence intervals over clusters", y=1.06)
        return plots.save(figure, path)


def labels_beside(packaged: Path | None) -> dict[str, str]:
    """Of `labels.json` beside a packaged design; {} without."""
    beside = packaged and packaged.with_name("labels.json")
    found: dict[str, str] = json.loads(beside.read_text(encoding="utf-8")) if beside and beside.exists() else {}
    return found


def outcome(found: Interval, below: bool, bound: float) -> Outcome:
    """Held or falsified if the whole interval agrees."""
    if found.high < bound:
        return "held" if below else "falsified"
    if found.low > bound:
        return "falsified" if below else "held"
    # A zero-width interval at the bound itself.
    return "falsified" if found.low == found.high else "undecided"


def _figures(records: Sequence[Record]) -> list[str]:
    return list(
        dict.fromkeys(name for record in records for each in record["candidates"].values() for name in each["figures"])
    )


def _levels(records: Sequence[Record], by: Sequence[str]) -> list[dict[str, Any]]:
    """The existing combinations of levels, in order."""
    found = {tuple(record["levels"][factor] for factor in by) for record in records}
    return [
        dict(zip(by, levels))
        for levels in sorted(found, key=lambda each: [(isinstance(level, str), level) for level in each])
    ]
