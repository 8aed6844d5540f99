"""The subsets of an Endpoints object, from a service and its pods. Pure.

Source: k8s.io/kubernetes/pkg/controller/endpoint, pkg/api/v1/endpoints. Ports and subsets are ordered by value;
upstream orders them by a hash of their Go printout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from minikube_py.client.rest import Object
from minikube_py.controllers.views import PodView, ServiceView

CAPACITY: Final = 1000
"""Maximum addresses in one Endpoints object."""

_AddressKey = tuple[str, str]


class _Port(NamedTuple):
    name: str
    port: int
    protocol: str
    app_protocol: str

    def document(self) -> Object:
        document: Object = {"port": self.port, "protocol": self.protocol}
        if self.name:
            document["name"] = self.name
        if self.app_protocol:
            document["appProtocol"] = self.app_protocol
        return document


_NO_PORT: Final = _Port("", -1, "", "")


def in_endpoints(pod: PodView, include_terminating: bool) -> bool:
    return not pod.terminal and bool(pod.ips) and (include_terminating or not pod.deleting)


def build_subsets(service: ServiceView, pods: Iterable[PodView]) -> list[Object]:
    """Addresses by port, packed: ports that the same addresses serve share a subset."""
    addresses: dict[_AddressKey, Object] = {}
    by_port: dict[_Port, dict[_AddressKey, bool]] = {}
    for pod in pods:
        if not in_endpoints(pod, service.publish_not_ready):
            continue
        ip = _ip_of_family(service, pod)
        if not ip:
            continue
        key = (ip, pod.uid)
        ports = _ports(service, pod)
        if ports:
            addresses.setdefault(key, _address(service, pod, ip))
        ready = service.publish_not_ready or pod.ready
        for port in ports:
            served = by_port.setdefault(port, {})
            # Not ready takes precedence over ready.
            served[key] = served.get(key, True) and ready
    return _pack(addresses, by_port)


def repack(subsets: Iterable[Mapping[str, Any]]) -> list[Object]:
    """The canonical form of subsets written by others."""
    addresses: dict[_AddressKey, Object] = {}
    by_port: dict[_Port, dict[_AddressKey, bool]] = {}
    for subset in subsets:
        ports = [
            _Port(p.get("name", ""), p["port"], p.get("protocol", "TCP"), p.get("appProtocol", ""))
            for p in subset.get("ports") or ()
        ]
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in subset.get(field) or ():
                key = (address["ip"], (address.get("targetRef") or {}).get("uid", ""))
                addresses.setdefault(key, dict(address))
                for port in ports or (_NO_PORT,):
                    served = by_port.setdefault(port, {})
                    served[key] = served.get(key, True) and ready
    return _pack(addresses, by_port)


def _pack(addresses: Mapping[_AddressKey, Object], by_port: Mapping[_Port, Mapping[_AddressKey, bool]]) -> list[Object]:
    ports_by_set: dict[tuple[tuple[_AddressKey, bool], ...], list[_Port]] = {}
    for port in sorted(by_port):
        ports_by_set.setdefault(tuple(sorted(by_port[port].items())), []).append(port)
    packed: list[Object] = []
    for served, ports in sorted(ports_by_set.items(), key=lambda entry: entry[1]):
        subset: Object = {}
        if ready := [addresses[key] for key, is_ready in served if is_ready]:
            subset["addresses"] = ready
        if not_ready := [addresses[key] for key, is_ready in served if not is_ready]:
            subset["notReadyAddresses"] = not_ready
        if documents := [port.document() for port in ports if port.port > 0]:
            subset["ports"] = documents
        packed.append(subset)
    return packed


def _ip_of_family(service: ServiceView, pod: PodView) -> str:
    if service.families:
        wants_v6 = service.families[0] == "IPv6"
    elif service.cluster_ip and service.cluster_ip != "None":
        wants_v6 = ":" in service.cluster_ip
    else:
        wants_v6 = ":" in pod.ips[0]
    return next((ip for ip in pod.ips if (":" in ip) == wants_v6), "")


def _address(service: ServiceView, pod: PodView, ip: str) -> Object:
    address: Object = {"ip": ip}
    if pod.hostname and pod.subdomain == service.name:
        address["hostname"] = pod.hostname
    if pod.node:
        address["nodeName"] = pod.node
    address["targetRef"] = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return address


def _ports(service: ServiceView, pod: PodView) -> list[_Port]:
    if not service.ports:
        return [_NO_PORT] if service.cluster_ip == "None" else []
    found = []
    for port in service.ports:
        protocol = port.get("protocol", "TCP")
        number = target_port(port, protocol, pod)
        if number is not None:
            found.append(_Port(port.get("name", ""), number, protocol, port.get("appProtocol", "")))
    return found


def target_port(port: Mapping[str, Any], protocol: str, pod: PodView) -> int | None:
    target = port.get("targetPort", port.get("port"))
    if isinstance(target, int):
        return target
    return next((p.port for p in pod.ports if p.name == target and p.protocol == protocol), None)


def truncate(subsets: list[Object], capacity: int = CAPACITY) -> tuple[list[Object], bool]:
    """At most `capacity` addresses, ready ones first, each subset in proportion; whether any were dropped."""
    ready = sum(len(subset.get("addresses", ())) for subset in subsets)
    not_ready = sum(len(subset.get("notReadyAddresses", ())) for subset in subsets)
    if ready + not_ready <= capacity:
        return subsets, False
    field, total, room = ("addresses", ready, capacity) if ready > capacity else (
        "notReadyAddresses", not_ready, capacity - ready
    )  # fmt: skip
    left, kept = room, []
    for subset in subsets:
        addresses = subset.get(field, ())
        share = min(left, math.ceil(len(addresses) / total * room), len(addresses))
        left -= share
        cut = {**subset, field: list(addresses[:share])}
        if field == "addresses":
            cut.pop("notReadyAddresses", None)
        kept.append({name: value for name, value in cut.items() if value})
    return kept, True
