"""A plain function as a program in virtual time: on a separate thread, which runs only while the simulation is stopped.

The function requests what takes time - an answer, an event, a sleep - and waits; the simulation runs until that is
done, and hands over again. Only one of the two runs at a time, so a seed determines the history. When killed, the
function ends where it waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from inspect import (
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
)
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from minikube_py.apiserver.http1 import Head
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.in_process import (
    SERVER,
    Answered,
    Pool,
    api_client,
    bearer,
    http_package,
    installed,
    kubeconfig,
    plain_transport,
)
from minikube_py.cluster.program import Main, Remote
from minikube_py.cluster.program_clients import ProgramClients
from minikube_py.sim.loop import Killed
from minikube_py.sim.replaced import Replaced, unheard

if TYPE_CHECKING:
    import httpx as of_httpx
    import kubernetes as of_kubernetes
    import lightkube as of_lightkube

KILLS_MAX: Final = 100
"""So often a function may catch that it is killed, and go on."""
ONE_THREAD: Final = "a plain program in virtual time has one thread: only the one that it was started on may wait here"
GENERATES: Final = (
    "a program is a function that is called once, and a call of a generator function runs nothing of its body: {!r}. "
    "Take its `yield` out, or give a function that goes through what it yields"
)
Errand = Callable[[], Awaitable[Any]]
_thread = threading.local()


def on_its_thread() -> bool:
    """Whether a program's function runs on the calling thread."""
    return getattr(_thread, "baton", None) is not None


def _sleep(seconds: float) -> None:
    """In a program's thread it takes virtual time."""
    baton = getattr(_thread, "baton", None)
    (SLEEP.own if baton is None else baton.sleep)(seconds)


SLEEP: Final = Replaced(time, "sleep", _sleep)


def _wait(self: threading.Event, timeout: float | None = None) -> bool:
    """In a program's thread a timeout is in virtual time. Without one only a thread of its own can set the event."""
    baton = getattr(_thread, "baton", None)
    if baton is None or timeout is None or self.is_set():
        found: bool = EVENT_WAIT.own(self, timeout)
        return found
    baton.wait(lambda: _until_set(self, timeout))
    return self.is_set()


async def _until_set(event: threading.Event, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    # Its waiter is in the place of the lock that a waiting thread leaves there.
    condition: Any = event._cond  # type: ignore[attr-defined]

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    waiter = SimpleNamespace(release=lambda: loop.call_soon_threadsafe(wake))
    condition._waiters.append(waiter)
    try:
        await asyncio.wait((woken,), timeout=max(timeout_s, 0))
    finally:
        with suppress(ValueError):
            condition._waiters.remove(waiter)


EVENT_WAIT: Final = Replaced(threading.Event, "wait", _wait)


class Baton:
    """Passed between the function's thread and the simulation. A function that cannot be killed fails the run; its
    thread then waits for good."""

    def __init__(self, main: Callable[[], object], remote: Remote) -> None:
        remote.replace(SLEEP)
        remote.replace(EVENT_WAIT)
        self._main, self._remote = main, remote
        self._thread = threading.Thread(target=self._body, name=remote.name, daemon=True)
        self._to_thread, self._to_loop = threading.Semaphore(0), threading.Semaphore(0)
        self._errand: Errand | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self.killed = self._over = False
        self._caught = 0
        self._dead = ExitStack()

    async def carry(self) -> object:
        """On the program's loop: returns or raises what the function does."""
        self._thread.start()
        try:
            self._hand_over()
            while (errand := self._errand) is not None:
                self._value = self._error = self._errand = None
                try:
                    self._value = await errand()
                except Exception as error:
                    self._error = error
                self._hand_over()
        finally:
            self._end()
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self, errand: Errand) -> Any:
        """On the function's thread: returns or raises what `errand()` does on the loop, when done."""
        if threading.current_thread() is not self._thread:
            raise ClusterError(ONE_THREAD)
        if not self.killed:
            self._errand = errand
            self._to_loop.release()
            self._to_thread.acquire()
        if self.killed:
            if not self._caught:
                # From here on only its frames are cleaned up: what finalizers raise meanwhile is nobody's.
                self._dead.enter_context(unheard())
            self._caught += 1
            if self._caught > KILLS_MAX:
                self._dead.close()
                self._to_loop.release()
                threading.Semaphore(0).acquire()
            raise Killed
        if self._error is not None:
            raise self._error
        return self._value

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: asyncio.sleep(seconds))

    def _hand_over(self) -> None:
        self._to_thread.release()
        self._to_loop.acquire()

    def _end(self) -> None:
        self.killed = True
        if not (self._over or self._thread.is_alive()):
            # A forked child does not have it.
            return
        self._to_thread.release()
        while not self._over and self._caught <= KILLS_MAX:
            self._to_loop.acquire()
        if self._over:
            self._thread.join()
            return
        self._remote.fail(
            f"the program {self._remote.name} cannot be killed: it catches that, as by a bare `except:` or `except "
            f"BaseException:`, and goes on; {KILLS_MAX} times here. Catch Exception instead, or raise it again"
        )

    def _body(self) -> None:
        _thread.baton = self
        self._remote.around.on_this_thread()
        self._to_thread.acquire()
        value: object = None
        error: Exception | None = None
        try:
            value = self._main()
        except Killed:
            pass
        except BaseException as raised:
            error = raised if isinstance(raised, Exception) else RuntimeError(f"{type(raised).__name__}: {raised}")
        self._dead.close()
        self._errand, self._value, self._error = None, value, error
        self._over = True
        self._to_loop.release()


def begun(main: Callable[[Any], object], namespace: str) -> Main:
    """A program that runs `main(clients)`, on a thread unless it is a coroutine function. Its result may still be a
    coroutine, which then runs as one. Raises: ClusterError for a generator function."""
    if isgeneratorfunction(main) or isasyncgenfunction(main):
        raise ClusterError(GENERATES.format(main))
    if iscoroutinefunction(main):
        return lambda transport: main(ProgramClients(transport, namespace))

    async def whole(transport: Remote) -> None:
        baton = Baton(lambda: main(PlainClients(transport, namespace, baton)), transport)
        found = await baton.carry()
        if isawaitable(found):
            await found
        elif isgenerator(found) or isasyncgen(found):
            raise ClusterError(GENERATES.format(found))

    return whole


class PlainClients(ProgramClients):
    """The clients of a plain function. Each raises ClusterError if its package is not installed."""

    def __init__(self, transport: Remote, namespace: str, baton: Baton | None) -> None:
        """`baton` None: that of the calling thread."""
        super().__init__(transport, namespace)
        self._given = baton

    @property
    def _baton(self) -> Baton:
        if (found := self._given or getattr(_thread, "baton", None)) is None:
            raise ClusterError(ONE_THREAD)
        return found

    def httpx(self) -> of_httpx.Client:
        """Plain HTTP: `client.get("/api/v1/pods")`; a watch by `client.stream(...)` and `iter_lines()`."""
        package = installed("httpx")
        transport, headers = plain_transport(package, self.exchange), bearer(self.transport.token)
        found: of_httpx.Client = package.Client(transport=transport, base_url=SERVER, trust_env=False, headers=headers)
        return found

    def lightkube(self) -> of_lightkube.Client:
        module = installed("lightkube")
        package = http_package(module.Client)
        config = module.KubeConfig.from_dict(kubeconfig(self.namespace, self.transport.token))
        transport = plain_transport(package, self.exchange)
        found: of_lightkube.Client = module.Client(config=config, transport=transport, trust_env=False)
        return found

    def kubernetes(self) -> of_kubernetes.client.ApiClient:
        """For `kubernetes.client.CoreV1Api(...)` and `kubernetes.watch.Watch()`."""
        module: Any = installed("kubernetes").client
        configuration = module.Configuration(host=self.transport.around.server)
        found: of_kubernetes.client.ApiClient = module.ApiClient(configuration)
        pool: Any = Pool(self.exchange)
        found.rest_client.pool_manager = pool
        api_client("kubernetes", found, self.transport.token)
        return found

    def exchange(self, asked: Head, body: bytes) -> Answered:
        """For the clients."""
        baton = self._baton
        found: Answered = baton.wait(lambda: self.transport.exchange(asked, body))
        return found if found.lines is None else found._replace(lines=_Lines(baton, found.lines))


class _Lines:
    """The lines of a watch, on the thread of a plain function."""

    def __init__(self, baton: Baton, lines: Any) -> None:
        self._baton, self._lines = baton, lines

    def __iter__(self) -> Iterator[bytes]:
        while line := self._baton.wait(lambda: anext(self._lines, b"")):
            yield line

    def close(self) -> None:
        """Its process closes those of a killed program, whose generators may end on any thread."""
        if not self._baton.killed:
            self._baton.wait(self._lines.aclose)
