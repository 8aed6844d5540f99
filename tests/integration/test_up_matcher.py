"""A control plane whose scheduler finds its nodes by a structure of the index family: named by `up`, or to the role."""

import asyncio
import random
from pathlib import Path

import pytest
from patience import PATIENCE_S

from minikube_py.client.rest import PODS, RestClient
from minikube_py.control_plane.config import COMPONENTS, ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.control_plane.role_clients import SchedulerRole
from minikube_py.env import SystemClock
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER
from minikube_py.scheduler.scheduler import Scheduler

WAIT_S = PATIENCE_S


@pytest.mark.parametrize("apart", [pytest.param(False, id="one process"), pytest.param(True, id="the role by itself")])
async def test_the_structure_that_was_named_is_asked(tmp_path: Path, apart: bool) -> None:
    components = tuple(name for name in COMPONENTS if not (apart and name == "scheduler"))
    config = ControlPlaneConfig(tmp_path, port=0, nodes=3, matcher="max-tree", components=components)
    plane = ControlPlane(config, SystemClock(), random.Random(1))
    role = SchedulerRole(config.kubeconfig_file, DEFAULT_SCHEDULER, None, None, "max-tree")
    await plane.start()
    try:
        if apart:
            await role.start()
        await one_pod_runs(RestClient(plane.transport()))
        scheduler = role._working if apart else plane.components["scheduler"]
        assert isinstance(scheduler, Scheduler) and scheduler.matcher is not None
        assert scheduler.config.matcher == "max-tree" and scheduler.matcher.counts()["asked"] > 0
    finally:
        await role.stop()
        await plane.stop()


async def one_pod_runs(client: RestClient) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    await client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}, "default")
    async with asyncio.timeout(WAIT_S):
        async for _ in client.transport.watch("/api/v1/pods", {"resourceVersion": "0"}):
            (pod,) = await client.list(PODS, "default")
            if pod["status"]["phase"] == "Running":
                assert pod["spec"]["nodeName"]
                return
