"""Taints, cordons, affinity, names and ports: tables of cases, each asked in both forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scheduler_objects import expression, node, pod, preferred, required

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import Code, CycleState, Normalize
from minikube_py.scheduler.plugins.node_affinity import NodeAffinity, NodeName
from minikube_py.scheduler.plugins.node_ports import NodePorts
from minikube_py.scheduler.plugins.taint_toleration import NodeUnschedulable, TaintToleration
from minikube_py.scheduler.pod_terms import label_as_int

STATE = CycleState()


def both_forms(plugin: Any, incoming: Any, columns: NodeColumns) -> list[bool]:
    """By node, whether it passes; fails where the two forms disagree."""
    one = [plugin.filter(STATE, incoming, info) is None for info in columns.by_slot]
    mask = plugin.filter_nodes(STATE, incoming, columns.all())
    assert (mask.tolist() if mask is not None else [True] * len(one)) == one
    return one


def one_node(**more: Any) -> NodeColumns:
    columns = NodeColumns()
    columns.put_node(node("n", **more))
    return columns


def tolerates(**toleration: str) -> dict[str, Any]:
    return {"tolerations": [toleration]}


TAINTS = [
    ("no taint", (), {}, True),
    ("untolerated", ("k=v:NoSchedule",), {}, False),
    ("NoExecute counts too", ("k=v:NoExecute",), {}, False),
    ("PreferNoSchedule does not", ("k=v:PreferNoSchedule",), {}, True),
    ("equal value", ("k=v:NoSchedule",), tolerates(key="k", value="v", effect="NoSchedule"), True),
    ("other value", ("k=v:NoSchedule",), tolerates(key="k", value="w", effect="NoSchedule"), False),
    ("exists", ("k=v:NoSchedule",), tolerates(key="k", operator="Exists"), True),
    ("other effect", ("k=v:NoSchedule",), tolerates(key="k", operator="Exists", effect="NoExecute"), False),
    ("everything", ("k=v:NoSchedule", "l:NoExecute"), tolerates(operator="Exists"), True),
    ("one of two", ("k=v:NoSchedule", "l:NoExecute"), tolerates(key="k", operator="Exists"), False),
    ("no operator is Equal", ("k:NoSchedule",), tolerates(key="k"), True),
    ("Gt stands behind a gate", ("k=5:NoSchedule",), tolerates(key="k", operator="Gt", value="3"), False),
]


@pytest.mark.parametrize(("name", "taints", "spec", "passes"), TAINTS, ids=[case[0] for case in TAINTS])
def test_taints(name: str, taints: tuple[str, ...], spec: dict[str, Any], passes: bool) -> None:
    assert both_forms(TaintToleration(), pod(**spec), one_node(taints=taints)) == [passes]


def test_taint_scores_count_what_is_not_tolerated() -> None:
    columns = NodeColumns()
    both = ("k:PreferNoSchedule", "l:PreferNoSchedule")
    for name, taints in (("a", ()), ("b", both[:1]), ("c", both)):
        columns.put_node(node(name, taints=taints))
    plugin, incoming = TaintToleration(), pod(tolerations=[{"key": "l", "operator": "Exists", "effect": "NoSchedule"}])
    scores = plugin.score_nodes(STATE, incoming, columns.all())
    assert scores is not None and scores.tolist() == [0, 1, 2]
    assert [plugin.score(STATE, incoming, info) for info in columns.by_slot if info] == [0, 1, 2]
    assert plugin.normalize.apply(scores).tolist() == [100, 50, 0]


def test_a_new_taint_is_seen_by_specs_already_judged() -> None:
    columns, plugin, incoming = one_node(), TaintToleration(), pod("late")
    assert both_forms(plugin, incoming, columns) == [True]
    columns.put_node(node("n", taints=("k:NoSchedule",)))
    assert both_forms(plugin, incoming, columns) == [False]


CORDONS = [
    ("open", False, {}, True),
    ("cordoned", True, {}, False),
    ("tolerated", True, tolerates(key="node.kubernetes.io/unschedulable", operator="Exists"), True),
    ("tolerated for execution only", True, tolerates(operator="Exists", effect="NoExecute"), False),
]


@pytest.mark.parametrize(("name", "cordoned", "spec", "passes"), CORDONS, ids=[case[0] for case in CORDONS])
def test_cordon(name: str, cordoned: bool, spec: dict[str, Any], passes: bool) -> None:
    assert both_forms(NodeUnschedulable(), pod(**spec), one_node(unschedulable=cordoned)) == [passes]


LABELS = {"zone": "a", "gpu": "8", "big": "9223372036854775807", "word": "x"}


def expressions(*found: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": required({"matchExpressions": list(found)})}


AFFINITY = [
    ("selector matches", {"nodeSelector": {"zone": "a"}}, True),
    ("selector differs", {"nodeSelector": {"zone": "b"}}, False),
    ("selector wants all", {"nodeSelector": {"zone": "a", "gpu": "9"}}, False),
    ("In", expressions(expression("zone", "In", "b", "a")), True),
    ("In without the label", expressions(expression("none", "In", "a")), False),
    ("NotIn", expressions(expression("zone", "NotIn", "a")), False),
    ("NotIn without the label", expressions(expression("none", "NotIn", "a")), True),
    ("Exists", expressions(expression("zone", "Exists")), True),
    ("DoesNotExist", expressions(expression("zone", "DoesNotExist")), False),
    ("DoesNotExist without the label", expressions(expression("none", "DoesNotExist")), True),
    ("Gt", expressions(expression("gpu", "Gt", "7")), True),
    ("Gt is strict", expressions(expression("gpu", "Gt", "8")), False),
    ("Lt", expressions(expression("gpu", "Lt", "9")), True),
    ("Lt is strict", expressions(expression("gpu", "Lt", "8")), False),
    ("Gt compares numbers, not text", expressions(expression("gpu", "Lt", "10")), True),
    ("Gt at the edge of int64", expressions(expression("big", "Gt", "9223372036854775806")), True),
    ("Gt with an unreadable label", expressions(expression("word", "Gt", "1")), False),
    ("Lt with an unreadable label", expressions(expression("word", "Lt", "1")), False),
    ("Gt without the label", expressions(expression("none", "Gt", "1")), False),
    ("Gt with an unreadable bound", expressions(expression("gpu", "Gt", "x")), False),
    ("Gt with two bounds", expressions(expression("gpu", "Gt", "1", "2")), False),
    ("all expressions of a term", expressions(expression("zone", "In", "a"), expression("gpu", "Gt", "9")), False),
    (
        "any term",
        {
            "affinity": required(
                {"matchExpressions": [expression("zone", "In", "b")]},
                {"matchExpressions": [expression("gpu", "Gt", "1")]},
            )
        },
        True,
    ),
    ("an empty term matches nothing", {"affinity": required({})}, False),
    ("no terms match nothing", {"affinity": required()}, False),
    ("field", {"affinity": required({"matchFields": [expression("metadata.name", "In", "n")]})}, True),
    ("other field value", {"affinity": required({"matchFields": [expression("metadata.name", "NotIn", "n")]})}, False),
    (
        "field with two values",
        {"affinity": required({"matchFields": [expression("metadata.name", "In", "n", "m")]})},
        False,
    ),
    ("selector and affinity", {"nodeSelector": {"zone": "b"}, **expressions(expression("gpu", "Exists"))}, False),
]


@pytest.mark.parametrize(("name", "spec", "passes"), AFFINITY, ids=[case[0] for case in AFFINITY])
def test_affinity(name: str, spec: dict[str, Any], passes: bool) -> None:
    columns = one_node(labels=LABELS)
    # Masks of labels must not depend on when they were first asked for.
    assert both_forms(NodeAffinity(), pod(**spec), columns) == [passes]
    columns.put_node(node("n"))
    columns.put_node(node("n", labels=LABELS))
    assert both_forms(NodeAffinity(), pod(**spec), columns) == [passes]


PINNED = [
    ("one name", required({"matchFields": [expression("metadata.name", "In", "n")]}), frozenset("n"), None),
    (
        "names of terms add up",
        required(*({"matchFields": [expression("metadata.name", "In", name)]} for name in "nm")),
        frozenset("nm"),
        None,
    ),
    (
        "names within a term must agree",
        required({"matchFields": [expression("metadata.name", "In", "n"), expression("metadata.name", "In", "m")]}),
        None,
        "pod affinity terms conflict",
    ),
    (
        "a term without a name frees all",
        required(
            {"matchFields": [expression("metadata.name", "In", "n")]}, {"matchExpressions": [expression("a", "Exists")]}
        ),
        None,
        None,
    ),
]


@pytest.mark.parametrize(("name", "affinity", "names", "rejection"), PINNED, ids=[case[0] for case in PINNED])
def test_pre_filter(name: str, affinity: dict[str, Any], names: frozenset[str] | None, rejection: str | None) -> None:
    result, status = NodeAffinity().pre_filter(STATE, pod(affinity=affinity), NodeColumns())
    assert (result.node_names if result is not None else None) == names
    assert (status.message if status is not None else None) == rejection


def test_pre_filter_skips_pods_without_wishes() -> None:
    _, status = NodeAffinity().pre_filter(STATE, pod(), NodeColumns())
    assert status is not None and status.code is Code.SKIP


def test_preferred_terms_add_their_weights() -> None:
    columns = NodeColumns()
    for name, labels in (("a", {"zone": "a"}), ("b", {"zone": "b", "ssd": "y"}), ("c", {})):
        columns.put_node(node(name, labels=labels))
    wishes = preferred(
        (30, {"matchExpressions": [expression("zone", "In", "a", "b")]}),
        (50, {"matchExpressions": [expression("ssd", "Exists")]}),
        (90, {}),
    )
    plugin, incoming = NodeAffinity(), pod(affinity=wishes)
    scores = plugin.score_nodes(STATE, incoming, columns.all())
    assert scores is not None and scores.tolist() == [30, 80, 0]
    assert [plugin.score(STATE, incoming, info) for info in columns.by_slot if info] == [30, 80, 0]
    assert plugin.normalize.apply(scores).tolist() == [37, 100, 0]


def test_added_affinity_binds_every_pod() -> None:
    terms = [{"matchExpressions": [expression("pool", "In", "x")]}]
    plugin = NodeAffinity(
        {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    )
    columns = one_node(labels={"pool": "y"})
    assert both_forms(plugin, pod(), columns) == [False]
    status = plugin.filter(STATE, pod(), columns.by_name["n"])
    assert status is not None and status.message == "node(s) didn't match scheduler-enforced node affinity"
    codes, meaning = plugin.reject_codes(STATE, pod(), columns.all())
    assert meaning(codes.tolist()[0]) == status


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("-3", -3), ("+4", 4), ("007", 7), ("", None), ("1.5", None), ("1_0", None), (" 1", None), ("٣", None),
     ("9223372036854775808", None), ("-9223372036854775808", -(1 << 63)), (None, None)],
)  # fmt: skip
def test_label_as_int(text: str | None, value: int | None) -> None:
    assert label_as_int(text) == value


def test_node_name() -> None:
    columns = one_node()
    pinned = pod(nodeName="n")
    assert both_forms(NodeName(), pinned, columns) == [True]
    assert both_forms(NodeName(), pod(nodeName="m"), columns) == [False]


def port(number: int, ip: str = "", protocol: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"hostPort": number}
    if ip:
        found["hostIP"] = ip
    if protocol:
        found["protocol"] = protocol
    return found


PORTS = [
    ("free", [port(80)], [port(81)], True),
    ("taken", [port(80)], [port(80)], False),
    ("other protocol", [port(80)], [port(80, protocol="UDP")], True),
    ("other address", [port(80, "10.0.0.1")], [port(80, "10.0.0.2")], True),
    ("any address takes all", [port(80)], [port(80, "10.0.0.2")], False),
    ("all take any address", [port(80, "10.0.0.1")], [port(80, "0.0.0.0")], False),
    ("one of several", [port(80), port(443)], [port(22), port(443)], False),
]


@pytest.mark.parametrize(("name", "used", "wanted", "passes"), PORTS, ids=[case[0] for case in PORTS])
def test_ports(name: str, used: list[dict[str, Any]], wanted: list[dict[str, Any]], passes: bool) -> None:
    columns = one_node()
    running = pod("running", container={"ports": used})
    columns.add_pod(running, "n")
    incoming = pod("incoming", container={"ports": wanted})
    assert both_forms(NodePorts(), incoming, columns) == [passes]
    columns.remove_pod(running, "n")
    assert both_forms(NodePorts(), incoming, columns) == [True]


@pytest.mark.parametrize(
    ("reverse", "scores", "expected"),
    [(False, [0, 0], [0, 0]), (True, [0, 0], [100, 100]), (False, [1, 3], [33, 100]), (True, [1, 3], [67, 0])],
)
def test_normalize(reverse: bool, scores: list[int], expected: list[int]) -> None:
    normalize = Normalize(reverse)
    assert normalize.apply(np.array(scores, np.int64)).tolist() == expected
    assert [normalize.apply_one(score, max(scores)) for score in scores] == expected
