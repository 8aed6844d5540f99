"""What a store member may take: of a disk, and of history."""

from __future__ import annotations

from dataclasses import replace

from minikube_py.control_plane.errors import SetupError
from minikube_py.env import Disk
from minikube_py.store.identity import has_log
from minikube_py.store.log_files import FIRST_SEGMENT_BYTES
from minikube_py.store.member_config import MemberConfig
from minikube_py.store.room import where
from minikube_py.wal.segment import SEGMENT_BYTES


def require_room(disk: Disk, reserve_bytes: int, members: int = 1) -> None:
    """Refuses a new store that would raise the alarm NOSPACE at once, and with three members also block the others. An
    existing one starts without space, so that users can delete. `members`: that begin on this disk, of which each
    counts as free what it has made ahead for its own log, not what the others have. Raises: SetupError."""
    log_bytes = members * FIRST_SEGMENT_BYTES + (members - 1) * SEGMENT_BYTES
    free_bytes, needed_bytes = disk.free_bytes(), log_bytes + reserve_bytes
    if free_bytes < needed_bytes and not has_log(disk):
        raise SetupError(
            f"{where(disk)} has {free_bytes:,} bytes free, and a new store needs {needed_bytes:,}: "
            f"{log_bytes:,} for {'its log' if members == 1 else f'{members} logs'}, and {reserve_bytes:,} reserved for "
            "deletes. Free space "
            "there, give a folder on another disk with --data-dir, or reserve less with --reserve-bytes"
        )
    if disk.free_files() == 0 and not has_log(disk):
        raise SetupError(
            f"{where(disk)} has no inodes for new files, and a new store needs some: remove files there that nobody "
            "needs, or give a folder on another disk with --data-dir"
        )


def member_config(quota_bytes: int, reserve_bytes: int, retain_s: float | None) -> MemberConfig:
    """Of a member with a process of its own. `retain_s`: how long history is kept, whatever its size; 0: forever; None:
    the default."""
    config = MemberConfig(own_gc=True, quota_bytes=quota_bytes, reserve_bytes=reserve_bytes)
    return config if retain_s is None else replace(config, retain_s=retain_s, retain_bytes=0)
