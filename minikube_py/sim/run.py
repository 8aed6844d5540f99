"""One simulated history: a store, clients and faults from a seed; then everything heals, and the history is checked.

Phases: faults and load; everything heals, and within a bound there must be a leader, all members alike and new requests
answered; leases end; at last every member is queried about its past, and the checkers run. The code is the product's:
members, links, servers and clients, on a loop in virtual time (docs/adr/0010-the-swarm-runs-the-product.md)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from minikube_py.env import Rng
from minikube_py.errors import NoSpace
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Where
from minikube_py.mvcc.successor import FIRST_REVISION
from minikube_py.mvcc.types import DeclareFields, DeclareIndex, RangeRequest
from minikube_py.sim import declared_fields
from minikube_py.sim.access import Access, RoamingAccess, StoreAccess
from minikube_py.sim.audit import AUDITOR, Audit
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.sim.checkers.leases import Bounds
from minikube_py.sim.checkers.verdict import Verdict, violation
from minikube_py.sim.clients import Client, Rivals, Traffic, Watched
from minikube_py.sim.cluster import Place, SimCluster
from minikube_py.sim.fault_player import FaultPlayer
from minikube_py.sim.fault_schedule import drawn_apart, drawn_plan, named_schedule
from minikube_py.sim.faults import DRIFT_MAX, Fault, Plan
from minikube_py.sim.history import Request
from minikube_py.sim.judge import judge
from minikube_py.sim.loop import LoopOptions, SimFailure, shuffle
from minikube_py.sim.member_process import CONFIG
from minikube_py.sim.network import LinkQuality
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.syncs import SyncTimes
from minikube_py.sim.workload import ALL, NODE_RANGE, TTLS_S, WHERES
from minikube_py.sim.world import Process, World, WorldOptions
from minikube_py.store.member_config import TICK_S

Told = Callable[[str], None]
Reach = Callable[[Process, Sequence[str]], Access]
"""How a client on that machine reaches the members on those hosts."""

SPAN_US: Final = 7_000_000
BEGIN_S: Final = 30.0
SETTLE_S: Final = 30.0
"""The time, once nothing fails any more, within which there must be a leader, all members equal, and those that lost
their disk voters again."""
FINISH_S: Final = 15.0
"""And every new request answered within it."""
LEASES_S: Final = max(TTLS_S) + 2.0
GRACE_US: Final = 2_500_000
AFTERWARDS: Final = 4
"""Requests of each worker once all is healthy."""
TRIES: Final = 20
LOOK_S: Final = 0.02
MINORITY_DOWN_SHARE: Final = 0.3
APPEND_BYTES: Final = (1 << 20, 1 << 20, 1)
"""The size limit of a message. With space for only one entry, those of an earlier term are acknowledged separately."""
WATCHED: Final = (
    Watched(ALL, ALL, None, 2, roams=True),
    Watched(b"/m/", b"/m0", None, 2),
    Watched(b"/r/1", b"", None, 2, roams=True),
    Watched(*NODE_RANGE, WHERES[0], 2),
    Watched(*NODE_RANGE, WHERES[2], 2, roams=True),
    Watched(b"/", b"0"),
    Watched(b"/m/3", ALL, None, 30, roams=True),
    Watched(*NODE_RANGE, declared_fields.WHERES[0]),
    Watched(*NODE_RANGE, declared_fields.WHERES[2], roams=True),
    Watched(*NODE_RANGE, declared_fields.WHERES[6], roams=True),
)
"""What is watched, and from which revision on: the first, the current one, a future one. Watches by index-declared
fields start as soon as they are declared."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything the seed decides before anything runs. `operations`: requests before everything heals. `faults`: those
    drawn from the seed, except `without` (names, as in `named_schedule`). `client_ends`: how often a client is killed;
    `rollings`: how often all members are restarted cleanly, one after the other. `minority_down`: once all is
    healthy, as many voters as a majority can spare are stopped, and the others must answer."""

    seed: int
    world: WorldOptions
    plan: Plan
    operations: int = 220
    clients: int = 3
    workers: int = 2
    think_s: float = 0.1
    client_ends: int = 0
    rollings: int = 0
    minority_down: bool = False
    tick_s: float = TICK_S
    append_bytes: int = APPEND_BYTES[0]
    without: frozenset[str] = frozenset()


def drawn_options(seed: int) -> RunOptions:
    rng = Rng(f"options {seed}")
    plan = drawn_apart(seed, drawn_plan(seed, SPAN_US))
    return RunOptions(
        seed,
        drawn_world(rng),
        plan,
        clients=rng.choice((2, 3, 4)),
        workers=rng.choice((1, 2, 3)),
        think_s=rng.choice((0.02, 0.1, 0.3)),
        client_ends=rng.choice((0, 0, 1, 3)),
        rollings=rng.choice((0, 0, 0, 0, 1, 2)),
        tick_s=rng.choice((0.01, 0.02)) if plan.pace < 1 else TICK_S,
        append_bytes=rng.choice(APPEND_BYTES),
        minority_down=rng.random() < MINORITY_DOWN_SHARE,
    )


def drawn_world(rng: Rng) -> WorldOptions:
    """Machines, links and loops for each seed."""
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
            delay_s=rng.choice((0.0001, 0.001, 0.005)),
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


def drawn_faults(options: RunOptions) -> list[Fault]:
    drawn = named_schedule(options.seed, options.plan)
    return [fault for name, fault in drawn.items() if name not in options.without]


@dataclass(slots=True)
class Outcome:
    """The result of a history. `verdicts` by checker; `counts` of its contents."""

    seed: int
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def violations(self) -> dict[str, str]:
        return {name: verdict.text for name, verdict in self.verdicts.items() if verdict.outcome == "violation"}

    @property
    def undecided(self) -> bool:
        return not self.violations and any(verdict.outcome == "undecided" for verdict in self.verdicts.values())


def run_seed(seed: int, told: Told | None = None) -> Outcome:
    """The history of one seed with its verdicts. Equal for equal seeds, to the last line that is `told`."""
    return Run(drawn_options(seed), told).go()


class Run:
    """One history in progress. `go` runs it to its end; then `world`, `cluster` and `recorder` can be inspected."""

    member_config = CONFIG
    look_s = LOOK_S
    calm_tick_s = TICK_S

    def __init__(self, options: RunOptions, told: Told | None = None, reach: Reach = StoreAccess) -> None:
        self.options = options
        rng = self._rng = Rng(f"run {options.seed}")
        self.world = World(options.seed, options.world)
        self.world.scheduler.trace = told
        self.recorder = Recorder(self.world.scheduler)
        self.traffic = Traffic(0, options.think_s)
        plan = options.plan
        config = replace(self.member_config, tick_s=options.tick_s, append_bytes_max=options.append_bytes)
        if "outrun" in plan.kinds:
            config = replace(config, tail_entries_max=1)
        self.cluster = SimCluster(self.world, Rng(rng.getrandbits(64)), plan.members, plan.spare, self.traffic, config)
        self.cluster.rivals = self._between
        self.faults = FaultPlayer(self.cluster, Rng(rng.getrandbits(64)))
        self._reach = reach
        self._clients: dict[str, int] = {}
        self._client_lives = 0
        self._settled_us = 0
        self._asked_of_indexes = 0
        self._views: list[MemberView] = []
        self._asides: list[asyncio.Task[None]] = []

    def go(self) -> Outcome:
        outcome = Outcome(self.options.seed)
        problem = ""
        try:
            self.world.drive(self._story)
        except SimFailure as failure:
            problem = str(failure)
        self._judge(outcome, self.cluster.problem or problem)
        self._count(outcome.counts)
        return outcome

    def fingerprint(self) -> str:
        """Equal for equal runs, and almost never for others."""
        return self.world.fingerprint()

    def _judge(self, outcome: Outcome, problem: str) -> None:
        history = self.recorder.finish()
        bounds = Bounds(DRIFT_MAX * 1.03)
        if problem:
            outcome.verdicts["run"] = violation(problem)
            self._views = []
        else:
            bounds = Bounds(DRIFT_MAX * 1.03, 1 / DRIFT_MAX / 1.03, self._settled_us, GRACE_US)
        outcome.verdicts |= judge(history, self._views, self.cluster.checks.agreement, bounds)

    def _between(self, new: Place, old: Place) -> None:
        """Writes at the current leader must be visible through a member that still believes to lead."""
        self.traffic.ask(Rivals(new.host, old.host))

    # -- phases --------------------------------------------------------------------------------------------------------

    async def _story(self) -> None:
        cluster, options = self.cluster, self.options
        cluster.start_all()
        for number in range(options.clients):
            self._start_client(f"client-{number}", WATCHED[number :: options.clients])
        begin_s = await self._begin_faults()
        await self._have(DeclareFields(NODES), BEGIN_S, "begin")
        self.traffic.watching = True
        self.traffic.ask(quota=options.operations)
        await self._until(lambda: self.world.scheduler.now_s >= begin_s + SPAN_US / 1e6, BEGIN_S, "go on")
        await self._until(lambda: self.traffic.quota <= 0, SETTLE_S, "ask", must=False)
        await self._heal()
        await self._until(lambda: not cluster.unsettled(), SETTLE_S, "settle")
        if options.minority_down:
            await self._do_without_minority()
        self._settled_us = self.recorder.now_us()
        self.traffic.think_s = min(self.traffic.think_s, 0.05)
        self.traffic.ask(quota=options.clients * options.workers * AFTERWARDS)
        await self._until(self._idle, 2 * FINISH_S, "answer")
        await asyncio.sleep(LEASES_S)
        # An unseen event, such as a lease expiry, could not be checked.
        await self._have(RangeRequest(ALL, ALL), FINISH_S, "answer")
        await self._until(lambda: not cluster.unsettled(), SETTLE_S, "converge")
        audit = Audit(options.seed, [member for _, member in cluster.members()], self.recorder)
        unbuilt = audit.build()
        if unbuilt:
            raise SimFailure(unbuilt)
        await self._until(lambda: not self._unwatched(), SETTLE_S, "tell all watches")
        self._end_unserved()
        audit.ask()
        self._views = audit.views()
        self._asked_of_indexes = audit.asked_of_indexes

    async def _begin_faults(self) -> float:
        """They begin with the members themselves. Returns the end of the last."""
        loop = asyncio.get_running_loop()
        works = (self.faults.play(drawn_faults(self.options)), self._end_clients(), self._roll())
        self._asides += [loop.create_task(work) for work in works]
        return self.world.scheduler.now_s

    async def _have(self, request: Request, bound_s: float, what: str) -> None:
        """Retries until it is done: an impatient client may be refused during an election."""
        operations = self.recorder.history.operations
        for _ in range(TRIES):
            before = len(operations)
            self.traffic.ask(request)
            await self._until(lambda: not self.traffic.asides and not self.recorder.waiting, bound_s, what)
            # Other requests may have been made meanwhile, and the requester may have died.
            if any(each.request == request and each.status == "done" for each in operations[before:]):
                return
        raise SimFailure(f"{type(request).__name__} was not done in {TRIES} tries")

    async def _heal(self) -> None:
        for aside in self._asides:
            aside.cancel()
        self.world.scheduler.log("all faults end")
        self.faults.end_all()
        self.world.calm()
        self.cluster.calm(self.calm_tick_s)
        for place in self.cluster.places:
            place.down = 0
            self.world.resume_wholly(place.host)
            self.cluster.start(place)
        for host in self._clients:
            if self.world.running(host) is None:
                self.world.start(host)

    async def _do_without_minority(self) -> None:
        """A majority of the current voters needs no others."""
        cluster, voters = self.cluster, self.cluster.configuration().voters
        places = [place.number for place in cluster.places if place.member_id in voters and place.opened]
        shuffle(places, self._rng)
        down = places[: (len(voters) - 1) // 2]
        for place in down:
            cluster.hold_down(place)
            self.world.kill(cluster.host(place), power=self._rng.random() < 0.5)
        self.traffic.ask(quota=self.options.clients * self.options.workers)
        await self._until(self._idle, 2 * FINISH_S, "answer without a minority")
        for place in down:
            cluster.release(place)
        await self._until(lambda: not cluster.unsettled(), SETTLE_S, "settle again")

    async def _until(self, holds: Callable[[], bool], bound_s: float, what: str, *, must: bool = True) -> None:
        until_s = self.world.scheduler.now_s + bound_s
        while not holds():
            if self.cluster.problem:
                raise SimFailure(self.cluster.problem)
            if self.world.scheduler.now_s >= until_s:
                if not must:
                    return
                raise SimFailure(f"it did not {what} within {bound_s:g} s: {self._missing()}")
            await asyncio.sleep(self.look_s)
            self._look()

    def _look(self) -> None:
        """Called periodically."""
        self.cluster.follow()

    def _missing(self) -> str:
        missing = [self.cluster.unsettled()]
        if not self._idle():
            missing.append(f"{self.recorder.waiting} requests wait, {self.traffic.quota} are not begun")
        if self.cluster.leader() is not None:
            missing.append(self._unwatched())
        return "; ".join(filter(None, missing))

    def _idle(self) -> bool:
        return not self.traffic.wanted and not self.recorder.waiting

    # -- watches -------------------------------------------------------------------------------------------------------

    def _unwatched(self) -> str:
        """A watch that did not get everything."""
        revision = self.cluster.members()[0][1].state.revision
        # If nothing was ever written, a watch gets no progress.
        for watch in self.recorder.history.watches if revision > FIRST_REVISION else ():
            if watch.live and watch.parts and watch.parts[-1].told_until < revision and self._served(watch.where):
                return f"{watch} has seen {watch.parts[-1].told_until} of {revision}"
        return ""

    def _end_unserved(self) -> None:
        """Watches by fields that are not declared now are not served."""
        for watch in self.recorder.history.watches:
            watch.live = watch.live and self._served(watch.where)

    def _served(self, where: Where | None) -> bool:
        known = self.cluster.members()[0][1].state.tables.effective[NODES.name]
        return where is None or all(known.find(each.field) for each in where.comparisons)

    # -- clients -------------------------------------------------------------------------------------------------------

    def _start_client(self, host: str, watched: Sequence[Watched]) -> None:
        hosts = [place.host for place in self.cluster.places]

        async def main(process: Process) -> None:
            self._client_lives += 1
            number = self._clients[host] = self._client_lives
            access, roaming = self._reach(process, hosts), RoamingAccess(process, hosts)
            workers = self.options.workers
            client = Client(process, number, access, self.traffic, self.recorder, workers, watched, roaming)
            await client.run()

        self.world.start(host, main)

    async def _end_clients(self) -> None:
        """Clients are killed too: their pending requests may or may not be done."""
        for _ in range(self.options.client_ends):
            await asyncio.sleep(self._rng.random() * SPAN_US / 1e6 / self.options.client_ends)
            if not self._clients:
                continue
            host = self._rng.choice(list(self._clients))
            if self.world.running(host) is None:
                continue
            self.world.kill(host, silently=self._rng.random() < 0.5)
            self.recorder.abandon(self._clients[host])
            await asyncio.sleep(self._rng.random() * 0.5)
            self.world.start(host)

    async def _roll(self) -> None:
        """Rolling restarts, as for an upgrade; in parallel with everything else."""
        for _ in range(self.options.rollings):
            await asyncio.sleep(self._rng.random() * SPAN_US / 1e6 / self.options.rollings)
            for place in self.cluster.places:
                await self.cluster.stop(place)
                await asyncio.sleep(self._rng.random())

    # -- the end -------------------------------------------------------------------------------------------------------

    def _count(self, counts: Counter[str]) -> None:
        cluster, scheduler, checks = self.cluster, self.world.scheduler, self.cluster.checks
        operations = [each for each in self.recorder.history.operations if each.client != AUDITOR]
        watches = self.recorder.history.watches
        counts["operations"] = len(operations)
        for status in ("done", "refused", "unknown"):
            counts[status] = sum(each.status == status for each in operations)
        counts["refused without room"] = sum(isinstance(each.error, NoSpace) for each in operations)
        counts["indexes declared"] = sum(
            isinstance(each.request, DeclareIndex) and each.status == "done" for each in operations
        )
        counts["indexes asked"] = self._asked_of_indexes
        counts["steps"] = scheduler.steps
        counts["segments"] = self.world.network.segments
        counts["messages"] = cluster.messages.messages
        counts["messages lost"] = cluster.messages.lost
        counts["messages doubled"] = cluster.messages.doubled
        counts["elections"] = checks.elections
        counts["entries"] = checks.agreement.last_index
        counts["snapshots installed"] = checks.snapshots_installed
        counts["snapshots taken"] = checks.snapshots_taken
        counts["snapshots sent"] = checks.snapshots_sent
        for machine in self.world.machines.values():
            counts["syncs"] += machine.sync_count + machine.disk.syncs
            counts["power losses"] += machine.power_losses
        counts["watch batches"] = sum(len(part.deliveries) for watch in watches for part in watch.parts)
        counts["watches resumed"] = sum(len(watch.parts) - 1 for watch in watches)
        counts["clients"] = self._client_lives
        counts["virtual ms"] = scheduler.now_ns // 1_000_000
        counts["faults"] = sum(self.faults.counts.values())
        counts["faults left out"] = sum(self.faults.left_out.values())
        counts.update(cluster.counts)
        for kind, count in self.faults.counts.items():
            counts[f"fault {kind}"] = count
        for how, count in cluster.ended.items():
            counts[f"members {how}"] = count
