"""Sends a snapshot from one member to another: the file's bytes in pieces, and a state machine restored from them.

The sender offers its newest snapshot: metadata, size and hash. The receiver requests the bytes from an offset: 0, or
where an earlier transfer of the same file stopped. When complete they are verified and restored in slices, while both
members serve; only then is the SNAPSHOT message stepped, which atomically makes the snapshot the receiver's state.

    source = sender.snapshot_source()                            None: there is none yet
    incoming = receiver.incoming_snapshot(source.offer)
    while incoming.offset < source.offer.size_bytes:
        incoming.write(incoming.offset, source.read(incoming.offset))
    for sync in incoming.finish():
        sync and sync()
    receiver.receive(message._replace(snapshot=source.offer.meta))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from minikube_py.env import File
from minikube_py.errors import Corruption, MinikubeError
from minikube_py.mvcc.snapshot import Loader, Unfit
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.versions import TooNew
from minikube_py.raft.codec import configuration_to_plain
from minikube_py.raft.message import SnapshotMeta
from minikube_py.store.folder import Steps
from minikube_py.store.log_files import LogFiles, SnapshotFile
from minikube_py.store.membership import members_of, meta_of
from minikube_py.wal.snapshot import SnapshotHead, SnapshotReader

CHUNK_BYTES: Final = 256 << 10
SNAPSHOT_BYTES_MAX: Final = 16 << 30
"""No store holds this much in memory; a larger offer is refused before it fills the disk."""
SYNC_BYTES: Final = 4 << 20
"""Received bytes per sync: a single sync at the end would delay the log's for long."""
INCOMING: Final = "the received snapshot"


class SnapshotOffer(NamedTuple):
    """Identifies a snapshot and its file: snapshots of two members at the same index differ in bytes. `sha256` is that
    of the whole file."""

    meta: SnapshotMeta
    size_bytes: int
    sha256: bytes


class TransferRefused(MinikubeError):
    """The bytes are not the announced ones, or arrived unrequested; start again."""


def head_of(cluster_id: int, member_id: int, meta: SnapshotMeta, members: Any) -> SnapshotHead:
    return SnapshotHead(
        cluster_id, member_id, meta.index, meta.term, configuration_to_plain(meta.configuration), members
    )


class SnapshotSource:
    """The newest snapshot, open for reading; a newer one may replace it meanwhile. Call `close` when it is sent."""

    def __init__(self, files: LogFiles) -> None:
        assert files.snapshot is not None, "there is no snapshot"
        head, size_bytes, sha256 = files.snapshot
        self.offer = SnapshotOffer(meta_of(head), size_bytes, sha256)
        self._file = files.open_snapshot()

    def read(self, offset: int, size_bytes: int = CHUNK_BYTES) -> bytes:
        """Empty at the end. Raises: OSError."""
        return self._file.read_at(offset, size_bytes)

    def close(self) -> None:
        self._file.close()


class IncomingSnapshot:
    """The received part of an offered snapshot, in a separate file. `offset`: where the next bytes go. An interrupted
    transfer may continue with the same offer later; another offer replaces it."""

    def __init__(self, files: LogFiles, offer: SnapshotOffer, cluster_id: int) -> None:
        if not 0 < offer.size_bytes <= SNAPSHOT_BYTES_MAX:
            raise TransferRefused(f"a snapshot of {offer.size_bytes} bytes; at most {SNAPSHOT_BYTES_MAX} are accepted")
        self.offer = offer
        self.offset = 0
        self._cluster_id = cluster_id
        self._unsynced_bytes = 0
        self._disk = files.disk
        self._part, file = files.write_incoming()
        self._file: File | None = file
        self._state: StateMachine | None = None
        self._head: SnapshotHead

    @property
    def complete(self) -> bool:
        """Verified and restored."""
        return self._state is not None

    @property
    def closed(self) -> bool:
        return self._file is None

    def write(self, offset: int, data: bytes) -> Callable[[], None] | None:
        """Takes the bytes at `offset`. From time to time returns a sync to run before the next ones.

        Raises: TransferRefused; OSError."""
        if self._file is None or self.complete:
            raise TransferRefused("this transfer has ended")
        if offset != self.offset or not data or offset + len(data) > self.offer.size_bytes:
            raise TransferRefused(
                f"{len(data)} bytes at {offset}; expected are those from {self.offset} to {self.offer.size_bytes}"
            )
        self._file.write_at(offset, data)
        self.offset += len(data)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes < SYNC_BYTES:
            return None
        self._unsynced_bytes = 0
        return self._sync

    def _sync(self) -> None:
        """After a failed sync the disk's content is unknown, and a later one does not repair it: the bytes must be sent
        again. Raises: OSError; TransferRefused."""
        file = self._open()
        try:
            file.sync()
        except OSError:
            self.discard()
            raise

    def finish(self) -> Steps:
        """Verifies all of it and restores the state.

        Raises: TransferRefused, after which it is deleted; OSError, likewise if a sync fails."""
        if self.complete:
            return
        if self._file is None or self.offset != self.offer.size_bytes:
            raise TransferRefused(f"{self.offset} of {self.offer.size_bytes} bytes received")
        yield self._sync
        try:
            reader = SnapshotReader(INCOMING, lambda *place: self._open().read_at(*place))
            loader = Loader(StateMachine())
            for chunk in reader.chunks():
                loader.feed(chunk)
                yield None
            for _ in loader.finish():
                yield None
            self._check(reader)
        except (Corruption, TooNew) as error:
            self.discard()
            wrong = "" if isinstance(error, TooNew | Unfit) else "the received data differs from what was sent: "
            raise TransferRefused(f"{wrong}{error}") from None
        self._head = reader.head
        self._state = loader.state

    def _open(self) -> File:
        """Raises: TransferRefused if it was closed meanwhile."""
        if self._file is None:
            raise TransferRefused("it was replaced by another offer")
        return self._file

    def result(self) -> tuple[str, SnapshotFile, StateMachine]:
        """The snapshot to install and the current name of its file; closes the transfer and hands over the file."""
        assert self._state is not None, "not complete"
        self.close()
        return self._part, SnapshotFile(self._head, self.offer.size_bytes, self.offer.sha256), self._state

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def discard(self) -> None:
        """Closes it and frees its space. Raises: OSError."""
        if self._file is not None:
            self.close()
            self._disk.remove(self._part)

    def _check(self, reader: SnapshotReader) -> None:
        if reader.sha256 != self.offer.sha256:
            raise Corruption("its hash differs from the announced one")
        head = reader.head
        if head.cluster_id != self._cluster_id:
            raise Corruption(f"it is of cluster {head.cluster_id:x}, this is {self._cluster_id:x}")
        if meta_of(head) != self.offer.meta:
            raise Corruption("its index, term or configuration differ from the announced ones")
        members_of(head)

