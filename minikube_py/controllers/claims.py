"""Owners of a StatefulSet's claims, by persistentVolumeClaimRetentionPolicy: claims are deleted with their owner.

Pure. Source: k8s.io/kubernetes/pkg/controller/statefulset/stateful_set_utils.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minikube_py.client.rest import Object
from minikube_py.controllers.views import MetaView, OwnerRef, PodView, WorkloadView

RETAIN, DELETE = "Retain", "Delete"


class Owners(NamedTuple):
    """`references` to write, None to leave them. `foreign`: another controller owns the claim."""

    references: list[Object] | None
    foreign: bool = False


def _reference(api_version: str, kind: str, owner: MetaView) -> OwnerRef:
    return OwnerRef(api_version, kind, owner.name, owner.uid, True, True)


def is_left(owner: WorkloadView, name: str, claim: MetaView) -> bool:
    """Whether the claim goes with an earlier pod of this name: a new pod must not use it."""
    policy: Mapping[str, Any] = owner.spec.get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenScaled") == DELETE and any((ref.kind, ref.name) == ("Pod", name) for ref in claim.owners)


def owners_of_claim(owner: WorkloadView, pod: PodView | None, name: str, claim: MetaView, condemned: bool) -> Owners:
    """`pod` (named `name`, may be absent) uses the claim; `condemned`: its ordinal is beyond the set's range."""
    policy: Mapping[str, Any] = owner.spec.get("persistentVolumeClaimRetentionPolicy") or {}
    scaled, deleted = policy.get("whenScaled") == DELETE, policy.get("whenDeleted") == DELETE
    own = [ref for ref in claim.owners if (ref.kind, ref.name) in (("StatefulSet", owner.name), ("Pod", name))]
    uids = {owner.uid, pod.uid if pod is not None else ""}
    if any(ref.uid not in uids for ref in own):
        # Owned by an earlier object of that name: the claim is deleted with it.
        return Owners(None)
    others = [ref for ref in claim.owners if ref not in own]
    foreign = (scaled or deleted) and any(ref.controller for ref in others)
    wanted: list[OwnerRef] = []
    if foreign:
        if not own:
            return Owners(None)
    elif scaled and condemned:
        wanted = [_reference("v1", "Pod", pod)] if pod is not None else own
    elif deleted:
        wanted = [_reference("apps/v1", "StatefulSet", owner)]
    same = [(ref.uid, ref.controller) for ref in own] == [(ref.uid, ref.controller) for ref in wanted]
    return Owners(None if same else [ref.document() for ref in (*others, *wanted)], foreign)
