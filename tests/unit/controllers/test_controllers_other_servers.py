"""What another API server answers, to which requests are passed on, ends no controller and holds up no other group."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from controller_world import World
from fake_api import FakeApi
from step_clock import settle

from minikube_py.client.rest import RestClient
from minikube_py.client.transport import ApiResponse, WatchEvent
from minikube_py.controllers.base import Controller, ControllerContext
from minikube_py.controllers.discovery import served_resources
from minikube_py.controllers.garbage_collector import GarbageCollector
from minikube_py.controllers.informers import SYNC_TIMEOUT_S
from minikube_py.controllers.manager import CONTROLLERS, OFF, ControllerManager, Making
from tests.support.hostile_answers import DISCOVERIES, EVENTS, ITEMS, LISTS

GROUP = "echo.example.com"
ROOT = f"/apis/{GROUP}/v1"
VERBS = b'["create","delete","deletecollection","get","list","patch","update","watch"]'
SOUNDS = b'{"resources":[{"name":"sounds","kind":"Sound","namespaced":true,"verbs":%b}]}' % VERBS
NAMES = ("garbage-collector-controller", "namespace-controller")


class WithAnother(FakeApi):
    """It lists one more group, whose server answers with `discovery`, `listed` and events of `told`."""

    discovery, listed, told = SOUNDS, b'{"items":[]}', b""

    async def request(
        self, method: str, path: str, params: Mapping[str, str] | None = None, body: bytes | None = None, *rest: Any
    ) -> ApiResponse:
        if path.startswith(f"{ROOT}/"):
            return ApiResponse(200, self.listed, {})
        if path == ROOT:
            return ApiResponse(200, self.discovery, {})
        found = await super().request(method, path, params, body, *rest)
        if path != "/apis":
            return found
        one = b'{"groups":[{"name":"%b","versions":[{"version":"v1"}]},' % GROUP.encode()
        return ApiResponse(200, found.body.replace(b'{"groups":[', one), {})

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        if not path.startswith(f"{ROOT}/"):
            async for batch in super().watch(path, params):
                yield batch
        elif self.told:
            for kind in ("ADDED", "MODIFIED", "BOOKMARK", "DELETED", "ERROR"):
                yield [WatchEvent(kind, self.told)]


class TwoServers(World):
    def __init__(self) -> None:
        super().__init__(*NAMES)
        self.api: WithAnother = WithAnother(self.clock)
        self.api.make("namespaces", "a")

    async def __aenter__(self) -> TwoServers:
        self.manager = ControllerManager(self.api, self.clock, random.Random(1), names=self.names, config=self.config)
        start = asyncio.get_running_loop().create_task(self.manager.start())
        await settle()
        if not start.done():
            await self.clock.advance(SYNC_TIMEOUT_S + 1)
        await start
        return self


def conditions(world: World) -> dict[str, Any]:
    return {each["type"]: each for each in world.api.kind("namespaces")["a"]["status"]["conditions"]}


async def garbage_is_collected(world: TwoServers) -> None:
    assert world.manager is not None
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "no-such"}
    world.api.make("configmaps", "a/orphan", metadata={"ownerReferences": [owner]})
    await world.clock.advance(40)
    assert world.manager.failures == []
    assert "a/orphan" not in world.api.kind("configmaps")


@pytest.mark.parametrize("how", DISCOVERIES)
async def test_a_discovery_of_any_form_ends_nothing(how: str) -> None:
    world = TwoServers()
    world.api.discovery = DISCOVERIES[how]
    served = await served_resources(RestClient(world.api))
    assert all(each.ref.plural in ("a", "b") for each in served.resources if each.ref.group == GROUP)
    assert served.failed <= {GROUP}
    async with world:
        await garbage_is_collected(world)
        world.api.remove("namespaces", "a")
        await world.clock.advance(40)
        if served.failed:
            failure = conditions(world)["NamespaceDeletionDiscoveryFailure"]
            assert (failure["status"], GROUP in failure["message"]) == ("True", True)
            world.api.discovery = b'{"resources":[]}'
            await world.clock.advance(2000)
        assert "a" not in world.api.kind("namespaces")


@pytest.mark.parametrize("how", LISTS)
async def test_a_list_of_any_form_is_asked_for_again(how: str) -> None:
    world = TwoServers()
    world.api.listed = LISTS[how]
    async with world:
        await garbage_is_collected(world)
        world.api.remove("namespaces", "a")
        await world.clock.advance(40)
        assert conditions(world)["NamespaceDeletionContentFailure"]["status"] == "True"
        world.api.listed = b'{"items":[]}'
        await world.clock.advance(2000)
        assert "a" not in world.api.kind("namespaces")
        assert world.manager is not None
        assert world.manager.metrics()['informer_synced{resource="sounds.echo.example.com"}'] == 1


@pytest.mark.unreadable
@pytest.mark.parametrize("how", ITEMS)
async def test_items_of_any_form_end_nothing(how: str) -> None:
    world = TwoServers()
    world.api.listed = ITEMS[how]
    async with world:
        await garbage_is_collected(world)
        world.api.remove("namespaces", "a")
        await world.clock.advance(40)
        assert conditions(world)["NamespaceDeletionDiscoveryFailure"]["status"] == "False"


@pytest.mark.unreadable
@pytest.mark.parametrize("how", EVENTS)
async def test_events_of_any_form_end_nothing(how: str) -> None:
    world = TwoServers()
    world.api.told = EVENTS[how]
    async with world:
        await garbage_is_collected(world)


async def test_whatever_a_discovery_raises_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TwoServers()
    made: list[int] = []

    async def discover(self: GarbageCollector) -> None:
        made.append(1)
        raise KeyError("a shape that nobody thought of")

    monkeypatch.setattr(GarbageCollector, "discover", discover)
    world.config = replace(world.config, discovery_period_s=30.0)
    async with world:
        await world.clock.advance(90)
    assert len(made) > 2


async def test_a_controller_that_is_enabled_twice_is_made_once() -> None:
    world = World()
    made: list[str] = []

    def counted(name: str, make: Making) -> Making:
        def count(context: ControllerContext) -> Controller:
            made.append(name)
            return make(context)

        return count

    for config in (replace(world.config, enabled=("job-controller", "ttl-controller", "ttl-controller")), world.config):
        names = None if config.enabled else ("job-controller",) * 2
        with pytest.MonkeyPatch.context() as patch:
            for table in (CONTROLLERS, OFF):
                for name, make in list(table.items()):
                    patch.setitem(cast(dict[str, Making], table), name, counted(name, make))
            ControllerManager(world.api, world.clock, random.Random(1), names=names, config=config)
        assert len(made) == len(set(made))
        assert made.count("job-controller") == 1
        made.clear()
