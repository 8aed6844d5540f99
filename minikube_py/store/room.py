"""How much room a member's data have, and what is said where it is not enough."""

from __future__ import annotations

import errno

from minikube_py.env import Disk

ADVICE = "free room there; what is committed is safe"
FULL = (errno.ENOSPC, errno.EDQUOT)


def where(disk: Disk) -> str:
    """The folder, for people."""
    return str(getattr(disk, "folder", "its folder"))


def explained(error: OSError, disk: Disk) -> str:
    """The error with the folder; where it is full, with the bytes that are free and what to do."""
    text = error.strerror or str(error)
    if error.errno not in FULL:
        return f"{text} ({where(disk)})"
    try:
        free = f"{disk.free_bytes():,} bytes free"
    except OSError:
        free = "an unknown number of bytes free"
    return f"{text}: {where(disk)} has {free}; {ADVICE}"
