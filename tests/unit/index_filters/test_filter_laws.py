"""What all filters and summaries promise: never "no" in vain, one probe and many the same, and a size that is said."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.catalogue import FILTERS, SUMMARIES, filter_of, names, summary_of
from minikube_py.index.filters.contract import Deleting, Forgetting, Inserting
from minikube_py.index.structure import HIGH, LOW, MISSING, Box

EDGES = (MISSING, LOW, LOW + 1, -1, 0, 1, 1 << 32, (1 << 62) - 1, 1 << 62, HIGH - 1, HIGH)
VALUES = st.one_of(st.sampled_from(EDGES), st.integers(-40, 40), st.integers(MISSING, HIGH))

MOSTLY = st.sampled_from((True, True, False))

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "bloom": [{"bits_per_key": 2, "max_probes": 64}],
    "prefix-bloom": [{"shift": 0, "max_probes": 64}, {"shift": 63, "bits_per_key": 2}],
    "rosetta": [
        {"allocation": "equilibrium", "max_length": 8, "max_probes": 64},
        {"allocation": "single", "max_length": 1, "bits_per_key": 2},
        {"allocation": "equal", "bits_per_key": 24},
        {"bits_per_key": 32},
    ],
    "grafite": [{"bits_per_key": 3}, {"bits_per_key": 12, "storage": "codes"}],
    "memento": [{"bits_per_key": 8}, {"memento_bits": 0, "max_probes": 64}, {"memento_bits": 3, "bits_per_key": 4}],
}
"""Beside the defaults: coarse ones, and every choice that changes how a filter is built."""

CASES = [(name, options) for name in FILTERS for options in [{}, *OPTIONS.get(name, [])]]


def near(keys: list[int], draw: Any) -> tuple[int, int]:
    """A range whose ends are at or next to a key, or anywhere."""
    ends = []
    for _ in range(2):
        away = draw(st.sampled_from((2, 2, 3000)))
        value = draw(st.sampled_from(keys)) + draw(st.integers(-away, away)) if keys and draw(MOSTLY) else draw(VALUES)
        ends.append(min(max(value, MISSING), HIGH))
    return min(ends), max(ends)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@settings(max_examples=25)
@given(data=st.data(), keys=st.lists(VALUES, max_size=30))
def test_no_range_that_holds_a_key_is_refused(
    name: str, options: dict[str, Any], data: st.DataObject, keys: list[int]
) -> None:
    options = {"bits_per_key": 16, **options}
    held = filter_of(name, np.array(keys, dtype=np.int64), **options)
    later = data.draw(st.lists(VALUES, max_size=10)) if isinstance(held, Inserting) else []
    for key in later:
        held.insert(key)  # type: ignore[attr-defined]
    everything = keys + later
    if isinstance(held, Deleting):
        for key in data.draw(st.lists(st.sampled_from(everything), unique_by=id, max_size=5)) if everything else []:
            if key in everything:
                everything.remove(key)
                held.delete(key)
    ranges = [near(everything, data.draw) for _ in range(8)]
    many = list(held.may_contain_many(np.array([r[0] for r in ranges]), np.array([r[1] for r in ranges])))
    for (low, high), from_many in zip(ranges, many):
        one = held.may_contain(low, high)
        assert one == from_many, (low, high)
        assert one or not any(low <= key <= high for key in everything), (low, high)
    assert held.size_bits() >= 0


@pytest.mark.parametrize("name", FILTERS)
def test_a_range_the_wrong_way_around_holds_nothing(name: str) -> None:
    held = filter_of(name, np.arange(100, dtype=np.int64), bits_per_key=16)
    if name != "always":
        assert not held.may_contain(50, 49)
        assert not held.may_contain_many(np.array([50, HIGH]), np.array([49, LOW])).any()  # type: ignore[attr-defined]


POINTS = st.tuples(VALUES, VALUES, VALUES)
SUMMARY_CASES: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in names()] + [
    ("joint-bitset", {"buckets": 3}),
    ("joint-bitset", {"buckets": 16, "spacing": "quantile"}),
    ("bloom", {"clip": 0, "max_probes": 64}),
]


def interval(values: list[int], draw: Any) -> tuple[int, int]:
    kind = draw(st.sampled_from(("all", "from", "to", "between", "wrong")))
    low, high = near(values, draw)
    low, high = max(low, LOW), max(high, LOW)
    return {
        "all": (MISSING, HIGH),
        "from": (low, HIGH),
        "to": (LOW, high),
        "between": (low, high),
        "wrong": (min(high + 1, HIGH), low),
    }[kind]


@pytest.mark.parametrize(("name", "options"), SUMMARY_CASES, ids=str)
@settings(max_examples=15)
@given(data=st.data(), points=st.lists(POINTS, max_size=20), later=st.lists(POINTS, max_size=8))
def test_no_box_that_holds_a_point_is_refused(
    name: str, options: dict[str, Any], data: st.DataObject, points: list[tuple[int, int, int]], later: list[Any]
) -> None:
    summary = summary_of(name, np.array(points, dtype=np.int64).reshape(-1, 3), 8, **options)
    everything = list(points)
    for point in later:
        summary.put(point)
        everything.append(point)
        if isinstance(summary, Forgetting) and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(everything))
            everything.remove(gone)
            summary.remove(gone)
    for _ in range(6):
        chosen = data.draw(st.sampled_from(everything)) if everything else (0, 0, 0)
        lows, highs = zip(*(interval([value], data.draw) for value in chosen))
        box = Box(lows, highs)
        holds = any(box.holds(point) for point in everything)
        assert summary.may_match(box) or not holds, box
        if name == "oracle":
            assert summary.may_match(box) == holds, box


@pytest.mark.parametrize(("name", "options"), SUMMARY_CASES, ids=str)
def test_each_point_is_found_once_it_was_put(name: str, options: dict[str, Any]) -> None:
    """One below and one above what there was, then the ends of what there can be."""
    summary = summary_of(name, np.array([[100, 7, 0], [100, 7, 5]]), 16, **options)
    for value in (99, 98, 101, 102, 90, 110, -1, 0, LOW + 1, LOW, HIGH - 1, HIGH, 1 << 40):
        point = (value, 7, 3)
        summary.put(point)
        for low, high in ((value, value), (value, min(value + 1, HIGH)), (max(value - 1, LOW), value)):
            assert summary.may_match(Box((low, 7, 3), (high, 7, 3))), (low, high)
            assert summary.may_match(Box((low, MISSING, MISSING), (high, HIGH, HIGH))), (low, high)
        assert summary.may_match(Box((value, MISSING, MISSING), (HIGH, HIGH, HIGH)))
        assert summary.may_match(Box((LOW, MISSING, MISSING), (value, HIGH, HIGH)))


@pytest.mark.parametrize("name", ["max-vector", "joint-bitset"])
def test_what_is_missing_is_not_the_least(name: str) -> None:
    summary = summary_of(name, np.array([[MISSING, 3], [9, 3]]))
    assert not summary.may_match(Box((LOW, MISSING), (8, HIGH)))
    summary.put((MISSING, 4))
    assert not summary.may_match(Box((LOW, MISSING), (8, HIGH)))
    summary.put((8, 4))
    assert summary.may_match(Box((LOW, MISSING), (8, HIGH)))


def test_the_max_vector_is_exact_in_one_dimension_and_errs_in_two() -> None:
    points = np.array([[1, 9], [9, 1]])
    summary = summary_of("max-vector", points)
    assert not summary.may_match(Box((10, MISSING), (HIGH, HIGH)))
    assert summary.may_match(Box((9, MISSING), (HIGH, HIGH)))
    both = Box((5, 5), (HIGH, HIGH))
    assert summary.may_match(both), "no point has both, and the greatest of each hides it"
    assert not summary_of("joint-bitset", points).may_match(both)
    assert not summary_of("oracle", points).may_match(both)


def test_a_missing_value_satisfies_no_interval() -> None:
    for name in ("max-vector", "joint-bitset", "bloom"):
        summary = summary_of(name, np.array([[MISSING, 3]]))
        assert not summary.may_match(Box((LOW, MISSING), (HIGH, HIGH))), name
        assert summary.may_match(Box((MISSING, 3), (HIGH, 3))), name


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: summary_of("blom", np.zeros((1, 1), dtype=np.int64)), 'no filter "blom": there are max-vector'),
        (lambda: filter_of("blom", np.zeros(1, dtype=np.int64), 8), 'no range filter "blom"'),
        (lambda: filter_of("bloom", np.zeros(1, dtype=np.int64), 8, hashes=3), "no option"),
        (lambda: filter_of("bloom", np.zeros(1, dtype=np.int64), 0.01), "bits_per_key is 0.01"),
        (lambda: filter_of("bloom", np.zeros(1), 8), "flat int64"),
        (lambda: summary_of("joint-bitset", np.zeros((1, 5), dtype=np.int64), buckets=32), "more than 1048576 cells"),
        (lambda: summary_of("joint-bitset", np.zeros((1, 1), dtype=np.int64), spacing="odd"), "must be"),
    ],
)
def test_bad_options_are_refused_by_name(build: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        build()


def test_every_name_loads() -> None:
    points = np.array([[5]])
    assert set(names()) == set(SUMMARIES) | set(FILTERS)
    for name in names():
        summary = summary_of(name, points)
        assert summary.filter == name
        assert summary.may_match(Box((5,), (5,)))


def test_a_study_is_loaded_for_its_own_filters_alone() -> None:
    """In a process of its own, as this one has loaded them all."""
    program = (
        "import sys\n"
        "from minikube_py.index.catalogue import build\n"
        "for name in sys.argv[1:]:\n"
        "    build('sharded', 2, {'filter': name})\n"
        "    print(name, any(each.startswith('minikube_py.studies') for each in sys.modules))\n"
    )
    asked = [*SUMMARIES, "grafite"]
    ran = subprocess.run([sys.executable, "-c", program, *asked], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:-1] == [*(f"{name} False" for name in SUMMARIES), "grafite True"]
