"""Admission policies in CEL: what they may cost, and laws of what they say. A live upstream judges their words."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api import admission_policies, mutations
from minikube_py.api.admission_policies import Decision, ValidatingPolicy
from minikube_py.api.kinds.core import CONFIGMAPS
from minikube_py.api.mutations import Mutated, MutatingPolicy

NO_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
BINDINGS: dict[str, Any] = {"object": {"data": {"a": "1"}}, "oldObject": None, "request": {"operation": "CREATE"}}
COSTLY = "[1, 2, 3].all(x, [1, 2, 3].all(y, x + y > 0))"


def said(spec: dict[str, Any]) -> tuple[list[Decision], list[str]]:
    return ValidatingPolicy(spec).denials(BINDINGS, None)[:2]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"validations": [{"expression": "true"}, {"expression": COSTLY}]}, NO_BUDGET),
        (
            {"validations": [{"expression": "true", "messageExpression": f"string({COSTLY})"}]},
            f"failed messageExpression: {NO_BUDGET}",
        ),
        ({"auditAnnotations": [{"key": "k", "valueExpression": f"string({COSTLY})"}]}, NO_BUDGET),
        (
            {
                "variables": [{"name": "costly", "expression": COSTLY}],
                "validations": [{"expression": "object.data.a == '2' || variables.costly"}],
            },
            NO_BUDGET,
        ),
    ],
    ids=["validation", "message", "annotation", "variable"],
)
def test_what_costs_too_much_denies_unless_failures_are_ignored(
    spec: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(spec) == ([], [])
    monkeypatch.setattr(admission_policies, "COST_MAX", 20)
    assert said(spec) == ([Decision(message)], [])
    assert said({**spec, "failurePolicy": "Ignore"}) == ([], [])


def test_a_variable_is_evaluated_once_and_paid_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [{"expression": "variables.costly"} for _ in range(5)]
    spec = {"variables": [{"name": "costly", "expression": COSTLY}], "validations": rules}
    alone = {**spec, "validations": rules[:1]}
    least = next(cost for cost in range(1_000) if _affords(alone, cost, monkeypatch))
    # Each of the others costs what naming a variable costs.
    assert _affords(spec, least + 4 * 2, monkeypatch) and not _affords(spec, least, monkeypatch)


def _affords(spec: dict[str, Any], cost: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(admission_policies, "COST_MAX", cost)
    return said(spec) == ([], [])


def test_a_variable_that_nobody_asks_for_is_not_evaluated() -> None:
    variables = [{"name": "bad", "expression": "object.zz"}]
    assert said({"variables": variables, "validations": [{"expression": "true"}]}) == ([], [])
    denied, _ = said({"variables": variables, "validations": [{"expression": "variables.bad == 1"}]})
    why = 'composited variable "bad" fails to evaluate: no such key: zz'
    assert denied == [Decision(f"expression 'variables.bad == 1' resulted in error: {why}")]


_rules = st.lists(st.sampled_from(["true", "false", "object.zz == 1", "object.data.a == '1'", "oldObject == null"]))


@given(_rules, _rules, st.booleans())
def test_rules_speak_for_themselves(first: list[str], second: list[str], fails: bool) -> None:
    """What two lists of rules deny together is what each denies; failures count only where they are not ignored."""

    def denied(rules: list[str]) -> list[Decision]:
        asked = [{"expression": each} for each in rules]
        return said({"failurePolicy": "Fail" if fails else "Ignore", "validations": asked})[0]

    after = [each._replace(at=each.at + len(first)) for each in denied(second)]
    assert denied(first + second) == denied(first) + after
    wrong = [each for each in first if each == "false" or (fails and "zz" in each)]
    assert len(denied(first)) == len(wrong)


# --- policies that mutate ---------------------------------------------------------------------------------------------

_NAMES = st.text("abc", min_size=1, max_size=3)
_MAPS = st.dictionaries(_NAMES, _NAMES, max_size=4)


def mutated(*mutations: tuple[str, str], **data: str) -> Mutated:
    """Of a config map."""
    known = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    spec = {"mutations": [{"patchType": each, known[each]: {"expression": text}} for each, text in mutations]}
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": data}
    given = {**BINDINGS, "object": obj}
    before = copy.deepcopy(given)
    found = MutatingPolicy(spec).mutated(CONFIGMAPS, "", ("", "v1", "ConfigMap"), given, None, False)
    assert given == before, "what is given stays as it was: a mutation may begin twice"
    return found


def _applied(data: dict[str, str]) -> tuple[str, str]:
    return "ApplyConfiguration", f"Object{{data: {{{', '.join(f'{k!r}: {v!r}' for k, v in data.items())}}}}}"


def _added(data: dict[str, str]) -> tuple[str, str]:
    path = "'/data/' + jsonpatch.escapeKey({!r})"
    each = (f"JSONPatch{{op: 'add', path: {path.format(k)}, value: {v!r}}}" for k, v in data.items())
    return "JSONPatch", f"[{', '.join(each)}]"


@given(_MAPS, _MAPS, _MAPS)
def test_a_configuration_that_is_applied_wins_member_by_member_and_twice_is_once(
    had: dict[str, str], one: dict[str, str], two: dict[str, str]
) -> None:
    found = orjson.loads(mutated(_applied(one), _applied(two), _applied(two), **had).value or b"")
    assert found.get("data", {}) == {**had, **one, **two}


@given(_MAPS.filter(bool), _MAPS.filter(bool))
def test_both_forms_of_patches_say_the_same(had: dict[str, str], more: dict[str, str]) -> None:
    applied, patched = mutated(_applied(more), **had), mutated(_added(more), **had)
    assert orjson.loads(applied.value or b"") == orjson.loads(patched.value or b"")


@given(st.text("a/~0", max_size=6))
def test_an_escaped_key_is_one_step_of_a_path(key: str) -> None:
    assert orjson.loads(mutated(_added({key: "v"}), other="o").value or b"")["data"] == {"other": "o", key: "v"}


def test_a_mutation_that_fails_leaves_the_others_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = _applied({"b": "c"}), ("ApplyConfiguration", "Object{data: {'b': object.data.zz}}")
    found = mutated(bad, good, a="1")
    assert orjson.loads(found.value or b"")["data"] == {"a": "1", "b": "c"}
    assert found.errors == [f"expression '{bad[1]}' resulted in error: no such key: zz"]
    monkeypatch.setattr(mutations, "COST_MAX", 20)
    assert mutated(good, a="1") == Mutated(True, None, [NO_BUDGET])
