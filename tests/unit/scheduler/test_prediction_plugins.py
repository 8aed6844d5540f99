"""TargetLoadPacking and LoadVariationRiskBalancing by upstream's own test tables; overcommit by prediction by hand.

The tables are those of sigs.k8s.io/scheduler-plugins v0.33.5: targetloadpacking_test.go (TestTargetLoadPackingScoring),
loadvariationriskbalancing/analysis_test.go (TestComputeScore) and loadvariationriskbalancing_test.go (TestScore).
"""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, ProfileConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.scheduler.configuration.merging import PluginSet
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import CycleState, FitError, PluginError
from minikube_py.scheduler.objects import CPU, MEMORY, project_node, project_pod
from minikube_py.scheduler.prediction.overcommit import OvercommitByPrediction
from minikube_py.scheduler.prediction.trimaran import (
    LoadVariationRiskBalancing,
    TargetLoadPacking,
    risk_score,
    rounded,
    target_load_score,
)
from minikube_py.scheduler.prediction.usage import Meter
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.scheduler import Scheduler

MI = 1 << 20
SOURCE = """
class Told:
    amounts = {}
    asked = []
    def usage(self, pod, minute):
        self.asked.append((pod.uid, minute))
        found = self.amounts.get(pod.uid, {})
        return found(minute) if callable(found) else found
"""


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.minute = 1000.0

    def wall_s(self) -> float:
        return 60 * self.minute


class Stage:
    """Nodes and pods in memory, a source of usage that says what `amounts` does, and a clock."""

    def __init__(self, tmp_path: Path) -> None:
        path = tmp_path / "told.py"
        path.write_text(SOURCE)
        self.args = {"usage": f"{path}:Told"}
        self.cache, self.clock = Cache(), Hand()
        self.handle: Any = NoCluster(self.cache.columns)
        self.handle.clock = self.clock

    def node(self, name: str = "n", cpu: str = "1", memory: str = "1Gi", pods: str = "110") -> None:
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
        self.cache.put_node(
            project_node({"metadata": {"name": name, "uid": name}, "status": {"allocatable": allocatable}})
        )

    def pod(self, name: str, *containers: dict[str, Any], node: str = "", overhead: str = "") -> Any:
        spec: dict[str, Any] = {
            "containers": [{"name": f"c{i}", "resources": each} for i, each in enumerate(containers)]
        }
        if node:
            spec["nodeName"] = node
        if overhead:
            spec["overhead"] = {"cpu": overhead}
        pod = project_pod({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec})
        if node:
            self.cache.put_pod(pod)
        return pod


def raised(error: BaseException) -> Any:
    raise error


def told(plugin: Any) -> dict[str, Any]:
    amounts: dict[str, Any] = plugin.meter.source.amounts
    return amounts


def score(stage: Stage, plugin: Any, pod: Any, node: str = "n") -> int:
    """By both forms, which agree."""
    columns = stage.cache.columns
    info = columns.by_name[node]
    nodes = columns.some(np.array([info.slot]))
    one = plugin.score(CycleState(), pod, info)
    assert plugin.score_nodes(CycleState(), pod, nodes).tolist() == [one]
    return int(one)


def requests(cpu: str = "", memory: str = "", limit: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"requests": {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}}
    return {**found, "limits": {"cpu": limit}} if limit else found


# --- TargetLoadPacking -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load_milli", "containers", "expected"),
    [
        (0, (), 40),  # new node
        (500, (), 33),  # hot node: 10 above the target
        (300, (requests("1", limit="1"),), 0),  # excess utilization
    ],
)
def test_target_load_as_upstreams_table_has_it(tmp_path: Path, load_milli: int, containers: Any, expected: int) -> None:
    stage = Stage(tmp_path)
    stage.node()
    plugin = TargetLoadPacking(stage.args, stage.handle)
    stage.pod("there", node="n")
    told(plugin)["there"] = {CPU: load_milli}
    until_known(stage, plugin)
    assert score(stage, plugin, stage.pod("new", *containers)) == expected


def until_known(stage: Stage, plugin: Any) -> None:
    """Until pods that run have samples."""
    plugin.rows.all()
    stage.clock.minute += 10


@pytest.mark.parametrize(
    ("percent", "target", "expected"),
    [
        (0, 40, 40),
        (20, 40, 70),
        (40, 40, 100),
        (40.1, 40, 40),
        (70, 40, 20),
        (100, 40, 0),
        (100.1, 40, 0),
        (50, 99, 100),
    ],
)
def test_the_score_rises_to_the_target_and_falls_beyond(percent: float, target: float, expected: int) -> None:
    assert target_load_score(percent, target) == expected


def test_a_pod_that_nobody_saw_run_counts_as_limits_requests_or_the_default(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node(cpu="100")
    plugin = TargetLoadPacking(stage.args, stage.handle)
    pod = stage.pod("p", requests("1", limit="2"), requests("301m"), {}, overhead="250m")
    assert plugin.expected(pod) == 2000 + rounded(301 * 1.5) + 1000 + 250
    own = TargetLoadPacking(
        {**stage.args, "defaultRequestsMultiplier": "2", "defaultRequests": {"cpu": "100m"}}, stage.handle
    )
    assert own.expected(pod) == 2000 + 602 + 100 + 250
    assert TargetLoadPacking({**stage.args, "defaultRequestsMultiplier": "0"}, stage.handle).expected(pod) == 3250
    assert TargetLoadPacking({**stage.args, "targetUtilization": 100}, stage.handle).target == 100
    # One that was bound a moment ago: 10,000 of 100,000, then what it uses.
    stage.pod("bound", requests("10", limit="10"), node="n")
    empty = stage.pod("empty")
    assert score(stage, plugin, empty) == target_load_score(10, 40) == 55
    told(plugin)["bound"] = {CPU: 20_000}
    stage.clock.minute += 10
    assert score(stage, plugin, empty) == target_load_score(20, 40) == 70


def test_a_node_whose_usage_is_not_known_scores_least_and_an_empty_one_is_known(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for name in ("dark", "part", "idle"):
        stage.node(name, cpu="10")
    for name, node in (("a", "dark"), ("b", "part"), ("c", "part")):
        stage.pod(name, requests("1", limit="1"), node=node)
    plugins = [kind(stage.args, stage.handle) for kind in (TargetLoadPacking, LoadVariationRiskBalancing)]
    new = stage.pod("new")
    for plugin in plugins:
        told(plugin).update({"a": None, "b": None, "c": {CPU: 1000}})
        plugin.rows.all()
    packing, risk = plugins
    assert [score(stage, packing, new, node) for node in ("dark", "part", "idle")] == [55, 70, 40], "bound a moment ago"
    assert [score(stage, risk, new, node) for node in ("dark", "part", "idle")] == [95, 90, 100], "a moment ago, too"
    stage.clock.minute += 10
    assert [score(stage, packing, new, node) for node in ("dark", "part", "idle")] == [0, 70, 40]
    assert [score(stage, risk, new, node) for node in ("dark", "part", "idle")] == [0, 90, 100]


# --- LoadVariationRiskBalancing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "request_", "mean", "deviation", "margin", "power", "expected"),
    [
        (100, 10, 40, 36, 1, 1, 57),
        (0, 10, 40, 36, 1, 2, 0),
        (100, 10, -40, 36, 1, 2, 65),
        (100, 10, 200, 36, 1, 2, 20),
        (100, 10, 40, -36, 1, 2, 75),
        (100, 10, 40, 120, 1, 2, 25),
        (100, 10, 40, 36, -1, 1, 75),
        (100, 10, 40, 36, 1, -1, 57),
        (100, 10, 40, 36, 1, 0, 75),
    ],
)
def test_risk_as_upstreams_table_has_it(
    capacity: float, request_: float, mean: float, deviation: float, margin: float, power: float, expected: int
) -> None:
    assert rounded(risk_score(capacity, request_, mean, deviation, margin, power)) == expected


@pytest.mark.parametrize(
    ("pod", "cpu", "memory", "expected"),
    [
        ((), (50, 0), (0, 0), 75),  # new node
        ((), (100, 0), (0, 0), 50),  # hot node
        ((requests("200m", "256Mi"),), (30, 16), (0, 0), 67),  # average and stDev metrics
        ((requests("100m", "512Mi"),), (40, 16), (50, 10), 45),  # CPU and Memory metrics
        ((requests("100m", "512Mi"),), (80, 20), (25, 15), 45),  # pick worst case: CPU or Memory
    ],
)
def test_risk_of_a_node_as_upstreams_table_has_it(
    tmp_path: Path, pod: Any, cpu: tuple[int, int], memory: tuple[int, int], expected: int
) -> None:
    """Samples of mean + deviation, then mean - deviation; the worse resource counts."""
    stage = Stage(tmp_path)
    stage.node()
    plugin = LoadVariationRiskBalancing(stage.args, stage.handle)
    plugin.meter.keep = 2

    def usage(minute: int) -> dict[str, float]:
        sign = 1 if minute // 5 % 2 else -1
        return {CPU: 10.0 * (cpu[0] + sign * cpu[1]), MEMORY: 1024 * MI / 100 * (memory[0] + sign * memory[1])}

    stage.pod("there", node="n")
    told(plugin)["there"] = usage
    plugin.rows.all()
    stage.clock.minute += 15
    assert score(stage, plugin, stage.pod("new", *pod)) == expected


@pytest.mark.parametrize(
    ("more", "cpu", "memory"),
    [
        ({}, 300, 300),
        ({"initContainers": [("1", "Never")]}, 1000, 300),
        ({"initContainers": [("200m", "Always")]}, 300, 300),
        ({"initContainers": [("400m", "Always"), ("50m", "Never")], "overhead": {"cpu": "7m"}}, 407, 300),
        ({"resources": {"requests": {"cpu": "900m", "memory": "900Mi"}}}, 300, 300),
    ],
)
def test_risk_counts_requests_as_upstream_does(tmp_path: Path, more: dict[str, Any], cpu: int, memory: int) -> None:
    """Sidecars are init containers like others, and resources at pod level are no matter."""
    stage = Stage(tmp_path)
    stage.node(cpu="10", memory="10Gi")
    plugin = LoadVariationRiskBalancing(stage.args, stage.handle)
    inits = [
        {"name": f"i{at}", "restartPolicy": policy, "resources": {"requests": {"cpu": milli}}}
        for at, (milli, policy) in enumerate(more.get("initContainers", ()))
    ]
    two = [{"name": f"c{at}", "resources": requests("150m", "150Mi")} for at in range(2)]
    spec = {**more, "containers": two, "initContainers": inits}
    pod = project_pod({"metadata": {"name": "p", "namespace": "d", "uid": "p"}, "spec": spec})
    plain = stage.pod("plain", requests(f"{cpu}m", f"{memory}Mi"))
    for mean in (0.0, 9000.0):
        rows = np.array([[0.0, mean, 0.0, 10240.0 * MI - mean * MI, 0.0]])
        capacities = {CPU: np.array([10_000]), MEMORY: np.array([10 * 1024 * MI])}
        assert plugin.scores(pod, rows, capacities) == plugin.scores(plain, rows, capacities)
    counted = pod.spec.cpu.trimaran or (pod.spec.request(CPU), pod.spec.request(MEMORY))
    assert counted == (cpu, memory * MI)


# --- overcommit ------------------------------------------------------------------------------------------------------


def overcommit(stage: Stage, **args: Any) -> Any:
    given = {"predictor": "n-sigma", "predictorArgs": {"sigmas": 0, "samples": 2}, **args}
    return OvercommitByPrediction({**stage.args, **given}, stage.handle)


def refused(stage: Stage, plugin: Any, pod: Any, node: str = "n") -> list[str]:
    """By both forms, which agree."""
    info = stage.cache.columns.by_name[node]
    nodes = stage.cache.columns.some(np.array([info.slot]))
    status = plugin.filter(CycleState(), pod, info)
    assert plugin.filter_nodes(CycleState(), pod, nodes).tolist() == [status is None]
    if status is None:
        return []
    codes, meaning = plugin.reject_codes(CycleState(), pod, nodes)
    assert meaning(int(codes[0])) == status
    return [*status.reasons, status.code.name]


def test_many_requests_are_told_apart(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node(cpu="4", memory="4Gi", pods="3")
    names = [f"example.com/r{i}" for i in range(70)]
    many = stage.pod("many", {"requests": dict.fromkeys(names, "1")})
    lacking = [f"Insufficient {name}" for name in names]
    assert refused(stage, overcommit(stage), many) == [*lacking, "UNSCHEDULABLE_AND_UNRESOLVABLE"]


def test_a_node_is_as_full_as_is_predicted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node(cpu="4", memory="4Gi", pods="3")
    plugin = overcommit(stage)
    stage.pod("there", requests("4", "2Gi"), node="n")
    two = stage.pod("two", requests("2", "1Gi"))
    # Nobody knows it yet: it counts what it reserves.
    assert refused(stage, plugin, two) == ["Insufficient cpu", "UNSCHEDULABLE"]
    told(plugin)["there"] = {CPU: 2000, MEMORY: 1024 * MI}
    stage.clock.minute += 10
    assert refused(stage, plugin, two) == ["Insufficient cpu", "UNSCHEDULABLE"], "one sample is too few"
    stage.clock.minute += 5
    assert refused(stage, plugin, two) == []
    assert score(stage, plugin, two) == 0
    assert score(stage, plugin, stage.pod("one", requests("1", "1Gi"))) == 25
    assert refused(stage, plugin, stage.pod("x", requests("2001m", "5Gi"))) == [
        "Insufficient cpu", "Insufficient memory", "UNSCHEDULABLE_AND_UNRESOLVABLE",
    ]  # fmt: skip
    assert refused(stage, plugin, stage.pod("y", {"requests": {"example.com/gpu": "1"}})) == [
        "Insufficient example.com/gpu", "UNSCHEDULABLE_AND_UNRESOLVABLE",
    ]  # fmt: skip
    # A pod that arrived counts what it reserves beside what is predicted of the other.
    stage.pod("late", requests("1", "1Gi"), node="n")
    assert refused(stage, plugin, two) == ["Insufficient cpu", "UNSCHEDULABLE"]
    assert refused(stage, plugin, stage.pod("one", requests("1", "1Gi"))) == []
    stage.pod("third", node="n")
    assert refused(stage, plugin, stage.pod("none")) == ["Too many pods", "UNSCHEDULABLE"]


def test_only_cpu_may_be_predicted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node(cpu="4", memory="4Gi")
    plugin = overcommit(stage, resources=["cpu"])
    stage.pod("there", requests("4", "4Gi"), node="n")
    until_known(stage, plugin)
    stage.clock.minute += 5
    assert refused(stage, plugin, stage.pod("new", requests("1", "1Gi"))) == ["Insufficient memory", "UNSCHEDULABLE"]


def test_samples_are_means_of_five_minutes_from_when_a_pod_is_first_seen(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node()
    plugin = overcommit(stage, predictorArgs={"samples": 3})
    meter: Meter = plugin.meter
    pod = stage.pod("there", requests("1"), node="n")
    told(plugin)["there"] = lambda minute: {CPU: float(minute)} if minute != 1022 else None
    stage.clock.minute = 1002
    assert meter.past([pod], CPU).samples == 0
    stage.clock.minute = 1019.9
    assert meter.past([pod], CPU).usage.tolist() == [[1007.0, 1012.0]]
    assert sorted(minute for _, minute in meter.source.asked) == list(range(1005, 1015))  # type: ignore[attr-defined]
    stage.clock.minute = 1025
    np.testing.assert_array_equal(meter.past([pod], CPU).usage, [[1012.0, 1017.0, np.nan]])
    # What nobody asked for in a whole step is forgotten; a gap is read no further back than is kept.
    stage.clock.minute = 5000
    assert meter.past([pod], CPU).usage.tolist() == [[4987.0, 4992.0, 4997.0]]
    stage.clock.minute = 5005
    meter.past([], CPU)
    stage.clock.minute = 5010
    meter.past([stage.pod("other")], CPU)
    stage.clock.minute = 5015
    meter.step()
    assert meter.past([pod], CPU).samples == 0


@pytest.mark.parametrize("fails", ["source", "predictor"])
def test_the_pods_after_one_that_fails_keep_their_samples(tmp_path: Path, fails: str) -> None:
    stage = Stage(tmp_path)
    plugin = overcommit(stage, predictorArgs={"samples": 4})
    for name in "abc":
        stage.node(name)
        stage.pod(f"on-{name}", requests("1"), node=name)
    amounts, peak = told(plugin), plugin.predictor.peak
    amounts.update({f"on-{name}": {CPU: 100} for name in "abc"})
    for _ in range(6):
        plugin.rows.all()
        stage.clock.minute += 5

    def failing(steps: int) -> list[int]:
        """How many pods have samples, by step."""
        kept = []
        if fails == "source":
            amounts["on-a"] = {CPU: math.nan}
        else:
            plugin.predictor.peak = lambda past: 1 // 0
        for _ in range(steps):
            with pytest.raises(PluginError, match=r"on-a: cpu is nan|peak of cpu of node a: ZeroDivisionError"):
                plugin.rows.all()
            kept.append(len(plugin.meter._kept))
            stage.clock.minute += 5
        amounts["on-a"] = {CPU: 100}
        plugin.predictor.peak = peak
        return kept

    assert failing(2) == [3, 3]
    assert plugin.rows.all()[:3, 0].tolist() == [100, 100, 100]
    # No longer than samples count: those that go meanwhile are not kept forever.
    stage.clock.minute += 5
    assert failing(7) == [3, 3, 3, 1, 1, 1, 1]


# --- lies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("return float('nan')", "predictor Mine: peak of cpu of node n is nan; a number not below 0 is expected"),
        ("return -5", "predictor Mine: peak of cpu of node n is -5; a number not below 0 is expected"),
        ("raise KeyError('lost')", "predictor Mine: peak of cpu of node n: KeyError: 'lost' (mine.py, line 3)"),
        ("raise SystemExit(3)", "predictor Mine: peak of cpu of node n: SystemExit: 3 (mine.py, line 3)"),
        ("return None", "predictor Mine: peak of cpu of node n is a NoneType; a number not below 0 is expected"),
    ],
)
def test_a_predictor_that_lies_is_an_error_of_the_pod_until_it_is_right(tmp_path: Path, body: str, wrong: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(f"class Mine:\n    def peak(self, past):\n        {body}\n")
    stage = Stage(tmp_path)
    stage.node()
    plugin = overcommit(stage, predictor=f"{mine}:Mine", predictorArgs={})
    info = stage.cache.columns.by_name["n"]
    for _ in range(2):
        with pytest.raises(PluginError) as told_:
            plugin.filter(CycleState(), stage.pod("p"), info)
        assert str(told_.value) == wrong
    plugin.predictor = plugin.predictor._replace(peak=lambda past: 0.0)
    assert plugin.filter(CycleState(), stage.pod("p"), info) is None


@pytest.mark.parametrize(
    ("usage", "wrong"),
    [
        ({CPU: float("nan")}, "cpu is nan; a number not below 0 is expected"),
        ({MEMORY: -1}, "memory is -1; a number not below 0 is expected"),
        (lambda minute: 1 // 0, "ZeroDivisionError: integer division or modulo by zero"),
        (lambda minute: raised(asyncio.CancelledError()), "CancelledError"),
        (lambda minute: raised(SystemExit(3)), "SystemExit: 3"),
        (lambda minute: raised(BaseExceptionGroup("several", [SystemExit(3)])), "BaseExceptionGroup: several"),
        ({CPU: "much"}, "ValueError: could not convert string to float: 'much'"),
    ],
)
def test_a_source_that_lies_is_named_with_the_pod(tmp_path: Path, usage: Any, wrong: str) -> None:
    stage = Stage(tmp_path)
    stage.node()
    stage.pod("there", node="n")
    plugin = TargetLoadPacking(stage.args, stage.handle)
    told(plugin)["there"] = usage
    plugin.rows.all()
    stage.clock.minute += 10
    with pytest.raises(PluginError, match=f"source of usage Told: pod d/there: {wrong}"):
        plugin.score(CycleState(), stage.pod("p"), stage.cache.columns.by_name["n"])


@pytest.mark.parametrize(
    ("kind", "args", "wrong"),
    [
        (TargetLoadPacking, {"usage": None, "usageArgs": {"a": 1}}, "has usageArgs, and no usage that takes them"),
        *(
            (kind, {"usage": None, "metricProvider": provider}, wrong)
            for kind in (TargetLoadPacking, OvercommitByPrediction)
            for provider, wrong in (
                ({"type": "Prometheus"}, "type.*: Invalid value: .Prometheus.: must be one of KubernetesMetricsServer"),
                ({"address": "http://x"}, "address.*must be absent: KubernetesMetricsServer takes none"),
                ({"kind": "x"}, "kind"),
                ("x", "metricProvider: Invalid value: .x."),
            )
        ),
        (TargetLoadPacking, {"metricProvider": {}}, "has both usage and metricProvider"),
        (TargetLoadPacking, {"watcherAddress": "http://x"}, "watcherAddress is not supported; name a source"),
        (TargetLoadPacking, {"targetUtilization": 101}, "targetUtilization is 101; at most 100 is expected"),
        (TargetLoadPacking, {"targetUtilization": 40.5}, "targetUtilization: Invalid value: 40.5: must be a whole"),
        (TargetLoadPacking, {"defaultRequestsMultiplier": 1.5}, "Multiplier: Invalid value: 1.5: must be a text of"),
        (TargetLoadPacking, {"defaultRequestsMultiplier": ""}, "Multiplier: Invalid value: \"\": must be a text of"),
        (TargetLoadPacking, {"targetUtilization": "much"}, "targetUtilization: Invalid value: .much.: must"),
        (TargetLoadPacking, {"defaultRequestsMultiplier": "x"}, "Multiplier: Invalid value: .x.: must"),
        *(
            (TargetLoadPacking, {"defaultRequestsMultiplier": each}, f"Multiplier: Invalid value: .{each}.*: must be")
            for each in ("nan", "inf", "-3")
        ),
        (LoadVariationRiskBalancing, {"margin": 3}, "has no argument 'margin'; it has: safeVarianceMargin, "),
        (OvercommitByPrediction, {"predictor": "nobody"}, "there is no predictor 'nobody'"),
        (OvercommitByPrediction, {"predictor": "oracle"}, "oracle looks ahead; Told does not know the future"),
        *(
            (OvercommitByPrediction, {"resources": each}, "resources.*: Invalid value: .*: must be (a list|one of cpu)")
            for each in (["disk"], [], 5, [["cpu"]], "cpu", {"cpu": 1})
        ),
        (OvercommitByPrediction, {"usage": "nowhere.py:X"}, "there is no file nowhere.py"),
        (OvercommitByPrediction, {"usageArgs": {"a": 1}}, "source of usage .*told.py:Told: TypeError"),
        (OvercommitByPrediction, {"usageArgs": 3}, "usageArgs: Invalid value: 3: must be a mapping"),
    ],
)
def test_args_that_cannot_be_are_refused(tmp_path: Path, kind: Any, args: dict[str, Any], wrong: str) -> None:
    stage = Stage(tmp_path)
    with pytest.raises(ConfigError, match=wrong):
        kind({**stage.args, **args}, stage.handle)


def test_in_a_profile_a_lie_ends_one_pod_and_a_full_cluster_says_why(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.node("a", cpu="2")
    stage.node("b", cpu="4")
    plugins = {
        "multiPoint": PluginSet((("PrioritySort", 0), ("DefaultBinder", 0), ("OvercommitByPrediction", 0)), ("*",))
    }
    args = {**stage.args, "predictor": "limits"}
    profile = Profile(ProfileConfig(plugins=plugins, plugin_args={"OvercommitByPrediction": args}), stage.handle, {})
    evaluator = Evaluator(profile, stage.cache.columns, random.Random(0), 0)
    assert evaluator.choose(stage.pod("p", requests("1"))).node.name == "b", "the emptier one"
    with pytest.raises(FitError, match="0/2 nodes are available: 2 Insufficient cpu"):
        evaluator.choose(stage.pod("large", requests("5")))
    plugin: Any = profile.plugin("OvercommitByPrediction")
    plugin.predictor.peak = lambda past: float("nan")
    stage.pod("there", requests("1"), node="b")
    with pytest.raises(PluginError, match="predictor limits: peak of cpu of node b is nan"):
        evaluator.choose(stage.pod("p", requests("1")))


TWO_PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: believer
  plugins:
    multiPoint: {{enabled: [{{name: OvercommitByPrediction}}], disabled: [{{name: NodeResourcesFit}}]}}
  pluginConfig:
  - name: OvercommitByPrediction
    args: {{predictor: "{predictor}", usage: "{usage}"}}
"""


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("return float('nan')", "is nan; a number not below 0 is expected"),
        ("return -1.0", "is -1; a number not below 0 is expected"),
        ("raise OSError('no model')", ": OSError: no model (lying.py, line 3)"),
        ("raise SystemExit(3)", ": SystemExit: 3 (lying.py, line 3)"),
        ("raise type('Panic', (BaseException,), {})", ": Panic (lying.py, line 3)"),
        ("raise __import__('asyncio').CancelledError", ": CancelledError (lying.py, line 3)"),
        ("raise GeneratorExit", ": GeneratorExit (lying.py, line 3)"),
        ("return 10**400", ": OverflowError: int too large to convert to float (predictor.py"),
        ("return [1.0]", "is a list; a number not below 0 is expected"),
        ("return past.limit", ""),
    ],
)
async def test_a_lie_leaves_pods_pending_and_all_else_running(tmp_path: Path, body: str, wrong: str) -> None:
    (tmp_path / "lying.py").write_text(f"class Lying:\n    def peak(self, past):\n        {body}\n")
    (tmp_path / "told.py").write_text(SOURCE)
    config = tmp_path / "config.yaml"
    config.write_text(TWO_PROFILES.format(predictor=f"{tmp_path}/lying.py:Lying", usage=f"{tmp_path}/told.py:Told"))
    api = FakeApi()
    api.node("n")
    scheduler = Scheduler(api, ManualClock(), random.Random(3), read_scheduler(ChosenScheduler(config, ())))
    await scheduler.start()
    try:
        api.pod("theirs", cpu="1", schedulerName="believer")
        api.pod("ours", cpu="1")
        await settle()
        assert api.where("ours") == "n"
        assert api.where("theirs") == ("" if wrong else "n")
        if wrong:
            told_ = api.condition("theirs")
            assert told_["reason"] == "SchedulerError"
            assert told_["message"].startswith("predictor Lying: peak of cpu of node n")
            assert wrong in told_["message"]
        assert scheduler.failure is None
    finally:
        await scheduler.stop()
