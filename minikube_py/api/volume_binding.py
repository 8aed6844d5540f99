"""Matching and binding of PersistentVolumes and claims, for controllers and the scheduler.

Source: component-helpers `storage/volume`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from minikube_py.api.errors import Json
from minikube_py.api.kinds.core.volumes import CLASS_ANNOTATION, class_of
from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.meta import annotations_of
from minikube_py.fields import quantity

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
BETA_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""Of a class whose volumes are made by hand."""


def has_class(claim: Json) -> bool:
    """Whether the claim names a class, were it the empty one."""
    return CLASS_ANNOTATION in annotations_of(claim) or claim["spec"].get("storageClassName") is not None


def is_fully_bound(claim: Json) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations_of(claim)


def waits_for_consumer(storage_class: Json | None) -> bool:
    return storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def _size(holder: Mapping[str, Any] | None) -> quantity.Quantity:
    text = (holder or {}).get("storage")
    return quantity.ZERO if text is None else quantity.parse(text)


def size_of(volume: Json) -> quantity.Quantity:
    return _size(volume["spec"].get("capacity"))


def asked_size(claim: Json) -> quantity.Quantity:
    return _size((claim["spec"].get("resources") or {}).get("requests"))


def held_size(claim: Json) -> quantity.Quantity:
    return _size((claim.get("status") or {}).get("capacity"))


def is_claimed_by(volume: Json, claim: Json) -> bool:
    """Whether the volume refers to this claim, by uid too."""
    reference, metadata = volume["spec"].get("claimRef"), claim["metadata"]
    if reference is None or reference.get("name") != metadata["name"]:
        return False
    if reference.get("namespace") != metadata.get("namespace"):
        return False
    return not reference.get("uid") or reference["uid"] == metadata["uid"]


def _mode(obj: Json) -> str:
    return obj["spec"].get("volumeMode") or "Filesystem"


def has_modes(volume: Json, claim: Json) -> bool:
    offered = volume["spec"].get("accessModes") or ()
    return all(mode in offered for mode in claim["spec"].get("accessModes") or ())


def same_attributes(volume: Json, claim: Json) -> bool:
    name = "volumeAttributesClassName"
    return (volume["spec"].get(name) or "") == (claim["spec"].get(name) or "")


def why_unsuitable(volume: Json, claim: Json) -> str:
    """Why a claim cannot use the volume it names, or ""."""
    if volume["metadata"].get("deletionTimestamp"):
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if size_of(volume).value() < asked_size(claim).value():
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if not same_attributes(volume, claim):
        return "volumeAttributesClassName does not match"
    if _mode(volume) != _mode(claim):
        return "incompatible volumeMode"
    return "" if has_modes(volume, claim) else "incompatible accessMode"


def same_mode(volume: Json, claim: Json) -> bool:
    return _mode(volume) == _mode(claim)


def best_volume(
    claim: Json,
    volumes: Iterable[Json],
    *,
    delayed: bool = False,
) -> Json | None:
    """The smallest volume that suits, or the one that names the claim. `volumes` in the order of their names.

    `delayed` claims get only volumes that name them; the scheduler finds others."""
    wanted, chosen = asked_size(claim), None
    try:
        selector = selector_of(claim["spec"]["selector"]) if claim["spec"].get("selector") is not None else None
    except InvalidSelector:
        return None
    for volume in volumes:
        metadata, spec = volume["metadata"], volume["spec"]
        bound = is_claimed_by(volume, claim)
        if spec.get("claimRef") is not None and not bound:
            continue
        if size_of(volume).compare(wanted) < 0 or not same_mode(volume, claim) or not same_attributes(volume, claim):
            continue
        if metadata.get("deletionTimestamp"):
            continue
        if bound:
            return volume
        if delayed:
            continue
        if (volume.get("status") or {}).get("phase") != "Available" or class_of(volume) != class_of(claim):
            continue
        if selector is not None and not selector.matches(metadata.get("labels") or {}):
            continue
        if has_modes(volume, claim) and (chosen is None or size_of(chosen).compare(size_of(volume)) > 0):
            chosen = volume
    return chosen


def claimed(volume: Json, claim: Json) -> Json | None:
    """The volume with a reference to the claim; None if it has one already."""
    reference, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    annotations = annotations_of(volume)
    wanted = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
    by_controller = not is_claimed_by(volume, claim) and BOUND_BY_CONTROLLER not in annotations
    if not by_controller and all(reference.get(name) == value for name, value in wanted.items()):
        return None
    named = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **wanted}
    if metadata.get("resourceVersion"):
        named["resourceVersion"] = metadata["resourceVersion"]
    found = {**volume, "metadata": dict(volume["metadata"]), "spec": {**volume["spec"], "claimRef": named}}
    if by_controller:
        found["metadata"]["annotations"] = {**annotations, BOUND_BY_CONTROLLER: "yes"}
    return found
