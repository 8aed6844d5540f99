"""A node with some pods added or removed, and whether a pod passes every filter there. Pure.

Plugins that keep sums in the cycle's state follow each change (`add_pod`, `remove_pod`).
Source: RunFilterPluginsWithNominatedPods in pkg/scheduler/framework/runtime/framework.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.filtering import rejection
from minikube_py.scheduler.framework import CycleState, PluginError, Status
from minikube_py.scheduler.lockstep import Lockstep, can_go_together, is_counted_whole
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo
from minikube_py.scheduler.preparing import Prepared

_COPIED = ("requested", "pods", "ports")


def copied(node: NodeInfo) -> NodeInfo:
    """A copy whose pods can be changed independently."""
    copy = NodeInfo.__new__(NodeInfo)
    for name in NodeInfo.__slots__:
        setattr(copy, name, getattr(node, name))
    for name in _COPIED:
        setattr(copy, name, getattr(node, name).copy())
    return copy


def charge(node: NodeInfo, pod: PodInfo, sign: int) -> None:
    """Adds the pod to a copied node (1), or removes it (-1)."""
    if sign > 0:
        node.pods[pod.uid] = pod
    else:
        del node.pods[pod.uid]
    spec, requested = pod.spec, node.requested
    for resource, amount in spec.requests:
        requested[resource] = requested.get(resource, 0) + sign * amount
    requested[PODS] = len(node.pods)
    node.nonzero_cpu_milli += sign * spec.nonzero_cpu_milli
    node.nonzero_memory_bytes += sign * spec.nonzero_memory_bytes
    for port in spec.host_ports:
        left = node.ports.get(port, 0) + sign
        if left:
            node.ports[port] = left
        else:
            del node.ports[port]


class DryRuns:
    """For one pod: trials of nodes without some of their pods. `rivals(node)`: the nominated pods whose room the pod
    must not take."""

    __slots__ = ("_columns", "_pod", "_prepared", "_rivals", "_told")

    def __init__(
        self,
        prepared: Prepared,
        told: Mapping[str, Any],
        columns: NodeColumns,
        pod: PodInfo,
        rivals: Callable[[NodeInfo], Sequence[PodInfo]],
    ) -> None:
        self._prepared, self._told, self._columns, self._pod, self._rivals = prepared, told, columns, pod, rivals

    def __call__(self, node: NodeInfo) -> Trial:
        return Trial(self._prepared, self._told, self._columns, self._pod, node, self._rivals(node))

    @property
    def can_go_together(self) -> bool:
        return can_go_together(self._prepared)

    def goes_alone(self, node: NodeInfo) -> bool:
        """Whether the columns lack data that matters for the node."""
        return not is_counted_whole(node, self._joining(node))

    def _joining(self, node: NodeInfo) -> list[PodInfo]:
        return [rival for rival in self._rivals(node) if rival.uid not in node.pods]

    def with_rivals(self, nodes: Sequence[NodeInfo]) -> dict[int, Status]:
        """By slot, what rejects the pod once its rivals are added. Raises: PluginError."""
        counted = self.can_go_together
        together = [node for node in nodes if counted and not self.goes_alone(node)]
        found = {}
        if together:
            runs = self.together(together)
            found = {together[place].slot: status for place, status in runs.rejections().items()}
        decided = {node.slot for node in together}
        for node in nodes:
            rejected = None if node.slot in decided else self(node).with_rivals()
            if rejected is not None:
                found[node.slot] = rejected
        return {node.slot: found[node.slot] for node in nodes if node.slot in found}

    def together(self, nodes: Sequence[NodeInfo], gone: Sequence[Sequence[PodInfo]] = ()) -> Lockstep:
        """Only if `can_go_together`, and for nodes without `goes_alone`. A pod that passes with its rivals also passes
        without them, since such filters only read requested amounts."""
        joining = [self._joining(node) for node in nodes]
        return Lockstep(self._prepared, self._columns, self._pod, nodes, gone, joining if any(joining) else ())


class Trial:
    """One node for one pod. `rivals`: nominated pods whose room the pod must not take."""

    __slots__ = ("_columns", "_pod", "_prepared", "_rivals", "_told", "node", "state")

    def __init__(
        self,
        prepared: Prepared,
        told: Mapping[str, Any],
        columns: NodeColumns,
        pod: PodInfo,
        node: NodeInfo,
        rivals: Iterable[PodInfo] = (),
    ) -> None:
        self.node = copied(node)
        self.state = prepared.state.clone()
        self._prepared, self._columns, self._pod = prepared, columns, pod
        self._told = tuple(plugin for name, plugin in told.items() if name not in prepared.state.skip_filter)
        self._rivals = tuple(rivals)

    def add(self, other: PodInfo) -> None:
        self._change(self.node, self.state, other, 1)

    def remove(self, other: PodInfo) -> None:
        self._change(self.node, self.state, other, -1)

    def _change(self, node: NodeInfo, state: CycleState, other: PodInfo, sign: int) -> None:
        charge(node, other, sign)
        for plugin in self._told:
            change = plugin.add_pod if sign > 0 else plugin.remove_pod
            status = change(state, self._pod, other, node)
            if status is not None and not status.is_success:
                raise PluginError(f'running PreFilterExtension of plugin "{plugin.name}": {status.message}')

    def rejection(self) -> Status | None:
        """The signed status of the first filter that rejects the pod; None if it passes. It must pass with its rivals
        and without them: they may end up elsewhere. Raises: PluginError."""
        if self._rivals:
            rejected = self.with_rivals()
            if rejected is not None:
                return rejected
        return self._filter(self.node, self.state)

    def with_rivals(self) -> Status | None:
        """As `rejection`, with the rivals added."""
        node, state = copied(self.node), self.state.clone()
        for rival in self._rivals:
            if rival.uid not in node.pods:
                self._change(node, state, rival, 1)
        return self._filter(node, state)

    def _filter(self, node: NodeInfo, state: CycleState) -> Status | None:
        # A filter of columns alone may reject wrongly, but never pass wrongly.
        return rejection(self._prepared, state, self._pod, node, self._columns)
