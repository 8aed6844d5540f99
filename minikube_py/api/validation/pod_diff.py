"""Two pod specs compared line by line, as a refused update shows them: in the original's internal layout.

The layout (`pod_layout.json`, made by `tools/extract_pod_layout.py`) says of each type which fields it prints, in which
order, and what a missing one looks like.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import lru_cache
from importlib import resources
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import Json

_FIELD: Final = re.compile(r"(\w+)(?:=([\w-]+))?([$#!?%\[*.])(.*)")
_ZERO: Final = {"$": "", "#": 0, "!": False, "?": None, "%": None, "[": None, "*": None, ".": None}


class _Field(NamedTuple):
    """`json_name` "-": the field stands in the pod's spec, one level up, under its own name."""

    go_name: str
    json_name: str
    mark: str
    type: str


@lru_cache(1)
def _layout() -> dict[str, str]:
    text = resources.files("minikube_py.api.validation").joinpath("pod_layout.json").read_text()
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


def _lines(spec: Json) -> list[str]:
    text = json.dumps(_internal(spec, "PodSpec", spec), indent=1, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").splitlines(True)


def spec_diff(old: Json, new: Json) -> str:
    """Hunks of a unified diff with three lines of context."""
    return "".join(list(difflib.unified_diff(_lines(old), _lines(new), n=3))[2:])
