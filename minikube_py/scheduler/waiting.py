"""The free amounts that waiting pods need on a node, as columns: which of them a changed node may help. Pure.

A pod that leaves a node helps few of thousands of waiting pods. Those that request more than the node could ever free,
even without all lower-priority pods, are excluded in one pass; only the others are checked by the filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from minikube_py.scheduler.columns import COLUMN_MAX
from minikube_py.scheduler.framework import INT64_MIN, BoolArray, Bound, DimensionKind, IntArray
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo

INITIAL_CAPACITY = 64


def needs(bounds: Iterable[Bound]) -> dict[str, int]:
    """The free amount of each resource that a node needs."""
    found: dict[str, int] = {}
    for bound in bounds:
        if bound.dimension.kind is DimensionKind.FREE:
            name = bound.dimension.name
            found[name] = max(found.get(name, INT64_MIN), bound.low)
    return found


class Waiting:
    """Each row is a pod, or several with equal needs."""

    def __init__(self) -> None:
        self._free_rows: list[int] = []
        self._size = 0
        self._priorities: IntArray = np.zeros(INITIAL_CAPACITY, np.int64)
        self._needs: dict[str, IntArray] = {}

    def put(self, priority: int, needs: Mapping[str, int]) -> int:
        """Returns the row number."""
        row = self._free_rows.pop() if self._free_rows else self._size
        if row == self._size:
            self._size += 1
            if self._size > len(self._priorities):
                self._grow()
        self._priorities[row] = priority
        for resource, amount in needs.items():
            if resource not in self._needs:
                self._needs[resource] = np.full(len(self._priorities), INT64_MIN, np.int64)
            self._needs[resource][row] = min(amount, COLUMN_MAX)
        return row

    def drop(self, row: int) -> None:
        for column in self._needs.values():
            column[row] = INT64_MIN
        self._free_rows.append(row)

    def may_fit(self, node: NodeInfo | None) -> BoolArray:
        """By row. False: does not fit even without all lower-priority pods."""
        size = self._size
        if node is None or not node.present:
            return np.zeros(size, np.bool_)
        pods = sorted(node.pods.values(), key=lambda pod: pod.priority)
        steps = np.array([pod.priority for pod in pods], np.int64)
        first_staying = np.searchsorted(steps, self._priorities[:size], side="left")
        mask = np.ones(size, np.bool_)
        for resource, column in self._needs.items():
            mask &= column[:size] <= _left(node, pods, resource)[first_staying]
        return mask

    def _grow(self) -> None:
        extra = len(self._priorities)
        self._priorities = np.concatenate((self._priorities, np.zeros(extra, np.int64)))
        for resource, column in self._needs.items():
            self._needs[resource] = np.concatenate((column, np.full(extra, INT64_MIN, np.int64)))


def _left(node: NodeInfo, pods: list[PodInfo], resource: str) -> IntArray:
    """By i, the node's free amount with only `pods[i:]` on it."""
    left = [node.allocatable.get(resource, 0)]
    for pod in reversed(pods):
        left.append(left[-1] - (1 if resource == PODS else pod.spec.request(resource)))
    return np.array([max(min(each, COLUMN_MAX), -COLUMN_MAX) for each in reversed(left)], np.int64)
