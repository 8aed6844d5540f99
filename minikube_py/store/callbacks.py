"""Runs callbacks of waiters. An exception in one does not affect the others."""

from __future__ import annotations

import traceback
from collections.abc import Callable


class Callbacks:
    """Call it with a callback and its arguments. `in_vain`: how many raised; `last` is the latest error and its
    place."""

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
