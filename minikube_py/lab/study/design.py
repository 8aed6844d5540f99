"""The registered design, as data: which blocks there are, which units each has, and in which order they run.

A unit is one cluster of one seed; its key names the block, its levels and the seed, and nothing else, so that what was
measured of it in an earlier run is found again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import orjson

from minikube_py.errors import MinikubeError

Mode = Literal["quick", "medium", "full"]
Level = int | float | str
Levels = Mapping[str, Level]

WITHIN_UNIT: Final = ("changed_share", "old_share", "updates")
"""Factors whose levels one unit goes through one after the other: they are states of the same cluster."""


class StudyError(MinikubeError):
    """The study cannot be run as asked; the text says why and what to do."""


class Unit(NamedTuple):
    """`levels`: of every factor the block or the defaults name, those of `WITHIN_UNIT` left out."""

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
    """`raw` is the registered document; the rest is read from it."""

    raw: Mapping[str, Any]
    mode: Mode

    def of_mode(self, name: str) -> Any:
        return self.raw[name][self.mode]

    @property
    def seeds(self) -> int:
        return int(self.of_mode("seeds"))

    @property
    def batches(self) -> int:
        return int(self.raw["batches"])

    @property
    def c_behind_us(self) -> list[float]:
        return [float(value) for value in self.raw["c_behind_us"]]

    @property
    def updates_per_query(self) -> list[float]:
        return [float(value) for value in self.raw["updates_per_query"]]

    @property
    def blocks(self) -> Mapping[str, Any]:
        blocks: Mapping[str, Any] = self.raw["blocks"]
        return blocks

    def limits(self, block: str) -> list[int]:
        return list(self.blocks[block]["limits"][self.mode])

    def levels(self, block: str, factor: str) -> list[Level]:
        """The levels of a factor that a unit of `block` goes through itself."""
        levels: list[Level] = self.blocks[block][self.mode].get(factor, [])
        return levels

    def candidates(self, block: str) -> list[str]:
        """Names, with those of groups (`exact`, `filters`, ...) written out, in the order of the document."""
        found: list[str] = []
        for name in self.blocks[block].get("candidates", []):
            group = self.raw[name] if name in ("exact", "bounds", "summaries", "filters") else [name]
            found.extend(each for each in group if each not in found)
        return found

    def cells(self, block: str) -> list[dict[str, Level]]:
        """Each combination of levels that is a unit of its own, the defaults filled in. d = 1 knows no correlation."""
        own = {name: values for name, values in self.blocks[block][self.mode].items() if name not in WITHIN_UNIT}
        cells: dict[str, dict[str, Level]] = {}
        for values in itertools.product(*own.values()):
            levels = {**self.raw["defaults"], **dict(zip(own, values))}
            if levels["d"] == 1:
                levels["correlation"] = 0
            cells.setdefault(cell_name(levels), levels)
        return list(cells.values())

    def units(self, blocks: tuple[str, ...] = ()) -> Iterator[Unit]:
        """All units, in order of seed and shuffled within one; of `blocks` only, if there are any."""
        for seed in range(self.seeds):
            of_seed = [
                Unit(block, tuple(sorted(levels.items())), seed)
                for block in self.blocks
                if not blocks or block in blocks
                for levels in self.cells(block)
            ]
            random.Random(seed).shuffle(of_seed)
            yield from of_seed


def parse(document: bytes, mode: Mode, where: str) -> Design:
    """Raises: StudyError."""
    try:
        raw = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise StudyError(f"{where} is not JSON: {error}; restore it from git") from error
    if not isinstance(raw, dict) or raw.get("study") != "bloom" or raw.get("version") != 1:
        raise StudyError(f"{where} is not the design of the study `bloom`, version 1; restore it from git")
    return Design(raw, mode)
