"""Power cut at any point: every acknowledged write is there afterwards, and nothing that was never proposed.

The disk drops what was not synced, sector by sector as the seed decides. Segments and snapshots are tiny, so that
cuts fall into rotations, snapshots and removals too. A disk whose syncs do nothing must be caught by the same check.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from lossy_disk import LossyDisk

from minikube_py.env import SystemClock
from minikube_py.errors import Corruption, MinikubeError
from minikube_py.mvcc.types import DeleteRange, Put, RangeRequest
from minikube_py.store.member import MemberConfig, StoreMember

CONFIG = MemberConfig(
    segment_bytes=64 << 10, snapshot_log_bytes=48 << 10, request_bytes_max=8 << 10, fsync="inline", own_gc=False
)


class EagerClock(SystemClock):
    """Background work goes on after a few turns of the loop, as many as the seed says."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def sleep(self, duration_s: float) -> None:
        for _ in range(self._rng.randrange(1, 30)):
            await asyncio.sleep(0)


class History:
    """What was proposed for each key, in order, and which of it was acknowledged. A key has one writer at a time."""

    def __init__(self) -> None:
        self.proposed: dict[bytes, list[bytes | None]] = {}
        self.acknowledged: dict[bytes, int] = {}

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
    for _ in range(writes):
        key = f"/k/{worker}/{rng.randrange(6)}".encode()
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 10, 300, 3000)))
        number = history.propose(key, value)
        op = DeleteRange(key) if value is None else Put(key, value)
        try:
            await member.storage.txn((), (op,))
        except MinikubeError:
            return
        history.acknowledged[key] = number


async def one_life(disk: LossyDisk, history: History, rng: random.Random, writes: int) -> None:
    """Starts a member, checks what it found, writes until the power goes."""
    member = StoreMember(disk, EagerClock(rng), rng, CONFIG, fatal=lambda message: None)
    try:
        await member.start()
    except (OSError, MinikubeError) as error:
        assert not isinstance(error, Corruption), f"refused to start after a mere power cut: {error}"
        assert not disk.powered
        return
    result = await member.storage.range(RangeRequest(b"/k/", b"/k0"))
    found = {kv.key: kv.value for kv in result.kvs}
    history.check(found)
    history.settle(found)
    await asyncio.gather(*(write_until_cut(member, history, rng, worker, writes) for worker in range(5)))
    await member.stop()


async def lives(seed: int, lies: bool = False, count: int = 6) -> None:
    rng = random.Random(seed)
    disk = LossyDisk()
    history = History()
    for _ in range(count):
        disk.lies_about_sync = lies
        disk.cut_after(rng.randrange(1, rng.choice((60, 600, 2000))))
        await one_life(disk, history, rng, writes=300)
        disk = disk.crash(rng)
    await one_life(disk, history, rng, writes=3)


@pytest.mark.parametrize("seed", range(60))
async def test_acknowledged_writes_outlive_power_cuts(seed):
    await lives(seed)


async def test_a_disk_that_lies_about_syncs_is_noticed():
    caught = 0
    for seed in range(5):
        try:
            await lives(seed, lies=True)
        except (AssertionError, KeyError):
            caught += 1
    assert caught >= 3
