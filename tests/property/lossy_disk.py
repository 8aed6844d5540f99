"""A Disk in memory that keeps, over a crash, only what was synced, and of the rest what a seed decides.

Un-synced writes survive sector by sector in any combination, the last of them torn at any byte; un-synced names
(new, renamed, removed) survive in any combination too. `cut_after` lets the power fail at the n-th operation.
"""

from __future__ import annotations

import errno
import random

SECTOR_BYTES = 512


class Inode:
    def __init__(self) -> None:
        self.durable = bytearray()
        self.current = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []

    def resize(self, size_bytes: int) -> None:
        _resize(self.current, size_bytes)
        self.pending.append(size_bytes)

    def write(self, offset: int, data: bytes) -> None:
        if len(self.current) < offset + len(data):
            _resize(self.current, offset + len(data))
        self.current[offset : offset + len(data)] = data
        self.pending.append((offset, data))

    def sync(self) -> None:
        self.durable = bytearray(self.current)
        self.pending.clear()

    def after_crash(self, rng: random.Random) -> Inode:
        """What the platter holds: each un-synced sector on its own is there, or not, or torn."""
        content = bytearray(self.durable)
        keep = rng.choice((0.0, 0.3, 0.7, 1.0))
        for operation in self.pending:
            if isinstance(operation, int):
                if rng.random() < keep:
                    _resize(content, operation)
                continue
            offset, data = operation
            start = 0
            while start < len(data):
                stop = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
                if rng.random() < keep:
                    if rng.random() < 0.1:
                        stop_kept = rng.randint(start, stop)
                    else:
                        stop_kept = stop
                    if len(content) < offset + stop_kept:
                        _resize(content, offset + stop_kept)
                    content[offset + start : offset + stop_kept] = data[start:stop_kept]
                start = stop
        survivor = Inode()
        survivor.durable = content
        survivor.current = bytearray(content)
        return survivor


def _resize(content: bytearray, size_bytes: int) -> None:
    if len(content) > size_bytes:
        del content[size_bytes:]
    else:
        content.extend(bytes(size_bytes - len(content)))


class LossyFile:
    def __init__(self, disk: LossyDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write_at(self, offset: int, data: bytes) -> None:
        cut = self._disk.operation()
        self._inode.write(offset, bytes(data))
        cut()

    def read_all(self) -> bytes:
        return bytes(self._inode.current)

    def sync(self) -> None:
        self._disk.operation()()
        if not self._disk.lies_about_sync:
            self._inode.sync()

    def truncate(self, size_bytes: int) -> None:
        self._disk.operation()()
        self._inode.resize(size_bytes)

    def allocate(self, size_bytes: int) -> None:
        self._disk.operation()()
        if len(self._inode.current) < size_bytes:
            self._inode.resize(size_bytes)

    def close(self) -> None:
        pass


class LossyDisk:
    """`lies_about_sync` makes every sync a word only: the tests' check that they would notice."""

    def __init__(self) -> None:
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._pending_names: list[tuple[str, str | None, Inode | None]] = []
        self._operations_left: int | None = None
        self.powered = True
        self.lies_about_sync = False

    def cut_after(self, operations: int) -> None:
        self._operations_left = operations

    def operation(self):
        """Counts one operation; returns what is to be called where a write has reached the cache."""
        if not self.powered:
            raise OSError(errno.EIO, "the power is off")
        if self._operations_left is None:
            return lambda: None
        self._operations_left -= 1
        if self._operations_left > 0:
            return lambda: None
        self.powered = False
        return self._cut

    def _cut(self) -> None:
        raise OSError(errno.EIO, "the power went off")

    def crash(self, rng: random.Random) -> LossyDisk:
        """The disk after a power failure now and a start."""
        survivor = LossyDisk()
        names = dict(self._durable_names)
        keep = rng.choice((0.0, 0.5, 0.9, 1.0))
        for name, replaced, inode in self._pending_names:
            if rng.random() >= keep:
                continue
            if inode is None:
                names.pop(name, None)
            elif replaced is None:
                names[name] = inode
            elif names.get(replaced) is inode:
                names[name] = names.pop(replaced)
        survived: dict[int, Inode] = {}
        for name, inode in names.items():
            if id(inode) not in survived:
                survived[id(inode)] = inode.after_crash(rng)
            survivor._names[name] = survived[id(inode)]
        survivor._durable_names = dict(survivor._names)
        return survivor

    def image(self) -> dict[str, bytearray]:
        """The files' bytes as a reader sees them, to be changed at will and given to `from_image`."""
        return {name: bytearray(inode.current) for name, inode in self._names.items()}

    @classmethod
    def from_image(cls, image: dict[str, bytearray]) -> LossyDisk:
        disk = cls()
        for name, content in image.items():
            inode = Inode()
            inode.durable = bytearray(content)
            inode.current = bytearray(content)
            disk._names[name] = inode
        disk._durable_names = dict(disk._names)
        return disk

    def open(self, name: str, *, create: bool = False) -> LossyFile:
        self.operation()()
        if create:
            if name in self._names:
                raise FileExistsError(name)
            self._names[name] = Inode()
            self._pending_names.append((name, None, self._names[name]))
        return LossyFile(self, self._names[name])

    def names(self) -> list[str]:
        return sorted(self._names)

    def rename(self, old: str, new: str) -> None:
        self.operation()()
        self._names[new] = self._names.pop(old)
        self._pending_names.append((new, old, self._names[new]))

    def remove(self, name: str) -> None:
        self.operation()()
        del self._names[name]
        self._pending_names.append((name, None, None))

    def sync_folder(self) -> None:
        self.operation()()
        self._durable_names = dict(self._names)
        self._pending_names.clear()

    def free_bytes(self) -> int:
        return 1 << 40
