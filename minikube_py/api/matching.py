"""Selectors as compiled tests: the cost per object does not grow with the number of terms.

All terms on one label or field become one lookup, and only an object's own labels are checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from minikube_py.api.selectors import FieldRequirement, LabelRequirement

Labels = Mapping[str, str]


def int64(text: str) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def always(_: object) -> bool:
    return True


class _Values:
    """The allowed values of one label or field, from all its terms. `required`: it must be there."""

    __slots__ = ("above", "absent", "allowed", "below", "denied", "required")

    def __init__(self) -> None:
        self.required = False
        self.absent = False
        self.allowed: set[str] | None = None
        self.denied: set[str] = set()
        self.above: int | None = None
        self.below: int | None = None

    def add(self, op: str, values: tuple[str, ...]) -> None:
        if op == "!":
            self.absent = True
            return
        if op in ("!=", "notin"):
            self.denied.update(values)
            return
        self.required = True
        if op in ("=", "==", "in"):
            self.allowed = set(values) if self.allowed is None else self.allowed.intersection(values)
        elif op == ">":
            bound = int(values[0])
            self.above = bound if self.above is None else max(bound, self.above)
        elif op == "<":
            bound = int(values[0])
            self.below = bound if self.below is None else min(bound, self.below)

    def hold(self, value: str) -> bool:
        """Of a value that is there."""
        if self.absent or value in self.denied or (self.allowed is not None and value not in self.allowed):
            return False
        if self.above is None and self.below is None:
            return True
        number = int64(value)
        if number is None or (self.above is not None and number <= self.above):
            return False
        return self.below is None or number < self.below


_EQUAL: Final = frozenset(("=", "=="))


def compile_labels(requirements: tuple[LabelRequirement, ...]) -> Callable[[Labels | None], bool]:
    if not requirements:
        return always
    if {op for _, op, _ in requirements} <= _EQUAL:
        wanted = {key: values[0] for key, _, values in requirements}
        if len(requirements) == 1:
            ((key, value),) = wanted.items()
            return lambda labels: labels is not None and labels.get(key) == value
        if len(wanted) == len(requirements):
            items, count = wanted.items(), len(wanted)
            return lambda labels: labels is not None and count <= len(labels) and items <= labels.items()
    by_key: dict[str, _Values] = {}
    for key, op, values in requirements:
        by_key.setdefault(key, _Values()).add(op, values)
    required = sum(values.required for values in by_key.values())
    none: Labels = {}

    def matches(labels: Labels | None) -> bool:
        given = labels or none
        missing = required
        if missing > len(given):
            return False
        for key in given if len(given) < len(by_key) else by_key:
            values, value = by_key.get(key), given.get(key)
            if values is not None and value is not None:
                if not values.hold(value):
                    return False
                missing -= values.required
        return not missing

    return matches


def compile_fields(
    requirements: tuple[FieldRequirement, ...], getter: Callable[[str], Callable[[Mapping[str, Any]], str]]
) -> Callable[[Mapping[str, Any]], bool]:
    """A missing field is the empty text."""
    if not requirements:
        return always
    if len(requirements) == 1:
        ((field, op, wanted),) = requirements
        get_one, equal = getter(field), op == "="
        return lambda obj: (get_one(obj) == wanted) is equal
    by_field: dict[str, _Values] = {}
    for field, op, value in requirements:
        by_field.setdefault(field, _Values()).add(op, (value,))
    tests = [(getter(field), values.hold) for field, values in by_field.items()]
    return lambda obj: all(hold(get(obj)) for get, hold in tests)


def compile_attributes(requirements: tuple[FieldRequirement, ...]) -> Callable[[Mapping[str, str]], bool]:
    """As `compile_fields`, of the fields as text, by name."""

    def getter(field: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda attributes: attributes.get(field, "")

    return compile_fields(requirements, getter)
