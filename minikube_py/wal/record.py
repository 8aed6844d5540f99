"""One record of the log: a header that can be found and checked by itself, and a payload.

    magic 3 | type 1 | payload length 4 | synced 4 | crc32 4 | payload          (little endian)

The checksum covers type, length, `synced` and payload, and starts from `seed + offset`, so a record is valid only at
its own offset in its own segment: neither a stale record of a reused file nor a value that looks like a record is
mistaken for one.

`synced` is the offset up to which the file was known to be durable when the record was written. It distinguishes a torn
write from damage: a broken record that a later one declares durable was damaged later; without such a witness it was
never finished and never acknowledged."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

from minikube_py.wal.checksums import STEP_BYTES, Checksums

MAGIC = b"\xd7WL"
HEADER = struct.Struct("<4sIII")
HEADER_BYTES = HEADER.size
PAYLOAD_BYTES_MAX = 64 << 20
"""No writer makes a larger record; a larger length read back is damage, not a request for memory."""


class RecordType(IntEnum):
    """Stored in files on disk: never change a number.

    ENTRIES: (term, first index, [data...]), followed by a kind if it is not 0. HARD_STATE: (term, vote, commit).
    JOINED: this log began without an entry, in a member that waits for a snapshot from the others. INSTALLED: (index,
    term) of a snapshot from another member; the log before is not continued after it."""

    SEGMENT = 1
    ENTRIES = 2
    HARD_STATE = 3
    JOINED = 4
    INSTALLED = 5
    SNAPSHOT_HEAD = 16
    SNAPSHOT_CHUNK = 17
    SNAPSHOT_END = 18


class Record(NamedTuple):
    """`offset` is where the header begins, `end` the first byte after the payload."""

    type: int
    offset: int
    end: int
    synced: int
    payload: bytes


def encode_record(type: int, payload: bytes, *, seed: int, offset: int, synced: int) -> bytes:
    """The bytes to write at `offset`.

    Raises: ValueError for a payload above PAYLOAD_BYTES_MAX: the caller's limit must be lower."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record of {len(payload)} bytes is over the limit of {PAYLOAD_BYTES_MAX}")
    tag = MAGIC + bytes((type,))
    checksum = _checksum(tag, len(payload), synced, payload, seed, offset)
    return HEADER.pack(tag, len(payload), synced, checksum) + payload


def decode_record(data: bytes, offset: int, seed: int) -> Record | None:
    """The record at `offset`, or None if there is no complete and valid one."""
    start = offset + HEADER_BYTES
    if start > len(data):
        return None
    tag, length, synced, checksum = HEADER.unpack_from(data, offset)
    if tag[:3] != MAGIC or length > PAYLOAD_BYTES_MAX or start + length > len(data):
        return None
    payload = data[start : start + length]
    if _checksum(tag, length, synced, payload, seed, offset) != checksum:
        return None
    return Record(tag[3], offset, start + length, synced, payload)


def payload_bytes(header: bytes) -> int:
    """The payload length in a header, valid or not; 0 if it is not a possible length."""
    length: int = HEADER.unpack_from(header)[1]
    return length if length <= PAYLOAD_BYTES_MAX else 0


def find_records(data: bytes, start: int, seed: int) -> Iterator[Record]:
    """Every valid record at or after `start`, whatever lies between them.

    Linear: a client's value may be full of headers, and each may claim most of the file."""
    sums: Checksums | None = None
    offset = data.find(MAGIC, start)
    while offset >= 0:
        record = None
        claim = _claim(data, offset)
        if claim > STEP_BYTES:
            sums = sums or Checksums(data)
        if sums is None or claim <= STEP_BYTES or _matches(sums, data, offset, seed):
            record = decode_record(data, offset, seed)
        if record is not None:
            yield record
        offset = data.find(MAGIC, offset + 1 if record is None else record.end)


def _claim(data: bytes, offset: int) -> int:
    """The payload bytes of the header at `offset` if there is room for them; else 0."""
    start = offset + HEADER_BYTES
    length = payload_bytes(data[offset:start]) if start <= len(data) else 0
    return length if start + length <= len(data) else 0


def _matches(sums: Checksums, data: bytes, offset: int, seed: int) -> bool:
    """Whether the record at `offset`, for which there is room, is valid."""
    tag, length, synced, checksum = HEADER.unpack_from(data, offset)
    start = offset + HEADER_BYTES
    found = sums.part(start, start + length, _checksum(tag, length, synced, b"", seed, offset))
    return bool(found == checksum)


def _checksum(tag: bytes, length: int, synced: int, payload: bytes, seed: int, offset: int) -> int:
    start = (seed + offset) & 0xFFFFFFFF
    return crc32(payload, crc32(HEADER.pack(tag, length, synced, 0), start))
