"""Validates values against an OpenAPI v3 schema, with upstream's messages.

Updates ratchet: unchanged invalid values are tolerated. Source: kube-openapi `pkg/validation/validate`,
apiextensions-apiserver `pkg/apiserver/validation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.custom.formats import effective_format, is_format
from minikube_py.api.custom.structural import same_json
from minikube_py.api.errors import (
    TYPE_INVALID,
    FieldError,
    Json,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from minikube_py.api.go_format import go_format
from minikube_py.api.go_numbers import whole
from minikube_py.cel.allowance import spend
from minikube_py.cel.regex import TooDear, compiled

_NOWHERE: Final = "<nil>"
"""How upstream prints a missing path."""
_ABSENT: Final = object()
_STEPS: Final = 20
"""Steps to validate a value."""
_JSON_TYPES: Final[dict[type, str]] = {
    bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object",
}  # fmt: skip


class Found(NamedTuple):
    """`errors` relative to their path. `matches` counts successes: of alternatives that all fail, the best one is
    reported."""

    errors: list[FieldError]
    matches: int


class Correlated(NamedTuple):
    """The old value for a new one, and the schema that correlates list items."""

    old: Any
    new: Any
    schema: Json

    def member(self, name: str) -> Correlated | None:
        if not (isinstance(self.old, dict) and isinstance(self.new, dict)):
            return None
        if name not in self.old or name not in self.new:
            return None
        inner = (self.schema.get("properties") or {}).get(name) or self.schema.get("additionalProperties")
        return Correlated(self.old[name], self.new[name], inner) if isinstance(inner, dict) else None

    def items(self) -> list[Correlated | None]:
        """Of each item of the new list."""
        inner = self.schema.get("items")
        if not isinstance(self.old, list) or not isinstance(inner, dict) or not self._is_map_list:
            return [None] * len(self.new)
        named = items_named_as(self.new, self.old, self.schema.get("x-kubernetes-list-map-keys") or ())
        return [None if old is None else Correlated(old, item, inner) for item, old in zip(self.new, named)]

    @property
    def _is_map_list(self) -> bool:
        return self.schema.get("x-kubernetes-list-type") == "map"

    @property
    def unchanged(self) -> bool:
        """As upstream compares: map lists in any order; objects with members outside the schema always count as
        changed."""
        old, new = self.old, self.new
        if isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new) or not self._is_map_list:
                return same_json(old, new)
            found = self.items()
        elif isinstance(old, dict) and isinstance(new, dict):
            if len(old) != len(new):
                return False
            found = list(map(self.member, new))
        else:
            return same_json(old, new)
        return all(each is not None and each.unchanged for each in found)


def items_named_as(items: Sequence[Any], among: Sequence[Any], keys: Sequence[str]) -> list[Any]:
    """For each item the first one with the same keys; None if there is none, or keys are missing."""
    spend(5 * (len(items) + len(among)))
    known = {_key_of(each, keys): each for each in reversed(among)}
    known[None] = None
    return [known.get(_key_of(item, keys)) for item in items]


def _key_of(item: Any, keys: Sequence[str]) -> bytes | None:
    found = [item.get(key) for key in keys] if isinstance(item, dict) and keys else [None]
    return None if any(each is None or isinstance(each, dict | list) for each in found) else orjson.dumps(found)


def validate_value(value: Any, schema: Json, path: str = "", old: Any = _ABSENT) -> list[FieldError]:
    """The errors of `value` at `path`; `old`: its value before an update."""
    correlated = Correlated(old, value, schema) if old is not _ABSENT else None
    found = _ratcheted(value, schema, "", correlated)
    return [_placed(error, path) for error in found.errors]


def _placed(error: FieldError, path: str) -> FieldError:
    inner = "" if error.field == _NOWHERE else error.field
    return error._replace(field=".".join(filter(None, (path, inner))) or _NOWHERE)


def _at(path: str) -> str:
    return path.removeprefix(".") or _NOWHERE


def _wrong_type(path: str, types: str, found: str) -> FieldError:
    return FieldError(TYPE_INVALID, _at(path), found, f"{path} in body must be of type {types}: {go_quote(found)}")


def _plain(message: str) -> FieldError:
    return invalid_value(_NOWHERE, "", message)


def _ratcheted(value: Any, schema: Json, path: str, correlated: Correlated | None) -> Found:
    found = _check(value, schema, path, correlated)
    if found.errors and correlated is not None and correlated.unchanged:
        return Found([], found.matches)
    return found


def _check(value: Any, schema: Json, path: str, correlated: Correlated | None) -> Found:
    spend(_STEPS)
    types = _types(schema)
    if value is None:
        return Found(_null_errors(types, schema, path) + _enum_errors(value, schema, path), 0)
    errors: list[FieldError] = []
    matches = 1
    format_ = effective_format(schema.get("format") or "", types)
    if types or format_:
        wrong = _type_errors(value, types, format_, path)
        errors += wrong
        matches += 2 if not wrong else 1
    for part in (_combined(value, schema, path, correlated), _own(value, schema, types, format_, path, correlated)):
        errors += part.errors
        matches += part.matches
    return Found(errors, matches)


def _own(value: Any, schema: Json, types: list[str], format_: str, path: str, correlated: Correlated | None) -> Found:
    """Validates by the value's type."""
    errors: list[FieldError] = []
    matches = 0
    if isinstance(value, str):
        spend(len(value) >> 4)
        errors += _text_errors(value, schema, path)
        matches += 1
        if format_ and not is_format(format_, value):
            errors.append(_wrong_type(path, format_, value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        errors += _number_errors(value, schema, types, format_, path)
        matches += 2
    elif isinstance(value, list):
        part = _list(value, schema, path, correlated)
        errors += part.errors
        matches += part.matches + 1
    errors += _enum_errors(value, schema, path)
    matches += 1
    if isinstance(value, dict):
        part = _object(value, schema, path, correlated)
        errors += part.errors
        matches += part.matches + 1
    return Found(errors, matches)


# --- types and enumerations -----------------------------------------------------------------------------------------


def _types(schema: Json) -> list[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _null_errors(types: list[str], schema: Json, path: str) -> list[FieldError]:
    return [] if not types or schema.get("nullable") else [_wrong_type(path, ",".join(types), "null")]


def _type_errors(value: Any, types: list[str], format_: str, path: str) -> list[FieldError]:
    found = _JSON_TYPES[type(value)]
    whole_float = isinstance(value, float) and is_whole(value) and "integer" in types
    fits = found in types or whole_float or (found == "integer" and "number" in types)
    own_format = {"integer": "int64", "number": "float64"}.get(found, "")
    if found not in ("string", "array") and format_ and not (fits or own_format == format_):
        return [_wrong_type(path, format_, own_format)]
    numeric = "number" in types or "integer" in types
    if fits or (not numeric and format_ and found in ("string", "array")):
        return []
    return [_wrong_type(path, ",".join(types), found)]


def _enum_errors(value: Any, schema: Json, path: str) -> list[FieldError]:
    allowed = schema.get("enum")
    spend(2 * len(allowed) if allowed else 0)
    if not allowed or any(_is_value(value, each) for each in allowed):
        return []
    shown = [each if isinstance(each, str) else orjson.dumps(each).decode() for each in allowed]
    return [not_supported(_at(path), value, shown)]


def _is_value(value: Any, wanted: Any) -> bool:
    """Numbers are converted to the expected type, as upstream."""
    if value is None or wanted is None:
        return False
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return (int(value) if isinstance(wanted, int) else float(value)) == wanted
    return same_json(value, wanted)


# --- scalars --------------------------------------------------------------------------------------------------------


def _text_errors(value: str, schema: Json, path: str) -> list[FieldError]:
    most, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if most is not None and len(value) > most:
        return [too_long(_at(path), most)]
    if least is not None and len(value) < least:
        return [invalid_value(_at(path), value, f"{path} in body should be at least {least} chars long")]
    if not pattern:
        return []
    try:
        matches = compiled(pattern).matches(value)
    except TooDear as error:
        return [invalid_value(_at(path), value, f"{path} in body should match '{pattern}', but {error}")]
    return [] if matches else [invalid_value(_at(path), value, f"{path} in body should match '{pattern}'")]


_LARGEST_WHOLE: Final = float((1 << 53) - 1)
_EPSILON: Final = 1e-9


def is_whole(value: float) -> bool:
    """Whether upstream treats a float as an integer, within exact floats."""
    if math.isnan(value) or not -_LARGEST_WHOLE <= value <= _LARGEST_WHOLE:
        return False
    nearest = float(int(value))
    if value == nearest:
        return True
    return abs(value - nearest) / (abs(value) + abs(nearest)) < _EPSILON


_RANGES: Final = {"int32": (-(1 << 31), (1 << 31) - 1)}
_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_FLOAT32_MAX: Final = 3.4028235677973366e38


def _range_error(value: float, type_: str, format_: str, what: str, path: str) -> list[FieldError]:
    """A number that its type and format cannot hold."""
    wrong = False
    if type_ == "integer":
        low, high = _RANGES.get(format_, _INT64)
        exact = whole(value) if isinstance(value, float) else value
        wrong = exact is None or not low <= exact <= high
    elif format_ == "float":
        wrong = abs(value) > _FLOAT32_MAX
    if not wrong:
        return []
    where = f"of type {type_} with format {format_}" if format_ else f"of type {type_} (default format)"
    return [_plain(f"{what} value must be {where} in {path}")]


def _number_errors(value: float, schema: Json, types: list[str], format_: str, path: str) -> list[FieldError]:
    type_ = types[0] if len(types) == 1 and types[0] in ("integer", "number") else ""
    format_ = format_ if type_ else ""
    errors = _range_error(value, type_, format_, "Checked", path)
    if (factor := schema.get("multipleOf")) is not None:
        beyond = _range_error(factor, type_, format_, "MultipleOf", path)
        errors += beyond + _multiple_errors(value, factor, bool(beyond), path)
    for name, what, words in _BOUNDS:
        if (bound := schema.get(name)) is None:
            continue
        beyond = _range_error(bound, type_, format_, what, path)
        errors += beyond
        exclusive = bool(schema.get(f"exclusive{name.capitalize()}"))
        shown: float = int(bound) if isinstance(value, int) and not beyond else float(bound)
        over = value >= shown if exclusive else value > shown
        under = value <= shown if exclusive else value < shown
        if over if name == "maximum" else under:
            text = f"{path} in body should be {words[exclusive]} {go_format(shown)}"
            errors.append(invalid_value(_at(path), value, text))
    return errors


_BOUNDS: Final = (
    ("minimum", "Minimum boundary", ("greater than or equal to", "greater than")),
    ("maximum", "Maximum boundary", ("less than or equal to", "less than")),
)


def _multiple_errors(value: float, factor: float, as_float: bool, path: str) -> list[FieldError]:
    exact = isinstance(value, int) and not as_float
    used: float = int(factor) if exact else float(factor)
    if used <= 0:
        text = f"factor MultipleOf declared for {path} must be positive: {go_format(used)}"
        return [invalid_value(_at(path), used, text)]
    if exact:
        fits = value % used == 0
    else:
        fits = is_whole(1 / used * value if used < 1 else value / used)
    if fits:
        return []
    return [invalid_value(_at(path), value, f"{path} in body should be a multiple of {go_format(used)}")]


# --- lists and objects ----------------------------------------------------------------------------------------------


def _list(value: list[Any], schema: Json, path: str, correlated: Correlated | None) -> Found:
    errors: list[FieldError] = []
    matches = 1
    items = schema.get("items")
    if isinstance(items, dict):
        stood = correlated.items() if correlated is not None else [None] * len(value)
        for index, item in enumerate(value):
            part = _ratcheted(item, items, f"{path}[{index}]", stood[index])
            errors += part.errors
            matches += part.matches
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        errors.append(invalid_value(_at(path), len(value), f"{path} in body should have at least {least} items"))
    if most is not None and len(value) > most:
        errors.append(too_many(_at(path), len(value), most))
    return Found(errors, matches)


def _object(value: Json, schema: Json, path: str, correlated: Correlated | None) -> Found:
    errors: list[FieldError] = []
    matches = 0
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(value) < least:
        text = f"{path} in body should have at least {least} properties"
        errors.append(invalid_value(_at(path), len(value), text))
    if most is not None and len(value) > most:
        errors.append(too_many(_at(path), len(value), most))
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    checked: list[tuple[str, Json, str]] = []
    for name in value:
        if name not in properties and additional is False:
            errors.append(invalid_value(_at(path), name, f"{path}.{name} in body is a forbidden property"))
        elif name not in properties and isinstance(additional, dict):
            checked.append((name, additional, f"{path}.{name}"))
    checked += [(n, inner, f"{path}.{n}" if path else n) for n, inner in properties.items() if n in value]
    for name, inner, where in checked:
        ratchets = correlated is not None and (path or name not in ("kind", "apiVersion"))
        part = _ratcheted(value[name], inner, where, correlated.member(name) if correlated and ratchets else None)
        errors += part.errors
        matches += part.matches
    errors += [required(_at(f"{path}.{name}")) for name in schema.get("required") or () if name not in value]
    return Found(errors, matches)


# --- several schemas ------------------------------------------------------------------------------------------------


def _combined(value: Any, schema: Json, path: str, correlated: Correlated | None) -> Found:
    errors: list[FieldError] = []
    matches = 2
    told = go_quote(path)
    if anyof := schema.get("anyOf"):
        best: Found | None = None
        for each in anyof:
            found = _check(value, each, path, correlated)
            if not found.errors or best is None or found.matches > best.matches:
                best = found
            if not found.errors:
                break
        assert best is not None
        if best.errors:
            errors.append(_plain(f"{told} must validate at least one schema (anyOf)"))
        errors += best.errors
        matches += best.matches
    if oneof := schema.get("oneOf"):
        tried = [_check(value, each, path, correlated) for each in oneof]
        held = [each for each in tried if not each.errors]
        if len(held) == 1:
            matches += held[0].matches
        else:
            why = f"Found {len(held)} valid alternatives" if held else "Found none valid"
            errors.append(_plain(f"{told} must validate one and only one schema (oneOf). {why}"))
            if not held:
                best = max(tried, key=lambda each: each.matches)
                errors += best.errors
                matches += best.matches
    if allof := schema.get("allOf"):
        tried = [_check(value, each, path, correlated) for each in allof]
        for each in tried:
            errors += each.errors
            matches += each.matches
        failed = sum(bool(each.errors) for each in tried)
        if failed:
            why = ". None validated" if failed == len(tried) else ""
            errors.append(_plain(f"{told} must validate all the schemas (allOf){why}"))
    inner = schema.get("not")
    if inner is not None and not _check(value, inner, path, correlated).errors:
        errors.append(_plain(f"{told} must not validate the schema (not)"))
    return Found(errors, matches)
