"""Long work in slices between the loop's other work: snapshots of the state machine, and states restored from
snapshots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import TypeVar, cast

from minikube_py.env import Clock
from minikube_py.store.replica import Replica
from minikube_py.store.retry import Retry
from minikube_py.store.room import FULL, explained

SLICE_S = 0.003
PAUSE_S = 0.006
"""A slice of the loop's time, then a pause twice as long: at most a third of a busy loop."""

Sync = Callable[[], None]
End = TypeVar("End")
Wait = Callable[[Sync], Awaitable[None]]


async def drive(
    steps: Generator[Sync | None, None, End], wait: Wait, clock: Clock, pause_s: float | None = None
) -> End:
    """Runs steps to their end and returns their result; `wait` awaits each item that is a sync. `pause_s`: the pause
    after each item; None: a pause after each slice of time. Raises: what the steps raise."""
    slice_end_s = clock.monotonic_s() + SLICE_S
    try:
        while True:
            sync = next(steps)
            try:
                if sync is not None:
                    await wait(sync)
            except OSError as error:
                # The code that yielded the sync knows what to undo.
                steps.throw(error)
            if pause_s is not None or clock.monotonic_s() >= slice_end_s:
                await clock.sleep(PAUSE_S if pause_s is None else pause_s)
                slice_end_s = clock.monotonic_s() + SLICE_S
    except StopIteration as end:
        return cast(End, end.value)
    except BaseException:
        # An error while they close must not hide a cancellation: the canceller would wait forever.
        with suppress(OSError):
            steps.close()
        raise


class Snapshotter:
    """Takes snapshots while the member serves, and counts them."""

    def __init__(self, wait: Wait, clock: Clock) -> None:
        self._wait = wait
        self._clock = clock
        self._taken = 0
        self._last_duration_s = 0.0
        self._taken_at_s: float | None = None
        self.retry = Retry(clock)

    async def take(self, replica: Replica) -> None:
        """Returns when it is durable and what it replaces is removed. Raises: OSError, FolderLost."""
        start_s = self._clock.monotonic_s()
        try:
            await drive(replica.take_snapshot(), self._wait, self._clock)
        except OSError as error:
            self.retry.failed(explained(error, replica.files.disk), error.errno in FULL)
            raise
        self.retry.succeeded()
        self._taken += 1
        self._taken_at_s = self._clock.monotonic_s()
        self._last_duration_s = self._taken_at_s - start_s

    @property
    def age_s(self) -> float | None:
        """Since the last one that this member took in this run."""
        return None if self._taken_at_s is None else self._clock.monotonic_s() - self._taken_at_s

    def metrics(self, prefix: str) -> dict[str, float]:
        return {
            prefix + "snapshots_total": self._taken,
            prefix + "snapshot_failures_total": self.retry.failures,
            prefix + "snapshot_duration_seconds": self._last_duration_s,
        }
