"""A pod's requests: upstream's own answers to drawn pods, for the store and the scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import edges
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.fields import resource_requests as rule
from minikube_py.fields.extract import family
from minikube_py.fields.quantity import wide_units
from minikube_py.fields.resource_requests import resource_requests
from minikube_py.fields.whole import EDGE, WIDE, answerable, clamp, wide
from minikube_py.scheduler.objects import AMOUNT_MAX, project_pod

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "conformance" / "data" / "pod_requests.json").read_text()
)
"""Written by `conformance/pod_requests.go`."""


def amounts(found: dict[str, int]) -> dict[str, int]:
    """As a row holds them: upstream's texts are capped at int64, too."""
    return {name: clamp(value) for name, value in found.items()}


@pytest.mark.parametrize("at", range(0, len(CASES), 40))
def test_store_and_scheduler_count_what_upstream_counts(at: int) -> None:
    for case in CASES[at : at + 40]:
        pod, texts = case["pod"], case["requests"]
        wanted = amounts({name: wide_units(name, text) for name, text in texts.items()})
        found = amounts(resource_requests(pod))
        assert found.pop("pods") == 1 and found == wanted, pod
        spec = project_pod(pod).spec
        assert {name: spec.request(name) for name in wanted} == {n: min(v, AMOUNT_MAX) for n, v in wanted.items()}


@settings(max_examples=300, deadline=None)
@given(edges.objects)
def test_any_object_has_requests_or_none(pod: Any) -> None:
    for extractor in ("pod_requests@1", "pod_requests@2"):
        found = family(extractor, {})(pod)
        assert all(type(name) is str and type(units) is int for name, units in found.items())


@settings(max_examples=300, deadline=None)
@given(edges.quantities)
def test_a_quantity_of_any_size_reads_to_a_bounded_number_or_not_at_all(text: str) -> None:
    from minikube_py.fields import quantity

    try:
        exact = quantity.from_json(text)
    except quantity.QuantityError:
        with pytest.raises(quantity.QuantityError):
            wide_units("cpu", text)
        return
    assert wide_units("cpu", text) == wide(exact.milli_value()) and wide_units("memory", text) == wide(exact.value())


@settings(max_examples=500, deadline=None)
@given(edges.ints, edges.ints)
def test_no_inequality_on_a_clamped_value_is_false(value: int, bound: int) -> None:
    held, true = clamp(wide(value)), wide(value)
    outcomes = {"<": true < bound, "<=": true <= bound, ">": true > bound, ">=": true >= bound, "=": true == bound}
    kept = {"<": held < bound, "<=": held <= bound, ">": held > bound, ">=": held >= bound, "=": held == bound}
    for op, outcome in outcomes.items():
        if answerable(op, bound):
            assert kept[op] == outcome, (op, EDGE, WIDE)


_AMOUNTS = st.sampled_from([None, {}, {"cpu": "1"}, {"cpu": "2"}, {"cpu": "1", "memory": "1Gi"}, {"cpu": 1}, [], "x"])
_RESOURCES = st.one_of(
    st.sampled_from([None, {}, [], "x"]),
    st.fixed_dictionaries({}, optional={"requests": _AMOUNTS, "limits": _AMOUNTS}),
)
_OPTIONS = {"resources": _RESOURCES, "name": st.sampled_from(["a", "b", None])}
_HOLDERS = st.one_of(st.none(), st.lists(st.fixed_dictionaries({}, optional=_OPTIONS), max_size=2))
_TOLD = st.fixed_dictionaries({}, optional={**_OPTIONS, "allocatedResources": _AMOUNTS})
_STATES = st.one_of(st.none(), st.just({}), st.lists(st.one_of(_TOLD, st.just("x")), max_size=2))


@settings(max_examples=1500, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={"containers": _HOLDERS, "initContainers": _HOLDERS, "resources": _RESOURCES}),
    st.fixed_dictionaries(
        {}, optional={"containerStatuses": _STATES, "initContainerStatuses": _STATES, "resources": _RESOURCES}
    ),
    st.booleans(),
)
def test_a_glance_at_the_usual_pod_finds_what_a_closer_look_finds(
    spec: dict[str, Any], status: dict[str, Any], repeated: bool
) -> None:
    holders = spec.get("containers")
    if holders and repeated:
        wanted = holders[0].get("resources") or {}
        allocated = wanted.get("requests") if isinstance(wanted, dict) else None
        status["containerStatuses"] = [{**holders[0], "resources": wanted, "allocatedResources": allocated}]
    if rule.repeats(status, spec):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(rule, "repeats", lambda status, spec: False)
            assert not rule.resized(status, spec)
