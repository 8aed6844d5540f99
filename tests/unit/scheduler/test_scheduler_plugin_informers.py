"""Informers that plugins ask for: synced before the first pod is placed, and holding nobody up where there are none."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Any

import pytest
from scheduler_world import FakeApi, ManualClock, failure, settle

from minikube_py.client.rest import SERVICES
from minikube_py.client.transport import ApiResponse
from minikube_py.scheduler.config import PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.plugin_informers import SYNC_TIMEOUT_S
from minikube_py.scheduler.scheduler import Scheduler


class Service:
    def __init__(self, obj: Any) -> None:
        self.uid = obj["metadata"]["uid"]


class Counting:
    """Notes how many services are known whenever a pod is looked at."""

    name = "Counting"
    found: list[int]

    def __init__(self, args: Any, handle: Any) -> None:
        self.services = handle.informer(SERVICES, Service).store
        assert handle.informer(SERVICES, Service).store is self.services
        self.found = []

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> tuple[None, None]:
        self.found.append(len(self.services))
        return None, None

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return


class NoServices(FakeApi):
    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        if path.endswith("/services"):
            return failure(403, "Forbidden", "services is forbidden")
        return await super().request(method, path, params, body, content_type)


def scheduler_of(api: FakeApi, clock: ManualClock) -> Scheduler:
    plugins = {"multiPoint": PluginSet(enabled=(("Counting", 0),))}
    config = SchedulerConfig(profiles=(ProfileConfig(plugins=plugins),), registry={"Counting": Counting})
    return Scheduler(api, clock, random.Random(3), config)


async def test_what_a_plugin_asks_for_is_there_before_the_first_pod_is_placed() -> None:
    api = FakeApi()
    api.node("n1")
    for i in range(3):
        api.put("services", {"metadata": {"name": f"s{i}", "namespace": "default", "uid": f"u{i}"}})
    api.pod("p")
    scheduler = scheduler_of(api, ManualClock())
    await scheduler.start()
    await settle()
    counting: Any = scheduler.profiles["default-scheduler"].profile.plugin("Counting")
    assert api.bound == [("p", "n1")]
    assert set(counting.found) == {3}
    await scheduler.stop()


async def test_a_resource_that_may_not_be_listed_is_waited_for_in_vain_once(caplog: pytest.LogCaptureFixture) -> None:
    api, clock = NoServices(), ManualClock()
    api.node("n1")
    api.pod("p")
    scheduler = scheduler_of(api, clock)
    starting = asyncio.ensure_future(scheduler.start())
    await settle()
    assert not starting.done()
    with caplog.at_level(logging.ERROR):
        await clock.advance(SYNC_TIMEOUT_S)
    await starting
    await settle()
    assert api.bound == [("p", "n1")]
    assert "scheduling begins without the services of the cluster: services is forbidden" in caplog.text
    await scheduler.stop()
