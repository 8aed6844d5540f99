"""Which pods run where: from the informers, and ahead of them from the scheduler's own decisions.

A chosen node is charged at once (assume), so that the next pod sees the nodes as they will be. A failed bind releases
it (forget); the informer's bound pod replaces the assumption (confirm). Assumptions never expire: each bind ends in one
of the two.
"""

from __future__ import annotations

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.groups.state import Groups
from minikube_py.scheduler.objects import NodeInfo, PodInfo


class _Counted:
    """A pod as counted on a node."""

    __slots__ = ("assumed", "node_name", "pod")

    def __init__(self, pod: PodInfo, node_name: str, assumed: bool) -> None:
        self.pod = pod
        self.node_name = node_name
        self.assumed = assumed


class Cache:
    """A pod is identified by its uid."""

    def __init__(self) -> None:
        self.columns = NodeColumns()
        self.groups = Groups()
        self._pods: dict[str, _Counted] = {}
        self.assumed = 0

    def __len__(self) -> int:
        return len(self._pods)

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """Raises: ValueError if the pod is counted already."""
        if pod.uid in self._pods:
            raise ValueError(f"pod {pod.uid}({pod.key}) is in the cache, so can't be assumed")
        if pod.group:
            self.groups.assume(pod)
        self._pods[pod.uid] = _Counted(pod, node_name, True)
        self.columns.add_pod(pod, node_name)
        self.assumed += 1

    def is_assumed(self, uid: str) -> bool:
        counted = self._pods.get(uid)
        return counted is not None and counted.assumed

    def assumed_node(self, uid: str) -> str:
        """The node the pod is assumed on, "" if it is not."""
        counted = self._pods.get(uid)
        return counted.node_name if counted is not None and counted.assumed else ""

    def forget(self, uid: str) -> bool:
        """Releases an assumed pod; False if it is not assumed (confirmed meanwhile, or already released)."""
        counted = self._pods.get(uid)
        if counted is None or not counted.assumed:
            return False
        del self._pods[uid]
        self.assumed -= 1
        if counted.pod.group:
            self.groups.forget(counted.pod)
        self.columns.remove_pod(counted.pod, counted.node_name)
        return True

    def put_pod(self, pod: PodInfo) -> None:
        """A bound pod from the informer; confirms or corrects an assumption."""
        if pod.group:
            self.groups.put(pod)
        counted = self._pods.get(pod.uid)
        if counted is None:
            self._pods[pod.uid] = _Counted(pod, pod.node_name, False)
            self.columns.add_pod(pod, pod.node_name)
            return
        if counted.assumed:
            counted.assumed = False
            self.assumed -= 1
        if counted.node_name == pod.node_name and counted.pod.spec is pod.spec:
            self.columns.replace_pod(counted.pod, pod)
        else:
            self.columns.remove_pod(counted.pod, counted.node_name)
            self.columns.add_pod(pod, pod.node_name)
            counted.node_name = pod.node_name
        counted.pod = pod

    def remove_pod(self, uid: str) -> str:
        """The pod is gone. Returns the node it was counted on, "" if on none."""
        counted = self._pods.pop(uid, None)
        if counted is None:
            return ""
        if counted.assumed:
            self.assumed -= 1
        if counted.pod.group:
            self.groups.remove(counted.pod)
        self.columns.remove_pod(counted.pod, counted.node_name)
        return counted.node_name

    def put_node(self, node: NodeInfo) -> NodeInfo:
        return self.columns.put_node(node)

    def remove_node(self, name: str) -> None:
        self.columns.remove_node(name)
