"""Threads that a candidate leaves at work: the CPU time of what they do later is measured as its rivals'."""

from __future__ import annotations

import sys
import threading
from typing import Final

from minikube_py.lab.study.design import StudyError

_WAIT_S: Final = 1.0


class LeftAtWork(Exception):
    """Threads that do not end: no time that is measured after this is of who is asked."""


class Threads:
    """Those that lived when it was made may live. Threads of Python alone are seen: libraries' own pools stay, and idle
    ones cost nobody anything."""

    def __init__(self) -> None:
        self._before = self._alive()

    def require_none(self) -> None:
        """Call when a turn is over. Raises: StudyError, once they have ended; LeftAtWork, if they do not."""
        if not (left := self._left()):
            return
        for thread in (known := [each for each in threading.enumerate() if each.ident in left]):
            thread.join(_WAIT_S)
        names = ", ".join(each.name for each in known) or f"{len(left)} without a name"
        told = f"leaves threads at work when its turn is over ({names})"
        if not self._left():
            raise StudyError(f"{told}, for which others would pay: join them first")
        raise LeftAtWork(f"a candidate {told}, which do not end: the others' times would be wrong")

    def _left(self) -> set[int]:
        """One that has just ended may be seen a moment longer."""
        if left := self._alive() - self._before:
            threading.Event().wait(0.01)
            left &= self._alive()
        return left

    @staticmethod
    def _alive() -> set[int]:
        return {*sys._current_frames()}
