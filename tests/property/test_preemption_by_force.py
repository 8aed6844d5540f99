"""Preemption against brute force: the same node and the same victims on every small cluster."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_reference import (
    Case,
    Guard,
    Running,
    best,
    drawn,
    guard_object,
    needs_preemption,
    node_object,
    pod_object,
)
from scheduler_reference import Lent

from minikube_py.scheduler.budgets import BUDGETS, Budgets, project_budget
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import Code, CycleState, Diagnosis, FitError
from minikube_py.scheduler.nominations import Nominations
from minikube_py.scheduler.objects import project_node, project_pod
from minikube_py.scheduler.plugins.default_preemption import select_in_all, select_victims
from minikube_py.scheduler.profile import Profile


class World(Lent):
    """A case as a scheduler sees it; `preempted` is what it would evict."""

    def __init__(self, case: Case, seed: int) -> None:
        super().__init__(Cache())
        self.rng = random.Random(seed)
        self.nominations = Nominations()
        self.preempted: list[tuple[str, tuple[str, ...]]] = []
        self.attempts = 0
        handle: Any = self
        self.profile = Profile(ProfileConfig(), handle)
        self.evaluator = Evaluator(self.profile, self.columns, self.rng, 100, None, self.nominations)
        for name, cpu in case.nodes.items():
            self.cache.put_node(project_node(node_object(name, cpu)))
        for running in case.running:
            self.cache.put_pod(project_pod(pod_object(running)))
        for promised in case.nominated:
            pod = project_pod({**pod_object(promised), "spec": {**pod_object(promised)["spec"], "nodeName": ""}})
            self.nominations.put(pod, promised.node)
        store = self.informer(BUDGETS, project_budget).store
        for guard in case.guards:
            store.put(guard.name, project_budget(guard_object(guard)))
        policy = {"preemptionPolicy": "Never"} if case.never else {}
        self.waiting = project_pod(pod_object(case.waiting, **policy))

    def dry_run(self, pod: Any) -> Any:
        return self.evaluator.dry_run(pod)

    def preempt(self, pod: Any, node_name: str, victims: Any) -> None:
        self.preempted.append((node_name, tuple(sorted(victim.name for victim in victims))))

    def is_preempting(self, uid: str) -> bool:
        return False

    def count(self, metric: str, labels: Any = ()) -> None:
        self.attempts += 1


@settings(max_examples=300)
@given(st.integers(0, 1 << 32))
def test_the_same_node_and_victims_as_by_brute_force(seed: int) -> None:
    case = drawn(random.Random(seed))
    world = World(case, seed)
    try:
        choice = world.evaluator.choose(world.waiting)
    except FitError as error:
        assert needs_preemption(case)
        result, status = world.profile.run_post_filter(CycleState(), world.waiting, error.diagnosis)
        assert world.attempts == 1
        possible = best(case)
        assert len(world.preempted) == bool(possible), (case, world.preempted, possible)
        if possible:
            assert world.preempted[0] in possible, (case, world.preempted, possible)
            assert status.code is Code.SUCCESS and result is not None
            assert result.nominated_node == world.preempted[0][0]
        else:
            assert status.code is Code.UNSCHEDULABLE and "preemption: " in status.message
    else:
        assert not needs_preemption(case), (case, choice.node.name)


def cordoned(world: World, rng: random.Random) -> World:
    """Some nodes are turned down by another filter than the one for resources."""
    for node in [each for each in world.columns.by_slot if each is not None and rng.random() < 0.3]:
        shape = node_object(node.name, node.allocatable["cpu"] // 1000)
        world.cache.put_node(project_node({**shape, "spec": {"unschedulable": True}}))
    return world


@settings(max_examples=100)
@given(st.integers(0, 1 << 32))
def test_nodes_tried_together_fare_as_each_alone(seed: int) -> None:
    rng = random.Random(seed)
    case = drawn(rng)
    world = cordoned(World(replace(case, waiting=replace(case.waiting, port=rng.random() < 0.1)), seed), rng)
    dry_run = world.evaluator.dry_run(world.waiting)
    assert dry_run is not None and dry_run.can_go_together != bool(world.waiting.spec.host_ports)
    nodes = [node for node in world.columns.by_slot if node is not None]
    budgets = Budgets(world.informer(BUDGETS, project_budget).store.values())
    alone = [select_victims(dry_run, world.waiting, node, budgets) for node in nodes]
    assert select_in_all(dry_run, world.waiting, nodes, budgets) == alone


@settings(max_examples=200)
@given(st.integers(0, 1 << 32))
def test_nodes_that_pods_are_nominated_to_are_barred_as_by_each_alone(seed: int) -> None:
    rng = random.Random(seed)
    case = drawn(rng)
    waiting = replace(case.waiting, port=rng.random() < 0.2)
    promised = [
        Running(
            f"r{i}", rng.choice([*case.nodes]), rng.choice((0, 1, 2, 1 << 61)), waiting.priority + rng.randrange(-1, 2)
        )
        for i in range(rng.randrange(6))
    ]
    world = cordoned(World(replace(case, waiting=waiting, nominated=(*case.nominated, *promised)), seed), rng)
    for running in rng.sample(case.running, min(len(case.running), 1)):
        # Bound meanwhile, and still nominated: it counts once.
        world.nominations.put(project_pod(pod_object(running)), running.node)
    dry_run = world.evaluator.dry_run(world.waiting)
    assert dry_run is not None
    nodes = [node for node in world.columns.by_slot if node is not None]
    alone = {node.slot: status for node in nodes if (status := dry_run(node).with_rivals()) is not None}
    together = dry_run.with_rivals(nodes)
    assert [(slot, status.code, status.reasons, status.plugin) for slot, status in together.items()] == [
        (slot, status.code, status.reasons, status.plugin) for slot, status in alone.items()
    ]


def test_candidates_are_those_that_a_walk_from_node_to_node_finds() -> None:
    """More nodes than are tried together, and than are enough."""
    running = [Running(f"p{i}", f"n{i}", 2, -i % 7, i % 50, "ab"[i % 2]) for i in range(300)]
    case = Case({f"n{i}": 2 for i in range(300)}, tuple(running), (Guard("g", "a", 0),), Running("w", "", 2, 10))
    world = World(case, 5)
    preemption: Any = world.profile.plugin("DefaultPreemption")
    diagnosis = Diagnosis(300, unschedulable_slots=list(range(300)))
    before = world.rng.getstate()
    found, _ = preemption._candidates(world.waiting, diagnosis)
    world.rng.setstate(before)
    offset = world.rng.randrange(300)
    walked: dict[bool, list[str]] = {True: [], False: []}
    for i in range(300):
        name = f"n{(offset + i) % 300}"
        walked[running[int(name[1:])].team == "a"].append(name)
        if walked[False] and len(walked[False]) + len(walked[True]) == 100:
            break
    assert [candidate.node.name for candidate in found] == walked[False] + walked[True]
    assert [candidate.violations for candidate in found] == [0] * len(walked[False]) + [1] * len(walked[True])


def test_the_draw_needs_preemption_often_and_finds_victims_often() -> None:
    cases = [drawn(random.Random(seed)) for seed in range(300)]
    needing = [case for case in cases if needs_preemption(case)]
    assert len(needing) > 100 and sum(bool(best(case)) for case in needing) > 50
    assert sum(any(case.guards) and bool(best(case)) for case in needing) > 20
