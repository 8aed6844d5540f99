"""Numbers in values without a Go type: how Go's JSON changes them on encoding and decoding.

A number with a point or an exponent is a float64 while a request is worked on. It is written in its shortest form,
without a point where it is whole and below 1e21, and so is an int64 when it is read again.
Source: `encoding/json` (floatEncoder), sigs.k8s.io/json (convertNumber).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson

from minikube_py.api.errors import Json

LONG: Final = re.compile(rb"\d{19}")
"""Matches texts that may contain an integer beyond int64."""


def _is_long(value: int) -> bool:
    return not -(1 << 63) <= value < 1 << 63


def whole(value: float) -> int | None:
    """The digits that a whole float is written with; None where it is written with a point or an exponent."""
    return int(Decimal(repr(value))) if value.is_integer() and abs(value) < 1e21 else None


def reread(value: float) -> int | float:
    """The value after one round trip."""
    found = whole(value)
    return value if found is None or _is_long(found) else found


def _written(value: Any) -> Any:
    if value.__class__ is not float:
        return value
    found = whole(value)
    if found is None:
        text = format(Decimal(repr(value)), "f") if 1e-6 <= abs(value) < 1e-4 else ""
    else:
        text = str(found) if _is_long(found) else ""
    return orjson.Fragment(text) if text else value if found is None else found


def _read(value: Any) -> Any:
    return float(value) if value.__class__ is int and _is_long(value) else value


def _reread(value: Any) -> Any:
    return reread(value) if value.__class__ is float else _read(value)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """With each number as `change` makes it, in place."""
    if isinstance(value, dict):
        for name, item in value.items():
            value[name] = _changed(item, change)
    elif isinstance(value, list):
        value[:] = [_changed(item, change) for item in value]
    else:
        return change(value)
    return value


def written(value: Any) -> Any:
    """As it is to be encoded; containers are changed in place."""
    return _changed(value, _written)


def write(obj: Json) -> None:
    """Makes an object ready to be encoded."""
    written(obj)


def read(obj: Any) -> None:
    """Whole numbers beyond an int64 are floats."""
    _changed(obj, _read)


def through_yaml(value: Any) -> Any:
    """YAML values, which are encoded as JSON once before decoding."""
    return _changed(value, _reread)
