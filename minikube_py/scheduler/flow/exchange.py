"""Preemption by price: a waiting pod replaces running ones if that lowers the total cost. Pure.

For a class of equal pods, each node where they would pass the filters without some running pods is an offer; the
cheapest pods to displace are the victims. Displacing one costs its eviction price, which is at least that of waiting
again, minus its continuation price. A flow over these nodes decides which pods go where, or that waiting is cheaper.
No pod displaces one whose waiting costs as much as its own, or more: otherwise equal pods with expensive continuations
would displace each other forever. So wherever waiting has a price that does not change, exchanges end.
Source: Firmament prices a running task's arc by TaskContinuation and its unscheduled arc by TaskPreemption. It has
neither dimensions nor disruption budgets, which are checked here by trials of the filters and by the budgets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from minikube_py.scheduler.budgets import Budgets
from minikube_py.scheduler.dry_run import DryRuns, charge, copied
from minikube_py.scheduler.flow.checking import Asking, forget
from minikube_py.scheduler.flow.graph import Graph, Placement, TaskClass
from minikube_py.scheduler.flow.model import CostModel, Machine, Machines, Task
from minikube_py.scheduler.flow.solvers import Solver
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo
from minikube_py.scheduler.plugins.default_preemption import by_budget, importance

T = TypeVar("T")
NODES_MAX: Final = 256
"""Nodes tried per round, over all classes; each class resumes where it stopped."""
TURN_NODES: Final = 32
"""Nodes that a class tries in its turn, if all classes of the round together may not try as many each."""


class Turns:
    """Classes take turns across rounds, whoever waited longest first. A class has several names, of which any may be
    another in the next round. Of the names that tried last, the first are forgotten."""

    KEPT_MAX: Final = 8192

    def __init__(self) -> None:
        self._at: OrderedDict[Hashable, int] = OrderedDict()
        self._taken = 0

    def ordered(self, waiting: Iterable[T], names: Callable[[T], Sequence[Hashable]]) -> list[T]:
        """A class that was never seen comes after all that were, however many such come."""
        last = {name: number for number, name in enumerate(self._at)}
        placed: list[tuple[int, T]] = []
        for each in waiting:
            known = [last[name] for name in names(each) if name in last]
            if not known:
                known = [len(last)]
                last.update(dict.fromkeys(names(each), len(last)))
                # It starts where others ended: not all at the same nodes.
                self._at.update(dict.fromkeys(names(each), self._taken))
            placed.append((max(known), each))
        return [each for _, each in sorted(placed, key=lambda pair: pair[0])]

    def take(self, names: Sequence[Hashable], slots: IntArray, left: int, classes: int) -> IntArray:
        """Its next nodes: a fair share of the `left` ones, since `classes` still want a turn."""
        count = min(left, len(slots), max(TURN_NODES, left // max(1, classes)))
        if not count:
            return slots[:0]
        known = [at for name in names if (at := self._at.pop(name, None)) is not None]
        at = (known[0] if known else self._taken) % len(slots)
        self._at.update(dict.fromkeys(names, at + count))
        self._taken += count
        while len(self._at) > self.KEPT_MAX:
            self._at.popitem(last=False)
        return np.roll(slots, -at)[:count]


class Offer(NamedTuple):
    """A node where one pod of the class fits without `victims`. `price`: of displacing them all."""

    node: NodeInfo
    victims: tuple[PodInfo, ...]
    price: int


class Exchange(NamedTuple):
    """One pod of the class replaces the offer's victims. `price`: the total; `staying`: of waiting."""

    offer: Offer
    price: int
    staying: int


class Relieved(Machines):
    """Machines without the victims of their offers."""

    __slots__ = ("_offers",)

    def __init__(self, machines: Machines, offers: Mapping[int, Offer]) -> None:
        super().__init__(machines.nodes, machines.slots)
        self._offers = [offers.get(slot) for slot in machines.slots.tolist()]

    def __getitem__(self, position: int) -> Machine:
        machine, offer = super().__getitem__(position), self._offers[position]
        if offer is None:
            return machine
        node = copied(machine.info)
        for victim in offer.victims:
            charge(node, victim, -1)
        return Machine(node)

    def _released(self, resource: str) -> IntArray:
        return np.array([
            0 if offer is None else
            len(offer.victims) if resource == PODS else sum(each.spec.request(resource) for each in offer.victims)
            for offer in self._offers
        ], np.int64)  # fmt: skip

    def free(self, resource: str) -> IntArray:
        return super().free(resource) + self._released(resource)

    @property
    def running(self) -> IntArray:
        return super().running - self._released(PODS)


def waiting(model: CostModel, task: Task, asking: Asking) -> int:
    """What one of its pods costs as long as it waits. Raises: ModelError."""
    aside = asking.arc("task -> unscheduled", model.task_to_unscheduled_agg, task).cost
    return aside + asking.arc(f"unscheduled {task.job} -> sink", model.unscheduled_agg_to_sink, task.job).cost


def price_of_waiting(model: CostModel, task: Task) -> int:
    """Outside of a graph. Raises: ModelError."""
    asking = Asking(model.name, TaskClass.named(task), task)
    asking.ask("add_task", model.add_task, task)
    try:
        return waiting(model, task, asking)
    finally:
        forget(model, [task])


def displacing(model: CostModel, task: Task, below: int) -> int | None:
    """The price of evicting a running pod, minus that of its continuation; None if its waiting does not cost less than
    `below`. Raises: ModelError."""
    asking = Asking(model.name, f"{task.job}, running on {task.node}", task)
    waits = waiting(model, task, asking)
    if waits >= below:
        return None
    evicted = asking.arc("running -> unscheduled", model.task_preemption, task).cost
    return max(evicted, waits) - asking.arc("running -> machine", model.task_continuation, task).cost


def offers(
    dry_run: DryRuns,
    pod: PodInfo,
    nodes: Iterable[NodeInfo],
    budgets: Budgets,
    running: Callable[[PodInfo], Task],
    model: CostModel,
    below: int,
) -> Iterator[Offer | None]:
    """Victims are running pods of the same scheduler, of no higher priority, not protected by a budget, and whose
    waiting costs less than `below`. After each run of the filters it yields None, if no offer: whoever asks may do
    something else meanwhile, and then calls `stands`.

    Raises: ModelError, PluginError."""
    for node in nodes:
        may = sorted((other for other in node.pods.values() if may_go(other, pod)), key=importance)
        _, free = by_budget(may, budgets)
        asked = ((other, displacing(model, running(other), below)) for other in free)
        prices = {other.uid: price for other, price in asked if price is not None}
        free = [other for other in free if other.uid in prices]
        if not free:
            continue
        trial = dry_run(node)
        for other in free:
            trial.remove(other)
        rejected = trial.rejection()
        yield None
        if rejected is not None:
            continue
        victims = []
        # The most expensive are restored first, and among equals the most important.
        for other in sorted(free, key=lambda other: -prices[other.uid]):
            trial.add(other)
            if trial.rejection() is not None:
                trial.remove(other)
                victims.append(other)
            yield None
        if victims:
            yield Offer(node, tuple(victims), sum(prices[victim.uid] for victim in victims))


def stands(offer: Offer, dry_run: DryRuns) -> bool:
    """Whether the pod fits there without the victims now. Raises: PluginError."""
    node = offer.node
    there = [other for victim in offer.victims if (other := node.pods.get(victim.uid)) and not other.deleting]
    if not node.present or len(there) < len(offer.victims):
        return False
    trial = dry_run(node)
    for other in there:
        trial.remove(other)
    return trial.rejection() is None


def affordable(taken: Iterable[Exchange], budgets: Budgets) -> list[Exchange]:
    """The cheapest of them that the disruption budgets allow together."""
    found = []
    for each in sorted(taken, key=lambda each: each.price):
        if not by_budget(each.offer.victims, budgets)[0]:
            budgets = budgets.without(each.offer.victims)
            found.append(each)
    return found


def may_go(other: PodInfo, pod: PodInfo) -> bool:
    known = other.scheduler_name == pod.scheduler_name and bool(other.started)
    return known and not other.deleting and other.priority <= pod.priority


def exchanges(graph: Graph, solver: Solver, task: Task, found: Mapping[int, Offer]) -> list[Exchange]:
    """The offers that the class takes: one per pod, and only if cheaper than waiting.

    `graph`: must see machines as `Relieved`. Raises: ModelError, Infeasible."""
    slots = np.array(sorted(found), np.int64)
    problem = graph.build([TaskClass(task, slots, np.ones(len(slots), np.int64))])
    if graph.failed:
        raise graph.failed[0]
    flow = solver.solve(problem)
    staying = graph.unscheduled_price(0, problem)
    placed: Sequence[Placement] = list(graph.placements(0, flow, problem))
    return [Exchange(found[each.slot], each.price, staying) for each in placed if each.price < staying]
