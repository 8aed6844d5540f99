"""The versioned extractors that a declaration may name: pure functions from a decoded object to values.

An extractor's results never change; a better one gets a new version. Unreadable values are missing. Those of version 2
read numbers of any size (`fields.whole`), the others omit values that do not fit int64.

| Name | Reads | Arguments |
|---|---|---|
| `path@1`, `path@2` | the value at a path, by the field's kind | `path`; `default`; `resource` (unit of a quantity) |
| `resources@1`, `resources@2` | a resource list: one member per resource | `path`; `resource` (one member only) |
| `pod_requests@1` | a pod's requests, {} once it is finished | `resource` (one member only) |
| `pod_requests@2` | the same as kube-scheduler counts it, resizes in place included | `resource` (one member only) |
| `hash32@1` | CRC-32 of the text at a path, missing if there is none | `path` |
| `sum@1` | a declared sum, 0 where nothing refers to the object | `sum`; `over` (path of a resource list: its names) |
| `sum@3` | as `sum@1`, with the names that `resources@2` reads | `sum`; `over`; `resource` |
| `sum@2` | one resource of a declared sum, 0 where nothing refers to the object | `sum`; `resource` |
| `count@1` | 1, whatever the object: a sum of it counts | none |"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from minikube_py.errors import InvalidRequest
from minikube_py.fields import quantity
from minikube_py.fields.paths import parse_path, read
from minikube_py.fields.pod_requests import pod_requests
from minikube_py.fields.resource_requests import resource_requests
from minikube_py.fields.spec import FieldSpec, Kind
from minikube_py.fields.times import parse_time
from minikube_py.fields.whole import EDGE, WIDE, clamp, wide

Value = int | str
Scalar = Callable[[Any], Value | None]
Family = Callable[[Any], dict[str, int]]

SUM_OVER = {"sum@1": "resources@1", "sum@3": "resources@2"}
"""Sums with a member for each name of a list, and the reader of that list."""
SUMS = frozenset((*SUM_OVER, "sum@2"))
NEWEST_EXTRACTORS = 2
"""The version of the rules (`mvcc.versions`) that has all of these."""
MAX_MEMBERS = 64
"""Further resources of one list (in order of name) are missing fields."""
MAX_STRING_LENGTH = 1024
"""A longer text is a missing field."""

INT64_LOW = -EDGE
INT64_HIGH = EDGE

_ARGS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "path@1": (frozenset({"path"}), frozenset({"default", "resource"})),
    "resources@1": (frozenset({"path"}), frozenset({"resource"})),
    "pod_requests@1": (frozenset(), frozenset({"resource"})),
    "hash32@1": (frozenset({"path"}), frozenset()),
    "sum@1": (frozenset({"sum", "over"}), frozenset({"resource"})),
    "sum@2": (frozenset({"sum", "resource"}), frozenset()),
    "count@1": (frozenset(), frozenset()),
}
_SINCE = {"path@2": 2, "resources@2": 2, "pod_requests@2": 2, "sum@3": 2}
"""The version of the rules that introduced an extractor; 1 for all others."""
_ARGS |= {name: _ARGS[before] for name, before in zip(_SINCE, ("path@1", "resources@1", "pod_requests@1", "sum@1"))}
_EXACT_SUMS = frozenset({"pod_requests@1", *SUMS})
FAMILIES = frozenset({"resources@1", "resources@2", "pod_requests@1", "pod_requests@2", *SUM_OVER})


def newest(name: str) -> str:
    """The latest version of an extractor."""
    return max((each for each in _ARGS if each.partition("@")[0] == name), default=f"{name}@1")


def is_clamped(spec: FieldSpec) -> bool:
    """Whether a row's value may be clamped (`fields.whole`)."""
    return spec.minus is not None or spec.extractor in _SINCE or spec.extractor in _EXACT_SUMS


def check(extractor: str, args: Mapping[str, str], kind: Kind, family: bool, version: int = NEWEST_EXTRACTORS) -> None:
    """Raises: InvalidRequest unless `version` of the rules has the extractor, and its arguments are known and valid."""
    if extractor not in _ARGS or _SINCE.get(extractor, 1) > version:
        known = ", ".join(sorted(name for name in _ARGS if _SINCE.get(name, 1) <= version))
        raise InvalidRequest(f"unknown extractor {extractor!r}; known: {known}")
    required, optional = _ARGS[extractor]
    if not required <= args.keys() <= required | optional:
        wanted, given = (", ".join(sorted(names)) or "none" for names in (required | optional, args))
        raise InvalidRequest(f"extractor {extractor} takes the arguments {wanted}; given: {given}")
    for name in ("path", "over"):
        if name in args:
            parse_path(args[name])
    if extractor in FAMILIES:
        if family == ("resource" in args):
            raise InvalidRequest(f"extractor {extractor}: a family has no argument resource, a single field needs it")
        if kind != "quantity":
            raise InvalidRequest(f"extractor {extractor} reads quantities, not {kind}")
    elif family:
        raise InvalidRequest(f"extractor {extractor} reads one value, not a family")
    elif extractor == "hash32@1" and kind != "int":
        raise InvalidRequest(f"extractor hash32@1 reads an int, not {kind}")
    elif extractor in ("sum@2", "count@1") and kind != "quantity":
        raise InvalidRequest(f"extractor {extractor} reads a quantity, not {kind}")


def scalar(extractor: str, args: Mapping[str, str], kind: Kind) -> Scalar:
    """The reader of one value; None is a missing field. For a family's extractor, of its member `resource`."""
    if extractor == "hash32@1":
        return _hash32(args["path"])
    if extractor == "path@1":
        return _path(args, kind, read_as)
    if extractor == "path@2":
        return _path(args, kind, read_wide)
    if extractor == "count@1":
        return lambda obj: 1
    members = family(extractor, args)
    name = args["resource"]
    return lambda obj: members(obj).get(name)


def family(extractor: str, args: Mapping[str, str]) -> Family:
    """The reader of a family: resource name to units."""
    if extractor == "pod_requests@1":
        return _by_rule(pod_requests)
    if extractor == "pod_requests@2":
        return _by_rule(resource_requests)
    path = parse_path(args["path"])
    if extractor == "resources@2":
        return lambda obj: wide_resource_list(read(obj, path))
    return lambda obj: resource_list(read(obj, path))


def wide_resource_list(resources: Any) -> dict[str, int]:
    """As `resource_list`, with numbers of any size."""
    if not isinstance(resources, dict):
        return {}
    names = resources if len(resources) <= MAX_MEMBERS else sorted(resources)[:MAX_MEMBERS]
    found: dict[str, int] = {}
    for name in names:
        try:
            found[name] = quantity.wide_units(name, resources[name])
        except quantity.QuantityError:
            continue
    return found


def resource_list(resources: Any) -> dict[str, int]:
    """Resource name to units of a decoded resource list; values that are unreadable or do not fit int64 are absent."""
    if not isinstance(resources, dict):
        return {}
    names = resources if len(resources) <= MAX_MEMBERS else sorted(resources)[:MAX_MEMBERS]
    found: dict[str, int] = {}
    for name in names:
        value = resources[name]
        try:
            found[name] = quantity.resource_units(name, value) if type(value) is str else _number(name, value)
        except quantity.QuantityError:
            continue
    return found


def _number(resource: str, value: Any) -> int:
    read_value = quantity.from_json(value)
    units = read_value.milli_value() if resource == "cpu" else read_value.value()
    if clamp(units) != units:
        # Without the number: Python refuses to print one of thousands of digits.
        raise quantity.QuantityError("it does not fit a signed 64-bit integer")
    return units


def _by_rule(rule: Callable[[dict[str, Any]], dict[str, int]]) -> Callable[[Any], dict[str, int]]:
    def requests_of(obj: Any) -> dict[str, int]:
        try:
            requests = rule(obj) if isinstance(obj, dict) else {}
        except quantity.QuantityError:
            return {}
        if len(requests) > MAX_MEMBERS:
            requests = {name: requests[name] for name in sorted(requests)[:MAX_MEMBERS]}
        return requests

    return requests_of


def _hash32(path_text: str) -> Scalar:
    path = parse_path(path_text)

    def hash32(obj: Any) -> int | None:
        text = read(obj, path)
        return zlib.crc32(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) and text else None

    return hash32


def _path(args: Mapping[str, str], kind: Kind, read_value: Callable[[Kind, Any, str], Value | None]) -> Scalar:
    path = parse_path(args["path"])
    default = args.get("default")
    resource = args.get("resource", "")

    def value_at(obj: Any) -> Value | None:
        value = read(obj, path)
        return read_value(kind, default if value is None else value, resource)

    return value_at


def read_as(kind: Kind, value: Any, resource: str = "") -> Value | None:
    """A decoded JSON value as `kind`, None if it is not readable as that."""
    if value is None:
        return None
    if kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        text = value if isinstance(value, str) else str(value) if isinstance(value, int) else None
        return text if text is not None and len(text) <= MAX_STRING_LENGTH else None
    if kind == "quantity":
        try:
            return _number(resource, value)
        except quantity.QuantityError:
            return None
    if kind == "time":
        return parse_time(value) if isinstance(value, str) else None
    return read_int(value)


def read_wide(kind: Kind, value: Any, resource: str = "") -> Value | None:
    """As `read_as`, with numbers of any size."""
    if value is None or kind in ("string", "time"):
        return read_as(kind, value, resource)
    if kind == "quantity":
        try:
            return quantity.wide_units(resource, value)
        except quantity.QuantityError:
            return None
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit()) or len(digits) > MAX_STRING_LENGTH:
            return None
        return wide(int(value))
    if isinstance(value, float) and not -EDGE < value < EDGE and value == value:
        # The JSON form of an integer larger than 64 bits.
        return wide(int(value)) if abs(value) < WIDE else WIDE if value > 0 else -WIDE
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_int(value: Any) -> int | None:
    """An int64 from a JSON integer or a decimal string."""
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if INT64_LOW <= value <= INT64_HIGH else None
