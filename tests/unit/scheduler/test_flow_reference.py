"""The graph against one that is written down from the model's answers, arc by arc, with nothing left out or led on: the
placements that are read from the flow cost what networkx finds."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_objects import pod
from test_flow_models import Cluster
from test_flow_reduction import Drawn

from minikube_py.scheduler.flow import Arc, Machines, Task
from minikube_py.scheduler.flow.graph import Graph, TaskClass
from minikube_py.scheduler.flow.problem import faults
from minikube_py.scheduler.flow.solvers import NUMPY


class Chained(Drawn):
    """A class of pods has up to three equivalence classes, which lead to others; two may lead to one machine."""

    def get_task_equiv_classes(self, task: Task) -> list[Any]:
        return [number for number in range(3) if self._of("has", task.job, number).randrange(4)]

    def get_equiv_class_to_equiv_classes_arcs(self, ec: Any) -> list[Any]:
        return [other for other in range(ec + 1, 4) if not self._of("leads", ec, other).randrange(3)]

    def get_outgoing_equiv_class_pref_arcs(self, ec: Any, machines: Machines) -> list[int] | None:
        if self._of("all", ec).randrange(2):
            return None
        return [at for at, machine in enumerate(machines) if self._of("some", ec, machine.name).randrange(2)]

    def task_to_equiv_class_aggregator(self, task: Task, ec: Any) -> Arc:
        rng = self._of("to", task.job, ec)
        return Arc(rng.randint(-3, 9), int(rng.randrange(4) > 0))


class Written:
    """A problem of named nodes; each arc becomes two, as several may lead from one node to another."""

    def __init__(self) -> None:
        self.graph = networkx.DiGraph()
        self._arcs = 0

    def supply(self, node: Any, amount: int) -> None:
        self.graph.add_node(node, demand=-amount)

    def arc(self, start: Any, end: Any, capacity: int, cost: int) -> None:
        self._arcs += 1
        self.graph.add_edge(start, self._arcs, capacity=int(capacity), weight=int(cost))
        self.graph.add_edge(self._arcs, end, capacity=int(capacity), weight=0)

    def price(self) -> int:
        found, _ = networkx.network_simplex(self.graph)
        return int(found)


def written(model: Drawn, cluster: Cluster, classes: list[TaskClass]) -> int:
    """The price of the cheapest flow: twice the arcs' costs, and 1 for each pod that stays."""
    found, machines = Written(), cluster.machines
    total = sum(each.task.count for each in classes)
    tiers = min(model.machine_classes, total)
    found.supply("sink", -total)
    inner, leaf = model.resource_nodes_to_resource_nodes(machines), model.leaf_resource_nodes_to_sink(machines)
    for at, slot in enumerate(machines.slots.tolist()):
        found.arc(("machine", slot), ("inner", slot), inner.capacity[at], 2 * inner.cost[at])
        found.arc(("inner", slot), "sink", leaf.capacity[at], 2 * leaf.cost[at])
        for index in range(tiers):
            found.arc(("machine class", slot, index), ("machine", slot), 1, 0)
        # All pods have equal requests, whatever else their filters say.
        fit = max(int(each.room[each.slots == slot].sum()) for each in classes)
        found.arc(("fits", slot), ("machine", slot), fit, 0)
    for number, each in enumerate(classes):
        task = each.task
        found.supply(("pods", number), task.count)
        found.arc(("pods", number), "sink", task.count, 2 * model.task_to_unscheduled_agg(task).cost + 1)
        known: set[Any] = set()
        for ec in model.get_task_equiv_classes(task):
            arc = model.task_to_equiv_class_aggregator(task, ec)
            found.arc(("pods", number), (number, ec), arc.capacity * task.count, 2 * arc.cost)
            _write_class(found, model, cluster, each, number, ec, tiers, known)
        chosen = Machines(cluster.columns.some(each.slots), each.slots)
        for at in model.get_task_preference_arcs(task, chosen):
            arc, slot = model.task_to_resource_node(task, chosen[at]), int(each.slots[at])
            room = min(arc.capacity * task.count, int(each.room[at]))
            found.arc(("pods", number), ("fits", slot), room, 2 * arc.cost)
    return found.price()


def _write_class(
    found: Written, model: Drawn, cluster: Cluster, of: TaskClass, number: int, ec: Any, tiers: int, known: set[Any]
) -> None:
    if ec in known:
        return
    known.add(ec)
    for other in model.get_equiv_class_to_equiv_classes_arcs(ec):
        arc = model.equiv_class_to_equiv_class(ec, other)
        found.arc((number, ec), (number, other), arc.capacity, 2 * arc.cost)
        _write_class(found, model, cluster, of, number, other, tiers, known)
    machines = Machines(cluster.columns.some(of.slots), of.slots)
    some = model.get_outgoing_equiv_class_pref_arcs(ec, machines)
    for at in range(len(machines)) if some is None else some:
        slot, room = int(of.slots[at]), int(of.room[at])
        one = Machines(cluster.columns.some(of.slots[at : at + 1]), of.slots[at : at + 1])
        for index in range(tiers):
            arcs = model.equiv_class_to_machine_classes(ec, one, index)
            capacity = min(arcs.capacity[0], room > index)
            found.arc((number, ec), ("machine class", slot, index), capacity, 2 * arcs.cost[0])
        if not model.machine_classes:
            arcs = model.equiv_class_to_resource_nodes(ec, one)
            found.arc((number, ec), ("fits", slot), min(arcs.capacity[0], room), 2 * arcs.cost[0])


CLASSES = st.lists(
    st.tuples(st.integers(2, 5), st.lists(st.integers(0, 4), min_size=1, max_size=5)), min_size=1, max_size=2
)
"""Of each class: how many pods, and how many of them each machine takes, in turn; 0 where filters reject them."""


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from((0, 1, 2, 3)), st.integers(1, 5), CLASSES)
def test_placements_cost_what_the_cheapest_flow_of_the_whole_graph_does(
    seed: int, tiers: int, machines: int, classes: list[tuple[int, list[int]]]
) -> None:
    cluster, model = Cluster(**{f"n{at}": {} for at in range(machines)}), Chained(seed, tiers)
    drawn = []
    for at, (count, rooms) in enumerate(classes):
        room = np.array([rooms[slot % len(rooms)] for slot in range(machines)])
        slots = np.flatnonzero(room > 0)
        drawn.append(TaskClass(Task(pod(f"p{at}"), count, 0.0, f"job{at}"), slots, room[slots]))
    graph = Graph(model, cluster.columns)
    problem = graph.build(drawn)
    assert not graph.failed
    flow = NUMPY.solve(problem)
    assert not faults(problem, flow)
    price = 0
    for number, each in enumerate(drawn):
        placements = list(graph.placements(number, flow, problem))
        staying = each.task.count - len(placements)
        price += 2 * sum(one.price for one in placements)
        price += staying * (2 * graph.unscheduled_price(number, problem) + 1)
    assert price == problem.price(flow) == written(model, cluster, drawn)


class Two(Drawn):
    """Two equivalence classes lead to each machine, whose second place costs more."""

    def get_task_equiv_classes(self, task: Task) -> list[Any]:
        return ["x", "y"]

    def get_equiv_class_to_equiv_classes_arcs(self, ec: Any) -> list[Any]:
        return []

    def get_outgoing_equiv_class_pref_arcs(self, ec: Any, machines: Machines) -> None:
        return None

    def get_task_preference_arcs(self, task: Task, machines: Machines) -> list[int]:
        return []

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(1000)

    def task_to_equiv_class_aggregator(self, task: Task, ec: Any) -> Arc:
        return Arc(0)

    def equiv_class_to_machine_classes(self, ec: Any, machines: Machines, index: int) -> Any:
        return np.full(len(machines), 500 if index else 1), np.ones(len(machines), np.int64)

    def resource_nodes_to_resource_nodes(self, machines: Machines) -> Any:
        return np.zeros(len(machines), np.int64), np.full(len(machines), 9)

    leaf_resource_nodes_to_sink = resource_nodes_to_resource_nodes


def test_a_machine_class_takes_one_pod_also_where_one_class_of_pods_waits() -> None:
    cluster = Cluster(a={})
    graph = Graph(Two(0, 2), cluster.columns)
    problem = graph.build([TaskClass(Task(pod("p"), 2, 0.0, "job"), cluster.machines.slots, np.array([5]))])
    assert sorted(each.price for each in graph.placements(0, NUMPY.solve(problem), problem)) == [1, 500]
