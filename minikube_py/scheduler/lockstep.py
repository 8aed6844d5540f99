"""Many nodes, each with some pods added or removed, and whether one pod then passes every filter there. Pure.

If the filters read only the requested amounts of a node's pods, preemption tries its candidates together: one pass over
columns for the first pod restored on each of them, one for the second, and so on. The same applies to nodes that other
pods are nominated to. The result equals `dry_run.Trial` on each node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from minikube_py.scheduler.columns import COLUMN_MAX, NodeColumns, Nodes
from minikube_py.scheduler.framework import OF_NO_PODS, OF_REQUESTS, BoolArray, IntArray, PluginError, Status
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo
from minikube_py.scheduler.preparing import Prepared

Filters = Sequence[tuple[str, Any]]


def can_go_together(prepared: Prepared) -> bool:
    """Whether all filters read only the requests of a node's pods."""
    return all(getattr(plugin, "of_pods", None) in (OF_NO_PODS, OF_REQUESTS) for _, plugin in prepared.filters)


def is_counted_whole(node: NodeInfo, joining: Collection[PodInfo] = ()) -> bool:
    """Whether no sum, including joining pods, is capped in its column."""
    requested: Mapping[str, int] = node.requested
    if joining:
        sums = Counter(requested)
        for pod in joining:
            for resource, amount in pod.spec.requests:
                sums[resource] += amount
        requested = sums
    return all(amount < COLUMN_MAX for amount in requested.values())


class Supposed(Nodes):
    """`less(resource)`: by node, the amount to subtract from what the columns say is requested."""

    __slots__ = ("_less",)

    def __init__(self, columns: NodeColumns, slots: IntArray, less: Callable[[str], IntArray]) -> None:
        super().__init__(columns, slots, len(slots))
        self._less = less

    def requested(self, resource: str) -> IntArray:
        return super().requested(resource) - self._less(resource)

    def free(self, resource: str) -> IntArray:
        return super().free(resource) + self._less(resource)

    def nonzero_requested(self, resource: str) -> IntArray:
        raise PluginError("no filter is to look at what is counted for scores")


class Lockstep:
    """`gone`: by node, the pods assumed gone at first. `joining`: pods assumed there in addition, not yet on the
    node."""

    def __init__(
        self,
        prepared: Prepared,
        columns: NodeColumns,
        pod: PodInfo,
        nodes: Sequence[NodeInfo],
        gone: Sequence[Sequence[PodInfo]] = (),
        joining: Sequence[Sequence[PodInfo]] = (),
    ) -> None:
        self._prepared, self._columns, self._pod = prepared, columns, pod
        self._moving = [each for each in prepared.filters if each[1].of_pods == OF_REQUESTS]
        self._slots = np.array([node.slot for node in nodes], np.int64)
        self._gone: list[dict[str, PodInfo]] = [{pod.uid: pod for pod in pods} for pods in gone or ((),) * len(nodes)]
        self._joining = joining
        self._less: dict[str, IntArray] = {}

    def rejections(self) -> dict[int, Status]:
        """By index in `nodes`, the signed status of the first filter that rejects the pod. Raises: PluginError."""
        found: dict[int, Status] = {}
        left = np.arange(len(self._slots))
        for name, plugin in self._prepared.filters:
            passing = self._pass(plugin, left)
            rejected = left[~passing]
            if len(rejected):
                codes, meaning = plugin.reject_codes(self._prepared.state, self._pod, self._supposed(rejected))
                for place, code in zip(rejected.tolist(), codes.tolist(), strict=True):
                    found[place] = meaning(code).by(name)
            left = left[passing]
        return found

    def let_back(self, places: IntArray, pods: Sequence[PodInfo]) -> BoolArray:
        """Restores one pod on each node; if the pod to be placed then does not fit, it is removed again, and the result
        is False. Raises: PluginError."""
        back = {resource: _amounts(pods, resource) for resource in self._less}
        for resource, amounts in back.items():
            self._less[resource][places] -= amounts
        for place, pod in zip(places.tolist(), pods, strict=True):
            del self._gone[place][pod.uid]
        fits = np.ones(len(places), np.bool_)
        for _, plugin in self._moving:
            fits &= self._pass(plugin, places)
        for resource, amounts in back.items():
            self._less[resource][places[~fits]] += amounts[~fits]
        for i in np.flatnonzero(~fits).tolist():
            self._gone[int(places[i])][pods[i].uid] = pods[i]
        return fits

    def _pass(self, plugin: Any, places: IntArray) -> BoolArray:
        mask: BoolArray | None = plugin.filter_nodes(self._prepared.state, self._pod, self._supposed(places))
        return np.ones(len(places), np.bool_) if mask is None else mask

    def _supposed(self, places: IntArray) -> Supposed:
        return Supposed(self._columns, self._slots[places], lambda resource: self._less_of(resource)[places])

    def _less_of(self, resource: str) -> IntArray:
        less = self._less.get(resource)
        if less is None:
            less = np.array([_sum(pods.values(), resource) for pods in self._gone], np.int64)
            if self._joining:
                less -= np.array([_sum(pods, resource) for pods in self._joining], np.int64)
            self._less[resource] = less
        return less


def _sum(pods: Collection[PodInfo], resource: str) -> int:
    return len(pods) if resource == PODS else sum([pod.spec.request(resource) for pod in pods])


def _amounts(pods: Sequence[PodInfo], resource: str) -> IntArray:
    if resource == PODS:
        return np.ones(len(pods), np.int64)
    return np.array([pod.spec.request(resource) for pod in pods], np.int64)
