"""Finds what is valid in a damaged folder by checksums: nothing is refused, every loss is reported.

Bytes in, findings out. A start refuses where this continues (`recovery`, `snapshot`): it must not guess; a user may."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from minikube_py.errors import Corruption
from minikube_py.wal.record import Record, RecordType, decode_record, find_records
from minikube_py.wal.recovery import LogEntry, SavedState, well_formed
from minikube_py.wal.seed import seed_of
from minikube_py.wal.segment import HEAD_BYTES, SegmentHead, decode_head, segment_name, segment_sequence
from minikube_py.wal.snapshot import SnapshotHead, is_head, snapshot_index


class Loss(NamedTuple):
    """`size_bytes` of `file` from `offset` on are unreadable. 0 bytes: the file is missing.

    Of the log: entries `first` to `last` may be lost, and no others (none where `last` is below `first`); `last` None:
    the end is unknown. `harmless`: the lost content is known anyway."""

    file: str
    offset: int
    size_bytes: int
    what: str
    first: int = 0
    last: int | None = None
    harmless: bool = False


class FoundSnapshot(NamedTuple):
    """`records`: of the readable chunks, in order. Without losses it is complete. `gaps`: how many records precede each
    of `losses`."""

    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    head: SnapshotHead | None
    records: list[Any]
    losses: list[Loss]
    gaps: list[int]


class FoundLog(NamedTuple):
    """`entries` by index; there may be gaps. `doubtful`: entries not known to be committed before an unreadable part of
    the log: with several members that part may have replaced them. `torn_bytes`: of a last write that was never
    finished or acknowledged."""

    entries: dict[int, LogEntry]
    doubtful: set[int]
    state: SavedState
    losses: list[Loss]
    torn_bytes: int


def is_snapshot(name: str, data: bytes) -> bool:
    """By the file's content; by its name if the content is unreadable. A segment's records have a seed."""
    first = next(_records(data, 0, 0), None)
    if first is not None:
        return bool(first.type != RecordType.SEGMENT)
    return snapshot_index(name) is not None and seed_of(data) is None


def salvage_snapshot(name: str, data: bytes) -> FoundSnapshot:
    """All chunks with valid checksums."""
    index = snapshot_index(name) or 0
    head: SnapshotHead | None = None
    records: list[Any] = []
    losses: list[Loss] = []
    gaps: list[int] = []
    digest, chunks, end, ended = hashlib.sha256(), 0, 0, False
    for record in _records(data, 0, 0):
        if record.offset > end:
            losses.append(Loss(name, end, record.offset - end, "a part of the snapshot is damaged"))
            gaps.append(len(records))
        end = record.end
        plain = _unpacked(record)
        if record.type == RecordType.SNAPSHOT_HEAD:
            if is_head(plain):
                head = SnapshotHead(*plain[1:])
            else:
                size_bytes = record.end - record.offset
                losses.append(Loss(name, record.offset, size_bytes, "the snapshot's header is invalid"))
                gaps.append(len(records))
        elif record.type == RecordType.SNAPSHOT_CHUNK and isinstance(plain, list):
            records += plain
            chunks += 1
        elif record.type == RecordType.SNAPSHOT_END and isinstance(plain, list):
            ended = not losses and plain == [chunks, digest.digest()]
        digest.update(data[record.offset : record.end])
    if end < len(data):
        losses.append(Loss(name, end, len(data) - end, "the snapshot's end is damaged"))
    elif not ended and not losses:
        losses.append(Loss(name, end, 0, "the snapshot was truncated" if end else "the snapshot is empty"))
    if head is not None and head.index != index:
        losses.append(Loss(name, 0, len(data), f"the snapshot is that of entry {head.index}, under another name"))
    gaps += [len(records)] * (len(losses) - len(gaps))
    return FoundSnapshot(name, head.index if head else index, head, records, losses, gaps)


def salvage_log(names: Iterable[str], read: Callable[[str], bytes]) -> FoundLog:
    """Entries of all records with valid checksums, later ones replacing earlier ones as they were written."""
    found = _Found()
    segments = _placed([_segment(name, read(name)) for name in names], found)
    for position, segment in enumerate(segments):
        sequence = segment.sequence
        for missing in range(segments[position - 1].sequence + 1, sequence) if position else ():
            found.lose(segment_name(missing), 0, 0, "the segment is missing")
        if sequence != segment_sequence(segment.name):
            found.losses.append(Loss(segment.name, 0, 0, f"it is segment {sequence}, under another name"))
        following = segments[position + 1] if position + 1 < len(segments) else None
        found.segment(segment, read(segment.name), following)
    return FoundLog(found.entries, found.doubtful, found.state, found.losses, found.torn_bytes)


class _Segment(NamedTuple):
    """`sequence`: from the head, since a file may have another's name. `seed` None: unknown."""

    sequence: int
    name: str
    head: SegmentHead | None
    seed: int | None
    size_bytes: int


def _segment(name: str, data: bytes) -> _Segment:
    try:
        head = decode_head(name, data, whole=False)
    except Corruption:
        return _Segment(segment_sequence(name) or 0, name, None, seed_of(data), len(data))
    return _Segment(head.sequence, name, head, head.seed, len(data))


def _placed(segments: list[_Segment], found: _Found) -> list[_Segment]:
    """In order, one per number and all of one member. A segment without a head is placed by its name, unless another's
    head claims that number."""
    owners = Counter((each.head.cluster_id, each.head.member_id) for each in segments if each.head is not None)
    newest = {(each.head.cluster_id, each.head.member_id): each.sequence for each in segments if each.head is not None}
    owner = max(owners, key=lambda each: (owners[each], newest[each]), default=None)
    by_sequence: dict[int, _Segment] = {}
    homeless: list[_Segment] = []
    for each in sorted(segments, key=lambda each: (each.head is None, each.sequence != segment_sequence(each.name))):
        if each.head is not None and (each.head.cluster_id, each.head.member_id) != owner:
            found.losses.append(Loss(each.name, 0, each.size_bytes, "it is a segment of another member"))
        elif each.sequence not in by_sequence:
            by_sequence[each.sequence] = each
        elif each.head is not None:
            found.losses.append(Loss(each.name, 0, each.size_bytes, f"it is a copy of segment {each.sequence}"))
        else:
            homeless.append(each)
    free = sorted(set(range(min(by_sequence, default=0), max(by_sequence, default=0))) - set(by_sequence))
    for each in homeless:
        if len(free) == len(homeless) == 1:
            by_sequence[free[0]] = each._replace(sequence=free[0])
        else:
            what = "the segment's header is unreadable, and another segment has its number"
            found.losses.append(Loss(each.name, 0, each.size_bytes, what))
    return [each for _, each in sorted(by_sequence.items())]


class _Found:
    def __init__(self) -> None:
        self.entries: dict[int, LogEntry] = {}
        self.doubtful: set[int] = set()
        self.state = SavedState()
        self.losses: list[Loss] = []
        self._named = 0
        """So many losses have their last entry."""
        self.torn_bytes = 0
        self._last = 0
        self._commit_before = 0
        """Entries known to be committed before the current segment."""

    def lose(self, name: str, offset: int, size_bytes: int, what: str, *, harmless: bool = False) -> None:
        self.losses.append(Loss(name, offset, size_bytes, what, self._last + 1, None, harmless))
        if not harmless:
            self.doubtful.update(index for index in self.entries if index > self.state.commit)

    def segment(self, segment: _Segment, data: bytes, following: _Segment | None) -> None:
        name, head, seed = segment.name, segment.head, segment.seed
        if seed is None:
            self.lose(name, 0, len(data), "the segment's header and its backup are unreadable")
            return
        self._commit_before = self.state.commit
        if head is None:
            # No later segment records where the last one ends.
            harmless = following is not None
            self.lose(name, 0, min(HEAD_BYTES, len(data)), "the segment's header is unreadable", harmless=harmless)
        else:
            self._forget(head.first_index)
        end = HEAD_BYTES
        records = list(_records(data, HEAD_BYTES, seed))
        for position, record in enumerate(records):
            if record.offset > end:
                witnessed = any(later.synced > end for later in records[position:])
                if following is None and not witnessed:
                    # Never finished and never acknowledged.
                    break
                self.lose(name, end, record.offset - end, "a part of the log is damaged")
            try:
                self._take(record)
            except ValueError:
                # Valid, but written by something else.
                self.lose(name, record.offset, record.end - record.offset, "a record of unknown form")
            end = record.end
        self._end(segment, data, end, following)

    def _end(self, segment: _Segment, data: bytes, end: int, following: _Segment | None) -> None:
        """Examines the bytes behind the last record at `end`."""
        name, written = segment.name, len(data.rstrip(b"\0"))
        if segment.head is not None and len(data) < segment.head.size_bytes:
            reach = segment.head.size_bytes
            what = "the segment was truncated"
        elif following is not None and following.head is not None and following.sequence == segment.sequence + 1:
            reach = following.head.previous_end
            what = "the segment's end is damaged"
        elif following is not None:
            reach, what = written, "the segment's end is damaged"
        else:
            self.torn_bytes += max(0, written - end)
            return
        if reach > end:
            self.lose(name, end, reach - end, what)

    def _take(self, record: Record) -> None:
        """Raises: ValueError if its content does not match its type."""
        plain = _unpacked(record)
        if not well_formed(record.type, plain):
            raise ValueError(record.type)
        if record.type == RecordType.HARD_STATE:
            self.state = SavedState(*plain)
        elif record.type == RecordType.INSTALLED:
            # The earlier log is not continued; but committed entries are the same everywhere.
            self._forget(self._commit_before + 1)
            self._name_losses(plain[0] + 1)
            self._last = plain[0]
        elif record.type == RecordType.ENTRIES:
            term, first, datas = plain[:3]
            kind = plain[3] if len(plain) > 3 else 0
            entries = [LogEntry(term, first + i, data, kind) for i, data in enumerate(datas)]
            self._forget(first)
            self._name_losses(first)
            # A term has one leader, which never replaces its own entries: earlier ones of the term are final.
            sure = max((index for index in self.doubtful if self.entries[index].term == term), default=0)
            self.doubtful = {index for index in self.doubtful if index > sure}
            self.entries.update({entry.index: entry for entry in entries})
            self._last = first + len(datas) - 1
        elif record.type != RecordType.JOINED:
            raise ValueError(record.type)

    def _name_losses(self, following: int) -> None:
        """The entry that was read next."""
        for position in range(self._named, len(self.losses)):
            loss = self.losses[position]
            if loss.first:
                self.losses[position] = loss._replace(first=min(loss.first, following), last=following - 1)
        self._named = len(self.losses)

    def _forget(self, first: int) -> None:
        """Entries from `first` on were replaced."""
        behind: Sequence[int] = range(first, self._last + 1)
        if self._last - first >= len(self.entries):
            behind = [index for index in self.entries if index >= first]
        for index in behind:
            self.entries.pop(index, None)
            self.doubtful.discard(index)
        self._last = min(self._last, first - 1)


def _records(data: bytes, start: int, seed: int) -> Iterator[Record]:
    """The valid ones, also behind broken ones."""
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
