"""Which function a call runs: the overload that the checker chose, or the first that fits the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from minikube_py.cel import addresses, kubernetes, lists, regex, strings, times, urls
from minikube_py.cel.declarations import Overload, functions
from minikube_py.cel.operators import CONVERSIONS, OPERATORS
from minikube_py.cel.types import Type
from minikube_py.cel.values import EvaluationError, Unfit, no_overload, pairs, type_name

__all__ = ["CONVERSIONS", "Function", "function_of", "is_dispatched"]

Function = Callable[..., Any]
_FUNCTIONS: Final[dict[str, Function]] = {
    **strings.FUNCTIONS,
    **lists.FUNCTIONS,
    **times.FUNCTIONS,
    **kubernetes.FUNCTIONS,
    **addresses.FUNCTIONS,
    **urls.FUNCTIONS,
}
_WILD: Final = ("dyn", "any", "param")
_RUNTIME_NAMES: Final = {
    "duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp", "null": "null_type",
}  # fmt: skip


def function_of(
    name: str, overload: str, constants: Sequence[tuple[bool, Any]], given: Mapping[str, Function]
) -> Function:
    """`constants`: for each argument, whether it is constant, and its value. `given`: see `Environment.functions`.
    Raises: Unfit, regex.BadPattern."""
    if name in ("matches", "find", "findAll") and constants[1][0] and isinstance(constants[1][1], str):
        regex.compiled(constants[1][1])
    operator = lists.flatten if name == "flatten" else OPERATORS.get(name)
    if operator is not None and name not in CONVERSIONS - {"type", "dyn"}:
        return operator
    declared = [each for each in functions()[name] if len(each.arguments) == len(constants)]
    chosen = [(each, operator or _function(each.id, given)) for each in declared if overload in ("", each.id)]

    def dispatched(*values: Any) -> Any:
        for each, function in chosen:
            if _takes(each, values):
                return function(*values)
        return no_overload(name, *values) if values else EvaluationError(f"no such overload: {name}()")

    return dispatched


def is_dispatched(name: str, overload: str) -> bool:
    """Whether the overload is chosen by the values."""
    return not overload and name not in OPERATORS


def _function(overload: str, given: Mapping[str, Function]) -> Function:
    found = _FUNCTIONS.get(overload) or given.get(overload)
    if found is None:
        raise Unfit(f"function {overload} is not evaluated here")
    return found


def _takes(overload: Overload, values: Sequence[Any]) -> bool:
    return all(map(_fits, overload.arguments, values))


def _fits(wanted: Type, value: Any) -> bool:
    """As cel-go at run time: it checks only a list's first item."""
    kind = wanted.kind
    if kind in _WILD:
        return True
    name = type_name(value)
    if name != (wanted.name if kind in ("struct", "opaque") else _RUNTIME_NAMES.get(kind, kind)):
        return False
    if kind == "list":
        return not value or _fits(wanted.params[0], value[0])
    if kind == "map" and value:
        key, item = next(pairs(value))
        return _fits(wanted.params[0], key) and _fits(wanted.params[1], item)
    return True
