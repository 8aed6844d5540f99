"""Structural schemas: the structure of custom objects, and how they are read.

Reading prunes unknown fields, drops forbidden nulls, fills in defaults, and checks the metadata of embedded resources.
Source: apiextensions-apiserver `pkg/apiserver/schema/{pruning,defaulting,objectmeta}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import orjson

from minikube_py.api.custom.structural_rules import UNSUPPORTED, unbuildable
from minikube_py.api.decode import metadata_of
from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.typed import DecodeError
from minikube_py.cel.allowance import spend

META_FIELDS: Final = frozenset(("apiVersion", "kind", "metadata"))


@dataclass(eq=False)
class Structural:
    """One node of a schema. `source` is its JSONSchemaProps; `additional` is True if any values are allowed, None if
    members beside `properties` are unknown."""

    source: Json
    properties: dict[str, Structural] = field(default_factory=dict)
    additional: Structural | bool | None = None
    items: Structural | None = None

    def __post_init__(self) -> None:
        told = self.source.get
        self.type: str = told("type") or ""
        self.nullable = bool(told("nullable"))
        self.default: Any = told("default")
        self.preserve = bool(told("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(told("x-kubernetes-embedded-resource"))
        self.int_or_string = bool(told("x-kubernetes-int-or-string"))
        self.list_type: str = told("x-kubernetes-list-type") or ""
        self.list_keys: tuple[str, ...] = tuple(told("x-kubernetes-list-map-keys") or ())
        holds: int = (self.default is not None) | self.embedded << 1 | (self.list_type in ("map", "set")) << 2
        if self.properties:
            for each in self.properties.values():
                holds |= each._holds
        if isinstance(self.additional, Structural):
            holds |= self.additional._holds
        if self.items is not None:
            holds |= self.items._holds
        self._holds: int = holds

    @property
    def values(self) -> Structural | None:
        """The schema of members beside `properties`."""
        return self.additional if isinstance(self.additional, Structural) else None

    @cached_property
    def as_resource(self) -> Structural:
        """The same with kind, apiVersion and metadata."""
        if self.embedded:
            return self
        source = {**self.source, "x-kubernetes-embedded-resource": True}
        return Structural(source, self.properties, self.additional, self.items)

    def of_member(self, name: str) -> Structural | None:
        return self.properties.get(name) or self.values

    @property
    def has_defaults(self) -> bool:
        return bool(self._holds & 1)

    @property
    def has_embedded(self) -> bool:
        return bool(self._holds & 2)

    @property
    def has_unique_lists(self) -> bool:
        return bool(self._holds & 4)


def structural(schema: Json) -> Structural:
    """The nodes of a JSONSchemaProps. Raises: ValueError where upstream has no nodes of it."""
    if (isinstance(schema.get("items"), list) or not UNSUPPORTED.isdisjoint(schema)) and (why := unbuildable(schema)):
        raise ValueError(why)
    properties = {name: structural(inner) for name, inner in (schema.get("properties") or {}).items()}
    additional, items = schema.get("additionalProperties"), schema.get("items")
    return Structural(
        schema,
        properties,
        structural(additional) if isinstance(additional, dict) else additional,
        structural(items) if isinstance(items, dict) else None,
    )


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def same_json(left: Any, right: Any) -> bool:
    """Equal as Go compares decoded JSON: 1 is neither 1.0 nor true; the order of members does not count."""
    text = orjson.dumps(left, option=orjson.OPT_SORT_KEYS)
    spend(len(text) >> 6)
    return text == orjson.dumps(right, option=orjson.OPT_SORT_KEYS)


# --- pruning --------------------------------------------------------------------------------------------------------


def prune(value: Any, schema: Structural | None, resource: bool = False) -> list[str]:
    """Removes unknown fields in place; returns their paths, sorted. `resource`: `value` is one, and its metadata is
    skipped."""
    unknown: list[str] = []
    if resource:
        schema = (schema or Structural({})).as_resource
    _prune(value, schema, "", unknown)
    return sorted(unknown)


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _prune(value: Any, schema: Structural | None, path: str, unknown: list[str]) -> None:
    if schema is not None and schema.preserve:
        _keep(value, schema, path, unknown)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _prune(item, schema.items if schema is not None else None, f"{path}[{index}]", unknown)
    elif isinstance(value, dict):
        for name in list(value):
            if schema is None:
                unknown.append(_inside(path, name))
                del value[name]
            elif schema.embedded and name in META_FIELDS:
                continue
            elif name in schema.properties or schema.additional is not None:
                _prune(value[name], schema.of_member(name), _inside(path, name), unknown)
            else:
                if path or name not in META_FIELDS:
                    unknown.append(_inside(path, name))
                del value[name]


def _keep(value: Any, schema: Structural, path: str, unknown: list[str]) -> None:
    """Even if unknown members are kept, known ones are pruned."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            if schema.items is not None:
                _keep(item, schema.items, f"{path}[{index}]", unknown)
    elif isinstance(value, dict):
        for name in list(value):
            if schema.embedded and name in META_FIELDS:
                continue
            if name in schema.properties or schema.additional is not None:
                _prune(value[name], schema.of_member(name), _inside(path, name), unknown)


# --- nulls and defaults ---------------------------------------------------------------------------------------------


def drop_nulls(value: Any, schema: Structural | None) -> None:
    """Removes nulls of members that may not be null and have no default."""
    if isinstance(value, dict):
        for name in list(value):
            inner = schema.of_member(name) if schema is not None else None
            if value[name] is None and inner is not None and not inner.nullable and inner.default is None:
                del value[name]
            else:
                drop_nulls(value[name], inner)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item, schema.items if schema is not None else None)


def _missing(value: Any, schema: Structural | None) -> bool:
    return value is None and schema is not None and not schema.nullable


def fill_defaults(value: Any, schema: Structural | None) -> None:
    """Fills in defaults, in place; `drop_nulls` has kept nulls with a default."""
    if schema is None or not schema.has_defaults:
        return
    if isinstance(value, dict):
        for name, inner in schema.properties.items():
            if inner.default is not None and (name not in value or _missing(value[name], inner)):
                value[name] = copied(inner.default)
        for name in value:
            inner_schema = schema.of_member(name)
            if name not in schema.properties and _missing(value[name], inner_schema):
                assert inner_schema is not None
                value[name] = copied(inner_schema.default)
            fill_defaults(value[name], inner_schema)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if _missing(item, schema.items):
                assert schema.items is not None
                value[index] = copied(schema.items.default)
            fill_defaults(value[index], schema.items)


# --- embedded resources -------------------------------------------------------------------------------------


class Malformed(Exception):
    """`error`: the error in kind, apiVersion or metadata."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


def coerce(value: Any, schema: Structural | None, path: str = "", *, lenient: bool = False) -> list[str]:
    """Checks types of kind, apiVersion and metadata of the resources in `value`, and prunes their metadata in place;
    returns unknown paths. `lenient`: malformed fields are dropped.

    Raises: Malformed."""
    unknown: list[str] = []
    if schema is not None and schema.has_embedded:
        _coerce(value, schema, path, lenient, unknown)
    return sorted(unknown)


def _coerce(value: Any, schema: Structural | None, path: str, lenient: bool, unknown: list[str]) -> None:
    if schema is None:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            _coerce(item, schema.items, f"{path}[{index}]", lenient, unknown)
    elif isinstance(value, dict):
        for name in list(value):
            inner = _inside(path, name)
            if schema.embedded and name in META_FIELDS:
                _coerce_meta(value, name, inner, lenient, unknown)
            if name in value and name in schema.properties:
                _coerce(value[name], schema.properties[name], inner, lenient, unknown)
            elif name in value and schema.additional is not None:
                _coerce(value[name], schema.values, f"{path}[{name}]", lenient, unknown)


def _coerce_meta(value: Json, name: str, path: str, lenient: bool, unknown: list[str]) -> None:
    found = value[name]
    if name != "metadata":
        if not isinstance(found, str):
            if not lenient:
                raise Malformed(invalid_value(path, found, "must be a string"))
            del value[name]
        return
    try:
        value[name], problems = metadata_of(found, lenient)
    except DecodeError as error:
        if not lenient:
            raise Malformed(invalid_value(path, found, str(error))) from None
        return
    unknown += [f"{path}.{each}" for each in problems]
