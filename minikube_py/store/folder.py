"""What all files of a member's folder share: names that last, and work on them in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator

from minikube_py.env import Disk

Steps = Generator[Callable[[], None] | None, None, None]
"""Work that can be left and taken up again: each item is a sync to run before going on, which another thread may do, or
None where a slice of work was done. Where a sync raises, the OSError is thrown in."""


class FolderLost(OSError):
    """The folder could not be synced. Whatever was named there may be gone, though a later sync succeeds."""


def sync_folder(disk: Disk) -> None:
    """All names are as durable as this. Raises: FolderLost."""
    try:
        disk.sync_folder()
    except OSError as error:
        raise FolderLost(error.errno, error.strerror) from error
