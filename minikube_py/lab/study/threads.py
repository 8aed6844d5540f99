"""What a candidate leaves at work, such as threads and processes: what they do later is measured as its rivals'."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
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
        self._before, self._others = self._alive(), _others()
        if at_work():
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
        others = {name: end for name, end in _others().items() if name not in self._others}
        for end in others.values():
            end()
        if not (left := self._left()):
            if others:
                listed = ", ".join(others)
                raise StudyError(f"leaves {listed} when its turn is over, for which others would pay: end it first")
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


def at_work() -> bool:
    """Whether threads of an earlier unit live: then no time that this process measures is of who is asked."""
    alive = sys._current_frames()
    for ident, thread in list(_stayed.items()):
        if ident not in alive or (thread and not thread.is_alive()):
            del _stayed[ident]
    return bool(_stayed)


def _others() -> dict[str, Callable[[], object]]:
    """What else may work in another's turn, with what ends it."""
    found: dict[str, Callable[[], object]] = {f"process {pid}": partial(_end, pid) for pid in _children()}
    for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
        if signal.getitimer(timer := getattr(signal, name))[0]:
            found[f"the timer {name}"] = partial(signal.setitimer, timer, 0)
    if sys.getprofile():
        found["a profiler"] = partial(sys.setprofile, None)
    if sys.gettrace():
        found["a tracer"] = partial(sys.settrace, None)
    return found


def _children() -> set[int]:
    """Those that have ended, and nobody has waited for, too: their CPU time is not charged yet. Not the two of Python's
    own: one tracks what it shares, one forks (its default from 3.14 on)."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    forks = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return {each.pid for each in multiprocessing.active_children() if each.pid}
    found: set[int] = set()
    for each in sorted(tasks.iterdir()):
        with suppress(OSError):
            found.update(map(int, (each / "children").read_text().split()))
    return found - {getattr(tracker, "_pid", None), getattr(forks, "_forkserver_pid", None)}


def _end(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _names(threads: dict[int, threading.Thread | None]) -> str:
    return ", ".join(each.name for each in threads.values() if each) or f"{len(threads)} without a name"
