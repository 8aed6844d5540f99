"""Functions over lists, sets, maps and optionals.

Source: cel-go `ext/{lists,sets,comprehensions}.go`, `cel/library.go`, apiserver `pkg/cel/library/lists.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from minikube_py.cel.allowance import spend
from minikube_py.cel.messages import Message
from minikube_py.cel.operators import add, compare
from minikube_py.cel.values import (
    NONE,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    UInt,
    as_key,
    equal,
    go_name,
    no_overload,
    pairs,
    shown,
    type_name,
)

_KINDS: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROS: Final[dict[str, Any]] = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}


def _compared(left: Any, right: Any) -> Any:
    found = compare(left, right)
    return no_overload() if found is None else found


def _best(name: str, better: int) -> Callable[[list[Any]], Any]:
    def best(items: list[Any]) -> Any:
        if not items:
            return EvaluationError(f"{name} called on empty list")
        spend(4 * len(items))
        chosen = items[0]
        if compare(chosen, chosen) is None:
            return no_overload()
        for item in items[1:]:
            found = compare(chosen, item)
            if compare(item, item) is None:
                return no_overload()
            if found == better:
                chosen = item
        return chosen

    return best


def _is_sorted(items: list[Any]) -> Any:
    spend(3 * len(items))
    for i, item in enumerate(items):
        if compare(item, item) is None:
            return no_overload()
        if i and compare(items[i - 1], item) == 1:
            return False
    return True


def _sum_from(zero: Any) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        found = zero
        spend(2 * len(items))
        for item in items:
            found = add(found, item)
            if type(found) is EvaluationError:
                return found
        return found

    return total


def _index_of(items: list[Any], wanted: Any) -> int:
    spend(len(items))
    return next((i for i, item in enumerate(items) if equal(item, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    spend(len(items))
    return next((i for i in reversed(range(len(items))) if equal(items[i], wanted)), -1)


def _contains(items: list[Any], wanted: list[Any]) -> bool:
    spend(len(items) * len(wanted))
    return all(any(equal(item, each) for item in items) for each in wanted)


def _slice(items: list[Any], start: int, end: int) -> Any:
    said = f"cannot slice({start}, {end}), "
    if start < 0 or end < 0:
        return EvaluationError(f"{said}negative indexes not supported")
    if start > end:
        return EvaluationError(f"{said}start index must be less than or equal to end index")
    if len(items) < end:
        return EvaluationError(f"{said}list is length {len(items)}")
    return items[start:end]


def flatten(items: Any, depth: Any = 1) -> Any:
    if not isinstance(items, list):
        written = "map(dyn, dyn)" if isinstance(items, dict) else type_name(items)
        return EvaluationError(f"no such overload: {written}.flatten({'' if depth == 1 else type_name(depth)})")
    if type(depth) is not int:
        raise EvaluationError(f"internal error: interface conversion: ref.Val is {go_name(depth)}, not types.Int")
    if depth < 0:
        return EvaluationError("level must be non-negative")
    return _flatten(items, depth)


def _flatten(items: list[Any], depth: int) -> list[Any]:
    spend(len(items) + 1)
    found: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth:
            found += _flatten(item, depth - 1)
        else:
            found.append(item)
    return found


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        spend(len(found) + 1)
        if not any(equal(item, other) for other in found):
            found.append(item)
    return found


def _sorted_by(items: list[Any], keys: list[Any]) -> Any:
    if len(items) != len(keys):
        said = "@sortByAssociatedKeys() expected a list of the same size as the associated keys list"
        return EvaluationError(f"{said}, but got {len(items)} and {len(keys)} elements respectively")
    if not items:
        return items
    if compare(keys[0], keys[0]) is None:
        return EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        return EvaluationError("list elements must have the same type")
    if any(key != key for key in keys):
        return items

    spend(3 * len(items) * len(items).bit_length())

    def before(i: int, j: int) -> int:
        found: int = compare(keys[i], keys[j])
        return found

    return [items[i] for i in sorted(range(len(items)), key=cmp_to_key(before))]


def _insert(into: dict[Any, Any], key: Any, value: Any) -> Any:
    spend(4)
    as_written = as_key(key)
    if as_written in into:
        return EvaluationError(f"insert failed: key {shown(key)} already exists")
    into[as_written] = value
    return into


def _merge(into: dict[Any, Any], other: dict[Any, Any]) -> Any:
    for key, value in pairs(other):
        found = _insert(into, key, value)
        if type(found) is EvaluationError:
            return found
    return into


# --- optionals ------------------------------------------------------------------------------------------------------

_ZERO: Final = (bool, int, UInt, float, str, bytes, list, dict)


def _of_non_zero(value: Any) -> Optional:
    empty = value is None or (isinstance(value, _ZERO) and not value) or value in (Duration(0),)
    if type(value) is Message:
        empty = not value.fields
    if isinstance(value, Timestamp):
        empty = value.ns == -62_135_596_800 * 1_000_000_000
    return NONE if empty else Optional(value)


def _unwrapped(items: list[Any]) -> Any:
    wrong = next((item for item in items if type(item) is not Optional), None)
    if wrong is not None:
        return EvaluationError(f"value {shown(wrong)} is not optional")
    return [item.value for item in items if item.present]


def _value(optional: Optional) -> Any:
    return optional.value if optional.present else EvaluationError("optional.none() dereference")


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{f"list_{kind}_min_{kind}": _best("min", 1) for kind in _KINDS},
    **{f"list_{kind}_max_{kind}": _best("max", -1) for kind in _KINDS},
    **{f"list_{kind}_is_sorted_bool": _is_sorted for kind in _KINDS},
    **{f"list_{kind}_sum_{kind}": _sum_from(zero) for kind, zero in _ZEROS.items()},
    **{f"list_{kind}_sort": lambda items: _sorted_by(items, items) for kind in _KINDS},
    **{f"list_{kind}_sortByAssociatedKeys": _sorted_by for kind in _KINDS},
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_sets_contains_list": _contains,
    "list_sets_equivalent_list": lambda left, right: _contains(left, right) and _contains(right, left),
    "list_sets_intersects_list": lambda left, right: any(_contains(left, [each]) for each in right),
    "list_slice": _slice,
    "lists_range": lambda count: list(range(count)),
    "list_reverse": lambda items: items[::-1],
    "list_distinct": _distinct,
    "@mapInsert_map_map": _merge,
    "@mapInsert_map_key_value": _insert,
    "optional_of": Optional,
    "optional_ofNonZeroValue": _of_non_zero,
    "optional_none": lambda: NONE,
    "optional_unwrap": _unwrapped,
    "optional_unwrapOpt": _unwrapped,
    "list_first": lambda items: Optional(items[0]) if items else NONE,
    "list_last": lambda items: Optional(items[-1]) if items else NONE,
    "optional_value": _value,
    "optional_hasValue": lambda optional: optional.present,
}
