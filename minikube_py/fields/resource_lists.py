"""Shared by the rules of a pod's requests, version 1 and the current one: reading lists of resources, adding them up,
and caching the result for pods of one shape. Each rule converts amounts to numbers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

CACHE_LIMIT: Final = 20_000
_OTHERS: Final = frozenset(("initContainers", "resources", "overhead"))
Nanos = dict[str, int]


class ResourceLists:
    """Reads amounts by `nanos_of`, which may raise QuantityError; texts are parsed once."""

    __slots__ = ("_known", "_nanos_of")

    def __init__(self, nanos_of: Callable[[Any], int]) -> None:
        self._nanos_of = nanos_of
        self._known: dict[str, int] = {}

    def read(self, resources: Mapping[str, Any]) -> Nanos:
        found: Nanos = {}
        for name, value in resources.items():
            nanos = self._known.get(value) if type(value) is str else None
            if nanos is None:
                nanos = self._nanos_of(value)
                if type(value) is str:
                    if len(self._known) >= CACHE_LIMIT:
                        self._known.clear()
                    self._known[value] = nanos
            found[name] = nanos
        return found

    def requests(self, holder: Any) -> Nanos:
        """The requests of a container, a pod's spec or a status."""
        resources = holder.get("resources") if isinstance(holder, dict) else None
        requests = resources.get("requests") if isinstance(resources, dict) else None
        return self.read(requests) if isinstance(requests, dict) and requests else {}


def shape_of(spec: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The cache key of the usual pod, with one container and nothing else relevant; None for all others."""
    containers = spec.get("containers")
    if type(containers) is not list or len(containers) != 1 or not _OTHERS.isdisjoint(spec):
        return None
    container = containers[0]
    resources = container.get("resources") if type(container) is dict else None
    requests = resources.get("requests") if type(resources) is dict else None
    if type(requests) is not dict:
        return ()
    for value in requests.values():
        if type(value) is not str:
            return None
    return tuple(requests.items())


def remember(known: dict[tuple[Any, ...], Nanos], shape: tuple[Any, ...] | None, units: Nanos) -> None:
    if shape is not None:
        if len(known) >= CACHE_LIMIT:
            known.clear()
        known[shape] = units


def add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
