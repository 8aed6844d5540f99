"""Node: taints, capacities, CIDRs, and immutable fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_resource_list
from minikube_py.api.errors import FieldError, Json, duplicate, forbidden_value, invalid_value
from minikube_py.api.kind import NAMED, Kind, Selectable, proxy_of, status_of
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.api.printing import AGE, NAME, NONE, UNKNOWN, Age, Printer, column
from minikube_py.api.validation.ips import is_ipv6, validate_cidr
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.resources import validate_amount
from minikube_py.api.validation.taints import validate_taints
from minikube_py.fields import builtin

_NODE_INFO: Final = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def _default_node(obj: Json) -> None:
    spec = part(obj, "spec")
    # The deprecated single range and the list are kept in sync; where both are given and differ, the former counts.
    single, ranges = spec.get("podCIDR"), spec.get("podCIDRs")
    if single and (not ranges or ranges[0] != single):
        spec["podCIDRs"] = [single]
    elif ranges:
        spec["podCIDR"] = ranges[0]
    status = part(obj, "status")
    capacity, allocatable = status.get("capacity"), status.get("allocatable")
    if capacity:
        default_resource_list(capacity)
    if allocatable:
        default_resource_list(allocatable)
    elif allocatable is None and capacity:
        status["allocatable"] = dict(capacity)
    endpoint = part(part(status, "daemonEndpoints"), "kubeletEndpoint")
    endpoint.setdefault("Port", 0)
    info = part(status, "nodeInfo")
    for name in _NODE_INFO:
        info.setdefault(name, "")


def _create_node(node: Json) -> None:
    node["spec"].pop("configSource", None)
    node["status"].pop("config", None)


def _update_node(new: Json, old: Json) -> None:
    if not old["spec"].get("configSource"):
        new["spec"].pop("configSource", None)


_FEATURE: Final = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")
_FEATURE_LIMIT: Final = 253


def _validate_amounts(status: Mapping[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    for listed in ("capacity", "allocatable"):
        for name, text in (status.get(listed) or {}).items():
            errors += validate_amount(name, text, f"status.{listed}.{name}")
    return errors


def _validate_features(names: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    path = "status.declaredFeatures"
    for i, name in enumerate(names):
        if len(name) > _FEATURE_LIMIT:
            detail = f'invalid feature name "{name}": must be no more than {_FEATURE_LIMIT} characters'
            errors.append(invalid_value(f"{path}[{i}]", name, detail))
        elif not _FEATURE.fullmatch(name):
            detail = (
                f'invalid feature name "{name}": must start with an UpperCamelCase segment, with subsequent segments '
                "separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "
                "characters and slashes"
            )
            errors.append(invalid_value(f"{path}[{i}]", name, detail))
        if i + 1 < len(names):
            follower = names[i + 1]
            if follower == name:
                errors.append(duplicate(f"{path}[{i + 1}]", follower))
            elif follower < name:
                errors.append(invalid_value(f"{path}[{i + 1}]", follower, "list must be sorted alphabetically"))
    return errors


def _cidrs(spec: Json) -> list[str]:
    """Keeps the deprecated single one and the list in sync."""
    cidrs: list[str] = spec.get("podCIDRs") or []
    return cidrs or ([spec["podCIDR"]] if spec.get("podCIDR") else [])


def validate_node(node: Json) -> list[FieldError]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    errors = validate_object_meta(node["metadata"], False, is_dns1123_subdomain)
    if taints := spec.get("taints"):
        # The path is upstream's, which puts a node's taints under its metadata.
        errors += validate_taints(taints, "metadata.taints")
    errors += _validate_amounts(status)
    if features := status.get("declaredFeatures"):
        errors += _validate_features(features)
    cidrs = _cidrs(spec)
    for i, cidr in enumerate(cidrs):
        errors += validate_cidr(cidr, f"spec.podCIDRs[{i}]")
    if len(cidrs) > 1:
        families = {is_ipv6(cidr.partition("/")[0]) for cidr in cidrs}
        if len(families) < 2 or len(cidrs) > 2:
            detail = "may specify no more than one CIDR for each IP family"
            errors.append(invalid_value("spec.podCIDRs", cidrs, detail))
    return errors


def validate_node_update(new: Json, old: Json) -> list[FieldError]:
    """For both paths: immutable fields."""
    spec, before, status = new.get("spec") or {}, old.get("spec") or {}, new.get("status") or {}
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += _validate_amounts(status)
    if features := status.get("declaredFeatures"):
        errors += _validate_features(features)
    seen: set[tuple[str, str]] = set()
    for i, address in enumerate(status.get("addresses") or ()):
        key = (address.get("type") or "", address.get("address") or "")
        if key in seen:
            errors.append(duplicate(f"status.addresses[{i}]", {"Type": key[0], "Address": key[1]}))
        seen.add(key)
    old_cidrs, cidrs = _cidrs(before), _cidrs(spec)
    if old_cidrs and cidrs != old_cidrs:
        detail = 'node updates may not change podCIDR except from "" to valid'
        count = 1 if len(cidrs) != len(old_cidrs) else sum(a != b for a, b in zip(cidrs, old_cidrs))
        errors += [forbidden_value("spec.podCIDRs", detail)] * count
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        detail = 'node updates may not change providerID except from "" to valid'
        errors.append(forbidden_value("spec.providerID", detail))
    if taints := spec.get("taints"):
        errors += validate_taints(taints, "metadata.taints")
    if (spec.get("externalID") or "") != (before.get("externalID") or ""):
        errors.append(forbidden_value("spec.externalID", "may not be updated"))
    return errors


def validate_node_main_update(new: Json, old: Json) -> list[FieldError]:
    return validate_node(new) + validate_node_update(new, old)


def _node_warnings(node: Json, old: Json | None) -> list[str]:
    spec = node.get("spec") or {}
    found = ["spec.configSource: the feature is removed"] if spec.get("configSource") is not None else []
    if spec.get("externalID"):
        found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    return found


def _address(node: Json, kind: str) -> str:
    for address in (node.get("status") or {}).get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address", ""))
    return NONE


_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"


def _roles(labels: Mapping[str, str] | None) -> str:
    found: set[str] = set()
    for key, value in (labels or {}).items():
        if key.startswith(_ROLE_PREFIX):
            found.add(key[len(_ROLE_PREFIX) :])
        elif key == _ROLE_LABEL:
            found.add(value)
    return ",".join(sorted(found - {""})) or NONE


def _print_node(node: Json, age: Age) -> list[Any]:
    metadata, status = node["metadata"], node.get("status") or {}
    ready = UNKNOWN[1:-1].capitalize()
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            ready = "Ready" if condition.get("status") == "True" else "NotReady"
    if (node.get("spec") or {}).get("unschedulable"):
        ready += ",SchedulingDisabled"
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        metadata["name"],
        ready,
        _roles(metadata.get("labels")),
        age(metadata.get("creationTimestamp")),
        info.get("kubeletVersion") or "",
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


NODES: Final = Kind(
    "", "v1", "Node", "nodes", "node", False,
    short_names=("no",),
    subresources=(status_of("Node"), proxy_of("Node")),
    selectable={**NAMED, "spec.unschedulable": Selectable(("spec", "unschedulable"), "false")},
    field_set=builtin.NODES,
    beats="lastHeartbeatTime",
    default=_default_node,
    prepare_create=_create_node,
    prepare_update=_update_node,
    validate=validate_node,
    validate_update={"": validate_node_main_update, "status": validate_node_update},
    warn=_node_warnings,
    printer=Printer(
        (
            NAME,
            column("Status", "Whether the node is ready, and whether it takes new pods."),
            column("Roles", "Roles of the node, from its labels."),
            AGE,
            column("Version", "Version of its kubelet."),
            column("Internal-IP", "First internal address.", 1),
            column("External-IP", "First external address.", 1),
            column("OS-Image", "Operating system.", 1),
            column("Kernel-Version", "Kernel of the node.", 1),
            column("Container-Runtime", "Container runtime and its version.", 1),
        ),
        _print_node,
    ),
)  # fmt: skip
