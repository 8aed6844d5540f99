"""Spread and affinity between pods beside the live kube-scheduler: drawn clusters, drawn pods, the same answers.

Each pod is created twice, once for each scheduler, on the same cluster: the same node where one is best, the same
message where none fits. `TOPOLOGY_CLUSTERS` sets how many clusters are drawn.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import drawn_topology as drawn
import needs
import pytest
from test_scheduler_vs_original import OURS, THEIRS, Both, both, pod

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.core.pods import PODS
from minikube_py.scheduler.explaining import verdicts

pytestmark = [pytest.mark.original, pytest.mark.slow]

CLUSTERS = int(os.environ.get("TOPOLOGY_CLUSTERS", "3"))
PODS_EACH = 10


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with needs.original("--scheduler") as ready:
        yield Path(ready["kubeconfig"])


def made(name: str, scheduler: str, labels: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    obj = pod(name, scheduler, {}, **spec)
    obj["metadata"]["labels"] = labels
    return obj


async def post(b: Both, path: str, obj: dict[str, Any]) -> bool:
    """Whether it was let in. What is there already stays."""
    try:
        await b.client.request("POST", path, None, obj)
    except StatusError as error:
        assert error.code in (409, 422), error
        return error.code == 409
    return True


class Round:
    """One drawn cluster. The nodes of earlier ones are gone."""

    def __init__(self, b: Both, seed: int) -> None:
        self.b = b
        self.rng = random.Random(seed)
        self.name = f"round{seed}"
        self.nodes: list[str] = []
        self.pods: list[tuple[str, str]] = []

    async def begin(self) -> None:
        for obj in drawn.nodes(self.rng, self.name):
            assert await post(self.b, "/api/v1/nodes", obj)
            self.nodes.append(obj["metadata"]["name"])
        for i in range(self.rng.randint(2, 12)):
            labels, spec = drawn.shape(self.rng, self.rng.choice(("plain", "affinity")))
            namespace = self.rng.choice(("default", "default", *drawn.TEAMS))
            obj = made(f"{self.name}-{i}", THEIRS, labels, {**spec, "nodeName": self.rng.choice(self.nodes)})
            if await post(self.b, f"/api/v1/namespaces/{namespace}/pods", obj):
                self.pods.append((namespace, obj["metadata"]["name"]))
        # Once each scheduler has placed a pod on the last node, it knows them all, and the pods from before.
        for scheduler in (OURS, THEIRS):
            seen = f"{self.name}-seen-{scheduler}"
            spec = {"nodeSelector": {drawn.HOSTNAME: self.nodes[-1]}, "tolerations": [{"operator": "Exists"}]}
            await self.b.create(made(seen, scheduler, {"seen": "y"}, spec))
            await self.b.settled(seen)
            await self.b.delete(seen)
            await self.b.forgotten(f"default/{seen}")

    async def end(self) -> None:
        for namespace, name in self.pods:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            await self.b.client.request("DELETE", path, {"gracePeriodSeconds": "0"})
            await self.b.forgotten(f"{namespace}/{name}")
        for name in self.nodes:
            await self.b.client.request("DELETE", f"/api/v1/nodes/{name}")

    async def same(self, name: str, labels: dict[str, str], spec: dict[str, Any]) -> str:
        """The result on both sides: placed, tied or refused, or invalid for the API."""
        b, found = self.b, {}
        for scheduler in (OURS, THEIRS):
            key = f"{name}-{scheduler}"
            try:
                await b.create(made(key, scheduler, labels, spec))
            except StatusError as error:
                assert error.code == 422, error
                return "invalid"
            found[scheduler] = settled = await b.settled(key)
            if scheduler == OURS:
                mine = await b.confirmed(key) if settled["spec"].get("nodeName") else b.scheduler.pod(f"default/{key}")
            await b.delete(key)
            await b.forgotten(f"default/{key}")
        where = {scheduler: obj["spec"].get("nodeName") for scheduler, obj in found.items()}
        if None in where.values():
            told = [(obj["status"].get("conditions") or [{}])[0].get("message") for obj in found.values()]
            assert told[0] == told[1] and told[0], (labels, spec, where)
            return "refused"
        assert mine is not None
        mine = copy(mine)
        mine.node_name = ""
        ranked = verdicts(b.scheduler.profiles[OURS].evaluator, mine)
        best = {each.node.name for each in ranked if each.total == ranked[0].total}
        assert best.issuperset(where.values()), (labels, spec, where, ranked)
        return "placed" if len(best) == 1 else "tied"


async def test_label_keys_become_part_of_selectors(kubeconfig: Path) -> None:
    rng, merged = random.Random(1), 0
    async with both(kubeconfig) as b:
        for i in range(60):
            labels, spec = drawn.shape(rng, rng.choice(("spread", "affinity")))
            sent = made(f"keys-{i}", "nobody", {**labels, "pair": "1"}, spec)
            mine = json.loads(json.dumps(sent))
            PODS.prepare_create(mine)
            try:
                answer = await b.client.request("POST", "/api/v1/namespaces/default/pods", None, sent)
            except StatusError as error:
                assert error.code == 422, error
                continue
            theirs = json.loads(json.dumps(answer))["spec"]
            await b.delete(f"keys-{i}")
            for field in ("affinity", "topologySpreadConstraints"):
                assert mine["spec"].get(field) == theirs.get(field)
                merged += mine["spec"].get(field) != sent["spec"].get(field)
    assert merged >= 5


async def test_the_same_nodes_and_the_same_words(kubeconfig: Path) -> None:
    outcomes: dict[str, int] = {}
    async with both(kubeconfig) as b:
        for name, labels in drawn.TEAMS.items():
            assert await post(b, "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        ports = [{"port": 80}]
        service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}}
        assert await post(b, "/api/v1/namespaces/default/services", service)
        for seed in range(CLUSTERS):
            cluster = Round(b, seed)
            await cluster.begin()
            for i in range(PODS_EACH):
                kind = ("spread", "affinity", "affinity", "spread", "plain")[i % 5]
                labels, spec = drawn.shape(cluster.rng, kind)
                outcome = await cluster.same(f"{cluster.name}-drawn-{i}", labels, spec)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
            await cluster.end()
    print(outcomes)
    # Of nothing but ties, or nothing but refusals, the comparison would say little.
    assert outcomes["placed"] >= CLUSTERS and outcomes["refused"] >= CLUSTERS
