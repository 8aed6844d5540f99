"""What a sound checksum does not vouch for: records that hold something else than their type says, and places where a
record and a window of the file end together."""

from __future__ import annotations

import hashlib
from typing import Any

import msgpack
import pytest

from minikube_py.errors import Corruption
from minikube_py.wal import snapshot as snapshot_module
from minikube_py.wal.record import RecordType
from minikube_py.wal.recovery import recover
from minikube_py.wal.segment import SegmentHead, SegmentWriter, encode_head, segment_name
from minikube_py.wal.snapshot import SnapshotHead, SnapshotReader, SnapshotWriter

HEAD = SegmentHead(cluster_id=11, member_id=7, sequence=1, first_index=1, previous_end=0, size_bytes=16384, seed=12345)
NAME = segment_name(1)
NO_MSGPACK = (b"", b"\xc1", b"\x93\x01", b"\x01\x01")
"""Nothing, a byte that is never used, an array that is cut, two values."""
SHAPES: tuple[tuple[int, Any], ...] = (
    (RecordType.ENTRIES, 7),
    (RecordType.ENTRIES, None),
    (RecordType.ENTRIES, ()),
    (RecordType.ENTRIES, (1, 1)),
    (RecordType.ENTRIES, (1, 1, 5)),
    (RecordType.ENTRIES, (1, 1, "text")),
    (RecordType.ENTRIES, (1, 1, ["text"])),
    (RecordType.ENTRIES, (1, 1, [7])),
    (RecordType.ENTRIES, ("1", 1, [b"a"])),
    (RecordType.ENTRIES, (1, "1", [b"a"])),
    (RecordType.ENTRIES, (1, None, [b"a"])),
    (RecordType.ENTRIES, (1, 0, [b"a"])),
    (RecordType.ENTRIES, (-1, 1, [b"a"])),
    (RecordType.ENTRIES, (1, 1, [b"a"], "kind")),
    (RecordType.HARD_STATE, 7),
    (RecordType.HARD_STATE, (1, 2)),
    (RecordType.HARD_STATE, (1, 2, None)),
    (RecordType.HARD_STATE, ("1", 2, 0)),
    (RecordType.HARD_STATE, (1, b"2", 0)),
    (RecordType.INSTALLED, ()),
    (RecordType.INSTALLED, ("1",)),
    (RecordType.INSTALLED, 5),
)


def load(payload: bytes, type: int) -> Any:
    """A log with one sound entry and then a sound record with this payload."""
    writer = SegmentWriter(HEAD)
    data = encode_head(HEAD) + writer.encode(RecordType.ENTRIES, msgpack.packb((1, 1, [b"first"])))
    writer.mark_synced(writer.end)
    data += writer.encode(type, payload)
    data = data.ljust(HEAD.size_bytes, b"\0")
    return recover([NAME], lambda name, size_bytes: data[:size_bytes], 0, 0)


@pytest.mark.parametrize("type", [RecordType.ENTRIES, RecordType.HARD_STATE, RecordType.INSTALLED])
@pytest.mark.parametrize("payload", NO_MSGPACK)
def test_a_sound_record_that_does_not_unpack_is_damage_at_its_place(type: int, payload: bytes) -> None:
    with pytest.raises(Corruption, match=rf"{NAME}.*offset \d+.*cannot be decoded"):
        load(payload, type)


@pytest.mark.parametrize(("type", "value"), SHAPES, ids=lambda each: repr(each)[:30])
def test_a_sound_record_of_another_shape_is_damage_at_its_place(type: int, value: Any) -> None:
    with pytest.raises(Corruption, match=rf"{NAME}.*offset \d+"):
        load(msgpack.packb(value), type)


@pytest.mark.parametrize("length", [1, 299, 300])
def test_a_snapshot_reads_alike_through_windows_of_any_size(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SnapshotWriter(SnapshotHead(cluster_id=11, member_id=7, index=42, term=3))
    chunks = [[bytes([number]) * length] for number in range(3)]
    data = writer.head_bytes + b"".join(writer.chunk(chunk) for chunk in chunks) + writer.end()
    for window in range(1, len(data) + 2):
        monkeypatch.setattr(snapshot_module, "WINDOW_BYTES", window)
        reader = SnapshotReader("s", lambda offset, size_bytes: data[offset : offset + size_bytes])
        assert list(reader.chunks()) == chunks, window
        assert reader.sha256 == hashlib.sha256(data).digest(), window


@pytest.mark.parametrize("payload", NO_MSGPACK)
def test_a_snapshot_whose_chunk_does_not_unpack_is_damage(payload: bytes) -> None:
    writer = SnapshotWriter(SnapshotHead(cluster_id=11, member_id=7, index=42, term=3))
    head = writer.head_bytes
    chunk = writer._encode(RecordType.SNAPSHOT_CHUNK, payload)
    data = head + chunk + writer.end()
    reader = SnapshotReader("s", lambda offset, size_bytes: data[offset : offset + size_bytes])
    with pytest.raises(Corruption, match=r"s.*cannot be decoded"):
        list(reader.chunks())


@pytest.mark.parametrize("count", range(1, 8))
def test_a_slice_of_which_only_single_records_fit_is_split_into_them(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "PAYLOAD_BYTES_MAX", 12)
    slice_ = [b"%d" % at * 9 for at in range(count)]
    writer = SnapshotWriter(SnapshotHead(1, 2, 3, 4))
    data = writer.head_bytes + writer.chunk(slice_) + writer.end()
    _, chunks = snapshot_module.read_snapshot("a", data)
    assert list(chunks) == [[record] for record in slice_]
