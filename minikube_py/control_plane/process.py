"""One role as a process: it starts, prints one line, serves until it is asked to stop, and stops cleanly.

The line is `ready` and its address; a supervisor waits for it. A process started `with_parent` also ends when its
standard input closes, which happens however the parent ended, even by `kill -9`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from minikube_py.apiserver.health import Check
from minikube_py.control_plane.config import LOOPBACK
from minikube_py.control_plane.errors import Dismissed, RoleFailed, SetupError
from minikube_py.control_plane.healthz import Healthz, Metrics
from minikube_py.control_plane.listen import parse_address
from minikube_py.env import ended, say
from minikube_py.errors import MinikubeError
from minikube_py.ports.descriptors import raise_descriptors

T = TypeVar("T")

READY = "ready"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
FORCED_EXIT = 130
LOOK_EVERY_S = 1.0


class Role(Protocol):
    async def start(self) -> str:
        """Returns once it serves, with its address (a URL, an address, or a few words)."""

    async def stop(self) -> None: ...

    def failure(self) -> BaseException | None:
        """The error by which a part of it ended itself, so that it must be restarted; None while it is healthy."""

    async def ready(self) -> str:
        """Why its users would currently wait or be refused, although it runs; "" if a linearizable read passes."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """`healthz`: `host:port` of the health endpoint; None: none. If it is a default and taken, the process runs
    without."""

    with_parent: bool = False
    healthz: str | None = None
    healthz_asked_for: bool = False


def run_role(name: str, make: Callable[[], Role], options: ProcessOptions) -> int:
    """Runs the role that `make` makes inside the event loop, until SIGINT, SIGTERM or the end of its parent.

    Raises: what the role's start raises; RoleFailed if a part of it failed later; SetupError."""
    raise_descriptors()
    return asyncio.run(_run(name, make, options))


async def _run(name: str, make: Callable[[], Role], options: ProcessOptions) -> int:
    started = False

    async def ready() -> str:
        if not started:
            return "it is starting"
        failure = role.failure()
        return await role.ready() if failure is None else f"a component ended unexpectedly: {failure}"

    async with Stopping(name) as stopping:
        if options.with_parent:
            stopping.when_input_ends()
        role = make()
        health = await _healthz(name, options, ready, getattr(role, "metrics", dict))
        try:
            where = await stopping.unless_asked(role.start())
            if where is not None:
                started = True
                any_port = health is not None and (options.healthz or "").endswith(":0")
                told = f"; metrics at http://{LOOPBACK}:{health.port}/metrics" if health and any_port else ""
                say(f"{READY} {where}{told}", sys.stdout)
                await stopping.wait(role)
        finally:
            await role.stop()
            if health is not None:
                await health.stop()
    return 0


async def _healthz(name: str, options: ProcessOptions, ready: Check, metrics: Metrics) -> Healthz | None:
    if options.healthz is None:
        return None
    health = Healthz(*parse_address(options.healthz, "--healthz"), name, ready, metrics)
    try:
        await health.start()
    except SetupError as error:
        if options.healthz_asked_for:
            raise
        say(f"minikube-py {name}: `minikube-py health {name}` will not work: {error}")
        return None
    return health


class Stopping:
    """Requests to end this process. The first signal requests an orderly end, the second ends it at once."""

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
        """The result of `starting`, or None if the end was requested first; it is cancelled then."""
        task, asked = asyncio.create_task(starting), asyncio.create_task(self.asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            return None
        finally:
            for each in (task, asked):
                each.cancel()
            await ended(task, asked)

    async def wait(self, role: Role) -> None:
        """Until the end is requested. Raises: RoleFailed if a part of `role` failed."""
        while not self.asked.is_set():
            try:
                await asyncio.wait_for(self.asked.wait(), LOOK_EVERY_S)
            except TimeoutError:
                if (failure := role.failure()) is not None:
                    if isinstance(failure, Dismissed):
                        raise failure from None
                    what = str(failure) if isinstance(failure, MinikubeError) else repr(failure)
                    raise RoleFailed(f"a component ended unexpectedly: {what}") from failure

    def ask(self, reason: str) -> None:
        if not self.asked.is_set():
            self.reason = reason
            self.asked.set()

    def _signalled(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            say(f"minikube-py {self._name}: second signal: exiting at once")
            os._exit(FORCED_EXIT)
        self.ask(signal.Signals(number).name)

    def _read_input(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.ask("its parent ended")
