"""`Where`: a conjunction of comparisons on declared fields, the query language of indexes.

It is passed from `?fieldSelector=free.cpu>=4,free.memory>=16Gi` through the API server to the store. Values are passed
as the user's text, and parsed by the declared kind of their field when the comparison is evaluated. A missing field
matches only `!=`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from minikube_py.errors import InvalidRequest
from minikube_py.fields import quantity
from minikube_py.fields.extract import is_clamped, read_int
from minikube_py.fields.spec import FieldSet, FieldSpec, Kind
from minikube_py.fields.times import parse_time
from minikube_py.fields.whole import EDGE, answerable

Op = Literal["=", "!=", "<", "<=", ">", ">=", "in", "exists"]
OPS: frozenset[str] = frozenset(get_args(Op))


@dataclass(frozen=True, slots=True)
class Comparison:
    """`field op values`; `values` holds one text, several for `in`, none for `exists`."""

    field: str
    op: Op
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.op == "exists":
            return self.field
        if self.op == "in":
            return f"{self.field} in ({','.join(self.values)})"
        return f"{self.field}{self.op}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class Where:
    """All of `comparisons` hold. An empty one matches every object."""

    comparisons: tuple[Comparison, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.comparisons))

    def __bool__(self) -> bool:
        return bool(self.comparisons)


MAX_COMPARISONS = 64
MAX_VALUES = 1024
_ORDERED: frozenset[str] = frozenset({"=", "!=", "<", "<=", ">", ">="})


class Test(NamedTuple):
    """A comparison with parsed values: text for strings, ints for all other kinds."""

    field: str
    kind: Kind
    op: Op
    values: tuple[int | str, ...]


Row = Mapping[str, int | str]
Predicate = Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class CompiledWhere:
    """A `Where` bound to a FieldSet's kinds. `matches(row)` is its value for one row."""

    tests: tuple[Test, ...]
    matches: Predicate


@lru_cache(maxsize=2048)
def _compile(fields: tuple[tuple[str, Kind, str, bool], ...], where: Where) -> CompiledWhere:
    kinds: dict[str, Reading] = {name: (kind, resource, clamped) for name, kind, resource, clamped in fields}
    tests = tuple(_read(comparison, *kinds[comparison.field]) for comparison in where.comparisons)
    predicates = tuple(_predicate(test) for test in tests)
    if len(predicates) == 1:
        return CompiledWhere(tests, predicates[0])

    def matches(row: Row) -> bool:
        # A generator inside all() costs twice as much, and this runs per event and watcher.
        for predicate in predicates:  # noqa: SIM110
            if not predicate(row):
                return False
        return True

    return CompiledWhere(tests, matches)


def compile_where(field_set: FieldSet, where: Where) -> CompiledWhere:
    """Raises: InvalidRequest for an undeclared field, too many comparisons, or a value invalid for its kind."""
    fields = [comparison.field for comparison in where.comparisons]
    readings = readings_of(field_set, fields)
    return _compile(tuple([(name, *reading) for name, reading in zip(fields, readings)]), where)


Reading = tuple[Kind, str, bool]
"""How a field's values are parsed: its kind, the resource that defines its unit, and whether rows hold them clamped
(`fields.whole`)."""


def readings_of(field_set: FieldSet, fields: Sequence[str]) -> tuple[Reading, ...]:
    """Raises: InvalidRequest for an undeclared field, or too many of them."""
    if len(fields) > MAX_COMPARISONS:
        raise InvalidRequest(f"a where has at most {MAX_COMPARISONS} comparisons, this one {len(fields)}")
    found: list[Reading] = []
    for name in fields:
        spec = field_set.find(name)
        if spec is None:
            raise InvalidRequest(f"field {name!r} is not declared on {field_set.name}")
        found.append((spec.kind, resource_of(spec, name), is_clamped(spec)))
    return tuple(found)


def read_where(where: Where, readings: Sequence[Reading]) -> tuple[Test, ...]:
    """The comparisons with parsed values, for callers that keep the readings of the fields.

    Raises: InvalidRequest for a value invalid for its kind."""
    return tuple([_read(comparison, *reading) for comparison, reading in zip(where.comparisons, readings)])


def resource_of(spec: FieldSpec, name: str) -> str:
    """The resource that defines the unit of field `name`."""
    return name[len(spec.name) - 1 :] if spec.name.endswith("*") else spec.args.get("resource", "")


def _read(comparison: Comparison, kind: Kind, resource: str, clamped: bool) -> Test:
    name, op, texts = comparison.field, comparison.op, comparison.values
    if op not in OPS:
        raise InvalidRequest(f"unknown operator {op!r} for field {name}; known: {' '.join(sorted(OPS))}")
    if len(texts) > MAX_VALUES:
        raise InvalidRequest(f"field {name} is compared with {len(texts)} values, the limit is {MAX_VALUES}")
    if (op in _ORDERED and len(texts) != 1) or (op == "in" and not texts) or (op == "exists" and texts):
        raise InvalidRequest(f"operator {op!r} of field {name} was given {len(texts)} values")
    read = tuple([_value(name, kind, resource, text) for text in texts])
    for value, text in zip(read if clamped else (), texts):
        if type(value) is int and not answerable(op, value):
            raise InvalidRequest(
                f"field {name} cannot be compared with {text[:80]!r} by {op!r}: values are kept up to {EDGE} in size, "
                "and what is larger counts as that; compare with less"
            )
    return Test(name, kind, op, read)


def _value(name: str, kind: Kind, resource: str, text: str) -> int | str:
    if kind == "string":
        return text
    if kind == "quantity":
        try:
            return max(quantity.resource_units(resource, text), -quantity.INT64_MAX)
        except quantity.QuantityError as error:
            raise InvalidRequest(f"unable to parse {text!r} as a quantity for field {name}: {error}") from None
    if kind == "time" and (micros := parse_time(text)) is not None:
        return micros
    number = read_int(text)
    if number is None and kind == "time":
        example = "write RFC 3339, as 2026-01-31T12:00:00Z, or microseconds since 1970"
        raise InvalidRequest(f"unable to parse {text!r} as a time for field {name}: {example}")
    if number is None:
        raise InvalidRequest(f"unable to parse {text!r} as a 64-bit integer for field {name}")
    return number


def predicate_of(tests: Sequence[Test]) -> Predicate:
    """The conjunction of parsed tests."""
    predicates = [_predicate(test) for test in tests]
    return lambda row: all(holds(row) for holds in predicates)


def _predicate(test: Test) -> Predicate:
    """The predicate of one test; a missing field matches only `!=`. Kinds do not mix, so values are always
    comparable."""
    name, _, op, values = test
    if op == "exists":
        return lambda row: name in row
    if op == "in":
        members = frozenset(values)
        return lambda row: row.get(name) in members
    bound = values[0]
    if op == "=":
        return lambda row: row.get(name) == bound
    if op == "!=":
        return lambda row: row.get(name) != bound
    if op == "<":
        return lambda row: (value := row.get(name)) is not None and value < bound  # type: ignore[operator]
    if op == "<=":
        return lambda row: (value := row.get(name)) is not None and value <= bound  # type: ignore[operator]
    if op == ">":
        return lambda row: (value := row.get(name)) is not None and value > bound  # type: ignore[operator]
    return lambda row: (value := row.get(name)) is not None and value >= bound  # type: ignore[operator]
