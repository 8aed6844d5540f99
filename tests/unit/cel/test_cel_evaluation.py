"""Evaluation of expressions: upstream's value, error, cost and estimate of each that `data/cel_evaluations.json` holds.

They are those of the tests of cel-go, cel-spec, apiserver's `pkg/cel/library` and dynamic-resource-allocation that
compile in the environment of device selectors, and 1,000 of `drawn_expressions`; `record_evaluations` asked for the
answers.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from minikube_py.api.device_selectors import ENVIRONMENT
from minikube_py.cel import values
from minikube_py.cel.environment import compile
from minikube_py.cel.kubernetes import semver
from minikube_py.cel.syntax import Invalid
from minikube_py.cel.types import DYN
from minikube_py.fields import quantity
from minikube_py.fields.quantity import Quantity

DATA = Path(__file__).parents[2] / "conformance" / "data" / "cel_evaluations.json"
RECORDED: dict[str, Any] = json.loads(DATA.read_text())
BESIDE_DEVICE = replace(
    ENVIRONMENT,
    variables={**ENVIRONMENT.variables, "v": DYN},
    size_of=lambda path: 5 if path[0] == "v" else None,
)
"""The environment of `cel_answers.go`."""


def bound(told: Any) -> Any:
    """Variables, of which JSON has not all."""
    if isinstance(told, list):
        return [bound(each) for each in told]
    if not isinstance(told, dict):
        return told
    found = {name: bound(each) for name, each in told.items()}
    if "$quantity" in found:
        return quantity.parse(found["$quantity"])
    if "$semver" in found:
        return semver(found["$semver"])
    return values.MapWithDefault(found["$default"], {}) if "$default" in found else found


def shown(value: Any) -> list[Any]:
    """As `cel_answers.go` writes it."""
    if value is None:
        return ["null"]
    if isinstance(value, bool | str):
        return [values.type_name(value), value]
    if isinstance(value, int):
        return [values.type_name(value), str(int(value))]
    if isinstance(value, float):
        return ["double", "nan" if value != value else f"{struct.unpack('>Q', struct.pack('>d', value))[0]:x}"]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, values.Duration):
        return ["duration", str(value.ns)]
    if isinstance(value, values.Timestamp):
        return ["timestamp", values.timestamp_text(values.Timestamp(value.ns))]
    if isinstance(value, values.Optional):
        return ["optional", shown(value.value)] if value.present else ["optional"]
    if isinstance(value, list):
        return ["list", *map(shown, value)]
    if isinstance(value, dict):
        return ["map", [[shown(key), shown(each)] for key, each in values.pairs(value)]]
    if isinstance(value, values.IP):
        return ["IP", str(value.address)]
    if isinstance(value, values.CIDR):
        return ["CIDR", f"{value.address}/{value.bits}"]
    if isinstance(value, values.TypeValue):
        return ["type", value.name]
    if isinstance(value, values.URL):
        return ["URL", value.text]
    if isinstance(value, Quantity | values.Semver):
        return [type(value).__name__, str(value)]
    return ["other", values.type_name(value)]


VARIABLES = bound(RECORDED["variables"])


def in_order(told: Any) -> Any:
    """Maps by their keys: Go walks them in any order."""
    if isinstance(told, list):
        parts = [in_order(part) for part in told]
        return ["map", sorted(parts[1], key=str)] if parts[:1] == ["map"] else parts
    return {name: in_order(part) for name, part in told.items()} if isinstance(told, dict) else told


def answer(expression: str) -> dict[str, Any]:
    try:
        compiled = compile(expression, BESIDE_DEVICE)
    except Invalid as error:
        return {"invalid": str(error)}
    if compiled.unfit is not None:
        return {"program": compiled.unfit, "estimate": compiled.cost}
    outcome = compiled.outcome(VARIABLES)
    if isinstance(outcome.value, values.EvaluationError):
        return {"cost": outcome.cost, "error": str(outcome.value), "estimate": compiled.cost}
    return {"cost": outcome.cost, "value": shown(outcome.value), "estimate": compiled.cost}


def test_expressions_evaluate_as_upstream() -> None:
    answers = RECORDED["answers"]
    assert len(answers) > 1000
    wrong = {
        expression: (told, ours)
        for expression, told in answers.items()
        if in_order(ours := answer(expression)) != in_order(told)
    }
    assert wrong == {}


def test_literal_formats_are_checked_as_upstream() -> None:
    """Drawn clauses and arguments: what the environment of `cel_answers.go` says as it compiles them."""
    wrong = {}
    for expression, told in json.loads((DATA.parent / "cel_formats.json").read_text()).items():
        ours = None
        try:
            compile(expression, BESIDE_DEVICE)
        except Invalid as error:
            ours = str(error)
        if ours != told:
            wrong[expression] = (told, ours)
    assert wrong == {}
