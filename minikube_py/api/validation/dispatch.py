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
from minikube_py.api.validation.kinds import (
    validate_config_map,
    validate_config_map_update,
    validate_endpoints,
    validate_endpoints_update,
    validate_event,
    validate_event_update,
    validate_lease,
    validate_lease_update,
    validate_namespace,
    validate_namespace_finalize_update,
    validate_namespace_status_update,
    validate_namespace_update,
    validate_replication_controller,
    validate_replication_controller_status_update,
    validate_replication_controller_update,
    validate_secret,
    validate_secret_update,
    validate_service_account,
    validate_service_account_update,
)
from minikube_py.api.validation.nodes import validate_node, validate_node_main_update, validate_node_update
from minikube_py.api.validation.pods import validate_pod_create, validate_pod_status_update, validate_pod_update
from minikube_py.api.validation.reviews import validate_self_subject_access_review
from minikube_py.api.validation.services import (
    validate_service_create,
    validate_service_status_update,
    validate_service_update,
)

Create = Callable[[Json], list[FieldError]]
Update = Callable[[Json, Json], list[FieldError]]

_CREATE: Final[dict[Resource, Create]] = {
    registry.PODS: validate_pod_create,
    registry.NAMESPACES: validate_namespace,
    registry.NODES: validate_node,
    registry.SERVICES: validate_service_create,
    registry.ENDPOINTS: validate_endpoints,
    registry.REPLICATIONCONTROLLERS: validate_replication_controller,
    registry.CONFIGMAPS: validate_config_map,
    registry.SECRETS: validate_secret,
    registry.SERVICEACCOUNTS: validate_service_account,
    registry.EVENTS: validate_event,
    registry.LEASES: validate_lease,
    registry.SELFSUBJECTACCESSREVIEWS: validate_self_subject_access_review,
}

_UPDATE: Final[dict[tuple[Resource, str], Update]] = {
    (registry.PODS, ""): validate_pod_update,
    (registry.PODS, "status"): validate_pod_status_update,
    (registry.NAMESPACES, ""): validate_namespace_update,
    (registry.NAMESPACES, "status"): validate_namespace_status_update,
    (registry.NAMESPACES, "finalize"): validate_namespace_finalize_update,
    (registry.NODES, ""): validate_node_main_update,
    (registry.NODES, "status"): validate_node_update,
    (registry.SERVICES, ""): validate_service_update,
    (registry.SERVICES, "status"): validate_service_status_update,
    (registry.ENDPOINTS, ""): validate_endpoints_update,
    (registry.REPLICATIONCONTROLLERS, ""): validate_replication_controller_update,
    (registry.REPLICATIONCONTROLLERS, "status"): validate_replication_controller_status_update,
    (registry.CONFIGMAPS, ""): validate_config_map_update,
    (registry.SECRETS, ""): validate_secret_update,
    (registry.SERVICEACCOUNTS, ""): validate_service_account_update,
    (registry.EVENTS, ""): validate_event_update,
    (registry.LEASES, ""): validate_lease_update,
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

