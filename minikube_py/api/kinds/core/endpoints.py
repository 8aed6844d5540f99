"""Endpoints: addresses behind a service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikube_py.api.errors import FieldError, Json, invalid_value, not_supported, required
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain, is_port_number, is_qualified_name
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column
from minikube_py.api.validation.containers import PROTOCOLS
from minikube_py.api.validation.ips import validate_endpoint_ip, validate_ip
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update


def _default_endpoints(obj: Json) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def _validate_address(address: Json, path: str) -> list[FieldError]:
    text = address.get("ip") or ""
    errors = validate_ip(text, f"{path}.ip")
    if name := address.get("hostname"):
        errors += [invalid_value(f"{path}.hostname", name, message) for message in is_dns1123_label(name)]
    if (node := address.get("nodeName")) is not None:
        errors += [invalid_value(f"{path}.nodeName", node, message) for message in is_dns1123_subdomain(node)]
    return errors + validate_endpoint_ip(text, f"{path}.ip")


def _validate_endpoint_port(port: Json, name_needed: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name, number, protocol = port.get("name") or "", port.get("port") or 0, port.get("protocol") or ""
    if name_needed and not name:
        errors.append(required(f"{path}.name"))
    elif name:
        errors += [invalid_value(f"{path}.name", name, message) for message in is_dns1123_label(name)]
    errors += [invalid_value(f"{path}.port", number, message) for message in is_port_number(number)]
    if not protocol:
        errors.append(required(f"{path}.protocol"))
    elif protocol not in PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", protocol, PROTOCOLS))
    if (app := port.get("appProtocol")) is not None:
        errors += [invalid_value(f"{path}.appProtocol", app, message) for message in is_qualified_name(app)]
    return errors


def _validate_subsets(subsets: Sequence[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, subset in enumerate(subsets):
        at = f"subsets[{i}]"
        ports = subset.get("ports") or ()
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(at, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(name) or ()):
                errors += _validate_address(address, f"{at}.{name}[{j}]")
        for j, port in enumerate(ports):
            errors += _validate_endpoint_port(port, len(ports) > 1, f"{at}.ports[{j}]")
    return errors


def validate_endpoints(endpoints: Json) -> list[FieldError]:
    errors = validate_object_meta(endpoints["metadata"], True, is_dns1123_subdomain)
    return errors + _validate_subsets(endpoints.get("subsets") or ())


def validate_endpoints_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += validate_object_meta(new["metadata"], True, is_dns1123_subdomain)
    if new.get("subsets") != old.get("subsets"):
        errors += _validate_subsets(new.get("subsets") or ())
    return errors


_ENDPOINTS_SHOWN: Final = 3


def _join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _endpoints_text(subsets: Sequence[Json]) -> str:
    if not subsets:
        return NONE
    shown: list[str] = []
    count = 0
    for subset in subsets:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        count += len(addresses) * (len(ports) or 1)
        room = _ENDPOINTS_SHOWN - len(shown)
        if not ports:
            shown += addresses[:room]
        for port in ports:
            room = _ENDPOINTS_SHOWN - len(shown)
            shown += [_join_host_port(ip, port.get("port", 0)) for ip in addresses[:room]]
    text = ",".join(shown)
    return f"{text} + {count - _ENDPOINTS_SHOWN} more..." if count > _ENDPOINTS_SHOWN else text


def _print_endpoints(endpoints: Json, age: Age) -> list[Any]:
    metadata = endpoints["metadata"]
    return [
        metadata["name"],
        _endpoints_text(endpoints.get("subsets") or ()),
        age(metadata.get("creationTimestamp")),
    ]


ENDPOINTS: Final = Kind(
    "", "v1", "Endpoints", "endpoints", "endpoints", True,
    short_names=("ep",),
    selectable=NAMESPACED,
    allow_create_on_update=True,
    deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    default=_default_endpoints,
    validate=validate_endpoints,
    validate_update={"": validate_endpoints_update},
    printer=Printer(
        (NAME, column("Endpoints", "Addresses and ports behind the service, the first three."), AGE), _print_endpoints
    ),
)  # fmt: skip
