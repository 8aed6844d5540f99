"""The pictures of the runs. matplotlib is imported only here and only when a picture is made (extra `lab`)."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minikube_py.errors import to_install
from minikube_py.lab.measure import PERCENTILES

BLUE, ORANGE, GREEN, RED, GREY, PALE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#718096", "#cbd5e0"
SAFE = (BLUE, ORANGE, GREEN, RED, "#56b4e9", "#cc79a7", "#000000")  # Okabe and Ito 2008: safe for the colour-blind.
MANY = (*SAFE, GREY, "#882255")
"""With grey and Tol's wine, for as many lines in one picture; beyond, use rows."""
MARKERS = ("o", "s", "^", "D")
MISSING = f"no plot: matplotlib is not installed; {to_install('lab')}"

STYLE: dict[Any, Any] = {
    "figure.dpi": 130,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}


def available() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def figure(rows: int, columns: int, size_inches: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes as a list of rows. `save` ends it: our style is matplotlib's until then.

    Without pyplot, whose backend and figures are the caller's, a notebook's for example."""
    import matplotlib
    from matplotlib.figure import Figure

    style = matplotlib.rc_context(STYLE)
    style.__enter__()
    made = Figure(figsize=size_inches)
    made.style_of_ours = style  # type: ignore[attr-defined]
    axes = made.subplots(rows, columns, squeeze=False)
    made.subplots_adjust(hspace=0.36, wspace=0.3)
    return made, axes


def entitle(made: Any, text: str) -> None:
    """A figure's message in bold above its panels, in lines as wide as they are; after an empty line in `text`, notes
    in plain type, whose lines stay as they are."""
    message, _, notes = text.partition("\n\n")
    (width, height), room = made.get_size_inches(), made.subplotpars
    title = made.axes[0].get_title("left")
    at = room.top + (0.34 + 0.15 * title.count("\n") if title else 0.12) / height
    if notes:
        made.text(room.left, at, notes, va="bottom", fontsize=8.5, linespacing=1.35)
        at += (0.09 + 0.16 * len(notes.split("\n"))) / height
    lines = textwrap.wrap(" ".join(message.split()), max(40, int(width * (room.right - room.left) / 0.088)))
    style = {"ha": "left", "va": "bottom", "fontsize": 11, "fontweight": "bold"}
    made.suptitle("\n".join(lines), x=room.left, y=at, **style)


def share_axis(panels: Sequence[Any], which: str) -> None:
    """One scale along `which` (x or y) for all panels; for y the first alone shows the numbers."""
    for panel in panels[1:]:
        (panel.sharex if which == "x" else panel.sharey)(panels[0])
        if which == "y":
            panel.tick_params(axis="y", labelleft=False)


def label_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]], size: float = 7.5) -> None:
    """Names lines at the right edge, each with a stroke of its colour: (x, y, name, colour) of its last point. Names
    that would overlap are moved apart. To call when the limits of the axes are final."""
    inside = [axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1] for x, y, *_ in ends]
    order = sorted(range(len(ends)), key=inside.__getitem__)
    gaps = [
        1.3 * size * (1 + ends[at][2].count("\n")) / 72 / axes.get_window_extent().height * axes.figure.dpi
        for at in order
    ]
    up, down = [inside[at] for at in order], [inside[at] for at in order]
    for at in range(1, len(order)):
        up[at] = max(up[at], up[at - 1] + (gaps[at] + gaps[at - 1]) / 2)
        back = len(order) - 1 - at
        down[back] = min(down[back], down[back + 1] - (gaps[back] + gaps[back + 1]) / 2)
    for number, place in zip(order, ((one + other) / 2 for one, other in zip(up, down))):
        x, y, name, colour = ends[number]
        stroke = {"arrowstyle": "-", "color": colour, "linewidth": 1.2, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
        axes.annotate(
            name, (x, y), (1.06, place), textcoords="axes fraction", va="center", fontsize=size, arrowprops=stroke,
            annotation_clip=False,
        )  # fmt: skip


def source_digest(*functions: Callable[..., Any]) -> str:
    """Digest of the drawing code: a committed picture with another digest was drawn by other code."""
    text = "".join(map(inspect.getsource, functions)) + repr(sorted(STYLE.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def save(figure: Any, path: Path, drawn_by: str = "") -> Path:
    """Equal figures give equal bytes. `drawn_by`: stored in the picture as its source."""
    import matplotlib

    # By default ids in an .svg are random, and both formats record the date or program.
    matplotlib.rcParams["svg.hashsalt"] = "minikube-py"
    named = "Date" if path.suffix == ".svg" else "Software"
    figure.savefig(path, bbox_inches="tight", metadata={named: None, **({"Source": drawn_by} if drawn_by else {})})
    figure.style_of_ours.__exit__(None, None, None)
    return path


def draw_latency_bars(axes: Any, summaries: Mapping[str, Mapping[str, float]], title: str) -> None:
    """Grouped bars of p50, p90 and p99, each with its figure, all in one unit."""
    width = 0.3
    in_s = max(figures["p99_ms"] for figures in summaries.values()) >= 1000
    for number, (percent, colour) in enumerate(zip(PERCENTILES, (BLUE, ORANGE, RED), strict=True)):
        heights = [figures[f"p{percent}_ms"] / (1000 if in_s else 1) for figures in summaries.values()]
        places = [place + (number - 1) * width for place in range(len(heights))]
        bars = axes.bar(places, heights, width * 0.92, color=colour, label=f"p{percent}")
        axes.bar_label(bars, labels=[_short(height) for height in heights], fontsize=6.5, padding=1)
    axes.set_xticks(range(len(summaries)), [name.replace(" to ", "\nto ") for name in summaries])
    axes.set_ylabel("seconds" if in_s else "milliseconds")
    axes.set_title(title)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.22)
    axes.legend(ncols=3, loc="upper left", fontsize=8)


def draw_line(axes: Any, series: Sequence[tuple[float, float]], title: str, what: str) -> None:
    """One figure over time: (seconds, value), in order of time."""
    axes.plot([time_s for time_s, _ in series], [value for _, value in series], color=BLUE, linewidth=1.5)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds since the first pod")
    axes.set_ylabel(what)
    axes.set_title(title)


def draw_heat(axes: Any, series: Sequence[tuple[float, Sequence[float]]], title: str, what: str) -> None:
    """One line of pixels per node, from empty to full, ordered by how full each is on average."""
    import numpy as np

    shares = np.array([list(shares) for _, shares in series]).T
    order = np.argsort(-shares.mean(axis=1), kind="stable")
    edges = [0.0, *(time_s for time_s, _ in series[1:]), series[-1][0] + 0.01]
    scale = {"cmap": "viridis", "vmin": 0, "vmax": 100}
    mesh = axes.pcolormesh(edges, range(len(order) + 1), 100 * shares[order], rasterized=True, **scale)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_xlabel("seconds since the first pod")
    axes.set_ylabel(what)
    axes.set_title(title)
    axes.figure.colorbar(mesh, ax=axes, label="GPUs allocated (%)", fraction=0.04, pad=0.02)


def draw_groups(axes: Any, names: Sequence[str], bars: Mapping[str, Sequence[float]], title: str) -> None:
    """Bars side by side for each of `names`, in milliseconds. The smallest cannot be seen: their figures say it."""
    width = 0.8 / max(1, len(bars))
    colours = (GREEN, BLUE, GREY) if len(bars) <= 3 else (GREEN, BLUE, GREY, SAFE[5], SAFE[4], ORANGE)
    for number, ((label, heights), colour) in enumerate(zip(bars.items(), colours, strict=False)):
        places = [place + (number - (len(bars) - 1) / 2) * width for place in range(len(names))]
        drawn = axes.bar(places, heights, width * 0.92, color=colour, label=label)
        axes.bar_label(drawn, labels=[_short(height) for height in heights], fontsize=7, padding=1)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("milliseconds")
    axes.set_title(title)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.25)
    axes.legend(ncols=min(3, len(bars)), loc="upper left", fontsize=8)


def draw_intervals(
    axes: Any,
    name: str,
    points: Sequence[tuple[float, tuple[float, float, float]]],
    colour: str,
    line: Any,
    marker: str,
) -> None:
    """A line through values with intervals: (position on the axis, (value, low, high))."""
    values = [value for _, (value, _, _) in points]
    below = [max(0.0, value - low) for _, (value, low, _) in points]
    above = [max(0.0, high - value) for _, (value, _, high) in points]
    style = {"marker": marker, "markersize": 4, "capsize": 2, "linewidth": 1, "color": colour, "linestyle": line}
    axes.errorbar([at for at, _ in points], values, yerr=[below, above], label=name, **style)


def _short(value: float) -> str:
    return f"{value:,.{0 if value >= 10 else 1 if value >= 1 else 2}f}" if value >= 0.005 else f"{value:.1g}"
