"""Cost models against the constants of Firmament's sources, and the graph that is made of what they say."""

from __future__ import annotations

import copy
import random
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scheduler_objects import node, pod

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.flow import CLUSTER, Arc, CostModel, Machine, MachineClass, Machines, Task, models
from minikube_py.scheduler.flow.graph import Graph, TaskClass
from minikube_py.scheduler.flow.models import MODELS, model_named
from minikube_py.scheduler.flow.problem import Problem, faults
from minikube_py.scheduler.flow.quincy import Rack
from minikube_py.scheduler.flow.solvers import available
from minikube_py.scheduler.flow.wharemap import App, MachineType

TYPE = "minikube-py.io/task-type"
GI = 1 << 30


class Cluster:
    """Nodes, and what runs on them, as a model gets to know them."""

    def __init__(self, **nodes: dict[str, Any]) -> None:
        self.columns = NodeColumns()
        for name, more in nodes.items():
            self.columns.put_node(node(name, **more))

    def run(self, on: str, name: str, **more: Any) -> None:
        self.columns.add_pod(pod(name, **more), on)

    @property
    def machines(self) -> Machines:
        slots = np.arange(self.columns.size)
        return Machines(self.columns.some(slots), slots)

    def machine(self, name: str) -> Machine:
        return Machine(self.columns.by_name[name])

    def told(self, model: str, **args: Any) -> Any:
        found = model_named(model, args, random.Random(3))
        for machine in self.machines:
            found.add_machine(machine)
            found.gather_stats(machine)
        return found


def task(count: int = 1, waited_s: float = 0.0, **more: Any) -> Task:
    return Task(pod("p", **more), count, waited_s, "job")


class Priced(Task):
    """Of a user."""

    def __init__(self, price: int, count: int) -> None:
        super().__init__(pod("p"), count)
        self.price = price


class Slotted(Task):
    __slots__ = ("price",)

    def __init__(self, price: int, count: int) -> None:
        super().__init__(pod("p"), count)
        self.price = price


@pytest.mark.parametrize("kind", [Priced, Slotted])
def test_a_task_may_have_more_attributes_and_keeps_its_own(kind: Any) -> None:
    made = kind(7, 2)
    for each in (copy.copy(made), copy.deepcopy(made), made):
        assert (each.price, each.count, each.ran_s) == (7, 2, 0.0)
        for field in fields(Task):
            with pytest.raises(AttributeError, match=f"{field.name} of a Task is read-only"):
                setattr(each, field.name, 1)
            with pytest.raises(AttributeError, match=f"{field.name} of a Task is read-only"):
                delattr(each, field.name)
        each.price = 8
        del each.price


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": {f"minikube-py.io/{key.replace('_', '-')}": value for key, value in labels.items()}}}


def arrays(found: Any, count: int) -> tuple[list[int], list[int]]:
    cost, capacity = (np.broadcast_to(part, count).tolist() for part in found)
    return cost, capacity


# --- constants ----------------------------------------------------------------------------------------------------

CONSTANTS = [
    # model, task -> unscheduled, task -> class, preemption, continuation: of the functions of these names in
    # src/scheduling/flow/*_cost_model.cc
    ("TRIVIAL", 5, 2, 0, 0),
    ("OCTOPUS", 1_000_000, 1, 1_000_000, 0),
    ("VOID", 0, 0, 0, 0),
    ("NET", 2_560_000, 0, 0, 0),
    ("CPU_MEM", 2_560_000, 0, 0, 0),
    ("QUINCY", 2_592_000, 2_592_000, 2_592_000, 2_592_000),
    ("SJF", 0, 1, 0, 0),
    ("WHARE", 96 + 1 + 100, 0, 0, 0),
]


@pytest.mark.parametrize(("name", "unscheduled", "to_class", "preemption", "continuation"), CONSTANTS)
def test_constants_are_firmaments(
    name: str, unscheduled: int, to_class: int, preemption: int, continuation: int
) -> None:
    model = Cluster(a={}).told(name)
    one = replace(task(cpu="1"), node="a")
    ec = CLUSTER if CLUSTER in model.get_task_equiv_classes(one) else model.get_task_equiv_classes(one)[0]
    assert model.task_to_unscheduled_agg(one) == Arc(unscheduled, 1, 0)
    assert model.task_to_equiv_class_aggregator(one, ec) == Arc(to_class, 1, 0)
    assert model.task_preemption(one).cost == preemption
    assert model.task_continuation(one).cost == continuation
    assert model.unscheduled_agg_to_sink("job").cost == 0


OTHERS = [
    # Constants that no price shows alone, as the sources have them.
    ("NET", "machine_classes", 10),
    ("QUINCY", "WAIT_FACTOR", 0.5),
    ("QUINCY", "OFFSET", 2_592_000),
    ("QUINCY", "TOR_COST", 1),
    ("QUINCY", "CORE_COST", 2),
    ("QUINCY", "PREFERRED", 0.1),
    ("OCTOPUS", "BUSY", 100),
    ("WHARE", "COST_LOWER_BOUND", 96),
    # Ours: max_multi_arcs_for_cpu is 50.
    ("CPU_MEM", "machine_classes", 10),
    ("ELECTRICITY", "machine_classes", 10),
]


@pytest.mark.parametrize(("name", "constant", "value"), OTHERS)
def test_other_constants(name: str, constant: str, value: float) -> None:
    assert getattr(model_named(name, {}, random.Random(0)), constant) == value


def test_all_models_that_are_listed_are_there() -> None:
    assert list(MODELS) == [
        "TRIVIAL", "RANDOM", "SJF", "QUINCY", "WHARE", "COCO", "OCTOPUS", "VOID", "NET", "QUINCY_INTERFERENCE",
        "CPU_MEM", "ELECTRICITY",
    ]  # fmt: skip


def test_a_cost_model_that_is_installed_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(CostModel):
        pass

    def fails() -> Any:
        raise SystemExit(3)

    loads = {"theirs": lambda: Mine, "other": lambda: dict, "broken": fails}
    points = [SimpleNamespace(name=name, value=name, load=load) for name, load in loads.items()]
    monkeypatch.setattr(models, "entry_points", lambda group: points if group == "minikube_py.cost_models" else [])
    assert type(model_named("theirs", {}, random.Random(0))) is Mine
    for name, said in (
        ("other", "other is not derived from minikube_py.scheduler.flow.CostModel"),
        ("broken", 'entry point "broken" .broken. cannot be loaded: SystemExit: 3'),
        ("none", "there is no cost model 'none'; the models are: TRIVIAL, .*, theirs, other, broken; or FILE.py:CLASS"),
    ):
        with pytest.raises(ConfigError, match=said):
            model_named(name, {}, random.Random(0))


def test_octopus_prices_a_machine_by_what_runs_there() -> None:
    cluster = Cluster(a={"pods": "3"}, b={"pods": "10"})
    for i in range(4):
        cluster.run("b" if i else "a", f"r{i}")
    model = cluster.told("OCTOPUS")
    assert arrays(model.equiv_class_to_resource_nodes(CLUSTER, cluster.machines), 2) == ([100, 300], [2, 7])
    assert model.equiv_class_to_resource_node(CLUSTER, cluster.machine("b")) == Arc(300, 7)
    assert arrays(model.resource_nodes_to_resource_nodes(cluster.machines), 2)[0] == [100, 300]


def test_random_prices_stay_within_firmaments_bounds() -> None:
    cluster = Cluster(a={}, b={})
    model = cluster.told("RANDOM")
    machines, drawn = cluster.machines, []
    for _ in range(200):
        to_machines = arrays(model.equiv_class_to_resource_nodes(CLUSTER, machines), 2)[0]
        below = arrays(model.resource_nodes_to_resource_nodes(machines), 2)[0]
        assert all(1 <= cost <= 50_000_000 for cost in to_machines)
        assert all(1 <= cost <= 25_000_000 for cost in below)
        drawn += below
        assert 50_000_000 < model.task_to_unscheduled_agg(task()).cost <= 100_000_000
        assert -1 <= model.task_to_equiv_class_aggregator(task(), CLUSTER).cost < 100_000_000
        assert 1 <= model.task_to_resource_node(task(), None).cost <= 33_333_333
    assert max(drawn) > 20_000_000 and len(set(drawn)) > 300


@pytest.mark.parametrize(("waited_s", "seconds", "unscheduled"), [(0, "", 0), (7.25, "", 72), (7.25, "3", 300_000)])
def test_shortest_jobs_first(waited_s: float, seconds: str, unscheduled: int) -> None:
    one = task(waited_s=waited_s, **(labelled(runtime_seconds=seconds) if seconds else {}))
    model = Cluster(a={}).told("SJF")
    assert model.task_to_unscheduled_agg(one).cost == unscheduled
    # Firmament keeps milliseconds, and pays 100 for each.
    assert model.task_to_equiv_class_aggregator(one, CLUSTER).cost == (int(seconds) * 1000 * 100 if seconds else 0) + 1


# --- Quincy -------------------------------------------------------------------------------------------------------

ZONES = {name: {"labels": {"topology.kubernetes.io/zone": zone}} for name, zone in zip("abcd", "xxyz", strict=True)}
INPUTS = {"sort": {"gib": 10, "on": {"a": 6, "b": 3, "c": 0.5}}}


@pytest.mark.parametrize(("machine", "cost"), [
    # 4 GiB are elsewhere, 3 of them in the rack: 1 x 3 + 2 x 1
    ("a", 5),
    ("b", 6 + 2 * 1),
    # of the 9.5 GiB that are elsewhere none is in the rack
    ("c", 19),
    ("d", 20),
])  # fmt: skip
def test_quincy_pays_1_within_the_rack_and_2_across(machine: str, cost: int) -> None:
    model = Cluster(**ZONES).told("QUINCY", inputs=INPUTS)
    one = task(**labelled(input="sort"))
    assert model.task_to_resource_node(one, Machine(node(machine))).cost == cost + 2_592_000


def test_quincy_prefers_what_holds_a_tenth() -> None:
    cluster = Cluster(**ZONES)
    model = cluster.told("QUINCY", inputs=INPUTS)
    one = task(**labelled(input="sort"))
    assert model.get_task_preference_arcs(one, cluster.machines).tolist() == [0, 1]
    assert model.get_task_equiv_classes(one) == (CLUSTER, Rack("x"))
    # A rack costs what its worst machine does, the cluster what its worst rack does, or all of the input.
    assert model.task_to_equiv_class_aggregator(one, Rack("x")).cost == 8 + 2_592_000
    assert model.task_to_equiv_class_aggregator(one, CLUSTER).cost == 20 + 2_592_000
    assert [str(rack) for rack in model.get_equiv_class_to_equiv_classes_arcs(CLUSTER)] == [
        "rack x",
        "rack y",
        "rack z",
    ]
    model.remove_machine("c")
    assert [str(rack) for rack in model.get_equiv_class_to_equiv_classes_arcs(CLUSTER)] == ["rack x", "rack z"]


def test_quincy_waits_at_half_a_unit_a_second_and_stays_by_what_it_ran() -> None:
    model = Cluster(**ZONES).told("QUINCY", inputs=INPUTS)
    waiting = task(waited_s=21.0)
    assert model.task_to_unscheduled_agg(waiting).cost == 2_592_000 + 10
    running = Task(pod("p", **labelled(input="sort")), node="b", ran_s=100.0)
    assert model.task_continuation(running).cost == 8 + 2_592_000 - 100
    eager = Cluster(**ZONES).told("QUINCY", noSchedulingDelay=True)
    assert eager.task_to_unscheduled_agg(task()).cost == 2_592_000 + 39 * 2


# --- CoCo ---------------------------------------------------------------------------------------------------------

PENALTIES = [
    # what runs: turtle, sheep, rabbit, devil comes
    ("turtle", [50, 50, 50, 50]),
    ("sheep", [10, 50, 100, 200]),
    ("rabbit", [10, 50, 200, 1000]),
    ("devil", [10, 200, 1000, 200]),
]


@pytest.mark.parametrize(("running", "found"), PENALTIES)
def test_coco_penalties_are_firmaments(running: str, found: list[int]) -> None:
    cluster = Cluster(a={"pods": "10"})
    cluster.run("a", "r", **labelled(task_type=running))
    model = cluster.told("COCO")
    for coming, cost in zip(("turtle", "sheep", "rabbit", "devil"), found, strict=True):
        one = task(**labelled(task_type=coming))
        (ec,) = model.get_task_equiv_classes(one)
        assert arrays(model.equiv_class_to_resource_nodes(ec, cluster.machines), 1)[0] == [cost]
    # What all that runs there costs, more of it the fuller: e^(1/10) - 1 of the sum.
    summed = sum(found)
    assert model.interference(cluster.machine("a")) == int(2.718281828459045**0.1 * summed) - summed


@pytest.mark.parametrize("labels", [{}, labelled(task_type="goat")])
def test_a_pod_that_names_no_type_is_a_sheep(labels: dict[str, Any]) -> None:
    """The first of the enum, which proto3 takes for a TaskDescriptor that says none."""
    found = []
    for of in (labels, labelled(task_type="sheep")):
        cluster = Cluster(a={})
        cluster.run("a", "r", **of)
        model = cluster.told("COCO")
        (ec,) = model.get_task_equiv_classes(task(**of))
        assert task(**of).type == "sheep"
        found.append(arrays(model.equiv_class_to_resource_nodes(ec, cluster.machines), 1)[0])
    assert found == [[50], [50]]
    assert cluster.told("WHARE")._beside["a"][1:] == (0, 0, 1, 0)


def test_coco_prices_requests_by_the_least_and_by_the_most_that_machines_have() -> None:
    cluster = Cluster(small={"cpu": "2", "memory": "4Gi"}, big={"cpu": "8", "memory": "8Gi"})
    model = cluster.told("COCO")
    one = task(waited_s=3.0, cpu="1", memory="1Gi", priority=3)
    assert model.task_to_unscheduled_agg(one).cost == 3000 + 5 * 1000 + 500 + 250 + 2 + 30
    (ec,) = model.get_task_equiv_classes(one)
    assert model.task_to_equiv_class_aggregator(one, ec).cost == 3000 + 125 + 125
    assert arrays(model.equiv_class_to_resource_nodes(ec, cluster.machines), 2)[1] == [2, 8]
    cluster.run("big", "r", cpu="2", memory="2Gi")
    assert model.resource_node_to_resource_node(cluster.machine("big")).cost == 250 + 250


def test_quincy_with_interference_adds_what_neighbours_cost() -> None:
    cluster = Cluster(a={}, b={})
    cluster.run("a", "r", **labelled(task_type="devil"))
    model = cluster.told("QUINCY_INTERFERENCE")
    assert arrays(model.equiv_class_to_resource_nodes(Rack(""), cluster.machines), 2)[0] == [10 + 200 + 1000 + 200, 0]


# --- Whare-Map, NET, CPU_MEM, electricity -----------------------------------------------------------------------------


def test_whare_map_prefers_the_machine_type_that_ran_it_fastest() -> None:
    types = {n: {"labels": {"node.kubernetes.io/instance-type": t}} for n, t in (("a", "fast"), ("b", "slow"))}
    cluster = Cluster(**types)
    samples = [
        {
            "app": "web",
            "machineType": "fast",
            "coRunners": [110, 0, 0, 0, 0],
            "runtimeSeconds": 2,
            "instructions": 10**9,
        },
        {
            "app": "web",
            "machineType": "slow",
            "coRunners": [110, 0, 0, 0, 0],
            "runtimeSeconds": 5,
            "instructions": 10**9,
        },
    ]
    model = cluster.told("WHARE", samples=samples)
    one = task(waited_s=1.0, **labelled(app="web"))
    ec, cluster_ec = model.get_task_equiv_classes(one)
    assert (ec, cluster_ec) == (App("web"), CLUSTER)
    # Averages are 2,000 and 5,000: 3,500 a hundredth of 2,000's, and 1.
    assert model.task_to_unscheduled_agg(one).cost == 96 + 1 + 176
    assert model.task_to_equiv_class_aggregator(one, CLUSTER).cost == 250
    assert model.equiv_class_to_equiv_class(ec, MachineType("fast")).cost == 100
    assert model.equiv_class_to_equiv_class(ec, MachineType("slow")).cost == 250
    assert model.get_outgoing_equiv_class_pref_arcs(ec, cluster.machines) == [0]
    assert arrays(model.equiv_class_to_resource_nodes(ec, cluster.machines), 2)[0] == [100, 250]
    assert model.equiv_class_to_equiv_class(App("unknown"), MachineType("fast")).capacity == 0


def test_net_prices_each_further_pod_by_the_bandwidth_it_takes() -> None:
    rx = "minikube-py.io/net-rx-bandwidth"
    cluster = Cluster(a={"extended": {rx: "1000"}}, b={"extended": {rx: "250"}})
    model = cluster.told("NET")
    assert model.machine_classes == 10
    one = task(extended={rx: "100"})
    (ec,) = model.get_task_equiv_classes(one)
    for index, cost, capacity in (
        (0, [100 - 1000 + 1_280_000, 100 - 250 + 1_280_000], [1, 1]),
        (1, [200 - 1000 + 1_280_000, 200 - 250 + 1_280_000], [1, 1]),
        (2, [300 - 1000 + 1_280_000, 0], [1, 0]),
        (9, [1_280_000, 0], [1, 0]),
    ):
        assert arrays(model.equiv_class_to_machine_classes(ec, cluster.machines, index), 2) == (cost, capacity)


def test_cpu_mem_prices_what_is_taken_and_how_unevenly() -> None:
    cluster = Cluster(a={"cpu": "4", "memory": "8Gi"})
    model = cluster.told("CPU_MEM")
    one = task(cpu="2", memory="2Gi")
    (ec,) = model.get_task_equiv_classes(one)
    # Nothing is taken; then half of the cpu and a quarter of memory: (500 + 250) / 2, and 1000 x .125 squared.
    prices = [model.equiv_class_to_machine_classes(ec, cluster.machines, index) for index in range(3)]
    assert arrays(prices[0], 1) == ([2000], [1])
    assert arrays(prices[1], 1) == ([2000 + 375 + 15], [1])
    assert arrays(prices[2], 1) == ([0], [0])


def test_electricity_goes_where_a_watt_more_costs_least() -> None:
    watts = {"minikube-py.io/idle-watts": "100", "minikube-py.io/peak-watts": "300"}
    cluster = Cluster(
        cheap={"cpu": "4", "labels": {**watts, "topology.kubernetes.io/zone": "north"}},
        busy={"cpu": "4", "labels": watts},
        off={"cpu": "4", "labels": watts},
    )
    cluster.run("busy", "r", cpu="1")
    model = cluster.told("ELECTRICITY", centsPerKwh={"north": 10})
    one = task(cpu="1")
    (ec,) = model.get_task_equiv_classes(one)
    # A quarter of 200 W more, and of 100 W where nothing runs yet; 30 ct where no zone says otherwise.
    found = arrays(model.equiv_class_to_machine_classes(ec, cluster.machines, 0), 3)
    assert found == ([75 * 10, 50 * 30, 75 * 30], [1, 1, 1])
    assert arrays(model.equiv_class_to_machine_classes(ec, cluster.machines, 3), 3)[1] == [1, 0, 1]


# --- the graph ------------------------------------------------------------------------------------------------------


def classes_of(cluster: Cluster, *tasks: Task) -> list[TaskClass]:
    machines = cluster.machines
    return [TaskClass(each, machines.slots, machines.fit(each)) for each in tasks]


def solved(cluster: Cluster, model: CostModel, *tasks: Task) -> tuple[Graph, Problem, Any]:
    graph = Graph(model, cluster.columns)
    problem = graph.build(classes_of(cluster, *tasks))
    flows = [solver.solve(problem) for solver in available().values()]
    assert len({problem.price(flow) for flow in flows}) == 1
    for flow in flows:
        assert not faults(problem, flow)
    return graph, problem, flows[-1]


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_makes_a_graph_that_places_what_fits(name: str) -> None:
    nodes = {f"n{i}": {"cpu": "2", "pods": "4", **ZONES["abcd"[i % 4]]} for i in range(6)}
    cluster = Cluster(**nodes)
    cluster.run("n0", "r0", cpu="1", **labelled(task_type="rabbit"))
    model = cluster.told(name, **({"inputs": INPUTS} if "QUINCY" in name else {}))
    small, big = task(8, 100.0, cpu="500m"), Task(pod("q", cpu="1500m", **labelled(input="sort")), 9, 100.0, "other")
    graph, problem, flow = solved(cluster, model, small, big)
    by_class = [list(graph.placements(number, flow, problem)) for number in range(2)]
    # There are 23 slots; each class by itself fits 23 and 5 times. Random prices may leave whom they will.
    if name != "RANDOM":
        assert len(by_class[0]) == 8
        assert len(by_class[1]) >= 5
    spent = sum(placement.price for placements in by_class for placement in placements)
    stay = sum(
        (each.count - len(placements)) * graph.unscheduled_price(number, problem)
        for number, (each, placements) in enumerate(zip((small, big), by_class, strict=True))
    )
    # Twice the price, and 1 for each that stays.
    assert problem.price(flow) == 2 * (spent + stay) + 17 - sum(map(len, by_class))
    for placements in by_class:
        for placement in placements:
            assert placement.path[-1].to == cluster.columns.by_slot[placement.slot].name  # type: ignore[union-attr]


def test_classes_of_pods_are_nodes_and_not_the_pods() -> None:
    cluster = Cluster(**{f"n{i}": {} for i in range(5)})
    sizes = []
    for count in (1000, 10_000):
        graph = Graph(cluster.told("OCTOPUS"), cluster.columns)
        graph.build(classes_of(cluster, task(count, cpu="1m")))
        sizes.append(graph.size)
    assert sizes[0] == sizes[1] == (1 + 5 + 3, 5 + 1 + 1 + 5 + 1)


class Circle(CostModel):
    name = "CIRCLE"

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(1)

    def get_equiv_class_to_equiv_classes_arcs(self, ec: Any) -> list[Any]:
        return ["around" if ec == CLUSTER else CLUSTER]

    def equiv_class_to_equiv_class(self, ec: Any, to: Any) -> Arc:
        return Arc(0, 5)


def test_classes_that_lead_in_a_circle_are_refused() -> None:
    cluster = Cluster(a={})
    graph = Graph(Circle({}, random.Random(0)), cluster.columns)
    graph.build(classes_of(cluster, task()))
    assert "equivalence classes lead to each other in a circle" in str(graph.failed[0])


class OneByOne(CostModel):
    """Prices every arc by itself."""

    name = "ONE_BY_ONE"
    machine_classes = 3

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(1000)

    def equiv_class_to_equiv_class(self, ec: Any, to: Any) -> Arc:
        assert isinstance(to, MachineClass)
        return Arc(to.number * 10 + to.machine.running, 1)


def test_forms_for_one_arc_do_where_there_are_none_for_many() -> None:
    cluster = Cluster(a={}, b={})
    cluster.run("a", "r")
    graph, problem, flow = solved(cluster, OneByOne({}, random.Random(0)), task(3), task(1))
    found = [list(graph.placements(number, flow, problem)) for number in range(2)]
    prices = sorted(placement.price for placements in found for placement in placements)
    # A machine class takes one pod, of whichever class of pods.
    assert prices == [0, 1, 10, 11]


CHANGED: dict[str, Any] = {
    "QUINCY": {"inputs": {"data": {"gib": 8, "on": {"a": 8, "c": 2}}}},
    "QUINCY_INTERFERENCE": {"inputs": {"data": {"gib": 8, "on": {"a": 8, "c": 2}}}},
    "WHARE": {
        "samples": [
            {"app": "x", "machineType": f"t{i}", "runtimeSeconds": 9 - i, "instructions": 10**12} for i in (1, 2)
        ]
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_was_told_of_a_change_prices_as_one_that_knew_nothing_else(name: str) -> None:
    """Labels and amounts that a cloud gives a node after it exists."""
    cluster = Cluster(a={"cpu": "2"}, b={"cpu": "2"}, c={"cpu": "2"}, d={"cpu": "2"})
    told = cluster.told(name, **CHANGED.get(name, {}))
    for i, letter in enumerate("abcd"):
        labels = {"topology.kubernetes.io/zone": "xy"[i // 2], "node.kubernetes.io/instance-type": f"t{i % 2 + 1}"}
        cluster.columns.put_node(node(letter, cpu=str(2 + i), labels=labels))
    for machine in cluster.machines:
        told.gather_stats(machine)
    fresh = cluster.told(name, **CHANGED.get(name, {}))
    one = TaskClass(task(2, 3.0, cpu="1", **labelled(input="data", app="x")), *(np.arange(4), np.full(4, 2)))
    first, second = (Graph(model, cluster.columns).build([one]) for model in (told, fresh))
    alike = [each is other or np.array_equal(each, other) for each, other in zip(first, second, strict=True)]  # type: ignore[arg-type]
    assert all(alike)


def test_pods_of_other_types_are_other_tasks_of_quincy_with_interference() -> None:
    model = model_named("QUINCY_INTERFERENCE", {}, random.Random(1))
    keys = [model.task_key(task(**labelled(task_type=kind))) for kind in ("sheep", "devil")]
    assert keys[0] != keys[1]
