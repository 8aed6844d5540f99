"""Decisions do not depend on how much arrives in one batch: the same pods in the same order come to the same nodes,
whatever the interleaving, however long syncs take, and whether each waits for the one before or all come at once."""

from __future__ import annotations

import random
from collections.abc import Sequence

import orjson
import pytest

from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.kubelet.config import NodeSpec
from minikube_py.sim.syncs import SyncTimes

PODS = "/api/v1/namespaces/default/pods"
COUNT = 60
FAST, SLOW = SyncTimes(), SyncTimes(0.004, 0.02)


def nodes() -> tuple[NodeSpec, ...]:
    """Of two shapes, several alike: there are ties at every step."""
    small, large = ({"cpu": cpu, "memory": "32Gi", "pods": "110"} for cpu in ("8", "16"))
    return tuple(NodeSpec(f"node-{number}", large if number % 2 else small) for number in range(8))


def bodies(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    made = []
    for number in range(COUNT):
        requests = {"cpu": f"{rng.choice((100, 500, 500, 2000))}m", "memory": f"{rng.choice((64, 512, 512))}Mi"}
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        made.append(orjson.dumps({"metadata": {"name": f"pod-{number:03d}"}, "spec": {"containers": [container]}}))
    return made


def places(seed: int, syncs: SyncTimes, load: Sequence[bytes], *, wait: bool) -> dict[str, str]:
    """Pod to node, at rest; "" where it is nowhere."""
    config = VirtualConfig(nodes=nodes(), syncs=syncs, ties=5)
    with VirtualCluster(seed, config=config) as cluster:

        async def create() -> None:
            transport = cluster.transport()
            for body in load:
                assert (await transport.request("POST", PODS, None, body)).status == 201
                if wait:
                    await cluster.clock.sleep(1.0)

        cluster.run(create)
        cluster.advance(30)
        found = orjson.loads(cluster.request("GET", PODS).body)["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}


@pytest.mark.parametrize("load_seed", [1, 2])
def test_places_do_not_depend_on_batches(load_seed: int) -> None:
    load = bodies(load_seed)
    first = places(1, FAST, load, wait=True)
    assert len(first) == COUNT
    assert len(set(first.values())) > 4
    assert places(2, FAST, load, wait=True) == first
    assert places(3, SLOW, load, wait=True) == first
    assert places(4, FAST, load, wait=False) == first
    assert places(5, SLOW, load, wait=False) == first
