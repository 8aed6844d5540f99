"""The data directory: held by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from minikube_py.env import Disk, SystemDisk
from minikube_py.errors import MinikubeError

LOCK_NAME = "lock"


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder durable. Raises: OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Creates the folder and its missing parents, durably. Raises: OSError."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for each in missing:
        sync_folder(each.parent)


def write_whole(disk: Disk, temporary: str, name: str, data: bytes) -> None:
    """Writes `data` to the existing file `temporary` and renames it, durably; until then the previous file remains.
    Raises: OSError."""
    file = disk.open(temporary)
    try:
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, name)
    disk.sync_folder()


class DataDirBusy(MinikubeError):
    """Another process holds the directory; `pid` is None if it is not recorded."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{folder}: in use by {holder}; stop it first, or choose another data directory")
        self.pid = pid


class DataDir:
    """Holds `folder` from construction to `close`; the lock ends with the process.

    Raises: DataDirBusy; MinikubeError if the folder cannot be created or written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            make_folder(folder)
            self._fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MinikubeError(f"{folder}: cannot be used as data directory: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = self._holder()
            os.close(self._fd)
            raise DataDirBusy(folder, pid) from None
        with contextlib.suppress(OSError):
            # The pid is for users; on a full disk it is missing.
            os.ftruncate(self._fd, os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0))

    def disk(self, name: str = "store") -> SystemDisk:
        """A disk of files in a subfolder. Raises: OSError."""
        make_folder(self.folder / name)
        return SystemDisk(self.folder / name)

    def close(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def _holder(self) -> int | None:
        text = os.pread(self._fd, 32, 0).strip()
        return int(text) if text.isdigit() else None

    def __enter__(self) -> DataDir:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
