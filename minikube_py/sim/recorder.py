"""Records the requests of simulated clients and their answers, in the form the checkers read."""

from __future__ import annotations

from typing import Any

from minikube_py.errors import MinikubeError
from minikube_py.sim.history import Delivery, History, Operation, Request, Status, Watch, WatchPart
from minikube_py.sim.loop import Scheduler


class Recorder:
    """`history` holds ended operations; `finish` adds the unfinished ones. No two records have the same time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.history = History()
        self._scheduler = scheduler
        self._last_us = 0
        self._number = 0
        self._open: dict[int, Operation] = {}

    def now_us(self) -> int:
        self._last_us = max(self._last_us + 1, self._scheduler.now_ns // 1000)
        return self._last_us

    def begin(self, client: int, request: Request, serializable: bool) -> int:
        """The operation's number, for `end`."""
        self._number += 1
        operation = Operation(client, self.now_us(), None, request, "unknown", serializable=serializable)
        self._open[self._number] = operation
        return self._number

    def end(self, number: int, status: Status, result: Any = None, error: MinikubeError | None = None) -> None:
        operation = self._open.pop(number, None)
        if operation is None:
            return
        return_us = None if status == "unknown" else self.now_us()
        ended = operation._replace(return_us=return_us, status=status, result=result, error=error)
        self.history.operations.append(ended)
        if self._scheduler.trace is not None:
            self._scheduler.log(str(ended))

    def abandon(self, client: int) -> None:
        """The client ended: its pending requests stay unknown, its watches are over."""
        for number, operation in list(self._open.items()):
            if operation.client == client:
                self.end(number, "unknown")
        for watch in self.history.watches:
            if watch.client == client:
                watch.live = False

    def watch(self, watch: Watch) -> None:
        self.history.watches.append(watch)

    def part(self, watch: Watch, start_revision: int) -> WatchPart:
        part = WatchPart(start_revision, self.now_us())
        watch.parts.append(part)
        return part

    def deliver(self, watch: Watch, part: WatchPart, batch: Any) -> None:
        part.deliveries.append(Delivery(self.now_us(), batch))
        if self._scheduler.trace is not None:
            text = f"{len(batch.events)} events to {batch.revision} {batch.error or ''}".rstrip()
            self._scheduler.log(f"watch of client {watch.client}: {text}")

    @property
    def waiting(self) -> int:
        return len(self._open)

    def finish(self) -> History:
        for number in list(self._open):
            self.end(number, "unknown")
        return self.history
