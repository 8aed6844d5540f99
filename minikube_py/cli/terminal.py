"""What the commands print: ticks with elapsed times, plain if not on a terminal."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import TextIO

from minikube_py.env import say

STARTED = f"{platform.python_version()}, started and imported"


def process_started_s() -> float:
    """When this process began, on the scale of time.perf_counter, so that durations include the interpreter's start;
    the current time if unknown."""
    now_s = time.perf_counter()
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return now_s
    return now_s - running_s


class Steps:
    """One line per step done: `✓ store        0.05 s`. Colour only on a terminal, and without $NO_COLOR."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._colour = self._stream.isatty() and not os.environ.get("NO_COLOR")
        self._last_s = self._started_s = process_started_s()
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

    def progress(self, text: str) -> None:
        """Progress of the next step."""
        self.line(f"  {text}")

    def line(self, text: str = "") -> None:
        say(text, self._stream)

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started_s


def started() -> Steps:
    """Steps, of which the first (interpreter and imports) is done."""
    steps = Steps()
    steps.done("Python", STARTED)
    return steps
