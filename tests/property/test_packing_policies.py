"""GPU policies against the formulas read plainly, node by node and device by device; no device is promised twice."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_reference import Lent

from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, PluginSet, ProfileConfig, load
from minikube_py.scheduler.configuration.checking import checked
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.framework import Code, CycleState, FitError
from minikube_py.scheduler.objects import PodInfo, project_node, project_pod
from minikube_py.scheduler.packing.devices import DEVICES_MAX
from minikube_py.scheduler.packing.fragmentation import Fragmentation, Shape, typical
from minikube_py.scheduler.packing.policies import BEYOND, GPU_RESOURCE, MODEL_LABEL, POLICIES
from minikube_py.scheduler.packing.worth import Worth
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.registry import BUILT_IN

MODELS = ("", "T4", "A10")
MILLIS = st.sampled_from((1, 250, 499, 500, 501, 999, 1000))
CPUS = st.sampled_from((0, 1, 100, 3999, 4000, 4001, 64000))
LEFT = st.lists(st.sampled_from((0, 1, 249, 250, 500, 999, 1000)), max_size=4)
SHAPES = st.builds(
    lambda cpu, milli, gpus, models: Shape(cpu, milli if gpus == 1 else 1000 if gpus else 0, gpus, models),
    CPUS,
    MILLIS,
    st.integers(0, 4),
    st.sampled_from(((), ("T4",), ("A10", "T4"), ("G3",))),
)
WEIGHTS = st.dictionaries(SHAPES, st.integers(1, 9), min_size=1, max_size=6)

BY_LOSS = ("fgd", "prices")


def lost(weights: Mapping[Shape, int], cpu: int, model: str, left: Sequence[int]) -> int:
    """Weng et al., section 4, with weights for shares: integers."""
    total = 0
    for shape, weight in weights.items():
        fits = cpu >= shape.cpu_milli and sum(have >= shape.gpu_milli for have in left) >= shape.gpus
        fits &= not shape.models or model in shape.models
        if not shape.gpus or not fits:
            total += weight * sum(left)
        else:
            total += weight * sum(have for have in left if have < shape.gpu_milli)
    return total


@given(WEIGHTS, st.lists(st.tuples(CPUS, st.sampled_from(MODELS), LEFT), min_size=1, max_size=5))
def test_fragmentation_of_columns_is_that_of_the_definition(
    weights: Mapping[Shape, int], nodes: Sequence[tuple[int, str, Sequence[int]]]
) -> None:
    plain = sum(lost(weights, *node) for node in nodes) / sum(weights.values())
    assert Fragmentation(weights).share(nodes) == pytest.approx(plain, rel=1e-12, abs=0)


@given(st.dictionaries(SHAPES, st.integers(1, 50), min_size=1), st.floats(0, 1))
def test_typical_pods_are_the_fewest_that_come_to_the_share(counts: Mapping[Shape, int], share: float) -> None:
    found = typical(counts, share)
    wanted = share * sum(counts.values())
    assert sum(found.values()) >= wanted
    assert not found or sum(list(found.values())[:-1]) < wanted
    rarer = [count for shape, count in counts.items() if shape not in found]
    assert all(count >= max(rarer, default=0) for count in found.values())


# --- the six scores, read plainly ------------------------------------------------------------------------------------


def after(left: Sequence[int], wanted: int, device: int | None = None) -> list[int]:
    now = list(left)
    if device is not None:
        now[device] -= wanted
        return now
    for i in [i for i, have in enumerate(now) if have == 1000][: wanted // 1000]:
        now[i] = 0
    return now


class Loss:
    """Of one node, from nothing. `prices`: by `Worth`, which has judges of its own."""

    def __init__(self, policy: str, weights: Mapping[Shape, int]) -> None:
        self._weights, self._worth = weights, Worth(weights) if policy == "prices" else None
        self.unit = sum(weights.values()) if self._worth is None else self._worth.weight

    def of(self, cpu: int, model: str, left: Sequence[int]) -> int:
        if self._worth is None:
            return lost(self._weights, cpu, model, left)
        row = np.array([left], np.int64).reshape(1, -1)
        none = np.zeros(1, np.int64)
        return int(self._worth.lost(np.array([cpu]), none, row.sum(axis=1), *self._worth.of_devices(row))[0])


def plain_fgd(
    loss: Loss,
    cpu: int,
    wanted: int,
    free: int,
    model: str,
    left: Sequence[int],
) -> tuple[int, int | None]:
    before = loss.of(free, model, left)
    sharing = 0 < wanted < 1000
    best: tuple[int, int | None] = (0, None)
    for device in [i for i, have in enumerate(left) if have >= wanted] if sharing else [None]:
        gained = before - loss.of(free - cpu, model, after(left, wanted, device))
        score = int(100 * (1 / (1 + math.exp(-gained / (1000 * loss.unit)))))
        if score > best[0] or best[1] is None:
            best = score, device
    return best


def plain_score(policy: str, world: World, pod: PodInfo, name: str) -> int:
    cpu, wanted = pod.spec.request("cpu"), pod.spec.request(GPU_RESOURCE)
    left, free = world.left(name), world.free(name)
    whole, idle = left.count(1000), sum(left)
    if policy in BY_LOSS:
        return plain_fgd(world.loss, cpu, wanted, free, world.model(name), left)[0]
    if policy == "bestfit":
        score = (free - cpu) / 128000 * 0.5 + (idle - wanted) / 8000 * 0.5
        return max(0, min(100, int((1 - score) * 100)))
    if policy == "dotprod":
        return max(0, int(100 * (1 - (free / 128000 * cpu / 128000 + idle / 8000 * wanted / 8000) / 2)))
    if not wanted:
        return 0
    if policy == "packing":
        if whole == len(left):
            return max(33 - whole, whole)
        fitting = min(have for have in left if have >= min(wanted, 1000))
        if fitting == 1000:
            return max(50 - max(1, wanted // 1000), 33)
        return max(100 - fitting * 100 // 1000 // 10, 50)
    asked = [other.spec.request(GPU_RESOURCE) for other in world.pods(name)]
    alike = {"share" if amount < 1000 else amount for amount in asked if amount}
    mine = "share" if wanted < 1000 else wanted
    level = 1 if not alike else 3 if alike == {mine} else 2 if mine in alike else 0
    return 25 * max(0, 8000 - idle) // 8000 + 25 * level


class World:
    """Nodes and pods as a scheduler with one policy has them, and beside them, by pod, its node and devices."""

    def __init__(self, policy: str, weights: Mapping[Shape, int], seed: int) -> None:
        self.policy, self.weights = policy, weights
        self.cache = Cache()
        lent: Any = Lent(self.cache)
        lent.rng = random.Random(seed)
        name = POLICIES[policy].name
        pods = [
            {"cpuMilli": s.cpu_milli, "gpuMilli": s.gpu_milli, "gpus": s.gpus, "models": s.models, "weight": w}
            for s, w in weights.items()
        ]
        self.loss = Loss(policy, weights)
        args = {name: {"typicalPods": pods}} if policy in BY_LOSS else {}
        used = ("PrioritySort", "NodeResourcesFit", "DefaultBinder", name)
        plugins = {"multiPoint": PluginSet(tuple((each, 0) for each in used), ("*",)), "score": PluginSet((), ("*",))}
        if policy != "random":
            plugins["score"] = PluginSet(((name, 1),), ("*",))
        self.profile = Profile(ProfileConfig(plugins=plugins, plugin_args=args), lent, {})
        self.evaluator = Evaluator(self.profile, self.cache.columns, random.Random(seed), 100)
        self.plugin: Any = self.profile.plugin(name)
        self.placed: dict[str, tuple[PodInfo, str, tuple[int, ...]]] = {}
        self.made = 0

    def put_node(self, number: int, cpu: int, gpus: int, model: str) -> None:
        allocatable = {"cpu": f"{cpu}m", "memory": "1Gi", "pods": "9", GPU_RESOURCE: str(1000 * gpus)}
        metadata = {"name": f"n{number}", "uid": f"n{number}", "labels": {MODEL_LABEL: model}}
        self.cache.put_node(project_node({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}))

    def pod(self, cpu: int, wanted: int) -> PodInfo:
        self.made += 1
        requests = {"cpu": f"{cpu}m", **({GPU_RESOURCE: str(wanted)} if wanted else {})}
        spec = {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]}
        name = f"p{self.made}"
        return project_pod({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec, "status": {}})

    def pods(self, name: str) -> list[PodInfo]:
        return [pod for pod, node, _ in self.placed.values() if node == name]

    def left(self, name: str) -> list[int]:
        left = [1000] * (self.cache.columns.by_name[name].allocatable[GPU_RESOURCE] // 1000)
        for pod, node, devices in self.placed.values():
            for device in devices if node == name else ():
                left[device] -= min(1000, pod.spec.request(GPU_RESOURCE))
        return left

    def free(self, name: str) -> int:
        allocatable = self.cache.columns.by_name[name].allocatable["cpu"]
        return allocatable - sum(pod.spec.request("cpu") for pod in self.pods(name))

    def model(self, name: str) -> str:
        return self.cache.columns.by_name[name].labels[MODEL_LABEL]

    def fits(self, pod: PodInfo, name: str) -> bool:
        wanted, left = pod.spec.request(GPU_RESOURCE), self.left(name)
        if wanted > 1000 and wanted % 1000:
            return False
        enough = any(have >= wanted for have in left) if wanted < 1000 else left.count(1000) >= wanted // 1000
        cpu = pod.spec.request("cpu")
        return (enough or not wanted) and (not cpu or cpu <= self.free(name)) and len(self.pods(name)) < 9

    def place(self, pod: PodInfo) -> None:
        names = sorted(self.cache.columns.by_name)
        fitting = [name for name in names if self.fits(pod, name)]
        try:
            choice = self.evaluator.choose(pod)
        except FitError:
            assert not fitting
            return
        name = choice.node.name
        assert name in fitting
        if self.policy != "random":
            scores = {each: plain_score(self.policy, self, pod, each) for each in fitting}
            assert scores[name] == max(scores.values())
            assert len(fitting) == 1 or choice.score == scores[name]
        before = self.left(name)
        model, free = self.model(name), self.free(name)
        self.cache.assume(pod, name)
        assert self.profile.run_reserve(choice.state, pod, name).is_success
        devices = self.plugin.devices.chosen.get(pod.uid, ())
        wanted = pod.spec.request(GPU_RESOURCE)
        assert len(devices) == len(set(devices)) == (max(1, wanted // 1000) if wanted else 0)
        if self.policy in BY_LOSS and 0 < wanted < 1000:
            cpu = pod.spec.request("cpu")
            assert devices == (plain_fgd(self.loss, cpu, wanted, free, model, before)[1],)
        elif self.policy != "random" and 0 < wanted < 1000:
            assert devices == (min((have, i) for i, have in enumerate(before) if have >= wanted)[1],)
        self.placed[pod.uid] = pod, name, devices
        assert min(self.left(name), default=0) >= 0

    def remove(self, number: int) -> None:
        if self.placed:
            uid = sorted(self.placed)[number % len(self.placed)]
            pod, name, _ = self.placed.pop(uid)
            if number % 2:
                self.profile.run_unreserve(CycleState(), pod, name)
            self.cache.forget(uid)

    def forms_agree(self, pod: PodInfo) -> None:
        columns, plugin = self.cache.columns, self.plugin
        nodes = columns.all()
        mask = plugin.filter_nodes(CycleState(), pod, nodes)
        many = plugin.score_nodes(CycleState(), pod, nodes) if self.policy != "random" else None
        for slot, node in enumerate(columns.by_slot):
            assert node is not None
            assert plugin.devices.known(node) == self.left(node.name)
            assert plugin.devices.chosen.keys() <= self.placed.keys(), "pods that are gone are forgotten"
            one = plugin.filter(CycleState(), pod, node)
            assert (mask is None or bool(mask[slot])) == (one is None)
            if many is not None and one is None:
                assert int(many[slot]) == plugin.score(CycleState(), pod, node)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("place"), CPUS, st.sampled_from((0, 1, 250, 500, 501, 999, 1000, 1500, 2000, 4000))),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("node"), st.integers(0, 3), st.sampled_from((4000, 64000)), st.integers(0, 9)),
    ),
    max_size=14,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25)
@given(WEIGHTS, STEPS, st.integers(0, 3))
def test_a_policy_places_as_its_formula_says_and_promises_no_device_twice(
    policy: str, weights: Mapping[Shape, int], steps: Sequence[Any], seed: int
) -> None:
    world = World(policy, weights, seed)
    for number, (cpu, gpus) in enumerate(((64000, 2), (4000, 4), (64000, 0))):
        world.put_node(number, cpu, gpus, MODELS[number])
    for what, *given_ in steps:
        if what == "place":
            pod = world.pod(*given_)
            world.forms_agree(pod)
            world.place(pod)
        elif what == "remove":
            world.remove(*given_)
        else:
            number, cpu, gpus = given_
            if not world.pods(f"n{number}"):
                world.put_node(number, cpu, gpus, MODELS[gpus % 3])


def test_pods_that_others_placed_have_the_devices_that_they_would_get_now() -> None:
    world = World("bestfit", {Shape(0, 1000, 1): 1}, 1)
    world.put_node(0, 64000, 2, "T4")
    for wanted in (600, 600, 400):
        world.cache.assume(world.pod(1, wanted), "n0")
    assert world.plugin.devices.known(world.cache.columns.by_name["n0"]) == [0, 400]


def test_a_pod_that_asks_for_one_and_a_half_is_told_so() -> None:
    world = World("packing", {Shape(0, 1000, 1): 1}, 1)
    world.put_node(0, 64000, 2, "T4")
    with pytest.raises(FitError, match="asks for more than one GPU, but not for whole ones") as caught:
        world.evaluator.choose(world.pod(1, 1500))
    assert caught.value.diagnosis.unschedulable_slots == []
    status = world.plugin.filter(CycleState(), world.pod(1, 1500), world.cache.columns.by_name["n0"])
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_has_up_to_64_devices_and_none_is_promised_twice(policy: str) -> None:
    world = World(policy, {Shape(0, 1000, 1): 1, Shape(0, 500, 1): 1}, 1)
    world.put_node(0, 64000, DEVICES_MAX, "T4")
    world.put_node(1, 64000, 2, "T4")
    for wanted in (64000, 1000, 500, 0, 500):
        pod = world.pod(1, wanted)
        world.forms_agree(pod)
        world.place(pod)
    world.remove(0)
    for wanted in (32000, 31000, 500, 600, 700, 500, 33000):
        pod = world.pod(1, wanted)
        world.forms_agree(pod)
        world.place(pod)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_or_a_pod_with_more_than_64_devices_is_bounded_and_says_so(policy: str) -> None:
    world = World(policy, {Shape(0, 1000, 1): 1, Shape(0, 500, 1): 1}, 1)
    world.put_node(0, 64000, 10**12, "T4")
    with pytest.raises(FitError, match="1 node\\(s\\) had more than 64 GPUs, which count as none"):
        world.evaluator.choose(world.pod(1, 500))
    node = world.cache.columns.by_name["n0"]
    assert world.plugin.filter(CycleState(), world.pod(1, 500), node) is BEYOND
    assert not world.plugin.devices.known(node)
    with pytest.raises(FitError, match="pod asks for more than 64 GPUs") as caught:
        world.evaluator.choose(world.pod(1, 65_000))
    assert caught.value.diagnosis.unschedulable_slots == []
    # Of another scheduler, which counts otherwise.
    for wanted in (70_000, 10**13):
        world.cache.assume(world.pod(1, wanted), "n0")
    world.put_node(1, 64000, 2, "T4")
    assert world.evaluator.choose(world.pod(1, 500)).node.name == "n1"
    assert world.evaluator.choose(world.pod(1, 2000)).node.name == "n1"


def test_rows_that_could_not_be_computed_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("fgd", {Shape(0, 1000, 1): 1}, 1)
    world.put_node(0, 64000, 2, "T4")
    with monkeypatch.context() as patched:
        patched.setattr(world.plugin.devices, "left_of", lambda node: [][1])
        with pytest.raises(IndexError):
            world.plugin.devices.catch_up()
    assert world.evaluator.choose(world.pod(1, 2000)).node.name == "n0"


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        (None, "needs the args typicalPods"),
        ([{"gpuMilli": 1001}], r"typicalPods\[0\].gpuMilli: Invalid value: 1001: must be a whole number"),
        ([{}, {"weight": 0}], r"typicalPods\[1\].weight: Invalid value: 0: must be"),
        ([{"gpus": 1}, {"gpus": 2, "gpuMilli": 500}], r"typicalPods\[1\].gpuMilli: Invalid value: 500: must be 1000"),
        ([{"gpus": "x"}], r"typicalPods\[0\].gpus: Invalid value: \"x\": must be a whole number from 0 to 64"),
        (["x"], r"typicalPods\[0\]: Invalid value: \"x\": must be a mapping"),
    ],
)
def test_wrong_typical_pods_are_refused(given_: Any, words: str) -> None:
    lent: Any = Lent(Cache())
    with pytest.raises(ConfigError, match=words):
        POLICIES["fgd"]({"typicalPods": given_}, lent)


def test_each_policy_is_a_built_in_plugin_of_its_name_and_no_other_is() -> None:
    """The registry names them without loading them."""
    policies = {policy.name: policy for policy in POLICIES.values()}
    assert {name for name in BUILT_IN if name.startswith("Gpu")} == policies.keys()
    assert all(policy.__name__ == name for name, policy in policies.items())


@pytest.mark.parametrize("policy", POLICIES)
def test_each_is_accepted_in_the_documented_configuration(policy: str) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/packing-quality.md").read_text()
    document = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL).group(1))  # type: ignore[union-attr]
    name, (profile,) = POLICIES[policy].name, document["profiles"]
    for point in profile["plugins"].values():
        if "enabled" in point:
            point["enabled"] = [{"name": name}]
    profile["pluginConfig"][0]["name"] = name
    if policy not in BY_LOSS:
        del profile["pluginConfig"]
    if policy == "random":
        with pytest.raises(ConfigError, match="does not extend ScorePlugin"):
            checked(load(yaml.safe_dump(document).encode()))
        assert "`GpuRandom` prefers nothing, so under `score` it is not\nenabled, and nothing else is" in page
        del profile["plugins"]["score"]["enabled"]
    assert checked(load(yaml.safe_dump(document).encode())).profiles
