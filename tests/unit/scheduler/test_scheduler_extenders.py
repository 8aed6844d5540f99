"""Extenders in the scheduling cycle, with upstream's tables (pkg/scheduler/extender_test.go) as facts."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from scheduler_objects import pod_object
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.env import Answer, Tls
from minikube_py.errors import Unavailable
from minikube_py.scheduler.config import SchedulerConfig, parse
from minikube_py.scheduler.configuration.messages import API_VERSION, KIND
from minikube_py.scheduler.scheduler import Scheduler

Json = dict[str, Any]
Handler = Callable[[Json], Any]


class Call(NamedTuple):
    url: str
    body: Json
    tls: Tls | None
    timeout_s: float


class Servers:
    """An `Outside` whose servers are functions: by URL, from the request to the answer; bytes are sent as they are, a
    number is a status, an exception is raised."""

    def __init__(self, **handlers: Handler) -> None:
        self.handlers = {f"http://{name.replace('_', '/')}": handler for name, handler in handlers.items()}
        self.calls: list[Call] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.closed = False

    async def post(self, url: str, body: bytes, tls: Tls | None, timeout_s: float) -> Answer:
        request = json.loads(body)
        self.calls.append(Call(url, request, tls, timeout_s))
        await asyncio.sleep(0)
        if self.before is not None:
            await self.before(url)
        answer = self.handlers[url](request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return Answer(answer, b"")
        return Answer(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    async def close(self) -> None:
        self.closed = True

    def asked(self, path: str) -> list[Json]:
        return [call.body for call in self.calls if call.url == f"http://{path}"]


def config(*extenders: Json, **more: Any) -> SchedulerConfig:
    return parse({"apiVersion": API_VERSION, "kind": KIND, "extenders": list(extenders), **more})


class World(NamedTuple):
    api: FakeApi
    clock: ManualClock
    scheduler: Scheduler
    servers: Servers

    def told(self, name: str) -> str:
        return str(self.api.condition(name).get("message", ""))

    async def place(self, name: str, **spec: Any) -> str:
        self.api.pod(name, **spec)
        await settle()
        return self.api.where(name)


@asynccontextmanager
async def world(chosen: SchedulerConfig, servers: Servers, *nodes: str, **shape: Any) -> AsyncIterator[World]:
    api, clock = FakeApi(), ManualClock()
    for name in nodes:
        api.node(name, **shape)
    scheduler = Scheduler(api, clock, random.Random(3), chosen, servers)
    await scheduler.start()
    try:
        yield World(api, clock, scheduler, servers)
        assert scheduler.failure is None
    finally:
        await scheduler.stop()
    assert servers.closed


# --- the handlers of upstream's fake extender -----------------------------------------------------------------------


def names(request: Json) -> list[str]:
    if request["NodeNames"] is not None:
        return list(request["NodeNames"])
    return [node["metadata"]["name"] for node in request["Nodes"]["items"]]


def let_pass(*wanted: str) -> Handler:
    """Of the nodes named, all where none is."""

    def handle(request: Json) -> Json:
        given = names(request)
        return {
            "NodeNames": [name for name in given if not wanted or name in wanted],
            "FailedNodes": {name: f"not {name}" for name in given if wanted and name not in wanted},
        }

    return handle


def nobody(request: Json) -> Json:
    return {"NodeNames": [], "FailedNodes": dict.fromkeys(names(request), "nobody")}


def broken(request: Json) -> Json:
    return {"Error": "broken"}


def prefers(node: str, score: int = 10) -> Handler:
    return lambda request: [{"Host": name, "Score": score if name == node else 1} for name in names(request)]


def extender(host: str, **more: Any) -> Json:
    return {"urlPrefix": f"http://{host}", "nodeCacheCapable": True, **more}


FILTERS = {"filterVerb": "filter"}
SCORES = {"prioritizeVerb": "prioritize"}
ONE, TWO = extender("a", **FILTERS), extender("b", **FILTERS)


class Case(NamedTuple):
    """`placed`: where, None for an error or no node."""

    name: str
    extenders: list[Json]
    handlers: dict[str, Handler]
    placed: str | None


UPSTREAM = [
    Case("test 1", [ONE, TWO], {"a_filter": let_pass(), "b_filter": broken}, None),
    Case("test 2", [ONE, TWO], {"a_filter": let_pass(), "b_filter": nobody}, None),
    Case("test 3", [ONE, TWO], {"a_filter": let_pass(), "b_filter": let_pass("node1")}, "node1"),
    Case("test 4", [ONE, TWO], {"a_filter": let_pass("node2"), "b_filter": let_pass("node1")}, None),
    Case(
        "test 5, but with two nodes",
        [ONE | SCORES | {"weight": 1}],
        {"a_filter": let_pass("node1"), "a_prioritize": lambda _: Unavailable("never asked")},
        "node1",
    ),
    Case(
        "test 6",
        [ONE | SCORES | {"weight": 1}, TWO | SCORES | {"weight": 5}],
        {
            "a_filter": let_pass(),
            "b_filter": let_pass(),
            "a_prioritize": prefers("node1"),
            "b_prioritize": prefers("node2"),
        },
        "node2",
    ),
    Case(
        "test 8, not interested",
        [ONE | SCORES | {"weight": 1, "managedResources": [{"name": "example.com/other"}]}],
        {"a_filter": broken, "a_prioritize": lambda _: Unavailable("never asked")},
        "",
    ),
    Case(
        "test 9, ignorable",
        [ONE | {"ignorable": True}, TWO],
        {"a_filter": broken, "b_filter": let_pass("node1")},
        "node1",
    ),
    Case("test 10", [ONE, TWO], {"a_filter": let_pass(), "b_filter": let_pass("node1")}, "node1"),
]


@pytest.mark.parametrize("case", UPSTREAM, ids=[case.name for case in UPSTREAM])
async def test_upstreams_table(case: Case) -> None:
    async with world(config(*case.extenders), Servers(**case.handlers), "node1", "node2") as w:
        where = await w.place("p", cpu="1")
        if case.placed is None:
            assert where == ""
        elif case.placed:
            assert where == case.placed
        else:
            assert where and not w.servers.calls


# --- messages -------------------------------------------------------------------------------------------------------


async def test_what_extenders_say_of_nodes_is_counted_with_what_filters_say() -> None:
    """FailedAndUnresolvableNodes wins over FailedNodes."""

    def handle(request: Json) -> Json:
        failed = {"n1": "no port", "n2": "no port", "n3": "resolvable"}
        return {"NodeNames": [], "FailedNodes": failed, "FailedAndUnresolvableNodes": {"n3": "no device"}}

    async with world(config(ONE), Servers(a_filter=handle), "n1", "n2", "n3") as w:
        w.api.node("small", cpu="100m")
        await settle()
        await w.place("p", cpu="1")
        assert w.told("p").startswith("0/4 nodes are available: 1 Insufficient cpu, 1 no device, 2 no port. ")
        assert "2 No preemption victims found for incoming pod" in w.told("p")
        assert names(w.servers.asked("a/filter")[0]) == ["n1", "n2", "n3"]


WRONG: list[tuple[Any, str]] = [
    (500, "failed filter with extender at URL http://a/filter, code 500"),
    (b"", "EOF"),
    (b'{"NodeNames":["n1"', "unexpected EOF"),
    (b"<html>", "invalid character '<' looking for beginning of value"),
    (b'{"NodeNames":["n1"} ', "invalid character '}' after array element"),
    (b'{"a" 1}', "invalid character '1' after object key"),
    (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    (b'["n1"]', "json: cannot unmarshal array into Go value of type v1.ExtenderFilterResult"),
    (
        {"NodeNames": "n1"},
        "json: cannot unmarshal string into Go struct field ExtenderFilterResult.NodeNames of type []string",
    ),
    (
        {"FailedNodes": {"n1": 5}},
        "json: cannot unmarshal number into Go struct field ExtenderFilterResult.FailedNodes of type string",
    ),
    ({"Error": "the device is busy"}, "the device is busy"),
    (
        {"NodeNames": ["n1", "n9"]},
        'extender "http://a" claims a filtered node "n9" which is not found in the input node list',
    ),
    (Unavailable('Post "http://a/filter": EOF'), 'Post "http://a/filter": EOF'),
]


@pytest.mark.parametrize(("answer", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
async def test_an_extender_that_fails_is_an_error_of_the_pod_unless_it_is_ignorable(answer: Any, told: str) -> None:
    async with world(config(ONE), Servers(a_filter=lambda _: answer), "n1", "n2") as w:
        assert await w.place("p") == ""
        condition = w.api.condition("p")
        assert (condition["reason"], condition["message"]) == ("SchedulerError", told)
        assert [event["reason"] for event in w.api.events] == ["FailedScheduling"]
    async with world(config(ONE | {"ignorable": True}), Servers(a_filter=lambda _: answer), "n1", "n2") as w:
        assert await w.place("p") in ("n1", "n2")


PASSES: list[tuple[Any, str]] = [
    (b'{"nodenames":["n2"]} trailing', "n2"),
    (b'{"NODENAMES":["n1"],"nodeNames":["n2"]}', "n2"),
    ({"Nodes": {"items": [{"metadata": {"name": "n2"}}]}}, "n2"),
    ({"NodeNames": ["n2"], "Nodes": {"items": [{"metadata": {"name": "n1"}}]}}, "n2"),
    ({"NodeNames": None, "nodes": {"Items": [{"Metadata": {"Name": "n2"}}]}}, "n2"),
    (b"null", ""),
    ({}, ""),
    ({"NodeNames": ["n2"], "Error": None, "Other": [1, {"x": 2.5}]}, "n2"),
]


@pytest.mark.parametrize(("answer", "placed"), PASSES, ids=[str(answer)[:50] for answer, _ in PASSES])
async def test_answers_are_read_as_go_reads_them(answer: Any, placed: str) -> None:
    async with world(config(ONE), Servers(a_filter=lambda _: answer), "n1", "n2") as w:
        assert await w.place("p") == placed
        if not placed:
            unhelpful = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
            assert w.told("p") == f"0/2 nodes are available: no new claims to deallocate, {unhelpful}"


# --- scores ---------------------------------------------------------------------------------------------------------


async def test_scores_are_scaled_weighted_and_added_to_those_of_plugins() -> None:
    handler = lambda _: [{"Host": "n1", "Score": 4}, {"Host": "n9", "Score": 9}]  # noqa: E731
    async with world(config(extender("a", weight=3, **SCORES)), Servers(a_prioritize=handler), "n1", "n2") as w:
        assert await w.place("p", cpu="1") == "n1"
        explained = w.scheduler.decisions.explain("uid-default-p", w.scheduler.profiles["default-scheduler"].evaluator)
        assert explained is not None and explained.score == sum(score * weight for _, score, weight in explained.scores)
        assert explained.scores[-1] == ("http://a", 40, 3)


async def test_questions_for_scores_are_counted_while_they_are_under_way() -> None:
    name, seen = 'scheduler_goroutines{operation="prioritizing_extender"}', list[float]()
    async with world(config(extender("a", weight=1, **SCORES)), Servers(), "n1", "n2") as w:
        w.servers.handlers["http://a/prioritize"] = lambda _: seen.append(w.scheduler.metrics()[name])
        assert await w.place("p") and seen == [1] and w.scheduler.metrics()[name] == 0


@pytest.mark.parametrize("answer", [503, b"[", [{"Host": "n1", "Score": "4"}], [{"Host": "n1", "Score": 1.5}]])
async def test_one_that_gives_no_scores_is_left_out(answer: Any) -> None:
    chosen = config(extender("a", weight=1, **SCORES), extender("b", weight=1, **SCORES))
    servers = Servers(a_prioritize=lambda _: answer, b_prioritize=prefers("n2"))
    async with world(chosen, servers, "n1", "n2") as w:
        assert await w.place("p") == "n2"


async def test_nodes_that_an_extender_sends_back_whole_are_scored_as_if_empty() -> None:
    """As upstream's HTTPExtender.Filter makes new ones of them."""
    whole = extender("a", nodeCacheCapable=False, **FILTERS)
    whole_answer = lambda request: {"Nodes": request["Nodes"]}  # noqa: E731
    for chosen, expected in ((ONE, {"n2"}), (whole, {"n1", "n2"})):
        handler = let_pass() if chosen is ONE else whole_answer
        async with world(config(chosen), Servers(a_filter=handler), "n1", "n2") as w:
            w.api.pod("before", cpu="2", nodeName="n1")
            await settle()
            found = set()
            for i in range(12):
                found.add(await w.place(f"p{i}", cpu="1m"))
            assert found == expected


# --- what goes over the wire ----------------------------------------------------------------------------------------


async def test_requests_carry_the_pod_and_nodes_or_their_names() -> None:
    whole = extender("a", nodeCacheCapable=False, httpTimeout="100ms", weight=2, **FILTERS, **SCORES)
    servers = Servers(
        a_filter=lambda request: {"Nodes": request["Nodes"]},
        a_prioritize=prefers("n1"),
        b_filter=let_pass(),
    )
    async with world(config(whole, extender("b/", **FILTERS)), servers, "n1", "n2") as w:
        await w.place("p", cpu="1", metadata={"managedFields": [{"manager": "kubectl"}], "labels": {"x": "y"}})
        filtering, by_name, prioritizing = w.servers.calls
        pod = filtering.body["Pod"]
        assert pod["metadata"]["name"] == "p" and "managedFields" not in pod["metadata"] and "kind" not in pod
        assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
        assert filtering.body["NodeNames"] is None and filtering.body["Nodes"]["metadata"] == {}
        assert [n["status"]["allocatable"]["cpu"] for n in filtering.body["Nodes"]["items"]] == ["4", "4"]
        assert by_name.url == "http://b/filter" and by_name.body == {
            "Pod": pod,
            "Nodes": None,
            "NodeNames": ["n1", "n2"],
        }
        assert prioritizing.body == filtering.body
        assert [call.timeout_s for call in w.servers.calls] == [0.1, 5.0, 0.1]


@pytest.mark.parametrize(
    ("resources", "interested"),
    [
        ({}, False),
        ({"requests": {"example.com/port": "0"}}, True),
        ({"limits": {"example.com/port": "0"}}, True),
        ({"requests": {"example.com/other": "1"}}, False),
    ],
)
@pytest.mark.parametrize("field", ["containers", "initContainers"])
async def test_only_pods_that_ask_for_a_managed_resource_are_of_interest(
    field: str, resources: Json, interested: bool
) -> None:
    managed = ONE | {"managedResources": [{"name": "example.com/port", "ignoredByScheduler": True}]}
    async with world(config(managed), Servers(a_filter=let_pass("n1")), "n1", "n2") as w:
        container = {"name": "c", "image": "x", "resources": resources}
        spec = {"containers": [{"name": "main", "image": "x"}], field: [container]}
        w.api.put(
            "pods",
            {
                "metadata": {"name": "p", "namespace": "default", "uid": "u"},
                "spec": spec,
                "status": {},
            },
        )
        await settle()
        if resources.get("requests", {}).get("example.com/other"):
            assert w.api.where("p") == ""
        else:
            assert w.api.where("p")
        assert bool(w.servers.calls) == interested


async def test_a_resource_ignored_by_the_scheduler_is_the_extenders_alone() -> None:
    resources = [{"name": "example.com/port", "ignoredByScheduler": True}]
    for managed, placed in ((resources, "n1"), ([{"name": "example.com/port"}], "")):
        chosen = config(ONE | {"managedResources": managed})
        async with world(chosen, Servers(a_filter=let_pass()), "n1") as w:
            assert await w.place("p", extended={"example.com/port": "1"}) == placed


# --- binding --------------------------------------------------------------------------------------------------------

BINDS = {"bindVerb": "bind"}


async def test_an_extender_binds_in_place_of_the_profile() -> None:
    servers = Servers()
    async with world(config(extender("a", **BINDS)), servers, "n1") as w:

        def bind(request: Json) -> Json:
            w.api.bind(f"{request['PodNamespace']}/{request['PodName']}", request["Node"])
            return {"Error": ""}

        servers.handlers["http://a/bind"] = bind
        w.api.on_bind = lambda name, node: pytest.fail("the profile bound it")
        assert await w.place("p") == "n1"
        sent = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-default-p", "Node": "n1"}
        assert servers.asked("a/bind") == [sent]
        assert [event["reason"] for event in w.api.events] == ["Scheduled"]


@pytest.mark.parametrize(("answer", "told"), [({"Error": "no"}, "no"), (500, "code 500"), (b"{", "unexpected EOF")])
async def test_a_binding_that_fails_gives_the_node_back(answer: Any, told: str) -> None:
    async with world(config(extender("a", **BINDS)), Servers(a_bind=lambda _: answer), "n1", cpu="1") as w:
        assert await w.place("p", cpu="1") == ""
        assert told in w.told("p") and w.api.condition("p")["reason"] == "SchedulerError"
        assert w.scheduler.columns.by_name["n1"].requested["cpu"] == 0
    ignorable = extender("a", ignorable=True, **BINDS)
    async with world(config(ignorable), Servers(a_bind=lambda _: answer), "n1") as w:
        assert await w.place("p") == "n1"


# --- what moves meanwhile -------------------------------------------------------------------------------------------


async def held(w: World, meanwhile: Callable[[], None]) -> None:
    """Pod p is asked about, and `meanwhile` happens before the answer."""

    async def before(url: str) -> None:
        if len(w.servers.calls) == 1:
            meanwhile()
            await settle()

    w.servers.before = before
    w.api.pod("p", cpu="3")
    for _ in range(4):
        await settle()


async def test_a_node_that_filled_up_meanwhile_is_not_chosen() -> None:
    chosen = config(ONE | SCORES | {"weight": 9})
    servers = Servers(a_filter=let_pass(), a_prioritize=prefers("n1"))
    async with world(chosen, servers, "n1", "n2") as w:
        await held(w, lambda: w.api.pod("other", cpu="3", nodeName="n1"))
        assert w.api.where("p") == "n2"
    async with world(chosen, servers, "n1") as w:
        servers.closed = False
        servers.calls.clear()
        await held(w, lambda: w.api.pod("other", cpu="3", nodeName="n1"))
        assert w.api.where("p") == "" and "1 Insufficient cpu" in w.told("p")
        w.api.delete("pods", "default/other")
        await settle()
        await w.clock.advance(2)
        assert w.api.where("p") == "n1"


async def test_a_node_that_went_or_is_another_by_that_slot_is_not_chosen() -> None:
    async with world(config(ONE), Servers(a_filter=let_pass("n1")), "n1", "n2") as w:

        def meanwhile() -> None:
            w.api.delete("nodes", "n1")
            w.api.node("n3")

        await held(w, meanwhile)
        assert w.api.where("p") == ""


@pytest.mark.parametrize("fate", ["gone", "bound", "deleting", "made again"])
async def test_a_pod_that_left_meanwhile_is_left_alone(fate: str) -> None:
    async with world(config(ONE), Servers(a_filter=let_pass()), "n1") as w:

        def meanwhile() -> None:
            pod = json.loads(json.dumps(w.api.objects["pods"]["default/p"]))
            if fate in ("gone", "made again"):
                w.api.delete("pods", "default/p")
            if fate == "made again":
                w.api.pod("p", cpu="1", metadata={"uid": "another"})
            if fate == "bound":
                w.api.bind("default/p", "n1")
            if fate == "deleting":
                pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
                w.api.put("pods", pod)

        await held(w, meanwhile)
        node = w.scheduler.columns.by_name["n1"]
        if fate == "made again":
            assert w.api.bound == [("p", "n1")] and list(node.pods) == ["another"]
        else:
            assert w.api.bound == ([("p", "n1")] if fate == "bound" else [])
            assert list(node.pods) == (["uid-default-p"] if fate == "bound" else [])
        assert not w.scheduler.metrics()['scheduler_pending_pods{queue="active"}']


async def test_a_pod_that_an_extender_turned_down_is_woken_by_anything() -> None:
    async with world(config(ONE), Servers(a_filter=nobody), "n1") as w:
        await w.place("p")
        w.servers.handlers["http://a/filter"] = let_pass()
        await w.clock.advance(20)
        assert w.api.where("p") == ""
        w.api.pod("other", nodeName="n1")
        await settle()
        await w.clock.advance(20)
        assert w.api.where("p") == "n1"


# --- preemption -----------------------------------------------------------------------------------------------------

PREEMPTS = {"preemptVerb": "preempt"}
LOW: Json = {"priority": 0, "cpu": "4"}


@asynccontextmanager
async def full(*extenders: Json, **handlers: Handler) -> AsyncIterator[World]:
    """Two nodes, each full with a pod of low priority."""
    async with world(config(*extenders), Servers(**handlers), "n1", "n2") as w:
        w.api.pod("low1", nodeName="n1", **LOW)
        w.api.pod("low2", nodeName="n2", **LOW)
        await settle()
        yield w


def going(w: World) -> list[str]:
    return sorted(p["metadata"]["name"] for p in w.api.objects["pods"].values() if "deletionTimestamp" in p["metadata"])


def only_on(node: str, **more: Any) -> Handler:
    def handle(request: Json) -> Json:
        victims = request["NodeNameToMetaVictims"] or {
            name: {"Pods": [{"UID": pod["metadata"]["uid"]} for pod in each["Pods"]], "NumPDBViolations": 0}
            for name, each in request["NodeNameToVictims"].items()
        }
        return {"NodeNameToMetaVictims": {node: {**victims[node], **more}}}

    return handle


@pytest.mark.parametrize("cached", [True, False])
async def test_extenders_choose_among_the_candidates(cached: bool) -> None:
    for node in ("n1", "n2"):
        chosen = extender("a", **PREEMPTS) | {"nodeCacheCapable": cached}
        async with full(chosen, a_preempt=only_on(node)) as w:
            await w.place("high", cpu="4", priority=10)
            assert going(w) == [f"low{node[1]}"]
            (asked,) = w.servers.asked("a/preempt")
            low = {"UID": "uid-default-low1"}
            if cached:
                assert asked["NodeNameToVictims"] is None
                assert asked["NodeNameToMetaVictims"]["n1"] == {"Pods": [low], "NumPDBViolations": 0}
            else:
                assert asked["NodeNameToMetaVictims"] is None
                (victim,) = asked["NodeNameToVictims"]["n2"]["Pods"]
                assert victim["metadata"]["name"] == "low2"


NO_CLAIMS = "no new claims to deallocate"
NO_ROOM = "0/2 nodes are available: 2 Insufficient cpu."
REFUSALS: list[tuple[Any, str]] = [
    ({"NodeNameToMetaVictims": {}}, f"{NO_CLAIMS}, preemption: no candidate node for preemption"),
    (b"null", f"{NO_CLAIMS}, preemption: no candidate node for preemption"),
    ({"NodeNameToMetaVictims": {"n1": {"Pods": []}}}, 'preemption: expected at least one victim pod on node "n1"'),
    (
        {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "x"}]}}},
        "preemption: extender: http://a claims to preempt pod (UID: &{x}) on node: n1, "
        "but the pod is not found on that node",
    ),
    ({"NodeNameToMetaVictims": {"n9": {"Pods": []}}}, 'preemption: nodeinfo not found for node name "n9"'),
    (500, "preemption: failed preempt with extender at URL http://a/preempt, code 500"),
]


@pytest.mark.parametrize(("answer", "told"), REFUSALS, ids=[told[:30] for _, told in REFUSALS])
async def test_nobody_goes_where_an_extender_does_not_agree(answer: Any, told: str) -> None:
    async with full(extender("a", **PREEMPTS), a_preempt=lambda _: answer) as w:
        await w.place("high", cpu="4", priority=10)
        assert going(w) == [] and w.told("high") == f"{NO_ROOM} {told}"


async def test_an_ignorable_extender_that_fails_at_preemption_is_skipped() -> None:
    async with full(extender("a", ignorable=True, **PREEMPTS), a_preempt=lambda _: 500) as w:
        await w.place("high", cpu="4", priority=10)
        assert len(going(w)) == 1


async def test_nodes_beyond_help_by_an_extenders_word_are_no_candidates() -> None:
    """FailedAndUnresolvableNodes bars a node from preemption, FailedNodes does not."""

    def handle(request: Json) -> Json:
        return {"NodeNames": [], "FailedAndUnresolvableNodes": {"n1": "dead"}, "FailedNodes": {"n2": "busy"}}

    async with world(config(ONE), Servers(a_filter=handle), "n1", "n2") as w:
        w.api.pod("low1", nodeName="n1", priority=0, cpu="1")
        w.api.pod("low2", nodeName="n2", priority=0, cpu="1")
        await settle()
        await w.place("high", cpu="4", priority=10)
        assert w.servers.calls == []
        await w.place("other", cpu="3", priority=10)
        assert "1 busy, 1 dead" in w.told("other")


async def test_what_if_asks_no_extender_and_says_so() -> None:
    async with world(config(ONE), Servers(a_filter=nobody), "n1") as w:
        pod = pod_object("p", cpu="1", schedulerName="default-scheduler")
        answer = w.scheduler.ask("what-if", pod, {})
        assert answer is not None and answer["best"] == ["n1"] and answer["extendersNotAsked"] == ["http://a"]
        assert w.servers.calls == []
