"""The member: order of events, restarts, snapshots, upkeep, and what happens when the disk fails."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path

import pytest
from manual_clock import ManualClock
from patience import until
from virtual_time import LoopClock, LoopSyncs

from minikube_py.env import SystemDisk, SystemFile
from minikube_py.errors import (
    Compacted,
    Corruption,
    InvalidRequest,
    LeaseNotFound,
    OutcomeUnknown,
    RequestTooLarge,
    Unavailable,
)
from minikube_py.mvcc.types import Compare, DeleteRange, Put, RangeRequest, WatchBatch
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.replica_config import REQUEST_BYTES_MAX

ALL = RangeRequest(b"\0", b"\0")
SMALL = MemberConfig(
    segment_bytes=64 << 10, snapshot_log_bytes=100 << 10, request_bytes_max=8 << 10, fsync="inline", own_gc=False
)
PLAIN = MemberConfig(own_gc=False)


class FailingFile(SystemFile):
    def __init__(self, disk: FailingDisk, fd: int) -> None:
        super().__init__(fd)
        self._disk = disk

    def write_at(self, offset: int, data: bytes) -> None:
        if self._disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(offset, data)

    def sync(self) -> None:
        if self._disk.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        self._disk.syncs += 1
        super().sync()


class FailingDisk(SystemDisk):
    """A real folder whose writes or syncs fail when told to."""

    full = False
    sync_fails = False
    syncs = 0

    def open(self, name: str, *, create: bool = False) -> FailingFile:
        real = super().open(name, create=create)
        return FailingFile(self, real._fd)


class Fatal:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def __call__(self, message: str) -> None:
        self.messages.append(message)


async def start(folder: Path, config: MemberConfig = PLAIN, clock=None, disk=None, fatal=None) -> StoreMember:
    syncs = LoopSyncs(inline=config.fsync != "thread")
    member = StoreMember(
        disk or SystemDisk(folder), clock or LoopClock(), random.Random(5), config, fatal or pytest.fail, syncs=syncs
    )
    await member.start()
    return member


async def put(member: StoreMember, key: bytes, value: bytes = b"v", lease: int = 0) -> int:
    return (await member.storage.txn((), (Put(key, value, lease),))).revision


async def contents(member: StoreMember) -> dict[bytes, bytes]:
    return {kv.key: kv.value for kv in (await member.storage.range(ALL)).kvs}


async def test_watchers_know_before_the_writer_does(tmp_path):
    member = await start(tmp_path)
    seen: list[WatchBatch] = []
    member.storage.watch(b"/a", b"/b", 0, seen.append)
    revision = await put(member, b"/a/1")
    assert [event.kv.mod_revision for batch in seen for event in batch.events] == [revision]
    await member.stop()
    assert isinstance(seen[-1].error, Unavailable)


@pytest.mark.parametrize("mode", ["inline", "thread"])
async def test_a_turn_of_proposals_is_one_sync(tmp_path, mode):
    disk = FailingDisk(tmp_path)
    member = await start(tmp_path, MemberConfig(fsync=mode, own_gc=False), disk=disk)
    before = disk.syncs
    await asyncio.gather(*(put(member, b"/k/%d" % i) for i in range(500)))
    assert 1 <= disk.syncs - before <= 6
    assert len(await contents(member)) == 500
    await member.stop()


async def test_in_a_thread_the_next_batch_gathers_while_one_is_synced(tmp_path):
    member = await start(tmp_path, MemberConfig(fsync="thread", own_gc=False))
    first = asyncio.ensure_future(put(member, b"/1"))
    while not member.replica.syncing:  # noqa: ASYNC110
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(put(member, b"/2")), asyncio.ensure_future(put(member, b"/3"))]
    assert await asyncio.gather(first, *others) == [2, 3, 4]
    await member.stop()


@pytest.mark.parametrize("where", ["sync", "synced", "send", "turned"])
async def test_whatever_a_turn_raises_ends_the_member_and_nobody_waits(tmp_path, monkeypatch, where):
    fatal = Fatal()
    member = await start(tmp_path, MemberConfig(fsync="thread", own_gc=False), fatal=fatal)

    def raises(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    turns = member._turns
    if where == "sync":
        monkeypatch.setattr(turns._fsync, "run", raises)
    elif where == "synced":
        monkeypatch.setattr(member.replica, "_persisted", raises)
    elif where == "turned":
        monkeypatch.setattr(turns, "_turned", raises)
    else:
        real = member.replica.synced
        monkeypatch.setattr(member.replica, "synced", lambda: (*real(), "a message"))
        monkeypatch.setattr(turns.links, "send", raises)
    waiting = [asyncio.ensure_future(put(member, b"/%d" % at)) for at in range(20)]
    ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    if where != "turned":
        assert all(isinstance(each, OutcomeUnknown) for each in ended)
    assert member.failed and not turns._in_turn and turns.stopped
    assert len(fatal.messages) == 1 and "cannot continue: RuntimeError: can't start new thread" in fatal.messages[0]
    with pytest.raises(Unavailable):
        await put(member, b"/later")
    await member.stop()


async def test_a_restart_has_the_same_state(tmp_path):
    member = await start(tmp_path)
    for i in range(50):
        await put(member, b"/k/%d" % (i % 7), b"%d" % i)
    await member.storage.txn((), (DeleteRange(b"/k/3"),))
    lease = await member.storage.lease_grant(60)
    await put(member, b"/leased", b"x", lease.id)
    await member.storage.compact(20)
    digest, revision, cluster = member.state.hash(), member.state.revision, member.replica.cluster_id
    await member.stop()
    again = await start(tmp_path)
    assert (again.state.hash(), again.state.revision, again.replica.cluster_id) == (digest, revision, cluster)
    assert again.state.compact_revision == 20
    assert again.state.leases() == [(lease.id, 60)]
    assert again.raft.term == 2
    assert (await again.storage.get(b"/k/1", 30))[0] is not None
    with pytest.raises(Compacted):
        await again.storage.range(RangeRequest(b"/k/1", revision=19))
    await again.stop()


async def test_refusals_change_nothing_and_are_the_same_after_replay(tmp_path):
    member = await start(tmp_path)
    await put(member, b"/a")
    with pytest.raises(LeaseNotFound):
        await put(member, b"/b", b"v", lease=77)
    with pytest.raises(InvalidRequest, match="duplicate key"):
        await member.storage.txn((), (Put(b"/c", b"1"), Put(b"/c", b"2")))
    with pytest.raises(LeaseNotFound):
        await member.storage.lease_revoke(5)
    digest = member.state.hash()
    await member.stop()
    member = await start(tmp_path)
    assert member.state.hash() == digest and await contents(member) == {b"/a": b"v"}
    await member.stop()


async def test_too_large_a_request_is_refused_with_the_limit(tmp_path):
    member = await start(tmp_path)
    with pytest.raises(RequestTooLarge, match=str(REQUEST_BYTES_MAX)):
        await put(member, b"/big", bytes(REQUEST_BYTES_MAX))
    await put(member, b"/fits", bytes(REQUEST_BYTES_MAX - 200))
    await member.stop()


async def test_compares_decide(tmp_path):
    member = await start(tmp_path)
    absent = (Compare(b"/a", "MOD", "=", 0),)
    assert (await member.storage.txn(absent, (Put(b"/a", b"1"),))).succeeded
    result = await member.storage.txn(absent, (Put(b"/a", b"2"),), (RangeRequest(b"/a"),))
    assert not result.succeeded and result.responses[0].kvs[0].value == b"1"
    await member.stop()


async def test_snapshots_are_taken_while_serving_and_old_segments_go(tmp_path):
    member = await start(tmp_path, SMALL)
    for i in range(1500):
        await put(member, b"/k/%d" % (i % 20), b"%d" % i + bytes(300))
        if i % 100 == 0:
            await asyncio.sleep(0.02)
    await until(lambda: member.snapshotter.metrics("")["snapshots_total"] >= 3 and not member.replica.snapshot_due)
    names = SystemDisk(tmp_path).names()
    assert len([name for name in names if name.endswith(".snap")]) == 2
    assert "wal-0000000000000001.log" not in names
    digest = member.state.hash()
    await member.stop()
    again = await start(tmp_path, SMALL)
    assert again.state.hash() == digest
    assert again.raft.log.offset > 1000
    await again.stop()


async def test_a_snapshot_that_was_not_finished_is_ignored(tmp_path):
    member = await start(tmp_path)
    await put(member, b"/a")
    await member.stop()
    (tmp_path / "snapshot-00000000000000000002.snap.part").write_bytes(b"half")
    (tmp_path / "spare.part").write_bytes(b"")
    member = await start(tmp_path)
    assert await contents(member) == {b"/a": b"v"}
    assert not list(tmp_path.glob("*.part"))
    await member.stop()


async def test_damage_stops_the_start_with_file_and_offset(tmp_path):
    member = await start(tmp_path)
    await put(member, b"/first")
    await put(member, b"/second")
    await member.stop()
    [log] = tmp_path.glob("wal-*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"/first")] ^= 1
    log.write_bytes(content)
    with pytest.raises(Corruption, match=r"wal-0000000000000001\.log: damaged at offset \d+.*backup") as refusal:
        await start(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("mode", ["inline", "thread"])
async def test_a_failed_sync_ends_the_process_and_acknowledges_nothing(tmp_path, mode):
    disk, fatal = FailingDisk(tmp_path), Fatal()
    member = await start(tmp_path, MemberConfig(fsync=mode, own_gc=False), disk=disk, fatal=fatal)
    await put(member, b"/good")
    seen: list[WatchBatch] = []
    member.storage.watch(b"/", b"0", 0, seen.append)
    disk.sync_fails = True
    with pytest.raises(OutcomeUnknown, match="Input/output error"):
        await put(member, b"/lost")
    assert len(fatal.messages) == 1 and "cannot sync the log" in fatal.messages[0]
    assert await contents(member) == {b"/good": b"v"}
    assert [event for batch in seen for event in batch.events] == []
    disk.sync_fails = False
    with pytest.raises(Unavailable):
        await put(member, b"/after")
    await member.stop()


async def test_a_full_disk_ends_the_process_and_acknowledges_nothing(tmp_path):
    disk, fatal = FailingDisk(tmp_path), Fatal()
    member = await start(tmp_path, disk=disk, fatal=fatal)
    disk.full = True
    with pytest.raises(OutcomeUnknown, match="No space left"):
        await put(member, b"/lost")
    assert len(fatal.messages) == 1 and "cannot write the log" in fatal.messages[0]
    await member.stop()


async def test_a_disk_that_fills_during_a_snapshot_ends_no_process(tmp_path):
    class FullForSnapshots(FailingDisk):
        sealed = True

        def open(self, name: str, *, create: bool = False) -> FailingFile:
            if create and self.sealed and "snapshot" in name:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().open(name, create=create)

    disk = FullForSnapshots(tmp_path)
    member = await start(tmp_path, SMALL, disk=disk)
    said: list[str] = []
    member.say = said.append
    while not said:
        await put(member, b"/k", bytes(300))
    assert "cannot take a snapshot: " in said[0] and "No space left on device" in said[0]
    disk.sealed = False
    await until(lambda: member.snapshotter.metrics("")["snapshots_total"] >= 1)
    await until(lambda: not member.replica.shortage and not member.state.alarms.raised)
    await put(member, b"/after")
    await member.stop()


async def test_a_sink_that_raises_loses_its_watch_and_the_member_lives(tmp_path):
    fatal = Fatal()
    member = await start(tmp_path, fatal=fatal)
    ends: list[object] = []

    def sink(batch: WatchBatch) -> None:
        ends.append(batch.error)
        raise KeyError("a bug")

    member.storage.watch(b"/", b"0", 0, sink)
    await put(member, b"/a")
    revision = await put(member, b"/b")
    assert not fatal.messages and [type(end) for end in ends] == [type(None), Unavailable]
    member.watch(b"/b", b"", revision, sink)
    await until(lambda: len(ends) == 4)
    assert not fatal.messages and len(member.replica.hub) == 0
    assert member.metrics()["minikube_py_store_callbacks_failed_total"] == 4
    await member.stop()


async def test_upkeep_that_breaks_ends_the_process(tmp_path):
    clock, fatal = ManualClock(), Fatal()
    member = await start(tmp_path, clock=clock, fatal=fatal)
    member.lessor.expired = lambda: 1 / 0  # type: ignore[method-assign]
    await clock.advance(1)
    assert "ZeroDivisionError" in fatal.messages[0]
    await member.stop()


async def test_what_was_proposed_before_stop_is_done_and_later_ones_are_refused(tmp_path):
    member = await start(tmp_path)
    writes = [asyncio.ensure_future(put(member, b"/%d" % i)) for i in range(20)]
    await asyncio.sleep(0)
    await member.stop()
    assert len(await asyncio.gather(*writes)) == 20
    with pytest.raises(Unavailable):
        await put(member, b"/late")
    member = await start(tmp_path)
    assert len(await contents(member)) == 20
    await member.stop()


async def test_leases_end_and_take_their_keys_and_live_anew_after_a_restart(tmp_path):
    clock = ManualClock()
    member = await start(tmp_path, MemberConfig(own_gc=False), clock=clock)
    lease = await member.storage.lease_grant(10)
    await put(member, b"/leased", b"x", lease.id)
    await clock.advance(8)
    assert await member.storage.lease_keep_alive(lease.id) == 10
    await clock.advance(9)
    assert b"/leased" in await contents(member)
    await member.stop()
    member = await start(tmp_path, MemberConfig(own_gc=False), clock=clock)
    await clock.advance(9.5)
    assert b"/leased" in await contents(member), "a restart gives the full TTL"
    await clock.advance(1)
    assert await contents(member) == {}
    assert await member.storage.lease_keep_alive(lease.id) == 0
    await member.stop()


async def test_history_is_compacted_by_age(tmp_path):
    clock = ManualClock()
    member = await start(tmp_path, MemberConfig(retain_s=60, own_gc=False), clock=clock)
    await clock.advance(1)
    early = await put(member, b"/a", b"1")
    await clock.advance(30)
    late = await put(member, b"/a", b"2")
    assert member.state.compact_revision < early
    await clock.advance(45)
    assert early <= member.state.compact_revision < late
    assert (await member.storage.get(b"/a", late))[0].value == b"2"
    await member.stop()


async def test_steady_churn_stays_within_its_memory(tmp_path):
    clock = ManualClock()
    config = MemberConfig(
        segment_bytes=256 << 10, snapshot_log_bytes=512 << 10, retain_bytes=1 << 20, fsync="inline", own_gc=False
    )
    member = await start(tmp_path, config, clock=clock)
    sizes = []
    for _ in range(60):
        await asyncio.gather(*(put(member, b"/k/%d" % (i % 10), bytes(1000)) for i in range(100)))
        await clock.advance(0.5)
        sizes.append(member.state.size_bytes)
    assert max(sizes[30:]) < 3 << 20
    assert len(list(tmp_path.glob("wal-*.log"))) < 30
    await member.stop()


async def test_a_watch_from_the_past_catches_up_and_joins_without_gap_or_double(tmp_path):
    member = await start(tmp_path)
    for i in range(300):
        await put(member, b"/k/%d" % i)
    seen: list[int] = []
    member.storage.watch(b"/k/", b"/k0", 2, lambda batch: seen.extend(e.kv.mod_revision for e in batch.events))
    for i in range(100):
        await put(member, b"/k/%d" % i)
    await until(lambda: len(seen) >= 400)
    assert seen == list(range(2, 402))
    await member.stop()


async def test_a_watch_of_the_compacted_past_ends_with_its_reason(tmp_path):
    member = await start(tmp_path)
    for _ in range(10):
        await put(member, b"/k")
    await member.storage.compact(8)
    seen: list[WatchBatch] = []
    member.storage.watch(b"/k", b"", 3, seen.append)
    for _ in range(5):
        await asyncio.sleep(0)
    assert isinstance(seen[-1].error, Compacted) and seen[-1].error.compact_revision == 8
    await member.stop()


async def test_metrics(tmp_path):
    member = await start(tmp_path)
    await put(member, b"/a")
    metrics = member.storage.metrics()
    assert metrics["minikube_py_store_revision"] == 2
    assert metrics["minikube_py_store_wal_fsync_duration_seconds_count"] >= 2
    prefix = "minikube_py_store_batch_entries_"
    assert metrics[prefix + 'bucket{le="+Inf"}'] == metrics[prefix + "count"]
    assert all(isinstance(value, int | float) for value in metrics.values())
    await member.stop()
