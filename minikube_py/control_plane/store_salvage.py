"""Reads a damaged data folder without changing it, and creates a new one from what is recoverable."""

from __future__ import annotations

import errno
import fcntl
import os
from functools import partial
from pathlib import Path
from typing import Any

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.store_snapshots import ID_BITS
from minikube_py.env import Rng, open_regular
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import HardState, LogIndex, SnapshotMeta, Term
from minikube_py.store.data_dir import LOCK_NAME, DataDir, DataDirBusy
from minikube_py.store.identity import has_log, load_identity
from minikube_py.store.log_files import LogFiles, Origin, SnapshotFile
from minikube_py.store.membership import Member, Membership
from minikube_py.store.room import NO_FILE
from minikube_py.store.salvage import Gap, Salvaged, salvage
from minikube_py.store.snapshot_transfer import head_of
from minikube_py.wal.salvage import Loss
from minikube_py.wal.segment import SEGMENT_BYTES_MAX, segment_sequence
from minikube_py.wal.snapshot import SnapshotWriter

FILES = "store"
ONE, SEVERAL = "member", "members"
"""Where `up` keeps its store: the folder of a lone member, and that of all members' folders."""


def look(folder: Path) -> Salvaged | None:
    """The recoverable content of a data folder that no process holds; None: nothing. Raises: SetupError,
    DataDirBusy."""
    folder = _of_a_member(folder)
    files = folder / FILES if (folder / FILES).is_dir() else folder
    for held in dict.fromkeys((folder, files.parent if files.name == FILES else folder)):
        _check_free(held)
    try:
        unread: dict[str, str] = {}
        found = salvage([each.name for each in sorted(files.iterdir())], partial(_read_if_file, files, unread))
    except OSError as error:
        raise SetupError(f"cannot read {error.filename or files}: {error.strerror}") from error
    if found is not None:
        found.losses[:] = [
            each._replace(what=f"not a file that can be read ({unread[each.file]})") if each.file in unread else each
            for each in found.losses
        ]
    return found


def _of_a_member(folder: Path) -> Path:
    """`folder`, or the member's in it if `up` had `folder` as its data directory.

    Raises: SetupError if it is none, or has several members'."""
    if not folder.is_dir():
        raise SetupError(f"{folder} is not a folder; give the data directory of a store member")
    several = sorted(each for each in (folder / SEVERAL).glob("*") if (each / FILES).is_dir())
    if several:
        raise SetupError(f"{folder} holds a store of several members; name one: {', '.join(map(str, several))}")
    return folder / ONE if (folder / ONE / FILES).is_dir() else folder


def _read_if_file(folder: Path, unread: dict[str, str], name: str) -> bytes:
    """What is no file is as an empty one, and is in `unread` with the reason."""
    try:
        return _read(folder / name)
    except OSError as error:
        # Whoever may not read has lost nothing.
        if error.errno not in NO_FILE or error.errno in (errno.EACCES, errno.EPERM):
            raise
        unread[name] = error.strerror or str(error)
        return b""


def _read(path: Path) -> bytes:
    """Without what a file may have been extended by: of a segment no more than one may have, of others no last hole."""
    segment = segment_sequence(path.name) is not None
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(SEGMENT_BYTES_MAX if segment else _data_bytes(file.fileno()))


def _data_bytes(fd: int) -> int:
    end = 0
    try:
        while end < os.fstat(fd).st_size:
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    os.lseek(fd, 0, os.SEEK_SET)
    return end


def _check_free(folder: Path) -> None:
    """Tests the lock of a running member, opened read-only."""
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(fd, 32, 0).strip()
        raise DataDirBusy(folder, int(text) if text.isdigit() else None) from None
    finally:
        os.close(fd)


def write(salvaged: Salvaged, folder: Path, rng: Rng, *, exact: bool = False) -> tuple[int, int]:
    """Creates in `folder`, which must hold no member, the only member of a new cluster. Returns the ids of cluster and
    member, both new: clients of the old ones may have seen data missing here. `exact`: only the exact state, without
    entries behind a gap.

    Raises: SetupError; DataDirBusy; OSError."""
    held = DataDir(folder)
    try:
        disk = held.disk()
        if has_log(disk) or load_identity(disk) is not None:
            raise SetupError(f"{folder} holds a store member already; name an empty folder")
        cluster_id, member_id = (rng.getrandbits(ID_BITS) or 1 for _ in range(2))
        files = LogFiles(disk, rng)
        files.begin(files.load(), Origin(cluster_id, member_id, joined=True))
        membership = Membership(members=(Member(NodeId(member_id), ""),))
        state = salvaged.exact if exact else salvaged.state
        # The terms of a new cluster begin at 1.
        index, term = LogIndex(max(1, salvaged.applied if exact else salvaged.reached)), Term(1)
        meta = SnapshotMeta(index, term, membership.configuration())
        writer = SnapshotWriter(head_of(cluster_id, member_id, meta, membership.to_plain()))
        try:
            part, file = files.write_incoming()
            file.write_at(0, writer.head_bytes)
            for records in filter(None, records_of(state)):
                file.write_at(writer.size_bytes, writer.chunk(records))
            file.write_at(writer.size_bytes, writer.end())
            file.sync()
            file.close()
            made = SnapshotFile(writer.head, writer.size_bytes, writer.sha256())
            files.install_snapshot(part, made, HardState(term, commit=index))
            files.sync()
        finally:
            files.close()
        return cluster_id, member_id
    finally:
        held.close()


def report(salvaged: Salvaged) -> dict[str, Any]:
    """JSON-able."""
    return {
        "whole": salvaged.whole,
        "revision": salvaged.state.revision,
        "known_revision": max(salvaged.known_revision, salvaged.state.revision),
        "keys": len(salvaged.state.index.current),
        "snapshot": salvaged.base,
        "applied": salvaged.reached,
        "exact": {
            "revision": salvaged.exact.revision,
            "keys": len(salvaged.exact.index.current),
            "applied": salvaged.applied,
        },
        "unconfirmed": salvaged.unconfirmed,
        "gaps": [{"entries": (gap.first, gap.last), "revisions": _made_by(gap)} for gap in salvaged.gaps],
        "assumed_entries": salvaged.assumed,
        "doubtful_entries": salvaged.doubtful,
        "users_lost": salvaged.users_lost,
        "users_unsure": salvaged.users_unsure,
        "unsure_changes_of_users": salvaged.unsure_changes,
        "torn_bytes": salvaged.log.torn_bytes,
        "losses": [_loss(salvaged, loss) for loss in salvaged.losses],
    }


def _made_by(gap: Gap) -> tuple[int, int] | None:
    return (gap.after + 1, gap.revision) if gap.revision else None


def _loss(salvaged: Salvaged, loss: Loss) -> dict[str, Any]:
    return {
        "file": loss.file,
        "offset": loss.offset,
        "size_bytes": loss.size_bytes,
        "what": loss.what,
        "entries": (loss.first, loss.last) if loss.first else None,
        "revisions": salvaged.revisions(loss),
        "needed": salvaged.needed(loss),
    }


def lines(salvaged: Salvaged) -> list[str]:
    """For display."""
    found = [_lost(salvaged, loss) for loss in salvaged.losses]
    for gap in salvaged.gaps:
        made = _made_by(gap)
        revisions = f"{_span('revision', made[0], made[1])}" if made else f"all revisions after {gap.after:,}"
        found.append(f"missing: {_span('entr', gap.first, gap.last)} of the log, {revisions}")
    if salvaged.partial:
        found.append(f"uncertain: {salvaged.partial} is broken: keys may be missing, old, or deleted since")
    for first, last in salvaged.assumed:
        found.append(
            f"assumed: {_span('entr', first, last)}: after a gap, conditions and sessions were evaluated on known data"
        )
    if salvaged.users_lost or salvaged.users_unsure or salvaged.unsure_changes:
        found.append(_users(salvaged))
    for first, last in salvaged.doubtful:
        found.append(f"left out: {_span('entr', first, last)}: the lost part after them may have replaced them")
    if salvaged.log.torn_bytes:
        found.append(f"torn: {salvaged.log.torn_bytes:,} bytes of a last write that was never acknowledged")
    if salvaged.unconfirmed:
        found.append(
            f"unconfirmed: the last {salvaged.unconfirmed:,} entries were durable here; with other members, it is "
            "unknown whether they were acknowledged"
        )
    base = f"the snapshot of entry {salvaged.base:,}" if salvaged.base else "the beginning"
    exact = salvaged.exact
    held = f"revision {exact.revision:,} with {len(exact.index.current):,} keys, from {base} and the log up to entry "
    if salvaged.state is exact:
        return [*found, f"{'all' if salvaged.whole else 'salvaged'}: {held}{salvaged.applied:,}"]
    state = salvaged.state
    found.append(f"exact: {held}{salvaged.applied:,}: a state that existed (--exact writes only this one)")
    had = f"revision {state.revision:,} with {len(state.index.current):,} keys"
    return [*found, f"recovered: {had}, up to entry {salvaged.reached:,}"]


def _users(salvaged: Salvaged) -> str:
    auth = salvaged.state.auth
    changes = ", ".join(_span("entr", first, last) for first, last in salvaged.unsure_changes)
    why = "their record is lost" if salvaged.users_lost else "they may have changed within a gap"
    why += f", and what {changes} did to them is unknown" if changes else ""
    return (
        f"USERS AND ROLES: {why}: authentication is {'on' if auth.enabled else 'OFF'}, with {len(auth.users)} users "
        f"and {len(auth.roles)} roles: before a client of etcd's API reaches the store, check them (`etcdctl auth "
        "status`, `user list`, `role list`), create what is missing and run `etcdctl auth enable`"
    )


def _lost(salvaged: Salvaged, loss: Loss) -> str:
    where = f"{loss.file} at offset {loss.offset:,}: {loss.size_bytes:,} bytes: " if loss.file else ""
    held = ""
    if loss.first and not loss.harmless:
        entries = f"entries from {loss.first:,} on" if loss.last is None else _span("entr", loss.first, loss.last)
        first, last = salvaged.revisions(loss)
        revisions = f", {_span('revision', first, last)}" if last else ""
        held = f": it may have held {entries}{revisions}"
    needless = "" if salvaged.needed(loss) else " (its content is held elsewhere)"
    return f"lost: {where}{loss.what}{held}{needless}"


def _span(what: str, first: int, last: int) -> str:
    one, many = ("entry", "entries") if what == "entr" else (what, f"{what}s")
    if first > last:
        return f"no {one}"
    return f"{one} {first:,}" if first == last else f"{many} {first:,} to {last:,}"
