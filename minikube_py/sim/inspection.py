"""Inspection of a simulation: it runs beside the history, which then continues as if it had not happened.

An inspection has a separate world on the same loop: its callbacks, timers and tasks are kept apart, numbered after all
others, and ordered by another generator. When it waits, time passes for it alone, while the history stands still, and
is reset at its end. What it leaves behind, such as a watch's timer, continues in that world, at its time.

A callback belongs to it by its context, which tasks and futures propagate, so the inspection is known from whatever
wakes it."""

from __future__ import annotations

from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

from minikube_py.env import Rng

if TYPE_CHECKING:
    from minikube_py.sim.loop import Scheduler, SimLoop
    from minikube_py.sim.tasks import SimTask, SimTimerHandle

T = TypeVar("T")
FIRST_NUMBER = 1 << 48
"""Numbers beyond those that a run reaches by itself."""
TURNS_LEFT_MAX = 1000
"""Limit of turns for leftovers at one moment: they may never come to rest."""
TURNS_MAX = 1_000_000
INSPECTION: ContextVar[int] = ContextVar("beside", default=0)
"""The number of the inspection that a callback belongs to; 0: it is part of the history."""

Timer = tuple[int, int, "SimTimerHandle"]


class TooLong(Exception):
    """The inspection waits for something that cannot happen while the history stands still."""


class Inspection:
    """The world of inspections, beside what `scheduler` drives. `generators`: their states are restored."""

    def __init__(self, scheduler: Scheduler, seed: object) -> None:
        self.generators: list[Rng] = []
        self.used = False
        """Whether it has any callbacks: only then they need to be distinguished."""
        self._scheduler = scheduler
        self._loop: SimLoop
        self._rng = Rng(f"aside {seed}")
        self._number = FIRST_NUMBER
        self._look = 0
        self._ready: list[Any] = []
        self._timers: list[Timer] = []
        self._left: list[Timer] = []
        self._tasks: list[SimTask[Any]] = []

    # -- for the loop -------------------------------------------------------------------------------------------------

    def soon(self, handle: Any) -> None:
        self._ready.append(handle)

    def at(self, when_ns: int, look: int, handle: SimTimerHandle) -> None:
        self._number += 1
        heappush(self._timers if look == self._look else self._left, (when_ns, self._number, handle))

    def made(self, task: SimTask[Any]) -> None:
        self._tasks.append(task)

    # -- inspecting
    # ------------------------------------------------------------------------------------------------------

    def look(self, loop: SimLoop, main: Callable[[], Coroutine[Any, Any, T]], limit_s: float) -> T:
        """Returns or raises what `main()` does, for which at most `limit_s` pass.

        Raises: TooLong, and `main()` is cancelled; SimFailure."""
        scheduler = self._scheduler
        begun_ns, steps = scheduler.now_ns, scheduler.steps
        history = len(scheduler._events), len(loop._ready)
        limit_ns = begun_ns + int(min(limit_s, 1e9) * 1e9)
        self._loop = loop
        self._look += 1
        look, self.used = self._look, True
        context = copy_context()
        context.run(INSPECTION.set, look)
        with scheduler.running(), self._apart(loop):
            task = loop.create_task(main(), context=context)
            try:
                self._until(task.done, limit_ns)
                if not task.done():
                    task.cancel()
                    self._turns(TURNS_MAX, task.done)
                    if task.done() and not task.cancelled():
                        task.exception()
                    raise TooLong
                # Effects of its end are beside the history, too.
                self._rest()
            finally:
                self._keep(begun_ns, steps)
                if (len(scheduler._events), len(loop._ready)) != history:
                    scheduler.fail("a look set something going that is part of the history")
        return task.result()

    def due(self, next_ns: float) -> bool:
        """Whether leftovers have something to do before the history continues at `next_ns`."""
        return bool(self._ready or (self._left and self._left[0][0] <= next_ns))

    def go_on(self, until_ns: float) -> None:
        """Runs leftovers up to that time."""
        scheduler = self._scheduler
        begun_ns, steps = scheduler.now_ns, scheduler.steps
        # Its timers belong to no current inspection.
        self._look += 1
        with self._apart(self._loop):
            try:
                self._rest()
                while self._left and self._left[0][0] <= until_ns:
                    when_ns, _, handle = heappop(self._left)
                    if not handle._cancelled:
                        scheduler.now_ns = max(when_ns, begun_ns)
                        self._ready.append(handle)
                        self._rest()
            finally:
                self._keep(begun_ns, steps)

    def _rest(self) -> None:
        """Ends leftovers that never come to rest: nothing waits for them."""
        self._turns(TURNS_LEFT_MAX)
        if self._ready:
            for task in self._tasks:
                task.cancel()
            self._turns(TURNS_LEFT_MAX)
            self._ready.clear()

    def _until(self, done: Callable[[], bool], limit_ns: int) -> None:
        while not done():
            self._turns(TURNS_MAX, done)
            if done() or self._ready:
                return
            while self._timers and self._timers[0][2]._cancelled:
                heappop(self._timers)
            if not self._timers or self._timers[0][0] > limit_ns:
                return
            when_ns, _, handle = heappop(self._timers)
            self._scheduler.now_ns = max(when_ns, self._scheduler.now_ns)
            self._ready.append(handle)

    def _turns(self, turns_max: int, done: Callable[[], bool] = lambda: False) -> None:
        for _ in range(turns_max):
            if not self._ready or done():
                return
            ready, self._ready = self._ready, []
            for place, handle in enumerate(ready):
                try:
                    handle._loop.call(handle)
                except BaseException:
                    self._ready = [*ready[place + 1 :], *self._ready]
                    raise

    def _keep(self, begun_ns: int, steps: int) -> None:
        """Resets time; remembers leftovers that continue, and drops those that have ended."""
        scheduler = self._scheduler
        scheduler.now_ns, scheduler.steps = begun_ns, steps
        timers, self._timers = self._timers, []
        for each in timers:
            if not each[2]._cancelled:
                heappush(self._left, each)
        self._tasks = [each for each in self._tasks if not each.done()]
        self.used = bool(self._tasks or self._left or self._ready)

    @contextmanager
    def _apart(self, loop: SimLoop) -> Iterator[None]:
        scheduler, drawn = self._scheduler, self._rng
        running = events._get_running_loop()
        rng, loop_rng, number = scheduler.rng, loop._rng, scheduler._number
        for each in self.generators:
            # Hundreds of times cheaper than saving and restoring its state.
            each.random, each.getrandbits = drawn.random, drawn.getrandbits  # type: ignore[method-assign]
        scheduler.rng = loop._rng = drawn
        scheduler._number = self._number
        events._set_running_loop(loop)
        try:
            yield
        finally:
            events._set_running_loop(running)
            self._number = max(self._number, scheduler._number)
            scheduler.rng, loop._rng, scheduler._number = rng, loop_rng, number
            for each in self.generators:
                del each.random, each.getrandbits
