"""The tables of upstream's tests (k8s.io/endpointslice/topologycache), as facts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from minikube_py.controllers.topology_hints import Share, Topology, exchange, spread, standing
from minikube_py.controllers.views import NodeView, project_node

CONTROL = {"node-role.kubernetes.io/control-plane": ""}


def node(zone: str, cpu: str, ready: str = "True", **labels: str) -> NodeView:
    labels |= {"topology.kubernetes.io/zone": zone} if zone else {}
    metadata = {"name": "n", "uid": "u", "resourceVersion": "1", "creationTimestamp": "", "labels": labels}
    status = {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": ready}]}
    return project_node({"metadata": metadata, "status": status})


def endpoint(zone: str = "", hint: str = "", ready: bool | None = True) -> dict[str, Any]:
    found: dict[str, Any] = {"conditions": {} if ready is None else {"ready": ready}}
    hints = {"hints": {"forZones": [{"name": hint}]}} if hint else {}
    return found | ({"zone": zone} if zone else {}) | hints


@pytest.mark.parametrize(
    ("nodes", "ratios"),
    [
        ([], {}),
        ([node("a", "1000m")], {}),
        ([node("a", "1000m"), node("a", "1000m")], {}),
        ([node("a", "1000m"), node("b", "1000m")], {"a": 0.5, "b": 0.5}),
        ([node("a", "1000m", "False"), node("b", "1000m")], {}),
        ([node("a", "1000m"), node("b", "1000m", **CONTROL)], {}),
        ([node("a", "1"), node("b", "1"), node("b", "1", "False"), node("b", "1", **CONTROL)], {"a": 0.5, "b": 0.5}),
        ([node("a", "1"), node("b", "1"), node("", "1")], {}),
        ([node("a", "1"), node("b", "1"), node("b", "0")], {}),
        (
            [node("a", "1"), node("a", "1"), node("a", "1"), node("a", "2"), node("b", "3"), node("b", "1500m"),
             node("c", "500m")],
            {"a": 0.5, "b": 0.45, "c": 0.05},
        ),
    ],
)  # fmt: skip
def test_shares_follow_the_zones_ready_cpu(nodes: list[NodeView], ratios: dict[str, float]) -> None:
    topology = Topology()
    topology.set_nodes(nodes)
    shares = topology.shares(100)
    assert ({z: s.desired / 100 for z, s in shares.items()} if not isinstance(shares, str) else {}) == ratios


def test_there_are_no_hints_for_few_endpoints_or_uneven_zones() -> None:
    topology = Topology()
    assert topology.shares(3) == (
        "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
    )
    topology.set_nodes([node("a", "1"), node("b", "1"), node("c", "1")])
    assert topology.shares(2) == "Insufficient number of endpoints (2 endpoints, 3 zones)"
    topology.set_nodes([node("a", "10"), node("b", "1"), node("c", "1")])
    assert topology.shares(3) == (
        "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold "
        "(3 endpoints, 3 zones)"
    )
    topology.set_nodes([node("a", "2"), node("b", "1")])
    shares = topology.shares(6)
    assert not isinstance(shares, str)
    assert {zone: (each.least, each.desired, each.most) for zone, each in shares.items()} == {
        "a": (4, 4.0, 4), "b": (2, 2.0, 2),
    }  # fmt: skip


def test_a_service_is_overloaded_where_a_zone_has_too_few() -> None:
    topology = Topology()
    topology.set_nodes([node("a", "1"), node("b", "1")])
    assert topology.enable("one", "IPv4", {"a": 3, "b": 3}) and not topology.enable("one", "IPv6", {"a": 1, "b": 1})
    assert topology.overloaded() == []
    topology.enable("two", "IPv4", {"a": 5, "b": 1})
    topology.enable("three", "IPv4", {"a": 2})
    assert topology.overloaded() == ["two", "three"]
    topology.set_nodes([node("a", "1")])
    assert topology.overloaded() == ["one", "two", "three"]
    assert topology.disable("two", "IPv4") and not topology.disable("two", "IPv4")
    assert topology.overloaded() == ["one", "three"]


@pytest.mark.parametrize(
    ("desired", "given", "giving", "receiving"),
    [
        ({}, {}, {}, {}),
        ({"a": 1.2, "b": 1.1, "c": 1.0}, {"a": 1, "b": 1, "c": 1}, {}, {}),
        ({"a": 5.1, "b": 5.1, "c": 5.8}, {"a": 16}, {"a": 10}, {"b": 5, "c": 5}),
        ({"a": 5.0, "b": 5.6, "c": 5.4}, {"a": 16}, {"a": 11}, {"b": 6, "c": 5}),
        ({"a": 5.0, "b": 5.6, "c": 5.4}, {"b": 8, "c": 8}, {"b": 2, "c": 3}, {"a": 5}),
        ({"a": 5.0, "b": 5.0, "c": 5.0}, {"a": 6, "b": 6, "c": 6}, {}, {}),
    ],
)
def test_zones_give_what_others_lack(
    desired: dict[str, float], given: dict[str, int], giving: dict[str, int], receiving: dict[str, int]
) -> None:
    assert exchange({zone: Share(0, each) for zone, each in desired.items()}, given) == (giving, receiving)


@pytest.mark.parametrize(
    ("endpoints", "most", "given", "found"),
    [
        ([], {}, {}, {}),
        ([endpoint("a", "a")], {"a": 3}, {"a": 1}, {"a": 1}),
        ([endpoint("a", "a"), endpoint("a", "a", False), endpoint("a", "a", None)], {"a": 3}, {"a": 1}, {"a": 1}),
        ([endpoint("a", "a"), endpoint("a", "b"), endpoint("b", "b")], dict.fromkeys("abc", 3), {"a": 1, "b": 1},
         {"a": 1, "b": 2}),
        ([endpoint("a", "elsewhere")], {"a": 3}, {"a": 1}, None),
        ([endpoint("a")], {"a": 3}, {}, None),
        ([endpoint("a", "a"), endpoint("a", "a")], {"a": 2}, {"a": 1}, None),
    ],
)  # fmt: skip
def test_a_slice_stays_where_its_hints_leave_room_for_others(
    endpoints: list[Any], most: dict[str, int], given: dict[str, int], found: dict[str, int] | None
) -> None:
    assert standing(endpoints, given, {zone: Share(0, 0, each) for zone, each in most.items()}) == found


def test_hints_go_to_the_zones_that_lack_endpoints() -> None:
    slices = [[endpoint("b"), endpoint("b", ready=False)], [endpoint("b"), endpoint("b")]]
    given = Counter(a=1)
    assert spread(slices, given, {"a": Share(0, 2.4), "b": Share(0, 1.6)})
    assert given == {"a": 2, "b": 2}
    hints = [[(each.get("hints") or {}).get("forZones") for each in endpoints] for endpoints in slices]
    assert hints == [[[{"name": "a"}], None], [[{"name": "b"}], [{"name": "b"}]]]
    assert not spread([[endpoint()]], Counter(), {"a": Share(0, 1.0)})
