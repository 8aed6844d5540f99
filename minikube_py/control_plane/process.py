"""One role as a process: it starts, says so in one line, serves until it is told to end, and ends in order.

The line is `ready` and where it can be reached; a supervisor waits for it. A process that was started `with_parent`
also ends when its standard input does: that happens however the parent ended, `kill -9` included.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from minikube_py.control_plane.errors import RoleFailed
from minikube_py.errors import MinikubeError

T = TypeVar("T")

READY = "ready"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
FORCED_EXIT = 130
LOOK_EVERY_S = 1.0


class Role(Protocol):
    async def start(self) -> str:
        """Returns once it serves, with where it is reached (a URL, an address, or a few words)."""

    async def stop(self) -> None: ...

    def failure(self) -> BaseException | None:
        """What ended a part of it by itself, so that it must be started anew; None while all is well."""


def run_role(name: str, make: Callable[[], Role], with_parent: bool = False) -> int:
    """Runs the role that `make` makes inside the event loop, until SIGINT, SIGTERM or the end of its parent.

    Raises: what the role's start raises; RoleFailed where a part of it ended by itself later.
    """
    return asyncio.run(_run(name, make, with_parent))


async def _run(name: str, make: Callable[[], Role], with_parent: bool) -> int:
    async with Stopping(name) as stopping:
        if with_parent:
            stopping.when_input_ends()
        role = make()
        try:
            where = await stopping.unless_asked(role.start())
            if where is not None:
                print(f"{READY} {where}", flush=True)
                await stopping.wait(role)
        finally:
            await role.stop()
    return 0


class Stopping:
    """Knows when this process was asked to end. The first signal asks for an orderly end, the second ends at once."""

    def __init__(self, name: str) -> None:
        self.asked = asyncio.Event()
        self.reason = ""
        self._name = name

    async def __aenter__(self) -> Stopping:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def when_input_ends(self) -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read_input)

    async def unless_asked(self, starting: Coroutine[Any, Any, T]) -> T | None:
        """What `starting` returns, or None where the end was asked for first; it is cancelled then."""
        task, asked = asyncio.create_task(starting), asyncio.create_task(self.asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            return None
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)

    async def wait(self, role: Role) -> None:
        """Until the end is asked for. Raises: RoleFailed where a part of `role` ended by itself."""
        while not self.asked.is_set():
            try:
                await asyncio.wait_for(self.asked.wait(), LOOK_EVERY_S)
            except TimeoutError:
                if (failure := role.failure()) is not None:
                    what = str(failure) if isinstance(failure, MinikubeError) else repr(failure)
                    raise RoleFailed(f"a part of it ended by itself: {what}") from failure

    def ask(self, reason: str) -> None:
        if not self.asked.is_set():
            self.reason = reason
            self.asked.set()

    def _signalled(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            print(f"minikube-py {self._name}: asked twice to end: ending at once", file=sys.stderr, flush=True)
            os._exit(FORCED_EXIT)
        self.ask(signal.Signals(number).name)

    def _read_input(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.ask("its parent ended")
