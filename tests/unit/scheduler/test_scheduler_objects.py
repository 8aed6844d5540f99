"""Projections: what a pod asks for, what a node offers, and that equal specs are one."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_objects import node, pod, pod_object

from minikube_py.fields.resource_requests import resource_requests
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.objects import AMOUNT_MAX, project_node, project_pod

MI = 1 << 20


def container(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    return {"name": "c", "resources": {"requests": requests}, **more}


SIDECAR = {"restartPolicy": "Always"}
REQUESTS = [
    ("containers add up", {"containers": [container("100m", "1Mi"), container("1", "2Mi")]}, 1100, 3 * MI),
    ("an init container needs more", {"containers": [container("1")], "initContainers": [container("3")]}, 3000, 0),
    ("init containers take turns", {"containers": [container("1")], "initContainers": [container("2")] * 3}, 2000, 0),
    ("sidecars stay", {"containers": [container("1")], "initContainers": [container("2", **SIDECAR)]}, 3000, 0),
    (
        "sidecars run beside later init containers",
        {"containers": [container("1")], "initContainers": [container("2", **SIDECAR), container("5")]},
        7000,
        0,
    ),
    (
        "but not beside earlier ones",
        {"containers": [container("1")], "initContainers": [container("5"), container("2", **SIDECAR)]},
        5000,
        0,
    ),
    ("overhead", {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "1Mi"}}, 1250, MI),
    (
        "pod level takes the place of sums",
        {"containers": [container("1", "1Mi")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}},
        5000,
        MI,
    ),
    ("fractions round up", {"containers": [container("0.0001", "1500m")]}, 1, 2),
    ("nothing", {"containers": [{"name": "c"}]}, 0, 0),
]


@pytest.mark.parametrize(("name", "spec", "cpu", "memory"), REQUESTS, ids=[case[0] for case in REQUESTS])
def test_requests(name: str, spec: dict[str, Any], cpu: int, memory: int) -> None:
    found = project_pod({"metadata": {"name": "p"}, "spec": spec}).spec
    assert (found.request("cpu"), found.request("memory")) == (cpu, memory)


def test_a_resize_in_place_counts_before_it_is_in_force() -> None:
    spec = {"containers": [container("1")]}
    states = [{"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}]
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    cases: list[tuple[dict[str, Any], int]] = [
        ({"containerStatuses": [{"name": "c"}]}, 1000),
        ({"containerStatuses": states}, 3000),
        ({"containerStatuses": [{**states[0], "resources": {}}]}, 2000),
        ({"containerStatuses": [{"name": "c", "resources": {}}], "conditions": [pending]}, 0),
        (
            {"containerStatuses": [{"name": "c", "resources": {}}], "conditions": [{**pending, "reason": "Deferred"}]},
            1000,
        ),
    ]
    for status, cpu in cases:
        info = project_pod({"metadata": {"name": "p"}, "spec": spec, "status": status})
        assert info.spec.request("cpu") == cpu, status
        assert pod_requests_2(spec, status).get("cpu", 0) == cpu


def pod_requests_2(spec: dict[str, Any], status: dict[str, Any]) -> dict[str, int]:
    return resource_requests({"metadata": {"name": "p"}, "spec": spec, "status": status})


def test_an_amount_beyond_all_nodes_fits_on_none() -> None:
    huge = project_pod(
        {"metadata": {"name": "p"}, "spec": {"containers": [container("10P", "5Ei"), container("1e99")]}}
    )
    whole = project_node({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "10P", "memory": "1e99"}}})
    assert huge.spec.request("cpu") == huge.spec.request("memory") == AMOUNT_MAX
    assert whole.allocatable == {"cpu": AMOUNT_MAX - 1, "memory": AMOUNT_MAX - 1}


def test_defaults_do_not_add_to_requests_at_pod_level() -> None:
    spec = {"containers": [container(), container()], "resources": {"requests": {"cpu": "1"}}}
    info = project_pod({"metadata": {"name": "p"}, "spec": spec})
    assert (info.spec.nonzero_cpu_milli, info.spec.nonzero_memory_bytes) == (1000, 400 * MI)


def test_defaults_count_once_a_container() -> None:
    info = project_pod({"metadata": {"name": "p"}, "spec": {"containers": [container("1"), container("", "1Mi"), {}]}})
    assert info.spec.nonzero_cpu_milli == 1000 + 100 + 100
    assert info.spec.nonzero_memory_bytes == (200 + 1 + 200) * MI


def test_an_explicit_zero_is_no_default() -> None:
    assert pod(cpu="0", memory="0").spec.nonzero_cpu_milli == 0


@pytest.mark.parametrize(
    ("name", "changed", "same"),
    [
        ("equal", {"cpu": "1"}, True),
        ("other labels", {"cpu": "1", "metadata": {"labels": {"a": "b"}}}, True),
        ("other requests", {"cpu": "2"}, False),
        ("a toleration", {"cpu": "1", "tolerations": [{"operator": "Exists"}]}, False),
        ("a selector", {"cpu": "1", "nodeSelector": {"a": "b"}}, False),
        ("a port", {"cpu": "1", "container": {"ports": [{"hostPort": 80}]}}, False),
        ("an affinity", {"cpu": "1", "affinity": {"nodeAffinity": {"x": [1]}}}, False),
    ],
)
def test_equal_specs_are_one(name: str, changed: dict[str, Any], same: bool) -> None:
    assert (pod("a", cpu="1").spec is pod("b", **changed).spec) is same


def test_projection_of_a_pod() -> None:
    obj = pod_object("p", priority=7, schedulerName="other", metadata={"deletionTimestamp": "x", "generation": 3})
    condition = {"type": "PodScheduled", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "t"}
    obj["status"] = {"phase": "Failed", "conditions": [{"type": "Ready"}, condition], "nominatedNodeName": "n"}
    info = project_pod(obj)
    assert (info.priority, info.scheduler_name, info.deleting, info.finished) == (7, "other", True, True)
    assert (info.generation, info.nominated_node) == (3, "n")
    assert info.scheduled_condition == ("False", "r", "m", "t")


def test_pods_may_precede_their_node_and_outlive_it() -> None:
    columns = NodeColumns()
    running = pod("p", cpu="1", nodeName="n")
    columns.add_pod(running, "n")
    assert columns.count == 0
    columns.put_node(node("n"))
    assert columns.count == 1 and columns.by_name["n"].requested["cpu"] == 1000
    columns.remove_node("n")
    assert columns.count == 0 and "n" in columns.by_name
    columns.put_node(node("n"))
    assert columns.by_name["n"].requested["cpu"] == 1000
    columns.remove_node("n")
    columns.remove_pod(running, "n")
    assert not columns.by_name
    columns.put_node(node("m"))
    assert columns.size == 1 and columns.by_name["m"].slot == 0
    assert int(columns.requested_row("cpu")[0]) == 0


def test_the_informer_confirms_or_corrects_what_was_assumed() -> None:
    cache = Cache()
    for name in ("n1", "n2"):
        cache.put_node(node(name))
    assumed = pod("p", cpu="1")
    cache.assume(assumed, "n1")
    with pytest.raises(ValueError, match="can't be assumed"):
        cache.assume(assumed, "n2")
    assert cache.assumed_node(assumed.uid) == "n1"
    cache.put_pod(pod("p", cpu="1", nodeName="n1", priority=5))
    assert (cache.assumed, len(cache), cache.columns.lowest_priority()) == (0, 1, 5)
    assert not cache.forget(assumed.uid)
    # Bound elsewhere after all, and resized: what was counted before is taken back.
    cache.put_pod(pod("p", cpu="3", nodeName="n2"))
    used = {name: info.requested.get("cpu", 0) for name, info in cache.columns.by_name.items()}
    assert used == {"n1": 0, "n2": 3000} and cache.columns.requested_row("cpu")[:2].tolist() == [0, 3000]
    assert cache.remove_pod(assumed.uid) == "n2" and cache.remove_pod(assumed.uid) == ""


def test_a_forgotten_pod_leaves_nothing_behind() -> None:
    cache = Cache()
    cache.put_node(node("n1"))
    assumed = pod("p", cpu="1", container={"ports": [{"hostPort": 80}]})
    cache.assume(assumed, "n1")
    assert cache.forget(assumed.uid) and not cache.forget(assumed.uid)
    info = cache.columns.by_name["n1"]
    assert (info.requested["pods"], info.ports, list(cache.columns.port_users("TCP", 80))) == (0, {}, [])
    assert info.nonzero_memory_bytes == 0 and len(cache) == cache.assumed == 0


def test_columns_grow() -> None:
    columns = NodeColumns()
    for i in range(200):
        columns.put_node(node(f"n{i}", cpu=str(i + 1), labels={"i": str(i)}, extended={f"x.io/r{i % 3}": "1"}))
    assert columns.count == columns.size == 200
    assert columns.all().allocatable("cpu").tolist() == [(i + 1) * 1000 for i in range(200)]
    assert columns.label_mask("i", "150")[:200].nonzero()[0].tolist() == [150]
    valid, values = columns.label_ints("i")
    assert valid[:200].all() and values[:200].tolist() == list(range(200))
    assert int(columns.allocatable_row("x.io/r1")[:200].sum()) == 67


def test_the_log_forgets_but_never_lies() -> None:
    columns = NodeColumns()
    columns.put_node(node("n"))
    start = columns.version
    columns.put_node(node("m"))
    assert columns.changed_since(start) == [1]
    for i in range(10_000):
        running = pod(f"p{i}")
        columns.add_pod(running, "n")
        columns.remove_pod(running, "n")
    assert columns.changed_since(start) is None
    assert columns.version == start + 20_001
    assert columns.changed_since(columns.version) == []


def test_nothing_is_kept_of_label_keys_and_values_that_no_node_has() -> None:
    """Pods may name any; each would take up to ten bytes of each node, and a pass over all nodes."""
    columns = NodeColumns()
    columns.put_node(node("n", labels={"i": "1", "k0": "2"}))
    for key, value in (("i", "1"), ("k0", "2"), *((f"k{number}", "2") for number in range(1, 1000)), ("i", "9")):
        has = key in ("i", "k0") and value != "9"
        assert columns.label_mask(key, value)[0] == columns.label_ints(key)[0][0] * (value != "9") == has
        assert columns.label_exists(key)[0] == (key in columns.label_keys)
    for kept in (columns._label_values, columns._label_exists, columns._label_ints):
        assert kept.keys() == {"i", "k0"}
    assert columns._label_masks.keys() == {("i", "1"), ("k0", "2")}
    # A key comes, another goes, with its last node, and comes again.
    columns.put_node(node("n", labels={"i": "3", "k5": "5"}))
    assert columns.label_mask("k5", "5")[0] and columns.label_exists("k5")[0] and columns.label_ints("k5")[1][0] == 5
    assert columns.label_mask("i", "3")[0] and not columns.label_mask("i", "1")[0] and not columns.label_exists("k0")[0]
    assert "k0" not in columns._label_values
    columns.put_node(node("m", labels={"k0": "2"}))
    assert columns.label_mask("k0", "2")[:2].tolist() == [False, True] and columns.label_ints("k0")[1][1] == 2
    columns.remove_node("m")
    assert columns.label_keys == {"i": 1, "k5": 1} and not columns.label_mask("k0", "2").any()


def test_resources_that_no_node_has_are_forgotten_with_their_pods() -> None:
    cache = Cache()
    cache.put_node(node("n"))
    columns = cache.columns
    names = [f"x.io/r{number}" for number in range(100)]
    before = dict(columns.by_name["n"].requested)
    for name in names:
        assert columns.free_row(name)[0] == 0
    cache.put_pod(pod("p", nodeName="n", extended=dict.fromkeys(names, "1")))
    for name in "ab":
        cache.put_pod(pod(name, nodeName="n", extended={names[0]: "0"}))
    assert columns.requested_row(names[0])[0] == 1 and columns.free_row(names[0])[0] == -1
    for name in "pab":
        cache.remove_pod(pod(name).uid)
    assert columns.free_row(names[0])[0] == columns.requested_row(names[0])[0] == 0
    held = {*columns._requested, *columns._free, *columns.by_name["n"].requested}
    assert not held & {*names}
    assert columns.by_name["n"].requested["pods"] == before["pods"]


def test_resources_and_taints_of_nodes_are_forgotten_with_their_nodes() -> None:
    """Each resource takes eight bytes of every node, and each set of taints is looked at for every pod."""
    cache = Cache()
    cache.put_node(node("n", extended={"x.io/kept": "2"}, taints=["kept=:NoSchedule"]))
    columns = cache.columns
    for number in range(1000):
        cache.put_node(node("m", extended={f"x.io/r{number}": "3"}, taints=[f"k{number}=:NoSchedule"]))
        cache.put_pod(pod("p", nodeName="m", extended={f"x.io/r{number}": "1"}))
        assert columns.free_row(f"x.io/r{number}")[:2].tolist() == [0, 2]
        sets = columns.taint_sets
        assert [sets[at][0].key for at in columns.taint_class[:2]] == ["kept", f"k{number}"]
        if number % 2:
            cache.remove_node("m")
        cache.remove_pod(pod("p").uid)
    cache.remove_node("m")
    for rows in (columns._allocatable, columns._requested, columns._free):
        assert not any(name.startswith("x.io/r") for name in rows), len(rows)
    assert not any(name.startswith("x.io/r") for name in columns.by_name["n"].requested)
    assert columns.allocatable_row("x.io/kept")[0] == 2
    assert len(columns.taint_sets) == len(columns._taint_ids) < 100
