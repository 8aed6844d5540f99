"""A contest's measurements and its design's predictions, as data.

A cluster (seed) is the unit of inference: its batches and cells are averaged before any comparison, so that many
requests on few clusters do not give a narrow interval. Two candidates are compared over batches that both finished.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from minikube_py.lab import plots
from minikube_py.lab.report import Table
from minikube_py.lab.statistics import ALPHA, Interval, compared, corrected, of_clusters
from minikube_py.lab.study import curves
from minikube_py.lab.study.audit import biased_orders, wrong_candidates
from minikube_py.lab.study.design import Design, StudyError, cell_name
from minikube_py.lab.study.experiment import Finding
from minikube_py.lab.study.journal import RECORDED, Record, fingerprint

TIMED = ("_us", "_ms")
"""Suffixes of figures that depend on the order of turns."""
Prediction = Mapping[str, Any]
Labels = Mapping[str, str]
Panels = Sequence[Mapping[str, Any]]
Cells = dict[str, dict[int, tuple[float, float] | None]]
"""By cell and seed, the figures of a candidate and of its rival; None where they are shares of nothing."""
Clusters = Sequence[Sequence[tuple[float, float]]]
"""The same, by cluster that has every cell and by cell."""

Titles = Mapping[str, Callable[["Measured"], str]]


class Measured:
    """Figures by candidate, cell and cluster; candidates with any wrong answer are excluded."""

    def __init__(
        self,
        design: Design,
        records: Sequence[Record],
        labels: Mapping[str, str] | None = None,
        shares: Mapping[str, str] | None = None,
        titles: Titles | None = None,
    ) -> None:
        """`labels`: what readers call the names of the design; those of the report's tables and pictures. `shares`:
        figures that are shares, and the figure of what they are shares of: where that is 0, they have no value.
        `titles`: of pictures, by what is measured."""
        self.design, self.shares, self._titles = design, shares or {}, titles or {}
        self.labels = dict(labels or {})
        if RECORDED in self.labels and self.labels[RECORDED] != fingerprint(records):
            # What its pictures' titles say was seen in another run.
            self.labels = {name: text for name, text in self.labels.items() if not name.startswith("picture ")}
        self.records = sorted(
            (record for record in records if "failed" not in record), key=lambda record: record["key"]
        )
        self._failed = [record for record in records if "failed" in record]
        self.wrong = wrong_candidates(records)
        self.biased = biased_orders(design, records)
        self.confidence = float(design.raw.get("confidence", 0.95))

    def names(self, block: str) -> list[str]:
        return [name for name in self.design.candidates(block) if name not in self.wrong]

    def _of_block(self, block: str, where: Mapping[str, Any]) -> Iterator[Record]:
        for record in self.records:
            if record["block"] == block and _within(record["levels"], where):
                yield record

    def planned(self, block: str, where: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The cells of the design's mode, whatever has been measured in them."""
        runs = self.design.mode in self.design.blocks.get(block, ())
        return [cell for cell in self.design.cells(block) if _within(cell, where)] if runs else []

    def gaps(self, block: str, figures: Sequence[str], names: Sequence[str], where: Mapping[str, Any]) -> str:
        """Where one of `names` did not do all that was planned, and why; "" if nowhere. What is left is a choice of the
        cells and clusters that it could do, and no evidence about those that were registered."""
        found: dict[str, dict[str, None]] = {}
        cells = {cell_name(cell): self._called(block, cell) for cell in self.planned(block, where)}
        there = [record for record in self._of_block(block, where) if cell_name(record["levels"]) in cells]
        for record, name in ((record, name) for record in there for name in names):
            each = record["candidates"].get(name)
            here = each is not None and all(figure in each["figures"] for figure in figures)
            if not here or each["asked"] != record["planned"]:
                told = f"{name} was {'cut short' if here else 'absent'} in"
                found.setdefault(told, {})[cells[cell_name(record["levels"])]] = None
        failed = [record for record in self._failed if record["block"] == block]
        lost = {cells[cell]: None for record in failed if (cell := cell_name(record["levels"])) in cells}
        run = {cell_name(record["levels"]) for record in (*there, *failed)}
        never = {cells[cell]: None for cell in cells if cell not in run}
        found |= {text: of for text, of in (("units failed in", lost), ("no unit has finished in", never)) if of}
        return "; ".join(f"{text} {_some(list(of))}, of {len(cells)} cells" for text, of in found.items())

    def barred(self, block: str, figures: Sequence[str], names: Sequence[str], where: Mapping[str, Any]) -> str:
        """Why nothing that was measured there is evidence about `names`; "" if it is."""
        if lying := [name for name in names if name in self.wrong]:
            return f"{' and '.join(lying)} gave wrong answers"
        if block in self.biased and any(figure.endswith(TIMED) for figure in figures):
            return f"the order of turns was biased: {', '.join(self.biased[block])}"
        return "" if self.planned(block, where) else f"mode {self.design.mode} has none of its cells"

    def _called(self, block: str, cell: Mapping[str, Any]) -> str:
        return cell_name({factor: cell[factor] for factor in self._varied(block)}) or "its only one"

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
                some = [batch for batch in whole if all(self.has_value(figure, each, batch) for each in two)]
                means = [fmean(each["figures"][figure][batch] for batch in some) for each in two] if some else []
                cell = found.setdefault(cell_name(record["levels"]), {})
                cell[record["seed"]] = (means[0], means[1] if over is not None else 1.0) if means else None
        return found

    def has_value(self, figure: str, candidate: Mapping[str, Any], batch: int) -> bool:
        """Whether it is no share, or one of something."""
        whole: Sequence[float] = candidate["figures"].get(self.shares.get(figure), ())
        return not whole or whole[batch] > 0

    def by_cluster(self, block: str, figure: str, of: str, where: Mapping[str, Any] | None = None) -> list[float]:
        """One value per cluster that has every cell: the mean over cells."""
        return list(self.by_seed(block, figure, of, where).values())

    def by_seed(self, block: str, figure: str, of: str, where: Mapping[str, Any] | None = None) -> dict[int, float]:
        found = _by_seed(self.pairs(block, figure, of, None, where))
        return {seed: fmean(ours for ours, _ in each) for seed, each in found.items()}

    def levels_of(self, block: str, where: Mapping[str, Any], by: Sequence[str]) -> list[dict[str, Any]]:
        return _levels(list(self._of_block(block, where)), by)

    def interval(self, values: Sequence[float]) -> Interval:
        return of_clusters(values, self.confidence)

    # -- predictions -----------------------------------------------------------------------------------------------

    def judge(self) -> list[Finding]:
        """Every prediction of the design. Raises: StudyError for an incomplete one."""
        foretold = self.design.raw.get("predictions", [])
        return [curves.judge(self, each) if "at" in each else self.judged(each) for each in foretold]

    def judged(self, foretold: Prediction) -> Finding:
        try:
            name, claim, block, figure, of = (foretold[part] for part in ("name", "claim", "block", "figure", "of"))
            below, bound = foretold["is"] == "below", float(foretold["than"])
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(
                f"a prediction lacks or has a wrong {error}: {dict(foretold)}; correct the design"
            ) from error
        over, where = foretold.get("over"), foretold.get("where", {})
        both = [each for each in (of, over) if each]
        if barred := self.barred(block, [figure], both, where):
            return Finding(name, claim, "not tested", barred)
        pairs = self.pairs(block, figure, of, over, where)
        clusters = _clusters(pairs)
        if len(clusters) < 2:
            few = f"{len(clusters)} clusters have all of its cells in whole batches"
            return Finding(name, claim, "not tested", few)
        if gaps := self.gaps(block, [figure], both, where):
            return Finding(name, claim, "not tested", gaps)
        what = f"{figure} of {of}"
        if over is None:
            found, limit = self.interval([fmean(ours for ours, _ in each) for each in clusters]), bound
            evidence = f"{what}: {found.text()}"
        else:
            found, limit, evidence = self._over(clusters, bound, what, over)
        evidence += f", {len(clusters)} clusters; so in {self._cells_that_hold(pairs, below, bound)} cells"
        return Finding(name, claim, found.outcome(below, limit), evidence)

    def _over(self, clusters: Clusters, bound: float, what: str, over: str) -> tuple[Interval, float, str]:
        """An interval, what it is to be compared with, and both in words: the geometric mean of ratios against `bound`.
        By 0 a ratio has no value: where any figure is 0, the paired differences ours - bound * theirs against 0."""
        ours, theirs = (fmean(one[part] for each in clusters for one in each) for part in (0, 1))
        means = f", ratio of means {ours / theirs:.3g}" if theirs else ""
        if all(figure > 0 for each in clusters for one in each for figure in one):
            ratios = [math.exp(fmean(math.log(mine / other) for mine, other in each)) for each in clusters]
            found = of_clusters(ratios, self.confidence, ratio=True)
            return found, bound, f"{what} over that of {over}: {found.text()}{means}"
        found = self.interval([fmean(mine - bound * other for mine, other in each) for each in clusters])
        minus = f"{what} minus {bound:g} times that of {over} (a ratio by 0 has no value)"
        return found, 0.0, f"{minus}: {found.text()}{means}"

    def _cells_that_hold(self, cells: Cells, below: bool, bound: float) -> str:
        held = 0
        there = [some for by_seed in cells.values() if (some := [each for each in by_seed.values() if each])]
        for some in there:
            ours, theirs = (fmean(each[part] for each in some) for part in (0, 1))
            held += (ours < bound * theirs) if below else (ours > bound * theirs)
        return f"{held} of {len(there)}"

    # -- tables and pictures ---------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> list[str]:
        return list(dict.fromkeys(record["block"] for record in self.records))

    def tables(self) -> list[Table]:
        """Those requested by the design; otherwise one per block, by all varying factors."""
        asked = self.design.raw.get("tables") or [{"block": block} for block in self.blocks]
        made = [*map(self._table, asked), *map(self._tested, self.design.raw.get("tests", ())), *curves.tables(self)]
        return [table for table in made if table.rows]

    def _tested(self, asked: Mapping[str, Any]) -> Table:
        """A sign-flip test over clusters of each candidate beside the one that `over` names, by a figure of which less
        is better; p is corrected for their number by Holm. Intervals are the study's."""
        block, figure, over = asked["block"], asked["figure"], asked["over"]
        found, gaps = {}, {}
        for name in (name for name in self.names(block) if name != over):
            if told := self.gaps(block, [figure], [name, over], {}):
                gaps[name] = told
                continue
            clusters = _clusters(self.pairs(block, figure, name, over))
            ours, theirs = ([fmean(one[part] for one in each) for each in clusters] for part in (0, 1))
            if len(clusters) > 1:
                found[name] = compared(theirs, ours, self.confidence)
        sides = f"{figure}, {over}", "its own", "difference"
        heads = ("", "clusters", *sides, "p", "p, corrected", f"better (p <= {ALPHA:g})")
        table = Table(str(asked["title"]), heads)
        for name, each in corrected(found).items():
            better = {"first": over, "second": name}.get(each.better(-1), each.better(-1))
            means = (interval.text() for interval in (each.mean_first, each.mean_second, each.difference))
            p = [f"{value:.3g}" if value is not None else "-" for value in (each.p, each.p_corrected)]
            table.add(name, str(len(each.first)), *means, *p, better)
        for name, told in gaps.items():
            table.add(name, "not tested", *["-"] * 5, told)
        return table

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
                    self.by_cluster(block, figure, name, {**asked.get("where", {}), **levels}) for figure in figures
                ]
                if any(cells):
                    at = {**asked.get("where", {}), **levels}
                    planned, done = len(self.planned(block, at)), len(self.pairs(block, figures[0], name, None, at))
                    short = f" (in {done} of {planned} cells)" if done < planned else ""
                    told = [self.interval(values).text() + short if values else "-" for values in cells]
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
                for figure, every in report["figures"].items():
                    values = [value for batch, value in enumerate(every) if self.has_value(figure, report, batch)]
                    mean = f"{fmean(values):.6g}" if values else ""
                    at = (record["block"], cell_name(record["levels"]), record["seed"])
                    rows.append([*at, name, figure, mean, len(values)])
        return rows

    def draw(self, folder: Path, name: str) -> list[tuple[str, Path]]:
        """One picture per entry of the design's `pictures`: a figure by a factor, a line per candidate, a panel per
        level of `panels`."""
        wanted = self.design.raw.get("pictures", []) if plots.available() else []
        there = [each for each in wanted if any(self._of_block(each["block"], each.get("where", {})))]
        made = [(each, folder / f"{name}-{each['name']}.png") for each in there]
        return [
            (self.labels.get(f"caption {each['name']}", str(each["caption"])), self._draw(each, path, self.labels))
            for each, path in made
        ]

    def _title(self, asked: Mapping[str, Any]) -> str:
        if asked["name"] in self._titles:
            return self._titles[asked["name"]](self)
        return self.labels.get(f"picture {asked['name']}", str(asked["caption"]))

    def _draw(self, asked: Mapping[str, Any], path: Path, labels: Mapping[str, str]) -> Path:
        if "families" in asked:
            figure = curves.draw(self, asked, labels)
            plots.entitle(figure, self._title(asked))
            return plots.save(figure, path)
        records = list(self._of_block(asked["block"], asked.get("where", {})))
        panels = _levels(records, [asked["panels"]] if "panels" in asked else [])
        levels = [level[asked["x"]] for level in _levels(records, [asked["x"]])]
        names = list(asked.get("candidates", self.names(asked["block"])))
        labels = {**{name: _spoken(name, labels) for name in names}, **labels}
        # Lines need many levels that are numbers; a few are easier to compare as rows.
        lines = len(levels) > 4 and all(isinstance(level, int | float) for level in levels)
        figure = (self._lines if lines else self._rows)(asked, panels, levels, names, labels)
        title = self._title(asked)
        bars = f"bars: {self.confidence:.0%} confidence intervals over clusters"
        plots.entitle(figure, f"{title}; {bars}" if "\n\n" in title else f"{title}\n\n{bars.capitalize()}")
        return plots.save(figure, path)

    def _shown(self, asked: Mapping[str, Any], name: str, at: Mapping[str, Any]) -> tuple[float, float, float] | None:
        """Mean and interval of a candidate; an interval is symmetric, and may exceed what its figure can be."""
        values = self.by_cluster(asked["block"], asked["y"], name, {**asked.get("where", {}), **at})
        if not values:
            return None
        mean, low, high = self.interval(values)
        share = self.labels.get(asked["y"], asked["y"]).startswith("share")
        return mean, max(low, 0.0) if min(values) >= 0 else low, min(high, 1.0) if share else high

    def _rows(
        self, asked: Mapping[str, Any], panels: Panels, levels: list[Any], names: list[str], labels: Labels
    ) -> Any:
        """Candidates below each other; a panel for each level, and a line of panels for each level of `panels`."""
        across, down = len(levels), len(panels)
        size = (max(5.6, 1.9 * across), down * (0.5 + 0.22 * len(names)) + 0.5)
        figure, axes = plots.figure(down, across, size)
        figure.subplots_adjust(wspace=0.12, hspace=0.24)
        plots.share_axis(axes.ravel(), "x")
        for at, (panel, beside) in enumerate(zip(panels, axes)):
            plots.share_axis(beside, "y")
            for level, axis in zip(levels, beside):
                for place, name in enumerate(names):
                    if found := self._shown(asked, name, {**panel, asked["x"]: level}):
                        value, low, high = found
                        style = {"fmt": "o", "markersize": 4.5, "capsize": 2.5, "color": plots.BLUE}
                        ends = [[max(0.0, value - low)], [max(0.0, high - value)]]
                        axis.errorbar([value], [place], xerr=ends, label=labels.get(name, name), **style)
                words = labels.get(str(level)) or f"{labels.get(asked['x'], asked['x'])} {level}"
                axis.set_title("" if at else words, fontsize=8.5)
            beside[0].set_yticks(range(len(names)), [labels.get(name, name) for name in names])
            beside[0].set_ylim(len(names) - 0.5, -0.5)
            beside[0].set_ylabel(_told(panel, labels), fontweight="bold", fontsize=8.5)
        what = labels.get(asked["y"], asked["y"]).replace("\n", " ")
        if asked.get("log"):
            axes[0][0].set_xscale("log")
            what += " (logarithmic)"
        else:
            axes[0][0].set_xlim(left=-0.04 * axes[0][0].get_xlim()[1])  # A mark at 0 is whole.
        bottom = figure.subplotpars.bottom - 0.34 / size[1]
        figure.supxlabel(what, y=bottom, va="top", fontsize=9)
        return figure

    def _lines(
        self, asked: Mapping[str, Any], panels: Panels, levels: list[Any], names: list[str], labels: Labels
    ) -> Any:
        """A line for each candidate, named at its end; panels side by side, with one scale."""
        figure, axes = plots.figure(1, len(panels), (3.4 * len(panels), 3.8))
        figure.subplots_adjust(wspace=0.08)
        plots.share_axis(axes[0], "y")
        # The same in all pictures of a study that have lines.
        drawn = [each.get("candidates", []) for each in self.design.raw.get("pictures", [])]
        place_of = {
            name: at for at, name in enumerate(dict.fromkeys(name for each in [*drawn, names] for name in each))
        }
        beside = [0.12 * (at / max(1, len(names) - 1) - 0.5) for at in range(len(names))]
        ends: list[tuple[float, float, str, str]] = []
        for panel, axis in zip(panels, axes[0]):
            for offset, name in zip(beside, names):
                found = [self._shown(asked, name, {**panel, asked["x"]: level}) for level in levels]
                points = [(place + offset, each) for place, each in enumerate(found) if each is not None]
                ink = place_of[name]
                style = (plots.MANY[ink % len(plots.MANY)], ("-", (0, (4, 2)), (0, (1, 1.5)))[ink % 3])
                plots.draw_intervals(axis, labels.get(name, name), points, *style, plots.MARKERS[ink % 4])
                if axis is axes[0][-1] and points:
                    ends.append((points[-1][0], points[-1][1][0], labels.get(name, name), style[0]))
            axis.set_title(_told(panel, labels))
            axis.set_xlabel(labels.get(asked["x"], asked["x"]))
            axis.set_xticks(range(len(levels)), [labels.get(str(level), str(level)) for level in levels])
        axes[0][0].set_ylabel(labels.get(asked["y"], asked["y"]) + (" (logarithmic)" if asked.get("log") else ""))
        if asked.get("log"):
            axes[0][0].set_yscale("log")
        else:
            axes[0][0].set_ylim(bottom=-0.02 * axes[0][0].get_ylim()[1])
        plots.label_ends(axes[0][-1], ends)
        return figure


def _within(levels: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    return all(
        levels.get(factor) in (level if isinstance(level, list) else [level]) for factor, level in where.items()
    )


def _some(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _clusters(cells: Cells) -> Clusters:
    return list(_by_seed(cells).values())


def _by_seed(cells: Cells) -> dict[int, Sequence[tuple[float, float]]]:
    """Of seeds that have every cell, the cells in which there is a value."""
    seeds = sorted(set.intersection(*map(set, cells.values()))) if cells else []
    found = {seed: [each for of in cells.values() if (each := of[seed]) is not None] for seed in seeds}
    return {seed: some for seed, some in found.items() if some}


def _told(panel: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    return ", ".join(f"{labels.get(factor, factor)} {level}" for factor, level in panel.items())


def _spoken(name: str, labels: Mapping[str, str]) -> str:
    """Of `NAME@HOW`: the label of the name, and how."""
    base, *how = name.split("@")
    return ", ".join((labels.get(base, base), *how))


def labels_beside(packaged: Path | None) -> dict[str, str]:
    """Of `labels.json` beside a packaged design; {} without."""
    beside = packaged and packaged.with_name("labels.json")
    found: dict[str, str] = json.loads(beside.read_text(encoding="utf-8")) if beside and beside.exists() else {}
    return found


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
