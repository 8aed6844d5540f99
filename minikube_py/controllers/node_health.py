"""Node health from heartbeats: status and lease updates, timed by the observer's clock. Pure.

Source: k8s.io/kubernetes/pkg/controller/nodelifecycle (tryUpdateNodeHealth); KEP-589 (node leases).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikube_py.client.rest import Object
from minikube_py.controllers.views import LeaseView, NodeView

USUAL_LEASE_S: Final = 40
HEARTBEAT_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(slots=True)
class Health:
    """`heard_s` (monotonic): when the status or the lease last changed. Their own timestamps are ignored: the node's
    clock may be wrong. `node`, `lease`: as last observed."""

    heard_s: float
    node: NodeView
    lease: LeaseView | None = None
    renewed: str = ""
    grace_s: float = 0.0


def observe(health: Health | None, node: NodeView, lease: LeaseView | None, now_s: float, age_s: float) -> Health:
    """The health after observing the node, which is `age_s` old."""
    if health is None:
        health = Health(now_s if node.has_ready else now_s - age_s, node)
    elif health.node.has_ready is not node.has_ready or health.node.heartbeat != node.heartbeat:
        health.heard_s = now_s
    health.node, health.lease = node, lease
    if lease is not None and lease.renew_time > health.renewed:
        health.renewed = lease.renew_time
        health.heard_s = now_s
    return health


def grace_s(node: NodeView, lease: LeaseView | None, startup_s: float, usual_s: float) -> float:
    """How long a node may be silent. A lease longer than the usual 40 s extends it in proportion: kubelets that renew
    less often, as large fake clusters do, declare a longer lease."""
    if not node.has_ready:
        return startup_s
    if lease is not None and lease.duration_s > USUAL_LEASE_S:
        return usual_s * lease.duration_s / USUAL_LEASE_S
    return usual_s


def silent_conditions(node: NodeView, now: str) -> list[Object]:
    """The conditions to write for a silent node; those already Unknown are left alone."""
    changed: list[Object] = []
    for kind in HEARTBEAT_CONDITIONS:
        condition = node.conditions.get(kind)
        if condition is None:
            changed.append(
                {
                    "type": kind,
                    "status": "Unknown",
                    "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": node.created,
                    "lastTransitionTime": now,
                }
            )
        elif condition.get("status") != "Unknown":
            changed.append(
                {
                    "type": kind,
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                    "lastTransitionTime": now,
                }
            )
    return changed
