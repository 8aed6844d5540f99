"""Service: one address for many pods.

The API server allocates addresses; rules by type and IP family are in `api.services`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api import services
from minikube_py.api.apply.assigned import always
from minikube_py.api.defaulting import part
from minikube_py.api.errors import Json
from minikube_py.api.kind import NAMESPACED, Kind, Selectable, proxy_of, status_of
from minikube_py.api.printing import AGE, NAME, NONE, UNKNOWN, Age, Printer, column, format_labels
from minikube_py.api.validation.ips import cidr_warnings, ip_warnings
from minikube_py.api.validation.services import (
    validate_service_create,
    validate_service_status_update,
    validate_service_update,
)

CLIENT_IP_TIMEOUT_S: Final = 10800
CLUSTER_POLICY: Final = "Cluster"
_HINTS: Final = "service.kubernetes.io/topology-aware-hints"


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
    spec = part(obj, "spec")
    status = part(obj, "status")
    balancer = part(status, "loadBalancer")
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


def _create_service(service: Json) -> None:
    service["status"] = {"loadBalancer": {}}
    services.complete_families(service)


def _update_service(new: Json, old: Json) -> None:
    services.follow_cluster_ip(new, old)
    services.keep_allocated(new, old)
    services.drop_type_dependent(new, old)
    services.complete_families(new, old)


def _service_warnings(service: Json, old: Json | None) -> list[str]:
    spec = service.get("spec") or {}
    found: list[str] = []
    if _HINTS in (service["metadata"].get("annotations") or {}):
        found.append(f"annotation {_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead")
    kind, external = spec.get("type"), spec.get("externalIPs")
    if spec.get("clusterIP") not in (None, "", "None"):
        for i, text in enumerate(spec.get("clusterIPs") or ()):
            found += ip_warnings(text, f"spec.clusterIPs[{i}]")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            found.append("spec.loadBalancerIP is ignored for headless services")
        if external:
            found.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            found.append("spec.SessionAffinity is ignored for headless services")
    for i, text in enumerate(external or ()):
        found += ip_warnings(text, f"spec.externalIPs[{i}]")
    if external and not headless and kind != "ExternalName":
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    found += ip_warnings(spec.get("loadBalancerIP") or "", "spec.loadBalancerIP")
    for i, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        found += cidr_warnings(text, f"spec.loadBalancerSourceRanges[{i}]")
    if kind == "ExternalName" and external:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if kind != "ExternalName" and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def _balancer_addresses(status: Json) -> list[str]:
    ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
    return sorted({entry.get("ip") or entry.get("hostname") or "" for entry in ingress} - {""})


def _external_ip(service: Json) -> str:
    spec = service.get("spec") or {}
    kind, external = spec.get("type"), list(spec.get("externalIPs") or ())
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(external) or NONE
    if kind == "LoadBalancer":
        return ",".join(_balancer_addresses(service.get("status") or {}) + external) or "<pending>"
    return str(spec.get("externalName") or "") if kind == "ExternalName" else UNKNOWN


def _port_text(port: Json) -> str:
    number, protocol, node_port = port.get("port", 0), port.get("protocol", ""), port.get("nodePort") or 0
    return f"{number}:{node_port}/{protocol}" if node_port > 0 else f"{number}/{protocol}"


def _print_service(service: Json, age: Age) -> list[Any]:
    metadata, spec = service["metadata"], service.get("spec") or {}
    addresses = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    return [
        metadata["name"],
        spec.get("type") or "",
        addresses[0] if addresses else NONE,
        _external_ip(service),
        ",".join(map(_port_text, spec.get("ports") or ())) or NONE,
        age(metadata.get("creationTimestamp")),
        format_labels(spec.get("selector")),
    ]


SERVICES: Final = Kind(
    "", "v1", "Service", "services", "service", True,
    short_names=("svc",),
    categories=("all",),
    subresources=(proxy_of("Service"), status_of("Service")),
    selectable={
        **NAMESPACED,
        "spec.clusterIP": Selectable(("spec", "clusterIP")),
        "spec.type": Selectable(("spec", "type")),
    },
    delete_answer="object",
    allow_create_on_update=True,
    default=_default_service,
    prepare_create=_create_service,
    prepare_update=_update_service,
    assigned=always(
        "spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.healthCheckNodePort",
        "spec.ports.*.nodePort",
    ),
    validate=validate_service_create,
    validate_update={"": validate_service_update, "status": validate_service_status_update},
    warn=_service_warnings,
    printer=Printer(
        (
            NAME,
            column("Type", "How the service is exposed."),
            column("Cluster-IP", "Address inside the cluster."),
            column("External-IP", "Addresses outside the cluster."),
            column("Port(s)", "Ports, with their node ports and protocols."),
            AGE,
            column("Selector", "Labels of the pods behind it.", 1),
        ),
        _print_service,
    ),
)  # fmt: skip
