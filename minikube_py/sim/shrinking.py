"""Minimises what fails, such as steps of a program or faults of a history: removes chunks, from halves down to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

S = TypeVar("S")
F = TypeVar("F")


class Rounds:
    """The remaining number of runs."""

    def __init__(self, left: int) -> None:
        self.left = left

    def limited(self, fails: Callable[[tuple[S, ...]], F | None]) -> Callable[[tuple[S, ...]], F | None]:
        """`fails`, which reports no failure once the rounds are used up."""

        def asked(steps: tuple[S, ...]) -> F | None:
            if self.left <= 0:
                return None
            self.left -= 1
            return fails(steps)

        return asked


def fewest(steps: tuple[S, ...], fails: Callable[[tuple[S, ...]], F | None]) -> tuple[S, ...]:
    """Steps of which none can be removed, in their original order, and at least one (delta debugging, Zeller 1999).

    `fails`: what the steps show, None if not the wanted failure."""
    piece = max(1, len(steps) // 2)
    while piece:
        place, before = 0, len(steps)
        while place < len(steps):
            fewer = (*steps[:place], *steps[place + piece :])
            if fewer and fails(fewer) is not None:
                steps = fewer
            else:
                place += piece
        # A step may only become removable once a later one is gone.
        if piece > 1 or len(steps) == before:
            piece //= 2
    return steps
