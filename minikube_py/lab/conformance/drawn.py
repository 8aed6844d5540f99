"""Programs drawn by hypothesis: few values that meet often, questions at stored values and one beside them.

Few slots and a handful of values find most bugs and shrink well. Every third program begins with hundreds of rows, so
that blocks, zones, rebuilds and growth are passed; those rows follow from a number, and are elementary steps.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

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
STEPS_MOST = 24

_EDGES = (0, 1, -1, 2, HIGH, HIGH - 1, LOW, LOW + 1, 1 << 32, -(1 << 31), 1 << 53, (1 << 53) + 1, 1000, 1 << 62)
_VALUES = st.one_of(st.integers(-4, 9), st.sampled_from(_EDGES), st.integers(LOW, HIGH))


@st.composite
def palettes(draw: st.DrawFn) -> list[int]:
    """The values of one program: neighbours often, that are met again and again."""
    values = draw(st.lists(_VALUES, min_size=1, max_size=5, unique=True))
    if draw(st.booleans()):
        values += [value + 1 for value in values[:2] if value < HIGH]
    return values


def boxes(palette: Sequence[int], dimensions: int) -> st.SearchStrategy[Box]:
    """Intervals whose ends are stored values or one beside them; open, half-open, closed, contradictory."""
    beside = sorted({min(HIGH, max(LOW, value + step)) for value in palette for step in (-1, 0, 1)})
    ends = st.sampled_from(beside)
    interval = st.one_of(
        st.just((MISSING, HIGH)),
        st.tuples(ends, st.just(HIGH)),
        st.tuples(ends, st.just(HIGH)),
        st.tuples(st.just(LOW), ends),
        ends.map(lambda end: (end, end)),
        st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair))),
        st.tuples(ends, ends),
        st.just((LOW, HIGH)),
    )
    return st.lists(interval, min_size=dimensions, max_size=dimensions).map(
        lambda pairs: Box(tuple(low for low, _ in pairs), tuple(high for _, high in pairs))
    )


def _points(palette: Sequence[int], dimensions: int) -> st.SearchStrategy[Point]:
    coordinate = st.sampled_from([*palette, *palette, MISSING])
    return st.tuples(*([coordinate] * dimensions))


def many_rows(count: int, seed: int, palette: Sequence[int], dimensions: int) -> list[tuple[int, Point]]:
    """Rows that follow from `seed`: spread around the palette's values, some without a field."""
    rng = random.Random(seed)
    spread = rng.choice((1, 20, 2000))

    def coordinate() -> int:
        if rng.random() < 0.05:
            return MISSING
        return min(HIGH, max(LOW, rng.choice(palette) + rng.randrange(spread)))

    rows = [(slot, tuple(coordinate() for _ in range(dimensions))) for slot in range(count)]
    if rng.random() < 0.3:
        rng.shuffle(rows)
    return rows


@st.composite
def programs(draw: st.DrawFn, dimensions: Sequence[int] = (1, 2, 3, 4), versioned: bool = True) -> Program:
    """A program over one of `dimensions`; `versioned`: states are kept and asked later on, too."""
    wide = draw(st.sampled_from(list(dimensions)))
    palette = draw(palettes())
    asked = boxes(palette, wide)
    begin: list[Step] = []
    if draw(st.integers(0, 2)) == 0:
        count = draw(st.integers(1, ROWS_MOST))
        rows = many_rows(count, draw(st.integers(0, 1 << 16)), palette, wide)
        palette = [*palette, *(point[0] for _, point in rows[:3] if point[0] != MISSING)]
        asked = boxes(palette, wide)
        begin = [Load(tuple(rows))] if draw(st.booleans()) else [Put(slot, point) for slot, point in rows]
    slots = st.sampled_from(SLOTS)
    points = _points(palette, wide)
    limits = st.sampled_from(LIMITS)
    put = st.builds(Put, slots, points)
    find = st.builds(Find, asked, limits)
    kinds: list[st.SearchStrategy[Step]] = [
        put,
        put,
        put,
        st.builds(Remove, slots),
        find,
        find,
        find,
        st.builds(MayMatch, asked),
        st.just(Size()),
    ]
    frozen = st.builds(FindFrozen, st.integers(0, 3), asked, limits)
    if versioned:
        kinds += [st.just(Freeze()), frozen, frozen]
    steps = draw(st.lists(st.one_of(kinds), min_size=1, max_size=STEPS_MOST))
    last: list[Step] = [draw(find)]
    if versioned:
        last.append(draw(frozen))
    return Program(wide, (*begin, *steps, *last))
