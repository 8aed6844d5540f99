"""Filters and scores of resources: cases worked out by hand from the documented formulas, in both forms."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_objects import node, pod

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import Code, CycleState
from minikube_py.scheduler.plugins.node_resources import (
    ArgsError,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    Shape,
    balance,
    least_requested,
    most_requested,
)

STATE = CycleState()


def cluster(running: list[tuple[str, dict[str, Any]]], **nodes: dict[str, Any]) -> NodeColumns:
    columns = NodeColumns()
    for name, more in nodes.items():
        columns.put_node(node(name, **more))
    for i, (where, more) in enumerate(running):
        columns.add_pod(pod(f"running-{i}", **more), where)
    return columns


@pytest.mark.parametrize(
    ("requested", "capacity", "least", "most"),
    [
        (0, 1000, 100, 0),
        (1000, 1000, 0, 100),
        (1001, 1000, 0, 100),
        (333, 1000, 66, 33),
        (1, 1000, 99, 0),
        (999, 1000, 0, 99),
        (3 << 30, 8 << 30, 62, 37),
    ],
)
def test_score_of_one_resource(requested: int, capacity: int, least: int, most: int) -> None:
    assert least_requested(requested, capacity) == least
    assert most_requested(requested, capacity) == most


FIT = [
    # 4 cpu, 8Gi; the pod counts 100m and 200Mi: (97 + 97) // 2
    ("empty node, best-effort pod", {}, [], 97),
    # cpu (4000 - 1000) * 100 / 4000 = 75; memory (8192 - 2048) / 8192 = 75
    ("a quarter of both", {"cpu": "1", "memory": "2Gi"}, [], 75),
    # cpu 50; memory 75 -> 62
    ("mean is truncated", {"cpu": "2", "memory": "2Gi"}, [], 62),
    # running 1 cpu, 2Gi and the pod: cpu 50, memory 50
    ("what runs counts", {"cpu": "1", "memory": "2Gi"}, [{"cpu": "1", "memory": "2Gi"}], 50),
    # running best effort counts 100m, 200Mi: cpu 4000-1100 = 2900 -> 72; memory 8192-2048-200 = 5944 -> 72
    ("best effort counts the defaults", {"cpu": "1", "memory": "2Gi"}, [{}], 72),
    ("more than there is scores 0", {"cpu": "5", "memory": "9Gi"}, [], 0),
    # memory missing in the pod's request: 200Mi of 8Gi: 97; cpu 0
    ("one resource full", {"cpu": "4"}, [], 48),
]


@pytest.mark.parametrize(("name", "wanted", "running", "expected"), FIT, ids=[case[0] for case in FIT])
def test_least_allocated(name: str, wanted: dict[str, Any], running: list[dict[str, Any]], expected: int) -> None:
    columns = cluster([("n", more) for more in running], n={})
    plugin, incoming = NodeResourcesFit(), pod(**wanted)
    assert plugin.score(STATE, incoming, columns.by_name["n"]) == expected
    scores = plugin.score_nodes(STATE, incoming, columns.all())
    assert scores is not None and scores.tolist() == [expected]


def strategy(type: str, **more: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": type, **more}}


RATIO = {"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}
INVERSE = {"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 10}, {"utilization": 50, "score": 2}]}}
GPU = [{"name": "cpu", "weight": 1}, {"name": "example.com/gpu", "weight": 3}]
STRATEGIES = [
    ("most allocated", strategy("MostAllocated"), {"cpu": "1", "memory": "2Gi"}, 25),
    ("most allocated is capped", strategy("MostAllocated"), {"cpu": "5", "memory": "2Gi"}, 62),
    # cpu 25 * 1 + gpu 50 * 3 = 175 // 4
    ("weights", strategy("MostAllocated", resources=GPU), {"cpu": "1", "extended": {"example.com/gpu": "2"}}, 43),
    ("an extended resource nobody asks for", strategy("MostAllocated", resources=GPU), {"cpu": "1"}, 25),
    ("ratio grows", strategy("RequestedToCapacityRatio", **RATIO), {"cpu": "1", "memory": "4Gi"}, 38),
    # cpu 25 % -> 100 - 80*25/50 = 60; memory 50 % -> 20: (60 + 20) / 2
    ("ratio falls", strategy("RequestedToCapacityRatio", **INVERSE), {"cpu": "1", "memory": "4Gi"}, 40),
    # cpu at 0 % scores 0, and so does not count: 12 % -> 12 alone
    (
        "ratio leaves zeros out of the mean",
        strategy("RequestedToCapacityRatio", **RATIO, resources=[{"name": "memory"}, {"name": "ephemeral-storage"}]),
        {"memory": "1Gi"},
        12,
    ),
]


@pytest.mark.parametrize(("name", "args", "wanted", "expected"), STRATEGIES, ids=[case[0] for case in STRATEGIES])
def test_strategies(name: str, args: dict[str, Any], wanted: dict[str, Any], expected: int) -> None:
    columns = cluster([], n={"extended": {"example.com/gpu": "4", "ephemeral-storage": "100Gi"}})
    plugin, incoming = NodeResourcesFit(args), pod(**wanted)
    assert plugin.score(STATE, incoming, columns.by_name["n"]) == expected
    scores = plugin.score_nodes(STATE, incoming, columns.all())
    assert scores is not None and scores.tolist() == [expected]


@pytest.mark.parametrize(
    ("utilization", "expected"), [(0, 100), (25, 60), (49, 22), (50, 20), (51, 20), (100, 20)]
)
def test_shape_truncates_towards_zero(utilization: int, expected: int) -> None:
    assert Shape([(0, 100), (50, 20)]).at(utilization) == expected


BALANCE = [
    # before: both 0 -> 100; after: 1/4 and 1/4 -> 100; 50 + (50 + 0) // 2
    ("stays balanced", {"cpu": "1", "memory": "2Gi"}, [], 75),
    # after: cpu .5, memory .25: |.25|/2 = .125 -> 87; 50 + (50 + 87 - 100) // 2 = 68
    ("loses balance", {"cpu": "2", "memory": "2Gi"}, [], 68),
    # before: .5, 0 -> 75; after: .5, .5 -> 100; 50 + 75 // 2
    ("gains balance", {"memory": "4Gi"}, [{"cpu": "2"}], 87),
    # shares are capped at 1: before (1, 0) -> 50; after (1, .5) -> 75
    ("more than there is", {"cpu": "1", "memory": "4Gi"}, [{"cpu": "4"}], 87),
]


@pytest.mark.parametrize(("name", "wanted", "running", "expected"), BALANCE, ids=[case[0] for case in BALANCE])
def test_balance(name: str, wanted: dict[str, Any], running: list[dict[str, Any]], expected: int) -> None:
    columns = cluster([("n", more) for more in running], n={})
    plugin, incoming = NodeResourcesBalancedAllocation(), pod(**wanted)
    assert plugin.pre_score(STATE, incoming, columns) is None
    assert plugin.score(STATE, incoming, columns.by_name["n"]) == expected
    scores = plugin.score_nodes(STATE, incoming, columns.all())
    assert scores is not None and scores.tolist() == [expected]


def test_balance_of_three_is_the_standard_deviation() -> None:
    # mean .5, squares .0625 + 0 + .0625 = .125 / 3: sqrt .2041 -> 79
    assert balance([0.25, 0.5, 0.75]) == 79


def test_balance_leaves_best_effort_pods_out() -> None:
    status = NodeResourcesBalancedAllocation().pre_score(STATE, pod(), NodeColumns())
    assert status is not None and status.code is Code.SKIP


@pytest.mark.parametrize("memory", ["17Ti", "20000Ti", "100Pi", "7Ei"])
@pytest.mark.parametrize("type", ["LeastAllocated", "MostAllocated"])
def test_huge_nodes_score_alike_in_both_forms(memory: str, type: str) -> None:
    columns = cluster([("n", {"cpu": "1", "memory": "3Ti"})], n={"memory": memory}, m={"memory": "0", "cpu": "3"})
    plugin, incoming = NodeResourcesFit(strategy(type)), pod(cpu="1", memory="5Ti")
    scores = plugin.score_nodes(STATE, incoming, columns.all())
    assert scores is not None
    assert scores.tolist() == [plugin.score(STATE, incoming, info) for info in columns.by_slot if info]


FILTER = [
    ("fits exactly", {"cpu": "3", "memory": "6Gi"}, (), None),
    ("one milli too much", {"cpu": "3001m"}, ("Insufficient cpu",), Code.UNSCHEDULABLE),
    ("beyond the node", {"cpu": "4001m"}, ("Insufficient cpu",), Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
    (
        "all that lack are named, natives first",
        {"cpu": "3500m", "memory": "7Gi", "extended": {"example.com/gpu": "1"}},
        ("Insufficient cpu", "Insufficient memory", "Insufficient example.com/gpu"),
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    ),
    ("zero is no request", {"cpu": "0", "extended": {"example.com/gpu": "0"}}, (), None),
]


@pytest.mark.parametrize(("name", "wanted", "reasons", "code"), FILTER, ids=[case[0] for case in FILTER])
def test_fit_filter(name: str, wanted: dict[str, Any], reasons: tuple[str, ...], code: Code | None) -> None:
    columns = cluster([("n", {"cpu": "1", "memory": "2Gi"})], n={})
    plugin, incoming = NodeResourcesFit(), pod(**wanted)
    status = plugin.filter(STATE, incoming, columns.by_name["n"])
    mask = plugin.filter_nodes(STATE, incoming, columns.all())
    assert mask is not None and mask.tolist() == [code is None]
    if code is None:
        assert status is None
        return
    assert status is not None and (status.code, status.reasons) == (code, reasons)
    codes, meaning = plugin.reject_codes(STATE, incoming, columns.all())
    assert meaning(codes.tolist()[0]) == status


@pytest.mark.parametrize("count", [1, 60, 61, 62, 63, 64, 70, 200])
def test_any_number_of_requests_is_told_apart(count: int) -> None:
    """Codes are bits, and an int64 has 63."""
    names = [f"example.com/r{i}" for i in range(count)]
    columns = cluster([("more", {"extended": {names[-1]: "2"}})], none={}, more={"extended": dict.fromkeys(names, "2")})
    plugin, incoming = NodeResourcesFit(), pod(extended=dict.fromkeys(names, "1"))
    mask = plugin.filter_nodes(STATE, incoming, columns.all())
    assert mask is not None and not mask.any()
    codes, meaning = plugin.reject_codes(STATE, incoming, columns.all())
    lacking = {"none": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, names), "more": (Code.UNSCHEDULABLE, names[-1:])}
    for info, code in zip(columns.all().infos(), codes.tolist(), strict=True):
        assert info is not None
        found, (wanted, lacks) = meaning(code), lacking[info.name]
        assert found == plugin.filter(STATE, incoming, info)
        assert (found.code, found.reasons) == (wanted, tuple(f"Insufficient {name}" for name in lacks))


def test_fit_counts_pods() -> None:
    columns = cluster([("n", {})], n={"pods": "1"})
    status = NodeResourcesFit().filter(STATE, pod(cpu="9"), columns.by_name["n"])
    assert status is not None and status.reasons == ("Too many pods", "Insufficient cpu")


def test_fit_ignores_what_it_is_told_to() -> None:
    columns = cluster([], n={})
    wanted = pod(extended={"example.com/gpu": "1", "other.io/x": "1"})
    groups = NodeResourcesFit({"ignoredResourceGroups": ["example.com"], "ignoredResources": ["other.io/x"]})
    assert groups.filter(STATE, wanted, columns.by_name["n"]) is None


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (strategy("Tetris"), "scoringStrategy.type: Unsupported value"),
        (strategy("LeastAllocated", resources=[{"name": "cpu", "weight": 101}]), "not in valid range (0, 100]"),
        (strategy("LeastAllocated", resources=[{"name": "cpu"}, {"name": "cpu"}]), "Duplicate value"),
        (strategy("RequestedToCapacityRatio"), "at least one point must be specified"),
    ],
)
def test_wrong_arguments_are_refused(args: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgsError) as caught:
        NodeResourcesFit(args)
    assert text in str(caught.value)
