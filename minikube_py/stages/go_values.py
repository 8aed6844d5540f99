"""Values as a Go template sees them, and as fmt and encoding/json print them, bounded.

Data comes from JSON with its numbers as text (json.Number): here, any `int` or `float` other than the two classes
below. None is a present null; MISSING is absent.
"""

from __future__ import annotations

import json
from typing import Any, Final

from minikube_py.api.errors import go_quote
from minikube_py.api.go_format import go_float
from minikube_py.stages.errors import StageFailed

CHARS_MAX: Final = 1 << 18
"""Maximum generated text; upstream accepts requests of 3 MiB."""
DEPTH_MAX: Final = 200


class Int(int):
    """A Go int, not a number of the data."""


class Int64(Int):
    """A Go int64, the result of sprig arithmetic; not accepted as int."""


class Float(float):
    """A Go float64, not a number of the data."""


class _Missing:
    def __repr__(self) -> str:
        return "<no value>"


MISSING: Final = _Missing()


def too_long() -> StageFailed:
    return StageFailed(f"it becomes longer than {CHARS_MAX:,} characters")


def is_number(value: Any) -> bool:
    """A json.Number."""
    return isinstance(value, int | float) and not isinstance(value, bool | Int | Float)


def number_text(value: Any) -> str:
    return json.dumps(value)


def kind_of(value: Any) -> str:
    """The basic kind for comparisons; "" if not comparable."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Int):
        return "int"
    if isinstance(value, Float):
        return "float64"
    if isinstance(value, str) or is_number(value):
        return "string"
    return ""


def type_of(value: Any) -> str:
    """As Go names it."""
    if is_number(value):
        return "json.Number"
    if isinstance(value, dict | list):
        return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"
    if isinstance(value, Int64):
        return "int64"
    return kind_of(value) or "interface {}"


def text_of(value: Any) -> str:
    """What a comparison of strings compares."""
    return value if isinstance(value, str) else number_text(value)


def is_true(value: Any) -> bool:
    if value is MISSING or value is None:
        return False
    return True if is_number(value) else bool(value)


class _Text:
    """A text builder with a size limit."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._left = CHARS_MAX

    def add(self, text: str) -> None:
        self._left -= len(text) + 1
        if self._left < 0:
            raise too_long()
        self.parts.append(text)

    def whole(self) -> str:
        return "".join(self.parts)


def shown(value: Any) -> str:
    """As `{{ }}` and `%v` print it."""
    if isinstance(value, str):
        return value
    text = _Text()
    _show(value, text, 0)
    return text.whole()


def _show(value: Any, text: _Text, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise StageFailed(f"a value nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        text.add("map[")
        for at, key in enumerate(sorted(value)):
            text.add(f"{' ' if at else ''}{key}:")
            _show(value[key], text, depth + 1)
        text.add("]")
    elif isinstance(value, list):
        text.add("[")
        for at, each in enumerate(value):
            if at:
                text.add(" ")
            _show(each, text, depth + 1)
        text.add("]")
    else:
        text.add(_scalar(value, depth))


def _scalar(value: Any, depth: int) -> str:
    if value is MISSING or value is None:
        return "<nil>" if depth else "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Float):
        return _general(float(value))
    return str(int(value)) if isinstance(value, Int) else text_of(value)


def _general(value: float) -> str:
    """%v: an exponent from 1e21 on."""
    if 1e6 <= abs(value) < 1e21 and value.is_integer():
        return str(int(value))
    return go_float(value)


def as_json(value: Any) -> str:
    """As json.Marshal prints it."""
    text = _Text()
    _json(value, text, 0)
    return text.whole()


def _json(value: Any, text: _Text, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise StageFailed(f"a value nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        text.add("{")
        for at, key in enumerate(sorted(value)):
            text.add(f"{',' if at else ''}{_json_text(str(key))}:")
            _json(value[key], text, depth + 1)
        text.add("}")
    elif isinstance(value, list):
        text.add("[")
        for at, each in enumerate(value):
            if at:
                text.add(",")
            _json(each, text, depth + 1)
        text.add("]")
    elif value is None or value is MISSING:
        text.add("null")
    else:
        text.add(_json_text(value) if isinstance(value, str) else _scalar(value, 1))


_HTML: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _json_text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_HTML)


def quoted(value: Any) -> str:
    """KWOK's `Quote`."""
    text = as_json(MISSING if value is MISSING else value)
    return text if text.startswith('"') else go_quote(text)
