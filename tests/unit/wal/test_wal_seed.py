"""The seed of a segment whose head is gone, from its records; and what became of entries that a lost part may have
replaced."""

from __future__ import annotations

import random
from zlib import crc32

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.wal.checksums import start_value
from minikube_py.wal.record import MAGIC, RecordType
from minikube_py.wal.salvage import salvage_log
from minikube_py.wal.seed import seed_of
from minikube_py.wal.segment import SegmentHead, SegmentWriter, encode_head, segment_name

HEAD = SegmentHead(1, 2, 1, 1, 0, 64 << 10, 0xDEADBEEF)


def a_segment(*records: tuple[int, object]) -> tuple[bytearray, list[int]]:
    """Its bytes, and where each record begins."""
    writer = SegmentWriter(HEAD)
    data, offsets = bytearray(encode_head(HEAD)), []
    for type, plain in records:
        offsets.append(writer.end)
        data += writer.encode(type, msgpack.packb(plain))
        writer.mark_synced(writer.end)
    return data.ljust(HEAD.size_bytes, b"\0"), offsets


def entries(term: int, first: int, *datas: bytes) -> tuple[int, object]:
    return RecordType.ENTRIES, (term, first, list(datas))


def state(term: int, commit: int) -> tuple[int, object]:
    return RecordType.HARD_STATE, (term, 0, commit)


@given(st.binary(max_size=3000), st.integers(0, (1 << 32) - 1))
def test_the_start_of_a_checksum_is_what_it_was_begun_with(data, start):
    assert start_value(crc32(data), len(data), crc32(data, start)) == start


@given(st.integers(0, 1 << 30), st.integers(2, 8))
def test_two_records_vouch_for_the_seed_whatever_their_values_look_like(seed, count):
    rng = random.Random(seed)
    values = [rng.choice((b"", MAGIC * 9, MAGIC + rng.randbytes(30), rng.randbytes(500))) for _ in range(count)]
    data, _ = a_segment(*(entries(1, 1 + i, value) for i, value in enumerate(values)))
    data[:4096] = rng.randbytes(4096).replace(MAGIC, b"xxx")
    assert seed_of(bytes(data)) == HEAD.seed
    found = salvage_log([segment_name(1)], lambda name: bytes(data))
    assert [found.entries[1 + i].data for i in range(count)] == values and found.losses[0].offset == 0


@given(st.lists(st.sampled_from((0, 1, 40)), min_size=1, max_size=3), st.data())
def test_each_whole_record_vouches_wherever_the_file_ends(sizes, data):
    """A record without content is one, too, and may be the last thing in the file."""
    writer, file, ends = SegmentWriter(HEAD), bytearray(encode_head(HEAD)), []
    for size in sizes:
        file += writer.encode(RecordType.ENTRIES, bytes(size))
        ends.append(writer.end)
    cut = data.draw(st.sampled_from([end + by for end in ends for by in (-1, 0, 1)]), label="the file ends there")
    whole = sum(end <= cut for end in ends)
    assert seed_of(bytes(file.ljust(cut, b"\0")[:cut])) == (HEAD.seed if whole > 1 else None)


def test_one_record_alone_vouches_for_nothing():
    data, _ = a_segment(entries(1, 1, b"a"))
    data[0] ^= 1
    assert seed_of(bytes(data)) is None
    found = salvage_log([segment_name(1)], lambda name: bytes(data))
    assert found.entries == {} and found.losses[0].size_bytes == len(data)


@pytest.mark.parametrize(
    ("behind", "left"),
    [
        ((entries(3, 7, b"7c"),), {4, 5, 6}),
        # The leader of term 1 wrote entry 7, too, and never replaces its own.
        ((entries(1, 7, b"7a"),), set()),
        ((entries(3, 5, b"5c", b"6c"),), {4}),
        ((), {4, 5, 6}),
    ],
)
def test_entries_that_a_lost_part_may_have_replaced_are_doubtful(behind, left):
    before = (entries(1, 1, *(b"%d" % i for i in range(1, 7))), state(1, 3))
    data, offsets = a_segment(*before, entries(2, 5, b"5b", b"6b"), *behind, state(3, 3))
    data[offsets[2] + 20] ^= 1
    found = salvage_log([segment_name(1)], lambda name: bytes(data))
    assert found.doubtful == left
    [loss] = found.losses
    assert (loss.file, loss.offset) == (segment_name(1), offsets[2])
