"""A disk that has bytes, but takes no more files: without inodes, or with a quota that is used up."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from full_disk import SMALL, outlived
from noted_member import Noted, Running, kept
from patience import until
from virtual_time import LoopClock, LoopSyncs

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.room import require_room
from minikube_py.env import SystemDisk
from minikube_py.mvcc.types import DeleteRange, Put
from minikube_py.sim.disk import SimDisk, SimFile
from minikube_py.store.member import StoreMember
from minikube_py.store.retry import Retry
from minikube_py.store.room import Room, explained

SUPPORT = Path(__file__).parents[2] / "support"
AGAIN = "; the member tries again within a minute, and clears the alarm once it succeeds"


class Rationed(SimDisk):
    """With a quota that is used up."""

    used_up = False

    def open(self, name: str, *, create: bool = False) -> SimFile:
        if self.used_up and create:
            raise OSError(errno.EDQUOT, "disk quota exceeded", name)
        return super().open(name, create=create)


async def test_without_inodes_a_member_refuses_what_grows_until_it_can_go_on() -> None:
    disk = SimDisk()

    def fill() -> None:
        disk.files_max = len(disk.names())

    why = await outlived(disk, fill, disk.mend)
    assert why == (
        "no space left on the disk: its folder has 1,099,511,627,776 bytes free, but no inodes for new files; remove "
        "files there that nobody needs; committed data is safe" + AGAIN
    )


async def test_a_quota_that_is_used_up_is_no_end_either() -> None:
    disk = Rationed()
    why = await outlived(disk, lambda: setattr(disk, "used_up", True), lambda: setattr(disk, "used_up", False))
    assert why == (
        "disk quota exceeded: its folder has 1,099,511,627,776 bytes free, and 65,536 bytes are needed; raise the "
        "quota of its user, group or project there, or remove files that count for it; committed data is safe" + AGAIN
    )


def test_a_file_system_without_inodes_is_noticed_by_a_trial(tmp_path: Path) -> None:
    isolated = ("unshare", "--map-root-user", "--mount")
    if shutil.which("unshare") is None or subprocess.run([*isolated, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here: unshare --map-root-user --mount fails")
    script = 'mount -t tmpfs -o size=32m,nr_inodes=40 tmpfs "$0" && exec "$@" "$0"'
    program = [sys.executable, str(SUPPORT / "full_disk.py")]
    paths = os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])
    done = subprocess.run(
        [*isolated, "sh", "-c", script, str(tmp_path), *program], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"No space left on device: {tmp_path}/store has ")
    assert "bytes free, but no inodes for new files; remove files there" in done.stdout


async def test_a_snapshot_that_has_no_room_refuses_what_grows_until_one_succeeds_though_none_is_due_any_more() -> None:
    disk = SimDisk()
    config = dataclasses.replace(SMALL, snapshot_log_bytes=8 << 10)
    member = StoreMember(disk, LoopClock(), random.Random(1), config, syncs=LoopSyncs())
    await member.start()
    disk.files_max = len(disk.names())
    await member.storage.txn((), (Put(b"/a", bytes(9000)),))
    await until(lambda: member.state.alarms.raised)
    assert "no inodes" in member.replica.shortage and member.snapshotter.retry.full
    member.replica._snapshots._limits = SMALL
    assert not member.replica.snapshot_due
    disk.mend()
    await member.storage.txn((), (DeleteRange(b"/none"),))
    await until(lambda: not member.state.alarms.raised, within_s=70.0)
    assert member.snapshotter.metrics("")["snapshots_total"] == 1
    await member.stop()


async def test_a_segment_that_had_no_room_is_tried_again_though_it_is_not_wanted_any_more() -> None:
    member = Noted(tick_s=0.5)
    upkeep = kept(member)
    async with Running(upkeep._keep_house()):
        member.replica.files.wants_upkeep, member.file_error = True, OSError(errno.EDQUOT, "used up")
        await asyncio.sleep(1.1)
        assert upkeep._spare.full and upkeep._spare in member.room.trials
        member.replica.files.wants_upkeep, member.file_error = False, None
        await asyncio.sleep(5.0)
        assert [rest for _, rest in member.named("prepare")] == [(False,), (True,)]
        assert not upkeep._spare.full


def test_only_a_lack_of_room_is_a_shortage() -> None:
    disk = SimDisk()
    room, retry = Room(disk, 0, 1000), Retry(Still())
    room.trials = (retry,)
    retry.failed("an error of the disk")
    room.look(0)
    assert room.shortage == ""
    retry.failed("no room", full=True)
    room.look(0)
    assert room.shortage == "no room" + AGAIN
    disk.capacity_bytes = 10
    room.look(0)
    assert "has 10 bytes free, and 1,000 are reserved" in room.shortage
    disk.capacity_bytes = None
    retry.succeeded()
    room.look(0)
    assert room.shortage == ""


class Still(LoopClock):
    def monotonic_s(self) -> float:
        return 0.0


def test_a_new_store_does_not_start_without_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemDisk, "free_files", lambda self: 0)
    disk = SystemDisk(tmp_path)
    with pytest.raises(SetupError, match="has no inodes for new files, and a new store needs some: remove files"):
        require_room(disk, 0)
    disk.open("wal-0000000000000001.log", create=True).close()
    require_room(disk, 0)
    monkeypatch.undo()
    assert disk.free_files() is None or disk.free_files()
    assert "bytes free; free space there" in explained(OSError(errno.ENOSPC, "no space"), disk)
