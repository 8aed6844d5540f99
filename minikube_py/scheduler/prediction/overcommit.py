"""Overcommit by prediction: a node's load is its predicted usage, not its pods' reservations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from minikube_py.scheduler.columns import Emptied, Nodes
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.configuration.own_args import anything, listed, mapped, one_of, text
from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
    MAX_NODE_SCORE,
    NODE,
    Action,
    BoolArray,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    Handle,
    IntArray,
    Status,
)
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo
from minikube_py.scheduler.plugins.node_resources import TOO_MANY_PODS, codes_of
from minikube_py.scheduler.prediction.predictor import FloatArray, asked, predictor_named
from minikube_py.scheduler.prediction.usage import RESOURCES, Rows, args_of, meter_of

_KNOWN: Final = {"predictor": text, "predictorArgs": mapped(anything), "resources": listed(one_of(RESOURCES), least=1)}


class OvercommitByPrediction:
    """Replaces NodeResourcesFit. Filter: the predicted peak of the node's pods plus the pod's reservation fit the node;
    unpredicted resources count as reserved. Score: the emptier after that, the better.

    Args: `usage`, `usageArgs`: the source, without which it is metrics.k8s.io; `predictor` (n-sigma), `predictorArgs`;
    `resources` ([cpu, memory])."""

    name = "OvercommitByPrediction"
    bounded = True

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        args = args_of(self.name, args, _KNOWN)
        self.resources: Sequence[str] = tuple(dict.fromkeys(args.get("resources", RESOURCES)))
        self.predictor = predictor_named(args.get("predictor", "n-sigma"), args.get("predictorArgs"))
        self.meter = meter_of(self.name, args, handle, self.predictor.samples)
        self._ahead = self.predictor.looks_ahead
        if self._ahead and not callable(getattr(self.meter.source, "ahead", None)):
            raise ConfigError(
                f"predictor {self.predictor.name} looks ahead; {self.meter.name} does not know the future"
            )
        self.rows = Rows(handle.columns, self.meter, len(self.resources), self._peaks)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Falling usage is no event: pods that wait for it are retried by the queue's timeout."""
        return (
            EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)),
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)),
        )

    def _peaks(self, node: NodeInfo) -> list[float]:
        pods = list(node.pods.values())
        return [
            asked(self.predictor, self.meter.past(pods, resource, self._ahead), f"{resource} of node {node.name}")
            for resource in self.resources
        ]

    # --- filter -----------------------------------------------------------------------------------------------------

    def _lacking(self, pod: PodInfo, node: NodeInfo, peaks: FloatArray) -> Iterator[tuple[str, bool]]:
        """The lacking resources, and whether each would suffice without other pods."""
        if node.requested[PODS] + 1 > node.allocatable.get(PODS, 0):
            yield TOO_MANY_PODS, True
        used = dict(zip(self.resources, peaks.tolist(), strict=True))
        for resource, amount in pod.spec.requests:
            capacity = node.allocatable.get(resource, 0)
            if used.get(resource, node.requested.get(resource, 0)) + amount > capacity:
                yield f"Insufficient {resource}", amount <= capacity

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        lacking = list(self._lacking(pod, node, self.rows.one(node)))
        return _status([text for text, _ in lacking], all(curable for _, curable in lacking)) if lacking else None

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        mask: BoolArray = nodes.free(PODS) >= 1
        for resource, amount in pod.spec.requests:
            mask &= self._used(nodes, resource) + amount <= nodes.allocatable(resource)
        return mask

    def _used(self, nodes: Nodes, resource: str) -> FloatArray | IntArray:
        if resource not in self.resources or isinstance(nodes, Emptied):
            return nodes.requested(resource)
        return self.rows.of_slots(nodes.index)[:, self.resources.index(resource)]

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        beyond: BoolArray = np.zeros(len(nodes), np.bool_)
        lacking: dict[str, BoolArray] = {}
        for resource, amount in pod.spec.requests:
            capacity = nodes.allocatable(resource)
            mask = lacking[resource] = self._used(nodes, resource) + amount > capacity
            beyond |= mask & (capacity < amount)
        return codes_of(nodes.free(PODS) < 1, lacking, beyond)

    # --- score ------------------------------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        capacities = [np.array([node.allocatable.get(resource, 0)]) for resource in self.resources]
        return int(self._scores(pod, self.rows.one(node)[None, :], capacities)[0])

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray:
        capacities = [nodes.allocatable(resource) for resource in self.resources]
        return self._scores(pod, self.rows.of_slots(nodes.index), capacities)

    def _scores(self, pod: PodInfo, peaks: FloatArray, capacities: Sequence[IntArray]) -> IntArray:
        fullest = np.zeros(len(peaks))
        for at, (resource, capacity) in enumerate(zip(self.resources, capacities, strict=True)):
            share = (peaks[:, at] + pod.spec.request(resource)) / np.maximum(capacity, 1)
            fullest = np.maximum(fullest, np.minimum(share, 1.0))
        found: IntArray = np.floor((1 - fullest) * MAX_NODE_SCORE + 0.5).astype(np.int64)
        return found


def _status(reasons: Sequence[str], curable: bool) -> Status:
    return Status(Code.UNSCHEDULABLE if curable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE, *reasons)
