"""The group `discovery.k8s.io`: addresses behind a service, in slices.

Source: `pkg/apis/discovery/{validation,v1/defaults.go}`, `pkg/registry/discovery/endpointslice`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json, duplicate, invalid_value, not_supported, required, too_many
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.meta import (
    Messages,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_label_value,
    is_qualified_name,
    next_generation,
    validate_immutable,
)
from minikube_py.api.printing import AGE, NAME, Age, Printer, column, more_text
from minikube_py.api.rules import at, named_by, rules
from minikube_py.api.validation.containers import PROTOCOLS
from minikube_py.api.validation.ips import (
    ip_warnings,
    parse_ip,
    validate_canonical_ip,
    validate_endpoint_ip,
    validate_ip,
)
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update

MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
CONTROLLERS: Final = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
"""Managers exempt from upstream's warnings."""
ENDPOINTS_MAX: Final = 1000
ADDRESSES_MAX: Final = 100
PORTS_MAX: Final = 20_000
HINTS_MAX: Final = 8
_TYPES: Final = ("FQDN", "IPv4", "IPv6")


def _default(piece: Json) -> None:
    for endpoint in piece.get("endpoints") or ():
        part(endpoint, "conditions")
    for port in piece.get("ports") or ():
        for name, given in (("name", ""), ("protocol", "TCP")):
            if port.get(name) is None:
                port[name] = given


def _drop_topology(piece: Json) -> None:
    """Fields that only v1beta1 could set."""
    for endpoint in piece.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _create(piece: Json) -> None:
    piece["metadata"]["generation"] = 1
    _drop_topology(piece)


def _update(new: Json, old: Json) -> None:
    labels = [each["metadata"].get("labels") or {} for each in (new, old)]
    bodies = [{name: each.get(name) for name in ("addressType", "endpoints", "ports")} for each in (new, old)]
    if labels[0] != labels[1] or not same_message("discovery/v1.EndpointSlice", *bodies):
        next_generation(new, old)
    _drop_topology(new)


def _validate_address(kind: str, text: str, path: str, list_path: str) -> list[FieldError]:
    if kind == "FQDN":
        return _validate_domain(text, path)
    if kind not in _TYPES:
        return []
    errors = (validate_ip if kind == "IPv4" else validate_canonical_ip)(text, path)
    if errors:
        return errors
    address = parse_ip(text)
    if address is not None and f"IPv{address.version}" != kind:
        errors = [invalid_value(list_path, text, f"must be an {kind} address")]
    return errors + validate_endpoint_ip(text, path)


def _validate_domain(text: str, path: str) -> list[FieldError]:
    if not text:
        return [required(path)]
    name = text.removesuffix(".")
    if messages := is_dns1123_subdomain(name):
        return [invalid_value(path, name, ",".join(messages))]
    labels = name.split(".")
    if len(labels) < 2:
        return [invalid_value(path, name, "should be a domain with at least two segments separated by dots")]
    return next(
        ([invalid_value(path, label, ",".join(messages))] for label in labels if (messages := is_dns1123_label(label))),
        [],
    )


def _validate_hinted(hinted: Sequence[Json], messages: Callable[[str], Messages], path: str) -> list[FieldError]:
    if len(hinted) > HINTS_MAX:
        return [too_many(path, len(hinted), HINTS_MAX)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, hint in enumerate(hinted):
        where, name = f"{path}[{i}].name", hint.get("name") or ""
        if name in seen:
            errors.append(duplicate(where, name))
        seen.add(name)
        errors += [invalid_value(where, name, message) for message in messages(name)]
    return errors


def _validate_hints(hints: Json | None, path: str) -> list[FieldError]:
    zones, nodes = (hints or {}).get("forZones") or (), (hints or {}).get("forNodes") or ()
    errors = _validate_hinted(zones, is_label_value, f"{path}.forZones")
    # Upstream stops if there are too many zones.
    return errors if len(zones) > HINTS_MAX else errors + _validate_hinted(
        nodes, is_dns1123_subdomain, f"{path}.forNodes"
    )  # fmt: skip


def _validate_endpoint(endpoint: Json, kind: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    addresses, where = endpoint.get("addresses") or (), f"{path}.addresses"
    if not addresses:
        errors.append(required(where, "must contain at least 1 address"))
    elif len(addresses) > ADDRESSES_MAX:
        errors.append(too_many(where, len(addresses), ADDRESSES_MAX))
    for i, text in enumerate(addresses):
        errors += _validate_address(kind, text, f"{where}[{i}]", where)
    for name, messages in (("nodeName", is_dns1123_subdomain), ("hostname", is_dns1123_label)):
        if (value := endpoint.get(name)) is not None:
            errors += named_by(messages)(value, f"{path}.{name}")
    return errors + _validate_hints(endpoint.get("hints"), f"{path}.hints")


def _validate_endpoints(piece: Json) -> list[FieldError]:
    endpoints = piece.get("endpoints") or ()
    if len(endpoints) > ENDPOINTS_MAX:
        return [too_many("endpoints", len(endpoints), ENDPOINTS_MAX)]
    kind = piece.get("addressType") or ""
    return [e for i, each in enumerate(endpoints) for e in _validate_endpoint(each, kind, f"endpoints[{i}]")]


def _validate_ports(ports: Sequence[Json] | None, path: str) -> list[FieldError]:
    if ports is not None and len(ports) > PORTS_MAX:
        return [too_many(path, len(ports), PORTS_MAX)]
    errors: list[FieldError] = []
    names: set[str] = set()
    for i, port in enumerate(ports or ()):
        where, name, protocol, app = f"{path}[{i}]", port["name"], port["protocol"], port.get("appProtocol")
        if name:
            errors += named_by(is_dns1123_label)(name, f"{where}.name")
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        names.add(name)
        if protocol not in PROTOCOLS:
            errors.append(not_supported(f"{where}.protocol", protocol, PROTOCOLS))
        if app is not None:
            errors += named_by(is_qualified_name)(app, f"{where}.appProtocol")
    return errors


def _validate_type(kind: str | None, path: str) -> list[FieldError]:
    if not kind:
        return [required(path)]
    return [] if kind in _TYPES else [not_supported(path, kind, _TYPES)]


_validate_head = rules(
    lambda piece: validate_object_meta(piece["metadata"], True, is_dns1123_subdomain),
    at("addressType", _validate_type),
    at("ports", _validate_ports),
)
_validate = rules(_validate_head, _validate_endpoints)


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"]) + _validate_head(new)
    if new["endpoints"] != old["endpoints"]:
        errors += _validate_endpoints(new)
    return errors + validate_immutable(new.get("addressType"), old.get("addressType"), "addressType")


def _warnings(piece: Json, old: Json | None) -> list[str]:
    found: list[str] = []
    if old is None and piece.get("addressType") == "FQDN":
        found.append("spec.addressType: FQDN endpoints are deprecated")
    if (piece["metadata"].get("labels") or {}).get(MANAGED_BY) not in CONTROLLERS:
        for i, endpoint in enumerate(piece["endpoints"] or ()):
            for j, text in enumerate(endpoint["addresses"] or ()):
                found += ip_warnings(text, f"endpoints[{i}].addresses[{j}]")
    return found


_SHOWN: Final = 3


def _print(piece: Json, age: Age) -> list[Any]:
    ports, endpoints = piece.get("ports") or (), piece.get("endpoints") or ()
    numbers = [port.get("name") or "" if port.get("port") is None else str(port["port"]) for port in ports]
    addresses = (text for endpoint in endpoints for text in endpoint.get("addresses") or ())
    count = sum(len(endpoint.get("addresses") or ()) for endpoint in endpoints)
    return [
        piece["metadata"]["name"],
        piece.get("addressType") or "",
        more_text(numbers[:_SHOWN], len(numbers), _SHOWN),
        more_text(list(islice(addresses, _SHOWN)), count, _SHOWN),
        age(piece["metadata"].get("creationTimestamp")),
    ]


ENDPOINTSLICES: Final = Kind(
    "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice", True,
    selectable=NAMESPACED,
    default=_default,
    prepare_create=_create,
    prepare_update=_update,
    validate=_validate,
    validate_update={"": _validate_update},
    warn=_warnings,
    printer=Printer(
        (
            NAME,
            column("AddressType", "What its addresses are."),
            column("Ports", "The first three of its ports."),
            column("Endpoints", "The first three of its addresses."),
            AGE,
        ),
        _print,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (ENDPOINTSLICES,)
