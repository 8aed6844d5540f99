"""The log and the snapshots on a Disk: recovery at start, appends, rotation to the next segment, removal of old ones.

All calls block; when to make them is the member's business. An OSError from here means that nothing can be promised
any more: the member ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgpack

from minikube_py.env import Disk, File, Rng
from minikube_py.errors import Corruption
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, HardState, LogIndex, Term
from minikube_py.wal.record import RecordType
from minikube_py.wal.recovery import Recovered, Tail, check_identity, recover
from minikube_py.wal.segment import (
    HEAD_BYTES,
    SEGMENT_BYTES,
    SegmentHead,
    SegmentWriter,
    encode_head,
    segment_name,
)
from minikube_py.wal.snapshot import PART_SUFFIX, SnapshotHead, SnapshotReader, snapshot_index, snapshot_name

RECORD_BYTES_MAX = 4 << 20
"""Entries are put into one record up to this; a batch above it becomes several records under the same sync."""
SPARE_NAME = "spare.part"
INCOMING_NAME = "incoming.part"
ZERO_SLICE = bytes(1 << 20)


class SnapshotFile(NamedTuple):
    """A snapshot under its own name: whole and durable."""

    head: SnapshotHead
    size_bytes: int
    sha256: bytes


class Loaded(NamedTuple):
    """What a start finds. `snapshot` None: none was taken yet; `chunks` are its slices."""

    snapshot: SnapshotFile | None
    chunks: Iterator[list[Any]]
    log: Recovered


class Origin(NamedTuple):
    """How a log begins: with `first`, its first entry, or without one, as that of a member which joins (`joined`)."""

    cluster_id: int
    member_id: int
    first: Entry | None = None
    joined: bool = False


class LogFiles:
    """The files of one member. `load`, then `begin`, then `write` and `sync` in turn; one sync at a time."""

    def __init__(self, disk: Disk, rng: Rng, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.disk = disk
        self._rng = rng
        self._segment_bytes = segment_bytes
        self._heads: list[SegmentHead] = []
        self._writer: SegmentWriter
        self._file: File
        self._spare: File | None = None
        self._spare_ready = False
        self._recycled: str | None = None
        self._next_index = 1
        self._state: HardState | None = None
        self._record_bytes_max = min(RECORD_BYTES_MAX, (segment_bytes - HEAD_BYTES) // 4)
        self.snapshot: SnapshotFile | None = None
        """The newest one."""
        self.written_bytes = 0

    def load(self) -> Loaded:
        """Reads all there is. Raises: Corruption."""
        names = self.disk.names()
        snapshot, chunks = self._load_snapshot(names)
        if snapshot is None:
            log = recover(names, self._read, 0, 0)
        else:
            head = snapshot.head
            log = recover(names, self._read, head.index, head.term, head.member_id)
            if log.segments:
                check_identity(log.segments[0], head.cluster_id)
        return Loaded(snapshot, chunks, log)

    def begin(self, loaded: Loaded, origin: Origin | None = None) -> SegmentHead:
        """Makes the files ready to be written to: cuts a torn tail, removes leftovers, starts a new log if there is
        none, as `origin` says (None: a member of its own, under random ids), durable with its first name. Returns the
        head of the present segment, which names cluster and member."""
        self._remove_leftovers(loaded)
        snapshot, log = loaded.snapshot, loaded.log
        tail = log.tail
        self.snapshot = snapshot
        self._next_index = (snapshot.head.index if snapshot else 0) + len(log.entries) + 1
        if tail is None:
            self._start_log(origin or Origin(self._rng.getrandbits(63), self._rng.getrandbits(63)))
            return self._writer.head
        self._state = HardState(Term(log.state.term), NodeId(log.state.vote), LogIndex(log.state.commit))
        self._heads = list(log.segments)
        self._file = self.disk.open(segment_name(tail.head.sequence))
        self._cut(tail)
        self._writer = SegmentWriter(tail.head, tail.end)
        if log.void:
            self._begin_anew()
        return self._writer.head

    def write(self, entries: Sequence[Entry], state: HardState | None) -> None:
        """Writes entries (in order, after all before, or in place of those from the first one's index on) and hard
        state; durable after the next `sync`."""
        if state is not None:
            self._state = state
            self._append(RecordType.HARD_STATE, msgpack.packb(state))
        start = 0
        while start < len(entries):
            stop = _run_end(entries, start, self._record_bytes_max)
            self._append(RecordType.ENTRIES, _pack_run(entries[start:stop]))
            self._next_index = entries[stop - 1].index + 1
            start = stop

    def witness(self, commit: LogIndex) -> None:
        """Writes something behind what is durable, if nothing is there yet: by it a record that breaks later is told
        from one that was never finished. To be called before what is durable is promised to anyone. `commit`: entries
        up to there are committed, and durable here."""
        if self._writer.end == self._writer.synced:
            self._state = (self._state or HardState())._replace(commit=commit)
            self._append(RecordType.HARD_STATE, msgpack.packb(self._state))

    def sync(self) -> None:
        """Makes durable what was written."""
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """The sync as a function that another thread may run; what is written meanwhile is not covered by it.

        `write` must not be called before it returned: the log may go on in the next segment."""
        file, writer, end = self._file, self._writer, self._writer.end

        def run() -> None:
            file.sync()
            writer.mark_synced(end)

        return run

    def spare_step(self) -> Iterator[Callable[[], None]]:
        """Makes the next segment's file ready ahead of time: filled with zeros and durable, so that appends to it
        change no file metadata and sync faster. Yields a sync to run before going on, slice by slice."""
        if self._spare is not None:
            return
        if self._recycled is not None:
            self.disk.rename(self._recycled, SPARE_NAME)
            self._recycled = None
            # A crash must not bring the old name back with the new zeros.
            self.disk.sync_folder()
            self._spare = self.disk.open(SPARE_NAME)
        else:
            self._spare = self.disk.open(SPARE_NAME, create=True)
        spare = self._spare
        spare.truncate(self._segment_bytes)
        for offset in range(0, self._segment_bytes, len(ZERO_SLICE)):
            spare.write_at(offset, ZERO_SLICE[: self._segment_bytes - offset])
            yield spare.sync
            if self._spare is not spare:
                # The log was faster and took a fresh file; this one has lost its name.
                spare.close()
                return
        self._spare_ready = True

    @property
    def wants_spare(self) -> bool:
        return self._spare is None and self._writer.end > self._segment_bytes // 4

    def write_snapshot(self, index: int) -> File:
        """The file to write a snapshot to; `finish_snapshot` gives it its name once it is synced."""
        return self._fresh(snapshot_name(index) + PART_SUFFIX)

    def finish_snapshot(self, snapshot: SnapshotFile) -> Iterator[None]:
        """The synced file becomes the newest snapshot; older ones and segments that it makes needless go, one at each
        step: to free a large file takes milliseconds. Where a newer one has come meanwhile, it goes itself."""
        index = snapshot.head.index
        name = snapshot_name(index)
        if self.snapshot is not None and self.snapshot.head.index >= index:
            self.disk.remove(name + PART_SUFFIX)
            return
        self.disk.rename(name + PART_SUFFIX, name)
        self.disk.sync_folder()
        self.snapshot = snapshot
        yield from self._remove_before(index)

    def write_incoming(self) -> File:
        """The file to write another member's snapshot to, in place of one that was begun before."""
        return self._fresh(INCOMING_NAME)

    def discard_incoming(self) -> None:
        if INCOMING_NAME in self.disk.names():
            self.disk.remove(INCOMING_NAME)

    def install_snapshot(self, snapshot: SnapshotFile, state: HardState | None) -> None:
        """The synced incoming file becomes the newest snapshot, and the log begins anew after it, with `state` (None:
        unchanged). No sync of the log may be under way.

        With its name the snapshot is in force: a power cut before leaves all as it was, one after it leaves a log that
        does not reach the snapshot, and the next start begins the log anew in its turn."""
        index = snapshot.head.index
        assert self.snapshot is None or self.snapshot.head.index < index, "an older snapshot"
        self._state = state or self._state
        self.disk.rename(INCOMING_NAME, snapshot_name(index))
        self.disk.sync_folder()
        self.snapshot = snapshot
        self._next_index = index + 1
        self._rotate()
        for _ in self._remove_before(index):
            pass

    def open_snapshot(self) -> File:
        """The newest snapshot's file, to be read while it may be replaced."""
        assert self.snapshot is not None, "there is no snapshot"
        return self.disk.open(snapshot_name(self.snapshot.head.index))

    def close(self) -> None:
        self._file.close()
        if self._spare is not None:
            self._spare.close()

    def _fresh(self, name: str) -> File:
        if name in self.disk.names():
            self.disk.remove(name)
        return self.disk.open(name, create=True)

    def _load_snapshot(self, names: Sequence[str]) -> tuple[SnapshotFile | None, Iterator[list[Any]]]:
        """The newest snapshot that reads; an older one only serves if the log still reaches back to it."""
        indexes = sorted((index for name in names if (index := snapshot_index(name)) is not None), reverse=True)
        first_error: Corruption | None = None
        for index in indexes:
            name = snapshot_name(index)
            data = self._read(name)
            try:
                reader = SnapshotReader(name, partial(_slice, data))
                reader.check()
                return SnapshotFile(reader.head, len(data), reader.sha256), reader.chunks()
            except Corruption as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return None, iter(())

    def _read(self, name: str) -> bytes:
        file = self.disk.open(name)
        try:
            return file.read_all()
        finally:
            file.close()

    def _remove_leftovers(self, loaded: Loaded) -> None:
        newest = loaded.snapshot.head.index if loaded.snapshot else 0
        for name in self.disk.names():
            index = snapshot_index(name)
            if name.endswith(PART_SUFFIX) or name in loaded.log.obsolete or (index is not None and index < newest):
                self.disk.remove(name)
        self.disk.sync_folder()

    def _remove_before(self, index: int) -> Iterator[None]:
        """Snapshots before that of `index`, and segments that hold nothing after it, one a step."""
        for old in self.disk.names():
            other = snapshot_index(old)
            if other is not None and other < index:
                yield
                if old in self.disk.names():
                    self.disk.remove(old)
        while len(self._heads) > 1 and self._heads[1].first_index <= index + 1:
            old_name = segment_name(self._heads.pop(0).sequence)
            if self._recycled is None:
                self._recycled = old_name
            else:
                yield
                self.disk.remove(old_name)
        self.disk.sync_folder()

    def _cut(self, tail: Tail) -> None:
        """Also where nothing was torn: what was read may have been in the page cache only, and after a failed sync no
        other one brings it to the disk unless it is written again."""
        self._file.write_at(tail.sure_end, tail.unsure + bytes(tail.dirty_end - tail.end))
        self._file.sync()

    def _append(self, type: RecordType, payload: bytes) -> None:
        if not self._writer.fits(len(payload)):
            self._rotate()
        offset = self._writer.end
        data = self._writer.encode(type, payload)
        self._file.write_at(offset, data)
        self.written_bytes += len(data)

    def _rotate(self) -> None:
        # The next segment's existence says that all of this one is durable.
        self.sync()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """The next segment; all that was written must be durable."""
        old = self._writer.head
        self._file.close()
        self._start_segment(old._replace(
            sequence=old.sequence + 1,
            first_index=self._next_index,
            previous_end=self._writer.end,
            size_bytes=self._segment_bytes,
            seed=self._rng.getrandbits(32),
        ))

    def _start_log(self, origin: Origin) -> None:
        seed = self._rng.getrandbits(32)
        head = SegmentHead(origin.cluster_id, origin.member_id, 1, 1, 0, self._segment_bytes, seed)
        records: list[tuple[RecordType, bytes]] = []
        if origin.joined:
            records.append((RecordType.JOINED, msgpack.packb(())))
        if origin.first is not None:
            # Agreed on before there was a log: committed as soon as it is here.
            self._state = HardState(origin.first.term, commit=origin.first.index)
            records.append((RecordType.ENTRIES, _pack_run((origin.first,))))
            self._next_index = origin.first.index + 1
        self._start_segment(head, records)

    def _start_segment(self, head: SegmentHead, records: Sequence[tuple[RecordType, bytes]] = ()) -> None:
        """Head, hard state and `records` are durable when the segment gets its name: the segment before, which held
        the hard state until now, may go."""
        if self._spare is None or not self._spare_ready:
            self._discard_spare()
            self._spare = self.disk.open(SPARE_NAME, create=True)
            self._spare.allocate(head.size_bytes)
        writer = SegmentWriter(head)
        data = encode_head(head)
        if self._state is not None:
            data += writer.encode(RecordType.HARD_STATE, msgpack.packb(self._state))
        for type, payload in records:
            data += writer.encode(type, payload)
        self._spare.write_at(0, data)
        self._spare.sync()
        writer.mark_synced(writer.end)
        self.disk.rename(SPARE_NAME, segment_name(head.sequence))
        self.disk.sync_folder()
        self._file, self._spare, self._spare_ready = self._spare, None, False
        self._writer = writer
        self._heads.append(head)

    def _discard_spare(self) -> None:
        if self._spare is not None:
            self.disk.remove(SPARE_NAME)
            self._spare = None


def _slice(data: bytes, offset: int, size_bytes: int) -> bytes:
    return data[offset : offset + size_bytes]


def _pack_run(run: Sequence[Entry]) -> bytes:
    term, index, _, kind = run[0]
    datas = [entry.data for entry in run]
    payload: bytes = msgpack.packb((term, index, datas, kind) if kind else (term, index, datas))
    return payload


def _run_end(entries: Sequence[Entry], start: int, size_bytes_max: int) -> int:
    """Where the run of entries of one term and kind that fits into one record ends; at least one entry is in it."""
    term, _, data, kind = entries[start]
    size = len(data)
    stop = start + 1
    while stop < len(entries) and entries[stop].term == term and entries[stop].kind == kind:
        size += len(entries[stop].data) + 5
        if size > size_bytes_max:
            break
        stop += 1
    return stop
