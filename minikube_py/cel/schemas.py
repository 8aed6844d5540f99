"""Values of OpenAPI schemas in expressions: their types, sizes and views.

Source: apiserver `pkg/cel/{types,escaping,limits}.go`, `pkg/cel/common/{schemas,valuesunstructured}.go`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import orjson

from minikube_py.cel.allowance import spend
from minikube_py.cel.syntax import RESERVED
from minikube_py.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    struct,
)
from minikube_py.cel.values import (
    EvaluationError,
    OwnEquality,
    OwnList,
    as_key,
    duration_of,
    equal,
    extended_duration_of,
    find,
    timestamp_of,
)

Schema = Mapping[str, Any]
REQUEST_BYTES_MAX: Final = 3 << 20
_TEXT_MAX: Final = REQUEST_BYTES_MAX - 2
_TEXT: Final[Schema] = {"type": "string"}
_META: Final[Schema] = {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}}

# --- names ------------------------------------------------------------------------------------------------------------

_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


@lru_cache(4096)
def escaped(name: str) -> str | None:
    """The name as an identifier; None where it cannot be one."""
    if not name or name[0] in "0123456789" or re.search(r"[^a-zA-Z0-9\-./_]", name):
        return None
    if name in RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[-./]", lambda match: _ESCAPES[match[0]], name)


# --- types ------------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Declared:
    """What a schema declares. `least_bytes`: the smallest of its values as JSON. `most`: their maximum size in
    upstream's cost estimates, unknown for most scalars."""

    kind: Literal["scalar", "list", "map", "object"]
    least_bytes: int
    most: int = 0
    scalar: Type = DYN
    element: Declared | None = None
    fields: Mapping[str, Declared] | None = None

    def _below(self, name: str) -> Declared | None:
        if name in ("@items", "@values"):
            return self.element
        if name == "@keys":
            return _KEY if self.kind == "map" else None
        return (self.fields or {}).get(name)

    def size_of(self, path: tuple[str, ...]) -> int | None:
        """See `costs.SizeOf`. A path begins with the variable."""
        found: Declared | None = self
        for name in path[1:]:
            found = found._below(name) if found is not None else None
        return None if found is None else found.most

    def typed(self, name: str, structs: dict[str, Mapping[str, Type]]) -> Type:
        """Its type, with objects named by `name` and their path; adds fields to `structs`."""
        spend(4)
        if self.kind == "object":
            structs[name] = {
                each: below.typed(f"{name}.{each}", structs) for each, below in (self.fields or {}).items()
            }
            return struct(name)
        if self.element is None:
            return self.scalar
        if self.kind == "map":
            return map_of(STRING, self.element.typed(f"{name}.@elem", structs))
        return list_of(self.element.typed(f"{name}.@idx", structs))

    @property
    def times_at_most(self) -> int:
        """How often it can occur in one request."""
        return REQUEST_BYTES_MAX // (self.least_bytes + 1)


_KEY: Final = Declared("scalar", 2, scalar=STRING)


def as_resource(schema: Schema) -> Schema:
    """With kind, apiVersion and the names in metadata, which every resource has."""
    own: Mapping[str, Any] = schema.get("properties") or {}
    named = (own.get("metadata") or {}).get("properties") or {}
    wanted = ((own, "kind", "string"), (own, "apiVersion", "string"), (own, "metadata", "object"),
              (named, "name", "string"), (named, "generateName", "string"))  # fmt: skip
    if all((where.get(name) or {}).get("type") == type_ for where, name, type_ in wanted):
        return schema
    return {**schema, "properties": {**own, "kind": _TEXT, "apiVersion": _TEXT, "metadata": _META}}


def _embedded(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def declared(schema: Any, resource: bool = False) -> Declared | None:
    """None if its values are hidden: their type is unknown. `resource`: they are whole resources."""
    if not isinstance(schema, dict):
        return None
    spend(8)
    if schema.get("x-kubernetes-int-or-string"):
        return Declared("scalar", 1, _TEXT_MAX if schema.get("maxLength") is None else _most_bytes(schema))
    schema = as_resource(schema) if resource else schema
    type_ = schema.get("type")
    if type_ == "array":
        items = declared(schema.get("items"), _embedded(schema.get("items") or {}))
        if items is None:
            return None
        most = schema.get("maxItems")
        count = _TEXT_MAX // (items.least_bytes + 1) if most is None else max(most, 0)
        return Declared("list", 2, count, element=items)
    if type_ == "object":
        return _declared_object(schema)
    if type_ == "string":
        return _declared_text(schema)
    return {
        "boolean": Declared("scalar", 4, scalar=BOOL), "number": Declared("scalar", 1, scalar=DOUBLE),
        "integer": Declared("scalar", 1, scalar=INT),
    }.get(type_ or "")  # fmt: skip


def _most_bytes(schema: Schema) -> int:
    """A character has four bytes at most."""
    return max(int(schema["maxLength"]), 0) * 4


def _declared_object(schema: Schema) -> Declared | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        values = declared(additional, _embedded(additional))
        if values is None:
            return None
        most = schema.get("maxProperties")
        count = _TEXT_MAX // (values.least_bytes + 6) if most is None else max(most, 0)
        return Declared("map", 2, count, element=values)
    needed = schema.get("required") or ()
    fields: dict[str, Declared] = {}
    least_bytes = 2
    for name, inner in (schema.get("properties") or {}).items():
        found = declared(inner, _embedded(inner))
        if found is None:
            continue
        if (known := escaped(name)) is not None:
            fields[known] = found
        if name in needed and inner.get("default") is None:
            least_bytes += len(name.encode()) + found.least_bytes + 4
    return Declared("object", least_bytes, fields=fields)


def _declared_text(schema: Schema) -> Declared:
    format_, longest = schema.get("format"), schema.get("maxLength")
    if format_ == "byte":
        return Declared("scalar", 2, _TEXT_MAX if longest is None else max(longest, 0), BYTES)
    if format_ == "duration":
        return Declared("scalar", 3, 32, DURATION)
    if format_ in ("date", "date-time"):
        least_bytes, most = (12, 12) if format_ == "date" else (21, 32)
        return Declared("scalar", least_bytes, most, TIMESTAMP)
    if longest is not None:
        return Declared("scalar", 2, _most_bytes(schema), STRING)
    if schema.get("enum"):
        return Declared(
            "scalar", 2, max((len(e.encode()) for e in schema["enum"] if isinstance(e, str)), default=0), STRING
        )
    return Declared("scalar", 2, _TEXT_MAX, STRING)


# --- values -----------------------------------------------------------------------------------------------------------


class Struct(dict[Any, Any], OwnEquality):
    """An object with declared fields, by their names as identifiers. Nulls count as absent; unknown members count in
    its size and, where both objects have one, in comparisons."""

    __slots__ = ("known", "raw")

    def __init__(self, entries: Mapping[str, Any], raw: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self.raw = raw
        self.known = known

    def __len__(self) -> int:
        return len(self.raw)

    def __missing__(self, name: object) -> Any:
        """A reserved word may stand for its escaped form."""
        if name in RESERVED:
            return self[f"__{name}__"]
        raise KeyError(name)

    def equals(self, other: object) -> bool:
        if not isinstance(other, dict) or len(self) != len(other):
            return False
        spend(4 * len(self))
        for name, value in self.raw.items():
            if name in self.known:
                mine, here = find(self, escaped(name) or name)
                theirs, there = find(other, escaped(name) or name)
                if here != there or (here and not equal(mine, theirs)):
                    return False
            elif isinstance(other, Struct) and name in other.raw and not _same(value, other.raw[name]):
                return False
        return True


class SetList(OwnList):
    """A set: unique items, in no order."""

    __slots__ = ()

    def equals(self, other: object) -> bool:
        if not isinstance(other, list) or len(self) != len(other):
            return False
        spend(2 * len(self))
        known = set(map(_hashed, self))
        return all(_hashed(item) in known for item in other)

    def plus(self, other: list[Any]) -> SetList:
        found: dict[Any, Any] = {}
        spend(2 * (len(self) + len(other)))
        for item in (*self, *other):
            found.setdefault(_hashed(item), item)
        return SetList(found.values())


def _hashed(item: Any) -> Any:
    if not isinstance(item, dict | list):
        return as_key(item)
    text = repr(item)
    spend(len(text) >> 5)
    return text


class MapList(OwnList):
    """A map list: objects identified by keys, in no order."""

    __slots__ = ("keys",)

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def _key(self, item: Any) -> Any:
        raw = item.raw if isinstance(item, Struct) else item if isinstance(item, dict) else {}
        return tuple(_hashed(raw.get(name)) for name in self.keys)

    def equals(self, other: object) -> bool:
        if not isinstance(other, list) or len(self) != len(other):
            return False
        spend(6 * len(self))
        known = {self._key(item): item for item in self}
        return all(key in known and equal(known[key], item) for item in other for key in (self._key(item),))

    def plus(self, other: list[Any]) -> MapList:
        spend(3 * (len(self) + len(other)))
        found = {self._key(item): item for item in self}
        found.update({self._key(item): item for item in other})
        return MapList(list(found.values()), self.keys)


class Preserved(OwnEquality):
    """A value of unknown type: it can only be compared."""

    __slots__ = ("raw",)

    def __init__(self, raw: object) -> None:
        self.raw = raw

    def equals(self, other: object) -> bool:
        return isinstance(other, Preserved) and _same(self.raw, other.raw)


def _same(left: Any, right: Any) -> bool:
    text = orjson.dumps(left, option=orjson.OPT_SORT_KEYS)
    spend(len(text) >> 6)
    return text == orjson.dumps(right, option=orjson.OPT_SORT_KEYS)


def seen(raw: Any, schema: Schema, resource: bool = False) -> Any:
    """JSON as expressions see it; an `EvaluationError` replaces values that do not match the schema."""
    if not isinstance(raw, dict | list) or schema.get("x-kubernetes-int-or-string"):
        return _scalar(raw, schema)
    spend(4 * len(raw) + 4)
    type_ = schema.get("type")
    if type_ == "object" and isinstance(raw, dict):
        return _object(raw, as_resource(schema) if resource or _embedded(schema) else schema)
    if type_ == "array" and isinstance(raw, list):
        return _list(raw, schema)
    if not type_ and schema.get("x-kubernetes-preserve-unknown-fields"):
        return Preserved(raw)
    return _misfit(raw, type_ or "")


def _object(raw: Mapping[str, Any], schema: Schema) -> Any:
    additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if not properties and isinstance(additional, dict):
        return {name: seen(item, additional) for name, item in raw.items()}
    entries = {
        escaped(name) or name: seen(item, properties[name])
        for name, item in raw.items()
        if item is not None and name in properties
    }
    return Struct(entries, raw, properties)


def _list(raw: list[Any], schema: Schema) -> Any:
    inner = schema.get("items")
    if not isinstance(inner, dict):
        return EvaluationError("invalid array type, expected Items with a non-empty Schema")
    items = [seen(item, inner) for item in raw]
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        return MapList(items, tuple(escaped(name) or name for name in keys))
    return SetList(items) if kind == "set" else items


def member(whole: Any, name: str) -> Any:
    """One member of the object's view; None if hidden."""
    return whole.get(escaped(name) or name if isinstance(whole, Struct) else name) if isinstance(whole, dict) else None


_GO_TYPES: Final[dict[type, str]] = {
    bool: "bool", str: "string", int: "int64", float: "float64", list: "[]interface {}",
    dict: "map[string]interface {}",
}  # fmt: skip


def _misfit(raw: Any, type_: str) -> EvaluationError:
    if type_ in ("object", "array"):
        what = "a map" if type_ == "object" else "an array"
        return EvaluationError(f"invalid data, expected {what} for the provided schema with type={type_}")
    if wanted := {"string": "string", "number": "float", "integer": "int", "boolean": "bool"}.get(type_):
        return EvaluationError(f"invalid data, expected {wanted}, got {_GO_TYPES[type(raw)]}")
    return EvaluationError(
        "invalid type, expected object, array, number, integer, boolean or string, or no type with "
        f"x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got {type_}"
    )


def _scalar(raw: Any, schema: Schema) -> Any:
    if raw is None:
        nullable = schema.get("nullable")
        return None if nullable else EvaluationError("invalid data, got null for schema with nullable=false")
    kind, type_ = type(raw), schema.get("type") or ""
    if schema.get("x-kubernetes-int-or-string"):
        wrong = "invalid data, expected XIntOrString value to be either a string or integer"
        return raw if kind in (int, str) else EvaluationError(wrong)
    if type_ == "string" and kind is str:
        return _text(raw, schema.get("format"))
    if type_ == "number" and kind in (int, float):
        return float(raw)
    if (type_, kind) in (("integer", int), ("boolean", bool)):
        return raw
    if not type_ and schema.get("x-kubernetes-preserve-unknown-fields"):
        return Preserved(raw)
    return _misfit(raw, type_)


def _text(raw: str, format_: str | None) -> Any:
    found: Any
    if format_ == "duration":
        found = duration_of(raw) or extended_duration_of(raw)
        return found or EvaluationError(f"Invalid duration {raw}: unable to parse {raw} as duration")
    if format_ in ("date", "date-time"):
        zoned = re.search(r"(?:Z|[+-]\d\d:\d\d)$", raw) is not None
        found = timestamp_of(f"{raw}T00:00:00Z" if format_ == "date" else raw if zoned else f"{raw}Z")
        layout = "2006-01-02" if format_ == "date" else "2006-01-02T15:04:05"
        wrong = f'Invalid {format_} formatted string {raw}: parsing time "{raw}" as "{layout}": cannot parse it'
        return EvaluationError(wrong) if found is None else found
    if format_ == "byte":
        try:
            return base64.b64decode(raw, validate=True)
        except binascii.Error as error:
            return EvaluationError(f"Invalid byte formatted string {raw}: {error}")
    return raw
