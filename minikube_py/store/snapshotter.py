"""Snapshots of the state machine, taken in slices while the member serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from minikube_py.env import Clock
from minikube_py.mvcc.state import StateMachine
from minikube_py.raft.log import RaftLog
from minikube_py.store.log_files import LogFiles
from minikube_py.wal.segment import SegmentHead
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter

SLICE_S = 0.003
SLICE_BYTES = 1 << 20
PAUSE_S = 0.006
"""A slice of the loop's time, then twice as long a pause: a third of a busy loop at most."""


class Snapshotter:
    """Decides when a snapshot is due, by the bytes of log since the last one, and takes it."""

    def __init__(
        self, files: LogFiles, sync: Callable[[Callable[[], None]], Awaitable[None]], log_bytes: int
    ) -> None:
        self._files = files
        self._sync = sync
        self._log_bytes = log_bytes
        self._head: SegmentHead
        self._taken = 0
        self._last_size_bytes = 0
        self._last_duration_s = 0.0
        self._written_before = 0

    def begin(self, head: SegmentHead, log_bytes: int) -> None:
        """`log_bytes`: what the log holds already beyond the snapshot that was loaded."""
        self._head = head
        self._written_before = -log_bytes

    def due(self) -> bool:
        return self._files.written_bytes - self._written_before >= max(self._log_bytes, self._last_size_bytes)

    async def take(self, state: StateMachine, log: RaftLog, clock: Clock) -> None:
        """Writes the state as of now; returns when it is durable and the log before it is gone. Raises: OSError."""
        start_s = clock.monotonic_s()
        self._written_before = self._files.written_bytes
        index = log.applied
        writer = SnapshotWriter(SnapshotHead(self._head.cluster_id, self._head.member_id, index, log.term(index)))
        slices = state.snapshot()
        file = self._files.write_snapshot(index)
        try:
            file.write_at(0, writer.head_bytes)
            slice_end_s = start_s + SLICE_S
            unsynced_bytes = 0
            for records in slices:
                if records:
                    offset = writer.size_bytes
                    file.write_at(offset, writer.chunk(records))
                    unsynced_bytes += writer.size_bytes - offset
                if unsynced_bytes >= SLICE_BYTES:
                    # Little by little: one sync of all at the end would hold up the log's own.
                    await self._sync(file.sync)
                    unsynced_bytes = 0
                if clock.monotonic_s() >= slice_end_s:
                    await clock.sleep(PAUSE_S)
                    slice_end_s = clock.monotonic_s() + SLICE_S
            offset = writer.size_bytes
            file.write_at(offset, writer.end())
            await self._sync(file.sync)
        finally:
            file.close()
        for _ in self._files.finish_snapshot(index):
            await clock.sleep(PAUSE_S)
        self._taken += 1
        self._last_size_bytes = writer.size_bytes
        self._last_duration_s = clock.monotonic_s() - start_s

    def metrics(self, prefix: str) -> dict[str, float]:
        return {
            prefix + "snapshots_total": self._taken,
            prefix + "snapshot_size_bytes": self._last_size_bytes,
            prefix + "snapshot_duration_seconds": self._last_duration_s,
        }
