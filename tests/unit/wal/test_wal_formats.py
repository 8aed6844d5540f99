"""Records, segments and snapshots: round trips, and each way to be broken."""

from __future__ import annotations

import hashlib

import msgpack
import pytest

from minikube_py.errors import Corruption
from minikube_py.wal import snapshot as snapshot_module
from minikube_py.wal.record import (
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    RecordType,
    decode_record,
    encode_record,
    find_records,
)
from minikube_py.wal.recovery import LogEntry, SavedState, recover
from minikube_py.wal.segment import (
    HEAD_BYTES,
    SegmentHead,
    SegmentWriter,
    decode_head,
    encode_head,
    segment_name,
    segment_sequence,
)
from minikube_py.wal.snapshot import (
    SnapshotHead,
    SnapshotReader,
    SnapshotWriter,
    read_snapshot,
    snapshot_index,
    snapshot_name,
)

OTHER_MEMBER = 9
HEAD = SegmentHead(cluster_id=11, member_id=7, sequence=1, first_index=1, previous_end=0, size_bytes=16384, seed=12345)


def segment(head: SegmentHead, *records: tuple[int, object], sync_each: bool = True) -> tuple[bytes, SegmentWriter]:
    """A whole segment file holding the records."""
    writer = SegmentWriter(head)
    data = encode_head(head)
    for type, value in records:
        data += writer.encode(type, msgpack.packb(value))
        if sync_each:
            writer.mark_synced(writer.end)
    return data.ljust(head.size_bytes, b"\0"), writer


def entries(first: int, *datas: bytes, term: int = 1) -> tuple[int, object]:
    return RecordType.ENTRIES, (term, first, datas)


def load(files: dict[str, bytes], snapshot: int = 0, term: int = 0):
    return recover(list(files), lambda name, size_bytes: files[name][:size_bytes], snapshot, term)


def test_record_round_trip():
    data = b"??" + encode_record(2, b"payload", seed=5, offset=2, synced=1)
    assert decode_record(data, 2, 5) == (2, 2, 2 + HEADER_BYTES + 7, 1, b"payload")


@pytest.mark.parametrize("at", range(HEADER_BYTES + 7))
def test_record_with_any_byte_changed_is_no_record(at):
    data = bytearray(encode_record(2, b"payload", seed=5, offset=0, synced=0))
    data[at] ^= 1
    assert decode_record(bytes(data), 0, 5) is None


@pytest.mark.parametrize("size", range(HEADER_BYTES + 7))
def test_record_cut_anywhere_is_no_record(size):
    data = encode_record(2, b"payload", seed=5, offset=0, synced=0)
    assert decode_record(data[:size], 0, 5) is None


def test_record_is_valid_only_at_its_place_and_in_its_segment():
    data = encode_record(2, b"payload", seed=5, offset=0, synced=0)
    assert decode_record(data, 0, 6) is None
    assert decode_record(bytes(8) + data, 8, 5) is None


def test_record_above_the_limit_is_refused():
    with pytest.raises(ValueError, match=str(PAYLOAD_BYTES_MAX)):
        encode_record(2, bytes(PAYLOAD_BYTES_MAX + 1), seed=0, offset=0, synced=0)


def test_find_records_skips_what_is_broken_and_what_only_looks_like_one():
    lure = encode_record(2, b"copied from elsewhere", seed=5, offset=999, synced=0)
    first = encode_record(2, lure, seed=5, offset=0, synced=0)
    second = encode_record(3, b"second", seed=5, offset=len(first), synced=0)
    broken = b"\xff" + first[1:]
    assert [record.payload for record in find_records(broken + second, 0, 5)] == [b"second"]


@pytest.mark.parametrize(
    ("name", "sequence"),
    [(segment_name(42), 42), ("wal-42.log", None), ("wal-0000000000000042.log.part", None), ("spare.part", None)],
)
def test_segment_names(name, sequence):
    assert segment_sequence(name) == sequence


def test_head_round_trip():
    assert decode_head("x", encode_head(HEAD).ljust(HEAD.size_bytes, b"\0")) == HEAD


def test_a_short_segment_was_cut():
    data, _ = segment(HEAD, entries(1, b"a"))
    with pytest.raises(Corruption, match="16383 of 16384 bytes"):
        decode_head("wal-x", data[:-1])


def test_recovery_of_entries_and_state():
    data, writer = segment(HEAD, entries(1, b"a", b"b"), (RecordType.HARD_STATE, (2, 7, 2)), entries(3, b"c", term=2))
    found = load({segment_name(1): data})
    assert found.entries == [LogEntry(1, 1, b"a"), LogEntry(1, 2, b"b"), LogEntry(2, 3, b"c")]
    assert found.state == SavedState(2, 7, 2)
    _, before_last = segment(HEAD, entries(1, b"a", b"b"), (RecordType.HARD_STATE, (2, 7, 2)))
    # Each record says that those before it are durable; of the last one nobody says so.
    assert found.tail == (HEAD, writer.end, writer.end, before_last.end, data[before_last.end : writer.end])
    assert found.torn_bytes == 0


def test_entries_of_another_kind_say_so():
    changes = (RecordType.ENTRIES, (2, 2, [b"change", b"another"], 1))
    data, _ = segment(HEAD, entries(1, b"a"), changes, entries(4, b"d", term=2))
    assert load({segment_name(1): data}).entries == [
        LogEntry(1, 1, b"a"), LogEntry(2, 2, b"change", 1), LogEntry(2, 3, b"another", 1), LogEntry(2, 4, b"d"),
    ]  # fmt: skip


def test_a_log_that_began_without_entries_is_that_of_one_who_joins():
    data, _ = segment(HEAD, (RecordType.JOINED, ()))
    assert load({segment_name(1): data}).joined
    assert not load({segment_name(1): segment(HEAD, entries(1, b"a"))[0]}).joined


def test_whom_it_voted_for_counts_for_its_term_only():
    """Logs from before each segment began with the hard state: entries may tell of a term whose vote is not there."""
    data, _ = segment(HEAD, (RecordType.HARD_STATE, (2, 7, 0)), entries(1, b"a", term=2), entries(2, b"b", term=5))
    assert load({segment_name(1): data}).state == SavedState(5, 0, 0)


def test_a_later_entry_of_the_same_index_replaces_the_rest():
    data, _ = segment(HEAD, entries(1, b"a", b"b", b"c"), entries(2, b"B", term=3))
    assert load({segment_name(1): data}).entries == [LogEntry(1, 1, b"a"), LogEntry(3, 2, b"B")]


OVERWRITES = [
    ("all of it", [entries(1, b"a", b"b", b"c"), entries(2, b"B", term=3)], 1, 1, [LogEntry(3, 2, b"B")]),
    ("up to it", [entries(1, b"a", b"b", b"c", b"d"), entries(2, b"B", b"C", term=3)], 3, 3, []),
    ("over it", [entries(1, b"a", b"b", b"c"), entries(2, b"B", b"C", b"D", term=3)], 3, 3, [LogEntry(3, 4, b"D")]),
    ("behind it", [entries(1, b"a", b"b", b"c"), entries(3, b"C", term=3)], 2, 1, [LogEntry(3, 3, b"C")]),
]


@pytest.mark.parametrize(
    ("records", "snapshot", "term", "left"), [case[1:] for case in OVERWRITES], ids=[case[0] for case in OVERWRITES]
)
def test_what_was_overwritten_does_not_come_back_behind_a_snapshot(records, snapshot, term, left):
    data, _ = segment(HEAD, *records)
    assert load({segment_name(1): data}, snapshot, term).entries == left


def test_entries_beyond_where_a_segment_begins_were_void_then():
    first, writer = segment(HEAD, entries(1, b"a", b"b", b"c"))
    second, _ = segment(HEAD._replace(sequence=2, first_index=2, previous_end=writer.end), entries(2, b"B", term=2))
    found = load({segment_name(1): first, segment_name(2): second})
    assert found.entries == [LogEntry(1, 1, b"a"), LogEntry(2, 2, b"B")]
    empty, _ = segment(HEAD._replace(sequence=2, first_index=2, previous_end=writer.end))
    assert load({segment_name(1): first, segment_name(2): empty}).entries == [LogEntry(1, 1, b"a")]


VOID = [
    ("the log ends before it", 9, 1, OTHER_MEMBER, True),
    ("the log has another term there", 2, 5, OTHER_MEMBER, True),
    ("the log has it", 2, 1, OTHER_MEMBER, False),
    ("its own beyond the log", 9, 1, 7, "ends before entry 9"),
    ("its own of another term", 2, 5, 7, "of term 1, in the snapshot of 5"),
]


@pytest.mark.parametrize(
    ("index", "term", "member", "outcome"), [case[1:] for case in VOID], ids=[case[0] for case in VOID]
)
def test_a_log_beside_a_snapshot_that_came_from_elsewhere(index, term, member, outcome):
    data, _ = segment(HEAD, entries(1, b"a", b"b", b"c"), (RecordType.HARD_STATE, (4, 11, 1)))
    files = {segment_name(1): data}
    if isinstance(outcome, str):
        with pytest.raises(Corruption, match=outcome):
            recover(list(files), lambda name, size_bytes: files[name][:size_bytes], index, term, member)
        return
    found = recover(list(files), lambda name, size_bytes: files[name][:size_bytes], index, term, member)
    assert found.void is outcome and [entry.data for entry in found.entries] == ([] if outcome else [b"c"])
    assert found.state.term == max(4, term) and found.state.commit == index
    assert found.state.vote == (11 if term <= 4 else 0)


@pytest.mark.parametrize("snapshot", [0, 1, 2, 3])
def test_entries_up_to_the_snapshot_are_skipped(snapshot):
    data, _ = segment(HEAD, entries(1, b"a", b"b"), entries(3, b"c"))
    found = load({segment_name(1): data}, snapshot, 1)
    assert [entry.index for entry in found.entries] == list(range(snapshot + 1, 4))
    assert found.state.commit == snapshot


def test_a_torn_last_record_is_cut():
    whole, writer = segment(HEAD, entries(1, b"a"))
    data = bytearray(whole)
    torn = writer.encode(*[entries(2, b"b" * 1000)[0], msgpack.packb(entries(2, b"b" * 1000)[1])])
    start = writer.end - len(torn)
    data[start : start + 300] = torn[:300]
    found = load({segment_name(1): bytes(data)})
    assert [entry.data for entry in found.entries] == [b"a"]
    assert found.tail.end == start and found.torn_bytes == 300


def test_a_broken_record_before_one_that_was_written_later_is_damage():
    data = bytearray(segment(HEAD, entries(1, b"a"), entries(2, b"b"))[0])
    data[HEAD_BYTES + 20] ^= 1
    with pytest.raises(Corruption, match=f"{segment_name(1)}: damaged at offset {HEAD_BYTES}"):
        load({segment_name(1): bytes(data)})


def test_a_broken_record_before_one_of_the_same_unsynced_write_is_torn():
    data = bytearray(segment(HEAD, entries(1, b"a"), entries(2, b"b"), sync_each=False)[0])
    data[HEAD_BYTES + 20] ^= 1
    assert load({segment_name(1): bytes(data)}).entries == []


def two_segments() -> tuple[bytes, bytes]:
    first, writer = segment(HEAD, entries(1, b"a"), entries(2, b"b"))
    second, _ = segment(HEAD._replace(sequence=2, first_index=3, previous_end=writer.end, seed=77), entries(3, b"c"))
    return first, second


def test_segments_in_a_row():
    first, second = two_segments()
    found = load({segment_name(1): first, segment_name(2): second})
    assert [entry.data for entry in found.entries] == [b"a", b"b", b"c"]
    assert [head.sequence for head in found.segments] == [1, 2]


def test_the_last_record_of_a_segment_that_has_a_successor_cannot_be_torn():
    first, second = two_segments()
    broken = bytearray(first)
    broken[len(first.rstrip(b"\0")) - 1] ^= 1
    with pytest.raises(Corruption, match="next segment says"):
        load({segment_name(1): bytes(broken), segment_name(2): second})


CASES_MISSING = [
    ("the first segment is gone", [2], 0, "begins with entry 3"),
    ("the snapshot is younger than the log's end", [1], 5, "ends before entry 5"),
    ("a snapshot without a log", [], 5, "there is no log"),
]


@pytest.mark.parametrize(
    ("present", "snapshot", "message"), [case[1:] for case in CASES_MISSING], ids=[case[0] for case in CASES_MISSING]
)
def test_missing_files_refuse(present, snapshot, message):
    files = dict(zip((1, 2), two_segments(), strict=True))
    with pytest.raises(Corruption, match=message):
        load({segment_name(n): files[n] for n in present}, snapshot, 1)


def test_segments_left_over_from_before_a_gap_are_obsolete():
    first, second = two_segments()
    third, _ = segment(
        HEAD._replace(sequence=3, first_index=4, previous_end=len(second.rstrip(b"\0")), seed=9), entries(4, b"d")
    )
    found = load({segment_name(1): first, segment_name(3): third}, 3, 1)
    assert found.obsolete == [segment_name(1)]
    assert [entry.data for entry in found.entries] == [b"d"]


def test_a_gap_between_entries_is_damage():
    data, _ = segment(HEAD, entries(1, b"a"), entries(3, b"c"))
    with pytest.raises(Corruption, match="entry 3 follows 1"):
        load({segment_name(1): data})


def test_committed_entries_must_be_there():
    data, _ = segment(HEAD, entries(1, b"a"), (RecordType.HARD_STATE, (1, 7, 2)))
    with pytest.raises(Corruption, match="up to 2 were committed, but only those up to 1"):
        load({segment_name(1): data})


def test_another_members_segment_is_refused():
    first, _ = two_segments()
    alien, _ = segment(HEAD._replace(sequence=2, cluster_id=99, previous_end=len(first.rstrip(b"\0"))))
    with pytest.raises(Corruption, match="different cluster"):
        load({segment_name(1): first, segment_name(2): alien})


def test_an_unknown_format_is_named():
    payload = msgpack.packb((9, *HEAD))
    data = encode_record(RecordType.SEGMENT, payload, seed=0, offset=0, synced=0).ljust(HEAD.size_bytes, b"\0")
    with pytest.raises(Corruption, match="format 9 is unknown"):
        load({segment_name(1): data})


SNAPSHOT = SnapshotHead(cluster_id=11, member_id=7, index=42, term=3)


def snapshot_file(*chunks: list) -> bytes:
    writer = SnapshotWriter(SNAPSHOT)
    return writer.head_bytes + b"".join(writer.chunk(chunk) for chunk in chunks) + writer.end()


@pytest.mark.parametrize("chunks", [[], [[b"a", 1]], [[["k", b"v"]], [2, 3], []]])
def test_snapshot_round_trip(chunks):
    head, found = read_snapshot("s", snapshot_file(*chunks))
    assert head == SNAPSHOT and list(found) == chunks
    assert snapshot_index(snapshot_name(42)) == 42 and snapshot_index(snapshot_name(42) + ".part") is None


def test_a_slice_too_large_for_a_record_is_split():
    records = [bytes(30 << 20) for _ in range(5)]
    _, chunks = read_snapshot("s", snapshot_file(records))
    assert [record for chunk in chunks for record in chunk] == records


def test_a_snapshot_with_any_byte_changed_or_missing_is_refused():
    data = snapshot_file([b"a" * 20], [b"b" * 20])
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 4
        with pytest.raises(Corruption, match="damaged at offset"):
            read_snapshot("s", bytes(changed))
        with pytest.raises(Corruption):
            read_snapshot("s", data[:at])


def test_the_members_stand_in_the_head_and_are_not_missed_in_old_files():
    head = SNAPSHOT._replace(configuration=[[7], [], [], [], False], members=[[], [], []])
    writer = SnapshotWriter(head)
    found, _ = read_snapshot("s", writer.head_bytes + writer.end())
    assert found == head
    old = encode_record(RecordType.SNAPSHOT_HEAD, msgpack.packb((1, 11, 7, 42, 3)), seed=0, offset=0, synced=0)
    end = msgpack.packb((0, hashlib.sha256(old).digest()))
    data = old + encode_record(RecordType.SNAPSHOT_END, end, seed=0, offset=len(old), synced=0)
    assert read_snapshot("s", data)[0] == SNAPSHOT


def test_bytes_behind_the_end_are_no_part_of_a_snapshot():
    with pytest.raises(Corruption, match="data after the end"):
        read_snapshot("s", snapshot_file([1]) + b"more")


@pytest.mark.parametrize("window", [1, 64, 1000, 1 << 20])
def test_a_snapshot_is_read_a_window_at_a_time(window, monkeypatch):
    monkeypatch.setattr(snapshot_module, "WINDOW_BYTES", window)
    data = snapshot_file(*([bytes([i]) * 300] for i in range(20)))
    largest = 0

    def read(offset: int, size_bytes: int) -> bytes:
        nonlocal largest
        largest = max(largest, size_bytes)
        return data[offset : offset + size_bytes]

    reader = SnapshotReader("s", read)
    assert list(reader.chunks()) == [[bytes([i]) * 300] for i in range(20)]
    assert reader.sha256 == hashlib.sha256(data).digest()
    assert largest <= max(window, 400)


def test_a_snapshot_with_its_chunks_in_another_order_is_refused():
    writer = SnapshotWriter(SNAPSHOT)
    one, two = writer.chunk([1]), writer.chunk([2])
    with pytest.raises(Corruption):
        read_snapshot("s", writer.head_bytes + two + one + writer.end())
