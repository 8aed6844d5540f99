"""Preemption by price: a pod that waits takes the place of running ones where that costs less, all counted. Pure.

For a class of equal pods and each node where they would pass the filters were some running pods gone, the cheapest to
displace go. Displacing one costs what the model says of its eviction, at least what it costs to wait again, less what
it costs to go on. A flow over these nodes then says which of the class's pods go where, or that it is cheaper to wait.
Source: Firmament prices a running task's arc by TaskContinuation and its unscheduled arc by TaskPreemption; it has
neither dimensions nor disruption budgets, which a trial of the profile's filters and a look at the budgets judge here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from minikube_py.scheduler.budgets import Budgets
from minikube_py.scheduler.dry_run import DryRuns, charge, copied
from minikube_py.scheduler.flow.checking import Asking
from minikube_py.scheduler.flow.graph import Graph, Placement, TaskClass
from minikube_py.scheduler.flow.model import CostModel, Machine, Machines, Task
from minikube_py.scheduler.flow.solvers import Solver
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo
from minikube_py.scheduler.plugins.default_preemption import by_budget, importance

NODES_MAX: Final = 256
"""Nodes that are tried in one round, for all its classes; each goes on after the one before."""


class Offer(NamedTuple):
    """A node where one of the class's pods would fit without `victims`. `price`: to displace them all."""

    node: NodeInfo
    victims: tuple[PodInfo, ...]
    price: int


class Exchange(NamedTuple):
    """One pod of the class takes the place of the offer's victims. `price`: all together; `staying`: of waiting."""

    offer: Offer
    price: int
    staying: int


class Relieved(Machines):
    """Machines as they would be without the victims of an offer each."""

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


def displacing(model: CostModel, task: Task) -> int:
    """What it costs to evict one running pod, less what it would cost to go on, and never less than that it waits
    again: or two equal pods that cost to go on would take turns. Raises: ModelError."""
    asking = Asking(model.name, "running", task)
    evicted = asking.arc("running -> unscheduled", model.task_preemption, task).cost
    waits = asking.arc("task -> unscheduled", model.task_to_unscheduled_agg, task).cost
    return max(evicted - asking.arc("running -> machine", model.task_continuation, task).cost, waits)


def offers(
    dry_run: DryRuns,
    pod: PodInfo,
    nodes: Iterable[NodeInfo],
    budgets: Budgets,
    running: Callable[[PodInfo], Task],
    model: CostModel,
) -> dict[int, Offer]:
    """By slot. Only pods of the same scheduler, that run, of no higher priority, and that no budget protects.

    Raises: ModelError, PluginError."""
    found = {}
    for node in nodes:
        below = sorted((other for other in node.pods.values() if may_go(other, pod)), key=importance)
        _, free = by_budget(below, budgets)
        if not free:
            continue
        trial = dry_run(node)
        for other in free:
            trial.remove(other)
        if trial.rejection() is not None:
            continue
        prices = {other.uid: displacing(model, running(other)) for other in free}
        victims = []
        # The most expensive come back first, and of equals the most important.
        for other in sorted(free, key=lambda other: -prices[other.uid]):
            trial.add(other)
            if trial.rejection() is not None:
                trial.remove(other)
                victims.append(other)
        if victims:
            found[node.slot] = Offer(node, tuple(victims), sum(prices[victim.uid] for victim in victims))
    return found


def may_go(other: PodInfo, pod: PodInfo) -> bool:
    known = other.scheduler_name == pod.scheduler_name and bool(other.started)
    return known and not other.deleting and other.priority <= pod.priority


def exchanges(graph: Graph, solver: Solver, task: Task, found: Mapping[int, Offer]) -> list[Exchange]:
    """Which of the offers the class takes: one a pod, and only where it costs less than to wait.

    `graph`: one that looks at machines as `Relieved`. Raises: ModelError, Infeasible."""
    slots = np.array(sorted(found), np.int64)
    problem = graph.build([TaskClass(task, slots, np.ones(len(slots), np.int64))])
    if graph.failed:
        raise graph.failed[0]
    flow = solver.solve(problem)
    staying = graph.unscheduled_price(0, problem)
    placed: Sequence[Placement] = list(graph.placements(0, flow, problem))
    return [Exchange(found[each.slot], each.price, staying) for each in placed if each.price < staying]
