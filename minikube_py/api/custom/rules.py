"""Rules of custom objects beyond their OpenAPI schema: list sets and maps, embedded resources, scales.

Source: apiextensions-apiserver `pkg/apiserver/schema/{listtype,objectmeta}`, `pkg/registry/customresource`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from minikube_py.api import meta
from minikube_py.api.custom.structural import META_FIELDS, Structural
from minikube_py.api.decode import metadata_of
from minikube_py.api.errors import FieldError, Json, duplicate, invalid_value, required
from minikube_py.api.go_format import go_format, go_type
from minikube_py.api.kind import ScalePaths
from minikube_py.api.typed import DecodeError

# --- lists ----------------------------------------------------------------------------------------------------------


def unique_list_errors(value: Any, schema: Structural | None, path: str = "") -> list[FieldError]:
    """Duplicate set items and map keys."""
    if schema is None or not schema.has_unique_lists:
        return []
    errors: list[FieldError] = []
    if isinstance(value, list):
        if schema.list_type == "set":
            errors += [duplicate(f"{path}[{index}]", value[index]) for index in _repeated(value)]
        elif schema.list_type == "map":
            errors += _map_errors(value, schema, path)
    for part in _parts(value, schema, path):
        errors += unique_list_errors(*part)
    return errors


def _parts(value: Any, schema: Structural, path: str) -> Iterator[tuple[Any, Structural | None, str]]:
    """The known members or items of a value, with schema and path."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name in schema.properties:
                yield item, schema.properties[name], f"{path}.{name}" if path else name
            elif schema.values is not None:
                yield item, schema.values, f"{path}[{name}]"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield item, schema.items, f"{path}[{index}]"


def _repeated(values: list[Any]) -> list[int]:
    """The positions of duplicates; 1 is not 1.0."""
    seen: dict[bytes, int] = {}
    found = []
    for index, value in enumerate(values):
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            found.append(index)
    return found


def _map_errors(value: list[Any], schema: Structural, path: str) -> list[FieldError]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            return [invalid_value(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    keys = [{key: item[key] for key in schema.list_keys if key in item} if item else {} for item in value]
    return [duplicate(f"{path}[{index}]", keys[index]) for index in _repeated(keys)]


# --- embedded resources -------------------------------------------------------------------------------------


def embedded_errors(value: Any, schema: Structural | None, path: str = "") -> list[FieldError]:
    """Errors in kind, apiVersion and metadata of embedded resources."""
    if schema is None or not schema.has_embedded:
        return []
    errors: list[FieldError] = []
    if schema.embedded and isinstance(value, dict):
        errors += _resource_errors(value, path)
    for part in _parts(value, schema, path):
        errors += embedded_errors(*part)
    return errors


def _resource_errors(value: Json, path: str) -> list[FieldError]:
    prefix = f"{path}." if path else ""
    errors = [required(f"{prefix}{name}") for name in ("apiVersion", "kind") if name not in value]
    for name in value:
        if name in META_FIELDS:
            errors += _meta_errors(name, value[name], f"{prefix}{name}")
    return errors


def _meta_errors(name: str, value: Any, path: str) -> list[FieldError]:
    if name == "metadata":
        try:
            metadata, _ = metadata_of(value)
        except DecodeError as error:
            return [invalid_value(path, value, str(error))]
        named = {**metadata, "name": metadata.get("name") or "fakename"}
        return meta.validate_object_meta(named, bool(metadata.get("namespace")), meta.is_path_segment, path)
    if not isinstance(value, str):
        return [invalid_value(path, value, "must be a string")]
    if not value:
        return [invalid_value(path, value, "must not be empty")]
    if name == "apiVersion":
        wrong = value.count("/") > 1
        return [invalid_value(path, value, f"unexpected GroupVersion string: {value}")] if wrong else []
    messages = meta.is_dns1035_label(value.lower())
    text = f"may have mixed case, but should otherwise match: {','.join(messages)}"
    return [invalid_value(path, value, text)] if messages else []


# --- scales ---------------------------------------------------------------------------------------------------------

_INT32_MAX: Final = (1 << 31) - 1


class _Elsewhere(Exception):
    """A non-object on the path, or a wrong type at its end."""


def _nested(obj: Any, path: tuple[str, ...], wanted: type, named: str, zero: Any) -> Any:
    found = obj
    for depth, name in enumerate(path):
        if not isinstance(found, dict):
            text = f".{'.'.join(path[: depth + 1])} accessor error: {go_format(found)} is of the type {go_type(found)}"
            raise _Elsewhere(f"{text}, expected map[string]interface{{}}")
        if name not in found:
            return zero
        found = found[name]
    if not isinstance(found, wanted) or isinstance(found, bool):
        text = f".{'.'.join(path)} accessor error: {go_format(found)} is of the type {go_type(found)}"
        raise _Elsewhere(f"{text}, expected {named}")
    return found


def _replicas_errors(obj: Json, path: tuple[str, ...]) -> list[FieldError]:
    where = "." + ".".join(path)
    try:
        found = _nested(obj, path, int, "int64", 0)
    except _Elsewhere as error:
        return [invalid_value(where, 0, str(error))]
    if found < 0:
        return [invalid_value(where, found, "should be a non-negative integer")]
    if found > _INT32_MAX:
        return [invalid_value(where, found, f"should be less than or equal to {_INT32_MAX}")]
    return []


def scale_errors(obj: Json, paths: ScalePaths, selector: tuple[str, ...], status_alone: bool) -> list[FieldError]:
    """`selector`: the path of the selector's text, or empty."""
    errors = [] if status_alone else _replicas_errors(obj, paths.spec_replicas)
    errors += _replicas_errors(obj, paths.status_replicas)
    if selector:
        try:
            _nested(obj, selector, str, "string", "")
        except _Elsewhere as error:
            errors.append(invalid_value("." + ".".join(selector), "", str(error)))
    return errors
