"""The EndpointSlices of a service, from its pods or from Endpoints written by others. Pure.

Source: k8s.io/endpointslice (reconciler.go, utils.go, trafficdist),
k8s.io/kubernetes/pkg/controller/endpointslicemirroring. Endpoints are added in the order of the pods; upstream iterates
over a map in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from minikube_py.client.events import WARNING
from minikube_py.client.rest import Object
from minikube_py.controllers.subsets import ServicePorts, in_endpoints, repack
from minikube_py.controllers.views import EndpointSliceView, EndpointsView, Labels, MetaView, PodView, ServiceView

if TYPE_CHECKING:
    from minikube_py.controllers.topology_hints import Topology

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
HEADLESS: Final = "service.kubernetes.io/headless"
TRIGGER_TIME: Final = "endpoints.kubernetes.io/last-change-trigger-time"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
CONTROLLER: Final = "endpointslice-controller.k8s.io"
MIRRORING: Final = "endpointslicemirroring-controller.k8s.io"
ENDPOINTS_MAX: Final = 100
"""Per slice; a mirrored slice holds up to MIRRORED_MAX."""
MIRRORED_MAX: Final = 1000
_RESERVED: Final = (SERVICE_NAME, MANAGED_BY, HEADLESS)
_DISABLED: Final = "Topology Aware Hints has been disabled"
_CLOSE: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")

Endpoints = dict[tuple[Any, ...], Object]
"""By identity."""
PortKey = tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Piece:
    """A desired slice. `of`: the slice it replaces; None: a new one. `fresh`: keeps nothing of the replaced one."""

    address_type: str
    ports: list[Object]
    endpoints: list[Object]
    labels: Labels
    annotations: Labels = field(default_factory=dict)
    of: EndpointSliceView | None = None
    fresh: bool = True
    loses_prefix: bool = False
    """Drops its generateName, as when upstream rewrites a mirrored slice under its name."""


@dataclass(slots=True)
class Plan:
    create: list[Piece] = field(default_factory=list)
    update: list[Piece] = field(default_factory=list)
    delete: list[EndpointSliceView] = field(default_factory=list)
    missing_nodes: list[tuple[str, str]] = field(default_factory=list)
    """Pods, by name, whose node is missing."""
    skipped: int = 0
    told: list[tuple[str, str, str]] = field(default_factory=list)
    """Events: type, reason, message."""

    def touched(self) -> set[EndpointSliceView | None]:
        return {piece.of for piece in self.update} | set(self.delete)

    def reuse(self, owner_uid: str) -> None:
        """Turns pairs of deletion and creation into updates, for slices of the same type and owner."""
        left: list[EndpointSliceView] = []
        for view in self.delete:
            mine = any(owner.uid == owner_uid for owner in view.owners)
            if mine and self.create and self.create[-1].address_type == view.address_type:
                piece = self.create.pop()
                piece.of = view
                self.update.append(piece)
            else:
                left.append(view)
        self.delete = left


def identity(endpoint: Mapping[str, Any]) -> tuple[Any, ...]:
    target = endpoint.get("targetRef") or {}
    addresses = tuple(sorted(endpoint.get("addresses") or ()))
    return addresses, endpoint.get("hostname") or "", target.get("namespace", ""), target.get("name", "")


def port_key(ports: Iterable[Mapping[str, Any]]) -> PortKey:
    texts = [(p.get("name"), p.get("port"), p.get("protocol"), p.get("appProtocol")) for p in ports]
    return tuple(sorted([(str(name), str(port), str(proto), str(app)) for name, port, proto, app in texts]))


def _target_of(endpoint: Mapping[str, Any]) -> Object:
    target = dict(endpoint.get("targetRef") or {})
    target.pop("resourceVersion", None)
    return target


def _alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Equal apart from identity."""
    names = ("nodeName", "zone", "conditions")
    return all(left.get(n) == right.get(n) for n in names) and _target_of(left) == _target_of(right)


# --- slices of a service --------------------------------------------------------------------------------------------


def service_labels(service: ServiceView) -> Labels:
    labels = {name: value for name, value in service.labels.items() if name not in _RESERVED}
    if service.headless:
        labels[HEADLESS] = ""
    return {**labels, SERVICE_NAME: service.name, MANAGED_BY: CONTROLLER}


def _labels_changed(view: EndpointSliceView, service: ServiceView) -> bool:
    own, wanted = (
        {name: value for name, value in each.labels.items() if name not in _RESERVED} for each in (view, service)
    )
    return own != wanted


def address_types(service: ServiceView) -> tuple[str, ...]:
    if service.families:
        return tuple(dict.fromkeys(service.families))
    if not service.headless:
        return ("IPv6" if ":" in service.cluster_ip else "IPv4",)
    return ("IPv4", "IPv6")


def _port(port: Mapping[str, Any], number: int) -> Object:
    entry: Object = {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
    return entry | ({"appProtocol": port["appProtocol"]} if "appProtocol" in port else {})


def _endpoint(service: ServiceView, pod: PodView, zone: str, addresses: list[str]) -> Object:
    terminating = bool(pod.deleting)
    ready = service.publish_not_ready or (pod.ready and not terminating)
    found: Object = {
        "addresses": addresses,
        "conditions": {"ready": ready, "serving": pod.ready, "terminating": terminating},
        "targetRef": {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
    }
    hostname = pod.hostname if pod.subdomain == service.name else ""
    given = (("nodeName", pod.node), ("zone", zone), ("hostname", hostname))
    return found | {name: value for name, value in given if value}


def plan(
    service: ServiceView,
    pods: Sequence[PodView],
    zone_of: Callable[[str], str | None],
    existing: Sequence[EndpointSliceView],
    topology: Topology | None,
) -> list[Plan]:
    """The changes by address type. `zone_of` a node: None if the node does not exist. `topology` is updated; it is
    there once a service has wanted it."""
    types = address_types(service)
    plans = []
    for kind in types:
        standing = [view for view in existing if view.address_type == kind]
        found = _plan_type(service, pods, zone_of, standing, kind)
        _hint(found, service, standing, topology, kind)
        found.reuse(service.uid)
        plans.append(found)
    if topology is not None:
        for kind in {view.address_type: None for view in existing if view.address_type not in types}:
            topology.disable(service.key, kind)
    return [*plans, Plan(delete=[view for view in existing if view.address_type not in types])]


def _plan_type(
    service: ServiceView,
    pods: Sequence[PodView],
    zone_of: Callable[[str], str | None],
    existing: list[EndpointSliceView],
    address_type: str,
) -> Plan:
    found = Plan()
    standing: dict[PortKey, list[EndpointSliceView]] = {}
    for view in existing:
        if any(owner.uid == service.uid for owner in view.owners):
            standing.setdefault(port_key(view.ports), []).append(view)
        else:
            found.delete.append(view)
    ports: dict[PortKey, list[Object]] = {}
    desired: dict[PortKey, Endpoints] = {}
    ports_of, by_list = ServicePorts(service), dict[int, Endpoints]()
    for pod in pods:
        if not in_endpoints(pod, include_terminating=True):
            continue
        own = ports_of(pod)
        if id(own) not in by_list:
            listed = [_port(port, number) for port, number in own]
            key = port_key(listed)
            ports.setdefault(key, listed)
            by_list[id(own)] = desired.setdefault(key, {})
        wanted = by_list[id(own)]
        zone = zone_of(pod.node) if pod.node else None
        if zone is None and not service.publish_not_ready:
            found.missing_nodes.append((pod.name, pod.node))
            continue
        if addresses := [ip for ip in pod.ips if (":" in ip) == (address_type == "IPv6")]:
            endpoint = _endpoint(service, pod, zone or "", addresses)
            wanted[identity(endpoint)] = endpoint
    for key, wanted in desired.items():
        _fit(found, service, standing.get(key, []), wanted, ports[key], address_type)
    found.delete += [view for key, views in standing.items() if key not in desired for view in views]
    _placeholder(found, service, existing, address_type)
    return found


def _copy(view: EndpointSliceView, service: ServiceView, endpoints: list[Object]) -> Piece:
    ports = [dict(port) for port in view.ports]
    labels, annotations = service_labels(service), dict(view.annotations)
    return Piece(view.address_type, ports, endpoints, labels, annotations, view, fresh=False)


def _fit(
    found: Plan,
    service: ServiceView,
    views: list[EndpointSliceView],
    wanted: Endpoints,
    ports: list[Object],
    address_type: str,
) -> None:
    """Keeps endpoints where they are, then places the rest: the fullest slices are filled first."""
    updates: list[Piece] = []
    unchanged: list[EndpointSliceView] = []
    for view in views:
        kept, changed = [], False
        for endpoint in view.endpoints:
            got = wanted.pop(identity(endpoint), None)
            if got is not None:
                kept.append(got)
                changed = changed or not _alike(got, endpoint)
        if changed or len(kept) != len(view.endpoints):
            if kept:
                updates.append(_copy(view, service, kept))
            else:
                found.delete.append(view)
        elif _labels_changed(view, service):
            updates.append(_copy(view, service, [dict(each) for each in view.endpoints]))
        else:
            unchanged.append(view)
    left = list(wanted.values())
    for piece in sorted(updates, key=lambda piece: -len(piece.endpoints)):
        room = ENDPOINTS_MAX - len(piece.endpoints)
        piece.endpoints += left[:room]
        left = left[room:]
    while left:
        fullest = _closest_to_full(unchanged, len(left)) if len(left) < ENDPOINTS_MAX else None
        if fullest is not None:
            updates.append(_copy(fullest, service, [*map(dict, fullest.endpoints), *left]))
            break
        found.create.append(Piece(address_type, ports, left[:ENDPOINTS_MAX], service_labels(service)))
        left = left[ENDPOINTS_MAX:]
    found.update += updates


def _closest_to_full(views: Sequence[EndpointSliceView], count: int) -> EndpointSliceView | None:
    fitting = [view for view in views if 0 <= ENDPOINTS_MAX - count - len(view.endpoints) < ENDPOINTS_MAX]
    return max(fitting, key=lambda view: len(view.endpoints), default=None)


def _placeholder(
    found: Plan, service: ServiceView, existing: list[EndpointSliceView], address_type: str
) -> None:  # fmt: skip
    """A service without endpoints has one empty slice."""
    if len(existing) != len(found.delete) or found.create:
        return
    labels = service_labels(service)
    if len(found.delete) == 1:
        view = found.delete[0]
        mine = len(view.owners) == 1 and view.owners[0].uid == service.uid
        if mine and view.labels == labels and not view.ports and not view.endpoints:
            found.delete = []
            return
    found.create.append(Piece(address_type, [], [], labels))


def _hinted(endpoint: Mapping[str, Any], close: bool, by_node: bool) -> Object:
    """The endpoint with its hints; those of unready endpoints are kept."""
    if close and not (endpoint.get("conditions") or {}).get("ready"):
        return dict(endpoint)
    zone, node, hints = endpoint.get("zone"), endpoint.get("nodeName"), {}
    if close and zone:
        hints["forZones"] = [{"name": zone}]
    if close and by_node and node:
        hints["forNodes"] = [{"name": node}]
    bare = {name: value for name, value in endpoint.items() if name != "hints"}
    return bare | ({"hints": hints} if hints else {})


def _hint(
    found: Plan, service: ServiceView, existing: list[EndpointSliceView], topology: Topology | None, address_type: str
) -> None:
    by_zone = wants_topology(service)
    if topology is not None:
        why = topology.hint(found, service, existing, address_type) if by_zone else _DISABLED
        if not why:
            return
        if topology.disable(service.key, address_type) or by_zone:
            found.told.append((WARNING, "TopologyAwareHintsDisabled", f"{why}, addressType: {address_type}"))
    close, by_node = service.traffic in _CLOSE and not by_zone, service.traffic == "PreferSameNode"
    touched = found.touched()
    for view in existing:
        hinted = [_hinted(endpoint, close, by_node) for endpoint in view.endpoints]
        if view not in touched and hinted != [dict(each) for each in view.endpoints]:
            found.update.append(with_hints(view, service, hinted))
    for piece in (*found.create, *found.update):
        piece.endpoints = [_hinted(endpoint, close, by_node) for endpoint in piece.endpoints]


def with_hints(view: EndpointSliceView, service: ServiceView, endpoints: list[Object]) -> Piece:
    piece = _copy(view, service, endpoints)
    piece.labels = dict(view.labels)
    return piece


def wants_topology(service: ServiceView) -> bool:
    """Whether an annotation requests hints by the zones' CPU shares."""
    annotations = service.annotations
    names = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")
    return next((annotations[name] for name in names if name in annotations), "") in ("Auto", "auto")


# --- slices of Endpoints written by others --------------------------------------------------------------------------


def _mirrored_annotations(endpoints: EndpointsView) -> Labels:
    return {name: text for name, text in endpoints.annotations.items() if name not in (TRIGGER_TIME, LAST_APPLIED)}


def _mirrored(address: Mapping[str, Any], ready: bool) -> Object:
    found: Object = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    given = ((name, address.get(name)) for name in ("targetRef", "nodeName", "hostname"))
    return found | {name: value for name, value in given if value}


def plan_mirror(endpoints: EndpointsView, existing: Sequence[EndpointSliceView]) -> Plan:
    found = Plan()
    desired: dict[tuple[str, PortKey], Endpoints] = {}
    ports: dict[PortKey, list[Object]] = {}
    for subset in repack(endpoints.subsets):
        listed = [{"name": "", "protocol": "TCP", **port} for port in subset.get("ports") or ()]
        key = port_key(listed)
        ports[key] = listed
        addresses = [(a, True) for a in subset.get("addresses") or ()]
        addresses += [(a, False) for a in subset.get("notReadyAddresses") or ()]
        found.skipped += max(0, len(addresses) - MIRRORED_MAX)
        for address, ready in addresses[:MIRRORED_MAX]:
            kind = "IPv6" if ":" in address["ip"] else "IPv4"
            endpoint = _mirrored(address, ready)
            desired.setdefault((kind, key), {})[identity(endpoint)] = endpoint
    standing: dict[tuple[str, PortKey], list[EndpointSliceView]] = {}
    for view in existing:
        standing.setdefault((view.address_type, port_key(view.ports)), []).append(view)
    for (kind, key), wanted in desired.items():
        views = standing.pop((kind, key), [])
        found.delete += views[1:]
        if views and _up_to_date(views[0], endpoints, wanted):
            continue
        labels = {**endpoints.labels, SERVICE_NAME: endpoints.name, MANAGED_BY: MIRRORING}
        piece = Piece(kind, ports[key], list(wanted.values()), labels, _mirrored_annotations(endpoints))
        piece.of, piece.loses_prefix = (views[0] if views else None), bool(views)
        (found.update if views else found.create).append(piece)
    found.delete += [view for views in standing.values() for view in views]
    found.reuse(endpoints.uid)
    return found


def _up_to_date(view: EndpointSliceView, endpoints: EndpointsView, wanted: Endpoints) -> bool:
    own = {name: value for name, value in view.labels.items() if name not in (MANAGED_BY, SERVICE_NAME)}
    got = {identity(each): each for each in view.endpoints}
    return (
        got.keys() == wanted.keys()
        and all(_alike(wanted[key], each) for key, each in got.items())
        and own == endpoints.labels
        and view.annotations == _mirrored_annotations(endpoints)
        and all(owner.uid == endpoints.uid for owner in view.owners if owner.kind == "Endpoints")
    )


def owner_reference(kind: str, owner: MetaView) -> Object:
    return {
        "apiVersion": "v1", "kind": kind, "name": owner.name, "uid": owner.uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
