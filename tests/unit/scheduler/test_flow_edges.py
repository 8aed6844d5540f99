"""Cost models at the edges: nodes of any legal size, a start on full nodes, prices of any type and at any point."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_objects import pod_object
from scheduler_world import FakeApi, ManualClock, settle
from test_flow_exchange import RUNS, labelled, leaving, worth
from test_scheduler_flow import flow_config, flowing
from virtual_time import run_virtually

from minikube_py.cli.explain_pod import told
from minikube_py.scheduler.extenders.config import ExtenderConfig
from minikube_py.scheduler.flow import exchange, rounds
from minikube_py.scheduler.flow.checking import Asking
from minikube_py.scheduler.flow.model import Arc, ModelError, Task
from minikube_py.scheduler.flow.models import IDLE_WATTS, MODELS, PEAK_WATTS
from minikube_py.scheduler.flow.problem import AMOUNT_MAX, COST_MAX
from minikube_py.scheduler.scheduler import Scheduler

BANDWIDTH = "minikube-py.io/net-rx-bandwidth"
AMOUNTS = st.sampled_from((
    "0", "1", "2", "110", "2147483647", "2147483648", "3G", "10P", "4Ei", "9223372036854775807",
))  # fmt: skip
WATTS = st.sampled_from((
    "0", "100", "99999999999999999", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "x",
))  # fmt: skip
NODES = st.fixed_dictionaries({
    "cpu": AMOUNTS, "memory": AMOUNTS, "pods": AMOUNTS, "extended": st.fixed_dictionaries({BANDWIDTH: AMOUNTS}),
    "labels": st.fixed_dictionaries({IDLE_WATTS: WATTS, PEAK_WATTS: WATTS}),
})  # fmt: skip
BOUND = st.lists(st.tuples(AMOUNTS, AMOUNTS, AMOUNTS), max_size=3)
PRICED_AT_RANDOM = {"RANDOM"}


@pytest.mark.parametrize("model", sorted(MODELS.keys() - PRICED_AT_RANDOM))
def test_whatever_another_node_says_a_pod_that_fits_a_plain_one_is_placed(model: str) -> None:
    @settings(max_examples=25, deadline=None)
    @given(NODES, BOUND, st.booleans())
    def law(node: dict[str, Any], bound: list[tuple[str, str, str]], crowd: bool) -> None:
        async def run() -> None:
            async with flowing(flow_config(costModel=model), a=node, b={"cpu": "8", "memory": "16Gi"}) as world:
                for number, (cpu, memory, bandwidth) in enumerate(bound):
                    requests = {"cpu": cpu, "memory": memory, "extended": {BANDWIDTH: bandwidth}}
                    world.api.pod(f"bound{number}", nodeName="a", status=RUNS, **requests)
                for number in range(60 if crowd else 0):
                    world.api.pod(f"crowd{number}", nodeName="a", status=RUNS)
                await settle()
                world.pods("p", "q", cpu="100m", memory="1Gi")
                world.pods("cpu-alone", cpu="100m")
                await settle()
                await world.clock.advance(100)
                await settle()
                assert all(world.where("p", "q", "cpu-alone")), world.api.condition("p")

        run_virtually(run)

    law()


@pytest.mark.parametrize("model", ["CPU_MEM", "NET", "OCTOPUS"])
async def test_what_a_pod_does_not_ask_for_keeps_it_off_no_node(model: str) -> None:
    """A node that has shrunk: more is requested there than it has."""
    only = {"cpu": "8", "memory": "2Gi", "extended": {BANDWIDTH: "1"}}
    async with flowing(flow_config(costModel=model), a=only) as world:
        world.api.pod("big", cpu="1", memory="4Gi", nodeName="a", extended={BANDWIDTH: "5"})
        await settle()
        world.pods("p", cpu="500m")
        await settle()
        assert world.where("p") == ["a"]


OWN = """
from minikube_py.scheduler.flow import Arc, CostModel


class Counts(CostModel):
    '''Knows the machines that were added; waiting costs more and more.'''

    name = "COUNTS"

    def __init__(self, args, rng):
        super().__init__(args, rng)
        self.running = {}

    def add_machine(self, machine):
        self.running[machine.name] = 0

    def remove_machine(self, name):
        del self.running[name]

    def gather_stats(self, machine):
        self.running[machine.name] = machine.running

    def task_key(self, task):
        return int(task.waited_s)

    def task_to_unscheduled_agg(self, task):
        return Arc(1000 + int(task.waited_s))

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(self.running[machine.name], machine.free_slots)


class Aside(CostModel):
    '''Most of what waiting costs is the job's.'''

    name = "ASIDE"

    def task_to_unscheduled_agg(self, task):
        return Arc(10 + 10 * task.pod.priority)

    def task_key(self, task):
        return task.pod.priority

    def unscheduled_agg_to_sink(self, job):
        return Arc(5000)

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(300, machine.free_slots)


class Unsure(Aside):
    def task_continuation(self, task):
        return Arc(float("nan"))
"""


def own(path: Path, name: str, **args: Any) -> Any:
    file = path / "own.py"
    file.write_text(OWN)
    return flow_config(costModel=f"{file}:{name}", **args)


async def waits_for(world: Any, *, waited_s: float, ran_s: float) -> None:
    """A full node, which a pod that has waited would get only from one that runs."""
    world.pods("waits", cpu="4")
    await settle()
    await world.clock.advance(waited_s)
    since = datetime.fromtimestamp(world.clock.wall_s() - ran_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.pods("runs", cpu="4", nodeName="a", status={"phase": "Running", "startTime": since})
    world.api.node("a", cpu="4", memory="16Gi")
    await settle()
    # Prices change without any event: the pod is tried again by itself.
    await world.clock.advance(rounds.EVICT_AGAIN_S)
    await settle()


async def test_a_model_knows_the_machines_before_it_prices_an_exchange(tmp_path: Path) -> None:
    """Nothing was ever placed here: all nodes have been full since the scheduler started."""
    async with flowing(own(tmp_path, "Counts", preemption=True), a={"cpu": "4", "unschedulable": True}) as world:
        await waits_for(world, waited_s=3_600, ran_s=60)
        assert leaving(world) == {"runs"}, world.api.condition("waits")


@pytest.mark.parametrize(("waited_s", "evicts"), [(100, False), (200, True)])
async def test_quincy_weighs_waiting_against_running(waited_s: float, evicts: bool) -> None:
    """Half a point for a second of waiting, one for a second of running."""
    config = flow_config(costModel="QUINCY", preemption=True)
    async with flowing(config, a={"cpu": "4", "unschedulable": True}) as world:
        await waits_for(world, waited_s=waited_s, ran_s=60)
        assert leaving(world) == ({"runs"} if evicts else set()), world.api.condition("waits")


async def test_the_price_of_staying_is_that_of_its_job_too(tmp_path: Path) -> None:
    async with flowing(own(tmp_path, "Aside", preemption=True), a={"cpu": "4"}) as world:
        world.pods("p", cpu="1")
        await settle()
        decision = world.rounds.decision("uid-default-p")
        assert decision is not None and (decision.price, decision.alternative) == (300, 5010)
        world.pods("runs", cpu="3", nodeName="a", status=RUNS)
        await settle()
        # A place for 300 and 5010 for the one that goes: more than 5010, and less than 5410.
        world.pods("alike", cpu="3")
        await settle()
        assert leaving(world) == set()
        world.pods("costlier", cpu="3", priority=40)
        await settle()
        assert leaving(world) == {"runs"}


async def test_who_is_worth_more_stays_and_who_is_worth_less_goes(tmp_path: Path) -> None:
    """However cheap it would be to end the former."""
    async with flowing(worth(tmp_path, preemption=True), a={"cpu": "2"}) as world:
        rich = {"labels": {"worth": "100", "keeps": "100"}}
        world.pods("rich", cpu="1", nodeName="a", status=RUNS, metadata=rich)
        world.pods("poor", cpu="1", nodeName="a", status=RUNS, **labelled(5))
        await settle()
        world.pods("new", cpu="1", **labelled(50))
        await settle()
        assert leaving(world) == {"poor"}


async def test_a_class_that_is_new_comes_after_those_that_wait() -> None:
    turns = exchange.Turns()
    slots, got = np.arange(100), 0
    for number in range(20):
        waiting = ["old", *(f"new {number} {other}" for other in range(8))]
        for name in turns.ordered(waiting, lambda name: (name,))[:2]:
            turns.take((name,), slots, 32, 2)
            got += name == "old"
    assert got >= 2


async def test_a_node_that_goes_between_two_graphs_of_a_round_is_in_none(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = rounds.Rounds._commit
    async with flowing(flow_config(costModel="OCTOPUS", maxArcs=10), **{n: {"cpu": "2"} for n in "abcd"}) as world:

        async def committed(self: Any, *given: Any) -> Any:
            found = await commit(self, *given)
            if "nodes" in world.api.objects and "a" in world.api.objects["nodes"]:
                world.api.delete("nodes", "a")
                await settle()
            return found

        monkeypatch.setattr(rounds.Rounds, "_commit", committed)
        for number in range(6):
            world.pods(f"p{number}", cpu=f"{1000 + number}m")
        await settle()
        await world.clock.advance(30)
        await settle()
        where = world.where(*(f"p{number}" for number in range(6)))
        assert where.count("a") <= 1 and sum(map(bool, where)) >= 4


async def test_a_model_that_fails_for_a_running_pod_is_named_in_the_condition(tmp_path: Path) -> None:
    async with flowing(own(tmp_path, "Unsure", preemption=True), a={"cpu": "4"}) as world:
        world.pods("runs", cpu="4", nodeName="a", status=RUNS)
        await settle()
        world.pods("p", cpu="4", priority=40)
        await settle()
        told = world.api.condition("p")
        assert told["reason"] == "SchedulerError"
        assert "class default, running on a, arc running -> machine, pod default/runs" in told["message"]


async def test_a_pod_that_a_round_could_not_place_is_tried_again_though_nothing_happens() -> None:
    """As pods of other profiles: every five minutes."""
    async with flowing(a={"cpu": "1"}) as world:
        world.pods("new", cpu="4")
        await settle()
        seen = []
        for _ in range(5):
            before = world.rounds.rounds
            for _ in range(61):
                await world.clock.advance(5)
                await settle()
            seen.append(world.rounds.rounds - before)
        assert all(seen), seen


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("what", ["cost", "capacity"])
def test_an_infinite_price_is_refused_in_every_type(kind: Any, what: str) -> None:
    class Nodes:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, at: int) -> Any:
            return type("Node", (), {"name": f"n{at}"})

    pod: Any = type("Pod", (), {"key": "default/p"})
    machines: Any = Nodes()
    asking = Asking("M", "c", Task(pod))
    bad, good = np.array([1, np.inf], kind), np.array([1, 2], kind)
    given = {"cost": (bad, good), "capacity": (good, bad)}[what]
    with pytest.raises(ModelError, match=f"arc x -> n1, pod default/p: {what} is inf"):
        asking.arcs(machines, "x", lambda: given)
    for narrow in (np.int8, np.uint8, np.float16):
        cost, capacity = asking.arcs(machines, "x", lambda narrow=narrow: (np.array([1, 2], narrow), 3))
        assert cost.tolist() == [1, 2] and capacity.tolist() == [3, 3]
    with pytest.raises(ModelError, match=str(COST_MAX)):
        asking.arc("x", lambda: Arc(np.float16(np.inf)))
    with pytest.raises(ModelError, match=str(AMOUNT_MAX)):
        asking.arc("x", lambda: Arc(0, np.uint64(1 << 63)))


@pytest.mark.parametrize("model", ["CPU_MEM", "SJF", "COCO", "QUINCY", "WHARE"])
async def test_all_classes_get_their_turn_whatever_their_prices_depend_on(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 classes, of which all nodes are full; a round has trials for eight of them, of which waiting has prices that
    rise."""
    tried: dict[str, int] = {}
    real = rounds.offers

    def counted(dry_run: Any, pod: Any, nodes: Any, *rest: Any) -> Any:
        nodes = list(nodes)
        tried[pod.name] = tried.get(pod.name, 0) + len(nodes)
        return real(dry_run, pod, nodes, *rest)

    monkeypatch.setattr(rounds, "offers", counted)
    monkeypatch.setattr(rounds, "NODES_MAX", 16)
    monkeypatch.setattr(exchange, "TURN_NODES", 2)
    nodes = {f"n{number}": {"cpu": "1"} for number in range(20)}
    async with flowing(flow_config(costModel=model, preemption=True), **nodes) as world:
        for number in range(20):
            # Of more importance: never evicted.
            world.pods(f"runs{number}", cpu="1", nodeName=f"n{number}", status=RUNS, priority=1000)
        for number in range(20):
            world.pods(f"w{number}", cpu=f"{500 + number}m")
        for _ in range(8):
            await settle()
            await world.clock.advance(rounds.EVICT_AGAIN_S + 1)
        await settle()
        assert len(tried) == 20 and max(tried.values()) <= 2 * min(tried.values()) + 2, tried


async def test_what_waiting_costs_is_asked_only_while_the_round_has_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = rounds.price_of_waiting

    def counted(model: Any, task: Task) -> int:
        asked.append(task.name)
        return real(model, task)

    monkeypatch.setattr(rounds, "price_of_waiting", counted)
    monkeypatch.setattr(rounds, "NODES_MAX", 2)
    monkeypatch.setattr(exchange, "TURN_NODES", 1)
    nodes = {f"n{number}": {"cpu": "1"} for number in range(4)}
    async with flowing(flow_config(preemption=True), **nodes) as world:
        for number in range(4):
            world.pods(f"runs{number}", cpu="1", nodeName=f"n{number}", status=RUNS, priority=1000)
        world.pods(*(f"w{number}" for number in range(6)), cpu="500m")
        for number in range(6):
            world.pods(f"x{number}", cpu=f"{600 + number}m")
        await settle()
        assert len(asked) == 2, "one node each"


class Raises:
    name = "numpy"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def solved(self, problem: Any) -> Any:
        raise self.error

    solve = solved


@pytest.mark.parametrize("error", [MemoryError("std::bad_alloc"), RuntimeError("x"), OverflowError(), SystemExit(0)])
async def test_whatever_a_solver_raises_its_pods_wait_and_all_others_go_on(error: BaseException) -> None:
    async with flowing(a={"cpu": "4"}) as world:
        placer: Any = world.scheduler.profiles["flow"].profile.placer
        placer.solver = Raises(error)
        world.pods("p", cpu="1")
        world.api.pod("other", cpu="1")
        await settle()
        assert world.where("p", "other") == ["", "a"]
        assert f"solver numpy: {type(error).__name__}" in world.api.condition("p")["message"]


async def test_no_graph_has_many_more_arcs_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of 30 kinds on 30 nodes: by the hundred arcs, in the order of the queue."""
    sizes = []
    build = rounds.Graph.build

    def built(self: rounds.Graph, classes: Any) -> Any:
        problem = build(self, classes)
        sizes.append(self.size[1])
        return problem

    monkeypatch.setattr(rounds.Graph, "build", built)
    nodes = {f"n{number}": {"cpu": "1"} for number in range(30)}
    async with flowing(flow_config(costModel="OCTOPUS", maxArcs=100), **nodes) as world:
        for number in range(30):
            world.pods(f"p{number}", cpu=f"{500 + number}m")
        await settle()
        await world.clock.advance(30)
        await settle()
        assert len(set(world.where(*(f"p{number}" for number in range(30))))) == 30
        # Beside those to machines: from each class and to the sink.
        assert len(sizes) >= 10 and max(sizes) < 2 * 100


class NobodyOutside:
    async def post(self, url: str, body: bytes, tls: Any, timeout_s: float) -> Any:
        raise AssertionError(f"{url} was asked")

    async def close(self) -> None: ...


async def test_a_pod_about_which_an_extender_is_asked_is_placed_without_a_flow_and_says_so() -> None:
    """It would otherwise look as if the model did nothing."""
    every = ExtenderConfig("http://a", prioritize_verb="p", weight=1)
    some = replace(every, managed=frozenset({"example.com/port"}))
    for extender, alone in ((every, True), (some, False)):
        config = replace(flow_config(), extenders=(extender,))
        api = FakeApi()
        api.node("n1")
        scheduler = Scheduler(api, ManualClock(), random.Random(1), config, NobodyOutside())
        await scheduler.start()
        for profile in ("flow", "default-scheduler"):
            found = scheduler.ask("what-if", pod_object("p", cpu="1", schedulerName=profile), {})
            assert found is not None
            said = [line for line in told(found) if "flow" in line.lower()]
            ours = "not placed by flow: an extender is asked about it, so it is placed alone, by filters and scores"
            assert (ours in said) is (alone and profile == "flow")
            assert bool(said) is (profile == "flow")
        await scheduler.stop()
