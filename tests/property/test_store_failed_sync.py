"""After a failed sync the page cache holds what the disk may not, and calls it clean: a restart must not believe it.

Source: "Can Applications Recover from fsync Failures?", Rebello and others, 2020.
"""

from __future__ import annotations

import random

import pytest

from minikube_py.raft.message import Entry, HardState, LogIndex, Term
from minikube_py.sim.disk import SimDisk
from minikube_py.store.log_files import LogFiles

SEGMENT_BYTES = 32 << 10


def opened(disk: SimDisk) -> tuple[LogFiles, list[bytes]]:
    files = LogFiles(disk, random.Random(0), SEGMENT_BYTES)
    loaded = files.load()
    files.begin(loaded)
    return files, [entry.data for entry in loaded.log.entries]


def append(files: LogFiles, index: int, rng: random.Random) -> bytes:
    data = rng.randbytes(rng.choice((10, 700, 3000)))
    files.write([Entry(Term(1), LogIndex(index), data)], HardState(Term(1)) if rng.random() < 0.3 else None)
    files.sync()
    files.witness(LogIndex(index))
    return data


@pytest.mark.parametrize("seed", range(100))
def test_what_a_start_found_outlives_a_power_cut_also_after_a_failed_sync(seed):
    rng = random.Random(seed)
    disk = SimDisk(random.Random(seed))
    files, _ = opened(disk)
    kept: list[bytes] = []
    for _ in range(4):
        disk.fail_sync_after(rng.randrange(6))
        try:
            while True:
                kept.append(append(files, len(kept) + 1, rng))
        except OSError:
            # The process ends over it, and is started again on a machine that went on.
            disk = disk.killed()
        files, found = opened(disk)
        assert found[: len(kept)] == kept
        # From here on they count: they may have been told to a leader as durable.
        kept = found
        if rng.random() < 0.7:
            kept.append(append(files, len(kept) + 1, rng))
        if rng.random() < 0.7:
            disk = disk.crash(rng)
            files, found = opened(disk)
            assert found == kept
