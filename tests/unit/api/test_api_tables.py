"""Tables: cells as upstream prints them (recorded), durations, and what a row carries."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import orjson
import pytest

from minikube_py.api import registry, tables
from minikube_py.api.kinds import core
from minikube_py.api.meta import parse_timestamp

DATA = pathlib.Path(__file__).parents[2] / "conformance" / "data" / "tables.json"
RECORDED: dict[str, Any] = json.loads(DATA.read_text())
BY_PLURAL = {resource.plural: resource for resource in reversed(registry.REGISTRY.kinds)}
NOW_S = parse_timestamp("2027-03-01T00:00:00Z")
ROWS = [
    pytest.param(plural, row, id=f"{plural}: {row['object']['metadata']['name']}")
    for plural, recorded in RECORDED.items()
    for row in recorded["rows"]
]


def ageless(cell: Any) -> Any:
    """Ages differ with the time of asking; `3 (2y5d ago)` keeps its count."""
    return re.sub(r"\b(\d+[ydhms])+\b", "AGE", cell) if isinstance(cell, str) else cell


@pytest.mark.parametrize(("plural", "row"), ROWS)
def test_cells_are_the_originals(plural: str, row: dict[str, Any]) -> None:
    found = tables.cells(BY_PLURAL[plural], row["object"], NOW_S)
    assert list(map(ageless, found)) == list(map(ageless, row["cells"]))


@pytest.mark.parametrize(("plural", "row"), ROWS)
def test_rows_carry_the_originals_conditions(plural: str, row: dict[str, Any]) -> None:
    found = tables.TablePrinter(BY_PLURAL[plural], NOW_S, "None").row(row["object"])
    assert found.get("conditions") == row["conditions"]
    assert found["object"] is None


@pytest.mark.parametrize("plural", RECORDED)
def test_columns_are_the_originals(plural: str) -> None:
    found = [[c["name"], c["type"], c["format"], c["priority"]] for c in tables.columns(BY_PLURAL[plural])]
    assert found == RECORDED[plural]["columns"]
    assert all(column["description"] for column in tables.columns(BY_PLURAL[plural]))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"),
        (600, "10m"), (10799, "179m"), (10800, "3h"), (11000, "3h3m"), (28799, "7h59m"), (28800, "8h"),
        (172799, "47h"), (172800, "2d"), (176400, "2d1h"), (691199, "7d23h"), (691200, "8d"), (63071999, "729d"),
        (63072000, "2y"), (63072000 + 86400, "2y1d"), (252287999, "7y364d"), (252288000, "8y"), (1e9, "31y"),
    ],
)  # fmt: skip
def test_human_duration(seconds: float, text: str) -> None:
    assert tables.human_duration(seconds) == text


def test_row_bytes_splices_version_and_keeps_what_is_asked_for() -> None:
    value = b'{"metadata":{"name":"a","uid":"u","creationTimestamp":"2027-02-28T23:59:00Z"},"data":{"k":"v"}}'
    rows = {
        include: orjson.loads(tables.TablePrinter(core.CONFIGMAPS, NOW_S, include).row_bytes(value, "7"))
        for include in ("None", "Metadata", "Object", "")
    }
    assert all(row["cells"] == ["a", 1, "60s"] for row in rows.values())
    assert rows["None"]["object"] is None
    assert rows["Metadata"] == rows[""]
    assert rows["Metadata"]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "uid": "u", "creationTimestamp": "2027-02-28T23:59:00Z", "resourceVersion": "7"},
    }
    assert rows["Object"]["object"]["kind"] == "ConfigMap"
    assert rows["Object"]["object"]["metadata"]["resourceVersion"] == "7"
    assert rows["Object"]["object"]["data"] == {"k": "v"}


def test_field_values_become_wide_columns_of_nodes() -> None:
    node = {"metadata": {"name": "n"}, "status": {}}
    printer = tables.TablePrinter(core.NODES, NOW_S, "None", ("free.cpu", "free.memory"))
    assert [c["name"] for c in printer.columns()][-2:] == ["free.cpu", "free.memory"]
    assert {c["priority"] for c in printer.columns()[-2:]} == {1}
    assert printer.cells(node, {"free.cpu": "3500m"})[-2:] == ["3500m", "<none>"]
    assert tables.cells(core.NODES, node, NOW_S, {"free.cpu": "1"})[-1] == "1"


def test_ages_that_cannot_be_read_are_unknown() -> None:
    printer = tables.TablePrinter(core.CONFIGMAPS, NOW_S)
    assert [printer.age(text) for text in (None, "", "yesterday", "2024-01-01")] == ["<unknown>"] * 4


def test_table_head_is_completed_by_rows() -> None:
    head = tables.table_head(core.SECRETS, {"resourceVersion": "5"})
    table = orjson.loads(head + b'{"cells":[]}]}')
    assert table["kind"] == "Table"
    assert table["metadata"] == {"resourceVersion": "5"}
    assert table["rows"] == [{"cells": []}]
