# ruff: noqa: E501
"""Metrics of other API servers: what is asked, how answers and errors are read, and which counts follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minikube_py.api.errors import StatusError
from minikube_py.api.values import INT64_MAX
from minikube_py.client.rest import ResourceRef
from minikube_py.controllers.autoscaling import (
    AutoscalerConfig,
    Calculated,
    Metric,
    Scaled,
    Tolerances,
    Uncalculated,
    by_average,
    by_total,
    total,
)
from minikube_py.controllers.custom_metrics import Measures

Json = dict[str, Any]
V2 = {"versions": [{"groupVersion": f"custom.metrics.k8s.io/{each}"} for each in ("v9", "v1beta1", "v1beta2")]}
CUSTOM = "/apis/custom.metrics.k8s.io"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n"
METRIC = {"name": "m/x", "selector": {"matchLabels": {"b": "c"}}}
PLAIN = {"name": "m"}


class Other:
    """Answers by path; an error is raised."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.measures = Measures(self, self.mappings)  # type: ignore[arg-type]

    async def request(self, method: str, path: str, params: Mapping[str, str] | None = None) -> Json:
        self.asked.append((path, dict(params or {})))
        answer = self.answers.get(path, StatusError(404, "", "404 page not found"))
        if isinstance(answer, Exception):
            raise answer
        found: Json = answer
        return found

    async def mappings(self, group: str, kind: str) -> list[ResourceRef]:
        if kind == "Odd":
            raise Uncalculated(f'no matches for kind "Odd" in group "{group}"')
        return [ResourceRef(group, "v1", f"{kind.lower()}s")]


def values(*given: Any) -> Json:
    return {"items": [{"describedObject": {"name": f"p{at}"}, "value": each} for at, each in enumerate(given)]}


async def test_pods_are_measured_by_the_preferred_version() -> None:
    path = f"{CUSTOM}/v1beta2/namespaces/n/pods/*/m%2Fx"
    preferred = {**V2, "preferredVersion": {"groupVersion": "custom.metrics.k8s.io/v1beta2"}}
    other = Other({CUSTOM: preferred, path: values("1", "1500m")})
    assert await other.measures.of_pods("n", "app=a", METRIC) == {"p0": Metric(1000), "p1": Metric(1500)}
    assert other.asked[-1] == (path, {"labelSelector": "app=a", "metricLabelSelector": "b=c"})


@pytest.mark.parametrize(("of", "path"), [
    ({"apiVersion": "apps/v1", "kind": "Deployment", "name": "o"}, "deployments.apps/o/m"),
    ({"apiVersion": "v1", "kind": "Service", "name": "o"}, "services/o/m"),
    ({"apiVersion": "v1", "kind": "Namespace", "name": "other"}, "metrics/m"),
])  # fmt: skip
async def test_an_object_is_measured_where_its_kind_is(of: Json, path: str) -> None:
    where = f"{CUSTOM}/v1beta1/namespaces/n/{path}"
    other = Other({CUSTOM: V2, where: values("9k")})
    assert await other.measures.of_object("n", of, PLAIN) == 9_000_000
    assert other.asked[-1] == (where, {})


async def test_other_things_are_measured_by_name() -> None:
    other = Other({f"{EXTERNAL}/m%2Fx": values("1", "2m")})
    assert await other.measures.external("n", METRIC) == [1000, 2]
    assert other.asked == [(f"{EXTERNAL}/m%2Fx", {"labelSelector": "b=c"})]


OBJECT = {"kind": "Service", "name": "o"}
AT = f"{CUSTOM}/v1beta1/namespaces/n"
FAILED = "unable to fetch metrics from custom metrics API: "
NO_API = f"{FAILED}no custom metrics API (custom.metrics.k8s.io) registered"
UNABLE, UNFOUND = "the server is currently unable to handle the request", "the server could not find the requested resource"


@pytest.mark.parametrize(("answers", "asks", "why"), [
    ({}, "pods", NO_API),
    ({}, "object", NO_API),
    ({CUSTOM: {"versions": [{"groupVersion": "custom.metrics.k8s.io/v9"}, 7]}}, "pods", f"{FAILED}no known available metric versions found"),
    ({CUSTOM: StatusError(503, "", "service unavailable")}, "object", f"{FAILED}{UNABLE} (get services.custom.metrics.k8s.io o)"),
    ({CUSTOM: V2}, "pods", f"{FAILED}{UNFOUND} (get pods.custom.metrics.k8s.io *)"),
    ({CUSTOM: V2, f"{AT}/pods/*/m": StatusError(403, "Forbidden", "not you")}, "pods", f"{FAILED}not you"),
    ({CUSTOM: V2, f"{AT}/pods/*/m": {"items": 7}}, "pods", "no metrics returned from custom metrics API"),
    ({CUSTOM: V2, f"{AT}/services/o/m": values("1", "2")}, "object", f"{FAILED}the custom metrics API server returned 2 results when we asked for exactly one"),
    ({CUSTOM: V2, f"{AT}/services/o/m": values(None)}, "object", "quantities must match the regular expression"),
    ({}, "odd", f'{FAILED}unable to map kind Odd.g to resource: no matches for kind "Odd" in group "g"'),
    ({}, "external", f"unable to fetch metrics from external metrics API: {UNFOUND} (get m.external.metrics.k8s.io)"),
    ({f"{EXTERNAL}/m": {"items": []}}, "external", "no metrics returned from external metrics API"),
])  # fmt: skip
async def test_what_is_not_measured_is_told_in_upstreams_words(answers: Json, asks: str, why: str) -> None:
    measures = Other(answers).measures
    asked = {
        "pods": lambda: measures.of_pods("n", "app=a", PLAIN),
        "object": lambda: measures.of_object("n", OBJECT, PLAIN),
        "odd": lambda: measures.of_object("n", {"apiVersion": "g/v1", "kind": "Odd", "name": "o"}, PLAIN),
        "external": lambda: measures.external("n", PLAIN),
    }
    with pytest.raises(Uncalculated) as failed:
        await asked[asks]()
    assert str(failed.value).startswith(why)


def scaled(current: int, ready: int = -1) -> Scaled:
    ready = current if ready < 0 else ready
    states = [{"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if at < ready else "False"}]}
              for at in range(current)]  # fmt: skip
    pods = [{"metadata": {"name": f"p{at}"}, "status": each} for at, each in enumerate(states)]
    return Scaled(pods, current, current, Tolerances(0.1, 0.1), 0.0, AutoscalerConfig())


@pytest.mark.parametrize(("given", "used", "target", "wanted"), [
    (scaled(3), 20000, 15000, 4), (scaled(5), 12000, 20000, 3), (scaled(1), 8600, 4400, 2),
    (scaled(3), 8600, 8888, 3), (scaled(5, 3), 6000, 3000, 6), (scaled(3), 10**15, 1, (1 << 31) - 1),
])  # fmt: skip
def test_ready_pods_share_the_whole(given: Scaled, used: int, target: int, wanted: int) -> None:
    """Source: upstream's replica_calculator_test.go."""
    assert by_total(given, used, target) == Calculated(wanted, 0, used)


@pytest.mark.parametrize(("current", "used", "target", "wanted"), [
    (3, 40000, 10000, (4, 13334)), (3, 8600, 2150, (4, 2867)), (5, 60000, 20000, (3, 12000)), (3, 29000, 10000, (3, 9667)),
    (0, 5000, 1000, (5, -INT64_MAX - 1)), (0, 0, 1000, (0, -INT64_MAX - 1)),
])  # fmt: skip
def test_an_average_counts_the_pods_of_the_status(
    current: int, used: int, target: int, wanted: tuple[int, int]
) -> None:
    assert by_average(scaled(current), used, target) == Calculated(wanted[0], 0, wanted[1])


def test_a_whole_without_pods_is_not_calculated_and_sums_stay_within_64_bits() -> None:
    with pytest.raises(Uncalculated, match="unable to calculate ready pods: no pods returned by selector"):
        by_total(scaled(0), 1000, 1)
    assert (total([INT64_MAX, 5], False), total([-5, 9], False), total([-5, 9], True)) == (INT64_MAX, 4, INT64_MAX)
