"""What salvage names as lost is exactly what is: file, place, size and which entries, for each way in which files of a
log and of a snapshot are damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.wal import checksums
from minikube_py.wal import seed as seeds
from minikube_py.wal.checksums import start_value
from minikube_py.wal.record import HEADER_BYTES, RecordType, encode_record
from minikube_py.wal.recovery import SavedState
from minikube_py.wal.salvage import FoundLog, Loss, is_snapshot, salvage_log, salvage_snapshot
from minikube_py.wal.seed import seed_of
from minikube_py.wal.segment import (
    HEAD_BYTES,
    SegmentHead,
    SegmentWriter,
    encode_head,
    segment_name,
    unpack_payload,
)
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter, snapshot_name

SIZE = HEAD_BYTES + 2048
BROKEN = "a part of the log is damaged"
NO_HEAD = "the segment's header is unreadable"


class Log:
    """Segments of a member: each of so many single-entry records, then the state that says what is committed."""

    def __init__(self, *counts: int, member: int = 2, commit: bool = True) -> None:
        self.files: dict[str, bytes] = {}
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        """By (segment, record): where it begins and ends."""
        self.ends: dict[int, int] = {}
        index, previous_end = 1, 0
        for sequence, count in enumerate(counts, 1):
            head = SegmentHead(1, member, sequence, index, previous_end, SIZE, 1000 + sequence)
            writer, data = SegmentWriter(head), encode_head(head)
            for at in range(count):
                start = writer.end
                data += writer.encode(RecordType.ENTRIES, msgpack.packb((1, index, [b"e%d" % index])))
                self.places[sequence, at] = start, writer.end
                index += 1
                writer.mark_synced(writer.end)
            if commit:
                data += writer.encode(RecordType.HARD_STATE, msgpack.packb((1, 0, index - 1)))
            self.ends[sequence] = previous_end = writer.end
            self.files[segment_name(sequence)] = data.ljust(SIZE, b"\0")
        self.last = index - 1

    def spoil(self, sequence: int, offset: int, size: int = 1) -> Log:
        name = segment_name(sequence)
        data = bytearray(self.files[name])
        for at in range(offset, offset + size):
            data[at] ^= 0xFF
        self.files[name] = bytes(data)
        return self

    def salvaged(self) -> FoundLog:
        return salvage_log(sorted(self.files), self.files.__getitem__)


def told(found: FoundLog) -> list[Loss]:
    return found.losses


def indexes(found: FoundLog) -> list[int]:
    assert all(index == entry.index for index, entry in found.entries.items())
    return sorted(found.entries)


def test_a_sound_log_has_no_losses() -> None:
    log = Log(3, 2, 4)
    found = log.salvaged()
    assert (indexes(found), told(found), found.doubtful, found.torn_bytes) == (list(range(1, 10)), [], set(), 0)
    assert found.state == SavedState(1, 0, 9)


@pytest.mark.parametrize(("at", "lost"), [(0, 1), (1, 2), (2, 3)])
def test_a_broken_record_is_named_with_its_place_and_its_entry(at: int, lost: int) -> None:
    log = Log(4, 2)
    start, end = log.places[1, at]
    found = log.spoil(1, start + HEADER_BYTES).salvaged()
    assert told(found) == [Loss(segment_name(1), start, end - start, BROKEN, lost, lost)]
    assert indexes(found) == [each for each in range(1, 7) if each != lost]
    assert found.doubtful == set(), "what came behind it in the same term was never replaced"


def test_each_of_several_losses_is_named_by_itself() -> None:
    log = Log(5, 3)
    for sequence, at in ((1, 1), (1, 3), (2, 1)):
        log.spoil(sequence, log.places[sequence, at][0])
    found = log.salvaged()
    assert [(loss.file, loss.first, loss.last) for loss in told(found)] == [
        (segment_name(1), 2, 2), (segment_name(1), 4, 4), (segment_name(2), 7, 7),
    ]  # fmt: skip
    assert indexes(found) == [1, 3, 5, 6, 8]


def test_two_records_in_a_row_are_one_loss() -> None:
    log = Log(5)
    (start, _), (_, end) = log.places[1, 1], log.places[1, 2]
    found = log.spoil(1, start, end - start).salvaged()
    assert told(found) == [Loss(segment_name(1), start, end - start, BROKEN, 2, 3)]


@pytest.mark.parametrize("gone", [[2], [2, 3], [2, 3, 4]])
def test_segments_that_are_not_there_are_named_each(gone: list[int]) -> None:
    log = Log(2, 2, 2, 2, 2)
    for sequence in gone:
        del log.files[segment_name(sequence)]
    found = log.salvaged()
    last = 2 + 2 * len(gone)
    assert told(found) == [Loss(segment_name(each), 0, 0, "the segment is missing", 3, last) for each in gone]
    assert indexes(found) == [1, 2, *range(last + 1, 11)]


def test_without_the_first_segments_nobody_knows_of_a_loss() -> None:
    log = Log(2, 2, 2)
    del log.files[segment_name(1)]
    assert told(log.salvaged()) == [] and indexes(log.salvaged()) == [3, 4, 5, 6]


@pytest.mark.parametrize("sequence", [1, 2])
def test_a_head_that_does_not_read_loses_nothing_but_in_the_last_segment(sequence: int) -> None:
    """Two records say how the segment's checksums begin. Of the last one nobody says where it ends."""
    log = Log(3, 3).spoil(sequence, 20)
    found = log.salvaged()
    loss = Loss(segment_name(sequence), 0, HEAD_BYTES, NO_HEAD, 3 * sequence - 2, 3 * sequence - 3, sequence == 1)
    assert told(found) == [loss], "it held no entry"
    assert indexes(found) == list(range(1, 7))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_a_loss_names_what_lies_between_the_entries_read_before_and_after_it(
    counts: list[int], data: st.DataObject
) -> None:
    """One that held none, as before the first entry, names none, whatever is lost further on."""
    log = Log(*counts)
    places = sorted(log.places.items())
    spoilt = data.draw(st.sets(st.sampled_from(range(len(places)))), label="records")
    heads = data.draw(st.sets(st.sampled_from(range(1, len(counts) + 1))), label="heads")
    for sequence in heads:
        log.spoil(sequence, 20)
    for at in spoilt:
        (sequence, _), (start, _) = places[at]
        log.spoil(sequence, start + HEADER_BYTES)
    found = log.salvaged()
    assert indexes(found) == [at + 1 for at in range(len(places)) if at not in spoilt]
    for loss in told(found):
        sequence = sorted(log.files).index(loss.file) + 1
        read = {(of, start): at + 1 for at, ((of, _), (start, _)) in enumerate(places) if at not in spoilt}
        before = [index for place, index in read.items() if place < (sequence, loss.offset)]
        behind = [index for place, index in read.items() if place > (sequence, loss.offset)]
        last = min(behind) - 1 if behind else None
        assert (loss.first, loss.last) == (max(before, default=0) + 1, last)


def test_a_segment_that_nothing_vouches_for_is_lost_whole() -> None:
    log = Log(3, 1, 2, commit=False).spoil(2, 20)
    found = log.salvaged()
    assert told(found) == [
        Loss(segment_name(2), 0, SIZE, "the segment's header and its backup are unreadable", 4, 4)
    ]
    assert indexes(found) == [1, 2, 3, 5, 6]


@pytest.mark.parametrize("sequence", [1, 2])
def test_a_segment_that_was_cut_is_named_from_its_last_record_on(sequence: int) -> None:
    log = Log(3, 3)
    start, _ = log.places[sequence, 2]
    log.files[segment_name(sequence)] = log.files[segment_name(sequence)][: start + 5]
    found = log.salvaged()
    lost = 3 * sequence
    last = lost if sequence == 1 else None
    assert told(found) == [Loss(segment_name(sequence), start, SIZE - start, "the segment was truncated", lost, last)]
    assert indexes(found) == [each for each in range(1, 7) if each != lost]


def test_the_end_of_a_segment_that_has_a_successor_is_known() -> None:
    log = Log(3, 3, commit=False)
    start, end = log.places[1, 2]
    found = log.spoil(1, start).salvaged()
    assert told(found) == [Loss(segment_name(1), start, end - start, "the segment's end is damaged", 3, 3)]
    # Where the next one's head does not read either, it is what was written.
    found = log.spoil(2, 20).salvaged()
    [loss, _] = told(found)
    assert loss[:4] == (segment_name(1), start, end - start, "the segment's end is damaged")


def test_a_last_write_that_nobody_was_promised_is_no_loss() -> None:
    log = Log(2, 3, commit=False)
    start, end = log.places[2, 2]
    log.spoil(2, start)
    found = log.salvaged()
    assert told(found) == [] and indexes(found) == [1, 2, 3, 4] and found.torn_bytes == end - start
    # One behind it that was written when it was durable is its witness.
    log = Log(2, 3)
    start, end = log.places[2, 2]
    found = log.spoil(2, start).salvaged()
    assert told(found) == [Loss(segment_name(2), start, end - start, BROKEN, 5, None)] and found.torn_bytes == 0


def test_a_segment_belongs_where_its_head_says() -> None:
    log = Log(2, 2, 2)
    names = [segment_name(each) for each in (1, 2, 3)]
    one, two, three = (log.files[name] for name in names)
    log.files = {names[0]: one, names[1]: three, names[2]: two}
    found = log.salvaged()
    assert indexes(found) == [1, 2, 3, 4, 5, 6]
    assert told(found) == [
        Loss(names[2], 0, 0, "it is segment 2, under another name"),
        Loss(names[1], 0, 0, "it is segment 3, under another name"),
    ]
    log.files = {names[0]: one, names[1]: two, names[2]: two}
    assert told(log.salvaged()) == [Loss(names[2], 0, SIZE, "it is a copy of segment 2")]
    assert indexes(log.salvaged()) == [1, 2, 3, 4]


def test_a_segment_of_another_member_is_left_out() -> None:
    log = Log(2, 2, 2)
    log.files[segment_name(2)] = Log(2, 2, 2, member=9).files[segment_name(2)]
    found = log.salvaged()
    assert told(found)[0] == Loss(segment_name(2), 0, SIZE, "it is a segment of another member")
    assert [loss.what for loss in told(found)[1:]] == ["the segment is missing"] and indexes(found) == [1, 2, 5, 6]


def test_one_without_a_head_takes_the_only_place_that_is_free() -> None:
    log = Log(3, 3, 3)
    names = [segment_name(each) for each in (1, 2, 3)]
    one, three = log.files[names[0]], log.files[names[2]]
    log.spoil(2, 20)
    headless = log.files[names[1]]
    log.files = {names[0]: one, names[2]: headless, segment_name(7): three}
    found = log.salvaged()
    assert indexes(found) == list(range(1, 10)), "segment 3 says where it belongs, so the other one is segment 2"
    assert [(loss.file, loss.what) for loss in told(found) if not loss.harmless] == [
        (names[2], "it is segment 2, under another name"), (segment_name(7), "it is segment 3, under another name"),
    ]  # fmt: skip
    # Two of them: nobody knows which.
    log = Log(3, 3, 3, 3)
    names = [segment_name(each) for each in (1, 2, 3, 4)]
    log.spoil(2, 20).spoil(3, 20)
    files = log.files
    log.files = {names[0]: files[names[0]], names[3]: files[names[3]]}
    log.files |= {segment_name(1)[:-5] + "1.log": files[names[0]]}
    homeless = {segment_name(4): files[names[1]], segment_name(1): files[names[2]]}
    log.files = {segment_name(8): files[names[0]], segment_name(9): files[names[3]], **homeless}
    found = log.salvaged()
    lost = [loss for loss in told(found) if "another segment has its number" in loss.what]
    assert [(loss.file, loss.offset, loss.size_bytes) for loss in lost] == [
        (segment_name(1), 0, SIZE), (segment_name(4), 0, SIZE),
    ]  # fmt: skip


def test_entries_that_may_have_been_replaced_are_doubtful() -> None:
    log = Log(3, 3, 3, commit=False)
    del log.files[segment_name(2)]
    found = log.salvaged()
    assert found.doubtful == set(), "the same leader wrote on"
    head = SegmentHead(1, 2, 3, 7, 0, SIZE, 5)
    writer, data = SegmentWriter(head), encode_head(head)
    data += writer.encode(RecordType.ENTRIES, msgpack.packb((2, 7, [b"x"])))
    log.files[segment_name(3)] = data.ljust(SIZE, b"\0")
    assert log.salvaged().doubtful == {1, 2, 3}, "nothing says that any of them was committed"


@pytest.mark.parametrize("value", [(1, 2), (1, 2, 3, 4, 5), ("1", 0, 0), None])
def test_a_sound_record_of_an_unknown_shape_is_named(value: Any) -> None:
    head = SegmentHead(1, 2, 1, 1, 0, SIZE, 5)
    writer, data = SegmentWriter(head), encode_head(head)
    data += writer.encode(RecordType.ENTRIES, msgpack.packb((1, 1, [b"a"])))
    start = writer.end
    data += writer.encode(RecordType.HARD_STATE, msgpack.packb(value))
    end = writer.end
    data += writer.encode(RecordType.ENTRIES, msgpack.packb((1, 2, [b"b"], 1)))
    found = salvage_log([segment_name(1)], lambda name: data.ljust(SIZE, b"\0"))
    assert found.losses == [Loss(segment_name(1), start, end - start, "a record of unknown form", 2, 1)]
    assert indexes(found) == [1, 2] and [entry.kind for entry in found.entries.values()] == [0, 1]


# -- snapshots ---------------------------------------------------------------------------------------------------------

HEAD = SnapshotHead(1, 2, 30, 4)
NAME = snapshot_name(30)


def snapshot(*chunks: list[Any], head: SnapshotHead = HEAD) -> tuple[bytes, list[int]]:
    """The file, and where its records begin; the last number is its size."""
    writer = SnapshotWriter(head)
    data, places = writer.head_bytes, [0, len(writer.head_bytes)]
    for chunk in chunks:
        data += writer.chunk(chunk)
        places.append(len(data))
    data += writer.end()
    return data, [*places, len(data)]


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]


WHOLE, PLACES = snapshot([1, 2], [3], [4, 5])


def test_a_sound_snapshot_is_whole() -> None:
    found = salvage_snapshot(NAME, WHOLE)
    assert (found.index, found.head, found.records, found.losses, found.gaps) == (30, HEAD, [1, 2, 3, 4, 5], [], [])


@pytest.mark.parametrize(("at", "left", "gap"), [(1, [3, 4, 5], 0), (2, [1, 2, 4, 5], 2), (3, [1, 2, 3], 3)])
def test_a_broken_chunk_is_named_with_what_lies_before_it(at: int, left: list[int], gap: int) -> None:
    found = salvage_snapshot(NAME, changed(WHOLE, PLACES[at] + HEADER_BYTES))
    size = PLACES[at + 1] - PLACES[at]
    assert found.losses == [Loss(NAME, PLACES[at], size, "a part of the snapshot is damaged")]
    assert (found.records, found.gaps, found.head) == (left, [gap], HEAD)


SCENES: Mapping[str, tuple[Callable[[], bytes], list[tuple[int, int, str]], list[int]]] = {
    "its head": (lambda: changed(WHOLE, 20), [(0, PLACES[1], "a part of the snapshot is damaged")], [0]),
    "its end": (
        lambda: changed(WHOLE, PLACES[4] + 20),
        [(PLACES[4], PLACES[5] - PLACES[4], "the snapshot's end is damaged")], [5],
    ),
    "cut behind a chunk": (lambda: WHOLE[: PLACES[4]], [(PLACES[4], 0, "the snapshot was truncated")], [5]),
    "cut within one": (lambda: WHOLE[: PLACES[3] + 3], [(PLACES[3], 3, "the snapshot's end is damaged")], [3]),
    "empty": (lambda: b"", [(0, 0, "the snapshot is empty")], [0]),
    "another's end": (
        lambda: WHOLE[: PLACES[4]] + snapshot([1, 2], [3], [4, 6])[0][PLACES[4] :],
        [(PLACES[5], 0, "the snapshot was truncated")], [5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("scene", SCENES)
def test_each_damage_of_a_snapshot_is_named(scene: str) -> None:
    made, losses, gaps = SCENES[scene]
    found = salvage_snapshot(NAME, made())
    assert [loss[1:4] for loss in found.losses] == losses and found.gaps == gaps and found.index == 30
    assert (found.head is None) == (scene in ("its head", "empty"))


def test_a_snapshot_under_anothers_name_says_whose_it_is() -> None:
    found = salvage_snapshot(snapshot_name(31), WHOLE)
    what = "the snapshot is that of entry 30, under another name"
    assert found.losses == [Loss(snapshot_name(31), 0, len(WHOLE), what)] and found.index == 30 and found.gaps == [5]


def test_a_head_of_an_unknown_shape_is_named_and_the_chunks_read() -> None:
    data = encode_record(RecordType.SNAPSHOT_HEAD, msgpack.packb((1, "x")), seed=0, offset=0, synced=0)
    size = len(data)
    data += encode_record(RecordType.SNAPSHOT_CHUNK, msgpack.packb([7]), seed=0, offset=len(data), synced=0)
    found = salvage_snapshot(NAME, data)
    assert found.losses[0] == Loss(NAME, 0, size, "the snapshot's header is invalid")
    assert (found.records, found.head, found.index, found.gaps[0]) == ([7], None, 30, 0)


def test_a_file_is_what_it_says_itself_and_else_what_its_name_says() -> None:
    segment = Log(3).files[segment_name(1)]
    assert is_snapshot(segment_name(1), WHOLE) and not is_snapshot(NAME, segment)
    assert is_snapshot(NAME, b"") and not is_snapshot(segment_name(1), b"") and is_snapshot(NAME, changed(WHOLE, 20))
    headless = bytearray(segment)
    headless[20] ^= 0xFF
    assert not is_snapshot(NAME, bytes(headless)), "its records have a seed"


# -- seeds -------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.integers(0, (1 << 32) - 1))
def test_the_start_of_a_checksum_is_found_from_its_end(data: bytes, start: int) -> None:
    assert start_value(crc32(data), len(data), crc32(data, start)) == start


@given(st.integers(0, 70), st.integers(0, 70))
def test_powers_of_x_multiply(left: int, right: int) -> None:
    assert checksums.times(checksums.power(left), checksums.power(right)) == checksums.power(left + right)
    assert checksums.power(0) == checksums.ONE and checksums.power(checksums.ORDER) == checksums.ONE


def test_so_many_records_are_asked_and_the_most_common_seed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*told: int) -> bytes:
        data = bytes(HEAD_BYTES)
        for seed in told:
            data += encode_record(RecordType.ENTRIES, b"x", seed=seed, offset=len(data), synced=0)
        return data

    assert seed_of(of(5)) is None and seed_of(of(5, 5)) == 5 and seed_of(of(5, 6)) is None
    assert seed_of(of(5, 6, 6, 5, 6)) == 6 and seed_of(of(6, 5, 5)) == 5
    assert seed_of(bytes(HEAD_BYTES)) is None and seed_of(b"") is None
    monkeypatch.setattr(seeds, "WITNESSES_MAX", 2)
    assert seed_of(of(5, 6, 6)) is None and seed_of(of(6, 6, 5, 5, 5)) == 6
    data = bytearray(of(7, 7, 7))
    data[HEAD_BYTES + 1] ^= 0xFF
    assert seed_of(bytes(data)) == 7, "a broken one in front hides none"
    assert seed_of(of(7, 7)[:-1]) is None and seed_of(of(7, 7) + b"\xd7WL") == 7


@pytest.mark.parametrize("room", [0, 1, 17])
def test_a_record_fits_up_to_the_last_byte_of_its_segment(room: int) -> None:
    head = SegmentHead(1, 2, 1, 1, 0, HEAD_BYTES + HEADER_BYTES + 8 + room, 5)
    writer = SegmentWriter(head)
    assert writer.fits(8 + room) and not writer.fits(8 + room + 1)
    assert len(writer.encode(RecordType.ENTRIES, bytes(8))) == HEADER_BYTES + 8
    assert writer.end == HEAD_BYTES + HEADER_BYTES + 8 and writer.synced == HEAD_BYTES
    assert writer.fits(max(0, room - HEADER_BYTES)) == (room >= HEADER_BYTES)
    writer.mark_synced(writer.end)
    for wrong in (writer.end + 1, writer.end - 1):
        with pytest.raises(AssertionError):
            writer.mark_synced(wrong)


def test_a_payload_may_hold_maps_by_number() -> None:
    assert unpack_payload("name", 0, msgpack.packb([1, {5: "x"}])) == [1, {5: "x"}]
