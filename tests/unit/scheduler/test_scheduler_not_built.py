"""Constraints whose plugins are not built: the pod is held and its message says why; a disabled plugin lets it pass."""

from __future__ import annotations

import random
from typing import Any

import pytest
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.scheduler.config import ConfigError, PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.plugins.not_built import CONSTRAINTS
from minikube_py.scheduler.scheduler import Scheduler

TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}

HELD: list[tuple[str, dict[str, Any]]] = [
    ("DynamicResources", {"resourceClaims": [{"name": "g", "resourceClaimName": "gpu"}]}),
]
PREFERENCES: list[dict[str, Any]] = [
    {},
    {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "m", "configMap": {"name": "m"}}]},
    {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]},
    {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}}},
    {"affinity": {"podAffinity": {REQUIRED: []}}},
    {"affinity": None, "volumes": None, "resourceClaims": [], "topologySpreadConstraints": None},
]


async def run(spec: dict[str, Any], config: SchedulerConfig | None = None) -> FakeApi:
    """An API with one free node and one pod of that spec, after the scheduler has dealt with it."""
    api = FakeApi()
    api.node("n1")
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config)
    await scheduler.start()
    api.pod("p", **spec)
    await settle()
    await scheduler.stop()
    return api


@pytest.mark.parametrize(("plugin", "spec"), HELD)
async def test_a_constraint_that_cannot_be_honoured_holds_the_pod_and_is_named(plugin: str, spec: Any) -> None:
    api = await run(spec)
    assert api.bound == []
    condition = api.condition("p")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert f"pod has {CONSTRAINTS[plugin]}, which" in condition["message"]
    assert f"({plugin} is not built)" in condition["message"]


@pytest.mark.parametrize(("plugin", "spec"), HELD)
async def test_a_configuration_that_disables_the_plugin_lets_the_pod_go(plugin: str, spec: Any) -> None:
    disabled = {"multiPoint": PluginSet(disabled=frozenset((plugin,)))}
    api = await run(spec, SchedulerConfig(profiles=(ProfileConfig(plugins=disabled),)))
    assert api.bound == [("p", "n1")]


@pytest.mark.parametrize("spec", PREFERENCES)
async def test_preferences_hold_nobody(spec: Any) -> None:
    assert (await run(spec)).bound == [("p", "n1")]


async def test_arguments_of_a_plugin_that_is_not_built_are_refused() -> None:
    arguments = {"DynamicResources": {"filterTimeout": "5s"}}
    with pytest.raises(ConfigError, match='plugin "DynamicResources" takes no arguments yet'):
        await run({}, SchedulerConfig(profiles=(ProfileConfig(plugin_args=arguments),)))
