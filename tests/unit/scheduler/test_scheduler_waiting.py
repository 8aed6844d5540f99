"""Thousands of pods wait, and one goes from a node: how many of them are asked whether that helps."""

from __future__ import annotations

import random
from typing import Any

from scheduler_objects import node, pod
from scheduler_reference import Lent

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import (
    EVENT_ASSIGNED_POD_ADD,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    ClusterChange,
)
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.queue import FLUSHED_AT_ONCE, QUESTIONS_AT_ONCE, UNASKED_MAX, SchedulingQueue
from minikube_py.scheduler.rules import Rules
from minikube_py.scheduler.waiting import Waiting

WAITING = 10_000


class Bench:
    def __init__(self) -> None:
        self.cache = Cache()
        lent: Any = Lent(self.cache)
        lent.is_preempting = lambda uid: False
        profile = Profile(ProfileConfig(), lent)
        evaluator = Evaluator(profile, self.cache.columns, random.Random(1), 100)
        rules = {profile.name: Rules.of(profile, evaluator, ())}
        self.now_s = 50.0
        self.queue = SchedulingQueue(lambda: self.now_s, profile.sort_key, rules, self.cache.columns.by_name.get)

    def asleep(self, name: str, cpu: str, **more: Any) -> None:
        self.queue.add(pod(name, cpu=cpu, **more))
        queued = self.queue.pop()
        assert queued is not None
        queued.unschedulable_plugins = {"NodeResourcesFit"}
        assert self.queue.fail(queued) == "unschedulable"

    def where(self, *names: str) -> list[str]:
        found = (self.queue.get(f"default/{name}") for name in names)
        return [queued.queue for queued in found if queued is not None]

    def gone(self, uid: str) -> int:
        """How many are asked."""
        before, name = self.queue.asked, self.cache.remove_pod(uid)
        self.queue.end_step()
        self.queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_DELETE, None, None, name))
        while self.queue.is_behind:
            step = self.queue.asked
            self.queue.catch_up()
            assert self.queue.asked - step <= QUESTIONS_AT_ONCE
        return self.queue.asked - before


def test_only_those_are_asked_that_the_node_could_hold() -> None:
    bench = Bench()
    bench.cache.put_node(node("n1", cpu="4"))
    for name, cpu, priority in (("small", "1", 0), ("other", "1", 0), ("wall", "2", 100)):
        bench.cache.put_pod(pod(name, cpu=cpu, nodeName="n1", priority=priority))
    for i in range(WAITING):
        bench.asleep(f"large-{i}", f"{2001 + i}m")
    bench.asleep("fits", "1")
    bench.asleep("preempts", "2", priority=10)
    bench.asleep("above-all", "4", priority=1000)
    # Without the wall, 2 of 4 are left; a pod above it may have all.
    assert bench.gone("uid-default-small") == 3
    assert bench.where("fits", "preempts", "above-all", "large-0") == ["backoff"] * 3 + ["unschedulable"]
    # 3 of 4 are left: room for any of those that ask for up to 3,000m, which are asked, and wake.
    assert bench.gone("uid-default-wall") == 1000
    assert bench.queue.pending()["unschedulable"] == WAITING - 1000


def test_of_a_change_that_no_plugin_hears_of_nobody_is_asked() -> None:
    bench = Bench()
    for i in range(1000):
        bench.asleep(f"large-{i}", f"{2001 + i}m")
    placed = pod("placed", nodeName="n1")
    bench.queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_ADD, None, placed))
    assert bench.queue.asked == 0 and not bench.queue.is_behind


def test_one_step_asks_a_bounded_number_however_many_changes_it_brings() -> None:
    bench = Bench()
    nodes = [node(f"n{i}", cpu="4") for i in range(UNASKED_MAX)]
    for i in range(1000):
        bench.asleep(f"large-{i}", f"{5001 + i}m", nodeSelector={"a": "b"})
    for info in nodes:
        info.allocatable = {**info.allocatable, "cpu": 64_000}
        bench.cache.put_node(info)
        bench.queue.on_change(ClusterChange(EVENT_NODE_ADD, None, info, info.name))
    assert bench.queue.asked == QUESTIONS_AT_ONCE and bench.queue.is_pressed
    steps = 0
    while bench.queue.is_behind:
        bench.queue.catch_up()
        steps += 1
    assert bench.queue.asked == len(nodes) * 1000 and steps == bench.queue.asked // QUESTIONS_AT_ONCE


def test_who_comes_to_sleep_after_a_change_is_not_asked_about_it() -> None:
    bench = Bench()
    big = node("n1", cpu="64")
    bench.cache.put_node(big)
    for i in range(2 * QUESTIONS_AT_ONCE):
        bench.asleep(f"large-{i}", f"{5001 + i}m", nodeSelector={"a": "b"})
    bench.queue.on_change(ClusterChange(EVENT_NODE_ADD, None, big, "n1"))
    bench.asleep("later", "7m", nodeSelector={"a": "b"})
    while bench.queue.is_behind:
        bench.queue.catch_up()
    assert bench.queue.asked == 2 * QUESTIONS_AT_ONCE


def test_those_who_waited_too_long_go_on_in_slices() -> None:
    bench = Bench()
    for i in range(3 * FLUSHED_AT_ONCE):
        bench.asleep(f"large-{i}", "5")
    bench.now_s = bench.queue.next_deadline_s()
    for left in (2, 1, 0):
        assert bench.queue.next_deadline_s() <= bench.now_s
        bench.queue.flush()
        assert bench.queue.pending()["unschedulable"] == left * FLUSHED_AT_ONCE


def test_rows_are_given_out_again() -> None:
    waiting = Waiting()
    info = node("n1", cpu="4")
    info.present = True
    rows = [waiting.put(0, {"cpu": 1000 * i, "pods": 1}) for i in range(100)]
    assert waiting.may_fit(info).sum() == 5
    for row in rows[:50]:
        waiting.drop(row)
    assert waiting.put(0, {}) < 50 and len(waiting.may_fit(info)) == 100
    assert not waiting.may_fit(None).any()
