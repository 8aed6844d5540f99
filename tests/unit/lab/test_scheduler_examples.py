"""The plugins in examples/scheduler: they keep the laws, and do what they say."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from minikube_py.lab.plugins.check import PARTS, judge, subject_of
from minikube_py.lab.plugins.world import World, pods_of
from minikube_py.scheduler.framework import FitError

FOLDER = Path(__file__).parents[3] / "examples" / "scheduler"
EXAMPLES = {"best_fit": "BestFit", "gpu_share": "GpuShare", "io_bandwidth": "IoBandwidth"}
GPU = "openb.io/gpu-milli"
IO = "example.com/io-mbps"


def world(name: str, *nodes: dict[str, Any]) -> World:
    subject, _ = subject_of(f"{FOLDER / name}.py:{EXAMPLES[name]}", {})
    return World(subject, nodes)


def node(name: str, labels: dict[str, str] | None = None, **resources: str) -> dict[str, Any]:
    allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", **resources}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {}, "status": {"allocatable": allocatable}}


def pod(name: str, labels: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}


def place(on: World, obj: dict[str, Any]) -> str:
    (info,) = pods_of([obj])
    choice = on.evaluator.choose(info)
    on.cache.assume(info, choice.node.name)
    assert on.profile.run_reserve(choice.state, info, choice.node.name).is_success
    return choice.node.name


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("part", PARTS)
def test_each_keeps_every_law(name: str, part: str) -> None:
    found = judge(part, *subject_of(f"{FOLDER / name}.py:{EXAMPLES[name]}", {}), 25, 0)
    assert found.failure is None, found.failure


def test_every_example_is_judged() -> None:
    # tests/integration/test_port_extender.py judges the extender, which is a server and no plugin.
    assert {path.stem for path in FOLDER.glob("*.py")} == {*EXAMPLES, "port_extender"}


def test_best_fit_scores_the_fuller_node_higher() -> None:
    on = world("best_fit", node("a"), node("b"))
    (first,) = pods_of([pod("first", cpu="2")])
    on.cache.assume(first, "b")
    (second,) = pods_of([pod("second", cpu="1")])
    said = on.says(second)
    assert (said["a"].score, said["b"].score) == (12, 37)


def test_a_share_has_to_fit_on_one_device() -> None:
    on = world("gpu_share", node("a", **{GPU: "2000"}))
    for name in ("p", "q"):
        assert place(on, pod(name, **{GPU: "600"})) == "a"
    # 800 thousandths are free, 400 on each device.
    with pytest.raises(FitError, match="had no GPU with enough left"):
        place(on, pod("r", **{GPU: "500"}))
    assert place(on, pod("s", **{GPU: "400"})) == "a"


def test_a_device_stays_whole_for_whom_wants_a_whole_one() -> None:
    on = world("gpu_share", node("a", **{GPU: "2000"}))
    for name in ("p", "q"):
        place(on, pod(name, **{GPU: "500"}))
    assert place(on, pod("whole", **{GPU: "1000"})) == "a"
    assert sorted(on.plugin.plugin.chosen.values()) == [(0,), (0,), (1,)]


def test_devices_are_kept_while_others_come_and_go() -> None:
    """No device is ever given more than it has, and no pod moves to another."""
    rng, on = random.Random(4), world("gpu_share", node("a", **{GPU: "4000"}), node("b", **{GPU: "2000"}))
    plugin = on.plugin.plugin
    alive: dict[str, tuple[str, int, tuple[int, ...]]] = {}
    for number in range(300):
        if alive and rng.random() < 0.45:
            gone = rng.choice(sorted(alive))
            del alive[gone]
            on.cache.forget(gone)
        wanted = rng.choice((100, 250, 500, 700, 1000, 2000))
        try:
            where = place(on, pod(f"p{number}", **{GPU: str(wanted)}))
        except FitError:
            continue
        alive[f"p{number}"] = (where, wanted, plugin.chosen[f"p{number}"])
        used: dict[tuple[str, int], int] = {}
        for uid, (node_name, milli, devices) in alive.items():
            assert plugin.chosen[uid] == devices and len(devices) == max(1, milli // 1000)
            for device in devices:
                used[node_name, device] = used.get((node_name, device), 0) + min(milli, 1000)
        assert max(used.values()) <= 1000


def test_bandwidth_is_not_given_twice() -> None:
    on = world("io_bandwidth", node("a", {IO: "500"}), node("b", {IO: "300"}), node("none"))
    assert place(on, pod("p", {IO: "400"})) == "a"
    assert place(on, pod("q", {IO: "200"})) == "b"
    with pytest.raises(FitError, match="3 node"):
        place(on, pod("r", {IO: "200"}))
