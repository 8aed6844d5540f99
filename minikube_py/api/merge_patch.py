"""JSON merge patches. Source: RFC 7386; nulls inside what is added are dropped, as evanphx/json-patch v4 does."""

from __future__ import annotations

from typing import Any


def apply(document: Any, patch: Any, touched: set[int] | None = None) -> Any:
    """The document after the patch. `document` and `patch` are consumed: pass copies.

    `touched` takes the ids of the objects that upstream re-encodes with sorted keys.
    """
    seen = touched if touched is not None else set()
    if not isinstance(document, dict) or not isinstance(patch, dict):
        _prune(patch, seen)
        return patch
    _merge(document, patch, seen)
    return document


def _merge(document: dict[str, Any], patch: dict[str, Any], touched: set[int]) -> None:
    touched.add(id(document))
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
            continue
        current = document.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            _merge(current, value, touched)
        else:
            # Into an object, a list is copied unchanged; anything else is pruned.
            if not (isinstance(current, dict) and isinstance(value, list)):
                _prune(value, touched)
            document[key] = value


def _prune(value: Any, touched: set[int]) -> None:
    """Drops the null members of all objects in `value`; nulls in lists stay."""
    if isinstance(value, dict):
        touched.add(id(value))
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        for item in value.values():
            _prune(item, touched)
    elif isinstance(value, list):
        for item in value:
            _prune(item, touched)
