"""VolumeRestrictions: a disk serves one pod per node, and a ReadWriteOncePod claim one pod per cluster.

Source: `plugins/volumerestrictions/volume_restrictions.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
    NODE,
    SKIP,
    Action,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    PreFilterResult,
    QueueingHint,
    Status,
)
from minikube_py.scheduler.objects import PERSISTENT_CLAIM, NodeInfo, PodInfo
from minikube_py.scheduler.volumes.storage import Storage
from minikube_py.scheduler.volumes.views import CLAIMS

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.kinds import NeededKind

DISK_CONFLICT = Status(Code.UNSCHEDULABLE, "node(s) had no available disk")
CLAIM_IN_USE = Status(
    Code.UNSCHEDULABLE,
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)
ONE_POD: Final = "ReadWriteOncePod"
_STATE: Final = "VolumeRestrictions"
_Disk = Mapping[str, Any]


def _both_read(one: _Disk, other: _Disk) -> bool:
    return bool(one.get("readOnly")) and bool(other.get("readOnly"))


def _same_gce(one: _Disk, other: _Disk) -> bool:
    return one.get("pdName") == other.get("pdName") and not _both_read(one, other)


def _same_aws(one: _Disk, other: _Disk) -> bool:
    return one.get("volumeID") == other.get("volumeID")


def _same_iscsi(one: _Disk, other: _Disk) -> bool:
    return one.get("iqn") == other.get("iqn") and not _both_read(one, other)


def _same_rbd(one: _Disk, other: _Disk) -> bool:
    monitors = other.get("monitors") or ()
    if not any(monitor in monitors for monitor in one.get("monitors") or ()):
        return False
    pools = [disk.get("pool") or "" for disk in (one, other)]
    return pools[0] == pools[1] and one.get("image") == other.get("image") and not _both_read(one, other)


_CONFLICTS: Final[Mapping[str, Callable[[_Disk, _Disk], bool]]] = {
    "gcePersistentDisk": _same_gce,
    "awsElasticBlockStore": _same_aws,
    "iscsi": _same_iscsi,
    "rbd": _same_rbd,
}
"""By source, whether two volumes prevent their pods from sharing a node."""


def disks_conflict(pod: PodInfo, other: PodInfo) -> bool:
    for volume in pod.volumes:
        conflict = _CONFLICTS.get(volume.source)
        if conflict is not None and any(
            each.source == volume.source and conflict(volume.details, each.details) for each in other.volumes
        ):
            return True
    return False


def _claim_names(pod: PodInfo) -> list[str]:
    return [volume.claim for volume in pod.volumes if volume.source == PERSISTENT_CLAIM]


class _Uses(NamedTuple):
    """The pod's ReadWriteOncePod claims, and how often pods on nodes use them."""

    claims: frozenset[str]
    times: int


class VolumeRestrictions:
    name = "VolumeRestrictions"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        return (CLAIMS,) if pod.volumes and _claim_names(pod) else ()

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _after_pod_deleted),
            EventRegistration(ClusterEvent(NODE, Action.ADD)),
            EventRegistration(ClusterEvent(CLAIMS.name, Action.ADD), _after_claim_added),
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not pod.volumes:
            return None, SKIP
        alone = []
        for name in _claim_names(pod):
            claim = Storage.of(self._handle).claims.served(f"{pod.namespace}/{name}")
            if claim is None:
                missing = f'persistentvolumeclaim "{name}" not found'
                return None, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, missing)
            if ONE_POD in claim.modes:
                alone.append(name)
        claims = frozenset(alone)
        uses = _Uses(claims, sum(nodes.is_claim_in_use(f"{pod.namespace}/{name}") for name in claims))
        if not uses.times and not any(volume.source in _CONFLICTS for volume in pod.volumes):
            return None, SKIP
        state.write(_STATE, uses)
        return None, None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._add(state, added, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._add(state, removed, -1)
        return None

    def _add(self, state: CycleState, other: PodInfo, by: int) -> None:
        uses: _Uses = state.read(_STATE)
        more = by * sum(name in uses.claims for name in _claim_names(other))
        if more:
            state.write(_STATE, uses._replace(times=uses.times + more))

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if any(other.volumes and disks_conflict(pod, other) for other in node.pods.values()):
            return DISK_CONFLICT
        uses: _Uses = state.read(_STATE)
        return CLAIM_IN_USE if uses.times > 0 else None


def _after_claim_added(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    used = change.new.namespace == pod.namespace and change.new.name in _claim_names(pod)
    return QueueingHint.QUEUE if used else QueueingHint.SKIP


def _after_pod_deleted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    gone: PodInfo = change.old
    if gone.namespace != pod.namespace or not gone.volumes:
        return QueueingHint.SKIP
    claims = _claim_names(pod)
    shared = any(name in claims for name in _claim_names(gone))
    return QueueingHint.QUEUE if shared or disks_conflict(pod, gone) else QueueingHint.SKIP
