"""A replica's snapshots: when the next is due, how it is taken and received, and which part of the log may be
removed."""

from __future__ import annotations

from typing import Final

from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.raft.message import HardState, LogIndex, SnapshotMeta
from minikube_py.raft.node import Raft
from minikube_py.store.folder import FolderLost, Steps
from minikube_py.store.log_files import LogFiles, SnapshotFile
from minikube_py.store.replica_config import ReplicaConfig
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter

SYNC_BYTES: Final = 1 << 20
ENTRY_BYTES: Final = 64
"""Overhead counted for each entry of the tail in addition to its data."""


class Snapshots:
    def __init__(self, files: LogFiles, limits: ReplicaConfig) -> None:
        self._files = files
        self._limits = limits
        self._written_before = 0
        self._taking = False
        self._incoming: IncomingSnapshot | None = None

    def begin(self, log_bytes: int) -> None:
        """`log_bytes`: how much log already follows the loaded snapshot."""
        self._written_before = self._files.written_bytes - log_bytes

    def due(self, raft: Raft, alone: bool, short_of: int | None) -> bool:
        """`short_of`: the data's size if the disk is full, which only snapshots relieve."""
        if self._taking or not raft.log.applied:
            return False
        newest, limits = self._files.snapshot, self._limits
        if short_of is not None and self._files.reclaimable(short_of):
            return not self.lacks_entry(raft)
        enough_bytes = newest.size_bytes if newest else 0
        if not alone:
            enough_bytes = min(enough_bytes, limits.log_bytes_max)
        written_bytes = self._files.written_bytes - self._written_before
        return written_bytes >= max(limits.snapshot_log_bytes, enough_bytes) or raft.snapshot_wanted

    def lacks_entry(self, raft: Raft) -> bool:
        """The newest snapshot is up to date: the next one needs a new entry."""
        newest = self._files.snapshot
        return newest is not None and newest.head.index >= raft.log.applied

    def take(self, raft: Raft, meta: SnapshotMeta, head: SnapshotHead, state: StateMachine) -> Steps:
        """Writes `state` as of the first step, which `head` and `meta` describe.

        Raises: OSError, after which it is deleted; FolderLost."""
        newest = self._files.snapshot
        if self._taking or not meta.index or (newest is not None and newest.head.index >= meta.index):
            return
        self._taking = True
        try:
            yield from self._take(raft, meta, head, state)
        except OSError as error:
            if not isinstance(error, FolderLost):
                self._files.abandon_snapshot(meta.index)
            raise
        finally:
            self._taking = False

    def _take(self, raft: Raft, meta: SnapshotMeta, head: SnapshotHead, state: StateMachine) -> Steps:
        files = self._files
        written_before = files.written_bytes
        writer = SnapshotWriter(head)
        file = files.write_snapshot(meta.index)
        try:
            file.write_at(0, writer.head_bytes)
            unsynced_bytes = 0
            for records in records_of(state):
                if records:
                    offset = writer.size_bytes
                    file.write_at(offset, writer.chunk(records))
                    unsynced_bytes += writer.size_bytes - offset
                if unsynced_bytes >= SYNC_BYTES:
                    # Sync incrementally: one sync of everything at the end would delay the log's.
                    yield file.sync
                    unsynced_bytes = 0
                yield None
            offset = writer.size_bytes
            file.write_at(offset, writer.end())
            yield file.sync
        finally:
            file.close()
        made = SnapshotFile(head, writer.size_bytes, writer.sha256())
        yield from files.finish_snapshot(made)
        if files.snapshot is made:
            self._written_before = written_before
            raft.snapshot_taken(meta)
            self._forget_log(raft, meta.index)

    def _forget_log(self, raft: Raft, snapshot_index: LogIndex) -> None:
        """Removes the log before the snapshot except a tail for slightly lagging followers."""
        log, limits = raft.log, self._limits
        first = max(log.offset, LogIndex(snapshot_index - limits.tail_entries_max))
        size_bytes = 0
        keep_from = snapshot_index
        for entry in reversed(log.slice(first, snapshot_index) if first < snapshot_index else ()):
            size_bytes += len(entry.data) + ENTRY_BYTES
            if size_bytes > limits.tail_bytes_max:
                break
            keep_from = LogIndex(entry.index - 1)
        raft.compact(keep_from)

    def incoming(self, offer: SnapshotOffer, cluster_id: int) -> IncomingSnapshot:
        """Raises: TransferRefused; OSError."""
        incoming = self._incoming
        if incoming is not None and not incoming.closed:
            if incoming.offer == offer:
                return incoming
            incoming.discard()
        self._incoming = IncomingSnapshot(self._files, offer, cluster_id)
        return self._incoming

    def arrived(self, meta: SnapshotMeta | None) -> IncomingSnapshot | None:
        """The snapshot of `meta` if it has arrived, verified and restored."""
        incoming = self._incoming
        return incoming if incoming is not None and incoming.complete and incoming.offer.meta == meta else None

    def install(self, part: str, file: SnapshotFile, hard_state: HardState | None) -> None:
        """Makes the received snapshot the current state. Raises: OSError."""
        self._incoming = None
        self._files.install_snapshot(part, file, hard_state)
        self._written_before = self._files.written_bytes

    def close(self) -> None:
        if self._incoming is not None:
            self._incoming.close()
