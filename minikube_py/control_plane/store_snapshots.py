"""Snapshot files outside a running store: verified completely, and restored into the folder of a new member."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from minikube_py.control_plane.errors import SetupError
from minikube_py.env import Rng
from minikube_py.errors import Corruption
from minikube_py.mvcc.snapshot import restore as state_of
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import HardState, LogIndex, SnapshotMeta, Term
from minikube_py.store.data_dir import DataDir
from minikube_py.store.identity import has_log, load_identity
from minikube_py.store.log_files import LogFiles, Origin, SnapshotFile
from minikube_py.store.membership import NO_ID, Member, Membership, members_of
from minikube_py.store.snapshot_transfer import head_of
from minikube_py.wal.snapshot import SnapshotHead, SnapshotReader, SnapshotWriter

ID_BITS = 63


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The content of a complete snapshot. `hash`: that of `minikube-py store hash` at `revision`."""

    head: SnapshotHead
    membership: Membership
    size_bytes: int
    sha256: bytes
    revision: int
    compact_revision: int
    keys: int
    leases: int
    hash: int


@dataclass(frozen=True, slots=True)
class NewMember:
    """The identity of a restored store: the first member of a new cluster, and those that may join it later."""

    name: str = ""
    peer: str = ""
    client: str = ""
    expected: tuple[Member, ...] = ()


@contextmanager
def opened(path: Path) -> Iterator[SnapshotReader]:
    """Raises: SetupError if the file cannot be read, Corruption if it is not a snapshot."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SetupError(f"cannot read the snapshot {path}: {error.strerror}; name a file that exists") from error
    try:
        yield SnapshotReader(str(path), lambda offset, size_bytes: os.pread(fd, size_bytes, offset))
    except IsADirectoryError:
        raise SetupError(f"{path} is a folder; name a snapshot file") from None
    except Corruption as error:
        raise Corruption(f"{error}; this file cannot be used, name another snapshot") from error
    finally:
        os.close(fd)


def verify(path: Path) -> SnapshotReport:
    """Reads all of it, and builds the state as a member would. Raises: SetupError, Corruption."""
    with opened(path) as reader:
        state = state_of(reader.chunks())
        head = reader.head
        return SnapshotReport(
            head,
            members_of(head),
            path.stat().st_size,
            reader.sha256,
            state.revision,
            state.compact_revision,
            len(state.index.current),
            len(state.lessor.by_id),
            state.hash(state.revision),
        )


def restore(path: Path, folder: Path, new: NewMember, rng: Rng) -> tuple[int, int]:
    """Creates in `folder`, which must hold no member, a member of a new cluster that begins with the snapshot. Returns
    the ids of cluster and member, both new, so that it is not mistaken for the old cluster.

    Raises: SetupError, Corruption; DataDirBusy; OSError."""
    verify(path)
    held = DataDir(folder)
    try:
        disk = held.disk()
        if has_log(disk) or load_identity(disk) is not None:
            raise SetupError(f"{folder} holds a store member already; give an empty folder, or remove its data")
        cluster_id, member_id = (rng.getrandbits(ID_BITS) or 1 for _ in range(2))
        files = LogFiles(disk, rng)
        # Like a member that joins: it begins with the snapshot, and nothing counts before that is installed.
        files.begin(files.load(), Origin(cluster_id, member_id, joined=True))
        try:
            _install(path, files, cluster_id, member_id, new)
        finally:
            files.close()
        return cluster_id, member_id
    finally:
        held.close()


def _install(path: Path, files: LogFiles, cluster_id: int, member_id: int, new: NewMember) -> None:
    own = Member(NodeId(member_id), new.name, new.peer, new.client)
    membership = Membership(members=(own,), expected=new.expected)
    with opened(path) as reader:
        # The terms of a new cluster begin at 1.
        index, term = LogIndex(reader.head.index), Term(1)
        meta = SnapshotMeta(index, term, membership.configuration())
        writer = SnapshotWriter(head_of(cluster_id, member_id, meta, membership.to_plain()))
        part, file = files.write_incoming()
        try:
            file.write_at(0, writer.head_bytes)
            for records in reader.chunks():
                file.write_at(writer.size_bytes, writer.chunk(records))
            file.write_at(writer.size_bytes, writer.end())
            file.sync()
        finally:
            file.close()
    made = SnapshotFile(writer.head, writer.size_bytes, writer.sha256())
    files.install_snapshot(part, made, HardState(term, commit=index))
    files.sync()


def expected_members(initial: tuple[tuple[str, str], ...], name: str) -> tuple[Member, ...]:
    """The members of an `--initial-cluster` that may join the restored one later."""
    return tuple(Member(NO_ID, other, peer) for other, peer in sorted(initial) if other != name)
