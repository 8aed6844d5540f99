"""An AsyncCluster whose task is cancelled more than once, as by anyio: nothing is left in the caller's loop."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from minikube_py import Cluster

pytestmark = pytest.mark.real_time("the caller's loop, and real syncs")
TURNS = (1, 10, 50, 200, 500, 1500)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def lives() -> None:
    async with Cluster(nodes=2):
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("again", [0, 1, 5, 25])
async def test_a_second_cancel_leaves_nothing(again: int) -> None:
    for first in TURNS:
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(lives())
        await turns(first)
        task.cancel()
        await turns(again)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled() and asyncio.all_tasks() == before, first


async def test_a_cancel_in_every_turn_leaves_nothing() -> None:
    for first, times in product(TURNS, (3, 2000)):
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(lives())
        await turns(first)
        for _ in range(times):
            if task.done():
                break
            task.cancel()
            await turns(1)
        await asyncio.wait((task,))
        assert task.cancelled() and asyncio.all_tasks() == before, first
