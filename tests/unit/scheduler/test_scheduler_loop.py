"""The scheduler against an API in memory: binding and its failures, messages, events, Permit, plugins of one's own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scheduler_objects import pod_object
from scheduler_world import FakeApi, ManualClock, failure, settle

from minikube_py.client.transport import ApiResponse
from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.scheduler.config import PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.framework import Code, PermitResult, Status
from minikube_py.scheduler.scheduler import Scheduler


class World:
    def __init__(self, api: FakeApi, clock: ManualClock, scheduler: Scheduler) -> None:
        self.api = api
        self.clock = clock
        self.scheduler = scheduler

    def pending(self) -> dict[str, int]:
        return self.scheduler.queue.pending()


@asynccontextmanager
async def world(*nodes: str, config: SchedulerConfig | None = None, **more: Any) -> AsyncIterator[World]:
    api, clock = FakeApi(), ManualClock()
    for name in nodes:
        api.node(name, **more)
    scheduler = Scheduler(api, clock, random.Random(3), config)
    await scheduler.start()
    try:
        yield World(api, clock, scheduler)
        assert scheduler.failure is None
    finally:
        await scheduler.stop()


async def test_pods_are_bound_and_told() -> None:
    async with world("n1", "n2") as w:
        for i in range(6):
            w.api.pod(f"p{i}", cpu="1")
        await settle()
        assert sorted(node for _, node in w.api.bound) == ["n1"] * 3 + ["n2"] * 3
        assert w.scheduler.cache.assumed == 0 and len(w.scheduler.cache) == 6
        event = next(e for e in w.api.events if e["involvedObject"]["name"] == "p0")
        assert event["message"] == f"Successfully assigned default/p0 to {w.api.where('p0')}"
        assert (event["reason"], event["type"], event["action"]) == ("Scheduled", "Normal", "Binding")
        assert event["reportingComponent"] == "default-scheduler" and event["eventTime"]
        metrics = w.scheduler.metrics()
        assert metrics['scheduler_schedule_attempts_total{result="scheduled",profile="default-scheduler"}'] == 6
        assert metrics['scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"}'] == 6


async def test_what_runs_already_counts_from_the_start() -> None:
    api = FakeApi()
    api.node("n1")
    api.node("n2")
    api.pod("old", cpu="4", nodeName="n1")
    api.pod("waits", cpu="1")
    scheduler = Scheduler(api, ManualClock(), random.Random(3))
    await scheduler.start()
    await settle()
    assert api.bound == [("waits", "n2")]
    await scheduler.stop()


async def test_a_pod_that_fits_nowhere_is_told_why() -> None:
    async with world("n1", "n2", cpu="1") as w:
        w.api.pod("big", cpu="8", metadata={"generation": 1})
        await settle()
        message = (
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
        condition = w.api.condition("big")
        found = condition["type"], condition["status"], condition["reason"]
        assert found == ("PodScheduled", "False", "Unschedulable")
        assert condition["message"] == message and condition["observedGeneration"] == 1
        (event,) = w.api.events
        assert (event["type"], event["reason"], event["message"]) == ("Warning", "FailedScheduling", message)
        explained = w.scheduler.ask("explain", "default/big", {})
        assert explained is not None and explained["decision"]["message"] == message and not explained["node"]
        assert w.pending()["unschedulable"] == 1


async def test_the_condition_is_not_written_twice() -> None:
    async with world("n1", cpu="1") as w:
        w.api.pod("big", cpu="8")
        await settle()
        await w.clock.advance(301)
        assert len(w.api.patches) == 1
        metrics = w.scheduler.metrics()
        assert metrics['scheduler_schedule_attempts_total{result="unschedulable",profile="default-scheduler"}'] == 2


async def test_a_freed_node_wakes_who_can_use_it_and_only_those() -> None:
    async with world("n1", cpu="4") as w:
        w.api.pod("runs", cpu="2", nodeName="n1")
        w.api.pod("also", cpu="2", nodeName="n1")
        w.api.pod("small", cpu="2")
        w.api.pod("large", cpu="3")
        await settle()
        assert w.pending()["unschedulable"] == 2
        w.api.delete("pods", "default/runs")
        await settle()
        assert w.api.bound == [("small", "n1")]
        metrics = w.scheduler.metrics()
        # The large one was tried once, when it came.
        assert metrics['scheduler_schedule_attempts_total{result="unschedulable",profile="default-scheduler"}'] == 2


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("more room", {"cpu": "1"}, {"cpu": "4"}),
        ("taint gone", {"taints": ("k:NoSchedule",)}, {}),
        ("uncordoned", {"unschedulable": True}, {}),
        ("label", {}, {"labels": {"zone": "a"}}),
    ],
)
async def test_a_node_that_changes_for_the_better_wakes_pods(name: str, before: Any, after: Any) -> None:
    async with world() as w:
        w.api.node("n1", **before)
        selector = {"nodeSelector": {"zone": "a"}} if name == "label" else {}
        w.api.pod("p", cpu="2", **selector)
        await settle()
        assert not w.api.bound
        w.api.node("n1", **after)
        await settle()
        assert w.api.bound == [("p", "n1")]


async def test_the_order_of_changes_loses_no_pod() -> None:
    """A node comes tainted and is freed of it later: the pod never met the taint, and must hear of it all the same."""
    async with world("full", cpu="1") as w:
        w.api.pod("p", cpu="2")
        await settle()
        w.api.node("n1", taints=("node.kubernetes.io/not-ready:NoSchedule",))
        await settle()
        assert not w.api.bound
        w.api.node("n1")
        await settle()
        assert w.api.bound == [("p", "n1")]


async def test_without_nodes_pods_wait_for_the_first() -> None:
    async with world() as w:
        w.api.pod("p")
        await settle()
        assert w.api.condition("p")["message"] == "no nodes available to schedule pods"
        w.api.node("n1")
        await settle()
        assert w.api.bound == [("p", "n1")]


async def test_a_refused_bind_gives_the_node_back_and_is_tried_again() -> None:
    async with world("n1", cpu="1") as w:
        w.api.on_bind = lambda name, node: failure(500, "InternalError", "broken")
        w.api.pod("p", cpu="1")
        await settle()
        assert w.api.condition("p")["reason"] == "SchedulerError"
        assert w.pending()["backoff"] == 1 and len(w.scheduler.cache) == 0
        w.api.on_bind = None
        await w.clock.advance(3)
        assert w.api.bound == [("p", "n1")]
        metrics = w.scheduler.metrics()
        assert metrics['scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"}'] == 1


@pytest.mark.parametrize("done", [True, False])
async def test_a_bind_whose_answer_is_lost_is_looked_up(done: bool) -> None:
    async with world("n1", cpu="1") as w:
        tries: list[str] = []

        def lose(name: str, node: str) -> ApiResponse | None:
            tries.append(name)
            if len(tries) > 1:
                return None
            if done:
                w.api.bind(f"default/{name}", node)
            raise OutcomeUnknown("the connection broke")

        w.api.on_bind = lose
        w.api.pod("p", cpu="1")
        await settle()
        await w.clock.advance(3)
        assert w.api.bound == [("p", "n1")]
        assert len(tries) == (1 if done else 2)
        assert len(w.scheduler.cache) == 1 and w.scheduler.cache.assumed == 0


@pytest.mark.parametrize("answer", [OutcomeUnknown("lost"), failure(504, "Timeout", "the outcome is unknown")])
async def test_while_the_outcome_is_unknown_the_node_stays_charged(answer: Exception | ApiResponse) -> None:
    """Unknown is also what the API server answers where it lost the store in the middle of the write."""
    async with world("n1", cpu="1") as w:
        answers = [answer]

        def lose(name: str, node: str) -> ApiResponse | None:
            if not answers:
                return None
            lost = answers.pop()
            if isinstance(lost, Exception):
                raise lost
            return lost

        w.api.on_bind = lose
        real = w.api.request
        reachable = asyncio.Event()

        async def request(method: str, path: str, *rest: Any, **more: Any) -> ApiResponse:
            if method == "GET" and path.endswith("/p") and not reachable.is_set():
                raise Unavailable("no connection")
            return await real(method, path, *rest, **more)

        w.api.request = request  # type: ignore[method-assign]
        w.api.pod("p", cpu="1")
        await settle()
        await w.clock.advance(1)
        assert w.scheduler.cache.is_assumed("uid-default-p")
        reachable.set()
        await w.clock.advance(4)
        assert w.api.bound == [("p", "n1")]


async def test_a_pod_deleted_while_it_is_bound_gives_its_room_back() -> None:
    async with world("n1", cpu="1") as w:
        def vanish(name: str, node: str) -> ApiResponse | None:
            if name == "p":
                w.api.delete("pods", "default/p")
            return None

        w.api.on_bind = vanish
        w.api.pod("p", cpu="1")
        await settle()
        assert len(w.scheduler.cache) == 0 and len(w.scheduler.queue) == 0
        w.api.pod("q", cpu="1")
        await settle()
        assert w.api.bound == [("q", "n1")]


async def test_a_pod_bound_by_somebody_else_leaves_the_queue() -> None:
    async with world("n1", cpu="1") as w:
        w.api.pod("big", cpu="8")
        await settle()
        w.api.bind("default/big", "n1")
        await settle()
        assert len(w.scheduler.queue) == 0 and len(w.scheduler.cache) == 1


async def test_pods_of_other_schedulers_are_left_alone() -> None:
    async with world("n1") as w:
        w.api.pod("p", schedulerName="other")
        await settle()
        assert not w.api.bound and not w.api.patches and len(w.scheduler.queue) == 0


async def test_finished_pods_free_their_node() -> None:
    async with world("n1", cpu="1") as w:
        w.api.pod("job", cpu="1", nodeName="n1")
        w.api.pod("next", cpu="1")
        await settle()
        assert not w.api.bound
        finished = pod_object("job", cpu="1", nodeName="n1")
        finished["status"] = {"phase": "Succeeded"}
        w.api.put("pods", finished)
        await settle()
        assert w.api.bound == [("next", "n1")]


async def test_a_gate_taken_away_lets_the_pod_go() -> None:
    async with world("n1") as w:
        w.api.pod("p", schedulingGates=[{"name": "a.io/b"}])
        await settle()
        assert w.pending()["gated"] == 1 and not w.api.patches
        w.api.pod("p")
        await settle()
        assert w.api.bound == [("p", "n1")]


# --- plugins of one's own --------------------------------------------------------------------------------------------


class OddNodes:
    """A filter and a score, per node only, without promises: evaluated afresh for every pod."""

    name = "OddNodes"

    def __init__(self, args: Any, handle: Any) -> None:
        self.best = args.get("best", "")

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        odd = int(node.name[1:]) % 2 == 1
        return None if odd else Status(Code.UNSCHEDULABLE, "node(s) were even")

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 100 if node.name == self.best else 0


class OutOfRange:
    name = "OutOfRange"

    def __init__(self, args: Any, handle: Any) -> None:
        pass

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 101


def profile(name: str, **more: Any) -> SchedulerConfig:
    plugins = {"multiPoint": PluginSet(enabled=((name, 50),))}
    return SchedulerConfig(profiles=(ProfileConfig(plugins=plugins, **more),))


async def test_a_plugin_by_its_path() -> None:
    name = f"{__name__}:OddNodes"
    config = profile(name, plugin_args={name: {"best": "n3"}})
    async with world("n1", "n2", "n3", "n4", config=config) as w:
        w.api.node("n2", cpu="16")
        w.api.pod("p", cpu="1")
        w.api.pod("big", cpu="8")
        await settle()
        assert w.api.bound == [("p", "n3")]
        assert ": 1 node(s) were even, 3 Insufficient cpu. " in w.api.condition("big")["message"]


async def test_a_plugin_from_the_registry() -> None:
    own = profile("OddNodes")
    config = SchedulerConfig(profiles=own.profiles, registry={"OddNodes": OddNodes})
    async with world("n1", "n2", config=config) as w:
        w.api.pod("p")
        await settle()
        assert w.api.bound == [("p", "n1")]


async def test_a_score_out_of_range_is_an_error_and_said() -> None:
    config = SchedulerConfig(profiles=profile("OutOfRange").profiles, registry={"OutOfRange": OutOfRange})
    async with world("n1", "n2", config=config) as w:
        w.api.pod("p")
        await settle()
        assert w.api.condition("p")["reason"] == "SchedulerError"
        assert 'plugin "OutOfRange" returns an invalid score 101' in w.api.condition("p")["message"]


class Recorder:
    """Takes part in the points after the decision, and writes down what it was asked."""

    name = "Recorder"

    def __init__(self, args: Any, handle: Any) -> None:
        self.handle = handle
        self.args = args
        self.calls: list[str] = args["calls"]

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self.calls.append("reserve")
        return Status(Code.UNSCHEDULABLE, "no licence") if self.args.get("refuse") == "reserve" else None

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.calls.append("unreserve")

    def permit(self, state: Any, pod: Any, node_name: str) -> PermitResult:
        self.calls.append("permit")
        if self.args.get("refuse") == "permit":
            return PermitResult(Status(Code.UNSCHEDULABLE, "not today"))
        return PermitResult(Status(Code.WAIT), 10.0) if self.args.get("wait") else PermitResult()

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self.calls.append("pre_bind")
        return Status(Code.ERROR, "no disk") if self.args.get("refuse") == "pre_bind" else None

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None:
        self.calls.append("post_bind")


def recorder(calls: list[str], **args: Any) -> SchedulerConfig:
    plugins = {"multiPoint": PluginSet(enabled=(("Recorder", 0),))}
    own = ProfileConfig(plugins=plugins, plugin_args={"Recorder": {"calls": calls, **args}})
    return SchedulerConfig(profiles=(own,), registry={"Recorder": Recorder})


async def test_the_points_run_in_order() -> None:
    calls: list[str] = []
    async with world("n1", config=recorder(calls)) as w:
        w.api.pod("p")
        await settle()
        assert calls == ["reserve", "permit", "pre_bind", "post_bind"] and w.api.bound


@pytest.mark.parametrize(
    ("point", "expected", "reason", "text"),
    [
        ("reserve", ["reserve", "unreserve"], "Unschedulable", "0/1 nodes are available: 1 no licence."),
        ("permit", ["reserve", "permit", "unreserve"], "Unschedulable", "0/1 nodes are available: 1 not today."),
        ("pre_bind", ["reserve", "permit", "pre_bind", "unreserve"], "SchedulerError", ' plugin "Recorder": no disk'),
    ],
)
async def test_a_refusal_gives_everything_back(point: str, expected: list[str], reason: str, text: str) -> None:
    calls: list[str] = []
    async with world("n1", config=recorder(calls, refuse=point)) as w:
        w.api.pod("p")
        await settle()
        assert calls[: len(expected)] == expected and not w.api.bound
        assert w.api.condition("p")["reason"] == reason and w.api.condition("p")["message"].endswith(text)
        assert len(w.scheduler.cache) == 0


async def test_permit_waits_for_the_word() -> None:
    async with world("n1", cpu="1", config=recorder([], wait=True)) as w:
        w.api.pod("p", cpu="1")
        await settle()
        assert not w.api.bound and w.scheduler.cache.is_assumed("uid-default-p")
        assert w.scheduler.allow_waiting_pod("uid-default-p", "Recorder")
        await settle()
        assert w.api.bound == [("p", "n1")] and not len(w.scheduler.waiting_pods)


async def test_permit_rejects_and_times_out() -> None:
    async with world("n1", config=recorder([], wait=True)) as w:
        w.api.pod("p")
        w.api.pod("q")
        await settle()
        assert w.scheduler.reject_waiting_pod("uid-default-p", "Recorder", "changed my mind")
        await settle()
        assert w.api.condition("p")["message"] == "0/1 nodes are available: 1 changed my mind."
        await w.clock.advance(10)
        text = "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Recorder."
        assert w.api.condition("q")["message"] == text


async def test_a_pod_deleted_at_permit_frees_its_node() -> None:
    async with world("n1", cpu="1", config=recorder([], wait=True)) as w:
        w.api.pod("p", cpu="1")
        await settle()
        w.api.delete("pods", "default/p")
        await settle()
        assert len(w.scheduler.cache) == 0 and len(w.scheduler.waiting_pods) == 0


async def test_two_profiles_schedule_by_their_own_rules() -> None:
    most = {"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}}
    only_fit = {"score": PluginSet(disabled=frozenset(("*",)), enabled=(("NodeResourcesFit", 1),))}
    binpack = ProfileConfig("binpack", plugin_args=most, plugins=only_fit)
    config = SchedulerConfig(profiles=(ProfileConfig(), binpack))
    async with world("n1", "n2", config=config) as w:
        w.api.pod("runs", cpu="1", nodeName="n1")
        await settle()
        w.api.pod("packed", cpu="1", schedulerName="binpack")
        await settle()
        w.api.pod("spread", cpu="1")
        await settle()
        assert w.api.bound == [("packed", "n1"), ("spread", "n2")]
        event = next(e for e in w.api.events if e["involvedObject"]["name"] == "packed")
        assert event["reportingComponent"] == "binpack"


# --- bad input -------------------------------------------------------------------------------------------------------


class Broken:
    """Raises where the test asks for it."""

    name = "Broken"

    def __init__(self, args: Any, handle: Any) -> None:
        self.where = args["where"]

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise RuntimeError(f"{where} is broken")

    def pre_enqueue(self, pod: Any) -> Status | None:
        if pod.name == "p":
            self._fail("pre_enqueue")
        return None

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        self._fail("filter")
        return None

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self._fail("reserve")
        return None

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        return

    def post_filter(self, state: Any, pod: Any, diagnosis: Any) -> Any:
        self._fail("post_filter")
        return None, Status(Code.UNSCHEDULABLE)

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self._fail("pre_bind")
        return None


@pytest.mark.parametrize("where", ["filter", "reserve", "pre_bind"])
async def test_a_plugin_that_raises_costs_its_pod_a_backoff_and_nobody_else_anything(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    plugins = {"multiPoint": PluginSet(enabled=(("Broken", 0),))}
    own = ProfileConfig("own", plugins=plugins, plugin_args={"Broken": {"where": where}})
    config = SchedulerConfig(profiles=(ProfileConfig(), own), registry={"Broken": Broken})
    async with world("n1", cpu="1", config=config) as w:
        w.api.pod("p", cpu="1", schedulerName="own")
        await settle()
        condition = w.api.condition("p")
        assert (condition["reason"], condition["message"]) == ("SchedulerError", f"{where} is broken")
        assert w.pending()["backoff"] == 1 and len(w.scheduler.cache) == 0
        w.api.pod("q", cpu="1")
        await settle()
        assert w.api.bound == [("q", "n1")]
    assert f"{where} is broken" in caplog.text


class Moody:
    """Looks at single nodes only, so that what was worked out is kept; raises while `moody` names a node."""

    name = "Moody"
    node_local = True
    moody = ""

    def __init__(self, args: Any, handle: Any) -> None:
        pass

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        if node.name == Moody.moody:
            raise RuntimeError("not today")
        return None


async def test_a_plugin_that_raised_leaves_nothing_half_worked_out(caplog: pytest.LogCaptureFixture) -> None:
    config = SchedulerConfig(profiles=profile("Moody").profiles, registry={"Moody": Moody})
    async with world("n1", cpu="1", config=config) as w:
        w.api.pod("a", cpu="1")
        await settle()
        Moody.moody = "n2"
        w.api.node("n2", cpu="1")
        w.api.pod("b", cpu="1")
        await settle()
        assert w.api.condition("b")["message"] == "not today"
        Moody.moody = ""
        await w.clock.advance(3)
        assert w.api.bound == [("a", "n1"), ("b", "n2")]
    assert "not today" in caplog.text


async def test_a_gate_that_raises_holds_its_pod_back_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    plugins = {"multiPoint": PluginSet(enabled=(("Broken", 0),))}
    own = ProfileConfig(plugins=plugins, plugin_args={"Broken": {"where": "pre_enqueue"}})
    async with world("n1", config=SchedulerConfig(profiles=(own,), registry={"Broken": Broken})) as w:
        w.api.pod("p")
        w.api.pod("q")
        await settle()
        assert w.api.bound == [("q", "n1")] and w.pending()["gated"] == 1
    assert "pre_enqueue is broken" in caplog.text


async def test_a_post_filter_that_raises_is_told_in_the_message(caplog: pytest.LogCaptureFixture) -> None:
    only = {"postFilter": PluginSet(enabled=(("Broken", 0),), disabled=frozenset(("*",)))}
    own = ProfileConfig(plugins=only, plugin_args={"Broken": {"where": "post_filter"}})
    async with world("n1", config=SchedulerConfig(profiles=(own,), registry={"Broken": Broken})) as w:
        w.api.pod("p", cpu="9")
        await settle()
        assert w.api.condition("p")["message"] == "0/1 nodes are available: 1 Insufficient cpu. post_filter is broken"
    assert "post_filter is broken" in caplog.text


async def test_amounts_beyond_all_bounds_stop_nothing() -> None:
    async with world("n1", "n2", config=None) as w:
        for i in range(3):
            w.api.pod(f"huge-{i}", memory=str((1 << 63) - 1), nodeName="n1")
        w.api.pod("p", cpu="1", memory="1Gi")
        await settle()
        assert w.api.bound == [("p", "n2")]
        for i in range(3):
            w.api.delete("pods", f"default/huge-{i}")
        w.api.pod("q", cpu="4")
        await settle()
        assert w.api.where("q") == "n1"


async def test_a_node_whose_amounts_cannot_be_read_offers_none(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        w.api.node("odd", cpu="many", memory="9999999999E")
        w.api.pod("unreadable", cpu="few")
        w.api.pod("p", cpu="1")
        await settle()
        assert "1 Insufficient cpu" in w.api.condition("p")["message"]
    assert "pod unreadable is left alone" in caplog.text


@pytest.mark.parametrize("arrives", ["before the second", "never"])
async def test_a_bind_that_is_overtaken_by_its_look_up_finds_the_node_charged(arrives: str) -> None:
    """The answer is lost, and the request itself is read by the API server only later, or never."""
    async with world("n1", cpu="1") as w:
        tries: list[str] = []

        def lose(name: str, node: str) -> ApiResponse | None:
            if name != "p":
                return None
            tries.append(node)
            if len(tries) == 1:
                raise OutcomeUnknown("the connection broke")
            if arrives == "before the second":
                w.api.bind(f"default/{name}", tries[0])
                return failure(409, "Conflict", "pod p is already assigned to node")
            return None

        w.api.on_bind = lose
        w.api.pod("p", cpu="1")
        await settle()
        assert tries == ["n1"] and w.api.where("p") == ""
        assert w.scheduler.cache.is_assumed("uid-default-p")
        w.api.node("n2", cpu="4")
        w.api.pod("q", cpu="1")
        await settle()
        assert w.api.where("q") == "n2"
        await w.clock.advance(3)
        assert tries == ["n1", "n1"] and w.api.bound == [("q", "n2"), ("p", "n1")]
        assert len(w.scheduler.cache) == 2 and w.scheduler.cache.assumed == 0


@pytest.mark.parametrize("second", [Unavailable("down"), failure(503, "ServiceUnavailable", ""), failure(429, "", "")])
async def test_a_second_bind_that_is_not_answered_tells_nothing_of_the_first(second: Exception | ApiResponse) -> None:
    async with world("n1", cpu="1") as w:
        answers = [second, OutcomeUnknown("lost")]

        def lose(name: str, node: str) -> ApiResponse | None:
            if not answers:
                return None
            answer = answers.pop()
            if isinstance(answer, Exception):
                raise answer
            return answer

        w.api.on_bind = lose
        w.api.pod("p", cpu="1")
        await settle()
        while answers:
            assert w.scheduler.cache.is_assumed("uid-default-p")
            await w.clock.advance(0.5)
        assert w.scheduler.cache.is_assumed("uid-default-p")
        await w.clock.advance(3)
        assert w.api.bound == [("p", "n1")]
