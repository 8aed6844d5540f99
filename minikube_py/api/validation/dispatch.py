"""Which rules hold for which kind and path, and what is asked of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikube_py.api import registry
from minikube_py.api.errors import FieldError, Json, not_supported, required
from minikube_py.api.meta import (
    is_path_segment,
    validate_object_meta,
    validate_object_meta_update,
)
from minikube_py.api.registry import Resource
from minikube_py.api.validation import kinds, nodes, pods, reviews, services

Create = Callable[[Json], list[FieldError]]
Update = Callable[[Json, Json], list[FieldError]]

_CREATE: Final[dict[Resource, Create]] = {
    registry.PODS: pods.validate_pod_create,
    registry.NAMESPACES: kinds.validate_namespace,
    registry.NODES: nodes.validate_node,
    registry.SERVICES: services.validate_service_create,
    registry.ENDPOINTS: kinds.validate_endpoints,
    registry.REPLICATIONCONTROLLERS: kinds.validate_replication_controller,
    registry.CONFIGMAPS: kinds.validate_config_map,
    registry.SECRETS: kinds.validate_secret,
    registry.SERVICEACCOUNTS: kinds.validate_service_account,
    registry.EVENTS: kinds.validate_event,
    registry.LEASES: kinds.validate_lease,
    registry.SELFSUBJECTACCESSREVIEWS: reviews.validate_self_subject_access_review,
}

_UPDATE: Final[dict[tuple[Resource, str], Update]] = {
    (registry.PODS, ""): pods.validate_pod_update,
    (registry.PODS, "status"): pods.validate_pod_status_update,
    (registry.NAMESPACES, ""): kinds.validate_namespace_update,
    (registry.NAMESPACES, "status"): kinds.validate_namespace_status_update,
    (registry.NAMESPACES, "finalize"): kinds.validate_namespace_finalize_update,
    (registry.NODES, ""): nodes.validate_node_main_update,
    (registry.NODES, "status"): nodes.validate_node_update,
    (registry.SERVICES, ""): services.validate_service_update,
    (registry.SERVICES, "status"): services.validate_service_status_update,
    (registry.ENDPOINTS, ""): kinds.validate_endpoints_update,
    (registry.REPLICATIONCONTROLLERS, ""): kinds.validate_replication_controller_update,
    (registry.REPLICATIONCONTROLLERS, "status"): kinds.validate_replication_controller_status_update,
    (registry.CONFIGMAPS, ""): kinds.validate_config_map_update,
    (registry.SECRETS, ""): kinds.validate_secret_update,
    (registry.SERVICEACCOUNTS, ""): kinds.validate_service_account_update,
    (registry.EVENTS, ""): kinds.validate_event_update,
    (registry.LEASES, ""): kinds.validate_lease_update,
}


def validate_create(resource: Resource, obj: Json) -> list[FieldError]:
    """What is wrong with a new object, in the original's order; empty where nothing is."""
    validate = _CREATE.get(resource)
    errors = validate(obj) if validate is not None else []
    # Only names that pass every other rule are asked whether they fit into a path, so that the better message wins.
    if errors or not resource.stored:
        return errors
    name = obj["metadata"].get("name")
    if name and not is_path_segment(name):
        return [] if resource in _META_CHECKED else _common(resource, obj)
    return _common(resource, obj)


_META_CHECKED: Final = frozenset(_CREATE) - {registry.EVENTS}
"""Kinds whose own rules have looked at all metadata already."""


def _common(resource: Resource, obj: Json) -> list[FieldError]:
    return validate_object_meta(obj["metadata"], resource.namespaced, is_path_segment)


def validate_update(resource: Resource, new: Json, old: Json, subresource: str = "") -> list[FieldError]:
    """What is wrong with an update through the main path, or through `status` or `finalize`."""
    errors = _common(resource, new)
    errors += validate_object_meta_update(new["metadata"], old["metadata"])
    validate = _UPDATE.get((resource, subresource))
    if validate is not None:
        errors += validate(new, old)
    return errors


def validate_binding(binding: Json) -> list[FieldError]:
    """A Binding's target."""
    errors: list[FieldError] = []
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        errors.append(not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(required("target.name"))
    return errors


def validate_scale(scale: Json) -> list[FieldError]:
    """An autoscaling Scale that is to be written."""
    return kinds.validate_scale(scale)
