"""Functions over texts, which count code points. Source: cel-go `ext/{strings,formatting}.go`, apiserver
`pkg/cel/library/regex.go`."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from minikube_py.cel import regex
from minikube_py.cel.allowance import spend
from minikube_py.cel.operators import to_string
from minikube_py.cel.values import (
    ESCAPES,
    EXCEEDED,
    LENGTH_MAX,
    Duration,
    EvaluationError,
    Timestamp,
    TypeValue,
    UInt,
    go_quote,
    of_key,
    pairs,
    shown,
    type_name,
)

_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LOWER: Final = str.maketrans({chr(65 + i): chr(97 + i) for i in range(26)})
_UPPER: Final = str.maketrans({chr(97 + i): chr(65 + i) for i in range(26)})


_WEIGHT: Final = 7
"""A step reads or writes 2 ** 7 characters."""


def _weighed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(text: Any, *given: Any) -> Any:
        spend(len(text) >> _WEIGHT)
        return function(text, *given)

    return call


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> Any:
    return text[index : index + 1] if 0 <= index <= len(text) else _out_of_range(index)


def _index_of(text: str, part: str, start: int = 0) -> Any:
    if not part:
        return start
    return text.find(part, start) if start >= 0 else _out_of_range(start)


def _last_index_of(text: str, part: str, start: int | None = None) -> Any:
    if not part:
        return len(text) if start is None else start
    if start is not None and start < 0:
        return _out_of_range(start)
    if start is not None and start >= len(text):
        return -1
    within = text if start is None else text[: start + len(part)]
    # Unlike find, rfind takes the product of both lengths.
    found = within[::-1].find(part[::-1])
    return -1 if found < 0 else len(within) - len(part) - found


def _replace(text: str, old: str, new: str, most: int = -1) -> Any:
    count = text.count(old) if old else len(text) + 1
    count = count if most < 0 else min(count, most)
    if len(text) + count * len(new) > LENGTH_MAX:
        return EvaluationError(EXCEEDED)
    spend(count * len(new) >> _WEIGHT)
    return text.replace(old, new, count)


def _split(text: str, between: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not between:
        return [*text] if most < 0 or len(text) <= most else [*text[: most - 1], text[most - 1 :]]
    return text.split(between, most - 1 if most > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> Any:
    if end is not None and start > end:
        return EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, len(text) if end is None else end):
        if not 0 <= index <= len(text):
            return _out_of_range(index)
    return text[start:end]


def _join(items: list[Any], between: str = "") -> Any:
    for item in items:
        if type(item) is not str:
            return EvaluationError(f"join: invalid input: {shown(item)}")
    length = sum(map(len, items)) + len(items) * len(between)
    spend(len(items) + (length >> _WEIGHT))
    return between.join(items) if length <= LENGTH_MAX else EvaluationError(EXCEEDED)


def _quote(text: str) -> str:
    spend(len(text) >> 2)
    return f'"{"".join(ESCAPES.get(char, char) for char in text)}"'


def _find(text: str, pattern: str) -> Any:
    try:
        match = regex.compiled(pattern).find(text)
    except regex.BadPattern as error:
        return EvaluationError(f"Illegal regex: {error}")
    except regex.TooDear as error:
        return EvaluationError(str(error))
    return text[match[0] : match[1]] if match else ""


def _find_all(text: str, pattern: str, most: int = -1) -> Any:
    try:
        return regex.compiled(pattern).find_all(text, most)
    except regex.BadPattern as error:
        return EvaluationError(f"Illegal regex: {error}")
    except regex.TooDear as error:
        return EvaluationError(str(error))


# --- format ---------------------------------------------------------------------------------------------------------


class Unformatted(Exception):
    pass


CLAUSES: Final = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and"
    " timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}


def _format(text: str, arguments: list[Any]) -> Any:
    try:
        return formatted(text, arguments)
    except Unformatted as error:
        return EvaluationError(str(error))


def formatted(text: str, arguments: list[Any], by_clause: Callable[[str, int, Any], str] | None = None) -> str:
    """`by_clause`: checks that a clause takes an argument. Raises: Unformatted."""
    checks = by_clause is not None
    by_clause = by_clause or _by_clause
    found: list[str] = []
    at = used = 0
    while (sign := text.find("%", at)) >= 0:
        found.append(text[at:sign])
        if text.startswith("%", sign + 1):
            found.append("%")
            at = sign + 2
            continue
        ends = sign + 1 == len(text)
        # Upstream looks for the clause first where it only checks, and for the argument where it formats.
        if used >= len(arguments) and not (ends and checks):
            raise Unformatted(f"index {used} out of range")
        if ends:
            raise Unformatted("unexpected end of string")
        clause, precision, at = _clause(text, sign + 1)
        try:
            found.append(by_clause(clause, precision, arguments[used]))
        except Unformatted as error:
            raise Unformatted(f"error during formatting: {error}") from None
        used += 1
    return "".join([*found, text[at:]])


def _clause(text: str, at: int) -> tuple[str, int, int]:
    precision = 6
    if text[at] == ".":
        end = at + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        said = "could not parse formatting clause: error while parsing precision: "
        if end == len(text):
            raise Unformatted(f"{said}could not find end of precision specifier")
        if end == at + 1:
            said += "error while converting precision to integer: "
            raise Unformatted(f'{said}strconv.Atoi: parsing "": invalid syntax')
        precision, at = min(int(text[at + 1 : end][:9]), 10_000), end
    clause = text[at]
    if clause not in "sdfebxXo":
        raise Unformatted(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')
    return clause, precision, at + 1


def _by_clause(clause: str, precision: int, value: Any) -> str:
    kind = type(value)
    whole = kind is int or kind is UInt
    if clause == "s":
        return _plain(value)
    if clause == "d" and whole:
        return str(int(value))
    if clause in "fe":
        number = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value) if kind is str else value
        if type(number) is float:
            return _fixed(number, precision) if clause == "f" else _scientific(number, precision)
    if clause == "b" and (whole or kind is bool):
        return format(int(value), "b")
    if clause in "xX":
        if whole:
            return format(int(value), clause)
        if kind is str or kind is bytes:
            spend(len(value) >> _WEIGHT - 2)
            digits: str = (value.encode() if kind is str else value).hex()
            return digits.upper() if clause == "X" else digits
    if clause == "o" and whole:
        return format(int(value), "o")
    raise Unformatted(f"{CLAUSES[clause.lower()]}, was given {type_name(value)}")


def _fixed(value: float, precision: int) -> str:
    """As upstream's printer does it for American English."""
    if not math.isfinite(value):
        return "NaN" if value != value else "∞" if value > 0 else "-∞"
    return f"{Decimal(value or 0.0).quantize(Decimal(1).scaleb(-precision), context=_EXACT):,f}"


_EXACT: Final = Context(prec=20_000, rounding=ROUND_HALF_EVEN)
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _scientific(value: float, precision: int) -> str:
    """With the precision as a width, which is what upstream makes of it."""
    if not math.isfinite(value):
        return _fixed(value, precision).rjust(precision)
    mantissa, _, exponent = f"{value or 0.0:e}".partition("e")
    return f"{mantissa}×10{exponent.removeprefix('+').translate(_RAISED)}".rjust(precision)


def _plain(value: Any) -> str:
    spend(len(value) + 1 if isinstance(value, str | bytes | list | dict) else 1)
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, dict):
        entries = sorted((_nested_key(key), _nested(each)) for key, each in pairs(value))
        return f"{{{', '.join(f'{key}:{each}' for key, each in entries)}}}"
    if value is None:
        return "null"
    if isinstance(value, TypeValue):
        return value.name
    if type_name(value) not in _SHOWN:
        raise Unformatted(f"{CLAUSES['s']}, was given {type_name(value)}")
    found = to_string(value)
    if type(found) is EvaluationError:
        raise Unformatted(f'could not convert argument "{found}" to string')
    return str(found)


_SHOWN: Final = frozenset(
    ("int", "uint", "double", "bool", "string", "bytes", "google.protobuf.Timestamp", "google.protobuf.Duration")
)


def _nested_key(key: Any) -> str:
    key = of_key(key)
    if type_name(key) not in ("string", "bool", "int", "uint"):
        raise Unformatted(f"no formatting function for map key of type {type_name(key)}")
    return go_quote(key) if type(key) is str else _plain(key)


def _nested(value: Any) -> str:
    spend(len(value) + 1 if isinstance(value, str | bytes) else 1)
    if type(value) is str:
        return go_quote(value)
    if type(value) is bytes:
        return f"b{go_quote(_plain(value))}"
    if type(value) is float:
        return f"{value:.6f}" if math.isfinite(value) else f'"{shown(value)}"'
    if isinstance(value, Timestamp | Duration):
        return f"{'timestamp' if isinstance(value, Timestamp) else 'duration'}({go_quote(_plain(value))})"
    if type_name(value) not in _SHOWN and not isinstance(value, list | dict | TypeValue | None):
        raise Unformatted(f"no formatting function for {type_name(value)}")
    return _plain(value)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "string_jsonpatch_escapeKey_string": lambda text: text.replace("~", "~0").replace("/", "~1"),
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_of,
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring,
    "string_trim": lambda text: text.strip(_SPACE),
    "string_format": _format,
    "strings_quote": _quote,
    "list_join": _join,
    "list_join_string": _join,
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
}
FUNCTIONS: Final = {name: _weighed(function) for name, function in _FUNCTIONS.items()}
