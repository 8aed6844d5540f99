"""Cluster IPs and node ports of Services, kept over updates and dropped with the type.

The API server allocates addresses; here are the rules of `pkg/registry/core/service`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikube_py.api.errors import Json

NODE_PORT_FIRST: Final = 30000
NODE_PORT_LAST: Final = 32767
HEADLESS: Final = "None"


def needs_cluster_ip(service: Json) -> bool:
    """True if it needs an address."""
    spec = service["spec"]
    return spec.get("type") != "ExternalName" and not spec.get("clusterIP")


def set_cluster_ip(service: Json, address: str) -> None:
    """`address` is an IPv4 address or `None` (headless)."""
    spec = service["spec"]
    spec["clusterIP"] = address
    spec["clusterIPs"] = [address]


def reduced(spec: Json, before: Json) -> list[str]:
    """Values that an update may remove only with the policy SingleStack."""
    if spec.get("ipFamilyPolicy") == "SingleStack":
        return []
    names = (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family"))
    return [told for name, told in names if 0 < len(spec.get(name) or ()) < len(before.get(name) or ())]


def complete_families(service: Json, old: Json | None = None) -> None:
    """Addresses' families, of a cluster that has IPv4 alone."""
    spec = service["spec"]
    before: Json = old["spec"] if old is not None else {}
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec.get("type") == "ExternalName":
        spec.pop("internalTrafficPolicy", None)
        return
    # Without addresses and selector, the IP families are unknown.
    anything = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = "RequireDualStack" if anything else "SingleStack"
    if old is not None and spec["ipFamilyPolicy"] == "SingleStack":
        for name in ("clusterIPs", "ipFamilies"):
            if len(spec.get(name) or ()) > 1 and spec[name] == before.get(name):
                spec[name] = spec[name][:1]
    if reduced(spec, before):
        # Validation will refuse it.
        return
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]
    if anything and len(spec["ipFamilies"]) == 1 and spec["ipFamilyPolicy"] != "SingleStack":
        spec["ipFamilies"] = [*spec["ipFamilies"], "IPv6" if spec["ipFamilies"] == ["IPv4"] else "IPv4"]


def ports_without_node_port(service: Json) -> Iterator[Json]:
    """The ports that a node port is to be found for."""
    spec = service["spec"]
    if _wants_node_ports(spec):
        yield from (port for port in spec.get("ports") or () if not port.get("nodePort"))


def _wants_node_ports(spec: Json) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _uses_node_ports(spec: Json) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def needs_health_port(spec: Json) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def is_externally_accessible(spec: Json) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def follow_cluster_ip(new: Json, old: Json) -> None:
    """A change of one of `clusterIP` and `clusterIPs` applies to both (upstream's normalizeClusterIPs)."""
    spec, before = new["spec"], old["spec"]
    single, was = spec.get("clusterIP") or "", before.get("clusterIP") or ""
    addresses, were = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if were and not addresses and single == was:
        spec["clusterIPs"] = list(were)
    if single != was and addresses == were:
        if single:
            spec["clusterIPs"] = [single]
        elif was:
            spec.pop("clusterIPs", None)


def keep_allocated(new: Json, old: Json) -> None:
    """An update without allocated values keeps the old ones."""
    spec, before = new["spec"], old["spec"]
    if spec.get("type") != "ExternalName" and before.get("type") != "ExternalName" and not spec.get("clusterIP"):
        for name in ("clusterIP", "clusterIPs"):
            if before.get(name) and not spec.get(name):
                spec[name] = before[name]
    if before.get("ipFamilyPolicy") and not spec.get("ipFamilyPolicy") and spec.get("type") != "ExternalName":
        spec["ipFamilyPolicy"] = before["ipFamilyPolicy"]
    if _wants_node_ports(spec) and _wants_node_ports(before):
        # Matched by name: other fields of a port may have changed.
        known = {port.get("name"): port.get("nodePort") for port in before.get("ports") or ()}
        taken = {port.get("nodePort") for port in spec.get("ports") or ()}
        for port in spec.get("ports") or ():
            found = known.get(port.get("name"))
            if not port.get("nodePort") and found and found not in taken:
                port["nodePort"] = found
    found = before.get("healthCheckNodePort")
    if found and needs_health_port(spec) and needs_health_port(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = found


def _drop_same(spec: Json, before: Json, name: str) -> None:
    if spec.get(name) == before.get(name):
        spec.pop(name, None)


def drop_type_dependent(new: Json, old: Json) -> None:
    """Clears what no longer applies to the new type and was not changed by the same request."""
    spec, before = new["spec"], old["spec"]
    if before.get("type") != "ExternalName" and spec.get("type") == "ExternalName":
        if spec.get("clusterIP") == before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        _drop_same(spec, before, "ipFamilies")
        _drop_same(spec, before, "ipFamilyPolicy")
    if _uses_node_ports(before) and not _uses_node_ports(spec):
        known = {port.get("nodePort") for port in before.get("ports") or ()}
        if all(port.get("nodePort") in known for port in spec.get("ports") or () if port.get("nodePort")):
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
    if needs_health_port(before) and not needs_health_port(spec):
        _drop_same(spec, before, "healthCheckNodePort")
    if before.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        _drop_same(spec, before, "allocateLoadBalancerNodePorts")
        _drop_same(spec, before, "loadBalancerClass")
    if is_externally_accessible(before) and not is_externally_accessible(spec):
        _drop_same(spec, before, "externalTrafficPolicy")
    if spec.get("type") != "LoadBalancer":
        new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}
