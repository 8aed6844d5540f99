"""Thousands of pods wait, and one goes from a node: how many of them are asked whether that helps."""

from __future__ import annotations

import random
from typing import Any

from scheduler_objects import node, pod
from scheduler_reference import Lent

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import EVENT_ASSIGNED_POD_DELETE, ClusterChange
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.queue import Rules, SchedulingQueue
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
        self.queue = SchedulingQueue(lambda: 50.0, profile.sort_key, rules, self.cache.columns.by_name.get)

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
        self.queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_DELETE, None, None, name))
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
