"""Runs a check of somebody's code in a process of its own: only a verdict that arrives counts.

Code that ends its process, with whatever exit code, has not been judged, and that is a failure. What the code prints
goes to stderr, so that stdout has the verdict alone. A step that takes long is named, with or without a terminal."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from minikube_py.errors import MinikubeError

T = TypeVar("T")
Say = Callable[[str], None]
LONG_S: Final = 60.0
"""After so long a step is named, and again each time after as long."""
LIFE_S: Final = 1.0
"""How often it is looked whether the process still lives: those that it has started may hold its pipe."""


class NoVerdict(MinikubeError):
    """The process of a check ended without a verdict."""


def judged_apart(judge: Callable[[Say], T], say: Say) -> T:
    """What `judge` returns, which must pickle. `say` gets each step.

    Raises: what `judge` raises, if it is an error of ours or of the system; NoVerdict."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        # So a shell or supervisor may start a command. Then nobody learns how a process has ended, and its id may be
        # another's already.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    (told, telling), (living, alive) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(told)
        os.close(alive)
        _child(judge, telling, living)
    os.close(telling)
    os.close(living)
    with os.fdopen(told, "rb", buffering=0) as pipe:
        heard = _Heard(pid, pipe, say)
        try:
            found: T = heard.verdict()
            return found
        finally:
            if not heard.ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.close(alive)


class _Heard:
    """What the process of a check says: messages of a length in eight bytes and a pickle of kind and content."""

    def __init__(self, pid: int, pipe: Any, say: Say) -> None:
        self._pid, self._pipe, self._say = pid, pipe, say
        self._status: int | None = None
        self._step = "its code is loaded"
        self._waited_s = 0.0

    @property
    def ended(self) -> bool:
        return self._status is not None

    def verdict(self) -> Any:
        while True:
            kind, content = self._message()
            if kind == "say":
                self._step, self._waited_s = content, 0.0
                self._say(content)
            elif kind == "raised":
                error, cause = content
                raise error from cause
            else:
                return content

    def _message(self) -> tuple[str, Any]:
        size = int.from_bytes(self._bytes(8), "big")
        content = self._bytes(size)
        try:
            kind, value = pickle.loads(content)
        except Exception as error:
            raise NoVerdict(f"the verdict cannot be read: {type(error).__name__}: {error}") from error
        return str(kind), value

    def _bytes(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            # What the process had said before it ended still counts; those that hold its pipe are not waited for.
            if select.select([self._pipe], [], [], 0.0 if self.ended else LIFE_S)[0]:
                part = self._pipe.read(size - len(found))
                if not part:
                    self._look(0)
                    raise self._without_verdict()
                found += part
            elif self.ended:
                raise self._without_verdict()
            else:
                self._wait()
        return found

    def _wait(self) -> None:
        """Another LIFE_S is over."""
        self._look(os.WNOHANG)
        self._waited_s += LIFE_S
        if not self.ended and self._waited_s % LONG_S == 0:
            print(f"after {self._waited_s:g} s still: {self._step}", file=sys.stderr, flush=True)

    def _look(self, how: int) -> None:
        """Whether, and how, the process has ended."""
        if not self.ended:
            pid, status = os.waitpid(self._pid, how)
            self._status = status if pid else None

    def _without_verdict(self) -> NoVerdict:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        by = f"with exit code {code}" if code >= 0 else f"by {_name_of(-code)}"
        return NoVerdict(f"no verdict: the code that is checked ended its process {by}, during: {self._step}")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Of the real-time signals, only the first and the last have names.
        return f"signal {number}"


def _child(judge: Callable[[Say], Any], telling: int, living: int) -> NoReturn:
    code = 1
    try:
        threading.Thread(target=_end_with_parent, args=(living,), daemon=True).start()
        with contextlib.suppress(OSError):  # There may be no stderr.
            os.dup2(2, 1)
        sys.stdout = sys.stderr
        _judge(judge, lambda kind, content: _send(telling, kind, content))
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _judge(judge: Callable[[Say], Any], send: Callable[[str, Any], None]) -> None:
    try:
        verdict = judge(lambda step: send("say", step))
    except (MinikubeError, OSError) as error:
        send("raised", (error, error.__cause__ if isinstance(error.__cause__, MinikubeError) else None))
    else:
        send("verdict", verdict)


def _send(pipe: int, kind: str, content: Any) -> None:
    message = pickle.dumps((kind, content))
    left = memoryview(len(message).to_bytes(8, "big") + message)
    while left:
        left = left[os.write(pipe, left) :]


def _end_with_parent(living: int) -> None:
    """A check whose command was killed has nobody to tell."""
    os.read(living, 1)
    os._exit(1)
