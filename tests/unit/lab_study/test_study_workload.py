"""The clusters of the study: as full, as correlated and as asked about as registered."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.index.structure import HIGH, MISSING, Box
from minikube_py.index.structures.scan import Scan
from minikube_py.lab.study.design import Design, Level
from minikube_py.studies.bloom.study import Bloom
from minikube_py.studies.bloom.undo import UndoLog
from minikube_py.studies.bloom.workload import Cluster, RangeCluster, boxes, matching, normal_tail

QUICK: Design = Bloom().load("quick")


def cluster(seed: int = 0, **levels: Level) -> Cluster:
    return Cluster(QUICK, {**QUICK.raw["defaults"], "n": 4000, **levels}, seed)


@pytest.mark.parametrize("utilisation", [0.5, 0.9, 0.97, 0.995])
def test_so_much_is_used_at_first_and_after_churn(utilisation: float) -> None:
    made = cluster(utilisation=utilisation, n=20_000)
    for _ in range(2):
        # Rounding down takes half a unit off.
        used = 1 - (made.points.mean() + 0.5) / made.capacity
        assert used == pytest.approx(utilisation, abs=0.03 * (1 - utilisation) + 0.0005)
        made.change(20_000)
    assert made.points.min() >= 0
    assert made.points.max() <= made.capacity


@pytest.mark.parametrize("correlation", [0.8, 0.0, -0.8])
def test_resources_go_together_as_told(correlation: float) -> None:
    made = cluster(correlation=correlation, utilisation=0.5)
    made.change(4000)
    ranks = np.argsort(np.argsort(made.points, axis=0), axis=0)
    found = np.corrcoef(ranks.T)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        wanted = correlation if correlation >= 0 else abs(correlation) * (-1) ** (i + j)
        assert found[i, j] == pytest.approx(wanted, abs=0.06)


def test_clustered_shards_differ_more_than_random_ones() -> None:
    spreads = {}
    for placement in ("random", "clustered"):
        made = cluster(placement=placement, shards=16, utilisation=0.5)
        spreads[placement] = np.std([made.points[shard::16].mean() for shard in range(16)])
    assert spreads["clustered"] > 4 * spreads["random"]


def test_a_seed_makes_the_same_cluster_and_another_seed_another() -> None:
    first, again, other = cluster(3), cluster(3), cluster(4)
    assert first.change(50) == again.change(50)
    assert first.requests(20) == again.requests(20)
    assert not np.array_equal(first.points, other.points)


def test_updates_lead_to_the_points() -> None:
    made = cluster()
    points = made.points.copy()
    for slot, point in made.change(3000):
        points[slot] = point
    assert np.array_equal(points, made.points)


def test_half_of_the_requests_stand_right_behind_a_stored_value() -> None:
    made = cluster(utilisation=0.5)
    stored = [set(made.points[:, each].tolist()) for each in range(3)]
    behind = asked = 0
    for request in made.requests(400):
        assert any(low != MISSING for low in request)
        for each, low in enumerate(request):
            if low != MISSING:
                asked += 1
                behind += low - 1 in stored[each]
                assert 1 <= low <= made.capacity
    # Unsnapped ones are there now and then too.
    assert 0.5 < behind / asked < 0.95


@pytest.mark.parametrize(("repetition", "low", "high"), [(0.0, 0.0, 0.02), (0.8, 0.7, 0.85), (0.95, 0.9, 0.99)])
def test_so_many_requests_came_before(repetition: float, low: float, high: float) -> None:
    requests = cluster(repetition=repetition).requests(500)
    assert low <= 1 - len(set(requests)) / len(requests) <= high


def test_ranges_have_their_length_and_half_begin_behind_a_key() -> None:
    levels: dict[str, Level] = {**QUICK.raw["defaults"], "n": 1000, "universe": 1 << 40, "length": 32, "d": 1}
    made = RangeCluster(levels, 0)
    keys = set(made.points[:, 0].tolist())
    ranges = made.ranges(400)
    assert all(box.highs[0] - box.lows[0] == 31 for box in ranges)
    assert 0.4 < sum(box.lows[0] - 1 in keys for box in ranges) / 400 < 0.6


def test_normal_tail_is_that_of_the_normal_distribution() -> None:
    z = np.linspace(-4, 4, 81)
    exact = [0.5 * math.erfc(each / math.sqrt(2)) for each in z]
    assert np.abs(normal_tail(z) - exact).max() < 2e-7


def test_half_lines_end_where_told() -> None:
    assert boxes([(5, MISSING)]) == [Box((5, MISSING), (HIGH, HIGH))]
    assert boxes([(5, MISSING)], 9) == [Box((5, MISSING), (9, HIGH))]


points_strategy = st.tuples(st.integers(0, 8), st.integers(0, 8))


@given(st.data())
@settings(max_examples=60)
def test_the_undo_log_finds_what_was_there(data: st.DataObject) -> None:
    initial = np.array(data.draw(st.lists(points_strategy, min_size=1, max_size=8)), dtype=np.int64)
    log, structure = UndoLog(initial), Scan(2)
    states = [initial.copy()]
    for slot, point in enumerate(initial.tolist()):
        structure.put(slot, tuple(point))
    for _ in range(data.draw(st.integers(0, 12))):
        slot, point = data.draw(st.integers(0, len(initial) - 1)), data.draw(points_strategy)
        log.put(slot, point)
        structure.put(slot, point)
        states.append(log.points.copy())
    revision = data.draw(st.integers(0, len(states) - 1))
    assert np.array_equal(log.points_at(revision), states[revision])
    box = Box(data.draw(points_strategy), (HIGH, data.draw(st.integers(4, 8))))
    limit = data.draw(st.integers(0, 3))
    right = set(matching(states[revision], box).tolist())
    found = log.find(structure, box, limit, revision).tolist()
    assert len(set(found)) == len(found)
    assert set(found) <= right
    assert len(found) == (min(limit, len(right)) if limit else len(right))
