"""One simulated history: a cluster under faults, then made well, then judged. All of it follows from the seed.

Phases: faults and load; everything heals, and within a bound there must be a leader, all members alike and new
requests answered; leases end; at last every member is asked about its past, and the checkers judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import msgpack

from minikube_py.env import Rng
from minikube_py.errors import RequestError
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import DeclareFields, DeclareIndex, RangeRequest
from minikube_py.sim import declared_fields
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.sim.checkers.leases import Bounds
from minikube_py.sim.checkers.verdict import Verdict, violation
from minikube_py.sim.clients import ClientOptions, SimClient, WatchClient
from minikube_py.sim.cluster import Cluster
from minikube_py.sim.faults import DRIFT_MAX, Fault, Plan, drawn_plan, schedule
from minikube_py.sim.history import History, Operation, Status
from minikube_py.sim.indexing import answers, build_all
from minikube_py.sim.judge import judge
from minikube_py.sim.links import LATENCY_US
from minikube_py.sim.place import SYNC_US, TICK_US, Place
from minikube_py.sim.steps import Steps, Told
from minikube_py.sim.tending import Tending
from minikube_py.sim.workload import ALL, NODE_RANGE, TTLS_S, WHERES

S: Final = 1_000_000
SPAN_US: Final = 7 * S
SETTLE_US: Final = 20 * S
"""Once nothing fails any more: a leader, all members alike, and those that lost their disk back as voters by then."""
PROGRESS_US: Final = 6 * S
"""And every new request answered by then."""
LOAD_US: Final = 60 * S
LEASES_US: Final = round((max(TTLS_S) + 1.5) * S)
APPEND_BYTES: Final = (1 << 20, 1 << 20, 1)
"""How much a message may carry. With room for one entry alone, those of an earlier term are acknowledged apart."""
AFTERWARDS: Final = 4
"""Requests of each client once all is well."""
AUDITOR: Final = 90
WATCHED: Final = (
    ((ALL, ALL, None), 2),
    ((b"/m/", b"/m0", None), 2),
    ((b"/r/1", b"", None), 2),
    ((*NODE_RANGE, WHERES[0]), 2),
    ((*NODE_RANGE, WHERES[2]), 2),
    ((b"/", b"0", None), 0),
    ((b"/m/3", ALL, None), 30),
    ((*NODE_RANGE, declared_fields.WHERES[0]), 0),
    ((*NODE_RANGE, declared_fields.WHERES[2]), 0),
    ((*NODE_RANGE, declared_fields.WHERES[6]), 0),
)
"""What is watched, and from which revision on: the first, whatever is now, one that is still to come. By fields that
indexes declare: as soon as they are."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a history consists of. `faults`: those drawn from the seed, but for `without` (their places in the drawn
    schedule); `operations`: how many requests clients make before all heals, at least."""

    seed: int
    plan: Plan
    operations: int = 220
    clients: int = 4
    client: ClientOptions = field(default_factory=ClientOptions)
    without_sessions: int = 0
    latency_us: tuple[int, int] = LATENCY_US
    sync_us: tuple[int, int] = SYNC_US
    tick_us: int = TICK_US
    append_bytes: int = APPEND_BYTES[0]
    without: frozenset[int] = frozenset()


def drawn_options(seed: int) -> RunOptions:
    """All that a seed decides before anything runs."""
    rng = Rng(f"options {seed}")
    plan = drawn_plan(rng, SPAN_US, aimed=True)
    clients = rng.choice((3, 4, 5))
    client = ClientOptions(
        depth=rng.choice((1, 1, 2, 3)), think_us=rng.choice(((1_000, 20_000), (5_000, 150_000), (20_000, 250_000)))
    )
    return RunOptions(
        seed,
        plan,
        220,
        clients,
        client,
        rng.choice((0, 0, 1, 1, clients)),
        rng.choice((LATENCY_US, LATENCY_US, (2_000, 10_000), (5_000, 80_000))),
        rng.choice((SYNC_US, SYNC_US, (1_000, 10_000), (5_000, 50_000))),
        rng.choice((10_000, 20_000)) if plan.pace < 1 else TICK_US,
        rng.choice(APPEND_BYTES),
    )


def drawn_faults(options: RunOptions) -> list[Fault]:
    drawn = schedule(Rng(f"faults {options.seed}"), options.plan)
    return [fault for number, fault in enumerate(drawn) if number not in options.without]


@dataclass(slots=True)
class Outcome:
    """How a history ended. `verdicts` by checker; `counts` what it contained."""

    seed: int
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def violations(self) -> dict[str, str]:
        return {name: verdict.text for name, verdict in self.verdicts.items() if verdict.outcome == "violation"}

    @property
    def undecided(self) -> bool:
        return not self.violations and any(verdict.outcome == "undecided" for verdict in self.verdicts.values())


class Run:
    """One history in the making. `go` runs it to its end; afterwards `history` and `cluster` can be looked at."""

    def __init__(self, options: RunOptions, told: Told | None = None) -> None:
        self.options = options
        self.steps = Steps(told)
        self.history = History()
        rng = Rng(f"run {options.seed}")
        plan = options.plan
        self.cluster = Cluster(
            Rng(rng.getrandbits(64)), self.steps, plan.members, plan.spare, options.latency_us, options.sync_us
        )
        for place in self.cluster.all:
            place.tick_us = options.tick_us
            place.config = replace(place.config, append_bytes_max=options.append_bytes)
        self.tending = Tending(self.cluster, Rng(rng.getrandbits(64)), self.history, plan.members)
        self.clients = [self._client(number, Rng(rng.getrandbits(64))) for number in range(1, options.clients + 1)]
        self.cluster.rivals = self._between
        self._rng = rng
        self._watchers: list[WatchClient] = []
        self._healed_us = 0
        self._asked_of_indexes = 0

    def _between(self, new: Place, old: Place) -> None:
        """What is written where one leads now must be seen where another thinks that it still does."""
        self._rng.choice(self.clients).write_then_read(new.number, old.number)

    def _client(self, number: int, rng: Rng) -> SimClient:
        options = self.options.client
        if number <= self.options.without_sessions:
            options = replace(options, sessions=False)
        return SimClient(number, self.steps, rng, self.cluster, self.history, options)

    def go(self) -> Outcome:
        outcome = Outcome(self.options.seed)
        problem = self._live()
        for client in self.clients:
            client.give_up()
        views: list[MemberView] = []
        bounds = Bounds(DRIFT_MAX * 1.01)
        if problem:
            outcome.verdicts["run"] = violation(problem)
        else:
            served = self._served()
            for watcher in self._watchers:
                watcher.watch.live = watcher.watch.live and watcher in served
            self._audit()
            views = self._views()
            bounds = Bounds(DRIFT_MAX * 1.01, 1 / DRIFT_MAX, self._healed_us + 2 * S, 2 * S)
        outcome.verdicts |= judge(self.history, views, self.cluster.agreement, bounds)
        self._count(outcome.counts)
        return outcome

    # -- the run -------------------------------------------------------------------------------------------------------

    def _live(self) -> str:
        """Why the run could not be brought to its end, "" if it could."""
        steps, cluster = self.steps, self.cluster
        self.tending.start(drawn_faults(self.options))
        if not self._until(self._declared, 2 * SETTLE_US):
            return cluster.problem or f"nothing was applied in the first {2 * SETTLE_US // S} s"
        self._begin_load()
        span_us = max(SPAN_US, steps.now_us + 2 * S)
        self._until(None, span_us)
        self._until(self._loaded, span_us + SETTLE_US)
        self.tending.heal()
        self._healed_us = steps.now_us
        if not self._until(self._settled, steps.now_us + SETTLE_US):
            return cluster.problem or f"not settled {SETTLE_US // S} s after all faults had ended: {self._unsettled()}"
        # Under many faults clients may not have come to ask all they had to.
        self._until(self._loaded, steps.now_us + LOAD_US)
        for client in self.clients:
            client.go_on(AFTERWARDS)
        if not self._until(self._idle, steps.now_us + PROGRESS_US):
            return cluster.problem or f"requests are not answered {PROGRESS_US // S} s after all has settled"
        self._until(None, steps.now_us + LEASES_US)
        if not self._until(self._settled, steps.now_us + SETTLE_US):
            return cluster.problem or f"not settled in the end: {self._unsettled()}"
        for place in self._members():
            assert place.replica is not None
            unbuilt = build_all(place.replica.state)
            if unbuilt:
                return f"{place.name}: {unbuilt}"
            place.replica.hub.refresh()
        if not self._until(self._watched, steps.now_us + PROGRESS_US):
            return cluster.problem or f"a watch is not up to date: {self._unwatched()}"
        return cluster.problem

    def _until(self, done: Callable[[], bool] | None, until_us: int) -> bool:
        return self.steps.run(until_us, done)

    def _declared(self) -> bool:
        """The fields that `where` asks for; asked for again until they are there, which changes nothing if they are."""
        leader = self.cluster.leader()
        if leader is None or leader.replica is None:
            return False
        if NODES.name in leader.replica.state.tables.by_name:
            return True
        leader.propose_own(DeclareFields(NODES))
        return False

    def _begin_load(self) -> None:
        # The leader has applied it.
        declared = Operation(AUDITOR, self.steps.now_us, self.steps.now_us, DeclareFields(NODES), "done")
        self.history.operations.append(declared)
        for number, (watched, start_revision) in enumerate(WATCHED):
            rng = Rng(self._rng.getrandbits(64))
            restless = 0.0 if number == 0 else 0.05
            watcher = WatchClient(
                50 + number, self.steps, rng, self.cluster, self.history, watched, start_revision, restless
            )
            self._watchers.append(watcher)
        for client in self.clients:
            client.go_on(-(-self.options.operations // len(self.clients)))

    def _loaded(self) -> bool:
        return all(not client.left for client in self.clients)

    def _idle(self) -> bool:
        return all(client.idle for client in self.clients)

    def _settled(self) -> bool:
        return not self._unsettled()

    def _unsettled(self) -> str:
        """What is still to come before all members are alike."""
        leader = self.cluster.leader()
        if leader is None or leader.replica is None:
            return "no leader"
        log = leader.replica.raft.log
        membership = leader.replica.membership
        wanted = {f"m{number}" for number in self.tending.wanted}
        named = {member.name for member in membership.members}
        if named != wanted or membership.expected or leader.replica.raft.configuration.outgoing:
            return f"members are {sorted(named)}, wanted {sorted(wanted)}"
        for member in membership.members:
            number = self.cluster.place_of(member.id)
            place = self.cluster.all[number] if number is not None else None
            if place is None or place.replica is None:
                return f"{member.name} is down"
            if member.learner:
                return f"{member.name} is a learner"
            if place.replica.raft.log.applied < log.last_index:
                return f"{member.name} has applied {place.replica.raft.log.applied} of {log.last_index}"
        return ""

    def _watched(self) -> bool:
        return not self._unwatched()

    def _unwatched(self) -> str:
        [leader] = self._members()[:1]
        assert leader.replica is not None
        revision = leader.replica.state.revision
        for watcher in self._served():
            # Nobody is told of what does not concern them until there is progress to tell.
            if watcher.told_from <= revision:
                return f"{watcher.watch} has seen {watcher.seen} of {revision}"
        return ""

    def _served(self) -> list[WatchClient]:
        """Those whose fields are declared now; nobody serves the others."""
        [leader] = self._members()[:1]
        assert leader.replica is not None
        known = leader.replica.state.tables.effective[NODES.name]

        def declared(where: Where | None) -> bool:
            return where is None or all(known.find(each.field) for each in where.comparisons)

        return [watcher for watcher in self._watchers if declared(watcher.watch.where)]

    # -- the end -------------------------------------------------------------------------------------------------------

    def _members(self) -> list[Place]:
        """Places whose members belong to the cluster, the leader's first."""
        leader = self.cluster.leader()
        assert leader is not None and leader.replica is not None
        ids = {member.id for member in leader.replica.membership.members}
        others = [place for place in self.cluster.all if place.replica is not None and place is not leader]
        return [leader, *(place for place in others if place.member_id in ids)]

    def _audit(self) -> None:
        """Every member is asked for all keys, and about objects, now and in the past: reads like any others. None is
        behind, so that each must know all that was answered before."""
        rng = Rng(f"audit {self.options.seed}")
        [leader, *_] = places = self._members()
        assert leader.replica is not None
        state = leader.replica.state
        oldest = max(state.compact_revision, 1)
        past = sorted({rng.randint(oldest, state.revision) for _ in range(5)})
        requests = [RangeRequest(ALL, ALL), *(RangeRequest(ALL, ALL, revision=revision) for revision in past[:2])]
        wheres = [RangeRequest(*NODE_RANGE, revision=at, where=where) for where in WHERES for at in (0, *past)]
        # Of these fields some are declared and some are not, and are refused.
        for where in declared_fields.WHERES:
            wheres += [RangeRequest(*NODE_RANGE, revision=at, where=where) for at in (0, rng.choice(past))]
        for where in (*WHERES, *declared_fields.WHERES):
            requests += [RangeRequest(*NODE_RANGE, revision=at, where=where) for at in (0, rng.choice(past))]
        for place in places:
            for request in requests:
                self._ask(place, request)
            for request in wheres:
                self._ask_indexes(place, request)

    def _ask(self, place: Place, request: RangeRequest) -> None:
        assert place.replica is not None
        self.steps.now_us += 2
        now_us = self.steps.now_us
        try:
            result = place.replica.state.range(request)
        except RequestError as error:
            told = Operation(AUDITOR, now_us, now_us + 1, request, "refused", None, error, False, place.number)
        else:
            told = Operation(AUDITOR, now_us, now_us + 1, request, "done", result, None, False, place.number)
        self.history.operations.append(told)

    def _ask_indexes(self, place: Place, request: RangeRequest) -> None:
        """Each index by itself, which the planner might never have sent anything."""
        assert place.replica is not None
        for result, error in answers(place.replica.state, request):
            self.steps.now_us += 2
            now_us = self.steps.now_us
            status: Status = "done" if error is None else "refused"
            told = Operation(AUDITOR, now_us, now_us + 1, request, status, result, error, False, place.number)
            self.history.operations.append(told)
            self._asked_of_indexes += 1

    def _view(self, place: Place, revisions: list[int]) -> MemberView:
        replica = place.replica
        assert replica is not None
        state = replica.state
        return MemberView(
            place.member_id,
            replica.raft.log.applied,
            state.revision,
            state.compact_revision,
            {revision: state.hash(revision) for revision in revisions if revision >= state.compact_revision},
            tuple(state.range(RangeRequest(ALL, ALL)).kvs),
            tuple(state.leases()),
            # As another member reads them: tuples in what was applied are lists in what was restored.
            tuple([repr(msgpack.unpackb(msgpack.packb(record))) for record in state.sessions.records()]),
        )

    def _views(self) -> list[MemberView]:
        places = self._members()
        assert places[0].replica is not None
        state = places[0].replica.state
        oldest = max(state.compact_revision, 1)
        rng = Rng(f"hashes {self.options.seed}")
        revisions = [0, state.revision, *(rng.randint(oldest, state.revision) for _ in range(3))]
        return [self._view(place, revisions) for place in places]

    def _count(self, counts: Counter[str]) -> None:
        cluster, tending = self.cluster, self.tending
        operations = self.history.operations
        counts["operations"] = sum(each.client not in (AUDITOR,) for each in operations)
        for status in ("done", "refused", "unknown"):
            counts[status] = sum(each.status == status and each.client != AUDITOR for each in operations)
        counts["indexes declared"] = sum(
            isinstance(each.request, DeclareIndex) and each.status == "done" for each in operations
        )
        counts["indexes asked"] = self._asked_of_indexes
        counts["retries"] = sum(client.retries for client in self.clients)
        counts["steps"] = self.steps.taken
        counts["messages"] = cluster.messages
        counts["messages lost"] = cluster.links.lost
        counts["messages doubled"] = cluster.links.doubled
        counts["elections"] = cluster.elections
        counts["entries"] = cluster.agreement.last_index
        counts["membership changes"] = tending.membership_changes
        counts["snapshots taken"] = sum(place.counts.snapshots for place in cluster.all)
        counts["snapshots sent"] = cluster.snapshots_sent
        counts["snapshots installed"] = cluster.snapshots_installed
        counts["starts"] = sum(place.counts.starts for place in cluster.all)
        counts["power losses"] = sum(place.counts.power_losses for place in cluster.all)
        counts["syncs"] = sum(place.counts.syncs for place in cluster.all)
        counts["rot detected"] = tending.detected_rot
        counts["watch batches"] = sum(watcher.batches for watcher in self._watchers)
        counts["watches ended by a declaration"] = sum(watcher.redeclared for watcher in self._watchers)
        counts["watches resumed"] = sum(watcher.resumed for watcher in self._watchers)
        counts["virtual ms"] = self.steps.now_us // 1000
        counts["faults"] = sum(tending.counts.values())
        counts["faults left out"] = sum(tending.left_out.values())
        for kind, count in tending.counts.items():
            counts[f"fault {kind}"] = count


def run_seed(seed: int, told: Told | None = None) -> Outcome:
    """The history of one seed, judged."""
    return Run(drawn_options(seed), told).go()


