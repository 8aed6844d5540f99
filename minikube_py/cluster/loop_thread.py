"""An event loop on a separate thread, with something that lives there.

Ctrl-C is raised on the main thread, at any instruction, as often as it is pressed. So what must be cleaned up is made,
kept and ended on this thread. Its owner only holds one of two connected sockets: when that is dropped, in whatever way,
the thread ends; at the end of the process, too. Between the two threads are only calls that cannot be interrupted
halfway: a lock of `threading` that the main thread left locked would stop this one for good."""

from __future__ import annotations

import asyncio
import atexit
import socket
import threading
from _thread import start_new_thread
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from minikube_py.cluster.errors import STOPPED, ClusterError
from minikube_py.cluster.owner import Owner


class Living(Protocol):
    """Nothing is left if its start fails or is cancelled, and after `stop`."""

    async def start(self) -> object: ...

    async def stop(self) -> None: ...


L = TypeVar("L", bound=Living)


class LoopThread(Generic[L]):
    """`make` and the methods of its result are called on the loop, and must not refer to the owner of this."""

    def __init__(self, make: Callable[[], L]) -> None:
        self._held, other = socket.socketpair()
        self._life = _Life(make, other)
        self._begun: int | None = None

    def start(self) -> L:
        """Raises: what `make` and its `start` raise; nothing is left then, nor if it is interrupted."""
        life = self._life
        try:
            self._begun = start_new_thread(life.begin, ())
            life.begun.get()
        except BaseException:
            self._end()
            raise
        if life.made is None:
            self.stop()
        assert life.made is not None
        return life.made

    def stop(self) -> None:
        """Idempotent. Raises: what the end raises."""
        self._end()
        if self._life.error is not None:
            raise self._life.error

    def _end(self) -> None:
        life = self._life
        if not life.owner.is_here:
            self._held.close()
            return
        life.ending = True
        with suppress(OSError):
            self._held.send(b"\0")
        if self._begun is not None:
            life.wait()
        self._held.close()

    def run(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Returns or raises what `main()` does, on the loop; for other threads. Raises: ClusterError if the thread ends
        before, whatever `main()` raises then."""
        life = self._life
        if threading.get_ident() == life.ident:
            raise ClusterError("this is the cluster's own loop: await the transport's methods here")
        answered: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        tasks: list[asyncio.Task[None]] = []

        async def whole() -> None:
            try:
                answered.put((await main(), None))
            except BaseException as error:
                answered.put((None, error))

        def on_loop(call: Callable[[], object]) -> None:
            try:
                life.loop.call_soon_threadsafe(call)
            except RuntimeError:
                raise ClusterError(STOPPED) from None

        life.asked[answered] = None
        try:
            on_loop(lambda: tasks.append(life.loop.create_task(whole())))
            found, error = answered.get()
        except BaseException:
            with suppress(ClusterError):
                on_loop(lambda: [each.cancel() for each in tasks])
            raise
        finally:
            del life.asked[answered]
        if error is not None and life.ending:
            raise ClusterError(STOPPED) from error
        if error is not None:
            raise error
        return found

    @property
    def ending(self) -> bool:
        return self._life.ending


class _Life(Generic[L]):
    """The thread. It does not refer to its owner."""

    def __init__(self, make: Callable[[], L], other: socket.socket) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.ident: int | None = None
        self.made: L | None = None
        self.error: BaseException | None = None
        self.begun: SimpleQueue[None] = SimpleQueue()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._over = False
        self.ending = False
        self.asked: dict[SimpleQueue[tuple[Any, BaseException | None]], None] = {}
        """Where answers are awaited."""
        self._make, self._other = make, other
        self.owner = Owner()

    def begin(self) -> None:
        """On a thread for this alone: an interrupted `Thread.start` would leave its locks locked."""
        try:
            threading.Thread(target=self._run, name="minikube-py", daemon=True).start()
        except BaseException as error:
            self._end(error)

    def wait(self) -> None:
        """Also if it is interrupted, once: it takes milliseconds, and leftovers would stay so long."""
        try:
            self._wait()
        except BaseException:
            self._wait()
            raise

    def _wait(self) -> None:
        # Not Thread.join, which when interrupted takes the thread for ended.
        if not self._over:
            self._ended.get()
            self._ended.put(None)

    def _run(self) -> None:
        self.ident = threading.get_ident()
        atexit.register(self._exit)
        error: BaseException | None = None
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException as raised:
            error = raised
        atexit.unregister(self._exit)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self.error, self._over = error, True
        self._other.close()
        self.begun.put(None)
        for each in list(self.asked):
            # The loop may have ended before its task began.
            each.put((None, asyncio.CancelledError()))
        self._ended.put(None)

    def _exit(self) -> None:
        if self.owner.is_here:
            with suppress(OSError):
                self._other.shutdown(socket.SHUT_RD)
            self.wait()

    async def _serve(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self.loop = loop

        def dropped() -> None:
            self.ending = True
            loop.remove_reader(self._other)
            task.cancel()

        loop.add_reader(self._other, dropped)
        made = self._make()
        await made.start()
        self.made = made
        try:
            self.begun.put(None)
            await loop.create_future()
        finally:
            await made.stop()
