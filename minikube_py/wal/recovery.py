"""Reads the log from the segments: entries, hard state, and where to continue writing.

A torn tail - the last write, unfinished when the process or the machine stopped - is cut, since it was never
acknowledged. Anything else that is unreadable is damage, and is refused with file and offset. Witnesses distinguish the
two (see `record.py`): a later record written when the broken part was already durable, or a later segment, which exists
only once the previous one was fully durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from minikube_py.errors import Corruption
from minikube_py.wal.record import Record, RecordType, decode_record, find_records
from minikube_py.wal.segment import (
    HEAD_BYTES,
    Damage,
    SegmentHead,
    damage,
    decode_head,
    segment_name,
    segment_sequence,
    unpack_payload,
)


class LogEntry(NamedTuple):
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    data: bytes
    kind: int = 0


class SavedState(NamedTuple):
    """Raft's hard state as last saved: `vote` 0 is none."""

    term: int = 0
    vote: int = 0
    commit: int = 0


class Tail(NamedTuple):
    """The segment to continue. Bytes [end, dirty_end) are remains of a torn write: zero and sync them first.

    `unsure`: the records from `sure_end` on, up to `end`. They were read but may not be durable: after a failed sync
    they may be only in the page cache, marked clean. Write them again before that sync."""

    head: SegmentHead
    end: int
    dirty_end: int
    sure_end: int
    unsure: bytes


class Recovered(NamedTuple):
    """`entries` are those after the snapshot, without gaps. `tail` None: there is no log yet. `obsolete`: segments that
    are never read again: they precede a gap, or a segment with an unreadable head. `segments`: the heads of the others,
    in order; the first `past` of them hold nothing after the snapshot, and were not read. `warnings`: damage there,
    which is harmless. `void`: the snapshot is another member's and newer than this log; a new log has to begin after
    it. `joined`: the log began in a member that waits for a snapshot."""

    entries: list[LogEntry]
    state: SavedState
    tail: Tail | None
    segments: list[SegmentHead]
    obsolete: list[str]
    torn_bytes: int
    void: bool = False
    joined: bool = False
    past: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of segments with entries after the snapshot, the last one up to its end."""
        if self.tail is None:
            return 0
        return sum(head.size_bytes for head in self.segments[self.past : -1]) + self.tail.end


Read = Callable[[str, int], bytes]
"""A file's first bytes, up to a limit."""


def recover(
    names: Sequence[str],
    read: Read,
    snapshot_index: int,
    snapshot_term: int,
    snapshot_member: int | None = None,
) -> Recovered:
    """Reads the log after a snapshot that ends with `snapshot_index` (0: none). `snapshot_member`: the member that took
    it; None if it was certainly this one.

    Raises: Corruption."""
    chain, obsolete = _newest_run(names)
    past, sequences, warnings = _split_past(chain, read, snapshot_index)
    kept = len(past) + len(sequences)
    obsolete += [segment_name(sequence) for sequence in chain[: len(chain) - kept]]
    replay = _Replay(snapshot_index, snapshot_term)
    heads: list[SegmentHead] = []
    tail: Tail | None = None
    contents = {sequence: _contents(segment_name(sequence), read) for sequence in sequences}
    for position, sequence in enumerate(sequences):
        name = segment_name(sequence)
        data = contents.pop(sequence)
        head = decode_head(name, data)
        _check_head(name, head, sequence, heads, snapshot_index)
        last = position == len(sequences) - 1
        following = None if last else decode_head(segment_name(sequence + 1), contents[sequence + 1])
        heads.append(head)
        replay.segment(head)
        end = sure_end = HEAD_BYTES
        for record in read_segment(name, data, head, following):
            replay.record(name, record)
            end, sure_end = record.end, record.synced
        if last:
            tail = Tail(head, end, max(end, len(data.rstrip(b"\0"))), sure_end, data[sure_end:end])
    if tail is None:
        if snapshot_index:
            raise Damage(f"a snapshot ends with entry {snapshot_index}, but there is no log")
        return Recovered([], replay.state, None, [], obsolete, 0)
    void = _check_end(replay, tail, heads, snapshot_member not in (None, tail.head.member_id))
    state = replay.state
    if state.term < snapshot_term:
        state = SavedState(snapshot_term, 0, state.commit)
    entries = [] if void else replay.entries
    torn_bytes = tail.dirty_end - tail.end
    return Recovered(
        entries, state, tail, [*past, *heads], obsolete, torn_bytes, void, replay.joined, len(past), warnings
    )


def _contents(name: str, read: Read) -> bytes:
    """Of a segment, as far as its head says: the file may have been extended."""
    return read(name, decode_head(name, read(name, HEAD_BYTES), whole=False).size_bytes)


def _split_past(chain: range, read: Read, snapshot_index: int) -> tuple[list[SegmentHead], list[int], tuple[str, ...]]:
    """The heads of the segments that hold nothing after the snapshot, and the numbers of the others.

    A segment holds nothing beyond the index that the next one begins with. Those before the snapshot are kept in case
    it becomes unreadable: damage to them is only a warning."""
    if not chain:
        return [], [], ()
    heads: dict[int, SegmentHead] = {}
    first = chain[-1]
    while first > chain[0]:
        name = segment_name(first)
        heads[first] = decode_head(name, read(name, HEAD_BYTES), whole=False)
        if heads[first].first_index <= snapshot_index + 1:
            break
        first -= 1
    past: list[SegmentHead] = []
    for sequence in reversed(range(chain[0], first)):
        name = segment_name(sequence)
        try:
            head = decode_head(name, read(name, HEAD_BYTES), whole=False)
        except Corruption as error:
            return past[::-1], list(range(first, chain[-1] + 1)), (f"{error}; it holds nothing after the snapshot",)
        _check_head(name, head, sequence, [heads[first]], snapshot_index)
        past.append(head)
    return past[::-1], list(range(first, chain[-1] + 1)), ()


def _check_end(replay: _Replay, tail: Tail, heads: list[SegmentHead], foreign: bool) -> bool:
    """True if a snapshot from another member makes the log void.

    Such a snapshot takes effect with its name, and only then does a segment begin behind it; the power may have failed
    in between."""
    name, index = segment_name(tail.head.sequence), replay.snapshot_index
    if max(replay.reached, heads[-1].first_index - 1) < index:
        if foreign:
            return True
        raise damage(name, tail.end, f"the log ends before entry {index}, the snapshot's last")
    if replay.term_there not in (None, replay.snapshot_term):
        if foreign:
            return True
        raise damage(
            name, tail.end, f"entry {index} is of term {replay.term_there}, in the snapshot of {replay.snapshot_term}"
        )
    last = index + len(replay.entries)
    if replay.state.commit > last:
        raise damage(
            name,
            tail.end,
            f"entries up to {replay.state.commit} were committed, but only those up to {last} are present",
        )
    return False


def read_segment(name: str, data: bytes, head: SegmentHead, following: SegmentHead | None) -> Iterator[Record]:
    """The segment's records up to its end or its torn tail.

    Raises: Corruption if bytes that were durable are unreadable."""
    offset = HEAD_BYTES
    while (record := decode_record(data, offset, head.seed)) is not None:
        yield record
        offset = record.end
    if following is not None:
        if offset != following.previous_end:
            reach = following.previous_end
            raise damage(name, offset, f"a record is damaged; the next segment says that records extend to {reach}")
        return
    for witness in find_records(data, offset + 1, head.seed):
        if witness.synced > offset:
            later = witness.offset
            raise damage(
                name, offset, f"a record is damaged, although it was durable when the one at {later} was written"
            )


def _newest_run(names: Sequence[str]) -> tuple[range, list[str]]:
    """The segments numbered without a gap up to the newest one, and the names of those before a gap."""
    sequences = sorted(sequence for name in names if (sequence := segment_sequence(name)) is not None)
    if not sequences:
        return range(0), []
    first = last = sequences[-1]
    present = set(sequences)
    while first - 1 in present:
        first -= 1
    return range(first, last + 1), [segment_name(sequence) for sequence in sequences if sequence < first]


def _check_head(name: str, head: SegmentHead, sequence: int, before: list[SegmentHead], snapshot_index: int) -> None:
    if head.sequence != sequence:
        raise damage(name, 0, f"its header says it is segment {head.sequence}")
    if before and (head.cluster_id, head.member_id) != (before[-1].cluster_id, before[-1].member_id):
        raise damage(name, 0, "it belongs to a different cluster or member than the segment before it")
    if not before and head.first_index > snapshot_index + 1:
        raise damage(
            name,
            0,
            f"it begins with entry {head.first_index}, but the newest snapshot ends with {snapshot_index}: "
            "a snapshot or segments are missing",
        )


class _Replay:
    """The state after the records so far. `reached` is the last entry's index, `term_there` the term that the log has
    for the snapshot's last entry (None: it is not in the log)."""

    def __init__(self, snapshot_index: int, snapshot_term: int) -> None:
        self.snapshot_index = snapshot_index
        self.snapshot_term = snapshot_term
        self.state = SavedState(term=snapshot_term, commit=snapshot_index)
        self.entries: list[LogEntry] = []
        self.reached = 0
        self.term_there: int | None = None
        self.joined = False

    def segment(self, head: SegmentHead) -> None:
        """Entries from a segment's first index on were void when it began: it may follow an installed snapshot. Then
        the log's term for the snapshot's last entry is void, too."""
        self._truncate(head.first_index)
        if head.first_index == self.snapshot_index + 1:
            self.term_there = None

    def record(self, name: str, record: Record) -> None:
        payload = unpack_payload(name, record.offset, record.payload)
        if not well_formed(record.type, payload):
            raise damage(name, record.offset, "the record's content does not match its type")
        if record.type == RecordType.ENTRIES:
            term, first, datas = payload[:3]
            self._take(name, record.offset, term, first, datas, payload[3] if len(payload) > 3 else 0)
        elif record.type == RecordType.HARD_STATE:
            term, vote, commit = payload
            self.state = SavedState(term, vote, max(commit, self.snapshot_index))
        elif record.type == RecordType.JOINED:
            self.joined = True
        elif record.type == RecordType.INSTALLED:
            if payload[0] > self.snapshot_index:
                what = f"what precedes entry {payload[0] + 1} came as a snapshot, which is missing or unreadable"
                raise damage(name, record.offset, what)
        else:
            raise damage(name, record.offset, f"unknown record type {record.type}")

    def _take(self, name: str, offset: int, term: int, first: int, datas: list[bytes], kind: int) -> None:
        """Appends a run of entries; one at an existing index replaces it and all after it (Raft, 5.3)."""
        snapshot_index = self.snapshot_index
        expected = snapshot_index + len(self.entries) + 1
        if first > expected:
            raise damage(name, offset, f"entry {first} follows {expected - 1}")
        self._truncate(first)
        self.reached = first + len(datas) - 1
        if first <= snapshot_index:
            if self.reached >= snapshot_index:
                self.term_there = term
            datas = datas[snapshot_index + 1 - first :]
            first = snapshot_index + 1
        self.entries.extend(LogEntry(term, first + i, data, kind) for i, data in enumerate(datas))
        if term > self.state.term:
            # Logs from before segments began with the hard state: the vote of that term is unknown.
            self.state = SavedState(term, 0, self.state.commit)

    def _truncate(self, first: int) -> None:
        del self.entries[max(0, first - self.snapshot_index - 1) :]
        if first <= self.snapshot_index:
            self.term_there = None


def well_formed(type: int, payload: Any) -> bool:
    """A checksum proves what was written, not who wrote it."""
    if type == RecordType.ENTRIES:
        if not isinstance(payload, list) or len(payload) < 3 or not isinstance(payload[2], list):
            return False
        term, first, datas, *kind = payload
        return are_counts(term, first, *kind) and first > 0 and all(isinstance(data, bytes) for data in datas)
    if type == RecordType.HARD_STATE:
        return isinstance(payload, list) and len(payload) == 3 and are_counts(*payload)
    if type == RecordType.INSTALLED:
        return isinstance(payload, list) and len(payload) > 0 and are_counts(payload[0])
    return True


def are_counts(*values: Any) -> bool:
    return all(isinstance(value, int) and value >= 0 for value in values)


def check_identity(head: SegmentHead, cluster_id: int) -> None:
    """Raises: Corruption if the log is of another cluster than its snapshot."""
    if head.cluster_id != cluster_id:
        name = segment_name(head.sequence)
        raise damage(name, 0, f"it belongs to cluster {head.cluster_id:x}, the snapshot to cluster {cluster_id:x}")
