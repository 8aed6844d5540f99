"""The audit log's file: written in order by a thread of its own, and rotated by size.

Source: apiserver `plugin/pkg/audit/{log,buffered}`, `pkg/server/options/audit.go`; lumberjack.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from minikube_py.env import Clock

log = logging.getLogger(__name__)
MODES: Final = ("batch", "blocking", "blocking-strict")
EVENTS_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 << 20
"""What may wait to be written; further events are lost."""
_STAMP: Final = "%Y-%m-%dT%H-%M-%S"
_MEGABYTE: Final = 1 << 20
STANDARD_OUTPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Upstream's flags. `path` "-": standard output. `max_size_mb` 0: no rotation; `max_backups`, `max_age_days` 0:
    rotated files are kept."""

    path: str
    max_size_mb: int = 100
    max_backups: int = 100
    max_age_days: int = 366
    mode: str = "blocking"


class Out(Protocol):
    def write(self, lines: Sequence[bytes]) -> int:
        """How many were written. May block."""

    def close(self) -> None: ...


class StandardOutput:
    def write(self, lines: Sequence[bytes]) -> int:
        try:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
        except (OSError, ValueError) as error:
            log.error("the audit log cannot be written: %s", error)
            return 0
        return len(lines)

    def close(self) -> None:
        pass


class RotatedFile:
    """Full files are renamed to `NAME-TIME.EXT`."""

    def __init__(self, options: LogOptions, clock: Clock) -> None:
        """Raises: OSError if the file cannot be opened."""
        self._path, self._options, self._clock = Path(options.path), options, clock
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._max_bytes = options.max_size_mb * _MEGABYTE
        self._file: BinaryIO | None = None
        self._size_bytes = 0
        self._open()

    def _open(self) -> BinaryIO:
        opened = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(opened, "wb", buffering=0)
        self._size_bytes = os.fstat(opened).st_size
        return self._file

    def write(self, lines: Sequence[bytes]) -> int:
        written, at = 0, 0
        while at < len(lines):
            end = self._fitting(lines, at)
            try:
                if end == at:
                    self._rotate(lines[at])
                    end = at + 1
                self._append(b"".join(lines[at:end]))
                written += end - at
            except OSError as error:
                log.error("%d audit events are lost: %s cannot be written: %s", max(end - at, 1), self._path, error)
                end = max(end, at + 1)
            at = end
        return written

    def _fitting(self, lines: Sequence[bytes], at: int) -> int:
        """The first line that this file has no room for."""
        if not self._max_bytes:
            return len(lines)
        size_bytes = self._size_bytes
        while at < len(lines) and size_bytes + len(lines[at]) <= self._max_bytes:
            size_bytes += len(lines[at])
            at += 1
        return at

    def _append(self, data: bytes) -> None:
        file, view = self._file or self._open(), memoryview(data)
        while view:
            count = file.write(view) or 0
            self._size_bytes += count
            view = view[count:]

    def _rotate(self, line: bytes) -> None:
        """Begins a new file for `line`. Raises: OSError."""
        if len(line) > self._max_bytes:
            raise OSError(f"write length {len(line)} exceeds maximum file size {self._max_bytes}")
        self.close()
        now = datetime.fromtimestamp(self._clock.wall_s(), UTC)
        stem, suffix = self._path.stem, self._path.suffix
        backup = self._path.with_name(f"{stem}-{now:{_STAMP}}.{now.microsecond // 1000:03d}{suffix}")
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(backup)
        self._open()
        self._remove_old(now)

    def _remove_old(self, now: datetime) -> None:
        options = self._options
        backups = sorted(self._backups(), reverse=True)
        old = backups[options.max_backups :] if options.max_backups else []
        if options.max_age_days:
            oldest = now - timedelta(days=options.max_age_days)
            old += [each for each in backups if each[0] < oldest and each not in old]
        for _, path in old:
            with contextlib.suppress(OSError):
                path.unlink()

    def _backups(self) -> list[tuple[datetime, Path]]:
        found = []
        before, suffix = f"{self._path.stem}-", self._path.suffix
        for path in sorted(self._path.parent.glob(f"{before}*{suffix}")):
            with contextlib.suppress(ValueError):
                stamp = datetime.strptime(path.name[len(before) : len(path.name) - len(suffix)], f"{_STAMP}.%f")
                found.append((stamp.replace(tzinfo=UTC), path))
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def out_of(options: LogOptions, clock: Clock) -> Out:
    """Raises: OSError."""
    return StandardOutput() if options.path == STANDARD_OUTPUT else RotatedFile(options, clock)


class AuditLog:
    """Hands lines to `out` in a thread, in batches: what arrives during a write is the next batch.

    An event that could not be written within `patience_s`, or that finds the buffer full, counts as lost to its
    request; in the former case it is written later if the disk recovers."""

    def __init__(self, out: Out, mode: str = "blocking", patience_s: float = 60.0) -> None:
        self.blocks, self.strict = mode != "batch", mode == "blocking-strict"
        self._out, self._patience_s = out, patience_s
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._done: asyncio.Future[bool] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._stuck = False
        self._lost = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def post(self, line: bytes) -> asyncio.Future[bool] | None:
        """See `audit.Sink`."""
        loop = asyncio.get_running_loop()
        if len(self._lines) >= EVENTS_MAX or self._waiting_bytes + len(line) > WAITING_BYTES_MAX:
            if not self._lost:
                log.error("the audit log's buffer is full: events are lost")
            self._lost += 1
            return _settled(loop, False)
        self._lines.append(line)
        self._waiting_bytes += len(line)
        if self._writer is None:
            self._writer = loop.create_task(self._write_all())
        if self._stuck:
            return _settled(loop, False)
        if self._done is None:
            self._done = loop.create_future()
        return self._done

    async def _write_all(self) -> None:
        try:
            while self._lines:
                lines, self._lines, self._waiting_bytes = self._lines, [], 0
                done, self._done = self._done, None
                writing = self._in_thread(lines)
                await asyncio.wait((writing,), timeout=self._patience_s)
                if not writing.done():
                    self._stuck = True
                    log.error("the audit log has not taken an event for %g s", self._patience_s)
                    _settle(done, False)
                    _settle(self._done, False)
                    self._done = None
                    await writing
                self._stuck = False
                written = writing.result()
                self._lost += len(lines) - written
                _settle(done, written == len(lines))
        finally:
            self._writer = None

    def _in_thread(self, lines: list[bytes]) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()

        def write() -> None:
            try:
                count = self._out.write(lines)
            except Exception:
                log.exception("the audit log cannot be written")
                count = 0
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(count))

        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="audit-log", daemon=True)
            self._thread.start()
        self._jobs.put(write)
        return future

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._out.close()

    async def stop(self) -> None:
        """Writes what waits, unless that takes too long."""
        if self._writer is not None:
            await asyncio.wait((self._writer,), timeout=1.0 if self._stuck else self._patience_s)
        if self._thread is not None:
            self._jobs.put(None)
        else:
            self._out.close()

    def metrics(self) -> dict[str, float]:
        return {'apiserver_audit_error_total{plugin="log"}': self._lost}


def _settled(loop: asyncio.AbstractEventLoop, value: bool) -> asyncio.Future[bool]:
    future: asyncio.Future[bool] = loop.create_future()
    future.set_result(value)
    return future


def _settle(future: asyncio.Future[bool] | None, value: bool) -> None:
    if future is not None and not future.done():
        future.set_result(value)
