"""Every structure against a dictionary of points: puts, removes, questions and frozen states in any order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.index import catalogue
from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Found, Point, Versioned, load

NAMES = list(catalogue.built_in())
SMALL_OPTIONS: dict[str, dict[str, int | str]] = {
    "columns": {"block_slots": 64},
    "sorted-runs": {"fresh_slots": 16},
    "max-tree": {"visit_limit": 12},
    "cow-max-tree": {"visit_limit": 12},
    "kd-tree": {"decay_percent": 1, "visit_limit": 12},
    "bitmaps": {"levels": 3, "chunk_slots": 64},
    "zones": {"zone_slots": 16},
    "joint-zones": {"zone_slots": 16, "grid": 2},
    "shapes": {"behind": "max-tree", "shapes": 3, "members": 4},
}
"""Options that make few points cross what many would: blocks, limits, rebuilds."""

VALUES = st.one_of(st.integers(-3, 12), st.sampled_from([MISSING, LOW, LOW + 1, HIGH - 1, HIGH, 0, 1 << 40]))
SLOTS = st.one_of(st.integers(0, 20), st.integers(0, 400))


def interval(pair: tuple[int, int]) -> tuple[int, int]:
    low, high = pair
    return (low, high) if low != MISSING else (MISSING, HIGH)


INTERVALS = st.one_of(
    st.just((MISSING, HIGH)), st.tuples(VALUES, st.just(HIGH)).map(interval), st.tuples(VALUES, VALUES).map(interval)
)


def boxes(dimensions: int) -> st.SearchStrategy[Box]:
    sides = st.tuples(*[INTERVALS] * dimensions)
    return sides.map(lambda chosen: Box(tuple(low for low, _ in chosen), tuple(high for _, high in chosen)))


@st.composite
def stories(draw: st.DrawFn) -> tuple[int, list[tuple[Any, ...]]]:
    dimensions = draw(st.integers(1, 4))
    points = st.tuples(*[VALUES] * dimensions)
    steps = st.one_of(
        st.tuples(st.just("put"), SLOTS, points),
        st.tuples(st.just("put"), SLOTS, points),
        st.tuples(st.just("remove"), SLOTS),
        st.tuples(st.just("find"), boxes(dimensions), st.sampled_from([0, 0, 1, 2, 5])),
        st.tuples(st.just("freeze")),
        st.tuples(st.just("find_frozen"), st.integers(0, 9), boxes(dimensions), st.sampled_from([0, 1, 3])),
    )
    first = draw(st.lists(points, max_size=60))
    return dimensions, [("load", first), *draw(st.lists(steps, max_size=60))]


def check(found: Found, model: dict[int, Point], box: Box, limit: int) -> None:
    expected = {slot for slot, point in model.items() if box.holds(point)}
    slots = found.slots.tolist()
    assert set(slots) <= expected
    assert len(set(slots)) == len(slots) == (min(limit, len(expected)) if limit else len(expected))
    assert found.complete or len(slots) == limit
    assert not found.complete or len(slots) == len(expected)


@pytest.mark.parametrize("options", ["usual", "small"])
@pytest.mark.parametrize("name", NAMES)
def test_long_churn(name: str, options: str) -> None:
    """Enough changes for every merge, rebuild and trimming, while the values drift, and the rows grow and shrink."""
    rng = random.Random(f"{name} {options}")
    structure = catalogue.build(name, 3, SMALL_OPTIONS.get(name, {}) if options == "small" else {})
    model: dict[int, Point] = {}
    states: list[tuple[Any, dict[int, Point]]] = []
    asked: list[Box] = []
    for step in range(4000):
        drift, slots = step // 8, 200 + step // 8
        slot = rng.randrange(slots)
        if rng.random() < (0.2 if step < 3000 else 0.6):
            structure.remove(slot)
            model.pop(slot, None)
        else:
            few = rng.choice((0, 0, 0, 8000 - drift))
            point = (drift + rng.randrange(50), few, rng.choice((MISSING, rng.randrange(9))))
            structure.put(slot, point)
            model[slot] = point
        if step % 500 == 0 and isinstance(structure, Versioned):
            states.append((structure.freeze(), dict(model)))
        if step % 80 == 0:
            asked.append(Box((drift + rng.randrange(-20, 50), rng.choice((MISSING, 1)), MISSING), (HIGH, HIGH, HIGH)))
            asked.append(Box((LOW, 0, rng.randrange(9)), (drift + rng.randrange(-20, 50), 9000, rng.choice((HIGH, 5)))))
            for box in asked[-4:]:
                limit = rng.choice((0, 1, 10))
                check(structure.find(box, limit), model, box, limit)
    for state, then in states if isinstance(structure, Versioned) else ():
        for box in asked[:: len(asked) // 5]:
            check(structure.find_frozen(state, box), then, box, 0)


@pytest.mark.parametrize("options", ["usual", "small"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(story=stories())
def test_it_answers_as_a_dictionary_does(name: str, options: str, story: tuple[int, list[tuple[Any, ...]]]) -> None:
    dimensions, steps = story
    structure = catalogue.build(name, dimensions, SMALL_OPTIONS.get(name, {}) if options == "small" else {})
    model: dict[int, Point] = {}
    states: list[tuple[Any, dict[int, Point]]] = []
    for kind, *arguments in steps:
        if kind == "load":
            model = dict(enumerate(arguments[0]))
            columns = np.array(list(model.values()), dtype=np.int64).reshape(len(model), dimensions)
            load(structure, np.arange(len(model), dtype=np.int64), columns)
        elif kind == "put":
            structure.put(*arguments)
            model[arguments[0]] = arguments[1]
        elif kind == "remove":
            structure.remove(*arguments)
            model.pop(arguments[0], None)
        elif kind == "find":
            box, limit = arguments
            check(structure.find(box, limit), model, box, limit)
            assert structure.may_match(box) or not any(box.holds(point) for point in model.values())
            if len(states) % 2:
                # As a box that comes again.
                check(structure.find(box, limit), model, box, limit)
        elif isinstance(structure, Versioned):
            if kind == "freeze":
                states.append((structure.freeze(), dict(model)))
            elif states:
                number, box, limit = arguments
                state, then = states[number % len(states)]
                check(structure.find_frozen(state, box, limit), then, box, limit)
