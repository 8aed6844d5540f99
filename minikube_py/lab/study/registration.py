"""Whether the design that is about to run is the one that was registered: committed, and unchanged since.

The design of an installed package is a copy that no commit vouches for; a run from there must say `--unregistered`, and
its report says so too.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from minikube_py.lab.study.design import Design, Mode, StudyError, parse

TEXT, DESIGN = "docs/studies/bloom.md", "docs/studies/bloom.json"
CHECKOUT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Registration:
    """`commit`: the last one that touched either file, "" where nothing vouches for them; then `reason` says why.
    `first`: the one that brought the text; what changed between stands in it under Deviations."""

    commit: str
    committed_at: str
    reason: str = ""
    first: str = ""
    first_at: str = ""

    @property
    def line(self) -> str:
        if self.commit:
            now = f"registered in {TEXT}, commit {self.commit[:12]} of {self.committed_at}"
            return f"{now} (first in {self.first[:12]} of {self.first_at})"
        return f"UNREGISTERED: {self.reason}. These figures are no evidence in the sense of the registration."


def load(mode: Mode, unregistered: bool = False, checkout: Path = CHECKOUT) -> tuple[Design, Registration]:
    """Raises: StudyError, if the design is not committed and unchanged, and `unregistered` does not allow that."""
    try:
        registration = _registered(checkout)
    except StudyError as error:
        if not unregistered:
            raise StudyError(f"{error}; or run it with --unregistered, which the report will say") from error
        registration = Registration("", "", str(error).split(";")[0])
    path = checkout / DESIGN
    if path.is_file():
        return parse(path.read_bytes(), mode, str(path)), registration
    return parse(files(__package__).joinpath("design.json").read_bytes(), mode, "design.json"), registration


def _registered(checkout: Path) -> Registration:
    if not (checkout / ".git").exists():
        where = "this is not a git checkout, so no commit shows what was registered"
        raise StudyError(f"{where}; run the study from a clone of the repository")
    for name in (TEXT, DESIGN):
        if not _git(checkout, "ls-files", "--", name):
            raise StudyError(f"{name} is not committed; commit it before the study runs")
    changed = _git(checkout, "status", "--porcelain", "--", TEXT, DESIGN)
    if changed:
        names = ", ".join(line[3:] for line in changed.splitlines())
        raise StudyError(f"{names}: changed since the commit; commit or restore it before the study runs")
    commit, _, at = _git(checkout, "log", "-1", "--format=%H %cI", "--", TEXT, DESIGN).partition(" ")
    if not commit:
        raise StudyError(f"no commit holds {TEXT} and {DESIGN}; commit them before the study runs")
    first, _, first_at = _git(checkout, "log", "--diff-filter=A", "-1", "--format=%H %cI", "--", TEXT).partition(" ")
    return Registration(commit, at, "", first, first_at)


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.rstrip("\n")
    except FileNotFoundError as error:
        raise StudyError("git is not installed, so nothing shows what was registered; install git") from error
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise StudyError(
            f"git cannot tell whether the design is committed: {said.strip()}; look at git status"
        ) from error
