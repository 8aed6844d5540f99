"""Laws of the fronts, and of those that are exact; what they count; and the study's clusters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.front import Counting, Front, holding
from minikube_py.index.structure import MISSING
from minikube_py.lab.study import runner
from minikube_py.lab.study.contest import Batch
from minikube_py.lab.study.design import StudyError
from minikube_py.lab.study.experiment import Absent, find
from minikube_py.lab.study.measured import Measured
from minikube_py.lab.trace import load
from minikube_py.studies.emptiness.by_request import ByRequest
from minikube_py.studies.emptiness.dlrm import GPU_NODE, GPU_NODES, RULES, DlrmCluster, groups
from minikube_py.studies.emptiness.fronts import (
    FRONTS,
    BoundedSkyline,
    JointCells,
    MaxVectors,
    RangeFilter,
    Skyband,
    Skyline,
    band,
)
from minikube_py.studies.emptiness.openb import MOST_GPUS, WHOLE, OpenbCluster, shapes
from minikube_py.studies.emptiness.study import Emptiness, FirstFit, World

ROOT = Path(__file__).resolve().parents[3]
VALUES = st.sampled_from([0, 1, 2, 3, 7, 8, 4095, 4096, 2**40])
"""Few values, so that nodes are often equal or one dominates another; and the edges of steps and widths."""

LATER = {each for each in FRONTS if each.startswith(("range-filter", "bounded-skyline", "by-request", "skyline-"))} | {
    "max-vectors-8",
    "max-vectors-16",
    "refused",
    "reasons",
    "copy",
}
"""Fronts of later questions, which the first design does not name."""


@st.composite
def programs(draw: st.DrawFn) -> tuple[np.ndarray, int, list[tuple[int, tuple[int, ...]]], np.ndarray]:
    """Points, shards, changes and requests."""
    dimensions = draw(st.integers(1, 4))
    point = st.tuples(*[VALUES] * dimensions)
    points = draw(st.lists(point, min_size=1, max_size=24))
    changes = draw(st.lists(st.tuples(st.integers(0, len(points) - 1), point), max_size=40))
    asked = draw(st.lists(st.tuples(*[VALUES | st.just(MISSING)] * dimensions), min_size=1, max_size=6))
    return np.array(points), draw(st.integers(1, 5)), changes, np.array(asked, dtype=np.int64)


def built(name: str, points: np.ndarray, shards: int) -> Any:
    kind, options = FRONTS[name]
    return kind(points, shards, **options)


@pytest.mark.parametrize("name", FRONTS)
@given(program=programs())
@settings(max_examples=25, deadline=None)
def test_no_front_rules_out_a_node_that_fits_and_exact_ones_let_nothing_through(name: str, program: Any) -> None:
    points, shards, changes, asked = program
    front = built(name, points, shards)
    now = points.copy()
    for slot, point in [(0, tuple(points[0].tolist())), *changes]:
        front.put(slot, point)
        now[slot] = point
        says, truth = front.passing(asked), holding(now, shards, asked)
        assert says.shape == (len(asked), shards)
        assert not (truth & ~says).any()
        if front.bound == 0.0:
            assert (says == truth).all()
        assert 0 <= front.size_bytes() <= front.held_bytes()
    assert isinstance(front, Front) and isinstance(front, Counting)


@given(program=programs())
@settings(max_examples=60, deadline=None)
def test_a_skyline_kept_up_is_the_skyline_built(program: Any) -> None:
    points, shards, changes, _ = program
    kept, now = Skyline(points, shards), points.copy()
    for slot, point in changes:
        kept.put(slot, point)
        now[slot] = point
    for shard in range(shards):
        slots = np.arange(shard, len(points), shards)
        wanted = set(map(tuple, now[slots[band(now[slots], slots, 1)]].tolist()))
        there = kept._slots[shard][kept._slots[shard] >= 0]
        assert set(map(tuple, now[there].tolist())) == wanted
        assert len(there) == len(wanted)


def test_who_dominates_whom() -> None:
    points = np.array([[5, 1], [4, 4], [4, 4], [1, 5], [3, 3], [0, 0]])
    slots = np.arange(6)
    assert band(points, slots, 1).tolist() == [True, True, False, True, False, False]
    assert band(points, slots, 2).tolist() == [True, True, True, True, False, False]
    assert band(points, slots, 3).tolist() == [True, True, True, True, True, False]


def test_only_a_member_that_loses_something_has_its_shard_read_again() -> None:
    points = np.array([[9, 9], [5, 5], [1, 1], [3, 3]])
    front = Skyline(points, 1)
    front.put(2, (0, 0))
    front.put(0, (10, 9))
    assert (front.rows_read, front.members()) == (0, 1)
    front.put(0, (0, 0))
    assert (front.rows_read, front.members()) == (4, 1)
    band_of_2 = Skyband(points, 1, 2)
    band_of_2.put(0, (0, 0))
    assert band_of_2.rows_read == 0
    band_of_2.put(1, (0, 0))
    assert band_of_2.rows_read == 4


def test_known_requests_are_learned_once_and_the_one_asked_longest_ago_makes_room() -> None:
    points = np.array([[3, 9], [5, 5], [9, 1], [0, 0]])
    front = ByRequest(points, 2, 2)
    first, second, third = (np.array([each]) for each in ([3, MISSING], [9, 9], [0, 5]))
    assert front.passing(first).tolist() == [[True, True]]
    assert front.passing(np.concatenate([second, first, second])).tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert front.rows_read == 8
    front.put(3, (9, 9))
    assert front.passing(second).tolist() == [[False, True]] and front.rows_read == 8
    # `first` was asked before `second`; 2 requests of 4 + 3 bits, and a bit of 2 shards each.
    front.passing(third)
    assert front.rows_read == 12 and front.table_bytes() == 2 and front.size_bytes() == 3
    front.passing(second)
    assert front.rows_read == 12
    assert front.passing(np.concatenate([first, second, third])).tolist() == [[True, True], [False, True], [True, True]]


def test_requests_known_beforehand_are_part_of_being_built() -> None:
    study = find(str(ROOT / "docs/studies/by-request.toml"))
    assert isinstance(study, Emptiness)
    design = study.load("quick")
    levels = {**design.raw["defaults"], "list": "default", "shards": 16}
    world = World(design, levels, 0)
    known, learning = (study.candidate(each, world, design, levels) for each in ("by-request@known", "by-request"))
    for batch in world.batches:
        assert (known.answer(batch.asked) == batch.right).all() and (learning.answer(batch.asked) == batch.right).all()
        known.change(batch.changes)
        learning.change(batch.changes)
        figures, learned = known.figures(), learning.figures()
        assert figures["rows_read"] == 0.0 < figures["table_bytes"] < figures["bytes"]
        assert learned["table_bytes"] < figures["table_bytes"]
    with pytest.raises(Absent, match="skyline learns no requests"):
        study.candidate("skyline@known", world, design, levels)
    with pytest.raises(Absent, match="not known beforehand"):
        plain = {**levels, "list": "synthetic", "n": 40}
        study.candidate("by-request@known", World(design, plain, 0), design, plain)
    with pytest.raises(InvalidRequest, match="most is 0"):
        ByRequest(world.points, 2, 0)


@given(program=programs(), k=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_bounded_skyline_keeps_to_its_bound_and_with_room_enough_is_the_skyline(program: Any, k: int) -> None:
    points, shards, changes, asked = program
    fronts = BoundedSkyline(points, shards, k), BoundedSkyline(points, shards, len(points)), Skyline(points, shards)
    for slot, point in changes:
        for front in fronts:
            front.put(slot, point)
        few, all_of_it, skyline = fronts
        assert few.size_bytes() <= (shards * k * few.point_bits + 7) // 8
        assert (all_of_it.passing(asked) == skyline.passing(asked)).all()
        assert (all_of_it.size_bytes(), all_of_it.held_bytes()) == (skyline.size_bytes(), skyline.size_bytes())


def test_the_two_vectors_that_add_the_least_volume_are_merged() -> None:
    points = np.array([[100, 0], [90, 10], [10, 80], [0, 100], [5, 5]])
    assert sorted(BoundedSkyline(points, 1, 2)._rows[0].tolist()) == [[10, 100], [100, 10]]
    assert sorted(BoundedSkyline(points, 1, 3)._rows[0].tolist()) == [[0, 100], [10, 80], [100, 10]]
    assert BoundedSkyline(points, 1, 1)._rows.tolist() == [[[100, 100]]]


def test_a_bounded_skyline_is_formed_again_only_if_a_maximum_leaves() -> None:
    points = np.array([[100, 0], [90, 10], [10, 80], [0, 100], [5, 5]])
    front = BoundedSkyline(points, 1, 2)
    front.put(4, (9, 90))
    front.put(2, (10, 70))
    assert front.rows_read == 0 and sorted(front._rows[0].tolist()) == [[10, 100], [100, 10]]
    front.put(2, (9, 70))
    assert front.rows_read == 5 and sorted(front._rows[0].tolist()) == [[9, 100], [100, 10]]
    front.put(4, (9, 120))
    assert front.rows_read == 5 and sorted(front._rows[0].tolist()) == [[9, 120], [100, 10]]
    front.put(0, (110, 1))
    assert front.rows_read == 5 and sorted(front._rows[0].tolist()) == [[9, 120], [110, 10]]


def test_a_search_ends_at_the_first_shard_that_has_room() -> None:
    right = np.array([[False, False, True, True], [False, False, False, False], [True, False, False, True]])
    says = np.array([[True, False, True, True], [False, True, False, True], [True, True, True, True]])
    scored = FirstFit().score(Batch(None, right), says)
    assert (scored["opened_first"], scored["opened"]) == (pytest.approx(5 / 3), 3.0)
    assert FirstFit().score(Batch(None, right), right)["opened_first"] == pytest.approx(2 / 3)


def test_bytes_are_those_of_packed_values() -> None:
    points = np.array([[255, 15], [15, 255], [1, 1]])
    assert MaxVectors(points, 1).size_bytes() == 2
    assert MaxVectors(points, 1, 2).size_bytes() == 4
    assert Skyline(points, 1).size_bytes() == 4
    assert JointCells(points, 1, 8).size_bytes() == 2 + 8
    assert JointCells(points, 1, 8, 16).size_bytes() == 2 + 2


def test_a_range_filter_with_bits_enough_answers_as_the_grid_of_its_steps_and_with_few_lets_more_through() -> None:
    rng = np.random.default_rng(4)
    points, asked = rng.integers(0, 4096, (60, 4)), rng.integers(0, 4096, (200, 4))
    says = {bits: RangeFilter(points, 3, bits).passing(asked) for bits in (1, 16, 4096)}
    grid = JointCells(points, 3, 16).passing(asked)
    assert (says[4096] >= grid).all() and (says[4096] == grid).mean() > 0.99
    assert (says[1] >= says[4096]).all() and says[1].sum() > says[16].sum() > grid.sum()
    assert RangeFilter(points, 3, 16).bits == 16 * 20 and not RangeFilter(points, 3, 3).bits % 8


def test_a_range_filter_kept_up_is_the_one_built() -> None:
    rng = np.random.default_rng(6)
    points = rng.integers(0, 100, (30, 3))
    points[0] = 100
    kept, now = RangeFilter(points, 4), points.copy()
    for slot in rng.integers(1, 30, 50).tolist():
        now[slot] = rng.integers(0, 100, 3)
        kept.put(slot, tuple(now[slot].tolist()))
    assert (kept._counts == RangeFilter(now, 4)._counts).all() and (kept._counts >= 0).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda points: Skyband(points, 1, 0),
        lambda points: Skyband(points, 0),
        lambda points: MaxVectors(points, 1, 0),
        lambda points: BoundedSkyline(points, 1, 0),
        lambda points: JointCells(points, 1, 1),
        lambda points: JointCells(points, 1, 300),
        lambda points: RangeFilter(points, 1, 0),
        lambda points: RangeFilter(points, 1, 16, 1),
        lambda points: RangeFilter(points.reshape(-1, 1).repeat(17, axis=1), 1),
        lambda points: RangeFilter(points, 0),
    ],
)
def test_options_out_of_bounds_are_refused(make: Any) -> None:
    with pytest.raises(InvalidRequest):
        make(np.zeros((4, 2), dtype=np.int64))


def test_the_copies_that_are_installed_are_the_registered_ones() -> None:
    study = Emptiness()
    assert study.packaged is not None
    assert study.packaged.read_bytes() == study.design.read_bytes()
    for mode in ("quick", "full"):
        design = study.load(mode)
        assert set(design.candidates("openb")) == FRONTS.keys() - LATER
        names = {str(cell["list"]) for cell in design.cells("openb")}
        assert all(map(shapes, names))
    assert len(names) == 23


@pytest.mark.parametrize("packed", [False, True])
def test_an_openb_cluster_is_what_its_points_say(packed: bool) -> None:
    cluster = OpenbCluster("gpushare40", 100, packed, 3)
    for _ in range(2):
        used = {node: np.zeros(2 + MOST_GPUS, dtype=np.int64) for node in range(len(cluster.points))}
        for node, shape, taken in cluster._running:
            used[node] += [shape.cpu_milli, shape.memory_mib, *taken]
        for node, there in used.items():
            assert (cluster._cpu[node] + there[0], cluster._gpus[node].min()) >= (there[0], 0)
            assert cluster.points[node][0] == cluster._cpu[node] >= 0
            assert cluster.points[node][2] == (cluster._gpus[node] == WHOLE).sum()
            assert cluster.points[node][3] == cluster._gpus[node].max()
        before = cluster.points.copy()
        changes = cluster.change(30)
        assert len(changes) in (30, 31)
        for slot, point in changes:
            before[slot] = point
        assert (before == cluster.points).all()


def test_what_a_pod_asks_for_is_what_placing_it_needs() -> None:
    """A request as a box says the same as the device-wise test of `_place`."""
    cluster = OpenbCluster("multigpu20", 130, True, 1)
    for shape, _ in shapes("multigpu20"):
        says = (cluster.points >= np.array(shape.asked())).all(axis=1).any()
        room = (cluster._cpu >= shape.cpu_milli) & (cluster._memory >= shape.memory_mib)
        if shape.gpus:
            room &= (cluster._gpus >= shape.gpu_milli).sum(axis=1) >= shape.gpus
        assert says == room.any()


def test_labels_are_columns_that_pods_of_some_models_request_and_keep_to() -> None:
    cluster = OpenbCluster("gpuspec33", 100, False, 2, labelled=True)
    nodes = [node for node in load().nodes if node.gpus]
    cluster.change(20)
    assert cluster.points.shape == (1213, 4 + len(cluster._accepted)) and len(cluster._accepted) == 16
    assert all(not shape.models or nodes[node].model in shape.models for node, shape, _ in cluster._running)
    for shape, _ in shapes("gpuspec33", True):
        says = (cluster.points >= np.array(cluster._asked(shape))).all(axis=1)
        accepted = [not shape.models or node.model in shape.models for node in nodes]
        assert (says == accepted & (cluster.points[:, :4] >= np.array(shape.asked())).all(axis=1)).all()


def test_groups_of_the_disaggregated_trace_are_those_of_its_figures() -> None:
    made = groups()
    assert len(made) == 206 and sum(pods for _, pods in made) == 22_020
    assert all(pods >= 20 and group.most_on_a_node in (-1, 2, 4, 8, 10, 16) for group, pods in made)
    assert all((group.amounts[1] > 0) == bool(group.gpu_node) for group, _ in made)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_disaggregated_cluster_is_what_its_points_say_and_keeps_its_rules(rules: str, packed: bool) -> None:
    cluster = DlrmCluster(rules, 96, 100, packed, 3)
    before = cluster.points.copy()
    changes = cluster.change(30)
    assert len(changes) in (30, 31)
    for slot, point in changes:
        before[slot] = point
    assert (before == cluster.points).all()
    used = np.zeros((96, 5), dtype=np.int64)
    on_node: Counter[tuple[int, int]] = Counter()
    for node, group in cluster._running:
        used[node] += group.amounts
        on_node[group.app, node] += 1
    # Whole nodes of two kinds, whatever runs on them.
    whole = cluster.points[:, :5] + used
    gpu = whole[:, 1] == GPU_NODE[1]
    assert (whole[gpu] == GPU_NODE).all() and gpu.sum() == round(96 * GPU_NODES) and len({*map(tuple, whole)}) == 2
    assert (cluster.points >= 0).all() and len(cluster._running) > 96
    for node, group in cluster._running:
        limit = group.most_on_a_node
        assert rules not in ("density", "all") or limit < 0 or on_node[group.app, node] <= limit
        assert rules not in ("labels", "all") or gpu[node] == bool(group.gpu_node)
        assert rules != "taints" or group.gpu_node or not gpu[node]


def test_a_pod_goes_to_a_zone_with_the_fewest_of_its_application() -> None:
    cluster = DlrmCluster("zones", 480, 30, False, 3)
    seen = np.zeros_like(cluster._in_zones)
    for node, group in cluster._running:
        zone = cluster._zone[node]
        assert seen[group.app, zone] == seen[group.app].min()
        seen[group.app, zone] += 1
    assert (seen == cluster._in_zones).all() and seen.max() > 3


@pytest.mark.parametrize(
    ("listed", "rules"), [("dlrm", "affinity"), ("default", "zones"), ("synthetic", "labels")], ids=str
)
def test_rules_that_a_cluster_does_not_have_are_refused(listed: str, rules: str) -> None:
    design = find("emptiness").load("quick")
    with pytest.raises(StudyError, match=f"no rules '{rules}' of {listed}: there are none"):
        World(design, {**design.raw["defaults"], "list": listed, "rules": rules}, 0)


def test_a_front_that_is_told_of_resources_alone_errs_and_one_told_of_rules_does_not() -> None:
    study = find(str(ROOT / "docs/studies/constraints.toml"))
    design = study.load("quick")
    less = {"batches": 2, "requests_per_batch": 8, "changes_per_batch": 8}
    defaults = {**design.raw["defaults"], "n": 96, "shards": 6}
    design = type(design)({**design.raw, **less, "defaults": defaults}, "quick")
    wanted = [unit for unit in design.units() if unit.seed == 0 and dict(unit.levels)["rules"] in ("all", "labels")]
    for unit in wanted:
        record = study.measure(design, unit)
        assert record["absent"] == {} and set(record["candidates"]) == set(design.candidates(unit.block))
        assert all(each["wrong"] == 0 for each in record["candidates"].values())
        let = {name: sum(each["figures"]["let_through"]) for name, each in record["candidates"].items()}
        assert let["skyline"] == let["skyband-4"] == let["oracle"] == 0 <= let["skyline@resources"]
        if dict(unit.levels)["list"] == "default":
            assert let["skyline@resources"] == 0
    world = World(design, dict(wanted[0].levels), 0)
    for name in ("skyline@amounts", "quicksand@resources"):
        with pytest.raises(Absent, match="perhaps with @compiled"):
            study.candidate(name, world, design, {})


def test_a_small_unit_of_each_block_runs_and_nobody_is_wrong() -> None:
    design = find("emptiness").load("quick")
    less = {"batches": 2, "requests_per_batch": 8, "changes_per_batch": 8}
    defaults = {**design.raw["defaults"], "n": 1024, "shards": 8}
    design = type(design)({**design.raw, **less, "defaults": defaults}, "quick")
    units = {unit.block: unit for unit in design.units() if dict(unit.levels).get("correlation") == 0}
    records = [runner.run_unit(runner.Task("emptiness", design, unit)) for unit in units.values()]
    for record in records:
        assert "failed" not in record, record["failed"]
        assert record["absent"] == {} and set(record["candidates"]) == set(design.candidates("grid"))
        assert all(each["wrong"] == 0 for each in record["candidates"].values())
        let = {name: sum(each["figures"]["let_through"]) for name, each in record["candidates"].items()}
        assert let["oracle"] == let["skyline"] == let["skyband-4"] == 0.0
        assert let["none"] == max(let.values())
    findings = Measured(design, records).judge()
    assert len(findings) == 13 and {each.outcome for each in findings} == {"not tested"}
