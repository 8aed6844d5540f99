"""Linearizable reads share rounds of Raft's ReadIndex: all that begin within one turn become one.

A round is identified by a context that is never reused, even after a restart, so that a late answer to an earlier
attempt confirms nothing (etcd#20418). A round without an answer is repeated; time is counted in ticks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from minikube_py.errors import MinikubeError
from minikube_py.raft.message import LogIndex
from minikube_py.raft.ready import ReadState

ReadDone = Callable[[MinikubeError | None], None]
"""Called once when the state may be read, or with the reason why not; must not raise."""


class _Waiting(NamedTuple):
    since_tick: int
    done: ReadDone


class ReadRounds:
    """Reads that wait to be asked, for the answer, or for the state to reach that answer's index."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._number = 0
        self.size = 0
        """All waiting reads."""
        self._new: list[_Waiting] = []
        self._again: list[_Waiting] = []
        self._asked: dict[bytes, list[_Waiting]] = {}
        self._confirmed: deque[tuple[LogIndex, list[_Waiting]]] = deque()

    @property
    def pending(self) -> bool:
        """Some have not been asked yet."""
        return bool(self._new)

    def add(self, done: ReadDone, tick: int) -> None:
        self.size += 1
        self._new.append(_Waiting(tick, done))

    def ask(self) -> bytes:
        """Starts one round for all waiting reads; its context."""
        self._number += 1
        context = b"%016x%x" % (self._seed, self._number)
        self._asked[context], self._new = self._new, []
        return context

    def answered(self, answer: ReadState) -> None:
        """Without an index the reads are asked again at the next tick: the leader cannot confirm them yet."""
        waiting = self._asked.pop(answer.context, [])
        if answer.index is None:
            self._again += waiting
        elif waiting:
            self._confirmed.append((answer.index, waiting))

    def ready(self, applied: LogIndex) -> list[ReadDone]:
        """Reads whose index has been reached."""
        found: list[ReadDone] = []
        while self._confirmed and self._confirmed[0][0] <= applied:
            found += [done for _, done in self._confirmed.popleft()[1]]
        self.size -= len(found)
        return found

    def expired(self, tick: int, wait_ticks: int) -> list[ReadDone]:
        """Call this each tick. Reads that have waited longer than `wait_ticks` without a leader to ask."""
        if self._again:
            self._new, self._again = self._again + self._new, []
        late = [waiting.done for waiting in self._new if tick - waiting.since_tick > wait_ticks]
        if late:
            self._new = [waiting for waiting in self._new if tick - waiting.since_tick <= wait_ticks]
            self.size -= len(late)
        return late

    def take_all(self) -> list[ReadDone]:
        """All waiting reads; the caller takes them over."""
        groups = [*(waiting for _, waiting in self._confirmed), *self._asked.values(), self._again, self._new]
        self._confirmed.clear()
        self._asked, self._again, self._new, self.size = {}, [], [], 0
        return [waiting.done for group in groups for waiting in group]
