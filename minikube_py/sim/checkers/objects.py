"""Rows computed from every object: the reference for any index.

Written from the documentation of the declarations (`fields/spec.py`, the table in `fields/extract.py`), not from their
implementation: quantities as exact fractions, sums recomputed for each query."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, Final

from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.types import KeyValue

Row = dict[str, int | str]
Amounts = dict[str, Fraction]

_SUFFIXES: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{letter + "i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip
_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4})|([numkMGTPE]|[KMGTPE]i|))", re.ASCII
)
_QUANTITY_CHARS: Final = 4096
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_INT64: Final = (1 << 63) - 1
_WIDE: Final = 1 << 127
_MOST: Final = Fraction(_WIDE, 10**9)
"""Larger numbers are clamped to this, and rows to int64 (`fields/whole.py`)."""
CONTAINERS: Final = ("containers", "initContainers")
STRING_CHARS: Final = 1024
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class Unsupported(Exception):
    """A declaration or an object that this module cannot evaluate."""


class NoQuantity(Exception):
    """An invalid amount."""


class Undeclared(Unsupported):
    """Fields that are not declared at that revision."""


def amount(value: object) -> Fraction | None:
    """A quantity's exact value, None if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return _amount(str(value))


@lru_cache(maxsize=4096)
def _amount(text: str) -> Fraction | None:
    """As in resource.ParseQuantity: digits may be missing, and binary suffixes are clamped to the largest int64."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or not text or len(text) > _QUANTITY_CHARS:
        return None
    sign, whole, part, exponent, suffix = match.groups()
    digits = Fraction(int(whole or "0")) + Fraction(int(part or "0"), 10 ** len(part or ""))
    value = digits * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])
    if suffix and suffix.endswith("i"):
        value = min(value, Fraction(_INT64))
    return -value if sign == "-" else value


@lru_cache(maxsize=4096)
def units(resource: str, value: Fraction) -> int:
    """Milli-units of cpu, whole units of anything else, rounded away from zero."""
    scaled = value * 1000 if resource == "cpu" else value
    whole = ceil(abs(scaled))
    return max(-_WIDE, min(_WIDE, whole if scaled > 0 else -whole))


def held(value: int) -> int:
    """The value stored in a row."""
    return max(-_INT64, min(_INT64, value))


def at_path(obj: Any, path: str) -> Any:
    """The value at a dotted path, None if there is none. Raises: Unsupported for escapes and indexes."""
    if not _PLAIN_PATH.fullmatch(path):
        raise Unsupported(f"path {path}")
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


@lru_cache(maxsize=256)
def _decoded(value: bytes) -> Any:
    try:
        return json.loads(value, parse_constant=_no_json)
    except ValueError:
        return None


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def resources(listed: object) -> Amounts:
    if not isinstance(listed, dict):
        return {}
    read = {name: Fraction(0) if value is None else amount(value) for name, value in listed.items()}
    return {name: value for name, value in read.items() if value is not None}


def pod_amounts(pod: object) -> Amounts:
    """The requests of an unfinished pod; `pods` counts 1. {} if one of its requests is not a quantity. Raises:
    Unsupported for sidecars and pod-level requests."""
    if not isinstance(pod, dict) or at_path(pod, "status.phase") in ("Succeeded", "Failed"):
        return {}
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return {"pods": Fraction(1)}
    if "resources" in spec or any("restartPolicy" in each for each in spec.get("initContainers", ())):
        raise Unsupported("sidecars and pod-level requests")
    try:
        running, starting = ([_requests(each) for each in spec.get(key, ())] for key in CONTAINERS)
        asked = [*running, *starting, _amounts(spec.get("overhead"))]
    except NoQuantity:
        return {}
    total: Amounts = {}
    for name in {name for each in asked for name in each}:
        while_running = sum((each.get(name, Fraction(0)) for each in running), Fraction(0))
        total[name] = max([while_running, *(each[name] for each in starting if name in each)])
        total[name] += asked[-1].get(name, Fraction(0))
    total["pods"] = total.get("pods", Fraction(0)) + 1
    return total


def _requests(container: object) -> Amounts:
    return _amounts(at_path(container, "resources.requests"))


def _amounts(listed: object) -> Amounts:
    """Each is at most 2**127 nano-units. Raises: NoQuantity if one is invalid."""
    read = resources(listed)
    if isinstance(listed, dict) and len(read) < len(listed):
        raise NoQuantity
    return {name: max(-_MOST, min(_MOST, value)) for name, value in read.items()}


def _units_of(obj: Any, extractor: str, args: Mapping[str, str]) -> dict[str, int]:
    """A resource family's members in units, each rounded up separately."""
    if extractor == "count@1":
        return {"": 1}
    if extractor in ("pod_requests@1", "pod_requests@2"):
        asked = pod_amounts(obj)
        return {name: ceil(value * 1000) if name == "cpu" else ceil(value) for name, value in asked.items()}
    if extractor in ("resources@1", "resources@2"):
        read = resources(at_path(obj, args["path"]))
    else:
        raise Unsupported(f"extractor {extractor} in a sum or with minus")
    return {name: units(name, value) for name, value in read.items()}


class Rows:
    """The rows of one FieldSet over everything a store holds at one revision."""

    def __init__(self, field_set: FieldSet, kvs: Iterable[KeyValue]) -> None:
        self._field_set = field_set
        self._holding: dict[Where, set[bytes]] = {}
        self._objects: dict[bytes, Any] = {}
        self._totals: dict[str, dict[bytes, dict[str, int]]] = {spec.name: {} for spec in field_set.sums}
        sources = tuple(spec.source_prefix for spec in field_set.sums)
        for kv in kvs:
            if kv.key.startswith(field_set.prefix):
                self._objects[kv.key] = _decoded(kv.value)
            if kv.key.startswith(sources):
                for spec in field_set.sums:
                    if kv.key.startswith(spec.source_prefix):
                        self._add(spec, _decoded(kv.value))

    def _add(self, spec: SumSpec, referrer: Any) -> None:
        name = at_path(referrer, spec.reference)
        if not isinstance(name, str) or not name:
            return
        target = self._totals[spec.name].setdefault(self._field_set.prefix + name.encode(), {})
        members = _units_of(referrer, spec.extractor, spec.args)
        only = None if spec.name.endswith("*") else spec.args.get("resource", "")
        for resource, count in members.items():
            if only is None or resource == only:
                target[resource] = target.get(resource, 0) + count

    def holding(self, where: Where) -> set[bytes]:
        """The keys of the objects that match `where`."""
        known = self._holding.get(where)
        if known is None:
            known = {key for key in self._objects if all(self._holds(key, each) for each in where.comparisons)}
            self._holding[where] = known
        return known

    def value(self, key: bytes, name: str) -> int | str | None:
        """The field `name` of the object at `key`, None if it is missing."""
        spec = self._field_set.find(name)
        if spec is None or key not in self._objects:
            return None
        obj = self._objects[key]
        if spec.extractor == "path@1":
            text = at_path(obj, spec.args["path"])
            read = read_as(spec, name, spec.args.get("default") if text is None else text)
            # Version 1 omits values that do not fit.
            too_long = len(read) > STRING_CHARS if isinstance(read, str) else read is not None and held(read) != read
            return None if too_long else read
        if spec.extractor == "hash32@1":
            text = at_path(obj, spec.args["path"])
            return zlib.crc32(text.encode()) if isinstance(text, str) and text else None
        resource = resource_of(spec, name)
        if spec.extractor == "sum@2":
            return held(self._total(spec.args["sum"], key, spec.args["resource"]))
        if spec.extractor in ("sum@1", "sum@3"):
            if resource not in resources(at_path(obj, spec.args["over"])):
                return None
            return held(self._total(spec.args["sum"], key, resource))
        own = _units_of(obj, spec.extractor, spec.args).get(resource)
        if own is None or spec.minus is None:
            return None if own is None else held(own)
        return held(own - self._total(spec.minus, key, resource))

    def _total(self, sum_name: str, key: bytes, resource: str) -> int:
        return self._totals[sum_name].get(key, {}).get(resource, 0)

    def _holds(self, key: bytes, comparison: Comparison) -> bool:
        """A missing field matches only `!=`."""
        value = self.value(key, comparison.field)
        spec = self._field_set.find(comparison.field)
        if spec is None:
            raise Unsupported(f"field {comparison.field}")
        if value is None:
            return comparison.op == "!="
        bounds = [read_as(spec, comparison.field, text) for text in comparison.values]
        if comparison.op == "exists":
            return True
        if comparison.op == "in":
            return value in bounds
        return _COMPARED[comparison.op](value, bounds[0])


_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda value, bound: value == bound,
    "!=": lambda value, bound: value != bound,
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
}


def resource_of(spec: FieldSpec, name: str) -> str:
    return name[len(spec.name) - 1 :] if spec.name.endswith("*") else spec.args.get("resource", "")


def read_as(spec: FieldSpec, name: str, value: Any) -> int | str | None:
    """Parses a decoded JSON value, or the text of a comparison, as the kind of the field `name`."""
    if value is None:
        return None
    if spec.kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, int | str) else None
    if spec.kind == "quantity":
        read = amount(value)
        return None if read is None else units(resource_of(spec, name), read)
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
