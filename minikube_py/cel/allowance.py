"""Limits work before yielding to other requests: counted, not timed, to be deterministic.

A step is the evaluation of one expression node, about a third of a microsecond. Callers on the event loop set an
allowance; code that can run long on short input spends it. Without one, as in a worker process, steps are unlimited. It
is used within one event loop turn, so one global counter suffices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_NO_END: Final = 1 << 62
_left = _NO_END
_kept = 0


class OutOfSteps(Exception):
    """The work must restart from the beginning: off the event loop, or here if it has kept something."""


def spend(steps: int) -> None:
    """Raises: OutOfSteps."""
    global _left
    _left -= steps
    if _left < 0:
        raise OutOfSteps


def keep() -> None:
    """Something was made that the next attempt finds made, as a compiled expression."""
    global _kept
    _kept += 1


def kept() -> int:
    """How often something was: whether an attempt that ran out of steps got further than the one before."""
    return _kept


def counted(work: Callable[..., Any], *given: Any) -> tuple[Any, int]:
    """The result of the work without a limit, and its steps."""
    global _left
    before, _left = _left, _NO_END
    try:
        found = work(*given)
        return found, _NO_END - _left
    finally:
        _left += before - _NO_END


def within(steps: int, work: Callable[..., Any], *given: Any) -> Any:
    """The result of the work. Raises: OutOfSteps if it needs more."""
    global _left
    before, _left = _left, steps
    try:
        return work(*given)
    finally:
        _left += before - steps
