"""Signals of the simulator's process: exceptions of their handlers, as by Ctrl-C, must not hit simulated code halfway.
They are deferred to a moment when nothing runs.

An endless step would defer them forever: a signal that arrives twice, or has waited for `GRACE_S`, is delivered at
once. Then the state of the simulated components is undefined, and the run ends."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

GRACE_S: Final = 1.0
_SIGNALS: Final = sorted(signal.valid_signals())
Handler = Callable[[int, Any], Any]
# Avoids the enums that `signal` creates of its results: eight times as fast.
_handler_of: Any = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_handle: Any = getattr(signal.signal, "__wrapped__", signal.signal)


class Interrupts:
    """`error`: what a handler raised in the middle of a step."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._depth = 0
        self._waiting: list[int] = []
        self._handlers: dict[int, Handler] = {}
        self._alarm: threading.Timer | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Signals are deferred meanwhile, and delivered at the end. May be nested. Raises: what a handler raises."""
        if self._depth or threading.current_thread() is not threading.main_thread():
            # Python runs handlers only on the main thread.
            yield
            return
        self._depth = 1
        try:
            self._handlers = {}
            for each in _SIGNALS:
                # Handlers of the system and of C code are not Python's.
                if callable(handler := _handler_of(each)):
                    self._handlers[each] = handler
                    _handle(each, self._hold)
            yield
        finally:
            self._depth = 0
            self._put_back()
            self.deliver()

    def _put_back(self) -> None:
        """Handlers already restored may be called, and raise, before the last one is. Raises: what they raise."""
        raised: BaseException | None = None
        left = dict(self._handlers)
        while left:
            try:
                number, handler = next(iter(left.items()))
                if _handler_of(number) == self._hold:
                    _handle(number, handler)
                del left[number]
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def deliver(self) -> None:
        """Raises: what a handler raises."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._waiting:
            number = self._waiting.pop(0)
            self._handlers[number](number, sys._getframe())

    def _hold(self, number: int, frame: Any) -> None:
        if number not in self._waiting:
            self._waiting.append(number)
            if self._alarm is None:
                self._alarm = threading.Timer(GRACE_S, self._again, (number,))
                self._alarm.daemon = True
                self._alarm.start()
            return
        self._waiting.remove(number)
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            self.error = error
            raise

    def _again(self, number: int) -> None:
        if number in self._waiting:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
