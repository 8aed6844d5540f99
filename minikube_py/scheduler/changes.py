"""What a watch event changed, in the terms of the events that plugins register for."""

from __future__ import annotations

from minikube_py.scheduler.framework import ASSIGNED_POD, NODE, UNSCHEDULED_POD, Action, ClusterChange, ClusterEvent
from minikube_py.scheduler.objects import NodeInfo, PodInfo

_ACTIONS = {
    "allocatable": Action.UPDATE_NODE_ALLOCATABLE,
    "labels": Action.UPDATE_NODE_LABEL,
    "taints": Action.UPDATE_NODE_TAINT,
    "conditions": Action.UPDATE_NODE_CONDITION,
    "annotations_hash": Action.UPDATE_NODE_ANNOTATION,
    "declared_features": Action.UPDATE_NODE_DECLARED_FEATURE,
}
"""The node changes that events distinguish."""


def node_changes(old: NodeInfo, new: NodeInfo) -> list[ClusterChange]:
    """Empty if nothing relevant to scheduling changed, as with a heartbeat."""
    actions = [Action.UPDATE_NODE_TAINT] if old.unschedulable and not new.unschedulable else []
    actions += [action for name, action in _ACTIONS.items() if getattr(old, name) != getattr(new, name)]
    return [ClusterChange(ClusterEvent(NODE, action), old, new, new.name) for action in dict.fromkeys(actions)]


def columns_differ(old: NodeInfo, new: NodeInfo) -> bool:
    """Whether the columns need the update. Becoming unschedulable changes them, but is no event for waiting pods."""
    return any(getattr(old, name) != getattr(new, name) for name in ("unschedulable", "images", *_ACTIONS))


def pod_changes(old: PodInfo, new: PodInfo) -> list[ClusterChange]:
    """At least one: the general update if nothing more specific changed."""
    resource = ASSIGNED_POD if new.node_name else UNSCHEDULED_POD
    actions = []
    if old.labels != new.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if old.spec is not new.spec:
        if any(amount > new.spec.request(name) for name, amount in old.spec.requests):
            actions.append(Action.UPDATE_POD_SCALE_DOWN)
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            actions.append(Action.UPDATE_POD_TOLERATION)
    if old.gates and not new.gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if old.claims != new.claims:
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    if not actions:
        actions.append(Action.UPDATE_OTHER)
    return [ClusterChange(ClusterEvent(resource, action), old, new, new.node_name) for action in actions]
