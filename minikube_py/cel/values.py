"""What expressions evaluate to: plain Python values, and a class for each type that Python and JSON lack.

Maps are dictionaries: text and int keys are plain, others include their type, so that `1`, `1u`, `1.0` and `true` stay
four keys. An error is a value, too: it passes through calls until `&&`, `||` or a condition drops it.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from minikube_py.cel.allowance import spend
from minikube_py.fields.digits import whole_number
from minikube_py.fields.quantity import Quantity

EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
ITEMS_MAX: Final = 1 << 24
LENGTH_MAX: Final = 1 << 26
"""Items of a list and characters of a text that an expression makes: upstream is limited only by memory; here it fails
as too expensive."""
INT_MIN, INT_MAX, UINT_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
NANOSECONDS: Final = 1_000_000_000
SECONDS_MIN, SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999."""


class EvaluationError(Exception):
    """An evaluation error, in upstream's words."""


class Unfit(Exception):
    """An expression whose evaluation always fails."""


class UInt(int):
    """A uint; Python's int is CEL's."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    ns: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Nanoseconds since 1970. `offset_s`: how far from UTC it was written."""

    ns: int
    offset_s: int = 0


@dataclass(frozen=True, slots=True)
class TypeValue:
    name: str


@dataclass(frozen=True, slots=True)
class Semver:
    major: int
    minor: int
    patch: int
    before: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()

    def __str__(self) -> str:
        before = f"-{'.'.join(map(str, self.before))}" if self.before else ""
        return f"{self.major}.{self.minor}.{self.patch}{before}{'+' if self.build else ''}{'.'.join(self.build)}"

    def compare(self, other: Semver) -> int:
        left, right = (self.major, self.minor, self.patch), (other.major, other.minor, other.patch)
        if left != right:
            return 1 if left > right else -1
        if not self.before or not other.before:
            return bool(other.before) - bool(self.before)
        ours, theirs = ([(isinstance(part, str), part) for part in each.before] for each in (self, other))
        return (ours > theirs) - (ours < theirs)


@dataclass(frozen=True, slots=True)
class IP:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class CIDR:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    bits: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((self.address, self.bits), strict=False)


@dataclass(frozen=True, slots=True)
class URL:
    text: str
    scheme: str
    host: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str


class Optional:
    """`present` distinguishes an optional of null from none."""

    __slots__ = ("present", "value")

    def __init__(self, value: object = None, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optional) and self.present == other.present and equal(self.value, other.value)

    def __hash__(self) -> int:
        return int(self.present)


NONE: Final = Optional(present=False)


class MapWithDefault(dict[Any, Any]):
    """Missing keys give `default`, as for device attributes."""

    __slots__ = ("default",)

    def __init__(self, entries: dict[Any, Any], default: object) -> None:
        super().__init__(entries)
        self.default = default


class OwnEquality:
    """A value with custom equality. `of`: its type, if it has a custom name."""

    __slots__ = ()
    of = ""

    def equals(self, other: object) -> bool:
        raise NotImplementedError


class OwnList(list[Any], OwnEquality):
    """A list with custom concatenation, too."""

    __slots__ = ()

    def plus(self, other: list[Any]) -> list[Any]:
        raise NotImplementedError


class Growing(list[Any]):
    """A loop's accumulator list, private until the loop ends: append without copying."""

    __slots__ = ()


_TYPES: Final[dict[type, str]] = {
    type(None): "null_type", bool: "bool", int: "int", UInt: "uint", float: "double", str: "string", bytes: "bytes",
    list: "list", Growing: "list", dict: "map", MapWithDefault: "map", Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp", TypeValue: "type", Optional: "optional_type", IP: "net.IP",
    CIDR: "net.CIDR", Quantity: "kubernetes.Quantity", Semver: "kubernetes.Semver", URL: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
}  # fmt: skip
_GO: Final = {
    "null_type": "types.Null", "bool": "types.Bool", "int": "types.Int", "uint": "types.Uint",
    "double": "types.Double", "string": "types.String", "bytes": "types.Bytes", "list": "*types.baseList",
    "map": "*types.baseMap", "optional_type": "*types.Optional", "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp", "type": "*types.Type", "net.IP": "cel.IP", "net.CIDR": "cel.CIDR",
    "kubernetes.Quantity": "cel.Quantity", "kubernetes.Semver": "cel.Semver", "kubernetes.URL": "cel.URL",
    "kubernetes.NamedFormat": "*cel.Format",
}  # fmt: skip
_NUMBERS: Final = frozenset((int, UInt, float))


def type_name(value: object) -> str:
    found = _TYPES.get(type(value))
    if found is None and isinstance(value, OwnEquality) and value.of:
        found = value.of
    if found is None:
        found = "list" if isinstance(value, list) else "map" if isinstance(value, dict) else type(value).__name__
    return found


def go_name(value: object) -> str:
    """The type as Go names it, which some errors tell."""
    return _GO.get(type_name(value), type_name(value))


def no_overload(function: str = "", *arguments: object) -> EvaluationError:
    if not function:
        return EvaluationError("no such overload")
    if not arguments:
        return EvaluationError(f"no such overload: {function}")
    return EvaluationError(f"no such overload: {function}({', '.join(map(type_name, arguments))})")


def as_key(value: object) -> Any:
    kind = type(value)
    return value if kind is str or kind is int else (type_name(value), value)


def of_key(key: Any) -> Any:
    return key[1] if type(key) is tuple else key


def pairs(mapping: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key, value in mapping.items():
        yield of_key(key), value


def find(mapping: dict[Any, Any], key: object) -> tuple[object, bool]:
    """The value at a key; equal numbers of other types match."""
    kind = type(key)
    exact = key if kind is str or kind is int else as_key(key)
    try:
        return mapping[exact], True
    except KeyError:
        pass
    except TypeError:
        return None, False
    if kind in _NUMBERS:
        assert isinstance(key, int | float)
        for other in _same_numbers(key):
            if other in mapping:
                return mapping[other], True
    return (mapping.default, True) if type(mapping) is MapWithDefault else (None, False)


def _same_numbers(key: int | float) -> Iterator[Any]:
    if math.isfinite(key) and key == int(key):
        number = int(key)
        if (not isinstance(key, int) or isinstance(key, UInt)) and INT_MIN <= number <= INT_MAX:
            yield number
        if type(key) is not UInt and 0 <= number <= UINT_MAX:
            yield "uint", UInt(number)


def equal(left: object, right: object) -> bool:
    kind = type(left)
    if kind is str or kind is bool or kind is bytes or left is None:
        return kind is type(right) and left == right
    if kind in _NUMBERS:
        return type(right) in _NUMBERS and order(left, right) == 0
    if isinstance(left, OwnEquality):
        return left.equals(right)
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return False
        spend(len(left))
        return all(map(equal, left, right))
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        spend(3 * len(left))
        return all(found and equal(value, other) for key, value in pairs(left) for other, found in (find(right, key),))
    if isinstance(left, Quantity):
        return isinstance(right, Quantity) and left.compare(right) == 0
    if isinstance(left, Timestamp):
        return isinstance(right, Timestamp) and left.ns == right.ns
    if isinstance(left, Semver):
        return isinstance(right, Semver) and left.compare(right) == 0
    if isinstance(left, URL):
        return isinstance(right, URL) and left.text == right.text
    return type(left) is type(right) and left == right


def order(left: Any, right: Any) -> int | None:
    """-1, 0 or 1 as the left is less than, equal to or greater than the right; None where one is not a number."""
    if isinstance(left, float) or isinstance(right, float):
        if left != left or right != right:
            return None
        if isinstance(left, int) and abs(right) <= UINT_MAX:
            left = float(left)
        if isinstance(right, int) and abs(left) <= UINT_MAX:
            right = float(right)
    return int(left > right) - int(left < right)


def alike(item: Any) -> list[Any]:
    """The item, and the numbers of other types that it equals."""
    found = [item]
    if type(item) in (int, UInt):
        found += [int(item)] * (item <= INT_MAX) + [UInt(item)] * (item >= 0) + [float(item)]
    elif type(item) is float and item == item and abs(item) <= UINT_MAX and item == int(item):
        number = int(item)
        found += [number] * (INT_MIN < number < INT_MAX) + [UInt(number)] * (0 <= number < UINT_MAX)
    return [other for other in found if equal(other, item)] or [item]


def size_of(value: object) -> int:
    """The size for costs: characters, bytes, items or entries; 1 for all else."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    if type(value) is IP:
        return len(value.address.packed)
    if type(value) is CIDR:
        return -(-value.bits // 8)
    if type(value) is Optional and value.present:
        return size_of(value.value)
    return 1


# --- as text --------------------------------------------------------------------------------------------------------


def double_text(value: float) -> str:
    """As Go's %g."""
    if not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    exponent = Decimal(repr(value)).adjusted() if value else 0
    if -4 <= exponent < 6:
        return plain_double(value)
    text = "".join(map(str, digits))
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def plain_double(value: float) -> str:
    """The shortest digits that tell it from others, without an exponent."""
    if not math.isfinite(value):
        return double_text(value)
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration_text(value: Duration) -> str:
    seconds, rest = divmod(abs(value.ns), NANOSECONDS)
    sign = -1 if value.ns < 0 else 1
    return f"{plain_double(sign * float(seconds) + sign * float(rest) / 1e9)}s"


def civil(timestamp: Timestamp, offset_s: int) -> tuple[int, int, int, int]:
    """Year, month, day and second of the day, so far from UTC."""
    days, second = divmod(timestamp.ns // NANOSECONDS + offset_s, 86_400)
    # Howard Hinnant's days from civil, reversed: `datetime` ends where offsets leave the year 9999.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return (
        year + era * 400 + (month >= 10),
        month + 3 if month < 10 else month - 9,
        of_year - (153 * month + 2) // 5 + 1,
        second,
    )


def timestamp_text(value: Timestamp) -> str:
    year, month, day, second = civil(value, value.offset_s)
    part = value.ns % NANOSECONDS
    fraction = f".{part:09d}".rstrip("0") if part else ""
    minutes = abs(value.offset_s) // 60
    zone = f"{'-' if value.offset_s < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}" if value.offset_s else "Z"
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}{fraction}{zone}"


def put_optional(entries: dict[Any, Any], place: Any, key: object, value: object) -> EvaluationError | None:
    """An optional entry of a map or a message: what is absent leaves none. `key`: as errors show it."""
    if type(value) is not Optional:
        text = f"cannot initialize optional entry '{shown(key)}' from non-optional value {shown(value)}"
        return EvaluationError(text)
    if value.present:
        entries[place] = value.value
    else:
        entries.pop(place, None)
    return None


def shown(value: object) -> str:
    """As Go's %v, the form in which errors show a value."""
    if value is True or value is False:
        return str(value).lower()
    if value is None:
        return "NULL_VALUE"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        return f"[{' '.join(map(str, value))}]"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{shown(key)}: {shown(each)}' for key, each in pairs(value))}}}"
    if isinstance(value, Optional):
        return f"optional({shown(value.value)})" if value.present else "optional.none()"
    if isinstance(value, TypeValue):
        return value.name
    return str(value)


ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def go_quote(text: str) -> str:
    """As Go's %q."""
    found = []
    for char in text:
        code = ord(char)
        if char in ESCAPES:
            found.append(ESCAPES[char])
        elif char == " " or (char.isprintable() and not char.isspace()):
            found.append(char)
        else:
            digits = f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
            found.append(digits)
    return f'"{"".join(found)}"'


# --- from text ------------------------------------------------------------------------------------------------------

_UNITS: Final = {
    "ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 1_000_000, "s": NANOSECONDS, "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


def duration_of(text: str) -> Duration | None:
    """As Go's time.ParseDuration; None where the text is no duration."""
    if _DURATION.fullmatch(text) is None:
        return None
    total = 0
    for count, fraction, unit in _PART.findall(text):
        scale = _UNITS[unit]
        total += whole_number(count or "0") * scale
        # Digits beyond what an int64 holds are dropped, as in Go.
        digits = (fraction or "")[:18]
        total += int(int(digits or 0) * (scale / 10 ** len(digits)))
    negative = text.startswith("-")
    return None if total > INT_MAX + negative else Duration(-total if negative else total)


_WORDS: Final = (
    (("ns", "nano"), 1), (("us", "µs", "micro"), 1000), (("ms", "milli"), 1_000_000), (("s", "sec"), NANOSECONDS),
    (("m", "min"), 60 * NANOSECONDS), (("h", "hr", "hour"), 3600 * NANOSECONDS), (("d", "day"), 86_400 * NANOSECONDS),
    (("w", "wk", "week"), 7 * 86_400 * NANOSECONDS),
)  # fmt: skip
_COUNTED: Final = re.compile(r"((\d+)\s*([A-Za-zµ]+))", re.ASCII)


def extended_duration_of(text: str) -> Duration | None:
    """As kube-openapi's strfmt.ParseDuration: `3 days`; None where the text is no duration."""
    total, found = 0, False
    for _, count, unit in _COUNTED.findall(text):
        for names, scale in _WORDS:
            if unit.lower() in names or unit.lower().startswith(names[-1]):
                total, found = total + whole_number(count) * scale, True
    return Duration(total) if found else None


_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def timestamp_of(text: str) -> Timestamp | EvaluationError | None:
    """As Go's time.Parse by RFC 3339; None where the text is no time."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59:
        return None
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _DAYS[month - 1] + leap:
        return None
    offset_s = 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes > 60:
            return None
        offset_s = (hours * 60 + minutes) * (-60 if match[8] == "-" else 60)
    seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_s
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        return EvaluationError("timestamp overflow")
    return Timestamp(seconds * NANOSECONDS + int((match[7] or "")[:9].ljust(9, "0")), offset_s)


def days_from_civil(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
