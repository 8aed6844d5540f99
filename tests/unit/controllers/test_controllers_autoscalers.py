"""HorizontalPodAutoscalers in virtual time: what upstream's controller made of the same ones, recorded.

Recorded from kube-controller-manager 1.36.2 on this API server, with and without `metrics.k8s.io`: statuses at rest,
without times, and the events.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from minikube_py import Cluster
from minikube_py.api.errors import StatusError
from minikube_py.controllers.autoscaling import told_by_server

Json = dict[str, Any]
RECORDED = orjson.loads((Path(__file__).parent / "upstream_autoscalers.json").read_bytes())
SERVICE = {
    "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
    "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100},
}  # fmt: skip
SCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
EVENTS = "/api/v1/namespaces/default/events"
WARM_S, PERIOD_S = 20, 15


_ORDER = re.compile(r"(multiple HPAs: )\[(.*?)\]")
_POD = re.compile(r"-[a-z0-9]{8,10}-[a-z0-9]{5}\b")


def plain(text: str) -> str:
    """Without the random parts of names, and keys in one order: upstream's is that of a Go map."""
    return _POD.sub("-<pod>", _ORDER.sub(lambda found: f"{found[1]}{sorted(found[2].split())}", text))


def items(cluster: Cluster, path: str) -> list[Json]:
    listed: list[Json] = orjson.loads(cluster.request("GET", path)[1])["items"]
    return listed


def at_rest(status: Json) -> Json:
    conditions = [{k: v for k, v in each.items() if k != "lastTransitionTime"} for each in status.get("conditions", ())]
    conditions = [{**each, "message": plain(each["message"])} for each in conditions]
    return {**{k: v for k, v in status.items() if k != "lastScaleTime"}, "conditions": conditions}


def told(cluster: Cluster) -> dict[str, set[tuple[str, ...]]]:
    found: dict[str, set[tuple[str, ...]]] = {}
    for event in items(cluster, EVENTS):
        about = event["involvedObject"]
        if about["kind"] == "HorizontalPodAutoscaler":
            found.setdefault(about["name"], set()).add((event["type"], event["reason"], plain(event["message"])))
    return found


@pytest.mark.parametrize("served", ["served", "unserved"])
def test_autoscalers_come_to_rest_where_upstreams_do(served: str) -> None:
    recorded = RECORDED[served]
    with Cluster(nodes=2, clock="virtual", seed=3) as cluster:
        if served == "served":
            cluster.apply(SERVICE)
        for target in RECORDED["targets"]:
            cluster.apply(target)
        cluster.advance(WARM_S)
        for autoscaler in RECORDED["autoscalers"]:
            cluster.apply(autoscaler)
        cluster.advance(8 * PERIOD_S)
        statuses = {each["metadata"]["name"]: at_rest(each.get("status", {})) for each in items(cluster, SCALERS)}
        events = told(cluster)
    assert statuses == {name: at_rest(status) for name, status in recorded["status"].items()}
    assert events == {
        name: {(type_, reason, plain(text)) for type_, reason, text in texts}
        for name, texts in recorded["events"].items()
    }


def test_a_target_shrinks_to_the_highest_recommendation_of_five_minutes() -> None:
    target = next(each for each in RECORDED["targets"] if each["metadata"]["name"] == "down")
    autoscaler = next(each for each in RECORDED["autoscalers"] if each["metadata"]["name"] == "down")
    patient = {**autoscaler, "spec": {k: v for k, v in autoscaler["spec"].items() if k != "behavior"}}
    with Cluster(nodes=2, clock="virtual", seed=4) as cluster:
        cluster.apply(SERVICE)
        cluster.apply(target)
        cluster.apply(patient)
        replicas = []
        for seconds in (240, 120):
            cluster.advance(seconds)
            replicas.append(items(cluster, "/apis/apps/v1/namespaces/default/deployments")[0]["spec"]["replicas"])
        reason = items(cluster, SCALERS)[0]["status"]["conditions"][0]["reason"]
    assert replicas == [4, 1] and reason == "ReadyForNewScale"


def test_virtual_time_and_a_seed_give_one_history() -> None:
    digests = []
    for _ in range(2):
        with Cluster(nodes=1, clock="virtual", seed=5) as cluster:
            cluster.apply(SERVICE)
            cluster.apply(next(each for each in RECORDED["targets"] if each["metadata"]["name"] == "up"))
            cluster.apply(next(each for each in RECORDED["autoscalers"] if each["metadata"]["name"] == "up"))
            cluster.advance(90)
            digests.append(cluster.digest)
    assert digests[0] == digests[1]


OF = "pods.metrics.k8s.io"


def test_an_answer_of_what_serves_usage_is_told_and_one_of_nobody_is_named() -> None:
    assert told_by_server(StatusError(404, "NotFound", "nobody is called so"), OF) == "nobody is called so"
    unserved = "the server could not find the requested resource (get pods.metrics.k8s.io)"
    assert told_by_server(StatusError(404, "", "the server answered 404: 404 page not found"), OF) == unserved
