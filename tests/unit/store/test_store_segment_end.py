"""Where a segment ends, nothing waits for the disk but who asked for durability: not the loop, not the heartbeats."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading

import pytest
from member_net import PLAIN, MemberNet
from patience import until
from replica_net import Outcome, ReplicaNet
from virtual_time import LoopSyncs

from minikube_py.env import SystemClock, SystemDisk, SystemFile
from minikube_py.errors import RequestTooLarge
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put
from minikube_py.raft.message import MessageType
from minikube_py.store.fsync import FsyncRunner
from minikube_py.store.log_files import AROUND_BYTES
from minikube_py.store.member import StoreMember
from minikube_py.store.replica_config import ReplicaConfig
from minikube_py.wal.segment import segment_sequence

SMALL_SEGMENTS = dataclasses.replace(PLAIN, segment_bytes=32 << 10, snapshot_log_bytes=64 << 10)


class CountingFile(SystemFile):
    def __init__(self, disk: CountingDisk, fd: int) -> None:
        super().__init__(fd)
        self._disk = disk

    def sync(self) -> None:
        self._disk.note()
        super().sync()


class CountingDisk(SystemDisk):
    """Counts the syncs that the loop itself waits for: those that neither `syncs` runs nor a thread."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.inline = 0
        self.syncs: LoopSyncs | None = None

    def open(self, name: str, *, create: bool = False) -> CountingFile:
        return CountingFile(self, super().open(name, create=create)._fd)

    def sync_folder(self) -> None:
        self.note()
        super().sync_folder()

    def note(self) -> None:
        if threading.current_thread() is threading.main_thread() and not (self.syncs and self.syncs.running):
            self.inline += 1

    def segments(self) -> int:
        """The number of the newest one."""
        return max(filter(None, map(segment_sequence, self.names())))


async def test_with_other_members_no_sync_runs_on_the_loop(tmp_path):
    net = MemberNet(tmp_path, SMALL_SEGMENTS)
    disks = {id: CountingDisk(tmp_path / str(id)) for id in (1, 2, 3)}
    await net.form(3, disks)
    try:
        await net.settled()
        for id, disk in disks.items():
            disk.syncs = net.syncs[id]
        begun = {id: disk.inline for id, disk in disks.items()}
        for round in range(12):
            await asyncio.gather(*(net.put(b"/%d/%d" % (round, i), bytes(800)) for i in range(20)))
            await net.clock.sleep(0.5)
        await until(lambda: all(net[id].snapshotter.metrics("")["snapshots_total"] >= 2 for id in net.members))
        assert all(disk.segments() >= 4 for disk in disks.values())
        assert {id: disk.inline - begun[id] for id, disk in disks.items()} == {1: 0, 2: 0, 3: 0}
        await net.alike()
    finally:
        await net.stop()


async def test_heartbeats_go_out_while_the_syncs_of_a_segments_end_hang(tmp_path):
    net = MemberNet(tmp_path, SMALL_SEGMENTS)
    disks = {id: CountingDisk(tmp_path / str(id)) for id in (1, 2, 3)}
    await net.form(3, disks)
    await net.settled()
    leader = await net.leader()
    syncs = net.syncs[leader.member_id]
    try:
        term = leader.raft.term
        heartbeats = 0
        send = net.links[leader.member_id].send

        def counted(messages) -> None:
            nonlocal heartbeats
            heartbeats += sum(message.type == MessageType.HEARTBEAT for message in messages)
            send(messages)

        net.links[leader.member_id].send = counted
        for i in range(200):
            syncs.close_gate()
            writing = asyncio.create_task(net.put(b"/%d" % i, bytes(800)))
            await until(lambda: syncs.held > 0)
            if not leader.replica.files._current.part:
                syncs.open_gate()
                await writing
                continue
            enough = heartbeats + 20
            await until(lambda enough=enough: heartbeats >= enough)
            assert (leader.replica.leading, leader.raft.term) == (term, term)
            syncs.open_gate()
            await writing
            break
        else:
            raise AssertionError("no segment came to its end")
        await until(lambda: not leader.replica.files._current.part)
        await net.alike()
    finally:
        syncs.open_gate()
        await net.stop()


@pytest.mark.real_time("several syncs run in a thread")
async def test_alone_the_loop_waits_for_one_sync_at_most(tmp_path):
    disk = CountingDisk(tmp_path)
    clock = SystemClock()
    runner = FsyncRunner(clock, "inline")
    member = StoreMember(disk, clock, random.Random(1), SMALL_SEGMENTS, syncs=runner)
    run, inline = runner.run, []

    def counted(sync, done) -> None:
        before = disk.inline
        run(sync, done)
        inline.append(disk.inline - before)

    runner.run = counted
    await member.start()
    for i in range(200):
        ended: asyncio.Future[None] = member.loop.create_future()
        command = Put(b"/%d" % (i % 10), bytes(800))
        member.propose(command, pack(command), lambda result, error, ended=ended: ended.set_result(None))
        await ended
    assert disk.segments() >= 4 and max(inline) == 1 and inline.count(0) >= 3
    await member.stop()


@pytest.mark.parametrize("before", [0, 1, 7, 200])
def test_a_request_fits_into_a_segment_or_is_refused(before: int) -> None:
    """Whatever the segment already holds, and whatever `request_bytes_max` is."""
    segment_bytes = 16 << 10
    net = ReplicaNet(members=1, config=ReplicaConfig(), segment_bytes=segment_bytes)
    leader = net.leader()
    for _ in range(before):
        net.put(b"a", bytes(300))
    accepted = []
    for size in range(segment_bytes - AROUND_BYTES - 100, segment_bytes + 20, 3):
        outcome = Outcome()
        command = Put(b"k", bytes(size))
        try:
            leader.propose(command, pack(command), outcome)
        except RequestTooLarge as error:
            assert str(leader.files.entry_bytes_max) in str(error).replace(",", "")
            continue
        net.settle()
        assert outcome.ended
        accepted.append(size)
    assert accepted and not net.nodes[1].failed
    net.nodes[1].crash()
    net.nodes[1].start()
    assert net.put(b"b").ended
