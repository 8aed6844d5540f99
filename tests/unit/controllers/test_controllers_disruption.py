"""The disruption controller tells of pods that several budgets select."""

from __future__ import annotations

import pytest

from minikube_py import Cluster

BUDGETS = {"p1": {"app": "x"}, "p2": {"tier": "y"}}


def _events(labels: dict[str, str]) -> list[tuple[str, str, str]]:
    with Cluster(clock="virtual", seed=1) as cluster:
        for name, wanted in BUDGETS.items():
            spec = {"minAvailable": 1, "selector": {"matchLabels": wanted}}
            cluster.apply(
                {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
            )
        cluster.advance(5)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": labels}}
        cluster.apply(pod | {"spec": {"containers": [{"name": "c", "image": "i"}]}})
        cluster.wait("pod/web", phase="Running")
        cluster.advance(5)
        return [
            (event["type"], event["involvedObject"]["name"], event["message"])
            for event in cluster.objects("events")
            if event["reason"] == "MultiplePodDisruptionBudgets"
        ]


def test_a_pod_of_several_budgets_is_told() -> None:
    found = _events({"app": "x", "tier": "y"})
    why = 'Pod "default"/"web" matches multiple PodDisruptionBudgets.  Chose "p1" arbitrarily.'
    assert found and set(found) == {("Warning", "web", why)}


@pytest.mark.parametrize("labels", [{"app": "x"}, {"tier": "y"}, {}])
def test_a_pod_of_one_budget_is_not(labels: dict[str, str]) -> None:
    assert _events(labels) == []
