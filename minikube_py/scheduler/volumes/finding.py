"""Which volumes a pod would use on a node: already bound, available, or to be provisioned.

Pure. Source: `volumebinding/binder.go`; `component-helpers/storage/volume`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Final, NamedTuple

from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.meta import annotations_of
from minikube_py.api.selectors import LabelSelector
from minikube_py.api.volume_binding import (
    NO_PROVISIONER,
    SELECTED_NODE,
    has_modes,
    is_claimed_by,
    same_attributes,
    same_mode,
)
from minikube_py.api.volume_translation import in_tree_of
from minikube_py.scheduler.volumes.storage import Storage
from minikube_py.scheduler.volumes.views import CapacityView, ClaimView, ClassView, VolumeView, reached

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
NO_SUCH_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class FindingError(Exception):
    """The claim cannot be evaluated."""


class Found(NamedTuple):
    """`reasons`: why the node does not fit. Otherwise `bindings` are the volumes that claims would get, and
    `provisions` the claims to provision volumes for."""

    reasons: tuple[str, ...] = ()
    bindings: tuple[tuple[VolumeView, ClaimView], ...] = ()
    provisions: tuple[ClaimView, ...] = ()


class PodClaims(NamedTuple):
    """A pod's claims. `waiting`: bound once the pod has a node, smallest first; `selected`: those with a node chosen
    earlier, with its name."""

    bound: tuple[ClaimView, ...] = ()
    waiting: tuple[tuple[ClaimView, Candidates], ...] = ()
    selected: tuple[tuple[ClaimView, str], ...] = ()
    immediate: tuple[ClaimView, ...] = ()

    @property
    def are_bound(self) -> bool:
        return not (self.waiting or self.selected or self.immediate)

    def are_everywhere(self, storage: Storage) -> bool:
        """Whether all are bound to volumes reachable from every node, so that no node needs checking."""
        if not self.are_bound:
            return False
        volumes = [storage.volumes.get(claim.volume_name) for claim in self.bound]
        return all(v is not None and v.terms is None and in_tree_of(v.obj["spec"]) is None for v in volumes)


class Candidates:
    """The volumes that suit a claim, regardless of the nodes that reach them.

    A volume that already names the claim is the only candidate. Of the others the smallest is taken; volumes bound to a
    node label are indexed by it, so that a node does not scan the volumes of all others."""

    __slots__ = ("_anywhere", "_pinned", "named")

    def __init__(self, claim: ClaimView, volumes: Iterable[VolumeView]) -> None:
        """Raises: FindingError."""
        selector = _selector(claim)
        ranked: list[VolumeView] = []
        self.named: VolumeView | None = None
        for volume in volumes:
            obj, metadata = volume.obj, volume.obj["metadata"]
            named = is_claimed_by(obj, claim.obj)
            if volume.claim is not None and not named:
                continue
            if volume.size.compare(claim.size) < 0 or not same_mode(obj, claim.obj):
                continue
            if not same_attributes(obj, claim.obj) or "deletionTimestamp" in metadata:
                continue
            if named:
                self.named = volume
                break
            if (obj.get("status") or {}).get("phase") != "Available":
                continue
            if selector is not None and not selector.matches(metadata.get("labels") or {}):
                continue
            if volume.class_name == claim.class_name and has_modes(obj, claim.obj):
                ranked.append(volume)
        ranked.sort(key=cmp_to_key(lambda a, b: a.size.compare(b.size)))
        self._anywhere: list[tuple[int, VolumeView]] = []
        self._pinned: dict[str, dict[str, list[tuple[int, VolumeView]]]] = {}
        for rank, volume in enumerate(ranked):
            self._place(rank, volume)

    def _place(self, rank: int, volume: VolumeView) -> None:
        terms = volume.terms
        if terms is not None and len(terms) == 1:
            for each in terms[0].labels:
                if each.operator == "In":
                    by_value = self._pinned.setdefault(each.key, {})
                    for value in sorted(each.values):
                        by_value.setdefault(value, []).append((rank, volume))
                    return
        self._anywhere.append((rank, volume))

    def best(self, labels: Mapping[str, str], excluded: Collection[str]) -> VolumeView | None:
        """The best volume for a node with these labels."""
        if self.named is not None:
            return self.named if self.named.reached_from(labels) else None
        lists = [self._anywhere]
        for key, by_value in self._pinned.items():
            found = by_value.get(labels.get(key, ""))
            if found is not None:
                lists.append(found)
        best: tuple[int, VolumeView] | None = None
        for each in lists:
            for rank, volume in each:
                if best is not None and rank > best[0]:
                    break
                if volume.name not in excluded and volume.reached_from(labels):
                    best = rank, volume
                    break
        return None if best is None else best[1]


def _selector(claim: ClaimView) -> LabelSelector | None:
    document = claim.obj["spec"].get("selector")
    if document is None:
        return None
    try:
        return selector_of(document)
    except InvalidSelector as error:
        raise FindingError(f"error creating internal label selector for claim: {claim.key}: {error}") from error


def sorted_claims(storage: Storage, claims: Iterable[ClaimView]) -> PodClaims:
    """A pod's claims by the action they need. Raises: FindingError."""
    bound: list[ClaimView] = []
    immediate: list[ClaimView] = []
    waiting: list[ClaimView] = []
    selected: list[tuple[ClaimView, str]] = []
    for claim in claims:
        if claim.is_fully_bound:
            bound.append(claim)
            continue
        found = storage.classes.get(claim.class_name) if claim.class_name else None
        if found is not None and not found.mode:
            raise FindingError(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
        if found is None or not found.waits_for_consumer or claim.volume_name:
            immediate.append(claim)
            continue
        node = annotations_of(claim.obj).get(SELECTED_NODE)
        if node is None:
            waiting.append(claim)
        else:
            selected.append((claim, node))
    waiting.sort(key=cmp_to_key(lambda a, b: a.size.compare(b.size)))
    pairs = tuple((claim, Candidates(claim, storage.volumes_of_class(claim.class_name))) for claim in waiting)
    return PodClaims(tuple(bound), pairs, tuple(selected), tuple(immediate))


def find(storage: Storage, claims: PodClaims, node: str, labels: Mapping[str, str]) -> Found:
    """Raises: FindingError, TranslationError."""
    reached_all, all_there = _check_bound(storage, claims.bound, node, labels)
    reasons = [] if reached_all else [NODE_CONFLICT]
    missing = [] if all_there else [NO_SUCH_VOLUME]
    if any(selected != node for _, selected in claims.selected):
        return Found((*reasons, BIND_CONFLICT, *missing))
    provisions = [claim for claim, _ in claims.selected]
    bindings: list[tuple[VolumeView, ClaimView]] = []
    chosen: set[str] = set()
    for claim, candidates in claims.waiting:
        volume = candidates.best(labels, chosen)
        if volume is None:
            provisions.append(claim)
        else:
            chosen.add(volume.name)
            bindings.append((volume, claim))
    reasons += _check_provisions(storage, provisions, labels)
    reasons += missing
    return Found(tuple(reasons)) if reasons else Found((), tuple(bindings), tuple(provisions))


def _check_bound(
    storage: Storage, claims: Sequence[ClaimView], node: str, labels: Mapping[str, str]
) -> tuple[bool, bool]:
    """Whether all the volumes exist and the node reaches them; the first that fails decides."""
    for claim in claims:
        volume = storage.volumes.get(claim.volume_name)
        if volume is None:
            return True, False
        terms = storage.terms_on(volume, node)
        if terms is not None and not reached(terms, labels):
            return False, True
    return True, True


def _check_provisions(storage: Storage, claims: Sequence[ClaimView], labels: Mapping[str, str]) -> tuple[str, ...]:
    for claim in claims:
        found = storage.classes.get(claim.class_name)
        if found is None:
            raise FindingError(f'failed to find storage class "{claim.class_name}"')
        if found.provisioner in ("", NO_PROVISIONER) or not found.allows(labels):
            return (BIND_CONFLICT,)
        if not _has_room(storage, claim, found, labels):
            return (NOT_ENOUGH_SPACE,)
    return ()


def _has_room(storage: Storage, claim: ClaimView, of: ClassView, labels: Mapping[str, str]) -> bool:
    """Only for drivers that publish their capacities."""
    driver = storage.drivers.get(of.provisioner)
    if driver is None or not driver.counts_capacity or not claim.asks_for_storage:
        return True
    capacities: list[CapacityView] = storage.capacities_of_class(of.name)
    return any(capacity.holds(claim.size, labels) for capacity in capacities)
