"""The log and the snapshots on a Disk: recovery at start, appends, rotation to the next segment, removal of old ones.

The last two snapshots are kept, and the log from the older one on: if the newer becomes unreadable, nothing is lost.
All syncs are returned to the caller, who may run them in a thread. After an OSError of the log no promise can be kept,
so the member ends the process; one of a snapshot or of the spare segment only causes a delay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgpack

from minikube_py.env import Disk, File, Rng
from minikube_py.errors import Corruption
from minikube_py.mvcc.snapshot import Unfit
from minikube_py.mvcc.state import StateMachine
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, HardState, LogIndex, Term
from minikube_py.store.folder import Steps, sync_folder
from minikube_py.store.membership import members_of
from minikube_py.store.room import NO_FILE, where
from minikube_py.store.spare import SPARE_NAME, Spare
from minikube_py.wal.record import RecordType
from minikube_py.wal.recovery import Recovered, Tail, check_identity, recover
from minikube_py.wal.segment import (
    HEAD_BYTES,
    SEGMENT_BYTES,
    Damage,
    SegmentHead,
    SegmentWriter,
    damage,
    encode_head,
    segment_name,
    segment_sequence,
)
from minikube_py.wal.snapshot import PART_SUFFIX, SnapshotHead, SnapshotReader, snapshot_index, snapshot_name

RECORD_BYTES_MAX = 4 << 20
"""The most bytes of entries in one record; a larger batch becomes several records under the same sync."""
FIRST_SEGMENT_BYTES = 1 << 20
"""The size of a new log's first segment: most logs stay small, and many may share a disk."""
WITNESS_BYTES = 64
"""Space that entries leave at a segment's end, so that a witness always fits behind durable data."""
AROUND_BYTES = HEAD_BYTES + 1024
"""Space of a segment that its only entry cannot have: head, hard state, witness, and the record around the entry."""


class SnapshotFile(NamedTuple):
    """A snapshot under its final name: complete and durable."""

    head: SnapshotHead
    size_bytes: int
    sha256: bytes


class Loaded(NamedTuple):
    """What a start finds. `snapshot` None: there is none yet; `state`: what was restored from it, if anything was.
    `kept_from`: the log starts after this entry or earlier. `warnings`: damage that lost no data."""

    snapshot: SnapshotFile | None
    state: StateMachine | None
    log: Recovered
    kept_from: int = 0
    warnings: tuple[str, ...] = ()


class Origin(NamedTuple):
    """How a log begins: with `first`, its first entry, or without one, for a member that joins (`joined`)."""

    cluster_id: int
    member_id: int
    first: Entry | None = None
    joined: bool = False


class LogSync:
    """Makes durable what was written before it was created; to be called once, in any thread. If segments ended
    meanwhile, `syncs` is above 1: each segment is renamed once everything before it is durable."""

    __slots__ = ("_steps", "syncs")

    def __init__(self, steps: Sequence[Callable[[], None]], syncs: int) -> None:
        self._steps = steps
        self.syncs = syncs

    def __call__(self) -> None:
        for step in self._steps:
            step()


class Segment:
    """An open segment. `part`: its temporary name until its final one is due, then ""."""

    __slots__ = ("file", "part", "writer")

    def __init__(self, file: File, writer: SegmentWriter, part: str) -> None:
        self.file, self.writer, self.part = file, writer, part


class LogFiles:
    """The files of one member. `load`, then `begin`, then `write` and `sync` in turn; one sync at a time."""

    def __init__(self, disk: Disk, rng: Rng, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.disk = disk
        self._rng = rng
        self._segment_bytes = segment_bytes
        self._heads: list[SegmentHead] = []
        """Segments with their final names."""
        self._current: Segment
        self._ended: list[Segment] = []
        self._installing: tuple[str, str] | None = None
        self._durable = 0, 0
        """The newest snapshot with a durable name, and its `kept_from`: these decide what may be removed."""
        self._incoming_files = 0
        self._removal_due = False
        self.spare = Spare(disk, segment_bytes)
        self._next_index = 1
        self._state: HardState | None = None
        self.entry_bytes_max = segment_bytes - AROUND_BYTES
        self._record_bytes_max = min(RECORD_BYTES_MAX, (segment_bytes - HEAD_BYTES) // 4)
        self.snapshot: SnapshotFile | None = None
        """The newest snapshot."""
        self.kept_from = 0
        """The log is kept from the entry after this one on, the last entry of the snapshot before the newest."""
        self.warnings: tuple[str, ...] = ()
        """Damage found at the start that lost no data."""
        self.written_bytes = self._older_bytes = 0

    def load(self, restore: Callable[[Iterable[list[Any]]], StateMachine] | None = None) -> Loaded:
        """Reads everything. If the newest snapshot is unreadable, or `restore` refuses its records, the previous one
        and the log since are equivalent. Without `restore` the records are not looked at.

        Raises: Corruption; OSError; TooNew."""
        names = self.disk.names()
        self._require_files(names)
        indexes = sorted((index for name in names if (index := snapshot_index(name)) is not None), reverse=True)
        unread: list[Corruption] = []
        # The start of the log counts as the snapshot before the first one.
        for index, before in zip([*indexes, 0], [*indexes[1:], 0, 0]):
            try:
                snapshot, state = self._load_snapshot(index, restore)
            except Corruption as error:
                unread.append(error)
                continue
            try:
                loaded = self._load_log(names, snapshot, before)
                if unread:
                    _check_reach(loaded, indexes[0])
            except Corruption:
                if unread:
                    break
                raise
            lost = [f"{error}; nothing is lost, because the log begins before it" for error in unread]
            return loaded._replace(state=state, warnings=(*lost, *loaded.log.warnings))
        raise unread[0]

    def _require_files(self, names: Sequence[str]) -> None:
        """What has the name of a segment or snapshot was one, so an older snapshot does not replace it: its disk
        may be back tomorrow. Raises: Damage; OSError."""
        for name in names:
            if segment_sequence(name) is None and snapshot_index(name) is None:
                continue
            try:
                self.disk.open(name).close()
            except OSError as error:
                if error.errno not in NO_FILE:
                    raise
                raise Damage(
                    f"{where(self.disk)}/{name}: not a file that can be read and written ({error.strerror}): if it is "
                    "a link to another disk, mount that disk; else correct its permissions, or restore the file"
                ) from None

    def _load_snapshot(
        self, index: int, restore: Callable[[Iterable[list[Any]]], StateMachine] | None
    ) -> tuple[SnapshotFile | None, StateMachine | None]:
        """None for index 0: the initial state."""
        if not index:
            return None, None
        name = snapshot_name(index)
        file = self.disk.open(name)
        try:
            # Whatever the file's size, no more is read than belongs together.
            reader = SnapshotReader(name, file.read_at)
            if reader.head.index != index:
                raise damage(name, 0, f"its header says that it ends with entry {reader.head.index}")
            _check_members(name, reader.head)
            reader.check()
            data = file.read_at(0, reader.size_bytes)
        finally:
            file.close()
        found = SnapshotFile(reader.head, reader.size_bytes, reader.sha256)
        if restore is None:
            return found, None
        reader = SnapshotReader(name, partial(_slice, data))
        try:
            return found, restore(reader.chunks())
        except Unfit as error:
            raise damage(name, reader.offset, str(error)) from None

    def _load_log(self, names: Sequence[str], snapshot: SnapshotFile | None, before: int) -> Loaded:
        """`before`: the index of the previous snapshot."""
        if snapshot is None:
            return Loaded(None, None, recover(names, self._read, 0, 0))
        head = snapshot.head
        log = recover(names, self._read, head.index, head.term, head.member_id)
        if log.segments:
            check_identity(log.segments[0], head.cluster_id)
        reaches = bool(log.segments) and not log.void and log.segments[0].first_index <= before + 1
        return Loaded(snapshot, None, log, before if reaches else head.index)

    def begin(self, loaded: Loaded, origin: Origin | None = None) -> SegmentHead:
        """Makes the files ready to be written to: cuts a torn tail, removes leftovers, and if there is no log starts
        one from `origin` (None: a single-member cluster with random ids), durable from its first name on. Returns the
        head of the current segment, with the ids of cluster and member."""
        self._remove_leftovers(loaded)
        snapshot, log = loaded.snapshot, loaded.log
        tail = log.tail
        self.snapshot, self.kept_from = snapshot, loaded.kept_from
        self._durable = self._newest_index, self.kept_from
        self.warnings = loaded.warnings
        self._next_index = (snapshot.head.index if snapshot else 0) + len(log.entries) + 1
        if tail is None:
            self._start_log(origin or Origin(self._rng.getrandbits(63), self._rng.getrandbits(63)))
            return self._writer.head
        self._state = HardState(Term(log.state.term), NodeId(log.state.vote), LogIndex(log.state.commit))
        self._heads = list(log.segments)
        file = self.disk.open(segment_name(tail.head.sequence))
        self._cut(file, tail)
        self._current = Segment(file, SegmentWriter(tail.head, tail.end), "")
        if log.void and snapshot is not None:
            self._begin_after(snapshot)
            self.sync()
        return self._writer.head

    def write(self, entries: Sequence[Entry], state: HardState | None) -> None:
        """Writes entries (following all earlier ones, or replacing those from the first one's index on) and hard state;
        durable after the next `sync`."""
        if state is not None:
            self._state = state
            self._append(RecordType.HARD_STATE, msgpack.packb(state))
        start = 0
        while start < len(entries):
            stop = _run_end(entries, start, self._record_bytes_max)
            self._append(RecordType.ENTRIES, _pack_run(entries[start:stop]))
            self._next_index = entries[stop - 1].index + 1
            start = stop

    def witness(self, commit: LogIndex, *, always: bool = False) -> None:
        """Writes a record behind durable data, if there is none yet: it distinguishes a record damaged later from one
        never finished. Call this before durable data is acknowledged. `commit`: entries up to it are committed, and
        durable here. `always`: even if there is a record, such as an older `commit`."""
        if always or self._writer.end == self._writer.synced:
            self._state = (self._state or HardState())._replace(commit=commit)
            self._append(RecordType.HARD_STATE, msgpack.packb(self._state), room_bytes=0)

    def sync(self) -> None:
        """Makes durable what was written."""
        self.begin_sync()()

    def begin_sync(self) -> LogSync:
        """The sync as a function that another thread may run; later writes are not covered.

        `write` must not be called before it returned: the log may go on in the next segment."""
        ended, self._ended = self._ended, []
        steps: list[Callable[[], None]] = []
        installing, self._installing = self._installing, None
        if installing:
            # The snapshot takes effect with its name: only then may a segment start behind it.
            steps += [partial(self.disk.rename, *installing), partial(sync_folder, self.disk)]
        syncs = len(steps) // 2
        for segment in ended:
            steps += self._sync_steps(segment, segment.writer.end)
            steps.append(segment.file.close)
        steps += self._sync_steps(self._current, self._writer.end)
        syncs += 1 + len(ended) + sum(1 for segment in (*ended, self._current) if segment.part)
        if installing:
            steps.append(partial(self._installed, self._newest_index))
        return LogSync(steps, syncs)

    def _installed(self, index: int) -> None:
        self._removal_due, self._durable = True, (index, index)

    def _sync_steps(self, segment: Segment, end: int) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [segment.file.sync, partial(segment.writer.mark_synced, end)]
        if segment.part:
            steps.append(partial(self._name, segment))
        return steps

    def _name(self, segment: Segment) -> None:
        """Everything before it is durable, and so is its head."""
        head = segment.writer.head
        self.disk.rename(segment.part, segment_name(head.sequence))
        sync_folder(self.disk)
        segment.part = ""
        self._heads.append(head)

    def upkeep(self, spare: bool = False) -> Steps:
        """What `wants_upkeep`, in steps: removes files no longer needed and prepares the next segment's file (`spare`:
        though it is not wanted yet). Yields a sync to run before continuing. Raises: OSError; the log does not depend
        on it."""
        if self._removal_due:
            self._removal_due = False
            yield from self.remove_old()
        if spare or self._wants_spare:
            yield from self.spare.prepare()

    @property
    def wants_upkeep(self) -> bool:
        return self._removal_due or self._wants_spare

    def reclaimable(self, data_bytes: int) -> bool:
        """New snapshots would free space: old segments are only kept for the snapshot before the newest, or one of the
        two is far larger than the current `data_bytes`, as after a compaction."""
        largest_bytes = max(self._older_bytes, self.snapshot.size_bytes if self.snapshot else 0)
        segments = len(self._heads) > 1 and self.kept_from + 1 < self._heads[-1].first_index
        return segments or largest_bytes > 2 * data_bytes + self._segment_bytes

    @property
    def _wants_spare(self) -> bool:
        return not self.spare.begun and self._writer.end > self._writer.head.size_bytes // 4

    def write_snapshot(self, index: int) -> File:
        """The file to write a snapshot to; once it is synced, `finish_snapshot` gives it its name."""
        self.abandon_snapshot(index)
        return self.disk.open(snapshot_name(index) + PART_SUFFIX, create=True)

    def finish_snapshot(self, snapshot: SnapshotFile) -> Steps:
        """The synced file becomes the newest snapshot; snapshots before the previous one and segments that only they
        need are removed, one per step: freeing a large file takes milliseconds. If a newer one has arrived meanwhile,
        this one is removed. Yields a sync to run before continuing."""
        index = snapshot.head.index
        name = snapshot_name(index)
        if self._newest_index >= index:
            self.disk.remove(name + PART_SUFFIX)
            return
        self.disk.rename(name + PART_SUFFIX, name)
        yield partial(sync_folder, self.disk)
        if self._newest_index >= index:
            # The newer one has removed it, or will.
            return
        self.kept_from = self._newest_index
        self._older_bytes = self.snapshot.size_bytes if self.snapshot else 0
        self.snapshot, self._durable = snapshot, (index, self.kept_from)
        yield from self.remove_old()

    def abandon_snapshot(self, index: int) -> None:
        """Discards an unfinished snapshot. Raises: OSError."""
        part = snapshot_name(index) + PART_SUFFIX
        if part in self.disk.names():
            self.disk.remove(part)

    @property
    def _newest_index(self) -> int:
        return self.snapshot.head.index if self.snapshot is not None else 0

    def write_incoming(self) -> tuple[str, File]:
        """A file for another member's snapshot, and its name, unique in this run."""
        self._incoming_files += 1
        name = f"incoming-{self._incoming_files}{PART_SUFFIX}"
        return name, self.disk.open(name, create=True)

    def install_snapshot(self, part: str, snapshot: SnapshotFile, state: HardState | None) -> None:
        """The synced file named `part` becomes the newest snapshot, and the log begins again after it, with `state`
        (None: unchanged), both with the next sync. No sync of the log may be in progress.

        The snapshot takes effect with its name: a power cut before that changes nothing, one after it leaves a log that
        does not reach the snapshot, and the next start begins a new log."""
        index = snapshot.head.index
        assert self._newest_index < index, "an older snapshot"
        self._state = state or self._state
        self._installing = part, snapshot_name(index)
        self.snapshot, self.kept_from = snapshot, index
        self._begin_after(snapshot)

    def _begin_after(self, snapshot: SnapshotFile) -> None:
        """The earlier log is not continued: without the snapshot nothing leads to what follows."""
        self._next_index = snapshot.head.index + 1
        self._end_segment([(RecordType.INSTALLED, msgpack.packb((snapshot.head.index, snapshot.head.term)))])

    def open_snapshot(self) -> File:
        """The newest snapshot's file; it stays readable while it is replaced."""
        assert self.snapshot is not None, "there is no snapshot"
        return self.disk.open(snapshot_name(self.snapshot.head.index))

    def close(self) -> None:
        self._current.file.close()
        self.spare.close()

    def _read(self, name: str, size_bytes: int) -> bytes:
        file = self.disk.open(name)
        try:
            return file.read_at(0, size_bytes)
        finally:
            file.close()

    def _remove_leftovers(self, loaded: Loaded) -> None:
        kept = {loaded.snapshot.head.index, loaded.kept_from} if loaded.snapshot else {0}
        spare = self.spare.adopt()
        # What was read may be in the page cache only, and the files removed here may be the only durable copy.
        sync_folder(self.disk)
        for name in self.disk.names():
            index = snapshot_index(name)
            part = name.endswith(PART_SUFFIX) and not (spare and name == SPARE_NAME)
            # A snapshot newer than the loaded one is unreadable; it is kept for inspection until there is a new one.
            if part or name in loaded.log.obsolete or (index is not None and index < max(kept) and index not in kept):
                with contextlib.suppress(IsADirectoryError, PermissionError):  # A folder; nothing here made it.
                    self.disk.remove(name)

    def remove_old(self) -> Steps:
        """Removes snapshots except the newest two, and segments not needed for them, one per step; yields a sync to run
        before continuing. One being installed does not count until its name is durable."""
        for old in self.disk.names():
            other = snapshot_index(old)
            if other is not None and other < self._durable[0] and other not in self._durable:
                yield None
                if old in self.disk.names():
                    self.disk.remove(old)
        while len(self._heads) > 1 and self._heads[1].first_index <= self._durable[1] + 1:
            old_head = self._heads.pop(0)
            old_name = segment_name(old_head.sequence)
            if old_head.size_bytes < self._segment_bytes or not self.spare.offer(old_name):
                yield None
                self.disk.remove(old_name)
        yield partial(sync_folder, self.disk)

    def _cut(self, file: File, tail: Tail) -> None:
        """Runs even if nothing was torn: the data may be in the page cache only, and after a failed sync a later one
        does not write it unless it is written again."""
        file.write_at(tail.sure_end, tail.unsure + bytes(tail.dirty_end - tail.end))
        file.sync()

    @property
    def _writer(self) -> SegmentWriter:
        return self._current.writer

    def _append(self, type: RecordType, payload: bytes, room_bytes: int = WITNESS_BYTES) -> None:
        if not self._writer.fits(len(payload) + room_bytes):
            self._end_segment()
        segment = self._current
        offset = segment.writer.end
        data = segment.writer.encode(type, payload)
        segment.file.write_at(offset, data)
        self.written_bytes += len(data)

    def _end_segment(self, records: Sequence[tuple[RecordType, bytes]] = ()) -> None:
        """Switches to the next segment, which gets its name with the next sync: the name implies that everything before
        is durable."""
        old = self._writer.head
        self._ended.append(self._current)
        self._current = self._new_segment(old._replace(
            sequence=old.sequence + 1,
            first_index=self._next_index,
            previous_end=self._writer.end,
            size_bytes=self._segment_bytes,
            seed=self._rng.getrandbits(32),
        ), records)

    def _start_log(self, origin: Origin) -> None:
        seed = self._rng.getrandbits(32)
        size_bytes = min(FIRST_SEGMENT_BYTES, self._segment_bytes)
        head = SegmentHead(origin.cluster_id, origin.member_id, 1, 1, 0, size_bytes, seed)
        records: list[tuple[RecordType, bytes]] = []
        if origin.joined:
            records.append((RecordType.JOINED, msgpack.packb(())))
        if origin.first is not None:
            # Agreed on before the log existed: committed as soon as it is here.
            self._state = HardState(origin.first.term, commit=origin.first.index)
            records.append((RecordType.ENTRIES, _pack_run((origin.first,))))
            self._next_index = origin.first.index + 1
        self._current = self._new_segment(head, records)
        self.sync()

    def _new_segment(self, head: SegmentHead, records: Sequence[tuple[RecordType, bytes]] = ()) -> Segment:
        """Head, hard state and `records` are durable before the segment gets its name, because the previous segment,
        which held the hard state, may then be removed."""
        part = segment_name(head.sequence) + PART_SUFFIX
        file = self.spare.take(part, head.size_bytes)
        writer = SegmentWriter(head)
        data = encode_head(head)
        if self._state is not None:
            data += writer.encode(RecordType.HARD_STATE, msgpack.packb(self._state))
        for type, payload in records:
            data += writer.encode(type, payload)
        file.write_at(0, data)
        return Segment(file, writer, part)


def _check_reach(loaded: Loaded, newest: int) -> None:
    """Everything in the unreadable newest snapshot must be in the log."""
    base = loaded.snapshot.head.index if loaded.snapshot else 0
    if base + len(loaded.log.entries) < newest:
        raise Corruption("the log does not contain all of it")


def _check_members(name: str, head: SnapshotHead) -> None:
    try:
        members_of(head)
    except Corruption as error:
        raise damage(name, 0, str(error)) from None


def _slice(data: bytes, offset: int, size_bytes: int) -> bytes:
    return data[offset : offset + size_bytes]


def _pack_run(run: Sequence[Entry]) -> bytes:
    term, index, _, kind = run[0]
    datas = [entry.data for entry in run]
    payload: bytes = msgpack.packb((term, index, datas, kind) if kind else (term, index, datas))
    return payload


def _run_end(entries: Sequence[Entry], start: int, size_bytes_max: int) -> int:
    """The end of the run of entries of one term and kind that fits into one record; at least one entry."""
    term, _, data, kind = entries[start]
    size = len(data)
    stop = start + 1
    while stop < len(entries) and entries[stop].term == term and entries[stop].kind == kind:
        size += len(entries[stop].data) + 5
        if size > size_bytes_max:
            break
        stop += 1
    return stop
