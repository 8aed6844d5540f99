"""A watcher's queue of shared event batches, bounded per watcher and in total.

Adapters read from a stream. A stream whose reader does not keep up is closed without affecting others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from minikube_py.api import go_json
from minikube_py.api.errors import StatusError, too_many_requests
from minikube_py.apiserver.limits import Limits
from minikube_py.client.transport import WatchEvent

if TYPE_CHECKING:
    from minikube_py.apiserver.watch import Encoder

_LINE_STARTS: Final = {
    kind: f'{{"type":"{kind}","object":'.encode() for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}
_LINE_END: Final = b"}\n"
TAKEN_BYTES_MAX: Final = 256 << 10


class Batch:
    """A batch of events, shared by a group's streams. `wire` is the adapter's encoding of them, `held_by` the number of
    streams in whose queues they wait."""

    __slots__ = ("events", "held_by", "size_bytes", "wire")

    def __init__(self, events: list[WatchEvent]) -> None:
        self.events = events
        self.held_by = 0
        self.size_bytes = sum(len(event.object) for event in events) + 40 * len(events)
        self.wire: bytes | None = None

    def lines(self) -> bytes:
        """One JSON text a line, as a watch's body holds them."""
        parts: list[bytes] = []
        for kind, obj in self.events:
            parts += (_LINE_STARTS[kind], obj, _LINE_END)
        return b"".join(parts)


def error_event(error: StatusError) -> WatchEvent:
    return WatchEvent("ERROR", go_json.dumps(error.to_status()))


class Enrich(Protocol):
    """Adds data that only the store has to one stream's events. `fields` are the further columns of its table."""

    fields: tuple[str, ...]

    async def __call__(self, batch: Batch) -> Batch: ...


class WatchBudget:
    """Total queued for all watchers; a shared batch counts once. Above the limit the slowest streams are closed until a
    quarter is free; they resume or relist, like upstream's slow watchers."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.watch_queues_bytes_max
        self.held_bytes = 0
        self.waiting: dict[Stream, None] = {}
        self.cut = 0

    def hold(self, stream: Stream, batch: Batch) -> None:
        self.waiting[stream] = None
        batch.held_by += 1
        if batch.held_by == 1:
            self.held_bytes += batch.size_bytes

    def give_back(self, batch: Batch) -> None:
        batch.held_by -= 1
        if not batch.held_by:
            self.held_bytes -= batch.size_bytes

    def relieve(self) -> None:
        """Called after an addition."""
        if self.held_bytes <= self._limit:
            return
        for stream in sorted(self.waiting, key=lambda each: -each.queued_bytes):
            if self.held_bytes <= self._limit * 3 // 4:
                return
            message = (
                f"the watcher is too slow: {stream.queued_bytes} bytes wait for it, and {self.held_bytes} bytes for "
                f"all watchers; the limit for all is {self._limit} bytes"
            )
            stream.cut_off(message)


class Stream:
    """One watcher's events, in order: first `initial`, lazily, then pushed ones.

    `await next()` returns the available batches, at least one, or an empty list at the end. `on_cut` is called if the
    stream is closed because its reader is too slow.
    """

    __slots__ = ("_columns_due", "_encoder", "_ended", "_initial", "_leave", "_limits", "_queue",
                 "_timer", "_waiter", "budget", "delivered", "enrich", "on_cut", "queued_bytes",
                 "queued_events", "reached")  # fmt: skip

    def __init__(
        self, limits: Limits, encoder: Encoder, leave: Callable[[Stream], None], budget: WatchBudget
    ) -> None:
        self._limits = limits
        self.budget = budget
        self._encoder = encoder
        self._leave = leave
        self._initial: Iterator[Batch] | None = None
        self._queue: deque[Batch] = deque()
        self.queued_bytes = 0
        self.queued_events = 0
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._columns_due = encoder.form.kind == "table"
        self.delivered = 0
        self.on_cut: Callable[[], None] | None = None
        self.enrich: Enrich | None = None
        self.reached: Callable[[], int] = int
        """The revision up to which its reader gets all events."""

    def begin(self, initial: Iterator[Batch] | None, timeout_s: float, at_timeout: Callable[[Stream], None]) -> None:
        self._initial = initial
        self._timer = asyncio.get_running_loop().call_later(timeout_s, at_timeout, self)

    def resumed(self) -> None:
        """Its reader has the columns of its table already."""
        self._columns_due = False

    def bookmark(self, revision: int) -> Batch:
        return Batch([self._encoder.bookmark(revision)])

    @property
    def starting(self) -> bool:
        """Whether initial events are still being produced, without blocking."""
        return self._initial is not None

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def awaited(self) -> bool:
        """Whether its reader is waiting on an empty queue."""
        return self._waiter is not None

    def push(self, batch: Batch) -> None:
        if self._ended:
            return
        self._add(batch)
        limits = self._limits
        if self.queued_bytes > limits.watcher_queue_bytes or self.queued_events > limits.watcher_queue_events:
            message = (
                f"the watcher is too slow: {self.queued_events} events of {self.queued_bytes} bytes wait for it; "
                f"limits are {limits.watcher_queue_events} events and {limits.watcher_queue_bytes} bytes"
            )
            self.cut_off(message)
        else:
            self._wake()

    def cut_off(self, message: str) -> None:
        """Drops the queue and ends the stream with an error."""
        self.budget.cut += 1
        self.fail(too_many_requests(message))
        if self.on_cut is not None:
            self.on_cut()

    def fail(self, error: StatusError | None) -> None:
        """Drops the queue and ends with that event, or none."""
        self._initial = None
        self._forget()
        if not self._ended and error is not None:
            self._add(Batch([error_event(error)]))
        self.finish()

    def _add(self, batch: Batch) -> None:
        self._queue.append(batch)
        self.queued_bytes += batch.size_bytes
        self.queued_events += len(batch.events)
        self.budget.hold(self, batch)

    def _forget(self) -> None:
        """Drops the queue."""
        for batch in self._queue:
            self.budget.give_back(batch)
        self._queue.clear()
        self.queued_bytes = self.queued_events = 0
        self.budget.waiting.pop(self, None)

    def finish(self) -> None:
        """Ends the stream after the queued events."""
        if self._ended:
            return
        self._ended = True
        self._detach()
        self._wake()

    def close(self) -> None:
        """The reader has disconnected; drops everything."""
        self._ended = True
        self._initial = None
        self._forget()
        self._detach()
        self._wake()

    def _detach(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leave, self._leave = self._leave, left
        leave(self)

    def leaves(self, done: Callable[[], None]) -> None:
        """Calls `done`, too, once it has ended."""
        leave = self._leave

        def both(stream: Stream) -> None:
            leave(stream)
            done()

        self._leave = both

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def next(self, bytes_max: int = TAKEN_BYTES_MAX) -> list[Batch]:
        """Queued batches up to `bytes_max`, at least one; waits for it. Empty: the stream has ended. One reader at a
        time."""
        if self._initial is not None:
            batch = next(self._initial, None)
            while batch is not None and not batch.events:
                # No events in this turn: yield to the event loop.
                await asyncio.sleep(0)
                batch = next(self._initial, None) if self._initial is not None else None
            if batch is not None:
                return await self._finished([batch])
            self._initial = None
        while not self._queue:
            if self._ended:
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        queue, budget = self._queue, self.budget
        batches: list[Batch] = []
        taken_bytes = 0
        while queue and taken_bytes < bytes_max:
            batch = queue.popleft()
            batches.append(batch)
            taken_bytes += batch.size_bytes
            self.queued_events -= len(batch.events)
            budget.give_back(batch)
        self.queued_bytes -= taken_bytes
        if not queue:
            budget.waiting.pop(self, None)
        return await self._finished(batches)

    async def _finished(self, batches: list[Batch]) -> list[Batch]:
        """Adds stream-specific data: extra columns, and column definitions in the first event."""
        enrich = self.enrich
        if enrich is not None:
            try:
                batches = [await enrich(batch) for batch in batches]
            except StatusError as error:
                batches = [Batch([error_event(error)])]
                self._initial = None
                self._forget()
                self.finish()
        if self._columns_due and batches[0].events and batches[0].events[0].type != "ERROR":
            self._columns_due = False
            first, *rest = batches[0].events
            batches[0] = Batch([self._encoder.with_columns(first, enrich.fields if enrich else ()), *rest])
        for batch in batches:
            self.delivered += len(batch.events)
        return batches


def left(stream: Stream) -> None:
    pass
