"""Every structure against a dictionary of points: puts, removes, questions and frozen states in any order."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.index import catalogue
from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Found, Point, Versioned, load

MODULES = {name: f"minikube_py.index.structures.{place.partition(':')[0]}" for name, place in catalogue.FAMILY.items()}
NAMES = [name for name, module in MODULES.items() if find_spec(module)]
SMALL_OPTIONS: dict[str, dict[str, int | str]] = {
    "columns": {"block_slots": 64},
    "max-tree": {"visit_limit": 12},
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
@settings(max_examples=60, deadline=None)
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
        elif isinstance(structure, Versioned):
            if kind == "freeze":
                states.append((structure.freeze(), dict(model)))
            elif states:
                number, box, limit = arguments
                state, then = states[number % len(states)]
                check(structure.find_frozen(state, box, limit), then, box, limit)
