"""Taints of nodes and tolerations of pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikube_py.api.errors import (
    DUPLICATE,
    FieldError,
    Json,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import is_label_value, is_qualified_name

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS: Final = ("Equal", "Exists")
_COMPARISONS: Final = ("Equal", "Exists", "Lt", "Gt")


def validate_label_name(name: str, path: str) -> list[FieldError]:
    return [invalid_value(path, name, message) for message in is_qualified_name(name)]


def _validate_effect(effect: str, path: str) -> list[FieldError]:
    return [] if effect in EFFECTS else [not_supported(path, effect, EFFECTS)]


def validate_taints(taints: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        at = f"{path}[{i}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        errors += validate_label_name(key, f"{at}.key")
        if messages := is_label_value(value):
            errors.append(invalid_value(f"{at}.value", value, ";".join(messages)))
        errors += _validate_effect(effect, f"{at}.effect") if effect else [required(f"{at}.effect")]
        if (effect, key) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            errors.append(FieldError(DUPLICATE, at, shown, "taints must be unique by key and effect pair"))
        seen.add((effect, key))
    return errors


def validate_tolerations(tolerations: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, toleration in enumerate(tolerations):
        get = toleration.get
        key, operator, effect = get("key") or "", get("operator") or "", get("effect") or ""
        value = get("value") or ""
        if key and is_qualified_name(key):
            errors += validate_label_name(key, f"{path}[{i}].key")
        if not key and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid_value(f"{path}[{i}].operator", operator, detail))
        if get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid_value(f"{path}[{i}].effect", effect, detail))
        if operator in ("", "Equal"):
            if messages := is_label_value(value):
                errors.append(invalid_value(f"{path}[{i}].operator", value, ";".join(messages)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid_value(f"{path}[{i}].operator", value, detail))
        else:
            known = _COMPARISONS if operator in _COMPARISONS else _OPERATORS
            errors.append(not_supported(f"{path}[{i}].operator", operator, known))
        if effect and effect not in EFFECTS:
            errors += _validate_effect(effect, f"{path}[{i}].effect")
    return errors
