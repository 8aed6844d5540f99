"""How many replicas autoscalers want: upstream's test tables, read from its `*_test.go`, and laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.client.events import timestamp
from minikube_py.controllers import autoscaling
from minikube_py.controllers.autoscaling import AutoscalerConfig, History, Metric, Scaled, Tolerances, Uncalculated

UPSTREAM = orjson.loads((Path(__file__).parent / "upstream_autoscaling.json").read_bytes())
NOW_S = 1_767_225_600.0
CONFIG = AutoscalerConfig(cpu_initialization_s=120.0, initial_readiness_s=10.0)
"""Of upstream's tests."""
LONG_AGO_S = -6e10
Json = dict[str, Any]


def pod(case: Json, i: int) -> Json:
    def told(name: str, otherwise: Any) -> Any:
        return case[name][i] if i < len(case.get(name, ())) else otherwise

    requests = case.get("requests", ())
    resources = {"resources": {"requests": {case["resource"]: requests[i]}}} if i < len(requests) else {}
    started_s = NOW_S - (0 if told("podStartTime", "").startswith("hot") else 180)
    metadata = {"name": f"test-pod-{i}", **({"deletionTimestamp": "x"} if told("podDeletionTimestamp", False) else {})}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": f"container{n}", **resources} for n in (1, 2)]},
        "status": {
            "phase": told("podPhase", "Running"), "startTime": timestamp(started_s),
            "conditions": [{"type": "Ready", "status": told("podReadiness", "True")}],
        },
    }  # fmt: skip


def metrics(case: Json) -> dict[str, Metric]:
    wanted = int(case["container"][-1:]) - 1 if "container" in case else None
    found = {}
    for i, levels in enumerate(case["levels"]):
        name = case["podNames"][i] if "podNames" in case else f"test-pod-{i}"
        if wanted is None or wanted < len(levels):
            found[name] = Metric(sum(levels) if wanted is None else levels[wanted], LONG_AGO_S, 60.0)
    return found


@pytest.mark.parametrize("case", UPSTREAM["replicas"], ids=[each["name"] for each in UPSTREAM["replicas"]])
def test_replicas_are_calculated_as_upstream_does(case: Json) -> None:
    count = max(case["currentReplicas"], len(case.get("podPhase", ())))
    pods = [pod(case, i) for i in range(count)]
    scaled = Scaled(pods, case["currentReplicas"], 0, Tolerances(0.1, 0.1), NOW_S, CONFIG)

    def calculated() -> autoscaling.Calculated:
        if case["resource"]:
            named = case["resource"], case.get("container", "")
            return autoscaling.by_utilization(scaled, metrics(case), case["target"], *named)
        return autoscaling.by_value(scaled, metrics(case), case["target"], "")

    if "error" in case:
        with pytest.raises(Uncalculated) as refused:
            calculated()
        assert case["error"] in str(refused.value)
        return
    found = calculated()
    assert (found.replicas, found.average) == (case["expectedReplicas"], case["average"])
    assert found.utilization == case.get("utilization", 0)


def behavior(case: Json) -> dict[str, Json]:
    usual = {"scaleUp": [4, 15, 100, 15, 0], "scaleDown": [0, 0, 100, 15, 300]}
    made = {}
    for way, otherwise in usual.items():
        pods, pods_s, percent, percent_s, window_s = case.get(f"{way}Rules") or otherwise
        policies = [{"type": "Pods", "value": pods, "periodSeconds": pods_s}] if pods else []
        policies += [{"type": "Percent", "value": percent, "periodSeconds": percent_s}] if percent else []
        made[way] = {"selectPolicy": "Max", "policies": policies, "stabilizationWindowSeconds": window_s}
    return made


def events(told: Any) -> list[tuple[int, float]]:
    """Spread evenly over the period, each in the middle of its part, by whole seconds as Go's durations are here."""
    changes, period_s = told or ([], 0)
    part = period_s / max(len(changes), 1)
    return [(n, NOW_S - int(period_s - part * (i + 1) + part / 2)) for i, n in enumerate(changes)]


@pytest.mark.parametrize("case", UPSTREAM["rules"], ids=[each["name"] for each in UPSTREAM["rules"]])
def test_rates_hold_as_upstream_holds_them(case: Json) -> None:
    history = History([], events(case.get("scaleUpEvents")), events(case.get("scaleDownEvents")))
    wanted = case.get("prenormalizedDesiredReplicas", 0)
    limits = case.get("specMinReplicas", 0), case["specMaxReplicas"]
    found = autoscaling.limited_by(history, behavior(case), case["currentReplicas"], wanted, *limits, NOW_S)
    assert (found.replicas, found.reason) == (case["expectedReplicas"], case["expectedCondition"])


LIMITS = [
    # current, desired, least, most: upstream's TestConvertDesiredReplicasWithRules
    (5, 7, 3, 8, 7, "DesiredWithinRange"),
    (3, 1, 2, 8, 2, "TooFewReplicas"),
    (1, 0, 0, 10, 0, "DesiredWithinRange"),
    (20, 1000, 1, 10, 10, "TooManyReplicas"),
    (3, 1000, 1, 2000, 6, "ScaleUpLimit"),
]


@pytest.mark.parametrize(("current", "desired", "least", "most", "replicas", "reason"), LIMITS)
def test_without_a_behavior_a_number_at_most_doubles(
    current: int, desired: int, least: int, most: int, replicas: int, reason: str
) -> None:
    assert autoscaling.limited(current, desired, least, most)[:2] == (replicas, reason)


NORMALIZED = [
    # upstream's TestNormalizeDesiredReplicas: recommendations with their ages in minutes
    ([], 5, 5, 1),
    ([(4, 1)], 5, 5, 2),
    ([(8, 1)], 5, 8, 2),
    ([(8, 10)], 5, 5, 1),
    ([(4, 1), (8, 10), (7, 2)], 5, 7, 3),
]


@pytest.mark.parametrize(("told", "desired", "replicas", "kept"), NORMALIZED)
def test_without_a_behavior_the_highest_of_five_minutes_counts(
    told: list[tuple[int, int]], desired: int, replicas: int, kept: int
) -> None:
    history = History([(n, NOW_S - 60 * minutes) for n, minutes in told])
    assert autoscaling.stabilized(history, desired, 300, NOW_S) == replicas
    assert len(history.recommended) == kept


counts = st.integers(1, 200)
ages = st.lists(st.tuples(counts, st.integers(0, 1000).map(lambda age_s: NOW_S - age_s)), max_size=8)


@given(ages, ages, ages, counts, counts, st.sampled_from(["Max", "Min", "Disabled"]), st.integers(1, 300))
def test_a_step_never_turns_and_stays_within_limits(
    recommended: Any, up: Any, down: Any, current: int, desired: int, select: str, period_s: int
) -> None:
    rules = {
        "selectPolicy": select, "stabilizationWindowSeconds": period_s,
        "policies": [
            {"type": "Pods", "value": 2, "periodSeconds": period_s},
            {"type": "Percent", "value": 50, "periodSeconds": 60},
        ],
    }  # fmt: skip
    both = {"scaleUp": rules, "scaleDown": rules}
    history = History(list(recommended), up, down)
    wanted = autoscaling.stabilized_by(history, both, current, desired, NOW_S).replicas
    assert min(current, desired) <= wanted <= max(current, desired)
    found = autoscaling.limited_by(history, both, current, wanted, 1, 1000, NOW_S).replicas
    assert min(current, wanted) <= found <= max(current, wanted)
    assert select != "Disabled" or found == current
    assert history.recommended[-1][0] == desired or (desired, NOW_S) in history.recommended


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=20), st.integers(1, 200))
def test_ready_pods_alone_give_as_many_as_bring_usage_to_the_target(levels: list[int], target: int) -> None:
    pods = [pod({"resource": "cpu", "requests": ["1"] * len(levels)}, i) for i in range(len(levels))]
    scaled = Scaled(pods, len(levels), 0, Tolerances(0.1, 0.1), NOW_S, CONFIG)
    used = {f"test-pod-{i}": Metric(level, NOW_S) for i, level in enumerate(levels)}
    found = autoscaling.by_utilization(scaled, used, target, "cpu")
    share = sum(levels) * 100 // (2000 * len(levels)) / target
    if 0.9 <= share <= 1.1:
        assert found.replicas == len(levels)
    else:
        assert 0 <= found.replicas - share * len(levels) < 1


def test_tolerances_come_from_the_behavior_each_way() -> None:
    assert autoscaling.tolerances_of({"scaleUp": {"tolerance": "50m"}}, 0.1) == Tolerances(0.1, 0.05)
    assert autoscaling.tolerances_of(None, 0.2) == Tolerances(0.2, 0.2)


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_a_whole_pods_requests_count_though_it_has_finished(phase: str) -> None:
    spec = {"resources": {"requests": {"cpu": "2"}}, "containers": [{"name": "c"}]}
    since = timestamp(NOW_S - 9000)
    ready = {"startTime": since, "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}
    one = {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase, **ready}}
    scaled = Scaled([one], 1, 1, Tolerances(0.1, 0.1), NOW_S, CONFIG)
    assert autoscaling.by_utilization(scaled, {"p": Metric(1000, NOW_S)}, 50, "cpu") == (1, 50, 1000)
