"""A cluster takes whatever the documented limits allow, and restores it."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Literal

import pytest

from minikube_py import Cluster
from minikube_py.cluster import real, virtual
from minikube_py.cluster.errors import STOPPED, ClusterError
from minikube_py.cluster.snapshots import BYTES_AT_ONCE, OPS_AT_ONCE, batches
from minikube_py.control_plane.plane import Plane
from minikube_py.mvcc.types import DeleteRange, Op, Put
from minikube_py.store.log_files import AROUND_BYTES
from minikube_py.store.member_config import MemberConfig
from minikube_py.store.replica_config import REQUEST_BYTES_MAX

POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip
TIMES: tuple[Literal["real", "virtual"], ...] = ("real", "virtual")


def secret(size_bytes: int) -> dict[str, Any]:
    data = base64.b64encode(bytes(size_bytes)).decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": data}}


def config_map(name: str, size_bytes: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x" * size_bytes}}


@pytest.mark.parametrize("config", [real.MEMBER, virtual.MEMBER, virtual.OF_SEVERAL, MemberConfig()])
def test_each_configuration_that_ships_has_segments_for_the_largest_request(config: MemberConfig) -> None:
    assert config.request_bytes_max == REQUEST_BYTES_MAX <= config.segment_bytes - AROUND_BYTES


@pytest.mark.parametrize("clock", TIMES)
def test_the_largest_secret_is_kept_and_restored(clock: Literal["real", "virtual"]) -> None:
    with Cluster(nodes=0, clock=clock) as cluster:
        cluster.apply(secret(1_000_000))
        cluster.apply([config_map(f"m{number}", 100_000) for number in range(16)])
        snapshot = cluster.snapshot()
        cluster.delete("secret/s")
        for number in range(16):
            cluster.delete(f"configmap/m{number}")
        cluster.restore(snapshot)
        assert cluster.get("secret/s")["data"] == secret(1_000_000)["data"]
        assert {each["metadata"]["name"] for each in cluster.objects("configmaps")} >= {f"m{n}" for n in range(16)}


def test_transactions_of_a_restore_are_bounded_and_have_each_key_once() -> None:
    ops: list[Op] = [DeleteRange(b"%d" % number) for number in range(250)]
    ops += [Put(b"%d" % number, bytes(size)) for number, size in enumerate([9_000] * 250 + [1_400_000, 1, 1])]
    found = list(batches(ops))
    assert [op for batch in found for op in batch] == ops
    for batch in found:
        assert len({op.key for op in batch if isinstance(op, Put | DeleteRange)}) == len(batch) <= OPS_AT_ONCE
        assert len(batch) == 1 or sum(len(op.value) for op in batch if isinstance(op, Put)) <= BYTES_AT_ONCE


async def test_restores_at_once_leave_nothing_running() -> None:
    async with Cluster(nodes=1) as cluster:
        snapshot = await cluster.snapshot()
        await cluster.restore(snapshot)
        before = len(asyncio.all_tasks())
        await cluster.apply(POD)
        await cluster.wait("pod/p", ready=1)
        await asyncio.gather(*(cluster.restore(snapshot) for _ in range(3)))
        assert len(asyncio.all_tasks()) <= before + 5
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("moment", ["pause_components", "start_again", "_catch_up"])
async def test_stop_reaches_the_components_of_a_restore_under_way(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, work = asyncio.Event(), getattr(Plane, moment)

    async def hooked(self: Plane, *given: Any) -> Any:
        reached.set()
        await asyncio.sleep(0)
        return await work(self, *given)

    async with Cluster(nodes=1) as cluster:
        await cluster.apply(POD)
        await cluster.wait("pod/p", ready=1)
        snapshot = await cluster.snapshot()
        await cluster.delete("pod/p")
        await cluster.wait("pod/p", gone=True)
        monkeypatch.setattr(Plane, moment, hooked)
        restores = [asyncio.ensure_future(cluster.restore(snapshot)) for _ in range(2)]
        await reached.wait()
    for outcome in await asyncio.gather(*restores, return_exceptions=True):
        assert isinstance(outcome, ClusterError) and str(outcome) == STOPPED
    assert len(asyncio.all_tasks()) == 1


def test_a_component_does_not_come_between_a_deletion_and_its_object() -> None:
    """`default`, which a controller makes again, among many others."""
    with Cluster(nodes=0) as cluster:
        cluster.apply([config_map(f"m{number}", 1) for number in range(120)])
        cluster.wait("serviceaccount/default")
        snapshot = cluster.snapshot()
        for number in range(120):
            cluster.delete(f"configmap/m{number}")
        cluster.apply([config_map(f"m{number}", 2) for number in range(120)])
        (first,) = cluster.objects("serviceaccounts")
        cluster.delete("serviceaccount/default")
        uid = first["metadata"]["uid"]
        second = cluster.wait("serviceaccount/default", until=lambda each: each["metadata"]["uid"] != uid)
        cluster.restore(snapshot)
        asked = {"watch": "true", "resourceVersion": second["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
        lines = cluster.client.httpx().get("/api/v1/namespaces/default/serviceaccounts", params=asked).text.splitlines()
    events = [json.loads(line) for line in lines]
    seen = [(each["type"], each["object"]["metadata"]["uid"]) for each in events]
    assert seen == [("DELETED", second["metadata"]["uid"]), ("ADDED", uid)]


def test_an_object_that_took_a_name_is_deleted_before_the_wanted_one_is_back() -> None:
    with Cluster(nodes=0) as cluster:
        (first,) = cluster.apply(config_map("m", 1))
        snapshot = cluster.snapshot()
        cluster.delete("configmap/m")
        (second,) = cluster.apply(config_map("m", 2))
        version = second["metadata"]["resourceVersion"]
        cluster.restore(snapshot)
        client = cluster.client.httpx()
        path = "/api/v1/namespaces/default/configmaps"
        asked = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
        lines = client.get(path, params=asked).text.splitlines()
    events = [json.loads(line) for line in lines]
    seen = [(each["type"], each["object"]["metadata"]["uid"]) for each in events]
    assert seen == [("DELETED", second["metadata"]["uid"]), ("ADDED", first["metadata"]["uid"])]
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


@pytest.mark.parametrize("clock", TIMES)
def test_what_an_object_owns_is_deleted_with_it(clock: Literal["real", "virtual"]) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"a": "b"}, "template": template}
    with Cluster(nodes=1, clock=clock) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"}, "spec": spec})
        cluster.wait("rc/web", ready=2)
        cluster.delete("rc/web")
        cluster.wait("pods", gone=True, selector="a=b")
