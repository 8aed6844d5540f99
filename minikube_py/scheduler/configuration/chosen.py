"""Which scheduler a command runs, as its flags say it. Imports nothing: supervisors of processes read it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple


class ChosenScheduler(NamedTuple):
    """`file`: a KubeSchedulerConfiguration. `plugins`: `FILE.py:CLASS`, `MODULE:CLASS` or names of entry points.
    `known`: such that take part only where the file names them."""

    file: Path | None = None
    plugins: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def flags(self) -> list[str]:
        """The flags that give a process of its own the same."""
        chosen = [] if self.file is None else ["--scheduler-config", str(self.file)]
        return chosen + [word for plugin in self.plugins for word in ("--plugin", plugin)]


DEFAULT_SCHEDULER: Final = ChosenScheduler()
