"""Caches for client-supplied texts: few entries, and only short ones.

Limiting the count alone does not bound memory: an entry may be as long as a request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

R = TypeVar("R")
V = TypeVar("V")
LENGTH_MAX: Final = 320
_OBJECT_BYTES: Final = 56


def bytes_of(value: object) -> int:
    """About what texts, numbers and tuples of them take in memory."""
    if isinstance(value, (str, bytes)):
        return _OBJECT_BYTES + len(value)
    if isinstance(value, (tuple, frozenset)):
        return _OBJECT_BYTES + 8 * len(value) + sum(map(bytes_of, value))
    return 32


class Bounded:
    """Values by key. Drops all when full, by their number or by the bytes that their keys take, which costs only
    computing them again; an entry of more than a sixteenth of the bytes is not kept."""

    def __init__(self, count_max: int = 10_000, bytes_max: int = 8 << 20) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._values: dict[Hashable, Any] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def known(self, key: Hashable) -> Any:
        """The value of `key`, None if unknown."""
        return self._values.get(key)

    def __call__(self, key: Hashable, value: V, more_bytes: int = 0) -> V:
        """The first value of `key`, which must differ for values that are not equal. `more_bytes`: of the value."""
        known: V | None = self._values.get(key)
        if known is not None:
            return known
        size = bytes_of(key) + more_bytes
        if size > self._bytes_max // 16:
            return value
        if len(self._values) >= self._count_max or self.bytes + size > self._bytes_max:
            self.clear()
        self._values[key] = value
        self.bytes += size
        return value

    def clear(self) -> None:
        self._values.clear()
        self.bytes = 0


class Remembered(dict[str, R]):
    """Answers by text, at most `count`, of texts up to `length_max` characters; drops all when full."""

    def __init__(self, answer: Callable[[str], R], count: int, length_max: int) -> None:
        self._answer = answer
        self._count = count
        self._length_max = length_max

    def __missing__(self, text: str) -> R:
        found = self._answer(text)
        if len(text) <= self._length_max:
            if len(self) >= self._count:
                self.clear()
            self[text] = found
        return found


def remembered(count: int, length_max: int = LENGTH_MAX) -> Callable[[Callable[[str], R]], Callable[[str], R]]:
    """For functions of one text: a look into `Remembered`, which for a known text runs no Python."""

    def decorate(answer: Callable[[str], R]) -> Callable[[str], R]:
        return Remembered(answer, count, length_max).__getitem__

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
