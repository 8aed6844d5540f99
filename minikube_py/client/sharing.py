"""One copy of values that many projections hold: thousands of pods have the same labels, and each informer its own view
of each pod. Names, uids and other texts are shared by `sys.intern`, which drops unreferenced ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

V = TypeVar("V")
SHARED_MAX: Final = 10_000
LABELS_SHARED_MAX: Final = 64
"""Larger maps are rarely shared, and would be kept for long."""
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class Shared:
    """Returns the first of equal values; drops all when full, which costs only memory."""

    def __init__(self, size_max: int = SHARED_MAX) -> None:
        self._size_max = size_max
        self._values: dict[Hashable, Any] = {}

    def known(self, key: Hashable) -> Any:
        """The value of `key`, if known."""
        return self._values.get(key)

    def __call__(self, key: Hashable, value: V) -> V:
        """`key` must differ for values that are not equal."""
        known: V | None = self._values.get(key)
        if known is not None:
            return known
        if len(self._values) >= self._size_max:
            self._values.clear()
        self._values[key] = value
        return value


_labels: Final = Shared()


def shared_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """`labels`, or equal ones seen before. The order of members counts, since answers preserve it."""
    if not labels:
        return _NO_LABELS
    return _labels(tuple(labels.items()), labels) if len(labels) <= LABELS_SHARED_MAX else labels
