"""A snapshot file: a head, chunks of records, and an end that holds the hash of all before it.

It is written under a temporary name and renamed when durable, so a snapshot under its own name is whole; one that is
not was damaged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack

from minikube_py.wal.record import PAYLOAD_BYTES_MAX, RecordType, decode_record, encode_record
from minikube_py.wal.segment import FORMAT_VERSION, damage, unknown_format, unpack_payload

PART_SUFFIX = ".part"
_NAME = re.compile(r"snapshot-(\d{20})\.snap")


class SnapshotHead(NamedTuple):
    """The state after entry `index` of `term` was applied."""

    cluster_id: int
    member_id: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int


def snapshot_name(index: int) -> str:
    return f"snapshot-{index:020d}.snap"


def snapshot_index(name: str) -> int | None:
    """The log index in a snapshot's file name, None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class SnapshotWriter:
    """Makes the file's bytes piece by piece, in order: head, chunks, end."""

    def __init__(self, head: SnapshotHead) -> None:
        self._hash = hashlib.sha256()
        self._chunks = 0
        self.size_bytes = 0
        self.head_bytes = self._encode(RecordType.SNAPSHOT_HEAD, msgpack.packb((FORMAT_VERSION, *head)))

    def chunk(self, records: list[Any]) -> bytes:
        """`records`: one slice of the state, msgpack-able; one too large for a record is split.

        Raises: ValueError where a single record is above PAYLOAD_BYTES_MAX."""
        payload = msgpack.packb(records)
        if len(payload) > PAYLOAD_BYTES_MAX and len(records) > 1:
            middle = len(records) // 2
            return self.chunk(records[:middle]) + self.chunk(records[middle:])
        self._chunks += 1
        return self._encode(RecordType.SNAPSHOT_CHUNK, payload)

    def end(self) -> bytes:
        return self._encode(RecordType.SNAPSHOT_END, msgpack.packb((self._chunks, self._hash.digest())))

    def _encode(self, type: int, payload: bytes) -> bytes:
        data = encode_record(type, payload, seed=0, offset=self.size_bytes, synced=0)
        self._hash.update(data)
        self.size_bytes += len(data)
        return data


def read_snapshot(name: str, data: bytes) -> tuple[SnapshotHead, Iterator[list[Any]]]:
    """The head, and the chunks as they were given to the writer; all is checked before the first one is handed out.

    Raises: Corruption."""
    first = decode_record(data, 0, 0)
    if first is None or first.type != RecordType.SNAPSHOT_HEAD:
        raise damage(name, 0, "the snapshot's head is not readable")
    version, *fields = unpack_payload(name, 0, first.payload)
    if version != FORMAT_VERSION:
        raise unknown_format(name, version)
    offset = first.end
    offsets: list[int] = []
    while (record := decode_record(data, offset, 0)) is not None and record.type == RecordType.SNAPSHOT_CHUNK:
        offsets.append(offset)
        offset = record.end
    if record is None or record.type != RecordType.SNAPSHOT_END:
        raise damage(name, offset, "a chunk is broken or the end is missing")
    chunks, digest = unpack_payload(name, offset, record.payload)
    if chunks != len(offsets) or hashlib.sha256(memoryview(data)[:offset]).digest() != digest:
        raise damage(name, offset, "the hash of the whole does not match")
    return SnapshotHead(*fields), _chunks(name, data, offsets)


def _chunks(name: str, data: bytes, offsets: list[int]) -> Iterator[list[Any]]:
    for offset in offsets:
        record = decode_record(data, offset, 0)
        assert record is not None, "checked by read_snapshot"
        yield unpack_payload(name, offset, record.payload)
