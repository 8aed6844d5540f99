"""Threads that a candidate leaves at work: the CPU time of what they do later is measured as its rivals'."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from minikube_py import own_code
from minikube_py.lab.study.design import StudyError

_WAIT_S: Final = 1.0
_stayed: dict[int, threading.Thread | None] = {}
"""Of this process, by identity: those that did not end, which would be there before the next unit's candidates."""


class LeftAtWork(Exception):
    """Threads that do not end: no time that is measured after this is of who is asked."""


class Threads:
    """Those that lived when it was made may live. Threads of Python alone are seen: libraries' own pools stay, and idle
    ones cost nobody anything."""

    def __init__(self) -> None:
        """Raises: LeftAtWork, while those of an earlier unit are at work."""
        self._before = self._alive()
        for ident, thread in list(_stayed.items()):
            if ident not in self._before or (thread and not thread.is_alive()):
                del _stayed[ident]
        if _stayed:
            raise LeftAtWork(f"threads of a candidate of an earlier unit ({_names(_stayed)}) have still not ended")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Of one candidate. What it raises counts, and not that it left threads that have ended. Raises: as
        `require_none`."""
        try:
            yield
        except own_code.raised():
            with suppress(StudyError):
                self.require_none()
            raise
        self.require_none()

    def require_none(self) -> None:
        """Call when a turn is over. Raises: StudyError, once they have ended; LeftAtWork, if they do not."""
        if not (left := self._left()):
            return
        known = {ident: next((each for each in threading.enumerate() if each.ident == ident), None) for ident in left}
        for thread in filter(None, known.values()):
            thread.join(_WAIT_S)
        told = f"leaves threads at work when its turn is over ({_names(known)})"
        if not (left := self._left()):
            raise StudyError(f"{told}, for which others would pay: join them first")
        _stayed.update((ident, known.get(ident)) for ident in sorted(left))
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


def _names(threads: dict[int, threading.Thread | None]) -> str:
    return ", ".join(each.name for each in threads.values() if each) or f"{len(threads)} without a name"
