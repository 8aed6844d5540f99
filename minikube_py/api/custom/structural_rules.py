"""Whether a schema is structural: every value it constrains is declared with a type, outside of alternatives.

Source: apiextensions-apiserver `pkg/apiserver/schema/{validation,complete,convert}.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, required
from minikube_py.cel.regex import BadPattern, compiled

_UNSUPPORTED: Final = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
UNSUPPORTED: Final = frozenset(_UNSUPPORTED)
_ALTERNATIVES: Final = ("anyOf", "allOf", "oneOf")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_NEVER_NESTED: Final = (
    ("default", "undefined"), ("title", "empty"), ("description", "empty"), ("nullable", "false"), (_PRESERVE, "false"),
    (_EMBEDDED, "false"), ("x-kubernetes-int-or-string", "false"), ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"), ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
)  # fmt: skip
_WHERE: Final = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")


def every(schema: Any) -> Iterator[Json]:
    """It and the schemas that it holds, level by level; no definitions, patterns or dependencies."""
    pending = [schema]
    while pending:
        found = pending.pop(0)
        if isinstance(found, dict):
            yield found
            pending += [*(found.get("properties") or {}).values(), found.get("items")]
            pending += [found.get("additionalProperties"), found.get("not")]
            pending += [each for name in ("allOf", "anyOf", "oneOf") for each in found.get(name) or ()]


def is_structural(schema: Json) -> bool:
    """Whether it can be published. What an earlier release stored need not be."""
    typed = all((each.get("type") or "object") in TYPES for each in every(schema))
    return typed and not unbuildable(schema) and not structural_errors(schema, "")


def unbuildable(schema: Any) -> str:
    """Why it cannot become a structural schema, or ""."""
    if not isinstance(schema, dict):
        return ""
    for name in _UNSUPPORTED:
        if schema.get(name):
            return f"OpenAPIV3Schema '{name.lstrip('$') if name == '$schema' else name}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get(_PRESERVE) is False:
        return f"internal error: '{_PRESERVE}' must be true or undefined"
    below = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("not")]
    below += [schema.get("additionalProperties"), *(each for name in _ALTERNATIVES for each in schema.get(name) or ())]
    return next(filter(None, map(unbuildable, below)), "")


def structural_errors(schema: Json, path: str) -> list[FieldError]:
    errors = _invariants(schema, "root", path) + _completeness(schema, schema, path, path)
    return sorted(errors, key=str)


def _invariants(schema: Json, level: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    type_, items = schema.get("type") or "", schema.get("items")
    if type_ == "array" and items is None:
        errors.append(required(f"{path}.items", "must be specified"))
    if isinstance(items, dict):
        errors += _invariants(items, "item", f"{path}.items")
    properties = schema.get("properties") or {}
    for name, inner in properties.items():
        errors += _invariants(inner, "field", f"{path}.properties[{name}]")
    additional = schema.get("additionalProperties")
    if additional is not None:
        if level == "root":
            errors.append(forbidden_value(f"{path}.additionalProperties", "must not be used at the root"))
        if isinstance(additional, dict):
            errors += _invariants(additional, "field", f"{path}.additionalProperties")
    errors += _extension_errors(schema, path)
    any_of: Any = schema.get("anyOf")
    all_of: list[Json] = schema.get("allOf") or []
    skipped = bool(all_of) and _bare(all_of[0]).get("anyOf") == _INT_OR_STRING
    errors += _values(schema, any_of == _INT_OR_STRING, skipped, path)
    errors += _resource_errors(schema, level, path)
    if level == "root" and type_ and type_ != "object":
        errors.append(invalid_value(f"{path}.type", type_, "must be object at the root"))
    if level == "root" or schema.get(_EMBEDDED):
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type") != "string":
                where = f"{path}.properties[{name}].type"
                errors.append(invalid_value(where, properties[name].get("type") or "", "must be string"))
    if "metadata" in properties:
        errors += _metadata_errors(properties["metadata"], schema, level, f"{path}.properties[metadata]")
    if schema.get(_EMBEDDED) and not schema.get(_PRESERVE) and not properties:
        why = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        errors.append(required(f"{path}.properties", why))
    return errors


def _bare(schema: Any) -> Json:
    return schema if isinstance(schema, dict) else {}


def _extension_errors(schema: Json, path: str) -> list[FieldError]:
    if not schema.get("x-kubernetes-int-or-string"):
        return []
    why = "must be false if x-kubernetes-int-or-string is true"
    return [invalid_value(f"{path}.{name}", True, why) for name in (_PRESERVE, _EMBEDDED) if schema.get(name)]


def _resource_errors(schema: Json, level: str, path: str) -> list[FieldError]:
    type_ = schema.get("type") or ""
    errors = []
    if schema.get(_EMBEDDED) and type_ != "object":
        why = f"must be object if {_EMBEDDED} is true"
        errors.append(invalid_value(f"{path}.type", type_, why) if type_ else required(f"{path}.type", why))
    elif not type_ and not schema.get("x-kubernetes-int-or-string") and not schema.get(_PRESERVE):
        errors.append(required(f"{path}.type", _WHERE[level]))
    if schema.get(_EMBEDDED) and schema.get("additionalProperties") is not None:
        why = f"must not be used if {_EMBEDDED} is set"
        errors.append(forbidden_value(f"{path}.additionalProperties", why))
    return errors


def _metadata_errors(metadata: Json, schema: Json, level: str, path: str) -> list[FieldError]:
    errors = []
    if (level == "root" or schema.get(_EMBEDDED)) and metadata.get("type") != "object":
        errors.append(invalid_value(f"{path}.type", metadata.get("type") or "", "must be object"))
    if level == "root":
        kept = {name: value for name, value in metadata.items() if name not in ("type", "default") and value}
        if set(kept.get("properties") or ()) <= {"name", "generateName"}:
            kept.pop("properties", None)
        if kept:
            why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.append(forbidden_value(path, why))
    return errors


def _values(schema: Json, skip_any: bool, skip_first: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in _ALTERNATIVES:
        if name == "anyOf" and skip_any:
            continue
        for index, inner in enumerate(schema.get(name) or ()):
            skipped = name == "allOf" and skip_first and index == 0
            errors += _nested(inner, skipped, f"{path}.{name}[{index}]")
    if isinstance(schema.get("not"), dict):
        errors += _nested(schema["not"], False, f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            compiled(pattern)
        except BadPattern as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            errors.append(invalid_value(f"{path}.pattern", pattern, why))
    return errors


def _nested(schema: Json, skip_any: bool, path: str) -> list[FieldError]:
    errors = _values(schema, skip_any, False, path)
    if isinstance(schema.get("items"), dict):
        errors += _nested(schema["items"], False, f"{path}.items")
    properties = schema.get("properties") or {}
    for name, inner in properties.items():
        errors += _nested(inner, False, f"{path}.properties[{name}]")
    if schema.get("type"):
        errors.append(forbidden_value(f"{path}.type", "must be empty to be structural"))
    if schema.get("additionalProperties"):
        errors.append(forbidden_value(f"{path}.additionalProperties", "must be undefined to be structural"))
    for name, wanted in _NEVER_NESTED:
        if schema.get(name) or (name == "default" and schema.get(name) is not None):
            errors.append(forbidden_value(f"{path}.{name}", f"must be {wanted} to be structural"))
    if "metadata" in properties:
        errors.append(forbidden_value(f"{path}.properties[metadata]", "must not be specified in a nested context"))
    return errors


def _completeness(schema: Json | None, values: Json, where: str, path: str) -> list[FieldError]:
    """Fields in alternatives must be declared in the schema itself."""
    if schema is None:
        return [required(where, f"because it is defined in {path}")]
    errors: list[FieldError] = []
    if isinstance(values.get("not"), dict):
        errors += _complete_nested(schema, values["not"], where, f"{path}.not")
    for name in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(values.get(name) or ()):
            errors += _complete_nested(schema, inner, where, f"{path}.{name}[{index}]")
    return errors


def _complete_nested(schema: Json | None, values: Json, where: str, path: str) -> list[FieldError]:
    errors = _completeness(schema, values, where, path)
    if schema is None:
        return errors
    if isinstance(values.get("items"), dict):
        items = schema.get("items")
        errors += _complete_nested(items, values["items"], f"{where}.items", f"{path}.items")
    properties = schema.get("properties") or {}
    for name, inner in (values.get("properties") or {}).items():
        own, theirs = f"{where}.properties[{name}]", f"{path}.properties[{name}]"
        if name in properties:
            errors += _complete_nested(properties[name], inner, own, theirs)
        else:
            errors.append(required(own, f"because it is defined in {theirs}"))
    return errors
