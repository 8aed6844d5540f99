"""A component is replaced, its informers live on: what the next one gets, and which informers it does not get."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest
from fake_api import FakeApi
from step_clock import StepClock, settle

from minikube_py.client.informer import Handler, Informer, InformerFactory
from minikube_py.client.rest import CONFIG_MAPS, SECRETS, RestClient

Told = list[tuple[str, str]]
UNREADABLE = pytest.param("unreadable", marks=pytest.mark.unreadable)


@dataclass(frozen=True, slots=True)
class View:
    uid: str
    name: str


def project(obj: Any) -> View:
    return View(obj["metadata"]["uid"], obj["metadata"]["name"])


class World:
    def __init__(self) -> None:
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        self.factory = InformerFactory(RestClient(self.api), self.clock, random.Random(1))
        self.informers: list[Informer[View]] = []

    def make(self, resource: Any = CONFIG_MAPS) -> tuple[Informer[View], Told]:
        told: Told = []
        informer = self.factory.make(resource, project)
        informer.add_handler(
            Handler(
                on_add=lambda new: told.append(("add", new.name)),
                on_update=lambda _, new: told.append(("update", new.name)),
                on_delete=lambda old: told.append(("delete", old.name)),
            )
        )
        self.informers.append(informer)
        return informer, told

    async def started(self, resource: Any = CONFIG_MAPS) -> tuple[Informer[View], Told]:
        informer, told = self.make(resource)
        informer.start()
        await settle()
        assert informer.has_synced()
        return informer, told

    async def replaced(self, informer: Informer[View]) -> None:
        self.factory.keep()
        await informer.stop()

    def lists(self) -> int:
        return sum(path.endswith("/configmaps") for _, path in self.api.calls)


@pytest.fixture
async def world():
    world = World()
    yield world
    await world.factory.forget_unused()
    for informer in world.informers:
        informer.lives_on = False
        await informer.stop()


async def test_the_next_one_is_told_by_its_start_what_is_there_now_and_nothing_is_listed_again(world: World) -> None:
    for name in "bc":
        world.api.make("configmaps", f"a/{name}")
    first, told_first = await world.started()
    await world.replaced(first)
    del told_first[:]
    world.api.make("configmaps", "a/a")
    world.api.remove("configmaps", "a/b")
    await settle()
    assert first.knows(world.api.version)
    second, told = world.make()
    assert second is first and not told and not second.has_synced()
    world.api.change("configmaps", "a/c", data={"v": "1"})
    await settle()
    assert not told, "before its start"
    second.start()
    assert second.has_synced() and told == [("add", "a"), ("add", "c")], "as a list would: by key"
    world.api.change("configmaps", "a/c", data={"v": "2"})
    await settle()
    assert told[2:] == [("update", "c")] and not told_first and world.lists() == 1


async def test_whoever_waits_for_one_that_is_released_waits_no_more(world: World) -> None:
    informer, _ = world.make()
    world.api.down = True
    informer.start()
    waits = asyncio.create_task(informer.wait_synced())
    await settle()
    await world.replaced(informer)
    await settle()
    assert waits.cancelled()


@pytest.mark.parametrize("why", ["never listed", "behind", UNREADABLE, "ended"])
async def test_one_that_does_not_know_the_revision_is_not_handed_on(world: World, why: str) -> None:
    world.api.down = why == "never listed"
    first, _ = world.make()
    if why == "unreadable":
        first.add_handler(Handler(on_add=lambda _: 1 / 0))  # type: ignore[arg-type, return-value]
        world.api.make("configmaps", "a/x")
    first.start()
    await settle()
    if why == "ended":
        await first.stop()
    await world.replaced(first)
    world.api.down = False
    world.api.make("configmaps", "a/y")
    revision = world.api.version + (1 if why == "behind" else 0)
    if why != "never listed":
        await settle()
    assert world.factory.lacks(revision)
    await world.factory.forget_unused(revision)
    assert not world.factory.lacks(revision)
    second, told = await world.started()
    assert second is not first and ("add", "y") in told
    assert first._task is not None and first._task.done()


async def test_what_nobody_uses_any_more_ends(world: World) -> None:
    first, _ = await world.started(SECRETS)
    await world.replaced(first)
    assert world.make()[0] is not first
    await world.factory.forget_unused()
    assert first._task is not None and first._task.done()
    assert world.make(SECRETS)[0] is not first


async def test_what_its_component_drops_is_not_handed_on(world: World) -> None:
    first, _ = await world.started()
    await first.stop()
    assert first._task is not None and first._task.done()
    again, _ = world.make()
    assert again is not first
    again.start()
    await settle()
    await world.replaced(again)
    assert world.make()[0] is again


async def test_one_that_lists_again_while_nobody_has_it_is_synced_only_when_it_is_started(world: World) -> None:
    first, _ = await world.started()
    await world.replaced(first)
    world.api.make("configmaps", "a/x")
    world.api.compact()
    world.api.drop_watches()
    for _ in range(5):
        await world.clock.advance(1)
    assert first.stats.lists == 2
    second, told = world.make()
    assert second is first and not second.has_synced() and not told
    second.start()
    second.start()
    assert second.has_synced() and told == [("add", "x")]


async def test_a_second_start_does_not_count_as_synced(world: World) -> None:
    world.api.down = True
    informer, _ = world.make()
    informer.start()
    await settle()
    informer.start()
    assert not informer.has_synced()
