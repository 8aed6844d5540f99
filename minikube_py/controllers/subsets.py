"""The subsets of an Endpoints object, from a service and its pods. Pure.

Source: k8s.io/kubernetes/pkg/controller/endpoint, pkg/api/v1/endpoints. Ports and subsets are ordered by value;
upstream orders them by a hash of their Go printout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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


_Group = tuple[Sequence[_Port], dict[_AddressKey, bool]]
"""Ports, and the addresses that serve all of them, with whether they are ready. The ports of one object are never
multiplied by its addresses: each may have thousands."""


def build_subsets(service: ServiceView, pods: Iterable[PodView]) -> list[Object]:
    """Addresses by port, packed: ports that the same addresses serve share a subset."""
    addresses: dict[_AddressKey, Object] = {}
    groups: dict[int, _Group] = {}
    ports_of = ServicePorts(service)
    for pod in pods:
        if not in_endpoints(pod, service.publish_not_ready):
            continue
        ip = _ip_of_family(service, pod)
        if not ip:
            continue
        found = ports_of(pod)
        if not found and (service.ports or service.cluster_ip != "None"):
            continue
        key = (ip, pod.uid)
        addresses.setdefault(key, _address(service, pod, ip))
        if id(found) not in groups:
            groups[id(found)] = ([_port(port, number) for port, number in found] or [_NO_PORT], {})
        _serve(groups[id(found)][1], key, service.publish_not_ready or pod.ready)
    return _pack(addresses, list(groups.values()))


def repack(subsets: Iterable[Mapping[str, Any]]) -> list[Object]:
    """The canonical form of subsets written by others."""
    addresses: dict[_AddressKey, Object] = {}
    groups: list[_Group] = []
    for subset in subsets:
        ports = [_port(port, port["port"]) for port in subset.get("ports") or ()]
        served: dict[_AddressKey, bool] = {}
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in subset.get(field) or ():
                key = (address["ip"], (address.get("targetRef") or {}).get("uid", ""))
                addresses.setdefault(key, dict(address))
                _serve(served, key, ready)
        if served:
            groups.append((ports or [_NO_PORT], served))
    return _pack(addresses, groups)


def _serve(served: dict[_AddressKey, bool], key: _AddressKey, ready: bool) -> None:
    # Not ready takes precedence over ready.
    served[key] = served.get(key, True) and ready


def _pack(addresses: Mapping[_AddressKey, Object], groups: Sequence[_Group]) -> list[Object]:
    found_in: dict[_Port, dict[int, None]] = {}
    for i, (ports, _) in enumerate(groups):
        for port in ports:
            found_in.setdefault(port, {})[i] = None
    by_groups: dict[tuple[int, ...], list[_Port]] = {}
    for port in sorted(found_in):
        by_groups.setdefault(tuple(found_in[port]), []).append(port)
    ports_by_set: dict[tuple[tuple[_AddressKey, bool], ...], list[_Port]] = {}
    for within, ports in by_groups.items():
        served: dict[_AddressKey, bool] = {}
        for i in within:
            for key, ready in groups[i][1].items():
                _serve(served, key, ready)
        ports_by_set.setdefault(tuple(sorted(served.items())), []).extend(ports)
    packed: list[Object] = []
    for served_by, ports in sorted(((served, sorted(of)) for served, of in ports_by_set.items()), key=lambda e: e[1]):
        subset: Object = {}
        if ready_ones := [addresses[key] for key, is_ready in served_by if is_ready]:
            subset["addresses"] = ready_ones
        if not_ready := [addresses[key] for key, is_ready in served_by if not is_ready]:
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


def _port(port: Mapping[str, Any], number: int) -> _Port:
    return _Port(port.get("name", ""), number, port.get("protocol", "TCP"), port.get("appProtocol", ""))


class ServicePorts:
    """The ports of a service with their numbers on a pod, in the service's order: the same list for pods alike in the
    ports that it names. A service may name thousands, and so may each pod."""

    def __init__(self, service: ServiceView) -> None:
        self._all = service.ports
        self._fixed: list[tuple[int, int]] = []
        self._named: dict[tuple[Any, str], list[int]] = {}
        self._known: dict[tuple[tuple[tuple[Any, str], int], ...], list[tuple[Mapping[str, Any], int]]] = {}
        for i, port in enumerate(service.ports):
            target = port.get("targetPort", port.get("port"))
            if isinstance(target, int):
                self._fixed.append((i, target))
            else:
                self._named.setdefault((target, port.get("protocol", "TCP")), []).append(i)

    def __call__(self, pod: PodView) -> list[tuple[Mapping[str, Any], int]]:
        numbers: dict[tuple[Any, str], int] = {}
        for port in pod.ports if self._named else ():
            if (port.name, port.protocol) in self._named:
                numbers.setdefault((port.name, port.protocol), port.port)
        told = tuple(numbers.items())
        if told not in self._known:
            found = [*self._fixed, *((i, number) for target, number in told for i in self._named[target])]
            self._known[told] = [(self._all[i], number) for i, number in sorted(found)]
        return self._known[told]


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
