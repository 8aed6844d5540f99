"""Checks a design before it runs: each key, name and value in it means something there.

A misspelled word would otherwise be ignored, and change what a registered prediction says. Which figures there are is
known when the first unit of a block has finished.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, NoReturn

from minikube_py.lab.study.design import FILE_NAME, MODES, StudyError, expanded

DOCUMENT: Final = (
    "study", "version", "title", "code", "text", "confidence", "seeds", "defaults", "blocks", "same",
    "predictions", "tables", "pictures", "tests", "curves",
)  # fmt: skip
NAMES: Final = ("name", "block", "figure", "of", "over", "x", "y", "panels", "gain", "price")
CLUSTERS_MAX: Final = 10_000
Table = Mapping[str, Any]


class Entry(NamedTuple):
    """The keys of an entry of a list of tables: those that it must have, and those that it may have."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]


ENTRIES: Final[Mapping[str, Entry]] = {
    "predictions": Entry(
        ("name", "claim", "block", "figure", "of", "is", "than"), ("over", "where", "at", "tuned", "gain")
    ),
    "tables": Entry(("block",), ("title", "by", "where", "figures")),
    "pictures": Entry(("name", "caption", "block", "x", "y"), ("panels", "where", "log", "candidates", "families")),
    "tests": Entry(("title", "block", "figure", "over"), ()),
    "curves": Entry(("title", "block", "gain", "price", "at", "families"), ("by", "where", "tuned")),
    "same": Entry(("factor", "level", "other", "fixed"), ()),
}


class Known(NamedTuple):
    """What a study's code reads of a design beside what all designs have: values at its top, values of a block, and
    factors without a level in `defaults`."""

    settings: Sequence[str] = ()
    of_blocks: Sequence[str] = ()
    factors: Sequence[str] = ()


class Needs(NamedTuple):
    """What a study's code reads for a unit: values at the top of the design, factors, and levels that there are."""

    settings: Sequence[str] = ()
    factors: Sequence[str] = ()
    levels: Mapping[str, Sequence[Any]] = {}


def check_needs(raw: Table, where: str, cell: Table, needs: Needs) -> None:
    """Raises: StudyError for what a unit with the levels of `cell` would lack, with all of it that is missing."""
    lacks = [("setting", [name for name in needs.settings if name not in raw])]
    lacks.append(("factor in `defaults`", [name for name in needs.factors if name not in cell]))
    if said := [f"{what} {', '.join(names)}" for what, names in lacks if names]:
        raise StudyError(f"{where}: the experiment needs what the design does not have: {'; '.join(said)}")
    for factor, allowed in needs.levels.items():
        if cell.get(factor, allowed[0]) not in allowed:
            near = f"{_near(cell[factor], list(map(str, allowed)))}; allowed: {_list(list(map(str, allowed)))}"
            raise StudyError(f"{where}: {factor} = {cell[factor]!r} means nothing to the experiment{near}")


def check(raw: Table, where: str, known: Known) -> None:
    """`where`: the design's file. Raises: StudyError for the first thing that means nothing, with what is allowed."""
    _Check(raw, where, known).document()


class _Check:
    def __init__(self, raw: Table, where: str, known: Known) -> None:
        self._raw, self._where, self._known = raw, where, known
        self._factors = [*raw["defaults"], *known.factors]

    def document(self) -> None:
        raw = self._raw
        self._seeds()
        for factor, level in raw["defaults"].items():
            self._scalar(f"defaults.{factor}", level)
        for block, made in raw["blocks"].items():
            self._block(f"blocks.{block}", self._table(f"blocks.{block}", made))
        for block in raw["blocks"]:
            self._candidates(block)
        groups = [name for made in raw["blocks"].values() for name in made.get("candidates", ())]
        self._keys("the design", raw, (*DOCUMENT, *self._known.settings, *dict.fromkeys(groups)))
        share = raw.get("confidence", 0.95)
        if not _number(share) or not 0 < share < 1:
            self._fail("confidence", f"is {share!r}; write a number between 0 and 1, such as 0.95")
        for kind in ENTRIES:
            self._entries(kind)

    def _seeds(self) -> None:
        self._keys("seeds", self._raw["seeds"], MODES)
        for mode, count in self._raw["seeds"].items():
            if type(count) is not int or not 1 <= count <= CLUSTERS_MAX:
                allowed = f"a whole number of at least 1 and at most {CLUSTERS_MAX:,}"
                self._fail(f"seeds.{mode}", f"is {count!r}; write how many clusters, {allowed}")

    def _block(self, place: str, made: Table) -> None:
        modes = list(self._raw["seeds"])
        self._keys(place, made, ("candidates", *modes, *self._known.of_blocks))
        for mode in (mode for mode in modes if mode in made):
            for factor, levels in self._table(f"{place}.{mode}", made[mode]).items():
                at = f"{place}.{mode}.{factor}"
                self._one_of(at, factor, self._factors, "factor of `defaults`")
                if not isinstance(levels, list) or not levels:
                    self._fail(at, f"is {levels!r}; write a list of levels")
                for level in levels:
                    self._scalar(at, level)
                self._once(at, levels)

    def _candidates(self, block: str) -> None:
        made, place = self._raw["blocks"][block], f"blocks.{block}.candidates"
        asked = made.get("candidates", [])
        for name in (asked, *(self._raw[each] for each in (asked if _texts(asked) else ()) if each in self._raw)):
            if not _texts(name):
                self._fail(place, f"names {name!r}; write a list of names, or of lists of names of the design")
        self._once(place, self._names(block))

    def _names(self, block: str) -> list[str]:
        return [name for each in self._raw["blocks"][block].get("candidates", ()) for name in expanded(self._raw, each)]

    # -- predictions, tables, pictures, tests ----------------------------------------------------------------------

    def _entries(self, kind: str) -> None:
        listed = self._raw.get(kind, [])
        if not isinstance(listed, list):
            self._fail(kind, "is no list of tables")
        for number, each in enumerate(listed, 1):
            name = each.get("name", number) if isinstance(each, dict) else number
            self._entry(kind, f"{kind} {name}", self._table(f"{kind} {name}", each))
        self._once(kind, [each["name"] for each in listed if "name" in each])

    def _entry(self, kind: str, place: str, each: Table) -> None:
        needed, optional = ENTRIES[kind]
        self._keys(place, each, (*needed, *optional))
        if missing := [key for key in needed if key not in each]:
            self._fail(place, f"lacks {', '.join(missing)}")
        for key in NAMES:
            if key in each and not isinstance(each[key], str):
                self._fail(f"{place}: {key}", f"is {each[key]!r}, no name")
        for key in ("by", "candidates", "figures", "families"):
            if not _texts(each.get(key, [])):
                self._fail(f"{place}: {key}", f"is {each[key]!r}, no list of names")
        # Of curves the axes are figures.
        axes = ("panels",) if "families" in each else ("x", "panels", "factor", "other")
        for factor in [*(each[key] for key in axes if key in each), *each.get("by", ())]:
            self._one_of(place, factor, self._factors, "factor")
        if "block" in each:
            block = self._one_of(f"{place}: block", each["block"], list(self._raw["blocks"]), "block")
            families = self._raw["blocks"][block].get("candidates", []) if "at" in each or "families" in each else []
            named = [*(each[key] for key in ("of", "over") if key in each), *each.get("candidates", ())]
            for name in [*named, *each.get("families", ())]:
                self._one_of(place, name, [*self._names(block), *families], f"candidate of block {block}")
            for cells in ("where", "tuned"):
                self._cells(f"{place}: {cells}", block, self._table(f"{place}: {cells}", each.get(cells, {})))
            self._prices(kind, place, each)
        for key in ("level", "fixed"):
            self._scalar(f"{place}: {key}", each.get(key, 0))
        if kind == "pictures" and not FILE_NAME.fullmatch(each["name"]):
            self._fail(f"{place}: name", "is part of a file's name: write up to 100 characters without '/'")
        if kind == "predictions":
            self._one_of(f"{place}: is", each["is"], ("above", "below"), "comparison")
            if not _number(each["than"]):
                self._fail(f"{place}: than", f"is {each['than']!r}; write a number")

    def _prices(self, kind: str, place: str, each: Table) -> None:
        """Of a prediction one figure and what it may be; of a table of curves what it may be."""
        if kind == "predictions" and {"tuned", "gain"} & each.keys() and not {"at", "tuned", "gain"} <= each.keys():
            self._fail(place, "has some of at, gain and tuned; all three say how a constant is chosen")
        given = each.get("at", {} if kind == "predictions" else [])
        rates = list(given.values()) if kind == "predictions" and isinstance(given, dict) else given
        if not isinstance(rates, list) or not all(map(_number, rates)) or ("at" in each and not rates):
            self._fail(f"{place}: at", f"is {given!r}; write numbers, in a prediction one by its figure")
        if len(rates) > 1 and (kind == "predictions" or "tuned" in each):
            self._fail(f"{place}: at", f"is {given!r}; one price is expected")

    def _cells(self, place: str, block: str, where: Table) -> None:
        """Every level that is asked for is one that the block has in some mode."""
        made = self._raw["blocks"][block]
        modes = [made[mode] for mode in self._raw["seeds"] if mode in made]
        for factor, asked in where.items():
            self._one_of(place, factor, self._factors, "factor")
            default = [self._raw["defaults"][factor]] if factor in self._raw["defaults"] else []
            there = list(dict.fromkeys(level for mode in modes for level in mode.get(factor, default)))
            for level in asked if isinstance(asked, list) else [asked]:
                if level not in there:
                    levels = ", ".join(map(repr, there))
                    self._fail(place, f"no unit of block {block} has {factor} = {level!r}; its levels: {levels}")

    # -- words -----------------------------------------------------------------------------------------------------

    def _fail(self, place: str, said: str) -> NoReturn:
        raise StudyError(f"{self._where}: {place} {said}")

    def _table(self, place: str, value: Any) -> Table:
        if not isinstance(value, dict):
            self._fail(place, f"is {value!r}, no table")
        found: Table = value
        return found

    def _keys(self, place: str, table: Table, allowed: Sequence[str]) -> None:
        for key in table:
            if key not in allowed:
                self._fail(place, f"has an unknown key {str(key)!r}{_near(key, allowed)}; allowed: {_list(allowed)}")

    def _one_of(self, place: str, value: Any, allowed: Sequence[str], what: str) -> str:
        if value not in allowed:
            self._fail(place, f"names {value!r}, which is no {what}{_near(value, allowed)}; allowed: {_list(allowed)}")
        return str(value)

    def _scalar(self, place: str, level: Any) -> None:
        if isinstance(level, bool) or not (isinstance(level, str) or _number(level)):
            self._fail(place, f"has the level {level!r}; a level is a text or a number of 64 bits")

    def _once(self, place: str, names: Sequence[Any]) -> None:
        if twice := [name for at, name in enumerate(names) if name in names[:at]]:
            self._fail(place, f"names {twice[0]!r} twice")


def check_figures(raw: Table, where: str, record: Table) -> None:
    """`record`: the first of its block. Raises: StudyError for a figure that the design names and that candidates do
    not have."""
    have: Mapping[str, Collection[str]] = {
        name: each["figures"] for name, each in record.get("candidates", {}).items() if "figures" in each
    }
    of_any = list(dict.fromkeys(figure for figures in have.values() for figure in figures))
    for place, figure, names in _named(raw, record["block"]):
        for name in names or [""]:
            there = list(have.get(name, ())) if names else of_any
            # A candidate that is absent here has none.
            if there and figure not in there:
                told = f"{name} does not have" if name else "no candidate has"
                near = f"{_near(figure, there)}; allowed: {_list(there)}"
                raise StudyError(f"{where}: {place} names the figure {figure!r}, which {told}{near}")


def _named(raw: Table, block: str) -> Iterator[tuple[str, str, list[str]]]:
    """What names a figure of a block, the figure, and the candidates that must have it; some one without any."""
    for kind in ("predictions", "tests", "pictures", "tables", "curves"):
        for number, each in enumerate(raw.get(kind, ()), 1):
            if each["block"] == block:
                names = [name for key in ("of", "over") if key in each for name in expanded(raw, each[key])]
                keys = ("figure", "gain", "price", "y", *(["x"] if "families" in each else []))
                figures = [each[key] for key in keys if key in each] + list(each.get("figures", ()))
                figures += each["at"] if kind == "predictions" and "at" in each else []
                for figure in figures:
                    yield f"{kind} {each.get('name', number)}", figure, names


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _number(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)


def _near(value: Any, allowed: Sequence[str]) -> str:
    near = get_close_matches(str(value), allowed, 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _list(allowed: Sequence[str]) -> str:
    return ", ".join(allowed) or "none"
