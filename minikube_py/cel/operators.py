"""Operators and conversions, by the types of their values. Source: cel-go `common/types`, `common/stdlib`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from minikube_py.cel import regex
from minikube_py.cel.allowance import spend
from minikube_py.cel.values import (
    CIDR,
    EXCEEDED,
    INT_MAX,
    INT_MIN,
    IP,
    ITEMS_MAX,
    NANOSECONDS,
    SECONDS_MAX,
    SECONDS_MIN,
    UINT_MAX,
    Duration,
    EvaluationError,
    Growing,
    OwnList,
    Timestamp,
    TypeValue,
    UInt,
    double_text,
    duration_of,
    duration_text,
    equal,
    find,
    no_overload,
    order,
    timestamp_of,
    timestamp_text,
    type_name,
)
from minikube_py.fields.booleans import BOOLEANS

_NUMBERS: Final = frozenset((int, UInt, float))
_KUBERNETES: Final = frozenset(
    ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat")
)


def _int(value: int, of: type) -> Any:
    if of is UInt:
        return UInt(value) if 0 <= value <= UINT_MAX else EvaluationError("unsigned integer overflow")
    return value if INT_MIN <= value <= INT_MAX else EvaluationError("integer overflow")


def _duration(ns: int) -> Any:
    return Duration(ns) if INT_MIN <= ns <= INT_MAX else EvaluationError("integer overflow")


def _timestamp(ns: int, offset_s: int) -> Any:
    if not SECONDS_MIN <= ns // NANOSECONDS <= SECONDS_MAX:
        return EvaluationError("timestamp overflow")
    return Timestamp(ns, offset_s)


def add(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is int or kind is UInt:
        return _int(int(left) + int(right), kind) if other is kind else no_overload()
    if kind in (float, str, bytes):
        return left + right if other is kind else no_overload()
    if kind is Growing:
        if not isinstance(right, list):
            return no_overload()
        spend(len(right) >> 6)
        left.extend(right)
        return left
    if kind is list:
        if not isinstance(right, list):
            return no_overload()
        spend(len(left) + len(right) >> 6)
        return [*left, *right] if len(left) + len(right) <= ITEMS_MAX else EvaluationError(EXCEEDED)
    if kind is Duration:
        if other is Duration:
            return _duration(left.ns + right.ns)
        return _timestamp(right.ns + left.ns, right.offset_s) if other is Timestamp else no_overload()
    if kind is Timestamp:
        return _timestamp(left.ns + right.ns, left.offset_s) if other is Duration else no_overload()
    if isinstance(left, list):
        if not isinstance(right, list):
            return no_overload()
        return left.plus(right) if isinstance(left, OwnList) else [*left, *right]
    return no_overload("_+_")


def subtract(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is int or kind is UInt:
        return _int(int(left) - int(right), kind) if other is kind else no_overload()
    if kind is float:
        return left - right if other is float else no_overload()
    if kind is Duration:
        return _duration(left.ns - right.ns) if other is Duration else no_overload()
    if kind is Timestamp:
        if other is Duration:
            if right.ns == INT_MIN:
                return EvaluationError("integer overflow")
            return _timestamp(left.ns - right.ns, left.offset_s)
        return _duration(left.ns - right.ns) if other is Timestamp else no_overload()
    return no_overload("_-_")


def multiply(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is int or kind is UInt:
        return _int(int(left) * int(right), kind) if type(right) is kind else no_overload()
    if kind is float:
        return left * right if type(right) is float else no_overload()
    return no_overload("_*_")


def divide(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is int or kind is UInt:
        if type(right) is not kind:
            return no_overload()
        if right == 0:
            return EvaluationError("division by zero")
        quotient = abs(int(left)) // abs(int(right))
        return _int(-quotient if (left < 0) != (right < 0) else quotient, kind)
    if kind is float:
        return _quotient(left, right) if type(right) is float else no_overload()
    return no_overload("_/_")


def _quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or left != left or right != right:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is int or kind is UInt:
        if type(right) is not kind:
            return no_overload()
        if right == 0:
            return EvaluationError("modulus by zero")
        if left == INT_MIN and right == -1:
            return EvaluationError("integer overflow")
        rest = abs(int(left)) % abs(int(right))
        return _int(-rest if left < 0 else rest, kind)
    return no_overload("_%_")


def negate(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return _int(-value, int)
    if kind is float:
        return -value
    if kind is Duration:
        return _duration(-value.ns)
    return no_overload("-_")


def invert(value: Any) -> Any:
    return not value if type(value) is bool else no_overload()


def compare(left: Any, right: Any) -> Any:
    """-1, 0 or 1, or why there is no order between the two; None where they are of a type without an order."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS:
        if other not in _NUMBERS:
            return no_overload()
        found = order(left, right)
        return EvaluationError("NaN values cannot be ordered") if found is None else found
    if kind is str or kind is bytes or kind is bool or kind is Duration or kind is Timestamp:
        if other is not kind:
            return no_overload()
        if kind is Duration or kind is Timestamp:
            left, right = left.ns, right.ns
        return (left > right) - (left < right)
    return None


def _comparison(name: str, holds: Callable[[int], bool]) -> Callable[[Any, Any], Any]:
    def compared(left: Any, right: Any) -> Any:
        found = compare(left, right)
        if found is None:
            return no_overload(name)
        return found if type(found) is EvaluationError else holds(found)

    return compared


def contains(item: Any, whole: Any) -> Any:
    if isinstance(whole, list):
        spend(len(whole))
        return any(equal(each, item) for each in whole)
    if isinstance(whole, dict):
        # A default is no entry.
        return find(whole if type(whole) is dict else dict(whole), item)[1]
    return no_overload()


def size(value: Any) -> Any:
    return len(value) if isinstance(value, str | bytes | list | dict) else no_overload("size")


def matches(text: Any, pattern: Any) -> Any:
    if not isinstance(text, str) or not isinstance(pattern, str):
        return no_overload()
    try:
        return regex.compiled(pattern).matches(text)
    except (regex.BadPattern, regex.TooDear) as error:
        return EvaluationError(str(error))


def _texts(holds: Callable[[str, str], bool]) -> Callable[[Any, Any], Any]:
    return lambda text, part: holds(text, part) if isinstance(text, str) and isinstance(part, str) else no_overload()


# --- conversions ----------------------------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NATURAL: Final = re.compile(r"[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NO_NUMBER: Final = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)


def _not_converted(value: Any, to: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{to}'")


def to_int(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value
    if kind is UInt:
        return _int(int(value), int)
    if kind is float:
        # The least int64 is refused, too.
        if value != value or not -9223372036854775808.0 < value < 9223372036854775808.0:
            return EvaluationError("integer overflow")
        return int(value)
    if kind is str and len(value) < 4000 and _INTEGER.fullmatch(value) and INT_MIN <= (found := int(value)) <= INT_MAX:
        return found
    if kind is Timestamp:
        return value.ns // NANOSECONDS
    return value.ns if kind is Duration else _not_converted(value, "int")


def to_uint(value: Any) -> Any:
    kind = type(value)
    if kind is UInt:
        return value
    if kind is int:
        return _int(value, UInt)
    if kind is float:
        if not 0 <= value < 18446744073709551616.0:
            return EvaluationError("unsigned integer overflow")
        return UInt(value)
    if kind is str and len(value) < 4000 and _NATURAL.fullmatch(value) and (found := int(value)) <= UINT_MAX:
        return UInt(found)
    return _not_converted(value, "uint")


def to_double(value: Any) -> Any:
    kind = type(value)
    if kind in _NUMBERS:
        return float(value)
    if kind is str and (found := _double_of(value)) is not None:
        return found
    return _not_converted(value, "double")


def _double_of(text: str) -> float | None:
    plain = text.replace("_", "?")
    if _DECIMAL.fullmatch(plain):
        found = float(plain)
        return None if math.isinf(found) else found
    if _NO_NUMBER.fullmatch(plain):
        return float(plain)
    if _HEXADECIMAL.fullmatch(plain):
        try:
            return float.fromhex(plain)
        except OverflowError:
            return None
    return None


def to_string(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        return double_text(value)
    if kind is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return EvaluationError("invalid UTF-8 in bytes, cannot convert to string")
    if kind is Duration:
        return duration_text(value)
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is IP:
        return str(value.address)
    if kind is CIDR:
        return f"{value.address}/{value.bits}"
    return "null" if value is None else _not_converted(value, "string")


def to_bool(value: Any) -> Any:
    if type(value) is bool:
        return value
    found = BOOLEANS.get(value) if type(value) is str else None
    return found if found is not None else _not_converted(value, "bool")


def to_bytes(value: Any) -> Any:
    if type(value) is bytes:
        return value
    return value.encode() if type(value) is str else _not_converted(value, "bytes")


def to_duration(value: Any) -> Any:
    if type(value) is Duration:
        return value
    found = duration_of(value) if type(value) is str else None
    return found or _not_converted(value, "google.protobuf.Duration")


def to_timestamp(value: Any) -> Any:
    kind = type(value)
    if kind is Timestamp:
        return value
    if kind is int:
        return _timestamp(value * NANOSECONDS, 0)
    found = timestamp_of(value) if kind is str else None
    return found or _not_converted(value, "google.protobuf.Timestamp")


def _equals(left: object, right: object) -> Any:
    """A value of a type that Kubernetes added knows of its own type alone, where it is on the left."""
    if type_name(left) in _KUBERNETES and right is not None and type(left) is not type(right):
        return no_overload()
    return equal(left, right)


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "_+_": add, "_-_": subtract, "_*_": multiply, "_/_": divide, "_%_": modulo, "-_": negate, "!_": invert,
    "_==_": _equals, "_!=_": lambda left, right: not equal(left, right),
    "_<_": _comparison("_<_", lambda found: found < 0), "_<=_": _comparison("_<=_", lambda found: found <= 0),
    "_>_": _comparison("_>_", lambda found: found > 0), "_>=_": _comparison("_>=_", lambda found: found >= 0),
    "@in": contains, "size": size, "matches": matches, "contains": _texts(lambda text, part: part in text),
    "startsWith": _texts(str.startswith), "endsWith": _texts(str.endswith), "type": lambda v: TypeValue(type_name(v)),
    "dyn": lambda value: value, "int": to_int, "uint": to_uint, "double": to_double, "string": to_string,
    "bool": to_bool, "bytes": to_bytes, "duration": to_duration, "timestamp": to_timestamp,
}  # fmt: skip
CONVERSIONS: Final = frozenset(
    ("int", "uint", "double", "string", "bool", "bytes", "duration", "timestamp", "type", "dyn")
)
