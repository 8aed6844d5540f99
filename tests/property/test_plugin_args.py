"""Arguments of every plugin of our own, at the edges of every type: either refused in one line, or the plugin works."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from minikube_py.lab.plugins.drawn import Words, drawn_case
from minikube_py.lab.plugins.model_laws import Subject, World
from minikube_py.lab.trace import TraceNode
from minikube_py.scheduler import registry
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, load
from minikube_py.scheduler.configuration.checking import NoCluster, checked
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.flow.models import MODELS
from minikube_py.scheduler.framework import FitError
from minikube_py.scheduler.objects import project_node, project_pod
from minikube_py.scheduler.packing.fragmentation import Shape
from minikube_py.scheduler.packing.policies import POLICIES
from minikube_py.scheduler.prediction.predictors import PREDICTORS
from minikube_py.scheduler.profile import Profile
from minikube_py.studies.packing.arrivals import Arrival
from minikube_py.studies.packing.replay import Placing

Path_ = tuple[str | int, ...]
EDGES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 5, 0.5, 1.9, -0.0, float("nan"), float("inf"), float("-inf"), 1e20, 1e308,
    2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**20, 10**400, "", "5", "nan", "G2", "cpu", "a\n b", "x" * 5000,
    [], [5], [None], ["cpu"], [[]], [{}], list(range(2000)), {}, {"a": 5}, {"5": None}, {5: 5},
)  # fmt: skip
SOURCE = """
class Source:
    def __init__(self, level=1.0):
        self.level = level
    def usage(self, pod, minute):
        return {"cpu": 100.0, "memory": 1e6}
"""
TYPICAL = {"cpuMilli": 1000, "gpuMilli": 500, "gpus": 1, "models": ["G2"], "weight": 3}
PREDICTION: Mapping[str, dict[str, Any]] = {
    "TargetLoadPacking": {"targetUtilization": 50, "defaultRequests": {"cpu": "1"}, "defaultRequestsMultiplier": "1.5"},
    "LoadVariationRiskBalancing": {"safeVarianceMargin": 1, "safeVarianceSensitivity": 2},
    "OvercommitByPrediction": {"predictor": "n-sigma", "predictorArgs": {}, "resources": ["cpu", "memory"]},
}
MODEL_ARGS: Mapping[str, dict[str, Any]] = {
    "ELECTRICITY": {"centsPerKwh": {"a": 20.5}},
    "QUINCY": {"inputs": {"i": {"gib": 8, "on": {"node-1": 8}}}},
    "QUINCY_INTERFERENCE": {"inputs": {"i": {"gib": 8, "on": {"node-1": 8}}}},
    "COCO": {"resources": ["example.com/disk"]},
    "WHARE": {
        "samples": [
            {"app": "a", "machineType": "t", "coRunners": [0, 0, 0, 0, 0], "runtimeSeconds": 5, "instructions": 10**9}
        ]
    },
}
PREDICTOR_ARGS: Mapping[str, dict[str, Any]] = {
    "max": {"of": ["limits", {"predictor": "ewma", "args": {"alpha": 0.5}}]},
}
FLOW = {"costModel": "CPU_MEM", "modelArgs": {}, "solver": "numpy", "maxPods": 5, "maxArcs": 5, "retrySeconds": 1,
        "preemption": True}  # fmt: skip


def changed(args: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """`args` with one place replaced, by each edge, and one more key in each mapping."""
    for edge in EDGES:
        yield at, edge
    if isinstance(args, dict):
        yield at, {**args, "misspelt": 1}
    parts = args.items() if isinstance(args, dict) else enumerate(args) if isinstance(args, list) else ()
    for key, part in parts:
        for path, value in changed(part, (*at, key)):
            found = deepcopy(args)
            found[key] = value
            yield path, found


def whole_file(plugin: str, args: Any) -> bytes:
    """YAML, which has NaN and infinities."""
    profile = {
        "plugins": {"multiPoint": {"enabled": [{"name": plugin}]}},
        "pluginConfig": [{"name": plugin, "args": args}],
    }
    text = json.dumps(
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    )
    for ours, yaml in (("-Infinity", "-.inf"), ("Infinity", ".inf"), ("NaN", ".nan")):
        text = text.replace(f" {ours}", f" {yaml}").replace(f"[{ours}", f"[{yaml}")
    return text.encode()


def refused_in_one_line(plugin: str, args: Any) -> bool:
    """Of a whole configuration, as `up`, `scheduler`, `compare` and `plugin check` read it."""
    try:
        checked(load(whole_file(plugin, args)))
    except ConfigError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000, str(error)[:300]
        return True
    return False


def judged(plugin: str, args: Mapping[str, Any], use: Any) -> None:
    refused = used = 0
    for path, each in changed(dict(args)):
        try:
            if refused_in_one_line(plugin, each):
                refused += 1
            else:
                use(load(whole_file(plugin, each)).profiles[0].plugin_args.get(plugin, {}))
                used += 1
        except (AssertionError, Exception) as error:
            raise AssertionError(f"{plugin}, {path}: {each!r}"[:400]) from error
    assert refused and used


def test_all_plugins_of_our_own_are_judged() -> None:
    ours = set(registry.BUILT_IN) - set(registry.UPSTREAM_POINTS)
    assert ours == {*(each.name for each in POLICIES.values()), *PREDICTION, "FlowPlacement"}


@pytest.mark.parametrize("policy", POLICIES)
def test_gpu_policies(policy: str) -> None:
    kind = POLICIES[policy]
    args: dict[str, Any] = {"resource": "openb.io/gpu-milli", "modelLabel": "openb.io/gpu-model"}
    if "typicalPods" in kind.known:
        args["typicalPods"] = [TYPICAL]
    nodes = [TraceNode("a", 4000, 8192, 2, "G2"), TraceNode("b", 8000, 8192, 64, "T4")]

    def use(given: dict[str, Any]) -> None:
        placing = Placing(nodes, {(Shape(1000, 500, 1), 64): 1}, policy, 1, given)
        placed = [placing.place(Arrival(shape, 64))[0] for shape in (Shape(1000, 500, 1), Shape(1000, 1000, 2))]
        assert all(placed) or given.get("resource", args["resource"]) != args["resource"]

    judged(kind.name, args, use)


@pytest.mark.parametrize("model", MODELS)
def test_cost_models(model: str) -> None:
    kind = MODELS[model]
    case = drawn_case(random.Random(3), Words())

    def use(args: dict[str, Any]) -> None:
        World(Subject(model, args.get("modelArgs") or {}, {}), case).graph()

    usual = json.loads(json.dumps({**kind.defaults, **MODEL_ARGS.get(model, {})}))
    judged("FlowPlacement", {"costModel": model, "modelArgs": usual}, use)


def test_flow_placement() -> None:
    judged("FlowPlacement", FLOW, lambda args: None)


@pytest.mark.parametrize("plugin", PREDICTION)
def test_prediction_plugins(plugin: str, tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    args = {**PREDICTION[plugin], "usage": f"{path}:Source", "usageArgs": {"level": 5}}
    judged(plugin, args, lambda given: used(plugin, given))


@pytest.mark.parametrize("predictor", [name for name in PREDICTORS if name != "oracle"])
def test_predictors(predictor: str, tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    usual = json.loads(json.dumps({**PREDICTORS[predictor].defaults, **PREDICTOR_ARGS.get(predictor, {})}))
    args = {"usage": f"{path}:Source", "predictor": predictor, "predictorArgs": usual}
    judged("OvercommitByPrediction", args, lambda given: used("OvercommitByPrediction", given))


def used(plugin: str, args: Mapping[str, Any]) -> None:
    """Decides for two pods."""
    cache = Cache()
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    for name in "ab":
        cache.put_node(
            project_node({"metadata": {"name": name, "uid": name}, "status": {"allocatable": allocatable}})
        )
    handle: Any = NoCluster(cache.columns)
    config = load(whole_file(plugin, args))
    profile = Profile(config.profiles[0], handle)
    evaluator = Evaluator(profile, cache.columns, random.Random(0), 100)
    for name in ("p", "q"):
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        pod = project_pod(
            {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"containers": containers}}
        )
        try:
            cache.assume(pod, evaluator.choose(pod).node.name)
        except FitError:
            pass
