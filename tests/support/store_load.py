"""Clients of real members, recorded and checked like those of the simulator."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from patience import PATIENCE_S, until
from store_members import Members

from minikube_py.env import SystemClock
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import DeclareFields, RangeRequest
from minikube_py.sim.access import asked_of
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.sim.checkers.leases import Bounds
from minikube_py.sim.checkers.verdict import Verdict
from minikube_py.sim.clients import Client, Traffic, Watched
from minikube_py.sim.history import History, KeepAlive, Operation, Request, Watch
from minikube_py.sim.judge import judge
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.workload import ALL, NODE_RANGE, WHERES
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.storage import WatchHandle, WatchSink

ENDLESS = 1 << 60
EVERYTHING = RangeRequest(ALL, ALL)
PROGRESS_WITHIN_S = PATIENCE_S
GRACE_US = 20_000_000
"""How long a lease's expiry may take beyond its TTL on a shared machine."""
CLOCK_DRIFT = 1.01
"""Processes of one machine share a clock; rounding errors are below this."""
WATCHED = ((ALL, ALL), (b"/r/", b"/r0"), (b"/m/", b"/m0"), (b"/l/", b"/l0"))


class RealTime:
    """For the simulator's recorder: the time of this process, without step-by-step observation."""

    trace = None

    @property
    def now_ns(self) -> int:
        return time.monotonic_ns()


class RealProcess(NamedTuple):
    clock: SystemClock
    rng: random.Random


class RealAccess:
    """sim.access.Access, by a StoreClient over real sockets."""

    def __init__(self, endpoints: Sequence[Endpoint], process: RealProcess) -> None:
        self._endpoints, self._process = endpoints, process
        self.client: StoreClient | None = None

    async def start(self) -> None:
        client = StoreClient(self._endpoints, self._process.clock, self._process.rng)
        await client.start()
        self.client = client

    async def ask(self, request: Request, serializable: bool) -> Any:
        assert self.client is not None
        return await asked_of(self.client, request, serializable)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None
    ) -> WatchHandle:
        assert self.client is not None
        return self.client.watch(key, range_end, start_revision, sink, where)

    async def close(self) -> None:
        if self.client is not None:
            await self.client.close()


class Life:
    """One run of a client: its number, its access to the store, and its tasks."""

    def __init__(self, number: int, access: RealAccess, task: asyncio.Task[None]) -> None:
        self.number, self.access, self.task = number, access, task


class StoreLoad:
    """All clients of one run. The first one watches everything, so that every event is observed."""

    def __init__(
        self, cluster: Members, rng: random.Random, clients: int = 3, workers: int = 3, think_s: float = 0.02
    ) -> None:
        self._cluster, self._rng, self._workers = cluster, rng, workers
        self.recorder = Recorder(RealTime())  # type: ignore[arg-type]
        self.traffic = Traffic(0, think_s)
        self._lives: dict[int, Life] = {}
        self._born = 0
        self._settled_us = 0
        self._clients = clients

    # -- the run ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> StoreLoad:
        for _ in range(self._clients):
            self.be_born()
        self.traffic.ask(DeclareFields(NODES))
        await self._idle("the fields are declared")
        self.traffic.watching = True
        self.traffic.ask(quota=ENDLESS)
        await self.progress(20)
        return self

    async def __aexit__(self, *_: object) -> None:
        for life in list(self._lives.values()):
            await self._end(life)

    def be_born(self) -> None:
        """Starts one more client."""
        self._born += 1
        process = RealProcess(SystemClock(), random.Random(self._rng.getrandbits(64)))
        access, client = self._made(process, self._born)
        self._lives[self._born] = Life(self._born, access, asyncio.create_task(client.run()))

    def _made(self, process: RealProcess, number: int) -> tuple[RealAccess, Client]:
        access = RealAccess(self._cluster.endpoints(), process)
        watched = [Watched(*self._rng.choice(WATCHED)), Watched(*NODE_RANGE, self._rng.choice(WHERES))]
        if number == 1:
            watched.append(Watched(ALL, ALL))
        given: Any = process, number, access, self.traffic, self.recorder, self._workers, watched
        return access, Client(*given)

    async def die(self) -> None:
        """Kills any client but the first: its pending requests may or may not be done."""
        life = self._lives[self._rng.choice([number for number in self._lives if number != 1])]
        self.recorder.abandon(life.number)
        await self._end(life)
        self.be_born()

    async def _end(self, life: Life) -> None:
        del self._lives[life.number]
        life.task.cancel()
        (ended,) = await asyncio.gather(life.task, return_exceptions=True)
        await life.access.close()
        if not isinstance(ended, asyncio.CancelledError):
            raise AssertionError(f"client {life.number} ended by itself: {ended!r}") from ended

    async def progress(self, operations: int) -> None:
        """Returns when this many more have been done."""
        wanted = self._done() + operations

        async def done() -> bool:
            return self._done() >= wanted

        await until(done, lambda: f"{operations} operations done, {wanted - self._done()} missing", PROGRESS_WITHIN_S)

    async def ask(self, *requests: Request) -> None:
        """Additional requests, by any client; returns when all have ended."""
        self.traffic.ask(*requests)
        wanted = {id(request) for request in requests}

        async def ended() -> bool:
            return wanted <= {id(operation.request) for operation in self.history.operations}

        await until(ended, f"{len(requests)} requests end", PROGRESS_WITHIN_S)

    def _done(self) -> int:
        return sum(operation.status == "done" for operation in self.recorder.history.operations)

    async def finish(self, leases_s: float = 0.0) -> dict[str, Verdict]:
        """Once all is healthy: a few more requests, nothing after them, and a verdict of each checker. `leases_s`: the
        time for leases to expire."""
        cluster = self._cluster
        await cluster.settle()
        self._settled_us = self.recorder.now_us()
        await self.progress(20)
        self.traffic.quota = 0
        await self._idle("all requests are answered")
        await asyncio.sleep(leases_s)
        found: list[tuple[History, list[MemberView]]] = []

        async def everything_is_seen() -> bool:
            self.traffic.ask(EVERYTHING)
            await self._idle("a last read is answered")
            views = await cluster.views()
            last = self._last_read()
            shown = {_shown(watch) for watch in self.history.watches if watch.live}
            if {view.revision for view in views} | shown != {last}:
                # Something has not arrived yet, or a lease has expired meanwhile.
                return False
            found.append((_copy(self.history), views))
            return True

        await until(everything_is_seen, "what happened has been seen by all", PROGRESS_WITHIN_S)
        bounds = Bounds(CLOCK_DRIFT, 1 / CLOCK_DRIFT, self._settled_us, GRACE_US)
        [(history, views)] = found
        return await asyncio.to_thread(self.judged, history, views, bounds)

    def judged(self, history: History, views: Sequence[MemberView], bounds: Bounds) -> dict[str, Verdict]:
        return judge(history, views, None, bounds)

    def _last_read(self) -> int:
        """The revision of the last answered read of everything; 0 before the first."""
        answered = (each.result for each in reversed(self.history.operations) if each.request is EVERYTHING)
        return next((result.revision for result in answered if result is not None), 0)

    async def _idle(self, what: str) -> None:
        async def idle() -> bool:
            for life in self._lives.values():
                if life.task.done():
                    life.task.result()
            return not self.traffic.wanted and not self.recorder.waiting

        await until(idle, what, PROGRESS_WITHIN_S)

    # -- the results --------------------------------------------------------------------------------------------------

    @property
    def history(self) -> History:
        return self.recorder.history

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def stall_s(self, since_us: int, until_us: int = 1 << 62) -> float:
        """The longest time in [since, until) without an acknowledged write."""
        returns = [each.return_us for each in self.history.operations if _is_write(each) and each.return_us]
        moments = sorted(each for each in returns if since_us <= each < until_us)
        return max((later - earlier for earlier, later in zip([since_us, *moments], moments)), default=0) / 1e6

    def counts(self) -> Counter[str]:
        history = self.history
        found = Counter(each.status for each in history.operations)
        found["operations"] = len(history.operations)
        found["watches"] = len(history.watches)
        found["watch events"] = sum(
            len(each.batch.events) for watch in history.watches for part in watch.parts for each in part.deliveries
        )
        return found


def _is_write(operation: Operation) -> bool:
    return operation.status == "done" and not isinstance(operation.request, RangeRequest | KeepAlive)


def _copy(history: History) -> History:
    """The current state, independent of later changes."""
    watches = [
        replace(watch, parts=[replace(part, deliveries=list(part.deliveries)) for part in watch.parts])
        for watch in history.watches
    ]
    return History(list(history.operations), watches)


def _shown(watch: Watch) -> int:
    return max((each.batch.revision for part in watch.parts for each in part.deliveries), default=0)
