"""JSON as Go's encoding/json decodes it into structs: case-insensitive names, only the first value, Go's error
messages. Used for extender responses, which are written for Go. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import go_quote
from minikube_py.errors import MinikubeError

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class BadJson(MinikubeError):
    """The message is Go's."""


class Shape(NamedTuple):
    """A Go type: `kind` is struct, list, map, string or int; `name` is how Go prints it. `fields`: of a struct, by
    name; `of`: the element type of a list or map."""

    kind: str
    name: str
    fields: Mapping[str, Shape] = {}
    of: Shape | None = None


STRING: Final = Shape("string", "string")
INT64: Final = Shape("int", "int64")
_ZEROS: Final = {"string": "", "int": 0}


class _Number(str):
    """A number as written."""


class _Pairs(list[tuple[str, Any]]):
    """An object, in order."""


def read(text: bytes, shape: Shape) -> Any:
    """The first value of `text`: structs as dictionaries with all fields, None for absent values of Go reference types.
    Raises: BadJson."""
    return _Reader().whole(_parsed(text.decode("utf-8", "replace")), shape)


# --- syntax ---------------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> Any:
    raise BadJson(f"invalid character '{name[0]}' looking for beginning of value")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
)
_OUTER_DEPTH: Final = 4
LARGE_BYTES: Final = 128 << 10
"""Longer texts must be read in a thread; the reader yields between the members of the outermost containers."""


_Scan = Callable[[str, int], tuple[Any, int]]


def _outer(depth: int, inner: Any) -> Any:
    """Reads the outermost objects and lists in Python, and their contents with `inner`."""
    found: Any = json.JSONDecoder(object_pairs_hook=_Pairs)
    below: _Scan = (_outer(depth - 1, inner) if depth else inner).scan_once

    def scan_once(text: str, at: int) -> Any:
        if text[at : at + 1] == "{":
            return found.parse_object((text, at + 1), True, below, None, _Pairs, {})
        return found.parse_array((text, at + 1), below) if text[at : at + 1] == "[" else inner.scan_once(text, at)

    found.scan_once = scan_once
    return found


_OUTER: Final[json.JSONDecoder] = _outer(_OUTER_DEPTH, _DECODER)
_PLACES: Final = (
    ("Expecting value", "looking for beginning of value"),
    ("Expecting property name", "looking for beginning of object key string"),
    ("Illegal trailing comma before end of object", "looking for beginning of object key string"),
    ("Illegal trailing comma before end of array", "looking for beginning of value"),
    ("Expecting ':'", "after object key"),
    ("Invalid control character", "in string literal"),
    ("Invalid \\u", "in \\u hexadecimal character escape"),
    ("Invalid \\", "in string escape code"),
)


def _parsed(text: str) -> Any:
    text = text.lstrip(" \t\r\n")
    if not text:
        raise BadJson("EOF")
    try:
        return (_OUTER if len(text) > LARGE_BYTES else _DECODER).raw_decode(text)[0]
    except json.JSONDecodeError as error:
        raise BadJson(_explained(text, error)) from None
    except RecursionError:
        raise BadJson("exceeded max depth") from None


def _explained(text: str, error: json.JSONDecodeError) -> str:
    position = error.pos
    while error.msg.startswith("Illegal trailing comma") and text[position] in ", \t\r\n":
        position += 1
    if error.msg.startswith("Invalid \\escape"):
        position += 1
    if position >= len(text) or error.msg.startswith("Unterminated"):
        return "unexpected EOF"
    place = next((told for begins, told in _PLACES if error.msg.startswith(begins)), "")
    if not place:
        place = "after object key:value pair" if _in_object(text[:position]) else "after array element"
    char = text[position]
    return f"invalid character {_quoted(char)} {place}"


def _quoted(char: str) -> str:
    return {"'": "'\\''", '"': "'\"'"}.get(char, f"'{go_quote(char)[1:-1]}'")


def _in_object(before: str) -> bool:
    """Whether the container that ends here is an object, not a list."""
    open_ones: list[str] = []
    quoted = escaped = False
    for char in before:
        if quoted:
            quoted = escaped or char != '"'
            escaped = not escaped and char == "\\"
        elif char == '"':
            quoted = True
        elif char in "[{":
            open_ones.append(char)
        elif char in "]}" and open_ones:
            open_ones.pop()
    return bool(open_ones) and open_ones[-1] == "{"


# --- types ----------------------------------------------------------------------------------------------------------

_GO_KINDS: Final = {_Number: "number", str: "string", bool: "bool", list: "array", _Pairs: "object"}


class _Reader:
    """Like Go, reports the first type mismatch after reading the rest."""

    def __init__(self) -> None:
        self._wrong = ""
        self._path: list[str] = []

    def whole(self, value: Any, shape: Shape) -> Any:
        found = self._value(value, shape, "")
        if self._wrong:
            raise BadJson(self._wrong)
        return found

    def _mismatch(self, value: Any, shape: Shape, struct: str, literal: str = "") -> None:
        if not self._wrong:
            kind = f"{_GO_KINDS[type(value)]}{literal}"
            where = f"struct field {struct}.{'.'.join(self._path)}" if struct else "value"
            self._wrong = f"json: cannot unmarshal {kind} into Go {where} of type {shape.name}"

    def _value(self, value: Any, shape: Shape, struct: str) -> Any:
        if value is None:
            return self._zero(shape)
        reader = {"struct": self._struct, "list": self._list, "map": self._map, "string": self._string}
        return reader.get(shape.kind, self._int)(value, shape, struct)

    def _zero(self, shape: Shape) -> Any:
        return _ZEROS.get(shape.kind)

    def _struct(self, value: Any, shape: Shape, struct: str) -> Any:
        if type(value) is not _Pairs:
            return self._mismatch(value, shape, struct)
        found = {name: self._zero(of) for name, of in shape.fields.items()}
        folded = {name.lower(): name for name in shape.fields}
        before, plain = self._path, shape.name.rpartition(".")[2]
        for key, item in value:
            name = key if key in shape.fields else folded.get(key.lower())
            if name is None:
                continue
            # Go names the outermost struct and the field path from there.
            self._path = [*before, name]
            told = self._value(item, shape.fields[name], struct or plain)
            if item is not None or shape.fields[name].kind not in _ZEROS:
                found[name] = told
        self._path = before
        return found

    def _list(self, value: Any, shape: Shape, struct: str) -> Any:
        if type(value) is not list:
            return self._mismatch(value, shape, struct)
        assert shape.of is not None
        return [self._value(item, shape.of, struct) for item in value]

    def _map(self, value: Any, shape: Shape, struct: str) -> Any:
        if type(value) is not _Pairs:
            return self._mismatch(value, shape, struct)
        assert shape.of is not None
        return {key: self._value(item, shape.of, struct) for key, item in value}

    def _string(self, value: Any, shape: Shape, struct: str) -> Any:
        if type(value) is not str:
            self._mismatch(value, shape, struct)
            return ""
        return value

    def _int(self, value: Any, shape: Shape, struct: str) -> Any:
        if type(value) is not _Number:
            self._mismatch(value, shape, struct)
            return 0
        whole = len(value) < 21 and value.lstrip("-").isdecimal()
        if not whole or not INT64_MIN <= int(value) <= INT64_MAX:
            self._mismatch(value, shape, struct, f" {value}")
            return 0
        return int(value)
