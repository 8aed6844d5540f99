"""Drawn clusters on which a pod must preempt others, given to the real kube-scheduler and to ours one after the other:
the same node and victims, conditions, messages and events. Brute force says what there is to wait for.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import needs
import pytest
from patience import PATIENCE_S
from preemption_reference import PRIORITIES, Case, best, drawn, guard_object, needs_preemption, node_object, pod_object

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import RestClient
from minikube_py.env import SystemClock
from minikube_py.scheduler.config import ProfileConfig, SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler

pytestmark = [pytest.mark.original, pytest.mark.slow]

THEIRS, OURS = "default-scheduler", "ours"
CASES = int(os.environ.get("PREEMPTION_CASES", "8"))
SEED = int(os.environ.get("PREEMPTION_SEED", "1"))
Json = dict[str, Any]
PODS, GUARDS = "/api/v1/namespaces/default/pods", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with needs.original("--scheduler") as ready:
        yield Path(ready["kubeconfig"])


@asynccontextmanager
async def scheduling(kubeconfig: Path) -> AsyncIterator[RestClient]:
    transports = [HttpTransport(load_kubeconfig(kubeconfig)) for _ in range(2)]
    config = SchedulerConfig(profiles=(ProfileConfig(OURS),))
    scheduler = Scheduler(transports[1], SystemClock(), random.Random(1), config)
    client = RestClient(transports[0])
    for priority in {*PRIORITIES}:
        made = {"metadata": {"name": class_of(priority)}, "value": priority}
        await client.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", None, made)
    await scheduler.start()
    try:
        yield client
    finally:
        await scheduler.stop()
        assert scheduler.failure is None
        for transport in transports:
            await transport.close()


def class_of(priority: int) -> str:
    return f"p{priority}".replace("-", "minus")


async def until(question: Any) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await question()
            if found:
                return found
            await asyncio.sleep(0.02)


async def items(client: RestClient, path: str) -> list[Json]:
    found: list[Json] = (await client.request("GET", path))["items"]
    return found


async def patched(client: RestClient, path: str, patch: Json) -> None:
    await client.raw("PATCH", path, None, json.dumps(patch).encode(), "application/merge-patch+json")


async def set_up(client: RestClient, case: Case) -> None:
    for name, cpu in case.nodes.items():
        made = node_object(name, cpu)
        await client.request("POST", "/api/v1/nodes", None, made)
        await patched(client, f"/api/v1/nodes/{name}/status", {"status": made["status"]})
        await patched(client, f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    for guard in case.guards:
        made = guard_object(guard)
        del made["metadata"]["uid"]
        created = await client.request("POST", GUARDS, None, made)
        status = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, **made["status"]}
        await client.request("PUT", f"{GUARDS}/{guard.name}/status", None, {**created, "status": status})
    for running in case.running:
        made = pod_object(running, priorityClassName=class_of(running.priority))
        status = made.pop("status")
        del made["metadata"]["uid"]
        await client.request("POST", PODS, None, made)
        if status:
            await patched(client, f"{PODS}/{running.name}/status", {"status": status})


async def clear(client: RestClient, case: Case) -> None:
    for pod in await items(client, PODS):
        await client.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": "0"})
    for guard in case.guards:
        await client.request("DELETE", f"{GUARDS}/{guard.name}")
    for name in case.nodes:
        await client.request("DELETE", f"/api/v1/nodes/{name}")

    async def empty() -> bool:
        return not await items(client, PODS)

    await until(empty)
    await client.request("DELETE", EVENTS)


async def outcome(client: RestClient, case: Case, scheduler: str) -> Json:
    """What one scheduler did of the case: all that it wrote, without names and ids that are its own."""
    await set_up(client, case)
    policy = {"preemptionPolicy": "Never"} if case.never else {}
    priority = class_of(case.waiting.priority)
    waiting = pod_object(case.waiting, schedulerName=scheduler, priorityClassName=priority, **policy)
    del waiting["metadata"]["uid"], waiting["status"]
    uid = (await client.request("POST", PODS, None, waiting))["metadata"]["uid"]
    sizes = {len(victims) for _, victims in best(case)}

    async def done() -> Json | None:
        pods = {pod["metadata"]["name"]: pod for pod in await items(client, PODS)}
        going = sorted(name for name, pod in pods.items() if "deletionTimestamp" in pod["metadata"])
        events = await items(client, EVENTS)
        told = [event for event in events if event["reason"] == "Preempted"]
        status = pods["waiting"]["status"]
        conditions = [each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
        if not conditions or not any(event["reason"] == "FailedScheduling" for event in events):
            return None
        if sizes and not (len(told) == len(going) in sizes and status.get("nominatedNodeName")):
            return None
        first = next(event for event in events if event["reason"] == "FailedScheduling")
        return {
            "node": status.get("nominatedNodeName", ""),
            "victims": going,
            "why": [conditions[0]["status"], conditions[0]["reason"]],
            "message": first["message"],
            "targets": [target(pods[name], scheduler) for name in going],
            "events": sorted(preempted(event, uid, scheduler) for event in told),
        }

    try:
        return await until(done)
    finally:
        await clear(client, case)


def target(pod: Json, scheduler: str) -> list[str]:
    found = next(each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert found["lastTransitionTime"] and found.get("observedGeneration") == pod["metadata"]["generation"] - 1
    return [found["status"], found["reason"], found["message"].replace(scheduler, "SCHEDULER")]


def preempted(event: Json, uid: str, scheduler: str) -> list[str]:
    assert event["reportingComponent"] == scheduler
    message = event["message"].replace(uid, "UID")
    related = json.dumps(event.get("related"))
    return [event["involvedObject"]["name"], related, event["type"], event["action"], message]


async def test_the_same_node_victims_and_words(kubeconfig: Path) -> None:
    rng = random.Random(SEED)
    cases: list[Case] = []
    while len(cases) < CASES:
        case = drawn(rng, nominated=False)
        if needs_preemption(case) and (len(cases) % 4 == 0 or len(best(case)) == 1):
            cases.append(case)
    async with scheduling(kubeconfig) as client:
        for number, case in enumerate(cases):
            if len(best(case)) > 1:
                continue
            theirs = await outcome(client, case, THEIRS)
            ours = await outcome(client, case, OURS)
            assert theirs == ours, f"case {number} of seed {SEED}: {case}"
            if best(case):
                assert (theirs["node"], tuple(theirs["victims"])) in best(case), case


