"""The spec of a PersistentVolume, and of one that stands inside a VolumeAttachment.

Source: `pkg/apis/core/validation/validation.go`, `pkg/volume/validation`.
"""

from __future__ import annotations

import posixpath
from typing import Any, Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, not_supported, required
from minikube_py.api.meta import FIELD_IS_IMMUTABLE, is_dns1123_subdomain, validate_immutable
from minikube_py.api.validation.affinity import validate_node_selector
from minikube_py.api.validation.claims import CLASS_NAME, VOLUME_MODE, validate_access_modes, validate_positive
from minikube_py.api.validation.metadata import validate_object_meta
from minikube_py.api.validation.pod_diff import internal, spec_diff
from minikube_py.api.validation.volume_sources import IN_VOLUMES, PATHS, one_too_many, validate_iscsi_volume
from minikube_py.fields import quantity

SOURCES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs",
    "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
    "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
"""In the order in which upstream looks at them."""
RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")
_INLINE: Final = "in the context of inline volumes"
MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
_MOUNTED_WITH_OPTIONS: Final = frozenset(
    ("gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi", "cinder", "cephfs",
     "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk")
)  # fmt: skip


def _validate_capacity(capacity: Json | None, path: str) -> list[FieldError]:
    given = capacity or {}
    errors = [] if given else [required(path)]
    if given.keys() != {"storage"}:
        shown = None if capacity is None else dict(sorted(capacity.items()))
        errors.append(not_supported(path, shown, ("storage",)))
    for name, text in given.items():
        at, whole = f"{path}[{name}]", quantity.parse(text).value()
        if whole < 0:
            errors.append(invalid_value(at, whole, "must be a valid resource quantity"))
        errors += validate_positive(text, at)
    return errors


def _validate_sources(spec: Json, name: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given = [source for source in SOURCES if spec.get(source) is not None]
    for i, source in enumerate(given):
        at = f"{path}.{PATHS.get(source, source)}"
        if i and source != "flexVolume":
            errors.append(one_too_many(source, path))
        elif source == "iscsi":
            errors += validate_iscsi_volume(spec[source], at, name)
        else:
            errors += IN_VOLUMES[source](spec[source], at)
            if source == "local" and spec.get("nodeAffinity") is None:
                errors.append(required(f"{path}.nodeAffinity", "Local volume requires node affinity"))
    return errors if given else [required(path, "must specify a volume type")]


def _validate_affinity(affinity: Json | None, path: str) -> list[FieldError]:
    if affinity is None:
        return []
    if affinity.get("required") is None:
        return [required(f"{path}.required", "must specify required node constraints")]
    return validate_node_selector(affinity["required"], f"{path}.required")


def _validate_attributes_class(spec: Json, path: str) -> list[FieldError]:
    name, at = spec.get("volumeAttributesClassName"), f"{path}.volumeAttributesClassName"
    if name is None:
        return []
    errors = list(CLASS_NAME(name, at)) if name else [required(at, "an empty string is disallowed")]
    if spec.get("csi") is None:
        errors.append(required(f"{path}.csi", "has to be specified when using volumeAttributesClassName"))
    return errors


def _validate_inline(spec: Json, path: str) -> list[FieldError]:
    """What a volume inside another object may not say, before what all must say."""
    errors: list[FieldError] = []
    for name, given in (("claimRef", spec.get("claimRef") is not None), ("capacity", bool(spec.get("capacity")))):
        if given:
            errors.append(forbidden_value(f"{path}.{name}", f"may not be specified {_INLINE}"))
    if spec.get("csi") is None:
        errors.append(required(f"{path}.csi", f"has to be specified {_INLINE}"))
    return errors


def _validate_policy_and_place(spec: Json, path: str, inline: bool) -> list[FieldError]:
    policy, at = spec.get("persistentVolumeReclaimPolicy") or "", f"{path}.persistentVolumeReclaimPolicy"
    if inline:
        errors = [forbidden_value(at, f"may only be Retain {_INLINE}")] if policy not in ("", "Retain") else []
        if spec.get("nodeAffinity") is not None:
            errors.append(forbidden_value(f"{path}.nodeAffinity", f"may not be specified {_INLINE}"))
        return errors
    errors = [not_supported(at, policy, RECLAIM_POLICIES)] if policy and policy not in RECLAIM_POLICIES else []
    return errors + _validate_affinity(spec.get("nodeAffinity"), f"{path}.nodeAffinity")


def _validate_class_and_mode(spec: Json, path: str, inline: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if spec.get("storageClassName"):
        at = f"{path}.storageClassName"
        refused = forbidden_value(at, f"may not be specified {_INLINE}")
        errors += [refused] if inline else CLASS_NAME(spec["storageClassName"], at)
    mode, at = spec.get("volumeMode"), f"{path}.volumeMode"
    if not inline:
        errors += VOLUME_MODE(mode, at)
    elif mode not in (None, "Filesystem"):
        errors.append(forbidden_value(at, f"may not specify volumeMode other than Filesystem {_INLINE}"))
    return errors


def validate_volume_spec(spec: Json, name: str, path: str = "spec", *, inline: bool = False) -> list[FieldError]:
    """`inline`: the spec is part of a VolumeAttachment, not of a PersistentVolume called `name`."""
    errors = _validate_inline(spec, path) if inline else []
    modes = spec.get("accessModes") or ()
    errors += [] if modes else [required(f"{path}.accessModes")]
    errors += validate_access_modes(modes, f"{path}.accessModes")
    if not inline:
        errors += _validate_capacity(spec.get("capacity"), f"{path}.capacity")
    errors += _validate_policy_and_place(spec, path, inline)
    errors += _validate_sources(spec, name, path)
    recycled = spec.get("persistentVolumeReclaimPolicy") == "Recycle"
    if recycled and posixpath.normpath((spec.get("hostPath") or {}).get("path") or ".") in ("/", "//"):
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        errors.append(forbidden_value(f"{path}.persistentVolumeReclaimPolicy", detail))
    errors += _validate_class_and_mode(spec, path, inline)
    # Inside an attachment, the class of attributes is not looked at.
    return errors if inline else errors + _validate_attributes_class(spec, path)


def _validate_named(volume: Json) -> list[FieldError]:
    errors = validate_object_meta(volume["metadata"], False, is_dns1123_subdomain)
    return errors + validate_volume_spec(volume["spec"], volume["metadata"].get("name") or "")


def validate_volume(volume: Json) -> list[FieldError]:
    errors = _validate_named(volume)
    annotations = volume["metadata"].get("annotations") or {}
    if MOUNT_OPTIONS in annotations and not any(volume["spec"].get(name) for name in _MOUNTED_WITH_OPTIONS):
        detail = "may not specify mount options for this volume type"
        errors.append(forbidden_value(f"metadata.annotations.{MOUNT_OPTIONS}", detail))
    return errors


# --- updates --------------------------------------------------------------------------------------------------------


def _source_of(spec: Json) -> Json:
    return {name: spec[name] for name in SOURCES if spec.get(name) is not None}


def _validate_same_source(new: Json, old: Json) -> list[FieldError]:
    source, before = _source_of(new), _source_of(old)
    driver, driver_before = source.get("csi"), before.get("csi")
    if driver is not None and driver_before is not None and driver_before.get("controllerExpandSecretRef") is None:
        # It may be added, once.
        source["csi"] = {key: value for key, value in driver.items() if key != "controllerExpandSecretRef"}
    if same_message("core/v1.PersistentVolumeSource", source, before):
        return []
    path, diff = "spec.persistentvolumesource", spec_diff(before, source, "PersistentVolumeSource")
    return [forbidden_value(path, f"{path} is immutable after creation\n{diff}")]


_GA_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _same_affinity(new: Json | None, old: Json) -> bool:
    """Equal, where a label of the old one may have become the one that took its place."""
    if new is None or new == old:
        return new == old
    return same_message("core/v1.VolumeNodeAffinity", new, _renamed(old, new))


def _renamed(old: Any, new: Any) -> Any:
    """`old` with those labels of it that `new` calls by their new name."""
    if isinstance(old, dict) and isinstance(new, dict):
        if _GA_LABELS.get(old.get("key") or "") == new.get("key", ""):
            old = {**old, "key": new["key"]}
        return {name: _renamed(value, new.get(name)) for name, value in old.items()}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return list(map(_renamed, old, new))
    return old


def validate_volume_update(new: Json, old: Json) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    # Upstream asks twice, and says so.
    errors = validate_volume(new) + _validate_named(new) + _validate_same_source(spec, before)
    errors += validate_immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    affinity, affinity_before = spec.get("nodeAffinity"), before.get("nodeAffinity")
    if affinity_before is not None and not _same_affinity(affinity, affinity_before):
        shown = None if affinity is None else internal(affinity, "VolumeNodeAffinity")
        detail = f"{FIELD_IS_IMMUTABLE}, except for updating from beta label to GA"
        errors.append(invalid_value("nodeAffinity", shown, detail))
    name = "volumeAttributesClassName"
    if before.get(name) is not None and spec.get(name) is None:
        errors.append(forbidden_value(f"spec.{name}", "update from non-nil value to nil is forbidden"))
    return errors
