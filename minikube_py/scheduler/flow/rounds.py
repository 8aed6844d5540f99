"""Rounds of a profile that is placed by flow: graph, solver, repair, and the usual binding cycle.

A round takes the waiting pods, highest priority first, as classes of equal pods. As placements are committed, each is
checked by the profile's filters, since a flow ignores dimensions and the nodes may have changed: rejected pods go
through a second graph, and then are placed alone. Bindings overlap with the next round.

A round gives way: at the end of each turn, other profiles place what waits for them. The cluster may so change under
a round as under any informer's event: what was prepared before a turn is checked again when it is committed, against
the nodes as they are then, and nothing yields between that check and the charge of the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from minikube_py.client.timers import Timers
from minikube_py.fields.times import parse_time
from minikube_py.own_code import raised, told
from minikube_py.scheduler.best import INFEASIBLE
from minikube_py.scheduler.budgets import Budgets
from minikube_py.scheduler.filtering import fitting_of, fitting_slots
from minikube_py.scheduler.flow.checking import Asking, forget
from minikube_py.scheduler.flow.classes import Decision, PodClass, Promise, Staying
from minikube_py.scheduler.flow.exchange import (
    NODES_MAX,
    Exchange,
    Offer,
    Relieved,
    Turns,
    affordable,
    exchanges,
    offers,
    price_of_waiting,
    stands,
)
from minikube_py.scheduler.flow.graph import Graph, Placement, Step, TaskClass
from minikube_py.scheduler.flow.later import PRICED_AGAIN_MAX_S, Later, says
from minikube_py.scheduler.flow.model import Machine, Machines, ModelError, Task, job_of, labels_that_matter
from minikube_py.scheduler.flow.placement import NAME, FlowPlacement
from minikube_py.scheduler.flow.problem import Infeasible
from minikube_py.scheduler.framework import Code, CycleState, Diagnosis, IntArray, PluginError
from minikube_py.scheduler.objects import NodeInfo, PodInfo, QueuedPodInfo
from minikube_py.scheduler.own import Guarded
from minikube_py.scheduler.preparing import Rejected, prepare
from minikube_py.scheduler.scoring import Choice

if TYPE_CHECKING:
    from minikube_py.scheduler.binding import Bindings
    from minikube_py.scheduler.scheduler import ProfileRun, Scheduler

logger = logging.getLogger(__name__)

TURN_S = 0.002
REST = 19
"""After a round, pods gather for this multiple of the time that its graphs, its solver and the pods that stay took: a
larger round costs hardly more. What is placed costs as much in any round, and is not counted."""
REST_MAX_S = 1.0
PASSES = 2
"""A round's graph, and one more for pods rejected during its repair."""
EVICT_AGAIN_S = 10.0
"""Pods that would take the place of others are tried again after this time: prices change without any event."""
AGAIN_SHARE = 16
"""Pods left over by a full graph are retried at once if the pass placed at least this fraction of them."""


class Rounds:
    """Call `take` for pods, then `run`. `rounds`, `passes`, `arcs` and `repaired` count work."""

    def __init__(
        self, scheduler: Scheduler, run: ProfileRun, plugin: FlowPlacement, bindings: Bindings, timers: Timers
    ) -> None:
        self._scheduler = scheduler
        self._bindings = bindings
        self._timers = timers
        self._run = run
        self._plugin = plugin
        self._columns = scheduler.columns
        self._waiting: list[QueuedPodInfo] = []
        self._known: dict[int, str] = {}
        """The machines that the model knows, by slot."""
        self._version = -1
        self._busy_s = self._last_busy_s = self._away_s = 0.0
        self._due_s = self._asked_for_s = float("-inf")
        self._decisions: OrderedDict[str, Decision] = OrderedDict()
        self._priced_again = Later(scheduler, timers, plugin.args.retry_seconds)
        self._offered_again = Later(scheduler, timers, EVICT_AGAIN_S)
        wide = run.profile.wide
        self._by_labels = any(isinstance(each, Guarded) for each in {**wide.pre_filters, **wide.filters}.values())
        # Scoring is not used.
        self._wide = wide._replace(pre_scorers={}, scorers=())
        self._local = run.profile.local._replace(pre_scorers={}, scorers=())
        self._promised: dict[str, Promise] = {}
        """By uid of a pod that replaces others."""
        self._leaving: dict[str, tuple[PodInfo, str]] = {}
        """Victims by uid, with the uid of the pod that replaces them."""
        self._turns = Turns()
        self._turn_ends_s = 0.0
        self._trials_left = 0
        self.rounds = self.passes = self.arcs = self.repaired = self.exchanged = 0

    def take(self, queued: QueuedPodInfo) -> None:
        self._waiting.append(queued)

    def decision(self, uid: str) -> Decision | None:
        return self._decisions.get(uid)

    def metrics(self) -> dict[str, int]:
        return {"rounds": self.rounds, "passes": self.passes, "arcs": self.arcs, "repaired": self.repaired,
                "exchanged": self.exchanged}  # fmt: skip

    @property
    def is_due(self) -> bool:
        return bool(self._waiting) and self._scheduler.clock.monotonic_s() >= self._due_s

    async def run(self) -> None:
        """Places all taken pods once a round is due."""
        while self._waiting:
            if not self.is_due:
                if self._asked_for_s != self._due_s:
                    self._asked_for_s = self._due_s
                    self._timers.call_at(self._due_s, self._scheduler.wake)
                return
            self._busy_s = 0.0
            self._turn_ends_s = self._scheduler.clock.monotonic_s() + TURN_S
            batch, self._waiting = self._waiting, []
            while batch:
                # Queue order is kept within a priority.
                priority, most = max(queued.pod.priority for queued in batch), self._plugin.args.max_pods
                alike = [queued for queued in batch if queued.pod.priority == priority]
                batch = alike[most:] + [queued for queued in batch if queued.pod.priority != priority]
                await self._round(alike[:most])
                if batch:
                    # Who came meanwhile and is more important does not wait for the rest.
                    next_one = max(queued.pod.priority for queued in batch)
                    batch += [queued for queued in self._waiting if queued.pod.priority > next_one]
                    self._waiting = [queued for queued in self._waiting if queued.pod.priority <= next_one]
            self._due_s = self._scheduler.clock.monotonic_s() + min(REST_MAX_S, REST * self._busy_s)
            self._last_busy_s = self._busy_s

    async def _round(self, pods: list[QueuedPodInfo]) -> None:
        self.rounds += 1
        self._trials_left = NODES_MAX
        started_s = self._scheduler.clock.monotonic_s()
        if self._promised:
            pods = [queued for queued in pods if not self._holds_for(queued, started_s)]
        alone = [queued for queued in pods if queued.pod.nominated_node]
        left = [queued for queued in pods if not queued.pod.nominated_node]
        if self._plugin.args.preemption:
            # Pods with a nominated node take it before the others are placed.
            await self._alone(alone)
            alone = []
        for _ in range(PASSES):
            if left:
                left = await self._pass(left, started_s)
        await self._alone(alone + left)

    async def _alone(self, pods: Iterable[QueuedPodInfo]) -> None:
        for queued in pods:
            if self._is_waiting(queued):
                self._scheduler.place_alone(self._run, queued)
                await self._breathe(at_once=True)

    async def _pass(self, pods: Sequence[QueuedPodInfo], started_s: float) -> list[QueuedPodInfo]:
        """Returns the pods whose placement was rejected."""
        self.passes += 1
        turned_down: list[QueuedPodInfo] = []
        staying: list[Staying] = []
        for part in self._parts(self._classes(pods, started_s)):
            for each, placements, alternative in self._flow(part, staying, started_s):
                turned_down += await self._commit(each, placements, alternative, started_s)
                rest = each.pods[len(placements) :]
                if placements and len(placements) * AGAIN_SHARE >= len(rest):
                    self._waiting += rest
                elif rest:
                    staying.append(Staying(rest, alternative, each.key))
            await self._breathe()
        self.repaired += len(turned_down)
        began_s, away_s = self._scheduler.clock.monotonic_s(), self._away_s
        await self._stay(staying, started_s)
        self._busy_s += self._scheduler.clock.monotonic_s() - began_s - (self._away_s - away_s)
        return turned_down

    def _parts(self, classes: Sequence[PodClass]) -> Iterable[list[PodClass]]:
        """In order, as many classes as `max_arcs` lets into one graph."""
        arcs = max(1, min(self._columns.count, sum(len(each.pods) for each in classes)))
        size = max(1, self._plugin.args.max_arcs // arcs)
        return (list(classes[start : start + size]) for start in range(0, len(classes), size))

    def _flow(
        self, part: Sequence[PodClass], staying: list[Staying], started_s: float
    ) -> list[tuple[PodClass, list[Placement], int]]:
        """Adds those that fit nowhere now to `staying`."""
        began_s = self._scheduler.clock.monotonic_s()
        alike: dict[Hashable, tuple[IntArray, IntArray]] = {}
        ready = [each for each in part if self._prepare(each, alike, started_s)]
        staying += (Staying(each.pods, None, each.key) for each in ready if not len(each.feasible))
        classes = [each for each in ready if len(each.feasible)]
        graph = Graph(self._plugin.model, self._columns, self._plugin.args.max_arcs)
        found: list[tuple[PodClass, list[Placement], int]] = []
        try:
            if classes:
                found = self._solved(graph, classes)
        except raised() as error:
            self._broken([queued for each in classes for queued in each.pods], self._why(error), started_s)
        forget(self._plugin.model, (each.of for each in classes))
        for number, reason in graph.failed.items():
            self._broken(classes[number].pods, str(reason), started_s)
        self._busy_s += self._scheduler.clock.monotonic_s() - began_s
        return found

    def _why(self, error: BaseException) -> str:
        """A solver may raise anything, such as MemoryError."""
        if isinstance(error, ModelError):
            return str(error)
        if isinstance(error, Infeasible):
            return f"no flow: {error}"
        return f"solver {self._plugin.solver.name}: {told(error)}"

    async def _stay(self, staying: Sequence[Staying], started_s: float) -> None:
        """What no flow placed takes the place of others, if it may, or waits."""
        if self._plugin.args.preemption:
            staying = self._turns.ordered(staying, lambda each: each.names)
        for number, each in enumerate(staying):
            pods = await self._exchanged(each.pods, each.names, len(staying) - number, started_s)
            if each.alternative is None:
                await self._alone(pods)
                for queued in pods[:NODES_MAX] if self._plugin.args.preemption else ():
                    if queued.pod.preemption_policy != "Never":
                        self._offered_again.keep(queued.pod)
            else:
                await self._priced_out(pods, each.alternative, started_s)

    # --- classes ----------------------------------------------------------------------------------------------------

    def _is_waiting(self, queued: QueuedPodInfo) -> bool:
        """Whether the pod still exists unassigned; updates it to its current version."""
        known = self._scheduler.pod(queued.pod.key)
        if known is None or known.uid != queued.pod.uid or known.node_name or known.deleting:
            self._scheduler.queue.done(queued.pod.uid)
            return False
        queued.pod = known
        return True

    def _classes(self, pods: Iterable[QueuedPodInfo], started_s: float) -> list[PodClass]:
        by_key: dict[Hashable, PodClass] = {}
        model, topology = self._plugin.model, self._columns.topology
        for queued in pods:
            if not self._is_waiting(queued):
                continue
            pod = queued.pod
            task = self._task(queued, 1, started_s)
            signature = self._run.profile.reads(pod)
            try:
                own = model.task_key(task)
                read = pod.uid if signature is None else signature
                labels = labels_that_matter(pod, topology, self._by_labels)
                key = (read, task.job, own, labels, pod.preemption_policy)
                found = by_key.setdefault(key, PodClass(key, task.job, read))
            except raised() as error:
                self._broken([queued], f"cost model {model.name}: task_key, pod {pod.key}: {told(error)}", started_s)
                continue
            found.pods.append(queued)
        return list(by_key.values())

    def _task(self, queued: QueuedPodInfo, count: int, now_s: float) -> Task:
        first_s = queued.initial_attempt_s
        return Task(queued.pod, count, now_s - first_s if first_s is not None else 0.0, job_of(queued.pod))

    def _prepare(self, each: PodClass, alike: dict[Hashable, tuple[IntArray, IntArray]], started_s: float) -> bool:
        """Finds where the class's pods pass the filters. `alike`: slots and room, found once for all classes of which
        node-local filters alone read the same. False if a plugin failed."""
        pod, columns = each.pods[0].pod, self._columns
        each.feasible = each.room = np.zeros(0, np.int64)
        each.of = Task(pod)
        try:
            each.prepared = prepare(self._local, columns, pod)
            seen = self._run.evaluator.beside(pod)
            shared = not seen.barred and seen.node_names is None
            shared = shared and all(name in self._local.filters for name, _ in seen.filters)
            known = alike.get(each.read) if shared else None
            each.feasible = known[0] if known is not None else fitting_slots(seen, pod, columns)
        except Rejected:
            return True
        except Exception as error:
            for queued in each.pods:
                self._scheduler.broke(self._run, queued, error, started_s)
            return False
        each.of = self._task(each.pods[0], len(each.pods), started_s)
        if known is not None:
            each.room = known[1]
            return True
        each.room = Machines(columns.some(each.feasible), each.feasible).fit(each.of)
        if pod.spec.host_ports:
            each.room = np.minimum(each.room, 1)
        if shared:
            alike[each.read] = each.feasible, each.room
        return True

    # --- the graph --------------------------------------------------------------------------------------------------

    def _solved(self, graph: Graph, classes: Sequence[PodClass]) -> list[tuple[PodClass, list[Placement], int]]:
        """Raises: ModelError, Infeasible."""
        self._tell_of_machines()
        built = [TaskClass(each.of, each.feasible, each.room) for each in classes]
        problem = graph.build(built)
        self.arcs += graph.size[1]
        problem, (flow, solver) = graph.solved(built, problem, self._plugin.solver)
        found = []
        for number, each in enumerate(classes):
            each.solver = solver
            if number not in graph.failed:
                placements = list(graph.placements(number, flow, problem))
                found.append((each, placements, graph.unscheduled_price(number, problem)))
        return found

    def _tell_of_machines(self) -> None:
        """Reports added, changed and removed machines to the model. Raises: ModelError."""
        columns, model = self._columns, self._plugin.model
        changed = columns.changed_since(self._version) if self._version >= 0 else None
        slots: Iterable[int] = range(columns.size) if changed is None else dict.fromkeys(changed)
        # After an error all come again.
        self._version, asking = -1, Asking(model.name)
        # A name may have moved to another slot: removals first.
        for slot in slots:
            info = columns.by_slot[slot]
            if slot in self._known and (info is None or not info.present or info.name != self._known[slot]):
                name = self._known[slot]
                asking.ask(f"machine {name}", model.remove_machine, name)
                del self._known[slot]
        for slot in slots:
            info = columns.by_slot[slot]
            if info is not None and info.present:
                asking.tell(model, Machine(info), slot not in self._known)
                # After an error it is reported again.
                self._known[slot] = info.name
        self._version = columns.version

    # --- repair and commit ------------------------------------------------------------------------------------------

    async def _commit(
        self, each: PodClass, placements: Sequence[Placement], alternative: int, started_s: float
    ) -> list[QueuedPodInfo]:
        """Returns the pods that a filter rejected."""
        scheduler, turned_down = self._scheduler, []
        count = len(each.feasible)
        for queued, placement in zip(each.pods, placements, strict=False):
            if not self._is_waiting(queued):
                continue
            node = self._columns.by_slot[placement.slot]
            try:
                state = self._passes(each, queued.pod, node)
                if state is None or node is None:
                    turned_down.append(queued)
                else:
                    self._remember(each, queued.pod, node, placement, alternative)
                    choice = Choice(node, state, INFEASIBLE, self._columns.count, count)
                    scheduler.place(self._run, queued, choice, started_s)
            except Exception as error:
                scheduler.broke(self._run, queued, error, started_s)
            await self._breathe()
        return turned_down

    async def _breathe(self, at_once: bool = False) -> None:
        """At the end of a turn: yields to the event loop, waits while too many bindings are in flight, and lets other
        profiles have a turn of their own. Pods of this profile that come meanwhile are taken for the next round."""
        left_s = self._scheduler.clock.monotonic_s()
        if not at_once and left_s < self._turn_ends_s and self._bindings.has_room:
            return
        await asyncio.sleep(0)
        await self._room()
        await self._scheduler.take_turn()
        # The others took their share of the room, and this round takes the next.
        await self._room()
        back_s = self._scheduler.clock.monotonic_s()
        self._away_s += back_s - left_s
        self._turn_ends_s = back_s + TURN_S

    async def _room(self) -> None:
        while not self._bindings.has_room:
            await self._bindings.an_end()

    def _passes(self, each: PodClass, pod: PodInfo, node: NodeInfo | None) -> CycleState | None:
        """The cycle state for the next points; None if a filter of the profile now rejects the pod there.

        Raises: PluginError."""
        if node is None or not node.present or each.prepared is None:
            return None
        evaluator, slot = self._run.evaluator, np.array([node.slot], np.int64)
        try:
            if self._scheduler.nominations:
                seen = evaluator.beside(pod)
                named = seen.node_names is None or node.name in seen.node_names
                return seen.state if named and len(fitting_of(seen, pod, self._columns, slot)) else None
            if not evaluator.fits(pod, node.name):
                return None
            state = each.prepared.state.clone()
            wide = prepare(self._wide, self._columns, pod, state)
        except Rejected:
            return None
        if wide.node_names is not None and node.name not in wide.node_names:
            return None
        if wide.filters and not len(fitting_of(wide, pod, self._columns, slot)):
            return None
        return state

    def _remember(self, each: PodClass, pod: PodInfo, node: NodeInfo, placement: Placement, alternative: int) -> None:
        limit = self._scheduler.config.explained_decisions
        if not limit:
            return
        model, name, known = self._plugin.model.name, each.job or pod.namespace, self._decisions
        path = (*placement.path, Step("sink", placement.leaf_cost))
        known[pod.uid] = Decision(self.rounds, node.name, model, each.solver, name, path, alternative)
        known.move_to_end(pod.uid)
        while len(known) > limit:
            known.popitem(last=False)

    # --- preemption by price ----------------------------------------------------------------------------------------

    def _holds_for(self, queued: QueuedPodInfo, started_s: float) -> bool:
        """Whether the pod's victims are still terminating; then it is not tried yet."""
        promise = self._promised.get(queued.pod.uid)
        node = self._columns.by_name.get(promise.node) if promise is not None else None
        there = [node.pods[uid] for uid in promise.victims if uid in node.pods] if promise and node else []
        if there and (self._scheduler.is_preempting(queued.pod.uid) or any(each.deleting for each in there)):
            if self._is_waiting(queued):
                self._wait_for(queued, promise.node if promise else "", len(there), started_s)
            return True
        self._promised.pop(queued.pod.uid, None)
        return False

    async def _exchanged(
        self, pods: Sequence[QueuedPodInfo], names: Sequence[Hashable], classes: int, started_s: float
    ) -> Sequence[QueuedPodInfo]:
        """Lets pods of the class of these names replace running ones if the price is right; returns the others.
        `classes`: how many of the round want that, still."""
        if not self._plugin.args.preemption or not self._trials_left:
            return pods
        pods = [queued for queued in pods if self._is_waiting(queued)]
        if not pods or pods[0].pod.preemption_policy == "Never":
            return pods
        try:
            self._tell_of_machines()
            below = price_of_waiting(self._plugin.model, self._task(pods[0], len(pods), started_s))
            found = await self._offers(pods[0].pod, names, classes, below)
            pods = [queued for queued in pods if self._is_waiting(queued)]
            taken = self._taken(self._task(pods[0], len(pods), started_s), found) if found and pods else []
            taken = affordable(taken, self._budgets())
        except PluginError as error:
            logger.error("preemption by price: %s", error)
            return pods
        except Exception as error:
            self._broken(pods, self._why(error), started_s)
            return []
        for queued, exchange in zip(pods, taken, strict=False):
            self._evict(queued, exchange, started_s)
        return pods[len(taken) :]

    def _budgets(self) -> Budgets:
        """What the budgets allow beside the victims that are still there. One that its budget counts already counts
        twice until it is gone: rather one eviction later than one too many."""
        for uid, (victim, by) in list(self._leaving.items()):
            known = self._scheduler.pod(victim.key)
            if known is None or known.uid != uid or not (known.deleting or self._scheduler.is_preempting(by)):
                del self._leaving[uid]
        return self._plugin.budgets().without(victim for victim, _ in self._leaving.values())

    async def _offers(self, pod: PodInfo, names: Sequence[Hashable], classes: int, below: int) -> dict[int, Offer]:
        """By slot; yields to the event loop in turns. Raises: ModelError, PluginError."""
        dry_run = self._scheduler.dry_run(pod)
        if dry_run is None:
            return {}
        columns = self._columns
        for uid, promise in list(self._promised.items()):
            known = self._scheduler.pod(promise.pod)
            if known is None or known.uid != uid or known.node_name:
                del self._promised[uid]
        promised = {promise.node for promise in self._promised.values()}
        slots = np.flatnonzero(columns.present[: columns.size])
        turned = self._turns.take(names, slots, self._trials_left, classes)
        self._trials_left -= len(turned)
        nodes = [columns.by_slot[slot] for slot in turned.tolist()]
        free = [node for node in nodes if node is not None and node.name not in promised]

        def running(other: PodInfo) -> Task:
            began_us = parse_time(other.started)
            ran_s = self._scheduler.clock.wall_s() - began_us / 1e6 if began_us is not None else 0.0
            return Task(other, 1, 0.0, job_of(other), other.node_name, max(0.0, ran_s))

        nominations = self._scheduler.nominations
        version, found = (columns.version, nominations.version), {}
        for offer in offers(dry_run, pod, free, self._budgets(), running, self._plugin.model, below):
            if offer is not None:
                found[offer.node.slot] = offer
            await self._breathe()
        if (columns.version, nominations.version) == version:
            return found
        now = self._scheduler.dry_run(pod)
        return {slot: offer for slot, offer in found.items() if now is not None and stands(offer, now)}

    def _taken(self, task: Task, found: dict[int, Offer]) -> list[Exchange]:
        """Raises: ModelError, Infeasible."""
        extra = {slot: offer.price for slot, offer in found.items()}
        plugin = self._plugin
        graph = Graph(
            plugin.model, self._columns, plugin.args.max_arcs, lambda machines: Relieved(machines, found), extra
        )
        try:
            return exchanges(graph, plugin.solver, task, found)
        finally:
            self.arcs += graph.size[1]
            forget(self._plugin.model, [task])

    def _evict(self, queued: QueuedPodInfo, exchange: Exchange, started_s: float) -> None:
        node, victims = exchange.offer.node, exchange.offer.victims
        self.exchanged += 1
        uids = tuple(victim.uid for victim in victims)
        self._promised[queued.pod.uid] = Promise(queued.pod.key, node.name, uids)
        self._leaving.update((victim.uid, (victim, queued.pod.uid)) for victim in victims)
        self._scheduler.preempt(queued.pod, node.name, victims)
        price = f" (for {exchange.price}; to wait: {exchange.staying})"
        self._wait_for(queued, node.name, len(victims), started_s, price)

    def _wait_for(self, queued: QueuedPodInfo, node: str, count: int, started_s: float, price: str = "") -> None:
        diagnosis = Diagnosis(self._columns.count)
        diagnosis.unschedulable_plugins.add(NAME)
        text = f"cost model {self._plugin.model.name} gives the pod the place of {count} running on {node}{price}"
        message = f"0/{diagnosis.node_count} nodes are available: {text}."
        self._scheduler.fail(self._run, queued, Code.UNSCHEDULABLE, message, diagnosis, started_s, node)

    # --- pods that stay ---------------------------------------------------------------------------------------------

    def _broken(self, pods: Iterable[QueuedPodInfo], message: str, started_s: float) -> None:
        logger.error("%s", message)
        for queued in pods:
            if self._is_waiting(queued):
                self._scheduler.fail(self._run, queued, Code.ERROR, message, None, started_s)

    async def _priced_out(self, pods: Iterable[QueuedPodInfo], alternative: int, started_s: float) -> None:
        """A pod that says so already, but for a price that rises, gets no event and no PATCH each time."""
        model = self._plugin.model.name
        text = f"cost model {model} leaves the pod where it is, for {alternative}: no free way to a node costs less"
        after_s = min(PRICED_AGAIN_MAX_S, REST * self._last_busy_s)
        for queued in pods:
            if not self._is_waiting(queued):
                continue
            diagnosis = Diagnosis(self._columns.count)
            diagnosis.unschedulable_plugins.add(NAME)
            message = f"0/{diagnosis.node_count} nodes are available: {text}."
            pod, code = queued.pod, Code.UNSCHEDULABLE
            self._scheduler.fail(self._run, queued, code, message, diagnosis, started_s, quiet=says(pod, message))
            self._priced_again.keep(pod, after_s)
            await self._breathe()
