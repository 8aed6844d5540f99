"""Which scheduler a command runs, from its flags. Imports nothing: process supervisors read it too."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple


class ChosenScheduler(NamedTuple):
    """`file`: a KubeSchedulerConfiguration. `plugins`: `FILE.py:CLASS`, `MODULE:CLASS` or entry point names. `known`:
    plugins active only where the file names them."""

    file: Path | None = None
    plugins: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def flags(self) -> list[str]:
        """Flags that give the same scheduler to a separate process."""
        chosen = [] if self.file is None else ["--scheduler-config", str(self.file)]
        return chosen + [word for plugin in self.plugins for word in ("--plugin", plugin)]


DEFAULT_SCHEDULER: Final = ChosenScheduler()
