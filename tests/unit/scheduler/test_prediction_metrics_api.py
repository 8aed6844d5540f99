"""Plugins that read usage from metrics.k8s.io: values, what is missing, what is stale, and answers that say nothing."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import FakeApi, ManualClock, failure, settle

from minikube_py.client.transport import ApiResponse
from minikube_py.scheduler import plugin_informers
from minikube_py.scheduler.config import load
from minikube_py.scheduler.configuration.checking import NoCluster, checked
from minikube_py.scheduler.framework import CycleState
from minikube_py.scheduler.objects import CPU, MEMORY
from minikube_py.scheduler.prediction import metrics_api
from minikube_py.scheduler.prediction.metrics_api import Unreadable, told_by
from minikube_py.scheduler.prediction.overcommit import OvercommitByPrediction
from minikube_py.scheduler.prediction.trimaran import LoadVariationRiskBalancing, TargetLoadPacking, risk_score
from minikube_py.scheduler.scheduler import Scheduler

OLD = {"phase": "Running", "startTime": "2023-01-01T00:00:00Z"}
PERIOD_S = plugin_informers.POLL_PERIOD_S * (1 + plugin_informers.POLL_JITTER)


class Measured(FakeApi):
    """`says`: by plural, objects' usage by name; or an answer, or None for none at all. `of_s`: their time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.says: dict[str, Any] = {"nodes": {}, "pods": {}}
        self.of_s: float | None = None
        self.asked = 0

    async def request(self, method: str, path: str, *rest: Any, **more: Any) -> ApiResponse:
        if not path.startswith("/apis/metrics.k8s.io/v1beta1/"):
            return await super().request(method, path, *rest, **more)
        self.asked += 1
        says = self.says[path.rpartition("/")[2]]
        if says is None:
            await asyncio.get_running_loop().create_future()
        if not isinstance(says, dict):
            assert isinstance(says, ApiResponse)
            return says
        at_s = self.clock.wall_s() if self.of_s is None else self.of_s
        time = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        items = []
        for name, (cpu, memory) in says.items():
            usage = {"cpu": cpu, "memory": memory}
            body = {"containers": [{"name": "c", "usage": usage}]} if path.endswith("pods") else {"usage": usage}
            metadata = {"name": name, **({"namespace": "default"} if path.endswith("pods") else {})}
            items.append({"metadata": metadata, "timestamp": time, "window": "15s", **body})
        return ApiResponse(200, json.dumps({"metadata": {}, "items": items}).encode())


class Stage:
    def __init__(self, api: Measured, clock: ManualClock, scheduler: Scheduler, plugin: Any) -> None:
        self.api, self.clock, self.scheduler, self.plugin = api, clock, scheduler, plugin

    def score(self, node: str, pod: str = "new") -> int:
        found = self.scheduler.pod(f"default/{pod}")
        assert found is not None
        return int(self.plugin.score(CycleState(), found, self.scheduler.columns.by_name[node]))

    async def minute(self) -> None:
        await self.clock.advance(PERIOD_S)


@asynccontextmanager
async def measured(name: str, says: dict[str, Any], **args: Any) -> AsyncIterator[Stage]:
    clock = ManualClock()
    api = Measured(clock)
    api.says |= says
    for node in ("a", "b"):
        api.node(node, cpu="10", memory="10Gi")
    api.pod("there", nodeName="a", status=OLD, cpu="1", memory="2Gi")
    api.pod("new", schedulingGates=[{"name": "later"}], cpu="1", memory="1Gi")
    profile = {
        "plugins": {"multiPoint": {"enabled": [{"name": name}]}}, "pluginConfig": [{"name": name, "args": args}],
    }  # fmt: skip
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config = checked(load(json.dumps({**document, "profiles": [profile]}).encode()))
    scheduler = Scheduler(api, clock, random.Random(1), config)
    await scheduler.start()
    try:
        await settle()
        plugin = scheduler.profiles["default-scheduler"].profile.plugin(name)
        yield Stage(api, clock, scheduler, plugin)
        assert scheduler.failure is None
    finally:
        await scheduler.stop()


async def test_a_nodes_own_load_counts_from_the_first_answer_on() -> None:
    async with measured("TargetLoadPacking", {"nodes": {"a": ("2500m", "1Gi"), "b": ("0", "0")}}) as stage:
        # 2,500 of what runs, and 1,500 as 1.5 times the request: 40 %, the target.
        assert stage.score("a") == 100 and stage.score("b") == round(60 * 15 / 40 + 40) + 1
        stage.api.says["nodes"]["a"] = ("5000123456n", "1Gi")
        await stage.minute()
        assert stage.score("a") == 23, "65 %"


async def test_pods_that_started_after_the_values_count_as_expected() -> None:
    async with measured("TargetLoadPacking", {"nodes": {"a": ("1", "1Gi"), "b": ("0", "0")}}) as stage:
        before = stage.score("a")
        stage.api.pod("bound", nodeName="a", cpu="1")
        await settle()
        assert stage.score("a") == before + round(60 * 15 / 40), "1.5 times its request"
        old = datetime.fromtimestamp(stage.clock.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        stage.api.pod("bound", nodeName="a", cpu="1", status={"phase": "Running", "startTime": old})
        for _ in range(2):
            await stage.minute()
        assert stage.score("a") == before, "what it uses is in the node's"


async def test_risk_takes_the_latest_value_and_the_deviation_of_a_quarter_of_an_hour() -> None:
    async with measured("LoadVariationRiskBalancing", {"nodes": {"a": ("2", "1Gi")}}) as stage:
        stage.api.says["nodes"]["a"] = ("4", "1Gi")
        await stage.minute()
        assert stage.score("a") == round(risk_score(10_000, 1000, 4000, 1000, 1, 1))
        for _ in range(metrics_api.WINDOW):
            await stage.minute()
        assert stage.score("a") == round(risk_score(10_000, 1000, 4000, 0, 1, 1))


@pytest.mark.parametrize("how", ["refused", "unserved", "silent", "no list", "the same again"])
async def test_what_is_not_told_again_is_stale_and_said(how: str, caplog: pytest.LogCaptureFixture) -> None:
    said = {"refused": failure(403, "Forbidden", "no"), "unserved": failure(404, "NotFound", "none"),
            "silent": None, "no list": ApiResponse(200, b"[1]")}  # fmt: skip
    async with measured("TargetLoadPacking", {"nodes": {"a": ("2500m", "1Gi")}}) as stage:
        assert stage.score("a") == 100
        there = stage.api.says["nodes"]
        stage.api.of_s = stage.clock.wall_s()
        if how in said:
            stage.api.says["nodes"] = said[how]
        await stage.minute()
        await stage.minute()
        assert stage.score("a") == 100, "the values count a while"
        await stage.clock.advance(metrics_api.STALE_S)
        assert stage.score("a") == 0, "as a node of which nothing is known"
        polls = {key: count for key, count in stage.scheduler.metrics().items() if "plugin_polls" in key}
        label = 'scheduler_plugin_polls_total{resource="nodes.metrics.k8s.io",result='
        assert polls[label + '"success"}'] >= 1
        if how in said:
            assert polls[label + '"error"}'] >= 3
            assert caplog.text.count("plugins read nodes.metrics.k8s.io: ") == 1, "once for each reason"
        stage.api.of_s, stage.api.says["nodes"] = None, there
        await stage.clock.advance(2 * PERIOD_S)
        assert stage.score("a") == 100


async def test_a_pods_samples_are_means_of_five_minutes_and_gaps_are_unknown() -> None:
    args = {"predictor": "n-sigma", "predictorArgs": {"sigmas": 0, "samples": 2}}
    async with measured("OvercommitByPrediction", {"pods": {"there": ("250m", "1Gi")}}, **args) as stage:
        pod = stage.scheduler.pod("default/there")
        assert pod is not None
        assert list(stage.plugin.meter.samples(pod)[CPU]) == []
        for _ in range(16):
            await stage.minute()
        samples = stage.plugin.meter.samples(pod)
        assert samples[CPU] == [250, 250] and samples[MEMORY] == [1 << 30, 1 << 30]
        node = stage.scheduler.columns.by_name["a"]
        assert stage.plugin.rows.one(node).tolist() == [250, 1 << 30]
        stage.api.says["pods"] = {"other": ("1", "1")}
        for _ in range(11):
            await stage.minute()
        assert [value != value for value in stage.plugin.meter.samples(pod)[CPU]][-1], "NaN: nothing was reported"
        assert stage.plugin.rows.one(node)[0] == 1000, "what it reserves"


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(("metadata", "name", "usage", "cpu", "memory", "containers", "x")), inner),
    max_leaves=12,
)


@given(ANY)
def test_whatever_an_object_is_it_says_an_amount_or_is_unreadable(item: Any) -> None:
    try:
        told = told_by(item)
    except Unreadable:
        return
    assert all(0 <= amount < float("inf") for amount in told.usage.values())


@pytest.mark.parametrize("amount", ["-1", "x", "", None, "1e999999999", [1]])
async def test_an_object_that_says_nothing_is_left_out_and_the_others_count(
    amount: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with measured("TargetLoadPacking", {"nodes": {"a": ("2500m", "1Gi"), "b": (amount, "0")}}) as stage:
        assert stage.score("a") == 100 and stage.score("b") == 0
        assert "1e9" in str(amount) or "1 objects of metrics.k8s.io say no usage, such as b" in caplog.text


@pytest.mark.parametrize("kind", [TargetLoadPacking, LoadVariationRiskBalancing, OvercommitByPrediction])
def test_without_a_source_it_is_the_metrics_api_as_upstreams_default(kind: Any) -> None:
    given: Any
    for given in ({}, {"metricProvider": {"type": "KubernetesMetricsServer"}}, {"watcherAddress": ""}):
        assert kind(given, NoCluster()).meter.name == "metrics.k8s.io"
