"""A segment: one file of the log, of fixed size, with zeros where nothing was written yet.

The first HEAD_BYTES hold one SEGMENT record; records follow without gaps. A segment gets its name only when its head is
durable and its size is complete, so a shorter file or a broken head is damage, never an unfinished write."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgpack

from minikube_py.errors import Corruption, shown
from minikube_py.wal.record import HEADER_BYTES, RecordType, decode_record, encode_record

FORMAT_VERSION = 1
HEAD_BYTES = 4096
SEGMENT_BYTES = 16 << 20
"""About 60,000 small writes. A record never crosses into the next segment."""
SEGMENT_BYTES_MAX = 256 << 20
"""What a head may claim, and what is read of a file whatever its size."""

_NAME = re.compile(r"wal-(\d{16})\.log")


class SegmentHead(NamedTuple):
    """`first_index`: the index of the first entry to be written here. `previous_end`: where the records of the previous
    segment end, all of them durable before this one got its name. `seed` is random per segment."""

    cluster_id: int
    member_id: int
    sequence: int
    first_index: int
    previous_end: int
    size_bytes: int
    seed: int


def segment_name(sequence: int) -> str:
    return f"wal-{sequence:016d}.log"


def segment_sequence(name: str) -> int | None:
    """The sequence number in a segment's file name, None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_head(head: SegmentHead) -> bytes:
    """HEAD_BYTES bytes, to be written at offset 0."""
    payload = msgpack.packb((FORMAT_VERSION, *head))
    return encode_record(RecordType.SEGMENT, payload, seed=0, offset=0, synced=0).ljust(HEAD_BYTES, b"\0")


def decode_head(name: str, data: bytes, *, whole: bool = True) -> SegmentHead:
    """`data`: the whole file or, unless `whole`, its beginning.

    Raises: Corruption if the head is unreadable, or the file is shorter than it states."""
    record = decode_record(data[:HEAD_BYTES], 0, 0)
    if record is None or record.type != RecordType.SEGMENT:
        raise damage(name, 0, "the segment's header is unreadable")
    payload = unpack_payload(name, record.offset, record.payload)
    if type(payload) is not list or not payload or type(payload[0]) is not int:
        raise damage(name, record.offset, "the segment's header holds something else")
    version, *fields = payload
    if version != FORMAT_VERSION or len(fields) != len(SegmentHead._fields):
        raise unknown_format(name, version)
    head = SegmentHead(*fields)
    if not all(type(field) is int and field >= 0 for field in fields) or head.size_bytes > SEGMENT_BYTES_MAX:
        raise damage(name, 0, "the segment's header is invalid")
    if whole and len(data) < head.size_bytes:
        raise damage(name, len(data), f"the file was cut: {len(data)} of {head.size_bytes} bytes remain")
    return head


class Damage(Corruption):
    """Bytes that were durable are unreadable: file, offset, what. The caller that knows the folder adds what to do."""


def damage(name: str, offset: int, what: str) -> Damage:
    return Damage(f"{name}: damaged at offset {offset}: {what}")


def unknown_format(name: str, version: object) -> Corruption:
    return Corruption(
        f"{name}: format {shown(version)} is unknown, this version reads {FORMAT_VERSION}; "
        "use the version that wrote it"
    )


def unpack_payload(name: str, offset: int, payload: bytes) -> Any:
    """Raises: Corruption if a record with a valid checksum is not msgpack: it was written by something else."""
    try:
        return msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise damage(name, offset, f"the record cannot be decoded ({error})") from None


class SegmentWriter:
    """Tracks where the next record of a segment goes, and which part is durable. Makes bytes; the caller writes them.

    The caller writes what `encode` returned at once, in order, and calls `mark_synced` with the `end` at the start of a
    sync that has returned."""

    __slots__ = ("end", "head", "synced")

    def __init__(self, head: SegmentHead, end: int = HEAD_BYTES) -> None:
        self.head = head
        self.end = end
        self.synced = end

    def fits(self, payload_bytes: int) -> bool:
        return self.end + HEADER_BYTES + payload_bytes <= self.head.size_bytes

    def encode(self, type: int, payload: bytes) -> bytes:
        """The bytes to write at the current `end`, which moves behind them."""
        data = encode_record(type, payload, seed=self.head.seed, offset=self.end, synced=self.synced)
        assert self.end + len(data) <= self.head.size_bytes, "encode() without fits()"
        self.end += len(data)
        return data

    def mark_synced(self, end: int) -> None:
        assert self.synced <= end <= self.end
        self.synced = end
