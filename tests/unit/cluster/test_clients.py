"""Ready clients: each real package against a real cluster, for plain code and for coroutines; none stays open."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Literal

import pytest
import yaml

from minikube_py import Cluster, ClusterError
from minikube_py.cluster.clients import Clients

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


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_no_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, clock: Literal["real", "virtual"]
) -> None:
    import kubernetes
    import kubernetes_asyncio
    from lightkube.resources.core_v1 import Node

    # Nothing listens there.
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    environment = dict(os.environ)
    path = "/api/v1/nodes"

    async def names_by_coroutines(cluster: Cluster) -> list[list[str]]:
        async with await cluster.client.kubernetes_asyncio() as api, cluster.client.httpx_asyncio() as http:
            listed = await kubernetes_asyncio.client.CoreV1Api(api).list_node()
            by_kr8s = await cluster.client.kr8s_asyncio()
            lightkube = cluster.client.lightkube_asyncio()
            found = [
                [each.metadata.name for each in listed.items],
                [each.name async for each in by_kr8s.get("nodes")],
                [each.metadata.name async for each in lightkube.list(Node)],
                [each["metadata"]["name"] for each in (await http.get(path)).json()["items"]],
            ]
            await by_kr8s._session.aclose()
            await lightkube.close()
            return found

    with Cluster(nodes=1, clock=clock) as cluster:
        client = cluster.client
        core = kubernetes.client.CoreV1Api(client.kubernetes())
        assert [
            [each.metadata.name for each in core.list_node().items],
            [each.name for each in client.kr8s().get("nodes")],
            [each.metadata.name for each in client.lightkube().list(Node)],
            [each["metadata"]["name"] for each in client.httpx().get(path).json()["items"]],
            *asyncio.run(names_by_coroutines(cluster)),
        ] == [["node-0"]] * 8
        assert set(names_of(Clients)) == {
            "kubernetes", "kubernetes_asyncio", "kr8s", "kr8s_asyncio", "lightkube", "lightkube_asyncio", "httpx",
            "httpx_asyncio", "close", "aclose",
        }  # fmt: skip
        if shutil.which("kubectl"):
            assert cluster.kubectl("get", "nodes", "-o", "name").split() == ["node/node-0"]
    assert dict(os.environ) == environment


def names_of(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


def test_kubeconfigs_of_a_kept_folder_are_those_of_this_start(tmp_path: Path) -> None:
    import kubernetes

    for _ in range(2):
        with Cluster(nodes=1, data_dir=tmp_path) as cluster:
            for view in (cluster, cluster.in_namespace("mine")):
                (there,) = yaml.safe_load(view.kubeconfig_path.read_text())["clusters"]
                assert there["cluster"]["server"] == cluster.url
                assert len(kubernetes.client.CoreV1Api(view.client.kubernetes()).list_node().items) == 1
