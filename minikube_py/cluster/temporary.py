"""Temporary folders, removed at the latest at the end of their process, or by a later one.

A process that a signal has ended, as SIGTERM by default, removes nothing: the next process that needs such a folder in
the same place removes those that are ours beyond doubt."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from minikube_py.cluster.owner import Owner

USUAL: Final = "/tmp"
IN_MEMORY: Final = "/dev/shm"
"""To make and remove files there waits for no disk."""
PREFIX: Final = "minikube-py-cluster-"
NAME: Final = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
"""As tempfile.mkdtemp forms it."""
OWNER: Final = "owner"
"""A file with the process id, locked (flock) as long as the process lives."""
PID: Final = re.compile(rb"[1-9][0-9]{0,9}\n")


class TemporaryFolder:
    """`path` exists until `clear`. Raises: OSError."""

    def __init__(self) -> None:
        where = place()
        if where not in _looked_at:
            _looked_at.add(where)
            remove_abandoned(where)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
        file = self.path / OWNER
        try:
            # Also a reserve for the removal: a start may fail for want of descriptors.
            self._held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            self.path.rmdir()
            raise
        with suppress(OSError):
            # Without its mark, nobody else removes it.
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._held, f"{os.getpid()}\n".encode())
        self._owner = Owner()
        # At exit they must be known without what uses them: whoever was interrupted in a step may have dropped it.
        _standing[self] = None

    def clear(self) -> None:
        """Idempotent. Nothing in a child forked meanwhile, where it is the parent's."""
        if self._owner.is_here and self in _standing:
            del _standing[self]
            os.close(self._held)
            _remove(self.path)


_looked_at: set[str] = set()
_standing: dict[TemporaryFolder, None] = {}


def place() -> str:
    """In memory, unless the user has chosen another."""
    usual = tempfile.gettempdir()
    return IN_MEMORY if usual == USUAL and os.access(IN_MEMORY, os.W_OK | os.X_OK) else usual


def remove_abandoned(where: str) -> None:
    """Removes this user's folders whose process is gone."""
    with suppress(OSError):
        for name in os.listdir(where):
            if NAME.fullmatch(name):
                with suppress(OSError):
                    _remove_abandoned(Path(where, name))


def _remove_abandoned(folder: Path) -> None:
    """Raises: OSError if its owner lives, or it has none."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != 0o700 or found.st_uid != os.geteuid():
        return
    held = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        told = os.read(held, 32)
        if PID.fullmatch(told) and not _lives(int(told)):
            _remove(folder)
    finally:
        os.close(held)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _remove(folder: Path) -> None:
    """As far as it is possible, by one descriptor at a time: shutil.rmtree needs two for each level."""
    with suppress(OSError):
        for name in os.listdir(folder):
            each = folder / name
            if each.is_dir() and not each.is_symlink():
                _remove(each)
            else:
                with suppress(OSError):
                    each.unlink()
        folder.rmdir()


def _at_exit() -> None:
    for each in list(_standing):
        each.clear()


# Before any cluster's thread registers its own end, and so called after it.
atexit.register(_at_exit)
