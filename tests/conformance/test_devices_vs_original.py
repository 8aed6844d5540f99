"""Pods with claims for devices, drawn from a seed: our scheduler beside upstream's, on one real API server.

Each case is made twice, once for each scheduler. Alike must be the condition of a pod that fits nowhere, and what its
claims get where it fits. A first answer may come while an informer does not know the whole case yet, so that a case
counts as different only if it is so again and again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import drawn_extended
import needs
import pytest
from device_cases import asked
from drawn_devices import Draw
from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import PODS, ResourceRef, RestClient
from minikube_py.env import SystemClock
from minikube_py.scheduler.config import ProfileConfig, SchedulerConfig
from minikube_py.scheduler.devices.selecting import selects
from minikube_py.scheduler.devices.views import CLAIMS, CLASSES, SLICES
from minikube_py.scheduler.scheduler import Scheduler

pytestmark = [pytest.mark.original, pytest.mark.slow]

THEIRS, OURS = "default-scheduler", "ours"
CASES, SEED, ROUNDS = 30, 100, 3
EXTENDED_CASES = 16
NODES = (("n0", "a"), ("n1", "b"))
Made = list[tuple[ResourceRef, dict[str, Any]]]


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with needs.original("--scheduler") as ready:
        yield Path(ready["kubeconfig"])


def node(name: str, zone: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": zone}}
    return {"metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}}


def suffix_of(seed: int, scheduler: str) -> str:
    """No name comes twice: a pod that waits for its devices is waited for after it is gone, by its claims' names."""
    return f"-{seed}-{scheduler}"


def drawn(seed: int, scheduler: str) -> tuple[Made, dict[str, Any]]:
    case, suffix = Draw(seed).case(), suffix_of(seed, scheduler)
    made: Made = [(CLASSES.resource, each) for each in case["classes"]]
    made += [(SLICES.resource, each) for each in case["slices"]]
    for each in case["claims"]:
        metadata = {"name": each["metadata"]["name"] + suffix, "namespace": "default"}
        made.append((CLAIMS.resource, {**each, "metadata": metadata}))
    names = [each["metadata"]["name"] + suffix for each in case["claims"]]
    spec = {
        "schedulerName": scheduler,
        "containers": [{"name": "c", "image": "x"}],
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in names],
        "nodeSelector": {"kubernetes.io/hostname": "n0"},
        "terminationGracePeriodSeconds": 0,
    }
    return made, {"metadata": {"name": f"p{suffix}"}, "spec": spec}


def seeds() -> Iterator[int]:
    """Every other one is of a case in which there should be devices enough; one in ten is, as they are drawn."""
    wanted = True
    for seed in itertools.count(SEED):
        case = Draw(seed).case()
        case["allocated"] = {}
        if bool(asked(case, selects)["results"]) is wanted:
            wanted = not wanted
            yield seed


class World:
    def __init__(self, client: RestClient) -> None:
        self.client = client

    async def outcome(self, seed: int, scheduler: str) -> dict[str, Any] | None:
        """None where the server takes none of the claims."""
        made, pod = drawn(seed, scheduler)
        suffix = suffix_of(seed, scheduler)
        taken: Made = []
        try:
            for resource, obj in made:
                try:
                    await self.client.create(resource, obj, obj["metadata"].get("namespace", ""))
                    taken.append((resource, obj))
                except StatusError as error:
                    assert error.code == 422, error
                    if resource is CLAIMS.resource:
                        return None
            await self.client.create(PODS, pod, "default")
            taken.append((PODS, pod))
            claims = [obj["metadata"]["name"] for resource, obj in taken if resource is CLAIMS.resource]
            found: dict[str, Any] = {}

            async def settled() -> bool:
                found.clear()
                found.update(await self._seen(f"p{suffix}", claims))
                return bool(found["is_placed"] or found["message"])

            await until(settled, lambda: f"the pod is placed or has its reason: {found} of {seed}")
            settled_now: dict[str, Any] = json.loads(json.dumps(found).replace(suffix, ""))
            return settled_now
        finally:
            await self.forget(taken)

    async def _seen(self, name: str, claims: list[str]) -> dict[str, Any]:
        """Placed is a pod, too, that waits for its devices to be ready: its claims are written, which come first."""
        pod = await self.client.get(PODS, name, "default")
        condition = next(iter(pod["status"].get("conditions") or ()), {})
        seen = [await self._claim(name) for name in claims]
        is_placed = all(users for *_, users, _ in seen)
        message = "" if is_placed else condition.get("message", "")
        return {"is_placed": is_placed, "message": message, "claims": seen if is_placed else ()}

    async def _claim(self, name: str) -> Any:
        obj = await self.client.get(CLAIMS.resource, name, "default")
        status = obj.get("status") or {}
        allocation = status.get("allocation") or {}
        shares = 0
        for result in (allocation.get("devices") or {}).get("results") or ():
            shares += "shareID" in result
            result.pop("shareID", None)
        since = allocation.pop("allocationTimestamp", "")
        users = [(each["resource"], each["name"]) for each in status.get("reservedFor") or ()]
        finalizers = obj["metadata"].get("finalizers")
        return allocation, shares, bool(re.fullmatch(r"[0-9T:-]+Z", since)), users, finalizers

    async def forget(self, made: Made) -> None:
        for resource, obj in reversed(made):
            name, namespace = obj["metadata"]["name"], "default" if resource in (PODS, CLAIMS.resource) else ""
            try:
                if resource is CLAIMS.resource:
                    await self.client.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
                await self.client.delete(resource, name, namespace, grace_period_s=0)
            except StatusError as error:
                assert error.code == 404, error


    async def extended(self, draw: drawn_extended.Draw, scheduler: str) -> Made:
        """What was made for one scheduler; empty where the server does not take the pod."""
        nodes = ResourceRef("", "v1", "nodes")
        if draw.own:
            own = {"status": {"allocatable": draw.own, "capacity": draw.own}}
            await self.client.patch(nodes, draw.node, own, subresource="status")
        made: Made = [(CLASSES.resource, each) for each in draw.classes]
        made += [(SLICES.resource, draw.slice)]
        for resource, obj in made:
            await self.client.create(resource, obj)
        pod = {**draw.pod, "spec": {**draw.pod["spec"], "schedulerName": scheduler}}
        try:
            await self.client.create(PODS, pod, "default")
        except StatusError as error:
            assert error.code == 422, error
            await self.forget(made)
            return []
        return [*made, (PODS, pod)]

    async def fared(self, draw: drawn_extended.Draw) -> dict[str, Any] | None:
        """None as long as the pod is neither placed nor told why not."""
        pod = await self.client.get(PODS, f"p{draw.suffix}", "default")
        status = pod["status"]
        condition = next((each for each in status.get("conditions") or () if each["type"] == "PodScheduled"), {})
        told = status.get("extendedResourceClaimStatus")
        found: dict[str, Any] = {"node": pod["spec"].get("nodeName"), "told": told, "claim": None}
        if not found["node"] and not condition.get("message"):
            return None
        found["message"] = "" if found["node"] else condition["message"]
        if told is not None:
            obj = await self.client.get(CLAIMS.resource, told["resourceClaimName"], "default")
            metadata = obj["metadata"]
            owners = [{**each, "uid": ""} for each in metadata["ownerReferences"]]
            written = await self._claim(told["resourceClaimName"])
            found["claim"] = *written, obj["spec"], metadata["annotations"], owners
        text = json.dumps(found).replace(draw.suffix, "")
        settled: dict[str, Any] = json.loads(re.sub(r"-extended-resources-[a-z0-9]{5}", "", text))
        return settled

    async def alike(self, draws: dict[str, drawn_extended.Draw]) -> dict[str, Any]:
        """How both pods fare, once they fare alike."""
        found: dict[str, dict[str, Any] | None] = {}

        async def are_alike() -> dict[str, Any] | None:
            found.update({name: await self.fared(draw) for name, draw in draws.items()})
            return found[OURS] if found[OURS] == found[THEIRS] else None

        ours: dict[str, Any] = await until(are_alike, lambda: f"both pods fare alike: {json.dumps(found, indent=1)}")
        return ours

    async def forget_extended(self, made: Made) -> None:
        await self.forget(made)
        for obj in await self.client.list(CLAIMS.resource, "default"):
            await self.forget([(CLAIMS.resource, obj)])


@asynccontextmanager
async def world(kubeconfig: Path) -> AsyncIterator[World]:
    transport = HttpTransport(load_kubeconfig(kubeconfig))
    client = RestClient(transport)
    nodes = ResourceRef("", "v1", "nodes")
    for name, zone in NODES:
        try:
            await client.create(nodes, node(name, zone))
        except StatusError as error:
            assert error.code == 409, error
    scheduler = Scheduler(transport, SystemClock(), random.Random(1), SchedulerConfig(profiles=(ProfileConfig(OURS),)))
    await scheduler.start()
    try:
        yield World(client)
    finally:
        await scheduler.stop()
        assert scheduler.failure is None
        await transport.close()
        for _ in range(10):
            # Aborted TLS connections let go of their sockets in later turns of the loop.
            await asyncio.sleep(0)


async def test_drawn_pods_with_claims_fare_alike(kubeconfig: Path) -> None:
    counts: Counter[bool] = Counter()
    async with world(kubeconfig) as w:
        for seed in seeds():
            for last in (False,) * (ROUNDS - 1) + (True,):
                ours, theirs = await w.outcome(seed, OURS), await w.outcome(seed, THEIRS)
                if ours == theirs:
                    break
                assert not last, (seed, ours, theirs)
            if ours is not None:
                counts[ours["is_placed"]] += 1
            if counts.total() >= CASES:
                break
    assert min(counts[True], counts[False]) > CASES // 4, counts


async def test_drawn_pods_that_ask_for_extended_resources_fare_alike(kubeconfig: Path) -> None:
    """What comes late wakes a pod again, so that both must come to one end, though not by one way."""
    counts: Counter[str] = Counter()
    async with world(kubeconfig) as w:
        for seed in range(EXTENDED_CASES):
            draws = {name: drawn_extended.Draw(seed, suffix_of(seed, name), "n0") for name in (OURS, THEIRS)}
            made = {name: await w.extended(draw, name) for name, draw in draws.items()}
            assert bool(made[OURS]) is bool(made[THEIRS]), (seed, made)
            if not made[OURS]:
                continue
            ours = await w.alike(draws)
            counts["waits" if not ours["node"] else "by devices" if ours["claim"] else "by the node"] += 1
            for each in made.values():
                await w.forget_extended(each)
    assert min(counts[each] for each in ("waits", "by devices", "by the node")) > 1, counts
