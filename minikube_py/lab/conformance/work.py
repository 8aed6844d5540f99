"""Checks that a structure does not do more work than it reports, for example a scan posing as an index.

`Found.examined` is the structure's own claim. Two checks are independent of it. Numbers that count their comparisons,
by Python or numpy, reveal a scan that compares the given points, or uses the given box. A structure that converts both
first escapes this, but its time grows with the rows, beyond what the reported comparisons can take on this machine.
That time is the process's CPU time: on a busy machine a query of half a second would be interrupted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from math import log2
from typing import Any, NamedTuple

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, Box, Structure, load
from minikube_py.lab.conformance.program import Broken, Build

ROWS = 2048
WARM = 4
FREE_COMPARISONS = 64
"""Allowed comparisons beyond what is examined: option lookups, a few ends of sorted runs."""
GROWTH_ROWS = (8192, 131_072)
EXAMINING_NS = 4000
"""An upper bound of the built-in structures' time per examined point or summary, including Python's overhead, on a
machine that checks a point against a box in `REFERENCE_NS`."""
REFERENCE_NS = 1000
FREE_NS = 30_000
GROWTH = 4.0


class Meter:
    """Counts the comparisons of its numbers."""

    def __init__(self) -> None:
        self.compared = 0

    def number(self, value: int) -> Counted:
        counted = Counted(value)
        counted.meter = self
        return counted

    def point(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.number(value) for value in values)


class Counted(int):
    """An int that reports its comparisons to its meter, alone or with an array."""

    meter: Meter

    def __lt__(self, other: Any) -> bool:
        self.meter.compared += 1
        return int.__lt__(self, other)

    def __le__(self, other: Any) -> bool:
        self.meter.compared += 1
        return int.__le__(self, other)

    def __gt__(self, other: Any) -> bool:
        self.meter.compared += 1
        return int.__gt__(self, other)

    def __ge__(self, other: Any) -> bool:
        self.meter.compared += 1
        return int.__ge__(self, other)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        self.meter.compared += max(int(np.size(each)) for each in inputs)
        plain = [int(each) if isinstance(each, Counted) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **options)


class Work(NamedTuple):
    """One query: the reported work, and the counted or measured work."""

    rows: int
    question: str
    examined: int
    counted: int
    took_us: float


def rows_of(count: int, dimensions: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """`count` points of values 0 to 999, with correlated dimensions, as when pods fill nodes."""
    rng = np.random.default_rng(seed)
    common = rng.random((count, 1))
    own = rng.random((count, dimensions))
    return ((0.5 * common + 0.5 * own) * 1000).astype(np.int64)


def questions(dimensions: int, points: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, tuple[Box, int]]:
    """By name: first ten with common matches, with rare matches and without any; all by one field."""
    high = (HIGH,) * dimensions
    common = tuple(int(value) for value in np.quantile(points, 0.9, axis=0))
    rare = tuple(int(value) for value in np.quantile(points, 0.999, axis=0))
    none = tuple(int(value) + 1 for value in points.max(axis=0))
    return {
        "first 10, common": (Box(common, high), 10),
        "first 10, rare": (Box(rare, high), 10),
        "none": (Box(none, high), 10),
        "all, one field": (Box((rare[0], *(MISSING,) * (dimensions - 1)), high), 0),
    }


def check_counted(build: Build, dimensions: int, seed: int = 0) -> list[Work]:
    """Raises: Broken if more numbers are compared than reported."""
    points = rows_of(ROWS, dimensions, seed)
    meter = Meter()
    structure = build(dimensions)
    for slot, point in enumerate(points.tolist()):
        structure.put(slot, meter.point(point))
    done = []
    for name, (box, limit) in questions(dimensions, points).items():
        metered = Box(meter.point(box.lows), meter.point(box.highs))
        least: Work | None = None
        # The first queries may include deferred work: sorting, a rebuild.
        for _ in range(WARM):
            before = meter.compared
            found = structure.find(metered, limit)
            work = Work(ROWS, name, int(found.examined), meter.compared - before, 0.0)
            if least is None or work.counted < least.counted:
                least = work
        assert least is not None
        allowed = 2 * dimensions * (least.examined + FREE_COMPARISONS + round(4 * log2(ROWS)))
        if least.counted > allowed:
            told = f"{name!r} of {ROWS:,} rows: {least.examined:,} examined, {least.counted:,} numbers compared"
            raise Broken("comparisons are counted as examined", told)
        done.append(least)
    return done


def check_growth(build: Build, dimensions: int, seed: int = 0) -> list[Work]:
    """Raises: Broken if the time grows like a scan's without being reported as examined."""
    scale = _machine_ns() / REFERENCE_NS
    done: list[Work] = []
    small, large = (_measured(build, dimensions, rows, seed) for rows in GROWTH_ROWS)
    for before, after in zip(small, large):
        done += [before, after]
        accounted_us = scale * (FREE_NS + EXAMINING_NS * after.examined) / 1000
        if after.took_us > max(accounted_us, before.took_us * GROWTH):
            told = (
                f"{after.question!r}: {before.took_us:.0f} us of {before.rows:,} rows, {after.took_us:.0f} us of "
                f"{after.rows:,}, yet only {after.examined:,} examined"
            )
            raise Broken("time that grows with the rows is counted as examined", told)
    return done


def _measured(build: Build, dimensions: int, rows: int, seed: int) -> list[Work]:
    points = rows_of(rows, dimensions, seed)
    structure = filled(build, points)
    found = []
    for name, (box, limit) in questions(dimensions, points).items():
        took_us, examined = best_us(lambda: structure.find(box, limit))  # noqa: B023
        found.append(Work(rows, name, examined, 0, took_us))
    return found


def filled(build: Build, points: np.ndarray[Any, np.dtype[np.int64]]) -> Structure:
    structure = build(points.shape[1])
    load(structure, np.arange(len(points), dtype=np.int64), points)
    return structure


def best_us(ask: Callable[[], Any], rounds: int = 9, budget_s: float = 0.05) -> tuple[float, int]:
    """The minimum CPU time of several tries, least disturbed by other work; and what was examined."""
    best = float("inf")
    examined = 0
    until_s = time.process_time() + budget_s
    for number in range(WARM + rounds):
        begun_s = time.process_time()
        found = ask()
        ended_s = time.process_time()
        best = min(best, ended_s - begun_s)
        examined = int(found.examined)
        if ended_s > until_s and number >= 2:
            break
    return best * 1e6, examined


def _machine_ns() -> float:
    """The best time of this machine to check a point against a box in Python."""
    rng = random.Random(0)
    box = Box((0, 0, 0), (HIGH, HIGH, HIGH))
    points = [tuple(rng.randrange(1000) for _ in range(3)) for _ in range(200)]
    best = float("inf")
    for _ in range(20):
        begun_s = time.process_time()
        for point in points:
            box.holds(point)
        best = min(best, (time.process_time() - begun_s) / len(points))
    return best * 1e9
