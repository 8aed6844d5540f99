"""The same wishes to upstream's controller manager and to ours: what they make of them must be the same, after
names that are drawn, uids, times and versions are taken out."""

from __future__ import annotations

import difflib
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import address_scenarios
import certificate_scenarios
import device_scenarios
import flow_scenarios
import policy_type_scenarios
import pytest
import quota_scenarios
import role_scenarios
import slice_scenarios
import storage_scenarios
from api_targets import original, transport_to
from lockstep import SIDE, in_lockstep
from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    SERVICES,
    RestClient,
)
from minikube_py.controllers.manager import CONTROLLERS, ControllerManager
from minikube_py.controllers.pod_gc import PodGarbageCollector
from minikube_py.env import SystemClock

pytestmark = [pytest.mark.original, pytest.mark.slow]

NAMESPACE = "work"
POD_GC = PodGarbageCollector.name
"""Runs on neither side: it deletes pods whose node does not exist, as here, after 40 s, which a slow script takes."""
Scenario = Callable[[RestClient], Awaitable[Any]]


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with original("--controllers", "--fairness", f"--without={POD_GC}") as path:
        yield path


@asynccontextmanager
async def ours(folder: Path, without: Collection[str] = ()) -> AsyncIterator[RestClient]:
    names = [name for name in CONTROLLERS if name not in without]
    async with transport_to("in process", folder) as transport:
        manager = ControllerManager(transport, SystemClock(), random.Random(1), names=names)
        await manager.start()
        try:
            yield RestClient(transport)
        finally:
            await manager.stop()


@asynccontextmanager
async def theirs(kubeconfig: Path, folder: Path) -> AsyncIterator[RestClient]:
    async with transport_to("original", folder, kubeconfig) as transport:
        yield RestClient(transport)


def normal(value: Any) -> Any:
    """Without what differs by chance: uids, versions, times, drawn suffixes, fields of bookkeeping."""
    if isinstance(value, dict):
        dropped = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "lastTransitionTime", "timeAdded")
        return {name: normal(part) for name, part in value.items() if name not in dropped}
    if isinstance(value, list):
        return [normal(part) for part in value]
    if isinstance(value, str):
        return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", re.sub(r"\bweb-[a-z0-9]{5}\b", "web-XXXXX", value))
    return value


async def make_pod(client: RestClient, name: str, ip: str, *, ready: bool = True, **spec: Any) -> None:
    containers = [{"name": "c", "image": "x", "ports": [{"name": "http", "containerPort": 8080}]}]
    labels = {"app": "web"}
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers, "nodeName": "n", **spec}}
    await client.create(PODS, body, NAMESPACE)
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}
    await client.patch(PODS, name, {"status": status}, NAMESPACE, subresource="status")


async def settled(client: RestClient, ask: Callable[[], Awaitable[Any]]) -> Any:
    """The answer at rest, without what differs by chance."""

    async def told() -> Any:
        return normal(await ask())

    return await SIDE.get().settle(told)


def services(*specs: tuple[str, dict[str, Any]]) -> Scenario:
    async def scenario(client: RestClient) -> Any:
        for name, spec in specs:
            body = {"metadata": {"name": name, "labels": {"team": "x"}}, "spec": spec}
            await client.create(SERVICES, body, NAMESPACE)
        await make_pod(client, "p1", "10.1.0.1")
        await make_pod(client, "p2", "10.1.0.2", ready=False)
        await make_pod(client, "p3", "10.1.0.3", hostname="h", subdomain="headless")
        await make_pod(client, "p4", "10.1.0.4")
        ended = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z"}
        status = {"phase": "Failed", "conditions": [ended]}
        await client.patch(PODS, "p4", {"status": status}, NAMESPACE, subresource="status")

        async def ask() -> Any:
            found = {e["metadata"]["name"]: e for e in await client.list(ENDPOINTS, NAMESPACE)}
            for endpoints in found.values():
                # It tells which change a sync saw first, and so how changes fell into syncs.
                endpoints["metadata"].pop("annotations", None)
                for subset in endpoints.get("subsets") or ():
                    # The original orders ports by a hash of their Go printout.
                    subset.get("ports", []).sort(key=str)
            return found

        return await settled(client, ask)

    return scenario


SELECTOR = {"app": "web"}


async def replication(client: RestClient) -> Any:
    template = {"metadata": {"labels": SELECTOR}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 3, "selector": SELECTOR, "template": template}
    await client.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "web"}, "spec": spec}, NAMESPACE)

    async def ask() -> Any:
        pods = await client.list(PODS, NAMESPACE)
        controllers = await client.list(REPLICATION_CONTROLLERS, NAMESPACE)
        events = [(e["reason"], e["message"], e["type"], e["source"], e["involvedObject"]["kind"], e["count"])
                  for e in await client.list(EVENTS, NAMESPACE)]  # fmt: skip
        metadata = [normal(p["metadata"]) | {"name": "?"} for p in pods]
        kept = sorted(metadata, key=lambda each: json.dumps(each, sort_keys=True))
        return {"pods": kept, "controllers": [normal(c["status"]) for c in controllers],
                "events": sorted(map(str, normal([list(e) for e in events])))}  # fmt: skip

    answers = [await settled(client, ask)]
    await client.scale(REPLICATION_CONTROLLERS, "web", NAMESPACE, 1)
    answers.append(await settled(client, ask))
    (pod,) = await client.list(PODS, NAMESPACE)
    patch = {"metadata": {"labels": {"app": "debug"}}}
    await client.patch(PODS, pod["metadata"]["name"], patch, NAMESPACE)
    answers.append(await settled(client, ask))
    await client.delete(REPLICATION_CONTROLLERS, "web", NAMESPACE, propagation="Background")
    answers.append(await settled(client, ask))
    return answers


async def owners(client: RestClient) -> Any:
    """What remains after owners go, each in its own way."""
    answers: dict[str, Any] = {}
    for policy in ("Background", "Foreground", "Orphan"):
        root = await client.create(CONFIG_MAPS, {"metadata": {"name": f"root-{policy.lower()}"}}, NAMESPACE)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": root["metadata"]["name"]}
        for name, uid, block in (("child", root["metadata"]["uid"], True), ("stranger", "no-such-uid", False)):
            refs = [{**reference, "uid": uid, "blockOwnerDeletion": block}]
            metadata = {"name": f"{name}-{policy.lower()}", "ownerReferences": refs}
            await client.create(SERVICE_ACCOUNTS, {"metadata": metadata}, NAMESPACE)

        async def strangers_gone(policy: str = policy) -> bool:
            names = {a["metadata"]["name"] for a in await client.list(SERVICE_ACCOUNTS, NAMESPACE)}
            return f"stranger-{policy.lower()}" not in names

        await until(strangers_gone, "an owner of another uid is no owner")
        await client.delete(CONFIG_MAPS, root["metadata"]["name"], NAMESPACE, propagation=policy)

    async def ask() -> Any:
        accounts = await client.list(SERVICE_ACCOUNTS, NAMESPACE)
        maps = [m["metadata"]["name"] for m in await client.list(CONFIG_MAPS, NAMESPACE)]
        found = {a["metadata"]["name"]: a["metadata"].get("ownerReferences") or [] for a in accounts}
        return {"accounts": found, "maps": [name for name in maps if name.startswith("root")]}

    answers["after"] = await settled(client, ask)
    return answers


async def node_taints(client: RestClient) -> Any:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "True"}]
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    node = {"metadata": {"name": "tainted", "labels": labels}, "spec": {"unschedulable": True}}
    await client.create(NODES, {**node, "status": {"conditions": conditions}})

    async def ask() -> Any:
        found = await client.get(NODES, "tainted")
        taints = sorted(found["spec"].get("taints") or [], key=lambda taint: str(taint["key"]))
        return {"taints": taints, "labels": found["metadata"]["labels"]}

    answers = [await settled(client, ask)]
    await client.patch(NODES, "tainted", {"spec": {"unschedulable": False}})
    answers.append(await settled(client, ask))
    await client.delete(NODES, "tainted")
    return answers


async def namespace_held(client: RestClient) -> Any:
    """A namespace that cannot go, because of a finalizer, and then can."""
    body = {"metadata": {"name": "held", "finalizers": ["example.com/keep"]}}
    await client.create(CONFIG_MAPS, body, NAMESPACE)
    await client.delete(NAMESPACES, NAMESPACE)

    async def reported() -> Any:
        found = await client.get(NAMESPACES, NAMESPACE)
        return found["status"] if found["status"].get("conditions") else None

    status = await until(reported, "it says what it waits for")
    await client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, NAMESPACE)

    async def gone() -> bool:
        try:
            await client.get(NAMESPACES, NAMESPACE)
        except StatusError as error:
            return error.code == 404
        return False

    await until(gone, "it is gone")
    return sorted(normal(status["conditions"]), key=lambda condition: str(condition["type"]))


SCENARIOS: dict[str, Scenario] = {
    "services of all sorts": services(
        ("plain", {"selector": SELECTOR, "ports": [{"port": 80}]}),
        ("named", {"selector": SELECTOR, "ports": [{"name": "a", "port": 80, "targetPort": "http"}]}),
        ("two", {"selector": SELECTOR, "ports": [
            {"name": "a", "port": 80}, {"name": "b", "port": 81, "protocol": "UDP"}]}),
        ("headless", {"selector": SELECTOR, "clusterIP": "None"}),
        ("unready", {"selector": SELECTOR, "ports": [{"port": 80}], "publishNotReadyAddresses": True}),
        ("manual", {"ports": [{"port": 80}]}),
        ("nobody", {"selector": {"app": "none"}, "ports": [{"port": 80}]}),
        ("external", {"type": "ExternalName", "externalName": "example.com"}),
    ),
    "slices of services": slice_scenarios.of_services(settled),
    "hints by zone": slice_scenarios.by_zone(settled),
    "mirrored slices": slice_scenarios.mirrored(settled),
    "replication": replication,
    "owners": owners,
    "node taints": node_taints,
    "a namespace that is held": namespace_held,
    "volumes and claims": storage_scenarios.binding(settled),
    "claims that pods use": storage_scenarios.used_claims(settled),
    "volumes that are attached": storage_scenarios.attaching(settled),
    "claims that ask for more": storage_scenarios.expanding(settled),
    "types of policies": policy_type_scenarios.checked(settled),
    "disruption budgets": storage_scenarios.budgets(settled),
    "claims for devices": device_scenarios.devices(settled),
    "tainted devices": device_scenarios.taints(settled),
    "quotas": quota_scenarios.counted(settled),
    "requests for certificates": certificate_scenarios.approved(settled),
    "aggregated roles": role_scenarios.aggregated(settled),
    "networks of services": address_scenarios.held(settled),
    "levels of flows": flow_scenarios.dangling(settled),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
async def test_controllers_make_the_same_of_it(name: str, kubeconfig: Path, tmp_path: Path) -> None:
    async with theirs(kubeconfig, tmp_path / "theirs") as upstreams, ours(tmp_path / "ours", [POD_GC]) as own:
        answers = await in_lockstep(lambda: run(name, upstreams), lambda: run(name, own))
    texts = [json.dumps(answer, indent=1, sort_keys=True).splitlines() for answer in answers]
    differ = "\n".join(difflib.unified_diff(*texts, "upstream", "ours", lineterm="", n=3))
    assert not differ, differ


async def run(name: str, client: RestClient) -> Any:
    async def clear() -> bool:
        return all(item["metadata"]["name"] != NAMESPACE for item in await client.list(NAMESPACES))

    await until(clear, "an earlier namespace is gone")
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    async def furnished() -> bool:
        return bool(await client.list(SERVICE_ACCOUNTS, NAMESPACE))

    await until(furnished, "it has its account")
    answer = await SCENARIOS[name](client)
    for pod in await clear_pods(client):
        await client.delete(PODS, pod, NAMESPACE, grace_period_s=0)
    if name != "a namespace that is held":
        await client.delete(NAMESPACES, NAMESPACE)
    return normal(answer)


async def clear_pods(client: RestClient) -> list[str]:
    return [pod["metadata"]["name"] for pod in await client.list(PODS, NAMESPACE)]
