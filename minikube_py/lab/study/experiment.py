"""The interface of an experiment; runner, journal, statistics, checks and report are shared.

An experiment is a design (`minikube_py.lab.study.design`) and a class. The built-in ones have a name; a custom one is
the file of its design, whose `code` names the class as `FILE.py:CLASS` (beside that file) or `MODULE:CLASS`. A
distribution adds more by an entry point of the group `minikube_py.studies`, whose name is the study's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Literal

from minikube_py import own_code
from minikube_py.env import read_file
from minikube_py.errors import WrongUsage
from minikube_py.lab.report import Table
from minikube_py.lab.study.checking import Known, Needs, check, check_needs
from minikube_py.lab.study.design import Design, Levels, StudyError, Unit, parse

GROUP: Final = "minikube_py.studies"
BUILT_IN: Final = own_code.plugged("studies")
SUFFIXES: Final = (".toml", ".yaml", ".yml", ".json")
CHECKOUT: Final = Path(__file__).resolve().parents[3]

Report = dict[str, Any]
Rates = Mapping[str, Sequence[float]]
"""Pods/s of the runs of benchmarks, by what was run."""
Outcome = Literal["held", "falsified", "undecided", "not tested"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a registered prediction. `evidence` is one sentence with the figures."""

    name: str
    claim: str
    outcome: Outcome
    evidence: str


@dataclass(frozen=True, slots=True)
class Account:
    """An experiment's evaluation of its records. `rows`: for the CSV file, header first."""

    findings: list[Finding]
    tables: list[Table]
    rows: list[Sequence[object]]
    pictures: list[tuple[str, Path]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)


class NoStudy(StudyError, WrongUsage):
    """Nothing has the name that was given."""


class Absent(StudyError):
    """A candidate cannot be built here; the text says why. It is reported as absent, never replaced."""


class Study:
    """Base class. Instances are stateless: each call gets its data."""

    name = ""
    title = ""
    settings: Sequence[str] = ()
    """The values at the top of the design that this class reads; others are refused."""
    optional: Sequence[str] = ()
    """Of these settings, those that a design may leave out."""
    block_settings: Sequence[str] = ()
    """The same, of a block."""
    factors: Sequence[str] = ()
    """Factors that need no level in `defaults`."""
    words: Mapping[str, str] = {}
    """Definitions of the report's terms, for readers without the registration."""
    mode_notes: Mapping[str, str] = {}
    draws_rates = False
    """Whether `tell` shows what benchmarks recorded."""
    text = Path()
    """The registration in prose; the design itself if there is none."""
    design = Path()
    code: Path | None = None
    """The file of its class, if that is no installed module."""
    packaged: Path | None = None
    """A copy of the design installed with the code, for use without a checkout."""

    def load(self, mode: str) -> Design:
        """Raises: StudyError, also for a design with keys, names or values that mean nothing."""
        path = self.design if self.design.is_file() or self.packaged is None else self.packaged
        design = parse(_given(path), mode, str(path), self.name)
        check(design.raw, str(path), Known(self.settings, self.block_settings, self.factors))
        for runs in (replace(design, mode=each) for each in design.raw["seeds"]):
            for block in (block for block, made in runs.blocks.items() if runs.mode in made):
                for cell in runs.cells(block):
                    check_needs(design.raw, str(path), cell, self.needs(cell))
        return design

    def needs(self, levels: Levels) -> Needs:
        """What a unit of these levels reads of the design; one that lacks it is refused before the first unit."""
        return Needs([name for name in self.settings if name not in self.optional])

    def weight(self, unit: Unit) -> float:
        """The approximate relative duration of a unit, by which the remaining time is estimated."""
        return 1.0

    def measure(self, design: Design, unit: Unit) -> Report:
        """Measures one unit; an exception marks the unit as failed."""
        raise NotImplementedError

    def tell(self, design: Design, records: Sequence[Report], folder: Path, rates: Rates) -> Account:
        """From the records alone. `rates`: pods/s recorded by benchmarks of the whole control plane."""
        raise NotImplementedError

    def intervals(self, design: Design) -> str:
        """One line explaining the report's intervals."""
        raise NotImplementedError


@cache
def find(target: str) -> Study:
    """`target`: the name of a study, or the file of a design. Raises: StudyError, BadCode."""
    if target.endswith(SUFFIXES):
        return _of_file(Path(target).resolve())
    place = BUILT_IN.get(target)
    if place is not None:
        module, _, name = place.partition(":")
        built_in: Study = getattr(import_module(module), name)()
        return built_in
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if target in installed:
        made = _made(own_code.load(installed[target]), target)
        made.name = target
        return made
    names = ", ".join((*BUILT_IN, *installed))
    raise NoStudy(f"there is no study {target!r}: there are {names}; or name a design file ({', '.join(SUFFIXES)})")


def _made(kind: Any, code: str) -> Study:
    """Raises: StudyError."""
    if not (isinstance(kind, type) and issubclass(kind, Study)):
        raise StudyError(f"{code} is no study: let it inherit from minikube_py.lab.study.contest.Contest")
    try:
        return kind()
    except own_code.raised() as error:
        raise StudyError(f"{code}: {own_code.told(error)}") from error


def _of_file(path: Path) -> Study:
    if not path.is_file():
        raise StudyError(f"there is no file {path}; name the file of a design")
    # Any mode works here; which modes exist is checked when one is requested.
    raw = dict(parse_any(path))
    code = raw.get("code")
    if not isinstance(code, str) or ":" not in code:
        raise StudyError(f'{path} names no code; write code = "FILE.py:CLASS" or "MODULE:CLASS"')
    place, _, name = code.rpartition(":")
    target = f"{path.parent / place}:{name}" if place.endswith(".py") else code
    kind = own_code.find_class(target, "world", "measure", required=False)
    study = _made(kind, code)
    study.name, study.design = raw["study"], path
    study.code = path.parent / place if place.endswith(".py") else None
    study.title = study.title or str(raw.get("title", raw["study"]))
    text = raw.get("text", path.name)
    if not isinstance(text, str) or not text:
        raise StudyError(f"{path}: text is {text!r}; name the file of the registration in prose")
    study.text = path.parent / text
    return study


def parse_any(path: Path) -> Mapping[str, Any]:
    """The document of a design, in its first mode. Raises: StudyError."""
    return parse(_given(path), "", str(path)).raw


def _given(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}; name a design that is there") from error
