"""Why this node? The answer agrees with the decision, changes no later one, and names whom preemption evicts."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from scheduler_objects import pod_object
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.api.errors import StatusError
from minikube_py.cli.explain_pod import _decided, told
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.env import Answer
from minikube_py.scheduler.config import SchedulerConfig, parse
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler, with_own
from minikube_py.scheduler.configuration.messages import API_VERSION, KIND
from minikube_py.scheduler.framework import Normalize
from minikube_py.scheduler.own import Guarded, OwnPlugin
from minikube_py.scheduler.scheduler import Scheduler

FOLDER = Path(__file__).parents[3] / "examples" / "scheduler"
REMEMBERING = SchedulerConfig(explained_decisions=8)


@asynccontextmanager
async def scheduling(
    config: SchedulerConfig = REMEMBERING, /, **nodes: dict[str, Any]
) -> AsyncIterator[tuple[FakeApi, Scheduler]]:
    api = FakeApi()
    for name, more in nodes.items():
        api.node(name, **more)
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config)
    await scheduler.start()
    try:
        yield api, scheduler
        assert scheduler.failure is None
    finally:
        await scheduler.stop()


def asked(scheduler: Scheduler, name: str, **params: str) -> dict[str, Any]:
    found = scheduler.ask("explain", f"default/{name}", params)
    assert found is not None
    assert json.loads(json.dumps(found)) == found
    return found


def what_if(scheduler: Scheduler, name: str, **more: Any) -> dict[str, Any]:
    found = scheduler.ask("what-if", pod_object(name, **more), {})
    assert found is not None
    return found


DRAWN = {f"n{number}": {"cpu": str(2 + number % 4), "memory": f"{4 + number % 3}Gi"} for number in range(7)}


async def test_what_if_says_where_the_pod_then_goes() -> None:
    rng = random.Random(5)
    async with scheduling(**DRAWN) as (api, scheduler):
        for number in range(25):
            name, cpu = f"p{number}", rng.choice(("100m", "500m", "1500m", "3"))
            before = what_if(scheduler, name, cpu=cpu)
            api.pod(name, cpu=cpu)
            await settle()
            where = api.where(name)
            assert (where in before["best"]) if where else not before["best"]
            after = asked(scheduler, name)
            # It is judged without itself: as before it came.
            assert after["best"] == before["best"]
            others = [each for each in before["nodes"] if each["node"] != where]
            assert after["nodes"] == [each for each in before["nodes"] if each["node"] == where] + others
            assert after["node"] == where and after["decision"]["node"] == where


async def test_who_asks_changes_no_decision() -> None:
    placed = []
    for curious in (False, True):
        async with scheduling(**DRAWN) as (api, scheduler):
            for number in range(20):
                api.pod(f"p{number}", cpu="400m")
                await settle()
                if curious:
                    for other in range(number + 1):
                        asked(scheduler, f"p{other}")
                    what_if(scheduler, "other", cpu="1", priority=1000)
            placed.append(api.bound)
    assert placed[0] == placed[1]


async def test_preemption_is_foretold_and_nobody_is_evicted_by_asking() -> None:
    async with scheduling(n1={"cpu": "2"}, n2={"cpu": "2"}) as (api, scheduler):
        for name, cpu, priority in (("low", "2", 1), ("mid", "1", 5), ("mid-too", "1", 5)):
            api.pod(name, cpu=cpu, priority=priority)
            await settle()
        before = what_if(scheduler, "high", cpu="2", priority=10)
        victims = [victim["pod"] for victim in before["preemption"]["victims"]]
        assert victims == ["default/low"]
        assert not [p for p in api.objects["pods"].values() if "deletionTimestamp" in p["metadata"]]
        assert "preemption would evict from" in "\n".join(told(before))
        api.pod("high", cpu="2", priority=10)
        await settle()
        going = [key for key, p in api.objects["pods"].items() if "deletionTimestamp" in p["metadata"]]
        assert going == victims


async def test_a_waiting_pod_is_told_what_would_have_to_change() -> None:
    nodes = {"small": {"cpu": "1"}, "large": {"cpu": "4"}, "apart": {"taints": ["for=others:NoSchedule"]}}
    async with scheduling(**nodes, off={"unschedulable": True}) as (api, scheduler):
        api.pod("big", cpu="5")
        await settle()
        found = asked(scheduler, "big")
        assert (found["fits"], found["of"], found["best"], found["node"]) == (0, 4, [], "")
        assert found["message"].startswith("0/4 nodes are available")
        changes = {each["reason"]: each["change"] for each in found["changes"]}
        assert changes["Insufficient cpu"] == "none of these nodes has more than 4 CPUs; request at most that"
        assert "uncordon off" in changes.values()
        assert any(change.startswith("tolerate it") for change in changes.values())
        verdicts = {each["node"]: each["plugin"] for each in found["nodes"]}
        assert verdicts["apart"] == "TaintToleration" and verdicts["small"] == "NodeResourcesFit"


async def test_what_has_to_be_freed_is_told_of_a_node_that_is_large_enough() -> None:
    async with scheduling(small={"cpu": "3900m"}, large={"cpu": "4"}, larger={"cpu": "8"}) as (api, scheduler):
        for number, node in enumerate(("large", "larger")):
            api.pod(f"p{number}", cpu="1" if node == "large" else "6", nodeName=node)
        await settle()
        (change,) = what_if(scheduler, "big", cpu="4")["changes"]
        assert change["nodes"] == 3
        assert change["change"] == "free 1 CPU on large, which lacks the least, or request that much less"


async def test_decisions_are_found_by_number_while_they_are_remembered() -> None:
    async with scheduling(n1={"cpu": "2"}) as (api, scheduler):
        api.pod("first", cpu="3")
        await settle()
        api.node("n2", cpu="8")
        await settle()
        await settle()
        found = asked(scheduler, "first", at="1")
        assert found["decision"]["message"].startswith("0/1 nodes are available")
        with pytest.raises(ValueError, match="decision 77 on pod default/first is not recorded"):
            asked(scheduler, "first", at="77")
        for number in range(12):
            api.pod(f"p{number}", cpu="100m")
            await settle()
        assert len(scheduler.decisions) == 8
        assert asked(scheduler, "first")["decisions"] == [] and asked(scheduler, "first")["decision"] is None


NOT_THERE = 'no scheduler has the pod "web": it does not exist, has finished, or names a scheduler that does not run'


def test_the_api_answers_and_refuses() -> None:
    pod = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    body = {"apiVersion": "v1", "kind": "Pod", **pod}
    with VirtualCluster(1, nodes=2) as cluster:

        def ask(method: str, path: str, sent: Any = None) -> tuple[int, dict[str, Any]]:
            path, _, query = path.partition("?")
            params = dict(parse_qsl(query))
            sent = None if sent is None else json.dumps(sent).encode()
            answer = cluster.request(method, path, sent, params)
            return answer.status, json.loads(answer.body)

        cluster.advance(5)
        status, admitted = ask("POST", "/api/v1/namespaces/default/pods?dryRun=All", body)
        assert status == 201
        status, found = ask("POST", "/minikube-py/v1/what-if", admitted)
        assert (status, found["fits"], found["of"]) == (200, 2, 2)
        assert ask("GET", "/api/v1/namespaces/default/pods/web")[0] == 404
        explain = "/minikube-py/v1/explain/pods/default/web"
        status, found = ask("GET", explain)
        assert (status, found["message"]) == (404, NOT_THERE)
        nobodys = {**admitted, "spec": {**admitted["spec"], "schedulerName": "nobody"}}
        assert ask("POST", "/minikube-py/v1/what-if", nobodys)[0] == 404
        ask("POST", "/api/v1/namespaces/default/pods", body)
        cluster.advance(5)
        status, found = ask("GET", f"{explain}?limit=1")
        assert status == 200 and found["node"] and len(found["nodes"]) == 1
        assert ask("GET", f"{explain}?at=9")[0] == 400
        assert ask("DELETE", explain)[0] == 405
        assert ask("POST", "/minikube-py/v1/what-if", {"spec": {}})[0] == 400
        assert ask("GET", "/minikube-py/v1/explain/pods/web")[0] == 404
        cluster.plane.core.ask_scheduler = None
        assert ask("GET", explain)[0] == 503


EXAMPLES = {
    "best_fit.py:BestFit": {"BestFit": 25},
    "gpu_share.py:GpuShare": {"GpuShare": 50},
    "io_bandwidth.py:IoBandwidth": {"IoBandwidth": 40},
}
"""The examples' plugins, and the scores they give the second of two pods that share a node."""


def test_each_example_is_explained() -> None:
    plugins = {path.name for path in FOLDER.glob("*.py") if "def score(" in path.read_text()}
    assert plugins == {target.partition(":")[0] for target in EXAMPLES}


@pytest.mark.parametrize("target", EXAMPLES)
async def test_a_remembered_node_is_scored_as_it_was(target: str) -> None:
    more = {"labels": {"example.com/io-mbps": "100"}, "extended": {"openb.io/gpu-milli": "1000"}}
    config = read_scheduler(ChosenScheduler(None, (f"{FOLDER / target}",)))
    pods = {"metadata": {"labels": {"example.com/io-mbps": "30"}}, "extended": {"openb.io/gpu-milli": "250"}}
    async with scheduling(config, n1={"cpu": "4", **more}, n2={"cpu": "8", "unschedulable": True, **more}) as (
        api,
        scheduler,
    ):
        for name in ("first", "second", "third"):
            api.pod(name, cpu="500m", **json.loads(json.dumps(pods)))
            await settle()
        scores = {each["plugin"]: each["score"] for each in asked(scheduler, "second")["decision"]["scores"]}
        assert scores.items() >= EXAMPLES[target].items()


async def vacating(api: FakeApi) -> None:
    """n1 is being vacated for the pod `high`, which wants all of it: one of its two victims is still leaving."""
    for name in ("low-1", "low-2"):
        api.pod(name, cpu="2", priority=1, nodeName="n1")
    await settle()
    api.pod("high", cpu="4", priority=10, nodeSelector={"name": "n1"})
    await settle()
    api.delete("pods", "default/low-1")
    await settle()


async def test_a_node_that_is_kept_for_a_nominated_pod_is_judged_as_the_decision_judges_it() -> None:
    async with scheduling(n1={"cpu": "4", "labels": {"name": "n1"}}) as (api, scheduler):
        await vacating(api)
        assert what_if(scheduler, "higher", cpu="2", priority=20)["best"] == ["n1"]
        found = what_if(scheduler, "small", cpu="2", priority=5)
        (node,) = found["nodes"]
        assert (found["fits"], node["reasons"], node["keptFor"]) == (0, ["Insufficient cpu"], ["default/high"])
        (change,) = found["changes"]
        assert change["change"] == "wait until default/high, nominated to n1, runs there or goes elsewhere"
        assert "Insufficient cpu (kept for default/high)" in "\n".join(told(found))
        api.pod("small", cpu="2", priority=5)
        await settle()
        assert api.where("small") == "" and api.condition("small")["message"].startswith(found["message"])


async def test_a_pods_nominated_node_comes_before_a_better_one() -> None:
    async with scheduling(n1={"cpu": "4", "labels": {"name": "n1"}}, n2={"cpu": "2"}, n3={"cpu": "64"}) as (
        api,
        scheduler,
    ):
        await vacating(api)
        for nominated, best, runner_up in (("", "n3", "n2"), ("n2", "n2", "n3")):
            name = f"other-{nominated}"
            status = {"nominatedNodeName": nominated}
            found = what_if(scheduler, name, cpu="1", priority=5, status=status)
            assert (found["best"], found["runnerUp"]) == ([best], runner_up)
            api.pod(name, cpu="1", priority=5, status=status)
            await settle()
            assert api.where(name) == best


@pytest.mark.parametrize("pods", [1, 3])
async def test_of_a_pod_whose_node_is_gone_that_is_told(pods: int) -> None:
    """Its last pod, or one of several: the others stay counted, in their order."""
    async with scheduling(n1={"cpu": "4"}, gone={"cpu": "4"}) as (api, scheduler):
        for number in range(pods):
            api.pod(f"p{number}", cpu="1", nodeName="gone")
        api.pod("never", cpu="1", nodeName="was-never-there")
        await settle()
        assert "nodeGone" not in asked(scheduler, "p0")
        api.delete("nodes", "gone")
        await settle()
        for name, node in ((f"p{pods - 1}", "gone"), ("p0", "gone"), ("never", "was-never-there"), ("p0", "gone")):
            found = asked(scheduler, name)
            assert (found["node"], found["nodeGone"]) == (node, f"node {node} does not exist")
            assert (found["best"], found["of"]) == (["n1"], 1)
            assert _decided(found)[:2] == [f"default/{name} is on {node}", f"node {node} does not exist"]
        assert list(scheduler.columns.by_name["gone"].pods) == [f"uid-default-p{number}" for number in range(pods)]


async def test_of_many_nodes_that_are_as_good_as_many_are_named_as_are_listed() -> None:
    async with scheduling(**{f"n{number:02}": {"cpu": "4"} for number in range(20)}) as (api, scheduler):
        api.pod("p", cpu="1")
        await settle()
        found = asked(scheduler, "p", limit="6")
        assert (len(found["best"]), found["tied"], len(found["nodes"])) == (6, 20, 6)
        assert f"best (20): {', '.join(found['best'][:5])}" in told(found)
        assert len(asked(scheduler, "p")["best"]) == 20


async def test_what_a_pod_needs_is_read_before_the_answer() -> None:
    volume = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    async with scheduling(n1={"cpu": "4"}) as (api, scheduler):
        metadata = {"name": "c", "namespace": "default", "uid": "c", "annotations": {}}
        api.put("persistentvolumeclaims", {"metadata": metadata, "spec": {"volumeName": "v"}, "status": {}})
        with pytest.raises(StatusError, match=r"has not read .*persistentvolumeclaims.* yet: ask again"):
            what_if(scheduler, "p", **volume)
        await settle()
        assert "not found" not in json.dumps(what_if(scheduler, "p", **volume)["message"])


async def test_what_holds_a_pod_back_before_the_queue_is_told() -> None:
    async with scheduling(n1={"cpu": "4"}, n2={"cpu": "4"}) as (_, scheduler):
        found = what_if(scheduler, "gated", schedulingGates=[{"name": "later"}])
        held = "waiting for scheduling gates: [later]"
        assert found["heldBack"] == {"plugin": "SchedulingGates", "reason": held}
        assert told(found)[0] == f"held back by SchedulingGates: {held}"
        with pytest.raises(ValueError, match=r"its spec\.nodeName is n2: it goes there without a scheduler"):
            what_if(scheduler, "named", nodeName="n2")


async def test_scores_that_fail_before_they_are_given_rank_no_node() -> None:
    async with scheduling(n1={}, n2={}) as (api, scheduler):
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["not valid!"]}]}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
        api.pod("p", affinity={"nodeAffinity": preferred})
        await settle()
        found = asked(scheduler, "p")
        assert found["best"] == [] and 'running PreScore plugin "NodeAffinity"' in found["message"]
        assert api.condition("p")["message"] == found["message"]


class Tens:
    """Scores of single nodes, which others of the same pod scale."""

    scope = "NODE"

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 7 if node.name == "a" else 3

    def normalize_scores(self, state: Any, pod: Any, scores: Any) -> Any:
        return scores * 10


class Idle:
    """Scores of many nodes at once, all 0, which become 100."""

    scope = "CLUSTER"
    normalize = Normalize(reverse=True)

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0

    def score_nodes(self, state: Any, pod: Any, nodes: Any) -> None:
        return None


class Unlike:
    """With it no result is kept."""

    scope = "NODE"

    def sign_pod(self, pod: Any) -> None:
        return None

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None


class Passing:
    """An `Outside` with an extender that passes all nodes."""

    async def post(self, url: str, body: bytes, tls: Any, timeout_s: float) -> Answer:
        return Answer(200, json.dumps({"NodeNames": json.loads(body)["NodeNames"]}).encode())

    async def close(self) -> None: ...


@pytest.mark.parametrize("more", [(), (Unlike,)])
@pytest.mark.parametrize(("kind", "score"), [(Tens, 70), (Idle, 100)])
@pytest.mark.parametrize("extenders", [[], [{"urlPrefix": "http://a", "filterVerb": "f", "nodeCacheCapable": True}]])
async def test_recorded_scores_add_up_to_the_total(
    extenders: list[Any], kind: type, score: int, more: tuple[type, ...]
) -> None:
    plain = parse({"apiVersion": API_VERSION, "kind": KIND, "extenders": extenders})
    api = FakeApi()
    api.node("a")
    api.node("b")
    plugins = dict(zip(("Own", "More"), (kind, *more)))
    own = {name: OwnPlugin(name, lambda args, handle, name=name: Guarded(name, plugins[name]())) for name in plugins}
    config = with_own(plain, own)
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config, Passing())
    await scheduler.start()
    evaluator = scheduler.profiles["default-scheduler"].evaluator
    for name in ("p", "q", "r"):
        api.pod(name, cpu="1")
        await settle()
        found = scheduler.decisions.explain(f"uid-default-{name}", evaluator)
        assert found is not None and found.score == sum(given * weight for _, given, weight in found.scores)
        assert ("Own", score if kind is Idle or found.node == "a" else 30, 1) in found.scores
    await scheduler.stop()


async def test_extenders_that_a_pod_does_not_concern_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    managing = {"urlPrefix": "http://a", "filterVerb": "f", "managedResources": [{"name": "example.com/port"}]}
    api = FakeApi()
    api.node("a")
    config = parse({"apiVersion": API_VERSION, "kind": KIND, "extenders": [managing]})
    scheduler = Scheduler(api, ManualClock(), random.Random(3), config, Passing())
    await scheduler.start()
    assert what_if(scheduler, "plain", cpu="1")["extendersNotAsked"] == []
    port = [{"name": "c", "image": "i", "resources": {"requests": {"example.com/port": "1"}}}]
    with pytest.raises(StatusError, match="not read deviceclasses, resourceclaims, resourceslices yet: ask again"):
        what_if(scheduler, "p", containers=port)
    (classes,) = (each for each in scheduler.kinds.all() if each.resource.plural == "deviceclasses")
    classes.problem = "forbidden"
    with pytest.raises(StatusError, match=r"not read deviceclasses \(forbidden\), resourceclaims, .*: ask again"):
        what_if(scheduler, "p", containers=port)
    with monkeypatch.context() as patched:
        patched.setattr(classes, "has_synced", lambda: True)
        with pytest.raises(StatusError, match="not read resourceclaims, resourceslices yet: ask again"):
            what_if(scheduler, "p", containers=port)
    await settle()
    assert what_if(scheduler, "p", containers=port)["extendersNotAsked"] == ["http://a"]
    await scheduler.stop()


SAMPLED = SchedulerConfig(percentage_of_nodes_to_score=5)


@pytest.mark.parametrize(("nodes", "cpu", "said"), [(150, "1", True), (150, "3", False), (90, "1", False)])
async def test_a_best_node_that_an_attempt_may_not_see_is_told(nodes: int, cpu: str, said: bool) -> None:
    """100 fitting nodes end an attempt; a third of the nodes has room for 3 CPUs."""
    given = {f"n{number}": {"cpu": "4" if number % 3 == 0 else "2"} for number in range(nodes)}
    async with scheduling(SAMPLED, **given) as (_, scheduler):
        found = what_if(scheduler, "p", cpu=cpu)
        assert ("caveats" in found) is said
        assert any("once 100 nodes fit" in line for line in told(found)) is said


async def test_without_sampling_the_best_node_is_named_without_a_caveat() -> None:
    async with scheduling(**{f"n{number}": {"cpu": "2"} for number in range(150)}) as (_, scheduler):
        assert "caveats" not in what_if(scheduler, "p", cpu="1")


async def test_nodes_that_are_named_are_all_looked_at_and_have_no_caveat() -> None:
    given = {f"n{number}": {"cpu": "2"} for number in range(150)}
    named = {"key": "metadata.name", "operator": "In"}
    terms = [{"matchFields": [{**named, "values": [name]}]} for name in given]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    async with scheduling(SAMPLED, **given) as (_, scheduler):
        found = what_if(scheduler, "p", cpu="1", affinity=required)
        assert found["fits"] == 150 and "caveats" not in found


async def test_a_pod_of_an_extender_is_not_placed_in_rounds() -> None:
    extender = {"urlPrefix": "http://a", "filterVerb": "f", "nodeCacheCapable": True}
    profile = {"schedulerName": "flow", "plugins": {"multiPoint": {"enabled": [{"name": "FlowPlacement"}]}}}
    head = {"apiVersion": API_VERSION, "kind": KIND, "percentageOfNodesToScore": 5, "profiles": [profile]}
    for extenders, said in (([], "FlowPlacement"), ([extender], "once 100 nodes fit")):
        api = FakeApi()
        for number in range(150):
            api.node(f"n{number}")
        config = parse({**head, "extenders": extenders})
        scheduler = Scheduler(api, ManualClock(), random.Random(3), config, Passing())
        await scheduler.start()
        (caveat,) = what_if(scheduler, "p", cpu="1", schedulerName="flow")["caveats"]
        assert said in caveat
        await scheduler.stop()
