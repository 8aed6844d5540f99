"""Salvage beside a model: each entry puts a key of its own, so what is lost shows in keys, revisions and ranges."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_salvage_shapes import HEAD, NAME, NUMBERS, VALUES, segment, snapshot

from minikube_py.errors import Corruption
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Put
from minikube_py.store.salvage import Gap, salvage
from minikube_py.wal.record import RecordType, encode_record
from minikube_py.wal.salvage import salvage_log, salvage_snapshot
from minikube_py.wal.segment import SegmentWriter, encode_head, segment_name
from minikube_py.wal.snapshot import read_snapshot, snapshot_name


def put(index: int) -> Put:
    return Put(b"/%02d" % index, b"%d" % index)


def state_after(index: int) -> StateMachine:
    state = StateMachine()
    for at in range(1, index + 1):
        state.apply(put(at))
    return state


def runs(indexes: list[int]) -> list[tuple[int, int]]:
    groups = itertools.groupby(enumerate(indexes), key=lambda each: each[1] - each[0])
    found = [[index for _, index in group] for _, group in groups]
    return [(group[0], group[-1]) for group in found]


@given(st.data(), st.integers(1, 8))
@settings(max_examples=200)
def test_what_is_left_and_what_is_missing_is_told_to_the_entry(data: st.DataObject, count: int) -> None:
    lost = data.draw(st.sets(st.integers(1, count), max_size=count), label="lost")
    base = data.draw(st.integers(0, count), label="snapshot")
    commit = data.draw(st.integers(0, count), label="commit")
    terms = sorted(data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count), label="terms"))
    entries = [
        (RecordType.ENTRIES, msgpack.packb((term, index, [pack(put(index))])))
        for index, term in enumerate(terms, start=1)
    ]
    log, places = segment([*entries, (RecordType.HARD_STATE, msgpack.packb((terms[-1], 0, commit)))])
    damaged = bytearray(log)
    for index in lost:
        damaged[places[index - 1][1] - 1] ^= 1
    files = {NAME: bytes(damaged)}
    if base:
        files[snapshot_name(base)] = snapshot(records_of(state_after(base)), base)
    made = salvage(sorted(files), files.__getitem__)
    there = [index for index in range(1, count + 1) if index not in lost]
    if not there and not base:
        assert made is None
        return
    assert made is not None
    applied = next((index - 1 for index in range(base + 1, count + 1) if index in lost), count)
    assert (made.base, made.applied) == (base, applied) and made.exact.hash() == state_after(applied).hash()
    reached = max([base, *there])
    assert made.reached == reached
    known = max(reached, commit)
    missing = [index for index in range(applied + 1, known + 1) if index > base and (index in lost or index > reached)]
    expected = [Gap(first, last, first, last + 1 if last < reached else 0) for first, last in runs(missing)]
    assert made.gaps == expected
    standing = {index for index in range(1, count + 1) if index <= base or index in there}
    assert {(kv.key, kv.value, kv.mod_revision) for kv in made.state.index.current.values()} == {
        (put(index).key, put(index).value, index + 1) for index in standing
    }
    assert made.state.revision == reached + 1 and made.doubtful == [] and made.assumed == []
    assert made.unconfirmed == max(0, applied - max(base, commit))
    behind = any(index > max(there, default=0) for index in lost)
    assert made.whole == (not missing and not behind)
    for loss in made.log.losses:
        if loss.last is not None:
            assert made.needed(loss) == (loss.last > base)
            gap = next((each for each in made.gaps if each.first <= loss.last and loss.first <= each.last), None)
            assert made.revisions(loss) == ((gap.after + 1, gap.revision) if gap else (0, 0))


@given(st.data(), st.integers(1, 8))
@settings(max_examples=100)
def test_parts_of_a_newer_snapshot_leave_gaps_that_hold_something_and_do_not_meet(
    data: st.DataObject, count: int
) -> None:
    """Its end is cut off: its keys are had, and what leads there may be missing, or lie behind it at once."""
    lost = data.draw(st.sets(st.integers(1, count), max_size=count), label="lost")
    base = data.draw(st.integers(1, count), label="snapshot")
    entries = [(RecordType.ENTRIES, msgpack.packb((1, index, [pack(put(index))]))) for index in range(1, count + 1)]
    log, places = segment([*entries, (RecordType.HARD_STATE, msgpack.packb((1, 0, count)))])
    damaged = bytearray(log)
    for index in lost:
        damaged[places[index - 1][1] - 1] ^= 1
    files = {NAME: bytes(damaged), snapshot_name(base): snapshot(records_of(state_after(base)), base)[:-1]}
    made = salvage(sorted(files), files.__getitem__)
    assert made is not None and not (made.whole and lost)
    applied = next((index - 1 for index in range(1, count + 1) if index in lost), count)
    assert (made.base, made.applied) == (0, applied) and made.exact.hash() == state_after(applied).hash()
    start = max(base, applied)
    behind = [index for index in range(start + 1, count + 1) if index in lost]
    expected = ([(applied + 1, base)] if base > applied else []) + runs(behind)
    assert [(gap.first, gap.last) for gap in made.gaps] == expected
    there = {index for index in range(1, count + 1) if index <= start or index not in lost}
    assert {kv.key for kv in made.state.index.current.values()} == {put(index).key for index in there}


@given(st.sets(st.integers(1, 9), min_size=1))
def test_each_segment_that_is_not_there_is_named_once(present: set[int]) -> None:
    """Between the first and the last that are; each segment holds the entry of its number."""
    files, end = {}, 0
    for sequence in range(1, 10):
        head = HEAD._replace(sequence=sequence, first_index=sequence, previous_end=end)
        writer = SegmentWriter(head)
        data = encode_head(head) + writer.encode(RecordType.ENTRIES, msgpack.packb((1, sequence, [b"v"])))
        end = writer.end
        files[segment_name(sequence)] = data.ljust(head.size_bytes, b"\0")
    names = [segment_name(sequence) for sequence in sorted(present)]
    found = salvage_log(names, files.__getitem__)
    missing = [each for each in range(min(present), max(present)) if each not in present]
    assert [loss.file for loss in found.losses] == [segment_name(sequence) for sequence in missing]
    assert found.entries.keys() == present
    for loss, sequence in zip(found.losses, missing, strict=True):
        following = min(each for each in present if each > sequence)
        assert (loss.first, loss.last) == (max(each for each in present if each < sequence) + 1, following - 1)


HEADS = st.tuples(st.just(1), NUMBERS, NUMBERS, st.just(42) | NUMBERS, NUMBERS).map(list)


@given(
    VALUES | HEADS | st.tuples(HEADS, st.lists(VALUES, max_size=3)).map(lambda each: each[0] + each[1]), st.booleans()
)
@settings(max_examples=200)
def test_a_sound_head_of_a_snapshot_is_read_alike_by_a_start_and_by_salvage(plain: Any, ends: bool) -> None:
    """What a start takes salvage takes; what it refuses salvage names at its place, and has the chunks all the same."""
    name, digest = snapshot_name(42), hashlib.sha256()
    data, places = b"", 0
    end: Any = [1, None]
    for type in (RecordType.SNAPSHOT_HEAD, RecordType.SNAPSHOT_CHUNK, RecordType.SNAPSHOT_END):
        if type == RecordType.SNAPSHOT_END:
            end = [1, digest.digest()] if ends else plain
        payload = {RecordType.SNAPSHOT_HEAD: plain, RecordType.SNAPSHOT_CHUNK: [b"one"]}.get(type, end)
        record = encode_record(type, msgpack.packb(payload), seed=0, offset=len(data), synced=0)
        digest.update(record)
        data += record
        places = len(data) if type == RecordType.SNAPSHOT_HEAD else places
    found = salvage_snapshot(name, data)
    assert found.records == [b"one"] and len(found.gaps) == len(found.losses)
    named = [(loss.offset, loss.size_bytes) for loss in found.losses if "does not hold" in loss.what]
    try:
        head, chunks = read_snapshot(name, data)
        assert list(chunks) == [[b"one"]]
    except Corruption as error:
        assert named == ([(0, places)] if "does not hold" in str(error) else []) or "format" in str(error)
        assert found.losses or "format" in str(error)
    else:
        assert found.head == head and not [loss for loss in found.losses if "under another" not in loss.what]


@given(VALUES.filter(lambda plain: not isinstance(plain, list) or len(plain) < 5))
@settings(max_examples=30)
def test_a_second_head_that_is_none_is_named_where_it_lies(plain: Any) -> None:
    data = snapshot([[b"one"]])
    odd = encode_record(RecordType.SNAPSHOT_HEAD, msgpack.packb(plain), seed=0, offset=len(data), synced=0)
    found = salvage_snapshot(snapshot_name(42), data + odd)
    assert [(loss.offset, loss.size_bytes) for loss in found.losses] == [(len(data), len(odd))]
    assert found.gaps == [1] and found.records == [b"one"]
