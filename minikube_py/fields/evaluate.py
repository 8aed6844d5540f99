"""Rows of objects, and the parts of a row that depend on the object alone.

`Reader` is a FieldSet compiled once. Used by the store's tables, and by the API server's watch cache for fields that
need no store (`row_of`, `where_of`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.errors import InvalidRequest
from minikube_py.fields.extract import (
    INT64_HIGH,
    INT64_LOW,
    MAX_MEMBERS,
    NEWEST_EXTRACTORS,
    SUM_OVER,
    SUMS,
    Family,
    Scalar,
    check,
    family,
    scalar,
)
from minikube_py.fields.paths import parse_path
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Predicate, Where, compile_where
from minikube_py.fields.whole import clamp

Row = dict[str, int | str]
Totals = Mapping[str, int]
"""One sum of one object: resource name to units. Unused resources are absent."""
NO_TOTALS: Totals = {}


Lists = Sequence[dict[str, int]]
"""An object's values of each family that its FieldSet reads."""
Part = Callable[[Lists, Any], dict[str, int]]


class Own(NamedTuple):
    """The part that depends on the object alone: `plain` fields, and for each field with a sum its own part by
    resource.

    `parts[i]` belongs to `Reader.summed[i]`: resource to units (`minus`: the minuend; a sum itself: zeros)."""

    plain: Row
    parts: tuple[dict[str, int], ...]


NOTHING: Final = Own({}, ())


class Summed(NamedTuple):
    """A field or family with a sum: value = part - total, or the total itself if `sign` is +1."""

    sum: str
    sign: int
    names: dict[str, str]
    spec: FieldSpec

    def name(self, resource: str) -> str:
        name = self.names.get(resource)
        if name is None:
            spec_name = self.spec.name
            name = spec_name[:-1] + resource if spec_name.endswith("*") else spec_name
            if len(self.names) < 4096:
                self.names[resource] = name
        return name


class Reader:
    """A FieldSet, checked and compiled. Raises: InvalidRequest if the declaration is invalid."""

    def __init__(self, field_set: FieldSet) -> None:
        check_field_set(field_set)
        self.field_set = field_set
        self.unreadable = 0
        """Objects on which an extractor failed; `last_unreadable` is the latest error."""
        self.last_unreadable = ""
        self.summed: list[Summed] = []
        self._scalars: list[tuple[str, Scalar]] = []
        # Several fields may use one list, such as free and allocatable resources: each list is read once per object.
        self._lists: list[Family] = []
        self._places: dict[tuple[str, str], int] = {}
        self._families: list[tuple[str, int]] = []
        self._parts: list[Part] = []
        for spec in field_set.fields:
            is_family = spec.name.endswith("*")
            if spec.extractor in SUMS:
                self.summed.append(Summed(spec.args["sum"], 1, {}, spec))
                self._parts.append(self._zeros(spec))
            elif spec.minus is not None:
                self.summed.append(Summed(spec.minus, -1, {}, spec))
                self._parts.append(_same(self._list_of(spec.extractor, spec.args)) if is_family else _one_member(spec))
            elif is_family:
                self._families.append((spec.name[:-1], self._list_of(spec.extractor, spec.args)))
            else:
                self._scalars.append((spec.name, scalar(spec.extractor, spec.args, spec.kind)))

    def _list_of(self, extractor: str, args: Mapping[str, str]) -> int:
        """The index of a family among the lists read from each object."""
        place = self._places.setdefault((extractor, args.get("path", "")), len(self._lists))
        if place == len(self._lists):
            self._lists.append(family(extractor, args))
        return place

    def _zeros(self, spec: FieldSpec) -> Part:
        over = SUM_OVER.get(spec.extractor)
        if over is None:
            zero = {spec.args["resource"]: 0}
            return lambda lists, obj: zero
        place = self._list_of(over, {"path": spec.args["over"]})
        only = spec.args.get("resource")
        if only is None:
            return lambda lists, obj: dict.fromkeys(lists[place], 0)
        return lambda lists, obj: {only: 0} if only in lists[place] else {}

    def own(self, obj: Any) -> Own:
        """Unreadable values are missing; if an extractor fails on an object, all are. `obj` is any decoded JSON."""
        try:
            return self._own(obj)
        except MemoryError:
            raise
        except Exception as error:
            self.unreadable += 1
            self.last_unreadable = f"{type(error).__name__}: {error}"[:200]
            return NOTHING

    def _own(self, obj: Any) -> Own:
        plain: Row = {}
        for name, value_of in self._scalars:
            value = value_of(obj)
            if value is not None:
                plain[name] = clamp(value) if type(value) is int else value
        lists = [members_of(obj) for members_of in self._lists]
        for prefix, place in self._families:
            for resource, units in lists[place].items():
                plain[prefix + resource] = units if INT64_LOW <= units <= INT64_HIGH else clamp(units)
        return Own(plain, tuple([part_of(lists, obj) for part_of in self._parts]))

    def row(self, own: Own, totals: Mapping[str, Totals]) -> Row:
        """The complete row, given each sum by its name."""
        row = dict(own.plain)
        for summed, part in zip(self.summed, own.parts):
            total = totals.get(summed.sum, NO_TOTALS)
            _, sign, names, _ = summed
            for resource, units in part.items():
                name = names.get(resource) or summed.name(resource)
                row[name] = clamp(units + sign * total[resource] if resource in total else units)
        return row


def _same(place: int) -> Part:
    return lambda lists, obj: lists[place]


def _one_member(spec: FieldSpec) -> Part:
    """The part of a single field: its value under the name of the resource it measures."""
    value_of = scalar(spec.extractor, spec.args, spec.kind)
    resource = spec.args.get("resource", "")

    def part(lists: Lists, obj: Any) -> dict[str, int]:
        value = value_of(obj)
        return {resource: value} if isinstance(value, int) else {}

    return part


def check_field_set(field_set: FieldSet, version: int = NEWEST_EXTRACTORS) -> None:
    """Raises: InvalidRequest if a name is empty or duplicate, an extractor is unknown to `version` of the rules, a sum
    is unknown, or kinds conflict."""
    if not field_set.name or not field_set.prefix:
        raise InvalidRequest("a field set needs a name and a prefix")
    if len(field_set.fields) > MAX_MEMBERS or len(field_set.sums) > MAX_MEMBERS:
        raise InvalidRequest(f"a field set has at most {MAX_MEMBERS} fields and {MAX_MEMBERS} sums")
    sums = {spec.name for spec in field_set.sums}
    names = [spec.name for spec in field_set.fields]
    if len(set(names)) < len(names) or len(sums) < len(field_set.sums) or "" in names or "*" in names:
        raise InvalidRequest(f"field set {field_set.name}: names must be given, and only once")
    for total in field_set.sums:
        if not total.source_prefix:
            raise InvalidRequest(f"sum {total.name} has no source_prefix")
        parse_path(total.reference)
        check(total.extractor, total.args, "quantity", total.name.endswith("*"), version)
        if total.extractor in SUMS:
            raise InvalidRequest(f"sum {total.name} cannot be a sum of sums")
    for spec in field_set.fields:
        check(spec.extractor, spec.args, spec.kind, spec.name.endswith("*"), version)
        used = spec.args["sum"] if spec.extractor in SUMS else spec.minus
        if used is not None and used not in sums:
            raise InvalidRequest(f"field {spec.name} uses the sum {used}, which {field_set.name} does not declare")
        if spec.minus is not None and (spec.kind != "quantity" or spec.extractor in SUMS):
            raise InvalidRequest(f"field {spec.name}: only a quantity of the object's own has a sum taken off")


_readers: dict[int, tuple[FieldSet, Reader]] = {}


def reader_of(field_set: FieldSet) -> Reader:
    """The compiled form of a declaration, cached for the few that a process uses."""
    known = _readers.get(id(field_set))
    if known is not None and known[0] is field_set:
        return known[1]
    if len(_readers) >= 64:
        _readers.clear()
    reader = Reader(field_set)
    _readers[id(field_set)] = (field_set, reader)
    return reader


def row_of(field_set: FieldSet, obj: Any) -> Row:
    """The fields that depend on `obj` alone; those with a sum are absent."""
    return reader_of(field_set).own(obj).plain


def where_of(field_set: FieldSet, where: Where) -> Predicate:
    """`where` as a predicate on rows of `row_of`.

    Raises: InvalidRequest as `compile_where`, and if a field depends on other objects."""
    for comparison in where.comparisons:
        if field_set.depends_on_others(comparison.field):
            raise InvalidRequest(f"field {comparison.field!r} depends on other objects: only the store can answer")
    return compile_where(field_set, where).matches
