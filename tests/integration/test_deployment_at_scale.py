"""A Deployment of 1,000 replicas, through the whole control plane in virtual time: what each pod costs in API calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest
from virtual_workloads import CONTAINERS, LABELS, create, patch, running

from minikube_py.apiserver.core import ApiServer
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.kubelet.config import numbered_nodes

PATH = "/apis/apps/v1/namespaces/default/deployments"
REPLICAS = 1000


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """By method and resource, in the Deployment's namespace: nodes are renewed and kinds discovered without it, too."""
    counted: Counter[str] = Counter()
    handle = ApiServer.handle

    async def counting(self: ApiServer, request: Any) -> Any:
        _, inside, rest = request.path.partition("/namespaces/default/")
        if inside:
            parts = rest.split("/")
            counted[" ".join((request.method, parts[0], *parts[2:]))] += 1
        return await handle(self, request)

    monkeypatch.setattr(ApiServer, "handle", counting)
    return counted


@pytest.mark.timeout(240)
def test_a_thousand_replicas_cost_four_calls_each_and_six_more_when_rolled(calls: Counter[str]) -> None:
    with VirtualCluster("a thousand", numbered_nodes(20)) as cluster:
        calls.clear()
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": CONTAINERS}}
        spec = {"replicas": REPLICAS, "selector": {"matchLabels": LABELS}, "template": template}
        create(cluster, PATH, {"metadata": {"name": "web"}, "spec": spec})
        cluster.advance(60)
        assert len(running(cluster)) == REPLICAS
        # Created, announced by the scheduler's event, bound, running.
        assert calls["POST pods"] == calls["POST pods binding"] == calls["PATCH pods status"] == REPLICAS
        assert calls.total() <= 4.15 * REPLICAS, calls
        calls.clear()
        containers = [{**CONTAINERS[0], "image": "two"}]
        patch(cluster, f"{PATH}/web", {"spec": {"template": {"spec": {"containers": containers}}}})
        cluster.advance(300)
        assert {pod["spec"]["containers"][0]["image"] for pod in running(cluster)} == {"two"}
        # Deleted by the ReplicaSet, and for good by the kubelet.
        assert calls["DELETE pods"] == 2 * REPLICAS and calls["POST pods"] == REPLICAS
        assert calls.total() <= 6.2 * REPLICAS, calls
        (deployment,) = orjson.loads(cluster.request("GET", PATH).body)["items"]
        assert deployment["status"]["updatedReplicas"] == deployment["status"]["availableReplicas"] == REPLICAS
