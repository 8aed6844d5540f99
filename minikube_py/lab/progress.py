"""Progress of long work: rich progress bars on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

PLAIN_EVERY_S = 2.0


class Progress(Protocol):
    """Work with a known number of steps."""

    def update(self, done: int, note: str = "") -> None: ...


class _PlainProgress:
    def __init__(self, stream: TextIO, title: str, total: int) -> None:
        self._stream, self._title, self._total = stream, title, total
        self._started_s = self._last_s = time.monotonic()
        self._shown = -1

    def update(self, done: int, note: str = "") -> None:
        now_s = time.monotonic()
        if done != self._shown and (now_s - self._last_s >= PLAIN_EVERY_S or done >= self._total):
            self._last_s, self._shown = now_s, done
            note = f"  {note}" if note else ""
            elapsed = f"{now_s - self._started_s:.1f} s"
            print(f"{self._title}: {done:,} of {self._total:,}  {elapsed}{note}", file=self._stream, flush=True)


class _RichProgress:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def update(self, done: int, note: str = "") -> None:
        self._bar.update(self._task, completed=done, note=note)


@contextmanager
def progress(title: str, total: int, stream: TextIO | None = None) -> Iterator[Progress]:
    """A bar, or lines at most every 2 s and at the end."""
    stream = stream or sys.stdout
    bar = _rich_bar() if stream.isatty() else None
    if bar is None:
        yield _PlainProgress(stream, title, total)
        return
    with bar:
        yield _RichProgress(bar, bar.add_task(title, total=total, note=""))


def _rich_bar() -> Any:
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichBar
    except ImportError:
        return None
    note = TextColumn("{task.fields[note]}")
    return RichBar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note)
