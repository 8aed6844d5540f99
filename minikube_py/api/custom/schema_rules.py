"""Validation of a custom resource's schema: OpenAPI's rules, lists and maps, defaults.

Source: apiextensions-apiserver `pkg/apis/apiextensions/validation`, `pkg/apiserver/schema/defaulting/validation.go`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from minikube_py.api.custom.cel_rules import OBJECT_COST_MAX, RULES, Scope, form_errors, judged, ruled
from minikube_py.api.custom.rules import embedded_errors
from minikube_py.api.custom.structural import Malformed, Structural, coerce, copied, prune, same_json, structural
from minikube_py.api.custom.structural_rules import TYPES, structural_errors, unbuildable
from minikube_py.api.custom.values import validate_value
from minikube_py.api.errors import (
    FieldError,
    Json,
    aggregate,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)

_META: Final = ("metadata", "kind", "apiVersion")
_AT_ROOT: Final = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength",
    "MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties",
    "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
)  # fmt: skip
_ROOT_NAMES: Final = frozenset(
    {name[:1].lower() + name[1:] for name in _AT_ROOT}
    | {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"}
)
_FORBIDDEN: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_EVEN_EMPTY: Final = ("additionalItems", "dependencies", "$ref")


def schema_errors(schema: Json, path: str, has_status: bool) -> list[FieldError]:
    """`path`: the path of `openAPIV3Schema`."""
    errors = _root_errors(schema, path, has_status)
    reason = unbuildable(schema)
    scope = None
    if not reason:
        found = structural_errors(schema, path) or default_errors(schema, path)
        errors += found
        scope = None if found else Scope(schema)
    of_rules: list[FieldError] = []
    errors += _open_errors(schema, path, _Inside(), scope, of_rules, True) + of_rules
    if not errors and reason:
        errors.append(invalid_value(path, "", reason))
    return errors + (scope.total.errors(path) if scope is not None else [])


def _root_errors(schema: Json, path: str, has_status: bool) -> list[FieldError]:
    errors = []
    if has_status:
        if schema.get("type") and schema["type"] != "object":
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            errors.append(invalid_value(f"{path}.type", schema["type"], why))
        elif any(name not in _ROOT_NAMES and value for name, value in schema.items()):
            why = (
                f"only [{' '.join(_AT_ROOT)}] fields are allowed at the root of the schema if the status subresource is"
            )
            errors.append(invalid_value(path, schema, f"{why} enabled"))
    if schema.get("nullable"):
        errors.append(forbidden_value(f"{path}.nullable", "nullable cannot be true at the root"))
    return errors


# --- defaults -------------------------------------------------------------------------------------------------------


def default_errors(schema: Json, path: str) -> list[FieldError]:
    return _Defaults().errors(structural(schema).as_resource, path)


class _Defaults:
    """All defaults of a schema, whose rules share one budget."""

    def __init__(self) -> None:
        self._left = OBJECT_COST_MAX

    def errors(self, schema: Structural, path: str) -> list[FieldError]:
        return self._below(schema, path, schema, (), False)

    def _below(
        self, schema: Structural, path: str, root: Structural, way: tuple[str | int, ...], in_meta: bool
    ) -> list[FieldError]:
        if schema.embedded:
            root, way, in_meta = schema, (), False
        errors: list[FieldError] = []
        if schema.default is not None:
            where = f"{path}.default"
            is_root = schema is root
            if in_meta:
                errors += _meta_default(schema, where, root, way) or self._value_errors(schema, where, is_root)
            else:
                pruned = _pruned_errors(schema, where)
                errors += pruned + (_default(schema, where) or self._value_errors(schema, where, is_root))
        parts: list[tuple[Structural, str, str | int, bool]] = []
        if schema.items is not None:
            parts.append((schema.items, "items", 0, in_meta))
        for name, inner in schema.properties.items():
            inside = in_meta or (schema.embedded and name in _META)
            parts.append((inner, f"properties[{name}]", name, inside))
        for inner, name, step, inside in parts:
            if self._left < 0:
                break
            errors += self._below(inner, f"{path}.{name}", root, (*way, step), inside)
        return errors

    def _value_errors(self, schema: Structural, path: str, resource: bool) -> list[FieldError]:
        value = schema.default
        errors = validate_value(value, schema.source, path)
        rules = None if errors else ruled(schema.source, resource)
        if rules is None:
            return errors
        found = judged(rules, value, path, value, budget=self._left)
        left = found.left
        if not found.errors:
            # Also as the default of a whole object.
            found = judged(rules, value, path, budget=self._left)
            left = min(left, found.left)
        self._left = left
        return found.errors


def _pruned_errors(schema: Structural, path: str) -> list[FieldError]:
    value = copied(schema.default)
    prune(value, schema, schema.embedded)
    wrong = not same_json(value, schema.default)
    return [invalid_value(path, schema.default, "must not have unknown fields")] if wrong else []


def _default(schema: Structural, path: str) -> list[FieldError]:
    try:
        coerce(copied(schema.default), schema, path)
    except Malformed as error:
        return [error.error]
    return embedded_errors(schema.default, schema, path)


def _meta_default(schema: Structural, path: str, root: Structural, way: tuple[str | int, ...]) -> list[FieldError]:
    """A default within kind, apiVersion or metadata must make a valid resource."""
    value: Any = copied(schema.default)
    for step in reversed(way):
        value = [value] if isinstance(step, int) else {step: value}
    whole = {"apiVersion": "validation/v1", "kind": "Validation", **value}
    try:
        coerce(whole, root)
    except Malformed as error:
        return [invalid_value(path, schema.default, f"must result in valid metadata: {error}")]
    if found := embedded_errors(whole, root):
        why = f"must result in valid metadata: {aggregate(map(str, found))}"
        return [invalid_value(path, schema.default, why)]
    return []


# --- OpenAPI --------------------------------------------------------------------------------------------------------


class _Inside(NamedTuple):
    """A schema's position. `no_default`: why defaults are forbidden. `no_old`: the path of the part whose values cannot
    be correlated with old ones."""

    resource_meta: bool = False
    no_default: str = ""
    no_old: str = ""


def _open_errors(
    schema: Any, path: str, inside: _Inside, scope: Scope | None, of_rules: list[FieldError], root: bool = False
) -> list[FieldError]:
    """`of_rules` collects errors in expressions, checked if the schema in `scope` is valid."""
    if not isinstance(schema, dict):
        return []

    def below(inner: Any, name: str, within: _Inside, structural: bool = False) -> list[FieldError]:
        inner_scope = scope.below(inner) if scope is not None and structural else None
        return _open_errors(inner, f"{path}.{name}", within, inner_scope, of_rules)

    errors = _standard_errors(schema, path, inside)
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden_value(f"{path}.uniqueItems", why))
    additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if additional is not None:
        if properties and additional is not True:
            why = "additionalProperties and properties are mutual exclusive"
            errors.append(forbidden_value(f"{path}.additionalProperties", why))
        within = inside
        if inside.resource_meta:
            within = inside._replace(no_default="inside additionalProperties applying to object metadata")
        errors += below(additional, "additionalProperties", within, True)
    for name, inner in properties.items():
        within = inside
        if (root or schema.get("x-kubernetes-embedded-resource")) and name in _META:
            forbidden = f"in top-level {name}" if root else inside.no_default
            within = inside._replace(resource_meta=True, no_default=forbidden)
        errors += below(inner, f"properties[{name}]", within, True)
    errors += below(schema.get("not"), "not", inside)
    for several in ("allOf", "oneOf", "anyOf"):
        for index, inner in enumerate(schema.get(several) or ()):
            errors += below(inner, f"{several}[{index}]", inside)
    for name, inner in (schema.get("definitions") or {}).items():
        errors += below(inner, f"definitions[{name}]", inside)
    items = schema.get("items")
    within = inside
    if items is not None and schema.get("x-kubernetes-list-type") != "map":
        within = inside._replace(no_old=inside.no_old or path)
    if isinstance(items, list):
        for index, inner in enumerate(items):
            errors += below(inner, f"items[{index}]", within, True)
    else:
        errors += below(items, "items", within, True)
    errors += _extension_errors(schema, path) + _key_errors(schema, path) + form_errors(schema, path)
    if not errors and scope is not None and schema.get(RULES):
        of_rules += scope.errors(path, inside.no_old)
    return errors


def _standard_errors(schema: Json, path: str, inside: _Inside) -> list[FieldError]:
    errors: list[FieldError] = []
    type_ = schema.get("type")
    if type_ and type_ not in TYPES:
        errors.append(not_supported(f"{path}.type", type_, TYPES))
    if schema.get("default") is not None and inside.no_default:
        errors.append(forbidden_value(f"{path}.default", f"must not be set {inside.no_default}"))
    told = [name for name in _FORBIDDEN if schema.get(name) or (name in _EVEN_EMPTY and schema.get(name) is not None)]
    errors += [forbidden_value(f"{path}.{name}", f"{name} is not supported") for name in told]
    if type_ == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        errors.append(forbidden_value(f"{path}.type", why))
    if isinstance(schema.get("items"), list) and schema["items"]:
        errors.append(forbidden_value(f"{path}.items", "items must be a schema object and not an array"))
    if inside.resource_meta and schema.get("x-kubernetes-embedded-resource"):
        why = "must not be used inside of resource meta"
        errors.append(forbidden_value(f"{path}.x-kubernetes-embedded-resource", why))
    return errors


def _type_for(schema: Json, path: str, wanted: str, name: str) -> list[FieldError]:
    type_, why = schema.get("type") or "", f"must be {wanted} if {name} is specified"
    if schema.get(name) is None or type_ == wanted:
        return []
    return [invalid_value(f"{path}.type", type_, why) if type_ else required(f"{path}.type", why)]


def _extension_errors(schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        errors.append(invalid_value(where, False, "must be true or undefined"))
    errors += _type_for(schema, path, "object", "x-kubernetes-map-type")
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if map_type is not None and map_type not in ("atomic", "granular"):
        errors.append(not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular")))
    wrong_type = _type_for(schema, path, "array", "x-kubernetes-list-type")
    errors += wrong_type
    items = schema.get("items")
    if not wrong_type and list_type == "set" and isinstance(items, dict):
        why = "must be atomic as item of a list with x-kubernetes-list-type=set"
        inner = items.get("x-kubernetes-list-type")
        if items.get("type") == "array" and inner not in (None, "atomic"):
            errors.append(invalid_value(f"{path}.items.x-kubernetes-list-type", inner, why))
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            errors.append(invalid_value(f"{path}.items.x-kubernetes-map-type", inner, why))
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        errors.append(not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map")))
    return errors


def _key_errors(schema: Json, path: str) -> list[FieldError]:
    """Lists that are maps, and their keys."""
    errors: list[FieldError] = []
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    items, where = schema.get("items"), f"{path}.x-kubernetes-list-map-keys"
    if keys and list_type != "map":
        why, at = "must be map if x-kubernetes-list-map-keys is non-empty", f"{path}.x-kubernetes-list-type"
        errors.append(required(at, why) if list_type is None else invalid_value(at, list_type, why))
    if list_type == "map":
        if not keys:
            errors.append(required(where, "must not be empty if x-kubernetes-list-type is map"))
        if items is None:
            errors.append(required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map"))
        elif isinstance(items, dict) and items.get("type") != "object":
            why = "must be object if parent array's x-kubernetes-list-type is map"
            errors.append(invalid_value(f"{path}.items.type", items.get("type") or "", why))
        elif isinstance(items, dict):
            errors += _names_of_keys(items, list(keys), path)
    if list_type in ("set", "map") and isinstance(items, dict):
        errors += _nullable_errors(items, list_type, list(keys), path)
    return errors


def _names_of_keys(items: Json, keys: list[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    properties, where = items.get("properties") or {}, f"{path}.x-kubernetes-list-map-keys"
    for index, key in enumerate(keys):
        if key not in properties:
            errors.append(invalid_value(where, keys, "entries must all be names of item properties"))
        elif properties[key].get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.append(invalid_value(f"{path}.items.properties[{key}].type", items.get("type"), why))
        if key in keys[:index]:
            errors.append(invalid_value(where, keys, "must not contain duplicate entries"))
    return errors


def _nullable_errors(items: Json, list_type: str, keys: list[str], path: str) -> list[FieldError]:
    errors = []
    if items.get("nullable"):
        why = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        errors.append(forbidden_value(f"{path}.items.nullable", why))
    properties = items.get("properties") or {}
    for key in keys if list_type == "map" else ():
        if key not in properties:
            continue
        where, own = f"{path}.items.properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if key not in (items.get("required") or ()) and properties[key].get("default") is None:
            errors.append(required(f"{where}.default", f"{own} must have a default or be a required property"))
        if properties[key].get("nullable"):
            errors.append(forbidden_value(f"{where}.nullable", f"{own} cannot be nullable"))
    return errors


# --- selectable fields ----------------------------------------------------------------------------------------------

SELECTABLE_MAX: Final = 8


def selectable_errors(fields: list[Json], schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, each in enumerate(fields):
        where, told = f"{path}[{index}].jsonPath", each.get("jsonPath") or ""
        if not told:
            errors.append(required(where))
            continue
        found, why = _schema_at(told, schema)
        if found is None:
            errors.append(invalid_value(where, told, f"is an invalid path: {why}"))
            continue
        if told.split(".")[1] == "metadata":
            errors.append(invalid_value(where, told, "must not point to fields in metadata"))
        if found.get("type") not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats"
            )
            errors.append(invalid_value(where, told, f"{why} are allowed."))
        if told in seen:
            errors.append(duplicate(where, told))
        seen.add(told)
    if len(seen) > SELECTABLE_MAX:
        why = f"must have at most {SELECTABLE_MAX} items"
        errors.append(FieldError("FieldValueTooMany", path, len(seen), why))
    return errors


def _schema_at(path: str, schema: Json) -> tuple[Json | None, str]:
    """The schema at a path of members, or why there is none."""
    if "[" in path or "]" in path:
        return None, "array notation is not allowed"
    if not path.startswith("."):
        return None, f"expected [ or . but got: {path.split('.')[0]}"
    for name in path[1:].split("."):
        if not name:
            return None, "unexpected end of JSON path" if path.endswith(".") else "does not refer to a valid field"
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        found = properties.get(name) if properties else additional if isinstance(additional, dict) else None
        if found is None:
            return None, "does not refer to a valid field"
        schema = found
    return schema, ""
