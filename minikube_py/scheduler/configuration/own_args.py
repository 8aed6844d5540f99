"""Arguments of this project's own plugins, cost models and predictors: what each may be, and what is refused otherwise.

A kind reads one value. As in Go, null is the same as nothing, a text is no list, and 1.9 is no whole number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from minikube_py.api.errors import Verbatim, invalid_value, required
from minikube_py.scheduler.configuration.merging import ConfigError, refuse_unknown

Kind = Callable[[Any, str], Any]
"""The value as read, from the value and its path. Raises: ConfigError."""
ITEMS_MAX: Final = 1000
TEXT_MAX: Final = 316
"""Characters: of the longest name of a label or resource, 253 + 1 + 63, and a little more is a path's."""


def wrong(value: Any, path: str, expected: str) -> ConfigError:
    if isinstance(value, str):
        shown = value if len(value) <= TEXT_MAX else f"{value[:40]}..."
    elif isinstance(value, bool | float | int):
        text = str(value).lower()
        shown = Verbatim(text if len(text) <= TEXT_MAX else f"{text[:40]}...")
    else:
        shown = Verbatim("null" if value is None else f"a {type(value).__name__}")
    return ConfigError(str(invalid_value(path, shown, expected)))


def anything(value: Any, path: str) -> Any:
    return value


def number(low: float, high: float) -> Kind:
    def read(value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise wrong(value, path, f"must be a number from {low:,} to {high:,}")
        return float(value)

    return read


def whole(low: int, high: int) -> Kind:
    def read(value: Any, path: str) -> int:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value != int(value) or not low <= value <= high:
            raise wrong(value, path, f"must be a whole number from {low:,} to {high:,}")
        return int(value)

    return read


def text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value or len(value) > TEXT_MAX:
        raise wrong(value, path, f"must be a text of 1 to {TEXT_MAX} characters")
    return value


def one_of(known: Collection[str]) -> Kind:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, str) or value not in known:
            raise wrong(value, path, f"must be one of {', '.join(known)}")
        return value

    return read


def flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(value, path, "must be true or false")
    return value


def listed(kind: Kind, least: int = 0, most: int = ITEMS_MAX) -> Kind:
    def read(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise wrong(value, path, f"must be a list of {least} to {most:,} items")
        return tuple(kind(each, f"{path}[{i}]") for i, each in enumerate(value))

    return read


def mapped(kind: Kind) -> Kind:
    """By any text."""

    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or len(value) > ITEMS_MAX:
            raise wrong(value, path, f"must be a mapping of 0 to {ITEMS_MAX:,} entries")
        return {text(name, path): kind(each, f"{path}[{name}]") for name, each in value.items()}

    return read


def fields(kinds: Mapping[str, Kind], needed: Iterable[str] = ()) -> Kind:
    """Those that are given; `needed` ones must be."""

    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong(value, path, "must be a mapping")
        refuse_unknown(path, value, kinds)
        at = f"{path}." if path else ""
        for name in needed:
            if value.get(name) is None:
                raise ConfigError(str(required(f"{at}{name}")))
        return {name: kinds[name](each, f"{at}{name}") for name, each in value.items() if each is not None}

    return read


def read_args(what: str, args: Any, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """`what`: whose they are. Raises: ConfigError."""
    if not isinstance(args, Mapping):
        raise ConfigError(f"{what}: {wrong(args, 'args', 'must be a mapping')}")
    # A configuration file includes the kind of the args.
    given = {name: each for name, each in args.items() if name not in ("kind", "apiVersion")}
    refuse_unknown(what, given, kinds)
    try:
        return {name: kinds[name](each, name) for name, each in given.items() if each is not None}
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None
