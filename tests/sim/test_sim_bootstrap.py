"""Whole members on simulated ground find each other while they crash, lose their disks and cannot hear each other: one
cluster comes of it, and takes back under a new id who lost his disk."""

from __future__ import annotations

import asyncio
import random

import pytest

from minikube_py.sim.loop import LoopOptions
from minikube_py.sim.member_process import Started, run_member
from minikube_py.sim.network import LinkQuality
from minikube_py.sim.world import Ended, Process, World, WorldOptions
from minikube_py.store.bootstrap import parse_initial_cluster
from minikube_py.store.discovery import BootstrapRefused
from minikube_py.store.identity import Identity, LogLost, load_identity
from minikube_py.store.member import StoreMember
from minikube_py.store.membership import ChangeKind, MemberChange, Membership

NAMES = ("m1", "m2", "m3")
INITIAL = parse_initial_cluster("m1=m1:2380,m2=m2:2380,m3=m3:2380")
OPTIONS = WorldOptions(
    LoopOptions(shuffle=True, jitter_s=0.001, turn_s=0.0001), LinkQuality(split=0.2), drift_max=0.1
)


class Lab:
    def __init__(self, seed: int) -> None:
        self.world = World(seed, OPTIONS)
        self.world.on_end = self._ended
        self.rng = random.Random(seed)
        self.members: dict[str, StoreMember] = {}
        self.rejoin: set[str] = set()
        self.wipes = 0
        self.refusals: list[str] = []
        self.begun: dict[int, int] = {}

    def start(self, name: str, initial=INITIAL) -> None:
        if self.world.running(name) is None:
            started = Started(name, initial, name in self.rejoin, lambda member: self._ready(name, member))
            self.world.start(name, lambda process: run_member(process, started))

    def kill(self, name: str, *, power: bool) -> None:
        self.members.pop(name, None)
        self.world.kill(name, power=power)

    def wipe(self, name: str) -> None:
        self.kill(name, power=True)
        self.world.wipe(name)
        self.rejoin.add(name)
        self.wipes += 1

    def may_wipe(self, name: str) -> bool:
        """A majority of the voters has its disks afterwards."""
        identities = self.identities()
        begun = {identity.id for other, identity in identities.items() if identity.cluster_id and other != name}
        if not any(identity.cluster_id for identity in identities.values()):
            return True
        known = [member for member in self.members.values() if member.membership.members]
        if not known:
            return False
        latest = max(known, key=lambda member: member.raft.log.applied)
        voters = latest.raft.configuration.voters
        return len(voters & begun) > len(voters) // 2

    def identities(self) -> dict[str, Identity]:
        found = {name: load_identity(self.world.machine(name).disk) for name in self.world.machines}
        return {name: identity for name, identity in found.items() if identity is not None}

    def check(self) -> None:
        """One cluster at a time; and an id begins once, in one cluster."""
        identities = [identity for identity in self.identities().values() if identity.cluster_id]
        assert len({identity.cluster_id for identity in identities}) <= 1, identities
        for id, cluster_id in identities:
            assert self.begun.setdefault(id, cluster_id) == cluster_id

    def settled(self, count: int = 3) -> bool:
        members = list(self.members.values())
        leaders = {member.raft.leader for member in members}
        return (
            len(members) == count
            and len(leaders) == 1
            and 0 not in leaders
            and all(len(member.raft.configuration.voters) == count for member in members)
            and all(member.member_id in member.raft.configuration.voters for member in members)
        )

    async def settle(self, within_s: float, count: int = 3) -> None:
        until_s = self.world.scheduler.now_s + within_s
        while not self.settled(count):
            assert self.world.scheduler.now_s < until_s, f"{self.refusals[-3:]} {self.identities()}"
            for name in self.world.machines:
                self.start(name)
            await asyncio.sleep(0.1)
            self.check()

    def _ready(self, name: str, member: StoreMember) -> None:
        self.members[name] = member

    def _ended(self, process: Process, ended: Ended) -> None:
        self.members.pop(process.name, None)
        if ended.how == "raised":
            # An operator reads it and does what it says.
            assert isinstance(ended.error, BootstrapRefused | LogLost), ended
            self.refusals.append(str(ended.error))
            assert "--rejoin" in str(ended.error) or "empty its folder" in str(ended.error), ended
            self.rejoin.add(process.name)
        elif ended.how == "died":
            # Removed: another life of this name has taken its place; what is left of it must go.
            assert "removed" in ended.why, ended
            self.refusals.append(ended.why)


async def trouble(lab: Lab, duration_s: float) -> None:
    world, rng = lab.world, lab.rng
    wiping = rng.choice((0, 1, 3))
    until_s = world.scheduler.now_s + duration_s
    while world.scheduler.now_s < until_s:
        name, other = rng.sample(NAMES, 2)
        kind = rng.choices(("start", "kill", "power", "wipe", "clog", "cut"), (10, 1, 1, wiping, 2, 1))[0]
        if kind == "start":
            lab.start(name)
        elif kind in ("kill", "power"):
            lab.kill(name, power=kind == "power")
        elif kind == "wipe" and lab.may_wipe(name):
            lab.wipe(name)
        elif kind == "clog":
            world.network.clog([name], [other])
        elif kind == "cut":
            world.network.cut([name], [other])
        await asyncio.sleep(rng.choice((0.0, 0.01, 0.1, 0.5)))
        if rng.random() < 0.2:
            world.network.heal()
        lab.check()
    world.network.heal()


def run(seed: int) -> Lab:
    lab = Lab(seed)

    async def scenario() -> None:
        await trouble(lab, 10.0)
        await lab.settle(60.0)

    lab.world.drive(scenario)
    return lab


@pytest.mark.parametrize("seed", range(20))
def test_one_cluster_comes_of_it(seed):
    run(seed)


def test_a_wiped_member_comes_back_under_a_new_id():
    lab = Lab(1)

    async def scenario() -> None:
        for name in NAMES:
            lab.start(name)
        await lab.settle(10.0)
        before = lab.identities()
        lab.wipe("m2")
        await lab.settle(30.0)
        after = lab.identities()
        assert before["m2"].id != after["m2"].id and before["m1"] == after["m1"]
        assert after["m2"].cluster_id == before["m2"].cluster_id
        assert before["m2"].id in lab.members["m1"].membership.removed

    lab.world.drive(scenario)


@pytest.mark.parametrize(
    ("restarted", "power"),
    [
        pytest.param((), False, id="nobody"),
        pytest.param(("m3",), False, id="one is killed"),
        pytest.param(("m3",), True, id="one loses its power"),
        pytest.param(("m2", "m3"), False, id="both are killed"),
        pytest.param(("m2", "m3"), True, id="both lose their power"),
    ],
)
def test_after_its_promotion_a_member_counts_though_the_others_restart(restarted, power):
    """The new configuration bears the loss of one; a restart must not put the one before in force."""
    lab = Lab(7)

    async def scenario() -> None:
        for name in NAMES:
            lab.start(name)
        await lab.settle(10.0)
        lab.wipe("m2")
        await lab.settle(30.0)
        lab.wipe("m1")
        for name in restarted:
            lab.kill(name, power=power)
        await lab.settle(60.0)

    lab.world.drive(scenario)


def test_a_learner_whose_link_fell_is_promoted_though_nothing_happens():
    lab = Lab(8)

    async def scenario() -> None:
        for name in NAMES:
            lab.start(name)
        await lab.settle(10.0)
        lab.wipe("m2")
        lab.start("m2")
        while "m2" not in lab.members or not lab.members["m2"].membership.members:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for _ in range(3):
            lab.world.network.cut(["m1", "m3"], ["m2"])
            await asyncio.sleep(0.05)
            lab.world.network.heal()
            await asyncio.sleep(0.5)
        await lab.settle(20.0)

    lab.world.drive(scenario)


def test_a_wiped_member_that_is_not_told_to_rejoin_says_what_to_do():
    lab = Lab(2)

    async def scenario() -> None:
        for name in NAMES:
            lab.start(name)
        await lab.settle(10.0)
        lab.wipe("m2")
        lab.rejoin.clear()
        lab.start("m2")
        await asyncio.sleep(3.0)
        assert lab.world.running("m2") is None
        [refusal] = lab.refusals
        assert "there is a member 'm2' with another id: if its disk was lost, join with --rejoin" in refusal

    lab.world.drive(scenario)


def test_a_fourth_member_joins_once_it_is_expected():
    lab = Lab(3)
    initial = parse_initial_cluster("m1=m1:2380,m2=m2:2380,m3=m3:2380,m4=m4:2380")

    async def scenario() -> None:
        for name in NAMES:
            lab.start(name)
        await lab.settle(10.0)
        leader = next(member for member in lab.members.values() if member.replica.leading)
        process = next(lab.world.running(name) for name in NAMES if lab.members[name] is leader)

        async def expect() -> None:
            await leader.change_members(MemberChange(ChangeKind.EXPECT, name="m4"))

        process.loop.call_soon(lambda: process.errands.append(process.loop.create_task(expect())))
        await asyncio.sleep(1.0)
        lab.start("m4", initial)
        while not lab.settled(4):
            await asyncio.sleep(0.1)
            assert lab.world.scheduler.now_s < 60.0

    lab.world.drive(scenario)
    assert isinstance(lab.members["m4"].membership, Membership)
    assert {member.name for member in lab.members["m4"].membership.members} == {"m1", "m2", "m3", "m4"}


def test_the_schedules_were_worth_something():
    labs = [run(seed) for seed in range(6)]
    assert sum(lab.wipes for lab in labs) > 3 and sum(len(lab.begun) > 3 for lab in labs) > 1
