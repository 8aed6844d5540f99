"""Filling up an object with what its sender left out: `apply_defaults`, applied to every body that comes in.

The rules are those of `pkg/apis/core/v1/defaults.go`, together with the empty structures that the original always
prints (`status: {}`, a container's `resources: {}`). What the original's admission plugins add stands in
`api.admission`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from minikube_py.api import registry
from minikube_py.api.defaults_pod import default_pod, default_pod_spec, default_resource_list
from minikube_py.api.errors import Json
from minikube_py.api.registry import Resource

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
CLIENT_IP_TIMEOUT_S: Final = 10800
CLUSTER_POLICY: Final = "Cluster"


def apply_defaults(resource: Resource, obj: Json) -> None:
    """In place. Raises: StatusError 400 on a quantity that cannot be read."""
    filler = _DEFAULTS.get(resource)
    if filler is not None:
        filler(obj)


def _part(obj: Json, name: str) -> Json:
    """`obj[name]`, made empty where it is missing or null."""
    found: Json | None = obj.get(name)
    if found is None:
        found = obj[name] = {}
    return found


def _default_namespace(obj: Json) -> None:
    _part(obj, "spec")
    status = _part(obj, "status")
    name = obj["metadata"].get("name")
    if name:
        _part(obj["metadata"], "labels")[NAMESPACE_NAME_LABEL] = name
    if not status.get("phase"):
        status["phase"] = "Active"


_NODE_INFO: Final = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def _default_node(obj: Json) -> None:
    spec = _part(obj, "spec")
    # The deprecated single range and the list stand for one another.
    if spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]
    elif spec.get("podCIDR"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    status = _part(obj, "status")
    capacity, allocatable = status.get("capacity"), status.get("allocatable")
    if capacity:
        default_resource_list(capacity)
    if allocatable:
        default_resource_list(allocatable)
    elif allocatable is None and capacity:
        status["allocatable"] = dict(capacity)
    endpoint = _part(_part(status, "daemonEndpoints"), "kubeletEndpoint")
    endpoint.setdefault("Port", 0)
    info = _part(status, "nodeInfo")
    for name in _NODE_INFO:
        info.setdefault(name, "")


def _default_replication_controller(obj: Json) -> None:
    spec = _part(obj, "spec")
    status = _part(obj, "status")
    status.setdefault("replicas", 0)
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    template = spec.get("template")
    if template is None:
        return
    metadata = _part(template, "metadata")
    labels = metadata.get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)
    default_pod_spec(_part(template, "spec"))


def _default_affinity(spec: Json) -> None:
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": CLIENT_IP_TIMEOUT_S}}


def _default_service(obj: Json) -> None:
    spec = _part(obj, "spec")
    status = _part(obj, "status")
    balancer = _part(status, "loadBalancer")
    _default_affinity(spec)
    if not spec.get("type"):
        spec["type"] = "ClusterIP"
    kind = spec["type"]
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    external = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if external and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = CLUSTER_POLICY
    if spec.get("internalTrafficPolicy") is None and kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec["internalTrafficPolicy"] = CLUSTER_POLICY
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for ingress in balancer.get("ingress") or ():
            if ingress.get("ip") and ingress.get("ipMode") is None:
                ingress["ipMode"] = "VIP"
    # The deprecated single address and the list stand for one another.
    addresses = spec.get("clusterIPs")
    if addresses and not spec.get("clusterIP"):
        spec["clusterIP"] = addresses[0]


def _default_endpoints(obj: Json) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def _default_secret(obj: Json) -> None:
    if not obj.get("type"):
        obj["type"] = "Opaque"
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _default_event(obj: Json) -> None:
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(name, None)
    _part(obj, "source")
    _part(obj, "involvedObject")
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")


def _default_lease(obj: Json) -> None:
    _part(obj, "spec")


def _default_review(obj: Json) -> None:
    _part(obj, "spec")


_DEFAULTS: Final[dict[Resource, Callable[[Json], None]]] = {
    registry.PODS: default_pod,
    registry.NAMESPACES: _default_namespace,
    registry.NODES: _default_node,
    registry.REPLICATIONCONTROLLERS: _default_replication_controller,
    registry.SERVICES: _default_service,
    registry.ENDPOINTS: _default_endpoints,
    registry.SECRETS: _default_secret,
    registry.EVENTS: _default_event,
    registry.LEASES: _default_lease,
    registry.SELFSUBJECTACCESSREVIEWS: _default_review,
    registry.SELFSUBJECTRULESREVIEWS: _default_review,
}
