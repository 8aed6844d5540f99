"""Ready clients: each real package against a real cluster, for plain code and for coroutines; none stays open."""

from __future__ import annotations

import sys
import warnings
from typing import Literal

import pytest

from minikube_py import Cluster, ClusterError

pytestmark = [
    pytest.mark.real_time("real sockets and threads"),
    pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported"),
]
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}


def test_kubernetes() -> None:
    import kubernetes

    with Cluster() as cluster:
        core = kubernetes.client.CoreV1Api(cluster.client.kubernetes())
        core.create_namespaced_config_map("default", CONFIG_MAP)
        assert cluster.get("cm/a")["data"] == {"x": "1"}
        assert [each.metadata.name for each in core.list_node().items] == ["node-0"]


async def test_kubernetes_asyncio() -> None:
    import kubernetes_asyncio

    async with Cluster() as cluster:
        api = await cluster.client.kubernetes_asyncio()
        core = kubernetes_asyncio.client.CoreV1Api(api)
        await core.create_namespaced_config_map("default", CONFIG_MAP)
        assert (await cluster.get("cm/a"))["data"] == {"x": "1"}


def test_kr8s() -> None:
    from kr8s.objects import ConfigMap

    with Cluster() as cluster:
        api = cluster.client.kr8s()
        ConfigMap(CONFIG_MAP, api=api).create()
        assert [each.name for each in api.get("configmaps", "a")] == ["a"]
        assert cluster.get("cm/a")["data"] == {"x": "1"}


async def test_kr8s_asyncio() -> None:
    from kr8s.asyncio.objects import ConfigMap

    async with Cluster() as cluster:
        api = await cluster.client.kr8s_asyncio()
        made = await ConfigMap(CONFIG_MAP, api=api)
        await made.create()
        assert (await cluster.get("cm/a"))["data"] == {"x": "1"}


def test_lightkube() -> None:
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    with Cluster() as cluster:
        client = cluster.in_namespace("default").client.lightkube()
        client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}))
        assert cluster.get("cm/a")["data"] == {"x": "1"}


async def test_lightkube_asyncio() -> None:
    from lightkube.resources.core_v1 import Node

    async with Cluster() as cluster:
        client = cluster.client.lightkube_asyncio()
        assert [each.metadata.name async for each in client.list(Node)] == ["node-0"]


def test_httpx() -> None:
    with Cluster() as cluster:
        assert cluster.client.httpx().get("/api/v1/nodes").json()["items"][0]["metadata"]["name"] == "node-0"


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_request_keeps_its_audit_id(clock: Literal["real", "virtual"]) -> None:
    with Cluster(clock=clock) as cluster:
        answered = cluster.client.httpx().get("/version", headers={"Audit-ID": "of-a-proxy"})
        assert answered.headers["Audit-Id"] == "of-a-proxy"


async def test_httpx_asyncio() -> None:
    async with Cluster() as cluster:
        assert (await cluster.client.httpx_asyncio().get("/api/v1/nodes")).status_code == 200


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightkube", None)
    told = r"lightkube is not installed here.*pip install lightkube"
    with Cluster() as cluster, pytest.raises(ClusterError, match=told):
        cluster.client.lightkube()


def test_clients_for_plain_code_are_closed_with_the_cluster() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Cluster() as cluster:
            client = cluster.client.httpx()
            client.get("/api/v1/nodes")
        assert client.is_closed
