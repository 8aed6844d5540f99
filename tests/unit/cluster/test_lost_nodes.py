"""When a lost node is noticed in virtual time: within the bounds of upstream's defaults, in any phase of heartbeats.

Upstream's controller looks at all nodes every 5 s. It counts 50 s from the pass that saw the last heartbeat, so a node
becomes Unknown 50 to 55 s after that heartbeat. In the same pass it is queued for its NoExecute taint, and the queue is
read every 0.1 s; its pods tolerate the taint for 300 s. Source: k8s.io/kubernetes/pkg/controller/nodelifecycle; with
upstream's binaries, eight nodes became Unknown 50.0 to 54.8 s after their last heartbeat.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.kubelet.config import numbered_nodes
from minikube_py.mvcc.types import Event

SYNCS_S = 0.1
"""For the syncs of the disk, which slow a write down, and upstream's period of taints."""
NODES = 4
POD = {"metadata": {"name": "p"}, "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]}}


@dataclass
class Seen:
    """When the store first had what happens to a lost node, in seconds of virtual time."""

    name: str
    renewed_s: float = 0.0
    at_s: dict[str, float] = field(default_factory=dict)

    def __call__(self, now_ns: int, event: Event) -> None:
        now_s = now_ns / 1e9
        key = event.kv.key.decode()
        if key == f"/registry/coordination.k8s.io/leases/kube-node-lease/{self.name}":
            self.renewed_s = now_s
        elif key == f"/registry/nodes/{self.name}":
            node = orjson.loads(event.kv.value)
            ready = [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"]
            if ready == ["Unknown"]:
                self.at_s.setdefault("unknown", now_s)
            if any(each["effect"] == "NoExecute" for each in node["spec"].get("taints") or ()):
                self.at_s.setdefault("tainted", now_s)
        elif key == "/registry/pods/default/p" and b'"deletionTimestamp"' in event.kv.value:
            self.at_s.setdefault("evicted", now_s)


@pytest.mark.parametrize("seed", range(12))
def test_a_lost_node_is_noticed_within_the_bounds_of_upstream(seed: int) -> None:
    drawn = random.Random(seed)
    with VirtualCluster(seed, numbered_nodes(NODES)) as cluster:
        seen = Seen("node-0")
        cluster.on_change(seen)
        assert cluster.request("POST", "/api/v1/namespaces/default/pods", orjson.dumps(POD)).status == 201
        cluster.advance(20 + drawn.uniform(0, 30))
        cluster.node_down("node-0")
        down_s = cluster.now_s
        cluster.advance(45 + 10 + 300 + 10)
        nodes: list[Any] = orjson.loads(cluster.request("GET", "/api/v1/nodes").body)["items"]
    assert [node["metadata"]["name"] for node in nodes if "taints" in node["spec"]] == ["node-0"]
    assert 0 <= down_s - seen.renewed_s <= 11
    unknown_s, tainted_s, evicted_s = (seen.at_s[each] for each in ("unknown", "tainted", "evicted"))
    assert 50 < unknown_s - seen.renewed_s <= 55 + SYNCS_S
    assert 0 < tainted_s - unknown_s <= SYNCS_S
    assert 300 <= evicted_s - tainted_s <= 300 + SYNCS_S
