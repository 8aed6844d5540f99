"""Which toleration of a pod tolerates a taint, found by key and effect: a pod may have thousands, and so may a node.

Source: kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any


def fields_of(toleration: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """(key, operator, value, effect)"""
    get = toleration.get
    return get("key") or "", get("operator") or "Equal", get("value") or "", get("effect") or ""


class Tolerations:
    """`given`: (key, operator, value, effect) each; an empty key or effect matches all. Gt and Lt are behind a feature
    gate that is off in 1.36: they match nothing."""

    __slots__ = ("_places",)

    def __init__(self, given: Iterable[tuple[str, str, str, str]]) -> None:
        self._places: dict[tuple[str, str, str | None], int] = {}
        for place, (key, operator, value, effect) in enumerate(given):
            if operator in ("", "Equal", "Exists"):
                self._places.setdefault((key, effect, None if operator == "Exists" else value), place)

    def first(self, key: str, value: str, effect: str) -> int | None:
        """The place of the first that tolerates this taint."""
        places = self._places
        return min((places[each] for each in product((key, ""), (effect, ""), (value, None)) if each in places),
                   default=None)  # fmt: skip
