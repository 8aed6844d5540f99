"""Generates programs with hypothesis: few, colliding values, and queries at or next to stored values.

Few slots and a handful of values find most bugs and shrink well. Every third program starts with hundreds of rows, to
exceed blocks and zones and cause rebuilds and growth; those rows derive from a number and are elementary steps.
Everything is drawn from a `Random` backed by hypothesis, which shrinks its numbers: separate strategies take ten times
as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Point
from minikube_py.lab.conformance.program import (
    Find,
    FindFrozen,
    Freeze,
    Load,
    MayMatch,
    Program,
    Put,
    Remove,
    Size,
    Step,
)

SLOTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 31, 32, 63, 64, 65, 255, 256, 257, 1000, 4100)
ROWS_MOST = 700
LIMITS = (0, 0, 0, 1, 2, 3, 10)
STEPS = (8, 40)
CHURN_SHARE = 24
CHURN_PUTS = (9000, 4000)
"""One program in CHURN_SHARE has two such bursts of changes, each more than structures keep pending."""
CHURN_ASKED = 4

_EDGES = (0, 1, -1, 2, HIGH, HIGH - 1, LOW, LOW + 1, 1 << 32, -(1 << 31), 1 << 53, (1 << 53) + 1, 1000, 1 << 62)


def programs(dimensions: Sequence[int] = (1, 2, 3, 4), versioned: bool = True) -> st.SearchStrategy[Program]:
    """Programs over one of `dimensions`; `versioned`: freezes states and queries them later."""
    return st.randoms(use_true_random=False).map(lambda rng: draw_program(rng, dimensions, versioned))


def draw_program(rng: Random, dimensions: Sequence[int], versioned: bool) -> Program:
    drawer = _Drawer(rng, rng.choice(list(dimensions)))
    steps: list[Step] = []
    if rng.randrange(3) == 2:
        count = rng.randrange(1, ROWS_MOST)
        rows = many_rows(count, rng.randrange(1 << 16), drawer.palette, drawer.dimensions)
        drawer.learn([point[0] for _, point in rows[:3]])
        steps = [Load(tuple(rows))] if rng.randrange(2) else [Put(slot, point) for slot, point in rows]
    kinds = "ppprfffms" + ("zFF" if versioned else "")
    steps += [drawer.step(rng.choice(kinds)) for _ in range(rng.randrange(*STEPS))]
    if rng.randrange(CHURN_SHARE) == CHURN_SHARE - 1:
        # Repeats earlier queries.
        asked = [step for step in steps if isinstance(step, Find)][:CHURN_ASKED]
        for count in CHURN_PUTS:
            steps += [*drawer.many_changes(count, rng.randrange(1 << 16)), *asked]
    steps += [drawer.step(kind) for kind in ("fF" if versioned else "f")]
    return Program(drawer.dimensions, tuple(steps))


class _Drawer:
    """Draws steps over the values of one program."""

    def __init__(self, rng: Random, dimensions: int) -> None:
        self._rng = rng
        self.dimensions = dimensions
        self.palette = [self._value() for _ in range(rng.randrange(1, 6))]
        if rng.randrange(2):
            # Neighbouring values distinguish open from closed bounds.
            self.palette += [value + 1 for value in self.palette[:2] if value < HIGH]
        self._learned()

    def learn(self, values: Sequence[int]) -> None:
        self.palette += [value for value in values if value != MISSING]
        self._learned()

    def _learned(self) -> None:
        self._stored = [*self.palette, *self.palette, MISSING]
        self._ends = sorted({min(HIGH, max(LOW, value + by)) for value in self.palette for by in (-1, 0, 1)})

    def _value(self) -> int:
        kind = self._rng.randrange(4)
        if kind < 2:
            return self._rng.randrange(-4, 10)
        return self._rng.choice(_EDGES) if kind == 2 else self._rng.randrange(LOW, HIGH)

    def step(self, kind: str) -> Step:
        rng = self._rng
        if kind == "p":
            return Put(rng.choice(SLOTS), tuple(rng.choice(self._stored) for _ in range(self.dimensions)))
        if kind == "r":
            return Remove(rng.choice(SLOTS))
        if kind == "f":
            return Find(self._box(), rng.choice(LIMITS))
        if kind == "m":
            return MayMatch(self._box())
        if kind == "F":
            return FindFrozen(rng.randrange(4), self._box(), rng.choice(LIMITS))
        return Freeze() if kind == "z" else Size()

    def many_changes(self, count: int, seed: int) -> list[Step]:
        """Changes derived from `seed`, on few slots, most of them repeatedly."""
        rng = Random(seed)
        slots = rng.choice((3, 40, 300))
        points = [tuple(rng.choice(self._stored) for _ in range(self.dimensions)) for _ in range(20)]
        return [Put(rng.randrange(slots), rng.choice(points)) for _ in range(count)]

    def _box(self) -> Box:
        intervals = [self._interval() for _ in range(self.dimensions)]
        return Box(tuple(low for low, _ in intervals), tuple(high for _, high in intervals))

    def _interval(self) -> tuple[int, int]:
        """Open, half-open, closed, contradictory; bounds at or next to stored values."""
        kind = self._rng.randrange(9)
        if kind < 2:
            return MISSING, HIGH
        if kind == 2:
            return LOW, HIGH
        end = self._rng.choice(self._ends)
        if kind < 5:
            return end, HIGH
        if kind == 5:
            return LOW, end
        if kind == 6:
            return end, end
        other = self._rng.choice(self._ends)
        return (min(end, other), max(end, other)) if kind == 7 else (end, other)


def many_rows(count: int, seed: int, palette: Sequence[int], dimensions: int) -> list[tuple[int, Point]]:
    """Rows derived from `seed`: spread around the palette's values, some with missing fields."""
    rng = Random(seed)
    spread = rng.choice((1, 20, 2000))

    def coordinate() -> int:
        if rng.random() < 0.05:
            return MISSING
        return min(HIGH, max(LOW, rng.choice(palette) + rng.randrange(spread)))

    rows = [(slot, tuple(coordinate() for _ in range(dimensions))) for slot in range(count)]
    if rng.random() < 0.3:
        rng.shuffle(rows)
    return rows
