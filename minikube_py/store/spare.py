"""The next segment's file, prepared ahead of time, so that a full disk still has space for it.

Ready means durable zeros, so that appends change no file metadata and sync faster. It reuses an obsolete segment if
there is one, and survives a restart: its space is never freed."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from minikube_py.env import Disk, File
from minikube_py.store.folder import Steps, sync_folder

SPARE_NAME: Final = "spare.part"
ZERO_SLICE: Final = bytes(1 << 20)


class Spare:
    """One at a time, each of `size_bytes`."""

    def __init__(self, disk: Disk, size_bytes: int) -> None:
        self._disk = disk
        self._size_bytes = size_bytes
        self._file: File | None = None
        self._ready = False
        self._recycled: str | None = None

    @property
    def begun(self) -> bool:
        """It is ready, or being prepared."""
        return self._file is not None

    @property
    def held_bytes(self) -> int:
        """Disk space preallocated for the log."""
        return self._size_bytes * (self.begun + (self._recycled is not None))

    def adopt(self) -> bool:
        """Takes over the spare of an earlier run. False: the file of that name is not usable."""
        if SPARE_NAME not in self._disk.names():
            return False
        try:
            file = self._disk.open(SPARE_NAME)
        except OSError:
            return False
        try:
            whole = bool(file.read_at(self._size_bytes - 1, 1))
        finally:
            file.close()
        if whole:
            self._recycled = SPARE_NAME
        return whole

    def offer(self, name: str) -> bool:
        """Offers an obsolete segment. False: it is not used."""
        if self._recycled is not None:
            return False
        self._recycled = name
        return True

    def prepare(self) -> Steps:
        """Prepares it in slices; yields a sync to run before continuing. Raises: OSError, after which there is none,
        and it may be started again."""
        if self._file is not None:
            return
        yield from self._open()
        spare = self._file
        assert spare is not None
        try:
            spare.allocate(self._size_bytes)
            for offset in range(0, self._size_bytes, len(ZERO_SLICE)):
                spare.write_at(offset, ZERO_SLICE[: self._size_bytes - offset])
                yield spare.sync
                if self._file is not spare:
                    # The log was faster and took a fresh file; this one is no longer the spare.
                    spare.close()
                    return
        except OSError:
            self._drop()
            spare.close()
            raise
        self._ready = True

    def take(self, name: str, size_bytes: int) -> File:
        """A file of zeros, now named `name`, not yet durable. It has `size_bytes`, or the size of a spare.

        Raises: OSError if there is no space for one."""
        if self._ready:
            file, self._file, self._ready = self._file, None, False
            assert file is not None
            self._disk.rename(SPARE_NAME, name)
            return file
        self._drop()
        try:
            return self._fresh(name, size_bytes)
        except OSError:
            if self._recycled is None:
                raise
            # The disk is full: use the space of an obsolete segment.
            return self._zeroed(name)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _drop(self) -> None:
        """A file that is not ready loses its name and space at once; the code that prepares it, and may be syncing it,
        closes it."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.truncate(0)
            self._disk.remove(SPARE_NAME)

    def _open(self) -> Steps:
        name, self._recycled = self._recycled, None
        if name is None and SPARE_NAME not in self._disk.names():
            self._file = self._disk.open(SPARE_NAME, create=True)
            return
        if name not in (None, SPARE_NAME):
            self._disk.rename(name, SPARE_NAME)
            # A crash must not bring the old name back with the new zeros.
            yield partial(sync_folder, self._disk)
        self._file = self._disk.open(SPARE_NAME)
        self._file.truncate(self._size_bytes)

    def _fresh(self, name: str, size_bytes: int) -> File:
        file = self._disk.open(name, create=True)
        try:
            file.allocate(size_bytes)
        except OSError:
            file.close()
            self._disk.remove(name)
            raise
        return file

    def _zeroed(self, name: str) -> File:
        for sync in self._open():
            if sync is not None:
                sync()
        file, self._file = self._file, None
        assert file is not None
        for offset in range(0, self._size_bytes, len(ZERO_SLICE)):
            file.write_at(offset, ZERO_SLICE[: self._size_bytes - offset])
        self._disk.rename(SPARE_NAME, name)
        return file
