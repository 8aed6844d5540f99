"""The files of a log: rotation, removal, reuse, and what is left behind by a crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from minikube_py.env import SystemDisk
from minikube_py.errors import Corruption
from minikube_py.raft.message import Entry, HardState
from minikube_py.sim.disk import SimDisk
from minikube_py.store.log_files import FIRST_SEGMENT_BYTES, LogFiles, Origin, SnapshotFile
from minikube_py.store.spare import SPARE_NAME
from minikube_py.wal.segment import HEAD_BYTES, segment_name
from minikube_py.wal.segment import SEGMENT_BYTES as LARGE_BYTES
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter, snapshot_name

SEGMENT_BYTES = 32 << 10


def open_log(folder: Path, seed: int = 1) -> tuple[LogFiles, list[bytes]]:
    files = LogFiles(SystemDisk(folder), random.Random(seed), SEGMENT_BYTES)
    loaded = files.load()
    files.begin(loaded)
    return files, [entry.data for entry in loaded.log.entries]


def append(files: LogFiles, first: int, count: int, size_bytes: int = 1000) -> None:
    for index in range(first, first + count):
        files.write([Entry(1, index, b"%06d" % index + bytes(size_bytes))], None)
        files.sync()


def take_snapshot(files: LogFiles, index: int) -> None:
    head = files._writer.head
    writer = SnapshotWriter(SnapshotHead(head.cluster_id, head.member_id, index, 1))
    file = files.write_snapshot(index)
    file.write_at(0, writer.head_bytes + writer.chunk([index]) + writer.end())
    file.sync()
    file.close()
    for sync in files.finish_snapshot(SnapshotFile(writer.head, writer.size_bytes, writer.sha256())):
        if sync is not None:
            sync()


def upkeep(files: LogFiles) -> None:
    files.sync()
    for sync in files.upkeep():
        if sync is not None:
            sync()


def indexes(datas: list[bytes]) -> list[int]:
    return [int(data[:6]) for data in datas]


def test_a_log_goes_on_over_segments_and_starts(tmp_path):
    for turn in range(4):
        files, found = open_log(tmp_path, turn)
        assert indexes(found) == list(range(1, turn * 50 + 1))
        append(files, turn * 50 + 1, 50)
        files.close()
    assert len(list(tmp_path.glob("wal-*"))) >= 7


@pytest.mark.parametrize("size_bytes", [1000, 200_000, FIRST_SEGMENT_BYTES - 200, 3 << 19, 3 << 20])
def test_a_log_that_begins_is_small_and_goes_on_in_large_segments(size_bytes):
    disk = SimDisk()
    files = LogFiles(disk, random.Random(1))
    files.begin(files.load())
    assert disk.used_bytes() == FIRST_SEGMENT_BYTES
    count = 2 * FIRST_SEGMENT_BYTES // size_bytes + 1
    append(files, 1, count, size_bytes)
    assert [head.size_bytes for head in files._heads] == [FIRST_SEGMENT_BYTES, LARGE_BYTES]
    take_snapshot(files, count)
    append(files, count + 1, 1)
    take_snapshot(files, count + 1)
    assert segment_name(1) not in disk.names() and SPARE_NAME not in disk.names(), "too small to be the next one"
    files.close()
    again = LogFiles(disk, random.Random(2))
    again.begin(again.load())
    assert [head.size_bytes for head in again._heads] == [LARGE_BYTES]
    again.close()


def test_a_snapshot_frees_exactly_the_segments_that_the_one_before_does_not_need(tmp_path):
    for index in (1, 31, 60, 99, 100):
        folder = tmp_path / str(index)
        files, _ = open_log(folder)
        append(files, 1, 100)
        take_snapshot(files, index)
        assert files._heads[0].first_index == 1, "the first one has nothing before it but the whole log"
        append(files, 101, 1)
        take_snapshot(files, 101)
        first, *later = files._heads
        assert first.first_index <= index + 1 and all(head.first_index > index + 1 for head in later)
        assert len(list(folder.glob("wal-*"))) <= len(files._heads) + 1, "one more is kept to be reused"
        files.close()
        _, found = open_log(folder)
        assert found == []
        (folder / snapshot_name(101)).unlink()
        _, found = open_log(folder)
        assert indexes(found) == list(range(index + 1, 102))


def test_old_segments_are_reused_filled_with_zeros(tmp_path):
    files, _ = open_log(tmp_path)
    append(files, 1, 70)
    take_snapshot(files, 65)
    take_snapshot(files, 66)
    old = (tmp_path / segment_name(1)).stat().st_ino
    assert files.wants_upkeep
    for sync in files.upkeep():
        sync()
    assert not files.wants_upkeep
    spare = tmp_path / SPARE_NAME
    assert spare.stat().st_ino == old and spare.read_bytes() == bytes(SEGMENT_BYTES)
    append(files, 71, 40)
    assert not spare.exists() and (tmp_path / segment_name(4)).stat().st_ino == old
    files.close()
    assert indexes(open_log(tmp_path)[1]) == list(range(67, 111))


def test_a_segment_that_is_needed_before_its_spare_is_ready_gets_a_fresh_file(tmp_path):
    files, _ = open_log(tmp_path)
    append(files, 1, 20)
    steps = files.upkeep()
    sync = next(steps)
    append(files, 21, 30)
    sync()
    assert list(steps) == []
    append(files, 51, 50)
    files.close()
    assert indexes(open_log(tmp_path)[1]) == list(range(1, 101))


def test_remains_of_a_torn_write_do_not_come_back_to_life(tmp_path):
    """Two records under one sync; the first is lost, the second is whole. A later record that ends just where the
    second begins must not bring it back."""
    files, _ = open_log(tmp_path)
    append(files, 1, 1)
    start = files._writer.end
    files.write([Entry(1, 2, b"lost")], None)
    middle = files._writer.end
    files.write([Entry(1, 3, b"stale")], None)
    files.close()
    path = tmp_path / segment_name(1)
    content = bytearray(path.read_bytes())
    content[start:middle] = bytes(middle - start)
    path.write_bytes(content)
    files, found = open_log(tmp_path)
    assert len(found) == 1
    files.write([Entry(1, 2, b"next")], None)
    assert files._writer.end == middle
    files.close()
    assert open_log(tmp_path)[1][1:] == [b"next"]


def test_a_batch_above_a_record_becomes_several_under_one_sync(tmp_path):
    files, _ = open_log(tmp_path)
    entries = [Entry(1 + i // 60, i + 1, b"%06d" % (i + 1) + bytes(500)) for i in range(100)]
    files.write(entries, HardState(2, 5, 0))
    files.sync()
    files.close()
    loaded = LogFiles(SystemDisk(tmp_path), random.Random(), SEGMENT_BYTES).load()
    assert [tuple(entry) for entry in loaded.log.entries] == [tuple(entry) for entry in entries]
    assert loaded.log.state == (2, 5, 0)


def test_the_first_segment_is_preallocated_and_zero(tmp_path):
    files, _ = open_log(tmp_path)
    content = (tmp_path / segment_name(1)).read_bytes()
    assert len(content) == SEGMENT_BYTES and content[HEAD_BYTES:] == bytes(SEGMENT_BYTES - HEAD_BYTES)
    files.close()


def test_each_segment_begins_with_the_hard_state(tmp_path):
    """The segment it was written to may be gone when it is needed."""
    files, _ = open_log(tmp_path)
    files.write((), HardState(3, 7, 0))
    append(files, 1, 100)
    take_snapshot(files, 98)
    take_snapshot(files, 99)
    assert len(list(tmp_path.glob("wal-*"))) == 2, "the last one, and one to be reused"
    files.close()
    loaded = LogFiles(SystemDisk(tmp_path), random.Random(), SEGMENT_BYTES).load()
    assert loaded.log.state[:2] == (3, 7)


def test_a_witness_is_written_only_where_there_is_none(tmp_path):
    files, _ = open_log(tmp_path)
    append(files, 1, 1)
    end = files._writer.end
    files.witness(1)
    witnessed = files._writer.end
    assert witnessed > end
    files.witness(1)
    assert files._writer.end == witnessed
    files.close()
    path = tmp_path / segment_name(1)
    content = bytearray(path.read_bytes())
    content[content.index(b"000001")] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corruption, match="durable when the one at"):
        open_log(tmp_path)


def test_kinds_do_not_mix_in_a_record(tmp_path):
    files, _ = open_log(tmp_path)
    entries = [Entry(1, index, b"%d" % index, kind) for index, kind in enumerate((0, 0, 1, 1, 0), 1)]
    files.write(entries, None)
    files.sync()
    files.close()
    found = LogFiles(SystemDisk(tmp_path), random.Random(), SEGMENT_BYTES).load().log.entries
    assert [tuple(entry) for entry in found] == [tuple(entry) for entry in entries]


ORIGINS = [
    ("with a first entry", Origin(5, 7, Entry(1, 1, b"members", 1)), [(1, 1, b"members", 1)], (1, 0, 1), False),
    ("as one who joins", Origin(5, 7, joined=True), [], (0, 0, 0), True),
    ("alone", Origin(5, 7), [], (0, 0, 0), False),
]


@pytest.mark.parametrize(
    ("origin", "entries", "state", "joined"), [case[1:] for case in ORIGINS], ids=[case[0] for case in ORIGINS]
)
def test_how_a_log_begins_is_durable_with_its_name(origin, entries, state, joined):
    for cut in range(1, 20):
        disk = SimDisk(random.Random(cut))
        disk.cut_after(cut)
        files = LogFiles(disk, random.Random(1), SEGMENT_BYTES)
        try:
            files.begin(files.load(), origin)
            done = True
        except OSError:
            done = False
        log = LogFiles(disk.crash(random.Random(cut)), random.Random(2), SEGMENT_BYTES).load().log
        assert log.tail is not None or not done
        if log.tail is not None:
            assert [tuple(entry) for entry in log.entries] == entries and log.joined is joined
            assert log.state == state and (log.tail.head.cluster_id, log.tail.head.member_id) == (5, 7)
        if done:
            return
    raise AssertionError("it was never done")


def test_a_snapshot_that_was_overtaken_by_an_installed_one_is_dropped(tmp_path):
    files, _ = open_log(tmp_path)
    append(files, 1, 10)
    head = files._writer.head
    own = SnapshotWriter(SnapshotHead(head.cluster_id, head.member_id, 10, 1))
    part = files.write_snapshot(10)
    part.write_at(0, own.head_bytes + own.end())
    theirs = SnapshotWriter(SnapshotHead(head.cluster_id, 99, 50, 2))
    name, incoming = files.write_incoming()
    incoming.write_at(0, theirs.head_bytes + theirs.end())
    incoming.sync()
    installed = SnapshotFile(theirs.head, theirs.size_bytes, theirs.sha256())
    files.install_snapshot(name, installed, HardState(2, 0, 50))
    upkeep(files)
    for sync in files.finish_snapshot(SnapshotFile(own.head, own.size_bytes, own.sha256())):
        if sync is not None:
            sync()
    assert files.snapshot is installed
    assert [name for name in files.disk.names() if "snapshot" in name] == ["snapshot-00000000000000000050.snap"]
    append(files, 51, 3)
    files.close()
    _, found = open_log(tmp_path)
    assert indexes(found) == [51, 52, 53]
