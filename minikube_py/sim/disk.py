"""A Disk in memory that keeps, over a crash, only what was synced, and a part of the rest that the seed decides.

Un-synced writes survive sector by sector in any combination, one in ten of them torn at any byte; un-synced names (new,
renamed, removed) survive in any combination too. A killed process loses nothing: the page cache survives. Other faults:
the power fails at the n-th operation, the disk is full, a sync fails, a file is unreadable, bits flip."""

from __future__ import annotations

import errno
from collections.abc import Callable

from minikube_py.env import Rng

SECTOR_BYTES = 512
TORN_SHARE = 0.1
UNBOUNDED_BYTES = 1 << 40

Lost = Callable[[str], BaseException]
"""Raises the error when the power is off or fails with this operation; the argument says which."""


class Inode:
    """A file's bytes: as a reader sees them, as on the platter, and the numbered steps between."""

    __slots__ = ("current", "durable", "pending")

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.durable = bytearray(content)
        self.current = bytearray(content)
        self.pending: list[tuple[int, int, bytes | None]] = []

    def resize(self, sequence: int, size_bytes: int) -> None:
        _resize(self.current, size_bytes)
        self.pending.append((sequence, size_bytes, None))

    def write(self, sequence: int, offset: int, data: bytes) -> None:
        _write(self.current, offset, data)
        self.pending.append((sequence, offset, data))

    def sync(self, horizon: int | None) -> None:
        """Makes written data durable, with `horizon` only up to that number."""
        pending, self.pending = self.pending, []
        for place, (sequence, offset, data) in enumerate(pending):
            if horizon is not None and sequence > horizon:
                self.pending = pending[place:] + self.pending
                return
            if data is None:
                _resize(self.durable, offset)
            else:
                _write(self.durable, offset, data)

    def drop_pending(self, rng: Rng) -> None:
        """A sync failed: the data it covered is durable or not, and no later sync reports it (Linux marks the pages
        clean)."""
        self.durable = self._after_crash(rng)
        self.pending.clear()

    def after_crash(self, rng: Rng) -> Inode:
        """The platter's content: each un-synced sector is there, missing or torn, independently."""
        return Inode(self._after_crash(rng))

    def _after_crash(self, rng: Rng) -> bytearray:
        content = bytearray(self.durable)
        keep = rng.choice((0.0, 0.3, 0.7, 1.0))
        for _, offset, data in self.pending:
            if data is None:
                if rng.random() < keep:
                    _resize(content, offset)
                continue
            start = 0
            while start < len(data):
                stop = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
                if rng.random() < keep:
                    stop_kept = rng.randint(start, stop) if rng.random() < TORN_SHARE else stop
                    _write(content, offset + start, data[start:stop_kept])
                start = stop
        return content


def _resize(content: bytearray, size_bytes: int) -> None:
    if len(content) > size_bytes:
        del content[size_bytes:]
    else:
        content.extend(bytes(size_bytes - len(content)))


def _write(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class SimFile:
    def __init__(self, disk: SimDisk, name: str, inode: Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self._closed = False
        disk.opened[inode] = disk.opened.get(inode, 0) + 1

    def write_at(self, offset: int, data: bytes) -> None:
        disk = self._disk
        last = disk.step()
        data = bytes(data)
        room = disk.room(offset + len(data) - len(self._inode.current))
        if room < 0:
            # As pwrite does: writes what fits, then fails.
            self._inode.write(disk.sequence, offset, data[: max(0, len(data) + room)])
            raise OSError(errno.ENOSPC, "no space left on the disk", self._name)
        self._inode.write(disk.sequence, offset, data)
        if last:
            raise disk.lost()

    def read_all(self) -> bytes:
        return self.read_at(0, len(self._inode.current))

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        disk = self._disk
        if not disk.powered:
            raise disk.lost()
        if self._name in disk.unreadable:
            raise OSError(errno.EIO, "the disk cannot read this file", self._name)
        return bytes(self._inode.current[offset : offset + size_bytes])

    def sync(self) -> None:
        disk = self._disk
        disk.operate()
        if disk.horizon is None and disk.synced_inline is not None:
            disk.synced_inline()
        if disk.sync_fails():
            self._inode.drop_pending(disk.fault_rng)
            raise OSError(errno.EIO, "the disk could not sync", self._name)
        if not disk.lies_about_sync:
            self._inode.sync(disk.horizon)

    def truncate(self, size_bytes: int) -> None:
        self._disk.operate()
        self._inode.resize(self._disk.sequence, size_bytes)

    def allocate(self, size_bytes: int) -> None:
        self._disk.operate()
        growth = size_bytes - len(self._inode.current)
        if growth > 0:
            if self._disk.room(growth) < 0:
                raise OSError(errno.ENOSPC, "no space left on the disk", self._name)
            self._inode.resize(self._disk.sequence, size_bytes)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            opened = self._disk.opened
            opened[self._inode] -= 1
            if not opened[self._inode]:
                del opened[self._inode]


class SimDisk:
    """One folder. `sequence` numbers the operations; `horizon` bounds what a sync covers (see `sync_as_of`).

    `lies_about_sync` makes every sync a no-op, to check that tests notice. `capacity_bytes`, `files_max` None: never
    full. `fault_rng` is used only when a sync fails."""

    def __init__(self, fault_rng: Rng | None = None) -> None:
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._pending_names: list[tuple[str, str | None, Inode | None]] = []
        self.opened: dict[Inode, int] = {}
        """How many handles of each file are open: an unlinked file keeps its space until the last is closed."""
        self._steps_left: int | None = None
        self._syncs_before_error: int | None = None
        self._lost: Lost | None = None
        self.synced_inline: Callable[[], None] | None = None
        self.fault_rng = fault_rng or Rng(0)
        self.sequence = 0
        self.syncs = 0
        self.horizon: int | None = None
        self.powered = True
        self.lies_about_sync = False
        self.capacity_bytes: int | None = None
        self.files_max: int | None = None
        self.unreadable: dict[str, None] = {}

    # -- env.Disk -----------------------------------------------------------------------------------------------------

    def open(self, name: str, *, create: bool = False) -> SimFile:
        self.operate()
        if create:
            if name in self._names:
                raise FileExistsError(errno.EEXIST, "there is a file of this name", name)
            if self.free_files() == 0:
                raise OSError(errno.ENOSPC, "no space left on the disk", name)
            self._names[name] = Inode()
            self._pending_names.append((name, None, self._names[name]))
        return SimFile(self, name, self._find(name))

    def names(self) -> list[str]:
        return sorted(self._names)

    def rename(self, old: str, new: str) -> None:
        self.operate()
        self._names[new] = self._find(old)
        del self._names[old]
        self._pending_names.append((new, old, self._names[new]))

    def remove(self, name: str) -> None:
        self.operate()
        self._find(name)
        del self._names[name]
        self._pending_names.append((name, None, None))

    def sync_folder(self) -> None:
        self.operate()
        if self.sync_fails():
            raise OSError(errno.EIO, "the disk could not sync its folder")
        self._durable_names = dict(self._names)
        self._pending_names.clear()

    def free_bytes(self) -> int:
        return UNBOUNDED_BYTES if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes())

    def free_files(self) -> int | None:
        return None if self.files_max is None else max(0, self.files_max - len(self._names))

    def _find(self, name: str) -> Inode:
        inode = self._names.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "there is no file of this name", name)
        return inode

    # -- for files ----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Counts an operation. True: the power fails with this one. Raises the error of `lost` if it failed earlier."""
        if not self.powered:
            raise self.lost()
        self.sequence += 1
        if self._steps_left is None:
            return False
        self._steps_left -= 1
        if self._steps_left > 0:
            return False
        self.powered = False
        return True

    def operate(self) -> None:
        """An operation without effect if the power fails with it. Raises: as `step`."""
        if self.step():
            raise self.lost()

    def lost(self) -> BaseException:
        return self._lost("the power is off") if self._lost else OSError(errno.EIO, "the power is off")

    def room(self, growth_bytes: int) -> int:
        """The space left after such a growth; negative: the missing space."""
        if self.capacity_bytes is None or growth_bytes <= 0:
            return 0
        return self.capacity_bytes - self.used_bytes() - growth_bytes

    def used_bytes(self) -> int:
        return sum(len(inode.current) for inode in {*self._names.values(), *self.opened})

    def sync_fails(self) -> bool:
        self.syncs += 1
        if self._syncs_before_error is None:
            return False
        self._syncs_before_error -= 1
        if self._syncs_before_error >= 0:
            return False
        self._syncs_before_error = None
        return True

    # -- faults -------------------------------------------------------------------------------------------------------

    def cut_after(self, operations: int) -> None:
        """The power fails at the n-th operation from here; a write still reaches the cache."""
        self._steps_left = operations

    def fail_sync_after(self, syncs: int) -> None:
        """After this many syncs one fails, and its data may be lost though later ones succeed."""
        self._syncs_before_error = syncs

    def mend(self) -> None:
        """Cancels faults that have not happened yet, and frees the full disk."""
        self._steps_left = None
        self._syncs_before_error = None
        self.capacity_bytes = self.files_max = None
        self.unreadable.clear()

    def used_by(self, lost: Lost, synced_inline: Callable[[], None]) -> None:
        """Callbacks for a loss of power, and for a sync that the caller itself waited for."""
        self._lost = lost
        self.synced_inline = synced_inline

    def lose(self) -> None:
        """Makes the disk and its open files unusable for current holders."""
        self.powered = False

    def sync_as_of(self, horizon: int, sync: Callable[[], None]) -> None:
        """Runs `sync` as if it had begun when `sequence` was `horizon`: later writes are not covered."""
        before, self.horizon = self.horizon, horizon
        try:
            sync()
        finally:
            self.horizon = before

    def rot(self, rng: Rng, bits: int = 1) -> str | None:
        """Flips bits of one durable sector; returns where, None if nothing is stored. Un-synced bytes above it hide it
        until they are lost."""
        places = [(name, inode) for name, inode in sorted(self._names.items()) if inode.durable]
        if not places:
            return None
        name, inode = places[rng.randrange(len(places))]
        start = rng.randrange(len(inode.durable)) // SECTOR_BYTES * SECTOR_BYTES
        stop = min(len(inode.durable), start + SECTOR_BYTES)
        for _ in range(bits):
            place, mask = rng.randrange(start, stop), 1 << rng.randrange(8)
            clean = place < len(inode.current) and inode.current[place] == inode.durable[place]
            inode.durable[place] ^= mask
            if clean:
                inode.current[place] ^= mask
        return f"{name} at {start}"

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def crash(self, rng: Rng) -> SimDisk:
        """The disk after a power failure now and a start."""
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
        survivor = SimDisk(self.fault_rng)
        survived: dict[int, Inode] = {}
        for name, inode in names.items():
            if id(inode) not in survived:
                survived[id(inode)] = inode.after_crash(rng)
            survivor._names[name] = survived[id(inode)]
        survivor._durable_names = dict(survivor._names)
        survivor.capacity_bytes, survivor.files_max = self.capacity_bytes, self.files_max
        return survivor

    def killed(self) -> SimDisk:
        """The disk after its process was killed while the machine kept running: everything written is there, synced or
        not."""
        survivor = SimDisk(self.fault_rng)
        survivor._names = self._names
        survivor._durable_names = self._durable_names
        survivor._pending_names = self._pending_names
        survivor.sequence = self.sequence
        survivor.capacity_bytes, survivor.files_max = self.capacity_bytes, self.files_max
        return survivor

    def image(self) -> dict[str, bytearray]:
        """The files' bytes as a reader sees them; may be changed and passed to `from_image`."""
        return {name: bytearray(inode.current) for name, inode in self._names.items()}

    @classmethod
    def from_image(cls, image: dict[str, bytearray]) -> SimDisk:
        disk = cls()
        disk._names = {name: Inode(content) for name, content in image.items()}
        disk._durable_names = dict(disk._names)
        return disk
