"""PodTopologyLabels: a pod has the zone and region of its node as labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_core import Core

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
PODS = "/api/v1/namespaces/default/pods"
PLACED = {ZONE: "z1", REGION: "r1"}


def _node(name: str, **labels: str) -> dict[str, Any]:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}


def _pod(name: str, node: str = "", labels: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations}
    if node:
        spec["nodeName"] = node
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


def _binding(name: str, node: str, kind: str = "Node") -> dict[str, Any]:
    target = {"kind": kind, "name": node} if kind else {"name": node}
    return {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name}, "target": target}


async def _world(folder: Path) -> Core:
    core = await Core(folder).start()
    await core.done("POST", "/api/v1/nodes", _node("a", **{ZONE: "z1", REGION: "r1", "rack": "4"}))
    await core.done("POST", "/api/v1/nodes", _node("b"))
    return core


async def _labels(core: Core, name: str) -> dict[str, str]:
    found: dict[str, str] = (await core.done("GET", f"{PODS}/{name}"))["metadata"].get("labels") or {}
    return found


@pytest.mark.parametrize(
    ("path", "binding", "expected"),
    [
        (f"{PODS}/p/binding", _binding("p", "a"), PLACED),
        (f"{PODS}/p/binding", _binding("p", "b"), {ZONE: "own"}),
        (f"{PODS}/p/binding", _binding("p", "gone"), {ZONE: "own"}),
        # Upstream's plugin looks at bindings of pods alone, and at those that say the target's kind.
        (f"{PODS}/p/binding", _binding("p", "a", ""), {ZONE: "own"}),
        ("/api/v1/namespaces/default/bindings", _binding("p", "a"), {ZONE: "own"}),
    ],
)
async def test_a_binding_gives_the_labels_of_the_node(
    tmp_path: Path, path: str, binding: dict[str, Any], expected: dict[str, str]
) -> None:
    core = await _world(tmp_path)
    await core.done("POST", PODS, _pod("p", labels={"app": "x", ZONE: "own"}))
    await core.done("POST", path, binding)
    assert await _labels(core, "p") == {"app": "x", **expected}
    await core.stop()


@pytest.mark.parametrize("size", [0, 40_000])
async def test_a_pod_that_is_created_on_a_node_gets_them_too(tmp_path: Path, size: int) -> None:
    core = await _world(tmp_path)
    await core.done("POST", PODS, _pod("p", "a", {"app": "x", ZONE: "own"}, big="x" * size))
    await core.done("POST", PODS, _pod("q", "", {"app": "x", ZONE: "own"}, big="x" * size))
    await core.done("PATCH", f"{PODS}/r?fieldManager=m", _pod("r", "a", big="x" * size), "application/apply-patch+yaml")
    assert await _labels(core, "p") == {"app": "x", **PLACED}
    assert await _labels(core, "q") == {"app": "x", ZONE: "own"}
    assert await _labels(core, "r") == PLACED
    await core.stop()


async def test_the_labels_are_those_of_the_node_at_the_time(tmp_path: Path) -> None:
    core = await _world(tmp_path)
    for zone in ("z2", "z3"):
        change = {"metadata": {"labels": {ZONE: zone}}}
        await core.done("PATCH", "/api/v1/nodes/b", change, "application/merge-patch+json")
        await core.done("POST", PODS, _pod(zone))
        await core.done("POST", f"{PODS}/{zone}/binding", _binding(zone, "b"))
        assert await _labels(core, zone) == {ZONE: zone}
    change = {"metadata": {"labels": {ZONE: "z4"}}}
    await core.done("PATCH", "/api/v1/nodes/b", change, "application/merge-patch+json")
    assert await _labels(core, "z3") == {ZONE: "z3"}
    await core.stop()
