"""What plugins and cost models are handed is read-only: who changes it fails alone, by name."""

from __future__ import annotations

import json
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scheduler_objects import node, pod
from scheduler_world import settle
from test_scheduler_flow import flow_config, flowing

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.config import SchedulerConfig, load
from minikube_py.scheduler.configuration.files import checked, own_plugins, with_own

PLUGIN = """
import numpy as np

class Mine:
    name = "Mine"
    scope = "CLUSTER"

    def score(self, state, pod, node):
        {one}
        return 50

    def score_nodes(self, state, pod, nodes):
        {many}
        return np.full(len(nodes), 50)
"""
IN_PLACE = {
    "minus": "left = nodes.free('cpu'); left -= 1000",
    "out": "left = nodes.free('cpu'); np.maximum(left, 10**6, out=left)",
    "requested": "nodes.requested('cpu')[:] = 10**6",
    "nonzero": "nodes.nonzero_requested('memory')[:] = 10**6",
    "allocatable": "nodes.allocatable('pods').fill(0)",
    "mask": "nodes.label_mask('x', 'c')[:] = False",
    "unlabelled": "nodes.label_exists('nobody')[:] = True",
    "unschedulable": "nodes.unschedulable()[:] = True",
    "taints": "nodes.taint_classes()[:] = 1",
    "numbers": "nodes.label_ints('x')[1][:] = 7",
    "the columns themselves": "nodes.columns.present[:] = False",
}
ONE_NODE = {
    "amounts": "node.requested['cpu'] = 10**6",
    "gone": "node.requested.clear()",
    "pods": "node.pods.popitem()",
    "labels": "node.labels['x'] = 'y'",
    "more": "node.allocatable.update(cpu=1)",
    "pod": "pod.node_name = 'a'",
    "pod labels": "pod.labels['x'] = 'y'",
}
CASES = {**{k: ("pass", v) for k, v in IN_PLACE.items()}, **{k: (v, "raise ValueError") for k, v in ONE_NODE.items()}}


OFF = {"disabled": [{"name": "Mine"}]}


def with_plugin(target: str) -> SchedulerConfig:
    profiles: list[dict[str, Any]] = [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": OFF}}]
    profiles.append({"schedulerName": "flow", "plugins": {"multiPoint": {"enabled": [{"name": "Mine"}]}}})
    told = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles}
    return checked(with_own(load(json.dumps(told).encode()), own_plugins([target])))


def state(columns: NodeColumns) -> object:
    infos = [info for info in columns.by_slot if info is not None]
    amounts = [(info.requested.copy(), info.allocatable.copy(), [*info.pods], {**info.labels}) for info in infos]
    rows = [columns.free_row(name).tolist() for name in ("cpu", "memory", "pods")]
    return amounts, rows, columns.present.tolist(), columns.unschedulable.tolist(), columns.taint_class.tolist()


@pytest.mark.parametrize(("one", "many"), CASES.values(), ids=CASES)
async def test_a_plugin_that_changes_what_it_is_handed_fails_alone(tmp_path: Path, one: str, many: str) -> None:
    text = PLUGIN.format(one=one, many=many)
    if many == "raise ValueError":
        text = text.partition("    def score_nodes")[0]
    (tmp_path / "mine.py").write_text(text)
    nodes: dict[str, dict[str, Any]] = {name: {"cpu": "4", "labels": {"x": "c"}} for name in ("a", "b")}
    async with flowing(with_plugin(f"{tmp_path / 'mine.py'}:Mine"), **nodes) as world:
        world.api.pod("running", cpu="1", labels={"some": "label"})
        await settle()
        before = state(world.scheduler.cache.columns)
        for i in range(3):
            world.pods(f"p{i}", cpu="1", labels={"some": "label"})
            await settle()
            told = world.api.condition(f"p{i}")["message"]
            assert 'plugin "Mine" failed with: ' in told and "read-only" in told and "mine.py, line" in told
        assert state(world.scheduler.cache.columns) == before
        for i in range(7):
            world.api.pod(f"theirs{i}", cpu="1")
            await settle()
        assert sorted(world.where(*(f"theirs{i}" for i in range(7)), "running")) == ["a"] * 4 + ["b"] * 4


MODEL = """
from minikube_py.scheduler.flow import Arc, CostModel

class Mine(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(1_000_000)

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(1, machine.free_slots)

    def {}:
        {}
"""
TASK, MACHINE, MACHINES = "add_task(self, task)", "gather_stats(self, machine)", "update_stats(self, machines)"
BY_MODELS = [
    (MACHINE, 'machine.info.requested["cpu"] = -10**9'),
    (MACHINE, 'machine.info.requested["pods"] += 1'),
    (MACHINE, "machine.info.pods.clear()"),
    (MACHINE, 'machine.labels["x"] = "y"'),
    (MACHINE, 'machine.info.allocatable.setdefault("x", 1)'),
    (TASK, 'task.pod.node_name = "nowhere"'),
    (TASK, 'task.labels["x"] = "y"'),
    (MACHINES, "machines.nodes.columns.present[:] = False"),
    (MACHINES, 'free = machines.free("cpu"); free -= 1'),
    (MACHINES, "machines.running[:] = 0"),
    (MACHINES, "machines.slots[:] = 0"),
]


@pytest.mark.parametrize(("method", "line"), BY_MODELS, ids=[line for _, line in BY_MODELS])
async def test_a_model_that_changes_what_it_is_handed_fails_alone(tmp_path: Path, method: str, line: str) -> None:
    (tmp_path / "mine.py").write_text(MODEL.format(method, line))
    async with flowing(flow_config(costModel=f"{tmp_path / 'mine.py'}:Mine"), a={"cpu": "4"}, b={"cpu": "4"}) as world:
        world.pods("p", "p2", cpu="1")
        await settle()
        told = world.api.condition("p")["message"]
        assert told.startswith("cost model Mine: ") and "read-only" in told, told
        for i in range(8):
            world.api.pod(f"theirs{i}", cpu="1")
            await settle()
        assert sorted(world.where(*(f"theirs{i}" for i in range(8)), "p")) == ["", *["a"] * 4, *["b"] * 4]


def test_every_array_of_nodes_is_read_only_and_copies_may_be_changed() -> None:
    columns = NodeColumns()
    for i in range(3):
        columns.put_node(node(f"n{i}", labels={"size": "3"}))
    for nodes in (columns.all(), columns.some(np.array([0, 2]))):
        arrays = [nodes.free("x"), nodes.requested("cpu"), *nodes.label_ints("size"), nodes.label_exists("no")]
        arrays += [nodes.label_mask("size", "3"), nodes.unschedulable(), nodes.taint_classes()]
        assert not any(array.flags.writeable for array in arrays)
    mine = pod("p", metadata={"labels": {"a": "b"}})
    for changed in (copy(mine), deepcopy(mine)):
        changed.node_name = "n"
        assert changed.spec is mine.spec and mine.node_name == ""
    labels = mine.labels.copy()
    labels["a"] = "c"
    for given in (mine.labels, deepcopy(mine.labels)):
        assert given == {"a": "b"}
