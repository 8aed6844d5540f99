"""I/O bandwidth: nodes say by a label how much they have, pods by a label how much they want.

A node whose pods would want more than it has is turned down; of the others the one with the largest share left is best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikube_py.scheduler.columns import label_as_int
from minikube_py.scheduler.framework import Code, CycleState, Status
from minikube_py.scheduler.objects import NodeInfo, PodInfo

LABEL = "example.com/io-mbps"
TOO_LITTLE = Status(Code.UNSCHEDULABLE, "node(s) had too little I/O bandwidth")


class IoBandwidth:
    """`label` (args): of nodes, what they have; of pods, what they want; in MB/s. Without it a node has none."""

    scope = "NODE"

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.label = str(args.get("label", LABEL))

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted = self._of(pod.labels)
        return TOO_LITTLE if wanted and self._used(node) + wanted > self._of(node.labels) else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        have = self._of(node.labels)
        left = have - self._used(node) - self._of(pod.labels)
        return max(0, 100 * left // have) if have else 0

    def _used(self, node: NodeInfo) -> int:
        return sum(self._of(pod.labels) for pod in node.pods.values())

    def _of(self, labels: Mapping[str, str]) -> int:
        """What is no number, or below 0, counts as 0."""
        return max(0, label_as_int(labels.get(self.label)) or 0)
