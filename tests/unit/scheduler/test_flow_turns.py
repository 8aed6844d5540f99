"""A round of flow gives way: to pods of other profiles, and to more important ones of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_scheduler_flow import World, flow_config, flowing

NODES = {f"n{at}": {"cpu": "64"} for at in range(4)}


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


async def _bound_before(world: World, urgent: str, others: list[str], **more: Any) -> int:
    """How many of the others are bound before a pod that is created when the first of them are."""
    await _until(lambda: any(world.where(*others)))
    world.api.pod(urgent, priority=1_000_000, **more)
    await _until(lambda: bool(world.api.where(urgent)))
    return sum(map(bool, world.where(*others)))


@pytest.mark.parametrize("room", [1, 8])
async def test_a_round_gives_way_to_pods_of_other_profiles(room: int) -> None:
    async with flowing(replace(flow_config(), binds_in_flight_max=room), **NODES) as world:
        others = [f"p{at}" for at in range(100)]
        world.pods(*others, cpu="1")
        assert await _bound_before(world, "urgent", others, cpu="1") < 4 * room
        assert world.rounds.rounds == 1
        await _until(lambda: all(world.where(*others)))


async def test_a_round_is_not_held_up_by_many_pods_of_other_profiles() -> None:
    async with flowing(replace(flow_config(), binds_in_flight_max=4), **NODES) as world:
        mine = [f"p{at}" for at in range(40)]
        world.pods(*mine, cpu="1")
        await _until(lambda: any(world.where(*mine)))
        theirs = [f"t{at}" for at in range(100)]
        for name in theirs:
            world.api.pod(name, cpu="1")
        await _until(lambda: all(world.where(*mine)))
        assert sum(map(bool, world.where(*theirs))) < 60


async def test_who_is_more_important_goes_before_the_rest_of_those_that_were_taken() -> None:
    config = replace(flow_config(maxPods=10), binds_in_flight_max=4)
    async with flowing(config, **NODES) as world:
        others = [f"p{at}" for at in range(100)]
        world.pods(*others, cpu="1")
        assert await _bound_before(world, "urgent", others, cpu="1", schedulerName="flow") < 20
        assert world.rounds.decision("uid-default-urgent") is not None
