"""Kinds that only some pods need: listed with the first pod that needs one, which waits until they are known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.client.rest import PERSISTENT_VOLUME_CLAIMS
from minikube_py.scheduler.config import PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.framework import Action, ClusterEvent, Code, EventRegistration, Status
from minikube_py.scheduler.kinds import SYNC_TIMEOUT_S, NeededKind
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.own import Guarded
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.scheduler.volumes.views import CLAIMS as BUILT_IN
from minikube_py.scheduler.volumes.views import ClaimView


class Claim:
    def __init__(self, obj: Any) -> None:
        self.uid = obj["metadata"]["uid"]


CLAIMS = NeededKind(PERSISTENT_VOLUME_CLAIMS, "MyClaim", Claim)


class Claimant:
    """Pods labelled `claim` need a claim of that name."""

    name = "Claimant"

    def __init__(self, args: Any, handle: Any) -> None:
        self._handle = handle

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (EventRegistration(ClusterEvent(CLAIMS.name, Action.ADD)),)

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        return (CLAIMS,) if "claim" in pod.labels else ()

    def filter(self, state: Any, pod: PodInfo, node: Any) -> Status | None:
        wanted = pod.labels.get("claim")
        if wanted is None or self._handle.kinds.of(CLAIMS).store.get(f"default/{wanted}") is not None:
            return None
        return Status(Code.UNSCHEDULABLE, "no such claim")


CONFIG = SchedulerConfig(
    profiles=(ProfileConfig(plugins={"multiPoint": PluginSet(enabled=(("Claimant", 0),))}),),
    registry={"Claimant": Claimant},
)


@asynccontextmanager
async def running(api: FakeApi, clock: ManualClock) -> AsyncIterator[Scheduler]:
    api.node("n1")
    scheduler = Scheduler(api, clock, random.Random(3), CONFIG)
    await scheduler.start()
    try:
        yield scheduler
    finally:
        await scheduler.stop()


def claim(api: FakeApi, name: str) -> None:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    api.put("persistentvolumeclaims", {"metadata": metadata, "spec": {}})


async def test_a_kind_is_listed_once_and_only_when_a_pod_needs_it() -> None:
    api = FakeApi()
    async with running(api, ManualClock()):
        api.pod("plain")
        await settle()
        assert api.bound == [("plain", "n1")] and "persistentvolumeclaims" not in api.listed
        claim(api, "c")
        for name in ("p", "q"):
            api.pod(name, metadata={"labels": {"claim": "c"}})
        await settle()
        assert api.listed.count("persistentvolumeclaims") == 1
        assert api.bound == [("plain", "n1"), ("p", "n1"), ("q", "n1")] and not api.patches


async def test_a_change_of_the_kind_wakes_the_pods_that_asked_for_it() -> None:
    api, clock = FakeApi(), ManualClock()
    async with running(api, clock):
        api.pod("p", metadata={"labels": {"claim": "c"}})
        await settle()
        assert api.condition("p")["message"].startswith("0/1 nodes are available: 1 no such claim.")
        claim(api, "c")
        await clock.advance(2.0)
        assert api.bound == [("p", "n1")]


async def test_a_kind_that_does_not_answer_holds_up_only_who_needs_it(caplog: pytest.LogCaptureFixture) -> None:
    api, clock, answer = FakeApi(), ManualClock(), asyncio.Event()

    async def slow(plural: str) -> None:
        if plural == "persistentvolumeclaims":
            await answer.wait()

    api.on_list = slow
    async with running(api, clock):
        claim(api, "c")
        for name in ("p", "gone", "bound"):
            api.pod(name, metadata={"labels": {"claim": "c"}})
        api.pod("plain")
        await settle()
        assert api.bound == [("plain", "n1")]
        await clock.advance(SYNC_TIMEOUT_S + 1)
        assert "pods that need a MyClaim are held back" in caplog.text
        api.delete("pods", "default/gone")
        api.bind("default/bound", "n1")
        api.pod("p", metadata={"labels": {"claim": "c", "changed": "meanwhile"}})
        await settle()
        answer.set()
        await settle()
        assert api.bound == [("plain", "n1"), ("bound", "n1"), ("p", "n1")]


VOLUME = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}


@pytest.mark.parametrize("first", ["p", "built-in"])
async def test_a_projection_of_ones_own_is_beside_the_built_in_one(
    first: str, caplog: pytest.LogCaptureFixture
) -> None:
    api, clock = FakeApi(), ManualClock()
    async with running(api, clock) as scheduler:
        pods: dict[str, Any] = {"p": {"metadata": {"labels": {"claim": "c"}}}, "built-in": VOLUME}
        for name in sorted(pods, key=lambda name: name != first):
            api.pod(name, **pods[name])
            await settle()
        assert not api.bound
        claim(api, "c")
        await clock.advance(2.0)
        assert api.bound == [("p", "n1")] and not caplog.records
        assert "unbound immediate PersistentVolumeClaims" in api.condition("built-in")["message"]
        of = scheduler.kinds.of
        assert type(of(CLAIMS).store.get("default/c")) is Claim
        assert type(of(BUILT_IN).store.get("default/c")) is ClaimView


@pytest.mark.parametrize("kind", [CLAIMS._replace(name=BUILT_IN.name), BUILT_IN._replace(indexers={"x": lambda _: ()})])
def test_names_of_built_in_kinds_are_theirs(kind: NeededKind, caplog: pytest.LogCaptureFixture) -> None:
    for asked, got in ((kind, ()), (BUILT_IN, [BUILT_IN])):
        plugin: Any = Guarded("Mine", type("Mine", (), {"kinds_needed": lambda self, pod, kind=asked: (kind,)})())
        assert plugin.kinds_needed(None) == got
    assert "names of its own for projections of its own" in caplog.text


@pytest.mark.parametrize("part", ["project", "indexers"])
async def test_a_projection_made_at_each_call_starts_one_informer(part: str, caplog: pytest.LogCaptureFixture) -> None:
    class Changing:
        def filter(self, state: Any, pod: PodInfo, node: Any) -> None:
            return None

        def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
            made: dict[str, Any] = {"project": lambda obj: Claim(obj), "indexers": {"x": lambda _: ()}}
            return (CLAIMS._replace(**{part: made[part]}),)

    plugins = {"multiPoint": PluginSet(enabled=(("Changing", 0),))}
    registry = {"Changing": lambda args, handle: Guarded("Changing", Changing())}
    config = SchedulerConfig(profiles=(ProfileConfig(plugins=plugins),), registry=registry)
    api = FakeApi()
    api.node("n1")
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config)
    await scheduler.start()
    for name in ("p", "q"):
        api.pod(name)
        await settle()
    assert api.listed.count("persistentvolumeclaims") == 1
    assert sorted(name for name, _ in api.bound) == ["p", "q"]
    assert "plugin Changing: kinds_needed" in caplog.text and "with `project` made once" in caplog.text
    await scheduler.stop()


class Slow:
    """PreBind that lasts until it is let go."""

    name = "Slow"
    go: asyncio.Event

    def __init__(self, args: Any, handle: Any) -> None:
        pass

    async def pre_bind(self, state: Any, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name.startswith("slow"):
            await Slow.go.wait()
        return None


async def test_pods_that_wait_at_pre_bind_hold_up_nobody() -> None:
    api, Slow.go = FakeApi(), asyncio.Event()
    plugins = {"multiPoint": PluginSet(enabled=(("Slow", 0),))}
    profile = ProfileConfig(plugins=plugins)
    config = SchedulerConfig(profiles=(profile,), registry={"Slow": Slow}, binds_in_flight_max=2)
    api.node("n1")
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config)
    await scheduler.start()
    for i in range(5):
        api.pod(f"slow-{i}")
    api.pod("quick")
    await settle()
    assert api.bound == [("quick", "n1")]
    Slow.go.set()
    await settle()
    assert len(api.bound) == 6
    await scheduler.stop()
