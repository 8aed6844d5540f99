"""ImageLocality: nodes that have the pod's images already. Source: plugins/imagelocality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from minikube_py.scheduler.framework import MAX_NODE_SCORE, SKIP, CycleState, IntArray, Status
from minikube_py.scheduler.objects import NodeInfo, PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns, Nodes
    from minikube_py.scheduler.framework import Handle

LEAST_BYTES: Final = 23 << 20
MOST_BYTES: Final = 1000 << 20
"""The size limit per container's image."""


class ImageLocality:
    """Score: the bytes that need not be pulled; each image is weighted by the share of nodes that have it, so that pods
    do not all go to a few nodes."""

    name = "ImageLocality"
    bounded = True

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None:
        known = nodes.images.known
        return None if known and any(name in known for name in pod.images.names) else SKIP

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        columns = self._handle.columns
        states = [columns.images.known.get(name) for name in pod.images.names]
        found = np.zeros(1, np.int64)
        for each in states:
            if each is not None and node.slot in each.slots:
                found += _scaled(each.size_bytes, len(each.slots), columns.count)
        return int(_score(found, pod)[0])

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        columns = nodes.columns
        found = np.zeros(columns.size, np.int64)
        for name in pod.images.names:
            image = columns.images.known.get(name)
            if image is not None:
                slots = np.fromiter(image.slots, np.int64, len(image.slots))
                found[slots] += _scaled(image.size_bytes, len(slots), columns.count)
        return _score(found[nodes.index], pod)


def _scaled(size_bytes: int, having: int, count: int) -> int:
    """As Go on amd64: what no int64 holds is the lowest one. Sums wrap around, too, as numpy's do."""
    scaled = int(float(size_bytes) * (having / count))
    return scaled if -(1 << 63) <= scaled < 1 << 63 else -(1 << 63)


def _score(found: IntArray, pod: PodInfo) -> IntArray:
    most = MOST_BYTES * pod.images.containers
    scores: IntArray = MAX_NODE_SCORE * (np.clip(found, LEAST_BYTES, most) - LEAST_BYTES) // (most - LEAST_BYTES)
    return scores
