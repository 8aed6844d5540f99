"""Pods that have a node and are not bound yet: what they say, how they are preempted, and what runs together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from device_world import claim, device, device_class, device_slice, request
from scheduler_world import FakeApi, ManualClock, failure, settle

from minikube_py.scheduler.config import PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.framework import Code, EventRegistration, PermitResult, Status
from minikube_py.scheduler.own import Guarded
from minikube_py.scheduler.scheduler import Scheduler

LOW = "default/low"


class Slow:
    """Waits at Permit or in PreBind, as its args say, with pods of priority 0."""

    name = "Slow"
    parallel_pre_bind = True

    def __init__(self, args: Any, handle: Any) -> None:
        self.args, self.name = args, args.get("name", "Slow")
        self.go_on = asyncio.Event()
        self.calls: list[str] = args.get("calls", [])

    def events_to_register(self) -> tuple[EventRegistration, ...]:
        """Otherwise all events wake its pods, their own updates among them."""
        return ()

    def permit(self, state: Any, pod: Any, node_name: str) -> PermitResult:
        waits = self.args["at"] == "permit" and not pod.priority
        return PermitResult(Status(Code.WAIT), 60.0) if waits else PermitResult()

    def has_pre_bind(self, state: Any, pod: Any, node_name: str) -> bool:
        return self.args["at"] != "permit" and not pod.priority

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self.calls.append(f"{self.name} begins")
        while True:
            try:
                await self.go_on.wait()
                break
            except asyncio.CancelledError:
                self.calls.append(f"{self.name} is cancelled")
                if self.args["at"] != "stubborn":
                    raise
        return Status(Code.ERROR, "no disk") if self.args.get("fails") else None


class Beside(Slow):
    name = "Beside"


class World:
    def __init__(self, api: FakeApi, clock: ManualClock, scheduler: Scheduler) -> None:
        self.api, self.clock, self.scheduler = api, clock, scheduler

    def plugin(self, name: str = "Slow") -> Slow:
        found = self.scheduler.profiles["default-scheduler"].profile.plugin(name)
        assert isinstance(found, Slow)
        return found

    def nominated(self, key: str = LOW) -> str:
        return str(self.api.objects["pods"][key].get("status", {}).get("nominatedNodeName") or "")

    def told(self, reason: str) -> list[str]:
        return [event["message"] for event in self.api.events if event["reason"] == reason]

    def is_deleted(self, key: str = LOW) -> bool:
        return "deletionTimestamp" in self.api.objects["pods"][key]["metadata"]


@asynccontextmanager
async def world(at: str, **beside: Any) -> AsyncIterator[World]:
    """One node for 2 CPUs. `beside`: the args of a second such plugin."""
    api, clock = FakeApi(), ManualClock()
    api.node("n1", cpu="2")
    calls: list[str] = []
    args = {"Slow": {"at": at, "calls": calls}, "Beside": {"name": "Beside", "at": at, "calls": calls, **beside}}
    names = [name for name in args if name == "Slow" or beside]
    plugins = {"multiPoint": PluginSet(enabled=tuple((name, 0) for name in names))}
    profile = ProfileConfig(plugins=plugins, plugin_args={name: args[name] for name in names})
    config = SchedulerConfig(profiles=(profile,), registry={"Slow": Slow, "Beside": Beside})
    scheduler = Scheduler(api, clock, random.Random(3), config)
    await scheduler.start()
    try:
        yield World(api, clock, scheduler)
        assert scheduler.failure is None
    finally:
        for name in names:
            World(api, clock, scheduler).plugin(name).go_on.set()
        await settle()
        await scheduler.stop()


@pytest.mark.parametrize("at", ["permit", "pre_bind"])
async def test_a_pod_that_is_bound_later_says_where_it_will_run(at: str) -> None:
    async with world(at) as w:
        w.api.pod("low", cpu="2")
        w.api.pod("high", priority=5)
        await settle()
        assert w.nominated() == "n1" and w.api.bound == [("high", "n1")]
        found = w.scheduler.ask("explain", LOW, {})
        assert found is not None and found["heldBack"]["plugin"] == "Slow"
        ends = {"permit": "and waits at Permit", "pre_bind": "and is bound once PreBind has ended"}
        assert found["heldBack"]["reason"].endswith(ends[at]) and "n1" in found["heldBack"]["reason"]
        assert [name for name, _ in w.api.patches] == ["low"], "what is bound at once says nothing before"
        # It takes its room once, not twice: it is assumed, and not a rival of others for the rest of the node.
        assert not w.scheduler.nominations
        w.plugin().go_on.set()
        if at == "permit":
            assert w.scheduler.allow_waiting_pod("uid-default-low", "Slow")
        await settle()
        assert w.api.bound[-1] == ("low", "n1") and w.nominated() == ""


async def test_a_pod_that_is_not_bound_after_all_no_longer_says_so() -> None:
    async with world("permit") as w:
        w.api.pod("low", cpu="2")
        await settle()
        assert w.nominated() == "n1"
        assert w.scheduler.reject_waiting_pod("uid-default-low", "Slow", "no")
        await settle()
        assert w.nominated() == "" and w.api.condition("low")["message"] == "0/1 nodes are available: 1 no."
        assert not w.scheduler.nominations


@pytest.mark.parametrize("at", ["permit", "pre_bind", "stubborn"])
async def test_a_victim_that_is_not_bound_yet_only_loses_its_node(at: str) -> None:
    async with world(at) as w:
        w.api.pod("low", cpu="2")
        await settle()
        w.api.pod("high", cpu="2", priority=10)
        await settle()
        if at == "stubborn":
            assert not w.told("FailedScheduling")[1:], "it is waited for"
            w.plugin().go_on.set()
            await settle()
        why = {
            "permit": "waiting on permit for pod: preempted",
            "pre_bind": 'running PreBind plugin "Slow": preempted by DefaultPreemption',
            "stubborn": "preempted by DefaultPreemption",
        }[at]
        assert w.told("Preempted") == ["Preempted by pod uid-default-high on node n1 (in kube-scheduler memory)."]
        assert why in w.told("FailedScheduling") and not w.is_deleted() and w.nominated() == ""
        await w.clock.advance(10.0)
        assert w.api.bound == [("high", "n1")]
        # It goes on waiting for room like any other.
        assert w.api.condition("low")["reason"] == "Unschedulable"
        assert [each["type"] for each in w.api.objects["pods"][LOW]["status"]["conditions"]] == ["PodScheduled"]
        assert not len(w.scheduler.waiting_pods) and not w.scheduler.pre_bindings.cancel("uid-default-low", "again")


async def test_a_preemptor_waits_for_all_of_its_victims() -> None:
    """Woken by the first, it would find no room, and preempt the others again."""
    async with world("pre_bind") as w:
        for name in ("low", "other"):
            w.api.pod(name, cpu="1")
        await settle()
        w.api.pod("high", cpu="2", priority=10)
        await settle()
        assert len(w.told("Preempted")) == 2
        failed = [event["involvedObject"]["name"] for event in w.api.events if event["reason"] == "FailedScheduling"]
        assert sorted(failed) == ["high", "low", "other"]
        assert w.api.bound == [("high", "n1")]


async def test_a_preemptor_waits_for_no_binding_of_a_victim_that_is_deleted() -> None:
    """The victim is not in PreBind yet when it is evicted; its PreBind then goes on, here without an end."""
    async with world("pre_bind") as w:
        api, written = w.api, asyncio.Event()
        request = api.request

        async def late(method: str, path: str, *given: Any, **more: Any) -> Any:
            if method == "PATCH" and "/low/" in path and b"nominatedNodeName" in given[1]:
                await written.wait()
            return await request(method, path, *given, **more)

        api.request = late  # type: ignore[method-assign]
        for name in ("low", "other"):
            api.pod(name, cpu="1")
        await settle()
        api.pod("high", cpu="2", priority=10)
        await settle()
        assert w.is_deleted()
        written.set()
        await settle()
        assert "Slow begins" in w.plugin().calls[1:], "nothing cancels it"
        api.delete("pods", LOW)
        await w.clock.advance(10.0)
        assert len(w.told("Preempted")) == 2 and not w.scheduler.is_preempting("uid-default-high")
        assert api.bound == [("high", "n1")]


async def test_a_victim_that_just_ended_its_wait_is_deleted() -> None:
    async with world("permit") as w:
        w.api.pod("low", cpu="2")
        await settle()
        waiting = w.scheduler.waiting_pods.get("uid-default-low")
        assert waiting is not None
        waiting.allow("Slow")
        assert not waiting.preempt("DefaultPreemption") and not waiting.reject("Slow", "late")
        await settle()
        assert w.api.bound == [("low", "n1")]


async def test_a_pod_deleted_after_its_wait_at_permit_frees_its_node() -> None:
    async with world("permit") as w:
        w.api.pod("low", cpu="2")
        await settle()
        waiting = w.scheduler.waiting_pods.get("uid-default-low")
        assert waiting is not None
        waiting.allow("Slow")
        w.scheduler._pod_deleted(waiting.pod)
        assert len(w.scheduler.cache) == 0, "its binding goes on, and finds no pod"
        w.api.delete("pods", LOW)
        await settle()
        assert not w.api.bound


async def test_plugins_that_allow_it_run_in_parallel() -> None:
    async with world("pre_bind", fails=False) as w:
        w.api.pod("low", cpu="2")
        await settle()
        assert w.plugin().calls == ["Slow begins", "Beside begins"]
        w.plugin("Beside").go_on.set()
        await settle()
        assert not w.api.bound
        w.plugin().go_on.set()
        await settle()
        assert w.api.bound == [("low", "n1")]


async def test_the_first_failure_ends_the_others() -> None:
    async with world("pre_bind", fails=True) as w:
        w.api.pod("low", cpu="2")
        await settle()
        w.plugin("Beside").go_on.set()
        await settle()
        assert w.plugin().calls[2:3] == ["Slow is cancelled"]
        assert w.told("FailedScheduling") == ['running PreBind plugin "Beside": no disk']
        assert w.nominated() == "" or w.plugin().calls[3:], "cleared, until the next attempt"


async def test_all_that_run_in_parallel_are_cancelled_together() -> None:
    async with world("pre_bind", fails=False) as w:
        w.api.pod("low", cpu="2")
        await settle()
        w.api.pod("high", cpu="2", priority=10)
        await settle()
        assert w.plugin().calls[2:] == ["Slow is cancelled", "Beside is cancelled"] and not w.is_deleted()


async def test_a_scheduler_that_stops_ends_a_prebind_for_good() -> None:
    async with world("pre_bind") as w:
        w.api.pod("low", cpu="2")
        await settle()
        await w.scheduler.stop()
        assert w.plugin().calls == ["Slow begins", "Slow is cancelled"] and not w.told("FailedScheduling")


async def test_the_error_that_ended_a_scheduler_outlives_its_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    api, error = FakeApi(), KeyError("a bug")
    scheduler = Scheduler(api, ManualClock(), random.Random(3), SchedulerConfig())
    await scheduler.start()

    def fail() -> None:
        raise error

    monkeypatch.setattr(scheduler._queue, "pop", fail)
    api.pod("p")
    await settle()
    for _ in range(2):
        await scheduler.stop()
        assert scheduler.failure is error


def test_a_plugin_of_ones_own_may_run_in_parallel() -> None:
    assert Guarded("Slow", Slow({"at": "pre_bind"}, None)).parallel_pre_bind
    assert not Guarded("Plain", object()).parallel_pre_bind


async def test_a_nomination_that_cannot_be_written_holds_nothing_up() -> None:
    async with world("permit") as w:
        api = w.api
        request = api.request

        async def refuse(method: str, *given: Any, **more: Any) -> Any:
            if method == "PATCH":
                return failure(500, "InternalError", "broken")
            return await request(method, *given, **more)

        api.request = refuse  # type: ignore[method-assign]
        api.pod("low", cpu="2")
        await settle()
        assert w.nominated() == ""
        assert w.scheduler.allow_waiting_pod("uid-default-low", "Slow")
        await settle()
        assert api.bound == [("low", "n1")]


class SlowClaims(FakeApi):
    """Answers writes of the claim `low` when `go_on` is set; a client that leaves changes nothing of that."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.asked: list[asyncio.Task[Any]] = []

    async def request(self, method: str, path: str, *given: Any, **more: Any) -> Any:
        if method != "PUT" or "resourceclaims/low/status" not in path:
            return await super().request(method, path, *given, **more)

        async def served() -> Any:
            await self.go_on.wait()
            return await FakeApi.request(self, method, path, *given, **more)

        self.asked.append(asyncio.create_task(served()))
        return await asyncio.shield(self.asked[-1])


async def test_a_preemption_does_not_give_away_devices_that_are_being_written() -> None:
    api, clock = SlowClaims(), ManualClock()

    def put(plural: str, obj: dict[str, Any], **metadata: str) -> None:
        born = {"uid": f"uid-{obj['metadata']['name']}", "creationTimestamp": "2024-01-01T00:00:00Z"}
        obj["metadata"] |= {**born, **metadata}
        api.put(plural, obj)

    api.node("n1", cpu="2")
    put("deviceclasses", device_class("gpu"))
    put("resourceslices", device_slice("s", device("d0"), device("d1"), nodeName="n1"))
    for name in ("low", "high"):
        put("resourceclaims", claim(name, request("r", allocationMode="ExactCount", count=1)), namespace="default")
    scheduler = Scheduler(api, clock, random.Random(3), SchedulerConfig())
    await scheduler.start()
    try:
        api.pod("low", cpu="2", resourceClaims=[{"name": "c", "resourceClaimName": "low"}])
        await settle()
        assert api.asked
        api.pod("high", cpu="2", priority=10, resourceClaims=[{"name": "c", "resourceClaimName": "high"}])
        await settle()
        api.go_on.set()
        for _ in range(8):
            await settle()
        await clock.advance(20)
        claims = [api.objects["resourceclaims"][f"default/{name}"]["status"] for name in ("low", "high")]
        assert {each["allocation"]["devices"]["results"][0]["device"] for each in claims} == {"d0", "d1"}
        assert api.bound == [("high", "n1")] and scheduler.failure is None
    finally:
        await scheduler.stop()
