"""Drawn autoscalers to upstream's controller and to ours, with the same usage of their pods: the sizes, statuses and
events that each comes to, step by step, must be the same.

Only this controller runs on either side. Upstream's API server asks for usage by an APIService; ours serves no other's
groups, so its controller's transport asks."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_targets import original, transport_to
from drawn_autoscalers import STEPS, TARGETS, Drawn, Step, ages, draw
from lockstep import SIDE, in_lockstep
from metrics_server import ROOTS, Used, WithMetrics, registered, serving
from patience import until
from side_by_side import Told, judged
from test_controllers_vs_original import normal

from minikube_py.client.rest import NAMESPACES, PODS, RestClient
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.autoscaling import AutoscalerConfig
from minikube_py.controllers.base import ControllerConfig
from minikube_py.controllers.horizontal_autoscaler import HorizontalPodAutoscalerController
from minikube_py.controllers.manager import ControllerManager
from minikube_py.controllers.volume_views import AUTOSCALERS
from minikube_py.env import SystemClock

pytestmark = [pytest.mark.original, pytest.mark.slow]

Json = dict[str, Any]
ONLY = HorizontalPodAutoscalerController.name
PERIOD_S = 1.0
SEED, CASES = int(os.environ.get("MINIKUBE_PY_JUDGE_SEED", "1")), 24
NAMESPACE = "scaled"
SYNCS = 3
"""Of the one that never changes, after a step: the others have been synced by then."""
BEACON = "beacon"


@pytest.fixture
def kubeconfig() -> Iterator[Path]:
    period = f"--controller-flag=--horizontal-pod-autoscaler-sync-period={PERIOD_S:g}s"
    with original("--controllers", f"--only={ONLY}", period) as path:
        yield path


@asynccontextmanager
async def ours(folder: Path, used: Used) -> AsyncIterator[RestClient]:
    config = ControllerConfig(autoscaler=AutoscalerConfig(period_s=PERIOD_S))
    async with transport_to("in process", folder) as transport:
        manager = ControllerManager(
            WithMetrics(transport, used), SystemClock(), random.Random(1), names=[ONLY], config=config
        )
        await manager.start()
        try:
            yield RestClient(transport)
        finally:
            await manager.stop()


@asynccontextmanager
async def theirs(kubeconfig: Path, folder: Path, used: Used) -> AsyncIterator[RestClient]:
    async with transport_to("original", folder, kubeconfig) as transport, serving(used, folder) as port:
        client = RestClient(transport)
        await registered(client, port)

        async def available() -> bool:
            asked = [(await transport.request("GET", f"{root}/namespaces/default/pods/*/m"))[0] for root in ROOTS]
            asked.append((await transport.request("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"))[0])
            return 503 not in asked

        await until(available, "the API server passes requests for metrics on")
        yield client


class World:
    def __init__(self, client: RestClient, used: Used, drawn: list[Drawn]) -> None:
        self.client = client
        self.used = used
        self.drawn = drawn
        self.answers: list[Any] = []
        self.told = Told()
        self._now = datetime.now(UTC)

    def _ago(self, seconds: float) -> str:
        return (self._now - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _tell(self, app: str, used: list[Json] | tuple[int, str]) -> None:
        stamped = [{**each, "timestamp": self._ago(0)} for each in used] if isinstance(used, list) else used
        self.used.by_app[app] = stamped

    async def create(self, one: Drawn) -> None:
        self._tell(one.app, one.used)
        self.used.measured.update(one.measured)
        await self.client.create(one.resource, one.target, NAMESPACE)
        for pod in one.pods:
            await self.client.create(PODS, pod.body, NAMESPACE)
            await self.client.patch(PODS, pod.name, {"status": self._status(pod.sort)}, NAMESPACE, subresource="status")
            if pod.sort == "leaving":
                await self.client.delete(PODS, pod.name, NAMESPACE, grace_period_s=0)
        await self.client.create(AUTOSCALERS, one.autoscaler, NAMESPACE)

    def _status(self, sort: str) -> Json:
        started_s, changed_s = ages(sort)
        ready = {"never ready": "False", "was ready": "False", "unknown": "Unknown"}.get(sort, "True")
        phase = {"pending": "Pending", "failed": "Failed", "ended": "Succeeded"}.get(sort, "Running")
        found: Json = {"phase": phase}
        if sort != "no start":
            found["startTime"] = self._ago(started_s)
        if sort != "no condition":
            found["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": self._ago(changed_s)}]
        return found

    async def step(self, one: Drawn, step: Step) -> None:
        if step.used is not None:
            self._tell(one.app, step.used)
        elif step.measured is not None:
            self.used.measured.update(step.measured)
        elif step.spec is not None:
            await self.client.patch(AUTOSCALERS, one.app, {"spec": step.spec}, NAMESPACE, content_type=MERGE_PATCH)
        else:
            patch = {"spec": {"replicas": step.replicas}}
            await self.client.patch(one.resource, one.app, patch, NAMESPACE, content_type=MERGE_PATCH)

    async def synced(self) -> None:
        wanted = self.used.asked[BEACON] + SYNCS
        await until(lambda: self.used.asked[BEACON] >= wanted, "all are synced")

    async def state(self) -> Any:
        scaled = {}
        for resource in TARGETS.values():
            for each in await self.client.list(resource, NAMESPACE):
                scaled[each["metadata"]["name"]] = each["spec"]["replicas"]
        found = await self.client.list(AUTOSCALERS, NAMESPACE)
        statuses = {each["metadata"]["name"]: normal(each.get("status") or {}) for each in found}
        return {name: {"size": scaled[name], **status} for name, status in sorted(statuses.items())}

    async def settle(self) -> None:
        await self.synced()
        self.answers.append(await SIDE.get().settle(self.state))


def drawn_of(seed: int) -> list[Drawn]:
    """With one that asks for usage at each sync, and never changes."""
    steady = draw(0, BEACON)
    pods = [pod._replace(sort="steady") for pod in steady.pods]
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}
    steady.autoscaler["spec"] |= {"minReplicas": 1, "maxReplicas": 9, "metrics": [metric]}
    steady.target["spec"]["replicas"] = len(pods)
    beacon = steady._replace(pods=pods, steps=[Step(spec={"maxReplicas": 9})] * STEPS)
    return [beacon, *(draw(seed, f"a{at}") for at in range(CASES))]


async def run(world: World) -> None:
    client = world.client
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for one in world.drawn:
        await world.create(one)
    await world.settle()
    for at in range(STEPS):
        for one in world.drawn:
            await world.step(one, one.steps[at])
        await world.settle()
    await world.told.read(client, NAMESPACE, "HorizontalPodAutoscaler", normal)


@pytest.mark.timeout(300)
async def test_autoscalers_come_to_the_same(kubeconfig: Path, tmp_path: Path) -> None:
    used = Used(), Used()
    folders = tmp_path / "theirs", tmp_path / "ours"
    for folder in folders:
        folder.mkdir()
    async with theirs(kubeconfig, folders[0], used[0]) as upstreams, ours(folders[1], used[1]) as own:
        one, two = World(upstreams, used[0], drawn_of(SEED)), World(own, used[1], drawn_of(SEED))
        await in_lockstep(lambda: run(one), lambda: run(two))
    judged(one, two, CASES // 2)
