"""Types for apply: which lists and maps are owned item by item, and which as a whole.

The built-in kinds' types come from the table of messages, as upstream makes them from its OpenAPI document; those of
custom kinds from their structural schemas.

Source: structured-merge-diff `schema/elements.go`, `typed/parser.go`; kube-openapi `pkg/schemaconv`;
apiextensions-apiserver `pkg/controller/openapi/builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal

from minikube_py.api.schema import SCHEMA, Field, Type

Scalar = Literal["numeric", "string", "boolean", "untyped"]


class Ref:
    """A lazily built type: types are recursive."""

    __slots__ = ("_atom", "_make")

    def __init__(self, make: Callable[[], Atom]) -> None:
        self._make = make
        self._atom: Atom | None = None

    @property
    def atom(self) -> Atom:
        if self._atom is None:
            self._atom = self._make()
        return self._atom


@dataclass(frozen=True, slots=True)
class StructField:
    """`default`: value of a key that a list item omits; None: no default."""

    type: Ref
    default: Any = None


@dataclass(frozen=True, slots=True)
class ListOf:
    """`keys` identify the items of an associative list; without keys, it is a set of scalars."""

    element: Ref
    associative: bool = False
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MapOf:
    """A struct's fields, and the type of other members; None: not allowed."""

    fields: Mapping[str, StructField] = field(default_factory=dict)
    element: Ref | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Atom:
    """The allowed forms of a value: usually one of the three."""

    scalar: Scalar | None = None
    list: ListOf | None = None
    map: MapOf | None = None

    def of(self, value: Any) -> Atom:
        """The form of the value; all forms if it is null, absent or matches none."""
        if isinstance(value, dict):
            if self.map is not None:
                return self if self.scalar is None and self.list is None else Atom(map=self.map)
        elif isinstance(value, list):
            if self.list is not None:
                return self if self.scalar is None and self.map is None else Atom(list=self.list)
        elif isinstance(value, str | int | float) and self.scalar is not None:
            return self if self.list is None and self.map is None else Atom(scalar=self.scalar)
        return self


UNTYPED: Final[Ref] = Ref(lambda: Atom("untyped", ListOf(UNTYPED), MapOf(element=UNTYPED, atomic=True)))
"""Anything, owned as a whole."""
DEDUCED: Final[Ref] = Ref(lambda: Atom("untyped", ListOf(UNTYPED), MapOf(element=DEDUCED)))
"""Anything; maps are owned member by member."""

_SCALARS: Final[Mapping[str, Scalar]] = {
    "string": "string", "bytes": "string", "duration": "string", "bool": "boolean", "int32": "numeric",
    "int64": "numeric", "uint8": "numeric", "float64": "numeric", "time": "untyped", "microtime": "untyped",
    "quantity": "untyped", "intorstring": "untyped",
}  # fmt: skip
_ZERO: Final = {"string": "", "bool": False, "int32": 0, "int64": 0, "uint8": 0, "float64": 0}


@cache
def message_type(name: str) -> Ref:
    """The type of a message of the table."""
    return Ref(lambda: _message(name))


def _message(name: str) -> Atom:
    fields = SCHEMA.message(name).fields
    known = {each.name: StructField(_field_type(each), _default(each)) for each in fields.values()}
    return Atom(map=MapOf(known, None if known else DEDUCED, SCHEMA.is_atomic(name)))


def _default(declared: Field) -> Any:
    if declared.default is not None:
        return declared.default
    type_ = declared.type
    return None if declared.omitempty or declared.omitzero or type_.pointer else _ZERO.get(type_.kind)


def _field_type(declared: Field) -> Ref:
    return Ref(lambda: _atom(declared.type, declared))


def _atom(type_: Type, declared: Field | None = None) -> Atom:
    if type_.kind == "message":
        atom = message_type(type_.message).atom
        granularity = (declared.map_type or declared.struct_type) if declared is not None else ""
        if granularity and atom.map is not None:
            return Atom(map=replace(atom.map, atomic=granularity == "atomic"))
        return atom
    if type_.kind == "list":
        associative, keys = _relationship(declared)
        return Atom(list=ListOf(_element(type_), associative, keys))
    if type_.kind == "map":
        return Atom(map=MapOf(element=_element(type_), atomic=declared is not None and declared.map_type == "atomic"))
    if type_.kind == "raw":
        return {"runtime.RawExtension": UNTYPED.atom, "meta/v1.FieldsV1": Atom(map=MapOf(element=DEDUCED))}.get(
            type_.message, DEDUCED.atom
        )
    scalar = _SCALARS.get(type_.kind)
    return Atom(scalar) if scalar is not None else DEDUCED.atom


def _element(type_: Type) -> Ref:
    element = type_.element
    assert element is not None, "lists and maps have elements"
    return message_type(element.message) if element.kind == "message" else Ref(lambda: _atom(element))


def _relationship(declared: Field | None) -> tuple[bool, tuple[str, ...]]:
    if declared is None:
        return False, ()
    if declared.list_type:
        return declared.list_type != "atomic", declared.list_map_keys if declared.list_type == "map" else ()
    if "merge" in declared.patch_strategies:
        return True, (declared.merge_key,) if declared.merge_key else ()
    return False, ()


# --- custom kinds -----------------------------------------------------------------------------------------------------

Schema = Mapping[str, Any]


def schema_type(schema: Schema) -> Ref:
    """The type of a custom kind, by its structural schema."""
    return Ref(lambda: _schema_atom({**schema, "x-kubernetes-embedded-resource": True}, False))


def _schema_ref(schema: Schema, preserves: bool) -> Ref:
    return Ref(lambda: _schema_atom(schema, preserves))


def _schema_atom(schema: Schema, preserves: bool) -> Atom:
    """`preserves`: an enclosing schema keeps unknown members."""
    preserves = preserves or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    type_ = "" if schema.get("x-kubernetes-int-or-string") else schema.get("type") or ""
    if type_ == "string":
        return Atom("string" if (schema.get("format") or "") in ("", "byte") else "untyped")
    if type_ in ("integer", "number", "boolean"):
        return Atom("boolean" if type_ == "boolean" else "numeric")
    items, list_type = schema.get("items"), schema.get("x-kubernetes-list-type")
    listed = ListOf(
        _schema_ref(items, preserves) if isinstance(items, dict) else UNTYPED,
        list_type in ("set", "map"),
        tuple(schema.get("x-kubernetes-list-map-keys") or ()) if list_type == "map" else (),
    )
    if type_ == "array":
        return Atom(list=listed)
    mapped = _schema_map(schema, preserves)
    return Atom(map=mapped) if type_ == "object" else Atom("untyped", listed, mapped)


def _schema_map(schema: Schema, preserves: bool) -> MapOf:
    properties: Schema = schema.get("properties") or {}
    fields = {name: StructField(_schema_ref(each, preserves), each.get("default")) for name, each in properties.items()}
    if schema.get("x-kubernetes-embedded-resource"):
        text = StructField(Ref(lambda: Atom("string")))
        fields |= {"apiVersion": text, "kind": text, "metadata": StructField(message_type("meta/v1.ObjectMeta"))}
    additional, element = schema.get("additionalProperties"), None
    if isinstance(additional, dict):
        element = _schema_ref(additional, preserves)
    elif additional is True or (additional is None and (preserves or not fields)):
        element = DEDUCED
    return MapOf(fields, element, schema.get("x-kubernetes-map-type") == "atomic")


def empty(name: str) -> dict[str, Any]:
    """A message without set fields, as Go writes it."""
    found: dict[str, Any] = {}
    for each in SCHEMA.message(name).fields.values():
        if each.left_out_when_zero or each.omitzero:
            continue
        type_ = each.type
        if type_.kind == "message" and not type_.pointer:
            found[each.name] = empty(type_.message)
        elif not each.omitempty or type_.kind in ("time", "microtime"):
            found[each.name] = None if type_.pointer else _ZERO.get(type_.kind)
    return found
