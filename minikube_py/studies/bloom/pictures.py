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
from minikube_py.lab.study.statistics import share_interval
from minikube_py.studies.bloom.ledger import BASE, IDEAL, JOINT, PLAIN, Cell, Price
from minikube_py.studies.bloom.predictions import Evidence, probe_break_even_us
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


def _entitle(figure: Any, name: str, height: float, **figures: int) -> None:
    figure.suptitle(TEXTS["titles"][name].format(**figures), y=height, fontsize=10)


def middle(cells: Iterable[Cell], limit: str = "1", shards: int = 256) -> list[Cell]:
    return [
        cell
        for cell in cells
        if cell.limit == limit and cell.levels["shards"] == shards and float(cell.levels["correlation"]) == 0
    ]


def winner_heat(evidence: Evidence, path: Path) -> Path | None:
    """n x utilisation, one row per C_behind: left with structures of all nodes available, right without."""
    grid = middle(evidence.cells("grid"))
    costs = evidence.design.c_behind_us
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
    _entitle(figure, "winners", 0.955)
    return plots.save(figure, path)


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
        ink = "white" if surely and fill in (BLUE, GREEN, RED, BLACK) else "black"
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
    figure, axes = plots.figure(1, 2, (11, 4.6))
    names = [each for each in cell.names if each != IDEAL]
    spreads = {kind: {name: _spread(cell, name, kind) for name in names} for kind in ("infeasible", "feasible")}
    names.sort(key=lambda name: spreads["infeasible"][name][1], reverse=True)
    for shown, (kind, spread) in zip(axes[0], reversed(spreads.items())):
        for place, name in enumerate(names):
            low, middle_us, high = spread[name]
            bars = [[middle_us - low], [high - middle_us]]
            shown.errorbar([middle_us], [place], xerr=bars, fmt="o", color=BLUE, capsize=2, label=label(name))
        shown.set_xscale("log")
        shown.set_xlabel("time of one request, \N{MICRO SIGN}s (logarithmic):\nmedian, 10th to 99th percentile")
        shown.xaxis.label.set_fontsize(8)
        shown.set_title("Some node fits" if kind == "feasible" else "No node fits")
        shown.set_yticks(range(len(names)), [label(name) for name in names])
    _entitle(figure, "latency", 1.02, nodes=int(cell.levels["n"]))
    return plots.save(figure, path)


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
    figure, axes = plots.figure(2, len(lengths), (3.9 * len(lengths), 7))
    for row, queries in enumerate(("uniform", "correlated")):
        for column, length in enumerate(lengths):
            shown = axes[row][column]
            of_panel = [
                each for each in records if each["levels"]["queries"] == queries and each["levels"]["length"] == length
            ]
            sizes = sorted({float(each["levels"]["bits_per_key"]) for each in of_panel})
            least = [min(1.0, length / 2**size) for size in sizes]
            shown.plot(sizes, least, color="black", linestyle=":", label="least possible if any\nrange may be asked")
            for name in evidence.design.blocks["rates"]["filters"]:
                _rate_line(shown, of_panel, sizes, name)
            shown.set_yscale("log")
            shown.set_ylim(1e-6, 1.6)
            where = "drawn evenly" if queries == "uniform" else "next to stored values"
            shown.set_title(f"Ranges of {length:,} {where}" if length > 1 else f"Single values {where}", fontsize=9)
            shown.set_xlabel("filter size, bits per key")
        axes[row][0].set_ylabel("share of empty ranges\nlet through (logarithmic)")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _entitle(figure, "rates", 1.03)
    return plots.save(figure, path)


def _rate_line(axes: Any, records: Sequence[Mapping[str, Any]], sizes: Sequence[float], name: str) -> None:
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


def break_evens(evidence: Evidence, path: Path) -> Path | None:
    """Break-even C_behind against FPR: one dot per cell and front."""
    cells = [cell for cell in evidence.cells("grid", "bits") if cell.limit == "1" and int(cell.levels["shards"]) > 1]
    figure, axes = plots.figure(1, 2, (11, 4.4))
    drawn = False
    for place, rival in enumerate((BASE, PLAIN)):
        for name in (PLAIN, JOINT, *evidence.design.raw["filters"]):
            if name == rival:
                continue
            dots = [
                (cell.false_positive_rate(name), cell.break_even_us(name, 1.0, rival))
                for cell in cells
                if name in cell.names and rival in cell.names
            ]
            finite = [
                (max(rate, 1e-4), max(even, 0.1)) for rate, even in dots if not math.isnan(rate) and math.isfinite(even)
            ]
            never = sum(math.isinf(even) for _, even in dots)
            if dots:
                drawn = True
                text = f"{label(name)} (never: {never} of {len(dots)})"
                mark = "o" if line(name)["linestyle"] == "-" else "^"
                xs, ys = [x for x, _ in finite], [y for _, y in finite]
                axes[0][place].scatter(xs, ys, s=14, alpha=0.7, color=colour(name), marker=mark, label=text)
        axes[0][place].set_xscale("log")
        axes[0][place].set_yscale("log")
        axes[0][place].set_xlabel("share of full shards (no node has room) let through (logarithmic)")
        axes[0][place].set_title("Beside no summary" if rival == BASE else "Beside each shard's largest values")
        axes[0][place].legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
        for cost in evidence.design.c_behind_us:
            if cost:
                axes[0][place].axhline(cost, color="black", linewidth=0.6, linestyle=":")
    axes[0][0].set_ylabel("cost of opening a shard from which it pays, \N{MICRO SIGN}s\n(logarithmic; at 0.1: always)")
    _entitle(figure, "break-even", 1.04)
    return plots.save(figure, path) if drawn else None


def decay(evidence: Evidence, path: Path) -> Path | None:
    """Request slowdown and opened shards as nodes change without rebuilds."""
    records = evidence.of_block("churn")
    if not records:
        return None
    nodes = max(int(record["levels"]["n"]) for record in records)
    records = [record for record in records if record["levels"]["n"] == nodes]
    figure, axes = plots.figure(1, 2, (11, 4))
    for name in evidence.design.candidates("churn"):
        reports = [record["candidates"][name] for record in records if name in record["candidates"]]
        if not reports:
            continue
        shares = list(reports[0]["stages"])
        xs = [max(float(share), 0.003) for share in shares]
        times = [fmean(fmean(each["stages"][share]["query_us"]) for each in reports) for share in shares]
        spread = [[fmean(each["stages"][share]["query_us"]) for each in reports] for share in shares]
        _seeds(axes[0][0], xs, [[value / times[0] for value in stage] for stage in spread], name)
        if reports[0]["kind"] == "front":
            opened = [[fmean(each["stages"][share]["opened"]) for each in reports] for share in shares]
            _seeds(axes[0][1], xs, opened, name)
    ways = ("time of a request, in times of a fresh one", "shards opened for a request (logarithmic)")
    for shown, way in zip(axes[0], ways):
        shown.set_xscale("log")
        shown.set_xlabel("share of nodes changed since it was built (left edge: none)")
        shown.set_ylabel(way)
    axes[0][0].set_ylim(bottom=0)
    axes[0][1].set_yscale("log")
    axes[0][0].legend(fontsize=7, ncols=5, loc="upper left", bbox_to_anchor=(0, -0.16))
    _entitle(figure, "decay", 1.02, nodes=nodes)
    return plots.save(figure, path)


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
    figure, axes = plots.figure(1, len(sizes), (4.2 * len(sizes), 3.8))
    for shown, nodes in zip(axes[0], sizes):
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
        shown.set_xscale("log")
        shown.set_yscale("log")
        shown.set_xlabel("updates for each request (logarithmic)")
        shown.set_title(f"{nodes:,} nodes", fontsize=9)
    axes[0][0].set_ylabel("requests/s in process,\nupdates included (logarithmic)")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _entitle(figure, "throughput", 1.06)
    return plots.save(figure, path)


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
    figure, axes = plots.figure(1, 2, (11, 3.8))
    names = list(groups)
    sizes = [fmean(each["bytes_a_revision"] for each in groups[name]) for name in names]
    places = range(len(names))
    axes[0][0].plot(sizes, places, "o", color=BLUE)
    for place, (name, size) in enumerate(zip(names, sizes)):
        text = f"   {size:,.0f} ({groups[name][0]['past']})"
        axes[0][0].annotate(text, (size, place), va="center", fontsize=7)
    axes[0][0].margins(x=0.4)
    axes[0][0].set_xlabel("bytes for each revision kept (logarithmic)")
    for what, text, ink, mark in (("query_us", "now", BLUE, "o"), ("old_query_us", "at an old revision", ORANGE, "^")):
        spread = [[float(one[what]) for one in groups[name]] for name in names]
        means = [fmean(each) for each in spread]
        axes[0][1].errorbar(means, places, xerr=_ends(means, spread), fmt=mark, color=ink, label=text, capsize=2)
    axes[0][1].set_xlabel("time of a request, \N{MICRO SIGN}s (logarithmic); bars: lowest and highest seed")
    for shown in axes[0]:
        shown.set_yticks(places, [label(name) for name in names])
        shown.set_xscale("log")
    axes[0][1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _entitle(figure, "revisions", 1.04, nodes=nodes)
    return plots.save(figure, path)


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
    figure, axes = plots.figure(1, len(sizes), (4 * len(sizes), 3.6))
    for shown, nodes in zip(axes[0], sizes):
        for number, name in enumerate((PLAIN, JOINT, "bloom")):
            heights = []
            for way in ways:
                evens = [
                    probe_break_even_us(dict(figures), name, shards) for figures, shards in groups.get((nodes, way), [])
                ]
                finite = [even for even in evens if math.isfinite(even)]
                heights.append(max(fmean(finite), 1e-3) if finite else math.nan)
            places = [place + (number - 1) * 0.2 for place in range(len(ways))]
            shown.plot(places, heights, "o", color=colour(name), label=label(name))
            for place, height in zip(places, heights):
                if not math.isnan(height):
                    text = "0" if height <= 1e-3 else f"{height:,.0f}"
                    shown.annotate(text, (place, height), (0, 5), textcoords="offset points", ha="center", fontsize=7)
        shown.set_yscale("log")
        shown.set_ylim(3e-4, 3e5)
        shown.set_xlim(-0.5, len(ways) - 0.5)
        shown.set_xticks(range(len(ways)), [way.replace("python", "Python") for way in ways])
        shown.set_title(f"{nodes:,} nodes", fontsize=9)
        shown.grid(axis="x", visible=False)
    axes[0][0].set_ylabel("cost of opening a shard from which\nit pays, \N{MICRO SIGN}s (logarithmic; bottom: always)")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _entitle(figure, "constants", 1.06)
    return plots.save(figure, path)


def end_to_end(rates: Mapping[str, float], path: Path) -> Path | None:
    """Pods per second through API, consensus and bind, from a benchmark."""
    if not rates:
        return None
    figure, axes = plots.figure(1, 1, (6, 0.9 + 0.3 * len(rates)))
    bars = axes[0][0].barh(list(rates)[::-1], list(rates.values())[::-1], color=BLUE)
    axes[0][0].bar_label(bars, labels=[f"{rate:,.0f}" for rate in list(rates.values())[::-1]], fontsize=8, padding=2)
    axes[0][0].set_title("Single runs: differences of a few per cent may be noise", x=-0.45)
    axes[0][0].set_xlabel("pods/s from creation to binding, through API and store; one run each, so without intervals")
    axes[0][0].grid(axis="y", visible=False)
    axes[0][0].margins(x=0.15)
    return plots.save(figure, path)


PICTURES: Final[dict[str, tuple[str, Callable[[Evidence, Path], Path | None]]]] = {
    "winners": ("What costs least, by nodes, utilisation and what lies behind a shard", winner_heat),
    "latency": ("Single latencies where some node fits and where none does", latencies),
    "break-even": ("From which cost of opening a shard on a front pays, against its false positives", break_evens),
    "rates": ("False positives against bits per key and length, with the least possible", false_positives),
    "decay": ("Decay after churn, nothing rebuilt", decay),
    "throughput": ("Throughput against updates", throughput),
    "revisions": ("The past: bytes for each revision, and reads of it", revisions),
    "constants": ("The same loops in Python, numpy and compiled", constants),
}


def draw_all(evidence: Evidence, folder: Path, rates: Mapping[str, float]) -> list[tuple[str, Path]]:
    """(caption, file) of each chart with data."""
    if not plots.available():
        return []
    made: list[tuple[str, Path]] = []
    for name, (caption, draw) in PICTURES.items():
        path = draw(evidence, folder / f"bloom-{name}.png")
        if path is not None:
            made.append((caption, path))
    path = end_to_end(rates, folder / "bloom-end-to-end.png")
    return [*made, ("End to end, as measured by the bench named", path)] if path else made
