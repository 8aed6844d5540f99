"""What a member does while its disk takes no more files, and after: on any disk and any loop.

As a program (`python full_disk.py FOLDER`), on a real file system without inodes, in real time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import random
import sys
from collections.abc import Callable
from pathlib import Path

from member_net import PLAIN, refused
from patience import until
from virtual_time import LoopClock, LoopSyncs

from minikube_py.env import Disk, SystemDisk
from minikube_py.errors import NoSpace
from minikube_py.mvcc.types import DeleteRange, Put, RangeRequest
from minikube_py.store.member import StoreMember

SMALL = dataclasses.replace(PLAIN, segment_bytes=64 << 10, snapshot_log_bytes=1 << 30)


async def outlived(disk: Disk, fill: Callable[[], None], free: Callable[[], None]) -> str:
    """Between `fill` and `free` the disk takes no more files. Returns why the member refused what grows."""
    said: list[str] = []
    member = StoreMember(disk, LoopClock(), random.Random(1), SMALL, said.append, syncs=LoopSyncs())
    await member.start()
    await member.storage.txn((), (Put(b"/a", b"v"), Put(b"/b", b"v")))
    fill()
    await member.storage.txn((), (Put(b"/large", bytes(20_000)),))
    await until(lambda: member.replica.shortage and member.state.alarms.raised)
    why = member.replica.shortage
    refusal = await refused(member.storage.txn((), (Put(b"/c", b"v"),)))
    assert isinstance(refusal, NoSpace) and why in str(refusal), refusal
    assert (await member.storage.range(RangeRequest(b"/a"))).count == 1
    assert (await member.storage.txn((), (DeleteRange(b"/a"),))).responses[0].deleted == 1
    assert member.status()["shortage"] == why
    free()
    await until(lambda: not member.replica.shortage and not member.state.alarms.raised, within_s=70.0)
    await member.storage.txn((), (Put(b"/c", b"v"),))
    assert member.replica.files.spare.begun
    await member.stop()
    assert said == []
    return why


class Filled:
    """Empty files, until the file system takes no more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[Path] = []

    def fill(self) -> None:
        self._folder.mkdir()
        with contextlib.suppress(OSError):
            while True:
                self._names.append(self._folder / str(len(self._names)))
                self._names[-1].touch()
        try:
            self._names[-1].touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC, error

    def free(self) -> None:
        for each in self._names:
            each.unlink(missing_ok=True)


if __name__ == "__main__":
    files = Filled(Path(sys.argv[1]) / "others")
    print(asyncio.run(outlived(SystemDisk(Path(sys.argv[1]) / "store"), files.fill, files.free)))
