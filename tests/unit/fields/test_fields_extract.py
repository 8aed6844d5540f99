"""Paths, pod requests, extractors, rows and where: tables of worked cases."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from minikube_py.errors import InvalidRequest
from minikube_py.fields import extract
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.evaluate import Reader, row_of, where_of
from minikube_py.fields.paths import parse_path, read
from minikube_py.fields.pod_requests import pod_requests
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import Comparison, Where, compile_where
from minikube_py.sim import edges

OBJECT = {"metadata": {"labels": {"topology.kubernetes.io/zone": "z", "a": "b"}}, "items": [{"name": "x"}, 2]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.labels.a", "b"),
        (".metadata.labels.a", "b"),
        (r"metadata.labels.topology\.kubernetes\.io/zone", "z"),
        ('metadata.labels["topology.kubernetes.io/zone"]', "z"),
        ("metadata.labels['a']", "b"),
        ("items[0].name", "x"),
        ("items[1]", 2),
        ("items[7].name", None),
        ("items.name", None),
        ("metadata[0]", None),
        ("no.such", None),
    ],
)
def test_paths(path: str, value: Any) -> None:
    assert read(OBJECT, parse_path(path)) == value


@pytest.mark.parametrize("path", ["", ".", "a..b", "a.", "a[", "a[x]", 'a["b]', "a[]", "a" * 2000])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_path(path)


def container(restart: str | None = None, **requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}} | ({} if restart is None else {"restartPolicy": restart})


POD_REQUESTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "containers add up": (
        {"containers": [container(cpu="100m"), container(cpu="1", memory="1Ki")]},
        {"cpu": 1100, "memory": 1024},
    ),
    "an init container raises": (
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="3", memory="5"), container(cpu="2")]},
        {"cpu": 3000, "memory": 5},
    ),
    "a smaller init container does not": (
        {"containers": [container(cpu="2")], "initContainers": [container(cpu="1")]},
        {"cpu": 2000},
    ),
    "sidecars add": (
        {"containers": [container(cpu="1")], "initContainers": [container("Always", cpu="500m")]},
        {"cpu": 1500},
    ),
    "an init container runs beside the sidecars before it": (
        {
            "containers": [container(cpu="1")],
            "initContainers": [container("Always", cpu="1"), container(cpu="3"), container("Always", cpu="1")],
        },
        {"cpu": 4000},
    ),
    "overhead is added": (
        {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "1"}},
        {"cpu": 1250, "memory": 1},
    ),
    "pod-level requests take the place": (
        {"containers": [container(cpu="1", memory="2")], "resources": {"requests": {"cpu": "3", "x.io/y": "9"}}},
        {"cpu": 3000, "memory": 2},
    ),
    "rounded up once": ({"containers": [container(cpu="0.1m")] * 15}, {"cpu": 2}),
    "extended": ({"containers": [container(**{"openb.io/gpu-milli": "500"})]}, {"openb.io/gpu-milli": 500}),
    "nothing asked": ({"containers": [{"name": "c"}]}, {}),
    "no containers": ({}, {}),
}


@pytest.mark.parametrize("name", POD_REQUESTS)
def test_pod_requests(name: str) -> None:
    spec, expected = POD_REQUESTS[name]
    assert pod_requests({"spec": spec}) == expected | {"pods": 1}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_ask_for_nothing(phase: str) -> None:
    assert pod_requests({"spec": {"containers": [container(cpu="1")]}, "status": {"phase": phase}}) == {}


def test_a_pods_row() -> None:
    pod = {"spec": {"nodeName": "n1", "containers": [container(cpu="1")]}}
    assert row_of(PODS, pod) == {"hash.spec.nodeName": zlib.crc32(b"n1"), "requests.cpu": 1000, "requests.pods": 1}
    assert row_of(PODS, {"spec": {"nodeName": ""}}) == {"requests.pods": 1}


def test_a_nodes_row_is_allocatable_less_the_sum() -> None:
    reader = Reader(NODES)
    own = reader.own({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "bad", "pods": 110}}})
    assert reader.row(own, {"requested.*": {"cpu": 1500, "memory": 7}}) == {
        "free.cpu": 2500,
        "free.pods": 110,
        "allocatable.cpu": 4000,
        "allocatable.pods": 110,
        "requested.cpu": 1500,
        "requested.pods": 0,
        "spec.unschedulable": "false",
        "metadata.name": "n",
    }


@pytest.mark.parametrize(
    "junk", [None, 3, [], "x", {"spec": 1, "status": []}, {"status": {"allocatable": {"cpu": []}}}], ids=repr
)
def test_no_object_is_unreadable(junk: Any) -> None:
    for field_set in (NODES, PODS):
        assert set(row_of(field_set, junk)) <= {"spec.unschedulable", "requests.pods"}


ROW = {"free.cpu": 4000, "free.memory": 1 << 34, "spec.unschedulable": "false"}


@pytest.mark.parametrize(
    ("field", "op", "values", "truth"),
    [
        ("free.cpu", ">=", ["4"], True),
        ("free.cpu", ">", ["4"], False),
        ("free.cpu", ">", ["3999m"], True),
        ("free.cpu", "<", ["4.001"], True),
        ("free.cpu", "<=", ["3999m"], False),
        ("free.memory", "=", ["16Gi"], True),
        ("free.memory", "in", ["1", "16384Mi"], True),
        ("free.memory", "in", ["1"], False),
        ("free.memory", "exists", [], True),
        ("free.gpu", "exists", [], False),
        ("free.gpu", "<", ["1"], False),
        ("free.gpu", "<=", ["1"], False),
        ("free.gpu", ">=", ["-1"], False),
        ("free.gpu", "=", ["0"], False),
        ("free.gpu", "!=", ["0"], True),
        ("spec.unschedulable", "=", ["false"], True),
        ("spec.unschedulable", ">", ["fal"], True),
        ("spec.unschedulable", "<", ["a"], False),
    ],
)
def test_where(field: str, op: Any, values: list[str], truth: bool) -> None:
    assert compile_where(NODES, Where((Comparison(field, op, tuple(values)),))).matches(ROW) is truth


@pytest.mark.parametrize(
    ("comparison", "message"),
    [
        (Comparison("nope", "=", ("1",)), "field 'nope' is not declared on nodes"),
        (Comparison("free.", "=", ("1",)), "field 'free.' is not declared on nodes"),
        (
            Comparison("free.cpu", "=", ("4x",)),
            "unable to parse '4x' as a quantity for field free.cpu: quantities must match",
        ),
        (Comparison("free.cpu", "=", ("1e40",)), "unable to parse '1e40' as a quantity for field free.cpu"),
        (Comparison("free.cpu", "=", ()), "operator '=' of field free.cpu was given 0 values"),
        (Comparison("free.cpu", "in", ()), "operator 'in' of field free.cpu was given 0 values"),
        (Comparison("free.cpu", "exists", ("1",)), "operator 'exists' of field free.cpu was given 1 values"),
        (Comparison("free.cpu", "~", ("1",)), "unknown operator '~' for field free.cpu"),  # type: ignore[arg-type]
    ],
)
def test_a_where_that_cannot_be_read(comparison: Comparison, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compile_where(NODES, Where((comparison,)))
    assert str(refused.value).startswith(message)


def test_the_watch_cache_is_told_what_only_the_store_knows() -> None:
    assert where_of(PODS, Where((Comparison("requests.cpu", ">", ("1",)),)))({"requests.cpu": 2000})
    for field in ("free.cpu", "requested.cpu"):
        with pytest.raises(InvalidRequest, match="only the store"):
            where_of(NODES, Where((Comparison(field, ">", ("1",)),)))


def declared(*fields: FieldSpec, sums: tuple[SumSpec, ...] = ()) -> FieldSet:
    return FieldSet("x", b"/x/", fields, sums)


@pytest.mark.parametrize(
    "field_set",
    [
        declared(FieldSpec("a", "int", "nope@1", {"path": "a"})),
        declared(FieldSpec("a", "int", "path@1")),
        declared(FieldSpec("a", "int", "path@1", {"path": "a..b"})),
        declared(FieldSpec("a", "int", "path@1", {"path": "a", "other": "b"})),
        declared(FieldSpec("a.*", "int", "path@1", {"path": "a"})),
        declared(FieldSpec("a.*", "int", "resources@1", {"path": "a"})),
        declared(FieldSpec("a", "quantity", "resources@1", {"path": "a"})),
        declared(FieldSpec("a", "quantity", "path@1", {"path": "a"}, minus="no sum")),
        declared(FieldSpec("a", "string", "hash32@1", {"path": "a"})),
        declared(FieldSpec("a", "int", "path@1", {"path": "a"}), FieldSpec("a", "int", "path@1", {"path": "b"})),
        declared(sums=(SumSpec("s.*", b"", "a", "pod_requests@1"),)),
        declared(sums=(SumSpec("s.*", b"/y/", "", "pod_requests@1"),)),
        FieldSet("", b"/x/", ()),
        FieldSet("x", b"", ()),
    ],
)
def test_declarations_that_are_not_sound(field_set: FieldSet) -> None:
    with pytest.raises(InvalidRequest):
        Reader(field_set)


def test_pods_of_one_shape_share_the_reading_but_not_the_answer() -> None:
    pod = {"spec": {"containers": [container(cpu="1")]}}
    first = pod_requests(pod)
    first["cpu"] = 7
    assert pod_requests(pod) == {"cpu": 1000, "pods": 1}
    assert pod_requests({"spec": {"containers": [container(cpu="1")], "overhead": {"cpu": "1"}}}) == {
        "cpu": 2000,
        "pods": 1,
    }


ODD_VALUES = (*edges.EDGE_QUANTITIES, *edges.NO_QUANTITIES, *edges.EDGE_TEXTS, *edges.EDGE_INTS)


@pytest.mark.parametrize("version", ["path@1", "path@2", "resources@1", "resources@2"])
def test_no_value_costs_a_row_its_other_fields(version: str) -> None:
    """A reader that raises would leave the whole object without a row."""
    for odd in ODD_VALUES:
        for resource in ("cpu", "memory"):
            if version.startswith("path"):
                for kind in ("quantity", "int", "string", "time"):
                    read = extract.scalar(version, {"path": "odd", "resource": resource}, kind)
                    assert isinstance(read({"odd": odd}), int | str | None)
            else:
                listed = extract.family(version, {"path": "odd"})({"odd": {resource: odd, "pods": "3"}})
                assert listed["pods"] == 3 and all(isinstance(each, int) for each in listed.values())
