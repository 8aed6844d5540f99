"""The spec of a PersistentVolumeClaim, which templates share. Source: `pkg/apis/core/validation/validation.go`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, not_supported, required
from minikube_py.api.meta import (
    is_dns1123_label,
    is_dns1123_subdomain,
    validate_annotations,
    validate_labels,
)
from minikube_py.api.rules import named_by, one_of
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.resources import validate_amount
from minikube_py.fields import quantity

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")
POSITIVE: Final = "must be greater than zero"
_ALONE: Final = "may not use ReadWriteOncePod with other access modes"
CLASS_NAME: Final = named_by(is_dns1123_subdomain)
VOLUME_MODE: Final = one_of(*VOLUME_MODES)


def validate_access_modes(modes: Sequence[str], path: str) -> list[FieldError]:
    """Their values, not their presence."""
    errors = [not_supported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:-1] for mode in modes):
        errors.append(forbidden_value(path, _ALONE))
    return errors


def validate_positive(text: str, path: str) -> list[FieldError]:
    return [invalid_value(path, text, POSITIVE)] if quantity.parse(text).unscaled <= 0 else []


def _validate_data_source(source: Json, path: str, any_group: bool) -> list[FieldError]:
    errors = [required(f"{path}.{name}") for name in ("name", "kind") if not source.get(name)]
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid_value(path, kind, detail))
    if group and not any_group:
        errors += [invalid_value(f"{path}.apiGroup", group, message) for message in is_dns1123_subdomain(group)]
    return errors


def _validate_data_sources(spec: Json, path: str, any_group: bool) -> list[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    errors: list[FieldError] = []
    if source is not None:
        errors += _validate_data_source(source, f"{path}.dataSource", any_group)
    namespace = (reference or {}).get("namespace")
    if reference is not None:
        at = f"{path}.dataSourceRef"
        errors += _validate_data_source(reference, at, any_group)
        if namespace:
            errors += [invalid_value(f"{at}.namespace", namespace, message) for message in is_dns1123_label(namespace)]
    if source is None or reference is None:
        return errors
    # Upstream passes a path as the value, and paths have no JSON.
    if namespace:
        errors.append(invalid_value(path, {}, "may not be specified when dataSourceRef.namespace is specified"))
    elif [source.get(name) for name in _REFERENCE] != [reference.get(name) for name in _REFERENCE]:
        errors.append(invalid_value(path, {}, "must match dataSourceRef"))
    return errors


_REFERENCE: Final = ("apiGroup", "kind", "name")


def validate_claim_spec(spec: Json, path: str = "spec", old: Json | None = None) -> list[FieldError]:
    """`old`: the spec before, whose selector and API groups, where they are wrong, stay allowed."""
    before = old or {}
    errors: list[FieldError] = []
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    errors += validate_label_selector(spec.get("selector"), f"{path}.selector")
    errors += validate_access_modes(modes, f"{path}.accessModes")
    storage, at = ((spec.get("resources") or {}).get("requests") or {}).get("storage"), f"{path}.resources[storage]"
    if storage is None:
        errors.append(required(at))
    else:
        errors += validate_positive(storage, at) or validate_amount("storage", storage, at)
    if spec.get("storageClassName"):
        errors += CLASS_NAME(spec["storageClassName"], f"{path}.storageClassName")
    errors += VOLUME_MODE(spec.get("volumeMode"), f"{path}.volumeMode")
    sources = (before.get("dataSource") or {}, before.get("dataSourceRef") or {})
    any_group = any(source.get("apiGroup") is not None for source in sources)
    errors += _validate_data_sources(spec, path, any_group)
    if spec.get("volumeAttributesClassName"):
        errors += CLASS_NAME(spec["volumeAttributesClassName"], f"{path}.volumeAttributesClassName")
    return errors


def validate_claim_template(template: Json, path: str) -> list[FieldError]:
    """Of an ephemeral volume: labels, annotations and a spec."""
    metadata, at = template.get("metadata") or {}, f"{path}.metadata"
    errors = validate_annotations(metadata.get("annotations") or {}, f"{at}.annotations")
    errors += validate_labels(metadata.get("labels") or {}, f"{at}.labels")
    for name in metadata:
        if name not in ("annotations", "labels") and metadata[name]:
            errors.append(forbidden_value(f"{at}.{name}", "cannot be set"))
    return errors + validate_claim_spec(template.get("spec") or {}, f"{path}.spec")
