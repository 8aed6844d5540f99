"""The files of a simulated container: a tree in memory, bounded, that no path leads out of."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

CONTAINER_BYTES_MAX: Final = 16 << 20
ALL_BYTES_MAX: Final = 256 << 20
FILES_MAX: Final = 10_000
PATH_BYTES_MAX: Final = 4096
_DIRECTORIES: Final = ("/bin", "/dev", "/etc", "/home", "/proc", "/root", "/tmp", "/usr/bin", "/var/log", "/var/run")


class FileError(Exception):
    """`str` is what a shell prints after the path."""


class Held:
    """The bytes of all containers' files together."""

    def __init__(self) -> None:
        self.bytes = 0


class Entry(NamedTuple):
    """`data` None: a directory. `mode` are the permission bits, `changed_s` the wall clock's seconds."""

    data: bytes | None
    mode: int
    changed_s: float


class Files:
    """Paths are absolute and normal (`resolved`)."""

    def __init__(self, held: Held, now_s: float, given: Mapping[str, bytes], directories: Iterable[str] = ()) -> None:
        self._held = held
        self._entries: dict[str, Entry] = {"/": Entry(None, 0o755, now_s)}
        self._bytes = 0
        self.changed = False
        """Whether a client has written here: what a container began with need not be kept."""
        for path in (*_DIRECTORIES, *directories):
            self.make_directory(path, now_s, parents=True)
        for path, data in given.items():
            self.write(path, data, now_s)
        self.changed = False

    @staticmethod
    def resolved(path: str, cwd: str) -> str:
        """Raises: FileError."""
        if len(path) > PATH_BYTES_MAX or "\0" in path:
            raise FileError("File name too long")
        found = posixpath.normpath(posixpath.join(cwd, path))
        return "/" + found.lstrip("/")

    def entry(self, path: str) -> Entry:
        """Raises: FileError."""
        found = self._entries.get(path)
        if found is None:
            raise FileError("No such file or directory")
        return found

    def read(self, path: str) -> bytes:
        """Raises: FileError."""
        data = self.entry(path).data
        if data is None:
            raise FileError("Is a directory")
        return data

    def is_directory(self, path: str) -> bool:
        found = self._entries.get(path)
        return found is not None and found.data is None

    def exists(self, path: str) -> bool:
        return path in self._entries

    def children(self, path: str) -> list[str]:
        """The names in a directory, sorted. Raises: FileError."""
        if self.entry(path).data is not None:
            raise FileError("Not a directory")
        start = path.rstrip("/") + "/"
        return sorted(each[len(start) :] for each in self._entries if each.startswith(start) and each != "/"
                      and "/" not in each[len(start) :])  # fmt: skip

    def below(self, path: str) -> list[str]:
        """The path and all paths below it, parents first."""
        start = path.rstrip("/") + "/"
        return sorted(each for each in self._entries if each == path or each.startswith(start))

    def write(self, path: str, data: bytes, now_s: float, mode: int = 0o644) -> None:
        """Raises: FileError."""
        old = self._entries.get(path)
        if old is not None and old.data is None:
            raise FileError("Is a directory")
        if not self.is_directory(posixpath.dirname(path)):
            raise FileError("No such file or directory")
        self._grow(len(data) - (len(old.data) if old is not None and old.data is not None else 0), old is None)
        self._entries[path] = Entry(data, old.mode if old is not None else mode, now_s)
        self.changed = True

    def make_directory(self, path: str, now_s: float, *, parents: bool = False, mode: int = 0o755) -> None:
        """Raises: FileError."""
        found = self._entries.get(path)
        if found is not None:
            if parents and found.data is None:
                return
            raise FileError("File exists")
        parent = posixpath.dirname(path)
        if not self.exists(parent) and parents:
            self.make_directory(parent, now_s, parents=True)
        if not self.is_directory(parent):
            raise FileError("Not a directory" if self.exists(parent) else "No such file or directory")
        self._grow(0, True)
        self._entries[path] = Entry(None, mode, now_s)
        self.changed = True

    def set_mode(self, path: str, mode: int) -> None:
        """Raises: FileError."""
        self._entries[path] = self.entry(path)._replace(mode=mode & 0o7777)
        self.changed = True

    def remove(self, path: str) -> None:
        """With all below it. Raises: FileError."""
        self.entry(path)
        if path == "/":
            raise FileError("Device or resource busy")
        for each in self.below(path):
            self._shrink(self._entries.pop(each))
        self.changed = True

    def drop(self) -> None:
        """The container is gone."""
        for each in self._entries.values():
            self._shrink(each)
        self._entries.clear()

    def _grow(self, size: int, new: bool) -> None:
        too_many = new and len(self._entries) >= FILES_MAX
        if too_many or self._bytes + size > CONTAINER_BYTES_MAX or self._held.bytes + size > ALL_BYTES_MAX:
            raise FileError("No space left on device")
        self._bytes += size
        self._held.bytes += size

    def _shrink(self, entry: Entry) -> None:
        size = len(entry.data or b"")
        self._bytes -= size
        self._held.bytes -= size
