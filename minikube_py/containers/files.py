"""The files of a simulated container: a bounded tree in memory that no path can escape."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

CONTAINER_BYTES_MAX: Final = 16 << 20
ALL_BYTES_MAX: Final = 256 << 20
FILES_MAX: Final = 10_000
ALL_FILES_MAX: Final = 200_000
PATH_BYTES_MAX: Final = 4096
NAME_BYTES_MAX: Final = 255
_DIRECTORIES: Final = ("/bin", "/dev", "/etc", "/home", "/proc", "/root", "/tmp", "/usr/bin", "/var/log", "/var/run")


class FileError(Exception):
    """`str` is the shell's message after the path."""


class Held:
    """Total bytes and number of all containers' files."""

    def __init__(self) -> None:
        self.bytes = 0
        self.count = 0


class Entry:
    """`children` None: a file. `mode` are the permission bits, `changed_s` the wall clock's seconds."""

    __slots__ = ("changed_s", "children", "data", "mode")

    def __init__(
        self, mode: int, changed_s: float, data: bytes | bytearray = b"", children: dict[str, Entry] | None = None
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
        held.count += 1
        try:
            for path in (*_DIRECTORIES, *directories):
                self.make_directory(path, now_s, parents=True)
            for path, data in given.items():
                # What is mounted there, or below, is in its place.
                if not self.is_directory(path):
                    self.write(path, data, now_s)
        except FileError:
            self.drop()
            raise

    @staticmethod
    def resolved(path: str, cwd: str) -> str:
        """Raises: FileError."""
        if max(len(path), len(cwd)) <= PATH_BYTES_MAX and "\0" not in path:
            found = "/" + posixpath.normpath(posixpath.join(cwd, path)).lstrip("/")
            if len(found) <= PATH_BYTES_MAX:
                return found
        raise FileError("File name too long")

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
        return bytes(found.data)

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
        waiting = [iter([(path, self.entry(path))])]
        while waiting:
            for where, entry in waiting[-1]:
                yield where, entry
                if entry.children:
                    waiting.append(self._inside(where, entry.children))
                    break
            else:
                waiting.pop()

    @staticmethod
    def _inside(path: str, children: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
        for name in sorted(children):
            # Others may remove it while an archive is written.
            if name in children:
                yield posixpath.join(path, name), children[name]

    def write(self, path: str, data: bytes, now_s: float, mode: int = 0o644) -> None:
        """Raises: FileError."""
        old = self._find(path)
        if old is not None and old.children is not None:
            raise FileError("Is a directory")
        parent, name = self._parent(path), self._name(path)
        self._grow(len(data) - (len(old.data) if old is not None else 0), old is None)
        parent[name] = Entry(old.mode if old is not None else mode, now_s, data)

    def append(self, path: str, data: bytes, now_s: float) -> None:
        """Raises: FileError."""
        found = self._find(path)
        if found is None or found is self._root or found.children is not None:
            self.write(path, data, now_s)
            return
        self._grow(len(data), False)
        if not isinstance(found.data, bytearray):
            found.data = bytearray(found.data)
        found.data += data
        found.changed_s = now_s

    def make_directory(self, path: str, now_s: float, *, parents: bool = False, mode: int = 0o755) -> None:
        """Raises: FileError."""
        if not parents and self.exists(path):
            raise FileError("File exists")
        found, names = self._root, [name for name in path.split("/") if name]
        for number, name in enumerate(names, 1):
            if found.children is None:
                raise FileError("Not a directory")
            below = found.children.get(name)
            if below is None:
                if not parents and number < len(names):
                    raise FileError("No such file or directory")
                self._name(name)
                self._grow(0, True)
                below = Entry(mode if number == len(names) else 0o755, now_s, children={})
                found.children[name] = below
            found = below
        if found.children is None:
            raise FileError("File exists")

    def remove(self, path: str) -> None:
        """With all below it. Raises: FileError."""
        found = self.entry(path)
        if found is self._root:
            raise FileError("Device or resource busy")
        waiting = [found]
        while waiting:
            each = waiting.pop()
            waiting += (each.children or {}).values()
            self._grow(-len(each.data), False)
            self._count -= 1
            self._held.count -= 1
        del self._parent(path)[posixpath.basename(path)]

    def drop(self) -> None:
        """The container is gone. Idempotent."""
        self._held.bytes -= self._bytes
        self._held.count -= self._count
        self._bytes = self._count = 0
        # No directory: a program that still runs writes nothing more.
        self._root = Entry(0o755, 0.0)

    @property
    def count(self) -> int:
        return self._count

    @staticmethod
    def _name(path: str) -> str:
        """Raises: FileError."""
        found = posixpath.basename(path)
        if len(found) > NAME_BYTES_MAX:
            raise FileError("File name too long")
        return found

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
        full = new and (self._count >= FILES_MAX or self._held.count >= ALL_FILES_MAX)
        beyond = max(self._bytes + size - CONTAINER_BYTES_MAX, self._held.bytes + size - ALL_BYTES_MAX)
        if full or (size > 0 and beyond > 0):
            raise FileError("No space left on device")
        self._bytes += size
        self._held.bytes += size
        self._count += new
        self._held.count += new
        self.changes += 1
