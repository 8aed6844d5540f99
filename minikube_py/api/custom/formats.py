"""Formats of schemas: which apply to which type, and their validation.

Source: kube-openapi `pkg/validation/strfmt`, apiextensions-apiserver `pkg/apiserver/validation/formats.go`.
"""

from __future__ import annotations

import email.utils
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import date
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import urlsplit

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OCTET: Final = r"(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"
_UUID: Final = "[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{0}[0-9a-f]{{3}}-?{1}[0-9a-f]{{3}}-?[0-9a-f]{{12}}"
_HEX: Final = "[0-9a-f]"
_CARD: Final = (
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])"
    r"[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})"
)
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_GO_DURATION: Final = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_SCALA_DURATION: Final = re.compile(r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)")
_UNITS: Final = (
    ("ns", "nano"), ("us", "µs", "micro"), ("ms", "milli"), ("s", "sec"), ("m", "min"), ("h", "hr", "hour"),
    ("d", "day"), ("w", "wk", "week"),
)  # fmt: skip


def _like(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    found = re.compile(pattern, flags | re.ASCII)
    return lambda text: found.fullmatch(text) is not None


def _ipv4(text: str) -> bool:
    """As upstream, leading zeros are allowed."""
    parts = text.split(".")
    return len(parts) == 4 and all(p.isascii() and p.isdigit() and int(p[:8]) < 256 and len(p) < 8 for p in parts)


def _ipv6(text: str) -> bool:
    try:
        return "%" not in text and IPv6Address(text) is not None
    except AddressValueError:
        return False


def _cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit() and len(length) < 4):
        return False
    return (_ipv4(address) and int(length) <= 32) or (_ipv6(address) and int(length) <= 128)


def _mac(text: str) -> bool:
    pair, four = "[0-9a-fA-F]{2}", "[0-9a-fA-F]{4}"
    for sizes, sign, part in (((6, 8, 20), "[:]", pair), ((6, 8, 20), "[-]", pair), ((3, 4, 10), "[.]", four)):
        if any(re.fullmatch(f"{part}({sign}{part}){{{size - 1}}}", text) for size in sizes):
            return True
    return False


def _is_symbol(char: str) -> bool:
    return (char.isascii() and char.isalnum()) or unicodedata.category(char)[0] in "SL"


def _hostname(text: str) -> bool:
    if len(text.encode()) > 255 or any(len(part.encode()) > 63 for part in text.split(".")):
        return False
    *front, last = text.split(".")
    inner = [part for part in front if not (part and _label(part))]
    if not front:
        return bool(last) and _label(last)
    return not inner and 2 <= len(last) <= 63 and all(c.isalpha() for c in last)


def _label(text: str) -> bool:
    plain = all(_is_symbol(char) or char == "-" for char in text)
    return bool(text) and plain and not text.startswith("-") and not text.endswith("-")


def _email(text: str) -> bool:
    _, address = email.utils.parseaddr(text, strict=True) if _STRICT_ADDRESSES else email.utils.parseaddr(text)
    local, at, domain = address.rpartition("@")
    return bool(at and local and domain) and not any(char.isspace() for char in address)


_STRICT_ADDRESSES: Final = "strict" in email.utils.parseaddr.__code__.co_varnames


def _uri(text: str) -> bool:
    """As Go's `url.ParseRequestURI`: an absolute URI, or an absolute path."""
    if not text or any(ord(char) < 0x20 or ord(char) == 0x7F or char == " " for char in text):
        return False
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        return False
    if text.startswith("/"):
        return True
    match = re.match("[A-Za-z][A-Za-z0-9+.-]*:", text)
    if match is None:
        return False
    try:
        host = urlsplit(text).netloc.rpartition("@")[2]
    except ValueError:
        return False
    # A port of any size, unlike Python's.
    return re.fullmatch(r"(\[.*\]|[^:]*|.*(?=:))(:[0-9]*)?", host) is not None


def _date(text: str) -> bool:
    if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is None:
        return False
    try:
        # Go has a year 0, a leap year.
        return date.fromisoformat(text if text[:4] != "0000" else f"2000{text[4:]}") is not None
    except ValueError:
        return False


def _date_time(text: str) -> bool:
    day, sign, rest = text.lower().partition("t")
    match = _TIME.fullmatch(rest.partition("t")[0]) if sign and _date(day) else None
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True
    for _, unit in _SCALA_DURATION.findall(text):
        lowered = unit.lower()
        if any(lowered in names or lowered.startswith(names[-1]) for names in _UNITS):
            return True
    return False


def _card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if re.fullmatch(_CARD, digits) is None:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value % 10 + 1 if value >= 10 else value
    return total % 10 == 0


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if re.fullmatch("[0-9]{9}[0-9X]", digits) is None:
        return False
    numbers = [10 if char == "X" else int(char) for char in digits]
    return sum((place + 1) * number for place, number in enumerate(numbers)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if re.fullmatch("[0-9]{13}", digits) is None:
        return False
    total = sum((3 if place % 2 else 1) * int(char) for place, char in enumerate(digits[:12]))
    return (int(digits[12]) - (10 - total % 10) % 10) == 0


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "bsonobjectid": _like("[0-9a-fA-F]{24}"),
    "uri": _uri,
    "email": _email,
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "cidr": _cidr,
    "mac": _mac,
    "uuid": _like(_UUID.format(_HEX, _HEX), re.IGNORECASE),
    "uuid3": _like(_UUID.format("3", _HEX), re.IGNORECASE),
    "uuid4": _like(_UUID.format("4", "[89ab]"), re.IGNORECASE),
    "uuid5": _like(_UUID.format("5", "[89ab]"), re.IGNORECASE),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _card,
    "ssn": lambda text: len(text) == 11 and re.fullmatch("[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", text) is not None,
    "hexcolor": _like("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _like(rf"rgb\(\s*{_OCTET}\s*,\s*{_OCTET}\s*,\s*{_OCTET}\s*\)"),
    "byte": _like(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": _date,
    "duration": _duration,
    "datetime": _date_time,
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_LABEL, text) is not None,
    "k8slongname": lambda text: len(text) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text) is not None,
}
_NUMERIC: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}


def effective_format(name: str, types: Sequence[str]) -> str:
    """The format, or "" if it does not apply to these types and is ignored."""
    if not name:
        return ""
    type_ = types[0] if len(types) == 1 else ""
    if type_ in ("", "string"):
        return name if name.replace("-", "") in _FORMATS else ""
    return name if name in _NUMERIC.get(type_, ()) else ""


def is_format(name: str, text: str) -> bool:
    """Whether a text has the format; true for formats not for texts."""
    check = _FORMATS.get(name.replace("-", ""))
    return check is None or check(text)
