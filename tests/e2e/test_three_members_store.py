"""Three store processes under load, broken in every way that needs no root; then healed, and judged by the checkers.

Each scenario is a way to break them. `make test` plays a few of them once; `make torture` plays all, over and over,
with other seeds, and prints what it has seen (MINIKUBE_PY_TORTURE=runs).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from disk_damage import log_end, rot, tear
from store_cluster import StoreCluster, make_secrets, store_cluster
from store_load import StoreLoad

from minikube_py.control_plane.exit_codes import DAMAGED, DISMISSED
from minikube_py.mvcc.types import DeleteRange, Put
from minikube_py.raft.configuration import NodeId
from minikube_py.store.membership import ChangeKind, MemberChange

RUNS = int(os.environ.get("MINIKUBE_PY_TORTURE", "0"))
"""How many to play in all, over all scenarios; 0: the short choice."""
STEP = 40
"""Operations between one fault and the next, so that each meets a load whatever the machine's speed."""
STALL_S_MAX = 20.0
"""A bound against hanging; what a stall really costs is printed."""
LEASES_S = 5.0
LARGE, LARGE_BYTES = 100, 256 << 10
"""More than the others keep of the log behind a snapshot."""
DISK_FULL = ("cannot write the log", "File too large", "cannot be used", "no space")
DAMAGE = ("damaged at offset", "start with --rejoin")


class Torture(NamedTuple):
    """What a scenario has at hand. `expected`: what members may say on their standard error."""

    cluster: StoreCluster
    load: StoreLoad
    rng: random.Random
    rounds: int
    counts: Counter[str]
    stalls_s: list[float]
    longest_s: dict[str, float]
    expected: list[str]

    def any(self) -> str:
        return self.rng.choice(list(self.cluster.places))

    async def follower(self) -> str:
        return self.rng.choice(await self.cluster.followers())

    async def one_that_is(self) -> str:
        """The leader as often as not."""
        return await (self.cluster.leader() if self.rng.random() < 0.5 else self.follower())

    async def meanwhile(self, steps: int = 1) -> None:
        """The load goes on."""
        await self.load.progress(STEP * steps)

    async def stalled(self, since_us: int) -> None:
        """What the leader's end cost those who write."""
        await self.meanwhile()
        stall_s = self.load.stall_s(since_us)
        self.stalls_s.append(stall_s)
        assert stall_s < STALL_S_MAX

    def longest(self, what: str, since_us: int) -> None:
        self.longest_s[what] = max(self.longest_s.get(what, 0.0), self.load.stall_s(since_us))


async def kill_any(torture: Torture) -> None:
    for _ in range(torture.rounds * 2):
        name = torture.any()
        await torture.cluster.kill(name)
        await torture.meanwhile()
        await torture.cluster.start(name)
        await torture.cluster.settle()


async def kill_leader(torture: Torture) -> None:
    cluster = torture.cluster
    for _ in range(torture.rounds * 2):
        name = await cluster.leader()
        since_us = torture.load.now_us()
        await cluster.kill(name)
        torture.counts["leaders killed"] += 1
        await torture.stalled(since_us)
        await cluster.start(name)
        await cluster.settle()


async def kill_all(torture: Torture) -> None:
    cluster = torture.cluster
    for _ in range(torture.rounds):
        await cluster.kill(*cluster.places)
        await cluster.start(*torture.rng.sample(sorted(cluster.places), len(cluster.places)))
        await torture.meanwhile()


async def stop_leader(torture: Torture) -> None:
    """It goes on as if nothing had happened, up to ten seconds later."""
    cluster, rng = torture.cluster, torture.rng
    for _ in range(torture.rounds):
        name = await cluster.leader()
        asleep_s = rng.uniform(1.0, 2.0 if torture.rounds == 1 else 10.0)
        since_us = torture.load.now_us()
        cluster.freeze(name)
        awake = asyncio.create_task(asyncio.sleep(asleep_s))
        if rng.random() < 0.7:
            await torture.stalled(since_us)
        await awake
        cluster.thaw(name)
        await torture.meanwhile()


async def part_leader(torture: Torture) -> None:
    cluster = torture.cluster
    for _ in range(torture.rounds):
        name = await cluster.leader()
        since_us = torture.load.now_us()
        await cluster.part(name, mode=torture.rng.choice(("hold", "drop", "cut")))
        await torture.stalled(since_us)
        await cluster.leader(*(other for other in cluster.places if other != name))
        await torture.meanwhile()
        await cluster.heal()
        await torture.meanwhile()


async def part_follower(torture: Torture) -> None:
    for _ in range(torture.rounds * 2):
        await torture.cluster.part(await torture.follower(), mode=torture.rng.choice(("hold", "drop", "cut")))
        await torture.meanwhile(2)
        await torture.cluster.heal()
        await torture.cluster.settle()


async def mute(torture: Torture) -> None:
    """One way only: heard and not hearing, or hearing and not heard; by all others or by one of them."""
    cluster, rng = torture.cluster, torture.rng
    for _ in range(torture.rounds * 2):
        name = await torture.one_that_is()
        others = [other for other in cluster.places if other != name]
        chosen = rng.sample(others, rng.choice((1, len(others))))
        mode = rng.choice(("hold", "drop"))
        ways = [(name, other) for other in chosen] if rng.random() < 0.5 else [(other, name) for other in chosen]
        await cluster.links.set(dict.fromkeys(ways, (mode, 0.0)))
        await torture.meanwhile(2)
        await cluster.heal()
        await torture.meanwhile()


async def ring(torture: Torture) -> None:
    """No two can talk to each other, but each can to one: swizzled links."""
    cluster = torture.cluster
    for _ in range(torture.rounds):
        names = torture.rng.sample(sorted(cluster.places), len(cluster.places))
        ways = [(one, names[(place + 1) % len(names)]) for place, one in enumerate(names)]
        await cluster.links.set(dict.fromkeys(ways, ("hold", 0.0)))
        await asyncio.sleep(torture.rng.uniform(0.5, 3.0))
        await cluster.heal()
        await torture.meanwhile()


async def slow_links(torture: Torture) -> None:
    cluster, rng = torture.cluster, torture.rng
    for _ in range(torture.rounds):
        names = rng.choice((tuple(cluster.places), (await cluster.leader(),)))
        await cluster.slow(rng.uniform(0.005, 0.15), *names)
        await torture.meanwhile()
        if rng.random() < 0.5:
            since_us = torture.load.now_us()
            await cluster.kill(name := await cluster.leader())
            await torture.meanwhile()
            torture.longest("stall on slow links", since_us)
            await cluster.start(name)
        await cluster.heal()
        await cluster.settle()


async def rolling_restarts(torture: Torture) -> None:
    """By SIGTERM, one after the other, as an update is made."""
    cluster = torture.cluster
    for _ in range(torture.rounds):
        for name in sorted(cluster.places):
            since_us = torture.load.now_us()
            code = await cluster.stop(name)
            assert code == 0, (code, cluster.complaints())
            await torture.meanwhile()
            torture.longest("stall of a rolling restart", since_us)
            await cluster.start(name)
            await cluster.settle()


async def wipe(torture: Torture) -> None:
    """A disk is lost: its member comes back under another id, with the data of the other members."""
    cluster = torture.cluster
    for _ in range(torture.rounds):
        name = await torture.one_that_is()
        status = await cluster.status(name)
        await cluster.kill(name)
        cluster.wipe(name)
        await torture.meanwhile()
        await _rejoin(torture, name, status["member"]["id"] if status else 0)


async def left_behind(torture: Torture) -> None:
    """One that was away for longer than the others keep their log gets a snapshot, over links that break."""
    cluster = torture.cluster
    for _ in range(torture.rounds):
        name = await torture.follower()
        await cluster.kill(name)
        before = await cluster.status(await cluster.leader())
        assert before is not None
        values = [b"%d." % number + bytes(LARGE_BYTES) for number in range(LARGE)]
        await torture.load.ask(*(Put(b"/large", value) for value in values))
        await torture.load.ask(DeleteRange(b"/large"))
        await cluster.admin().save_snapshot(cluster.folder / "saved")
        await cluster.start(name)
        await cluster.part(name, mode="cut")
        await torture.meanwhile()
        await cluster.heal()
        await cluster.settle()
        after = await cluster.status(name)
        assert after is not None
        # Where the leader still had the log, that was enough.
        torture.counts["snapshots installed"] += after["snapshot_index"] > before["last_index"]
        await torture.meanwhile()
    assert torture.counts["snapshots installed"], "nobody was brought up by a snapshot"


async def membership(torture: Torture) -> None:
    """A fourth member comes as a learner, votes, takes over; another one leaves, the leader as often as not."""
    cluster = torture.cluster
    for number in range(torture.rounds):
        name = f"store-{4 + number}"
        place = await cluster.place(name)
        address = cluster.endpoint(name).address
        expect = MemberChange(ChangeKind.EXPECT, name=name, peer=place.address, client=address, learner=True)
        await cluster.change(expect)
        await cluster.start(name)
        await torture.meanwhile()
        member = await cluster.admin().find(name)
        await cluster.change(MemberChange(ChangeKind.PROMOTE, NodeId(member["id"])))
        await cluster.settle()
        await torture.meanwhile()
        leaving = await torture.one_that_is()
        member = await cluster.admin().find(leaving)
        await cluster.change(MemberChange(ChangeKind.REMOVE, NodeId(member["id"])))
        torture.expected.append("was removed")
        assert await cluster.gone(leaving) == DISMISSED
        cluster.forget(leaving)
        await cluster.settle()
        await torture.meanwhile()
        torture.counts["membership changes"] += 3


async def transfer(torture: Torture) -> None:
    cluster = torture.cluster
    for _ in range(torture.rounds * 4):
        heir = await torture.follower()
        found = await cluster.admin().find(heir)
        since_us = torture.load.now_us()

        await cluster.admin().transfer(found["id"])
        assert await cluster.leader() == heir
        torture.counts["transfers"] += 1
        await torture.meanwhile()
        torture.longest("stall of a transfer", since_us)


async def full_disk(torture: Torture) -> None:
    """One member cannot write any more: it says so and ends, and cannot be started again before there is room."""
    cluster, rng = torture.cluster, torture.rng
    torture.expected.extend(DISK_FULL)
    for _ in range(torture.rounds):
        name = await torture.one_that_is()
        end = log_end(cluster.places[name].files).end
        cluster.limit_disk(name, end + rng.randrange(4000))
        role = cluster.places[name].role
        assert role is not None
        code = await cluster.gone(name)
        assert code == 70 and "File too large" in role.errors[-1], (code, role.errors)
        await torture.meanwhile()
        role = await cluster.spawn(name, file_bytes_max=rng.randrange(100, end))
        assert await cluster.gone(name) == 1 and len(role.errors) == 1, role.errors
        assert "File too large" in role.errors[0], role.errors
        await cluster.start(name)
        await cluster.settle()
        await torture.meanwhile()


async def power_cut(torture: Torture) -> None:
    """The power goes, of one machine or of all: what was not synced is torn."""
    cluster, rng = torture.cluster, torture.rng
    for _ in range(torture.rounds * 2):
        names = [torture.any()] if rng.random() < 0.3 else list(cluster.places)
        await cluster.kill(*names)
        for name in names:
            torture.counts["bytes torn"] += tear(cluster.places[name].files, rng)
        await cluster.start(*names)
        await torture.meanwhile()


async def bit_rot(torture: Torture) -> None:
    """A durable byte is another one: the member does not start, and says what to do; its owner does that."""
    cluster, rng = torture.cluster, torture.rng
    torture.expected.extend(DAMAGE)
    for _ in range(torture.rounds):
        name = await torture.one_that_is()
        status = await cluster.status(name)
        await cluster.kill(name)
        place = rot(cluster.places[name].files, rng)
        for _ in range(2):
            role = await cluster.spawn(name)
            code = await cluster.gone(name)
            assert code == DAMAGED and "damaged at offset" in role.errors[-1], (place, code, role.errors)
            assert "start with --rejoin" in role.errors[-1]
        await torture.meanwhile()
        cluster.wipe(name)
        await _rejoin(torture, name, status["member"]["id"] if status else 0)


async def mixed(torture: Torture) -> None:
    """Whatever comes, one upon the other; never a majority of disks."""
    cluster, rng = torture.cluster, torture.rng
    for _ in range(torture.rounds * 6):
        kind = rng.random()
        if kind < 0.3:
            names = rng.sample(sorted(cluster.places), rng.choice((1, 1, 2, 3)))
            running = [name for name in names if cluster.places[name].runs]
            await cluster.kill(*running)
            for name in running:
                if rng.random() < 0.5:
                    torture.counts["bytes torn"] += tear(cluster.places[name].files, rng)
            await asyncio.sleep(rng.uniform(0.0, 1.0))
        elif kind < 0.5:
            running = [name for name, place in cluster.places.items() if place.runs and not place.frozen]
            if running:
                cluster.freeze(rng.choice(running))
            await asyncio.sleep(rng.uniform(0.1, 2.0))
        elif kind < 0.7:
            await cluster.part(torture.any(), mode=rng.choice(("hold", "drop", "cut")))
            await asyncio.sleep(rng.uniform(0.1, 2.0))
        elif kind < 0.8:
            await cluster.slow(rng.uniform(0.0, 0.1))
        elif kind < 0.9:
            await torture.load.die()
        else:
            await cluster.heal()
        for name, place in cluster.places.items():
            if not place.runs and rng.random() < 0.6:
                await cluster.spawn(name)
    await cluster.heal()
    for name, place in cluster.places.items():
        if not place.runs:
            await cluster.spawn(name)
    await torture.meanwhile()


async def _rejoin(torture: Torture, name: str, old: int) -> None:
    cluster = torture.cluster
    await cluster.start(name, flags=("--rejoin",))
    await cluster.settle()
    status = await cluster.answer(name)
    assert status["member"]["id"] != old
    torture.counts["rejoined under a new id"] += 1
    await torture.meanwhile()


SCENARIOS: dict[str, Callable[[Torture], Awaitable[None]]] = {
    "kill any": kill_any,
    "kill the leader": kill_leader,
    "kill all": kill_all,
    "stop the leader": stop_leader,
    "part the leader": part_leader,
    "part a follower": part_follower,
    "one way": mute,
    "ring": ring,
    "slow links": slow_links,
    "rolling restarts": rolling_restarts,
    "wiped disk": wipe,
    "left behind": left_behind,
    "membership": membership,
    "transfer": transfer,
    "full disk": full_disk,
    "power cut": power_cut,
    "bit rot": bit_rot,
    "mixed": mixed,
}
SHORT = ("kill the leader", "stop the leader", "part the leader", "one way", "power cut", "bit rot")


def plays() -> list[tuple[str, int]]:
    """(scenario, seed)"""
    if not RUNS:
        return [(name, 0) for name in SHORT]
    names = list(SCENARIOS)
    return [(names[number % len(names)], number // len(names) + 1) for number in range(RUNS)]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_secrets(tmp_path_factory.mktemp("secrets"))


class Totals:
    """What all runs came to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.stalls_s: list[float] = []
        self.longest_s: dict[str, float] = {}

    def add(self, torture: Torture, counts: Counter[str]) -> None:
        self.counts.update(counts)
        self.stalls_s += torture.stalls_s
        for what, longest_s in torture.longest_s.items():
            self.longest_s[what] = max(longest_s, self.longest_s.get(what, 0.0))

    def lines(self) -> Iterator[str]:
        for name, count in sorted(self.counts.items()):
            yield f"{name}: {count:,}"
        for what, longest_s in self.longest_s.items():
            yield f"longest {what}: {longest_s:.2f} s"
        if self.stalls_s:
            longest, middle = max(self.stalls_s), median(self.stalls_s)
            yield f"leader lost {len(self.stalls_s)} times: stall p50 {middle:.2f} s, longest {longest:.2f} s"


@pytest.fixture(scope="module")
def totals() -> Iterator[Totals]:
    totals = Totals()
    yield totals
    if RUNS:
        print("\n" + "\n".join(totals.lines()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("scenario", "seed"), plays())
async def test_nothing_acknowledged_is_lost(
    tmp_path: Path, secrets: Path, totals: Totals, scenario: str, seed: int
) -> None:
    rng = random.Random(f"{scenario} {seed}")
    begin_s = time.monotonic()
    think_s = 0.02 if RUNS else 0.05
    async with store_cluster(tmp_path, secrets, rng) as cluster, StoreLoad(cluster, rng, think_s=think_s) as load:
        torture = Torture(cluster, load, rng, 3 if RUNS else 1, Counter(), [], {}, [])
        await SCENARIOS[scenario](torture)
        await cluster.heal()
        verdicts = await load.finish(LEASES_S if RUNS else 0.0)
        terms = max([(await cluster.answer(name))["term"] for name in cluster.where])
    counts = torture.counts + load.counts() + Counter({"terms": terms, "runs": 1})
    undecided = [name for name, verdict in verdicts.items() if verdict.outcome == "undecided"]
    counts["undecided"] += bool(undecided)
    totals.add(torture, counts)
    if RUNS:
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        stalls = " ".join(f"{stall_s:.2f}" for stall_s in torture.stalls_s) or "none"
        took_s = time.monotonic() - begin_s
        print(f"\n{scenario} {seed}: {took_s:.0f} s: {told}; stalls in s: {stalls}; undecided: {undecided or 'none'}")
    violations = {name: verdict.text for name, verdict in verdicts.items() if verdict.outcome == "violation"}
    assert not violations, violations
    assert verdicts["transactions"].ok and verdicts["members"].ok and verdicts["durability"].ok, verdicts
    unexpected = [line for line in cluster.complaints() if not any(text in line for text in torture.expected)]
    assert not unexpected, "\n".join(unexpected)
