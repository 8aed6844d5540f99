"""The laws of the simulated disk: what a crash may and may not do to it."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.env import SystemDisk
from minikube_py.sim.disk import SECTOR_BYTES, SimDisk

SIZE = 4 * SECTOR_BYTES
writes = st.lists(
    st.tuples(st.integers(0, SIZE - 1), st.integers(1, 2 * SECTOR_BYTES), st.integers(1, 255)), min_size=1, max_size=12
)


def put(file, write):
    offset, size, value = write
    file.write_at(offset, bytes([value]) * size)


def durable_file(disk, name="file", content=bytes(SIZE)):
    file = disk.open(name, create=True)
    file.write_at(0, content)
    file.sync()
    disk.sync_folder()
    return file


def content_of(disk, name="file"):
    return disk.open(name).read_all()


@given(writes, writes, st.integers(0, 99))
def test_what_was_synced_outlives_any_crash(before, after, seed):
    disk = SimDisk()
    file = durable_file(disk)
    for each in before:
        put(file, each)
    file.sync()
    synced = file.read_all()
    for each in after:
        put(file, each)
    found = content_of(disk.crash(random.Random(seed)))
    written = [range(offset, offset + size) for offset, size, _ in after]
    for place, byte in enumerate(synced):
        assert found[place] == byte or any(place in each for each in written)


@given(writes, st.integers(0, 99))
def test_each_sector_is_as_it_was_at_some_time_or_torn(after, seed):
    disk = SimDisk()
    file = durable_file(disk)
    values = [{0} for _ in range(SIZE + 2 * SECTOR_BYTES)]
    for offset, size, value in after:
        put(file, (offset, size, value))
        for place in range(offset, offset + size):
            values[place].add(value)
    found = content_of(disk.crash(random.Random(seed)))
    assert all(byte in values[place] for place, byte in enumerate(found))


def test_a_crash_keeps_all_nothing_or_a_part_as_the_seed_says():
    kept = set()
    torn = 0
    for seed in range(300):
        disk = SimDisk()
        file = durable_file(disk)
        file.write_at(0, b"x" * SIZE)
        found = content_of(disk.crash(random.Random(seed)))
        sectors = [found[start : start + SECTOR_BYTES] for start in range(0, SIZE, SECTOR_BYTES)]
        torn += sum(0 < sector.count(b"x") < SECTOR_BYTES for sector in sectors)
        kept.add(tuple(sector.count(b"x") == SECTOR_BYTES for sector in sectors))
    assert len(kept) == 16 and torn > 10


@given(writes, st.integers(0, 12))
def test_a_sync_that_began_earlier_covers_what_was_written_by_then(all_writes, covered):
    disk = SimDisk()
    file = durable_file(disk)
    for each in all_writes[:covered]:
        put(file, each)
    horizon = disk.sequence
    wanted = file.read_all()
    for each in all_writes[covered:]:
        put(file, each)
    last = file.read_all()
    disk.sync_as_of(horizon, file.sync)
    [inode] = disk._names.values()
    assert bytes(inode.durable) == wanted and file.read_all() == last
    file.sync()
    assert bytes(inode.durable) == last and not inode.pending


def test_a_killed_process_loses_nothing_and_a_later_power_cut_may():
    disk = SimDisk()
    file = durable_file(disk)
    file.write_at(0, b"x" * SIZE)
    disk.open("new", create=True)
    disk = disk.killed()
    assert content_of(disk) == b"x" * SIZE and disk.names() == ["file", "new"]
    seen = {(content_of(crashed)[0], "new" in crashed.names())
            for crashed in (disk.crash(random.Random(seed)) for seed in range(100))}
    assert seen == {(0, False), (0, True), (ord("x"), False), (ord("x"), True)}


def test_names_are_durable_with_their_folder():
    for seed in range(50):
        disk = SimDisk()
        durable_file(disk, "a", b"a")
        durable_file(disk, "b", b"b")
        disk.rename("a", "c")
        disk.remove("b")
        crashed = disk.crash(random.Random(seed))
        assert ("a" in crashed.names()) != ("c" in crashed.names())
        disk.sync_folder()
        assert disk.crash(random.Random(seed)).names() == ["c"]


@pytest.mark.parametrize("operations", range(1, 8))
def test_the_power_goes_at_any_operation(operations):
    disk = SimDisk()
    disk.cut_after(operations)
    done = 0
    file = None
    with pytest.raises(OSError, match="the power is off"):
        file = disk.open("file", create=True)
        done += 1
        for _ in range(2):
            file.write_at(0, b"x")
            done += 1
            file.sync()
            done += 1
        disk.sync_folder()
        done += 1
        disk.open("other", create=True)
    assert done == operations - 1
    with pytest.raises(OSError, match="the power is off"):
        file.read_all() if file else disk.open("file")


def test_a_full_disk_takes_what_fits():
    disk = SimDisk()
    file = durable_file(disk, content=bytes(100))
    disk.capacity_bytes = 160
    assert disk.free_bytes() == 60
    file.write_at(0, bytes(100))
    with pytest.raises(OSError) as raised:
        file.write_at(100, b"x" * 100)
    assert raised.value.errno == errno.ENOSPC
    assert file.read_all() == bytes(100) + b"x" * 60
    with pytest.raises(OSError):
        disk.open("other", create=True).allocate(1)
    disk.remove("file")
    assert disk.free_bytes() == 0, "it is open"
    file.close()
    assert disk.free_bytes() == 160


def test_a_failed_sync_may_lose_what_it_covered_though_the_next_succeeds():
    seen = set()
    for seed in range(100):
        disk = SimDisk(random.Random(seed))
        file = durable_file(disk)
        disk.fail_sync_after(1)
        file.sync()
        file.write_at(0, b"x")
        with pytest.raises(OSError, match="could not sync"):
            file.sync()
        file.sync()
        seen.add(content_of(disk.crash(random.Random(seed)))[0])
    assert seen == {0, ord("x")}


def test_a_lying_disk_says_it_synced():
    disk = SimDisk()
    disk.lies_about_sync = True
    durable_file(disk).sync()
    [inode] = disk._names.values()
    assert not inode.durable


def test_bits_rot_in_one_sector():
    for seed in range(50):
        disk = SimDisk()
        durable_file(disk)
        where = disk.rot(random.Random(seed), bits=3)
        found = content_of(disk)
        changed = [place for place, byte in enumerate(found) if byte]
        assert 0 < len(changed) <= 3 and len({place // SECTOR_BYTES for place in changed}) == 1
        assert where == f"file at {changed[0] // SECTOR_BYTES * SECTOR_BYTES}"
        assert content_of(disk.crash(random.Random(0))) == found
    assert SimDisk().rot(random.Random(0)) is None


def test_rot_below_what_is_not_synced_shows_when_that_is_lost():
    disk = SimDisk()
    file = durable_file(disk)
    file.write_at(0, b"x" * SIZE)
    disk.rot(random.Random(0))
    assert file.read_all() == b"x" * SIZE
    [inode] = disk._names.values()
    assert any(inode.durable)


def test_an_unreadable_file_says_so():
    disk = SimDisk()
    file = durable_file(disk)
    disk.unreadable["file"] = None
    for read in (file.read_all, lambda: file.read_at(0, 1)):
        with pytest.raises(OSError, match="cannot read"):
            read()


def use(disk):
    """What a program sees of a disk."""
    log = []
    file = disk.open("a", create=True)
    file.write_at(10, b"ten")
    file.allocate(20)
    log.append(file.read_all())
    file.truncate(12)
    file.allocate(5)
    log.append((file.read_all(), file.read_at(9, 2), file.read_at(11, 50), file.read_at(99, 1)))
    file.sync()
    for call in (lambda: disk.open("a", create=True), lambda: disk.open("none"), lambda: disk.remove("none")):
        try:
            call()
        except OSError as error:
            log.append(error.errno)
    other = disk.open("b", create=True)
    other.write_at(0, b"b")
    disk.rename("b", "a")
    disk.sync_folder()
    log.append((disk.names(), disk.open("a").read_all(), file.read_all()))
    disk.remove("a")
    log.append((disk.names(), other.read_all()))
    file.close()
    other.close()
    return log


def test_as_a_real_folder(tmp_path):
    assert use(SimDisk()) == use(SystemDisk(tmp_path))
