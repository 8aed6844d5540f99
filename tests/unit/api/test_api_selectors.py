"""Selectors: what upstream selects and refuses (recorded), and comparisons on declared fields."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from minikube_py.api import registry
from minikube_py.api.errors import StatusError
from minikube_py.api.kinds import core
from minikube_py.api.selectors import (
    field_attributes,
    parse_field_selector,
    parse_label_selector,
    selector_from_map,
)
from minikube_py.fields.where import Comparison

DATA = pathlib.Path(__file__).parents[2] / "conformance" / "data" / "selectors.json"
RECORDED: dict[str, Any] = json.loads(DATA.read_text())
PODS: dict[str, Any] = RECORDED["pods"]
BY_PLURAL = {resource.plural: resource for resource in reversed(registry.REGISTRY.kinds)}



@pytest.mark.parametrize("text", RECORDED["labels"], ids=repr)
def test_label_selector_selects_as_the_original_does(text: str) -> None:
    recorded = RECORDED["labels"][text]
    if recorded["code"] != 200:
        with pytest.raises(StatusError) as refused:
            parse_label_selector(text)
        assert (refused.value.code, refused.value.message) == (recorded["code"], recorded["message"])
        return
    selector = parse_label_selector(text)
    labels = {name: pod["metadata"].get("labels") for name, pod in sorted(PODS.items())}
    assert [name for name in labels if selector.matches(labels[name])] == recorded["names"]


@pytest.mark.parametrize("case", RECORDED["fields"], ids=repr)
def test_field_selector_selects_as_the_original_does(case: str) -> None:
    recorded = RECORDED["fields"][case]
    plural, _, text = case.partition(" ")
    resource = BY_PLURAL[plural]
    if recorded["code"] != 200:
        with pytest.raises(StatusError) as refused:
            parse_field_selector(resource, text)
        assert (refused.value.code, refused.value.message) == (recorded["code"], recorded["message"])
        return
    selector = parse_field_selector(resource, text)
    assert not selector.where
    if plural == "pods":
        by_object = [name for name, pod in sorted(PODS.items()) if selector.matches(pod)]
        by_attributes = [
            name
            for name, pod in sorted(PODS.items())
            if selector.matches_attributes(field_attributes(resource, pod))
        ]
        assert by_object == by_attributes == recorded["names"]


def comparison(field: str, op: Any = "exists", *values: str) -> Comparison:
    return Comparison(field, op, values)


EXTENSIONS = [
    ("free.cpu>=4", [comparison("free.cpu", ">=", "4")]),
    ("free.cpu>4", [comparison("free.cpu", ">", "4")]),
    ("free.cpu<=500m", [comparison("free.cpu", "<=", "500m")]),
    ("free.cpu<4", [comparison("free.cpu", "<", "4")]),
    ("free.cpu=4", [comparison("free.cpu", "=", "4")]),
    ("free.cpu==4", [comparison("free.cpu", "=", "4")]),
    ("free.cpu!=4", [comparison("free.cpu", "!=", "4")]),
    ("free.cpu", [comparison("free.cpu")]),
    ("free.cpu in (1,2)", [comparison("free.cpu", "in", "1", "2")]),
    ("free.cpu in ( 1 , 2 )", [comparison("free.cpu", "in", "1", "2")]),
    ("free.nvidia.com/gpu>=1", [comparison("free.nvidia.com/gpu", ">=", "1")]),
    ("free.cpu >= 4", [comparison("free.cpu", ">=", "4")]),
    (
        "free.cpu>=4,free.memory>=16Gi",
        [comparison("free.cpu", ">=", "4"), comparison("free.memory", ">=", "16Gi")],
    ),
    (
        "free.cpu in (1,2), free.memory",
        [comparison("free.cpu", "in", "1", "2"), comparison("free.memory")],
    ),
    ("allocatable.pods<110", [comparison("allocatable.pods", "<", "110")]),
    ("spec.unschedulable in (true)", [comparison("spec.unschedulable", "in", "true")]),
]


@pytest.mark.parametrize(("text", "comparisons"), EXTENSIONS, ids=[text for text, _ in EXTENSIONS])
def test_declared_fields_take_comparisons(text: str, comparisons: list[Comparison]) -> None:
    selector = parse_field_selector(core.NODES, text)
    assert list(selector.where.comparisons) == comparisons
    assert selector.requirements == ()
    assert selector.matches({"metadata": {"name": "x"}})


def test_both_grammars_mix() -> None:
    selector = parse_field_selector(core.NODES, "metadata.name=x,free.cpu>4,spec.unschedulable!=true")
    assert str(selector.where) == "free.cpu>4"
    assert [str(r) for r in selector.requirements] == ["metadata.name=x", "spec.unschedulable!=true"]
    assert selector.exact("metadata.name") == "x"
    assert str(selector.indexed) == "free.cpu>4,metadata.name=x,spec.unschedulable!=true"


def test_a_cluster_scoped_kind_without_labels_of_its_own_has_an_empty_namespace() -> None:
    kind, one = BY_PLURAL["storageclasses"], {"metadata": {"name": "one"}}
    for text, selected in (("metadata.namespace=x", False), ("metadata.namespace!=x", True)):
        assert parse_field_selector(kind, text).matches(one) is selected, text
    with pytest.raises(StatusError, match="is not a known field selector: only "):
        parse_field_selector(kind, "spec.bogus=1")


def test_an_empty_value_is_left_to_the_server_as_it_equals_a_missing_field() -> None:
    assert not parse_field_selector(core.NODES, "metadata.name=").indexed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("free.cpu>=x", "invalid field selector: free.cpu: \"x\": quantities must match the regular expression "
                        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("free.cpu>", "invalid field selector: free.cpu: \"\": quantities must match the regular expression "
                      "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("free.cpu in (1", "invalid selector: 'free.cpu in (1'; can't understand 'free.cpu in (1'"),
        ("free.cpu in (1) x", "invalid selector: 'free.cpu in (1) x'; can't understand 'free.cpu in (1) x'"),
        ("free.>=4", "field label not supported: free.>"),
        ("freecpu>=4", "field label not supported: freecpu>"),
        ("hash.spec.nodeName>1", "invalid selector: 'hash.spec.nodeName>1'; can't understand 'hash.spec.nodeName>1'"),
    ],
)  # fmt: skip
def test_what_is_not_declared_or_not_readable_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_field_selector(core.NODES, text)
    assert (refused.value.code, refused.value.message) == (400, message)


def test_integers_are_checked_by_their_kind() -> None:
    selector = parse_field_selector(core.PODS, "hash.spec.nodeName>=0,hash.spec.nodeName<2147483648")
    assert len(selector.where.comparisons) == 2
    with pytest.raises(StatusError, match="must be a 64-bit integer"):
        parse_field_selector(core.PODS, "hash.spec.nodeName>=1.5")


def test_too_many_terms_are_refused_with_the_limit() -> None:
    with pytest.raises(StatusError, match="limit 1000"):
        parse_field_selector(core.PODS, ",".join(["metadata.name=x"] * 1001))
    with pytest.raises(StatusError, match="limit 1000"):
        parse_label_selector(",".join(["a"] * 1001))


def test_selector_from_map_is_sorted_and_matches_supersets() -> None:
    selector = selector_from_map({"b": "2", "a": "1"})
    assert str(selector) == "a=1,b=2"
    assert selector.matches({"a": "1", "b": "2", "c": "3"})
    assert not selector.matches({"a": "1"})
    assert not selector.matches(None)
    assert selector_from_map(None).matches(None)
