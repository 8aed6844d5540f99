"""A file of a member's folder that was flipped, cut, zeroed, swapped with another or lost: the next start has all that
was acknowledged, or it refuses; where only the newest snapshot is hit, or what lies before it, nothing is refused."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from disk_damage import DAMAGES, damage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikube_py.errors import Corruption
from minikube_py.raft.message import Entry, HardState
from minikube_py.sim.disk import SimDisk
from minikube_py.store.log_files import LogFiles, SnapshotFile
from minikube_py.wal.segment import segment_sequence
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter, snapshot_index

SEGMENT_BYTES = 16 << 10


def run(steps) -> None:
    for sync in steps:
        if sync is not None:
            sync()


def take_snapshot(files: LogFiles, taken: list[bytes]) -> None:
    """The state is what was written: all entries in their order."""
    head = files._writer.head
    index = len(taken)
    writer = SnapshotWriter(SnapshotHead(head.cluster_id, head.member_id, index, 1))
    file = files.write_snapshot(index)
    file.write_at(0, writer.head_bytes + b"".join(writer.chunk([data]) for data in taken) + writer.end())
    file.sync()
    run(files.finish_snapshot(SnapshotFile(writer.head, writer.size_bytes, writer.sha256())))


def a_folder(seed: int, snapshots: int) -> tuple[SimDisk, list[bytes], list[int]]:
    """The disk, all that was acknowledged, and the indexes of the snapshots that are kept."""
    rng = random.Random(seed)
    disk = SimDisk()
    files = LogFiles(disk, rng, SEGMENT_BYTES)
    files.begin(files.load())
    written: list[bytes] = []
    taken: list[int] = []
    for round in range(snapshots + 1):
        for _ in range(rng.randrange(1, 40)):
            written.append(b"%06d" % len(written) + bytes(rng.choice((10, 900))))
            files.write([Entry(1, len(written), written[-1])], HardState(1, 0, len(written) - 1))
            files.sync()
            files.witness(len(written))
        run(files.upkeep())
        if round < snapshots:
            take_snapshot(files, written)
            taken.append(len(written))
    return disk, written, taken


def found(disk: SimDisk) -> tuple[list[bytes], tuple[str, ...]]:
    def restored(chunks: Iterable[list[Any]]) -> Any:
        return [data for chunk in chunks for data in chunk]

    loaded = LogFiles(disk, random.Random(0), SEGMENT_BYTES).load(restored)
    standing: Any = loaded.state or []
    return standing + [entry.data for entry in loaded.log.entries], loaded.warnings


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 30), st.integers(0, 4), st.sampled_from(DAMAGES), st.integers(0, 20), st.integers(0, 20),
    st.floats(0, 1),
)
def test_damage_to_a_file_loses_nothing_or_is_refused(seed, snapshots, how, first, second, place):
    disk, written, _ = a_folder(seed, snapshots)
    image = disk.image()
    names = sorted(name for name in image if segment_sequence(name) is not None or snapshot_index(name) is not None)
    name = names[first % len(names)]
    damage(image, name, names[second % len(names)], how, int(place * (len(image[name]) - 1)))
    try:
        state, _ = found(SimDisk.from_image(image))
    except Corruption as refusal:
        assert "offset" in str(refusal) or "no log" in str(refusal)
    else:
        # What was lost with all that was written behind it is what nobody can know of.
        newest = bytes(image.get(max(filter(segment_sequence, disk.names())), b""))
        end = int(place * (len(newest) - 1)) + 512 >= len(bytes(disk.image()[max(names)]).rstrip(b"\0"))
        unknowable = (how == "lose" or (how == "zero" and end)) and state == written[: len(state)]
        assert state == written or unknowable, f"{how} {names[first % len(names)]}"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 30), st.integers(1, 4), st.sampled_from(("flip", "cut", "zero", "lose")), st.floats(0, 1))
def test_without_the_newest_snapshot_nothing_is_lost(seed, snapshots, how, place):
    disk, written, _ = a_folder(seed, snapshots)
    image = disk.image()
    newest = max(name for name in image if snapshot_index(name) is not None)
    damage(image, newest, newest, how, int(place * (len(image[newest]) - 1)))
    disk = SimDisk.from_image(image)
    state, warnings = found(disk)
    assert state == written
    harmless = how == "zero" and not any(bytes(image[newest])[int(place * (len(image[newest]) - 1)) :][:512])
    assert harmless or how == "lose" or [newest in warning for warning in warnings] == [True]
    # It goes on, takes snapshots again, and the bad one goes.
    files = LogFiles(disk, random.Random(1), SEGMENT_BYTES)
    files.begin(files.load())
    written.append(b"later")
    files.write([Entry(1, len(written), b"later")], None)
    files.sync()
    take_snapshot(files, written)
    assert found(disk) == (written, ())
    assert sum(snapshot_index(name) is not None for name in disk.names()) <= 2


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 30), st.integers(2, 4), st.sampled_from(("flip", "cut", "zero")), st.integers(0, 9), st.floats(0, 1)
)
def test_what_lies_before_the_newest_snapshot_is_not_needed(seed, snapshots, how, which, place):
    disk, written, taken = a_folder(seed, snapshots)
    image = disk.image()
    loaded = LogFiles(disk, random.Random(0), SEGMENT_BYTES).load()
    heads = loaded.log.segments[: loaded.log.past]
    past = [f"wal-{head.sequence:016d}.log" for head in heads]
    past += [name for name in image if snapshot_index(name) == taken[-2]]
    name = past[which % len(past)]
    damage(image, name, "", how, int(place * (len(image[name]) - 1)))
    state, _ = found(SimDisk.from_image(image))
    assert state == written
