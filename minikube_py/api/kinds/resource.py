"""The group `resource.k8s.io`: devices, claims and allocations.

Fields of gates that are off by default are dropped: list attributes, and mappings to node resources. Source:
`pkg/apis/resource`, `pkg/registry/resource`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid, invalid_value
from minikube_py.api.kind import NAMED, NAMESPACED, Admit, Cluster, Kind, Selectable, Validate, status_of
from minikube_py.api.kinds.core.namespaces import NAMESPACES
from minikube_py.api.meta import (
    first_generation,
    is_dns1123_subdomain,
    labels_of,
    next_generation,
    timestamp,
    validate_annotations,
    validate_labels,
)
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.rules import rules
from minikube_py.api.validation.device_claims import (
    allocated_ids,
    device_id,
    immutable,
    validate_claim_spec,
    validate_claim_status,
)
from minikube_py.api.validation.device_slices import validate_slice_spec
from minikube_py.api.validation.devices import (
    CONFIG_MAX,
    validate_configuration,
    validate_items,
    validate_selectors,
)
from minikube_py.api.validation.dispatch import validate_update
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.resources import is_extended

GROUP: Final = "resource.k8s.io"
ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_NAMESPACES: Final = ("", "v1", "namespaces")
_LIST_VALUES: Final = ("ints", "bools", "strings", "versions")


def _meta(namespaced: bool) -> Validate:
    return lambda obj: validate_object_meta(obj["metadata"], namespaced, is_dns1123_subdomain)


def _meta_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"])


# --- claims ---------------------------------------------------------------------------------------------------------


def _default_tolerations(holder: Json) -> None:
    for toleration in holder.get("tolerations") or ():
        toleration["operator"] = toleration.get("operator") or "Equal"


def _default_claim_spec(spec: Json) -> None:
    for request in part(spec, "devices").get("requests") or ():
        exactly = request.get("exactly")
        for each in (*(() if exactly is None else (exactly,)), *(request.get("firstAvailable") or ())):
            each["allocationMode"] = each.get("allocationMode") or "ExactCount"
            if each["allocationMode"] == "ExactCount":
                each["count"] = each.get("count") or 1
            _default_tolerations(each)


def _default_claim(claim: Json) -> None:
    _default_claim_spec(part(claim, "spec"))
    allocation = part(claim, "status").get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        _default_tolerations(result)


def _wants_admin(namespace: str, cluster: Cluster, path: str) -> list[FieldError]:
    """The error for admin access in a namespace without the label for it."""
    found = cluster.get(NAMESPACES, "", namespace)
    if found is None:
        # Upstream reports this as 500.
        return []
    if labels_of(found).get(ADMIN_LABEL) == "true":
        return []
    why = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
    return [forbidden_value(path, why)]


def _admin_request(spec: Json) -> str:
    """The path of the first request for admin access; or empty."""
    for i, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return f"spec.devices.requests[{i}].adminAccess"
    return ""


def _admin_result(status: Json) -> str:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    for i, result in enumerate(results):
        if result.get("adminAccess"):
            return f"status.allocation.devices.results[{i}].adminAccess"
    return ""


def _admits_admin(template: bool) -> Admit:
    """Upstream's validation reads the namespace; here admission does, with the same result."""

    def admit(new: Json, old: Json | None, cluster: Cluster) -> None:
        spec = new.get("spec") or {}
        path = _admin_request((spec.get("spec") or {}) if template else spec) if old is None else ""
        if path and (errors := _wants_admin(new["metadata"].get("namespace") or "", cluster, path)):
            kind = RESOURCECLAIMTEMPLATES if template else RESOURCECLAIMS
            assert kind.validate is not None
            raise invalid(kind, new["metadata"].get("name") or "", errors + kind.validate(new))

    return admit


def _admit_status(new: Json, old: Json | None, cluster: Cluster) -> None:
    """Raises: StatusError 422."""
    assert old is not None, "a status belongs to an object"
    path = _admin_result(new.get("status") or {})
    if path and not _admin_result(old.get("status") or {}):
        errors = _wants_admin(old["metadata"]["namespace"], cluster, path)
        if errors:
            raise invalid(
                RESOURCECLAIMS, old["metadata"]["name"], errors + validate_update(RESOURCECLAIMS, new, old, "status")
            )


def _clear_status(claim: Json) -> None:
    claim["status"] = {}


def _prepare_status(new: Json, old: Json) -> None:
    """Metadata is kept; status of deallocated devices is removed."""
    before, kept = old["metadata"], new["metadata"]
    for name in ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"):
        kept.pop(name, None)
        if name in before:
            kept[name] = before[name]
    status = part(new, "status")
    given_back = [each for each in allocated_ids(old.get("status") or {}) if each not in allocated_ids(status)]
    devices = [device for device in status.get("devices") or () if device_id(device) not in given_back]
    status.pop("devices", None)
    if devices:
        status["devices"] = devices


_validate_claim = rules(_meta(True), lambda claim: validate_claim_spec(claim.get("spec") or {}))


def _validate_claim_update(new: Json, old: Json) -> list[FieldError]:
    errors = _meta(True)(new) + _meta_update(new, old)
    return errors + immutable("resource/v1.ResourceClaimSpec", new.get("spec"), old.get("spec"), "spec")


def _validate_claim_status(new: Json, old: Json) -> list[FieldError]:
    return _meta_update(new, old) + validate_claim_status(new, old)


def _state(claim: Json) -> str:
    deleted, status = claim["metadata"].get("deletionTimestamp"), claim.get("status") or {}
    states = ["deleted"] if deleted else []
    if status.get("allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    return ",".join(states)


def _print_claim(claim: Json, age: Age) -> list[Any]:
    metadata = claim["metadata"]
    return [metadata["name"], _state(claim), age(metadata.get("creationTimestamp"))]


def _print_name(obj: Json, age: Age) -> list[Any]:
    return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"))]


RESOURCECLAIMS: Final = Kind(
    GROUP, "v1", "ResourceClaim", "resourceclaims", "resourceclaim", True,
    subresources=(status_of("ResourceClaim", tabled=False),),
    also_reset={"status": (("metadata",),)},
    selectable=NAMESPACED,
    delete_answer="object",
    default=_default_claim,
    sees=(_NAMESPACES,),
    admit=_admits_admin(False),
    admit_status=_admit_status,
    prepare_create=_clear_status,
    prepare_status=_prepare_status,
    validate=_validate_claim,
    validate_update={"": _validate_claim_update, "status": _validate_claim_status},
    printer=Printer(
        (NAME, column("State", "A summary of its state: pending, allocated, reserved."), AGE), _print_claim
    ),
)  # fmt: skip

# --- templates ------------------------------------------------------------------------------------------------------


def _default_template(template: Json) -> None:
    spec = part(template, "spec")
    part(spec, "metadata")
    _default_claim_spec(part(spec, "spec"))


def _validate_template_spec(template: Json) -> list[FieldError]:
    spec = template.get("spec") or {}
    metadata = spec.get("metadata") or {}
    errors = validate_annotations(metadata.get("annotations") or {}, "spec.metadata.annotations")
    errors += validate_labels(metadata.get("labels") or {}, "spec.metadata.labels")
    errors += [
        forbidden_value(f"spec.metadata.{name}", "cannot be set")
        for name, value in metadata.items()
        if name not in ("annotations", "labels") and value
    ]
    return errors + validate_claim_spec(spec.get("spec") or {}, "spec.spec")


_validate_template = rules(_meta(True), _validate_template_spec)


def _validate_template_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate_template(new) + _meta_update(new, old)
    return errors + immutable("resource/v1.ResourceClaimTemplateSpec", new.get("spec"), old.get("spec"), "spec")


RESOURCECLAIMTEMPLATES: Final = Kind(
    GROUP, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", "resourceclaimtemplate", True,
    selectable=NAMESPACED,
    delete_answer="object",
    default=_default_template,
    sees=(_NAMESPACES,),
    admit=_admits_admin(True),
    validate=_validate_template,
    validate_update={"": _validate_template_update},
    printer=Printer((NAME, AGE), _print_name),
)  # fmt: skip

# --- classes --------------------------------------------------------------------------------------------------------


def _default_class(device_class: Json) -> None:
    part(device_class, "spec")


def _class_spec(new: Json, old: Json | None) -> list[FieldError]:
    spec = new.get("spec") or {}
    # The size of existing configuration is not checked again.
    before = None if old is None else {"config": (old.get("spec") or {}).get("config")}
    stored = before is not None and same_message(
        "resource/v1.DeviceClassSpec", {"config": spec.get("config")}, before
    )
    errors = validate_selectors(spec.get("selectors"), "spec.selectors")
    errors += validate_items(
        spec.get("config"), CONFIG_MAX, lambda each, path: validate_configuration(each, path, stored), "spec.config"
    )
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        errors.append(invalid_value("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return errors


def _validate_class_update(new: Json, old: Json) -> list[FieldError]:
    return _meta(False)(new) + _meta_update(new, old) + _class_spec(new, old)


DEVICECLASSES: Final = Kind(
    GROUP, "v1", "DeviceClass", "deviceclasses", "deviceclass", False,
    selectable=NAMESPACED,
    delete_answer="object",
    generation=True,
    default=_default_class,
    prepare_create=first_generation,
    validate=rules(_meta(False), lambda device_class: _class_spec(device_class, None)),
    validate_update={"": _validate_class_update},
    printer=Printer((NAME, AGE), _print_name),
)  # fmt: skip

# --- slices ---------------------------------------------------------------------------------------------------------


def _default_slice(obj: Json) -> None:
    spec = part(obj, "spec")
    part(spec, "pool")
    for device in spec.get("devices") or ():
        for mapping in (device.get("nodeAllocatableResourceMappings") or {}).values():
            if mapping.get("allocationMultiplier") is None:
                mapping["allocationMultiplier"] = "1"


def _stamp_taints(new: Json, old: Json | None, cluster: Cluster) -> None:
    now = timestamp(cluster.wall_s())
    for device in new["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            if taint.get("timeAdded") is None:
                taint["timeAdded"] = now


def _drop_disabled(obj: Json) -> None:
    for device in obj["spec"].get("devices") or ():
        device.pop("nodeAllocatableResourceMappings", None)
        for attribute in (device.get("attributes") or {}).values():
            for name in _LIST_VALUES:
                attribute.pop(name, None)


def _create_slice(obj: Json) -> None:
    first_generation(obj)
    _drop_disabled(obj)


def _update_slice(new: Json, old: Json) -> None:
    """Dropped fields still count as a change."""
    if not same_message("resource/v1.ResourceSliceSpec", new.get("spec"), old.get("spec")):
        next_generation(new, old)
    _drop_disabled(new)


def _slice_warnings(new: Json, old: Json | None) -> list[str]:
    driver = new["spec"].get("driver") or ""
    if driver == driver.lower():
        return []
    return [f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters']


def _validate_slice_update(new: Json, old: Json) -> list[FieldError]:
    return _meta_update(new, old) + validate_slice_spec(new.get("spec") or {}, old.get("spec") or {})


def _print_slice(obj: Json, age: Age) -> list[Any]:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    return [
        metadata["name"],
        spec.get("nodeName") or "",
        spec.get("driver") or "",
        (spec.get("pool") or {}).get("name") or "",
        age(metadata.get("creationTimestamp")),
    ]


RESOURCESLICES: Final = Kind(
    GROUP, "v1", "ResourceSlice", "resourceslices", "resourceslice", False,
    selectable={
        **NAMED, "spec.driver": Selectable(("spec", "driver")), "spec.nodeName": Selectable(("spec", "nodeName")),
    },
    delete_answer="object",
    default=_default_slice,
    admit=_stamp_taints,
    prepare_create=_create_slice,
    prepare_update=_update_slice,
    validate=rules(_meta(False), lambda obj: validate_slice_spec(obj.get("spec") or {})),
    validate_update={"": _validate_slice_update},
    warn=_slice_warnings,
    printer=Printer(
        (
            NAME,
            column("Node", "The node whose devices these are; empty where they are several nodes'."),
            column("Driver", "Who offers them."),
            column("Pool", "The pool that they are part of."),
            AGE,
        ),
        _print_slice,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (DEVICECLASSES, RESOURCECLAIMS, RESOURCECLAIMTEMPLATES, RESOURCESLICES)
