"""Values as Go prints them: text from bytes, and `%v` of fmt, `map[a:1 b:[x y]]`."""

from __future__ import annotations

import codecs
from decimal import Decimal
from typing import Any


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + 1


codecs.register_error("minikube_py.each_byte", _each_byte)


def go_text(data: bytes) -> str:
    """UTF-8 as Go reads it: each invalid byte is replaced. Python's `replace` may take several."""
    return data.decode("utf-8", "minikube_py.each_byte")


def go_format(value: Any) -> str:
    """`value` as `%v` prints it; maps sorted by key."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_format(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_format, value))}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return go_float(value) if isinstance(value, float) else str(value)


def go_float(value: float) -> str:
    """The shortest form; with an exponent below 1e-4 and from 1e6 on, of two digits at least."""
    if 1e-4 <= abs(value) < 1e6 or value == 0:
        return repr(value).removesuffix(".0")
    digits = Decimal(repr(value)).normalize()
    exponent = digits.adjusted()
    mantissa = format(digits.scaleb(-exponent), "f")
    return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def go_type(value: Any) -> str:
    """The Go type of a decoded JSON value."""
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return go_kind(value)


def go_kind(value: Any) -> str:
    """The kind of a decoded JSON value, as Go's reflect names it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, dict):
        return "map"
    return "slice" if isinstance(value, list) else "<nil>"


def same(left: Any, right: Any) -> bool:
    """Equal in Go's eyes: 1 is neither 1.0 nor true."""
    return left.__class__ is right.__class__ and bool(left == right)
