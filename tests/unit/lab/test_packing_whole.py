"""The whole control plane in virtual time places pods as the packing replay does, and on the same devices.

With a thirtieth of the nodes; `make packing-whole` takes all of them and the complete list."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import orjson
import pytest

from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.lab import pod_lists
from minikube_py.lab.nodes import wait_ready
from minikube_py.lab.pod_lists import Pods
from minikube_py.lab.progress import progress
from minikube_py.lab.replay import NAMESPACE, Replay
from minikube_py.lab.trace import Trace, TraceNode, TracePod, load
from minikube_py.lab.workload import trace_nodes
from minikube_py.studies.packing import replay as packing
from minikube_py.studies.packing.arrivals import Arrival, drawn

EVERY = int(os.environ.get("MINIKUBE_PY_PACKING_EVERY", "30"))
"""Of so many nodes one."""
SEED = 42

pytestmark = pytest.mark.real_time("virtual time of its own")


class Whole:
    """The pods in their order of arrival, one by one, through API, store and scheduler.

    `order`: of the nodes, in the scheduler's columns. `where`: by arrival, node and devices."""

    def __init__(self, nodes: tuple[TraceNode, ...], arrivals: list[Arrival], policy: str, pods: Pods) -> None:
        self.trace = Trace(nodes, tuple(_pod(number, arrival) for number, arrival in enumerate(arrivals)))
        shapes = trace_nodes(nodes)
        room = {"pods": str(packing.PODS_PER_NODE)}
        self.config = VirtualConfig(
            nodes=[shape._replace(capacity={**shape.capacity, **room}) for shape in shapes],
            scheduler=packing.configuration(policy, pods),
            heartbeats="elided",
        )
        self.plugin_name = packing.POLICIES[policy].name
        self.order: list[int] = []
        self.where: list[str] = []

    async def run(self, cluster: VirtualCluster) -> None:
        await cluster.bring_up(self.config)
        transport = cluster.transport()
        await wait_ready(transport, len(self.trace.nodes))
        scheduler: Any = cluster.plane.components["scheduler"]
        (profile_run,) = scheduler.profiles.values()
        # Of equal nodes the first, as the simulator and the replay.
        profile_run.evaluator._rng = profile_run.evaluator.uncached._rng = packing.FirstOfTies()
        numbers = {node.name: number for number, node in enumerate(self.trace.nodes)}
        self.order = [numbers[node.name] for node in scheduler._cache.columns.by_slot if node is not None]
        replay = Replay(self.trace, transport, cluster.clock, in_flight=1)
        with progress("pods", len(self.trace.pods)) as shown:
            await replay.run(shown)
        answer = await transport.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")
        chosen = profile_run.profile.plugin(self.plugin_name).devices.chosen
        for pod in sorted(orjson.loads(answer.body)["items"], key=lambda pod: pod["metadata"]["name"]):
            devices = "-".join(map(str, chosen.get(pod["metadata"]["uid"], ())))
            self.where.append(f"{pod['spec'].get('nodeName', '')} {devices}")


def _pod(number: int, arrival: Arrival) -> TracePod:
    shape = arrival.shape
    name = f"pod-{number:05d}"
    return TracePod(name, 0, 0, shape.cpu_milli, arrival.memory_mib, shape.gpus, shape.gpu_milli, shape.models)


def test_nodes_and_devices_are_those_of_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, pods = tuple(load().nodes[::EVERY]), pod_lists.read("default")
    arrivals = drawn(pods, 1000 * sum(node.gpus for node in nodes), SEED)
    whole = Whole(nodes, arrivals, "fgd", pods)
    cluster = VirtualCluster(SEED)
    try:
        cluster.run(lambda: whole.run(cluster))
    finally:
        cluster.close()
    monkeypatch.setattr(packing, "order_of_nodes", lambda count, seed: whole.order)
    alone = packing.replay(nodes, pods, "fgd", SEED)
    assert len(whole.where) == len(arrivals) == alone.placed + alone.unplaced
    assert sum(not each.startswith(" ") for each in whole.where) == alone.placed < len(arrivals)
    assert hashlib.sha256("\n".join(whole.where).encode()).hexdigest() == alone.digest
