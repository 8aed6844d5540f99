"""Quantities and versions. Source: apiserver `pkg/cel/library/{quantity,semverlib}.go`, `blang/semver`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from minikube_py.cel.values import INT_MAX, INT_MIN, UINT_MAX, EvaluationError, Semver, go_quote
from minikube_py.errors import RequestError
from minikube_py.fields import quantity
from minikube_py.fields.quantity import Quantity

# --- quantities -----------------------------------------------------------------------------------------------------


def _quantity(text: str) -> Any:
    try:
        found = quantity.parse(text)
        if found.format == "BinarySI" and "." in text:
            # Upstream takes no such text for whole, nor what it is added to; it takes a scale below 0 so, too.
            return found._replace(unscaled=found.unscaled * 10, scale=found.scale - 1)
        return found
    except (RequestError, ValueError) as error:
        return EvaluationError(str(error))


def _is_quantity(text: str) -> bool:
    return type(_quantity(text)) is not EvaluationError


def _whole(value: Quantity) -> int | None:
    """As an int64; None if it is not an integer, or too large."""
    if value.scale < 0:
        return None
    found = value.value()
    return found if INT_MIN <= found <= INT_MAX else None


def _as_integer(value: Quantity) -> Any:
    found = _whole(value)
    return EvaluationError("cannot convert value to integer") if found is None else found


def _as_double(value: Quantity) -> float:
    return float(value.unscaled) * float(f"1e{value.scale}") if value.scale else float(value.unscaled)


def _minus(left: Quantity, right: Quantity) -> Quantity:
    """The least int64 has no negative: upstream adds it instead of subtracting."""
    return left.plus(right) if right.unscaled == INT_MIN else left.minus(right)


def _of_int(value: int) -> Quantity:
    return quantity.from_value(value, "DecimalExponent")


# --- versions -------------------------------------------------------------------------------------------------------

_DIGITS: Final = re.compile(r"[0-9]+")
_ALPHANUMERIC: Final = re.compile(r"[0-9A-Za-z-]+")


class _BadVersion(Exception):
    pass


def _number(text: str, what: str) -> int:
    if text and _DIGITS.fullmatch(text) is None:
        raise _BadVersion(f"Invalid character(s) found in {what.lower()} number {go_quote(text)}")
    if len(text) > 1 and text.startswith("0"):
        raise _BadVersion(f"{what} number must not contain leading zeroes {go_quote(text)}")
    return _uint(text)


def _uint(text: str) -> int:
    if not text:
        raise _BadVersion('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > UINT_MAX:
        raise _BadVersion(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return int(text)


def _identifier(text: str) -> int | str:
    if not text:
        raise _BadVersion("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text.startswith("0"):
            raise _BadVersion(f"Numeric PreRelease version must not contain leading zeroes {go_quote(text)}")
        return _uint(text)
    if _ALPHANUMERIC.fullmatch(text):
        return text
    raise _BadVersion(f"Invalid character(s) found in prerelease {go_quote(text)}")


def _parsed_version(text: str) -> Semver:
    if not text:
        raise _BadVersion("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise _BadVersion("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "Major"), _number(parts[1], "Minor")
    rest, plus, built = parts[2].partition("+")
    patch_text, dash, before = rest.partition("-")
    patch = _number(patch_text, "Patch")
    identifiers = tuple(map(_identifier, before.split("."))) if dash else ()
    build = tuple(built.split(".")) if plus else ()
    for part in build:
        if not part:
            raise _BadVersion("Build meta data is empty")
        if _ALPHANUMERIC.fullmatch(part) is None:
            raise _BadVersion(f"Invalid character(s) found in build meta data {go_quote(part)}")
    return Semver(major, minor, patch, identifiers, build)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for i, part in enumerate(parts):
        if len(part.encode()) > 1:
            part = part.lstrip("0")
            parts[i] = part if part[:1] and part[0] in "0123456789" else f"0{part}"
    if len(parts) < 3 and any(char in parts[-1] for char in "+-"):
        raise _BadVersion("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def semver(text: str, normalize: bool = False) -> Any:
    """A Semver, or the EvaluationError."""
    try:
        return _parsed_version(_normalized(text) if normalize else text)
    except _BadVersion as error:
        return EvaluationError(str(error))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "string_to_quantity": _quantity,
    "is_quantity_string": _is_quantity,
    "quantity_sign": lambda value: (value.unscaled > 0) - (value.unscaled < 0),
    "quantity_is_greater_than": lambda left, right: left.compare(right) > 0,
    "quantity_is_less_than": lambda left, right: left.compare(right) < 0,
    "quantity_compare_to": lambda left, right: left.compare(right),
    "quantity_get_float": _as_double,
    "quantity_get_int": _as_integer,
    "quantity_is_integer": lambda value: _whole(value) is not None,
    "quantity_add": lambda left, right: left.plus(right),
    "quantity_add_int": lambda left, right: left.plus(_of_int(right)),
    "quantity_sub": _minus,
    "quantity_sub_int": lambda left, right: _minus(left, _of_int(right)),
    "string_to_semver": semver,
    "string_bool_to_semver": semver,
    "is_semver_string": lambda text: type(semver(text)) is Semver,
    "is_semver_string_bool": lambda text, normalize: type(semver(text, normalize)) is Semver,
    "semver_major": lambda value: value.major,
    "semver_minor": lambda value: value.minor,
    "semver_patch": lambda value: value.patch,
    "semver_is_greater_than": lambda left, right: left.compare(right) > 0,
    "semver_is_less_than": lambda left, right: left.compare(right) < 0,
    "semver_compare_to": lambda left, right: left.compare(right),
}
