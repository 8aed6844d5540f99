"""One run of level 2: a store, clients and faults from a seed; then everything heals, and what happened is judged.

    python -m minikube_py.sim.store_run 17            one seed
    python -m minikube_py.sim.store_run 17 --steps    step by step; the same to the byte, on any machine
    python -m minikube_py.sim.store_run 100-199       a hundred
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from minikube_py.env import Rng
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import DeclareFields, RangeRequest
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.sim.checkers.leases import Bounds
from minikube_py.sim.checkers.verdict import violation
from minikube_py.sim.faults import DRIFT_MAX, FaultKind, Plan, drawn_plan, schedule
from minikube_py.sim.history import Request
from minikube_py.sim.judge import judge
from minikube_py.sim.loop import LoopOptions, SimFailure
from minikube_py.sim.network import LinkQuality
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.run import Outcome
from minikube_py.sim.store_access import StoreAccess
from minikube_py.sim.store_clients import Access, Client, Traffic
from minikube_py.sim.store_faults import FaultPlayer
from minikube_py.sim.store_world import SimStore
from minikube_py.sim.syncs import SyncTimes
from minikube_py.sim.workload import ALL, NODE_RANGE, TTLS_S, WHERES
from minikube_py.sim.world import Process, World, WorldOptions

Told = Callable[[str], None]
Reach = Callable[[Process, Sequence[str]], Access]
"""How a client on that machine reaches the members on those hosts."""

BEGIN_S: Final = 30.0
SETTLE_S: Final = 30.0
"""How long a healed store may take to be well, with everything restarted."""
FINISH_S: Final = 15.0
"""How long clients may take for what they have begun, and for a few requests more, once it is."""
LEASES_S: Final = max(TTLS_S) + 2.0
GRACE_US: Final = 2_500_000
AFTERWARDS: Final = 4
TRIES: Final = 20
THEMED: Final = 0.4
THEMES: Final[tuple[tuple[FaultKind, ...], ...]] = (
    ("crash", "torn_sync", "slow_sync"),
    ("cut", "clog", "pause", "clock"),
    ("kill", "loss", "double", "delay", "pause"),
    ("grow", "shrink", "wipe", "transfer", "crash", "snapshot"),
    ("full", "bad_sync", "slow_sync", "rot", "crash"),
)
"""Kinds of faults that have something to do with each other; this share of the runs has one such set."""
QUIET: Final = 8
"""Plans with fewer faults are drawn anew most of the time: this level costs more than the other."""


@dataclass(frozen=True, slots=True)
class StoreRunOptions:
    """All that a seed decides before anything runs. `client_ends`: how often a client is killed; `rollings`: how often
    all members are restarted in good order, one after the other."""

    seed: int
    world: WorldOptions
    plan: Plan
    operations: int = 200
    span_us: int = 7_000_000
    clients: int = 3
    workers: int = 2
    watches: int = 2
    think_s: float = 0.1
    client_ends: int = 0
    rollings: int = 0


def drawn_options(seed: int) -> StoreRunOptions:
    rng = Rng(f"store options {seed}")
    span_us = 7_000_000
    plan = drawn_plan(rng, span_us, aimed=True)
    while plan.count < QUIET and rng.random() < 0.8:
        plan = drawn_plan(rng, span_us, aimed=True)
    if rng.random() < THEMED:
        plan = replace(plan, count=rng.choice((12, 24, 36)), kinds=rng.choice(THEMES))
    return StoreRunOptions(
        seed,
        drawn_world(rng),
        plan,
        span_us=span_us,
        clients=rng.choice((2, 3, 4)),
        workers=rng.choice((1, 2, 3)),
        think_s=rng.choice((0.01, 0.1, 0.3)),
        client_ends=rng.choice((0, 0, 1, 3)),
        rollings=rng.choice((0, 0, 0, 1, 2)),
    )


def drawn_world(rng: Rng) -> WorldOptions:
    """Machines, links and loops of their own for each seed."""
    return WorldOptions(
        loop=LoopOptions(
            shuffle=rng.random() < 0.7,
            jitter_s=rng.choice((0.0, 0.001, 0.01)),
            turn_s=rng.choice((0.00002, 0.0001, 0.0005)),
            stall_every=rng.choice((0, 0, 500, 5000)),
            stall_s=rng.choice((0.01, 0.1, 1.0)),
            steps_at_once_max=200_000,
        ),
        link=LinkQuality(
            delay_s=rng.choice((0.0001, 0.001, 0.01)),
            jitter_s=rng.choice((0.0001, 0.001, 0.01)),
            split=rng.choice((0.0, 0.1, 0.5)),
            give_up_s=rng.choice((5.0, 20.0)),
            connect_timeout_s=10.0,
        ),
        syncs=SyncTimes(rng.choice((0.0002, 0.002, 0.02)), rng.choice((0.0001, 0.002)), rng.choice((0, 50)), 0.2),
        drift_max=rng.choice((0.0, 0.0001, 0.01)),
        wall_offset_max_s=rng.choice((0.0, 100.0)),
        reading_s=rng.choice((0.0, 0.00001, 0.0002)),
    )


def run_seed(seed: int, told: Told | None = None) -> Outcome:
    """The run of one seed, judged. Equal for equal seeds, to the last line that is `told`."""
    return StoreRun(drawn_options(seed), told).go()


class StoreRun:
    """One run in the making. `go` runs it to its end; afterwards `world`, `store` and `recorder` can be looked at."""

    def __init__(self, options: StoreRunOptions, told: Told | None = None, reach: Reach = StoreAccess) -> None:
        self.options = options
        rng = self._rng = Rng(f"store run {options.seed}")
        self.world = World(options.seed, options.world)
        self.world.scheduler.trace = told
        self.recorder = Recorder(self.world.scheduler)
        self.traffic = Traffic(0, options.think_s)
        plan = options.plan
        self.store = SimStore(self.world, Rng(rng.getrandbits(64)), plan.members, plan.spare, self.traffic)
        self.faults = FaultPlayer(self.store, Rng(rng.getrandbits(64)))
        self._schedule = schedule(Rng(rng.getrandbits(64)), plan)
        self._reach = reach
        self._clients: dict[str, int] = {}
        self._client_lives = 0
        self._settled_us = 0
        self._views: list[MemberView] = []
        self._asides: list[asyncio.Task[None]] = []

    def go(self) -> Outcome:
        outcome = Outcome(self.options.seed)
        problem = ""
        try:
            self.world.drive(self._story)
        except SimFailure as failure:
            problem = str(failure)
        self._judge(outcome, self.store.problem or problem)
        self._count(outcome.counts)
        return outcome

    def _judge(self, outcome: Outcome, problem: str) -> None:
        history = self.recorder.finish()
        bounds = Bounds(DRIFT_MAX * 1.03)
        if problem:
            outcome.verdicts["run"] = violation(problem)
            self._views = []
        else:
            bounds = Bounds(DRIFT_MAX * 1.03, 1 / DRIFT_MAX / 1.03, self._settled_us, GRACE_US)
        outcome.verdicts |= judge(history, self._views, self.store.agreement, bounds)

    def fingerprint(self) -> str:
        """Equal for equal runs, and hardly ever for others."""
        return self.world.fingerprint()

    # -- the story ----------------------------------------------------------------------------------------------------

    async def _story(self) -> None:
        store, options, loop = self.store, self.options, asyncio.get_running_loop()
        self._asides.append(loop.create_task(store.watch_over()))
        for place in store.places:
            store.start(place)
        for number in range(options.clients):
            self._start_client(f"client-{number}")
        await self._have(DeclareFields(NODES), BEGIN_S, "begin")
        self.traffic.watching = True
        self.traffic.ask(quota=options.operations)
        self._asides += [loop.create_task(work) for work in (self._end_clients(), self._roll())]
        begin_s = self.world.scheduler.now_s
        await self.faults.play(self._schedule)
        await asyncio.sleep(max(0.0, begin_s + options.span_us / 1e6 - self.world.scheduler.now_s))
        await self._heal()
        await self._until(lambda: not store.settled(), SETTLE_S, "settle")
        self._settled_us = self.recorder.now_us()
        self.traffic.think_s = min(self.traffic.think_s, 0.05)
        self.traffic.ask(quota=options.clients * options.workers * AFTERWARDS)
        await self._until(self._idle, FINISH_S, "answer")
        await asyncio.sleep(LEASES_S)
        # What nobody has seen, as the end of a lease, could not be judged.
        await self._have(RangeRequest(ALL, ALL), FINISH_S, "answer")
        await self._until(lambda: not store.settled() and self._watches_are_done(), SETTLE_S, "converge")
        store.look()
        self._views = store.views()

    async def _have(self, request: Request, bound_s: float, what: str) -> None:
        """Asks until it is done: a client with little patience may be refused while members look for a leader."""
        for _ in range(TRIES):
            self.traffic.ask(request)
            await self._until(self._idle, bound_s, what)
            if self.recorder.history.operations[-1].status == "done":
                return
        raise SimFailure(f"{type(request).__name__} was not done in {TRIES} tries")

    async def _heal(self) -> None:
        self.faults.end_all()
        self.world.calm()
        for place in self.store.places:
            place.down = 0
            self.world.resume(place.host)
            self.store.start(place)

    async def _until(self, holds: Callable[[], bool], bound_s: float, what: str) -> None:
        until_s = self.world.scheduler.now_s + bound_s
        while not holds():
            if self.store.problem:
                raise SimFailure(self.store.problem)
            if self.world.scheduler.now_s >= until_s:
                raise SimFailure(f"it did not {what} within {bound_s:g} s: {self._missing()}")
            await asyncio.sleep(0.02)

    def _missing(self) -> str:
        missing = [self.store.settled()]
        if not self._idle():
            missing.append(f"{self.recorder.waiting} requests wait, {self.traffic.quota} are not begun")
        if not self._watches_are_done():
            missing.append("a watch is not up to date")
        return "; ".join(filter(None, missing))

    def _idle(self) -> bool:
        return not self.traffic.wanted and not self.recorder.waiting

    def _watches_are_done(self) -> bool:
        """Every watch that is served has been told of all there is."""
        members = [place.member for place in self.store.running() if place.member is not None]
        revision = max((member.state.revision for member in members), default=0)
        return all(
            any(part.told_until >= revision for part in watch.parts[-1:])
            for watch in self.recorder.history.watches
            if watch.live
        )

    async def _roll(self) -> None:
        """Rolling restarts, as for an upgrade; beside whatever else goes on."""
        for _ in range(self.options.rollings):
            await asyncio.sleep(self._rng.random() * self.options.span_us / 1e6 / self.options.rollings)
            for place in self.store.places:
                await self.store.stop(place)
                await asyncio.sleep(self._rng.random())

    # -- clients ------------------------------------------------------------------------------------------------------

    def _start_client(self, host: str) -> None:
        hosts = [place.host for place in self.store.places]

        async def main(process: Process) -> None:
            self._client_lives += 1
            number = self._clients[host] = self._client_lives
            watched = tuple([self._watched() for _ in range(self.options.watches)])
            access = self._reach(process, hosts)
            client = Client(process, number, access, self.traffic, self.recorder, self.options.workers, watched)
            await client.run()

        self.world.start(host, main)

    def _watched(self) -> tuple[bytes, bytes, Where | None]:
        kind = self._rng.random()
        if kind < 0.3:
            return (*NODE_RANGE, self._rng.choice(WHERES))
        if kind < 0.6:
            return ALL, ALL, None
        return self._rng.choice(((b"/r/", b"/r0", None), (b"/m/", b"/m0", None), (b"/l/", b"/l0", None)))

    async def _end_clients(self) -> None:
        """Clients die too: what they waited for may or may not be done."""
        for _ in range(self.options.client_ends):
            await asyncio.sleep(self._rng.random() * self.options.span_us / 1e6 / self.options.client_ends)
            host = self._rng.choice(list(self._clients))
            if self.world.running(host) is None:
                continue
            self.world.kill(host, silently=self._rng.random() < 0.5)
            self.recorder.abandon(self._clients[host])
            await asyncio.sleep(self._rng.random() * 0.5)
            self.world.start(host)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _count(self, counts: Counter[str]) -> None:
        operations, store, scheduler = self.recorder.history.operations, self.store, self.world.scheduler
        counts["operations"] = len(operations)
        for status in ("done", "refused", "unknown"):
            counts[status] = sum(each.status == status for each in operations)
        counts["steps"] = scheduler.steps
        counts["segments"] = self.world.network.segments
        counts["elections"] = store.counts.elections
        counts["entries"] = store.agreement.last_index
        counts["membership changes"] = store.counts.changes
        counts["rejoins"] = store.counts.rejoins
        counts["members stopped"] = store.counts.stops
        counts["snapshots installed"] = store.counts.snapshots_installed
        counts["watch batches"] = sum(
            len(part.deliveries) for watch in self.recorder.history.watches for part in watch.parts
        )
        counts["clients"] = self._client_lives
        counts["virtual ms"] = scheduler.now_ns // 1_000_000
        counts["faults"] = sum(self.faults.counts.values())
        counts["faults left out"] = sum(self.faults.left_out.values())
        for kind, count in self.faults.counts.items():
            counts[f"fault {kind}"] = count
        for how, count in store.counts.ends.items():
            counts[f"members {how}"] = count


def play_seeds(arguments: Sequence[str], kind: type[StoreRun]) -> int:
    """`SEED` or `FIRST-LAST`, and `--steps`. Returns 1 where something was violated."""
    first, _, last = arguments[0].partition("-")
    told = print if "--steps" in arguments else None
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        start_s = time.perf_counter()
        run = kind(drawn_options(seed), told)
        outcome = run.go()
        rate = outcome.counts["operations"] / (time.perf_counter() - start_s)
        ended = "VIOLATION" if outcome.violations else "undecided" if outcome.undecided else "ok"
        names = ("operations", "unknown", "refused", "faults", "elections", "membership changes", "rejoins")
        counts = ", ".join(f"{outcome.counts[name]} {name}" for name in names)
        # The rate goes to the other stream: all else is the same for the same seed.
        print(f"seed {seed}: {ended}: {counts}; {run.fingerprint()}", flush=True)
        print(f"  {rate:.0f} operations a second", file=sys.stderr, flush=True)
        for name, verdict in outcome.verdicts.items():
            if not verdict.ok:
                failed += verdict.outcome == "violation"
                print(f"  {name}: {verdict.outcome}: {verdict.text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(play_seeds(sys.argv[1:], StoreRun))
