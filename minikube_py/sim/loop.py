"""A deterministic asyncio event loop in virtual time, one for each simulated process, all driven by one Scheduler.

Nothing here waits: when all processes are idle, time jumps to the next timer or arrival. A seed determines the run,
step by step, in any Python process. Where asyncio's loop depends on addresses, threads or the machine's clock, this one
does not:

- tasks and futures hash by number (`sim.tasks`);
- processes take turns, and within a turn the ready callbacks run, in an order that the seed draws;
- timers are late by what the seed draws, never early;
- a turn may take time, during which its process receives nothing;
- an executor runs inline; sockets are those of `sim.network`.

Errors that a real run would only log fail the run: an exception never retrieved, a task lost while it waited, a
callback that raised; so do a deadlock and a loop that never comes to rest."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import traceback
import weakref
from asyncio import events
from asyncio.events import _set_running_loop
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from minikube_py.env import Rng
from minikube_py.sim.inspection import INSPECTION, Inspection
from minikube_py.sim.interrupts import Interrupts
from minikube_py.sim.local_time import NS_PER_S as NS_PER_S
from minikube_py.sim.local_time import LocalTime
from minikube_py.sim.loop_base import LoopBase
from minikube_py.sim.process_state import Dropped, around
from minikube_py.sim.replaced import unheard
from minikube_py.sim.tasks import (
    GuardedFuture,
    SimFuture,
    SimHandle,
    SimTask,
    SimTimerHandle,
    close_coroutine,
    describe_callback,
    waits_at,
)

if TYPE_CHECKING:
    from minikube_py.sim.network import Network

T = TypeVar("T")
STEPS_PER_COLLECTION = 200_000
COLLECTIONS_PER_FULL = 10
STEPS_PER_LOOK = 1000
WAITERS_SHOWN_MAX = 50
TASKS_KEPT_MIN = 256


class SimFailure(Exception):
    """The simulated code did something forbidden; the text says what and where."""


class Deadlock(SimFailure):
    """Nothing is ready, no timer is set, and the awaited event has not happened."""


class Runaway(SimFailure):
    """A limit on steps was hit; the text names it."""


class Broken(Exception):
    """A signal hit the simulation in the middle of a step; its state is undefined."""


class Killed(BaseException):
    """Raised inside a killed process when it uses its disk, network or loop. Not an Exception: handlers of those must
    not catch it."""


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """`shuffle`: ready callbacks of a turn run in random order, else in asyncio's. `jitter_s`: the most that timers are
    late. `turn_s`: the mean cost of a turn; one in `stall_every` (0: none) costs up to `stall_s`. A run may take
    `steps_max` callbacks, and `steps_at_once_max` without time passing."""

    shuffle: bool = False
    jitter_s: float = 0.0
    turn_s: float = 0.0
    stall_every: int = 0
    stall_s: float = 0.0
    steps_max: int = 100_000_000
    steps_at_once_max: int = 1_000_000


def shuffle(items: list[Any], rng: Rng) -> None:
    """Fisher and Yates; a few times faster than `Random.shuffle`, which draws its indexes bit by bit."""
    random = rng.random
    for last in range(len(items) - 1, 0, -1):
        other = int(random() * (last + 1))
        items[last], items[other] = items[other], items[last]


class Scheduler:
    """Virtual time in nanoseconds, scheduled events, and which process runs. `trace` gets a line for each step."""

    def __init__(self, seed: object, options: LoopOptions | None = None) -> None:
        self.options = options or LoopOptions()
        self.rng = Rng(f"scheduler {seed}")
        self.now_ns = 0
        self.steps = 0
        self.trace: Callable[[str], None] | None = None
        self.loops: dict[int, SimLoop] = {}
        self._events: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._runnable: list[SimLoop] = []
        self._number = 0
        self._steps_before = 0
        self._look_at = 0
        self._to_reap: list[SimLoop] = []
        self._failure: SimFailure | None = None
        self.thread: int | None = None
        """Which runs it now."""
        self._collect_at = STEPS_PER_COLLECTION
        self._collections = 0
        self.beside = Inspection(self, seed)
        self.interrupts = Interrupts()
        self.dropped = Dropped()

    # -- scheduling ---------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def at(self, when_ns: int, call: Callable[[Any], object], argument: Any = None) -> None:
        """Calls at that time, in the order of calls where times are equal. Not in the past."""
        self._number += 1
        heappush(self._events, (when_ns, self._number, call, argument))

    def after(self, delay_s: float, call: Callable[[Any], object], argument: Any = None) -> None:
        self.at(self.now_ns + int(delay_s * NS_PER_S), call, argument)

    def runnable(self, loop: SimLoop) -> None:
        self._runnable.append(loop)

    @property
    def now_s(self) -> float:
        return self.now_ns / NS_PER_S

    def log(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now_ns / NS_PER_S:.9f} {text}")

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], object], stops: bool = False) -> None:
        """Runs until `until` holds; it is checked between turns. Another event loop running here, such as a notebook's,
        waits meanwhile. `stops`: a signal of the process ends it at the end of a moment, or else when `until` holds.

        Raises: SimFailure; Deadlock, Runaway; what a signal's handler raises; Broken."""
        interrupts = self.interrupts
        if interrupts.error is not None:
            raise Broken(f"the simulation was interrupted in the middle of a step, by {interrupts.error!r}: it is over")
        beside = self.beside
        with self.running():
            while not until():
                if self._runnable:
                    self._turn()
                elif stops and interrupts.waiting and not (self._events and self._events[0][0] <= self.now_ns):
                    interrupts.deliver()
                elif beside.used and beside.due(self._events[0][0] if self._events else math.inf):
                    beside.go_on(self._events[0][0] if self._events else self.now_ns)
                elif self._events:
                    self._advance()
                else:
                    raise Deadlock(self._describe_waiters())
                if self._failure is not None:
                    raise self._failure
                if interrupts.error is not None:
                    # How the simulation handled the signal no longer matters.
                    raise interrupts.error

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context of everything that runs here. Raises: what a signal's handler raises, at its end."""
        with around(self.dropped), self.entered():
            yield

    @contextmanager
    def entered(self) -> Iterator[None]:
        """By this thread alone, meanwhile; signals wait. Raises: what a signal's handler raises, at its end."""
        before, self.thread = self.thread, get_ident()
        try:
            with self.interrupts.held():
                yield
        finally:
            self.thread = before

    def run_to(self, when_ns: int, holds: Callable[[], bool] = lambda: False) -> None:
        """Runs everything up to and at that time; or until `holds` does. Raises: SimFailure."""
        self.at(when_ns, _nothing)
        self.run(lambda: (not self._runnable and not (self._events and self._events[0][0] <= when_ns)) or holds(), True)
        if self.beside.used and self.beside.due(self.now_ns):
            with self.running():
                self.beside.go_on(self.now_ns)

    def finish(self) -> None:
        """Ends all loops. Raises: SimFailure for errors that only show in garbage collection."""
        gc.collect()
        self.dropped.over = True
        for loop in list(self.loops.values()):
            loop.kill()
        self._reap()
        self._events.clear()
        self._runnable.clear()
        if self._failure is not None:
            raise self._failure

    def fail(self, text: str) -> None:
        """The run ends after this step; the first failure counts."""
        if self._failure is None:
            self._failure = SimFailure(f"at {self.now_s:.6f} s, step {self.steps}: {text}")

    def fingerprint(self) -> str:
        """Equal for equal runs, and almost never for different ones: all choices come from one generator."""
        return f"{self.now_ns}.{self.steps}.{self._number}.{self.rng.getrandbits(64):016x}"

    def reap_soon(self, loop: SimLoop) -> None:
        self._to_reap.append(loop)

    def _advance(self) -> None:
        queue = self._events
        when_ns = queue[0][0]
        if when_ns > self.now_ns:
            self.now_ns = when_ns
            self._steps_before = self.steps
        while queue and queue[0][0] == when_ns:
            _, _, call, argument = heappop(queue)
            call(argument)
        if self._to_reap:
            self._reap()

    def _turn(self) -> None:
        loops, self._runnable = self._runnable, []
        if len(loops) > 1:
            shuffle(loops, self.rng)
        for loop in loops:
            loop._turn()
            if self._to_reap:
                self._reap()
        if self.steps >= self._look_at:
            self._look()

    def _look(self) -> None:
        """Periodic checks of limits and garbage."""
        options = self.options
        if self.steps > options.steps_max:
            raise Runaway(f"over steps_max={options.steps_max} steps")
        if self.steps - self._steps_before > options.steps_at_once_max:
            raise Runaway(
                f"over steps_at_once_max={options.steps_at_once_max} steps at {self.now_s:.6f} s without time passing; "
                f"next: {', '.join(loop.name for loop in self._runnable)}"
            )
        if self.steps >= self._collect_at:
            self._collect_at = self.steps + STEPS_PER_COLLECTION
            self._collections += 1
            # Mostly of what is new: all that a cluster of thousands of nodes keeps takes 0.1 s.
            gc.collect(2 if self._collections % COLLECTIONS_PER_FULL == 0 else 1)
            self.dropped.close()
        self._look_at = self.steps + STEPS_PER_LOOK

    def _reap(self) -> None:
        while self._to_reap:
            self._to_reap.pop()._close_tasks()

    def _describe_waiters(self) -> str:
        lines = [f"nothing is ready and no timer runs at {self.now_s:.6f} s; waiting:"]
        for loop in self.loops.values():
            lines.extend(f"  {loop.name}: {task.get_name()} at {waits_at(task)}" for task in loop.tasks())
        return "\n".join(lines[:WAITERS_SHOWN_MAX])


class SimLoop(LocalTime, LoopBase):
    """One process's loop. Its `time()` starts at a value from the seed and runs at `rate` times the true rate."""

    def __init__(
        self,
        scheduler: Scheduler,
        name: str = "main",
        *,
        rng: Rng | None = None,
        host: str = "localhost",
        sockets: Network | None = None,
        rate: float = 1.0,
        options: LoopOptions | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.host = host
        self.options = options or scheduler.options
        self.dead = False
        self.paused = 0
        self.after_step: Callable[[], None] | None = None
        """Called after each callback of this process, and so sees every state visible to others."""
        self.on_exit: Callable[[BaseException], None] | None = None
        """Takes a SystemExit or KeyboardInterrupt that a callback raised, as the end of this process alone."""
        self.next_number = scheduler.next_number
        self._beside = scheduler.beside
        self._rng = rng or Rng(f"{name} {scheduler.rng.getrandbits(64)}")
        self._sockets = sockets
        self._ready: list[SimHandle | SimTimerHandle] = []
        self._queued = False
        self._busy_until_ns = 0
        self._base_on(1000.0 + int(self._rng.random() * 1_000_000), rate)
        self._tasks: dict[int, weakref.ref[asyncio.Task[Any]]] = {}
        self._tasks_max = TASKS_KEPT_MIN
        self._id = scheduler.next_number()
        scheduler.loops[self._id] = self

    def __repr__(self) -> str:
        return f"<SimLoop {self.name}>"

    # -- calls --------------------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        if not self.dead:
            if self.around is not None:
                self.require_turn()
            if self._beside.used and handle._context.get(INSPECTION, 0):
                self._beside.soon(handle)
                return handle
            self._ready.append(handle)
            if not self._queued:
                self._queue()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = SimTimerHandle(when, callback, args, self, context)
        if not self.dead:
            if self.around is not None:
                self.require_turn()
            when_ns = self._true_ns(when)
            if self._beside.used and (look := handle._context.get(INSPECTION, 0)):  # type: ignore[attr-defined]
                self._beside.at(when_ns, look, handle)
                return handle
            jitter_s = self.options.jitter_s
            if jitter_s:
                when_ns += int(self._rng.random() * jitter_s * NS_PER_S)
            self.scheduler.at(when_ns, self._due, handle)
        return handle

    def _due(self, handle: SimTimerHandle) -> None:
        if self.dead or handle._cancelled:
            return
        if self._rate_changed:
            # The clock may have been slowed since.
            when_ns = self._true_ns(handle._when)
            if when_ns > self.scheduler.now_ns:
                self.scheduler.at(when_ns, self._due, handle)
                return
        self._ready.append(handle)
        if not self._queued:
            self._queue()

    def _queue(self) -> None:
        """Schedules a turn if it is not busy or stopped."""
        if self.paused:
            return
        self._queued = True
        scheduler = self.scheduler
        if self._busy_until_ns > scheduler.now_ns:
            scheduler.at(self._busy_until_ns, scheduler.runnable, self)
        else:
            scheduler.runnable(self)

    def call(self, handle: SimHandle | SimTimerHandle) -> None:
        """Runs one callback outside of all turns."""
        callback = handle._callback
        if callback is None or self.dead:
            return
        scheduler = self.scheduler
        scheduler.steps += 1
        if scheduler.trace is not None:
            scheduler.log(f"{self.name} {describe_callback(callback)}")
        try:
            handle._context.run(callback, *handle._args)  # type: ignore[union-attr,arg-type]
        except BaseException as error:
            self._raised(error)

    def _raised(self, error: BaseException) -> None:
        if not isinstance(error, SystemExit | KeyboardInterrupt):
            if not self.dead:
                self.call_exception_handler({"message": "a callback raised", "exception": error})
        elif self.on_exit is not None:
            self.on_exit(error)
        else:
            self.scheduler.interrupts.error = self.scheduler.interrupts.error or error
            raise error

    def _turn(self) -> None:
        if self.dead or self.paused:
            self._queued = False
            return
        # `_queued` stays set meanwhile: what becomes ready in this turn waits for its end.
        ready, self._ready = self._ready, []
        options, scheduler, after_step = self.options, self.scheduler, self.after_step
        if len(ready) > 1 and options.shuffle:
            shuffle(ready, self._rng)
        # The scheduler resets it when the run is over.
        _set_running_loop(self)
        for place, handle in enumerate(ready):
            callback = handle._callback
            if callback is None:
                continue
            scheduler.steps += 1
            if scheduler.trace is not None:
                scheduler.log(f"{self.name} {describe_callback(callback)}")
            try:
                handle._context.run(callback, *handle._args)  # type: ignore[union-attr,arg-type]
            except BaseException as error:
                self._raised(error)
            if self.dead:
                return
            if after_step is not None:
                after_step()
            if self.paused:
                self._ready = [*ready[place + 1 :], *self._ready]
                break
        self._queued = False
        # The turn took time; the next one comes after it.
        if options.turn_s:
            random = self._rng.random
            self._cost_ns += int(options.turn_s * NS_PER_S * (0.5 + random()))
            if options.stall_every and random() * options.stall_every < 1:
                self._cost_ns += int(options.stall_s * NS_PER_S * random())
        if self._cost_ns:
            self._busy_until_ns = scheduler.now_ns + self._cost_ns
            self._cost_ns = 0
        if self._ready:
            self._queue()

    # -- tasks and futures --------------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self) if self.around is None else GuardedFuture(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        if self.dead:
            coro.close()
            raise Killed(f"{self.name} is dead")
        task = SimTask(coro, self, name, context)
        if len(self._tasks) >= self._tasks_max:
            self._tasks = {hash(each): weakref.ref(each) for each in self.tasks()}
            self._tasks_max = max(2 * len(self._tasks), TASKS_KEPT_MIN)
        # Weak references: a task without other references is lost, and that fails the run.
        self._tasks[task._number] = weakref.ref(task)
        if self._beside.used and (context.get(INSPECTION, 0) if context is not None else INSPECTION.get()):
            self._beside.made(task)
        return task

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Unfinished tasks, in order of creation. (asyncio's own set holds the tasks of all loops.)"""
        return [task for _, each in sorted(self._tasks.items()) if (task := each()) is not None and not task.done()]

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Runs inline: under simulation there are no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def run_until_complete(self, main: Coroutine[Any, Any, T], stops: bool = False) -> T:  # type: ignore[override]
        """Returns or raises what `main` does, run as a task; other tasks run meanwhile, and are frozen when it is done.
        `stops`: a signal of the process cancels it before it is done.

        Raises: SimFailure."""
        begun: list[asyncio.Task[T]] = []
        self.call_soon(lambda: begun.append(self.create_task(main)))
        try:
            self.scheduler.run(lambda: bool(begun) and begun[0].done(), stops)
        except BaseException:
            if begun and stops:
                begun[0].cancel()
            raise
        return begun[0].result()

    # -- ends ---------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """SIGSTOP: nothing of this process runs; its input waits."""
        self.paused += 1

    def resume(self) -> None:
        """Runs once it was resumed as often as it was paused."""
        self.paused -= 1
        if not self.paused and not self._queued and not self.dead:
            self._queue()

    def kill(self) -> None:
        """SIGKILL: from here on nothing of this process runs except the interpreter's cleanup of its frames, which has
        no effect."""
        if self.dead:
            return
        self.dead = True
        self._ready.clear()
        self.scheduler.loops.pop(self._id, None)
        self.scheduler.reap_soon(self)

    def _close_tasks(self) -> None:
        running = events._get_running_loop()
        events._set_running_loop(self)
        # Awaitables from a `finally` after the kill are never awaited.
        with unheard():
            for task in self.tasks():
                close_coroutine(task)
        events._set_running_loop(running)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        if self._handler is not None:
            self._handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The run fails."""
        error = context.get("exception")
        lines = [f"{self.name}: {context.get('message', 'an error nobody handled')}"]
        task = context.get("task") or context.get("future")
        if isinstance(task, asyncio.Task):
            lines[0] += f" ({task.get_name()} at {waits_at(task)})"
        if error is not None:
            lines.extend(line.rstrip("\n") for line in traceback.format_exception(error))
        self.scheduler.fail("\n".join(lines))

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.dead

    def close(self) -> None:
        self.kill()

    # -- network ------------------------------------------------------------------------------------------------------

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        return await self._network().serve(self, protocol_factory, host, port or 0, **options)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:  # type: ignore[override]
        return await self._network().connect(self, protocol_factory, host, port, **options)

    def use(self, sockets: Network) -> None:
        """From now on its sockets are those of that network."""
        self._sockets = sockets

    def _network(self) -> Network:
        if self._sockets is None:
            raise NotImplementedError("this simulated loop has no network; give it one (sim.network.Network)")
        return self._sockets


def _nothing(argument: None) -> None:
    pass
