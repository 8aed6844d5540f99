"""Preemption in the loop: who waits for whom, what is written, and what becomes of nominations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest
from scheduler_objects import pod
from scheduler_world import FakeApi, ManualClock, failure, settle

from minikube_py.client.transport import ApiResponse
from minikube_py.scheduler.metrics import Metrics
from minikube_py.scheduler.nominations import Nominations
from minikube_py.scheduler.pre_binding import PreBindings
from minikube_py.scheduler.preemption import Preemptions
from minikube_py.scheduler.scheduler import Scheduler

LOW: dict[str, Any] = {"priority": 0, "nodeName": "n1"}


class World:
    def __init__(self, api: FakeApi, clock: ManualClock, scheduler: Scheduler) -> None:
        self.api, self.clock, self.scheduler = api, clock, scheduler

    def going(self) -> list[str]:
        pods = self.api.objects["pods"].values()
        return sorted(p["metadata"]["name"] for p in pods if "deletionTimestamp" in p["metadata"])

    def nominated(self, name: str) -> str:
        return str(self.api.objects["pods"][f"default/{name}"]["status"].get("nominatedNodeName", ""))

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.api.events if event["reason"] == reason]


@asynccontextmanager
async def world(*nodes: str, cpu: str = "4") -> AsyncIterator[World]:
    api, clock = FakeApi(), ManualClock()
    for name in nodes:
        api.node(name, cpu=cpu)
    scheduler = Scheduler(api, clock, random.Random(3))
    await scheduler.start()
    try:
        yield World(api, clock, scheduler)
        assert scheduler.failure is None
    finally:
        await scheduler.stop()


async def test_victims_go_and_the_preemptor_takes_their_node() -> None:
    async with world("n1") as w:
        w.api.pod("low-1", cpu="2", **LOW)
        w.api.pod("low-2", cpu="2", **LOW)
        await settle()
        w.api.pod("high", cpu="3", priority=10)
        await settle()
        assert w.going() == ["low-1", "low-2"] and w.nominated("high") == "n1" and w.api.bound == []
        victim = w.api.objects["pods"]["default/low-1"]
        (target,) = victim["status"]["conditions"]
        assert (target["type"], target["status"], target["reason"]) == (
            "DisruptionTarget",
            "True",
            "PreemptionByScheduler",
        )
        assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        told = w.events("Preempted")
        assert {event["message"] for event in told} == {"Preempted by pod uid-default-high on node n1"}
        assert [(event["type"], event["action"]) for event in told] == [("Normal", "Preempting")] * 2
        (refused,) = w.events("FailedScheduling")
        assert refused["message"] == "0/1 nodes are available: 1 Insufficient cpu."
        w.api.delete("pods", "default/low-1")
        w.api.delete("pods", "default/low-2")
        await settle()
        await w.clock.advance(2)
        assert w.api.where("high") == "n1" and not w.scheduler.nominations
        metrics = w.scheduler.metrics()
        assert metrics["scheduler_preemption_attempts_total"] == 1
        assert metrics["scheduler_preemption_victims_sum"] == 2
        assert metrics['scheduler_preemption_goroutines_execution_total{result="success"}'] == 1


async def test_the_preemptor_is_not_tried_while_its_victims_are_being_deleted() -> None:
    async with world("n1") as w:
        w.api.pod("low-1", cpu="2", **LOW)
        w.api.pod("low-2", cpu="2", **LOW)
        await settle()
        seen = []

        def look(name: str) -> None:
            running = w.scheduler.is_preempting("uid-default-high")
            gated = w.scheduler.queue.pending()["gated"]
            seen.append((running, gated, len(w.events("FailedScheduling"))))

        w.api.on_delete = look
        w.api.pod("high", cpu="4", priority=10)
        await settle()
        assert [running for running, _, _ in seen] == [True, True] and not w.scheduler.is_preempting("uid-default-high")


async def test_others_leave_the_nominated_node_alone_unless_they_are_above() -> None:
    async with world("n1", "n2") as w:
        w.api.pod("low", cpu="4", **LOW)
        w.api.pod("wall", cpu="3", priority=100, nodeName="n2")
        await settle()
        w.api.pod("high", cpu="4", priority=10)
        await settle()
        assert w.nominated("high") == "n1"
        w.api.delete("pods", "default/low")
        w.api.pod("thief", cpu="2", priority=10)
        w.api.pod("small", cpu="1", priority=0)
        await settle()
        await w.clock.advance(2)
        assert w.api.where("high") == "n1" and w.api.where("thief") == "" and w.api.where("small") == "n2"


async def test_a_higher_preemptor_clears_the_nomination_of_a_lower_one() -> None:
    async with world("n1") as w:
        w.api.pod("low", cpu="4", **LOW)
        await settle()
        w.api.pod("high", cpu="4", priority=10)
        await settle()
        assert w.nominated("high") == "n1"
        w.api.delete("pods", "default/low")
        w.api.pod("other", cpu="4", priority=5, nodeName="n1")
        w.api.pod("highest", cpu="4", priority=20)
        await settle()
        assert w.nominated("highest") == "n1" and w.nominated("high") == ""


async def test_a_pod_that_waits_for_terminating_victims_does_not_take_more() -> None:
    async with world("n1") as w:
        w.api.pod("low", cpu="4", **LOW)
        await settle()
        w.api.pod("high", cpu="4", priority=10)
        await settle()
        assert w.going() == ["low"]
        w.scheduler.activate((pod("high", cpu="4", priority=10),))
        await settle()
        why = "preemption: not eligible due to a terminating pod on the nominated node."
        assert w.api.condition("high")["message"].endswith(why)
        assert w.nominated("high") == "n1" and len(w.events("Preempted")) == 1


async def test_a_policy_of_never_preempts_nobody() -> None:
    async with world("n1") as w:
        w.api.pod("low", cpu="4", **LOW)
        await settle()
        w.api.pod("meek", cpu="4", priority=10, preemptionPolicy="Never")
        await settle()
        assert w.going() == [] and "not eligible due to preemptionPolicy=Never." in w.api.condition("meek")["message"]


@pytest.mark.parametrize(("code", "events"), [(404, 0), (500, 0)])
async def test_a_victim_that_cannot_be_deleted(code: int, events: int) -> None:
    """One that is gone is no failure; for another the preemptor is tried again."""
    async with world("n1") as w:
        w.api.pod("low", cpu="4", **LOW)
        await settle()
        w.api.on_delete = lambda name: failure(code, "NotFound" if code == 404 else "InternalError", "no")
        w.api.pod("high", cpu="4", priority=10)
        await settle()
        assert len(w.events("Preempted")) == events
        result = "success" if code == 404 else "error"
        assert w.scheduler.metrics()[f'scheduler_preemption_goroutines_execution_total{{result="{result}"}}'] >= 1


async def test_a_preemption_that_fails_at_once_is_repeated_after_the_backoff() -> None:
    """A transport that refuses all writes takes no time: each further attempt would follow at once."""
    tries: list[str] = []

    def refused(name: str) -> ApiResponse:
        tries.append(name)
        return failure(500, "InternalError", "no")

    async with world("n1") as w:
        w.api.pod("low", cpu="4", **LOW)
        await settle()
        w.api.on_delete = refused
        w.api.pod("high", cpu="4", priority=10)
        await settle()
        await settle()
        assert tries == ["low"]
        await w.clock.advance(3)
        assert 2 <= len(tries) <= 3
        w.api.on_delete = None
        await w.clock.advance(10)
        assert w.going() == ["low"]


def test_nominations_follow_what_was_decided_until_the_api_says_otherwise() -> None:
    kept = Nominations()
    first, told, cleared = pod("p", priority=5), copy(pod("p", priority=5)), pod("p", priority=5)
    told.nominated_node = "n2"
    kept.put(first, "n1")
    kept.update(first, pod("p", priority=5))
    assert [p.name for p in kept.on("n1")] == ["p"]
    kept.update(first, told)
    assert not kept.on("n1") and len(kept.on("n2")) == 1
    assert kept.rivals(pod("q", priority=6)) == {} and list(kept.rivals(pod("q", priority=5))) == ["n2"]
    assert kept.rivals(pod("p", priority=5)) == {}
    kept.update(told, cleared)
    assert not kept


async def test_a_pod_may_preempt_again_before_the_first_time_has_ended() -> None:
    """Its last victim is gone, but the answer to the deletion is not yet here."""
    answers, woken = [asyncio.Event(), asyncio.Event()], []

    class Client:
        def __init__(self) -> None:
            self.deleted = 0

        async def raw(self, method: str, *_: Any) -> None:
            if method == "DELETE":
                self.deleted += 1
                await answers[self.deleted - 1].wait()

    scheduler: Any = SimpleNamespace(
        clock=ManualClock(), nominations=Nominations(), client=Client(), pod=lambda key: None,
        waiting_pods={}, pre_bindings=PreBindings(), wake=lambda: woken.append(True),
    )  # fmt: skip
    run: Any = SimpleNamespace(events=SimpleNamespace(about=lambda *_: None))
    metrics = Metrics()
    preemptions = Preemptions(scheduler, metrics)
    high, low, other = map(pod, ("high", "low", "other"))
    preemptions.start(run, high, "n1", [low])
    await settle()
    assert not preemptions.is_running(high.uid), "its last victim is gone"
    preemptions.start(run, high, "n2", [other])
    answers[0].set()
    await settle()
    assert len(woken) == 1
    answers[1].set()
    await settle()
    assert len(woken) == 2 and not preemptions.is_running(high.uid)
    assert metrics.collect({})['scheduler_preemption_goroutines_execution_total{result="success"}'] == 2
    await preemptions.stop()
