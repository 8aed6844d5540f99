"""NodeVolumeLimits: no node attaches more volumes of a CSI driver than its CSINode allows.

Volumes of in-tree plugins count for the drivers that replaced them. Source: `plugins/nodevolumelimits/csi.go`, with its
feature gate VolumeLimitScaling off as in 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.volume_translation import BY_PLUGIN, IN_TREE, TranslationError, in_tree_of
from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
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
from minikube_py.scheduler.objects import PERSISTENT_CLAIM, NodeInfo, PodInfo, PodVolume
from minikube_py.scheduler.volumes.storage import Storage
from minikube_py.scheduler.volumes.views import ATTACHMENTS, CLAIMS, CLASSES, NODE_DRIVERS, VOLUMES, ClaimView

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.kinds import NeededKind

TOO_MANY = Status(Code.UNSCHEDULABLE, "node(s) exceed max volume count")
_KINDS: Final = (NODE_DRIVERS, VOLUMES, CLAIMS, CLASSES, ATTACHMENTS)
_UNBOUND: Final = "\0unbound/"
"""Prefix of a claim's name used as a handle: no volume has such a handle."""

Attached = dict[tuple[str, str], None]
"""(driver, handle) of each volume."""


class _Missing(Exception):
    """A claim of the pod to be placed is missing."""


class _Broken(Exception):
    """The volumes cannot be counted."""


def _counts(volume: PodVolume) -> bool:
    return volume.has_claim or volume.source in IN_TREE


class NodeVolumeLimits:
    name = "NodeVolumeLimits"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        return _KINDS if pod.volumes and any(map(_counts, pod.volumes)) else ()

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(NODE_DRIVERS.name, Action.ADD)),
            EventRegistration(ClusterEvent(NODE_DRIVERS.name, Action.UPDATE), _after_node_drivers),
            EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _after_pod_deleted),
            EventRegistration(ClusterEvent(CLAIMS.name, Action.ADD), _after_claim_added),
            EventRegistration(ClusterEvent(ATTACHMENTS.name, Action.DELETE), _after_detached),
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not self.kinds_needed(pod):
            return None, SKIP
        storage = Storage.of(self._handle)
        if len(storage.node_drivers):
            return None, None
        try:
            _count(storage, pod, False, True, {})
        except (_Missing, _Broken):
            return None, None
        # No node has a limit.
        return None, SKIP

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        storage = Storage.of(self._handle)
        drivers = storage.node_drivers.get(node.name)
        wanted: Attached = {}
        attached: Attached = {}
        try:
            _count(storage, pod, drivers is not None, True, wanted)
            if not wanted or drivers is None or not drivers.limits:
                return None
            for other in node.pods.values():
                if other.volumes:
                    _count(storage, other, True, False, attached)
        except _Missing as error:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, str(error))
        except _Broken as error:
            return Status(Code.ERROR, str(error))
        numbers = Counter(driver for driver, _ in attached)
        numbers.update(
            driver for driver, handle in _attachments(storage, node.name) if (driver, handle) not in attached
        )
        new = Counter(driver for driver, handle in wanted if (driver, handle) not in attached)
        if any(numbers[driver] + count > drivers.limits.get(driver, _NO_LIMIT) for driver, count in new.items()):
            return TOO_MANY
        return None


_NO_LIMIT: Final = 1 << 63


def _count(storage: Storage, pod: PodInfo, migrates: bool, is_new: bool, found: Attached) -> None:
    """Adds a pod's volumes. `migrates`: whether the node has drivers at all. Raises: _Missing, _Broken."""
    for volume in pod.volumes:
        if not volume.has_claim:
            _count_inline(volume, migrates, found)
            continue
        if not volume.claim:
            raise _Broken("PersistentVolumeClaim had no name")
        claim = storage.claims.served(f"{pod.namespace}/{volume.claim}")
        if claim is None:
            if is_new:
                missing = f'persistentvolumeclaim "{volume.claim}" not found'
                raise _Missing(f"looking up PVC {pod.namespace}/{volume.claim}: {missing}")
            continue
        if volume.is_ephemeral and (why := claim.why_not_of(pod.key, pod.uid)):
            raise _Broken(why)
        driver, handle = _driver_of(storage, claim, migrates)
        if driver and handle:
            found[driver, handle] = None


def _count_inline(volume: PodVolume, migrates: bool, found: Attached) -> None:
    plugin = IN_TREE.get(volume.source)
    if plugin is None or not plugin.is_on or not migrates:
        return
    try:
        found[plugin.driver, plugin.handle(volume.details, None)] = None
    except TranslationError as error:
        raise _Broken(f"converting volume({volume.name}) from inline to csi: {error}") from error


def _driver_of(storage: Storage, claim: ClaimView, migrates: bool) -> tuple[str, str]:
    """Empty if the volume does not count."""
    volume = storage.volumes.served(claim.volume_name) if claim.volume_name else None
    if volume is None:
        return _driver_of_class(storage, claim, migrates)
    source = volume.obj["spec"].get("csi")
    if source is not None:
        return source.get("driver") or "", source.get("volumeHandle") or ""
    found = in_tree_of(volume.obj["spec"])
    if found is None or not found[0].is_on or not migrates:
        return "", ""
    try:
        return found[0].driver, found[0].handle(found[1], volume.obj["metadata"].get("labels") or {})
    except TranslationError:
        return "", ""


def _driver_of_class(storage: Storage, claim: ClaimView, migrates: bool) -> tuple[str, str]:
    """Of a volume not provisioned yet."""
    found = storage.classes.get(claim.class_name) if claim.class_name else None
    if found is None:
        return "", ""
    plugin = BY_PLUGIN.get(found.provisioner)
    handle = f"{_UNBOUND}{claim.key}"
    if plugin is None:
        return found.provisioner, handle
    return (plugin.driver, handle) if plugin.is_on and migrates else ("", "")


def _attachments(storage: Storage, node: str) -> Attached:
    found: Attached = {}
    for attachment in storage.attachments_on(node):
        volume = storage.volumes.served(attachment.volume) if attachment.volume else None
        source = None if volume is None else volume.obj["spec"].get("csi")
        if attachment.attacher and source is not None:
            found[attachment.attacher, source.get("volumeHandle") or ""] = None
    return found


# --- queueing hints -------------------------------------------------------------------------------------------------


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _after_node_drivers(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    before = change.old.counts
    return _queue_if(any(count > before.get(name, 0) for name, count in change.new.counts.items()))


def _after_pod_deleted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    gone: PodInfo = change.old
    placed = bool(gone.node_name or gone.nominated_node or change.node)
    return _queue_if(placed and any(map(_counts, gone.volumes)))


def _after_claim_added(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    claim: ClaimView = change.new
    return _queue_if(
        claim.namespace == pod.namespace and any(v.claim == claim.name for v in pod.volumes if v.has_claim)
    )


def _after_detached(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    for volume in pod.volumes:
        plugin = IN_TREE.get(volume.source)
        if volume.source == PERSISTENT_CLAIM or (plugin is not None and plugin.driver == change.old.attacher):
            return QueueingHint.QUEUE
    return QueueingHint.SKIP
