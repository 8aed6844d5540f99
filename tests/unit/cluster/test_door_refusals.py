"""What the door refuses and why, what each of its forms has, and that the documentation says so."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from minikube_py import AsyncCluster, Cluster, ClusterError
from minikube_py.cluster.local import AsyncNamespaced, Namespaced

pytestmark = pytest.mark.real_time("real sockets and threads")
PAGE = (Path(__file__).parents[3] / "docs/reference/cluster.md").read_text(encoding="utf-8")
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
INSIDE = {"of_this_process"}


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")} - INSIDE


def lacking(words: str) -> set[str]:
    (listed,) = re.findall(rf"{words} does not have ((?:`\w+`(?:, )?)+)", PAGE)
    return set(re.findall(r"\w+", listed))


def test_the_page_says_what_each_form_lacks_and_names_all_that_there_is() -> None:
    assert lacking("It") == public(Cluster) - public(AsyncCluster)
    # An attribute of each view: no class has it.
    assert lacking("Such a view") == public(Cluster) - public(Namespaced) - {"cluster"}
    assert public(AsyncCluster) - public(AsyncNamespaced) - {"cluster"} == {"snapshot", "restore", "start", "stop"}
    assert public(AsyncCluster) <= public(Cluster)
    named = set(re.findall(r"(?:`|\.|\"|, )(\w+)", PAGE))
    assert public(Cluster) - named == set()


def test_any_name_that_kubectl_takes_is_one_for_a_fault() -> None:
    with Cluster(clock="virtual") as cluster:
        cluster.apply(MAP)
        client = cluster.client.httpx()
        path = "/api/v1/namespaces/default/configmaps/m"
        for name in ("configmaps", "cm", "ConfigMap", "configmap", "configmaps.v1"):
            cluster.conflict_next(name)
            assert [client.put(path, json={**MAP, "data": {"a": name}}).status_code for _ in range(2)] == [409, 200]
        before = cluster.inputs
        for wrong in ("configmapz", "pods.apps"):
            with pytest.raises(ClusterError, match=f"on: no resource '{wrong}' is served"):
                cluster.conflict_next(wrong)
        with pytest.raises(ClusterError, match="did you mean configmap"):
            cluster.conflict_next("configmapz")
        with pytest.raises(ClusterError, match="no simulated node is named nope"):
            cluster.node("nope").up()
        # What was refused is no part of the history, which can be made again.
        assert cluster.inputs == before


def test_a_view_in_virtual_time_has_a_clock_and_a_history(tmp_path: Path) -> None:
    with Cluster(nodes=1, clock="virtual", seed=3) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
        view = cluster.in_namespace("mine")
        view.advance(minutes=1)
        assert view.now_s == cluster.now_s >= 60 and view.digest == cluster.digest

        async def writes(clients: object) -> None:
            async with clients.httpx_asyncio() as http:  # type: ignore[attr-defined]
                (await http.post("/api/v1/namespaces/mine/configmaps", json=MAP)).raise_for_status()

        assert view.program(writes).name == "writes"
        view.wait("cm/m")
        view.save_log(tmp_path / "log")
        assert view.inputs == cluster.inputs
        assert view.in_namespace("default").objects("nodes")
        with pytest.raises(ClusterError, match=r"path: .*none/log cannot be written"):
            view.save_log(tmp_path / "none/log")


async def test_an_async_cluster_keeps_its_state_and_puts_it_back() -> None:
    async with Cluster() as cluster:
        state = await cluster.snapshot()
        view = cluster.in_namespace("kube-public")
        await view.apply(MAP)
        assert (await view.get("cm/m"))["metadata"]["namespace"] == "kube-public"
        await cluster.restore(state)
        assert await cluster.objects("cm", namespace="kube-public", field_selector="metadata.name=m") == []
        with pytest.raises(ClusterError, match="until is a plain function"):

            async def until(_: object) -> bool:
                return False

            await cluster.wait("node/node-0", until=until)  # type: ignore[arg-type]


def test_outside_of_asyncio_the_awaited_form_says_what_to_do() -> None:
    with pytest.raises(ClusterError, match=r"for a loop of asyncio; with trio"):
        Cluster().__aenter__().send(None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_another_clusters_snapshot_is_refused(clock: str) -> None:
    with Cluster(nodes=2, clock=clock) as one, Cluster(nodes=1, clock=clock) as other:  # type: ignore[arg-type]
        with pytest.raises(ClusterError, match="snapshot is of another cluster"):
            other.restore(one.snapshot())
        assert len(other.objects("nodes")) == 1


async def test_another_clusters_snapshot_ends_no_fault() -> None:
    async with Cluster() as one, Cluster() as other:
        other.fail_next("nodes")
        with pytest.raises(ClusterError, match="snapshot is of another cluster"):
            await other.restore(await one.snapshot())
        async with other.client.httpx_asyncio() as client:
            assert (await client.get("/api/v1/nodes")).status_code == 500


def test_until_may_ask_the_cluster_and_contradictions_are_refused() -> None:
    with Cluster() as cluster:
        cluster.wait("node/node-0", until=lambda node: cluster.get("node/node-0")["metadata"] is not None)
        with pytest.raises(ClusterError, match="gone: what is not there has no ready and no phase"):
            cluster.wait("pod/a", gone=True, ready=1, phase="Running")
        with pytest.raises(ClusterError, match="selector is for all of a kind"):
            cluster.wait("pod/a", selector="a=b")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_that_the_cluster_is_its_parents() -> None:
    with Cluster() as cluster:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                cluster.objects("nodes")
            except ClusterError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            assert "this process was forked while the cluster ran" in told.read()
        os.waitpid(child, 0)
        assert cluster.objects("nodes")


def test_one_seed_is_one_history_whatever_its_type() -> None:
    def digest(seed: int | str | None) -> str:
        with Cluster(nodes=0, clock="virtual", seed=seed) as cluster:
            return cluster.digest

    assert digest(7) == digest("7") != digest(8)
    assert digest(None) == digest(0) != digest(-1)
