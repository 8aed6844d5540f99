"""The service `kubernetes` is recreated when somebody deletes it, with its endpoints, as upstream's API server does."""

from __future__ import annotations

import pytest

from minikube_py import Cluster

SERVICE = "/api/v1/namespaces/default/services/kubernetes"


def uid(cluster: Cluster) -> str:
    (service,) = cluster.objects("services")
    return str(service["metadata"]["uid"])


def test_in_virtual_time_with_its_endpoints() -> None:
    with Cluster(nodes=0, clock="virtual") as cluster:
        before = uid(cluster)
        assert cluster.request("DELETE", SERVICE).status == 200
        assert not cluster.objects("services")
        cluster.advance(seconds=20)
        assert uid(cluster) != before
        slices = cluster.objects("endpointslices.discovery.k8s.io")
        assert [each["metadata"]["name"] for each in cluster.objects("endpoints")] == ["kubernetes"]
        assert [each["metadata"]["name"] for each in slices] == ["kubernetes"]


@pytest.mark.real_time("the loop of a server in real time")
def test_in_real_time() -> None:
    with Cluster(nodes=0) as cluster:
        cluster.request("DELETE", SERVICE)
        cluster.wait("service/kubernetes", until=lambda service: service is not None, timeout_s=20)
