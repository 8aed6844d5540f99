"""Selectors of devices: expressions in CEL over the variable `device`."""

from __future__ import annotations

from typing import Final

from minikube_py.api.errors import FieldError, forbidden_value, too_long

EXPRESSION_BYTES_MAX: Final = 10 * 1024


def validate_expression(expression: str, path: str) -> list[FieldError]:
    if len(expression.encode()) > EXPRESSION_BYTES_MAX:
        return [too_long(path, EXPRESSION_BYTES_MAX)]
    return [forbidden_value(path, "selectors in CEL are not served")]
