"""How much may be done before others get their turn: counted and not timed, so that the same input does the same.

A step is what a node of an expression takes to be evaluated, about a third of a microsecond. Whoever must not wait
allows some; whatever works long for short input spends them. Where nothing is said, as in a worker process, there is
no end of them. All of it happens within one turn, so one counter serves everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_NO_END: Final = 1 << 62
_left = _NO_END


class OutOfSteps(Exception):
    """The work is to be done where nobody waits for it, from the beginning."""


def spend(steps: int) -> None:
    """Raises: OutOfSteps."""
    global _left
    _left -= steps
    if _left < 0:
        raise OutOfSteps


def counted(work: Callable[..., Any], *given: Any) -> tuple[Any, int]:
    """What the work gives, however long it takes, and its steps."""
    global _left
    before, _left = _left, _NO_END
    try:
        found = work(*given)
        return found, _NO_END - _left
    finally:
        _left += before - _NO_END


def within(steps: int, work: Callable[..., Any], *given: Any) -> Any:
    """What the work gives. Raises: OutOfSteps where it would take more."""
    global _left
    before, _left = _left, steps
    try:
        return work(*given)
    finally:
        _left += before - steps
