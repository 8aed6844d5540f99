"""Packs: the node that is left with the least free cpu.

minikube-py compare default default --plugin examples/scheduler/best_fit.py:BestFit --scheduler-only
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minikube_py.scheduler.columns import Nodes
from minikube_py.scheduler.framework import CycleState, IntArray
from minikube_py.scheduler.objects import NodeInfo, PodInfo


class BestFit:
    """`resource` (args): what nodes are filled up with."""

    scope = "NODE"

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.resource = str(args.get("resource", "cpu"))

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        capacity = node.allocatable.get(self.resource, 0)
        if not capacity:
            return 0
        used = node.requested.get(self.resource, 0) + pod.spec.request(self.resource)
        return min(100, 100 * used // capacity)

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray:
        """The same for many nodes at once: optional, and faster."""
        capacity = nodes.allocatable(self.resource)
        used = nodes.requested(self.resource) + pod.spec.request(self.resource)
        return np.where(capacity > 0, np.minimum(100, 100 * used // np.maximum(capacity, 1)), 0)
