"""The log and the snapshots on a Disk: recovery at start, appends, rotation to the next segment, removal of old ones.

All calls block; when to make them is the member's business. An OSError from here means that nothing can be promised
any more: the member ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from minikube_py.env import Disk, File, Rng
from minikube_py.errors import Corruption
from minikube_py.raft.message import Entry, HardState
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
from minikube_py.wal.snapshot import PART_SUFFIX, SnapshotHead, read_snapshot, snapshot_index, snapshot_name

RECORD_BYTES_MAX = 4 << 20
"""Entries are put into one record up to this; a batch above it becomes several records under the same sync."""
SPARE_NAME = "spare.part"
ZERO_SLICE = bytes(1 << 20)


class Loaded(NamedTuple):
    """What a start finds. `snapshot` None: none was taken yet; `chunks` are its slices."""

    snapshot: SnapshotHead | None
    chunks: Iterator[list[Any]]
    log: Recovered


class LogFiles:
    """The files of one member. `load`, then `begin`, then `write` and `sync` in turn; one sync at a time."""

    def __init__(self, disk: Disk, rng: Rng, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._disk = disk
        self._rng = rng
        self._segment_bytes = segment_bytes
        self._heads: list[SegmentHead] = []
        self._writer: SegmentWriter
        self._file: File
        self._spare: File | None = None
        self._spare_ready = False
        self._recycled: str | None = None
        self._next_index = 1
        self._record_bytes_max = min(RECORD_BYTES_MAX, (segment_bytes - HEAD_BYTES) // 4)
        self.written_bytes = 0

    def load(self) -> Loaded:
        """Reads all there is. Raises: Corruption."""
        names = self._disk.names()
        snapshot, chunks = self._load_snapshot(names)
        index, term = (snapshot.index, snapshot.term) if snapshot else (0, 0)
        log = recover(names, self._read, index, term)
        if snapshot and log.segments:
            check_identity(log.segments[0], snapshot.cluster_id, snapshot.member_id)
        return Loaded(snapshot, chunks, log)

    def begin(self, loaded: Loaded) -> SegmentHead:
        """Makes the files ready to be written to: cuts a torn tail, removes leftovers, starts a new log if there is
        none. Returns the head of the present segment, which names cluster and member."""
        self._remove_leftovers(loaded)
        tail = loaded.log.tail
        self._next_index = (loaded.snapshot.index if loaded.snapshot else 0) + len(loaded.log.entries) + 1
        if tail is None:
            cluster_id, member_id, seed = (self._rng.getrandbits(bits) for bits in (63, 63, 32))
            self._start_segment(SegmentHead(cluster_id, member_id, 1, 1, 0, self._segment_bytes, seed))
        else:
            self._heads = list(loaded.log.segments)
            self._file = self._disk.open(segment_name(tail.head.sequence))
            self._cut(tail)
            self._writer = SegmentWriter(tail.head, tail.end)
        return self._writer.head

    def write(self, entries: Sequence[Entry], state: HardState | None) -> None:
        """Writes entries (in order, after all before) and hard state; durable after the next `sync`."""
        if state is not None:
            self._append(RecordType.HARD_STATE, msgpack.packb(state))
        start = 0
        while start < len(entries):
            stop = _run_end(entries, start, self._record_bytes_max)
            first = entries[start]
            payload = msgpack.packb((first.term, first.index, [entry.data for entry in entries[start:stop]]))
            self._append(RecordType.ENTRIES, payload)
            self._next_index = entries[stop - 1].index + 1
            start = stop

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
            self._disk.rename(self._recycled, SPARE_NAME)
            self._recycled = None
            # A crash must not bring the old name back with the new zeros.
            self._disk.sync_folder()
            self._spare = self._disk.open(SPARE_NAME)
        else:
            self._spare = self._disk.open(SPARE_NAME, create=True)
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
        name = snapshot_name(index) + PART_SUFFIX
        if name in self._disk.names():
            self._disk.remove(name)
        return self._disk.open(name, create=True)

    def finish_snapshot(self, index: int) -> Iterator[None]:
        """The synced file becomes the newest snapshot; older ones and segments that it makes needless go, one at each
        step: to free a large file takes milliseconds."""
        name = snapshot_name(index)
        self._disk.rename(name + PART_SUFFIX, name)
        self._disk.sync_folder()
        for old in self._disk.names():
            if (other := snapshot_index(old)) is not None and other < index:
                yield
                self._disk.remove(old)
        while len(self._heads) > 1 and self._heads[1].first_index <= index + 1:
            old_name = segment_name(self._heads.pop(0).sequence)
            if self._recycled is None:
                self._recycled = old_name
            else:
                yield
                self._disk.remove(old_name)
        self._disk.sync_folder()

    def close(self) -> None:
        self._file.close()
        if self._spare is not None:
            self._spare.close()

    def _load_snapshot(self, names: Sequence[str]) -> tuple[SnapshotHead | None, Iterator[list[Any]]]:
        """The newest snapshot that reads; an older one only serves if the log still reaches back to it."""
        indexes = sorted((index for name in names if (index := snapshot_index(name)) is not None), reverse=True)
        first_error: Corruption | None = None
        for index in indexes:
            try:
                return read_snapshot(snapshot_name(index), self._read(snapshot_name(index)))
            except Corruption as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return None, iter(())

    def _read(self, name: str) -> bytes:
        file = self._disk.open(name)
        try:
            return file.read_all()
        finally:
            file.close()

    def _remove_leftovers(self, loaded: Loaded) -> None:
        newest = loaded.snapshot.index if loaded.snapshot else 0
        for name in self._disk.names():
            index = snapshot_index(name)
            if name.endswith(PART_SUFFIX) or name in loaded.log.obsolete or (index is not None and index < newest):
                self._disk.remove(name)
        self._disk.sync_folder()

    def _cut(self, tail: Tail) -> None:
        if tail.dirty_end > tail.end:
            self._file.write_at(tail.end, bytes(tail.dirty_end - tail.end))
        # Also where nothing was torn: what was read may have been in the page cache only.
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
        old = self._writer.head
        self._file.close()
        self._start_segment(old._replace(
            sequence=old.sequence + 1,
            first_index=self._next_index,
            previous_end=self._writer.end,
            size_bytes=self._segment_bytes,
            seed=self._rng.getrandbits(32),
        ))

    def _start_segment(self, head: SegmentHead) -> None:
        if self._spare is None or not self._spare_ready:
            self._discard_spare()
            self._spare = self._disk.open(SPARE_NAME, create=True)
            self._spare.allocate(head.size_bytes)
        self._spare.write_at(0, encode_head(head))
        self._spare.sync()
        self._disk.rename(SPARE_NAME, segment_name(head.sequence))
        self._disk.sync_folder()
        self._file, self._spare, self._spare_ready = self._spare, None, False
        self._writer = SegmentWriter(head, HEAD_BYTES)
        self._heads.append(head)

    def _discard_spare(self) -> None:
        if self._spare is not None:
            self._disk.remove(SPARE_NAME)
            self._spare = None


def _run_end(entries: Sequence[Entry], start: int, size_bytes_max: int) -> int:
    """Where the run of entries of one term that fits into one record ends; at least one entry is in it."""
    term = entries[start].term
    size = len(entries[start].data)
    stop = start + 1
    while stop < len(entries) and entries[stop].term == term:
        size += len(entries[stop].data) + 5
        if size > size_bytes_max:
            break
        stop += 1
    return stop
