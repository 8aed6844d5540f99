"""One record of the log: a header that can be found and checked alone, and a payload.

    magic 3 | type 1 | payload length 4 | synced 4 | crc32 4 | payload          (little endian)

The checksum covers type, length, `synced` and payload, and starts from `seed + offset`, so a record's bytes are valid
only at the place they were written to, in the segment they were written for: neither a stale record of a reused file
nor a value that happens to look like a record can be taken for one.

`synced` is the offset up to which the file was known to be durable when the record was written. It is what tells a
torn write from damage: a record that is broken although a later one says "all before me was durable" was damaged
later; without such a witness it was never finished, and nobody was answered that it was.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

MAGIC = b"\xd7WL"
HEADER = struct.Struct("<4sIII")
HEADER_BYTES = HEADER.size
PAYLOAD_BYTES_MAX = 64 << 20
"""No writer makes a larger record; a larger length read back is damage, not a request for memory."""


class RecordType(IntEnum):
    """Stands in files on disk: never change a number.

    ENTRIES: (term, first index, [data...]), and a kind behind them where it is not 0. HARD_STATE: (term, vote, commit).
    JOINED: this log began without an entry, as that of a member which waits for a snapshot from the others. INSTALLED:
    (index, term) of a snapshot that came from another member; the log before does not lead to what follows."""

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

    Raises: ValueError for a payload above PAYLOAD_BYTES_MAX: the caller's own limit must be lower."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record of {len(payload)} bytes is over the limit of {PAYLOAD_BYTES_MAX}")
    tag = MAGIC + bytes((type,))
    checksum = _checksum(tag, len(payload), synced, payload, seed, offset)
    return HEADER.pack(tag, len(payload), synced, checksum) + payload


def decode_record(data: bytes, offset: int, seed: int) -> Record | None:
    """The record at `offset`, or None if there is no whole and sound one."""
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
    """What a header says of its payload's length, sound or not; 0 where it is no length."""
    length: int = HEADER.unpack_from(header)[1]
    return length if length <= PAYLOAD_BYTES_MAX else 0


def find_records(data: bytes, start: int, seed: int) -> Iterator[Record]:
    """Every sound record at or after `start`, whatever lies between them."""
    offset = data.find(MAGIC, start)
    while offset >= 0:
        record = decode_record(data, offset, seed)
        if record is not None:
            yield record
        offset = data.find(MAGIC, offset + 1 if record is None else record.end)


def _checksum(tag: bytes, length: int, synced: int, payload: bytes, seed: int, offset: int) -> int:
    start = (seed + offset) & 0xFFFFFFFF
    return crc32(payload, crc32(HEADER.pack(tag, length, synced, 0), start))
