"""Named edge cases, the same for every structure of the catalogue."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest

from minikube_py.errors import InvalidRequest
from minikube_py.index import catalogue
from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Estimating, Found, Point, Structure, Versioned, load

NAMES = list(catalogue.built_in())
ANYTHING = Box((MISSING, MISSING), (HIGH, HIGH))


def at_least(*lows: int) -> Box:
    return Box(lows, (HIGH,) * len(lows))


POINTS: dict[int, Point] = {
    0: (0, 0),
    1: (-1, 5),
    2: (HIGH, LOW),
    3: (MISSING, 7),
    4: (MISSING, MISSING),
    5: (LOW, HIGH),
    6: (100, 7),
    7: (100, 8),
    9: (101, MISSING),
}


class Case(NamedTuple):
    name: str
    box: Box
    slots: set[int]


CASES = (
    Case("everything, also what has no value at all", ANYTHING, set(POINTS)),
    Case("has a first value", Box((LOW, MISSING), (HIGH, HIGH)), {0, 1, 2, 5, 6, 7, 9}),
    Case("has both values", Box((LOW, LOW), (HIGH, HIGH)), {0, 1, 2, 5, 6, 7}),
    Case("at a stored value", at_least(100, MISSING), {2, 6, 7, 9}),
    Case("just below a stored value", at_least(99, MISSING), {2, 6, 7, 9}),
    Case("just above a stored value", at_least(101, MISSING), {2, 9}),
    Case("above all but the greatest there can be", at_least(102, MISSING), {2}),
    Case("the greatest there can be", at_least(HIGH, MISSING), {2}),
    Case("zero", Box((0, 0), (0, 0)), {0}),
    Case("above zero", at_least(1, 1), {6, 7}),
    Case("from a negative value", at_least(-1, MISSING), {0, 1, 2, 6, 7, 9}),
    Case("up to a negative value, not what is missing", Box((LOW, MISSING), (-1, HIGH)), {1, 5}),
    Case("up to the least there can be", Box((LOW, MISSING), (LOW, HIGH)), {5}),
    Case("both", at_least(100, 8), {7}),
    Case("a window on the second", Box((MISSING, 5), (HIGH, 7)), {1, 3, 6}),
    Case("one value", Box((100, 7), (100, 7)), {6}),
    Case("a corner with nothing in it, though each side has some", at_least(101, 8), set()),
    Case("low above high", Box((5, MISSING), (4, HIGH)), set()),
    Case("low above high in the second, and the first not asked about", Box((MISSING, 1), (HIGH, 0)), set()),
)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def built(name: str, dimensions: int = 2, **options: Any) -> Structure:
    return catalogue.build(name, dimensions, options)


def filled(name: str, points: dict[int, Point]) -> Structure:
    structure = built(name)
    for slot, point in points.items():
        structure.put(slot, point)
    return structure


def loaded(name: str, points: dict[int, Point]) -> Structure:
    structure = built(name)
    load(structure, np.array(list(points), dtype=np.int64), np.array(list(points.values()), dtype=np.int64))
    return structure


def check(found: Found, expected: set[int], limit: int, rows: int) -> None:
    """What must hold of every answer."""
    slots = found.slots.tolist()
    assert found.slots.dtype == np.int64
    assert len(set(slots)) == len(slots)
    assert set(slots) <= expected
    assert len(slots) == (min(limit, len(expected)) if limit else len(expected))
    assert not found.complete or len(slots) == len(expected)
    assert found.complete or len(slots) == limit
    assert found.examined >= 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("build", [filled, loaded])
def test_what_lies_in_a_box(name: str, build: Any, case: Case) -> None:
    structure = build(name, POINTS)
    for limit in (0, 1, 2, 100):
        check(structure.find(case.box, limit), case.slots, limit, len(POINTS))
    assert structure.may_match(case.box) or not case.slots
    assert {slot for slot, point in POINTS.items() if case.box.holds(point)} == case.slots


def test_an_empty_structure(name: str) -> None:
    structure = built(name)
    for box in (ANYTHING, at_least(0, 0)):
        check(structure.find(box), set(), 0, 0)
        assert not structure.may_match(box)
    structure.remove(3)
    assert structure.find(ANYTHING).complete


def test_a_slot_is_used_again(name: str) -> None:
    structure = filled(name, POINTS)
    structure.remove(6)
    structure.remove(6)
    structure.remove(1000)
    check(structure.find(at_least(100, 7)), {7}, 0, 8)
    structure.put(6, (500, 500))
    check(structure.find(at_least(500, 500)), {6}, 0, 9)
    check(structure.find(Box((100, 7), (100, 7))), set(), 0, 9)


def test_a_point_moves(name: str) -> None:
    structure = filled(name, POINTS)
    for point in ((1, 1), (1000, 1000), (MISSING, 3), (MISSING, MISSING), (0, 0)):
        structure.put(7, point)
        model = POINTS | {7: point}
        for case in CASES:
            check(structure.find(case.box), {s for s, p in model.items() if case.box.holds(p)}, 0, len(model))
        check(structure.find(at_least(500, 500)), {7} if point == (1000, 1000) else set(), 0, len(model))


def test_it_grows(name: str) -> None:
    structure = built(name)
    model = {}
    for slot in (5, 63, 64, 65, 1023, 1024, 3000, 2, 9000):
        structure.put(slot, (slot, -slot))
        model[slot] = (slot, -slot)
        check(structure.find(ANYTHING), set(model), 0, len(model))
        check(structure.find(at_least(slot, MISSING)), {s for s in model if s >= slot}, 0, len(model))
    for slot in list(model):
        structure.remove(slot)
        del model[slot]
        check(structure.find(ANYTHING), set(model), 0, len(model))


def test_many_that_are_equal(name: str) -> None:
    """More equal points than any bucket, zone or leaf holds, and two that differ by one."""
    points: dict[int, Point] = dict.fromkeys(range(3000), (7, 7)) | {100: (8, 7), 2000: (7, 6)}
    structure = filled(name, points)
    check(structure.find(at_least(7, 7)), set(points) - {2000}, 0, 3000)
    check(structure.find(at_least(8, 7)), {100}, 0, 3000)
    check(structure.find(at_least(8, 8)), set(), 0, 3000)
    check(structure.find(Box((7, 6), (7, 6))), {2000}, 0, 3000)
    check(structure.find(at_least(7, 7), 10), set(points) - {2000}, 10, 3000)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("kd-tree", "sharded")])
def test_what_has_left_is_not_promised_any_more(name: str) -> None:
    """Points that had much of both and then of one: a query costs no more than if they had never had more. A k-d
    order and the filters of shards decay, and are made again when that pays."""
    rows = 4096
    structure = filled(name, dict.fromkeys(range(rows), (1_000_000, 1_000_000)))
    now: dict[int, Point] = {slot: (500_000, slot) if slot % 2 else (slot, 500_000) for slot in range(rows)}
    for slot, point in now.items():
        structure.put(slot, point)
    fresh = loaded(name, now)
    for box in (at_least(1_000_000, MISSING), at_least(500_000, 500_000)):
        examined = [one.find(box).examined for one in (structure, fresh)]
        # As much may wait for a merge.
        assert examined[0] <= max(1024, 2 * examined[1])


@pytest.mark.parametrize(("name", "opened"), [("zones", 4), ("joint-zones", 0)])
def test_a_corner_that_was_filled_once_is_empty_again(name: str, opened: int) -> None:
    """Cells tell what maxima cannot: that no point has much of both; also when one had for a while."""
    structure = loaded(name, {slot: (5000, slot) if slot % 2 else (slot, 5000) for slot in range(1024)})
    corner = at_least(5000, 5000)
    for point in ((6000, 6000), (5000, 1)):
        structure.put(1, point)
        assert structure.find(corner).slots.tolist() == ([1] if point[1] == 6000 else [])
    found = structure.find(corner)
    assert (found.shards, found.pruned, found.false_positives) == (opened, 4 - opened, opened)


@pytest.mark.parametrize("name", ["cow-max-tree", "bitmaps"])
def test_a_frozen_state_stays(name: str) -> None:
    structure = filled(name, POINTS)
    assert isinstance(structure, Versioned)
    states = [(structure.freeze(), dict(POINTS))]
    model = dict(POINTS)
    for slot, point in ((7, (0, 0)), (3000, (100, 100)), (6, None), (3, (1, 1)), (6, (9, 9))):
        if point is None:
            structure.remove(slot)
            del model[slot]
        else:
            structure.put(slot, point)
            model[slot] = point
        states.append((structure.freeze(), dict(model)))
    for state, then in states:
        for case in CASES:
            expected = {slot for slot, point in then.items() if case.box.holds(point)}
            for limit in (0, 2):
                check(structure.find_frozen(state, case.box, limit), expected, limit, len(then))


def test_loading_then_changing(name: str) -> None:
    structure = loaded(name, POINTS)
    structure.put(1, (7, 7))
    structure.remove(0)
    model = {slot: point for slot, point in POINTS.items() if slot != 0} | {1: (7, 7)}
    for case in CASES:
        check(structure.find(case.box), {s for s, p in model.items() if case.box.holds(p)}, 0, len(model))


def test_it_says_how_large_it_is(name: str) -> None:
    structure = built(name)
    few = structure.size_bytes()
    for slot in range(2000):
        structure.put(slot, (slot * 10**12, slot))
    assert structure.size_bytes() >= few
    # At the least the coordinates, at the most a hundred times that.
    assert 2000 * 2 * 8 <= structure.size_bytes() < 2000 * 2 * 800


def test_what_a_question_would_cost(name: str) -> None:
    structure = filled(name, POINTS)
    assert isinstance(structure, Estimating)
    for rows in (0, 1, 1000, 1_000_000):
        for limit in (0, 1, 10, 10_000):
            costs = [structure.cost_us(rows, share, limit) for share in (0.0, 1e-9, 0.01, 1.0)]
            assert all(0 < cost < 200 + rows for cost in costs)


@pytest.mark.parametrize("slot", [-1, 1 << 40])
def test_a_slot_that_cannot_be(name: str, slot: int) -> None:
    structure = filled(name, POINTS)
    with pytest.raises(ValueError, match="slot"):
        structure.put(slot, (1, 1))
    structure.remove(slot)
    check(structure.find(ANYTHING), set(POINTS), 0, len(POINTS))


def test_its_name_is_that_of_the_catalogue(name: str) -> None:
    assert catalogue.STRUCTURES[name].structure == name
    assert name in set(catalogue.STRUCTURES)


BAD_OPTIONS = (
    ("no-such", {}, "no structure is named 'no-such'; there are scan, columns"),
    ("scan", {"depth": 3}, "structure scan has no option 'depth'; it has none"),
    ("columns", {"depth": 3}, "no option 'depth'; it has block_slots .default 4096"),
    ("columns", {"block_slots": "many"}, "block_slots is 'many'; it takes a whole number"),
    ("columns", {"block_slots": True}, "block_slots is True; it takes a whole number"),
    ("columns", {"block_slots": 1}, "block_slots is 1; it takes 64 to 1048576"),
    ("sorted-runs", {"dimension": 2}, "structure sorted-runs: dimension is 2; it takes -1 to 1"),
    ("sorted-runs", {"fresh_slots": 1}, "fresh_slots is 1; it takes 16 to 65536"),
    ("max-tree", {"visit_limit": 0}, "structure max-tree: visit_limit is 0; it takes 1 to 1048576"),
    ("cow-max-tree", {"visit_limit": 0}, "structure cow-max-tree: visit_limit is 0; it takes 1 to 1048576"),
    ("kd-tree", {"visit_limit": 0}, "structure kd-tree: visit_limit is 0; it takes 1 to 1048576"),
    ("kd-tree", {"decay_percent": 101}, "decay_percent is 101; it takes 1 to 100"),
    ("bitmaps", {"levels": 1}, "levels is 1; it takes 2 to 1024"),
    ("bitmaps", {"chunk_slots": 32}, "chunk_slots is 32; it takes 64 to 131072"),
    ("zones", {"zone_slots": 8}, "structure zones: zone_slots is 8; it takes 16 to 65536"),
    ("joint-zones", {"grid": 1}, "structure joint-zones: grid is 1; with 2 dimensions it takes 2 to 64, or 0"),
    ("joint-zones", {"grid": 65}, "grid is 65; it takes 0 to 64"),
    ("shapes", {"behind": "shapes"}, "behind is 'shapes'; it takes any other structure"),
    ("shapes", {"behind": "no-such"}, "no structure is named 'no-such'"),
    ("shapes", {"members": 0}, "members is 0; it takes 1 to 1048576"),
)


@pytest.mark.parametrize(("name", "options", "message"), BAD_OPTIONS)
def test_a_wrong_option_is_named(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        catalogue.build(name, 2, options)


@pytest.mark.parametrize(("dimensions", "takes"), [(3, "2 to 16, or 0"), (6, "2 to 4, or 0"), (13, "only 0")])
def test_a_grid_of_too_many_cells(dimensions: int, takes: str) -> None:
    with pytest.raises(InvalidRequest, match=f"grid is 64; with {dimensions} dimensions it takes {takes}"):
        catalogue.build("joint-zones", dimensions, {"grid": 64})


@pytest.mark.parametrize("dimensions", [1, 5, 16])
def test_any_number_of_dimensions(name: str, dimensions: int) -> None:
    rng = random.Random(dimensions)
    structure = built(name, dimensions)
    points = {slot: tuple(rng.randrange(10) for _ in range(dimensions)) for slot in range(200)}
    for slot, point in points.items():
        structure.put(slot, point)
    for low in range(0, 10, 3):
        box = Box((low,) * dimensions, (HIGH,) * (dimensions - 1) + (8,))
        check(structure.find(box), {slot for slot, point in points.items() if box.holds(point)}, 0, 200)


@pytest.mark.parametrize("dimensions", [0, 17])
def test_a_wrong_number_of_dimensions(name: str, dimensions: int) -> None:
    with pytest.raises(InvalidRequest, match=f"dimensions is {dimensions}; it takes 1 to 16"):
        catalogue.build(name, dimensions, {})
