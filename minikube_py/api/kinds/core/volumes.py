"""PersistentVolume, and PersistentVolumeClaim.

Source: `persistentvolume` and `persistentvolumeclaim` of `pkg/registry/core` and `pkg/api`;
`plugin/pkg/admission/storage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from minikube_py.api.apply.assigned import when
from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_claim_spec, default_persistent_source, default_resource_list
from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json, forbidden, forbidden_value, invalid_value, not_supported
from minikube_py.api.kind import NAMESPACED, Cluster, Kind, status_of
from minikube_py.api.kinds.core import limit_ranges
from minikube_py.api.kinds.storage import STORAGECLASSES, default_storage_class
from minikube_py.api.meta import (
    FIELD_IS_IMMUTABLE,
    annotations_of,
    is_dns1123_subdomain,
    is_qualified_name,
    parse_timestamp,
    validate_immutable,
)
from minikube_py.api.pod_warnings import claim_warnings, node_selector_warnings
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.validation.claims import validate_claim_spec
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.persistent_volumes import MOUNT_OPTIONS, validate_volume, validate_volume_update
from minikube_py.api.validation.pod_diff import spec_diff
from minikube_py.api.validation.resources import is_native, validate_amount
from minikube_py.fields import quantity

VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""Annotation for the class, older than the field."""
_UNSET: Final = "<unset>"


def class_of(obj: Json) -> str:
    """The class of a volume or claim, or ""."""
    named = annotations_of(obj).get(CLASS_ANNOTATION)
    return named if named is not None else str((obj.get("spec") or {}).get("storageClassName") or "")


def protect(finalizer: str, metadata: Json) -> None:
    finalizers = metadata.get("finalizers") or []
    if finalizer not in finalizers:
        metadata["finalizers"] = [*finalizers, finalizer]


_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _short_modes(modes: Sequence[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _phase(obj: Json) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else (obj.get("status") or {}).get("phase") or ""


def _or_unset(value: str | None) -> str:
    return _UNSET if value is None else value


# --- volumes --------------------------------------------------------------------------------------------------------


def _default_volume(volume: Json) -> None:
    spec, status = part(volume, "spec"), part(volume, "status")
    if spec.get("capacity"):
        default_resource_list(spec["capacity"])
    default_persistent_source(spec)
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"
    if not status.get("phase"):
        status["phase"] = "Pending"


def _admit_volume(volume: Json, old: Json | None, cluster: Cluster) -> None:
    if old is None:
        protect(VOLUME_PROTECTION, volume["metadata"])


def _create_volume(volume: Json) -> None:
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": volume["metadata"].get("creationTimestamp")}


_SINCE: Final = "lastPhaseTransitionTime"


def _stamp_volume(volume: Json, old: Json, now: str) -> None:
    status, before = volume["status"], old.get("status") or {}
    given, since = status.get(_SINCE), before.get(_SINCE)
    if status.get("phase") == before.get("phase"):
        if given is None and since is not None:
            status[_SINCE] = since
    elif given is None or (since is not None and parse_timestamp(given) == parse_timestamp(since)):
        status[_SINCE] = now


def _validate_status_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"])


_OLD_SOURCES: Final = {
    "cephfs": "cephfs: deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "scaleIO: deprecated in v1.16, non-functional in v1.22+",
    "storageos": "storageOS: deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "glusterfs: deprecated in v1.25, non-functional in v1.26+",
    "rbd": "rbd: deprecated in v1.28, non-functional in v1.31+",
}
_OLD_CLASS: Final = (
    f'metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute instead'
)
_OLD_POLICY: Final = (
    "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach "
    "is to use dynamic provisioning."
)


def _volume_warnings(volume: Json, old: Json | None) -> list[str]:
    spec, annotations = volume["spec"], annotations_of(volume)
    found = [_OLD_CLASS] if CLASS_ANNOTATION in annotations else []
    if MOUNT_OPTIONS in annotations:
        text = 'deprecated since v1.31; use "mountOptions" attribute instead'
        found.append(f"metadata.annotations[{MOUNT_OPTIONS}]: {text}")
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        found.append(_OLD_POLICY)
    place = (spec.get("nodeAffinity") or {}).get("required") or {}
    found += node_selector_warnings(place, "spec.nodeAffinity.required")
    return found + [f"spec.{text}" for name, text in _OLD_SOURCES.items() if spec.get(name) is not None]


def _print_volume(volume: Json, age: Age) -> list[Any]:
    metadata, spec, status = volume["metadata"], volume.get("spec") or {}, volume.get("status") or {}
    claim = spec.get("claimRef")
    return [
        metadata["name"],
        (spec.get("capacity") or {}).get("storage") or "0",
        _short_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        _phase(volume),
        "" if claim is None else f"{claim.get('namespace') or ''}/{claim.get('name') or ''}",
        class_of(volume),
        _or_unset(spec.get("volumeAttributesClassName")),
        status.get("reason") or "",
        age(metadata.get("creationTimestamp")),
        _or_unset(spec.get("volumeMode")),
    ]


PERSISTENTVOLUMES: Final = Kind(
    "", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume", False,
    short_names=("pv",),
    subresources=(status_of("PersistentVolume"),),
    selectable=NAMESPACED,
    delete_answer="object",
    default=_default_volume,
    admit=_admit_volume,
    prepare_create=_create_volume,
    stamp_status=_stamp_volume,
    assigned=(*when("metadata.finalizers.*", VOLUME_PROTECTION), *when("status.phase", "Pending")),
    validate=validate_volume,
    validate_update={"": validate_volume_update, "status": _validate_status_update},
    warn=_volume_warnings,
    printer=Printer(
        (
            NAME,
            column("Capacity", "How large the volume is."),
            column("Access Modes", "The ways in which it can be mounted."),
            column("Reclaim Policy", "What happens to it when its claim is gone."),
            column("Status", "Its phase."),
            column("Claim", "The claim it is bound to."),
            column("StorageClass", "The class it is of."),
            column("VolumeAttributesClass", "The class of its attributes."),
            column("Reason", "Why it is in its phase."),
            AGE,
            column("VolumeMode", "Whether it holds files or is a block device.", 1),
        ),
        _print_volume,
    ),
)  # fmt: skip

# --- claims ---------------------------------------------------------------------------------------------------------


def _default_claim(claim: Json) -> None:
    default_claim_spec(part(claim, "spec"))
    status = part(claim, "status")
    for name in ("capacity", "allocatedResources"):
        if status.get(name):
            default_resource_list(status[name])
    if not status.get("phase"):
        status["phase"] = "Pending"


def _admit_claim(claim: Json, old: Json | None, cluster: Cluster) -> None:
    """DefaultStorageClass and StorageObjectInUseProtection."""
    if old is not None:
        return
    spec = claim["spec"]
    if CLASS_ANNOTATION not in annotations_of(claim) and spec.get("storageClassName") is None:
        chosen = default_storage_class(cluster)
        if chosen is not None:
            spec["storageClassName"] = chosen["metadata"]["name"]
    protect(CLAIM_PROTECTION, claim["metadata"])


def _requested(claim: Json) -> quantity.Quantity:
    return _storage((claim.get("spec") or {}).get("resources"), "requests")


def _storage(holder: Json | None, name: str) -> quantity.Quantity:
    text = ((holder or {}).get(name) or {}).get("storage")
    return quantity.ZERO if text is None else quantity.parse(text)


def _admit_resize(claim: Json, old: Json | None, cluster: Cluster) -> None:
    """LimitRanger and PersistentVolumeClaimResize. Raises: StatusError 403."""
    if old is None or not old["metadata"].get("deletionTimestamp"):
        limit_ranges.check_claim(PERSISTENTVOLUMECLAIMS, claim, cluster)
    if old is None or _requested(claim).compare(_requested(old)) <= 0:
        return
    name = old["metadata"]["name"]
    if (old.get("status") or {}).get("phase") != "Bound":
        raise forbidden(PERSISTENTVOLUMECLAIMS, name, "Only bound persistent volume claims can be expanded")
    wanted = class_of(claim)
    found = cluster.get(STORAGECLASSES, "", wanted) if wanted and wanted == class_of(old) else None
    if found is None or not found.get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
            "support resize"
        )
        raise forbidden(PERSISTENTVOLUMECLAIMS, name, why)


def _drop_foreign_source(spec: Json, before: Json) -> None:
    """A source in another namespace is behind a gate (CrossNamespaceVolumeDataSource) that is off by default."""
    if (spec.get("dataSourceRef") or {}).get("namespace") and before.get("dataSourceRef") is None:
        spec.pop("dataSourceRef")


def _normalize_sources(spec: Json, before: Json) -> None:
    """`dataSource` and `dataSourceRef` are kept in sync; the first keeps only its legacy types."""
    _drop_foreign_source(spec, before)
    source = spec.get("dataSource")
    if before.get("dataSource") is None and before.get("dataSourceRef") is None and spec.get("dataSourceRef") is None:
        known = ("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")
        if source is not None and (source.get("apiGroup") or "", source.get("kind") or "") not in known:
            spec.pop("dataSource")
    _copy_source(spec)


def _copy_source(spec: Json) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {name: value for name, value in reference.items() if name != "namespace"}


def _create_claim(claim: Json) -> None:
    claim["status"] = {"phase": "Pending"}
    _normalize_sources(claim["spec"], {})


def _update_claim(new: Json, old: Json) -> None:
    _normalize_sources(new["spec"], old["spec"])


def _validate_claim(claim: Json, before: Json | None = None) -> list[FieldError]:
    errors = validate_object_meta(claim["metadata"], True, is_dns1123_subdomain)
    return errors + validate_claim_spec(claim["spec"], "spec", before)


_IMMUTABLE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def _upgrades_class(new: Json, old: Json) -> bool:
    """Whether the class only moves from annotation to field."""
    named, given = annotations_of(old).get(CLASS_ANNOTATION), annotations_of(new).get(CLASS_ANNOTATION)
    return (
        named is not None
        and old["spec"].get("storageClassName") is None
        and new["spec"].get("storageClassName") == named
        and given in (None, named)
    )


def _compared_specs(new: Json, old: Json) -> tuple[Json, Json]:
    """Both specs, without mutable fields."""
    spec, before = dict(new["spec"]), dict(old["spec"])
    _copy_source(before)
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName")
    named = annotations_of(old).get(CLASS_ANNOTATION)
    if before.get("storageClassName") is None and named in (None, spec.get("storageClassName")):
        # It may be set later, or moved from annotation to field.
        spec["storageClassName"] = None
    if (new.get("status") or {}).get("phase") == "Bound":
        spec["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
        resources = spec.get("resources") or {}
        if resources.get("requests") is not None:
            requests = (before.get("resources") or {}).get("requests") or {}
            storage = {"storage": requests.get("storage", "0")}
            spec["resources"] = {**resources, "requests": {**resources["requests"], **storage}}
    return spec, before


def _validate_claim_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"]) + _validate_claim(new, old["spec"])
    if not _upgrades_class(new, old):
        given, before = (annotations_of(obj).get(CLASS_ANNOTATION) or "" for obj in (new, old))
        if given != before:
            errors.append(invalid_value(f"metadata.annotations.{CLASS_ANNOTATION}", given, FIELD_IS_IMMUTABLE))
    compared = _compared_specs(new, old)
    if not same_message(f"core/v1.{_SPEC}", *compared):
        errors.append(forbidden_value("spec", f"{_IMMUTABLE}\n{spec_diff(compared[1], compared[0], _SPEC)}"))
    if _requested(new).compare(_requested(old)) < 0 and (
        _requested(new).compare(_storage(old.get("status"), "capacity")) <= 0
    ):
        errors.append(forbidden_value("spec.resources.requests.storage", "field can not be less than status.capacity"))
    errors += validate_immutable(new["spec"].get("volumeMode"), old["spec"].get("volumeMode"), "volumeMode")
    return errors + _validate_attributes_class(new["spec"], old)


_SPEC: Final = "PersistentVolumeClaimSpec"


def _validate_attributes_class(spec: Json, old: Json) -> list[FieldError]:
    name = "volumeAttributesClassName"
    if spec.get(name) == old["spec"].get(name):
        return []
    if spec.get(name) or (old.get("status") or {}).get("currentVolumeAttributesClassName") is None:
        return []
    what = "nil" if spec.get(name) is None else "empty string"
    detail = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
    return [forbidden_value(f"spec.{name}", detail)]


_RESIZES: Final = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible",
    "NodeResizePending",
)  # fmt: skip


def _validate_resource_key(name: str, path: str) -> list[FieldError]:
    errors = [invalid_value(path, name, message) for message in is_qualified_name(name)]
    if not errors and is_native(name) and name != "storage":
        errors.append(not_supported(path, name, ("storage",)))
    return errors


def _validate_basic(text: str, path: str) -> list[FieldError]:
    whole = quantity.parse(text).value()
    return [invalid_value(path, whole, "must be a valid resource quantity")] if whole < 0 else []


def _validate_claim_status(new: Json, old: Json) -> list[FieldError]:
    errors, status = validate_object_meta_update(new["metadata"], old["metadata"]), new.get("status") or {}
    for name, text in (status.get("capacity") or {}).items():
        errors += _validate_basic(text, f"status.capacity[{name}]")
    at = "status.allocatedResourceStatuses"
    for name, value in (status.get("allocatedResourceStatuses") or {}).items():
        errors += _validate_resource_key(name, at)
        if value not in _RESIZES:
            errors.append(not_supported(at, name, sorted(_RESIZES)))
    for name, text in (status.get("allocatedResources") or {}).items():
        at = f"status.allocatedResources[{name}]"
        errors += (
            _validate_resource_key(name, "status.allocatedResources")
            or _validate_basic(text, at)
            or validate_amount("storage", text, at)
        )
    return errors


def _claim_warnings(claim: Json, old: Json | None) -> list[str]:
    found = [_OLD_CLASS] if CLASS_ANNOTATION in annotations_of(claim) else []
    return found + claim_warnings(claim["spec"], "spec")


def _print_claim(claim: Json, age: Age) -> list[Any]:
    metadata, spec, status = claim["metadata"], claim.get("spec") or {}, claim.get("status") or {}
    volume = spec.get("volumeName") or ""
    capacity: Mapping[str, str] = status.get("capacity") or {}
    return [
        metadata["name"],
        _phase(claim),
        volume,
        capacity.get("storage", "0") if volume else "",
        _short_modes(status.get("accessModes")) if volume else "",
        class_of(claim),
        _or_unset(spec.get("volumeAttributesClassName")),
        age(metadata.get("creationTimestamp")),
        _or_unset(spec.get("volumeMode")),
    ]


PERSISTENTVOLUMECLAIMS: Final = Kind(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim", True,
    short_names=("pvc",),
    subresources=(status_of("PersistentVolumeClaim"),),
    selectable=NAMESPACED,
    delete_answer="object",
    sees=(("storage.k8s.io", "v1", "storageclasses"), *limit_ranges.SEEN),
    default=_default_claim,
    admit=_admit_claim,
    validate_admission=_admit_resize,
    prepare_create=_create_claim,
    undefaulted=lambda claim: {**claim, "status": {}},
    prepare_update=_update_claim,
    assigned=(*when("metadata.finalizers.*", CLAIM_PROTECTION), *when("status.phase", "Pending")),
    validate=_validate_claim,
    validate_update={"": _validate_claim_update, "status": _validate_claim_status},
    warn=_claim_warnings,
    printer=Printer(
        (
            NAME,
            column("Status", "Its phase."),
            column("Volume", "The volume it is bound to."),
            column("Capacity", "How large that volume is."),
            column("Access Modes", "The ways in which that volume can be mounted."),
            column("StorageClass", "The class it asks for."),
            column("VolumeAttributesClass", "The class of attributes it asks for."),
            AGE,
            column("VolumeMode", "Whether it wants files or a block device.", 1),
        ),
        _print_claim,
    ),
)  # fmt: skip
