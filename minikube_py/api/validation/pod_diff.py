"""Two specs compared line by line, as a refused update shows them: in upstream's internal layout.

The layout (`pod_layout.json`, made by `tools/extract_pod_layout.py`) says of each type which fields it prints, in which
order, and what a missing one looks like.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.errors import Json

COMPARED_MAX: Final = 50_000
"""Pairs of lines: far more than an ordinary pod takes, and some milliseconds."""
_FIELD: Final = re.compile(r"(\w+)(?:=([\w-]+))?([$#!?%\[*.])(.*)")
_ZERO: Final = {"$": "", "#": 0, "!": False, "?": None, "%": None, "[": None, "*": None, ".": None}


class _Field(NamedTuple):
    """`json_name` "-": the field is in the pod's spec, one level up, under its own name."""

    go_name: str
    json_name: str
    mark: str
    type: str


@lru_cache(1)
def _layout() -> dict[str, str]:
    text = Path(__file__).with_name("pod_layout.json").read_text()
    found: dict[str, str] = json.loads(text)
    return found


def _derived(name: str) -> str:
    return name[0].lower() + name[1:]


@lru_cache(256)
def _fields(type_name: str) -> tuple[_Field, ...]:
    found: list[_Field] = []
    for text in _layout()[type_name].split():
        if text.startswith("@"):
            found += _fields(text[1:])
            continue
        match = _FIELD.fullmatch(text)
        assert match is not None, text
        found.append(_Field(match[1], match[2] or _derived(match[1]), match[3], match[4]))
    return tuple(found)


def _internal(value: Json, type_name: str, spec: Json) -> Json:
    shown: Json = {}
    for go_name, json_name, mark, type_ in _fields(type_name):
        given = spec.get(_derived(go_name)) if json_name == "-" else value.get(json_name)
        shown[go_name] = _part(given, mark, type_, spec)
    return shown


def _part(given: Any, mark: str, type_: str, spec: Json) -> Any:
    if given is None:
        return _internal({}, type_, spec) if mark == "." else _ZERO[mark]
    if mark == "%":
        return dict(sorted(given.items())) or None
    if mark == "[":
        inner = type_ if type_ in _layout() else ""
        return [_internal(item, inner, spec) if inner else item for item in given] or None
    return _internal(given, type_, spec) if mark in ("*", ".") else given


_INDENT: Final = re.compile("^(?:  )+", re.MULTILINE)


def internal(value: Json, type_name: str) -> Json:
    """`value` as upstream prints its internal type."""
    return _internal(value, type_name, value)


def _lines(spec: Json, type_name: str) -> list[str]:
    text = orjson.dumps(internal(spec, type_name), option=orjson.OPT_INDENT_2).decode() + "\n"
    text = _INDENT.sub(lambda found: " " * (len(found[0]) // 2), text)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").splitlines(True)


class _Matcher(difflib.SequenceMatcher[str]):
    """Diffs two texts up to `COMPARED_MAX` pairs of lines; the rest counts as replaced. Without a bound, thousands of
    small differences take quadratic time."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, old, new)
        places: dict[str, list[int]] = self.b2j  # type: ignore[attr-defined]
        self._costs = [0, *accumulate(1 + len(places.get(line, ())) for line in old)]
        self._left = COMPARED_MAX

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Any:
        end = len(self._costs) - 1 if ahi is None else ahi
        self._left -= self._costs[end] - self._costs[alo]
        if self._left < 0:
            return difflib.Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def spec_diff(old: Json, new: Json, type_name: str = "PodSpec") -> str:
    """Hunks of a unified diff with three lines of context, of two specs of that internal type."""
    before, after = _lines(old, type_name), _lines(new, type_name)
    shown: list[str] = []
    for group in _Matcher(before, after).get_grouped_opcodes(3):
        _, first, _, begin, _ = group[0]
        _, _, last, _, end = group[-1]
        shown.append(f"@@ -{_range(first, last)} +{_range(begin, end)} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                shown += [" " + line for line in before[i1:i2]]
                continue
            shown += ["-" + line for line in before[i1:i2]]
            shown += ["+" + line for line in after[j1:j2]]
    return "".join(shown)


def _range(first: int, end: int) -> str:
    length = end - first
    if length == 1:
        return str(first + 1)
    return f"{first + 1 if length else first},{length}"
