"""One simulated history of a whole control plane: store members, API servers, scheduler, controllers and kubelets as
they ship, users and faults from a seed; then everything heals, and the history is checked.

Phases: faults while users create, scale, change and delete; everything heals, and users delete what exceeds the space;
then, within a bound, all must be at rest as defined by `sim.checkers.control_plane`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from minikube_py.client.rest import PODS, RestClient, path_of
from minikube_py.env import Rng
from minikube_py.kubelet.config import NodeSpec, numbered_nodes
from minikube_py.mvcc.types import FROM_KEY
from minikube_py.sim import inject_parts
from minikube_py.sim.api_calls import ApiCalls, CallTransport
from minikube_py.sim.checkers.control_plane import History, unrest
from minikube_py.sim.checkers.verdict import OK, violation
from minikube_py.sim.clock import MachineClock, SimClock
from minikube_py.sim.fault_schedule import THEMES
from minikube_py.sim.faults import Fault, Plan, S, chosen, takes_part
from minikube_py.sim.loop import SimFailure, SimLoop
from minikube_py.sim.member_process import CONFIG
from minikube_py.sim.plane_insides import Insides
from minikube_py.sim.plane_parts import Parts, PartsPlayer
from minikube_py.sim.plane_users import User
from minikube_py.sim.run import BEGIN_S, SETTLE_S, Outcome, Run, RunOptions, drawn_faults, drawn_world
from minikube_py.sim.world import Ended, Process
from minikube_py.store.member_config import TICK_S
from minikube_py.store.replica_config import REQUEST_BYTES_MAX

LOOK_S: Final = 0.25
LONG_TICK_S: Final = 0.25
"""A single member holds no elections."""
REST_S: Final = 900.0
"""The time within which everything must be at rest: the pods of a lost node wait for 300 s, those of a failed Job for
up to 600."""
REST_LOOK_S: Final = 5.0
REST_LOOK_FACTOR: Final = 1.3
QUIET_S: Final = 25.0
PROMPT_S: Final = {"endpoints": 60.0, "quotas": 60.0, "budgets": 150.0}
"""The time within which derived objects must be updated; relying on the next resync, after 300 s, is not enough. A
budget may wait 120 s for a pod that was to be evicted."""
DERIVED: Final = ("endpoints", "budgets")
AWAY: Final = ("part_kill", "part_pause", "part_cut")
AWAY_S: Final = (20.0, 75.0)
"""The second is longer than the grace period of a node, and than a lease."""
AWAY_DELETIONS_S: Final = 3.0
DERIVE_S: Final = 4.0
DERIVE_LOOK_S: Final = 2.0
DERIVE_LOOKS: Final = 3
SECOND_SHARE: Final = 0.3
"""Share of histories with two schedulers, or two controller processes."""
CALM_OPERATIONS: Final = 15
LAG_S: Final = 5.0
"""Before the first fault views are late by no more than this, which the laws then count on."""
RUN_S: Final = 4000.0
OPERATIONS: Final = (10, 25, 50)
SPANS_S: Final = (40, 90, 180)
AMONG: Final = 4
"""So many kinds of faults of processes share a plan's count, also when the registry grows."""
STORE_FAULTS: Final = (
    "crash", "torn_sync", "slow_sync", "depose", "cut", "clog", "pause", "kill", "loss", "double", "delay", "transfer",
)  # fmt: skip
"""Share of those that keep the number of members unchanged."""
SHAPE: Final = NodeSpec("", {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "10"})
NODES_EACH: Final = 2
ROOM_EACH: Final = 2
"""This many pods of the largest size leave space for any other on each node, beside Jobs and rollouts."""
WORK_SHARE: Final = 0.6
"""Share of the time in which faults begin: afterwards the desired state is fixed, and only some pods are deleted."""
OBJECT: Final = b'{"metadata":'
"""Prefix of an object's key, but not of an address allocation."""
MEMBER: Final = replace(
    CONFIG,
    request_bytes_max=REQUEST_BYTES_MAX,
    segment_bytes=256 << 10,
    snapshot_log_bytes=512 << 10,
    tail_entries_max=400,
    tail_bytes_max=256 << 10,
    log_bytes_max=8 << 20,
    retain_s=40.0,
    own_gc=True,
)
"""History is compacted early: a client that was away for long must list again."""


def drawn_plane(seed: int) -> RunOptions:
    """Everything the seed decides before anything runs."""
    rng = Rng(f"plane options {seed}")
    world = drawn_world(rng)
    world = replace(
        world,
        loop=replace(world.loop, turn_s=rng.choice((0.0, 0.00002, 0.0001)), stall_every=rng.choice((0, 0, 20_000))),
        wall_offset_max_s=rng.choice((0.0, 2.0)),
        drift_max=rng.choice((0.0, 0.0001)),
        reading_s=0.0,
    )
    api_servers, kubelets = rng.choice((1, 1, 2)), rng.choice((2, 3))
    parts = [f"api-{number}" for number in range(api_servers)] + ["scheduler", "controllers"]
    parts += [f"{part}-1" for part in ("scheduler", "controllers") if rng.random() < SECOND_SHARE]
    parts += [f"kubelet-{number}" for number in range(kubelets)]
    kinds = tuple([kind for kind in inject_parts.KINDS if takes_part(seed, kind, 0.5)])
    members = rng.choice((1, 1, 3))
    theme = chosen(seed, THEMES) if rng.random() < 0.3 or members > 1 else ()
    of_store = tuple([each for each in theme if each in STORE_FAULTS])
    span_us = rng.choice(SPANS_S) * S
    count, among = rng.choice((0, 4, 8, 12, 16, 24)), AMONG + len(of_store)
    plan = Plan(members, span_us, count, kinds + of_store, 0, 0.5, 1.0, tuple(parts), among)
    operations, tick_s = rng.choice(OPERATIONS), rng.choice((TICK_S, LONG_TICK_S))
    return RunOptions(seed, world, plan, operations=operations, clients=1, workers=1, tick_s=tick_s)


def run_seed(seed: int, told: Callable[[str], None] | None = None) -> Outcome:
    """The history of one seed with its verdict. Equal for equal seeds, to the last line that is `told`."""
    return PlaneRun(drawn_plane(seed), told).go()


class PlaneRun(Run):
    """As Run. `history`: of all objects; `digest`: of every change in the store."""

    member_config = MEMBER
    look_s = LOOK_S
    calm_tick_s = LONG_TICK_S

    def __init__(self, options: RunOptions, told: Callable[[str], None] | None = None) -> None:
        super().__init__(options, told)
        self.digest = hashlib.sha256()
        self.calls = ApiCalls(self.world, Rng(self._rng.getrandbits(64)))
        self.history = History(self._unknown)
        self._calm_until_s = 0.0
        self.parts = Parts(self.world, Rng(self._rng.getrandbits(64)), self.calls, self.cluster.fail)
        self.faults = PartsPlayer(self.cluster, Rng(self._rng.getrandbits(64)))
        self.faults.parts = self.parts
        self.user: User | None = None
        self._followed = 0
        self._unrest: list[str] = []
        self._rest_s = 0.0
        self.cluster.rivals = None
        stores = [place.host for place in self.cluster.places if place.known]
        kubelets = 0
        for part in options.plan.parts:
            if part.startswith("api-"):
                self.parts.add_api_server(part, stores)
            kubelets += part.startswith("kubelet-")
        nodes = numbered_nodes(kubelets * NODES_EACH, shape=SHAPE)
        shares = [nodes[at : at + NODES_EACH] for at in range(0, len(nodes), NODES_EACH)]
        self.parts.add_components(options.plan.parts, shares)
        ended = self.cluster._ended

        def on_end(process: Process, how: Ended) -> None:
            if not self.parts.ended(process, how):
                ended(process, how)

        self.world.on_end = on_end

    def go(self) -> Outcome:
        said = _Said(self.cluster.fail)
        logger = logging.getLogger("minikube_py")
        propagate, logger.propagate = logger.propagate, False
        logger.addHandler(said)
        try:
            return super().go()
        finally:
            logger.removeHandler(said)
            logger.propagate = propagate

    def _judge(self, outcome: Outcome, problem: str) -> None:
        outcome.verdicts["run"] = violation(problem) if problem else OK
        outcome.verdicts["always"] = violation(self.history.problem) if self.history.problem else OK
        outcome.verdicts["at rest"] = violation("; ".join(self._unrest)) if self._unrest else OK
        lost = self.history.lost(self.user.acknowledged) if self.user and not outcome.violations else ""
        outcome.verdicts["acknowledged"] = violation(lost) if lost else OK
        outcome.verdicts["log"] = self.cluster.checks.agreement.verdict()

    # -- phases -------------------------------------------------------------------------------------------------------

    async def _story(self) -> None:
        options, cluster, parts = self.options, self.cluster, self.parts
        loop = cast(SimLoop, asyncio.get_running_loop())
        cluster.start_all()
        parts.start_all()
        await self._until(lambda: not parts.missing(), 2 * BEGIN_S, "begin")
        transport = CallTransport(self.calls, loop, Rng(self._rng.getrandbits(64)), parts.api_hosts, name="user")
        parts.clients.append("user")
        clock = SimClock(loop, MachineClock())
        room = ROOM_EACH * NODES_EACH * sum(part.startswith("kubelet-") for part in options.plan.parts)
        user = self.user = User(RestClient(transport), clock, Rng(self._rng.getrandbits(64)), room)
        await self._finished(user.set_up(), BEGIN_S, "set up")
        self._calm_until_s = math.inf
        await self._finished(user.work(CALM_OPERATIONS, user.calm_s), RUN_S, "work")
        faults = drawn_faults(options)
        if faults:
            self._calm_until_s = self.world.scheduler.now_s + faults[0].at_us / S
        self._asides.append(loop.create_task(self.faults.play(faults)))
        span_s = options.plan.span_us / S
        await self._finished(user.work(options.operations, WORK_SHARE * span_s), RUN_S, "work")
        await self._finished(user.settle(), RUN_S, "settle")
        await self._finished(user.last_deletions((1 - WORK_SHARE) * span_s), RUN_S, "delete")
        await self._heal()
        parts.heal()
        await self._until(lambda: not cluster.unsettled(), SETTLE_S, "settle")
        await self._until(lambda: not parts.missing(), 2 * SETTLE_S, "start again")
        # Requests in flight are done by now, and may exceed the space.
        await self._finished(user.settle(), REST_S, "settle")
        await self._absence(user)
        if not self._unrest:
            await self._finished(user.last_touches(), REST_S, "touch")
            await self._rest()

    async def _absence(self, user: User) -> None:
        """One process is away while users delete. State derived from pods must be correct without a kubelet, and a
        returning process must find what was deleted meanwhile."""
        rng = self._rng
        subject = rng.choice([part for part in self.options.plan.parts if not part.startswith("api-")])
        away_s = rng.choice(AWAY_S)
        self._calm_until_s = min(self._calm_until_s, self.world.scheduler.now_s)
        self.faults.begin(Fault(0, rng.choice(AWAY), (), (), int(away_s * S), 0.0, subject))
        await self._finished(user.last_deletions(AWAY_DELETIONS_S), REST_S, "delete")
        if subject.startswith("kubelet-"):
            await self._until(lambda: False, DERIVE_S, "", must=False)
            found = self._derived()
            for _ in range(DERIVE_LOOKS):
                await self._until(lambda: False, DERIVE_LOOK_S, "", must=False)
                found = [each for each in self._derived() if each in found]
            self._unrest = [f"without {subject}: {each}" for each in found]
        await self._until(lambda: False, away_s, "", must=False)
        await self._until(lambda: not self.parts.missing(), 2 * SETTLE_S, "start again")

    def _derived(self) -> list[str]:
        return unrest(self.history.objects, DERIVED)

    def _overdue(self, since_s: dict[str, float]) -> list[str]:
        """Violations that need no waiting and have lasted too long. `since_s`: when each was first found."""
        now_s = self.world.scheduler.now_s
        for text in [text for text in since_s if text not in self._unrest]:
            del since_s[text]
        for text in self._unrest:
            since_s.setdefault(text, now_s)
        return [
            f"{text}, for {now_s - first_s:.0f} s"
            for text, first_s in since_s.items()
            if now_s - first_s > PROMPT_S.get(text.partition(":")[0], REST_S)
        ]

    async def _rest(self) -> None:
        """Everything is as required, and stays so."""
        begun_s = self.world.scheduler.now_s
        look_s = REST_LOOK_S
        since_s: dict[str, float] = {}
        while self.world.scheduler.now_s < begun_s + REST_S:
            await self._until(lambda: False, look_s, "", must=False)
            look_s *= REST_LOOK_FACTOR
            self._unrest = await self._found()
            if overdue := self._overdue(since_s):
                self._unrest = overdue
                return
            if not self._unrest:
                self._rest_s = self.world.scheduler.now_s - begun_s
                last = self.history.last_change
                await self._until(lambda: False, QUIET_S, "", must=False)
                self._unrest = await self._found()
                if not self._unrest and last == self.history.last_change:
                    return
        if not self._unrest:
            self._unrest = [f"quiet: there are still changes, at last {self.history.last_change}"]

    async def _found(self) -> list[str]:
        """What does not hold yet."""
        found = unrest(self.history.objects)
        if found:
            return found
        loop = cast(SimLoop, asyncio.get_running_loop())

        def client(host: str) -> RestClient:
            return RestClient(CallTransport(self.calls, loop, self._rng, [host], name="judge"))

        servers = {host: client(host) for host in self.parts.api_hosts}
        working = {host: self.parts.by_host[host].component for host in self.parts.clients if host != "user"}
        components = {host: each for host, each in working.items() if each is not None}
        return await Insides(components, next(iter(servers.values())), servers).look()

    async def _finished(self, work: Any, bound_s: float, what: str) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asides.append(task)
        await self._until(task.done, bound_s, what)
        await task

    def _missing(self) -> str:
        missing = (self.cluster.unsettled(), self.parts.missing())
        return "; ".join(filter(None, missing))

    def _look(self) -> None:
        super()._look()
        self._follow()
        if self.history.problem:
            raise SimFailure(self.history.problem)

    def _follow(self) -> None:
        """Follows all writes since."""
        states = [place.member.state for place in self.cluster.running() if place.member is not None]
        state = max(states, key=lambda each: each.revision, default=None)
        if state is None or state.revision <= self._followed:
            return
        now_s = self.world.scheduler.now_s
        self.history.lag_s = LAG_S if now_s < self._calm_until_s else math.inf
        for event in state.events(b"\0", FROM_KEY, self._followed + 1, state.revision):
            kv = event.kv
            value = kv.value if event.type == "PUT" else None
            self.digest.update(b"%d %s %s\n" % (kv.mod_revision, kv.key, value or b""))
            if kv.key.startswith(b"/registry/") and (value is None or value.startswith(OBJECT)):
                self.history.add(kv.key, value, kv.mod_revision, now_s)
        self._followed = state.revision

    def _unknown(self, namespace: str) -> int:
        """How many creations of pods there have an outcome that no controller knows."""
        path = path_of(PODS, namespace)
        asked = self.calls.unknown.items()
        return sum(count for (client, of), count in asked if of == path and client.startswith("controllers"))

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}.{self.digest.hexdigest()[:32]}"

    def _count(self, counts: Counter[str]) -> None:
        super()._count(counts)
        if self.user is not None:
            counts.update(self.user.counts)
            counts["operations"] = self.user.counts.total()
            counts["acknowledged"] = len(self.user.acknowledged)
        counts.update(self.history.counts)
        counts["revisions"] = self._followed
        counts["changes of pods"] = self.history.changes["pods"]
        counts["lives"] = sum(part.lives for part in self.parts.by_host.values())
        counts["held messages"] = self.calls.held
        counts["ms to rest"] = int(1000 * self._rest_s)


class _Said(logging.Handler):
    """An error logged by a component is a bug: expected failures are logged at a lower level."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._fail = fail

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        if isinstance(loop, SimLoop) and loop.dead:
            # Ignore a killed task's cancellation error.
            return
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            trace, where = error.__traceback__, ""
            while trace is not None:
                where = f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
                trace = trace.tb_next
            text = f"{text}: {type(error).__name__}: {error} at {where}"
        self._fail(f"logged by {record.name}: {text}")
