"""The files of a simulated container: a bounded tree in memory that no path can escape."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

CONTAINER_BYTES_MAX: Final = 16 << 20
ALL_BYTES_MAX: Final = 256 << 20
FILES_MAX: Final = 10_000
PATH_BYTES_MAX: Final = 4096
_DIRECTORIES: Final = ("/bin", "/dev", "/etc", "/home", "/proc", "/root", "/tmp", "/usr/bin", "/var/log", "/var/run")


class FileError(Exception):
    """`str` is the shell's message after the path."""


class Held:
    """Total bytes of all containers' files."""

    def __init__(self) -> None:
        self.bytes = 0


class Entry:
    """`children` None: a file. `mode` are the permission bits, `changed_s` the wall clock's seconds."""

    __slots__ = ("changed_s", "children", "data", "mode")

    def __init__(
        self, mode: int, changed_s: float, data: bytes = b"", children: dict[str, Entry] | None = None
    ) -> None:
        self.data = data
        self.children = children
        self.mode = mode
        self.changed_s = changed_s


class Files:
    """Paths are absolute and normal (`resolved`). `changes` counts what was written or removed."""

    def __init__(self, held: Held, now_s: float, given: Mapping[str, bytes], directories: Iterable[str] = ()) -> None:
        self._held = held
        self._root = Entry(0o755, now_s, children={})
        self._bytes = 0
        self._count = 1
        self.changes = 0
        for path in (*_DIRECTORIES, *directories):
            self.make_directory(path, now_s, parents=True)
        for path, data in given.items():
            self.write(path, data, now_s)

    @staticmethod
    def resolved(path: str, cwd: str) -> str:
        """Raises: FileError."""
        if len(path) > PATH_BYTES_MAX or "\0" in path:
            raise FileError("File name too long")
        found = posixpath.normpath(posixpath.join(cwd, path))
        return "/" + found.lstrip("/")

    def entry(self, path: str) -> Entry:
        """Raises: FileError."""
        found = self._find(path)
        if found is None:
            raise FileError("No such file or directory")
        return found

    def read(self, path: str) -> bytes:
        """Raises: FileError."""
        found = self.entry(path)
        if found.children is not None:
            raise FileError("Is a directory")
        return found.data

    def is_directory(self, path: str) -> bool:
        found = self._find(path)
        return found is not None and found.children is not None

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def children(self, path: str) -> list[str]:
        """The names in a directory, sorted. Raises: FileError."""
        found = self.entry(path)
        if found.children is None:
            raise FileError("Not a directory")
        return sorted(found.children)

    def below(self, path: str) -> list[str]:
        """The path and all paths below it, parents first. Raises: FileError."""
        return [where for where, _ in self.entries(path)]

    def entries(self, path: str) -> Iterator[tuple[str, Entry]]:
        """As `below`, with the nodes. Raises: FileError."""
        waiting = [(path, self.entry(path))]
        while waiting:
            where, entry = waiting.pop()
            yield where, entry
            names = sorted(entry.children or (), reverse=True)
            waiting += [(posixpath.join(where, name), (entry.children or {})[name]) for name in names]

    def write(self, path: str, data: bytes, now_s: float, mode: int = 0o644) -> None:
        """Raises: FileError."""
        old = self._find(path)
        if old is not None and old.children is not None:
            raise FileError("Is a directory")
        parent = self._parent(path)
        self._grow(len(data) - (len(old.data) if old is not None else 0), old is None)
        parent[posixpath.basename(path)] = Entry(old.mode if old is not None else mode, now_s, data)

    def make_directory(self, path: str, now_s: float, *, parents: bool = False, mode: int = 0o755) -> None:
        """Raises: FileError."""
        found = self._find(path)
        if found is not None:
            if parents and found.children is not None:
                return
            raise FileError("File exists")
        if parents and not self.exists(posixpath.dirname(path)):
            self.make_directory(posixpath.dirname(path), now_s, parents=True)
        parent = self._parent(path)
        self._grow(0, True)
        parent[posixpath.basename(path)] = Entry(mode, now_s, children={})

    def remove(self, path: str) -> None:
        """With all below it. Raises: FileError."""
        found = self.entry(path)
        if found is self._root:
            raise FileError("Device or resource busy")
        for _, each in list(self.entries(path)):
            self._grow(-len(each.data), False)
            self._count -= 1
        del self._parent(path)[posixpath.basename(path)]

    def drop(self) -> None:
        """The container is gone."""
        self._held.bytes -= self._bytes
        self._bytes = 0
        self._root = Entry(0o755, 0.0, children={})

    def _find(self, path: str) -> Entry | None:
        found = self._root
        for name in path.split("/"):
            if name:
                below = (found.children or {}).get(name)
                if below is None:
                    return None
                found = below
        return found

    def _parent(self, path: str) -> dict[str, Entry]:
        """What the directory of this path holds. Raises: FileError."""
        found = self.entry(posixpath.dirname(path))
        if found.children is None:
            raise FileError("Not a directory")
        return found.children

    def _grow(self, size: int, new: bool) -> None:
        """Raises: FileError."""
        full = new and self._count >= FILES_MAX
        beyond = max(self._bytes + size - CONTAINER_BYTES_MAX, self._held.bytes + size - ALL_BYTES_MAX)
        if full or (size > 0 and beyond > 0):
            raise FileError("No space left on device")
        self._bytes += size
        self._held.bytes += size
        self._count += new
        self.changes += 1
