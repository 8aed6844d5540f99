"""Files that somebody made longer: a start reads no more of them than belongs together."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from patience import until

from minikube_py.control_plane.store_salvage import _read, look
from minikube_py.env import SystemClock, SystemDisk, SystemFile
from minikube_py.errors import Corruption
from minikube_py.mvcc.types import Put
from minikube_py.store.identity import IDENTITY_BYTES_MAX
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig
from minikube_py.wal.segment import SEGMENT_BYTES_MAX, decode_head, encode_head

CONFIG = MemberConfig(segment_bytes=16 << 10, snapshot_log_bytes=20 << 10, reserve_bytes=0)
LONG_BYTES = 1 << 37


async def started(folder: Path) -> StoreMember:
    member = StoreMember(SystemDisk(folder), SystemClock(), random.Random(1), config=CONFIG)
    await member.start()
    return member


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    member = await started(tmp_path)
    for number in range(150):
        await member.storage.txn((), (Put(b"/%d" % number, bytes(200)),))
    # A snapshot is written beside the member's other work, and a stop does not wait for it.
    await until(lambda: any(tmp_path.glob("*.snap")), "a snapshot")
    await member.stop()
    return tmp_path


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    read_at = SystemFile.read_at

    def counted(self: SystemFile, offset: int, size_bytes: int) -> bytes:
        asked.append(size_bytes)
        return read_at(self, offset, size_bytes) if size_bytes <= SEGMENT_BYTES_MAX else b""

    monkeypatch.setattr(SystemFile, "read_at", counted)
    monkeypatch.setattr(SystemFile, "read_all", lambda self: pytest.fail("of any size"))
    return asked


async def test_a_longer_log_is_read_as_far_as_its_head_says(folder: Path, read_bytes: list[int]) -> None:
    for path in folder.glob("wal-*.log"):
        os.truncate(path, LONG_BYTES)
    member = await started(folder)
    try:
        assert len(member.state.index.current) == 150
    finally:
        await member.stop()
    assert max(read_bytes) <= 1 << 20


async def test_a_longer_snapshot_is_damage_and_the_log_replaces_it(folder: Path, read_bytes: list[int]) -> None:
    for path in folder.glob("*.snap"):
        os.truncate(path, LONG_BYTES)
    member = await started(folder)
    try:
        assert len(member.state.index.current) == 150 and "after the end" in member.replica.files.warnings[0]
    finally:
        await member.stop()
    assert max(read_bytes) <= 1 << 20


async def test_a_longer_identity_is_damage(folder: Path, read_bytes: list[int]) -> None:
    os.truncate(folder / "identity", LONG_BYTES)
    with pytest.raises(Corruption, match="identity: damaged"):
        await started(folder)
    assert max(read_bytes) <= max(IDENTITY_BYTES_MAX, 1 << 20)


async def test_a_head_may_not_claim_any_size(folder: Path, read_bytes: list[int]) -> None:
    path = max(folder.glob("wal-*.log"))
    head = decode_head(path.name, path.read_bytes())
    for wrong in (SEGMENT_BYTES_MAX + 1, LONG_BYTES, -1, "16384", None):
        with path.open("r+b") as file:
            file.write(encode_head(head._replace(size_bytes=wrong)))
        with pytest.raises(Corruption, match="the segment's header is invalid"):
            await started(folder)


def test_salvage_reads_no_more_of_a_segment_than_one_may_have(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikube_py.control_plane.store_salvage.SEGMENT_BYTES_MAX", 1 << 20)
    for path in folder.glob("wal-*.log"):
        os.truncate(path, 1 << 22)
    salvaged = look(folder)
    assert salvaged is not None and salvaged.whole and len(salvaged.state.index.current) == 150


@pytest.mark.parametrize("hole", [LONG_BYTES, 1 << 30])
def test_salvage_reads_no_hole_at_a_snapshots_end(folder: Path, hole: int) -> None:
    path = max(folder.glob("*.snap"))
    size_bytes = path.stat().st_size
    os.truncate(path, size_bytes + hole)
    # One file system counts holes by the byte, another by the block.
    assert size_bytes <= len(_read(path)) < size_bytes + (1 << 20)
    salvaged = look(folder)
    assert salvaged is not None and len(salvaged.state.index.current) == 150


def test_salvage_reads_holes_before_data_and_files_without_any(tmp_path: Path) -> None:
    for name, data in (("a", b""), ("b", b"x"), ("c", bytes(1 << 20) + b"x")):
        path = tmp_path / name
        with path.open("wb") as file:
            file.seek(len(data.rstrip(b"x")))
            file.write(data.lstrip(b"\0"))
        assert _read(path) == data
