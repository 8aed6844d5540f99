"""The charts of the report, each from the records alone; a chart is omitted if its block has not run."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from minikube_py.lab import plots
from minikube_py.lab.statistics import of_clusters
from minikube_py.lab.study.experiment import Rates
from minikube_py.lab.study.journal import RECORDED
from minikube_py.studies.bloom.ledger import BASE, IDEAL, JOINT, PLAIN, Cell, Price
from minikube_py.studies.bloom.predictions import Evidence, probe_break_even_us
from minikube_py.studies.bloom.settings import costs_behind_us
from minikube_py.studies.bloom.statistics import share_interval
from minikube_py.studies.bloom.tables import best, cost_text
from minikube_py.studies.bloom.timing import step_us

BLUE, ORANGE, GREEN, RED, SKY, PINK, BLACK = plots.SAFE
GREY: Final = "#8a949e"
TEXTS: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("pictures.json").read_text(encoding="utf-8"))
"""`titles` of the charts; `styles`: a candidate's reader-facing name, colour number and dashes."""
STYLES: Final = {name: (text, (*plots.SAFE, GREY)[ink], dash) for name, (text, ink, dash) in TEXTS["styles"].items()}
Point = tuple[float, float]


def label(name: str) -> str:
    return STYLES[name][0] if name in STYLES else name


def colour(name: str) -> str:
    return STYLES[name][1] if name in STYLES else GREY


def line(name: str) -> dict[str, Any]:
    """Of matplotlib's `plot` and `step`."""
    return {"color": colour(name), "linestyle": STYLES[name][2] if name in STYLES else "-", "label": label(name)}


def _saved(evidence: Evidence, figure: Any, path: Path, name: str, **figures: object) -> Path:
    title = TEXTS["titles"][name].format(**figures)
    if evidence.fingerprint != TEXTS[RECORDED]:
        # What the title says was seen in another run.
        title = f"{PICTURES[name][0]}\n\n{title.partition(chr(10) * 2)[2]}"
    plots.entitle(figure, title)
    return plots.save(figure, path)


def middle(cells: Iterable[Cell], limit: str = "1", shards: int = 256) -> list[Cell]:
    return [
        cell
        for cell in cells
        if cell.limit == limit and cell.levels["shards"] == shards and float(cell.levels["correlation"]) == 0
    ]


def winner_heat(evidence: Evidence, path: Path) -> Path | None:
    """n x utilisation, one row per C_behind: left with structures of all nodes available, right without."""
    grid = middle(evidence.cells("grid"))
    costs = costs_behind_us(evidence.design)
    if not grid:
        return None
    figure, axes = plots.figure(len(costs), 2, (9.6, 4 * len(costs)))
    nodes = sorted({int(cell.levels["n"]) for cell in grid})
    shares = sorted({float(cell.levels["utilisation"]) for cell in grid})
    for row, cost in enumerate(costs):
        for column, free in enumerate((True, False)):
            _heat(axes[row][column], evidence, grid, nodes, shares, Price(cost, 1.0), free)
            here = "all nodes in memory" if free else "only shard summaries in memory"
            price = f"takes {cost_text(cost).replace('us', chr(181) + 's')}" if cost else "is free"
            axes[row][column].set_title(f"Opening a shard {price};\n{here}", fontsize=9)
            axes[row][column].set_xlabel("nodes")
        axes[row][0].set_ylabel("share of each resource in use")
    figure.subplots_adjust(wspace=0.16, hspace=0.42)
    return _saved(evidence, figure, path, "winners")


def _heat(
    axes: Any, evidence: Evidence, grid: Sequence[Cell], nodes: list[int], shares: list[float], price: Price, free: bool
) -> None:
    design = evidence.design
    places = {(int(cell.levels["n"]), float(cell.levels["utilisation"])): cell for cell in grid}
    for (count, share), cell in places.items():
        name = best(cell, price, free)
        rest = [each for each in cell.names if each not in (name, IDEAL) and (free or cell.kind(each) == "front")]
        second = cell.winner(rest, price)
        x, y = nodes.index(count), shares.index(share)
        surely = bool(second) and cell.against(design, name, [second], price)[0].high < 1 - design.raw["margin"]
        fill = colour(name) if surely else "#e2e6ea"
        axes.add_patch(_square(x, y, fill))
        times = cell.mean(second, price) / cell.mean(name, price) if second else math.nan
        cost = f"{cell.mean(name, price):,.0f} \N{MICRO SIGN}s"
        beaten = f"{label(second)}:\n{times:.2g} times that" if surely else f"or {label(second)}"
        ink = "white" if surely and fill in (BLUE, BLACK) else "black"
        axes.text(x, y, f"{label(name)}\n{cost}\n{beaten}", ha="center", va="center", fontsize=7, color=ink)
    axes.set_xlim(-0.5, len(nodes) - 0.5)
    axes.set_ylim(-0.5, len(shares) - 0.5)
    axes.set_xticks(range(len(nodes)), [f"{count:,}" for count in nodes], fontsize=8)
    axes.set_yticks(range(len(shares)), [f"{share:g}" for share in shares], fontsize=8)
    axes.grid(visible=False)


def _square(x: int, y: int, fill: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=fill, edgecolor="white", linewidth=2)


def latencies(evidence: Evidence, path: Path) -> Path | None:
    """Single latencies, split by whether any node fits."""
    grid = [cell for cell in middle(evidence.cells("grid")) if float(cell.levels["utilisation"]) == 0.97]
    if not grid:
        return None
    cell = max(grid, key=lambda each: int(each.levels["n"]))
    figure, axes = plots.figure(1, 2, (10, 4.4))
    figure.subplots_adjust(wspace=0.06)
    plots.share_axis(axes[0], "x")
    plots.share_axis(axes[0], "y")
    names = [each for each in cell.names if each != IDEAL]
    spreads = {kind: {name: _spread(cell, name, kind) for name in names} for kind in ("infeasible", "feasible")}
    names.sort(key=lambda name: spreads["infeasible"][name][1], reverse=True)
    inks = [
        (RED if name in evidence.design.raw["filters"] else GREEN if cell.kind(name) == "front" else BLUE)
        for name in names
    ]
    for shown, (kind, spread) in zip(axes[0], reversed(spreads.items())):
        for place, (name, ink) in enumerate(zip(names, inks)):
            low, middle_us, high = spread[name]
            bars = [[middle_us - low], [high - middle_us]]
            shown.errorbar([middle_us], [place], xerr=bars, fmt="o", color=ink, capsize=2, label=label(name))
        shown.set_xlabel("time of one request, \N{MICRO SIGN}s (logarithmic)")
        shown.set_title("Some node fits" if kind == "feasible" else "No node fits")
    axes[0][0].set_xscale("log")
    axes[0][0].set_yticks(range(len(names)), [label(name) for name in names])
    for row, (text, ink) in enumerate(
        (("exact structures", BLUE), ("shard summaries, or none", GREEN), ("range filters", RED))
    ):
        at = {"ha": "right", "transform": axes[0][1].transAxes}
        axes[0][1].text(0.99, 0.94 - 0.06 * row, text, color=ink, fontsize=9, fontweight="bold", **at)
    return _saved(evidence, figure, path, "latency", nodes=int(cell.levels["n"]))


def _spread(cell: Cell, name: str, kind: str) -> tuple[float, float, float]:
    """The 10th, 50th and 99th percentile of a candidate's requests of one kind, in microseconds."""
    counts: dict[int, int] = {}
    for record in cell.records:
        for step, count in record["candidates"][name]["limits"][cell.limit][kind].items():
            counts[int(step)] = counts.get(int(step), 0) + count
    steps, total = sorted(counts), sum(counts.values())
    runs = list(accumulate(counts[step] for step in steps))
    low, middle_us, high = (
        step_us(steps[bisect_left(runs, share * total)]) if total else math.nan for share in (0.1, 0.5, 0.99)
    )
    return low, middle_us, high


def false_positives(evidence: Evidence, path: Path) -> Path | None:
    """FPR against bits per key for each L, uniform and correlated, with the theoretical minimum."""
    records = evidence.of_block("rates")
    if not records:
        return None
    lengths = sorted({int(record["levels"]["length"]) for record in records})
    figure, axes = plots.figure(2, len(lengths), (3.5 * len(lengths), 7))
    figure.subplots_adjust(wspace=0.08)
    plots.share_axis(axes.ravel(), "x")
    for row, queries in enumerate(("uniform", "correlated")):
        for column, length in enumerate(lengths):
            shown = axes[row][column]
            of_panel = [
                each for each in records if each["levels"]["queries"] == queries and each["levels"]["length"] == length
            ]
            sizes = sorted({float(each["levels"]["bits_per_key"]) for each in of_panel})
            least = [min(1.0, length / 2**size) for size in sizes]
            shown.plot(sizes, least, color="black", linestyle=":", label=BOUND)
            ends = [(*last, BOUND, "black") for last in [*zip(sizes, least)][-1:]]
            for name in evidence.design.blocks["rates"]["filters"]:
                ends += [(*point, label(name), colour(name)) for point in _rate_line(shown, of_panel, sizes, name)]
            where = "drawn evenly" if queries == "uniform" else "next to stored values"
            shown.set_title(f"Ranges of {length:,} {where}" if length > 1 else f"Single values {where}", fontsize=9)
            shown.set_xlabel("filter size, bits per key" if row else "")
        plots.share_axis(axes[row], "y")
        axes[row][0].set_yscale("log")
        axes[row][0].set_ylim(1e-6, 1.6)
        axes[row][0].set_xticks(sizes)
        axes[row][0].set_ylabel("share of empty ranges\nlet through (logarithmic)")
        plots.label_ends(axes[row][-1], ends)
    return _saved(evidence, figure, path, "rates")


BOUND: Final = "least possible if any\nrange may be asked"


def _rate_line(axes: Any, records: Sequence[Mapping[str, Any]], sizes: Sequence[float], name: str) -> list[Point]:
    """The line's last point, if there is any."""
    points: list[tuple[float, float, float, float]] = []
    for size in sizes:
        found = [
            each["candidates"][name]
            for each in records
            if each["levels"]["bits_per_key"] == size and name in each["candidates"]
        ]
        if found:
            rate = share_interval(sum(each["false_positives"] for each in found), sum(each["asked"] for each in found))
            points.append(
                (fmean(each["bits_per_key"] for each in found), max(rate.value, 1e-6), max(rate.low, 1e-6), rate.high)
            )
    if points:
        xs, ys, lows, highs = zip(*points)
        axes.plot(xs, ys, marker="o", linewidth=1.2, markersize=3, **line(name))
        axes.fill_between(xs, lows, highs, color=colour(name), alpha=0.12, linewidth=0)
    return [point[:2] for point in points[-1:]]


def break_evens(evidence: Evidence, path: Path) -> Path | None:
    """Break-even C_behind: one dot per cell and front."""
    cells = [cell for cell in evidence.cells("grid", "bits") if cell.limit == "1" and int(cell.levels["shards"]) > 1]
    names = (PLAIN, JOINT, *evidence.design.raw["filters"])
    figure, axes = plots.figure(1, 2, (10.5, 3.6))
    figure.subplots_adjust(wspace=0.32)
    plots.share_axis(axes[0], "y")
    plots.share_axis(axes[0], "x")
    drawn = False
    for shown, rival in zip(axes[0], (BASE, PLAIN)):
        for place, name in enumerate(names):
            found = [cell.break_even_us(name, 1.0, rival) for cell in cells if {name, rival} <= set(cell.names)]
            if not found or name == rival:
                continue
            drawn = True
            paid = sorted(even for even in found if math.isfinite(even))
            text = f"{label(name)} (pays in {len(paid)} of {len(found)})"
            # Spread within the row, or equal dots would hide each other.
            heights = [place + 0.5 * ((number * 0.618) % 1 - 0.5) for number in range(len(paid))]
            shown.scatter(paid, heights, s=13, alpha=0.7, color=BLUE, label=text, clip_on=False)
            at = {"va": "center", "fontsize": 8, "transform": shown.get_yaxis_transform()}
            shown.text(1.02, place, f"pays in {len(paid)} of {len(found)}", **at)
        shown.set_title("Beside no summary" if rival == BASE else "Beside each shard's largest values")
        shown.set_xlabel(
            "cost of opening a shard from which it pays, \N{MICRO SIGN}s\n(logarithmic from 1 on; 0: always)"
        )
    axes[0][0].set_xscale("symlog", linthresh=1, linscale=0.6)
    axes[0][0].set_xlim(-0.2, 3e7)
    axes[0][0].set_xticks([0, *(10.0**power for power in range(8))])
    axes[0][0].set_yticks(range(len(names)), [label(name) for name in names])
    axes[0][0].set_ylim(len(names) - 0.5, -0.5)
    return _saved(evidence, figure, path, "break-even") if drawn else None


def decay(evidence: Evidence, path: Path) -> Path | None:
    """Request slowdown and opened shards as nodes change without rebuilds."""
    records = evidence.of_block("churn")
    if not records:
        return None
    nodes = max(int(record["levels"]["n"]) for record in records)
    records = [record for record in records if record["levels"]["n"] == nodes]
    found = {name: [record["candidates"][name] for record in records if name in record["candidates"]]
             for name in evidence.design.candidates("churn")}  # fmt: skip
    named = [name for name, reports in found.items() if reports]
    if not named:
        return None
    stages = list(found[named[0]][0]["stages"])
    figure, axes = plots.figure(1, 2, (10, 3.8))
    figure.subplots_adjust(wspace=0.25)
    ends = []
    for place, name in enumerate(named):
        fresh, last = (
            [fmean(each["stages"][at]["query_us"]) for each in found[name]] for at in (stages[0], stages[-1])
        )
        times = [one / other for one, other in zip(last, fresh)]
        style = {"fmt": "o", "color": BLUE, "capsize": 2, "label": label(name)}
        axes[0][0].errorbar([fmean(times)], [place], xerr=_ends([fmean(times)], [times]), **style)
        if found[name][0]["kind"] == "front":
            opened = [[fmean(each["stages"][share]["opened"]) for each in found[name]] for share in stages]
            _seeds(axes[0][1], range(len(stages)), opened, name)
            ends.append((len(stages) - 1, fmean(opened[-1]), label(name), colour(name)))
    axes[0][0].axvline(1, color="black", linewidth=0.8, linestyle=":")
    axes[0][0].set_yticks(range(len(named)), [label(name) for name in named])
    axes[0][0].set_ylim(len(named) - 0.5, -0.5)
    axes[0][0].set_xlim(left=0)
    axes[0][0].set_xlabel("time of a request when every node has changed,\nin times of a fresh one (dotted: the same)")
    axes[0][0].set_title("Time, where opening is free")
    axes[0][1].set_xticks(range(len(stages)), [f"{100 * float(share):g} %" for share in stages])
    axes[0][1].set_xlabel("nodes changed since it was built")
    axes[0][1].set_yscale("log")
    axes[0][1].set_ylabel("shards opened for a request\n(logarithmic)")
    axes[0][1].set_title("Shards opened")
    plots.label_ends(axes[0][1], ends)
    return _saved(evidence, figure, path, "decay", nodes=nodes)


def _seeds(axes: Any, xs: Sequence[float], values: Sequence[Sequence[float]], name: str) -> None:
    """A line through the means, with the range of each point's values."""
    means = [fmean(each) for each in values]
    style = {"marker": "o", "markersize": 3, "capsize": 2, "linewidth": 1.2, "elinewidth": 0.7, **line(name)}
    axes.errorbar(xs, means, yerr=_ends(means, values), **style)


def _ends(means: Sequence[float], values: Sequence[Sequence[float]]) -> list[list[float]]:
    """The distances of the lowest and the highest value from each mean, for `errorbar`."""
    below = [at - min(each) for at, each in zip(means, values)]
    return [below, [max(each) - at for at, each in zip(means, values)]]


def throughput(evidence: Evidence, path: Path) -> Path | None:
    """Requests per second with interleaved updates: measured streams."""
    records = evidence.of_block("stream")
    if not records:
        return None
    sizes = sorted({int(record["levels"]["n"]) for record in records})
    figure, axes = plots.figure(1, len(sizes), (3.4 * len(sizes), 4))
    figure.subplots_adjust(wspace=0.08)
    plots.share_axis(axes[0], "y")
    for shown, nodes in zip(axes[0], sizes):
        ends = []
        for name in evidence.design.candidates("stream"):
            reports = [
                record["candidates"][name]
                for record in records
                if record["levels"]["n"] == nodes and name in record["candidates"]
            ]
            if reports:
                ratios = list(reports[0]["ratios"])
                rates = [[1e6 / float(each["ratios"][ratio]["each_us"]) for each in reports] for ratio in ratios]
                _seeds(shown, [float(ratio) for ratio in ratios], rates, name)
                ends.append((float(ratios[-1]), fmean(rates[-1]), label(name), colour(name)))
        shown.set_xscale("log")
        shown.set_xlabel("updates for each request (logarithmic)")
        shown.set_title(f"{nodes:,} nodes", fontsize=9)
    axes[0][0].set_yscale("log")
    axes[0][0].set_ylabel("requests/s in process,\nupdates included (logarithmic)")
    plots.label_ends(axes[0][-1], ends)
    return _saved(evidence, figure, path, "throughput")


def revisions(evidence: Evidence, path: Path) -> Path | None:
    """Bytes per retained revision, and the cost of querying the past."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    records = evidence.of_block("history")
    nodes = max((int(record["levels"]["n"]) for record in records), default=0)
    for record in records:
        if record["levels"]["n"] == nodes:
            for name, figures in record["candidates"].items():
                if figures["kind"] == "whole":
                    groups.setdefault(name, []).append(figures)
    if not groups:
        return None
    figure, axes = plots.figure(1, 2, (9.5, 3.4))
    figure.subplots_adjust(wspace=0.06)
    plots.share_axis(axes[0], "y")
    names = list(groups)[::-1]
    sizes = [fmean(each["bytes_a_revision"] for each in groups[name]) for name in names]
    places = range(len(names))
    axes[0][0].plot(sizes, places, "o", color=BLUE)
    for place, (name, size) in enumerate(zip(names, sizes)):
        text = f"   {size:,.0f} ({groups[name][0]['past']})"
        axes[0][0].annotate(text, (size, place), va="center", fontsize=7.5)
    axes[0][0].set_xlabel("bytes for each revision kept (logarithmic)")
    for what, text, ink, mark in (("query_us", "now", BLUE, "o"), ("old_query_us", "at an old revision", RED, "^")):
        spread = [[float(one[what]) for one in groups[name]] for name in names]
        means = [fmean(each) for each in spread]
        axes[0][1].errorbar(means, places, xerr=_ends(means, spread), fmt=mark, color=ink, label=text, capsize=2)
        at = {"ha": "center", "va": "bottom", "color": ink, "fontweight": "bold", "fontsize": 8}
        axes[0][1].annotate(text, (means[0], -0.35), **at)
    axes[0][1].set_xlabel("time of a request, \N{MICRO SIGN}s (logarithmic)")
    axes[0][0].set_yticks(places, [label(name) for name in names])
    axes[0][0].set_ylim(len(names) - 0.5, -0.9)
    for shown in axes[0]:
        shown.set_xscale("log")
    axes[0][0].set_xlim(right=30 * max(sizes))
    return _saved(evidence, figure, path, "revisions", nodes=nodes)


def constants(evidence: Evidence, path: Path) -> Path | None:
    """Break-even C_behind with Python, numpy and compiled loops."""
    groups: dict[tuple[int, str], list[tuple[Mapping[str, Any], int]]] = {}
    for record in evidence.of_block("probes"):
        for way, figures in record["ways"].items():
            groups.setdefault((int(record["levels"]["n"]), way), []).append((figures, record["shards"]))
    if not groups:
        return None
    sizes = sorted({nodes for nodes, _ in groups})
    ways = [way for way in ("python", "numpy", "compiled") if any(each == way for _, each in groups)]
    figure, axes = plots.figure(1, len(sizes), (3.2 * len(sizes), 3.4))
    figure.subplots_adjust(wspace=0.08)
    plots.share_axis(axes[0], "y")
    for shown, nodes in zip(axes[0], sizes):
        ends = []
        for number, name in enumerate((PLAIN, JOINT, "bloom")):
            points = []
            for place, way in enumerate(ways):
                measured = groups.get((nodes, way), [])
                evens = [probe_break_even_us(dict(figures), name, shards) for figures, shards in measured]
                if finite := [even for even in evens if math.isfinite(even)]:
                    points.append((place + (number - 1) * 0.14, (fmean(finite), min(finite), max(finite))))
            plots.draw_intervals(shown, label(name), points, colour(name), "none", "o")
            ends += [(x, even, label(name), colour(name)) for x, (even, *_) in points[-1:]]
            for x, (even, *_) in points:
                at = {"textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 7.5}
                shown.annotate(f"{even:,.0f}" if even else "", (x, even), (-5, 0), **at)
        shown.set_xlim(-0.5, len(ways) - 0.5)
        shown.set_xticks(range(len(ways)), [TEXTS["ways"][way] for way in ways])
        shown.set_title(f"{nodes:,} nodes", fontsize=9)
        shown.grid(axis="x", visible=False)
    axes[0][0].set_yscale("symlog", linthresh=10, linscale=0.5)
    axes[0][0].set_ylim(-2, 3e5)
    axes[0][0].set_yticks([0, *(10.0**power for power in range(1, 6))])
    axes[0][0].set_ylabel(
        "cost of opening a shard from which it pays,\n\N{MICRO SIGN}s (logarithmic from 10 on; 0: always)"
    )
    plots.label_ends(axes[0][-1], ends)
    return _saved(evidence, figure, path, "constants")


def end_to_end(rates: Rates, path: Path) -> Path | None:
    """Pods per second through API, consensus and bind, from benchmarks, of what ran more than once."""
    found = {tuple(name.split(", ")): of_clusters(runs, 0.95, False) for name, runs in rates.items() if len(runs) > 1}
    if not found:
        return None
    alike = [part for part in next(iter(found)) if len(found) > 1 and all(part in each for each in found)]
    names = sorted(found, key=lambda each: -found[each].value)
    shown = [", ".join(label(part) for part in each if part not in alike) or each[0] for each in names]
    rest = [text for each, text in zip(names[1:], shown[1:]) if found[each].high >= found[names[0]].low]
    title = f"With {shown[0]} a scheduler binds the most pods per second" if len(names) > 1 else "Pods bound per second"
    title += f"; with {', '.join(rest)} perhaps as many" if rest else ""
    figure, axes = plots.figure(1, 1, (6.4, 0.9 + 0.26 * len(names)))
    for place, name in enumerate(names):
        value, low, high = found[name]
        style = {"fmt": "o", "color": BLUE, "capsize": 2.5, "label": shown[place]}
        axes[0][0].errorbar([value], [place], xerr=[[value - low], [high - value]], **style)
    axes[0][0].set_yticks(range(len(names)), shown)
    axes[0][0].set_ylim(len(names) - 0.5, -0.5)
    axes[0][0].set_xlim(left=0)
    axes[0][0].set_xlabel("pods/s from creation to binding, through API and store")
    runs = min(len(each) for each in rates.values() if len(each) > 1)
    plots.entitle(figure, f"{title}\n\n{'; '.join([*alike, f'95 % confidence intervals over {runs} runs'])}")
    return plots.save(figure, path)


PICTURES: Final[dict[str, tuple[str, Callable[[Evidence, Path], Path | None]]]] = {
    "winners": ("What costs least, by nodes, utilisation and what lies behind a shard", winner_heat),
    "latency": ("Single latencies where some node fits and where none does", latencies),
    "break-even": ("From which cost of opening a shard on a front pays", break_evens),
    "rates": ("False positives against bits per key and length, with the least possible", false_positives),
    "decay": ("Decay after churn, nothing rebuilt", decay),
    "throughput": ("Throughput against updates", throughput),
    "revisions": ("The past: bytes for each revision, and reads of it", revisions),
    "constants": ("The same loops in Python, numpy and compiled", constants),
}


def draw_all(evidence: Evidence, folder: Path, rates: Rates) -> list[tuple[str, Path]]:
    """(caption, file) of each chart with data."""
    if not plots.available():
        return []
    made: list[tuple[str, Path]] = []
    for name, (caption, draw) in PICTURES.items():
        path = draw(evidence, folder / f"bloom-{name}.png")
        if path is not None:
            made.append((caption, path))
    path = end_to_end(rates, folder / "bloom-end-to-end.png")
    return [*made, ("Whole schedulers: pods per second by matcher", path)] if path else made
