"""Preemption by price: who is evicted, who never is, and what the flow makes of drawn clusters."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import settle
from test_scheduler_flow import World, flow_config, flowing
from virtual_time import run_virtually

from minikube_py.api.label_selectors import selector_of
from minikube_py.scheduler.budgets import Budget, Budgets
from minikube_py.scheduler.dry_run import Trial
from minikube_py.scheduler.flow import exchange, rounds

WORTH = """
from minikube_py.scheduler.flow.model import Arc
from minikube_py.scheduler.flow.models import MODELS


class Worth(MODELS["TRIVIAL"]):
    '''A pod that waits costs what its label says; a machine costs 2.'''

    name = "WORTH"

    def task_key(self, task):
        return task.labels.get("worth", "5")

    def task_to_unscheduled_agg(self, task):
        return Arc(int(task.labels.get("worth", "5")))

    def task_continuation(self, task):
        return Arc(int(task.labels.get("keeps", "0")))

    def task_preemption(self, task):
        return Arc(int(task.labels.get("leaves", "0")))
"""


def worth(path: Path, **args: Any) -> Any:
    file = path / "worth.py"
    file.write_text(WORTH)
    return flow_config(costModel=f"{file}:Worth", modelArgs={"preferences": 0}, **args)


def labelled(worth: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"worth": str(worth)}}, **more}


RUNS = {"phase": "Running", "startTime": "2025-01-01T00:00:00Z"}
MACHINE = 2
"""What TRIVIAL takes for any machine."""


def leaving(world: World) -> set[str]:
    return {key.split("/")[1] for key, pod in world.api.objects["pods"].items()
            if "deletionTimestamp" in pod["metadata"]}  # fmt: skip


@pytest.mark.parametrize("preemption", [True, False])
async def test_who_is_worth_more_takes_the_place_if_preemption_is_on(tmp_path: Path, preemption: bool) -> None:
    async with flowing(worth(tmp_path, preemption=preemption), a={"cpu": "2"}, b={"cpu": "2"}) as world:
        world.pods("cheap", cpu="2", nodeName="a", status=RUNS, **labelled(10))
        world.pods("less", cpu="2", nodeName="b", status=RUNS, **labelled(20))
        world.pods("valued", cpu="2", **labelled(100))
        await settle()
        assert leaving(world) == ({"cheap"} if preemption else set())
        # While it is on its way out nobody else goes, however often the pod is tried.
        for _ in range(5):
            world.api.node("c", cpu="1")
            await world.clock.advance(400)
        assert leaving(world) == ({"cheap"} if preemption else set())
        assert world.rounds.exchanged == preemption
        if preemption:
            message = world.api.condition("valued")["message"]
            assert "0/3 nodes are available: cost model WORTH gives the pod the place of 1 running on a" in message
            world.api.delete("pods", "default/cheap")
            await settle()
            await world.clock.advance(30)
            assert world.where("valued", "less") == ["a", "b"]


@pytest.mark.parametrize(
    ("running", "waiting"),
    [
        ({**labelled(98)}, {}),
        ({**labelled(10), "priority": 1}, {}),
        ({**labelled(10), "schedulerName": "default-scheduler"}, {}),
        ({**labelled(10)}, {"preemptionPolicy": "Never"}),
        ({**labelled(10), "status": {"phase": "Pending"}}, {}),
        ({**labelled(10), "cpu": "1"}, {"cpu": "3"}),
    ],
    ids=["not worth less", "higher priority", "of another scheduler", "never", "does not run yet", "not enough"],
)
async def test_who_is_not_evicted(tmp_path: Path, running: dict[str, Any], waiting: dict[str, Any]) -> None:
    async with flowing(worth(tmp_path, preemption=True), a={"cpu": "2"}) as world:
        world.pods("there", **{"cpu": "2", "nodeName": "a", "status": RUNS, **running})
        world.pods("valued", **{"cpu": "2", **labelled(100), **waiting})
        await settle()
        await world.clock.advance(30)
        assert leaving(world) == set() and world.rounds.exchanged == 0
        assert world.where("valued") == [""]


def tries(monkeypatch: pytest.MonkeyPatch, world: World, nodes_max: int, turn: int = 1) -> dict[int, dict[str, int]]:
    """By round and pod, how many nodes were tried."""
    tried: dict[int, dict[str, int]] = {}
    monkeypatch.setattr(rounds, "NODES_MAX", nodes_max)
    monkeypatch.setattr(exchange, "TURN_NODES", turn)

    def offers(dry_run: Any, pod: Any, nodes: list[Any], *more: Any) -> Any:
        tried.setdefault(world.rounds.rounds, {})[pod.name] = len(nodes)
        return exchange.offers(dry_run, pod, nodes, *more)

    monkeypatch.setattr(rounds, "offers", offers)
    return tried


async def wakes(world: World, count: int) -> None:
    for number in range(count):
        world.api.node(f"more-{number}", cpu="0")
        await world.clock.advance(400)


async def test_all_classes_of_a_round_share_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {f"n{at}": {"cpu": "1"} for at in range(9)}
    async with flowing(worth(tmp_path, preemption=True), **nodes) as world:
        tried = tries(monkeypatch, world, 4)
        for name in nodes:
            world.pods(f"on-{name}", cpu="1", nodeName=name, status=RUNS, **labelled(10))
        await settle()
        for price in range(50, 59):
            world.pods(f"waits-{price}", cpu="1", **labelled(price))
        await settle()
        await wakes(world, 5)
        spent = [sum(each.values()) for each in tried.values()]
        assert max(map(len, tried.values())) > 1 and max(spent) <= 4
        assert world.rounds.exchanged > 4, "the next round goes on after them"


async def test_a_class_keeps_its_turn_whichever_of_its_pods_waits_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    take = exchange.Turns.take
    monkeypatch.setattr(exchange.Turns, "take", lambda self, of, *more: asked.append(of) or take(self, of, *more))
    async with flowing(worth(tmp_path, preemption=True), a={"cpu": "2"}) as world:
        world.pods("runs", cpu="2", nodeName="a", status=RUNS, **labelled(1000))
        await settle()
        for name in ("first", "second", "third"):
            world.pods(name, cpu="2", **labelled(100))
            await wakes(world, 2)
            world.api.delete("pods", f"default/{name}")
    assert len(asked) > 2 and len({names[0] for names in asked}) == 1


def test_budgets_are_left_with_what_evictions_leave_them() -> None:
    """Without a look at those that they do not concern: 1,000 budgets and 256 evictions took a second."""
    alike = [Budget(f"u{at}", "ns", selector_of({"matchLabels": {"a": str(at % 50)}}), 3, ()) for at in range(100)]
    budgets = Budgets(alike)
    pods: list[Any] = [SimpleNamespace(name=f"p{at}", namespace="ns", labels={"a": str(at % 50)}) for at in range(120)]
    monitored = sum(1 for _ in budgets.protecting(pods[0]))
    for pod in pods:
        budgets = budgets.without([pod])
    left = [each.allowed for pod in pods[:50] for each in budgets.protecting(pod)]
    assert monitored == 2 and left == [0] * 40 + [1] * 60
    assert [each.allowed for each in Budgets(alike).protecting(pods[0])] == [3, 3]

async def test_a_class_that_can_never_pay_does_not_keep_another_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many nodes only one would do, and others that wait with it are poor."""
    nodes = {f"n{at:02d}": {"cpu": "2" if at == 20 else "1"} for at in range(24)}
    async with flowing(worth(tmp_path, preemption=True), **nodes) as world:
        tried = tries(monkeypatch, world, 6, turn=3)
        for name, more in nodes.items():
            world.pods(f"on-{name}", cpu=more["cpu"], nodeName=name, status=RUNS, **labelled(10))
        await settle()
        for price in range(1, 6):
            world.pods(f"poor-{price}", cpu="1", **labelled(price))
        await settle()
        world.pods("valued", cpu="2", **labelled(100))
        await settle()
        # Two of six classes have a turn in each round, of three nodes.
        await wakes(world, 24)
        assert leaving(world) == {"on-n20"}
        assert all(sum(each.values()) <= 6 for each in tried.values())
        assert len({pod for each in tried.values() for pod in each}) == 6


@pytest.mark.parametrize("classes", [1, 3])
async def test_a_round_evicts_no_more_than_a_disruption_budget_allows(tmp_path: Path, classes: int) -> None:
    nodes = {name: {"cpu": "2"} for name in "abcd"}
    async with flowing(worth(tmp_path, preemption=True), **nodes) as world:
        budget = {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "status": {"disruptionsAllowed": 1},
                  "spec": {"selector": {"matchLabels": {"app": "db"}}}}  # fmt: skip
        world.api.put("poddisruptionbudgets", budget)
        for at, name in enumerate(nodes):
            labels = {"worth": str(10 + at), "app": "db" if name != "d" else "web"}
            world.pods(f"on-{name}", cpu="2", nodeName=name, status=RUNS, metadata={"labels": labels})
        await settle()
        for at in range(3):
            world.pods(f"valued-{at}", cpu="2", **labelled(100 + at % classes))
        await settle()
        # The budget allows the cheapest alone. A class that looked after that sees only the pod that it does not mean.
        assert leaving(world) == ({"on-a"} if classes == 1 else {"on-a", "on-d"})
        # Nor do later rounds take more while the victim leaves, though nobody counts it in the status here.
        await wakes(world, 4)
        assert leaving(world) == {"on-a", "on-d"} and world.rounds.exchanged == 2


@pytest.mark.parametrize("first", ["PreemptLowerPriority", "Never"])
async def test_pods_that_differ_in_their_preemption_policy_alone_are_not_alike(tmp_path: Path, first: str) -> None:
    async with flowing(worth(tmp_path, preemption=True), a={"cpu": "2"}, b={"cpu": "2"}) as world:
        for name in "ab":
            world.pods(f"on-{name}", cpu="2", nodeName=name, status=RUNS, **labelled(10))
        await settle()
        other = "Never" if first != "Never" else "PreemptLowerPriority"
        world.pods("first", cpu="2", preemptionPolicy=first, **labelled(100))
        world.pods("second", cpu="2", preemptionPolicy=other, **labelled(100))
        await settle()
        assert world.rounds.exchanged == 1 and len(leaving(world)) == 1
        evicts, waits = ("first", "second") if first != "Never" else ("second", "first")
        assert "gives the pod the place of 1" in world.api.condition(evicts)["message"]
        assert "gives the pod the place" not in world.api.condition(waits)["message"]


async def test_a_search_for_offers_lets_others_run_and_looks_again_at_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn runs the filters more than once here; a pod that goes meanwhile is no victim, and no room for two."""
    monkeypatch.setattr(rounds, "TURN_S", -1.0)
    runs = 0
    between: list[int] = []
    trial = Trial.rejection

    def rejection(self: Trial) -> Any:
        nonlocal runs
        runs += 1
        return trial(self)

    monkeypatch.setattr(Trial, "rejection", rejection)
    async with flowing(worth(tmp_path, preemption=True), a={"cpu": "4"}, b={"cpu": "4"}) as world:
        for name in "ab":
            for number in range(4):
                price = 20 if name == "b" else 10
                world.pods(f"on-{name}{number}", cpu="1", nodeName=name, status=RUNS, **labelled(price))
        await settle()
        world.pods("valued", cpu="4", **labelled(1000))
        seen, said = 0, True
        while not world.rounds.exchanged and len(between) < 500:
            await asyncio.sleep(0)
            between.append(runs - seen)
            seen = runs
            if runs >= 7 and said:
                # Its place on a was offered; now somebody who may not be evicted is there.
                world.api.delete("pods", "default/on-a0")
                world.api.pod("kept", cpu="1", nodeName="a", status=RUNS)
                said = False
        await settle()
        assert not said and max(between) <= 2
        assert leaving(world) == {f"on-b{number}" for number in range(4)}


RUNNING = st.tuples(st.integers(1, 4), st.integers(0, 60), st.integers(0, 20), st.booleans(), st.integers(0, 90))
"""Of a pod that runs: cpu, what it is worth waiting, what it costs to go on, whether a budget protects it, what its
eviction costs."""
Running = tuple[int, int, int, bool, int]
CLUSTERS = st.lists(st.lists(RUNNING, min_size=1, max_size=4), min_size=1, max_size=3)


def displaced(each: Running) -> int:
    _, waits, keeps, _, leaves = each
    return max(leaves, waits) - keeps


def cheapest(pods: list[Running], free: int, cpu: int) -> tuple[int, int] | None:
    """What it costs to make room: as few of the most expensive as possible go; and the most that one of them is worth
    waiting."""
    going = [each for each in pods if not each[3]]
    free += sum(each[0] for each in going)
    if free < cpu:
        return None
    total = worth = 0
    for other in sorted(going, key=lambda each: -displaced(each)):
        if free - other[0] >= cpu:
            free -= other[0]
        else:
            total += displaced(other)
            worth = max(worth, other[1])
    return total, worth


@settings(max_examples=40, deadline=None)
@given(CLUSTERS, st.integers(1, 5), st.integers(0, 150), st.integers(0, 20), st.integers(1, 3))
def test_on_drawn_clusters_nobody_goes_without_a_better_price(
    cluster: list[list[Running]], cpu: int, price: int, keeps: int, count: int
) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = worth(Path(folder), preemption=True)
            nodes = {f"n{at}": {"cpu": str(sum(each[0] for each in pods))} for at, pods in enumerate(cluster)}
            async with flowing(config, **nodes) as world:
                await judged(world)

    async def judged(world: World) -> None:
        budget = {"metadata": {"name": "b", "namespace": "default", "uid": "b"}, "status": {"disruptionsAllowed": 0},
                  "spec": {"selector": {"matchLabels": {"kept": "true"}}}}  # fmt: skip
        world.api.put("poddisruptionbudgets", budget)
        there = {}
        for at, pods in enumerate(cluster):
            for number, each in enumerate(pods):
                size, waits, costs, kept, leaves = each
                name = f"r{at}-{number}"
                there[name] = (at, size, displaced(each), kept)
                labels = {"worth": str(waits), "keeps": str(costs), "leaves": str(leaves), "kept": str(kept).lower()}
                world.pods(name, cpu=str(size), nodeName=f"n{at}", status=RUNS, metadata={"labels": labels})
        await settle()
        costs = {"labels": {"worth": str(price), "keeps": str(keeps)}}
        world.pods(*(f"w{number}" for number in range(count)), cpu=str(cpu), metadata=costs)
        await settle()

        gone = leaving(world)
        prices = [found for pods in cluster if (found := cheapest(pods, 0, cpu)) is not None]
        paying = sorted(total for total, worth in prices if total + MACHINE < price and worth < price)[:count]
        assert world.rounds.exchanged == len(paying)
        by_node = [[there[name] for name in gone if there[name][0] == at] for at in range(len(cluster))]
        totals = sorted(sum(each[2] for each in victims) for victims in by_node if victims)
        assert totals == paying
        for victims in (each for each in by_node if each):
            freed = sum(each[1] for each in victims)
            assert freed >= cpu and all(freed - each[1] < cpu for each in victims), "one too many"
            assert not any(each[3] for each in victims), "a budget protects it"
        waiting = [f"w{number}" for number in range(count)]
        while gone:
            for name in gone:
                world.api.delete("pods", f"default/{name}")
            await settle()
            await world.clock.advance(30)
            gone = leaving(world)
        # Each that took a place has it, once; what else its victims left may have room for others.
        assert sum(map(bool, world.where(*waiting))) >= len(paying)
        assert world.rounds.exchanged <= len({name for name, _ in world.api.bound})

    run_virtually(run)


async def test_a_nomination_that_comes_while_offers_are_tried_takes_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes no node, and the victim on the offered one would have gone for nothing."""
    monkeypatch.setattr(rounds, "TURN_S", -1.0)
    nodes = {"a": {"cpu": "6"}, **{f"b{at}": {"cpu": "4"} for at in range(6)}}
    async with flowing(worth(tmp_path, preemption=True), **nodes) as world:
        world.api.pod("low", cpu="2", nodeName="a", status=RUNS, priority=-10)
        world.pods("victim", cpu="2", nodeName="a", status=RUNS, **labelled(10))
        for at in range(6):
            world.pods(f"on{at}", cpu="4", nodeName=f"b{at}", status=RUNS, **labelled(50))
        await settle()
        offered: list[str] = []

        def watched(*args: Any) -> Iterator[exchange.Offer | None]:
            for offer in exchange.offers(*args):
                if offer is not None and offer.node.name == "a" and not offered:
                    offered.append("a")
                    world.api.pod("urgent", cpu="4", priority=1_000_000)
                yield offer

        monkeypatch.setattr(rounds, "offers", watched)
        world.pods("waits", cpu="4", **labelled(1000))
        await settle()
        assert offered and sorted(leaving(world)) == ["low", "on0"]
