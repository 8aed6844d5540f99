"""A kind that controllers may not list, or that is not served, holds up those who need it and nobody else."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from controller_world import World
from step_clock import settle

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import SERVICES
from minikube_py.controllers.informers import SYNC_TIMEOUT_S
from minikube_py.controllers.manager import ControllerManager

NAMES = ("replicationcontroller-controller", "garbage-collector-controller", "endpoints-controller")
REFUSALS = {
    403: StatusError(403, "Forbidden", "services is forbidden", None),
    404: StatusError(404, "NotFound", "the server could not find the requested resource", None),
}


async def started(world: World) -> ControllerManager:
    manager = ControllerManager(world.api, world.clock, random.Random(1), names=NAMES, config=world.config)
    start = asyncio.get_running_loop().create_task(manager.start())
    await settle()
    assert not start.done()
    await world.clock.advance(SYNC_TIMEOUT_S + 1)
    await start
    return manager


@pytest.mark.parametrize("code", REFUSALS)
async def test_those_who_do_not_need_it_start_and_it_is_named(code: int, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.api.refuse["GET", "^/api/v1/services$"] = REFUSALS[code]
    with caplog.at_level(logging.WARNING):
        manager = await started(world)
    assert manager.missing == {name: {SERVICES: REFUSALS[code].message} for name in NAMES[1:]}
    assert f"endpoints-controller has not got services ({REFUSALS[code].message})" in caplog.text
    assert manager.metrics()['controller_missing_kind{name="endpoints-controller",resource="services"}'] == 1
    assert manager.metrics()['informer_synced{resource="services"}'] == 0
    world.controller(2)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "no-such"}
    world.api.make("configmaps", "a/orphan", metadata={"ownerReferences": [owner]})
    await world.clock.advance(1)
    assert len(world.pods()) == 2
    assert "a/orphan" not in world.api.kind("configmaps")
    await manager.stop()


async def test_those_who_need_it_start_once_it_is_there() -> None:
    world = World()
    world.api.refuse["GET", "^/api/v1/services$"] = REFUSALS[403]
    manager = await started(world)
    world.api.make("services", "a/web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
    await world.clock.advance(5)
    assert "a/web" not in world.api.kind("endpoints")
    world.api.refuse.clear()
    await world.clock.advance(60)
    assert manager.missing == {}
    assert "a/web" in world.api.kind("endpoints")
    assert manager.failures == []
    await manager.stop()
