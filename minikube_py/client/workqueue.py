"""Work queues of controllers: an item is worked on by one worker at a time, and never lost while it is.

Three sets hold the state: `queue` (waiting, in order), `dirty` (must be worked on) and `processing` (being worked on).
An item added while it is processed stays dirty and queues again when it is done. Source: client-go/util/workqueue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable
from types import coroutine
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from minikube_py.client.crew import Crew
from minikube_py.client.timers import Timer, Timers
from minikube_py.env import Clock, turns

K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=Hashable, contravariant=True)
HANDLED_AT_ONCE: Final = 8
"""Items that a worker handles in a row if none of them waits, before others have a turn."""
HANDLED_STEPS: Final = 200
"""What one is taken to cost: about a millisecond."""


class ShutDown(Exception):
    """The queue is shut down and empty: the worker ends."""


class QueueStats(NamedTuple):
    depth: int
    processing: int
    adds: int
    retries: int
    queued_s: float
    """Total time of taken items from added to taken."""
    worked_s: float


class WorkQueue(Generic[K]):
    """One event loop only. `get` may be awaited by any number of workers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[K] = deque()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._crew: Crew | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._shutting_down = False
        self._added_at_s: dict[K, float] = {}
        self._taken_at_s: dict[K, float] = {}
        self._adds = 0
        self._queued_s = 0.0
        self._worked_s = 0.0
        self._retries = 0

    def __len__(self) -> int:
        """Items waiting; those being worked on do not count."""
        return len(self._queue)

    def staff(self, crew: Crew) -> None:
        """Starts workers as they are needed."""
        self._crew = crew
        crew.start(len(self._queue))

    def add(self, item: K) -> None:
        """Once per item until it is taken; ignored after shutdown."""
        if self._shutting_down or item in self._dirty:
            return
        self._adds += 1
        self._dirty.add(item)
        self._added_at_s[item] = self._clock.monotonic_s()
        if item not in self._processing:
            self._enqueue(item)

    async def get(self) -> K:
        """The next item; `done(item)` must follow. Raises: ShutDown."""
        while not self._queue:
            if self._shutting_down:
                raise ShutDown
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter in self._getters:
                    self._getters.remove(getter)
                elif self._queue:
                    self._wake_one()
                raise
        return self._take()

    def get_nowait(self) -> K | None:
        return self._take() if self._queue else None

    def done(self, item: K) -> None:
        taken_at_s = self._taken_at_s.pop(item, None)
        if taken_at_s is not None:
            self._worked_s += self._clock.monotonic_s() - taken_at_s
        self._processing.discard(item)
        if item in self._dirty:
            self._enqueue(item)
        elif not self._processing and not self._queue:
            self._wake_idle()

    def shut_down(self) -> None:
        """No more adds; waiting items are still handed out, then `get` raises ShutDown."""
        self._shutting_down = True
        while self._getters:
            self._wake_one()
        if not self._processing and not self._queue:
            self._wake_idle()

    async def shut_down_with_drain(self) -> None:
        """Shuts down and returns when the workers have finished everything waiting."""
        self.shut_down()
        while self._processing or self._queue:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def stats(self) -> QueueStats:
        return QueueStats(
            len(self._queue), len(self._processing), self._adds, self._retries, self._queued_s, self._worked_s
        )

    def _enqueue(self, item: K) -> None:
        self._queue.append(item)
        self._wake_one()

    def _take(self) -> K:
        item = self._queue.popleft()
        self._processing.add(item)
        self._dirty.discard(item)
        now_s = self._clock.monotonic_s()
        self._queued_s += now_s - self._added_at_s.pop(item, now_s)
        self._taken_at_s[item] = now_s
        return item

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
        if self._crew is not None:
            self._crew.hire()

    def _wake_idle(self) -> None:
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)


class DelayingQueue(WorkQueue[K]):
    """`add_after`: an item joins the queue after its delay; of several delays the earliest counts."""

    def __init__(self, clock: Clock, timers: Timers | None = None) -> None:
        super().__init__(clock)
        self._timers = timers if timers is not None else Timers(clock)
        self._owns_timers = timers is None
        self._waiting: dict[K, Timer] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add_after(self, item: K, delay_s: float) -> None:
        if self._shutting_down:
            return
        if delay_s <= 0:
            self.add(item)
            return
        when_s = self._clock.monotonic_s() + delay_s
        waiting = self._waiting.get(item)
        if waiting is not None:
            if waiting.when_s <= when_s:
                return
            waiting.cancel()
        self._waiting[item] = self._timers.call_at(when_s, lambda: self._due(item))

    def shut_down(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        super().shut_down()

    async def close(self) -> None:
        """Shuts down and ends the timer task, if this queue owns it."""
        self.shut_down()
        if self._owns_timers:
            await self._timers.close()

    def _due(self, item: K) -> None:
        del self._waiting[item]
        self.add(item)


class RateLimiter(Protocol[C]):
    def when_s(self, item: C) -> float:
        """How long from now `item` must wait; counts as one failure."""

    def forget(self, item: C) -> None: ...

    def num_requeues(self, item: C) -> int: ...


class ItemExponentialRateLimiter(Generic[K]):
    """base x 2^failures per item, up to `max_s`. Upstream's: 5 ms up to 1,000 s."""

    def __init__(self, base_s: float = 0.005, max_s: float = 1000.0) -> None:
        self._base_s = base_s
        self._max_s = max_s
        self._failures: dict[K, int] = {}

    def when_s(self, item: K) -> float:
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return self._max_s if failures > 60 else min(self._max_s, self._base_s * 2.0**failures)

    def forget(self, item: K) -> None:
        self._failures.pop(item, None)

    def num_requeues(self, item: K) -> int:
        return self._failures.get(item, 0)


class BucketRateLimiter(Generic[K]):
    """A token bucket over all items: reserves one token, returns the time until it is available."""

    def __init__(self, clock: Clock, rate_per_s: float = 10.0, burst: int = 100) -> None:
        self._clock = clock
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at_s = clock.monotonic_s()

    def when_s(self, item: K) -> float:
        now_s = self._clock.monotonic_s()
        self._tokens = min(float(self._burst), self._tokens + (now_s - self._at_s) * self._rate_per_s) - 1.0
        self._at_s = now_s
        return 0.0 if self._tokens >= 0 else -self._tokens / self._rate_per_s

    def forget(self, item: K) -> None:
        return

    def num_requeues(self, item: K) -> int:
        return 0


class MaxOfRateLimiter(Generic[K]):
    """The longest delay of its limiters."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        self._limiters = limiters

    def when_s(self, item: K) -> float:
        return max(limiter.when_s(item) for limiter in self._limiters)

    def forget(self, item: K) -> None:
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: K) -> int:
        return max(limiter.num_requeues(item) for limiter in self._limiters)


class RateLimitingQueue(DelayingQueue[K]):
    """`add_rate_limited` after a failure, `forget` after a success.

    By default only the exponential limit per item; for upstream's overall bucket (10/s, burst 100) pass a
    MaxOfRateLimiter with a BucketRateLimiter."""

    def __init__(self, clock: Clock, limiter: RateLimiter[K] | None = None, timers: Timers | None = None) -> None:
        super().__init__(clock, timers)
        self._limiter: RateLimiter[K] = limiter if limiter is not None else ItemExponentialRateLimiter()

    def add_rate_limited(self, item: K) -> None:
        self._retries += 1
        self.add_after(item, self._limiter.when_s(item))

    def forget(self, item: K) -> None:
        self._limiter.forget(item)

    def num_requeues(self, item: K) -> int:
        return self._limiter.num_requeues(item)


class _Begun:
    """The rest of a coroutine that waits for `first`."""

    __slots__ = ("_first", "_rest")

    def __init__(self, first: Any, rest: Generator[Any, Any, None]) -> None:
        self._first, self._rest = [first], rest

    def __iter__(self) -> _Begun:
        return self

    def __next__(self) -> Any:
        return self._first.pop() if self._first else next(self._rest)

    def send(self, value: Any) -> Any:
        return self._rest.send(value)

    def throw(self, *error: Any) -> Any:
        return self._rest.throw(*error)

    def close(self) -> None:
        self._rest.close()


@coroutine
def _waited(handling: Awaitable[None]) -> Generator[Any, Any, bool]:
    """Handles it; whether it waited for anything, so that others had a turn. Raises what it does."""
    steps = handling.__await__()
    try:
        first = next(steps)
    except StopIteration:
        return False
    yield from _Begun(first, steps)
    return True


async def work(
    queue: RateLimitingQueue[K], handle: Callable[[K], Awaitable[None]], failed: Callable[[K, Exception], None]
) -> None:
    """One worker: takes and handles items, retries exceptions with backoff. Ends when the queue is shut down and
    empty. Items that wait for nothing, as those that an API server in this process refuses, are handled in slices."""
    at_once, served = 0, turns()
    while True:
        try:
            item = await queue.get()
        except ShutDown:
            return
        waited = False
        try:
            waited = await _waited(handle(item))
        except Exception as error:
            failed(item, error)
            queue.add_rate_limited(item)
        else:
            queue.forget(item)
        finally:
            queue.done(item)
        at_once = 0 if waited else at_once + 1
        if at_once and len(queue) and (at_once >= HANDLED_AT_ONCE or served.busy):
            await served.next(HANDLED_STEPS)
            at_once = HANDLED_AT_ONCE
