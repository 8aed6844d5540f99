"""Handles, futures and tasks whose identity is a number in order of creation, never an address.

`asyncio.wait` and TaskGroup keep tasks in sets; hashed by address, a set is walked in another order in every process.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast

from minikube_py.sim.loop_base import FOREIGN
from minikube_py.sim.process_state import simulated
from minikube_py.sim.replaced import Replaced

if TYPE_CHECKING:
    from minikube_py.sim.loop import SimLoop

T = TypeVar("T")
CLOSES_MAX = 100
STANDARD_LIBRARY = os.path.dirname(os.__file__)
INSTALLED = os.path.join(STANDARD_LIBRARY, "site-packages")


class SimHandle(asyncio.Handle):
    """As asyncio's, without what its debug mode needs."""

    __slots__ = ()
    _source_traceback = None
    _repr = None

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        # Frees its references; it will not be called.
        self._callback = None
        self._args = ()


class SimTimerHandle(asyncio.TimerHandle):
    __slots__ = ()
    _source_traceback = None
    _repr = None
    _scheduled = False
    _callback: Callable[..., object] | None

    def __init__(self, when_s: float, *call: Any) -> None:
        self._when = when_s
        SimHandle.__init__(self, *call)  # type: ignore[arg-type]

    cancel = SimHandle.cancel  # type: ignore[assignment]


class SimFuture(asyncio.Future[T]):
    """Most futures are never in a set: they get their number when first hashed."""

    __slots__ = ("_number",)
    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = cast("SimLoop", self.get_loop()).next_number()
            return self._number


class GuardedFuture(SimFuture[T]):
    """Of a loop with a user's code: another thread is refused also while nobody awaits it."""

    __slots__ = ()

    def set_result(self, result: T, /) -> None:
        cast("SimLoop", self.get_loop()).require_turn()
        super().set_result(result)

    def set_exception(self, exception: Any, /) -> None:
        cast("SimLoop", self.get_loop()).require_turn()
        super().set_exception(exception)

    def cancel(self, msg: Any = None) -> bool:
        cast("SimLoop", self.get_loop()).require_turn()
        return super().cancel(msg)


class SimTask(asyncio.Task[T]):
    __slots__ = ("_number",)

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        loop: SimLoop,
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        # Must be first: the base class puts the task into a set.
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, name=name or "", context=context)

    def cancel(self, msg: Any = None) -> bool:
        loop = cast("SimLoop", self.get_loop())
        if loop.around is not None:
            loop.require_turn()
        return super().cancel(msg)

    def get_name(self) -> str:
        return super().get_name() or f"task-{self._number}"

    def __hash__(self) -> int:
        return self._number


def wake(future: asyncio.Future[None]) -> None:
    """The waiter may have gone."""
    if not future.done():
        future.set_result(None)


def close_coroutine(task: asyncio.Task[Any]) -> None:
    """Ends a task's coroutine without its loop. Its remaining actions have no effect."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro: Any = task.get_coro()
    for step in reversed(_generator_steps(coro)):
        _close_generator_at(step)
    for _ in range(CLOSES_MAX):
        try:
            coro.close()
            return
        except BaseException:
            # A `finally` that awaited, or used a closed resource. Close again until nothing is left to run.
            continue


def _generator_steps(coro: Any) -> list[Any]:
    """The awaitables of async generators in a coroutine's chain of awaits, the outermost first."""
    steps: list[Any] = []
    while coro is not None:
        if type(coro).__name__ in ("async_generator_asend", "async_generator_athrow"):
            steps.append(coro)
            # Only the garbage collector knows the generator of such an awaitable.
            coro = next((each for each in gc.get_referents(coro) if hasattr(each, "ag_await")), None)
        else:
            coro = next((found for name in AWAITED if (found := getattr(coro, name, None)) is not None), None)
    return steps


def _close_generator_at(step: Any) -> None:
    """Runs the generator's `finally`. Since Python 3.13, closing the coroutine that reads the generator does the same;
    earlier versions leave the generator open."""
    for _ in range(CLOSES_MAX):
        try:
            step.throw(GeneratorExit)
        except BaseException:
            return


AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")


def in_order(fs: Any, **options: Any) -> Any:
    """In place of asyncio.as_completed, which makes tasks of a set of coroutines in the order of their addresses (kopf
    gives it a set): on a simulated loop in the given order, or by their arguments."""
    is_simulated = hasattr(asyncio.get_event_loop(), "next_number")
    if not is_simulated or asyncio.isfuture(fs) or asyncio.iscoroutine(fs):
        return AS_COMPLETED.own(fs, **options)
    given = sorted(fs, key=_said_of) if isinstance(fs, set | frozenset) else fs
    return AS_COMPLETED.own([asyncio.ensure_future(each) for each in given], **options)


AS_COMPLETED = Replaced(asyncio, "as_completed", in_order)


def wait_for(fut: Any, timeout: float | None) -> Any:
    """On a simulated loop as since Python 3.12: before, it took other steps, and so all that follows another order."""
    if not hasattr(asyncio.get_running_loop(), "next_number"):
        return WAIT_FOR.own(fut, timeout)
    return _waited_for(fut, timeout)


async def _waited_for(fut: Any, timeout: float | None) -> Any:
    if timeout is None or timeout > 0:
        async with asyncio.timeout(timeout):
            return await fut
    task = asyncio.ensure_future(fut)
    if not task.done():
        task.cancel()
        # Its outcome is raised below.
        await asyncio.wait((task,))
    try:
        return task.result()
    except asyncio.CancelledError as error:
        raise TimeoutError from error


WAIT_FOR = Replaced(asyncio, "wait_for", wait_for)


def wrap_future(future: Any, *, loop: Any = None) -> Any:
    """On a simulated loop what another thread does is refused, whether or not it happens to be done already."""
    if asyncio.isfuture(future) or not simulated(loop or _get_running_loop()):
        return WRAP_FUTURE.own(future, loop=loop)
    raise NotImplementedError(FOREIGN.format("an executor's"))


WRAP_FUTURE = Replaced(asyncio, "wrap_future", wrap_future)


def _said_of(each: Any) -> tuple[int, str, list[tuple[str, str]]]:
    """The description of a waiter that is equal in two runs: a future's number, or a coroutine's name and arguments."""
    if asyncio.isfuture(each):
        return hash(each), "", []
    locals_ = getattr(getattr(each, "cr_frame", None), "f_locals", {})
    plain = sorted((name, str(value)) for name, value in locals_.items() if isinstance(value, str | int | float))
    return 0, getattr(each, "__qualname__", ""), plain


def waits_at(task: asyncio.Task[Any]) -> str:
    """Where a task's coroutine is suspended: function, file and line of its innermost frame. Line numbers of Python's
    standard library are left out: they differ between versions."""
    coro: Any = task.get_coro()
    place = getattr(coro, "__qualname__", "?")
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        file = code.co_filename
        is_library = file.startswith(STANDARD_LIBRARY) and not file.startswith(INSTALLED)
        line = "" if is_library else f":{frame.f_lineno}"
        place = f"{code.co_qualname} ({file.rpartition('/')[2]}{line})"
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
    return place


def describe_callback(callback: Any) -> str:
    """A callback without addresses: the same text in every process."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_name()} {waits_at(owner)}"
    inner = getattr(callback, "func", callback)
    return getattr(inner, "__qualname__", type(inner).__name__)
