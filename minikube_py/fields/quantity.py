"""Kubernetes quantities: `100m`, `1.5Gi`, `12e6` read exactly, compared, added, and printed in canonical form.

Source: the API reference page "Quantity"; behaviour, even where surprising, as resource.Quantity of apimachinery 0.36.
A quantity is an exact multiple of 10**-9; finer values are rounded away from zero."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from minikube_py.errors import RequestError
from minikube_py.fields.whole import WIDE, wide

K = TypeVar("K")
V = TypeVar("V")
Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

FORMAT_WRONG: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC_WRONG: Final = "unable to parse numeric part of quantity"
SUFFIX_WRONG: Final = "unable to parse quantity's suffix"

INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)
MAX_EXPONENT: Final = 9999
"""Larger powers of ten are refused: upstream accepts them, but its arithmetic on them then does not terminate."""
MAX_LENGTH: Final = 4096
NANO: Final = -9
_WIDE_DIGITS: Final = 40
"""10 to the power of this exceeds `WIDE`."""

_SCANNER = re.compile(r"([+-]?)(0*)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*(?:[-+]?)[0-9]*)")
_DECIMAL: Final[dict[str, int]] = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final[dict[str, int]] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX: Final = {0: ""} | {exponent: suffix for suffix, exponent in _BINARY.items()}
_PLAIN_WHOLE: Final = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_PLAIN_MILLI: Final = {"": 1000, "m": 1}
_PLAIN_DIGITS: Final = 9
"""This many digits times any of these factors fit an int64."""
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")


class QuantityError(RequestError, ValueError):
    """Not a quantity; the message is upstream's."""


class Quantity(NamedTuple):
    """`unscaled * 10**scale`, scale >= -9. `text` is the canonical form, "" if not yet computed.

    Ordered and hashed as a tuple; use `compare` for order by value."""

    unscaled: int
    scale: int
    format: Format
    text: str

    def __str__(self) -> str:
        return self.text or _canonical(self)

    def at_scale(self, scale: int) -> int:
        """The value as an int in units of 10**scale, rounded away from zero."""
        shift = self.scale - scale
        power: int = 10 ** abs(shift)
        if shift >= 0:
            return self.unscaled * power
        quotient, rest = divmod(abs(self.unscaled), power)
        magnitude = quotient + (rest > 0)
        return magnitude if self.unscaled >= 0 else -magnitude

    def saturated(self, scale: int) -> int:
        """The same, and at most `WIDE` in size, to avoid computing larger values."""
        if self.scale - scale > _WIDE_DIGITS and self.unscaled:
            return WIDE if self.unscaled > 0 else -WIDE
        return wide(self.at_scale(scale))

    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return self.at_scale(0)

    def milli_value(self) -> int:
        return self.at_scale(-3)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1 as self is less than, equal to or greater than other."""
        low = min(self.scale, other.scale)
        left, right = self.at_scale(low), other.at_scale(low)
        return (left > right) - (left < right)

    def is_zero(self) -> bool:
        return self.unscaled == 0

    def plus(self, other: Quantity) -> Quantity:
        """The sum, in this one's format (in the other's if this one is zero)."""
        low = min(self.scale, other.scale)
        chosen = other.format if self.unscaled == 0 else self.format
        return Quantity(self.at_scale(low) + other.at_scale(low), low, chosen, "")

    def minus(self, other: Quantity) -> Quantity:
        return self.plus(Quantity(-other.unscaled, other.scale, other.format, ""))


ZERO: Final = Quantity(0, 0, "DecimalSI", "0")

_CACHE_LIMIT: Final = 20_000
_CACHED_CHARS_MAX: Final = 64
"""Longer texts are read each time: they may be as long as a request."""
_parsed: dict[str, Quantity] = {}
_whole: dict[str, int] = {}
_milli: dict[str, int] = {}
_wide: dict[tuple[bool, str], int] = {}


def parse(text: str) -> Quantity:
    """Raises: QuantityError with upstream's message."""
    found = _parsed.get(text)
    if found is None:
        found = _parse(text)
        _keep(_parsed, text, text, found)
    return found


def _keep(cache: dict[K, V], key: K, text: str, value: V) -> None:
    if len(text) <= _CACHED_CHARS_MAX:
        if len(cache) >= _CACHE_LIMIT:
            cache.clear()
        cache[key] = value


def from_json(value: Any) -> Quantity:
    """The quantity of a decoded JSON value: a string (surrounding blanks are dropped) or a number; null is zero.

    Raises: QuantityError."""
    if isinstance(value, str):
        return parse(value.strip())
    if value is None:
        return ZERO
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(FORMAT_WRONG)
    return parse(repr(value))


def canonical(text: str) -> str:
    """The text as upstream would print it. Raises: QuantityError."""
    return str(parse(text))


def from_value(value: int, format: Format = "DecimalSI") -> Quantity:
    return Quantity(value, 0, format, "")


def from_milli(milli: int, format: Format = "DecimalSI") -> Quantity:
    return Quantity(milli, -3, format, "")


def whole_units(text: str) -> int:
    """Whole units rounded up, as an int that fits int64. Raises: QuantityError."""
    found = _whole.get(text)
    if found is None:
        found = _plain(text, _PLAIN_WHOLE)
        if found is None:
            found = _remember(_whole, text, parse(text).value())
    return found


def milli_units(text: str) -> int:
    """Thousandths rounded up, as an int that fits int64. Raises: QuantityError."""
    found = _milli.get(text)
    if found is None:
        found = _plain(text, _PLAIN_MILLI)
        if found is None:
            found = _remember(_milli, text, parse(text).milli_value())
    return found


def wide_units(resource: str, value: Any) -> int:
    """The amount to add up for `resource`, from a decoded JSON value: milli-units for cpu, whole units otherwise, both
    rounded away from zero and at most `WIDE` in size. Raises: QuantityError."""
    known = _wide.get((resource == "cpu", value)) if type(value) is str else None
    if known is not None:
        return known
    units = from_json(value).saturated(-3 if resource == "cpu" else 0)
    if type(value) is str:
        _keep(_wide, (resource == "cpu", value), value, units)
    return units


def resource_units(resource: str, text: str) -> int:
    """A row's value for `resource`: milli-units for cpu, whole units otherwise. Raises: QuantityError."""
    return milli_units(text) if resource == "cpu" else whole_units(text)


def resource_text(resource: str, units: int) -> str:
    """The inverse of `resource_units`, in upstream's format: memory and storage in powers of two."""
    if resource == "cpu":
        return str(from_milli(units))
    binary = resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-")
    return str(from_value(units, "BinarySI" if binary else "DecimalSI"))


def _plain(text: str, factors: Mapping[str, int]) -> int | None:
    """Parses the usual texts faster than the scanner: a few digits and a suffix that multiplies them."""
    digits = text.rstrip("mKMGi")
    factor = factors.get(text[len(digits) :])
    if factor is None or len(digits) > _PLAIN_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) * factor


def _remember(cache: dict[str, int], text: str, value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise QuantityError(f"quantity {text!r} does not fit a signed 64-bit integer")
    _keep(cache, text, text, value)
    return value


def _suffix(suffix: str) -> tuple[int, int, Format]:
    """Base, exponent and format of a suffix."""
    exponent = _DECIMAL.get(suffix)
    if exponent is not None:
        return 10, exponent, "DecimalSI"
    exponent = _BINARY.get(suffix)
    if exponent is not None:
        return 2, exponent, "BinarySI"
    match = _EXPONENT.match(suffix)
    if match is None or len(match[1]) > 20 or abs(int(match[1])) > MAX_EXPONENT:
        raise QuantityError(SUFFIX_WRONG)
    return 10, int(match[1]), "DecimalExponent"


def _parse(text: str) -> Quantity:
    if text == "0":
        return ZERO
    match = _SCANNER.fullmatch(text)
    if not text or len(text) > MAX_LENGTH or match is None or not text.isascii():
        raise QuantityError(FORMAT_WRONG)
    sign, zeros, digits, _, fraction, suffix_text = match.groups()
    fraction = fraction or ""
    base, exponent, format = _suffix(suffix_text)
    whole = digits or "0"
    negative = sign == "-"
    if base == 10:
        scale = exponent - len(fraction)
        if len(whole) + len(fraction) <= 18 and scale >= NANO:
            shifted = whole + fraction
            kept = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
            unscaled = int(shifted)
            return Quantity(-unscaled if negative else unscaled, scale, format, text if kept else "")
    elif not fraction and 15 - len(whole) - exponent * 3 // 10 - 1 >= 0:
        mantissa = int(whole)
        unscaled = mantissa << exponent
        return Quantity(-unscaled if negative else unscaled, 0, format, text if mantissa & 7 else "")
    # The fast paths above read "" as zero ("m", "Ki"); upstream's exact path does not.
    if not (zeros or digits or fraction):
        raise QuantityError(NUMERIC_WRONG)
    return _parse_exactly(whole + fraction, len(fraction), base, exponent, format, negative)


def _parse_exactly(digits: str, places: int, base: int, exponent: int, format: Format, negative: bool) -> Quantity:
    """Upstream's slow path: any precision, rounded to 10**-9 away from zero, binary ones capped at int64."""
    unscaled = int(digits)
    scale = -places
    if base == 10:
        scale += exponent
    else:
        unscaled <<= exponent
    if unscaled and scale < NANO:
        shift = NANO - scale
        # A divisor longer than the number gives one; it need not be computed.
        unscaled = 1 if shift > len(digits) + 20 else -(-unscaled // 10**shift)
        scale = NANO
    elif not unscaled:
        scale = 0
    if format == "BinarySI":
        one = 10**-scale if scale < 0 else 1
        if unscaled > INT64_MAX * one:
            unscaled, scale = INT64_MAX, 0
        elif 0 < unscaled < one:
            format = "DecimalSI"
    return Quantity(-unscaled if negative else unscaled, scale, format, "")


def _canonical(quantity: Quantity) -> str:
    unscaled, scale, format, _ = quantity
    if unscaled == 0:
        return "0"
    if format == "BinarySI":
        value = quantity.value()
        if -1024 < value < 1024 or (scale < 0 and unscaled % 10**-scale):
            format = "DecimalSI"
        else:
            exponent = 0
            while value % 1024 == 0:
                value //= 1024
                exponent += 10
            return f"{value}{_BINARY_SUFFIX.get(exponent, '')}"
    while unscaled % 10 == 0:
        unscaled //= 10
        scale += 1
    extra = scale % 3
    unscaled *= 10**extra
    scale -= extra
    if format == "DecimalSI":
        return f"{unscaled}{_DECIMAL_SUFFIX.get(scale, '')}"
    return f"{unscaled}e{scale}" if scale else str(unscaled)
