"""A log cut or flipped at any byte loses nothing acknowledged, or refuses to start."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import Corruption
from minikube_py.raft.message import Entry, HardState
from minikube_py.sim.disk import SimDisk
from minikube_py.store.log_files import LogFiles

SEGMENT_BYTES = 16 << 10


def fresh_log(disk: SimDisk, seed: int) -> LogFiles:
    files = LogFiles(disk, random.Random(seed), SEGMENT_BYTES)
    files.begin(files.load())
    return files


def write_history(files: LogFiles, batches: list[list[bytes]], first_index: int = 1) -> list[bytes]:
    """As a member does: a batch, its sync, then a word of the commit that nobody syncs. Returns what was acknowledged.
    """
    acknowledged: list[bytes] = []
    index = first_index
    for batch in batches:
        entries = [Entry(1, index + i, data) for i, data in enumerate(batch)]
        index += len(batch)
        files.write(entries, None)
        files.sync()
        files.write((), HardState(1, 7, index - 1))
        acknowledged.extend(batch)
    return acknowledged


def reload(disk: SimDisk) -> list[bytes]:
    files = LogFiles(disk, random.Random(0), SEGMENT_BYTES)
    return [entry.data for entry in files.load().log.entries]


sizes = st.sampled_from([1, 30, 30, 400, 900])
batches_of_entries = st.lists(
    st.lists(st.integers(0, 300).map(lambda size: bytes(i % 251 for i in range(size))), min_size=1, max_size=6),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150)
@given(batches_of_entries, st.floats(0, 1), st.integers(0, 7), st.integers(0, 99), st.integers(0, 9))
def test_a_flipped_bit_loses_nothing_acknowledged_or_refuses(batches, place, bit, seed, file):
    disk = SimDisk()
    acknowledged = write_history(fresh_log(disk, seed), batches)
    image = disk.image()
    name = sorted(image)[file % len(image)]
    written = len(bytes(image[name]).rstrip(b"\0"))
    image[name][int(place * (written - 1))] ^= 1 << bit
    try:
        found = reload(SimDisk.from_image(image))
    except Corruption as refusal:
        assert name in str(refusal) and "offset" in str(refusal)
    else:
        assert found == acknowledged


@settings(max_examples=100)
@given(batches=batches_of_entries, place=st.floats(0, 1), seed=st.integers(0, 99), file=st.integers(0, 9))
def test_a_file_cut_anywhere_refuses(batches, place, seed, file):
    disk = SimDisk()
    write_history(fresh_log(disk, seed), batches)
    image = disk.image()
    name = sorted(image)[file % len(image)]
    del image[name][int(place * (len(image[name]) - 1)) :]
    with pytest.raises(Corruption):
        reload(SimDisk.from_image(image))


def test_every_single_byte_of_a_small_log_flipped():
    disk = SimDisk()
    acknowledged = write_history(fresh_log(disk, 3), [[b"one", b"two"], [b"three"], [b"four" * 20]])
    [name] = disk.image()
    written = len(bytes(disk.image()[name]).rstrip(b"\0"))
    refused = 0
    for offset in [*range(64), *range(4096, written + 40)]:
        image = disk.image()
        image[name][offset] ^= 0x10
        try:
            found = reload(SimDisk.from_image(image))
        except Corruption:
            refused += 1
        else:
            assert found == acknowledged, f"flip at {offset}"
    assert refused > 100


@settings(max_examples=150)
@given(
    batches_of_entries,
    st.lists(sizes, min_size=1, max_size=8),
    st.lists(sizes, min_size=1, max_size=4),
    st.integers(0, 10**6),
)
def test_a_torn_batch_is_cut_and_the_log_goes_on(batches, torn_sizes, later_sizes, seed):
    rng = random.Random(seed)
    torn = [rng.randbytes(size) for size in torn_sizes]
    disk = SimDisk()
    files = fresh_log(disk, seed)
    acknowledged = write_history(files, batches)
    # Several writes without a sync: any of their sectors may survive.
    for i, data in enumerate(torn):
        files.write([Entry(1, len(acknowledged) + 1 + i, data)], None)
    disk = disk.crash(rng)
    found = reload(disk)
    assert found[: len(acknowledged)] == acknowledged
    assert found[len(acknowledged) :] == torn[: len(found) - len(acknowledged)]
    files = LogFiles(disk, rng, SEGMENT_BYTES)
    files.begin(files.load())
    # Writes as large as the torn ones: they may end where remains of those begin.
    for data in map(bytes, later_sizes):
        files.write([Entry(2, len(found) + 1, data)], None)
        files.sync()
        found.append(data)
        assert reload(disk.crash(rng)) == found
    more = write_history(files, [[b"more", b"x" * 700]], len(found) + 1)
    assert reload(disk.crash(rng)) == [*found, *more]


@settings(max_examples=150)
@given(
    batches_of_entries,
    st.floats(0, 1),
    st.lists(sizes, min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_a_torn_overwrite_leaves_the_old_entries_or_the_new_ones(batches, place, new_sizes, power, seed):
    """A follower's entries are replaced by another leader's; the power goes before that is durable."""
    rng = random.Random(seed)
    disk = SimDisk()
    files = fresh_log(disk, seed)
    old = write_history(files, batches)
    keep = int(place * len(old))
    new = [rng.randbytes(size) for size in new_sizes]
    files.write((), HardState(2, 9, keep))
    for i, data in enumerate(new):
        files.write([Entry(2, keep + 1 + i, data)], None)
    if not power:
        files.sync()
    disk = disk.crash(rng)
    found = reload(disk)
    if power:
        assert found in [old, *(old[:keep] + new[:i] for i in range(1, len(new) + 1))]
    else:
        assert found == old[:keep] + new
    files = LogFiles(disk, rng, SEGMENT_BYTES)
    loaded = files.load()
    assert power or loaded.log.state[:2] == (2, 9)
    files.begin(loaded)
    later = write_history(files, [[b"later", b"x" * 600]], len(found) + 1)
    assert reload(disk.crash(rng)) == [*found, *later]
