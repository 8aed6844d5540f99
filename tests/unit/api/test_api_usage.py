"""ResourceUsages and ClusterResourceUsages say what KWOK 0.8 takes them to say."""

from __future__ import annotations

from typing import Any

import pytest

from minikube_py.api.usage import DeclaredUsage
from minikube_py.fields.usage import CPU, MEMORY, NOTHING, UNTOLD, Usage

AT_S = 1_767_225_660.0
CREATED = "2026-01-01T00:00:00Z"
FROM_ANNOTATION = f"""
          "{CPU}" in pod.metadata.annotations
          ? Quantity(pod.metadata.annotations["{CPU}"])
          : Quantity("1m")
"""
Json = dict[str, Any]


def pod(**annotations: str) -> Json:
    containers = [{"name": "web", "resources": {"requests": {"cpu": "2"}}}, {"name": "side"}]
    metadata = {"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": CREATED, "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": "node", "containers": containers}}


def told(
    name: str, cpu: Json, containers: list[str] | None = None, selector: Json | None = None, memory: str = "1Ki"
) -> Json:
    usages = {"containers": containers, "usage": {"cpu": cpu, "memory": {"value": memory}}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, "usages": [usages]}}


def node(name: str) -> Json | None:
    return {"metadata": {"name": name, "creationTimestamp": CREATED}} if name == "node" else None


def source(*shared: Json, own: Json | None = None) -> DeclaredUsage:
    return DeclaredUsage(shared, {} if own is None else {("n", "p"): own}, node)


EXPRESSIONS = [
    (FROM_ANNOTATION, 250_000_000),
    ("1.5", 1_500_000_000),
    ("2", 2_000_000_000),
    ("true", 1_000_000_000),
    ("Quantity('3m')", 3_000_000),
    ("pod.SinceSecond()", 60_000_000_000),
    ("SinceSecond(node) / 2.0", 30_000_000_000),
    ("Now() - timestamp('2026-01-01T00:00:00Z') == duration('60s') ? 1 : 2", 1_000_000_000),
    ("container.resources.requests['cpu']", 2_000_000_000),
    ("container.name == 'web' ? 4 : 5", 4_000_000_000),
    ("-1", 0),
    ("[0.25].map(x, x * 2.0)[0]", 500_000_000),
]


@pytest.mark.parametrize(("expression", "nanos"), EXPRESSIONS)
def test_an_expression_says_what_a_container_uses(expression: str, nanos: int) -> None:
    declared = source(told("a", {"expression": expression}))
    assert declared.usage(pod(**{CPU: "250m"}), AT_S, "web") == Usage(nanos, 1024)
    assert not declared.wrong


WRONG = [
    ("Usage()", "failed to compile expression: ERROR: <input>:1:6: undeclared reference to 'Usage' (in container '')"),
    ("Quantity('1') * 2", "failed to compile expression: ERROR: <input>:1:15: found no matching overload for '_*_'"),
    ("pod.spec.nothing", "failed to evaluate metric expression: no such key: nothing"),
    ("'a'", "failed to evaluate metric expression: cel.AsFloat64 unsupported type: str"),
    ("0.0 / 0.0", "failed to evaluate metric expression: cel.AsFloat64 unsupported type: float"),
]


@pytest.mark.parametrize(("expression", "why"), WRONG)
def test_one_that_fails_counts_as_nothing_and_is_told(expression: str, why: str) -> None:
    declared = source(told("a", {"expression": expression}))
    assert declared.usage(pod(), AT_S, "web") == Usage(0, 1024)
    assert [text.startswith(why) for text in declared.wrong] == [True], list(declared.wrong)


def test_a_draw_is_the_same_for_the_same_container_and_time() -> None:
    declared = source(told("a", {"expression": "Rand()"}))
    first, again = (declared.usage(pod(), AT_S, "web") for _ in range(2))
    others = {declared.usage(pod(), AT_S, "side"), declared.usage(pod(), AT_S + 1, "web")}
    assert first == again and first not in others and 0 <= first.cpu_nanos < 10**9


def test_the_pods_own_comes_first_then_the_first_that_selects_it_by_name_then_annotations() -> None:
    by_name = [
        told("b", {"value": "2m"}), told("a", {"value": "1m"}, selector={"matchNames": ["q"]}),
        told("c", {"value": "3m"}, selector={"matchNamespaces": ["n"], "matchNames": ["p"]}),
    ]  # fmt: skip
    assert source(*by_name).usage(pod(), AT_S, "web") == Usage(2_000_000, 1024)
    assert source(by_name[2], by_name[1]).usage(pod(), AT_S, "web") == Usage(3_000_000, 1024)
    assert source(by_name[1]).usage(pod(**{MEMORY: "5"}), AT_S, "web") == Usage(UNTOLD.cpu_nanos, 5)
    own = source(*by_name, own=told("p", {"value": "9m"}, ["web"]))
    assert own.usage(pod(), AT_S, "web") == Usage(9_000_000, 1024)
    # A ResourceUsage that says nothing of a container leaves it to nobody else.
    assert own.usage(pod(), AT_S) == Usage(9_000_000, 1024)
    assert list(own.wrong) == ['no resource usage found for container "side" in pod "n/p"']


def test_what_is_said_of_a_container_by_name_wins_over_what_is_said_of_all() -> None:
    usages = [{"usage": {"cpu": {"value": "1m"}}}, {"containers": ["side"], "usage": {"memory": {"value": "7"}}}]
    declared = source({"metadata": {"name": "a"}, "spec": {"usages": usages}})
    assert declared.usage(pod(), AT_S, "web") == Usage(1_000_000, 0)
    assert declared.usage(pod(), AT_S, "side") == Usage(0, 7)
    assert source({"metadata": {"name": "a"}, "spec": {"usages": []}}).usage(pod(), AT_S, "side") == UNTOLD
    assert declared.usage({"metadata": {"name": "e", "namespace": "n"}, "spec": {"containers": []}}, AT_S) == NOTHING
