"""Pods that a price keeps waiting: they are priced again, and say so no more often than it changes. Prices of labels,
and models that fail once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import settle
from test_scheduler_flow import flow_config, flowing
from virtual_time import run_virtually

from minikube_py.scheduler.flow.model import TASK_TYPE
from minikube_py.scheduler.flow.models import MODELS, RUNTIME
from minikube_py.scheduler.flow.quincy import INPUT
from minikube_py.scheduler.flow.wharemap import APP

RISING = """
from minikube_py.scheduler.flow import Arc, CostModel

class Rising(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(1000 + int(task.waited_s * 10))

    def task_to_equiv_class_aggregator(self, task, ec):
        return Arc(10**6)

class Once(CostModel):
    def __init__(self, args, rng):
        super().__init__(args, rng)
        self.failing, self.known = {failing!r}, dict()

    def fail(self, what):
        if self.failing == what:
            self.failing = ""
            raise OSError("not there yet")

    def add_machine(self, machine):
        self.fail("add")
        self.known[machine.name] = machine

    def remove_machine(self, name):
        self.fail("remove")
        del self.known[name]

    def task_to_unscheduled_agg(self, task):
        return Arc(100 + len(self.known))

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(0 if self.known[machine.name] else 1, machine.free_slots)
"""


def own(path: Path, name: str, failing: str = "") -> Any:
    file = path / "own.py"
    file.write_text(RISING.replace("{failing!r}", repr(failing)))
    return flow_config(costModel=f"{file}:{name}")


async def test_pods_that_wait_for_their_price_are_priced_again_in_silence(tmp_path: Path) -> None:
    async with flowing(own(tmp_path, "Rising"), a={"cpu": "64"}) as world:
        world.pods(*(f"p{i}" for i in range(20)), cpu="100m")
        await settle()
        assert world.api.condition("p3")["message"].startswith(
            "0/1 nodes are available: cost model Rising leaves the pod where it is, for 1000: no free way"
        )
        patches, events, rounds = len(world.api.patches), len(world.api.events), world.rounds.rounds
        await world.clock.advance(100)
        assert world.rounds.rounds >= rounds + 50
        # From 1000 to 2000, prices have one more bit once.
        assert len(world.api.patches) - patches == 20
        assert len(world.api.events) - events <= 20
        message = world.api.condition("p3")["message"]
        assert ", for 10" in message
        # What others write over it is written again.
        world.api.objects["pods"]["default/p3"]["status"]["conditions"][0]["message"] = "mine"
        world.api.put("pods", world.api.objects["pods"]["default/p3"])
        await world.clock.advance(3)
        assert "leaves the pod where it is" in world.api.condition("p3")["message"]


@pytest.mark.parametrize("failing", ["add", "remove"])
async def test_a_machine_that_a_model_failed_to_take_in_is_told_again(tmp_path: Path, failing: str) -> None:
    async with flowing(own(tmp_path, "Once", failing), a={}, b={}) as world:
        model: Any = world.scheduler.profiles["flow"].profile.placer.model  # type: ignore[union-attr]
        world.pods("p")
        await settle()
        world.api.delete("nodes", "b")
        await settle()
        world.pods("q")
        await settle()
        await world.clock.advance(30)
        await settle()
        assert all(world.where("p", "q")) and not model.failing
        assert list(model.known) == ["a"]


RUNTIMES = ["", "0", "1", "31536000", "9" * 19, "9" * 63, "-1", "x", "1e9"]


@pytest.mark.parametrize("model", sorted(MODELS))
def test_no_label_of_a_pod_makes_a_price_that_no_solver_takes(model: str) -> None:
    samples = [
        {"app": "web", "machineType": kind, "runtimeSeconds": runtime_s, "instructions": count}
        for kind, runtime_s, count in (("slow", 10**9, 1), ("fast", 1, 10**12))
    ]
    args = {"WHARE": {"samples": samples}, "QUINCY": {"inputs": {"web": {"gib": 2**30, "on": {"a": 2**30}}}}}

    @settings(max_examples=15, deadline=None)
    @given(st.sampled_from(RUNTIMES), st.sampled_from(["web", "", "x"]), st.sampled_from(["devil", "no"]))
    def law(runtime: str, name: str, kind: str) -> None:
        async def run() -> None:
            labels = {RUNTIME: runtime, APP: name, INPUT: name, TASK_TYPE: kind}
            config = flow_config(costModel=model, modelArgs=args.get(model, {}))
            async with flowing(config, a={"cpu": "8"}, b={"cpu": "8"}) as world:
                world.pods("p", "q", cpu="100m", metadata={"labels": labels})
                await settle()
                await world.clock.advance(3)
                for pod in ("p", "q"):
                    told = {} if world.api.where(pod) else world.api.condition(pod)
                    assert not told or told["reason"] == "Unschedulable", told

        run_virtually(run)

    law()


@pytest.mark.parametrize("model", ["COCO", "QUINCY", "QUINCY_INTERFERENCE", "SJF", "WHARE", "TRIVIAL"])
async def test_equal_pods_that_waited_differently_do_not_crowd_one_machine(model: str) -> None:
    async with flowing(flow_config(costModel=model), full={"cpu": "500m"}) as world:
        names = [f"p{at}" for at in range(8)]
        for name in names:
            world.pods(name, cpu="1")
            await settle()
            await world.clock.advance(1)
        before = world.rounds.repaired
        for name in ("a", "b"):
            world.api.node(name, cpu="4")
        await settle()
        await world.clock.advance(60)
        assert sorted(world.where(*names)) == ["a"] * 4 + ["b"] * 4
        assert world.rounds.repaired == before
        assert all(world.rounds.decision(f"uid-default-{name}") for name in names)
