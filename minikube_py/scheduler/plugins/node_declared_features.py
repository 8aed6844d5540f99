"""NodeDeclaredFeatures: a pod that needs a kubelet feature fits nodes that declare it.

Source: plugins/nodedeclaredfeatures; component-helpers/nodedeclaredfeatures. Upstream's other features (resizes,
WebSockets) concern pods that run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from minikube_py.scheduler.asks import RESTARTS_ALL, SHARES_HOST_NETWORK
from minikube_py.scheduler.framework import (
    NODE,
    SKIP,
    UNSCHEDULED_POD,
    Action,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    PreFilterResult,
    QueueingHint,
    Status,
    own_update,
)
from minikube_py.scheduler.objects import NodeInfo, PodInfo, PodSpec

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns

NOT_DECLARED: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) didn't match Pod's required features")
FEATURES: Final[Mapping[str, str]] = {
    "RestartAllContainersOnContainerExits": RESTARTS_ALL,
    "UserNamespacesHostNetworkSupport": SHARES_HOST_NETWORK,
}
"""By feature: how a pod's spec uses it."""
_instances = count()


class NodeDeclaredFeatures:
    """Filter: the node's `status.declaredFeatures` include all that the pod needs. `features`: as FEATURES."""

    name = "NodeDeclaredFeatures"
    node_local = True

    def __init__(
        self, args: Mapping[str, Any] | None = None, handle: object = None, features: Mapping[str, str] = FEATURES
    ) -> None:
        self._features = features
        self._key = f"{self.name}/{next(_instances)}"

    def needed(self, spec: PodSpec) -> frozenset[str]:
        if not spec.uses:
            return frozenset()
        found: frozenset[str] | None = spec.cache.get(self._key)
        if found is None:
            found = frozenset(name for name, use in self._features.items() if use in spec.uses)
            spec.cache[self._key] = found
        return found

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE)),
            EventRegistration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE), self._after_pod),
        )

    def _after_pod(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        if own_update(pod, change) is QueueingHint.SKIP:
            return QueueingHint.SKIP
        same = self.needed(change.old.spec) == self.needed(change.new.spec)
        return QueueingHint.SKIP if same else QueueingHint.QUEUE

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        return None, None if self.needed(pod.spec) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if self.needed(pod.spec) <= node.declared_features else NOT_DECLARED
