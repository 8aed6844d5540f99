"""What checksums vouch for in a damaged folder, and what they do not: nothing is refused, every loss is named.

Bytes in, findings out. A start refuses where this goes on (`recovery`, `snapshot`): it must not guess; a person may.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgpack

from minikube_py.errors import Corruption
from minikube_py.wal.record import Record, RecordType, decode_record, find_records
from minikube_py.wal.recovery import LogEntry, SavedState
from minikube_py.wal.segment import HEAD_BYTES, SegmentHead, decode_head, segment_name, segment_sequence
from minikube_py.wal.snapshot import SnapshotHead, snapshot_index


class Loss(NamedTuple):
    """`size_bytes` of `file` from `offset` on do not read. 0 bytes: the file is not there."""

    file: str
    offset: int
    size_bytes: int
    what: str


class FoundSnapshot(NamedTuple):
    """`records`: of the chunks that read, in order. Without losses it is whole."""

    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    head: SnapshotHead | None
    records: list[Any]
    losses: list[Loss]


class FoundLog(NamedTuple):
    """`entries` by index; there may be gaps. `torn_bytes`: of a last write that was never finished, and not promised.
    `installed`: what lies before this index came as a snapshot, so older entries do not lead there. `heads`: those that
    read."""

    entries: dict[int, LogEntry]
    state: SavedState
    losses: list[Loss]
    torn_bytes: int
    installed: int
    heads: list[SegmentHead]


def salvage_snapshot(name: str, data: bytes) -> FoundSnapshot:
    """All chunks whose own checksums hold."""
    index = snapshot_index(name) or 0
    head: SnapshotHead | None = None
    records: list[Any] = []
    losses: list[Loss] = []
    digest, chunks, end, ended = hashlib.sha256(), 0, 0, False
    for record in _records(data, 0, 0):
        if record.offset > end:
            losses.append(Loss(name, end, record.offset - end, "a part of the snapshot is broken"))
        end = record.end
        plain = _unpacked(record)
        if record.type == RecordType.SNAPSHOT_HEAD and isinstance(plain, list):
            head = SnapshotHead(*plain[1:]) if 5 <= len(plain) <= 7 else None
        elif record.type == RecordType.SNAPSHOT_CHUNK and isinstance(plain, list):
            records += plain
            chunks += 1
        elif record.type == RecordType.SNAPSHOT_END and isinstance(plain, list):
            ended = not losses and plain == [chunks, digest.digest()]
        digest.update(data[record.offset : record.end])
    if end < len(data):
        losses.append(Loss(name, end, len(data) - end, "the snapshot's end is broken"))
    elif not ended and not losses:
        losses.append(Loss(name, end, 0, "the snapshot was cut" if end else "the snapshot is empty"))
    if head is not None and head.index != index:
        losses.append(Loss(name, 0, len(data), f"the snapshot is that of entry {head.index}, under another's name"))
    return FoundSnapshot(name, head.index if head else index, head, records, losses)


def salvage_log(names: Iterable[str], read: Callable[[str], bytes]) -> FoundLog:
    """Entries of all records whose own checksums hold, later ones in place of earlier ones as they were written."""
    found = _Found()
    # By what they say themselves: a file may have another's name.
    by_sequence = sorted((_sequence(name, read(name)), name) for name in names if segment_sequence(name) is not None)
    for position, (sequence, name) in enumerate(by_sequence):
        if sequence != segment_sequence(name):
            found.losses.append(Loss(name, 0, 0, f"it is segment {sequence}, under another's name"))
        for missing in range(by_sequence[position - 1][0] + 1, sequence) if position else ():
            found.losses.append(Loss(segment_name(missing), 0, 0, "the segment is not there"))
        found.segment(name, read(name), position == len(by_sequence) - 1)
    return FoundLog(found.entries, found.state, found.losses, found.torn_bytes, found.installed, found.heads)


def _sequence(name: str, data: bytes) -> int:
    try:
        return decode_head(name, data, whole=False).sequence
    except Corruption:
        return segment_sequence(name) or 0


class _Found:
    def __init__(self) -> None:
        self.entries: dict[int, LogEntry] = {}
        self.state = SavedState()
        self.losses: list[Loss] = []
        self.torn_bytes = 0
        self.installed = 0
        self.heads: list[SegmentHead] = []
        self._last = 0

    def segment(self, name: str, data: bytes, last: bool) -> None:
        try:
            head = decode_head(name, data, whole=False)
        except Corruption:
            self.losses.append(Loss(name, 0, len(data), "the segment's head does not read, nor what it vouches for"))
            return
        self.heads.append(head)
        self._forget(head.first_index)
        end = HEAD_BYTES
        records = list(_records(data, HEAD_BYTES, head.seed))
        for position, record in enumerate(records):
            if record.offset > end:
                witnessed = any(later.synced > end for later in records[position:])
                if last and not witnessed:
                    # Never finished, and nobody was promised anything of it.
                    break
                self.losses.append(Loss(name, end, record.offset - end, "a part of the log is broken"))
            try:
                self._take(record)
            except (TypeError, ValueError, LookupError):
                # Sound, and written by something else.
                size_bytes = record.end - record.offset
                self.losses.append(Loss(name, record.offset, size_bytes, "a record of a shape that is unknown"))
            end = record.end
        if len(data) < head.size_bytes:
            self.losses.append(Loss(name, len(data), head.size_bytes - len(data), "the segment was cut"))
        rest = len(data.rstrip(b"\0")) - end
        if rest > 0 and last:
            self.torn_bytes += rest
        elif rest > 0:
            self.losses.append(Loss(name, end, rest, "the segment's end is broken"))

    def _take(self, record: Record) -> None:
        plain = _unpacked(record)
        if record.type == RecordType.HARD_STATE and isinstance(plain, list):
            self.state = SavedState(*plain)
        elif record.type == RecordType.INSTALLED and isinstance(plain, list):
            self.installed = plain[0]
        elif record.type == RecordType.ENTRIES and isinstance(plain, list):
            term, first, datas = plain[:3]
            self._forget(first)
            kind = plain[3] if len(plain) > 3 else 0
            self.entries.update({first + i: LogEntry(term, first + i, data, kind) for i, data in enumerate(datas)})
            self._last = first + len(datas) - 1

    def _forget(self, first: int) -> None:
        """Entries from `first` on were replaced."""
        while self._last >= first:
            self.entries.pop(self._last, None)
            self._last -= 1


def _records(data: bytes, start: int, seed: int) -> Iterable[Record]:
    """The sound ones, also behind what is broken."""
    offset = start
    while True:
        record = decode_record(data, offset, seed)
        if record is None:
            break
        yield record
        offset = record.end
    yield from find_records(data, offset + 1, seed)


def _unpacked(record: Record) -> Any:
    try:
        return msgpack.unpackb(record.payload, raw=False, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException):
        return None
