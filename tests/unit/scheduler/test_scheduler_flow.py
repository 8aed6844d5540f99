"""A profile that is placed by flow: rounds, repair, prices that keep pods waiting, and cost models that fail."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from scheduler_objects import pod_object
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.cli.explain_pod import told
from minikube_py.scheduler.config import ConfigError, SchedulerConfig, load
from minikube_py.scheduler.configuration.files import checked
from minikube_py.scheduler.flow import solvers
from minikube_py.scheduler.flow.rounds import Rounds
from minikube_py.scheduler.scheduler import Scheduler


def flow_config(**args: Any) -> SchedulerConfig:
    """Two profiles of one scheduler; that named `flow` is placed in rounds."""
    profile = {
        "schedulerName": "flow",
        "plugins": {"multiPoint": {"enabled": [{"name": "FlowPlacement"}]}},
        "pluginConfig": [{"name": "FlowPlacement", "args": {"solver": "numpy", **args}}],
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler"}, profile],
    }
    return checked(load(json.dumps(document).encode()))


class World:
    def __init__(self, api: FakeApi, clock: ManualClock, scheduler: Scheduler) -> None:
        self.api = api
        self.clock = clock
        self.scheduler = scheduler

    @property
    def rounds(self) -> Rounds:
        found = self.scheduler.profiles["flow"].rounds
        assert found is not None
        return found

    def pods(self, *names: str, **more: Any) -> None:
        for name in names:
            self.api.pod(name, **{"schedulerName": "flow", **more})

    def where(self, *names: str) -> list[str]:
        return [self.api.where(name) for name in names]


@asynccontextmanager
async def flowing(config: SchedulerConfig | None = None, **nodes: dict[str, Any]) -> AsyncIterator[World]:
    api, clock = FakeApi(), ManualClock()
    for name, more in nodes.items():
        api.node(name, **more)
    scheduler = Scheduler(api, clock, random.Random(1), config or flow_config())
    await scheduler.start()
    try:
        yield World(api, clock, scheduler)
        assert scheduler.failure is None
    finally:
        await scheduler.stop()


async def test_a_round_places_all_pods_that_wait_where_they_are_cheapest_together() -> None:
    async with flowing(a={"cpu": "4"}, b={"cpu": "2"}) as world:
        world.pods("p1", "p2", "p3", cpu="1", memory="1Gi")
        await settle()
        # CPU_MEM takes the least used: two thirds of the load to the node with two thirds of the cpu.
        assert sorted(world.where("p1", "p2", "p3")) == ["a", "a", "b"]
        assert world.rounds.rounds == 1
        decision = world.rounds.decision("uid-default-p1")
        assert decision is not None and decision.model == "CPU_MEM"
        assert [step.to for step in decision.path] == ["cpu=1000, memory=1073741824", decision.node, "sink"]
        assert decision.price < decision.alternative == 2_560_000


async def test_a_decision_names_the_solver_that_solved_and_not_the_one_asked() -> None:
    def too_large(problem: Any) -> Any:
        raise solvers._NoRoom

    async with flowing(a={"cpu": "4"}) as world:
        placer: Any = world.scheduler.profiles["flow"].profile.placer
        placer.solver = solvers._Reducing("small", too_large)
        world.pods("p", cpu="1")
        await settle()
        decision = world.rounds.decision("uid-default-p")
        assert decision is not None and decision.solver == next(iter(solvers.available()))


async def test_the_other_profile_is_placed_one_by_one() -> None:
    async with flowing(a={}) as world:
        world.pods("mine")
        world.api.pod("theirs")
        await settle()
        assert world.where("mine", "theirs") == ["a", "a"]
        assert world.rounds.decision("uid-default-theirs") is None
        assert world.rounds.decision("uid-default-mine") is not None


async def test_filters_of_the_profile_hold_for_every_placement() -> None:
    async with flowing(
        tainted={"taints": ["only=others:NoSchedule"], "cpu": "64"},
        small={"cpu": "1", "labels": {"disk": "ssd"}},
        big={"cpu": "8", "labels": {"disk": "hdd"}},
    ) as world:
        world.pods("any", cpu="2")
        world.pods("ssd", cpu="500m", nodeSelector={"disk": "ssd"})
        await settle()
        assert world.where("any", "ssd") == ["big", "small"]


async def test_what_the_flow_cannot_see_is_repaired() -> None:
    """Two classes fit the node each by itself and not together; pods that shun each other fit it one at a time."""
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "lone"}}}
            ]
        }
    }
    named = {name: {"cpu": "4", "labels": {"kubernetes.io/hostname": name}} for name in ("a", "b", "c")}
    async with flowing(flow_config(costModel="TRIVIAL", modelArgs={"preferences": 0}), **named) as world:
        lone = [f"lone{i}" for i in range(3)]
        world.pods(*lone, affinity=apart, metadata={"labels": {"app": "lone"}})
        world.pods("x1", "x2", cpu="3")
        world.pods("y1", cpu="2")
        await settle()
        await world.clock.advance(30)
        assert sorted(world.where(*lone)) == ["a", "b", "c"]
        assert len(set(world.where("x1", "x2", "y1"))) == 3
        assert world.rounds.repaired > 0


async def test_nothing_is_placed_where_only_others_that_might_be_evicted_would_make_room() -> None:
    """That a pod may preempt wakes it; it is no room."""
    async with flowing(flow_config(costModel="TRIVIAL", modelArgs={"preferences": 0}), a={"cpu": "4"}) as world:
        world.api.pod("low", cpu="1", priority=0, nodeName="a")
        world.pods("x", cpu="2", priority=10)
        world.pods("y", cpu="2", memory="1Mi", priority=10)
        await settle()
        assert sorted(world.where("x", "y")) == ["", "a"]
        assert world.scheduler.columns.by_name["a"].requested["cpu"] == 3000


async def test_a_pod_that_fits_nowhere_is_told_why_as_by_the_profile_alone() -> None:
    async with flowing(a={"cpu": "1"}) as world:
        world.pods("huge", cpu="9")
        await settle()
        assert world.api.condition("huge")["message"] == (
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        world.api.node("b", cpu="16")
        await settle()
        await world.clock.advance(2)
        assert world.where("huge") == ["b"]


async def test_who_is_more_important_is_placed_first_whatever_it_costs() -> None:
    async with flowing(a={"cpu": "1"}) as world:
        world.pods("low", cpu="1", priority=1)
        world.pods("high", cpu="1", priority=7)
        await settle()
        assert world.where("low", "high") == ["", "a"]


CHEAP = """
from minikube_py.scheduler.flow import Arc, CostModel

class Waits(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(int(task.waited_s))

    def task_to_equiv_class_aggregator(self, task, ec):
        return Arc(3)
"""


async def test_a_price_keeps_a_pod_waiting_until_waiting_costs_more(tmp_path: Path) -> None:
    path = tmp_path / "cheap.py"
    path.write_text(CHEAP)
    async with flowing(flow_config(costModel=f"{path}:Waits"), a={}) as world:
        world.pods("patient")
        await settle()
        assert world.where("patient") == [""]
        message = world.api.condition("patient")["message"]
        assert message.startswith("0/1 nodes are available: cost model Waits leaves the pod where it is, for 0:")
        await world.clock.advance(10)
        assert world.where("patient") == ["a"]


BAD = """
from minikube_py.scheduler.flow import Arc, CostModel

class Bad(CostModel):
    defaults = {"wrong": 0}

    def task_to_unscheduled_agg(self, task):
        return Arc(9)

    def equiv_class_to_resource_node(self, ec, machine):
        wrong = self.args["wrong"]
        if wrong == "raises":
            return {}["no such price"]
        return {"nan": Arc(float("nan")), "capacity": Arc(1, -2), "text": Arc("much"), "none": None}[wrong]

class Picky(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(9 if task.name != "default/bad" else 1.5)

class Late(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(9)

    def task_to_equiv_class_aggregator(self, task, ec):
        return Arc(1, 1, 1 if task.name == "default/bad" else 0)

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(1, 9)

    def get_task_preference_arcs(self, task, machines):
        if task.name == "default/bad":
            raise ValueError("no preferences")

class Lost(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(9)

    def prepare_stats(self, machines):
        raise OSError("no such meter")
"""


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("raises", "arc cluster -> machines, pod default/p: KeyError: 'no such price' (bad.py, line 13)"),
        ("nan", "arc cluster -> a, pod default/p: cost is nan; a whole number from"),
        ("capacity", "arc cluster -> a, pod default/p: capacity is -2; a whole number from 0 to"),
        ("text", "arc cluster -> a, pod default/p: cost is 'much'; a whole number is expected"),
        ("none", "arc cluster -> machines, pod default/p: TypeError"),
    ],
)
async def test_a_cost_model_that_fails_leaves_the_pods_pending_and_all_else_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str, told: str
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    async with flowing(flow_config(costModel=f"{path}:Bad", modelArgs={"wrong": wrong}), a={}) as world:
        with caplog.at_level(logging.ERROR):
            world.pods("p", "p2")
            world.api.pod("theirs")
            await settle()
        message = world.api.condition("p")["message"]
        assert message.startswith("cost model Bad: class default (2 pods like p), ")
        assert told in message
        assert world.api.condition("p")["reason"] == "SchedulerError"
        assert world.where("p", "p2", "theirs") == ["", "", "a"]
        assert [record.message for record in caplog.records] == [message]


ODD = """
import asyncio
from minikube_py.scheduler.flow import Arc, CostModel

class Panic(BaseException):
    pass

def raised(error):
    raise error

class Unprintable:
    def __repr__(self):
        raise SystemExit(3)
    __str__ = __hash__ = __index__ = __iter__ = __len__ = __array__ = __repr__

class Odd(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(9)

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(1, 9)

    def {method}(self, *given):
        {body}
"""
CANCELLED, EXITED = "raised(asyncio.CancelledError())", "raised(SystemExit(3))"
UNSCHEDULED = "class default (2 pods like p), arc task -> unscheduled, pod default/p: "
CLASSES = "class default (2 pods like p), arc task -> class, pod default/p: "
PREFERRED = "class default (2 pods like p), arc task -> machine, pod default/p: "
STATS = "class all, arc stats, pod default/p: "
MACHINE = "class all, arc machine a, pod (none): "
SINK = "class default (2 pods like p), arc unscheduled default -> sink, pod default/p: "


@pytest.mark.parametrize(
    ("method", "body", "told"),
    [
        *(
            (method, body, f"{where}{name}")
            for method, where in (
                ("task_to_unscheduled_agg", UNSCHEDULED),
                ("get_task_equiv_classes", CLASSES),
                ("get_task_preference_arcs", PREFERRED),
                ("add_task", "class default (2 pods like p), arc add_task, pod default/p: "),
                ("prepare_stats", STATS),
                ("update_stats", STATS),
                ("add_machine", MACHINE),
                ("gather_stats", MACHINE),
                ("unscheduled_agg_to_sink", SINK),
                ("leaf_resource_nodes_to_sink", "class machines, arc leaf -> machines, pod (none): "),
                ("task_key", "task_key, pod default/p: "),
            )
            for body, name in (
                (CANCELLED, "CancelledError (odd.py, line "),
                (EXITED, "SystemExit: 3 (odd.py, line "),
                ("raised(MemoryError())", "MemoryError (odd.py, line "),
                ("raised(Panic('index'))", "Panic: index (odd.py, line "),
            )
        ),
        ("task_to_unscheduled_agg", "return Unprintable()", UNSCHEDULED + "returned a Unprintable; Arc("),
        ("task_to_unscheduled_agg", "return Arc(Unprintable())", UNSCHEDULED),
        ("task_to_unscheduled_agg", "return Arc([1, 2])", UNSCHEDULED),
        ("task_to_unscheduled_agg", "return Arc(10**400)", UNSCHEDULED + "cost is 1000"),
        ("task_to_unscheduled_agg", "return Arc(1, 1, -1)", UNSCHEDULED + "min_flow is -1"),
        ("get_task_equiv_classes", "return None", CLASSES + "returned None; a sequence of equivalence classes"),
        ("get_task_equiv_classes", "return 'cluster'", CLASSES + "returned 'cluster'; a sequence of"),
        ("get_task_equiv_classes", "return [[]]", CLASSES + "the equivalence class [] is not hashable"),
        ("get_task_equiv_classes", "return [([],)]", CLASSES + "the equivalence class ([],) is not hashable"),
        ("get_task_equiv_classes", "return [Unprintable()]", CLASSES + "the equivalence class a Unprintable is not"),
        ("get_task_equiv_classes", "yield raised(SystemExit(3))", CLASSES + "SystemExit: 3 (odd.py"),
        ("get_equiv_class_to_equiv_classes_arcs", "return 7", "arc cluster -> class, pod default/p: returned 7; a seq"),
        ("get_task_preference_arcs", "return Unprintable()", PREFERRED),
        ("get_task_preference_arcs", "return [float('nan')]", PREFERRED + "returned [nan]; positions within"),
        ("get_outgoing_equiv_class_pref_arcs", "return [-1]", "arc cluster -> machines, pod default/p: returned [-1]"),
        ("equiv_class_to_resource_node", "return Arc(1, 1, 1)", "ValueError: min_flow of machine a is 1; only arcs"),
        ("equiv_class_to_resource_nodes", "return Unprintable()", "returned Unprintable; Arcs(cost, capacity) is"),
        ("unscheduled_agg_to_sink", "return None", SINK + "returned None; Arc("),
        ("prepare_stats", "self.machine_classes = None", "class all, arc (unknown), pod default/p: TypeError"),
        ("task_key", "return []", "task_key, pod default/p: TypeError: unhashable type: 'list'"),
        ("task_key", "return Unprintable()", "task_key, pod default/p: SystemExit: 3 (odd.py"),
    ],
)
async def test_whatever_a_cost_model_raises_or_returns_its_pods_wait_and_all_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str, body: str, told: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.replace("{method}", method).replace("{body}", body))
    async with flowing(flow_config(costModel=f"{path}:Odd"), a={}) as world:
        with caplog.at_level(logging.ERROR):
            world.pods("p", "p2")
            await settle()
        message = world.api.condition("p")["message"]
        assert message.startswith("cost model Odd: ") and told in message
        assert world.api.condition("p2")["message"].startswith("cost model Odd: ")
        assert message in [record.message for record in caplog.records]
        assert len(caplog.records) == (2 if method == "task_key" else 1)
        world.api.pod("theirs")
        await settle()
        assert world.where("p", "p2", "theirs") == ["", "", "a"]


@pytest.mark.parametrize("body", [CANCELLED, EXITED, "raise OSError('no disk')"])
async def test_a_cost_model_that_cannot_forget_a_task_does_not_undo_its_placement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.replace("{method}", "remove_task").replace("{body}", body))
    async with flowing(flow_config(costModel=f"{path}:Odd"), a={}) as world:
        world.pods("p", "p2")
        await settle()
        world.pods("p3")
        await settle()
        assert world.where("p", "p2", "p3") == ["a", "a", "a"]
    assert "remove_task of cost model Odd" in caplog.text


async def test_a_model_that_fails_for_one_class_places_the_others(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    async with flowing(flow_config(costModel=f"{path}:Picky"), a={}) as world:
        world.pods("bad", cpu="1")
        world.pods("good", cpu="2")
        await settle()
        assert world.where("bad", "good") == ["", "a"]
        assert "arc task -> unscheduled, pod default/bad: cost is 1.5" in world.api.condition("bad")["message"]


async def test_a_class_that_fails_after_an_arc_with_a_minimum_flow_leaves_the_others_alone(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    async with flowing(flow_config(costModel=f"{path}:Late"), a={"cpu": "4"}) as world:
        world.pods("bad", cpu="1")
        world.pods("good", cpu="2")
        await settle()
        assert world.where("bad", "good") == ["", "a"]
        assert "ValueError: no preferences" in world.api.condition("bad")["message"]


async def test_a_model_that_loses_its_statistics_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    async with flowing(flow_config(costModel=f"{path}:Lost"), a={}) as world:
        world.pods("p")
        await settle()
        assert "OSError: no such meter (bad.py, line " in world.api.condition("p")["message"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"costModel": "CHEAPEST"}, "there is no cost model 'CHEAPEST'; the models are: TRIVIAL, RANDOM, SJF, "),
        ({"costModel": "/no/such.py:M"}, "there is no file /no/such.py"),
        ({"costModel": 7}, "costModel: Invalid value: 7: must be a text of 1 to 316 characters"),
        ({"solver": "simplex"}, "there is no solver 'simplex'"),
        ({"maxPods": 0}, "maxPods: Invalid value: 0: must be a whole number from 1 to 10,000,000"),
        ({"retrySeconds": 0}, "retrySeconds: Invalid value: 0: must be a number from 0.001 to 1,000,000"),
        ({"rounds": 3}, "has no argument 'rounds'; it has: costModel, modelArgs, solver, maxPods, "),
        (
            {"costModel": "COCO", "modelArgs": {"resources": 3}},
            "cost model COCO: resources: Invalid value: 3: must be a list of 0 to 20 items",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(args: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as failed:
        flow_config(**args)
    assert told in str(failed.value)


async def test_the_same_seed_places_alike() -> None:
    async def placed() -> list[str]:
        nodes = {f"n{i}": {"cpu": "4"} for i in range(7)}
        async with flowing(flow_config(costModel="RANDOM"), **nodes) as world:
            names = [f"p{i}" for i in range(20)]
            world.pods(*names, cpu="500m")
            await settle()
            return world.where(*names)

    first = await placed()
    assert first == await placed()
    assert "" not in first


async def test_more_pods_than_bindings_may_be_under_way_are_bound_by_and_by() -> None:
    from dataclasses import replace

    nodes = {f"n{i}": {"cpu": "8"} for i in range(3)}
    async with flowing(replace(flow_config(), binds_in_flight_max=2), **nodes) as world:
        names = [f"p{i}" for i in range(20)]
        world.pods(*names, cpu="1")
        await settle()
        await settle()
        assert "" not in world.where(*names)


async def test_pods_that_go_while_the_round_runs_are_let_go() -> None:
    async with flowing(a={}) as world:
        for i in range(5):
            world.pods(f"p{i}", cpu="100m")
        for i in range(4):
            world.api.delete("pods", f"default/p{i}")
        await settle()
        assert world.where("p4") == ["a"]
        assert world.scheduler.queue.in_flight == 0


async def test_explain_tells_the_path_and_its_price() -> None:
    from minikube_py.cli.explain_pod import _decided

    async with flowing(flow_config(costModel="OCTOPUS"), a={}, b={}) as world:
        world.api.pod("before", nodeName="a")
        world.pods("p", cpu="1")
        await settle()
        answer = world.scheduler.ask("explain", "default/p", {})
        assert answer is not None
        # On a it would have been 1 + 100 for the class's arc and 100 for the machine's own.
        assert answer["flow"]["path"] == [
            {"to": "cluster", "cost": 1},
            {"to": "b", "cost": 0},
            {"to": "sink", "cost": 0},
        ]
        assert (answer["flow"]["price"], answer["flow"]["alternative"]) == (1, 1_000_000)
        assert _decided(answer)[1] == (
            "flow round 1, OCTOPUS solved by numpy: default -> cluster (1) -> b (0) -> sink (0): 1; "
            "staying would have cost 1000000"
        )
        assert "by the flow, in which scores take no part" in _decided(answer)[3]
        assert json.dumps(answer)


SLOW = """
from minikube_py.scheduler.flow import Arc, CostModel

class Slow(CostModel):
    defaults = {"clock": 0}

    def prepare_stats(self, machines):
        self.args["clock"].now_s += 0.05

    def task_to_unscheduled_agg(self, task):
        return Arc(9)
"""


async def test_pods_gather_for_nineteen_times_as_long_as_the_last_round_took(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(SLOW)
    args: dict[str, Any] = {"clock": ManualClock()}
    async with flowing(flow_config(costModel=f"{path}:Slow", modelArgs={"clock": 0}), a={}) as world:
        world.scheduler.profiles["flow"].profile.placer.model.args = args
        args["clock"] = world.clock
        world.pods("first")
        await settle()
        assert world.where("first") == ["a"]
        for name in ("second", "third", "fourth"):
            world.pods(name)
            await settle()
        assert world.rounds.rounds == 1
        await world.clock.advance(0.9)
        assert world.where("second", "third", "fourth") == ["", "", ""]
        await world.clock.advance(0.1)
        assert world.where("second", "third", "fourth") == ["a", "a", "a"]
        assert world.rounds.rounds == 2


@pytest.mark.parametrize("name", ["CPU_MEM", "COCO"])
async def test_a_model_keeps_nothing_of_pods_that_were_placed(name: str) -> None:
    async with flowing(flow_config(costModel=name), a={}) as world:
        for i in range(3):
            world.pods(f"p{i}", cpu=f"{i + 1}00m")
        await settle()
        assert world.where("p0", "p1", "p2") == ["a", "a", "a"]
        assert world.scheduler.profiles["flow"].profile.placer.model._tasks == {}


async def test_what_if_says_that_a_flow_chooses_otherwise() -> None:
    async with flowing(n1={"cpu": "4"}) as w:
        await settle()
        for profile, said in (("flow", True), ("default-scheduler", False)):
            found = w.scheduler.ask("what-if", pod_object("p", cpu="1", schedulerName=profile), {})
            assert found is not None and found["best"] == ["n1"]
            assert any("FlowPlacement" in line for line in told(found)) is said


MINIMUM = """
from minikube_py.scheduler.flow import Arc, CostModel

class Mine(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(1000)

    def task_to_equiv_class_aggregator(self, task, ec):
        return Arc(0, 1, {3000: task.count, 2000: 3, 1000: 1}.get(task.request("cpu"), 0))
"""


async def test_a_minimum_that_cannot_be_met_keeps_only_its_own_class_waiting(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINIMUM)
    # Most machines have no arc: the graph is made a second time of what is left.
    full = {f"full{at}": {"cpu": "0"} for at in range(20)}
    async with flowing(flow_config(costModel=f"{path}:Mine"), a={"cpu": "4"}, b={"cpu": "4"}, **full) as world:
        world.pods("bad1", "bad2", "bad3", cpu="3")
        world.pods("good1", "good2", cpu="500m")
        world.pods("least1", "least2", cpu="1")
        await settle()
        await world.clock.advance(5)
        assert all(world.where("good1", "good2", "least1", "least2"))
        message = world.api.condition("bad1")["message"]
        assert "cost model Mine: class default (3 pods like bad1), arc cluster" in message
        assert "pod default/bad1: min_flow is 3, and cannot be met" in message


async def test_a_minimum_above_the_number_of_pods_holds_until_there_are_as_many(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINIMUM)
    async with flowing(flow_config(costModel=f"{path}:Mine"), a={"cpu": "8"}) as world:
        world.pods("one", "two", cpu="2")
        await settle()
        await world.clock.advance(5)
        assert world.where("one", "two") == ["", ""]
        said = "(2 pods like one), arc cluster, pod default/one: min_flow is 3, and the arc has room for 2 (the class"
        assert said in world.api.condition("one")["message"]
        world.pods("three", cpu="2")
        await settle()
        await world.clock.advance(60)
        assert world.where("one", "two", "three") == ["a"] * 3
