"""Laws of graph, exchange and rounds that repair would hide if they broke: on drawn clusters, or by counted work."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_objects import pod
from scheduler_world import settle
from test_flow_exchange import RUNS, WORTH, labelled, leaving
from test_flow_models import Cluster
from test_flow_reduction import Drawn
from test_scheduler_flow import flow_config, flowing
from virtual_time import run_virtually

from minikube_py.lab.plugins.drawn import Words, drawn_case
from minikube_py.lab.plugins.model_laws import columns_of
from minikube_py.scheduler.configuration.files import with_own
from minikube_py.scheduler.flow import Arc, CostModel, Machines, Task
from minikube_py.scheduler.flow.exchange import Offer, Relieved, exchanges
from minikube_py.scheduler.flow.graph import SOLVES_MAX, Graph, TaskClass
from minikube_py.scheduler.flow.model import Arcs
from minikube_py.scheduler.flow.models import model_named
from minikube_py.scheduler.flow.problem import Problem
from minikube_py.scheduler.flow.solvers import NUMPY, Solved
from minikube_py.scheduler.framework import Code, CycleState, IntArray, Status
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo, project_pod
from minikube_py.scheduler.own import Guarded, OwnPlugin

SEEDS = st.integers(0, 1 << 30)
MACHINES = 4
CLASSES = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(0, 2), min_size=MACHINES, max_size=MACHINES)),
    min_size=1,
    max_size=3,
)
"""Of each class: how many pods, and how many of them fit each machine."""


def cluster_of(count: int) -> Cluster:
    return Cluster(**{f"n{at}": {} for at in range(count)})


def classes_of(cluster: Cluster, classes: list[tuple[int, list[int]]]) -> list[TaskClass]:
    return [
        TaskClass(Task(pod(f"p{at}", cpu=f"{at + 1}m"), count, 0.0, f"job{at}"), cluster.machines.slots, np.array(room))
        for at, (count, room) in enumerate(classes)
    ]


class Crowding(Drawn):
    """Every arc has more room than any machine, and no pod may stay."""

    def _arcs(self, machines: Machines, most: int, *what: Any) -> Arcs:
        return Arcs(super()._arcs(machines, most, *what).cost, 9)

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(10_000)

    def task_to_equiv_class_aggregator(self, task: Task, ec: Any) -> Arc:
        return super().task_to_equiv_class_aggregator(task, ec)._replace(min_flow=0)


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.integers(0, 3), CLASSES, st.sets(st.integers(0, MACHINES - 1)))
def test_no_way_to_a_machine_carries_more_pods_of_a_class_than_fit_there(
    seed: int, tiers: int, classes: list[tuple[int, list[int]]], priced: set[int]
) -> None:
    cluster = cluster_of(MACHINES)
    graph = Graph(Crowding(seed, tiers), cluster.columns, extra=dict.fromkeys(priced, 3))
    problem = graph.build(classes_of(cluster, classes))
    flow = NUMPY.solve(problem)
    on: Counter[int] = Counter()
    for number, (count, room) in enumerate(classes):
        placed = list(graph.placements(number, flow, problem))
        # The last equivalence class, or none where the pod prefers the machine.
        ways = Counter((each.slot, tuple(step.to for step in each.path[-2:-1])) for each in placed)
        assert len(placed) <= count and all(amount <= room[slot] for (slot, _), amount in ways.items())
        on.update(each.slot for each in placed)
    assert all(on[slot] <= 1 for slot in priced), "what a price was found for is the place of one pod"


class Least(CostModel):
    """To stay costs nothing, and all else does."""

    def __init__(self, least: int) -> None:
        super().__init__({}, random.Random(0))
        self.least = least

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(0)

    def task_to_equiv_class_aggregator(self, task: Task, ec: Any) -> Arc:
        return Arc(5, 1, self.least)


@given(st.integers(0, 9), st.integers(1, 5))
def test_a_least_flow_takes_as_many_pods_as_it_says_or_fails_its_class(least: int, count: int) -> None:
    cluster = cluster_of(2)
    graph = Graph(Least(least), cluster.columns)
    classes = classes_of(cluster, [(count, [9, 9])])
    problem, solved = graph.solved(classes, graph.build(classes), NUMPY)
    assert bool(graph.failed) == (least > count)
    if least <= count:
        assert len(list(graph.placements(0, solved.flow, problem))) == least
    else:
        assert f"min_flow is {least}, and the arc has room for {count}" in str(graph.failed[0])


class Counted:
    """A solver that tells how often it was asked."""

    name = NUMPY.name

    def __init__(self) -> None:
        self.solves = 0

    def solve(self, problem: Problem) -> IntArray:
        return self.solved(problem).flow

    def solved(self, problem: Problem) -> Solved:
        self.solves += 1
        return NUMPY.solved(problem)


NO, YES = (2, [1, 0]), (2, [2, 2])
"""Classes that cannot have two pods placed, and that can."""


def least_of(least: int, given: list[tuple[int, list[int]]]) -> tuple[Graph, int, int]:
    """The graph, how often the solver was asked, and how many pods were placed."""
    classes, solver = classes_of(cluster := cluster_of(2), given), Counted()
    graph = Graph(Least(least), cluster.columns)
    problem, solved = graph.solved(classes, graph.build(classes), solver)
    placed = sum(len(list(graph.placements(number, solved.flow, problem))) for number in range(len(classes)))
    return graph, solver.solves, placed


def test_a_least_flow_above_the_number_of_pods_is_found_without_a_solve() -> None:
    graph, solves, placed = least_of(2, [(1, [9, 9])] * 100 + [YES])
    assert solves == 1 and list(graph.failed) == list(range(100)) and placed == 2


def test_classes_whose_least_flow_cannot_be_met_are_found_in_few_solves() -> None:
    graph, solves, placed = least_of(2, [*[YES] * 9, NO, *[YES] * 10])
    assert list(graph.failed) == [9] and placed == 2 * 19
    assert "min_flow is 2, and cannot be met together with those of 9 classes before it: " in str(graph.failed[9])
    assert solves <= 2 + 2 * math.ceil(math.log2(20))


def test_the_search_for_least_flows_is_bounded_and_says_so() -> None:
    graph, solves, placed = least_of(2, [YES, YES, *[NO] * 198])
    assert solves == SOLVES_MAX and sorted(graph.failed) == list(range(2, 200)) and placed == 4
    assert "and cannot be met together with those of 2 classes before it: " in str(graph.failed[2])
    told = "min_flow is 2, and is among those of 200 classes that cannot all be met; 64 solves did not tell which can"
    assert told in str(graph.failed[199]) and "pod default/p199" in str(graph.failed[199])


class Repeating(Drawn):
    """Names each of its machines twice, and the last first."""

    def get_task_preference_arcs(self, task: Task, machines: Machines) -> list[int]:
        return 2 * super().get_task_preference_arcs(task, machines)[::-1]

    def get_outgoing_equiv_class_pref_arcs(self, ec: Any, machines: Machines) -> list[int] | None:
        some = super().get_outgoing_equiv_class_pref_arcs(ec, machines)
        return None if some is None else 2 * some[::-1]


@given(SEEDS, st.integers(0, 2), CLASSES)
def test_machines_named_twice_or_in_another_order_are_the_same_machines(
    seed: int, tiers: int, classes: list[tuple[int, list[int]]]
) -> None:
    cluster = cluster_of(MACHINES)
    once, twice = (
        Graph(kind(seed, tiers), cluster.columns).build(classes_of(cluster, classes)) for kind in (Drawn, Repeating)
    )
    for name, one, other in zip(Problem._fields, once, twice, strict=True):
        assert np.array_equal(one, other), name  # type: ignore[arg-type]


@given(st.integers(1, 40), st.integers(1, 6), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 6))
def test_no_more_arcs_from_machine_classes_are_priced_than_allowed_but_one_for_each_machine(
    most: int, tiers: int, counts: list[int], machines: int
) -> None:
    priced: Counter[int] = Counter()

    class Counted(Least):
        machine_classes = tiers

        def get_task_equiv_classes(self, task: Task) -> list[Any]:
            return [task.job]

        def equiv_class_to_machine_classes(self, ec: Any, machines: Machines, index: int) -> Arcs:
            priced[index] += len(machines)
            return Arcs(1, 1)

    cluster = cluster_of(machines)
    classes = classes_of(cluster, [(count, [9] * machines) for count in counts])
    Graph(Counted(0), cluster.columns, most).build(classes)
    pairs = machines * len(counts)
    assert set(priced.values()) == {pairs} and priced.total() <= max(most, pairs)
    assert len(priced) == min(tiers, sum(counts)) or priced.total() + pairs > most, "one more would have been allowed"


@settings(deadline=None)
@given(SEEDS, st.sampled_from(("OCTOPUS", "CPU_MEM", "TRIVIAL")))
def test_machines_without_the_victims_of_their_offers_are_as_if_those_had_never_run(seed: int, name: str) -> None:
    rng = random.Random(seed)
    case = drawn_case(rng, Words())
    columns = columns_of(case)
    there = {uid: info for info in columns.by_slot if info is not None for uid in info.pods if rng.randrange(2)}
    offered = [info for info in columns.by_slot if info is not None and rng.randrange(4)]
    found = {
        info.slot: Offer(info, tuple(each for uid, each in info.pods.items() if uid in there), rng.randrange(9))
        for info in offered
    }
    gone = {victim.uid for offer in found.values() for victim in offer.victims}
    staying = tuple(each for each in case.bound if each["metadata"]["uid"] not in gone)
    without = columns_of(case.__class__(case.nodes, staying, case.pods))
    slots = np.flatnonzero(columns.present[: columns.size])
    relieved = Relieved(Machines(columns.some(slots), slots), found)
    plain = Machines(without.some(slots), slots)
    for one, other in zip(relieved, plain, strict=True):
        assert (one.name, one.running, one.free_slots) == (other.name, other.running, other.free_slots)
        assert {key: one.free(key) for key in ("cpu", "memory", PODS)} == {
            key: other.free(key) for key in ("cpu", "memory", PODS)
        }
        assert one.info.pods.keys() == other.info.pods.keys()
    assert relieved.running.tolist() == plain.running.tolist()
    for key in ("cpu", "memory", PODS):
        assert relieved.free(key).tolist() == plain.free(key).tolist()
    for waiting in map(project_pod, case.pods):
        task = Task(waiting, 1, 0.0, "job")
        assert relieved.fit(task).tolist() == plain.fit(task).tolist()
        # So a model prices the place of a victim as a free one, and what it costs to get it.
        extra = {slot: offer.price for slot, offer in found.items()}
        of = TaskClass(task, np.array(sorted(found), np.int64), np.ones(len(found), np.int64))
        graph = Graph(model_named(name, {}, random.Random(0)), without, extra=extra)
        problem = graph.build([of])
        wanted = [
            (each.slot, each.price)
            for each in graph.placements(0, NUMPY.solve(problem), problem)
            if each.price < graph.unscheduled_price(0, problem)
        ]
        seen = Graph(model_named(name, {}, random.Random(0)), columns, 1 << 20, lambda m: Relieved(m, found), extra)
        taken = exchanges(seen, NUMPY, task, found)
        assert [(each.offer.node.slot, each.price) for each in taken] == wanted


# --- rounds -----------------------------------------------------------------------------------------------------------

TOLD = """
from minikube_py.scheduler.flow.models import MODELS


class Told(MODELS["TRIVIAL"]):
    '''`sizes`: pods of each round. `known`: by machine, what was gathered last. `wrong`: what cannot be.'''

    defaults = {"preferences": 0}

    def __init__(self, args, rng):
        super().__init__(args, rng)
        self.sizes, self.known, self.wrong = [], {}, []

    def prepare_stats(self, machines):
        self.sizes.append(0)

    def add_task(self, task):
        self.sizes[-1] += task.count

    def add_machine(self, machine):
        if machine.name in self.known:
            self.wrong.append(f"{machine.name} came twice")
        self.known[machine.name] = None

    def remove_machine(self, name):
        if self.known.pop(name, self) is self:
            self.wrong.append(f"{name} went, and was not known")

    def gather_stats(self, machine):
        if machine.name not in self.known:
            self.wrong.append(f"{machine.name} is not known")
        self.known[machine.name] = machine.allocatable("cpu"), machine.labels.get("rack")
"""


def telling(folder: str, **args: Any) -> Any:
    path = Path(folder, "told.py")
    path.write_text(TOLD)
    return flow_config(costModel=f"{path}:Told", **args)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 12))
def test_a_round_has_no_more_pods_than_allowed(most: int, count: int) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with flowing(telling(folder, maxPods=most), a={}) as world:
                names = [f"p{number}" for number in range(count)]
                world.pods(*names, cpu="1m")
                await settle()
                assert all(world.where(*names))
                placer: Any = world.scheduler.profiles["flow"].profile.placer
                sizes = placer.model.sizes
                assert max(sizes) <= most and sum(sizes) == count and len(sizes) == math.ceil(count / most)

    run_virtually(run)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.sampled_from(("", "x", "y"))),
        st.tuples(st.sampled_from("abc"), st.just(0), st.just("")),
        st.none(),
    ),
    max_size=12,
)
"""A node with so much cpu and that rack; without cpu it is deleted. None: a round."""


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_model_knows_the_machines_that_are_there_as_they_are(steps: list[tuple[str, int, str] | None]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with flowing(telling(folder), always={"cpu": "9"}) as world:
                there: dict[str, tuple[int, str | None]] = {"always": (9000, None)}
                placer: Any = world.scheduler.profiles["flow"].profile.placer
                model = placer.model
                for number, step in enumerate((*steps, None)):
                    if step is None:
                        world.pods(f"p{number}", cpu="1m")
                        await settle()
                        await world.clock.advance(2)
                        assert world.where(f"p{number}") != [""]
                        assert model.known == there and not model.wrong
                        continue
                    name, cpu, rack = step
                    if cpu:
                        more = {"labels": {"rack": rack}} if rack else {}
                        world.api.node(name, cpu=str(cpu), **more)
                        there[name] = cpu * 1000, rack or None
                    elif there.pop(name, None):
                        world.api.delete("nodes", name)

    run_virtually(run)


@pytest.mark.parametrize(("count", "reported"), [(17, False), (18, True)])
async def test_what_a_full_graph_leaves_goes_on_unreported_if_it_placed_a_sixteenth(count: int, reported: bool) -> None:
    """A machine takes one pod a round here; a pod that goes on costs no write to its status."""
    async with flowing(flow_config(modelArgs={"machineClasses": 1}), a={"cpu": "64"}) as world:
        names = [f"p{number}" for number in range(count)]
        world.pods(*names, cpu="1")
        await settle()
        assert all(world.where(*names)) and world.rounds.rounds == count
        messages = [world.api.condition(name).get("message", "") for name in names]
        assert any("leaves the pod where it is" in message for message in messages) is reported


@pytest.mark.parametrize(("arcs", "rounds"), [(1, 3), (2, 2), (3, 1)])
async def test_a_round_has_no_more_arcs_from_machine_classes_than_allowed(arcs: int, rounds: int) -> None:
    async with flowing(flow_config(maxArcs=arcs), a={"cpu": "64"}) as world:
        world.pods("p1", "p2", "p3", cpu="1")
        await settle()
        assert world.where("p1", "p2", "p3") == ["a", "a", "a"] and world.rounds.rounds == rounds


def shuns(app: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("order", [("shunned", "other"), ("other", "shunned")])
async def test_pods_that_others_may_shun_are_one_class_only_with_equal_labels(order: tuple[str, str]) -> None:
    """Node a has somebody who does not want one of them; c has room for one."""
    named = {name: {"cpu": cpu, "labels": {"kubernetes.io/hostname": name}} for name, cpu in (("a", "2"), ("c", "1"))}
    async with flowing(flow_config(costModel="TRIVIAL", modelArgs={"preferences": 0}), **named) as world:
        world.api.pod("there", cpu="1", nodeName="a", affinity=shuns("shunned"))
        for app in order:
            world.pods(app, cpu="1", affinity=shuns("nobody"), metadata={"labels": {"app": app}})
        await settle()
        assert world.where("shunned", "other") == ["c", "a"]
        assert (world.rounds.rounds, world.rounds.passes, world.rounds.repaired) == (1, 1, 0)


@pytest.mark.parametrize("where", ["ab", "a"])
async def test_a_pod_that_running_pods_shun_decides_for_no_other(where: str) -> None:
    """All are of one specification and owner; the first is welcome nowhere, or on b alone."""
    named = {name: {"cpu": "8", "labels": {"kubernetes.io/hostname": name}} for name in "ab"}
    async with flowing(**named) as world:
        for name in where:
            world.api.pod(f"on-{name}", nodeName=name, affinity=shuns("shunned"))
        await settle()
        world.pods("p0", cpu="1", metadata={"labels": {"app": "shunned"}})
        others = [f"p{number}" for number in range(1, 9)]
        for name in others:
            world.pods(name, cpu="1", metadata={"labels": {"app": "other"}})
        await settle()
        assert set(world.where(*others)) == {"a", "b"}
        assert world.where("p0") == ["" if where == "ab" else "b"]
        assert None not in [world.rounds.decision(f"uid-default-{name}") for name in others]


class Picky:
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status(Code.UNSCHEDULABLE, "no") if pod.labels.get("app") == "shunned" else None


async def test_a_filter_of_ones_own_that_reads_more_than_a_node_rejects_nobody_else() -> None:
    own = {"Picky": OwnPlugin("Picky", lambda args, handle: Guarded("Picky", Picky()))}
    async with flowing(with_own(flow_config(), own), a={"cpu": "8"}) as world:
        world.pods("p0", cpu="1", metadata={"labels": {"app": "shunned"}})
        world.pods("p1", "p2", cpu="1", metadata={"labels": {"app": "other"}})
        await settle()
        assert world.where("p0", "p1", "p2") == ["", "a", "a"]
        assert None not in [world.rounds.decision(f"uid-default-{name}") for name in ("p1", "p2")]


BUSY = """

class Busy(Worth):
    def equiv_class_to_resource_nodes(self, ec, machines):
        return 10 * machines.running, machines.free_slots
"""


async def test_the_place_of_a_victim_is_priced_without_it(tmp_path: Path) -> None:
    """On a three cheap ones run, who would all go; on b one beside somebody who stays."""
    path = tmp_path / "busy.py"
    path.write_text(WORTH + BUSY)
    config = flow_config(costModel=f"{path}:Busy", modelArgs={"preferences": 0}, preemption=True)
    async with flowing(config, a={"cpu": "3"}, b={"cpu": "4"}) as world:
        world.pods("a1", "a2", "a3", cpu="1", nodeName="a", status=RUNS, **labelled(1))
        world.pods("b1", cpu="3", nodeName="b", status=RUNS, **labelled(5))
        world.pods("stays", cpu="1", nodeName="b", priority=1, status=RUNS, **labelled(5))
        await settle()
        world.pods("valued", cpu="3", **labelled(100))
        await settle()
        assert leaving(world) == {"a1", "a2", "a3"}
