"""Who tends simulated members asks for what was wished, and for no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from elections import CONFIG, QUIET

from minikube_py.env import Rng
from minikube_py.sim.clients import Traffic
from minikube_py.sim.cluster import SimCluster
from minikube_py.sim.world import World

WITHIN_S = 60.0
SLOW_S = 2.0


async def until(condition: Callable[[], bool], every_s: float = 0.005) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(every_s)


def test_who_takes_the_place_of_a_removed_member_is_not_removed_in_its_stead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader proposes its own removal and ends with it, so that nobody answers whether that was done; before its
    slow administrator asks again, a new member is made to join in its place."""
    monkeypatch.setattr("minikube_py.sim.cluster.WISH_PAUSE_S", SLOW_S)
    world = World("administrator", QUIET)
    cluster = SimCluster(world, Rng("administrator"), 3, 0, Traffic(), CONFIG)

    async def story() -> None:
        cluster.start_all()
        await until(lambda: not cluster.unsettled())
        place = cluster.leader()
        assert place is not None and cluster.shrink(place.number)
        removed = place.member_id
        await until(lambda: place.gone)
        await until(lambda: cluster.grow(place.number), 0.001)
        await until(lambda: place.known and not cluster.unsettled())
        await asyncio.sleep(5 * SLOW_S)
        assert cluster.counts["membership changes"] == 2
        assert not cluster.unsettled() and removed not in {place.member_id for place in cluster.places}

    world.drive(story)
    assert not cluster.problem, cluster.problem
