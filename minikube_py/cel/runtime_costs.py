"""What calls cost while an expression is evaluated. Source: cel-go `interpreter/runtimecost.go`, `ext/{lists,sets}.go`,
apiserver `pkg/cel/library/cost.go`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from minikube_py.cel.costs import REGEX, TRAVERSAL, UNBOUNDED
from minikube_py.cel.values import CIDR, IP, URL, NamedFormat, Optional, Semver, pairs, size_of
from minikube_py.fields.quantity import Quantity

CallCost = Callable[[Sequence[Any], Any], int]
_CHECK: Final = 350_000
_LIST, _STRUCT = 10, 40
_OPAQUE: Final = (Quantity, Semver, IP, CIDR, URL, NamedFormat)
FORMAT_REGEX_SIZES: Final = {
    "DNS1123Label": 30, "DNS1123Subdomain": 60, "DNS1035Label": 30, "QualifiedName": 60, "DNS1123LabelPrefix": 30,
    "DNS1123SubdomainPrefix": 60, "DNS1035LabelPrefix": 30, "LabelValue": 40, "URI": 1103, "uuid": 70, "byte": 84,
    "date": 71, "datetime": 71,
}  # fmt: skip


def _sized(value: Any) -> int:
    """As apiserver: optionals are not unwrapped."""
    return 1 if type(value) is Optional else size_of(value)


def _text(argument: int, factor: float = 1) -> CallCost:
    return lambda args, result: math.ceil(_sized(args[argument]) * factor * TRAVERSAL)


def _one(args: Sequence[Any], result: Any) -> int:
    return 1


def _traversal(value: Any) -> int:
    if isinstance(value, str):
        return int(len(value.encode()) * TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, list):
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(each) for key, each in pairs(value))
    return 1


def _regex(text: Any, size: int) -> int:
    return math.ceil((1.0 + _sized(text)) * TRAVERSAL) * math.ceil(size * REGEX)


def _selector(args: Sequence[Any], result: Any) -> int:
    length = _sized(args[1])
    return _LIST + math.ceil(length * TRAVERSAL) + math.ceil(math.ceil(length * 0.5) * (_LIST + _STRUCT))


def _network(contains: bool, from_text: bool) -> CallCost:
    def cost(args: Sequence[Any], result: Any) -> int:
        own = _sized(args[0])
        total = math.ceil((own + own) * TRAVERSAL)
        if contains:
            total += math.ceil(own * TRAVERSAL) + 1
        return total + (math.ceil(_sized(args[1]) * TRAVERSAL) if from_text else 0)

    return cost


def _validated(args: Sequence[Any], result: Any) -> int:
    size = FORMAT_REGEX_SIZES[args[0].name] if isinstance(args[0], NamedFormat) else 0
    return _regex(args[1], size) if size else 1


def _equality(args: Sequence[Any], result: Any) -> int:
    return 1 if isinstance(args[0], _OPAQUE) else _least(args, result)


def _least(args: Sequence[Any], result: Any) -> int:
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * TRAVERSAL)


def _lists(size: int, factor: float = 1) -> int:
    return int(float(size) * factor) + 1 + _LIST


def _self_compared(argument: int) -> CallCost:
    def cost(args: Sequence[Any], result: Any) -> int:
        items = args[argument]
        if not isinstance(items, list):
            return 1
        texts = bool(items) and isinstance(items[0], str | bytes)
        return _lists(len(items) ** 2, 2.0 + (TRAVERSAL if texts else 0))

    return cost


def _sets(factor: float) -> CallCost:
    return lambda args, result: 1 + int(float(_sized(args[0]) * _sized(args[1])) * factor)


def _flattened(args: Sequence[Any], result: Any) -> int:
    depth = args[1] if len(args) == 2 else 1
    if not isinstance(depth, int):
        return 0
    return (_sized(args[0]) * depth + _LIST + 1) & UNBOUNDED


_OF_OVERLOADS: Final[dict[str, CallCost]] = {
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_slice": lambda args, result: _lists(_sized(result)),
    "list_reverse": lambda args, result: _lists(_sized(args[0])),
    "lists_range": lambda args, result: _lists(max(args[0], 0) if isinstance(args[0], int) else 1),
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "list_distinct": _self_compared(0),
}
OF_RESULTS: Final = frozenset(("slice", "join"))
"""Functions whose cost depends on the result."""
_UNIT: Final = (
    "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason", "error",
    "errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast",
    "isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger", "isInteger", "asApproximateFloat",
    "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch", "getScheme", "getHostname",
    "getHost", "getPort", "getEscapedPath", "getQuery",
)  # fmt: skip
_OF_FUNCTIONS: Final[dict[str, CallCost]] = {
    **dict.fromkeys(_UNIT, _one),
    "check": lambda args, result: _CHECK,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **{
        name: lambda args, result: _traversal(args[0])
        for name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf")
    },
    **{
        name: _text(0)
        for name in ("url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR", "ip", "quantity",
                     "isQuantity", "semver", "isSemver", "jsonpatch.escapeKey")
    },
    "replace": _text(0, 2),
    "split": _text(0, 2),
    "ip.isCanonical": _text(0, 2),
    "join": lambda args, result: math.ceil(_sized(result) * 2 * TRAVERSAL),
    "find": lambda args, result: _regex(args[0], _sized(args[1])),
    "findAll": lambda args, result: _regex(args[0], _sized(args[1])),
    "validate": _validated,
    "_==_": _equality,
    "_!=_": _least,
}  # fmt: skip
_BY_DEFAULT: Final[dict[str, CallCost]] = {
    **{
        name: lambda args, result: math.ceil(size_of(args[0]) * TRAVERSAL)
        for name in ("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote",
                     "string_format")
    },
    "in_list": lambda args, result: size_of(args[1]),
    **{
        f"{name}_{of}": _least
        for name in ("less", "less_equals", "greater", "greater_equals")
        for of in ("string", "bytes")
    },
    "add_string": lambda args, result: math.ceil((size_of(args[0]) + size_of(args[1])) * TRAVERSAL),
    "add_bytes": lambda args, result: math.ceil((size_of(args[0]) + size_of(args[1])) * TRAVERSAL),
    "matches_string": lambda args, result: (
        math.ceil((1.0 + size_of(args[0])) * TRAVERSAL) * math.ceil(size_of(args[1]) * REGEX)
    ),
    "contains_string": lambda args, result: (
        math.ceil(size_of(args[0]) * TRAVERSAL) * math.ceil(size_of(args[1]) * TRAVERSAL)
    ),
}  # fmt: skip


def cost_of(function: str, overload: str) -> CallCost:
    """`overload`: empty if chosen by the values."""
    if overload == "cidr_ip":
        return _one
    if function == "containsIP":
        return _network(False, overload == "cidr_contains_ip_string")
    if function == "containsCIDR":
        return _network(True, overload == "cidr_contains_cidr_string")
    if overload.endswith(("_sort", "_sortByAssociatedKeys")):
        return _self_compared(0 if overload.endswith("_sort") else 1)
    return _OF_OVERLOADS.get(overload) or _OF_FUNCTIONS.get(function) or _BY_DEFAULT.get(overload) or _one
