"""The conditions of a status that are of the shared type (`metav1.Condition`).

Source: apimachinery `pkg/apis/meta/v1/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from minikube_py.api.errors import FieldError, Json, duplicate, invalid_value, not_supported, required, too_long
from minikube_py.api.meta import regex_message
from minikube_py.api.validation.taints import validate_label_name

REASON_BYTES_MAX: Final = 1024
MESSAGE_BYTES_MAX: Final = 32 * 1024
_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_PATTERN: Final = re.compile(_REASON)
_REASON_WANTED: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)
_REASONS: Final = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")


def _validate_condition(condition: Json, path: str) -> list[FieldError]:
    errors = validate_label_name(condition.get("type") or "", f"{path}.type")
    status, generation = condition.get("status") or "", condition.get("observedGeneration") or 0
    if status not in _STATUSES:
        errors.append(not_supported(f"{path}.status", status, _STATUSES))
    if generation < 0:
        errors.append(
            invalid_value(f"{path}.observedGeneration", generation, "must be greater than or equal to zero")
        )
    if condition.get("lastTransitionTime") is None:
        errors.append(required(f"{path}.lastTransitionTime"))
    reason = condition.get("reason") or ""
    if not reason:
        errors.append(required(f"{path}.reason"))
    elif not _REASON_PATTERN.fullmatch(reason):
        errors.append(invalid_value(f"{path}.reason", reason, regex_message(_REASON_WANTED, _REASON, *_REASONS)))
    if len(reason.encode()) > REASON_BYTES_MAX:
        errors.append(too_long(f"{path}.reason", REASON_BYTES_MAX))
    if len((condition.get("message") or "").encode()) > MESSAGE_BYTES_MAX:
        errors.append(too_long(f"{path}.message", MESSAGE_BYTES_MAX))
    return errors


def validate_conditions(
    conditions: Sequence[Json] | None, path: str, rule: Callable[[Json, str], list[FieldError]] = _validate_condition
) -> list[FieldError]:
    """Each type once, and each condition as `rule` wants it."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, condition in enumerate(conditions or ()):
        kind = condition.get("type") or ""
        if kind in seen:
            errors.append(duplicate(f"{path}[{i}].type", kind))
        seen.add(kind)
        errors += rule(condition, f"{path}[{i}]")
    return errors
