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
    snapshot_patience_s=2.0,
)
OPTIONS = WorldOptions(
    LoopOptions(shuffle=True, jitter_s=0.001, turn_s=0.0001, stall_every=500, stall_s=0.05),
    LinkQuality(split=0.3, bytes_per_s=10e6),
    drift_max=0.1,
)
SNAPSHOT = random.Random(5).randbytes(300_000)
PAUSE_S = 3.0
"""A fault lasts as long as that at most."""
SILENT_S = LIMITS.snapshot_patience_s + PAUSE_S + 2 * LIMITS.beat_s
"""A transfer of which nothing was heard for so long has been forgotten."""


class Transfers:
    """What a leader knows of the snapshots that it sends: of each it must hear until it has come to an end. It begins
    no other before, and some time passes in between."""

    def __init__(self, process) -> None:
        self._process = process
        self._heard_s: dict[int, float] = {}
        self._next_s: dict[int, float] = {}
        self.ends = self.taken = 0

    def begin(self, peer: int) -> bool:
        """Whether one begins now."""
        now_s = self._process.clock.monotonic_s()
        if peer in self._heard_s or now_s < self._next_s.setdefault(peer, now_s):
            return False
        self._heard_s[peer] = now_s
        return True

    def report(self, peer: int, reachable: bool, snapshot: bool | None = None) -> None:
        if snapshot is not None or not reachable:
            self.ends += self._heard_s.pop(peer, None) is not None
            self.taken += snapshot is True
            self._next_s[peer] = self._process.clock.monotonic_s() + self._process.rng.choice((0.0, 0.3, 1.5))
        elif peer in self._heard_s:
            self._heard_s[peer] = self._process.clock.monotonic_s()

    def check(self) -> None:
        now_s = self._process.clock.monotonic_s()
        for peer, heard_s in self._heard_s.items():
            assert now_s - heard_s < SILENT_S, f"nothing is heard of the snapshot that was sent to {peer}"


class Seen:
    """What all lives of all members said and heard. Numbers go up from life to life."""

    def __init__(self) -> None:
        self.number = 0
        self.heard: dict[tuple[int, int, bool], list[int]] = {}
        self.connects = 0
        self.drops = 0
        self.transfers: list[Transfers] = []
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
    """One life: says something to all every few ms; the first member sends them one snapshot after the other."""
    member = next(each for each in MEMBERS if each.name == process.name)
    words: list[str] = []
    peers = Peers(
        member, TOKEN, process.clock, process.rng, limits=LIMITS, say=words.append, run_sync=process.syncs.wait
    )
    await peers.listen("0.0.0.0", 2380)
    talker = Talker(member, peers, MEMBERSHIP, CLUSTER)
    talker.driver.on_receive = seen.hear
    begun_s = process.clock.monotonic_s()
    talker.driver.make_source = lambda: MemorySource(SNAPSHOT, 100 + int(process.clock.monotonic_s() - begun_s))
    transfers = Transfers(process)
    talker.driver.report = transfers.report
    seen.transfers.append(transfers)
    seen.talkers[process.name] = talker
    talker.begin()
    others = [each for each in MEMBERS if each.id != member.id]
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
        transfers.check()
        for other in others if member.id == 1 else ():
            if transfers.begin(other.id):
                talker.send(snapshot_message(1, other.id, talker.driver.make_source()))
        await process.clock.sleep(process.rng.choice((0.0, 0.001, 0.01, 0.05)))


async def faults(world: World, rng: random.Random, duration_s: float) -> None:
    end_s = world.scheduler.now_s + duration_s
    while world.scheduler.now_s < end_s:
        one, other = rng.sample(NAMES, 2)
        length_s = rng.choice((0.05, 0.5, PAUSE_S))
        kind = rng.choice(("clog", "clog both", "cut", "flap", "kill", "power", "pause", "slow", "lossy"))
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
        elif kind == "flap":
            for _ in range(4):
                network.cut([one], [other])
                await asyncio.sleep(0.02)
                network.mend([one], [other])
                await asyncio.sleep(rng.choice((0.2, 0.5, 1.0)))
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
    lives = [transfers for seen in found for transfers in seen.transfers]
    taken = sum(life.taken for life in lives)
    assert taken > 10 and sum(life.ends for life in lives) > taken + 10
