"""Power cut at any point: every acknowledged write is there afterwards, and nothing that was never proposed.

Every write is a txn of two keys, so that half of one shows. Syncs run on the loop, or beside it in a thread; a term
that had a leader is never another one's.

The disk drops what was not synced, sector by sector as the seed decides. Segments and snapshots are tiny, so that
cuts fall into rotations, snapshots and removals too. A disk whose syncs do nothing must be caught by the same check.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest
from virtual_time import LoopSyncs

from minikube_py.errors import Corruption, MinikubeError
from minikube_py.mvcc.types import DeleteRange, Put, RangeRequest
from minikube_py.sim.disk import SimDisk
from minikube_py.store.fsync import FsyncMode
from minikube_py.store.member import MemberConfig, StoreMember

CONFIG = MemberConfig(
    segment_bytes=64 << 10, snapshot_log_bytes=48 << 10, request_bytes_max=8 << 10, fsync="inline", own_gc=False
)


class EagerClock:
    """Background work goes on after a few turns of the loop, as many as the seed says."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._readings = 0

    def monotonic_s(self) -> float:
        self._readings += 1
        return self._readings * 0.00001

    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.monotonic_s()

    async def sleep(self, duration_s: float) -> None:
        for _ in range(self._rng.randrange(1, 30)):
            await asyncio.sleep(0)


class History:
    """What was proposed for each key, in order, and which of it was acknowledged. A key has one writer at a time.

    `terms` are those in which a member was the leader, one a life."""

    def __init__(self) -> None:
        self.proposed: dict[bytes, list[bytes | None]] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.terms: list[int] = []

    def propose(self, key: bytes, value: bytes | None) -> int:
        self.proposed.setdefault(key, []).append(value)
        return len(self.proposed[key])

    def check(self, found: dict[bytes, bytes]) -> None:
        for key in self.proposed.keys() | found.keys():
            values = self.proposed.get(key, [])
            done = self.acknowledged.get(key, 0)
            allowed = values[done - 1 :] if done else [None, *values]
            assert found.get(key) in allowed, f"{key!r}: {found.get(key)!r} after {done} acknowledged of {values!r}"

    def settle(self, found: dict[bytes, bytes]) -> None:
        """What was found is the truth from here on."""
        self.proposed = {key: [value] for key, value in found.items()}
        self.acknowledged = dict.fromkeys(found, 1)


async def write_until_cut(member: StoreMember, history: History, rng: random.Random, worker: int, writes: int) -> None:
    """Each write goes to a key and to its mirror, in one txn."""
    for _ in range(writes):
        key = f"/k/{worker}/{rng.randrange(6)}".encode()
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 10, 300, 3000)))
        number = history.propose(key, value)
        keys = (key, mirror_of(key))
        ops = [DeleteRange(each) if value is None else Put(each, value) for each in keys]
        try:
            await member.storage.txn((), ops)
        except MinikubeError:
            return
        history.acknowledged[key] = number


def mirror_of(key: bytes) -> bytes:
    return b"/m/" + key[3:]


async def one_life(disk: SimDisk, history: History, rng: random.Random, writes: int, fsync: FsyncMode) -> None:
    """Starts a member, checks what it found, writes until the power goes."""
    config = dataclasses.replace(CONFIG, fsync=fsync)
    syncs = LoopSyncs(inline=True) if fsync == "inline" else None
    member = StoreMember(disk, EagerClock(rng), rng, config, fatal=lambda message: None, syncs=syncs)
    try:
        await member.start()
    except (OSError, MinikubeError) as error:
        assert not isinstance(error, Corruption), f"refused to start after a mere power cut: {error}"
        assert not disk.powered
        return
    finally:
        led = hasattr(member, "raft") and member.raft.role == "LEADER"
        if led:
            assert member.raft.term > max(history.terms, default=0), "two leaders of one term"
            history.terms.append(member.raft.term)
    assert led or not disk.powered
    result = await member.storage.range(RangeRequest(b"/k/", b"/k0"))
    found = {kv.key: kv.value for kv in result.kvs}
    mirrors = await member.storage.range(RangeRequest(b"/m/", b"/m0"))
    assert {kv.key: kv.value for kv in mirrors.kvs} == {mirror_of(key): value for key, value in found.items()}
    history.check(found)
    history.settle(found)
    await asyncio.gather(*(write_until_cut(member, history, rng, worker, writes) for worker in range(5)))
    await member.stop()


async def lives(seed: int, lies: bool = False, count: int = 6, fsync: FsyncMode = "inline") -> None:
    rng = random.Random(seed)
    disk = SimDisk()
    history = History()
    for _ in range(count):
        disk.lies_about_sync = lies
        disk.cut_after(rng.randrange(1, rng.choice((60, 600, 2000))))
        await one_life(disk, history, rng, 300, fsync)
        disk = disk.crash(rng)
    await one_life(disk, history, rng, 3, fsync)
    written = {key for key, values in history.proposed.items() if len(values) > 1 or key not in history.acknowledged}
    assert all(history.acknowledged.get(key) == len(history.proposed[key]) for key in written), "a whole disk refuses"
    assert written


@pytest.mark.parametrize("seed", range(60))
async def test_acknowledged_writes_outlive_power_cuts(seed):
    await lives(seed)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.real_time("what is tested are threads")
async def test_acknowledged_writes_outlive_power_cuts_with_syncs_in_a_thread(seed):
    await lives(seed, count=4, fsync="thread")


async def test_a_disk_that_lies_about_syncs_is_noticed():
    caught = 0
    for seed in range(5):
        try:
            await lives(seed, lies=True)
        except (AssertionError, KeyError):
            caught += 1
    assert caught >= 3
