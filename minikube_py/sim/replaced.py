"""State of the whole process that has another value while simulations need it, and its own afterwards.

Several may need it at once, on threads of their own. So the value distinguishes by the calling thread or loop, and for
all others does what its own would."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

# A finalizer may release while its thread holds or releases.
_lock = threading.RLock()


class Replaced:
    """Counted: the first `hold` replaces, the last `release` restores, unless someone else has replaced it since."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self.own: Any = getattr(owner, name)
        self._owner, self._name, self._value = owner, name, value
        self._holders = 0

    def hold(self) -> None:
        with _lock:
            if not self._holders:
                found = getattr(self._owner, self._name)
                # Whoever replaced it meanwhile may have restored our function, which calls its own.
                if not (callable(found) and found is self._value):
                    self.own = found
                setattr(self._owner, self._name, self._value)
            self._holders += 1

    def release(self) -> None:
        with _lock:
            self._holders -= 1
            if not self._holders and getattr(self._owner, self._name) is self._value:
                setattr(self._owner, self._name, self.own)


class _Collector:
    @property
    def automatic(self) -> bool:
        return gc.isenabled()

    @automatic.setter
    def automatic(self, wanted: bool) -> None:
        (gc.enable if wanted else gc.disable)()


class _Quiet(threading.local):
    """`depth`: how often the thread is within `unheard`."""

    depth = 0


_quiet: Final = _Quiet()


def _unless_quiet(replaced: Callable[[], Replaced]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        if not _quiet.depth:
            replaced().own(*args)

    return call


COLLECTING: Final = Replaced(_Collector(), "automatic", False)
"""Automatic collections would happen at other moments in another process, and with them the end of lost tasks."""
UNRAISABLE: Final[Replaced] = Replaced(sys, "unraisablehook", _unless_quiet(lambda: UNRAISABLE))
LOGGED: Final[Replaced] = Replaced(logging.Logger, "handle", _unless_quiet(lambda: LOGGED))
WARNED: Final[Replaced] = Replaced(warnings, "_showwarnmsg", _unless_quiet(lambda: WARNED))


@contextmanager
def held(*replaced: Replaced) -> Iterator[None]:
    for each in replaced:
        each.hold()
    try:
        yield
    finally:
        for each in replaced:
            each.release()


@contextmanager
def unheard() -> Iterator[None]:
    """Discards a dead process's logs, warnings and exceptions that cannot be caught, on this thread."""
    with held(UNRAISABLE, LOGGED, WARNED):
        _quiet.depth += 1
        try:
            yield
        finally:
            _quiet.depth -= 1


_frozen: Final = SimpleNamespace(by_us=False, by_owner=False)


@contextmanager
def frozen() -> Iterator[None]:
    """Collections walk only objects made from now on. For the owner of the process; no effect once it has frozen some,
    whether or not those still are: counting walks them, 0.2 s for the millions of a large test run."""
    _frozen.by_owner = _frozen.by_owner or (not _frozen.by_us and bool(gc.get_freeze_count()))
    if _frozen.by_us or _frozen.by_owner:
        yield
        return
    _frozen.by_us = True
    gc.freeze()
    try:
        yield
    finally:
        _frozen.by_us = False
        gc.unfreeze()
