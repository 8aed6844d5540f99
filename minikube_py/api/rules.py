"""Rules of validation and defaults as declarations, for simple kinds.

A kind lists what must hold at which path, in upstream's order of errors:

    validate = rules(
        at("spec.replicas", non_negative),
        at("reclaimPolicy", one_of("Delete", "Retain")),
    )

A check gets the value at its path (None where it is missing) and that path's text, and says what is wrong. Paths name
fields by dots; `drivers[*].name` applies to each item of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from minikube_py.api.errors import FieldError, Json, invalid_value, not_supported, required
from minikube_py.api.meta import Messages
from minikube_py.api.validation.resources import NEGATIVE
from minikube_py.fields import quantity

Check = Callable[[Any, str], Iterable[FieldError]]
Rule = Callable[[Json], Iterable[FieldError]]


def rules(*parts: Rule) -> Callable[[Json], list[FieldError]]:
    """All of `parts`, in their order."""
    return lambda obj: [error for part in parts for error in part(obj)]


def at(path: str, *checks: Check) -> Rule:
    """`checks` of the values at `path`."""
    steps = tuple(path.split("."))
    return lambda obj: [
        error for value, where in _found(obj, steps, "") for check in checks for error in check(value, where)
    ]


def _found(value: Any, steps: tuple[str, ...], where: str) -> Iterator[tuple[Any, str]]:
    if not steps:
        yield value, where
        return
    step, rest = steps[0], steps[1:]
    name = step.removesuffix("[*]")
    inner = value.get(name) if isinstance(value, Mapping) else None
    path = f"{where}.{name}" if where else name
    if name == step:
        yield from _found(inner, rest, path)
    else:
        for i, item in enumerate(inner or ()):
            yield from _found(item, rest, f"{path}[{i}]")


def not_empty(value: str | None, path: str) -> list[FieldError]:
    """Not the empty text; missing values pass."""
    return [required(path)] if value == "" else []


def non_negative(value: int | None, path: str) -> list[FieldError]:
    return [invalid_value(path, value, NEGATIVE)] if value is not None and value < 0 else []


def non_negative_quantity(value: str | None, path: str) -> list[FieldError]:
    return (
        [invalid_value(path, value, NEGATIVE)] if value is not None and quantity.parse(value).milli_value() < 0 else []
    )


def one_of(*allowed: str) -> Check:
    """One of `allowed`, in the order in which upstream lists them. Missing values pass, and empty ones if "" is
    allowed."""
    listed = tuple(value for value in allowed if value)
    return lambda value, path: [] if value is None or value in allowed else [not_supported(path, value, listed)]


def named_by(messages: Callable[[str], Messages]) -> Check:
    """Text without errors by `messages` (`is_dns1123_subdomain` and the like)."""
    return lambda value, path: [invalid_value(path, value or "", message) for message in messages(value or "")]


def defaults(tree: Mapping[str, Any]) -> Callable[[Json], None]:
    """Fills up what is missing or null by `tree`; a mapping in it is filled up inside, and made where it is missing."""

    def fill(obj: Json) -> None:
        _fill(obj, tree)

    return fill


def _fill(obj: Json, tree: Mapping[str, Any]) -> None:
    for name, given in tree.items():
        if isinstance(given, Mapping):
            found = obj.get(name)
            if found is None:
                found = obj[name] = {}
            _fill(found, given)
        elif obj.get(name) is None:
            obj[name] = list(given) if isinstance(given, list) else given
