"""The pictures of the report, each from the records alone; none is made where its block has not run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from minikube_py.lab import plots
from minikube_py.lab.study.statistics import share_interval
from minikube_py.studies.bloom.ledger import BASE, IDEAL, JOINT, PLAIN, Cell, Price
from minikube_py.studies.bloom.predictions import Evidence, probe_break_even_us
from minikube_py.studies.bloom.tables import best, cost_text
from minikube_py.studies.bloom.timing import step_us

COLOURS: Final = {
    "scan": "#718096", "columns": "#2b6cb0", "sorted-runs": "#4fd1c5", "max-tree": "#2f855a", "cow-max-tree": "#68d391",
    "kd-tree": "#d69e2e", "bitmaps": "#6b46c1", "zones": "#97266d", "joint-zones": "#ed64a6", "shapes": "#00a3c4",
    "always": "#a0aec0", "oracle": "#1a202c", "max-vector": "#dd6b20", "joint-bitset": "#c53030", "bloom": "#4a5568",
    "prefix-bloom": "#9f7aea", "rosetta": "#38b2ac", "grafite": "#3182ce", "memento": "#b7791f",
    "exact-copy": "#1a202c",
}  # fmt: skip
GREY: Final = "#cbd5e0"
Point = tuple[float, float]


def colour(name: str) -> str:
    return COLOURS.get(name, GREY)


def middle(cells: Iterable[Cell], limit: str = "1", shards: int = 256) -> list[Cell]:
    return [
        cell
        for cell in cells
        if cell.limit == limit and cell.levels["shards"] == shards and float(cell.levels["correlation"]) == 0
    ]


def winner_heat(evidence: Evidence, path: Path) -> Path | None:
    """n x utilisation, a panel for each C_behind: above with structures of all nodes at hand, below without."""
    grid = middle(evidence.cells("grid"))
    costs = evidence.design.c_behind_us
    if not grid:
        return None
    figure, axes = plots.figure(2, len(costs), (3.9 * len(costs), 7.2))
    nodes = sorted({int(cell.levels["n"]) for cell in grid})
    shares = sorted({float(cell.levels["utilisation"]) for cell in grid})
    for row, free in enumerate((True, False)):
        for column, cost in enumerate(costs):
            _heat(axes[row][column], grid, nodes, shares, Price(cost, 1.0), free)
            here = "all structures" if free else "fronts of shards only"
            axes[row][column].set_title(f"C_behind {cost_text(cost)}\n{here}", fontsize=9)
        axes[row][0].set_ylabel("utilisation")
    figure.suptitle(
        "What costs least to find a first node (U/Q = 1, 256 shards, correlation 0); and how much less than the next",
        y=0.99,
        fontsize=10,
    )
    return plots.save(figure, path)


def _heat(axes: Any, grid: Sequence[Cell], nodes: list[int], shares: list[float], price: Price, free: bool) -> None:
    places = {(int(cell.levels["n"]), float(cell.levels["utilisation"])): cell for cell in grid}
    for (count, share), cell in places.items():
        name = best(cell, price, free)
        rest = [each for each in cell.names if each not in (name, IDEAL) and (free or cell.kind(each) == "front")]
        second = cell.winner(rest, price)
        x, y = nodes.index(count), shares.index(share)
        axes.add_patch(_square(x, y, colour(name)))
        times = cell.mean(second, price) / cell.mean(name, price) if second else math.nan
        text = f"{name}\n{cell.mean(name, price):,.0f} us\n{second}:\nx {times:.3g}"
        axes.text(x, y, text, ha="center", va="center", fontsize=6, color="white")
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
    figure, axes = plots.figure(1, 2, (11, 4.2))
    for place, kind in enumerate(("feasible", "infeasible")):
        for name in (each for each in cell.names if each != IDEAL):
            counts: dict[int, int] = {}
            for record in cell.records:
                for step, count in record["candidates"][name]["limits"][cell.limit][kind].items():
                    counts[int(step)] = counts.get(int(step), 0) + count
            _distribution(axes[0][place], counts, name, cell.kind(name))
        axes[0][place].set_xscale("log")
        axes[0][place].set_ylim(0, 1.02)
        axes[0][place].set_xlabel("microseconds (log), in process")
        axes[0][place].set_title(f"some node fits ({kind})" if kind == "feasible" else f"no node fits ({kind})")
    axes[0][0].set_ylabel("share of requests")
    axes[0][1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(f"One request, {cell.levels['n']:,} nodes at utilisation .97, limit 1", fontsize=10)
    return plots.save(figure, path)


def _distribution(axes: Any, counts: Mapping[int, int], name: str, kind: str) -> None:
    total = sum(counts.values())
    if not total:
        return
    steps = sorted(counts)
    run, shares = 0, []
    for step in steps:
        run += counts[step]
        shares.append(run / total)
    style = "-" if kind == "whole" else "--"
    axes.step(
        [step_us(step) for step in steps],
        shares,
        where="pre",
        label=name,
        color=colour(name),
        linestyle=style,
        linewidth=1.3,
    )


def false_positives(evidence: Evidence, path: Path) -> Path | None:
    """FPR against bits a key for each L, uniform and correlated, with the least possible."""
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
            shown.plot(
                sizes,
                [min(1.0, length / 2**size) for size in sizes],
                color="black",
                linestyle=":",
                label="least possible, L / 2^b",
            )
            for name in evidence.design.blocks["rates"]["filters"]:
                _rate_line(shown, of_panel, sizes, name)
            shown.set_yscale("log")
            shown.set_ylim(1e-6, 1.6)
            shown.set_title(f"{queries}, L = {length:,}", fontsize=9)
            shown.set_xlabel("bits per key")
        axes[row][0].set_ylabel("share of empty ranges let through (log)")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return plots.save(figure, path)


def _rate_line(axes: Any, records: Sequence[Mapping[str, Any]], sizes: Sequence[float], name: str) -> None:
    line: list[tuple[float, float, float, float]] = []
    for size in sizes:
        found = [
            each["candidates"][name]
            for each in records
            if each["levels"]["bits_per_key"] == size and name in each["candidates"]
        ]
        if found:
            rate = share_interval(sum(each["false_positives"] for each in found), sum(each["asked"] for each in found))
            line.append(
                (fmean(each["bits_per_key"] for each in found), max(rate.value, 1e-6), max(rate.low, 1e-6), rate.high)
            )
    if line:
        xs, ys, lows, highs = zip(*line)
        axes.plot(xs, ys, "o-", color=colour(name), label=name, linewidth=1.2, markersize=3)
        axes.fill_between(xs, lows, highs, color=colour(name), alpha=0.12, linewidth=0)


def break_evens(evidence: Evidence, path: Path) -> Path | None:
    """Break-even C_behind against FPR: one dot a cell and front."""
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
                label = f"{name} ({never} of {len(dots)} never)"
                axes[0][place].scatter(
                    [x for x, _ in finite], [y for _, y in finite], s=12, alpha=0.7, color=colour(name), label=label
                )
        axes[0][place].set_xscale("log")
        axes[0][place].set_yscale("log")
        axes[0][place].set_xlabel("FPR among empty shards")
        axes[0][place].set_title(f"against {'no filter' if rival == BASE else 'the max vector'}, U/Q = 1")
        axes[0][place].legend(fontsize=7)
        for cost in evidence.design.c_behind_us:
            if cost:
                axes[0][place].axhline(cost, color="black", linewidth=0.6, linestyle=":")
    axes[0][0].set_ylabel("break-even C_behind, us (0 drawn at .1)")
    if not drawn:
        return None
    return plots.save(figure, path)


def decay(evidence: Evidence, path: Path) -> Path | None:
    """How requests slow down, and how many shards are opened, as nodes change and nothing is rebuilt."""
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
        axes[0][0].plot(xs, [value / times[0] for value in times], "o-", color=colour(name), label=name, markersize=3)
        if reports[0]["kind"] == "front":
            opened = [fmean(fmean(each["stages"][share]["opened"]) for each in reports) for share in shares]
            axes[0][1].plot(xs, opened, "o-", color=colour(name), label=name, markersize=3)
    for shown, title in zip(axes[0], ("time of a request, of that when fresh", "shards opened a request")):
        shown.set_xscale("log")
        shown.set_yscale("log")
        shown.set_xlabel("share of nodes changed since it was built (left edge: none)")
        shown.set_title(title)
        shown.legend(fontsize=7)
    figure.suptitle(f"Decay without rebuilding, {nodes:,} nodes", fontsize=10)
    return plots.save(figure, path)


def throughput(evidence: Evidence, path: Path) -> Path | None:
    """Requests a second as updates come with them: measured streams."""
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
                rates = [1e6 / fmean(each["ratios"][ratio]["each_us"] for each in reports) for ratio in ratios]
                shown.plot(
                    [float(ratio) for ratio in ratios], rates, "o-", color=colour(name), label=name, markersize=3
                )
        shown.set_xscale("log")
        shown.set_yscale("log")
        shown.set_xlabel("updates for each request")
        shown.set_title(f"{nodes:,} nodes", fontsize=9)
    axes[0][0].set_ylabel("requests/s in process, updates included (log)")
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return plots.save(figure, path)


def revisions(evidence: Evidence, path: Path) -> Path | None:
    """Bytes for each retained revision, and what asking for the past costs."""
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
    bars = axes[0][0].barh(names, sizes, color=[colour(name) for name in names])
    axes[0][0].bar_label(
        bars,
        labels=[f"{size:,.0f} ({groups[name][0]['past']})" for name, size in zip(names, sizes)],
        fontsize=7,
        padding=2,
    )
    axes[0][0].set_xscale("log")
    axes[0][0].margins(x=0.4)
    axes[0][0].set_title("bytes for each revision retained")
    width = 0.38
    for offset, what, label in ((0.2, "query_us", "now"), (-0.2, "old_query_us", "at an old revision")):
        values = [fmean(each[what] for each in groups[name]) for name in names]
        places = [place + offset for place in range(len(names))]
        axes[0][1].barh(places, values, width, label=label, color=plots.BLUE if offset > 0 else plots.ORANGE)
    axes[0][1].set_yticks(range(len(names)), names)
    axes[0][1].set_xscale("log")
    axes[0][1].set_title("microseconds a request, limit 1")
    axes[0][1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(f"The past, {nodes:,} nodes", fontsize=10)
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
            places = [place + (number - 1) * 0.27 for place in range(len(ways))]
            bars = shown.bar(places, heights, 0.25, color=colour(name), label=name)
            shown.bar_label(
                bars,
                labels=["never" if math.isnan(h) else "0" if h <= 1e-3 else f"{h:.2g}" for h in heights],
                fontsize=7,
            )
        shown.set_yscale("log")
        shown.set_xticks(range(len(ways)), ways)
        shown.set_title(f"{nodes:,} nodes", fontsize=9)
        shown.grid(axis="x", visible=False)
    axes[0][0].set_ylabel("break-even C_behind, us (log)")
    axes[0][-1].legend(fontsize=7)
    figure.suptitle(
        "A request no node can take: from which C_behind on probing 256 shards beats opening them", fontsize=10
    )
    return plots.save(figure, path)


def end_to_end(rates: Mapping[str, float], path: Path) -> Path | None:
    """Pods a second through API, consensus and bind, as a bench measured them."""
    if not rates:
        return None
    figure, axes = plots.figure(1, 1, (6, 0.6 + 0.5 * len(rates)))
    bars = axes[0][0].barh(list(rates), list(rates.values()), color=plots.BLUE)
    axes[0][0].bar_label(bars, labels=[f"{rate:,.0f}" for rate in rates.values()], fontsize=8, padding=2)
    axes[0][0].set_title("pods/s end to end, consensus included")
    axes[0][0].margins(x=0.15)
    return plots.save(figure, path)


PICTURES: Final[dict[str, tuple[str, Callable[[Evidence, Path], Path | None]]]] = {
    "winners": ("What costs least, by nodes, utilisation and what lies behind a shard", winner_heat),
    "latency": ("Single latencies where some node fits and where none does", latencies),
    "break-even": ("From which C_behind on a front pays, against its false positives", break_evens),
    "rates": ("False positives against bits per key and length, with the least possible", false_positives),
    "decay": ("Decay after churn, nothing rebuilt", decay),
    "throughput": ("Throughput against updates", throughput),
    "revisions": ("The past: bytes for each revision, and reads of it", revisions),
    "constants": ("The same loops in Python, numpy and compiled", constants),
}


def draw_all(evidence: Evidence, folder: Path, rates: Mapping[str, float]) -> list[tuple[str, Path]]:
    """(caption, file) of each picture that there is something for."""
    if not plots.available():
        return []
    made: list[tuple[str, Path]] = []
    for name, (caption, draw) in PICTURES.items():
        path = draw(evidence, folder / f"bloom-{name}.png")
        if path is not None:
            made.append((caption, path))
    path = end_to_end(rates, folder / "bloom-end-to-end.png")
    return [*made, ("End to end, as measured by the bench named", path)] if path else made


__all__ = ["PICTURES", "draw_all"]
