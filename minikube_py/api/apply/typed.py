"""Walks values by their types: their fields, differences and merges.

An absent value is `ABSENT`; None is JSON's null. Values are not changed; results share parts with them.

Source: structured-merge-diff `typed/{validate,tofieldset,merge,compare,remove,reconcile_schema,helpers}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from minikube_py.api.apply import path_set
from minikube_py.api.apply.path_set import FIELD, INDEX, Element, Path, PathSet, shown
from minikube_py.api.apply.types import Atom, ListOf, MapOf, Ref
from minikube_py.api.errors import go_quote
from minikube_py.api.go_format import go_format, go_type


class _Absent(Enum):
    ABSENT = 0


ABSENT: Final = _Absent.ABSENT
NONE: Final = PathSet()


class TypedError(ValueError):
    """The value is not of its type: one message for each place, in upstream's words."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        text = problems[0] if len(problems) == 1 else "\n".join(("errors:", *(f"  {each}" for each in problems)))
        super().__init__(text)


class Comparison(NamedTuple):
    removed: PathSet
    modified: PathSet
    added: PathSet


def equal(left: Any, right: Any) -> bool:
    """As JSON: 1 is 1.0, but not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(name in right and equal(item, right[name]) for name, item in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


# --- items of lists ---------------------------------------------------------------------------------------------------


def element_of(list_of: ListOf, item: Any) -> Element:
    """The key of an item of an associative list. Raises: ValueError, with upstream's words."""
    if not list_of.associative:
        raise ValueError("invalid indexing of non-associative list")
    if list_of.keys:
        return _keyed(list_of, item)
    if isinstance(item, dict):
        raise ValueError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ValueError("not supported: associative list with lists as elements")
    if item is None:
        raise ValueError("associative list without keys has an element that's an explicit null")
    return path_set.value(item)


def _keyed(list_of: ListOf, item: Any) -> Element:
    if item is None:
        raise ValueError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ValueError("associative list with keys may not have non-map elements")
    found = {}
    for name in list_of.keys:
        if name in item:
            found[name] = item[name]
            continue
        struct = list_of.element.atom.map
        if struct is None:
            raise ValueError(
                f"couldn't find default value for {name}: associative list may not have non-map types"
            )
        declared = struct.fields.get(name)
        if declared is not None and declared.default is not None:
            found[name] = declared.default
    if not found:
        keys = " ".join(map(go_quote, list_of.keys))
        raise ValueError(
            f"associative list with keys has an element that omits all key fields [{keys}] "
            "(and doesn't have default values for any key fields)"
        )
    return path_set.key(found)


def _indexed(list_of: ListOf, items: list[Any], problems: list[str]) -> list[tuple[Element, Any]]:
    found = []
    for index, item in enumerate(items):
        try:
            found.append((element_of(list_of, item), item))
        except ValueError as error:
            problems.append(f"element {index}: {error}")
    return found


def _member_type(map_of: MapOf, name: str) -> Ref | None:
    declared = map_of.fields.get(name)
    return map_of.element if declared is None else declared.type


# --- validate ---------------------------------------------------------------------------------------------------------


def validate(value: Any, ref: Ref, duplicates: bool = False) -> None:
    """`duplicates`: lists may hold an item twice. Raises: TypedError."""
    problems = [f"{shown(path)}: {text}" if path else text for path, text in _problems(value, ref, (), duplicates)]
    if problems:
        raise TypedError(problems)


def _problems(value: Any, ref: Ref, path: Path, duplicates: bool) -> Iterator[tuple[Path, str]]:
    atom = ref.atom.of(value)
    if atom.map is not None:
        if isinstance(value, dict):
            yield from _map_problems(value, atom.map, path, duplicates)
        elif value is not None:
            yield path, f"expected map, got &{{{go_format(value)}}}"
    elif atom.scalar is not None:
        if text := _scalar_problem(atom.scalar, value):
            yield path, text
    elif isinstance(value, list) and atom.list is not None:
        yield from _list_problems(value, atom.list, path, duplicates)
    elif value is not None:
        yield path, f"expected list, got &{{{go_format(value)}}}"


def _map_problems(value: dict[str, Any], map_of: MapOf, path: Path, duplicates: bool) -> Iterator[tuple[Path, str]]:
    for name, item in sorted(value.items()):
        below, type_ = (*path, path_set.field(name)), _member_type(map_of, name)
        if type_ is None:
            yield below, "field not declared in schema"
            return
        yield from _problems(item, type_, below, duplicates)


def _list_problems(items: list[Any], list_of: ListOf, path: Path, duplicates: bool) -> Iterator[tuple[Path, str]]:
    seen: set[Element] = set()
    for index, item in enumerate(items):
        element: Element = (INDEX, index)
        if list_of.associative:
            try:
                element = element_of(list_of, item)
            except ValueError as error:
                yield path, f"element {index}: {error}"
                return
            if element in seen and not duplicates:
                yield path, f"duplicate entries for key {shown((element,))}"
            seen.add(element)
        yield from _problems(item, list_of.element, (*path, element), duplicates)


def _scalar_problem(scalar: str, value: Any) -> str:
    if value is None:
        return ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if scalar == "numeric" and not is_number:
        return f"expected numeric (int or float), got {go_type(value)}"
    if scalar == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if scalar == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{go_format(value)}}}"
    if scalar == "untyped" and isinstance(value, dict | list):
        return f"expected any scalar, got &{{{go_format(value)}}}"
    return ""


def _go_syntax(value: Any) -> str:
    """As `%#v` prints it."""
    if isinstance(value, dict):
        items = ", ".join(f"{go_quote(name)}:{_go_syntax(item)}" for name, item in sorted(value.items()))
        return f"map[string]interface {{}}{{{items}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return go_quote(value) if isinstance(value, str) else go_format(value)


# --- what is in a value -----------------------------------------------------------------------------------------------


def field_set(value: Any, ref: Ref) -> PathSet:
    """Every leaf and every item that the value mentions."""
    found = PathSet()
    _collect(value, ref, (), found)
    return found


def _collect(value: Any, ref: Ref, path: Path, found: PathSet) -> None:
    atom = ref.atom.of(value)
    if atom.map is not None:
        if atom.map.atomic:
            found.insert(path)
        elif isinstance(value, dict):
            _collect_members(value, atom.map, path, found)
    elif atom.list is None or not atom.list.associative:
        found.insert(path)
    elif isinstance(value, list):
        _collect_items(value, atom.list, path, found)


def _collect_members(value: dict[str, Any], map_of: MapOf, path: Path, found: PathSet) -> None:
    for name, item in value.items():
        declared = map_of.fields.get(name)
        type_, below = (map_of.element if declared is None else declared.type), (*path, (FIELD, name))
        if type_ is None:
            raise TypedError([f"{shown(below)}: field not declared in schema"])
        _collect(item, type_, below, found)
        if declared is None or item is None or item == {}:
            found.insert(below)


def _collect_items(items: list[Any], list_of: ListOf, path: Path, found: PathSet) -> None:
    indexed = _indexed(list_of, items, [])
    counts: dict[Element, int] = {}
    for element, _ in indexed:
        counts[element] = counts.get(element, 0) + 1
    for element, item in indexed:
        found.insert((*path, element))
        # Fields in duplicate items have no separate owner.
        if counts[element] == 1:
            _collect(item, list_of.element, (*path, element), found)


# --- compare ----------------------------------------------------------------------------------------------------------


def compare(left: Any, right: Any, ref: Ref) -> Comparison:
    """What `right` removes, changes and adds. Raises: TypedError."""
    found = Comparison(PathSet(), PathSet(), PathSet())
    problems: list[str] = []
    _compare(left, right, ref, (), found, problems)
    if problems:
        raise TypedError(problems)
    return found


def _compare(left: Any, right: Any, ref: Ref, path: Path, found: Comparison, problems: list[str]) -> None:
    atom = ref.atom
    mine, theirs = atom.of(left), atom.of(right)
    if right is ABSENT:
        leaf = _compare_as(mine, left, right, path, found, problems)
    elif left is ABSENT or mine is theirs or mine == theirs:
        leaf = _compare_as(theirs, left, right, path, found, problems)
    else:
        _compare_as(mine, left, right, path, found, problems)
        leaf = _compare_as(theirs, left, right, path, found, problems)
    if not leaf:
        if left is ABSENT:
            found.added.insert(path)
        elif right is ABSENT:
            found.removed.insert(path)


def _compare_as(atom: Atom, left: Any, right: Any, path: Path, found: Comparison, problems: list[str]) -> bool:
    """Whether both were compared as a whole."""
    if atom.map is not None:
        lefts, rights = left if isinstance(left, dict) else {}, right if isinstance(right, dict) else {}
        if not atom.map.atomic and (lefts or rights):
            for name in {**lefts, **rights}:
                type_, below = _member_type(atom.map, name), (*path, (FIELD, name))
                if type_ is None:
                    problems.append(f"{shown(below)}: field not declared in schema")
                    continue
                _compare(lefts.get(name, ABSENT), rights.get(name, ABSENT), type_, below, found, problems)
            return False
    elif atom.list is not None and atom.scalar is None:
        left_items, right_items = left if isinstance(left, list) else [], right if isinstance(right, list) else []
        if atom.list.associative and (left_items or right_items):
            _compare_items(atom.list, left_items, right_items, path, found, problems)
            return False
    if left is ABSENT:
        found.added.insert(path)
    elif right is ABSENT:
        found.removed.insert(path)
    elif not equal(left, right):
        found.modified.insert(path)
    return True


def _grouped(list_of: ListOf, items: list[Any], problems: list[str]) -> dict[Element, list[Any]]:
    found: dict[Element, list[Any]] = {}
    for element, item in _indexed(list_of, items, problems):
        found.setdefault(element, []).append(item)
    return found


def _compare_items(
    list_of: ListOf, left: list[Any], right: list[Any], path: Path, found: Comparison, problems: list[str]
) -> None:
    lefts, rights = _grouped(list_of, left, problems), _grouped(list_of, right, problems)
    for element in {**lefts, **rights}:
        mine, theirs = lefts.get(element, []), rights.get(element, [])
        below = (*path, element)
        if len(mine) <= 1 and len(theirs) <= 1:
            before, after = mine[0] if mine else ABSENT, theirs[0] if theirs else ABSENT
            _compare(before, after, list_of.element, below, found, problems)
        elif len(mine) >= 2 and len(theirs) >= 2:
            if not equal(mine, theirs):
                found.modified.insert(below)
        elif len(mine) >= 2:
            if theirs:
                _compare(ABSENT, theirs[0], list_of.element, below, found, problems)
            found.removed.insert(below)
        else:
            if mine:
                _compare(mine[0], ABSENT, list_of.element, below, found, problems)
            found.added.insert(below)


# --- merge ------------------------------------------------------------------------------------------------------------


def merge(left: Any, right: Any, ref: Ref) -> Any:
    """`left` merged with `right`, which is valid, and of which the result may have parts. Raises: TypedError."""
    problems: list[str] = []
    found = _merge(left, right, ref, (), problems)
    if problems:
        raise TypedError(problems)
    return None if found is ABSENT else found


def _merge(left: Any, right: Any, ref: Ref, path: Path, problems: list[str]) -> Any:
    if left is ABSENT or (not left and right is not ABSENT):
        return right
    atom = ref.atom.of(left) if right is ABSENT else ref.atom.of(right)
    if atom.map is not None:
        lefts, rights = left if isinstance(left, dict) else {}, right if isinstance(right, dict) else {}
        if not atom.map.atomic and (lefts or rights):
            return _merge_members(atom.map, lefts, rights, path, problems)
    elif atom.list is not None and atom.scalar is None:
        left_items, right_items = left if isinstance(left, list) else [], right if isinstance(right, list) else []
        if atom.list.associative and (left_items or right_items):
            return _merge_items(atom.list, left_items, right_items, path, problems)
    return left if right is ABSENT else right


def _merge_members(
    map_of: MapOf, left: dict[str, Any], right: dict[str, Any], path: Path, problems: list[str]
) -> Any:
    found = {}
    for name in {**left, **right}:
        type_, below = _member_type(map_of, name), (*path, (FIELD, name))
        if type_ is None:
            problems.append(f"{shown(below)}: field not declared in schema")
            continue
        item = _merge(left.get(name, ABSENT), right.get(name, ABSENT), type_, below, problems)
        if item is not ABSENT:
            found[name] = item
    return found or ABSENT


def _merge_items(list_of: ListOf, left: list[Any], right: list[Any], path: Path, problems: list[str]) -> Any:
    """Items only in `left` keep their place, among those of `right` in `right`'s order."""
    before = len(problems)
    mine, theirs = _indexed(list_of, left, problems), _indexed(list_of, right, problems)
    wanted: dict[Element, Any] = {}
    for element, item in theirs:
        if element in wanted:
            problems.append(f"{shown(path)}: duplicate entries for key {shown((element,))}")
        wanted[element] = item
    if len(problems) > before:
        return ABSENT
    known: dict[Element, Any] = {}
    for element, item in mine:
        # Duplicate items are not merged.
        known[element] = None if element in known else item
    shared = iter([element for element, _ in theirs if element in known])
    next_shared = next(shared, None)
    found: list[Any] = []
    merged: set[Element] = set()

    def take(element: Element, before: Any, after: Any) -> None:
        item = _merge(before, after, list_of.element, (*path, element), problems)
        if item is not ABSENT:
            found.append(item)

    at, to = 0, 0
    while at < len(mine) or to < len(theirs):
        if at < len(mine) and to < len(theirs):
            element = mine[at][0]
            if element == theirs[to][0]:
                merged.add(element)
                take(element, known[element], wanted[element])
                at, to = at + 1, to + 1
                next_shared = next(shared, None)
                continue
            if element in wanted and next_shared is not None and next_shared != element:
                # In both: placed where `right` has it.
                at += 1
                continue
        if at < len(mine):
            element, item = mine[at]
            if element not in wanted:
                take(element, item, ABSENT)
                at += 1
                continue
            if element in merged:
                at += 1
        if to < len(theirs):
            element = theirs[to][0]
            merged.add(element)
            take(element, known.get(element, ABSENT), wanted[element])
            to += 1
            if next_shared == element:
                next_shared = next(shared, None)
    return found or ABSENT


# --- remove -----------------------------------------------------------------------------------------------------------


def remove(value: Any, items: PathSet, ref: Ref) -> Any:
    """The value without these fields and items. Emptied lists and maps stay."""
    atom = ref.atom.of(value)
    if atom.map is not None:
        if not isinstance(value, dict) or not value or atom.map.atomic:
            return None
        return _kept(_kept_members(value, items, atom.map))
    if atom.scalar is not None:
        return value
    if not isinstance(value, list) or not value or atom.list is None or not atom.list.associative:
        return None
    return _kept(_kept_items(value, items, atom.list))


def _kept(found: tuple[Any, bool]) -> Any:
    left, touched = found
    return left if left or touched else None


def _below(item: Any, items: PathSet, ref: Ref | None) -> Any:
    left = remove(item, items, ref) if ref is not None else item
    return ({} if isinstance(item, dict) else [] if isinstance(item, list) else None) if left is None else left


def _kept_members(value: dict[str, Any], items: PathSet, map_of: MapOf) -> tuple[dict[str, Any], bool]:
    found, touched = {}, False
    for name, item in value.items():
        element = (FIELD, name)
        if element in items.members:
            continue
        if (below := items.children.get(element)) is not None:
            touched = True
            item = _below(item, below, _member_type(map_of, name))
        found[name] = item
    return found, touched


def _kept_items(value: list[Any], items: PathSet, list_of: ListOf) -> tuple[list[Any], bool]:
    found, touched = [], False
    for item in value:
        element = element_of(list_of, item)
        if element in items.members:
            continue
        if (below := items.children.get(element)) is not None:
            touched = True
            item = _below(item, below, list_of.element)
        found.append(item)
    return found, touched


# --- types that have changed ------------------------------------------------------------------------------------------


def reconciled(fields: PathSet, ref: Ref) -> PathSet:
    """`fields` adapted to types that became atomic: owners of parts own the whole."""
    whole = PathSet()
    _find_whole(fields, ref, (), False, whole)
    return fields.without(whole) | whole if whole else fields


def _find_whole(fields: PathSet | None, ref: Ref, path: Path, is_leaf: bool, whole: PathSet) -> None:
    atom = ref.atom
    descend: Callable[[Element], Ref | None]
    if (map_of := atom.map) is not None:
        if map_of.element is not None and not map_of.fields and map_of.element.atom.scalar == "untyped":
            # A deduced type does not say whether it is atomic.
            return
        if map_of.atomic and not is_leaf:
            if fields:
                whole.insert(path)
            return

        def descend(element: Element) -> Ref | None:
            return _member_type(map_of, element[1]) if element[0] == FIELD else map_of.element

    elif atom.scalar is None and (list_of := atom.list) is not None:
        if not list_of.associative and not is_leaf:
            whole.insert(path)
            return

        def descend(element: Element) -> Ref | None:
            return list_of.element

    else:
        return
    if fields is None:
        return
    for element in sorted({*fields.members, *fields.children}):
        below = descend(element)
        if below is not None:
            child = fields.children.get(element)
            _find_whole(child, below, (*path, element), element in fields.members and child is None, whole)
