"""A snapshot on its way from one member to another: the file's bytes piece by piece, and a state machine out of them.

The sender offers its newest snapshot: what it is, how long, and its hash. The receiver says from which offset on it
wants the bytes: 0, or where an earlier transfer of that very file broke off. When all are there they are verified and
restored, a slice at a time, while both members serve; only then is the SNAPSHOT message stepped, which makes the
snapshot the receiver's state in one step.

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
from minikube_py.errors import Corruption, InvalidRequest, MinikubeError
from minikube_py.mvcc.snapshot import Loader
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.versions import TooNew
from minikube_py.raft.codec import configuration_from_plain, configuration_to_plain
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import LogIndex, SnapshotMeta, Term
from minikube_py.store.folder import Steps
from minikube_py.store.log_files import LogFiles, SnapshotFile
from minikube_py.wal.snapshot import SnapshotHead, SnapshotReader

CHUNK_BYTES: Final = 256 << 10
SNAPSHOT_BYTES_MAX: Final = 16 << 30
"""No store holds so much in memory; a larger offer is refused before it fills the disk."""
SYNC_BYTES: Final = 4 << 20
"""Received bytes before they are synced: one sync of all at the end would hold up the log's own for long."""
INCOMING: Final = "the snapshot that came in"


class SnapshotOffer(NamedTuple):
    """Which snapshot, and which file of it: members that took a snapshot at the same index wrote different bytes.
    `sha256` is that of the whole file."""

    meta: SnapshotMeta
    size_bytes: int
    sha256: bytes


class TransferRefused(MinikubeError):
    """The bytes are not those that were announced, or come where they were not asked for; begin again."""


def meta_of(head: SnapshotHead) -> SnapshotMeta:
    """Raises: Corruption where the head's configuration is none."""
    if head.configuration is None:
        # From before there could be several: whoever wrote it was alone.
        configuration = Configuration(frozenset((NodeId(head.member_id),)))
    else:
        try:
            configuration = configuration_from_plain(head.configuration)
        except (ValueError, TypeError, InvalidRequest) as error:
            raise Corruption(f"a snapshot's configuration does not read: {error}") from error
    return SnapshotMeta(LogIndex(head.index), Term(head.term), configuration)


def head_of(cluster_id: int, member_id: int, meta: SnapshotMeta, members: Any) -> SnapshotHead:
    return SnapshotHead(
        cluster_id, member_id, meta.index, meta.term, configuration_to_plain(meta.configuration), members
    )


class SnapshotSource:
    """The newest snapshot, open for reading; a newer one may replace it meanwhile. `close` when it is sent."""

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
    """What has come of an offered snapshot, in a file of its own. `offset`: where the next bytes go. A transfer that
    breaks off may go on with the same offer later; one of another offer takes its place."""

    def __init__(self, files: LogFiles, offer: SnapshotOffer, cluster_id: int) -> None:
        if not 0 < offer.size_bytes <= SNAPSHOT_BYTES_MAX:
            raise TransferRefused(f"a snapshot of {offer.size_bytes} bytes; at most {SNAPSHOT_BYTES_MAX} are taken")
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
        """Takes the bytes at `offset`. Returns a sync to run before the next ones, now and then.

        Raises: TransferRefused; OSError."""
        if self._file is None or self.complete:
            raise TransferRefused("this transfer has ended")
        if offset != self.offset or not data or offset + len(data) > self.offer.size_bytes:
            raise TransferRefused(
                f"{len(data)} bytes at {offset}; wanted are those from {self.offset} to {self.offer.size_bytes}"
            )
        self._file.write_at(offset, data)
        self.offset += len(data)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes < SYNC_BYTES:
            return None
        self._unsynced_bytes = 0
        return self._sync

    def _sync(self) -> None:
        """After one that failed nobody knows what is on the disk, and no other one brings it there: what came is to
        come again. Raises: OSError; TransferRefused."""
        file = self._open()
        try:
            file.sync()
        except OSError:
            self.discard()
            raise

    def finish(self) -> Steps:
        """Verifies all of it and restores the state.

        Raises: TransferRefused, after which nothing is left of it; OSError, likewise where a sync fails."""
        if self.complete:
            return
        if self._file is None or self.offset != self.offer.size_bytes:
            raise TransferRefused(f"{self.offset} of {self.offer.size_bytes} bytes have come")
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
            wrong = "" if isinstance(error, TooNew) else "what came is not what was sent: "
            raise TransferRefused(f"{wrong}{error}") from None
        self._head = reader.head
        self._state = loader.state

    def _open(self) -> File:
        """Raises: TransferRefused, where it was closed meanwhile."""
        if self._file is None:
            raise TransferRefused("another offer took its place")
        return self._file

    def result(self) -> tuple[str, SnapshotFile, StateMachine]:
        """To be installed, under which name its file is now; the transfer is closed, and the file another's."""
        assert self._state is not None, "not complete"
        self.close()
        return self._part, SnapshotFile(self._head, self.offer.size_bytes, self.offer.sha256), self._state

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def discard(self) -> None:
        """Closes it and gives its room back. Raises: OSError."""
        if self._file is not None:
            self.close()
            self._disk.remove(self._part)

    def _check(self, reader: SnapshotReader) -> None:
        if reader.sha256 != self.offer.sha256:
            raise Corruption("its hash is not the one that was announced")
        head = reader.head
        if head.cluster_id != self._cluster_id:
            raise Corruption(f"it is of cluster {head.cluster_id:x}, this is {self._cluster_id:x}")
        if meta_of(head) != self.offer.meta:
            raise Corruption("its index, term or configuration are not those that were announced")

