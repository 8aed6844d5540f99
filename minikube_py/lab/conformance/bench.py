"""Compares a structure's costs with the built-in ones: queries, changes and bytes, on the same rows in one process."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from minikube_py.errors import MinikubeError
from minikube_py.index import catalogue
from minikube_py.index.structure import Structure
from minikube_py.lab.conformance.program import Build
from minikube_py.lab.conformance.work import best_us, filled, questions, rows_of

DIMENSIONS = 3
ROWS = (1000, 10_000)
PAIRS = 200
CHANGED = "change + find"
PAIRS_A_ROUND = 25
NOISE = 1.1
"""The best of several tries repeats to within this factor on a busy machine."""

Points = np.ndarray[Any, np.dtype[np.int64]]


class Cost(NamedTuple):
    """`finds_us` and `examined` by query. `pair_us`: one changed row and a query for the first ten, interleaved, so
    that deferred and cached work counts. `held_bytes`: memory used by Python and numpy, by tracemalloc."""

    structure: str
    rows: int
    finds_us: dict[str, float]
    examined: dict[str, int]
    pair_us: float
    built_ms: float
    size_bytes: int
    held_bytes: int


class LeftOut(NamedTuple):
    structure: str
    why: str


def measure(name: str, build: Build, rows: int, dimensions: int = DIMENSIONS, seed: int = 0) -> Cost:
    """All figures are from this process, the best of several tries."""
    points = rows_of(rows, dimensions, seed)
    begun = time.perf_counter()
    structure = filled(build, points)
    built_ms = (time.perf_counter() - begun) * 1000
    finds_us, examined = {}, {}
    for question, (box, limit) in questions(dimensions, points).items():
        finds_us[question], examined[question] = best_us(lambda: structure.find(box, limit))  # noqa: B023
    pair_us = _pairs(structure, points, rows_of(PAIRS, dimensions, seed + 1))
    return Cost(name, rows, finds_us, examined, pair_us, built_ms, structure.size_bytes(), _held(build, points))


def _pairs(structure: Structure, points: Points, fresh: Points) -> float:
    """CPU time, the median of several rounds: each includes deferred work."""
    box, limit = next(iter(questions(points.shape[1], points).values()))
    changes = [(slot * 7919 % len(points), tuple(point)) for slot, point in enumerate(fresh.tolist())]
    means_us = []
    for first in range(0, PAIRS, PAIRS_A_ROUND):
        begun = time.process_time()
        for slot, point in changes[first : first + PAIRS_A_ROUND]:
            structure.put(slot, point)
            structure.find(box, limit)
        means_us.append((time.process_time() - begun) / PAIRS_A_ROUND * 1e6)
    return median(means_us)


def _held(build: Build, points: Points) -> int:
    """Tracing slows everything down, so the structure is built again for it."""
    begun_by_us = not tracemalloc.is_tracing()
    if begun_by_us:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    structure = filled(build, points)
    held = tracemalloc.get_traced_memory()[0] - before
    if begun_by_us:
        tracemalloc.stop()
    del structure
    return held


def beside_the_family(
    name: str, build: Build, rows: Sequence[int] = ROWS, told: Callable[[str], None] = lambda _: None
) -> tuple[list[Cost], list[LeftOut]]:
    """`name` first, then the catalogue. Structures that cannot be built or measured are listed with the reason."""
    costs: list[Cost] = []
    left_out: list[LeftOut] = []
    for each, built in [(name, build), *_others(name)]:
        for count in rows:
            told(f"{each}, {count:,} rows")
            try:
                costs.append(measure(each, built, count))
            except (MinikubeError, ImportError) as error:
                if each == name:
                    raise
                left_out.append(LeftOut(each, str(error)))
                break
    return costs, left_out


def _others(name: str) -> Iterator[tuple[str, Build]]:
    for other in catalogue.STRUCTURES:
        if other != name:
            yield other, lambda dimensions, other=other: catalogue.build(other, dimensions, {})  # type: ignore[misc]


def beside_best(costs: Sequence[Cost], own: Cost, question: str) -> tuple[str, str]:
    """`2.4 times faster than` and the best other, or empty texts. One that examines nothing has cached them."""
    others = [each for each in costs if each.rows == own.rows and each is not own and any(each.examined.values())]
    if not others or question not in own.finds_us:
        return "", ""
    best = min(others, key=lambda cost: cost.finds_us[question])
    ratio = best.finds_us[question] / own.finds_us[question]
    if 1 / NOISE < ratio < NOISE:
        return "about as fast as", best.structure
    return f"{ratio:.1f} times faster than" if ratio >= 1 else f"{1 / ratio:.1f} times slower than", best.structure


def draw(costs: Sequence[Cost], subject: str, path: Any) -> Any:
    """Microseconds per query of the largest number of rows, one panel per query, the subject apart; to `path`."""
    from minikube_py.lab import plots

    most = max(cost.rows for cost in costs)
    shown = [cost for cost in costs if cost.rows == most][::-1]
    own = next(cost for cost in shown if cost.structure == subject)
    asked = [*own.finds_us, CHANGED]
    figure, axes = plots.figure(1, len(asked), (2.5 * len(asked), 0.9 + 0.24 * len(shown)))
    figure.subplots_adjust(wspace=0.14)
    plots.share_axis(axes[0], "x")
    plots.share_axis(axes[0], "y")
    for panel, question in zip(axes[0], asked, strict=True):
        for place, cost in enumerate(shown):
            value, mine = cost.finds_us.get(question, cost.pair_us), cost is own
            ink = plots.RED if mine else plots.BLUE if any(cost.examined.values()) else plots.GREY
            panel.plot([value], [place], "D" if mine else "o", color=ink, markersize=6)
            note = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
            weight = "bold" if mine else "normal"
            panel.annotate(f"{value:,.{int(value < 10)}f}", (value, place), fontweight=weight, **note)
        panel.set_title("\n".join((question, *beside_best(costs, own, question))), fontsize=8.5)
        panel.set_xlabel("microseconds" + (" for both" if question == CHANGED else " per query"))
    axes[0][0].set(xscale="log", ylim=(-0.6, len(shown) - 0.4))
    axes[0][0].set_yticks(range(len(shown)), [cost.structure for cost in shown])
    axes[0][0].get_yticklabels()[shown.index(own)].set(fontweight="bold", color=plots.RED)
    axes[0][0].set_xlim(right=4 * axes[0][0].get_xlim()[1])
    won = sum("faster" in beside_best(costs, own, question)[0] for question in own.finds_us)
    text = f"Of structures that cache no answers, {subject} is the fastest in {won} of {len(own.finds_us)} queries"
    notes = (
        f"{most:,} rows, logarithmic axes. Queries: the best of several tries. Less than a tenth apart: about as fast"
    )
    plots.entitle(figure, f"{text}\n\n{notes}. Grey: cached answers")
    return plots.save(figure, path)
