"""Sets of characters in regular expressions: ranges, Unicode's categories and scripts, and case folding.

The tables are Go's (`unicode.json`, written by `tests/conformance/regex_answers.go tables`), so that an answer does not
depend on the version of Unicode in Python's `unicodedata`. Source: Go `regexp/syntax`, `unicode`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.cel.allowance import spend

Range = tuple[int, int]
LAST: Final = 0x10FFFF


class CharSet(NamedTuple):
    """Sorted ranges of code points that do not touch."""

    ranges: tuple[Range, ...]

    def has(self, char: str) -> bool:
        code = ord(char)
        at = bisect_right(self.ranges, (code, LAST)) - 1
        return at >= 0 and code <= self.ranges[at][1]


def merged(ranges: Iterable[Range]) -> CharSet:
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    spend(len(found) >> 1)
    return CharSet(tuple(found))


def outside(of: CharSet) -> CharSet:
    found, low = [], 0
    for first, last in of.ranges:
        if low < first:
            found.append((low, first - 1))
        low = last + 1
    return CharSet((*found, (low, LAST)) if low <= LAST else tuple(found))


def folded(of: CharSet) -> CharSet:
    """With all that differs from its characters in case alone."""
    orbits = _orbits()
    if len(of.ranges) == 1 and of.ranges[0][0] == of.ranges[0][1]:
        orbit = orbits.get(chr(of.ranges[0][0]))
        return merged((ord(char), ord(char)) for char in orbit) if orbit else of
    spend(len(orbits) >> 1)
    return merged(
        (*of.ranges, *((ord(other), ord(other)) for c, orbit in orbits.items() if of.has(c) for other in orbit))
    )


def named(name: str) -> CharSet | None:
    """The category or script that Go knows by this name, if any."""
    name = name.replace("_", "").replace("-", "").replace(" ", "").capitalize()
    if name == "Any":
        return CharSet(((0, LAST),))
    if name == "Assigned":
        return outside(_class("Cn"))
    if name == "Ascii":
        return CharSet(((0, 127),))
    tables = _tables()
    name = name if name in tables["classes"] else tables["aliases"].get(name, "")
    return _class(name) if name in tables["classes"] else None


@cache
def _tables() -> Any:
    return orjson.loads(Path(__file__).with_name("unicode.json").read_bytes())


@cache
def _class(name: str) -> CharSet:
    ends = (text.partition("-") for text in _tables()["classes"][name].split())
    return CharSet(tuple((int(low, 16), int(high or low, 16)) for low, _, high in ends))


@cache
def _orbits() -> dict[str, str]:
    return {char: orbit for orbit in _tables()["orbits"].split() for char in orbit}
