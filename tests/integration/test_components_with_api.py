"""Client, controllers and fake kubelets on real API servers: ours in process, ours over HTTPS, and upstream."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_targets import original, transport_to
from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, EventRecorder, Involved
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    SERVICES,
    RestClient,
)
from minikube_py.client.transport import ApiTransport
from minikube_py.controllers.base import ControllerConfig
from minikube_py.controllers.manager import ControllerManager
from minikube_py.env import SystemClock
from minikube_py.errors import Unavailable
from minikube_py.kubelet.config import KubeletConfig, numbered_nodes
from minikube_py.kubelet.fake import FakeKubelet

TARGETS = ["in process", "https", pytest.param("original", marks=[pytest.mark.original, pytest.mark.slow])]
CONTAINERS = [{"name": "c", "image": "busybox", "ports": [{"name": "http", "containerPort": 8080}]}]
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": CONTAINERS}}


@pytest.fixture(scope="module")
def original_config() -> Iterator[Path]:
    with original() as kubeconfig:
        yield kubeconfig


@pytest.fixture(params=TARGETS)
async def transport(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiTransport]:
    kubeconfig = request.getfixturevalue("original_config") if request.param == "original" else None
    async with transport_to(request.param, tmp_path, kubeconfig) as transport:
        yield transport


@pytest.fixture
async def namespace(transport: ApiTransport) -> str:
    """A namespace of its own for each test: upstream is shared by all of them."""
    made = await RestClient(transport).create(NAMESPACES, {"metadata": {"generateName": "t-"}})
    return str(made["metadata"]["name"])


@pytest.fixture
async def components(transport: ApiTransport) -> AsyncIterator[FakeKubelet]:
    clock = SystemClock()
    manager = ControllerManager(
        transport, clock, random.Random(1), config=ControllerConfig(root_ca_pem="PEM", node_eviction_rate_per_s=100)
    )
    nodes = KubeletConfig(nodes=tuple(numbered_nodes(3, "tn-")), renew_interval_s=1.0)
    kubelet = FakeKubelet(transport, clock, random.Random(2), nodes)
    await asyncio.gather(manager.start(), kubelet.start())
    yield kubelet
    assert manager.failures == [] and kubelet.failures == []
    await kubelet.stop()
    await manager.stop()


@dataclass(frozen=True, slots=True)
class View:
    uid: str
    version: str


def project(obj: dict[str, Any]) -> View:
    return View(obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])


async def test_requests_and_their_errors(transport: ApiTransport, namespace: str) -> None:
    client = RestClient(transport)
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "x"}, "data": {"v": "1"}}, namespace)
    for code, reason, call in (
        (409, "AlreadyExists", client.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, namespace)),
        (404, "NotFound", client.get(CONFIG_MAPS, "none", namespace)),
        (422, "Invalid", client.create(CONFIG_MAPS, {"metadata": {"name": "A_"}}, namespace)),
        (409, "Conflict", client.delete(CONFIG_MAPS, "x", namespace, uid="another")),
    ):
        with pytest.raises(StatusError) as refused:
            await call
        assert (refused.value.code, refused.value.reason) == (code, reason)
        assert refused.value.details and refused.value.details["name"]
    made["data"]["v"] = "2"
    newer = await client.update(CONFIG_MAPS, made)
    with pytest.raises(StatusError, match="the object has been modified"):
        await client.update(CONFIG_MAPS, made)
    patched = await client.patch(CONFIG_MAPS, "x", {"data": {"w": "3"}}, namespace)
    assert patched["data"] == {"v": "2", "w": "3"} and newer["data"] == {"v": "2"}
    await client.delete(CONFIG_MAPS, "x", namespace, uid=made["metadata"]["uid"])


async def test_pages_give_every_object_once(transport: ApiTransport, namespace: str) -> None:
    client = RestClient(transport)
    for number in range(7):
        await client.create(CONFIG_MAPS, {"metadata": {"name": f"x{number}", "labels": {"l": "1"}}}, namespace)
    pages = [page async for page in client.pages(CONFIG_MAPS, namespace, label_selector="l=1", limit=3)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1


async def test_binding_twice_and_scaling(transport: ApiTransport, namespace: str) -> None:
    client = RestClient(transport)
    pod = await client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": CONTAINERS}}, namespace)
    await client.bind(namespace, "p", "some-node", pod["metadata"]["uid"])
    with pytest.raises(StatusError) as refused:
        await client.bind(namespace, "p", "other-node")
    assert refused.value.code == 409
    assert (await client.get(PODS, "p", namespace))["spec"]["nodeName"] == "some-node"
    await client.delete(PODS, "p", namespace, grace_period_s=0)


async def test_an_informer_sees_what_the_server_holds(transport: ApiTransport, namespace: str) -> None:
    client = RestClient(transport)
    informer: Informer[View] = Informer(client, CONFIG_MAPS, project, clock=SystemClock(), rng=random.Random(1))
    told: list[str] = []
    informer.add_handler(Handler(on_delete=lambda view: told.append(view.uid)))
    informer.start()
    await informer.wait_synced()
    names = [f"x{number}" for number in range(20)]
    for name in names:
        await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace)
    gone = await client.get(CONFIG_MAPS, "x0", namespace)
    await client.delete(CONFIG_MAPS, "x0", namespace)

    async def equal() -> bool:
        items = await client.list(CONFIG_MAPS)
        truth = {f"{i['metadata']['namespace']}/{i['metadata']['name']}": project(i) for i in items}
        return dict(informer.store.items()) == truth

    await until(equal, "the copy equals the server's state")
    assert told == [gone["metadata"]["uid"]] and informer.stats.lists == 1
    await informer.stop()


async def test_events_are_counted_by_the_server(transport: ApiTransport, namespace: str) -> None:
    client = RestClient(transport)
    recorder = EventRecorder(client, SystemClock(), random.Random(1), "tester")
    recorder.start()
    for _ in range(3):
        recorder.event(Involved("Pod", namespace, "p", "uid-p"), NORMAL, "Said", "hello")

    async def counted() -> Any:
        return [event for event in await client.list(EVENTS, namespace) if event.get("count") == 3]

    (event,) = await until(counted, "three in one")
    assert (event["reason"], event["message"], event["source"]) == ("Said", "hello", {"component": "tester"})
    await recorder.stop()


async def test_a_controller_of_three_becomes_three_running_pods(
    transport: ApiTransport, namespace: str, components: FakeKubelet
) -> None:
    client = RestClient(transport)

    async def bind_all() -> None:
        for pod in await client.list(PODS, namespace, field_selector="spec.nodeName="):
            if not pod["metadata"].get("deletionTimestamp"):
                await client.bind(namespace, pod["metadata"]["name"], "tn-1")

    async def ready(count: int) -> bool:
        await bind_all()
        status = (await client.get(REPLICATION_CONTROLLERS, "web", namespace)).get("status", {})
        pods = await client.list(PODS, namespace)
        return status.get("readyReplicas", 0) == status["replicas"] == count == len(pods)

    async def addresses() -> list[str]:
        try:
            endpoints = await client.get(ENDPOINTS, "web", namespace)
        except StatusError:
            return []
        return sorted(a["ip"] for s in endpoints.get("subsets") or () for a in s.get("addresses") or ())

    spec = {"replicas": 3, "selector": {"app": "web"}, "template": TEMPLATE}
    await client.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "web"}, "spec": spec}, namespace)
    service = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    await client.create(SERVICES, {"metadata": {"name": "web"}, "spec": service}, namespace)
    await until(lambda: ready(3), "three are ready")
    pods = await client.list(PODS, namespace)

    async def all_addressed() -> bool:
        return await addresses() == sorted(pod["status"]["podIP"] for pod in pods)

    await until(all_addressed, "the service has their addresses")
    await client.delete(PODS, pods[0]["metadata"]["name"], namespace)
    await until(lambda: ready(3), "a deleted one is replaced")
    await client.scale(REPLICATION_CONTROLLERS, "web", namespace, 5)
    await until(lambda: ready(5), "five are ready")
    await client.scale(REPLICATION_CONTROLLERS, "web", namespace, 1)
    await until(lambda: ready(1), "one is left")
    reasons = {event["reason"] for event in await client.list(EVENTS, namespace)}
    assert {"SuccessfulCreate", "SuccessfulDelete"} <= reasons
    await client.delete(REPLICATION_CONTROLLERS, "web", namespace, propagation="Foreground")

    async def all_gone() -> bool:
        return not await client.list(PODS, namespace) and not await client.list(REPLICATION_CONTROLLERS, namespace)

    await until(all_gone, "the controller and its pods are collected")


async def test_orphans_stay_and_are_adopted_again(
    transport: ApiTransport, namespace: str, components: FakeKubelet
) -> None:
    client = RestClient(transport)
    spec = {"replicas": 2, "selector": {"app": "web"}, "template": TEMPLATE}

    async def owned(count: int) -> bool:
        pods = await client.list(PODS, namespace)
        return len(pods) == 2 and sum(bool(pod["metadata"].get("ownerReferences")) for pod in pods) == count

    await client.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "web"}, "spec": spec}, namespace)
    await until(lambda: owned(2), "two are owned")
    before = {pod["metadata"]["uid"] for pod in await client.list(PODS, namespace)}
    await client.delete(REPLICATION_CONTROLLERS, "web", namespace, propagation="Orphan")
    await until(lambda: owned(0), "two are orphans")

    async def released() -> bool:
        return not await client.list(REPLICATION_CONTROLLERS, namespace)

    await until(released, "their controller is gone")
    await client.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "web"}, "spec": spec}, namespace)
    await until(lambda: owned(2), "two are adopted")
    assert {pod["metadata"]["uid"] for pod in await client.list(PODS, namespace)} == before


async def test_a_namespace_goes_with_all_that_is_in_it(
    transport: ApiTransport, namespace: str, components: FakeKubelet
) -> None:
    client = RestClient(transport)

    async def furnished() -> bool:
        accounts = await client.list(SERVICE_ACCOUNTS, namespace)
        authorities = await client.list(CONFIG_MAPS, namespace)
        return bool(accounts) and [a["data"] for a in authorities] == [{"ca.crt": "PEM"}]

    await until(furnished, "it has its account and authority")
    await client.create(PODS, {"metadata": {"name": "p"}, "spec": {"nodeName": "tn-0", **TEMPLATE["spec"]}}, namespace)
    await client.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}, namespace)

    async def running() -> bool:
        pod = await client.get(PODS, "p", namespace)
        return bool(pod["status"]["phase"] == "Running" and pod["status"]["podIP"])

    await until(running, "its pod runs")
    await client.delete(NAMESPACES, namespace)

    async def gone() -> bool:
        return all(item["metadata"]["name"] != namespace for item in await client.list(NAMESPACES))

    await until(gone, "it is gone")


async def test_nodes_are_ready_have_leases_and_are_cordoned(transport: ApiTransport, components: FakeKubelet) -> None:
    client = RestClient(transport)
    node = await client.get(NODES, "tn-0")
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    await client.patch(NODES, "tn-0", {"spec": {"unschedulable": True}})

    async def tainted() -> bool:
        taints = (await client.get(NODES, "tn-0"))["spec"].get("taints") or []
        return [t["key"] for t in taints] == ["node.kubernetes.io/unschedulable"]

    await until(tainted, "it is tainted")
    await client.patch(NODES, "tn-0", {"spec": {"unschedulable": None}})

    async def free() -> bool:
        return not (await client.get(NODES, "tn-0"))["spec"].get("taints")

    await until(free, "it is free again")

    async def leased() -> bool:
        leases = {lease["metadata"]["name"] for lease in await client.list(LEASES, "kube-node-lease")}
        return {"tn-0", "tn-1", "tn-2"} <= leases

    await until(leased, "all have leases")


async def test_a_closed_transport_refuses(transport: ApiTransport) -> None:
    await transport.close()
    with pytest.raises(Unavailable):
        await transport.request("GET", "/api/v1/pods")
    with pytest.raises(Unavailable):
        async for _ in transport.watch("/api/v1/pods"):
            pass


async def test_a_refused_watch_is_an_error_event(transport: ApiTransport) -> None:
    batches = [batch async for batch in transport.watch("/api/v1/pods", {"labelSelector": "a b c"})]
    ((event,),) = batches
    assert event.type == "ERROR" and orjson.loads(event.object)["code"] == 400
