"""How long three members are without a leader once theirs is killed: the product's members and links, in virtual time.

Each kill is one draw: its phase in the others' time units, the work in progress, the duration of each sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from minikube_py.env import Rng
from minikube_py.errors import MinikubeError
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put
from minikube_py.sim.clients import Traffic
from minikube_py.sim.cluster import Place, SimCluster
from minikube_py.sim.loop import LoopOptions
from minikube_py.sim.network import LinkQuality
from minikube_py.sim.syncs import SyncTimes
from minikube_py.sim.world import World, WorldOptions
from minikube_py.store.member_config import MemberConfig

CONFIG = MemberConfig(own_gc=False)
KILLS = 20
WRITE_S = 0.04
SETTLED_S = (0.3, 0.8)
SILENT = 0.3
"""The share of kills in which the machine loses power, so that nobody answers for it."""
WITHIN_S = 60.0

QUIET = WorldOptions(loop=LoopOptions(turn_s=0.00005), drift_max=0.0001)
SLOW_SYNCS = WorldOptions(
    loop=LoopOptions(turn_s=0.00005), syncs=SyncTimes(0.02, 0.03, stall_every=20, stall_s=0.3), drift_max=0.0001
)
FAR_APART = WorldOptions(
    loop=LoopOptions(turn_s=0.00005), link=LinkQuality(delay_s=0.02, jitter_s=0.01), drift_max=0.001
)
LOSSY = WorldOptions(
    loop=LoopOptions(turn_s=0.00005), link=LinkQuality(delay_s=0.005, jitter_s=0.005, loss=0.03), drift_max=0.001
)
BUSY = WorldOptions(
    loop=LoopOptions(shuffle=True, jitter_s=0.01, turn_s=0.0005, stall_every=300, stall_s=0.3),
    syncs=SyncTimes(0.005, 0.01, stall_every=50, stall_s=0.2),
    drift_max=0.01,
)
STALLING = WorldOptions(
    loop=LoopOptions(turn_s=0.00005), syncs=SyncTimes(0.0002, 0.0001, stall_every=20, stall_s=0.8), drift_max=0.0001
)
"""A fast disk with occasional delays."""
WORLDS = {
    "quiet": QUIET,
    "slow syncs": SLOW_SYNCS,
    "far apart": FAR_APART,
    "busy processors": BUSY,
    "lossy links": LOSSY,
}


@dataclass(slots=True)
class Interregna:
    """`timeouts`: for each kill, the time without a leader, in election timeouts (`election_ticks` time units);
    `terms`: how many elections it took."""

    timeouts: list[float] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)

    def add(self, other: Interregna) -> None:
        self.timeouts += other.timeouts
        self.terms += other.terms

    def share_within(self, timeouts: float) -> float:
        return sum(each <= timeouts for each in self.timeouts) / len(self.timeouts)

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.timeouts)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class ElectionWorld:
    def __init__(self, seed: object, options: WorldOptions, members: int = 3, silent: float = SILENT) -> None:
        self.world = World(f"elections {seed}", options)
        self.rng = Rng(f"kills {seed}")
        self.cluster = SimCluster(self.world, Rng(f"cluster {seed}"), members, 0, Traffic(), CONFIG)
        self.found = Interregna()
        self.silent = silent

    def go(self, kills: int = KILLS) -> Interregna:
        self.world.drive(lambda: self._story(kills))
        assert not self.cluster.problem, self.cluster.problem
        return self.found

    def undisturbed(self, duration_s: float) -> int:
        """Without kills; how many leaders follow the first one."""
        elected: list[int] = []

        async def story() -> None:
            self.cluster.start_all()
            writing = asyncio.get_running_loop().create_task(self._write())
            await self._until(self._well)
            self.cluster.elected = elected.append
            await asyncio.sleep(duration_s)
            writing.cancel()

        self.world.drive(story)
        assert not self.cluster.problem, self.cluster.problem
        return len(elected)

    async def _story(self, kills: int) -> None:
        self.cluster.start_all()
        writing = asyncio.get_running_loop().create_task(self._write())
        for _ in range(kills):
            await self._until(self._well)
            await asyncio.sleep(self.rng.uniform(*SETTLED_S))
            await self._until(self._well)
            await self._kill()
        writing.cancel()

    async def _kill(self) -> None:
        leader = self._leader()
        assert leader is not None and leader.member is not None
        term, killed_s = leader.member.raft.term, self.world.scheduler.now_s
        elected: list[tuple[float, int]] = []

        def stands(number: int) -> None:
            member = self.cluster.places[number].last
            assert member is not None
            elected.append((self.world.scheduler.now_s, member.raft.term))

        self.cluster.elected = stands
        self.cluster.hold_down(leader.number)
        self.world.kill(leader.host, silently=self.rng.random() < self.silent)
        await self._until(lambda: bool(elected))
        self.cluster.elected = None
        stood_s, reached = elected[0]
        timeout_s = CONFIG.election_ticks * CONFIG.tick_s
        self.found.timeouts.append((stood_s - killed_s) / timeout_s)
        self.found.terms.append(reached - term)
        self.cluster.release(leader.number)

    async def _write(self) -> None:
        """Through the current leader, so that logs differ in length when it is killed."""
        number = 0
        while True:
            await asyncio.sleep(self.rng.random() * 2 * WRITE_S)
            leader = self._leader()
            process = leader and self.world.running(leader.host)
            if leader is not None and process is not None:
                number += 1
                process.loop.call_soon(_propose, leader, number)

    def _leader(self) -> Place | None:
        leading = [p for p in self.cluster.places if p.member is not None and p.opened and p.member.replica.leading]
        return max(leading, key=lambda place: place.member.replica.leading, default=None)  # type: ignore[union-attr]

    def _well(self) -> bool:
        """All follow one leader, and have its log except for entries in flight."""
        leader = self._leader()
        if leader is None or leader.member is None:
            return False
        views = [place.member.raft for place in self.cluster.places if place.member is not None]
        known = leader.member.raft.log.committed
        return len(views) == len(self.cluster.places) and all(
            raft.leader == leader.member_id and raft.log.committed + 50 > known for raft in views
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def _propose(leader: Place, number: int) -> None:
    if leader.member is None:
        return
    command = Put(b"/k/%d" % (number % 50), b"%d" % number)
    try:
        leader.member.propose(command, pack(command), lambda result, error: None)
    except MinikubeError:
        pass
