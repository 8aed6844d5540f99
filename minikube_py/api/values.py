"""Values with custom JSON encoding: times, durations, quantities, bytes.

Each function takes a JSON value (numbers may be `json_text.Number`, as written) and gives the canonical form in which
upstream would print it, or raises `Mismatch` (the wrong JSON type) or `BadValue` (the right type, but an invalid
value). Wordings are Go's.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from minikube_py.api.errors import go_quote
from minikube_py.api.json_text import Number, text_of
from minikube_py.fields.digits import whole_number
from minikube_py.fields.quantity import QuantityError, canonical

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class Mismatch(Exception):
    """A JSON value of the wrong type: what it is (`string`, `number 1.5`), and the Go type it was meant for."""

    def __init__(self, value: str, go_type: str) -> None:
        super().__init__(value, go_type)
        self.value = value
        self.go_type = go_type


class BadValue(Exception):
    """A value of the right JSON type but invalid; the message is upstream's."""


def json_type(value: Any) -> str:
    """The type of a JSON value as Go's errors name it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float | Number):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "object" if type(value).__name__ == "Members" else "array"


def is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def number_text(value: Any) -> str:
    return str(value) if isinstance(value, Number) else repr(value)


# --- times ----------------------------------------------------------------------------------------------------------

SECONDS: Final = "2006-01-02T15:04:05Z07:00"
MICROS: Final = "2006-01-02T15:04:05.000000Z07:00"
_DAY_AND_TIME: Final = (
    r"(?!000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
)
_FAST_TIME = re.compile(_DAY_AND_TIME + "Z")
_FAST_MICRO = re.compile(_DAY_AND_TIME + r"\.[0-9]{6}Z")
is_canonical_time: Final[Callable[[str], Any]] = _FAST_TIME.fullmatch
is_canonical_micro_time: Final[Callable[[str], Any]] = _FAST_MICRO.fullmatch

_PARTS: Final = (
    ("2006", re.compile(r"[0-9]{4}")), ("-", re.compile("-")), ("01", re.compile(r"[0-9]{2}")), ("-", re.compile("-")),
    ("02", re.compile(r"[0-9]{2}")), ("T", re.compile("T")), ("15", re.compile(r"[0-9]{1,2}")), (":", re.compile(":")),
    ("04", re.compile(r"[0-9]{2}")), (":", re.compile(":")), ("05", re.compile(r"[0-9]{2}")),
)  # fmt: skip
_ZONE = re.compile(r"Z|[+-][0-9]{2}:[0-9]{2}")
_RANGES: Final = {
    2: (1, 12, "month"), 4: (1, 31, "day"), 6: (0, 23, "hour"), 8: (0, 59, "minute"), 10: (0, 59, "second"),
}  # fmt: skip


def time(value: Any) -> str:
    """`metav1.Time`: RFC 3339, printed in UTC to the second."""
    if not is_text(value):
        raise Mismatch(json_type(value), "string")
    if is_canonical_time(value):
        return str(value)
    moment, _ = _parse_time(text_of(value), SECONDS)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def micro_time(value: Any) -> str:
    """`metav1.MicroTime`: RFC 3339 with six digits, printed in UTC."""
    if not is_text(value):
        raise Mismatch(json_type(value), "string")
    if is_canonical_micro_time(value):
        return str(value)
    moment, micros = _parse_time(text_of(value), MICROS)
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + f".{micros:06d}Z"


def _parse_time(text: str, layout: str) -> tuple[datetime, int]:
    at = 0
    numbers: list[int] = []

    def wrong(rest: str, element: str) -> BadValue:
        return BadValue(
            f"parsing time {go_quote(text)} as {go_quote(layout)}: cannot parse {go_quote(rest)} as {go_quote(element)}"
        )

    for index, (element, pattern) in enumerate(_PARTS):
        match = pattern.match(text, at)
        if match is None:
            raise wrong(text[at:], element)
        at = match.end()
        if element.isdigit():
            numbers.append(int(match[0]))
        if index in _RANGES and not _RANGES[index][0] <= numbers[-1] <= _RANGES[index][1]:
            raise BadValue(f"parsing time {go_quote(text)}: {_RANGES[index][2]} out of range")
    micros = 0
    fraction = re.compile(r"[.,]([0-9]+)").match(text, at)
    if layout == MICROS and (fraction is None or len(fraction[1]) < 6 or text[at] != "."):
        raise wrong(text[at:], ".000000")
    if fraction is not None:
        used = fraction[1][:6] if layout == MICROS else fraction[1]
        at += 1 + len(used)
        micros = int(used[:6].ljust(6, "0"))
    zone = _ZONE.match(text, at)
    if zone is None:
        raise wrong(text[at:], "Z07:00")
    if zone.end() != len(text):
        raise BadValue(f"parsing time {go_quote(text)}: extra text: {go_quote(text[zone.end() :])}")
    return _moment(text, numbers, zone[0]), micros


def _moment(text: str, numbers: list[int], zone: str) -> datetime:
    offset = timedelta(0)
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 24 or minutes > 60:
            raise BadValue(f"parsing time {go_quote(text)}: time zone offset out of range")
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    year, month, day, hour, minute, second = numbers
    try:
        return (datetime(year, month, day, hour, minute, second, tzinfo=UTC) - offset).astimezone(UTC)
    except ValueError:
        raise BadValue(f"parsing time {go_quote(text)}: day out of range") from None
    except OverflowError:
        raise BadValue(f"parsing time {go_quote(text)}: year out of range") from None


_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_PART = re.compile(r"([0-9]*)\.?([0-9]*)(ns|us|µs|μs|ms|s|m|h)")


def duration(value: Any) -> str:
    """`metav1.Duration`, printed as Go prints it (`1m30s`)."""
    return duration_text(duration_ns(value))


def duration_ns(value: Any) -> int:
    """Of a `metav1.Duration`."""
    if not is_text(value):
        raise Mismatch(json_type(value), "string")
    if _DURATION.fullmatch(value) is None:
        raise BadValue(_why_no_duration(value))
    total = 0
    for count, fraction, unit in _DURATION_PART.findall(value):
        scale = _UNITS_NS[unit]
        total += whole_number(count or "0") * scale + int(fraction[:18] or "0") * scale // 10 ** len(fraction[:18])
    if total > INT64_MAX:
        raise BadValue(f"time: invalid duration {go_quote(value)}")
    return -total if value.startswith("-") else total


def _why_no_duration(text: str) -> str:
    """As Go's time.ParseDuration says it."""
    rest = re.sub(r"^[-+]", "", text)
    while match := re.match(r"([0-9]*)(\.[0-9]*)?", rest):
        if not (match[1] or (match[2] or "")[1:]):
            break
        unit = re.match(r"[^.0-9]*", rest[match.end() :])
        assert unit is not None
        if not unit[0]:
            return f"time: missing unit in duration {go_quote(text)}"
        if unit[0] not in _UNITS_NS:
            return f"time: unknown unit {go_quote(unit[0])} in duration {go_quote(text)}"
        rest = rest[match.end() + unit.end() :]
    return f"time: invalid duration {go_quote(text)}"


def duration_text(nanoseconds: int) -> str:
    """As Go's Duration.String."""
    rest = abs(nanoseconds)
    sign = "-" if nanoseconds < 0 else ""
    if rest == 0:
        return "0s"
    for unit, scale in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if rest < scale * 1_000:
            return f"{sign}{_decimal(rest, scale)}{unit}"
    minutes, seconds_ns = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(seconds_ns, 10**9)}s"


def _decimal(value: int, scale: int) -> str:
    whole, fraction = divmod(value, scale)
    digits = str(fraction).rjust(len(str(scale)) - 1, "0").rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)


# --- quantities and numbers -----------------------------------------------------------------------------------------


def quantity(value: Any) -> str:
    """`resource.Quantity`, canonical. A number is read by its text."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = value.strip()
    elif isinstance(value, int | float):
        text = repr(value)
    else:
        text = "{"
    try:
        return canonical(text)
    except QuantityError as error:
        raise BadValue(str(error)) from None


def whole(value: Any, low: int, high: int, go_type: str) -> int:
    """An integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float | Number):
        raise Mismatch(json_type(value), go_type)
    text = number_text(value)
    # int() would take underscores and blanks, but a JSON number has none.
    found = int(text) if text.lstrip("-").isdigit() and len(text) <= 20 else None
    if found is None or not low <= found <= high:
        raise Mismatch(f"number {text}", go_type)
    return found


def int_or_string(value: Any) -> int | str:
    if is_text(value):
        return text_of(value)
    return whole(value, INT32_MIN, INT32_MAX, "int32")


# --- bytes ----------------------------------------------------------------------------------------------------------

_ALPHABET: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def is_canonical_base64(value: str) -> bool:
    try:
        return binascii.b2a_base64(binascii.a2b_base64(value), newline=False).decode() == value
    except ValueError:
        return False


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def base64_bytes(value: str) -> str:
    """Base64 in its canonical form; line breaks in it are skipped, as Go does."""
    if is_canonical_base64(value):
        return value
    try:
        data = value.encode()
    except UnicodeEncodeError:
        data = text_of(value).encode()
    wrong_at = _first_wrong(data)
    if wrong_at >= 0:
        raise BadValue(f"illegal base64 data at input byte {wrong_at}")
    return base64.b64encode(binascii.a2b_base64(data)).decode()


def _first_wrong(data: bytes) -> int:
    """Where Go's decoder stops, or -1."""
    breaks = b"\r\n"
    at = 0
    filled = 0
    size = len(data)
    while at < size:
        char = data[at]
        at += 1
        if char in _ALPHABET:
            filled = (filled + 1) % 4
        elif char in breaks:
            continue
        elif char != 0x3D or filled < 2:
            return at - 1
        else:
            if filled == 2:
                while at < size and data[at] in breaks:
                    at += 1
                if at == size:
                    return size
                if data[at] != 0x3D:
                    return at - 1
                at += 1
            while at < size and data[at] in breaks:
                at += 1
            return at if at < size else -1
    return size - filled if filled else -1
