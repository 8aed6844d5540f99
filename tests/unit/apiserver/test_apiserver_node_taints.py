"""TaintNodesByCondition where it is enabled: a new node takes no pods until a controller has seen it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_core import Core, Json

from minikube_py.apiserver.core import ApiServer

NODES = "/api/v1/nodes"
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class Tainting(Core):
    def server(self) -> ApiServer:
        rng = random.Random(self.seed + 1)
        given = (self.member.storage, self.clock, rng)
        return ApiServer(*given, tokens=self.tokens, limits=self.limits, enabled_plugins=("TaintNodesByCondition",))


@pytest.fixture
async def tainting(tmp_path: Path) -> AsyncIterator[Core]:
    core = await Tainting(tmp_path).start()
    yield core
    await core.stop()


def node(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": spec}


async def test_a_new_node_is_not_ready(tainting: Core) -> None:
    made = await tainting.done("POST", NODES, {"metadata": {"name": "bare"}})
    assert made["spec"]["taints"] == [NOT_READY]
    other = {"key": "a", "value": "b", "effect": "NoSchedule"}
    assert (await tainting.done("POST", NODES, node("own", taints=[other])))["spec"]["taints"] == [other, NOT_READY]


async def test_a_taint_that_is_there_stays_as_it_is(tainting: Core) -> None:
    there = {**NOT_READY, "value": "x"}
    assert (await tainting.done("POST", NODES, node("n", taints=[there])))["spec"]["taints"] == [there]
    evicts = {**NOT_READY, "effect": "NoExecute"}
    assert (await tainting.done("POST", NODES, node("m", taints=[evicts])))["spec"]["taints"] == [evicts, NOT_READY]


async def test_who_removes_it_may(tainting: Core) -> None:
    made = await tainting.done("POST", NODES, node("n"))
    del made["spec"]["taints"]
    assert "taints" not in (await tainting.done("PUT", f"{NODES}/n", made))["spec"]


async def test_it_is_off_by_default(tmp_path: Path) -> None:
    core = await Core(tmp_path).start()
    assert "taints" not in (await core.done("POST", NODES, node("n"))).get("spec", {})
    await core.stop()
