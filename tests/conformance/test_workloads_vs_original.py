"""The same Deployments, StatefulSets, DaemonSets and Jobs to upstream's controller manager and to ours: what is there at rest after
each step, and the order of events, must be the same."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_targets import original
from job_scenarios import JOB_SCENARIOS
from lockstep import ACTS_EVERY_S, SIDE, in_lockstep
from patience import until
from test_controllers_vs_original import NAMESPACE, clear_pods, normal, ours, theirs

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    ResourceRef,
    RestClient,
    path_of,
)
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH

pytestmark = [pytest.mark.original, pytest.mark.slow]

LABELS = {"app": "web"}
READY = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
}
_CONTAINER = "c"
BEAT_S = 5.0
"""Between two heartbeats of the nodes: a node without any is taken for lost after 50 s, which a slow script takes."""


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with original("--controllers") as path:
        yield path


def template(image: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": _CONTAINER, "image": image}]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": containers, **spec}}


def workload(image: str, **spec: Any) -> dict[str, Any]:
    found = {"selector": {"matchLabels": LABELS}, "template": template(image), **spec}
    return {"metadata": {"name": "web"}, "spec": found}


def node_of(pod: dict[str, Any]) -> str:
    """Where a DaemonSet pinned it to."""
    found = re.search(r"'matchFields': \[\{[^]]*'values': \['(\w+)'\]", str(pod["spec"].get("affinity")))
    return found[1] if found else ""


class World:
    """A namespace on one of the servers, with kubelets that make pods ready (but for images called `broken`)."""

    def __init__(self, client: RestClient, resource: ResourceRef, children: tuple[ResourceRef, ...]) -> None:
        self.client = client
        self.resource = resource
        self.children = children
        self.names: dict[str, str] = {}
        self.answers: list[Any] = []
        self._beat_at_s = 0.0

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._beat_at_s:
            return
        self._beat_at_s = loop.time() + BEAT_S
        beat = {"type": "Ready", "lastHeartbeatTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        for node in await self.client.list(NODES):
            patch = {"status": {"conditions": [beat]}}
            await self.client.patch(
                NODES, node["metadata"]["name"], patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status"
            )

    async def kubelets(self) -> None:
        while True:
            with contextlib.suppress(StatusError):
                await self._beat()
                for pod in await self.client.list(PODS, NAMESPACE):
                    name, image = pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]
                    bound, wanted = pod["spec"].get("nodeName"), node_of(pod)
                    if bound and pod["metadata"].get("deletionTimestamp"):
                        await self.client.delete(PODS, name, NAMESPACE, grace_period_s=0)
                        continue
                    if wanted and not bound:
                        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": wanted}}
                        await self.client.request("POST", path_of(PODS, NAMESPACE, name, "binding"), None, binding)
                    if pod["status"].get("phase") == "Pending" and image != "broken":
                        status = {"status": READY}
                        await self.client.patch(PODS, name, status, NAMESPACE, subresource="status")
            await asyncio.sleep(ACTS_EVERY_S)

    async def state(self) -> Any:
        found: dict[str, Any] = {}
        for resource in (self.resource, *self.children, PODS):
            objects = await self.client.list(resource, NAMESPACE)
            objects.sort(key=lambda obj: (obj["metadata"]["creationTimestamp"], obj["metadata"]["name"]))
            for obj in objects:
                self._learn(resource, obj)
            found[resource.plural] = sorted((self.told(obj) for obj in objects), key=str)
        return found

    def _learn(self, resource: ResourceRef, obj: dict[str, Any]) -> None:
        """Names made from a hash are replaced by the revision that they had when they were first seen."""
        metadata = obj["metadata"]
        revision = (metadata.get("annotations") or {}).get("deployment.kubernetes.io/revision", obj.get("revision"))
        if resource in self.children and revision:
            self.names.setdefault(metadata["name"].rpartition("-")[2], f"R{revision}")

    def told(self, obj: Any) -> Any:
        """Without names that are drawn, and images' defaults."""
        found = normal(obj)
        if isinstance(found, dict) and "status" in found:
            found["status"].get("conditions", []).sort(key=lambda condition: str(condition["type"]))
        text = json.dumps(found, sort_keys=True, indent=1)
        text = re.sub("|".join(self.names) or "$^", lambda match: self.names[match[0]], text)
        text = re.sub(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID", text)
        return re.sub(r"(web-R?\d+-)[a-z0-9]{5}\b", r"\1XXXXX", text)

    async def settle(self, step: str) -> None:
        self.answers.append((step, await SIDE.get().settle(self.state)))

    async def told_events(self) -> list[str]:
        """Of the workload itself, in their order."""
        events = await self.client.list(EVENTS, NAMESPACE)
        own = [e for e in events if e["involvedObject"]["name"] == "web"]
        own.sort(key=lambda e: int(e["metadata"]["resourceVersion"]))
        return [
            self.told(f"{e['involvedObject']['kind']} {e['type']} {e['reason']} {e['count']}x: {e['message']}")
            for e in own
        ]

    async def patch(self, patch: Any) -> None:
        await self.client.patch(self.resource, "web", patch, NAMESPACE)

    async def image(self, image: str) -> None:
        await self.patch({"spec": {"template": template(image)}})


Scenario = Callable[[World], Awaitable[None]]


def deployment(**spec: Any) -> Callable[[World], Awaitable[None]]:
    async def create(world: World) -> None:
        await world.client.create(DEPLOYMENTS, workload("one", **spec), NAMESPACE)
        await world.settle("created")

    return create


async def rolls(world: World) -> None:
    # Few enough events: from the tenth on, which of them upstream combines is left to chance.
    await deployment(
        replicas=1, revisionHistoryLimit=1, strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    )(world)
    for image in ("two", "three"):
        await world.image(image)
        await world.settle(f"rolled to {image}")
    await world.patch({"spec": {"replicas": 2}, "metadata": {"annotations": {"kubernetes.io/change-cause": "more"}}})
    await world.settle("scaled up")
    await world.image("two")
    await world.settle("back to two, which keeps its history")
    await world.client.delete(DEPLOYMENTS, "web", NAMESPACE, propagation="Foreground")
    await world.settle("deleted in the foreground")


async def recreates(world: World) -> None:
    await deployment(replicas=2, strategy={"type": "Recreate"})(world)
    await world.image("two")
    await world.settle("recreated")
    await world.client.delete(DEPLOYMENTS, "web", NAMESPACE, propagation="Orphan")
    await world.settle("orphaned")
    await world.client.create(DEPLOYMENTS, workload("two", replicas=2), NAMESPACE)
    await world.settle("adopted")


async def pauses(world: World) -> None:
    await deployment(replicas=4, paused=True)(world)
    await world.patch({"spec": {"paused": False}})
    await world.settle("resumed")
    await world.patch({"spec": {"paused": True}})
    await world.image("two")
    await world.patch({"spec": {"replicas": 2}})
    await world.settle("scaled while paused")
    await world.patch({"spec": {"paused": False}})
    await world.settle("rolled once resumed")


async def sticks(world: World) -> None:
    await deployment(replicas=4, progressDeadlineSeconds=3, minReadySeconds=1)(world)
    await world.image("broken")
    await world.settle("stuck")

    async def timed_out() -> bool:
        found = await world.client.get(DEPLOYMENTS, "web", NAMESPACE)
        return any(each["reason"] == "ProgressDeadlineExceeded" for each in found["status"]["conditions"])

    await until(timed_out, "the deadline passes")
    await world.patch({"spec": {"replicas": 10}})
    await world.settle("scaled in proportion while stuck")
    await world.patch({"metadata": {"annotations": {"deprecated.deployment.rollback.to": "0"}}})
    await world.settle("rolled back")


def stateful_set(**spec: Any) -> Callable[[World], Awaitable[None]]:
    async def create(world: World) -> None:
        body = workload("one", serviceName="s", **spec)
        await world.client.create(STATEFUL_SETS, body, NAMESPACE)
        await world.settle("created")

    return create


CLAIM = {
    "metadata": {"name": "v"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def goes_in_order(world: World) -> None:
    await stateful_set(replicas=2, revisionHistoryLimit=1, volumeClaimTemplates=[CLAIM])(world)
    await world.image("two")
    await world.settle("updated")
    await world.patch({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}})
    await world.image("three")
    await world.settle("updated down to the partition")
    await world.patch({"spec": {"replicas": 1}})
    await world.settle("scaled down")
    await world.patch({"spec": {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    await world.settle("scaled up, without a partition")
    await world.image("two")
    await world.settle("back to two")
    await world.client.delete(STATEFUL_SETS, "web", NAMESPACE, propagation="Foreground")
    await world.settle("deleted in the foreground: claims stay")


async def claims_go(world: World) -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    await stateful_set(replicas=3, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)(world)
    await world.patch({"spec": {"replicas": 2}})
    await world.settle("scaled down: a claim goes with its pod")
    await world.patch({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}})
    await world.settle("kept when the set is deleted")
    await world.patch(
        {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}}
    )
    await world.settle("kept when it is scaled")
    await world.patch({"spec": {"replicas": 1}})
    await world.settle("scaled down again: the claim stays")
    await world.client.delete(STATEFUL_SETS, "web", NAMESPACE, propagation="Background")
    await world.settle("deleted: its claims go, too")


async def goes_in_parallel(world: World) -> None:
    await stateful_set(replicas=3, podManagementPolicy="Parallel", ordinals={"start": 5}, minReadySeconds=1)(world)
    await world.patch({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}})
    await world.image("two")
    await world.settle("nothing is updated but by hand")
    await world.client.delete(PODS, "web-6", NAMESPACE)
    await world.settle("one was deleted")
    await world.client.patch(PODS, "web-7", {"metadata": {"labels": {"app": "free"}}}, NAMESPACE)
    await world.settle("one was released, and holds the name")
    await world.client.patch(PODS, "web-7", {"metadata": {"labels": {"app": "web"}}}, NAMESPACE)
    await world.settle("adopted again")
    await world.client.delete(STATEFUL_SETS, "web", NAMESPACE, propagation="Orphan")
    await world.settle("orphaned")
    await world.client.create(STATEFUL_SETS, workload("two", serviceName="s", replicas=1), NAMESPACE)
    await world.settle("adopted by one that starts at 0")


async def is_stuck_in_order(world: World) -> None:
    await stateful_set(replicas=2)(world)
    await world.image("broken")
    await world.settle("the last one is broken, the first one stays")
    await world.image("three")
    await world.settle("a broken pod is not replaced")
    await world.client.delete(PODS, "web-1", NAMESPACE, grace_period_s=0)
    await world.settle("until it is deleted")


@contextlib.asynccontextmanager
async def nodes(client: RestClient) -> AsyncIterator[None]:
    """Three, of which two have an SSD, and one that no pod may go to."""
    taint = {"key": "keep", "value": "off", "effect": "NoSchedule"}
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}]}
    names = ("a", "b", "c", "off")
    for name in names:
        labels = {"kubernetes.io/hostname": name, **({"disk": "ssd"} if name in "ab" else {})}
        spec = {"taints": [taint]} if name == "off" else {}
        await client.create(NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": ready})
    try:
        yield
    finally:
        for name in names:
            await client.delete(NODES, name)


def daemon_set(**spec: Any) -> Callable[[World], Awaitable[None]]:
    async def create(world: World) -> None:
        await world.client.create(DAEMON_SETS, workload("one", **spec), NAMESPACE)
        await world.settle("created")

    return create


async def daemons_roll(world: World) -> None:
    async with nodes(world.client):
        await daemon_set(revisionHistoryLimit=0)(world)
        await world.image("two")
        await world.settle("rolled")
        await world.client.patch(NODES, "b", {"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}})
        await world.settle("one node is tainted")
        await world.patch({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}})
        await world.settle("on nodes with an SSD")
        await world.client.patch(NODES, "c", {"metadata": {"labels": {"disk": "ssd"}}})
        await world.settle("one more has one")
        await world.client.delete(DAEMON_SETS, "web", NAMESPACE, propagation="Foreground")
        await world.settle("deleted in the foreground")


async def daemons_surge(world: World) -> None:
    async with nodes(world.client):
        await daemon_set(updateStrategy={"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}})(world)
        await world.image("two")
        await world.settle("rolled by surge")


async def daemons_stay(world: World) -> None:
    async with nodes(world.client):
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a", "off"]}]},
        ]}}}  # fmt: skip
        pods = template("one", affinity=affinity, tolerations=[{"operator": "Exists"}])
        await daemon_set(template=pods, updateStrategy={"type": "OnDelete"}, minReadySeconds=1)(world)
        await world.patch({"spec": {"template": {"metadata": {"annotations": {"k": "v"}}}}})
        await world.settle("nothing is updated but by hand")
        (pod,) = [pod for pod in await world.client.list(PODS, NAMESPACE) if node_of(pod) == "b"]
        await world.client.patch(
            PODS, pod["metadata"]["name"], {"status": {"phase": "Failed"}}, NAMESPACE, subresource="status"
        )
        await world.settle("one failed")
        await world.client.delete(DAEMON_SETS, "web", NAMESPACE, propagation="Orphan")
        await world.settle("orphaned")
        await world.client.create(DAEMON_SETS, workload("two", template=pods), NAMESPACE)
        await world.settle("adopted")


SCENARIOS: dict[str, tuple[ResourceRef, tuple[ResourceRef, ...], Scenario]] = {
    "a Deployment rolls": (DEPLOYMENTS, (REPLICA_SETS,), rolls),
    "a Deployment recreates": (DEPLOYMENTS, (REPLICA_SETS,), recreates),
    "a Deployment pauses": (DEPLOYMENTS, (REPLICA_SETS,), pauses),
    "a Deployment is stuck": (DEPLOYMENTS, (REPLICA_SETS,), sticks),
    "a StatefulSet in order": (STATEFUL_SETS, (CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS), goes_in_order),
    "a StatefulSet's claims": (STATEFUL_SETS, (CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS), claims_go),
    "a StatefulSet in parallel": (STATEFUL_SETS, (CONTROLLER_REVISIONS,), goes_in_parallel),
    "a DaemonSet rolls": (DAEMON_SETS, (CONTROLLER_REVISIONS,), daemons_roll),
    "a DaemonSet surges": (DAEMON_SETS, (CONTROLLER_REVISIONS,), daemons_surge),
    "a DaemonSet on delete": (DAEMON_SETS, (CONTROLLER_REVISIONS,), daemons_stay),
    "a StatefulSet is stuck": (STATEFUL_SETS, (CONTROLLER_REVISIONS,), is_stuck_in_order),
    **JOB_SCENARIOS,
}


@contextlib.asynccontextmanager
async def furnished(client: RestClient) -> AsyncIterator[None]:
    async def clear() -> bool:
        return all(item["metadata"]["name"] != NAMESPACE for item in await client.list(NAMESPACES))

    async def has_account() -> bool:
        return bool(await client.list(SERVICE_ACCOUNTS, NAMESPACE))

    await until(clear, "an earlier namespace is gone")
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await until(has_account, "it has its account")
    yield
    for pod in await clear_pods(client):
        with contextlib.suppress(StatusError):
            await client.delete(PODS, pod, NAMESPACE, grace_period_s=0)
    await client.delete(NAMESPACES, NAMESPACE)


async def run(name: str, client: RestClient) -> tuple[list[Any], list[str]]:
    resource, children, scenario = SCENARIOS[name]
    async with furnished(client):
        world = World(client, resource, children)
        kubelets = asyncio.get_running_loop().create_task(world.kubelets())
        try:
            await scenario(world)
            return world.answers, await SIDE.get().settle(world.told_events)
        finally:
            kubelets.cancel()
            await asyncio.gather(kubelets, return_exceptions=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_workloads_come_to_the_same(name: str, kubeconfig: Path, tmp_path: Path) -> None:
    async with theirs(kubeconfig, tmp_path / "theirs") as upstreams, ours(tmp_path / "ours") as own:
        answers = await in_lockstep(lambda: run(name, upstreams), lambda: run(name, own))
    (upstream, their_events), (mine, our_events) = answers
    for (step, theirs_then), (_, ours_then) in zip(upstream, mine, strict=True):
        for plural, objects in theirs_then.items():
            assert_same(f"{step}: {plural}", ours_then[plural], objects)
    assert_same("events", our_events, their_events)


def assert_same(what: str, mine: list[str], upstream: list[str]) -> None:
    lines = [[line for text in texts for line in text.splitlines()] for texts in (upstream, mine)]
    differ = "\n".join(difflib.unified_diff(*lines, "upstream", "ours", lineterm="", n=2))
    assert not differ, f"{what}\n{differ}"
