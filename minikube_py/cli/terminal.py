"""What the commands print: ticks with elapsed times, plain where nobody looks."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Steps:
    """One line per step done: `✓ store        0.05 s`. Colour only on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._colour = self._stream.isatty()
        self._last_s = self._started_s = time.perf_counter()
        encoding = (getattr(self._stream, "encoding", "") or "").lower()
        self._mark = "✓" if "utf" in encoding else "ok"

    def done(self, name: str, note: str = "") -> None:
        """The step `name` took the time since the one before."""
        now_s = time.perf_counter()
        self.took(name, now_s - self._last_s, note)
        self._last_s = now_s

    def took(self, name: str, duration_s: float, note: str = "") -> None:
        mark = f"\x1b[32m{self._mark}\x1b[0m" if self._colour else self._mark
        self.line(f"{mark} {name:<14}{duration_s:5.2f} s   {note}".rstrip())

    def line(self, text: str = "") -> None:
        print(text, file=self._stream, flush=True)

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started_s
