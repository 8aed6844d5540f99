"""Two API servers on three store processes that are killed, stopped and partitioned: every 201 is there, through both
servers, and watches miss and repeat nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from api_load import ApiLoad, now_us
from store_cluster import Role, StoreCluster, make_secrets, store_cluster

from minikube_py.client.kubeconfig import ClusterAccess, load_kubeconfig

RUNS = int(os.environ.get("MINIKUBE_PY_TORTURE", "0"))
ROUNDS = max(1, RUNS // 4)
API_SERVERS = 2
STEP = 40
STALL_S_MAX = 20.0
"""A bound against hanging; what a stall really costs is printed in the long run."""


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_secrets(tmp_path_factory.mktemp("secrets"))


@contextlib.asynccontextmanager
async def api_servers(cluster: StoreCluster, secrets: Path) -> AsyncIterator[list[ClusterAccess]]:
    flags = ("--store", cluster.addresses, "--secrets-dir", str(secrets / "apiserver"), "--secure-port", "0")
    roles = [Role("apiserver", *flags) for _ in range(API_SERVERS)]
    admin = load_kubeconfig(secrets / "admin" / "kubeconfig")
    try:
        for role in roles:
            await role.start()
        urls = await asyncio.gather(*(role.ready() for role in roles))
        yield [dataclasses.replace(admin, server=url) for url in urls]
    finally:
        for role in roles:
            await role.kill()
    assert not [line for role in roles for line in role.errors], [role.errors for role in roles]


class Story:
    def __init__(self, cluster: StoreCluster, load: ApiLoad, rng: random.Random) -> None:
        self.cluster, self.load, self.rng = cluster, load, rng
        self.stalls_s: list[float] = []

    async def meanwhile(self) -> None:
        await self.load.progress(STEP)

    async def stalled(self, since_us: int) -> None:
        await self.meanwhile()
        self.stalls_s.append(self.load.stall_s(since_us))
        assert self.stalls_s[-1] < STALL_S_MAX


async def kill_leader(story: Story) -> None:
    name = await story.cluster.leader()
    since_us = now_us()
    await story.cluster.kill(name)
    await story.stalled(since_us)
    await story.cluster.start(name)
    await story.cluster.settle()


async def kill_follower(story: Story) -> None:
    name = story.rng.choice(await story.cluster.followers())
    await story.cluster.kill(name)
    await story.meanwhile()
    await story.cluster.start(name)
    await story.cluster.settle()


async def kill_all(story: Story) -> None:
    await story.cluster.kill(*story.cluster.places)
    await asyncio.sleep(story.rng.uniform(0.0, 1.0))
    await story.cluster.start(*story.cluster.places)
    await story.meanwhile()


async def stop_leader(story: Story) -> None:
    name = await story.cluster.leader()
    since_us = now_us()
    story.cluster.freeze(name)
    await story.stalled(since_us)
    story.cluster.thaw(name)
    await story.meanwhile()


async def part_leader(story: Story) -> None:
    """Clients still reach it: it must not answer them from what it has."""
    name = await story.cluster.leader()
    since_us = now_us()
    await story.cluster.part(name)
    await story.stalled(since_us)
    await story.cluster.heal()
    await story.meanwhile()


async def roll(story: Story) -> None:
    for name in sorted(story.cluster.places):
        assert await story.cluster.stop(name) == 0, story.cluster.complaints()
        await story.meanwhile()
        await story.cluster.start(name)
        await story.cluster.settle()


FAULTS: tuple[Callable[[Story], Awaitable[None]], ...] = (
    kill_leader, kill_follower, kill_all, stop_leader, part_leader, roll,
)  # fmt: skip
SHORT = (kill_leader, part_leader, kill_all)


@pytest.fixture(scope="module")
def totals() -> Iterator[tuple[Counter[str], list[float]]]:
    counts: Counter[str] = Counter()
    stalls_s: list[float] = []
    yield counts, stalls_s
    if RUNS:
        print("\nAPI: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
        print(f"stalls: p50 {median(stalls_s):.2f} s, longest {max(stalls_s):.2f} s, of {len(stalls_s)}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_every_201_is_there_through_both_servers(
    tmp_path: Path, secrets: Path, totals: tuple[Counter[str], list[float]], seed: int
) -> None:
    rng = random.Random(f"api {seed}")
    async with (
        store_cluster(tmp_path, secrets, rng) as cluster,
        api_servers(cluster, secrets) as servers,
        ApiLoad(cluster, servers, rng) as load,
    ):
        story = Story(cluster, load, rng)
        for fault in rng.sample(FAULTS, len(FAULTS)) if RUNS else SHORT:
            await fault(story)
        verdicts = await load.finish()
        load.check_all(verdicts)
    totals[0].update(load.counts() + Counter(runs=1, created_for_good=len(load.record.created_for_good())))
    totals[1].extend(story.stalls_s)
    assert not cluster.complaints(), cluster.complaints()
