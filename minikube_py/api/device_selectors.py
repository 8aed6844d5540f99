"""Selectors of devices: expressions in CEL over the variable `device`.

Source: `k8s.io/dynamic-resource-allocation/cel`, with the gates that are on by default.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from minikube_py.api.errors import FieldError, forbidden_value, invalid_value, too_long
from minikube_py.api.named_formats import FORMATS
from minikube_py.cel.environment import Environment, Expression, compile
from minikube_py.cel.syntax import Invalid
from minikube_py.cel.types import ANY, BOOL, STRING, map_of, parse_type, struct

EXPRESSION_BYTES_MAX: Final = 10 * 1024
COST_MAX: Final = 1_000_000
_DEVICE: Final = "kubernetes.DRADevice"
_ENTRIES, _DOMAIN, _NAME, _VALUE, _DRIVER = 32, 63, 32, 64, 63
"""Maximum map entries, and characters of values in a device."""
_QUANTITY_SIZE: Final = 64


def _size_of(path: tuple[str, ...]) -> int | None:
    """Maximum size of the value at a path. A device itself is unbounded: upstream uses -1."""
    if path[0] != "device":
        return None
    name, *below = path[1:] or ("",)
    if name in ("driver", "allowMultipleAllocations", ""):
        bound = {"driver": _DRIVER, "allowMultipleAllocations": 1, "": (1 << 64) - 1}[name]
        return None if below else bound
    if name not in ("attributes", "capacity"):
        return None
    if not below:
        return _ENTRIES
    if below == ["@keys"]:
        return _DOMAIN
    if below[0] not in ("@values", "@items"):
        return None
    inner = below[1:]
    if not inner:
        return _ENTRIES
    if inner == ["@keys"]:
        return _NAME
    # Attributes have the maximum size under any name; capacities only under computed names.
    if name == "attributes":
        return _VALUE if len(inner) == 1 else None
    return _QUANTITY_SIZE if inner in (["@values"], ["@items"]) else None


ENVIRONMENT: Final = Environment(
    {"device": struct(_DEVICE)},
    {
        _DEVICE: {
            "driver": STRING,
            "allowMultipleAllocations": BOOL,
            "attributes": map_of(STRING, map_of(STRING, ANY)),
            "capacity": map_of(STRING, map_of(STRING, parse_type("Quantity"))),
        }
    },
    _size_of,
    binds=True,
    functions=FORMATS,
)


@lru_cache(512)
def compiled(expression: str) -> Expression | str:
    """The compiled expression, or why it is invalid."""
    try:
        found = compile(expression, ENVIRONMENT)
    except Invalid as error:
        return f"compilation failed: {error}"
    if found.type in (BOOL, ANY):
        return found
    return f"must evaluate to bool or the unknown type, not {found.type_text}"


def validate_expression(expression: str, path: str) -> list[FieldError]:
    if len(expression.encode()) > EXPRESSION_BYTES_MAX:
        return [too_long(path, EXPRESSION_BYTES_MAX)]
    found = compiled(expression)
    if isinstance(found, str):
        return [invalid_value(path, expression, found)]
    return [forbidden_value(path, "too complex, exceeds cost limit")] if found.cost > COST_MAX else []
