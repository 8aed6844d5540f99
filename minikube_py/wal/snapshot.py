"""A snapshot file: a head, chunks of records, and an end with the hash of everything before it.

It is written under a temporary name and renamed when durable, so a snapshot under its final name is complete, or
damaged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack

from minikube_py.wal.record import (
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    Record,
    RecordType,
    decode_record,
    encode_record,
    payload_bytes,
)
from minikube_py.wal.recovery import are_counts
from minikube_py.wal.segment import FORMAT_VERSION, damage, unknown_format, unpack_payload

PART_SUFFIX = ".part"
WINDOW_BYTES = 1 << 20
_NAME = re.compile(r"snapshot-(\d{20})\.snap")


class SnapshotHead(NamedTuple):
    """The state after entry `index` of `term` was applied, as member `member_id` had it.

    `configuration` and `members`, plain values, are Raft's and the store's at that entry; None in files from before a
    store could have several members."""

    cluster_id: int
    member_id: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    configuration: Any = None
    members: Any = None


def is_head(plain: Any) -> bool:
    """Whether a record is a head of any format: a checksum does not prove who wrote it."""
    return isinstance(plain, list) and 5 <= len(plain) <= 7 and are_counts(*plain[:5])


def snapshot_name(index: int) -> str:
    return f"snapshot-{index:020d}.snap"


def snapshot_index(name: str) -> int | None:
    """The log index in a snapshot's file name, None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class SnapshotWriter:
    """Makes the file's bytes in order: head, chunks, end."""

    def __init__(self, head: SnapshotHead) -> None:
        self.head = head
        self._hash = hashlib.sha256()
        self._chunks = 0
        self.size_bytes = 0
        self.head_bytes = self._encode(RecordType.SNAPSHOT_HEAD, msgpack.packb((FORMAT_VERSION, *head)))

    def chunk(self, records: list[Any]) -> bytes:
        """`records`: one slice of the state, msgpack-able; one too large for a record is split.

        Raises: ValueError if a single record is above PAYLOAD_BYTES_MAX."""
        payload = msgpack.packb(records)
        if len(payload) > PAYLOAD_BYTES_MAX and len(records) > 1:
            middle = len(records) // 2
            return self.chunk(records[:middle]) + self.chunk(records[middle:])
        self._chunks += 1
        return self._encode(RecordType.SNAPSHOT_CHUNK, payload)

    def end(self) -> bytes:
        return self._encode(RecordType.SNAPSHOT_END, msgpack.packb((self._chunks, self._hash.digest())))

    def sha256(self) -> bytes:
        """Of all bytes so far."""
        return self._hash.digest()

    def _encode(self, type: int, payload: bytes) -> bytes:
        data = encode_record(type, payload, seed=0, offset=self.size_bytes, synced=0)
        self._hash.update(data)
        self.size_bytes += len(data)
        return data


def read_snapshot(name: str, data: bytes) -> tuple[SnapshotHead, Iterator[list[Any]]]:
    """The head, and the chunks as the writer got them; everything is checked before the first one is returned.

    Raises: Corruption."""
    reader = SnapshotReader(name, lambda offset, size_bytes: data[offset : offset + size_bytes])
    reader.check()
    return reader.head, reader.chunks()


class SnapshotReader:
    """Reads and checks a snapshot sequentially, a window of its bytes at a time.

    The output of `chunks` may be used only once it is exhausted: the hash of the file is checked there and becomes
    `sha256`, with the file's `size_bytes`. `read(offset, size_bytes)` gives fewer bytes only at the end. `offset`: of
    the latest of `chunks`.

    Raises: Corruption, here if the head is unreadable, later if anything else is."""

    def __init__(self, name: str, read: Callable[[int, int], bytes]) -> None:
        self._name = name
        self._read = read
        self._window = b""
        self._window_start = 0
        self.sha256 = b""
        self.size_bytes = self.offset = 0
        first = self._record(0)
        if first is None or first.type != RecordType.SNAPSHOT_HEAD:
            raise damage(name, 0, "the snapshot's header is unreadable")
        plain = unpack_payload(name, 0, first.payload)
        if isinstance(plain, list) and plain and plain[0] != FORMAT_VERSION:
            raise unknown_format(name, plain[0])
        if not is_head(plain):
            raise damage(name, 0, "the snapshot's header is invalid")
        self.head = SnapshotHead(*plain[1:])
        self._start = first.end

    def check(self) -> None:
        """Reads and checks all of it."""
        for _ in self._payloads():
            pass

    def chunks(self) -> Iterator[list[Any]]:
        for offset, payload in self._payloads():
            self.offset = offset
            yield unpack_payload(self._name, offset, payload)

    def _payloads(self) -> Iterator[tuple[int, bytes]]:
        digest = hashlib.sha256(self._bytes(0, self._start))
        offset, count = self._start, 0
        while (record := self._record(offset)) is not None and record.type == RecordType.SNAPSHOT_CHUNK:
            digest.update(self._bytes(offset, offset + record.end))
            yield offset, record.payload
            offset += record.end
            count += 1
        if record is None or record.type != RecordType.SNAPSHOT_END:
            raise damage(self._name, offset, "a chunk is damaged or the end is missing")
        if unpack_payload(self._name, offset, record.payload) != [count, digest.digest()]:
            raise damage(self._name, offset, "the hash of the file does not match")
        end = offset + record.end
        if self._read(end, 1):
            raise damage(self._name, end, "there is data after the end")
        digest.update(self._bytes(offset, end))
        self.sha256, self.size_bytes = digest.digest(), end

    def _record(self, offset: int) -> Record | None:
        """The valid record at `offset`; its `offset` and `end` are relative to it."""
        header = self._bytes(offset, offset + HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return None
        size_bytes = HEADER_BYTES + payload_bytes(header)
        return decode_record(self._bytes(offset, offset + size_bytes), 0, offset)

    def _bytes(self, start: int, stop: int) -> bytes:
        if start < self._window_start or stop > self._window_start + len(self._window):
            self._window = self._read(start, max(stop - start, WINDOW_BYTES))
            self._window_start = start
        return self._window[start - self._window_start : stop - self._window_start]
