"""Bounds on packing and compaction, by hand; the page has what was measured."""

from __future__ import annotations

import packing_limits
import pytest
from packing_limits import bound, compacted, patterns, until

from minikube_py.lab.trace import TraceNode
from minikube_py.scheduler.packing.fragmentation import Shape
from minikube_py.studies.packing.arrivals import Arrival


def pod(cpu: int, milli: int, gpus: int = 1, models: tuple[str, ...] = ()) -> Arrival:
    return Arrival(Shape(cpu, milli, gpus, models), 64)


def test_patterns_of_a_device_leave_no_room_for_one_more() -> None:
    assert sorted(patterns([300, 470, 810])) == [(0, 0, 1), (0, 2, 0), (1, 1, 0), (3, 0, 0)]
    assert not list(patterns([]))


def test_a_bound_by_devices_knows_what_sums_do_not() -> None:
    nodes = [TraceNode("a", 8000, 1024, 1, "T4"), TraceNode("b", 8000, 1024, 1, "T4")]
    large, small = pod(1000, 810), pod(1000, 300)
    assert bound(nodes, [large, large, small], "lp") == pytest.approx(96.0)
    # 81 can be reached: a linear program may split a device, a third for one of three shares.
    assert bound(nodes, [large, large, small], "configuration") == pytest.approx(82.5)
    assert bound(nodes, [large, *[small] * 5], "configuration") == pytest.approx(88.5)


@pytest.mark.parametrize("kind", packing_limits.KINDS)
def test_a_bound_knows_cpu_models_and_how_many_devices_a_node_has(kind: str) -> None:
    nodes = [TraceNode("a", 4000, 1024, 1, "T4"), TraceNode("b", 4000, 1024, 1, "A10")]
    assert bound(nodes, [pod(4000, 400)] * 5, kind) == pytest.approx(40.0)
    assert bound(nodes, [pod(1000, 1000, models=("A10",))] * 2, kind) == pytest.approx(50.0)
    assert bound(nodes, [pod(1000, 1000, gpus=2), pod(1, 250)], kind) == pytest.approx(12.5)


def test_a_mark_ends_with_the_arrival_that_rounds_to_it() -> None:
    arrivals = [pod(1, 500)] * 300
    assert [len(until(arrivals, 100_000, mark)) for mark in (100, 130)] == [201, 261]


def test_compaction_removes_nodes_until_the_pods_no_longer_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_limits, "NEAR", 1)
    nodes = [TraceNode(f"n{number}", 8000, 8192, 1, "T4") for number in range(10)]
    halves = [pod(100, 500)] * 9
    pods = {(each.shape, each.memory_mib): 9 for each in halves}
    assert compacted(nodes, pods, halves, "bestfit", 0) == 5
    assert compacted(nodes, pods, [pod(4000, 500)] * 20, "fgd", 1) == 10
    assert compacted(nodes, pods, [pod(4000, 500)] * 21, "fgd", 1) is None


def test_the_page_shows_the_committed_figures() -> None:
    assert packing_limits.main([]) == 0
