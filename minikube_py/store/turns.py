"""A replica's turns on an event loop: all input becomes one write, one sync and one message per peer.

At most one sync is in flight; what arrives meanwhile is the next batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from minikube_py.env import Clock
from minikube_py.store.applying import Failed, describe
from minikube_py.store.fsync import Histogram, SyncRunner
from minikube_py.store.links import NoLinks, PeerLinks
from minikube_py.store.replica import Replica
from minikube_py.store.room import explained

GATHER_MIN: Final = 16
GATHER_S: Final = 0.001
TURN_S: Final = 0.02
"""After this long the loop gets a turn before more entries are applied: heartbeats must not wait."""


class Turns:
    """Runs `replica`. `turned` is called at the end of each turn, `fail` when the member cannot continue; then set
    `stopped`. `due`: a replica turn runs at the end of this turn of the loop."""

    def __init__(
        self, replica: Replica, fsync: SyncRunner, clock: Clock, turned: Callable[[], None], fail: Callable[[str], None]
    ) -> None:
        self._replica = replica
        self._fsync = fsync
        self._clock = clock
        self._turned = turned
        self._fail = fail
        self._loop: asyncio.AbstractEventLoop
        self._idle = asyncio.Event()
        self._in_turn = False
        self._gathered = 0
        self._gather_until_s = 0.0
        self.links: PeerLinks = NoLinks()
        self.due = False
        self.stopped = False
        self.batches = Histogram((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))

    def begin(self, links: PeerLinks | None) -> None:
        """On the running loop."""
        self._loop = asyncio.get_running_loop()
        self.links = links or self.links

    def stop(self) -> None:
        self.stopped = True
        self._idle.set()

    async def settle(self) -> None:
        """Returns when everything possible here is done, or the member has failed."""
        self._turn()
        while (self.due or self._replica.syncing) and not self.stopped:
            self._idle.clear()
            await self._idle.wait()

    def soon(self) -> None:
        """Schedules a turn."""
        if not self.due:
            self.due = True
            self._loop.call_soon(self._turn)

    def gather(self) -> None:
        """Schedules a turn for a proposal, of which more may follow. Only if no turn is due."""
        self.due = True
        self._gathered = 0
        self._gather_until_s = self._clock.monotonic_s() + GATHER_S
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Waits another turn of the loop while turns are short and proposals keep arriving, to sync them together. A
        few proposals do not wait, and none waits behind a long turn, which costs more than a sync."""
        waiting = self._replica.waiting
        growing = waiting >= max(GATHER_MIN, self._gathered * 2)
        if growing and self._clock.monotonic_s() < self._gather_until_s:
            self._gathered = waiting
            self._loop.call_soon(self._gather)
        else:
            self._turn()

    def _turn(self) -> None:
        """Runs once at the end of a turn of the loop with input, and when a sync has ended."""
        self.due = False
        self._in_turn = True
        replica = self._replica
        until_s = 0.0 if replica.alone else self._clock.monotonic_s() + TURN_S
        try:
            while not self.stopped and (turn := replica.turn()) is not None:
                messages, sync, entries = turn
                if messages:
                    self.links.send(messages)
                if sync is not None:
                    self._turned()  # A leader elected in this turn owes heartbeats: its first sync is threaded, too.
                    self.batches.observe(entries)
                    self._fsync.run(sync, self._synced)
                if until_s and self._clock.monotonic_s() > until_s:
                    self.soon()
                    break
            if replica.unfinished:
                self.soon()
            self._turned()
        except Exception as error:
            self._fail_of(error)
        finally:
            self._in_turn = False
        if not replica.syncing:
            self._idle.set()

    def _synced(self, error: OSError | None) -> None:
        if self.stopped:
            return
        if error is not None:
            self._fail(f"cannot sync the log: {explained(error, self._replica.files.disk)}")
            return
        try:
            after = self._replica.synced()
            if after:
                self.links.send(after)
        except Exception as failed:
            self._fail_of(failed)
            return
        if not self._in_turn:
            self._turn()

    def _fail_of(self, error: Exception) -> None:
        """A turn failed halfway and cannot be resumed: waiters would wait forever."""
        self._fail(str(error) if isinstance(error, Failed) else f"cannot continue: {describe(error)}")
