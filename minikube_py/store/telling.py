"""Telling those who wait how something ended. What a receiver raises is its own affair, and ends nobody else's."""

from __future__ import annotations

import traceback
from collections.abc import Callable


class Telling:
    """Called with a callback and what to tell it. `in_vain`: how many raised something; `last` says what and where."""

    __slots__ = ("in_vain", "last")

    def __init__(self) -> None:
        self.in_vain = 0
        self.last = ""

    def __call__(self, callback: Callable[..., None], *outcome: object) -> None:
        try:
            callback(*outcome)
        except Exception as error:
            self.in_vain += 1
            self.last = describe(error)


def describe(error: BaseException) -> str:
    """What went wrong and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
