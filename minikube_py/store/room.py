"""Space for a member's data, and the errors when it runs out."""

from __future__ import annotations

import errno
from typing import Final

from minikube_py.env import Disk
from minikube_py.store.retry import Retry

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
NO_FILE: Final = (
    errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.EACCES, errno.EPERM,
)  # fmt: skip
"""Errors of opening that are of the name itself, and not of the process or its disk."""
QUOTA_BYTES: Final = 2 << 30
"""etcd's default (`--quota-backend-bytes`)."""
SEGMENTS_RESERVED: Final = 4
"""Space of this many log segments is reserved for deletes, unless configured otherwise."""
SLACK: Final = 20
"""The alarm clears only when one part in this many is free in addition, so that it does not flap with each write."""


class Room:
    """`look` measures; `shortage` is the reason why writes that need space are refused, "" while there is space.

    `quota_bytes`: limit of the data, 0 for none. `reserve_bytes`: disk space reserved for deletes. `trials`: work that
    finds out whether the disk takes more, whatever number of bytes it says is free."""

    def __init__(self, disk: Disk, quota_bytes: int, reserve_bytes: int) -> None:
        self._disk = disk
        self.quota_bytes = quota_bytes
        self.reserve_bytes = reserve_bytes
        self.free_bytes = 0
        self.shortage = ""
        self.trials: tuple[Retry, ...] = ()

    def look(self, data_bytes: int, held_bytes: int = 0) -> None:
        """`held_bytes` of the disk are preallocated for the log and count as free."""
        quota, reserve = self.quota_bytes, self.reserve_bytes
        enough_quota, enough = quota - quota // SLACK, reserve + reserve // SLACK
        try:
            self.free_bytes = self._disk.free_bytes() + held_bytes
        except OSError:
            # The next write reports the error.
            self.free_bytes = reserve
        if self.shortage:
            quota, reserve = enough_quota, enough
        self.shortage = ""
        if quota and data_bytes >= quota:
            self.shortage = (
                f"the data in {where(self._disk)} take {data_bytes:,} bytes, the quota is {self.quota_bytes:,}: delete "
                "unneeded data, or raise --quota-bytes; space is free after compaction, and the member clears the "
                f"alarm below {enough_quota:,}"
            )
        elif self.free_bytes < reserve:
            self.shortage = (
                f"{where(self._disk)} has {self.free_bytes:,} bytes free, and {self.reserve_bytes:,} are reserved for "
                "deletes: free space on that disk, or delete unneeded data; the member clears the alarm when "
                f"{enough:,} are free"
            )
        elif refused := [each.failure for each in self.trials if each.full]:
            again = "the member tries again within a minute, and clears the alarm once it succeeds"
            self.shortage = f"{refused[0]}; {again}"


def where(disk: Disk) -> str:
    """The folder, for display."""
    return str(getattr(disk, "folder", "its folder"))


def repair(disk: Disk) -> str:
    """What helps a member whose log holds what it cannot apply."""
    folder = where(disk)
    return (
        f"A later version wrote it, or somebody edited a file. If other members run, empty {folder} and start with "
        f"--rejoin. Else `minikube-py store salvage {folder} --to DIR2` writes what was there to a new folder; start "
        "one member on it, and let the others rejoin it with empty folders"
    )


def older_copy(disk: Disk, error: Exception) -> str:
    folder = where(disk)
    return (
        f"{folder} is an older copy, or was truncated: {error}. Empty {folder}, and start with --rejoin; the other "
        "members send it all data"
    )


def explained(error: OSError, disk: Disk, needed_bytes: int = 0) -> str:
    """The error with the folder; if it is full, also the free and required bytes, and what to do."""
    text = error.strerror or str(error)
    if error.errno not in FULL:
        return f"{text} ({where(disk)})"
    return f"{text}: {lacking(error, disk, needed_bytes)}; committed data is safe"


def lacking(error: OSError, disk: Disk, needed_bytes: int = 0) -> str:
    """What a full disk lacks, and what to do. One with free bytes may have no inodes left, and one with both, a quota
    that is used up."""
    try:
        free, files = f"{disk.free_bytes():,} bytes free", disk.free_files()
    except OSError:
        free, files = "an unknown number of bytes free", None
    needed = f", and {needed_bytes:,} bytes are needed" if needed_bytes else ""
    advice = "free space there"
    if error.errno == errno.EDQUOT:
        advice = "raise the quota of its user, group or project there, or remove files that count for it"
    elif files == 0:
        needed, advice = ", but no inodes for new files", "remove files there that nobody needs"
    return f"{where(disk)} has {free}{needed}; {advice}"
