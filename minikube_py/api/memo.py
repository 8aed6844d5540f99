"""Caches for client-supplied texts: few entries, and only short ones.

Limiting the count alone does not bound memory: an entry may be as long as a request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

R = TypeVar("R")
LENGTH_MAX: Final = 320


def remembered(count: int, length_max: int = LENGTH_MAX) -> Callable[[Callable[[str], R]], Callable[[str], R]]:
    """For functions of one text: caches the last `count` results for texts up to `length_max` characters."""

    def decorate(answer: Callable[[str], R]) -> Callable[[str], R]:
        known = lru_cache(count)(answer)

        @wraps(answer)
        def ask(text: str) -> R:
            return known(text) if len(text) <= length_max else answer(text)

        ask.known = known  # type: ignore[attr-defined]
        return ask

    return decorate


def remembered_by_text(count: int, length_max: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """As `remembered`, for functions whose second argument is the text that a client chose."""

    def decorate(answer: Callable[..., R]) -> Callable[..., R]:
        known = lru_cache(count)(answer)

        @wraps(answer)
        def ask(first: Any, text: str, *rest: Any) -> R:
            return known(first, text, *rest) if len(text) <= length_max else answer(first, text, *rest)

        return ask

    return decorate
