"""What claims for devices, their classes and the slices that offer them share.

Source: `pkg/apis/resource/validation/validation.go`, in its order of errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from minikube_py.api.device_selectors import validate_expression
from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)  # fmt: skip
from minikube_py.api.meta import is_c_identifier, is_dns1123_label, is_dns1123_subdomain, is_label_value
from minikube_py.api.rules import named_by
from minikube_py.api.validation.taints import validate_label_name
from minikube_py.api.validation.volume_sources import validate_driver_name

Check = Callable[[Any, str], Iterable[FieldError]]

POOL_NAME_MAX: Final = 253
IDENTIFIER_MAX: Final = 32
DOMAIN_MAX: Final = 63
SELECTORS_MAX: Final = 32
CONFIG_MAX: Final = 32
RAW_BYTES_MAX: Final = 10 * 1024
BINDING_CONDITIONS_MAX: Final = 4
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_OPERATORS: Final = ("Equal", "Exists")
_OMITTED: Final = "<value omitted>"

validate_name: Final = named_by(is_dns1123_label)
"""Of a device, a request or a set of counters."""
validate_node_name: Final = named_by(is_dns1123_subdomain)
_pool_part: Final = named_by(is_dns1123_subdomain)


# --- lists and maps -------------------------------------------------------------------------------------------------


def validate_items(items: Sequence[Any] | None, limit: int, check: Check, path: str) -> list[FieldError]:
    """Each of at most `limit` items (negative: any number); if too many, only that error."""
    given = items or ()
    if 0 <= limit < len(given):
        return [too_many(path, len(given), limit)]
    return [error for i, item in enumerate(given) for error in check(item, f"{path}[{i}]")]


def validate_set(
    items: Sequence[Any] | None, limit: int, check: Check, path: str, key: Callable[[Any], Any] = lambda item: item
) -> list[FieldError]:
    """The same for items that differ by `key`."""
    given = items or ()
    errors = validate_items(given, limit, check, path)
    return errors if 0 <= limit < len(given) else errors + _doubles(map(key, given), path)


def _doubles(keys: Iterable[Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, key in enumerate(keys):
        known = key if isinstance(key, str) else orjson.dumps(key).decode()
        if known in seen:
            errors.append(duplicate(f"{path}[{i}]", key))
        seen.add(known)
    return errors


def validate_entries(
    entries: Mapping[str, Any] | None, limit: int, shown_max: int, key_check: Check, check: Check, path: str
) -> list[FieldError]:
    """Keys and values of a map; keys of more than `shown_max` bytes are cut in the middle where they are in paths."""
    given = entries or {}
    if 0 <= limit < len(given):
        return [too_many(path, len(given), limit)]
    errors: list[FieldError] = []
    for key, value in given.items():
        errors += key_check(key, path)
        errors += check(value, f"{path}[{_cut(key, shown_max)}]")
    return errors


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    room = limit - 3
    return f"{text[: (room + 1) // 2]}...{text[len(text) - room // 2 :]}"


# --- names ----------------------------------------------------------------------------------------------------------


def validate_pool_name(name: str | None, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    errors = [too_long(path, POOL_NAME_MAX)] if len(name.encode()) > POOL_NAME_MAX else []
    return errors + [error for part in name.split("/") for error in _pool_part(part, path)]


def _validate_identifier(name: str, path: str) -> list[FieldError]:
    errors = [too_long(path, IDENTIFIER_MAX)] if len(name.encode()) > IDENTIFIER_MAX else []
    return errors + [invalid_value(path, name, message) for message in is_c_identifier(name)]


def validate_qualified_name(name: str, path: str) -> list[FieldError]:
    """An identifier, or a domain and an identifier. Names with more than one slash pass, as upstream's do."""
    parts = name.split("/")
    if len(parts) == 1:
        return _validate_identifier(name, path)
    if len(parts) > 2:
        return []
    domain, identifier = parts
    errors = (
        validate_driver_name(domain, path) if domain else [invalid_value(path, "", "the domain must not be empty")]
    )
    if not identifier:
        return [*errors, invalid_value(path, "", "the name must not be empty")]
    return errors + _validate_identifier(identifier, path)


def validate_fully_qualified_name(name: str, path: str) -> list[FieldError]:
    errors = validate_qualified_name(name, path)
    if "/" not in name:
        wanted = "a fully qualified name must be a domain and a name separated by a slash"
        errors.append(invalid_value(path, name, wanted))
    return errors


_NORMAL_UID: Final = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "
    "characters"
)
_DASHED: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _wrong_uid(uid: str) -> str:
    """The error of upstream's UUID library, or empty."""
    size = len(uid.encode())
    if size == 32:
        return "" if re.fullmatch("[0-9a-fA-F]{32}", uid) else "invalid UUID format"
    if size == 36 + 9:
        if uid[:9].lower() != "urn:uuid:":
            return f"invalid urn prefix: {go_quote(uid[:9])}"
        uid = uid[9:]
    elif size == 36 + 2:
        if uid[0] != "{" or uid[-1] != "}":
            return "invalid bracketed UUID format"
        uid = uid[1:-1]
    elif size != 36:
        return f"invalid UUID length: {size}"
    return "" if _DASHED.fullmatch(uid) else "invalid UUID format"


def validate_uid(uid: str | None, path: str) -> list[FieldError]:
    if uid is None:
        return []
    if wrong := _wrong_uid(uid):
        return [invalid_value(path, uid, f"error validating uid: {wrong}")]
    return [] if len(uid) == 36 and uid == uid.lower() else [invalid_value(path, uid, _NORMAL_UID)]


# --- selectors and configuration ------------------------------------------------------------------------------------


def _validate_selector(selector: Json, path: str) -> list[FieldError]:
    cel, at = selector.get("cel"), f"{path}.cel"
    return [required(at)] if cel is None else validate_expression(cel.get("expression") or "", f"{at}.expression")


def validate_selectors(selectors: Sequence[Json] | None, path: str) -> list[FieldError]:
    return validate_items(selectors, SELECTORS_MAX, _validate_selector, path)


def validate_raw(value: Any, path: str, stored: bool = False) -> list[FieldError]:
    """JSON of a driver's own: an object, of bounded size where it is new (not `stored`)."""
    if value is None:
        return [required(path)]
    if not stored and len(orjson.dumps(value)) > RAW_BYTES_MAX:
        return [too_long(path, RAW_BYTES_MAX)]
    return [] if isinstance(value, dict) else [invalid_value(path, _OMITTED, "must be a valid JSON object")]


def validate_configuration(config: Json, path: str, stored: bool = False) -> list[FieldError]:
    opaque, at = config.get("opaque"), f"{path}.opaque"
    if opaque is None:
        return [required(at)]
    errors = validate_driver_name(opaque.get("driver"), f"{at}.driver")
    return errors + validate_raw(opaque.get("parameters"), f"{at}.parameters", stored)


# --- taints, tolerations and conditions of binding ------------------------------------------------------------------


def _validate_label_value(value: str, path: str) -> list[FieldError]:
    return [invalid_value(path, value, message) for message in is_label_value(value)]


def validate_taint(taint: Json, path: str) -> list[FieldError]:
    errors = validate_label_name(taint.get("key") or "", f"{path}.key")
    if taint.get("value"):
        errors += _validate_label_value(taint["value"], f"{path}.value")
    effect = taint.get("effect") or ""
    if not effect:
        errors.append(required(f"{path}.effect"))
    elif effect not in EFFECTS:
        errors.append(not_supported(f"{path}.effect", effect, EFFECTS))
    return errors


def validate_toleration(toleration: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if toleration.get("key"):
        errors += validate_label_name(toleration["key"], f"{path}.key")
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    if operator == "Exists":
        if value:
            errors.append(invalid_value(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        errors += _validate_label_value(value, f"{path}.value")
    elif not operator:
        errors.append(required(f"{path}.operator"))
    else:
        errors.append(not_supported(f"{path}.operator", operator, _OPERATORS))
    effect = toleration.get("effect") or ""
    if effect and effect not in EFFECTS:
        errors.append(not_supported(f"{path}.effect", effect, EFFECTS))
    return errors


def validate_binding_conditions(device: Json, path: str) -> list[FieldError]:
    wanted, failing = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    at, failing_at = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    errors = validate_items(wanted, BINDING_CONDITIONS_MAX, validate_label_name, at)
    errors += validate_items(failing, BINDING_CONDITIONS_MAX, validate_label_name, failing_at)
    errors += _doubles(wanted, at)
    for i, condition in enumerate(failing):
        if condition in failing[:i]:
            errors.append(duplicate(f"{failing_at}[{i}]", condition))
        if condition in wanted:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            errors.append(invalid_value(f"{failing_at}[{i}]", condition, why))
    if failing and not wanted:
        errors.append(invalid_value(at, None, "bindingConditions are required to use bindingFailureConditions"))
    if wanted and not failing:
        errors.append(invalid_value(failing_at, None, "bindingFailureConditions are required to use bindingConditions"))
    return errors
