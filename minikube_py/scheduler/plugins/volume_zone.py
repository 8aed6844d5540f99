"""VolumeZone: nodes must be in the zones named by the labels of a pod's bound volumes.

Source: `plugins/volumezone/volume_zone.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.api.volume_translation import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONES_SEPARATOR
from minikube_py.scheduler.framework import (
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
from minikube_py.scheduler.volumes.views import CLAIMS, CLASSES, VOLUMES, VolumeView

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.kinds import NeededKind

CONFLICT = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) had no available volume zone")
_LABELS: Final[Mapping[str, str]] = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}
"""A volume's label, and the node label to use if the node lacks it."""
_KINDS: Final = (CLAIMS, VOLUMES, CLASSES)
_STATE: Final = "VolumeZone"


class Zone(NamedTuple):
    """The required values of a node label."""

    key: str
    values: frozenset[str]

    def has(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if value is None:
            value = labels.get(_LABELS[self.key])
        return value in self.values


def zones_of(volume: VolumeView) -> tuple[Zone, ...]:
    """Labels with an empty zone are omitted."""
    labels = volume.obj["metadata"].get("labels") or {}
    found = []
    for key in _LABELS:
        values = [text.strip() for text in labels[key].split(ZONES_SEPARATOR)] if key in labels else [""]
        if all(values):
            found.append(Zone(key, frozenset(values)))
    return tuple(found)


class _Refused(Exception):
    """No node suits the pod's claims as they are."""


class VolumeZone:
    name = "VolumeZone"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        if not pod.volumes:
            return ()
        return _KINDS if any(volume.source == PERSISTENT_CLAIM for volume in pod.volumes) else ()

    def events_to_register(self) -> Sequence[EventRegistration]:
        changed = Action.ADD | Action.UPDATE
        return (
            EventRegistration(ClusterEvent(CLASSES.name, Action.ADD), _after_class_added),
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
            EventRegistration(ClusterEvent(CLAIMS.name, changed), _after_claim),
            EventRegistration(ClusterEvent(VOLUMES.name, changed), _after_volume),
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not pod.volumes:
            return None, SKIP
        try:
            zones = self._zones(pod)
        except _Refused as error:
            return None, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, str(error))
        if not zones:
            return None, SKIP
        state.write(_STATE, zones)
        return None, None

    def _zones(self, pod: PodInfo) -> tuple[Zone, ...]:
        found: list[Zone] = []
        for each in pod.volumes:
            if each.source != PERSISTENT_CLAIM:
                continue
            if not each.claim:
                raise _Refused("PersistentVolumeClaim had no name")
            storage = Storage.of(self._handle)
            claim = storage.claims.served(f"{pod.namespace}/{each.claim}")
            if claim is None:
                raise _Refused(f'persistentvolumeclaim "{each.claim}" not found')
            if not claim.volume_name:
                self._check_class(claim.class_name)
                continue
            volume = storage.volumes.served(claim.volume_name)
            if volume is None:
                raise _Refused(f'persistentvolume "{claim.volume_name}" not found')
            found += zones_of(volume)
        return tuple(found)

    def _check_class(self, name: str) -> None:
        """An unbound claim is valid while it waits for its pod."""
        if not name:
            raise _Refused("PersistentVolumeClaim had no pv name and storageClass name")
        found = Storage.of(self._handle).classes.get(name)
        if found is None:
            raise _Refused(f'storageclass.storage.k8s.io "{name}" not found')
        if not found.mode:
            raise _Refused(f'VolumeBindingMode not set for StorageClass "{name}"')
        if not found.waits_for_consumer:
            raise _Refused("PersistentVolume had no name")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        labels = node.labels
        if not any(key in labels for key in _LABELS):
            # A single-zone cluster need not label its nodes.
            return None
        zones: tuple[Zone, ...] = state.read(_STATE)
        return None if all(zone.has(labels) for zone in zones) else CONFLICT


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _after_class_added(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return _queue_if(change.new.waits_for_consumer)


def _after_claim(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    claims = [volume.claim for volume in pod.volumes if volume.source == PERSISTENT_CLAIM]
    return _queue_if(change.new.namespace == pod.namespace and change.new.name in claims)


def _after_volume(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return _queue_if(change.old is None or zones_of(change.old) != zones_of(change.new))
