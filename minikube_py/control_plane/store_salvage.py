"""A damaged data folder, read without touching it, and a new one made of what can be had."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.store_snapshots import ID_BITS
from minikube_py.env import Rng
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import HardState, LogIndex, SnapshotMeta, Term
from minikube_py.store.data_dir import LOCK_NAME, DataDir, DataDirBusy
from minikube_py.store.identity import has_log, load_identity
from minikube_py.store.log_files import LogFiles, Origin, SnapshotFile
from minikube_py.store.membership import Member, Membership
from minikube_py.store.salvage import Salvaged, salvage
from minikube_py.store.snapshot_transfer import head_of
from minikube_py.wal.salvage import Loss
from minikube_py.wal.snapshot import SnapshotWriter

FILES = "store"


def look(folder: Path) -> Salvaged | None:
    """What can be had from a data folder that no process holds; None: nothing. Raises: SetupError, DataDirBusy."""
    files = folder / FILES if (folder / FILES).is_dir() else folder
    if not files.is_dir():
        raise SetupError(f"{folder} is no folder; name the data directory of a store member")
    _check_free(folder)
    try:
        names = [each.name for each in sorted(files.iterdir()) if each.is_file()]
        return salvage(names, lambda name: (files / name).read_bytes())
    except OSError as error:
        raise SetupError(f"cannot read {error.filename or files}: {error.strerror}") from error


def _check_free(folder: Path) -> None:
    """By the lock that a running member holds; it is opened to be read alone."""
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


def write(salvaged: Salvaged, folder: Path, rng: Rng) -> tuple[int, int]:
    """Makes `folder`, which must hold no member, that of the only member of a new cluster. Returns the ids of cluster
    and member: both new, for those who know the old ones have seen what may be missing here.

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
        index, term = LogIndex(max(1, salvaged.applied)), Term(salvaged.term)
        meta = SnapshotMeta(index, term, membership.configuration())
        writer = SnapshotWriter(head_of(cluster_id, member_id, meta, membership.to_plain()))
        try:
            file = files.write_incoming()
            file.write_at(0, writer.head_bytes)
            for records in salvaged.state.snapshot():
                if records:
                    file.write_at(writer.size_bytes, writer.chunk(records))
            file.write_at(writer.size_bytes, writer.end())
            file.sync()
            file.close()
            made = SnapshotFile(writer.head, writer.size_bytes, writer.sha256())
            files.install_snapshot(made, HardState(term, commit=index))
            files.sync()
        finally:
            files.close()
        return cluster_id, member_id
    finally:
        held.close()


def report(salvaged: Salvaged) -> dict[str, Any]:
    """JSON-able."""
    state = salvaged.state
    return {
        "whole": salvaged.whole,
        "exact": salvaged.exact,
        "revision": state.revision,
        "known_revision": max(salvaged.known_revision, state.revision),
        "keys": len(state.index.current),
        "snapshot": salvaged.base,
        "applied": salvaged.applied,
        "unconfirmed": salvaged.unconfirmed,
        "missing_entries": salvaged.missing,
        "left_out_entries": salvaged.left_out,
        "torn_bytes": salvaged.log.torn_bytes,
        "losses": [{**loss._asdict(), "needed": _needed(salvaged, loss)} for loss in salvaged.losses],
    }


def lines(salvaged: Salvaged) -> list[str]:
    """For people."""
    state, found = salvaged.state, []
    for loss in salvaged.losses:
        where = f"{loss.file} at offset {loss.offset:,}: {loss.size_bytes:,} bytes: " if loss.file else ""
        needless = "" if _needed(salvaged, loss) else " (what it held is elsewhere)"
        found.append(f"lost: {where}{loss.what}{needless}")
    for first, last in salvaged.missing:
        found.append(f"missing: entries {first:,} to {last:,} of the log")
    for first, last in salvaged.left_out:
        found.append(f"left out: entries {first:,} to {last:,}, which read, and follow a gap")
    if salvaged.known_revision > state.revision:
        found.append(f"missing: revisions {state.revision + 1:,} to {salvaged.known_revision:,} at least")
    elif salvaged.missing or salvaged.left_out:
        found.append(f"missing: all revisions after {state.revision:,}")
    if not salvaged.exact:
        what = "keys of its broken parts may be missing, old, or deleted since"
        found.append(f"uncertain: the newest snapshot is broken: {what}")
    if salvaged.log.torn_bytes:
        found.append(f"torn: {salvaged.log.torn_bytes:,} bytes of a last write that was never acknowledged")
    if salvaged.unconfirmed:
        found.append(
            f"unconfirmed: the last {salvaged.unconfirmed:,} entries were durable here; with other members, nobody "
            "knows whether they were acknowledged"
        )
    base = f"the snapshot of entry {salvaged.base:,}" if salvaged.base else "the beginning"
    found.append(
        f"{'all' if salvaged.whole else 'salvaged'}: revision {state.revision:,} with {len(state.index.current):,} "
        f"keys, from {base} and the log up to entry {salvaged.applied:,}"
    )
    return found


def _needed(salvaged: Salvaged, loss: Loss) -> bool:
    if loss.file.startswith("snapshot-"):
        return not salvaged.exact
    return salvaged.needed(loss)
