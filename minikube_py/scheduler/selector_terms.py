"""Validates node selector terms, with the messages of upstream's nodeaffinity and labels packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from minikube_py.api.errors import FieldError, invalid_value, not_supported
from minikube_py.api.meta import are_label_values, is_label_value, is_qualified_name
from minikube_py.scheduler.pod_terms import label_as_int


def term_errors(term: Mapping[str, Any], path: str) -> list[FieldError]:
    """Errors of a nodeSelectorTerm at `path`."""
    errors: list[FieldError] = []
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        errors += _expression(expression, f"{path}.matchExpressions[{i}]")
    for i, field in enumerate(term.get("matchFields") or ()):
        at, operator, values = f"{path}.matchFields[{i}]", field.get("operator") or "", field.get("values") or []
        if operator not in ("In", "NotIn"):
            errors.append(not_supported(f"{at}.operator", operator, ("In", "NotIn")))
        elif len(values) != 1:
            shown = values if field.get("values") is not None else None
            errors.append(invalid_value(f"{at}.values", shown, "must have one element"))
    return errors


_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def _expression(expression: Mapping[str, Any], path: str) -> list[FieldError]:
    key, operator = expression.get("key") or "", expression.get("operator") or ""
    values = expression.get("values")
    shown, values = values, values or []
    if operator not in _OPERATORS:
        return [not_supported(f"{path}.operator", operator, _OPERATORS)]
    errors = [invalid_value(f"{path}.key", key, message) for message in _joined(is_qualified_name(key))]
    if operator in ("In", "NotIn"):
        if not values:
            text = "for 'in', 'notin' operators, values set can't be empty"
            errors.append(invalid_value(f"{path}.values", shown, text))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "values set must be empty for exists and does not exist"
            errors.append(invalid_value(f"{path}.values", shown, text))
    else:
        if len(values) != 1:
            text = "for 'Gt', 'Lt' operators, exactly one value is required"
            errors.append(invalid_value(f"{path}.values", shown, text))
        for i, value in enumerate(values):
            if label_as_int(value) is None:
                text = "for 'Gt', 'Lt' operators, the value must be an integer"
                errors.append(invalid_value(f"{path}.values[{i}]", value, text))
    for i, value in enumerate(() if are_label_values(values) else values):
        errors += [invalid_value(f"{path}.values[{i}][{key}]", value, text) for text in _joined(is_label_value(value))]
    return errors


def _joined(messages: Sequence[str]) -> list[str]:
    return ["; ".join(messages)] if messages else []
