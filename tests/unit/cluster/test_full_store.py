"""A store without room, and a whole control plane on it: deleting makes room, with grace and namespaces and all."""

from __future__ import annotations

import orjson

from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.kubelet.config import numbered_nodes

PODS = "/api/v1/namespaces/{}/pods"


def pod(name: str) -> bytes:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def config_map(name: str) -> bytes:
    data = {"a": "b" * 90_000}
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


def test_pods_and_namespaces_are_deleted_on_a_full_store_and_then_there_is_room() -> None:
    with VirtualCluster(3, numbered_nodes(2)) as cluster:
        assert cluster.request("POST", "/api/v1/namespaces", b'{"metadata":{"name":"old"}}').status == 201
        cluster.advance(2)
        for namespace in ("default", "old"):
            for i in range(3):
                assert cluster.request("POST", PODS.format(namespace), pod(f"p{i}")).status == 201
        maps = "/api/v1/namespaces/old/configmaps"
        for i in range(10):
            assert cluster.request("POST", maps, config_map(f"m{i}")).status == 201
        cluster.advance(5)
        member = cluster.plane.member
        member.room.quota_bytes = member.state.data_bytes
        cluster.advance(2)
        assert cluster.request("GET", "/readyz/nospace").status == 500
        assert cluster.request("POST", PODS.format("default"), pod("more")).status == 500
        assert orjson.loads(cluster.request("GET", PODS.format("default") + "/p0").body)["status"]["phase"] == "Running"
        deleted = cluster.request("DELETE", PODS.format("default") + "/p0")
        assert deleted.status == 200 and orjson.loads(deleted.body)["metadata"]["deletionGracePeriodSeconds"] == 30
        assert cluster.request("DELETE", "/api/v1/namespaces/old").status == 200
        cluster.advance(60)
        assert cluster.request("GET", PODS.format("default") + "/p0").status == 404
        assert cluster.request("GET", PODS.format("default") + "/p1").status == 200
        assert cluster.request("GET", "/api/v1/namespaces/old").status == 404
        assert orjson.loads(cluster.request("GET", maps).body)["items"] == []
        # What they held is free once history is compacted.
        cluster.advance(minutes=12)
        assert cluster.request("GET", "/readyz/nospace").status == 200
        assert cluster.request("POST", PODS.format("default"), pod("more")).status == 201
