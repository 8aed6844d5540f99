"""The registered design, as data: its blocks, their units, and the order of execution.

It is a JSON, TOML or YAML document of `study` (a name), `version`, `seeds` (how many, by mode), `defaults` (a level of
each factor) and `blocks`: of each, its `candidates` and the levels of its factors by mode.

A unit is one cluster of one seed; its key names only the block, its levels and the seed, so that earlier measurements
of it are found again.
"""

from __future__ import annotations

import itertools
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.yaml_text import documents
from minikube_py.errors import MinikubeError

Mode = str
"""How much of the design runs: "full", or a smaller mode of the design, such as "quick" and "medium"."""
MODES: Final = ("quick", "medium", "full")
Level = int | float | str
Levels = Mapping[str, Level]

FILE_NAME: Final = re.compile(r"[^./\\\0][^/\\\0]{0,99}")
"""What a name that becomes part of a file's may be."""


class StudyError(MinikubeError):
    """The study cannot be run as requested; the text says why and what to do."""


class Unit(NamedTuple):
    """`levels`: of every factor the block or the defaults name, except those that a unit passes through."""

    block: str
    levels: tuple[tuple[str, Level], ...]
    seed: int

    @property
    def key(self) -> str:
        return f"{self.block}/{cell_name(dict(self.levels))}/seed={self.seed}"


def cell_name(levels: Levels) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(levels.items()))


@dataclass(frozen=True, slots=True)
class Design:
    """`raw` is the registered document; everything else is derived from it."""

    raw: Mapping[str, Any]
    mode: Mode
    same: tuple[tuple[str, Level, str, Level], ...] = ()
    """(factor, level, other factor, its level): at that level of the first, the other is meaningless and fixed."""
    within: tuple[str, ...] = ()
    """Factors whose levels one unit passes through: they are states of the same cluster."""

    @property
    def seeds(self) -> int:
        return int(self.raw["seeds"][self.mode])

    @property
    def blocks(self) -> Mapping[str, Any]:
        blocks: Mapping[str, Any] = self.raw["blocks"]
        return blocks

    def require_blocks(self, names: Sequence[str]) -> None:
        """Raises: StudyError for a block that the mode does not run."""
        known = [block for block in self.blocks if self.mode in self.blocks[block]]
        if wrong := [name for name in names if name not in known]:
            raise StudyError(f"mode {self.mode} has no block {wrong[0]!r}; its blocks are: {', '.join(known)}")

    def levels(self, block: str, factor: str) -> list[Level]:
        """The levels of a factor that a unit of `block` passes through."""
        levels: list[Level] = self.blocks[block][self.mode].get(factor, [])
        return levels

    def candidates(self, block: str) -> list[str]:
        """Names with groups (`exact`, `filters`, ...) expanded, in document order."""
        found: list[str] = []
        for name in self.blocks[block].get("candidates", []):
            found.extend(each for each in expanded(self.raw, name) if each not in found)
        return found

    def cells(self, block: str) -> list[dict[str, Level]]:
        """Each combination of levels that forms a unit, with defaults filled in."""
        listed = self.blocks[block].get(self.mode, {})
        own = {name: values for name, values in listed.items() if name not in self.within}
        cells: dict[str, dict[str, Level]] = {}
        for values in itertools.product(*own.values()):
            levels = {**self.raw["defaults"], **dict(zip(own, values))}
            for factor, level, other, fixed in self.same:
                if levels[factor] == level:
                    levels[other] = fixed
            cells.setdefault(cell_name(levels), levels)
        return list(cells.values())

    def units(self, blocks: tuple[str, ...] = ()) -> Iterator[Unit]:
        """All units, by seed and shuffled within each; only of `blocks`, if given."""
        for seed in range(self.seeds):
            of_seed = [
                Unit(block, tuple(sorted(levels.items())), seed)
                for block in self.blocks
                if self.mode in self.blocks[block] and (not blocks or block in blocks)
                for levels in self.cells(block)
            ]
            random.Random(seed).shuffle(of_seed)
            yield from of_seed


def expanded(raw: Mapping[str, Any], name: str) -> list[str]:
    """The candidates that `name` means: those of the design's list of that name, or itself."""
    return list(raw[name]) if isinstance(raw.get(name), list) else [name]


def parse(document: bytes, mode: Mode, where: str, name: str = "") -> Design:
    """`where`: its name, which implies the format. `name`: the required study name, "" for any. A `mode` of "" reads a
    document whose mode is not known yet.

    Raises: StudyError."""
    try:
        if where.endswith(".toml"):
            raw: Any = tomllib.loads(document.decode())
        else:
            raw = next(iter(documents(document)), None) if where.endswith((".yaml", ".yml")) else orjson.loads(document)
    except (ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise StudyError(
            f"{where} cannot be read as {where.rpartition('.')[2].upper()}: {said}; {_remedy(name)}"
        ) from error
    named = raw.get("study") if isinstance(raw, dict) else None
    if not isinstance(named, str) or (name and named != name) or raw.get("version") != 1:
        of = f"the study `{name}`" if name else "a study"
        raise StudyError(f"{where} is not the design of {of}, version 1; {_remedy(name)}")
    if not FILE_NAME.fullmatch(named):
        allowed = "a name has up to 100 characters, no '/', and begins with no '.'"
        raise StudyError(f"{where}: study is {named!r}; {allowed}")
    for needed in ("seeds", "blocks", "defaults"):
        if not isinstance(raw.get(needed), dict):
            raise StudyError(f"{where} has no table `{needed}`; {_remedy(name)}")
    if mode and mode not in raw["seeds"]:
        raise StudyError(f"{where} has no mode {mode!r}: `seeds` names {', '.join(raw['seeds'])}")
    for block, made in raw["blocks"].items():
        if not isinstance(made, dict):
            raise StudyError(f"{where}: block {block} is {made!r}, no table; {_remedy(name)}")
        if mode in made and not isinstance(made[mode], dict):
            raise StudyError(f"{where}: the levels of block {block} in mode {mode} are no table; {_remedy(name)}")
    listed = raw.get("same", ())
    entries = [each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict)]
    # `checking` refuses others.
    keys = ("factor", "level", "other", "fixed")
    return Design(raw, mode, tuple(tuple(map(each.get, keys)) for each in entries))  # type: ignore[misc]


def _remedy(name: str) -> str:
    return "restore it from git" if name else "correct it there"
