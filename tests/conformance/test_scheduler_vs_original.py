"""Our scheduler beside upstream's, on one real API server and cluster: the same nodes, messages and events.

Each case is created twice, once for each scheduler. Where several nodes tie for the best score, both choose one of them
at random.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any

import needs
import pytest

from minikube_py.api.errors import StatusError
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import PODS, RestClient
from minikube_py.env import SystemClock
from minikube_py.scheduler.config import ProfileConfig, SchedulerConfig
from minikube_py.scheduler.explaining import verdicts
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.scheduler import Scheduler

pytestmark = [pytest.mark.original, pytest.mark.slow]

THEIRS, OURS = "default-scheduler", "ours"
WAIT_S = 20.0


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with needs.original("--scheduler") as ready:
        yield Path(ready["kubeconfig"])


def node(name: str, cpu: str, memory: str, pods: str = "110", **more: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("extended", {})}
    metadata = {"name": name, "labels": more.pop("labels", {})}
    status = {"allocatable": amounts, "capacity": amounts, **more.pop("status", {})}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": more, "status": status}


def taint(key: str, effect: str) -> dict[str, str]:
    return {"key": key, "value": "v", "effect": effect}


IMAGES = [{"names": ["x.io/large@sha256:1", "x.io/large:latest"], "sizeBytes": 900 << 20}]
FEW = [*IMAGES, {"names": ["x.io/small:1"], "sizeBytes": 90 << 20}]
RESTARTING = ["InPlacePodLevelResourcesVerticalScaling", "RestartAllContainersOnContainerExits"]
FEATURED = {"declaredFeatures": RESTARTING, "images": FEW}
RESTARTS = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
RESTARTED = {"container": {"restartPolicy": "Never", "restartPolicyRules": [RESTARTS]}}
NODES = [
    node("small", "2", "4Gi", labels={"zone": "a", "gen": "3"}, status={"images": IMAGES}),
    node("tall", "4", "32Gi", labels={"zone": "a", "gen": "7"}),
    node("wide", "16", "8Gi", labels={"zone": "b", "gen": "12"}, status=FEATURED),
    node("gpu", "8", "16Gi", labels={"zone": "b", "ssd": "y"}, extended={"example.com/gpu": "4"}),
    node("avoid", "64", "256Gi", labels={"zone": "c"}, taints=[taint("k", "PreferNoSchedule")]),
    node("tainted", "64", "256Gi", labels={"zone": "c"}, taints=[taint("k", "NoSchedule")]),
    node("cordoned", "64", "256Gi", labels={"zone": "c"}, unschedulable=True),
    node("full", "64", "256Gi", pods="0"),
]
RUNNING = [
    ("small", "300m", "1Gi"),
    ("tall", "1", "1Gi"),
    ("wide", "2", "3Gi"),
    ("wide", "", ""),
    ("gpu", "1500m", "2Gi"),
]
TOLD = ("reason", "message", "type", "action", "source", "firstTimestamp")


def pod(name: str, scheduler: str, requests: dict[str, str], **spec: Any) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": requests}
    limits = {key: value for key, value in requests.items() if "/" in key}
    if limits:
        resources["limits"] = limits
    container = {"name": "c", "image": "x", "resources": resources, **spec.pop("container", {})}
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


def wants(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(expressions)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def names(*found: str) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in found]
    terms = [{"matchFields": fields}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def prefers(*weighted: tuple[int, str, str]) -> dict[str, Any]:
    terms = [
        {"weight": w, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}
        for w, key, value in weighted
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


PLACED: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("small pod", {"cpu": "100m", "memory": "128Mi"}, {}),
    ("best effort", {}, {}),
    ("only cpu", {"cpu": "1500m"}, {}),
    ("only memory", {"memory": "3Gi"}, {}),
    ("much memory", {"cpu": "500m", "memory": "12Gi"}, {}),
    ("gpu", {"cpu": "1", "example.com/gpu": "2"}, {}),
    ("tolerates what others avoid", {"cpu": "1"}, {"tolerations": [{"key": "k", "operator": "Exists"}]}),
    ("tolerates the soft one", {"cpu": "1"}, {"tolerations": [{"operator": "Exists", "effect": "PreferNoSchedule"}]}),
    ("selector", {"cpu": "100m"}, {"nodeSelector": {"zone": "a"}}),
    ("newer than", {"cpu": "100m"}, {"affinity": wants(label("gen", "Gt", "3"))}),
    ("older than", {"cpu": "100m"}, {"affinity": wants(label("gen", "Lt", "7"))}),
    ("not in", {"cpu": "100m"}, {"affinity": wants(label("zone", "NotIn", "b", "c"))}),
    ("no such label", {"cpu": "100m"}, {"affinity": wants(label("gen", "DoesNotExist"), label("ssd", "Exists"))}),
    ("by name", {"cpu": "100m"}, {"affinity": names("gpu")}),
    ("prefers", {"cpu": "100m"}, {"affinity": prefers((10, "zone", "a"), (40, "ssd", "y"))}),
    ("prefers little", {"cpu": "1"}, {"affinity": prefers((1, "zone", "a"))}),
    ("an image that two nodes have", {"cpu": "100m"}, {"container": {"image": "x.io/large"}}),
    ("an image that one node has", {"cpu": "1"}, {"container": {"image": "x.io/small:1"}}),
    ("an image by another tag", {"cpu": "100m"}, {"container": {"image": "x.io/large:2"}}),
    ("a feature that one node declares", {"cpu": "100m"}, RESTARTED),
    ("port", {"cpu": "100m"}, {"container": {"ports": [{"hostPort": 8080, "containerPort": 80}]}}),
]
REFUSED: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("too much cpu", {"cpu": "100"}, {}),
    ("too much of everything", {"cpu": "100", "memory": "1Ti", "example.com/gpu": "9"}, {}),
    ("an unknown resource", {"other.io/thing": "1"}, {}),
    ("no such zone", {}, {"nodeSelector": {"zone": "nowhere"}}),
    ("no such name", {}, {"affinity": names("nobody")}),
    ("two names at once", {}, {"affinity": names("small", "tall")}),
    ("a tainted name", {}, {"affinity": names("tainted")}),
    ("a full name", {}, {"affinity": names("full")}),
    ("beyond the free, within the node", {"cpu": "1900m"}, {"affinity": names("small")}),
    ("a feature that none declares", {}, {**RESTARTED, "nodeSelector": {"zone": "a"}}),
    ("a feature where there is no room", {"cpu": "15"}, RESTARTED),
    ("tolerant but too large", {"cpu": "65"}, {"tolerations": [{"operator": "Exists"}]}),
]


class Both:
    """The cluster that both schedulers see."""

    def __init__(self, client: RestClient, scheduler: Scheduler) -> None:
        self.client = client
        self.scheduler = scheduler

    async def create(self, obj: dict[str, Any]) -> None:
        await self.client.request("POST", "/api/v1/namespaces/default/pods", None, obj)

    async def settled(self, name: str) -> dict[str, Any]:
        """The pod once it is bound, or says why it is not."""
        async with asyncio.timeout(WAIT_S):
            selector = {"fieldSelector": f"metadata.name={name}", "resourceVersion": "0"}
            watch: Any = self.client.transport.watch("/api/v1/namespaces/default/pods", selector)
            async with aclosing(watch):
                async for batch in watch:
                    for event in batch:
                        found: dict[str, Any] = json.loads(event.object)
                        conditions = found.get("status", {}).get("conditions") or [{}]
                        if found["spec"].get("nodeName") or conditions[0].get("reason"):
                            return found
        raise AssertionError(f"the watch of {name} ended")

    async def confirmed(self, name: str) -> PodInfo:
        """Our scheduler's view of a bound pod."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = self.scheduler.pod(f"default/{name}")
                if found is not None and found.node_name:
                    return found
                await asyncio.sleep(0)

    async def forgotten(self, key: str) -> None:
        """Returns when our scheduler has seen that the pod is gone."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if self.scheduler.pod(key) is None:
                    return
                await asyncio.sleep(0)

    async def delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/default/pods/{name}"
        await self.client.request("DELETE", path, {"gracePeriodSeconds": "0"})
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await self.client.get(PODS, name, "default")
                except StatusError as error:
                    assert error.code == 404
                    return

    async def events(self, name: str) -> list[dict[str, Any]]:
        """The events about the pod, as soon as there are any."""
        async with asyncio.timeout(WAIT_S):
            selector = {"fieldSelector": f"involvedObject.name={name}", "resourceVersion": "0"}
            watch: Any = self.client.transport.watch("/api/v1/namespaces/default/events", selector)
            async with aclosing(watch):
                async for batch in watch:
                    return [json.loads(event.object) for event in batch]
        raise AssertionError(f"the watch of events of {name} ended")


@asynccontextmanager
async def both(kubeconfig: Path) -> AsyncIterator[Both]:
    transport = HttpTransport(load_kubeconfig(kubeconfig))
    client = RestClient(transport)
    for obj in NODES:
        try:
            await client.request("POST", "/api/v1/nodes", None, obj)
        except StatusError as error:
            assert error.code == 409
    for i, (where, cpu, memory) in enumerate(RUNNING):
        requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
        try:
            running = pod(f"running-{i}", THEIRS, requests, nodeName=where)
            await client.request("POST", "/api/v1/namespaces/default/pods", None, running)
        except StatusError as error:
            assert error.code == 409
    config = SchedulerConfig(profiles=(ProfileConfig(OURS),))
    scheduler = Scheduler(transport, SystemClock(), random.Random(1), config)
    await scheduler.start()
    try:
        yield Both(client, scheduler)
    finally:
        await scheduler.stop()
        assert scheduler.failure is None
        await transport.close()
        for _ in range(10):
            # Aborted TLS connections let go of their sockets in later turns of the loop.
            await asyncio.sleep(0)


async def test_the_same_nodes(kubeconfig: Path) -> None:
    unique = 0
    async with both(kubeconfig) as b:
        for i, (name, requests, spec) in enumerate(PLACED):
            found = {}
            for scheduler in (OURS, THEIRS):
                key = f"placed-{i}-{scheduler}"
                await b.create(pod(key, scheduler, requests, **spec))
                found[scheduler] = (await b.settled(key))["spec"].get("nodeName")
                if scheduler == OURS:
                    bound = await b.confirmed(key)
                await b.delete(key)
            # With the pods gone, the nodes are again as both schedulers found them.
            for scheduler in (OURS, THEIRS):
                await b.forgotten(f"default/placed-{i}-{scheduler}")
            bound = copy(bound)
            bound.node_name = ""
            ranked = verdicts(b.scheduler.profiles[OURS].evaluator, bound)
            best = {each.node.name for each in ranked if each.total == ranked[0].total}
            assert best.issuperset(found.values()), (name, found, ranked)
            unique += len(best) == 1
    # Were most of them ties, the comparison would say little.
    assert unique >= 12


async def test_the_same_refusals(kubeconfig: Path) -> None:
    async with both(kubeconfig) as b:
        for i, (name, requests, spec) in enumerate(REFUSED):
            conditions, events = [], []
            for scheduler in (OURS, THEIRS):
                key = f"refused-{i}-{scheduler}"
                await b.create(pod(key, scheduler, requests, **spec))
                (condition,) = (await b.settled(key))["status"]["conditions"]
                condition.pop("lastTransitionTime")
                conditions.append(condition)
                event = (await b.events(key))[0]
                events.append({key: event[key] for key in TOLD})
                await b.delete(key)
            assert conditions[0] == conditions[1], name
            assert events[0] == events[1], name


async def test_the_same_word_for_a_binding(kubeconfig: Path) -> None:
    async with both(kubeconfig) as b:
        found = []
        for scheduler in (OURS, THEIRS):
            key = f"told-{scheduler}"
            await b.create(pod(key, scheduler, {"cpu": "1m"}, affinity=names("gpu")))
            await b.settled(key)
            event = (await b.events(key))[0]
            event["metadata"] = sorted(set(event["metadata"]) - {"managedFields"})
            kept = {k: v for k, v in event.items() if k not in ("involvedObject", "eventTime", "reportingInstance")}
            found.append(json.loads(json.dumps(kept).replace(scheduler, "scheduler")))
            await b.delete(key)
        assert found[0] == found[1]
