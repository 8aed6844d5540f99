"""Arcs to a class's cheapest machines alone: the flow costs what it costs with all arcs, by judges of other origin."""

from __future__ import annotations

import random
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_objects import pod
from scipy.optimize import linprog
from scipy.sparse import coo_array
from test_flow_models import Cluster, classes_of

from minikube_py.scheduler.flow import Arc, CostModel, Machines, Task
from minikube_py.scheduler.flow.graph import Graph, TaskClass
from minikube_py.scheduler.flow.model import Arcs
from minikube_py.scheduler.flow.models import MODELS, model_named
from minikube_py.scheduler.flow.problem import Infeasible, Problem, faults, reduced
from minikube_py.scheduler.flow.solvers import NUMPY


class Whole(Graph):
    """With every arc."""

    def _cheapest(self, tiers: Any) -> Any:
        return tiers

    def _open(self, tier: Any) -> Any:
        return tier

    def _roomy(self, directly: Any, arrives: Any) -> Any:
        return np.zeros(len(arrives), np.bool_)


class Drawn(CostModel):
    """Answers that follow from a seed and the question: prices that rise and fall from pod to pod on one machine, full
    machines, classes that lead to others with little room, machines that a pod prefers, least flows."""

    name = "DRAWN"

    def __init__(self, seed: int, tiers: int) -> None:
        super().__init__({}, random.Random(0))
        self.seed = seed
        self.machine_classes = tiers

    def _of(self, *what: Any) -> random.Random:
        return random.Random(f"{self.seed}/{what}")

    def _arcs(self, machines: Machines, most: int, *what: Any) -> Arcs:
        drawn = [self._of(*what, machine.name) for machine in machines]
        cost = [rng.randint(-3, 20) for rng in drawn]
        return Arcs(np.array(cost, np.int64), np.array([rng.randint(0, most) for rng in drawn], np.int64))

    def get_task_equiv_classes(self, task: Task) -> list[Any]:
        # That of the specification is one for all pods of it.
        return [f"spec {task.request('cpu')}", f"job {task.job}"]

    def get_equiv_class_to_equiv_classes_arcs(self, ec: Any) -> list[Any]:
        return ["below"] if ec.startswith("job") else []

    def get_task_preference_arcs(self, task: Task, machines: Machines) -> list[int]:
        names = [machine.name for machine in machines]
        return [at for at, name in enumerate(names) if not self._of("prefers", task.job, name).randrange(6)]

    def get_outgoing_equiv_class_pref_arcs(self, ec: Any, machines: Machines) -> list[int] | None:
        if ec != "below":
            return None
        return [at for at, machine in enumerate(machines) if self._of("some", machine.name).randrange(3)]

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(self._of("stays", task.job).randint(5, 40))

    def task_to_equiv_class_aggregator(self, task: Task, ec: Any) -> Arc:
        rng = self._of("to", task.job, ec)
        return Arc(rng.randint(0, 9), 1, rng.choice((0, 0, 0, 1)))

    def equiv_class_to_equiv_class(self, ec: Any, to: Any) -> Arc:
        rng = self._of("between", ec, to)
        return Arc(rng.randint(0, 4), rng.randint(0, 3))

    def task_to_resource_node(self, task: Task, machine: Any) -> Arc:
        return Arc(self._of("own", task.job, machine.name).randint(0, 20))

    def equiv_class_to_resource_nodes(self, ec: Any, machines: Machines) -> Arcs:
        return self._arcs(machines, 2, ec)

    def equiv_class_to_machine_classes(self, ec: Any, machines: Machines, index: int) -> Arcs:
        return self._arcs(machines, 1, ec, index)

    def resource_nodes_to_resource_nodes(self, machines: Machines) -> Arcs:
        return self._arcs(machines, 3, "inner")

    def leaf_resource_nodes_to_sink(self, machines: Machines) -> Arcs:
        return self._arcs(machines, 3, "leaf")


class OneAfterAnother(Drawn):
    """All ways to one machine cost about the same: the cheapest arcs are more than it takes pods."""

    def _arcs(self, machines: Machines, most: int, *what: Any) -> Arcs:
        of_machines = [self._of("all ways", machine.name).randint(0, 20) for machine in machines]
        drawn = super()._arcs(machines, most, *what)
        return Arcs(np.where(np.asarray(drawn.cost) > 0, of_machines, drawn.cost), np.maximum(drawn.capacity, 1))

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(200)


def by_networkx(problem: Problem) -> int:
    simple, base, sign = reduced(problem)
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from((i, {"demand": -int(amount)}) for i, amount in enumerate(simple.supply))
    ends = list(zip(simple.start.tolist(), simple.end.tolist(), strict=True))
    for i, (u, v) in enumerate(ends):
        graph.add_edge(u, v, key=i, capacity=int(simple.capacity[i]), weight=int(simple.cost[i]))
    _, found = networkx.network_simplex(graph)
    return problem.price(base + sign * np.array([found[u][v][i] for i, (u, v) in enumerate(ends)], np.int64))


def by_highs(problem: Problem) -> int:
    count, nodes = len(problem.start), len(problem.supply)
    columns = np.arange(count)
    balance = coo_array((np.ones(count), (problem.start, columns)), (nodes, count))
    balance = balance - coo_array((np.ones(count), (problem.end, columns)), (nodes, count))
    lower = np.zeros(count) if problem.lower is None else problem.lower
    bounds = np.column_stack((lower, problem.capacity))
    found = linprog(problem.cost, A_eq=balance, b_eq=problem.supply, bounds=bounds, method="highs")
    assert found.status == 0, found.message
    return round(found.fun)


CLASSES = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=4)
"""Of each class: its cpu, how many pods, and every how manieth machine its filters reject."""


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 1 << 30), st.integers(0, 3), st.integers(2, 14), CLASSES, st.sampled_from((Drawn, OneAfterAnother))
)
def test_the_flow_costs_what_it_costs_with_all_arcs(
    seed: int, tiers: int, machines: int, classes: list[tuple[int, int, int]], model: type[Drawn]
) -> None:
    cluster = Cluster(**{f"n{at}": {"cpu": "3"} for at in range(machines)})
    slots = cluster.machines.slots
    found = []
    for at, (cpu, count, rejects) in enumerate(classes):
        fits = slots[slots % (rejects + 1) == 0] if rejects else slots
        task = Task(pod(f"p{at}", cpu=str(cpu)), count, 0.0, f"job{at}")
        found.append(TaskClass(task, fits, np.full(len(fits), 3 // cpu)))
    few, all_of_them = (kind(model(seed, tiers), cluster.columns) for kind in (Graph, Whole))
    small, whole = (graph.build(found) for graph in (few, all_of_them))
    assert few.size[1] <= all_of_them.size[1] and len(small.supply) <= len(whole.supply)
    try:
        flow = NUMPY.solve(whole)
    except Infeasible:
        with pytest.raises(Infeasible):
            NUMPY.solve(small)
        return
    price = whole.price(flow)
    assert not faults(whole, flow)
    assert by_networkx(small) == by_networkx(whole) == price == small.price(NUMPY.solve(small))
    assert by_highs(small) == price


def test_a_round_has_as_many_arcs_as_its_pods_need_and_not_as_there_are_machines() -> None:
    sizes = []
    for machines in (50, 500):
        cluster = Cluster(**{f"n{at}": {} for at in range(machines)})
        graph = Graph(model_named("CPU_MEM", {}, random.Random(0)), cluster.columns)
        tasks = [Task(pod(f"p{at}", cpu=f"{at + 1}m"), 4, 0.0, f"job{at}") for at in range(3)]
        graph.build(classes_of(cluster, *tasks))
        sizes.append(graph.size)
    # Of 12 pods, each class reaches 12 machines' first places, and of these each leads to the sink.
    assert sizes[0] == sizes[1]
    assert sizes[0][1] <= 3 * (12 + 2) + 3 * 12 + 3


def test_one_machine_with_room_for_all_pods_is_enough() -> None:
    cluster = Cluster(**{f"n{at}": {} for at in range(20)})
    graph = Graph(model_named("OCTOPUS", {}, random.Random(0)), cluster.columns)
    graph.build(classes_of(cluster, Task(pod("p"), 100, 0.0, "job")))
    # The class, its equivalence class, its job, the machine, the sink.
    assert graph.size == (5, 5)


def test_of_machines_of_equal_price_there_are_as_many_as_pods_and_the_first() -> None:
    cluster = Cluster(**{f"n{at}": {"pods": "1"} for at in range(20)})
    graph = Graph(model_named("OCTOPUS", {}, random.Random(0)), cluster.columns)
    problem = graph.build(classes_of(cluster, Task(pod("p"), 7, 0.0, "job")))
    assert graph.size == (7 + 4, 7 + 7 + 3)
    placed = graph.placements(0, NUMPY.solve(problem), problem)
    assert [each.slot for each in placed] == list(range(7))


def test_a_model_is_asked_once_for_classes_of_pods_of_one_specification() -> None:
    asked = []

    class Counted(MODELS["CPU_MEM"]):  # type: ignore[name-defined, misc]
        def equiv_class_to_machine_classes(self, ec: Any, machines: Machines, index: int) -> Arcs:
            asked.append((ec, index))
            found: Arcs = super().equiv_class_to_machine_classes(ec, machines, index)
            return found

    cluster = Cluster(a={}, b={})
    graph = Graph(Counted({}, random.Random(0)), cluster.columns)
    slots, room = cluster.machines.slots, np.array([2, 2])
    graph.build([TaskClass(Task(pod(f"p{at}", cpu="1"), 2, 0.0, f"job{at}"), slots, room) for at in range(4)])
    assert len(asked) == len(set(asked)) == 8
