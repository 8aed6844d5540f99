"""Plugins that read usage from metrics.k8s.io: values, what is missing, what is stale, and answers that say nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import FakeApi, ManualClock, failure, settle
from virtual_time import run_virtually

from minikube_py.client.rest import ListPage
from minikube_py.client.transport import ApiResponse
from minikube_py.scheduler import plugin_informers
from minikube_py.scheduler.config import load
from minikube_py.scheduler.configuration.checking import NoCluster, checked
from minikube_py.scheduler.framework import CycleState
from minikube_py.scheduler.objects import CPU, MEMORY, NodeInfo
from minikube_py.scheduler.prediction import metrics_api
from minikube_py.scheduler.prediction.metrics_api import Unreadable, told_by
from minikube_py.scheduler.prediction.overcommit import OvercommitByPrediction
from minikube_py.scheduler.prediction.trimaran import LoadVariationRiskBalancing, TargetLoadPacking, risk_score
from minikube_py.scheduler.scheduler import Scheduler

OLD = {"phase": "Running", "startTime": "2023-01-01T00:00:00Z"}
PERIOD_S = plugin_informers.POLL_PERIOD_S * (1 + plugin_informers.POLL_JITTER)


def time_of(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Measured(FakeApi):
    """`says`: by plural, objects' usage by name; or an answer, or None for none at all. `of_s`: their time; `ahead_s`:
    how far the clocks of some are ahead. `still_s`: the times of some that stand still. `again`: the objects that an
    answer has besides, whole."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.says: dict[str, Any] = {"nodes": {}, "pods": {}}
        self.of_s: float | None = None
        self.ahead_s: dict[str, float] = {}
        self.still_s: dict[str, float] = {}
        self.again: list[Any] = []
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
        items = []
        for name, (cpu, memory) in says.items():
            usage = {"cpu": cpu, "memory": memory}
            body = {"containers": [{"name": "c", "usage": usage}]} if path.endswith("pods") else {"usage": usage}
            time = time_of(self.still_s.get(name, at_s + self.ahead_s.get(name, 0.0)))
            metadata = {"name": name, **({"namespace": "default"} if path.endswith("pods") else {})}
            items.append({"metadata": metadata, "timestamp": time, "window": "15s", **body})
        return ApiResponse(200, json.dumps({"metadata": {}, "items": items + self.again}).encode())


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
        old = time_of(stage.clock.wall_s())
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
DEEP: Any = []
for _ in range(1000):
    DEEP = [DEEP]
TIMES = [time_of(1_700_000_000 + shift_s) for shift_s in (0, 1, 299, 301, 86_400, 3e9, -86_400)]
WRONG = [1, None, "", "x", -1, 1e300, "1e99999", [], DEEP]


def mostly(*right: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([*right * (100 // len(right)), *WRONG])


AMOUNTS = st.fixed_dictionaries({"cpu": mostly("1", "250m"), "memory": mostly("1Gi", "0")})
NAMED = st.fixed_dictionaries({"name": mostly("a", "b")}, optional={"namespace": mostly("default", "")})
SAID = st.fixed_dictionaries(
    {"metadata": NAMED, "timestamp": mostly(*TIMES, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"), "usage": AMOUNTS},
    optional={"containers": st.lists(st.fixed_dictionaries({"usage": AMOUNTS}), max_size=2) | st.sampled_from(WRONG)},
)
"""An object as of another server: near to what is right, and at the edges."""
OBJECTS = st.lists(st.integers(0, 9).flatmap(lambda which: SAID if which else ANY), max_size=6)
ANSWERS = st.tuples(OBJECTS, st.integers(1, 2))
"""Objects, and how often the answer has all of them."""


@pytest.mark.parametrize("kind", [metrics_api.NodeMeter, metrics_api.PodMeter])
@given(answers=st.lists(ANSWERS, max_size=6))
def test_whatever_answers_hold_an_amount_is_known_or_not(kind: Any, answers: list[tuple[list[Any], int]]) -> None:
    async def told() -> None:
        clock = ManualClock()
        cluster = NoCluster()
        listening: list[Any] = []
        lent = SimpleNamespace(
            clock=clock, columns=cluster.columns, polled=lambda *_: SimpleNamespace(listen=listening.append)
        )
        meter = kind(lent, *([4] if kind is metrics_api.PodMeter else []))
        for objects, times in answers:
            await listening[0]([metrics_api._said(each) for each in objects * times])
            clock.now_s += PERIOD_S
        for node in ("a", "b"):
            info = NodeInfo(node)
            of = meter.load(info).of if kind is metrics_api.NodeMeter else {}
            assert all(0 <= amount < float("inf") for figures in of.values() for amount in figures)

    run_virtually(told)


@pytest.mark.parametrize("fails", [RecursionError("deep"), KeyError("b"), ValueError("x"), OSError("net")])
@pytest.mark.parametrize("where", ["client", "listener"])
async def test_whatever_is_raised_about_an_answer_ends_no_poll(fails: Exception, where: str) -> None:
    counted: list[Any] = []
    heard: list[Any] = []

    class Answers:
        async def pages(self, resource: Any) -> AsyncIterator[ListPage]:
            if where == "client":
                raise fails
            one: Any = 1
            yield ListPage([one], "1", "", 1)

    async def breaks(items: Any) -> None:
        raise fails

    async def hears(items: Any) -> None:
        heard.append(list(items))

    clock = ManualClock()
    rest: Any = Answers()
    count = lambda *given: counted.append(given)  # noqa: E731
    polled = plugin_informers.Polled(metrics_api.NODE_METRICS, lambda item: item, rest, clock, random.Random(1), count)
    polled.listen(breaks)
    polled.listen(hears)
    polled.start()
    await settle()
    await clock.advance(PERIOD_S)
    assert polled.failure is None and type(fails).__name__ in polled.problem
    assert [labels[1] for _, labels in counted] == [("result", "error")] * 2
    assert heard == ([[1]] * 2 if where == "listener" else [])
    await polled.stop()


class Item(dict[str, Any]):
    """Weak references to a plain dictionary are not possible."""


class Endless:
    """A server whose list goes on, or stops to answer after `pages_max` pages. `held`: how many objects of the pages
    before were still there at each."""

    def __init__(self, pages_max: float = math.inf) -> None:
        self.held: list[int] = []
        self.pages_max = pages_max

    async def pages(self, resource: Any) -> AsyncIterator[ListPage]:
        before: list[weakref.ref[Item]] = []
        while True:
            self.held.append(sum(each() is not None for each in before))
            if len(self.held) > self.pages_max:
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError as error:
                    # A cycle, as frames of requests that were given up have: all that its frames hold stays.
                    cycle = [error]
                    raise cycle[0] from None
            page: list[Any] = [Item() for _ in range(10)]
            before += [weakref.ref(each) for each in page]
            yield ListPage(page, "1", "more", 1000)


class Made:
    def __init__(self, item: Any) -> None:
        pass


@pytest.mark.parametrize("limit, said", [
    ("POLL_OBJECTS_MAX", "50 objects or more, and 45 is the most that is read"),
    ("POLL_BYTES_MAX", "5000 bytes or more, and 4500 is the most that is read"),
    ("", "no answer within 30 s"),
])  # fmt: skip
async def test_an_answer_without_end_is_bounded_while_it_is_read(
    limit: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit:
        monkeypatch.setattr(plugin_informers, limit, {"POLL_OBJECTS_MAX": 45, "POLL_BYTES_MAX": 4500}[limit])
    made: list[weakref.ref[Made]] = []

    def project(item: Any) -> Made:
        each = Made(item)
        made.append(weakref.ref(each))
        return each

    clock, heard = ManualClock(), []
    rest: Any = Endless() if limit else Endless(pages_max=4)

    async def take(items: Any) -> None:
        heard.append(items)

    polled = plugin_informers.Polled(
        metrics_api.NODE_METRICS, project, rest, clock, random.Random(1), lambda *given: None
    )
    polled.listen(take)
    gc.disable()
    try:
        polled.start()
        await settle()
        await clock.advance(plugin_informers.POLL_DEADLINE_S)
        assert polled.problem == said and not heard and len(rest.held) == 5
        assert not any(rest.held), "a page is released before the next one is asked for"
        assert len(made) == 40 and not any(each() for each in made), "without a full collection"
    finally:
        gc.enable()
    await polled.stop()


def test_what_is_kept_of_an_object_does_not_grow_with_it() -> None:
    for item in ({"metadata": {"name": "x" * 10_000}}, {"metadata": {"name": "x"}, "usage": "y" * 10_000}):
        assert len(str(metrics_api._said(item))) <= metrics_api.REASON_MAX + 50
    whole = {"timestamp": TIMES[0], "usage": {"cpu": "1", "memory": "1"}}
    assert isinstance(metrics_api._said({"metadata": {"name": "x" * 253}, **whole}), metrics_api.Told)
    assert "so long" in str(metrics_api._said({"metadata": {"name": "x" * 10_000}, **whole}))


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


@pytest.mark.parametrize("ahead_s", [301.0, 86_400.0, -301.0, -86_400.0])
async def test_a_node_whose_clock_is_wrong_blinds_nobody(ahead_s: float) -> None:
    async with measured("TargetLoadPacking", {"nodes": {"a": ("2500m", "1Gi"), "b": ("2500m", "1Gi")}}) as stage:
        both = stage.score("a"), stage.score("b")
        assert min(both) > 0
        stage.api.ahead_s["b"] = ahead_s
        for _ in range(7):
            await stage.minute()
            assert (stage.score("a"), stage.score("b")) == both
        del stage.api.ahead_s["b"]
        for _ in range(7):
            await stage.minute()
            assert (stage.score("a"), stage.score("b")) == both, "its clock is right again"


@pytest.mark.parametrize("gaps", [1, 2, 3])
async def test_an_object_whose_own_time_stands_still_is_left_out(gaps: int) -> None:
    says = {"a": ("2500m", "1Gi"), "b": ("2500m", "1Gi")}
    async with measured("TargetLoadPacking", {"nodes": says}) as stage:
        stage.api.still_s["b"] = stage.clock.wall_s()
        for number in range(8):
            # Some answers lack it, as those of a second server behind the same name.
            stage.api.says["nodes"] = says if number % gaps == 0 else {"a": says["a"]}
            await stage.minute()
        stage.api.says["nodes"] = says
        await stage.minute()
        assert stage.score("a") > 0 and stage.score("b") == 0
        del stage.api.still_s["b"]
        await stage.minute()
        assert stage.score("b") > 0


async def test_an_object_that_is_said_twice_counts_once_and_by_its_newest() -> None:
    def node(at_s: float, cpu: str) -> dict[str, Any]:
        return {"metadata": {"name": "b"}, "timestamp": time_of(at_s), "usage": {"cpu": cpu, "memory": "1Gi"}}

    async with measured("TargetLoadPacking", {"nodes": {"a": ("2500m", "1Gi"), "b": ("2500m", "1Gi")}}) as stage:
        there = stage.score("b")
        for shift_s in (-900.0, -1.0, 0.0):
            stage.api.again = [node(stage.clock.wall_s() + shift_s, "9")] * 2
            await stage.minute()
            assert stage.score("b") == there


async def test_each_new_reason_why_objects_say_no_usage_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with measured("TargetLoadPacking", {"nodes": {"a": ("2500m", "1Gi"), "b": ("x", "0")}}) as stage:
        for _ in range(3):
            await stage.minute()
        assert caplog.text.count("1 objects of metrics.k8s.io say no usage, such as b") == 1
        stage.api.says["nodes"]["a"] = ("-1", "0")
        for _ in range(3):
            await stage.minute()
        assert caplog.text.count("2 objects of metrics.k8s.io say no usage, such as a") == 1
        stage.api.says["nodes"] = {"a": ("1", "0")}
        for _ in range(3):
            await stage.minute()
        assert caplog.text.count("0 objects of metrics.k8s.io say no usage") == 1
        assert caplog.text.count("say no usage") == 3
