"""The only access to the outside: clock, randomness, disk, external servers; and whose work the event loop does next.

Everything that waits, writes or calls is handed one of these. Tests and the simulator inject their own; the `System*`
classes are the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import random
import stat
import sys
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TextIO, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")

Rng = random.Random
"""A seeded generator owned by its user. Never the module-level functions of `random`."""
ZEROS_BYTES = 1 << 20
FILE_BYTES_MAX = 256 << 20
"""Limit of a configuration, credentials or manifest file."""
STEPS_AT_ONCE: Final = 2_000
"""Between two turns of the loop, of all that take turns together. A step is work of a few microseconds."""


def say(text: str, stream: TextIO | None = None) -> None:
    """Prints a line for users to standard error. If it cannot be written (closed pipe, full disk), it is dropped:
    output must not stop work."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=stream or sys.stderr, flush=True)


class Clock(Protocol):
    """Time in seconds. `monotonic_s` for durations and deadlines, `wall_s` (Unix epoch) for recorded times."""

    def monotonic_s(self) -> float: ...

    def wall_s(self) -> float: ...

    async def sleep(self, duration_s: float) -> None: ...


class SystemClock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)


class Turns:
    """Whose slice of work is next, however many work at once: first come, first served, slices of STEPS_AT_ONCE
    together in each turn of the loop. After `asyncio.sleep(0)`, all of them would work in each turn, and others would
    wait for the sum."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._scheduled = False
        self.number = 0
        """Of the turn: what was granted in an earlier one has lapsed."""

    @property
    def busy(self) -> bool:
        """Whether somebody waits, or works in this turn."""
        return self._scheduled

    async def next(self, steps: int) -> None:
        """Returns when so many steps may be taken, at once."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append((waiter, steps))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._give)
        await waiter

    def _give(self) -> None:
        self.number += 1
        left = STEPS_AT_ONCE
        while self._waiting and (left >= self._waiting[0][1] or left == STEPS_AT_ONCE):
            waiter, steps = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                left -= steps
        self._scheduled = left < STEPS_AT_ONCE
        if self._scheduled:
            # After these slices, whose ends may ask for another one.
            asyncio.get_running_loop().call_soon(self._give)


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()


def turns() -> Turns:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _TURNS.get(loop)
    if found is None:
        found = _TURNS[loop] = Turns()
    return found


def at_once(steps: Generator[object, None, T]) -> T:
    """The result of work that could go on in slices, without any."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


class Slices:
    """One piece of work that grows with what others have made: it spends its steps, and goes on in the next slice."""

    __slots__ = ("_left", "_size")

    def __init__(self, size: int = STEPS_AT_ONCE // 2) -> None:
        """`size`: the steps of one slice; the first one begins at once."""
        self._left = self._size = size

    async def spend(self, steps: int = 1) -> None:
        """Call it before so many steps are taken."""
        self._left -= steps
        if self._left < 0:
            granted = max(self._size, steps)
            await turns().next(granted)
            self._left = granted - steps


async def run_until(clock: Clock, deadline_s: float, work: Awaitable[T]) -> T:
    """The result of `work`. Raises: TimeoutError if `clock` reaches `deadline_s` first, and `work` is cancelled;
    `work`'s own errors."""
    task = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(max(0.0, deadline_s - clock.monotonic_s())))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        for each in (task, alarm):
            each.cancel()
        await ended(task, alarm)


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Returns when all have ended, with any outcome; their exceptions are dropped.

    Replaces asyncio.gather: if some are already done, its number of loop turns depends on the Python version, and other
    ready callbacks would run in another order."""
    if tasks:
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()


class File(Protocol):
    """An open file with positional writes. Data is durable only after `sync` returned."""

    def write_at(self, offset: int, data: bytes) -> None: ...

    def read_all(self) -> bytes: ...

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Returns fewer bytes only at the end of the file."""

    def sync(self) -> None: ...

    def truncate(self, size_bytes: int) -> None: ...

    def allocate(self, size_bytes: int) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One folder of files. Names are relative; renames and new names are durable only after `sync_folder`."""

    def open(self, name: str, *, create: bool = False) -> File: ...

    def names(self) -> list[str]:
        """Every entry, also one that `open` refuses because it is no regular file."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync_folder(self) -> None: ...

    def free_bytes(self) -> int: ...

    def free_files(self) -> int | None:
        """None: the file system sets no number."""


class Tls(NamedTuple):
    """What a client trusts and presents; PEM, empty if not given. `server_name` "": that of the URL."""

    insecure: bool = False
    server_name: str = ""
    authority_pem: bytes = b""
    certificate_pem: bytes = b""
    key_pem: bytes = b""


class Answer(NamedTuple):
    status: int
    body: bytes


class Outside(Protocol):
    """External servers. `client.outside` is the real implementation; a simulation has its own, or none."""

    async def post(self, url: str, body: bytes, tls: Tls | None, timeout_s: float) -> Answer:
        """`tls` None: the system's trust store; a `timeout_s` of 0 or less: none. Raises: Unavailable."""

    async def close(self) -> None: ...


def open_regular(path: Path, flags: int) -> int:
    """A descriptor. Raises: OSError, also for non-regular files: a FIFO could block forever."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_file(path: Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Reads a file provided by a user. Raises: OSError, as `open_regular`."""
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"larger than {bytes_max:,} bytes")
    return data


def sync_data(fd: int) -> None:
    """Until the medium has it. macOS knows no fdatasync, and its fsync leaves data in the drive's cache; a file system
    that has no F_FULLFSYNC, as of a network, has fsync."""
    if (full := getattr(fcntl, "F_FULLFSYNC", None)) is None:
        os.fdatasync(fd)
        return
    try:
        fcntl.fcntl(fd, full)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
            raise
        os.fsync(fd)


class SystemFile:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, offset)
            view = view[written:]
            offset += written

    def read_all(self) -> bytes:
        return b"".join(self._chunks())

    def _chunks(self, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
        offset = 0
        while chunk := os.pread(self._fd, chunk_bytes, offset):
            yield chunk
            offset += len(chunk)

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        chunks: list[bytes] = []
        while size_bytes and (chunk := os.pread(self._fd, size_bytes, offset)):
            chunks.append(chunk)
            offset += len(chunk)
            size_bytes -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def sync(self) -> None:
        sync_data(self._fd)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def allocate(self, size_bytes: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size_bytes)
            return
        # Disk blocks for unwritten data are not allocated yet.
        for offset in range(os.fstat(self._fd).st_size, size_bytes, ZEROS_BYTES):
            self.write_at(offset, bytes(min(ZEROS_BYTES, size_bytes - offset)))

    def close(self) -> None:
        os.close(self._fd)


class SystemDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Kept open: a segment change must not fail because clients hold all other descriptors.
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    def open(self, name: str, *, create: bool = False) -> SystemFile:
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        return SystemFile(open_regular(self.folder / name, flags))

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def rename(self, old: str, new: str) -> None:
        os.replace(self.folder / old, self.folder / new)

    def remove(self, name: str) -> None:
        os.unlink(self.folder / name)

    def sync_folder(self) -> None:
        os.fsync(self._fd)

    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def free_files(self) -> int | None:
        found = os.statvfs(self.folder)
        return found.f_favail if found.f_files else None


def module_command(module: str) -> list[str]:
    """How to start another process of this package. Code in the current folder is ignored, unless this package is run
    from there without being installed."""
    here = Path(__file__).resolve().parents[1] == Path.cwd()
    return [sys.executable, *(() if here else ("-P",)), "-m", module]
