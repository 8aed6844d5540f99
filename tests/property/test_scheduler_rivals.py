"""Several schedulers on one cluster, each for pods of its own: no node ever runs more than it has, and none in silence.

They decide at the same time and know of each other only what the API shows; the kubelet of a node that was promised
twice refuses whom it has no room for.
"""

from __future__ import annotations

import random
from typing import Any

from fake_api import FakeApi
from hypothesis import given, settings
from hypothesis import strategies as st
from step_clock import StepClock, settle
from virtual_time import run_virtually

from minikube_py.kubelet.config import KubeletConfig, NodeSpec
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.scheduler.config import ProfileConfig, SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler

NAMES = ("default-scheduler", "second", "third")
CPUS = {"n0": 1, "n1": 2, "n2": 3}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pods"), st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((1, 2))), max_size=6)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("settle"), st.none()),
    ),
    min_size=2,
    max_size=12,
)


class World:
    def __init__(self, seed: int) -> None:
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        shapes = (NodeSpec(name, {"cpu": str(cpus), "memory": "8Gi", "pods": "3"}) for name, cpus in CPUS.items())
        self.kubelet = FakeKubelet(self.api, self.clock, random.Random(seed), KubeletConfig(nodes=tuple(shapes)))
        self.schedulers = [
            Scheduler(self.api, self.clock, random.Random(seed + i), SchedulerConfig((ProfileConfig(name),)))
            for i, name in enumerate(NAMES)
        ]
        self.made = 0

    def pod(self, scheduler: str, cpus: int) -> None:
        self.made += 1
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(cpus)}}}
        spec = {"containers": [container], "schedulerName": scheduler, "terminationGracePeriodSeconds": 0}
        self.api.make("pods", f"d/p{self.made}", spec=spec)

    async def step(self, what: str, value: Any) -> None:
        if what == "pods":
            for scheduler, cpus in value:
                self.pod(scheduler, cpus)
        elif what == "delete":
            keys = sorted(self.api.kind("pods"))
            if keys:
                self.api.remove("pods", keys[value % len(keys)])
        else:
            await settle()
            self.check()

    def check(self) -> int:
        """How many were refused."""
        refused = 0
        running: dict[str, list[int]] = {name: [] for name in CPUS}
        for pod in self.api.kind("pods").values():
            status, node = pod.get("status", {}), pod["spec"].get("nodeName")
            cpus = int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            if status.get("phase") == "Running":
                running[node].append(cpus)
            elif status.get("phase") == "Failed":
                assert status["reason"] in ("OutOfcpu", "OutOfpods") and node
                refused += 1
        for name, used in running.items():
            assert sum(used) <= CPUS[name] and len(used) <= 3, f"{name} runs {used}"
        return refused


async def played(steps: list[tuple[str, Any]], seed: int) -> int:
    world = World(seed)
    await world.kubelet.start()
    for scheduler in world.schedulers:
        await scheduler.start()
    try:
        for what, value in steps:
            await world.step(what, value)
        await settle()
        assert all(scheduler.failure is None for scheduler in world.schedulers) and not world.kubelet.failures
        return world.check()
    finally:
        for scheduler in world.schedulers:
            await scheduler.stop()
        await world.kubelet.stop()


@settings(max_examples=60)
@given(STEPS, st.integers(0, 9))
def test_no_node_runs_more_than_it_has(steps: list[tuple[str, Any]], seed: int) -> None:
    run_virtually(lambda: played(steps, seed))


def test_who_decides_at_the_same_time_promises_one_node_twice() -> None:
    """Else the law above would hold of schedulers that never meet."""
    refused: list[int] = []

    async def meet() -> None:
        refused.append(await played([("pods", [(name, 2) for name in NAMES for _ in range(2)])], 3))

    run_virtually(meet)
    assert refused[0] > 0
