"""What salvage says of records whose checksums hold, whatever they hold and wherever the log ends.

Its judge is the reader that a start uses (`recover`): what that takes, salvage takes alike; what that refuses, salvage
names at the same place, and goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import Corruption
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Put
from minikube_py.mvcc.versions import FIRST, LATEST
from minikube_py.raft.codec import encode_change
from minikube_py.raft.configuration import ConfChange, NodeId
from minikube_py.store.membership import ChangeKind, Member, MemberChange, encode_member_change
from minikube_py.store.salvage import CHANGE, Gap, _exact, _first_version, salvage
from minikube_py.wal.record import RecordType, find_records
from minikube_py.wal.recovery import LogEntry, SavedState, recover
from minikube_py.wal.salvage import FoundLog, Loss, salvage_log, salvage_snapshot
from minikube_py.wal.segment import HEAD_BYTES, SegmentHead, SegmentWriter, encode_head, segment_name
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter, snapshot_name

HEAD = SegmentHead(cluster_id=11, member_id=7, sequence=1, first_index=1, previous_end=0, size_bytes=16384, seed=12345)
NAME = segment_name(1)
NUMBERS = st.sampled_from([0, 1, 2, 3, -1, 1 << 63, (1 << 64) - 1])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=2) | st.binary(max_size=3) | st.floats(0, 2)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=5), max_leaves=8)
ENTRIES = st.tuples(NUMBERS, NUMBERS, st.lists(st.binary(max_size=3), max_size=2), NUMBERS | SCALARS)
TRIPLES = st.tuples(NUMBERS, NUMBERS, NUMBERS)
PAYLOADS = (VALUES | ENTRIES | ENTRIES.map(lambda each: each[:3]) | TRIPLES).map(msgpack.packb)
TYPES = st.sampled_from([*(each for each in RecordType if each != RecordType.SEGMENT), 6, 99])


def entry(index: int) -> bytes:
    return msgpack.packb((1, index, [b"%d" % index]))


def segment(items: Iterable[tuple[int, bytes]], synced: Iterable[bool] = ()) -> tuple[bytes, list[tuple[int, int]]]:
    """The file, and where each record begins and ends. `synced`: before which records a sync came to its end."""
    writer = SegmentWriter(HEAD)
    data, places = encode_head(HEAD), []
    durable = iter(synced)
    for type, payload in items:
        if next(durable, True):
            writer.mark_synced(writer.end)
        begin = writer.end
        data += writer.encode(type, payload)
        places.append((begin, writer.end))
    return data.ljust(HEAD.size_bytes, b"\0"), places


def refused_at(data: bytes) -> int | None:
    """Where a start stops reading; None: it reads all."""
    try:
        recover([NAME], lambda _, size_bytes: data[:size_bytes], 0, 0)
    except Corruption as error:
        return int(str(error).partition("offset ")[2].partition(":")[0])
    return None


@given(TYPES, PAYLOADS | st.binary(max_size=8))
@settings(max_examples=300)
def test_a_sound_record_is_taken_or_named_at_its_place(type: int, payload: bytes) -> None:
    items = [(RecordType.ENTRIES, entry(1)), (type, payload), (RecordType.ENTRIES, entry(2))]
    data, places = segment(items)
    whole, _ = segment(items[:2])
    begin, end = places[1]
    found = salvage_log([NAME], lambda _: data)
    named = [(loss.offset, loss.size_bytes) for loss in found.losses if "unknown form" in loss.what]
    try:
        recover([NAME], lambda _, size_bytes: whole[:size_bytes], 0, 0)
    except Corruption as error:
        shape = any(what in str(error) for what in ("does not match", "unknown record type", "cannot be decoded"))
        shape = shape and type != RecordType.JOINED  # which says all by being there
    else:
        shape = False
    assert named == ([(begin, end - begin)] if shape else [])
    assert found.entries[2].data == b"2"
    if shape:
        assert found.entries[1].data == b"1" and found.state == SavedState()


@given(st.lists(st.booleans(), min_size=2, max_size=6), st.data())
@settings(max_examples=100)
def test_a_broken_record_ends_the_log_where_nobody_was_promised_it(synced: list[bool], data: st.DataObject) -> None:
    items = [(RecordType.ENTRIES, entry(index + 1)) for index in range(len(synced))]
    log, places = segment(items, synced)
    broken = data.draw(st.integers(0, len(items) - 1), label="broken")
    begin, end = places[broken]
    damaged = log[: end - 1] + bytes([log[end - 1] ^ 1]) + log[end:]
    found = salvage_log([NAME], lambda _: damaged)
    at = refused_at(damaged)
    if at is None:
        assert sorted(found.entries) == list(range(1, broken + 1))
        assert found.losses == [] and found.torn_bytes == places[-1][1] - begin
    else:
        assert at == begin and sorted(found.entries) == sorted({*range(1, len(items) + 1)} - {broken + 1})
        assert [(loss.offset, loss.size_bytes) for loss in found.losses] == [(begin, end - begin)]
        assert found.torn_bytes == 0


@given(st.integers(1, 5), st.integers(0, HEAD.size_bytes - 1))
@settings(max_examples=100)
def test_of_a_file_that_was_cut_all_that_is_gone_is_named(count: int, size_bytes: int) -> None:
    data, places = segment([(RecordType.ENTRIES, entry(index + 1)) for index in range(count)])
    cut = data[:size_bytes]
    found = salvage_log([NAME], lambda _: cut)
    left = sum(end <= size_bytes for _, end in places)
    assert sorted(found.entries) == list(range(1, left + 1))
    if size_bytes >= HEAD_BYTES:
        [loss] = found.losses
        assert loss.offset == (places[left - 1][1] if left else HEAD_BYTES)
        assert loss.offset + loss.size_bytes == HEAD.size_bytes and loss.what == "the segment was truncated"


def snapshot(slices: Iterable[list[Any]], index: int = 42) -> bytes:
    writer = SnapshotWriter(SnapshotHead(cluster_id=11, member_id=7, index=index, term=3))
    return writer.head_bytes + b"".join(writer.chunk(each) for each in slices) + writer.end()


def test_of_a_snapshot_that_was_cut_the_chunks_before_are_had() -> None:
    slices = [[bytes([number])] for number in range(3)]
    data = snapshot(slices)
    ends = [0, *(record.end for record in find_records(data, 0, 0))]
    assert len(ends) == 1 + 1 + len(slices) + 1
    for size_bytes in range(len(data)):
        found = salvage_snapshot(snapshot_name(42), data[:size_bytes])
        whole = max(end for end in ends if end <= size_bytes)
        [loss] = found.losses
        assert (loss.offset, loss.offset + loss.size_bytes) == (whole, size_bytes)
        broken, cut = (
            "the snapshot's end is damaged",
            "the snapshot was truncated" if size_bytes else "the snapshot is empty",
        )
        assert loss.what == (cut if whole == size_bytes else broken)
        assert found.records == [each for one in slices for each in one][: max(0, ends.index(whole) - 1)]
    assert salvage_snapshot(snapshot_name(42), data).losses == []


@given(st.lists(st.lists(VALUES, max_size=3), max_size=3))
@settings(max_examples=200)
def test_sound_chunks_that_are_no_state_are_named_and_the_log_is_had(slices: list[list[Any]]) -> None:
    data, _ = segment([(RecordType.ENTRIES, msgpack.packb((1, 1, [b"no command"])))])
    files = {NAME: data, snapshot_name(42): snapshot(slices)}
    found = salvage(sorted(files), files.__getitem__)
    assert found is not None and not found.whole
    assert any(loss.file == snapshot_name(42) for loss in found.losses)


def test_the_newest_snapshot_that_fits_together_is_begun_with() -> None:
    """Chunks may be sound, each of them, and no state."""
    states = []
    for count in range(1, 4):
        state = StateMachine()
        for at in range(count):
            state.apply(Put(b"/%d" % at, b"v"))
        states.append(state)
    good, bad = snapshot(records_of(states[1]), 20), snapshot([[["no", "state"]]], 30)
    oldest = snapshot(records_of(states[0]), 10)
    found = [salvage_snapshot(snapshot_name(at), data) for at, data in ((30, bad), (20, good), (10, oldest))]
    losses: list[Loss] = []
    made = _exact(found, FoundLog({}, set(), SavedState(), [], 0), losses)
    assert made.base == 20 and made.exact.hash() == states[1].hash()
    assert [loss.file for loss in losses] == [snapshot_name(30)]


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x93\x01", msgpack.packb([1, 2, 3]), bytes(40)], ids=repr)
def test_a_log_whose_first_change_does_not_read_begins_with_the_first_rules(data: bytes) -> None:
    log = FoundLog({1: LogEntry(1, 1, data, CHANGE)}, set(), SavedState(1, 0, 0), [], 0)
    assert _first_version(log) == FIRST == _first_version(FoundLog({}, set(), SavedState(), [], 0))


@pytest.mark.parametrize("version", range(FIRST, LATEST + 1))
def test_a_log_begins_with_the_rules_that_its_first_change_names(version: int) -> None:
    change = MemberChange(ChangeKind.BOOTSTRAP, members=(Member(NodeId(1), "m1"),), version=version)
    first = LogEntry(1, 1, encode_change(ConfChange(context=encode_member_change(change))), CHANGE)
    assert _first_version(FoundLog({1: first}, set(), SavedState(1, 0, 0), [], 0)) == version
    assert _first_version(FoundLog({1: first._replace(kind=0)}, set(), SavedState(1, 0, 0), [], 0)) == FIRST


@given(st.integers(1, 5), st.integers(0, 4))
@settings(max_examples=20)
def test_entries_that_were_committed_and_are_not_there_are_a_gap_behind_all_revisions(count: int, gone: int) -> None:
    puts = [msgpack.packb((1, at + 1, [pack(Put(b"/%d" % at, b"v"))])) for at in range(count)]
    state = msgpack.packb((1, 0, count + gone))
    data, _ = segment([*((RecordType.ENTRIES, put) for put in puts), (RecordType.HARD_STATE, state)])
    made = salvage([NAME], lambda _: data)
    assert made is not None and made.applied == count and made.exact.revision == 1 + count
    assert made.gaps == ([Gap(count + 1, count + gone, 1 + count, 0)] if gone else [])
