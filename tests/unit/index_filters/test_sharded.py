"""Shards behind a filter: right whatever the filter says, and counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.catalogue import names
from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Point
from minikube_py.index.structures import shard_reader, sharded
from minikube_py.index.structures.shard_reader import MemoryShards
from minikube_py.index.structures.sharded import Sharded

COORDINATE = st.one_of(st.sampled_from((MISSING, LOW, 0, HIGH)), st.integers(-6, 6))
POINT = st.tuples(COORDINATE, COORDINATE)
STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 24), POINT),
    st.tuples(st.just("remove"), st.integers(0, 24), st.just(None)),
)


def boxes(values: list[int], draw: Any) -> Box:
    lows, highs = [], []
    for _ in range(2):
        if draw(st.booleans()):
            lows.append(MISSING)
            highs.append(HIGH)
        else:
            lows.append(max(LOW, min(HIGH, draw(st.sampled_from(values)) + draw(st.integers(-1, 1)))))
            highs.append(draw(st.sampled_from((HIGH, lows[-1]))))
    return Box(tuple(lows), tuple(highs))


@pytest.mark.parametrize("filter", names())
@pytest.mark.parametrize("placing", ["slot", "sorted"])
@settings(max_examples=15)
@given(data=st.data(), first=st.lists(POINT, max_size=20), steps=st.lists(STEP, max_size=40))
def test_answers_are_those_of_a_scan(
    filter: str, placing: str, data: st.DataObject, first: list[Point], steps: list[Any]
) -> None:
    shards = data.draw(st.sampled_from((1, 3, 9)))
    structure = Sharded(2, shards=shards, filter=filter, bits_per_key=8, placing=placing, rebuild_percent=10)
    truth = dict(enumerate(first))
    structure.load(np.arange(len(first)), np.array(first, dtype=np.int64).reshape(-1, 2))
    for what, slot, point in steps:
        if what == "put":
            structure.put(slot, point)
            truth[slot] = point
        else:
            structure.remove(slot)
            truth.pop(slot, None)
    values = [value for point in truth.values() for value in point] or [0]
    for _ in range(5):
        box = boxes(values, data.draw)
        right = {slot for slot, point in truth.items() if box.holds(point)}
        found = structure.find(box)
        assert found.complete and sorted(found.slots.tolist()) == sorted(right)
        assert found.shards + found.pruned == len(live_shards(structure))
        assert found.shards - found.false_positives <= len(right) or not right
        limited = structure.find(box, 2)
        assert len(limited.slots) == min(2, len(right)) and set(limited.slots.tolist()) <= right
        assert len(set(limited.slots.tolist())) == len(limited.slots)
        assert limited.complete <= (len(right) <= 2)
        assert structure.may_match(box) or not right


def live_shards(structure: Sharded) -> list[int]:
    return [shard for shard, live in enumerate(structure._live) if live]


def grid(rows: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, 1000, (rows, 3))


def test_an_oracle_opens_no_shard_in_vain_and_always_opens_all() -> None:
    points = grid(4000)
    box = Box((980, 900, MISSING), (HIGH, HIGH, HIGH))
    opened = {}
    for filter in ("oracle", "joint-bitset", "max-vector", "always"):
        structure = Sharded(3, shards=64, filter=filter)
        structure.load(np.arange(len(points)), points)
        found = structure.find(box)
        opened[filter] = found.shards
        assert found.shards + found.pruned == 64
        assert len(found.slots) == np.count_nonzero((points[:, 0] >= 980) & (points[:, 1] >= 900))
        if filter == "oracle":
            assert found.false_positives == 0
        assert structure.ledger.opened == found.shards
        assert structure.ledger.false_positives == found.false_positives
    assert opened["oracle"] <= opened["joint-bitset"] <= opened["max-vector"] <= opened["always"] == 64
    assert opened["joint-bitset"] < 32


def test_sorted_shards_are_pruned_by_their_bounds_alone() -> None:
    points = grid(4000)
    box = Box((950, MISSING, MISSING), (HIGH, HIGH, HIGH))
    opened = {}
    for placing in ("slot", "sorted"):
        structure = Sharded(3, shards=64, filter="max-vector", placing=placing)
        structure.load(np.arange(len(points)), points)
        assert max(structure._live) <= 2 * min(structure._live)
        opened[placing] = structure.find(box).shards
    assert opened["sorted"] * 3 <= opened["slot"]


def test_a_filter_is_built_anew_when_enough_of_its_points_have_left() -> None:
    structure = Sharded(1, shards=1, filter="max-vector", rebuild_percent=20)
    structure.load(np.arange(100), np.arange(100, dtype=np.int64).reshape(-1, 1))
    above = Box((50,), (HIGH,))
    for slot in range(99, 79, -1):
        structure.remove(slot)
    assert structure.ledger.rebuilds == 0
    assert structure.find(Box((90,), (HIGH,))).false_positives == 1, "the departed are still counted"
    structure.remove(79)
    assert structure.ledger.rebuilds == 1 and structure.ledger.rebuilt_points == 79
    assert structure.find(Box((79,), (HIGH,))).pruned == 1
    assert len(structure.find(above).slots) == 29


def test_a_filter_that_forgets_needs_no_rebuild() -> None:
    structure = Sharded(1, shards=1, filter="oracle", rebuild_percent=1)
    structure.load(np.arange(100), np.arange(100, dtype=np.int64).reshape(-1, 1))
    for slot in range(99, 9, -1):
        structure.remove(slot)
    assert structure.ledger.rebuilds == 0
    assert structure.find(Box((10,), (HIGH,))).pruned == 1


def test_a_sized_filter_is_built_anew_when_it_is_outgrown() -> None:
    structure = Sharded(1, shards=1, filter="bloom", bits_per_key=16)
    for slot in range(300):
        structure.put(slot, (slot * 1_000_003,))
    assert 5 <= structure.ledger.rebuilds <= 40
    assert structure.filter_bits() >= 16 * 300 * 0.8
    false = sum(structure.may_match(Box((value,), (value,))) for value in range(1, 20_001, 10))
    assert false <= 20, f"{false} of 2,000 absent values pass 16 bits a key"


def test_the_cost_of_opening_is_charged_or_waited_for() -> None:
    points = grid(100)
    box = Box((MISSING,) * 3, (HIGH,) * 3)
    charged = Sharded(3, shards=4, filter="always", open_cost_us=50)
    charged.load(np.arange(100), points)
    charged.find(box)
    assert charged.ledger.charged_us == 200
    waits: list[float] = []
    waiting = Sharded.over(MemoryShards(3), 3, wait=waits.append, shards=4, filter="always", open_cost_us=1000)
    waiting.load(np.arange(100), points)
    waiting.find(box)
    assert waits == [0.001] * 4 and waiting.ledger.charged_us == 0


def test_points_are_dealt_out_anew_after_enough_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "ARRANGE_AT_LEAST", 50)
    structure = Sharded(3, shards=8, filter="max-vector", placing="sorted")
    points = grid(60)
    for slot, point in enumerate(points.tolist()):
        structure.put(slot, tuple(point))
    assert structure.ledger.arranged_points == 51
    assert max(structure._live) - min(structure._live) <= 10
    assert len(structure.find(Box((MISSING,) * 3, (HIGH,) * 3)).slots) == 60


def test_a_limited_read_stops_at_the_first_block_that_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_reader, "BLOCK_ROWS", 16)
    structure = Sharded(1, shards=1, filter="always")
    structure.load(np.arange(1000), np.arange(1000, dtype=np.int64).reshape(-1, 1))
    found = structure.find(Box((40,), (HIGH,)), 3)
    assert found.slots.tolist() == [40, 41, 42] and not found.complete
    assert found.examined == 1 + 48


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shards": 0}, "shards is 0"),
        ({"filter": "nothing"}, 'no filter "nothing"'),
        ({"placing": "random"}, "placing"),
        ({"rebuild_percent": 0}, "rebuild_percent is 0"),
        ({"filter_options": "buckets"}, "name=value"),
        ({"filter": "joint-bitset", "filter_options": "bucket=3"}, "no option"),
    ],
)
def test_bad_options_say_what_is_wrong(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Sharded(2, **options)


def test_filter_options_are_read() -> None:
    structure = Sharded(2, shards=1, filter="joint-bitset", filter_options="buckets=4, spacing=quantile")
    assert structure.filter_bits() == 16 + 2 * 3 * 64 + 2 * 128


@pytest.mark.parametrize("filter", ["max-vector", "joint-bitset", "bloom", "memento"])
def test_what_is_put_between_two_questions_is_found(filter: str) -> None:
    structure = Sharded(1, shards=16, filter=filter, rebuild_percent=1000)
    structure.load(np.arange(320), np.arange(320, dtype=np.int64).reshape(-1, 1))
    for slot, value in ((0, 400), (17, 401), (320, 500), (5, -1)):
        at_value = Box((value,), (value,))
        assert not len(structure.find(at_value).slots)
        structure.put(slot, (value,))
        assert structure.find(at_value).slots.tolist() == [slot]
        assert structure.may_match(at_value)


def test_a_point_is_put_where_the_tree_laid_its_like() -> None:
    structure = Sharded(3, shards=16, placing="sorted")
    points = np.random.default_rng(2).integers(0, 9, (500, 3))
    structure.load(np.arange(500), points)
    for slot, point in enumerate(points.tolist()):
        assert structure._route(slot, tuple(point)) == structure._shard_of[slot]


def test_a_half_line_above_what_has_left_is_refused_by_a_filter_that_forgets() -> None:
    structure = Sharded(1, shards=1, filter="memento", bits_per_key=24)
    structure.load(np.arange(50), 1000 * np.arange(50, dtype=np.int64).reshape(-1, 1))
    structure.remove(49)
    assert structure.find(Box((48_001,), (HIGH,))).pruned == 1
    assert structure.find(Box((48_000,), (HIGH,))).slots.tolist() == [48]
