"""NodePorts: one pod per node and host port. 0.0.0.0 conflicts with every address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
    NODE,
    SKIP,
    Action,
    BoolArray,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    IntArray,
    PreFilterResult,
    QueueingHint,
    Status,
)
from minikube_py.scheduler.objects import HostPort, NodeInfo, PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns, Nodes

TAKEN = Status(Code.UNSCHEDULABLE, "node(s) didn't have free ports for the requested pod ports")
ANY_ADDRESS = "0.0.0.0"


def conflict(wanted: HostPort, used: HostPort) -> bool:
    return (
        wanted.port == used.port
        and wanted.protocol == used.protocol
        and (wanted.ip == used.ip or ANY_ADDRESS in (wanted.ip, used.ip))
    )


def _after_pod_deleted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    freed = change.old.spec.host_ports
    helps = any(conflict(wanted, each) for wanted in pod.spec.host_ports for each in freed)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


class NodePorts:
    """Filter: all the pod's host ports are free on the node."""

    name = "NodePorts"
    node_local = True

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        pass

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _after_pod_deleted),
            EventRegistration(ClusterEvent(NODE, Action.ADD)),
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        return None, None if pod.spec.host_ports else SKIP

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if node.ports:
            for wanted in pod.spec.host_ports:
                if any(conflict(wanted, used) for used in node.ports):
                    return TAKEN
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        columns = nodes.columns
        taken: list[int] = []
        for wanted in pod.spec.host_ports:
            for slot in columns.port_users(wanted.protocol, wanted.port):
                node = columns.by_slot[slot]
                if node is not None and any(conflict(wanted, used) for used in node.ports):
                    taken.append(slot)
        return ~nodes.slot_mask(taken) if taken else None

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        return np.ones(len(nodes), np.int64), lambda code: TAKEN
