"""Syncs of simulated members as by `FsyncRunner` on a fast disk: on the loop, except for leaders."""

from __future__ import annotations

from collections.abc import Callable

from minikube_py.sim.syncs import SimSyncs
from minikube_py.store.fsync import Done, FsyncMode

LONG_S = 0.1


class InlineSyncs(SimSyncs):
    """`long`: how many blocked a loop for `LONG_S` or longer, of all members. `leaders_too`: also for leaders."""

    long = 0
    leaders_too = False
    _mode: FsyncMode = "auto"

    def use(self, mode: FsyncMode) -> None:
        self._mode = mode

    def run(self, sync: Callable[[], None], done: Done) -> None:
        if self._threaded or getattr(sync, "syncs", 1) > 1:
            super().run(sync, done)
            return
        self._charge()
        self._end(self._disk.sequence, sync, done)

    async def wait(self, sync: Callable[[], None]) -> None:
        if self._threaded:
            await super().wait(sync)
            return
        self._charge()
        self._disk.sync_as_of(self._disk.sequence, sync)

    @property
    def _threaded(self) -> bool:
        return self._mode == "thread" and not self.leaders_too

    def _charge(self) -> None:
        duration_s = self._duration_s()
        InlineSyncs.long += duration_s >= LONG_S
        self._loop.charge(duration_s)
