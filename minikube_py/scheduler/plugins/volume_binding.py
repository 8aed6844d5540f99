"""VolumeBinding: places a pod where its volumes are or can be provisioned, and binds its waiting claims first.

Source: `plugins/volumebinding/volume_binding.go`. It scores only behind a feature gate that is off in 1.36
(StorageCapacityScoring), so it does not score here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.volume_translation import TranslationError
from minikube_py.errors import MinikubeError
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
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.plugins.node_resources import ArgsError
from minikube_py.scheduler.volumes.assumed import OutOfSync
from minikube_py.scheduler.volumes.binding import BindingFailed, Chosen, assume, restore, wait_bound, write
from minikube_py.scheduler.volumes.finding import FindingError, Found, PodClaims, find, sorted_claims
from minikube_py.scheduler.volumes.storage import Storage
from minikube_py.scheduler.volumes.views import CAPACITIES, CLAIMS, CLASSES, DRIVERS, NODE_DRIVERS, VOLUMES, ClaimView

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.kinds import NeededKind

BIND_TIMEOUT_S: Final = 600
UNBOUND = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "pod has unbound immediate PersistentVolumeClaims")
_KINDS: Final = (VOLUMES, CLAIMS, CLASSES, NODE_DRIVERS, DRIVERS, CAPACITIES)
_CLAIMS: Final = "VolumeBinding"
_CHOSEN: Final = "VolumeBinding/chosen"


class Unusable(Exception):
    """One of the pod's claims is missing or cannot be used."""


def claims_of(storage: Storage, pod: PodInfo) -> list[ClaimView]:
    """The claims of the pod's volumes, in order. Raises: Unusable."""
    found = []
    for volume in pod.volumes:
        if not volume.has_claim:
            continue
        claim = storage.claims.get(f"{pod.namespace}/{volume.claim}")
        if claim is None and volume.is_ephemeral:
            waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
            raise Unusable(f'{waiting} "{volume.claim}"')
        if claim is None:
            raise Unusable(f'persistentvolumeclaim "{volume.claim}" not found')
        if claim.is_lost:
            lost = f'bound to non-existent persistentvolume "{claim.volume_name}"'
            raise Unusable(f'persistentvolumeclaim "{claim.name}" {lost}')
        if claim.is_deleting:
            raise Unusable(f'persistentvolumeclaim "{claim.name}" is being deleted')
        if volume.is_ephemeral and (why := claim.why_not_of(pod.key, pod.uid)):
            raise Unusable(why)
        found.append(claim)
    return found


def needs_claims(pod: PodInfo, kinds: Sequence[NeededKind]) -> Sequence[NeededKind]:
    """`kinds` if the pod has a volume with a claim."""
    return kinds if any(volume.has_claim for volume in pod.volumes) else ()


def is_of_pod(pod: PodInfo, claim: ClaimView) -> bool:
    return claim.namespace == pod.namespace and any(volume.claim == claim.name for volume in pod.volumes)


class VolumeBinding:
    name = "VolumeBinding"
    parallel_pre_bind = True

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle
        self._timeout_s = _timeout_s(args or {})

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        return needs_claims(pod, _KINDS) if pod.volumes else ()

    def events_to_register(self) -> Sequence[EventRegistration]:
        changed = Action.ADD | Action.UPDATE
        return (
            EventRegistration(ClusterEvent(CLASSES.name, changed), _after_class),
            EventRegistration(ClusterEvent(CLAIMS.name, changed), _after_claim),
            EventRegistration(ClusterEvent(VOLUMES.name, changed)),
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
            EventRegistration(ClusterEvent(NODE_DRIVERS.name, changed), _after_node_drivers),
            EventRegistration(ClusterEvent(DRIVERS.name, Action.UPDATE), _after_driver),
            EventRegistration(ClusterEvent(CAPACITIES.name, changed), _after_capacity),
        )

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not self.kinds_needed(pod):
            return None, SKIP
        storage = Storage.of(self._handle)
        try:
            claims = sorted_claims(storage, claims_of(storage, pod))
        except Unusable as error:
            return None, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, str(error))
        except FindingError as error:
            return None, Status(Code.ERROR, str(error))
        if claims.immediate:
            return None, UNBOUND
        state.write(_CLAIMS, claims)
        return None, SKIP if claims.are_everywhere(storage) else None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        try:
            found = self._find(state, node)
        except (FindingError, TranslationError) as error:
            return Status(Code.ERROR, str(error))
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, *found.reasons) if found.reasons else None

    def _find(self, state: CycleState, node: NodeInfo) -> Found:
        claims: PodClaims = state.read(_CLAIMS)
        return find(Storage.of(self._handle), claims, node.name, node.labels)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if not self.kinds_needed(pod):
            return None
        claims: PodClaims = state.read(_CLAIMS)
        if claims.are_bound:
            return None
        try:
            # Searched again: volumes free during filtering may be taken by now.
            found = self._find(state, self._handle.columns.by_name[node_name])
            if found.reasons:
                return Status(Code.UNSCHEDULABLE, *found.reasons)
            state.write(_CHOSEN, assume(Storage.of(self._handle), found, node_name))
        except (FindingError, TranslationError, OutOfSync) as error:
            return Status(Code.ERROR, str(error))
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """After PreBind has started there is nothing to do: it restores what it does not write."""
        chosen = _chosen(state)
        if chosen is not None:
            restore(Storage.of(self._handle), chosen)
            state.delete(_CHOSEN)

    def has_pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        return _chosen(state) is not None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        chosen = _chosen(state)
        assert chosen is not None
        storage = Storage.of(self._handle)
        state.delete(_CHOSEN)
        try:
            written = await write(self._handle.client, storage, chosen)
            await wait_bound(self._handle, storage, pod, node_name, written, self._timeout_s)
        except BindingFailed as error:
            return Status(Code.ERROR, str(error))
        except MinikubeError as error:
            return Status(Code.ERROR, str(error) or type(error).__name__)
        return None


def _chosen(state: CycleState) -> Chosen | None:
    try:
        chosen: Chosen = state.read(_CHOSEN)
    except KeyError:
        return None
    return chosen


def _timeout_s(args: Mapping[str, Any]) -> float:
    """Raises: ArgsError."""
    for name in args:
        if name not in ("bindTimeoutSeconds", "shape"):
            raise ArgsError(f'strict decoding error: unknown field "{name}"')
    if args.get("shape") is not None:
        why = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        raise ArgsError(f"shape: Invalid value: {args['shape']}: {why}")
    timeout_s = args.get("bindTimeoutSeconds")
    if timeout_s is None:
        return BIND_TIMEOUT_S
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int):
        raise ArgsError(f"bindTimeoutSeconds: Invalid value: {timeout_s!r}: must be an integer")
    if timeout_s < 0:
        why = "invalid BindTimeoutSeconds, should not be a negative value"
        raise ArgsError(f"bindTimeoutSeconds: Invalid value: {timeout_s}: {why}")
    return float(timeout_s)


# --- queueing hints -------------------------------------------------------------------------------------------------


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _after_claim(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return _queue_if(is_of_pod(pod, change.new))


def _after_class(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return _queue_if(change.old is None or change.old.topologies != change.new.topologies)


def _after_node_drivers(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return _queue_if(change.old is None or change.old.migrated != change.new.migrated)


def _after_driver(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    used = any(volume.source == "csi" and volume.details.get("driver") == change.new.name for volume in pod.volumes)
    return _queue_if(used and change.old.counts_capacity and not change.new.counts_capacity)


def _after_capacity(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    if change.old is None:
        return QueueingHint.QUEUE
    before, now = change.old.limit, change.new.limit
    return _queue_if(now is not None and (before is None or now.value() > before.value()))
