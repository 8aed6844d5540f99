"""Pods nominated to nodes that are being vacated for them. Pure.

A nomination counts from the decision, before the API server has it, until its pod is assumed or gone. Source:
pkg/scheduler/backend/queue/nominator.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from minikube_py.scheduler.objects import PodInfo

Rivals = Mapping[str, Sequence[PodInfo]]
"""By node, the pods nominated to it whose room another pod must not take."""


class Nominations:
    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._node_of)

    def on(self, node_name: str) -> Collection[PodInfo]:
        return self._by_node.get(node_name, _NOBODY).values()

    def node_of(self, uid: str) -> str:
        """The pod's nominated node, or ""."""
        return self._node_of.get(uid, "")

    def rivals(self, pod: PodInfo) -> dict[str, list[PodInfo]]:
        """By node, the nominated pods of equal or higher priority, whose room `pod` must not take."""
        found: dict[str, list[PodInfo]] = {}
        for node_name, pods in self._by_node.items():
            mine = [other for other in pods.values() if other.priority >= pod.priority and other.uid != pod.uid]
            if mine:
                found[node_name] = mine
        return found

    def put(self, pod: PodInfo, node_name: str) -> None:
        """Replaces the pod's nomination; "" removes it."""
        self.drop(pod.uid)
        if node_name:
            self.version += 1
            self._node_of[pod.uid] = node_name
            self._by_node.setdefault(node_name, {})[pod.uid] = pod

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """The current pod. If the API never had a nomination, a local one is kept."""
        node_name = new.nominated_node
        if not old.nominated_node and not node_name:
            node_name = self._node_of.get(old.uid, "")
        self.drop(old.uid)
        self.put(new, node_name)

    def drop(self, uid: str) -> None:
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        self.version += 1
        pods = self._by_node[node_name]
        del pods[uid]
        if not pods:
            del self._by_node[node_name]


_NOBODY: dict[str, PodInfo] = {}
