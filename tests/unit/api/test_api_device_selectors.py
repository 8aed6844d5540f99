"""Selectors of devices in CEL: upstream's answers to each expression, and what its own tests say that they cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.device_selectors import ENVIRONMENT, validate_expression
from minikube_py.cel.environment import compile
from minikube_py.cel.syntax import Invalid

DATA = Path(__file__).parents[2] / "conformance" / "data"
RECORDED: dict[str, str | None] = json.loads((DATA / "expressions.json").read_text())
COSTS: list[tuple[str, int]] = json.loads((DATA / "expression_costs.json").read_text())
"""From the tests of apiserver's `pkg/cel/library` and of `k8s.io/dynamic-resource-allocation/cel`, gates as by default.
Left out: `join`, whose test gives texts a size of its own, and `jsonpatch`, which the base environment has not."""


@pytest.mark.parametrize("expression", RECORDED)
def test_expression_is_answered_as_upstream(expression: str) -> None:
    errors = validate_expression(expression, "e")
    assert [error.body() for error in errors] == [RECORDED[expression]] * len(errors)
    assert bool(errors) == (RECORDED[expression] is not None)


@pytest.mark.parametrize(("expression", "cost"), COSTS)
def test_expression_costs_as_upstream(expression: str, cost: int) -> None:
    assert compile(expression, ENVIRONMENT).cost == cost


_PIECES = (
    "device", ".driver", ".attributes", ".capacity", "['a']", ".b", "==", "&&", "||", "!", "-", "1", "2u", ".5", "'x'",
    "b'y'", "(", ")", "[", "]", "{", "}", ",", ":", "?", " in ", "true", "null", "size(", ".all(x,", "x", ".map(",
    "has(", "cel.bind(y,", "quantity(", "`", "$", "é", "\n",
)  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        found = compile(text, ENVIRONMENT)
    except Invalid as error:
        assert str(error).startswith("ERROR: <input>:")
    else:
        assert 0 <= found.cost < 1 << 64


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "[" * 249 + "1" + "]" * 249,
        "!" * 10_000 + "true",
        "1" + "+1" * 5000,
        "x" + ".x" * 5000,
        "true" + "&&true" * 2000,
    ],
)
def test_deep_texts_are_answered(text: str) -> None:
    assert len(validate_expression(text[:10_240], "e")) <= 1
