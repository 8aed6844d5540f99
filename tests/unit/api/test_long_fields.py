"""Thousands of labels, values or amounts take few steps of Python each, or none: counted in lines."""

from __future__ import annotations

from typing import Any

import pytest
from turns import lines_of

from minikube_py.api.defaults_pod import default_resource_list
from minikube_py.api.errors import StatusError
from minikube_py.api.label_selectors import selector_of
from minikube_py.api.meta import is_label_value
from minikube_py.api.schema import SCHEMA
from minikube_py.api.typed import Undecided, checker
from minikube_py.controllers.slices import port_key
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.objects import project_node
from minikube_py.scheduler.selector_terms import term_errors

COUNT = 900
LABELS = {f"key-{number}": f"v{number}" for number in range(COUNT)}
AMOUNTS = {f"x.io/r{number}": str(number) for number in range(COUNT)}
PORTS = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(COUNT)]


def node(amounts: dict[str, str], version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": "n", "resourceVersion": version}, "status": {"allocatable": dict(amounts)}}


def test_selectors_and_terms() -> None:
    is_label_value("a")
    assert lines_of(lambda: selector_of({"matchLabels": LABELS})) < 4 * COUNT
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": list(LABELS.values())}]}
    assert lines_of(lambda: term_errors(term, "")) < 100


def test_amounts_of_a_node() -> None:
    default_resource_list(dict(AMOUNTS))
    known = dict(AMOUNTS)
    assert lines_of(lambda: default_resource_list(known)) < 100
    assert known == AMOUNTS
    node = SCHEMA.kind("", "v1", "Node")
    assert node is not None
    check = checker(node)
    for _ in range(2):
        count = lines_of(lambda: check({"status": {"capacity": known}}))
    assert count < COUNT and known == AMOUNTS
    odd: dict[str, Any] = {"a": "1", "b": "1000m", "c": 5}
    check({"status": {"capacity": odd}})
    assert odd == {"a": "1", "b": "1", "c": "5"}
    for wrong in ([], {}, 1.5, None):
        with pytest.raises(Undecided):
            check({"status": {"capacity": {"a": "1", "b": wrong}}})


def test_an_amount_that_is_none_is_refused_as_before() -> None:
    amounts: dict[str, Any] = {"a": "1.5", "b": 2, "c": "1000m"}
    default_resource_list(amounts)
    assert amounts == {"a": "1500m", "b": "2", "c": "1"}
    for wrong in ("x", "1 2", "--1"):
        with pytest.raises(StatusError, match="unable to decode"):
            default_resource_list({"a": "1", "b": wrong})


def test_a_node_whose_amounts_stay_costs_nothing_for_them() -> None:
    columns = NodeColumns()
    kept = columns.put_node(project_node(node(AMOUNTS)))
    assert lines_of(lambda: columns.put_node(project_node(node(AMOUNTS, "2")))) < 200
    assert kept.allocatable == {name: int(amount) for name, amount in AMOUNTS.items()}
    fewer = dict(list(AMOUNTS.items())[1:]) | {"x.io/r5": "77"}
    columns.put_node(project_node(node(fewer)))
    assert "x.io/r0" not in columns._allocatable and columns.allocatable_row("x.io/r5")[kept.slot] == 77
    columns.put_node(project_node({**node(AMOUNTS), "metadata": {"name": "other"}}))
    columns.remove_node("n")
    assert columns.allocatable_row("x.io/r5")[kept.slot] == 0
    assert columns.allocatable_row("x.io/r5").sum() == 5
    columns.remove_node("other")
    assert "x.io/r5" not in columns._allocatable and "x.io/r5" not in columns._nodes_with


def test_ports_of_a_service() -> None:
    assert lines_of(lambda: port_key(PORTS)) < 5 * COUNT
    assert port_key([{"name": "b", "port": 1}, {"name": "a", "port": 2}]) == (
        ("a", "2", "None", "None"), ("b", "1", "None", "None"),
    )  # fmt: skip
