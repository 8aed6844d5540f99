"""From the bytes of the segments to what the log holds: entries, hard state, and where to go on writing.

A torn tail - the last write, not finished when the process or the machine went down - is cut, since nobody was told
that it was done. Anything else that does not read is damage, and refuses with file and offset. The two are told apart
by witnesses (see `record.py`): a later record that was written when the broken place was already durable, or a later
segment, which exists only after all of the one before it was durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from minikube_py.errors import Corruption
from minikube_py.wal.record import Record, RecordType, decode_record, find_records
from minikube_py.wal.segment import (
    HEAD_BYTES,
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


class SavedState(NamedTuple):
    """Raft's hard state as last saved: `vote` 0 is none."""

    term: int = 0
    vote: int = 0
    commit: int = 0


class Tail(NamedTuple):
    """The segment to go on with. Bytes [end, dirty_end) are remains of a torn write: zero and sync them first."""

    head: SegmentHead
    end: int
    dirty_end: int


class Recovered(NamedTuple):
    """`entries` are those after the snapshot, without gaps. `tail` None: there is no log yet. `obsolete`: segments
    that hold nothing after the snapshot and were left behind by an unfinished removal. `segments`: the heads of the
    others, in order."""

    entries: list[LogEntry]
    state: SavedState
    tail: Tail | None
    segments: list[SegmentHead]
    obsolete: list[str]
    torn_bytes: int

    @property
    def size_bytes(self) -> int:
        """How many bytes of segments there are, the last one up to its end."""
        if self.tail is None:
            return 0
        return sum(head.size_bytes for head in self.segments[:-1]) + self.tail.end


def recover(names: Sequence[str], read: Callable[[str], bytes], snapshot_index: int, snapshot_term: int) -> Recovered:
    """Reads all that the log adds to a snapshot that ends with `snapshot_index` (0: none).

    Raises: Corruption."""
    chain, obsolete = _newest_run(names)
    state = SavedState(term=snapshot_term, commit=snapshot_index)
    entries: list[LogEntry] = []
    heads: list[SegmentHead] = []
    tail: Tail | None = None
    reached = 0
    sequences = list(chain)
    contents = {sequence: read(segment_name(sequence)) for sequence in sequences}
    for position, sequence in enumerate(sequences):
        name = segment_name(sequence)
        data = contents.pop(sequence)
        head = decode_head(name, data)
        _check_head(name, head, sequence, heads, snapshot_index)
        last = position == len(sequences) - 1
        following = None if last else decode_head(segment_name(sequence + 1), contents[sequence + 1])
        heads.append(head)
        end = HEAD_BYTES
        for record in read_segment(name, data, head, following):
            state, reached = _replay(name, record, entries, state, snapshot_index, reached)
            end = record.end
        if last:
            tail = Tail(head, end, max(end, len(data.rstrip(b"\0"))))
    if tail is None:
        if snapshot_index:
            raise Corruption(
                f"a snapshot ends with entry {snapshot_index}, but there is no log; "
                "restore the data directory from a backup"
            )
        return Recovered([], state, None, [], obsolete, 0)
    if max(reached, heads[-1].first_index - 1) < snapshot_index:
        name = segment_name(tail.head.sequence)
        raise damage(name, tail.end, f"the log ends before entry {snapshot_index}, the snapshot's last")
    if state.commit > snapshot_index + len(entries):
        raise damage(
            segment_name(tail.head.sequence),
            tail.end,
            f"entries up to {state.commit} were committed, only those up to {snapshot_index + len(entries)} are there",
        )
    return Recovered(entries, state, tail, heads, obsolete, tail.dirty_end - tail.end)


def read_segment(name: str, data: bytes, head: SegmentHead, following: SegmentHead | None) -> Iterator[Record]:
    """The segment's records up to its end or its torn tail.

    Raises: Corruption where bytes that were durable once do not read any more."""
    offset = HEAD_BYTES
    while (record := decode_record(data, offset, head.seed)) is not None:
        yield record
        offset = record.end
    if following is not None:
        if offset != following.previous_end:
            reach = following.previous_end
            raise damage(name, offset, f"a record is broken; the next segment says that records reach to {reach}")
        return
    for witness in find_records(data, offset + 1, head.seed):
        if witness.synced > offset:
            later = witness.offset
            raise damage(name, offset, f"a record is broken, though it was durable when the one at {later} was written")


def _newest_run(names: Sequence[str]) -> tuple[range, list[str]]:
    """The segments whose numbers lead without a gap to the newest one, and the names of those before a gap."""
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
        raise damage(name, 0, f"its head says it is segment {head.sequence}")
    if before and (head.cluster_id, head.member_id) != (before[-1].cluster_id, before[-1].member_id):
        raise damage(name, 0, "it belongs to another cluster or member than the segment before it")
    if not before and head.first_index > snapshot_index + 1:
        raise damage(
            name, 0, f"it begins with entry {head.first_index}, but the newest snapshot ends with {snapshot_index}: "
            "a snapshot or segments are missing"
        )


def _replay(
    name: str, record: Record, entries: list[LogEntry], state: SavedState, snapshot_index: int, reached: int
) -> tuple[SavedState, int]:
    """The saved state and the last entry's index after this record."""
    payload = unpack_payload(name, record.offset, record.payload)
    if record.type == RecordType.ENTRIES:
        term, first, datas = payload
        _take_entries(name, record.offset, entries, term, first, datas, snapshot_index)
        return state._replace(term=max(state.term, term)), first + len(datas) - 1
    if record.type == RecordType.HARD_STATE:
        term, vote, commit = payload
        return SavedState(term, vote, max(commit, snapshot_index)), reached
    raise damage(name, record.offset, f"unknown record type {record.type}")


def _take_entries(
    name: str, offset: int, entries: list[LogEntry], term: int, first: int, datas: list[bytes], snapshot_index: int
) -> None:
    """Appends a run of entries; one at an index that is there already replaces it and all after it (Raft, 5.3)."""
    expected = snapshot_index + len(entries) + 1
    if first > expected:
        raise damage(name, offset, f"entry {first} follows {expected - 1}")
    if first < expected:
        skip = max(0, snapshot_index + 1 - first)
        datas = datas[skip:]
        first += skip
        if datas:
            del entries[first - snapshot_index - 1 :]
    entries.extend(LogEntry(term, first + i, data) for i, data in enumerate(datas))


def check_identity(head: SegmentHead, cluster_id: int, member_id: int) -> None:
    """Raises: Corruption where the log is another member's than its snapshot."""
    if (head.cluster_id, head.member_id) != (cluster_id, member_id):
        raise Corruption(
            f"{segment_name(head.sequence)}: belongs to cluster {head.cluster_id:x}, member {head.member_id:x}; "
            f"the snapshot to cluster {cluster_id:x}, member {member_id:x}. The data directory mixes two stores' files"
        )
