"""The scheduler on the real API server and store, in one process: what it decides is what the API shows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from patience import PATIENCE_S

from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.client.rest import NODES, PODS, RestClient
from minikube_py.env import SystemClock, SystemDisk
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.store.member import StoreMember

WAIT_S = PATIENCE_S


class Cluster:
    def __init__(self, core: ApiServer) -> None:
        self.core = core
        self.client = RestClient(InProcessTransport(core))

    async def node(self, name: str, cpu: str = "4", **spec: Any) -> None:
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts}
        body = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec, "status": status}
        await self.client.request("POST", "/api/v1/nodes", None, body)

    async def pod(self, name: str, cpu: str = "1", **spec: Any) -> None:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [container], **spec}
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}
        await self.client.request("POST", "/api/v1/namespaces/default/pods", None, body)

    async def delete(self, name: str) -> None:
        await self.client.request("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": "0"})

    async def pods(self) -> dict[str, Any]:
        page = await self.client.list_page(PODS)
        return {pod["metadata"]["name"]: pod for pod in page.items}

    async def placed(self) -> dict[str, str]:
        return {name: pod["spec"].get("nodeName", "") for name, pod in (await self.pods()).items()}

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The pods as soon as `holds` of them: looks again at every event, not at intervals."""
        async with asyncio.timeout(WAIT_S):
            params = {"resourceVersion": "0"}
            async for _ in self.client.transport.watch("/api/v1/pods", params):
                pods = await self.pods()
                if holds(pods):
                    return pods
        raise AssertionError("the watch ended")


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    clock, rng = SystemClock(), random.Random(5)
    member = StoreMember(SystemDisk(folder), clock, rng)
    await member.start()
    core = ApiServer(member.storage, clock, rng)
    await core.start()
    try:
        yield Cluster(core)
    finally:
        await core.stop()
        await member.stop()


@asynccontextmanager
async def scheduling(c: Cluster, seed: int = 1) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(InProcessTransport(c.core), SystemClock(), random.Random(seed))
    await scheduler.start()
    try:
        yield scheduler
        assert scheduler.failure is None
    finally:
        await scheduler.stop()


def all_bound(count: int) -> Callable[[dict[str, Any]], bool]:
    return lambda pods: sum(bool(pod["spec"].get("nodeName")) for pod in pods.values()) == count


async def check_books(c: Cluster, scheduler: Scheduler) -> None:
    """What the scheduler counts on each node is what the API says runs there."""
    async with asyncio.timeout(WAIT_S):
        while True:
            # Its own watch may be a turn of the loop behind ours.
            if not scheduler.cache.assumed and len(scheduler.cache) == sum(map(bool, (await c.placed()).values())):
                break
            await asyncio.sleep(0)
    used: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for pod in (await c.pods()).values():
        if node := pod["spec"].get("nodeName"):
            text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used[node] = used.get(node, 0) + (int(text[:-1]) if text.endswith("m") else int(text) * 1000)
            numbers[node] = numbers.get(node, 0) + 1
    for node in (await c.client.list_page(NODES)).items:
        info = scheduler.columns.by_name[node["metadata"]["name"]]
        assert info.requested.get("cpu", 0) == used.get(info.name, 0)
        assert info.requested["pods"] == len(info.pods) == numbers.get(info.name, 0)
        assert int(scheduler.columns.requested_row("cpu")[info.slot]) == used.get(info.name, 0)


async def test_pods_spread_over_the_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c, scheduling(c) as scheduler:
        for i in range(10):
            await c.node(f"n{i}")
        await asyncio.gather(*(c.pod(f"p{i}", "500m") for i in range(80)))
        pods = await c.until(all_bound(80))
        by_node = [pod["spec"]["nodeName"] for pod in pods.values()]
        assert {by_node.count(f"n{i}") for i in range(10)} == {8}
        condition = pods["p0"]["status"]["conditions"][0]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
        await check_books(c, scheduler)


async def test_the_condition_and_the_event_of_a_pod_that_waits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c, scheduling(c):
        await c.node("n1", unschedulable=True)
        await c.node("n2", cpu="1")
        await c.pod("p", "2")

        def told(pods: dict[str, Any]) -> bool:
            return bool(pods["p"]["status"].get("conditions"))

        pods = await c.until(told)
        message = (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. no new claims to deallocate, "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
        condition = pods["p"]["status"]["conditions"][0]
        assert (condition["reason"], condition["message"]) == ("Unschedulable", message)
        patch = orjson.dumps({"spec": {"unschedulable": False}})
        await c.client.raw("PATCH", "/api/v1/nodes/n1", None, patch, "application/merge-patch+json")
        await c.until(all_bound(1))
        assert await c.placed() == {"p": "n1"}


async def test_a_deleted_pod_makes_room_for_who_waits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c, scheduling(c) as scheduler:
        await c.node("n1")
        for i in range(4):
            await c.pod(f"p{i}")
        await c.until(all_bound(4))
        await c.pod("next")
        await c.until(lambda pods: bool(pods["next"]["status"].get("conditions")))
        await c.delete("p2")
        pods = await c.until(lambda pods: bool(pods["next"]["spec"].get("nodeName")))
        assert "p2" not in pods
        await check_books(c, scheduler)


async def test_a_scheduler_that_starts_anew_goes_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        await c.node("n1")
        await c.node("n2")
        async with scheduling(c):
            await asyncio.gather(*(c.pod(f"p{i}") for i in range(4)))
            await c.until(all_bound(4))
        await asyncio.gather(*(c.pod(f"q{i}") for i in range(6)))
        async with scheduling(c, seed=2) as scheduler:
            await c.until(all_bound(8))
            # 8 cpus hold 8 pods; two wait.
            assert scheduler.queue.pending()["unschedulable"] + scheduler.queue.pending()["active"] <= 2
            placed = list((await c.placed()).values())
            assert (placed.count("n1"), placed.count("n2"), placed.count("")) == (4, 4, 2)


async def test_churn_leaves_the_books_right(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c, scheduling(c) as scheduler:
        rng = random.Random(9)
        for i in range(4):
            await c.node(f"n{i}", cpu="2")
        alive: set[str] = set()
        for i in range(120):
            if alive and rng.random() < 0.45:
                name = rng.choice(sorted(alive))
                alive.discard(name)
                await c.delete(name)
            else:
                await c.pod(f"p{i}", f"{rng.randrange(100, 900)}m")
                alive.add(f"p{i}")

        await c.pod("last", "1m")
        alive.add("last")
        await c.until(lambda pods: bool(pods["last"]["spec"].get("nodeName")))
        async with asyncio.timeout(WAIT_S):
            while True:
                await check_books(c, scheduler)
                queue = scheduler.queue.pending()
                asleep = sum(not node for node in (await c.placed()).values())
                if not queue["active"] and not queue["backoff"] and queue["unschedulable"] == asleep:
                    break
                await asyncio.sleep(0)
        assert set(await c.placed()) == alive
        free = {f"n{i}": 2000 - scheduler.columns.by_name[f"n{i}"].requested.get("cpu", 0) for i in range(4)}
        for name, pod in (await c.pods()).items():
            if not pod["spec"].get("nodeName"):
                text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
                assert int(text[:-1]) > max(free.values()), (name, free)
