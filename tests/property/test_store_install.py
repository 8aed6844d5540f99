"""Power cut at each operation while another member's snapshot is installed: before it all is as it was, after it all is
as the snapshot says, and nothing in between; term and vote are never forgotten.

The log before it is of any shape: shorter than the snapshot, longer with entries that never were committed, torn,
spread over segments, beside an older snapshot of its own."""

from __future__ import annotations

import random

import pytest

from minikube_py.errors import Corruption
from minikube_py.raft.message import Entry, HardState
from minikube_py.sim.disk import SimDisk
from minikube_py.store.log_files import LogFiles, Origin, SnapshotFile
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter

SEGMENT_BYTES = 16 << 10
CLUSTER, OWN, OTHER = 5, 7, 9
CONFIGURATION = [[OWN, OTHER], [], [], [], False]
MEMBERS = [[[id, f"{id:x}", "", "", False, False] for id in (OWN, OTHER)], [], []]


class History:
    """What one member knows to be durable. `snapshot` is the newest one's (index, term); `entries` follow it."""

    def __init__(self) -> None:
        self.state = HardState()
        self.snapshot = (0, 0)
        self.entries: list[tuple[int, int, bytes]] = []

    def last(self) -> tuple[int, int]:
        return self.entries[-1][:2] if self.entries else (self.snapshot[1], self.snapshot[0])


def open_files(disk: SimDisk, seed: int) -> tuple[LogFiles, History]:
    files = LogFiles(disk, random.Random(seed), SEGMENT_BYTES)
    loaded = files.load()
    files.begin(loaded, Origin(CLUSTER, OWN))
    found = History()
    found.state = HardState(*loaded.log.state)
    if loaded.snapshot is not None:
        found.snapshot = (loaded.snapshot.head.index, loaded.snapshot.head.term)
    found.entries = [tuple(entry)[:3] for entry in loaded.log.entries]
    return files, found


def write(files: LogFiles, history: History, entries: list[Entry], state: HardState | None) -> None:
    """Told as durable only when it returns."""
    files.write(entries, state)
    files.sync()
    history.state = state or history.state
    if entries:
        keep = entries[0].index - history.snapshot[0] - 1
        history.entries = history.entries[:keep] + [tuple(entry)[:3] for entry in entries]
    if random.Random(len(history.entries)).random() < 0.5:
        files.witness(history.snapshot[0])
        history.state = history.state._replace(commit=history.snapshot[0])


def grow(files: LogFiles, history: History, rng: random.Random, batches: int, term: int) -> None:
    for _ in range(batches):
        index = history.last()[1] + 1
        if history.entries and rng.random() < 0.2:
            index -= rng.randrange(min(len(history.entries), 5))
            term += 1
        state = HardState(term, OTHER, history.snapshot[0]) if term > history.state.term else None
        entries = [
            Entry(term, index + i, b"%d of %d" % (index + i, term) + bytes(rng.choice((10, 700)))) for i in range(5)
        ]
        write(files, history, entries, state)


def snapshot_bytes(member: int, index: int, term: int) -> tuple[SnapshotFile, bytes]:
    writer = SnapshotWriter(SnapshotHead(CLUSTER, member, index, term, CONFIGURATION, MEMBERS))
    data = writer.head_bytes + writer.chunk([b"state", index]) + writer.end()
    return SnapshotFile(writer.head, writer.size_bytes, writer.sha256()), data


def take_own(files: LogFiles, history: History, rng: random.Random) -> None:
    """A snapshot of its own somewhere in the log."""
    position = rng.randrange(len(history.entries))
    term, index, _ = history.entries[position]
    made, data = snapshot_bytes(OWN, index, term)
    file = files.write_snapshot(index)
    file.write_at(0, data)
    file.sync()
    for sync in files.finish_snapshot(made):
        if sync is not None:
            sync()
    history.snapshot = (index, term)
    history.entries = history.entries[position + 1 :]


def install(files: LogFiles, index: int, term: int, state: HardState) -> None:
    made, data = snapshot_bytes(OTHER, index, term)
    part, file = files.write_incoming()
    for offset in range(0, len(data), 40):
        file.write_at(offset, data[offset : offset + 40])
    file.sync()
    files.install_snapshot(part, made, state)
    files.sync()
    for sync in files.upkeep():
        if sync is not None:
            sync()


def prepared(seed: int) -> tuple[SimDisk, History, int, int]:
    """A disk with a history, and index and term of a snapshot that is to replace it."""
    rng = random.Random(seed)
    disk = SimDisk(rng)
    files, history = open_files(disk, seed)
    grow(files, history, rng, rng.randrange(1, 12), 1)
    if rng.random() < 0.5:
        take_own(files, history, rng)
        grow(files, history, rng, rng.randrange(4), history.state.term)
    term, last = history.last()
    # Beyond the log, or within entries of it that were never committed.
    index = max(history.snapshot[0] + 1, last + rng.choice((-7, -1, 0, 1, 30)))
    return disk, history, index, term + 1


def check(found: History, before: History, after: History, reached: bool, case: str) -> None:
    """`reached`: the member knows that the snapshot and `after.entries` are durable; more entries may be there."""
    installed = found.snapshot == after.snapshot
    assert installed or not reached, f"{case}: an installed snapshot is gone"
    votes = {(after.state.term, after.state.vote)}
    if not reached:
        votes.add((before.state.term, before.state.vote))
        if installed:
            # The snapshot's own term is known with it; nobody was voted for in it.
            votes.add((after.snapshot[1], 0))
    assert (found.state.term, found.state.vote) in votes, f"{case}: term or vote"
    if not installed:
        assert found.snapshot == before.snapshot, case
        assert found.entries[: len(before.entries)] == before.entries, f"{case}: what was durable is gone"
        return
    follow = entries_of(after)
    assert found.entries == follow[: len(found.entries)], f"{case}: entries from before came back to life"
    assert len(found.entries) >= len(after.entries), f"{case}: entries after the snapshot are gone"


@pytest.mark.parametrize("seed", range(25))
def test_a_snapshot_is_installed_in_full_or_not_at_all(seed):
    total = operations_of(seed)
    assert total > 10
    for cut in range(1, total + 1):
        rng = random.Random(f"{seed} {cut}")
        disk, before, index, term = prepared(seed)
        files, found = open_files(disk, seed)
        assert (found.snapshot, found.entries) == (before.snapshot, before.entries)
        after = History()
        after.snapshot, after.state = (index, term), HardState(term + 1, OTHER, index)
        reached = False
        disk.cut_after(cut)
        try:
            install(files, index, term, after.state)
            reached = True
            write(files, after, [Entry(*each) for each in entries_of(after)], None)
        except OSError:
            assert not disk.powered
        disk = disk.crash(rng)
        for turn in range(3):
            files, found = open_files(disk, seed + turn)
            check(found, before, after, reached, f"seed {seed}, cut at {cut} of {total}, start {turn + 1}")
            disk = disk.crash(rng)
            if found.snapshot == after.snapshot:
                # What one start has found, the next finds too.
                reached, after.entries, after.state = True, found.entries, found.state
            else:
                before = found
        files, found = open_files(disk, seed)
        grow(files, found, rng, 9, found.state.term)
        take_own(files, found, rng)
        _, again = open_files(disk.crash(rng), seed)
        assert (again.entries, again.snapshot) == (found.entries, found.snapshot)
        assert again.state[:2] == found.state[:2], "the vote outlives the segment it was written to"


def entries_of(history: History) -> list[tuple[int, int, bytes]]:
    index, term = history.snapshot
    return [(term + 1, index + 1 + i, b"after %d" % i) for i in range(3)]


def operations_of(seed: int) -> int:
    disk, _, index, term = prepared(seed)
    files, _ = open_files(disk, seed)
    before = disk.sequence
    after = History()
    after.snapshot, after.state = (index, term), HardState(term + 1, OTHER, index)
    install(files, index, term, after.state)
    write(files, after, [Entry(*each) for each in entries_of(after)], None)
    return disk.sequence - before


def test_a_log_that_ends_before_its_own_snapshot_is_damage_still():
    """Only another member's snapshot may be ahead of the log."""
    disk = SimDisk()
    files, history = open_files(disk, 1)
    grow(files, history, random.Random(1), 2, 1)
    _, data = snapshot_bytes(OWN, 50, 1)
    file = disk.open("snapshot-00000000000000000050.snap", create=True)
    file.write_at(0, data)
    with pytest.raises(Corruption, match="ends before entry 50"):
        open_files(disk, 1)
