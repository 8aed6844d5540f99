"""Clients of the simulated store: the product's StoreClient, with a random workload and a recorder.

A client is a process with its own machine and number; after a kill the next one there has another number."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from minikube_py.env import Clock, Rng
from minikube_py.errors import Compacted, FieldsRedeclared, InvalidRequest, MinikubeError, OutcomeUnknown, RequestError
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import RangeRequest, WatchBatch
from minikube_py.sim.access import Access, RoamingAccess
from minikube_py.sim.history import Request, Watch, WatchPart
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.tasks import wake
from minikube_py.sim.workload import Workload
from minikube_py.sim.world import Process
from minikube_py.store.storage import WatchHandle

REFUSED_PAUSE_S: Final = 0.05
REOPEN_S: Final = (0.002, 0.1)
UNDECLARED_S: Final = (0.05, 0.5)
RESTLESS: Final = 0.05
"""The probability, per batch, that a watching client switches to another member."""
READS_ASTRAY: Final = 0.4
WRITES_ASTRAY: Final = 0.15
"""Share of the requests that go to any member, leader or not."""
RENEW_SHARE: Final = 0.01
"""Share of the requests after which a client restarts, in another session."""


class Rivals(NamedTuple):
    """Writes through the member on one host must be visible to reads through the member on the other."""

    writer: str
    reader: str


@dataclass(slots=True)
class Traffic:
    """The combined load of all clients. `quota`: requests still to begin, by workers; `think_s`: the longest pause
    between two of them; `asides`: additional requests, due at once. `watching`: watches may begin."""

    quota: int = 0
    think_s: float = 0.2
    asides: deque[Request | Rivals] = field(default_factory=deque)
    watching: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        return self.quota > 0 or bool(self.asides)

    async def wait(self) -> None:
        """Returns when there is something to do."""
        while not self.wanted:
            await self._more()

    async def wait_asides(self) -> None:
        """Returns when an additional request is due."""
        while not self.asides:
            await self._more()

    async def _more(self) -> None:
        more = asyncio.get_running_loop().create_future()
        self.waiting.append(more)
        await more

    def ask(self, *asides: Request | Rivals, quota: int = 0) -> None:
        """Adds requests: waiting clients continue, each in its own process."""
        self.asides.extend(asides)
        self.quota += quota
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.get_loop().call_soon(wake, future)


@dataclass(frozen=True, slots=True)
class Watched:
    """The range to watch, and the start revision: 0 is from now on. `roams`: at any member, sometimes switching,
    without a client's retries; otherwise by the product's client."""

    key: bytes
    range_end: bytes
    where: Where | None = None
    start_revision: int = 0
    roams: bool = False


@dataclass(eq=False)
class Client:
    """One run of one client: `workers` send requests concurrently, and `watched` are watched until it ends. With
    `roaming` some of the requests use that."""

    process: Process
    number: int
    access: Access
    traffic: Traffic
    recorder: Recorder
    workers: int
    watched: Sequence[Watched]
    roaming: RoamingAccess | None = None

    def __post_init__(self) -> None:
        self._workload = Workload(Rng(self.process.rng.getrandbits(64)), self.number)

    async def run(self) -> None:
        await self._start()
        await asyncio.gather(self._follow(), self._work_aside(), *[self._work() for _ in range(self.workers)])

    async def _start(self) -> None:
        while True:
            try:
                await self.access.start()
                return
            except MinikubeError:
                await self.process.clock.sleep(REFUSED_PAUSE_S)

    async def _follow(self) -> None:
        while not self.traffic.watching:
            await self.process.clock.sleep(REFUSED_PAUSE_S)
        for watched in self.watched:
            by = self.roaming if watched.roams and self.roaming is not None else self.access
            follower = Follower(self.number, by, self.recorder, self.process.clock, self.process.rng, watched)
            follower.begin(watched.start_revision)

    async def _work(self) -> None:
        traffic = self.traffic
        while True:
            await traffic.wait()
            await self.process.clock.sleep(self.process.rng.random() * traffic.think_s)
            if traffic.quota > 0:
                traffic.quota -= 1
                await self._ask(*self._workload.draw())
                if self.process.rng.random() < RENEW_SHARE:
                    # Requests in flight in the old session must not be executed once it has ended.
                    await self.access.close()
                    await self._start()

    async def _work_aside(self) -> None:
        traffic = self.traffic
        while True:
            await traffic.wait_asides()
            aside = traffic.asides.popleft()
            if not isinstance(aside, Rivals):
                await self._ask(aside, False)
            elif self.roaming is not None:
                put = self._workload.write()
                if await self._ask(put, False, aside.writer):
                    await self._ask(RangeRequest(put.key), False, aside.reader)

    async def _ask(self, request: Request, serializable: bool, host: str = "") -> bool:
        """Whether it was done."""
        number = self.recorder.begin(self.number, request, serializable)
        reads = isinstance(request, RangeRequest)
        share = READS_ASTRAY if reads else WRITES_ASTRAY
        astray = bool(host) or serializable or self.process.rng.random() < share
        try:
            if astray and self.roaming is not None:
                result = await self.roaming.ask(request, serializable, host)
            else:
                result = await self.access.ask(request, serializable)
        except OutcomeUnknown as error:
            self.recorder.end(number, "unknown", None, error)
        except RequestError as error:
            self.recorder.end(number, "refused", None, error)
            if isinstance(error, Compacted):
                memory = self._workload.memory
                memory.compacted = max(memory.compacted, error.compact_revision)
                memory.revision = max(memory.revision, error.compact_revision)
        except MinikubeError as error:
            self.recorder.end(number, "refused", None, error)
            await self.process.clock.sleep(REFUSED_PAUSE_S * self.process.rng.random())
        else:
            self.recorder.end(number, "done", result)
            self._workload.memory.learn(request, result)
            return True
        return False


class Follower:
    """Keeps one watch. A stream that ends is followed by another, from where it stopped. After compaction a new watch
    begins behind it; after a redeclaration of its fields, behind that."""

    def __init__(
        self, client: int, access: Access, recorder: Recorder, clock: Clock, rng: Rng, watched: Watched
    ) -> None:
        self._client = client
        self._access = access
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._watched = watched
        self._restless = RESTLESS if watched.roams else 0.0
        self._watch: Watch
        self._next = 0
        self._part: WatchPart | None = None
        self._handle: WatchHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, start_revision: int) -> None:
        watched = self._watched
        self._watch = Watch(self._client, watched.key, watched.range_end, watched.where, live=True)
        self._recorder.watch(self._watch)
        self._next = start_revision
        self._open()

    def _open(self) -> None:
        watched = self._watched
        part = self._part = self._recorder.part(self._watch, self._next)
        self._handle = self._access.watch(
            watched.key, watched.range_end, self._next, lambda batch: self._came(part, batch), watched.where
        )

    def _came(self, part: WatchPart, batch: WatchBatch) -> None:
        if part is not self._part:
            return
        self._recorder.deliver(self._watch, part, batch)
        error = batch.error
        if error is None:
            self._next = batch.revision + 1
            if self._restless and self._rng.random() < self._restless:
                self._part = None
                if self._handle is not None:
                    self._handle.cancel()
                self._later(self._open, REOPEN_S)
            return
        self._part = None
        if isinstance(error, Compacted):
            self._watch.live = False
            self._later(partial(self.begin, error.compact_revision + 1), REOPEN_S)
        elif isinstance(error, FieldsRedeclared):
            self._watch.live = False
            self._later(partial(self.begin, 0), REOPEN_S)
        else:
            # A watch by undeclared fields may be served soon.
            self._later(self._open, UNDECLARED_S if isinstance(error, InvalidRequest) else REOPEN_S)

    def _later(self, call: Callable[[], None], within_s: tuple[float, float]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._wait(call, self._rng.uniform(*within_s)))

    async def _wait(self, call: Callable[[], None], pause_s: float) -> None:
        await self._clock.sleep(pause_s)
        call()
