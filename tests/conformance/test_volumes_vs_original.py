"""Pods with volumes, drawn from a seed: our scheduler beside upstream's, on one real API server and cluster.

Each case is made twice, with storage of its own for each scheduler. Alike must be what is reported for a pod that fits
nowhere, with the number of nodes for each reason, and what is written into its claims and volumes where it fits. Most
pods name their node, so that nothing is left to chance.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import needs
import pytest
from drawn_volumes import COMPLETED, COUNTED, NODES, SELECTED, Draw, node_drivers, running
from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import PODS, ResourceRef, RestClient
from minikube_py.env import SystemClock
from minikube_py.scheduler.config import ProfileConfig, SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.scheduler.volumes.views import CLAIMS, DRIVERS, NODE_DRIVERS, VOLUMES

pytestmark = [pytest.mark.original, pytest.mark.slow]

THEIRS, OURS = "default-scheduler", "ours"
CASES, SEED = 30, 11
@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with needs.original("--scheduler") as ready:
        yield Path(ready["kubeconfig"])


class World:
    def __init__(self, client: RestClient, scheduler: Scheduler) -> None:
        self.client = client
        self.scheduler = scheduler

    async def make(self, resource: Any, obj: dict[str, Any]) -> None:
        created = await self.client.create(resource, obj, obj["metadata"].get("namespace", ""))
        if "status" in obj:
            await self.client.update_status(resource, {**created, "status": obj["status"]})

    async def outcome(self, made: list[tuple[Any, dict[str, Any]]], pod: dict[str, Any], suffix: str) -> dict[str, Any]:
        """What the scheduler made of the pod: its node, or its condition; and what it wrote into the storage."""
        for resource, obj in made:
            await self.make(resource, obj)
        await self.client.create(PODS, pod, "default")
        name = pod["metadata"]["name"]
        found: dict[str, Any] = {}

        async def settled() -> bool:
            found.clear()
            found.update(await self._seen(name, made))
            return found["placed"] or found["message"]

        await until(settled, lambda: f"the pod is placed or has its reason: {found} of {made}")
        text = json.dumps(found)
        settled_now: dict[str, Any] = json.loads(text.replace(suffix, ""))
        return settled_now

    async def _seen(self, name: str, made: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
        """`wrote`: what a scheduler has written into claims and volumes, and nobody else was there to write."""
        pod = await self.client.get(PODS, name, "default")
        wrote: dict[str, Any] = {}
        for resource, obj in made:
            metadata = obj["metadata"]
            if resource == VOLUMES.resource:
                now = await self.client.get(resource, metadata["name"])
                reference = now["spec"].get("claimRef") or {}
                if reference.get("uid"):
                    wrote[metadata["name"]] = reference["name"], now["metadata"].get("annotations")
            elif resource == CLAIMS.resource and SELECTED not in metadata["annotations"]:
                now = await self.client.get(resource, metadata["name"], "default")
                if node := (now["metadata"].get("annotations") or {}).get(SELECTED):
                    wrote[metadata["name"]] = node
        node = pod["spec"].get("nodeName") or ""
        condition = next(iter(pod["status"].get("conditions") or ()), {})
        # Claims are written one after the other; a pod is placed once all have been.
        waiting = [
            o["metadata"] for r, o in made if r == CLAIMS.resource and COMPLETED not in o["metadata"]["annotations"]
        ]
        named = {reference for reference, _ in (each for each in wrote.values() if isinstance(each, tuple))}
        done = all(m["name"] in wrote or m["name"] in named or SELECTED in m["annotations"] for m in waiting)
        placed = bool(node or (wrote and done))
        message = "" if wrote or placed else condition.get("message", "")
        return {"placed": placed, "node": node, "message": message, "wrote": wrote}

    async def forget(self, made: list[tuple[Any, dict[str, Any]]], pod: dict[str, Any]) -> None:
        for resource, obj in [(PODS, pod), *reversed(made)]:
            name, namespace = (
                obj["metadata"]["name"],
                obj["metadata"].get("namespace", "default" if resource is PODS else ""),
            )
            try:
                await self.client.delete(resource, name, namespace, grace_period_s=0)
                current = await self.client.get(resource, name, namespace)
                current["metadata"]["finalizers"] = []
                await self.client.update(resource, current)
            except StatusError as error:
                assert error.code in (404, 409), error


@asynccontextmanager
async def world(kubeconfig: Path) -> AsyncIterator[World]:
    transport = HttpTransport(load_kubeconfig(kubeconfig))
    client = RestClient(transport)
    for obj in NODES:
        await client.create(ResourceRef("", "v1", "nodes"), obj)
    for obj in running():
        await client.create(PODS, obj, "default")
    await client.create(DRIVERS.resource, COUNTED)
    for obj in node_drivers():
        await client.create(NODE_DRIVERS.resource, obj)
    scheduler = Scheduler(transport, SystemClock(), random.Random(1), SchedulerConfig(profiles=(ProfileConfig(OURS),)))
    await scheduler.start()
    try:
        yield World(client, scheduler)
    finally:
        await scheduler.stop()
        assert scheduler.failure is None
        await transport.close()
        for _ in range(10):
            # Aborted TLS connections let go of their sockets in later turns of the loop.
            await asyncio.sleep(0)


async def test_drawn_pods_with_volumes_fare_alike(kubeconfig: Path) -> None:
    counts: Counter[bool] = Counter()
    async with world(kubeconfig) as w:
        for seed in range(SEED, SEED + CASES):
            outcomes = {}
            for scheduler, suffix in ((OURS, "-ours"), (THEIRS, "-them")):
                made, pod = Draw(seed).case(suffix, scheduler)
                pinned = "nodeSelector" in pod["spec"]
                outcomes[scheduler] = await w.outcome(made, pod, suffix)
                await w.forget(made, pod)
            ours, theirs = outcomes[OURS], outcomes[THEIRS]
            if not pinned:
                # Which of several nodes is chosen is left to chance, and with it which volumes.
                for outcome in (ours, theirs):
                    outcome["node"] = outcome["wrote"] = bool(outcome["placed"])
            assert ours == theirs, (seed, ours, theirs)
            counts[bool(ours["placed"])] += 1
    assert min(counts[True], counts[False]) > CASES // 4, counts
