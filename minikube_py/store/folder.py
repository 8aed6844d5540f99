"""What all files of a member's folder share: durable names, and work on them in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator

from minikube_py.env import Disk

Steps = Generator[Callable[[], None] | None, None, None]
"""Resumable work: each item is a sync to run before continuing, possibly in another thread, or None after a slice of
work. If a sync raises, the OSError is thrown in."""


class FolderLost(OSError):
    """The folder could not be synced. Names in it may be lost, even if a later sync succeeds."""


def sync_folder(disk: Disk) -> None:
    """Makes all names in it durable. Raises: FolderLost."""
    try:
        disk.sync_folder()
    except OSError as error:
        raise FolderLost(error.errno, error.strerror) from error
