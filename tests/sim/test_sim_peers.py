"""Links between members on a simulated network that fails: in order, none twice, within bounds; and all well once it
heals. The product's code, unchanged; a run follows from its seed to the byte."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from peer_world import CLUSTER, TOKEN, MemorySource, Talker, append, entries_from, heartbeat, snapshot_message

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import MessageType
from minikube_py.sim.loop import LoopOptions
from minikube_py.sim.network import LinkQuality
from minikube_py.sim.world import World, WorldOptions
from minikube_py.store.membership import Member, Membership
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peers import Peers

NAMES = ("m1", "m2", "m3")
MEMBERS = [Member(NodeId(place + 1), name, f"{name}:2380") for place, name in enumerate(NAMES)]
MEMBERSHIP = Membership.of(MEMBERS)
LIMITS = PeerLimits(
    queue_bytes_max=256 << 10,
    urgent_bytes_max=16 << 10,
    write_buffer_bytes=32 << 10,
    snapshot_chunk_bytes=4 << 10,
    snapshot_window_bytes=16 << 10,
    snapshot_bytes_per_s=100_000,
    snapshot_patience_s=5.0,
)
OPTIONS = WorldOptions(
    LoopOptions(shuffle=True, jitter_s=0.001, turn_s=0.0001, stall_every=500, stall_s=0.05),
    LinkQuality(split=0.3, bytes_per_s=10e6),
    drift_max=0.1,
)
SNAPSHOT = random.Random(5).randbytes(300_000)


class Seen:
    """What all lives of all members said and heard. Numbers go up from life to life."""

    def __init__(self) -> None:
        self.number = 0
        self.heard: dict[tuple[int, int, bool], list[int]] = {}
        self.connects = 0
        self.drops = 0
        self.restored: set[str] = set()
        self.talkers: dict[str, Talker] = {}

    def hear(self, message) -> None:
        if message.type == MessageType.SNAPSHOT:
            return
        is_append = message.type == MessageType.APPEND
        number = message.index if is_append else message.commit
        self.heard.setdefault((message.sender, message.to, is_append), []).append(number)

    def check(self) -> None:
        for (sender, to, _), numbers in self.heard.items():
            assert all(before < after for before, after in itertools.pairwise(numbers)), f"{sender} to {to}: {numbers}"


async def talk(process, seen: Seen) -> None:
    """One life: says something to all every few ms; the first member sends its snapshot to who lacks it."""
    member = next(each for each in MEMBERS if each.name == process.name)
    words: list[str] = []
    peers = Peers(
        member, TOKEN, process.clock, process.rng, limits=LIMITS, say=words.append, run_sync=process.syncs.wait
    )
    await peers.listen("0.0.0.0", 2380)
    talker = Talker(member, peers, MEMBERSHIP, CLUSTER)
    talker.driver.on_receive = seen.hear
    talker.driver.make_source = lambda: MemorySource(SNAPSHOT)
    seen.talkers[process.name] = talker
    talker.begin()
    others = [each for each in MEMBERS if each.id != member.id]
    asked_s = 0.0
    while True:
        for other in others:
            seen.number += 1
            number = seen.number
            entries = entries_from(number + 1, 2, process.rng.choice((10, 500, 5000)))
            talker.send(heartbeat(member.id, other.id, number), append(member.id, other.id, entries))
            sender = peers._senders[other.id]
            assert sender.waiting_bytes <= LIMITS.queue_bytes_max + LIMITS.urgent_bytes_max
        if talker.driver.restores:
            assert talker.driver.restores[0] == SNAPSHOT
            seen.restored.add(process.name)
        if member.id == 1 and process.clock.monotonic_s() >= asked_s:
            asked_s = process.clock.monotonic_s() + 0.3
            for other in others:
                if other.name not in seen.restored:
                    talker.send(snapshot_message(1, other.id, MemorySource(SNAPSHOT)))
        await process.clock.sleep(process.rng.choice((0.0, 0.001, 0.01, 0.05)))


async def faults(world: World, rng: random.Random, duration_s: float) -> None:
    end_s = world.scheduler.now_s + duration_s
    while world.scheduler.now_s < end_s:
        one, other = rng.sample(NAMES, 2)
        length_s = rng.choice((0.05, 0.5, 3.0))
        kind = rng.choice(("clog", "clog both", "cut", "kill", "power", "pause", "slow", "lossy"))
        network = world.network
        if kind.startswith("clog"):
            pairs = [(one, other), (other, one)][: 2 if "both" in kind else 1]
            for source, target in pairs:
                network.clog([source], [target])
            await asyncio.sleep(length_s)
            for source, target in pairs:
                network.unclog([source], [target])
        elif kind == "cut":
            network.cut([one], [other])
            await asyncio.sleep(length_s)
            network.mend([one], [other])
        elif kind in ("kill", "power"):
            world.kill(one, silently=kind == "power")
            await asyncio.sleep(length_s)
            world.start(one)
        elif kind == "pause":
            world.pause(one)
            await asyncio.sleep(length_s)
            world.resume(one)
        else:
            quality = LinkQuality(bytes_per_s=50e3) if kind == "slow" else LinkQuality(loss=0.2, split=0.5)
            network.set_quality(quality, [one], [other])
            await asyncio.sleep(length_s)
            network.set_quality(OPTIONS.link, [one], [other])
        await asyncio.sleep(rng.choice((0.0, 0.2, 1.0)))
    world.network.heal()


def run(seed: int) -> tuple[Seen, str]:
    world, seen, rng = World(seed, OPTIONS), Seen(), random.Random(seed)

    async def scenario() -> None:
        for name in NAMES:
            world.start(name, lambda process: talk(process, seen))
        await faults(world, rng, 12.0)
        # Dead links are noticed after two seconds, then tried again every second at most.
        await asyncio.sleep(8.0)
        before = seen.number
        await asyncio.sleep(1.0)
        assert seen.restored >= {"m2", "m3"}, "the snapshot did not come through"
        for sender in MEMBERS:
            for to in MEMBERS:
                if sender.id != to.id:
                    for is_append in (True, False):
                        last = seen.heard[sender.id, to.id, is_append][-1]
                        assert last > before, f"{sender.name} is not heard by {to.name} any more"
        for talker in seen.talkers.values():
            for sender in talker.peers._senders.values():
                seen.connects += sender.connects
                seen.drops += sender.dropped

    world.drive(scenario)
    seen.check()
    return seen, world.fingerprint()


@pytest.mark.parametrize("seed", range(16))
def test_links_keep_order_and_recover(seed):
    run(seed)


def test_the_same_seed_is_the_same_run():
    assert run(3)[1] == run(3)[1] != run(4)[1]


def test_the_faults_were_worth_something():
    found = [run(seed)[0] for seed in range(4)]
    assert sum(seen.connects for seen in found) > 30 and sum(seen.drops for seen in found) > 100
