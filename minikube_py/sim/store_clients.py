"""Clients of the simulated store: the product's StoreClient, asked by a drawn workload and written down.

A client is a process with a machine and a number of its own; when it is killed, the next one there has another number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from minikube_py.env import Clock, Rng
from minikube_py.errors import Compacted, MinikubeError, OutcomeUnknown, RequestError
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import WatchBatch
from minikube_py.sim.history import Request, Watch, WatchPart
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.workload import Workload
from minikube_py.sim.world import Process
from minikube_py.store.storage import WatchHandle, WatchSink

REFUSED_PAUSE_S: Final = 0.05
REOPEN_S: Final = (0.002, 0.1)


class Access(Protocol):
    """What a client reaches the store by."""

    async def start(self) -> None:
        """Raises: MinikubeError where nobody could be reached."""

    async def ask(self, request: Request, serializable: bool) -> Any:
        """Raises: RequestError, Unavailable: refused. OutcomeUnknown."""

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None
    ) -> WatchHandle: ...


@dataclass(slots=True)
class Traffic:
    """What all clients together are to do. `quota`: requests to be begun yet, by workers; `think_s`: the longest pause
    between two of them; `asides`: requests that somebody wants made besides. `watching`: watches may begin."""

    quota: int = 0
    think_s: float = 0.2
    asides: deque[Request] = field(default_factory=deque)
    watching: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        return self.quota > 0 or bool(self.asides)

    async def wait(self) -> None:
        """Returns when there is something to do."""
        while not self.wanted:
            more = asyncio.get_running_loop().create_future()
            self.waiting.append(more)
            await more

    def ask(self, *asides: Request, quota: int = 0) -> None:
        """There is more to do: whoever waits for that goes on, in a process of its own."""
        self.asides.extend(asides)
        self.quota += quota
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.get_loop().call_soon(_wake, future)


class Client:
    """One life of one client: `workers` ask at the same time, and `watched` are watched until it ends."""

    def __init__(
        self,
        process: Process,
        number: int,
        access: Access,
        traffic: Traffic,
        recorder: Recorder,
        workers: int,
        watched: tuple[tuple[bytes, bytes, Where | None], ...],
    ) -> None:
        self._clock: Clock = process.clock
        self._rng: Rng = process.rng
        self._number = number
        self._access = access
        self._traffic = traffic
        self._recorder = recorder
        self._workers = workers
        self._watched = watched
        self._workload = Workload(Rng(process.rng.getrandbits(64)), number)

    async def run(self) -> None:
        while True:
            try:
                await self._access.start()
                break
            except MinikubeError:
                await self._clock.sleep(REFUSED_PAUSE_S)
        await asyncio.gather(self._follow(), *[self._work() for _ in range(self._workers)])

    async def _follow(self) -> None:
        while not self._traffic.watching:
            await self._clock.sleep(REFUSED_PAUSE_S)
        followers = [
            Follower(self._number, self._access, self._recorder, self._clock, self._rng, *watched)
            for watched in self._watched
        ]
        for follower in followers:
            follower.begin(self._workload.memory.revision if self._rng.random() < 0.5 else 0)

    async def _work(self) -> None:
        traffic = self._traffic
        while True:
            await traffic.wait()
            await self._clock.sleep(self._rng.random() * traffic.think_s)
            if traffic.asides:
                await self._ask(traffic.asides.popleft(), False)
            elif traffic.quota > 0:
                traffic.quota -= 1
                await self._ask(*self._workload.draw())

    async def _ask(self, request: Request, serializable: bool) -> None:
        number = self._recorder.begin(self._number, request, serializable)
        try:
            result = await self._access.ask(request, serializable)
        except OutcomeUnknown as error:
            self._recorder.end(number, "unknown", None, error)
        except RequestError as error:
            self._recorder.end(number, "refused", None, error)
            if isinstance(error, Compacted):
                memory = self._workload.memory
                memory.compacted = max(memory.compacted, error.compact_revision)
                memory.revision = max(memory.revision, error.compact_revision)
        except MinikubeError as error:
            self._recorder.end(number, "refused", None, error)
            await self._clock.sleep(REFUSED_PAUSE_S * self._rng.random())
        else:
            self._recorder.end(number, "done", result)
            self._workload.memory.learn(request, result)


class Follower:
    """Keeps one watch. A stream that ends is followed by another, from where it had got to; one that compaction left
    behind by a new watch."""

    def __init__(
        self,
        client: int,
        access: Access,
        recorder: Recorder,
        clock: Clock,
        rng: Rng,
        key: bytes,
        range_end: bytes,
        where: Where | None,
    ) -> None:
        self._client = client
        self._access = access
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._range = (key, range_end, where)
        self._watch: Watch
        self._next = 0
        self._part: WatchPart | None = None
        self._handle: WatchHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, start_revision: int) -> None:
        key, range_end, where = self._range
        self._watch = Watch(self._client, key, range_end, where, live=True)
        self._recorder.watch(self._watch)
        self._next = start_revision
        self._open()

    def _open(self) -> None:
        key, range_end, where = self._range
        part = self._part = self._recorder.part(self._watch, self._next)
        self._handle = self._access.watch(key, range_end, self._next, lambda batch: self._came(part, batch), where)

    def _came(self, part: WatchPart, batch: WatchBatch) -> None:
        if part is not self._part:
            return
        self._recorder.deliver(self._watch, part, batch)
        if batch.error is None:
            self._next = batch.revision + 1
            return
        self._part = None
        if isinstance(batch.error, Compacted):
            self._watch.live = False
            self._later(lambda: self.begin(batch.error.compact_revision + 1))  # type: ignore[union-attr]
        else:
            self._later(self._open)

    def _later(self, call: Any) -> None:
        self._task = asyncio.get_running_loop().create_task(self._wait(call))

    async def _wait(self, call: Any) -> None:
        await self._clock.sleep(self._rng.uniform(*REOPEN_S))
        call()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
