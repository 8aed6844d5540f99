"""Services: ports, addresses, and valid combinations per type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    Verbatim,
    duplicate,
    forbidden_value,
    go_json,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import (
    FIELD_IS_IMMUTABLE,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_port_number,
    is_qualified_name,
    validate_labels,
)
from minikube_py.api.services import HEADLESS, is_externally_accessible, reduced
from minikube_py.api.validation.containers import PROTOCOLS, validate_port_or_name
from minikube_py.api.validation.ips import (
    is_dual_stack,
    is_ipv6,
    parse_ip,
    validate_cidr,
    validate_endpoint_ip,
    validate_ip,
)
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_FAMILIES: Final = ("IPv4", "IPv6")
_FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
_AFFINITIES: Final = ("ClientIP", "None")
_TRAFFIC: Final = ("Cluster", "Local")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
_AFFINITY_LIMIT_S: Final = 86400
_ONLY_BALANCER: Final = "may only be used when `type` is 'LoadBalancer'"
_ONLY_EXTERNAL_NAME: Final = "may not be set for ExternalName services"
_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_CHANGED: Final = "may not change once set"


def _is_headless(spec: Json) -> bool:
    return bool(spec.get("clusterIPs") == [HEADLESS])


# --- ports ----------------------------------------------------------------------------------------------------------


def _validate_port(port: Json, name_needed: bool, names: set[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name, number, protocol = port.get("name") or "", port.get("port") or 0, port.get("protocol") or ""
    if name_needed and not name:
        errors.append(required(f"{path}.name"))
    elif name:
        errors += [invalid_value(f"{path}.name", name, message) for message in is_dns1123_label(name)]
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
    errors += [invalid_value(f"{path}.port", number, message) for message in is_port_number(number)]
    if not protocol:
        errors.append(required(f"{path}.protocol"))
    elif protocol not in PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", protocol, PROTOCOLS))
    errors += validate_port_or_name(port.get("targetPort"), f"{path}.targetPort")
    if (app := port.get("appProtocol")) is not None:
        errors += [invalid_value(f"{path}.appProtocol", app, message) for message in is_qualified_name(app)]
    return errors


def _validate_doubles(spec: Json) -> list[FieldError]:
    """Node ports, and ports, that are named twice for one protocol."""
    errors: list[FieldError] = []
    ports: Sequence[Json] = spec.get("ports") or ()
    if spec.get("type") == "ClusterIP":
        for i, port in enumerate(ports):
            if port.get("nodePort"):
                detail = "may not be used when `type` is 'ClusterIP'"
                errors.append(forbidden_value(f"spec.ports[{i}].nodePort", detail))
    taken: set[tuple[Any, Any]] = set()
    for i, port in enumerate(ports):
        if node_port := port.get("nodePort"):
            if (port.get("protocol"), node_port) in taken:
                errors.append(duplicate(f"spec.ports[{i}].nodePort", node_port))
            taken.add((port.get("protocol"), node_port))
    seen: set[tuple[Any, Any]] = set()
    for i, port in enumerate(ports):
        key = (port.get("protocol") or "", port.get("port") or 0)
        if key in seen:
            shown = {
                "Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0,
            }  # fmt: skip
            errors.append(duplicate(f"spec.ports[{i}]", shown))
        seen.add(key)
    return errors


# --- addresses ------------------------------------------------------------------------------------------------------


def _validate_families(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in _FAMILIES:
            errors.append(not_supported(f"spec.ipFamilies[{i}]", family, _FAMILIES))
        if family in seen:
            errors.append(duplicate(f"spec.ipFamilies[{i}]", family))
        seen.add(family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in _FAMILY_POLICIES:
        errors.append(not_supported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES))
    return errors


def _validate_cluster_ips(spec: Json, known: tuple[str, ...]) -> list[FieldError]:
    if spec.get("type") == "ExternalName":
        return []
    errors: list[FieldError] = []
    single, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    path = "spec.clusterIPs"
    if single:
        if not addresses:
            errors.append(required(path))
        elif addresses[0] != single:
            errors.append(invalid_value(path, addresses, "first value must match `clusterIP`"))
    elif addresses:
        errors.append(invalid_value(path, addresses, "must be empty when `clusterIP` is not specified"))
    errors += _validate_families(spec)
    bad = False
    for i, address in enumerate(addresses):
        if i == 0 and address == HEADLESS:
            if len(addresses) > 1:
                bad = True
                errors.append(invalid_value(path, addresses, "'None' must be the first and only value"))
            continue
        found = validate_ip(address, f"{path}[{i}]", known)
        bad = bad or bool(found)
        errors += found
    if len(addresses) > 2:
        errors.append(invalid_value(path, addresses, "may only hold up to 2 values"))
    if bad:
        return errors
    if len(addresses) > 1 and not is_dual_stack(addresses):
        errors.append(invalid_value(path, addresses, "may specify no more than one IP for each IP family"))
    if not _is_headless(spec):
        for i, (address, family) in enumerate(zip(addresses, spec.get("ipFamilies") or ())):
            if family in _FAMILIES and (family == "IPv6") is not is_ipv6(address):
                detail = f"expected an {family} value as indicated by `ipFamilies[{i}]`"
                errors.append(invalid_value(f"{path}[{i}]", address, detail))
    return errors


def _validate_external_ips(spec: Json, known: tuple[str, ...]) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, address in enumerate(spec.get("externalIPs") or ()):
        at = f"spec.externalIPs[{i}]"
        errors += validate_ip(address, at, known) or validate_endpoint_ip(address, at)
    return errors


# --- types ----------------------------------------------------------------------------------------------------------


def _validate_type_needs(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    kind = spec.get("type")
    if not spec.get("ports") and not _is_headless(spec) and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and _is_headless(spec):
        errors.append(invalid_value("spec.clusterIPs[0]", HEADLESS, f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        named = [name for name in ("clusterIPs", "ipFamilies") if spec.get(name)]
        errors += [forbidden_value(f"spec.{name}", _ONLY_EXTERNAL_NAME) for name in named]
        if spec.get("ipFamilyPolicy") is not None:
            errors.append(forbidden_value("spec.ipFamilyPolicy", _ONLY_EXTERNAL_NAME))
        name = (spec.get("externalName") or "").removesuffix(".")
        if name:
            errors += [invalid_value("spec.externalName", name, message) for message in is_dns1123_subdomain(name)]
        else:
            errors.append(required("spec.externalName"))
    return errors


def _validate_affinity(spec: Json) -> list[FieldError]:
    affinity, config = spec.get("sessionAffinity") or "", spec.get("sessionAffinityConfig")
    at = "spec.sessionAffinityConfig"
    if not affinity:
        return [required("spec.sessionAffinity")]
    if affinity not in _AFFINITIES:
        return [not_supported("spec.sessionAffinity", affinity, _AFFINITIES)]
    if affinity == "None":
        if config is not None:
            return [forbidden_value(at, "must not be set when session affinity is None")]
        return []
    when = "when session affinity type is ClientIP"
    client = (config or {}).get("clientIP")
    if config is None or client is None:
        return [required(at if config is None else f"{at}.clientIP", when)]
    timeout_s = client.get("timeoutSeconds")
    if timeout_s is None:
        return [required(f"{at}.clientIP.timeoutSeconds", when)]
    if 0 < timeout_s <= _AFFINITY_LIMIT_S:
        return []
    detail = f"must be greater than 0 and less than {_AFFINITY_LIMIT_S}"
    return [invalid_value(f"{at}.clientIP.timeoutSeconds", timeout_s, detail)]


def _validate_balancer(spec: Json, known: tuple[str, ...]) -> list[FieldError]:
    errors: list[FieldError] = []
    balancer = spec.get("type") == "LoadBalancer"
    if ranges := spec.get("loadBalancerSourceRanges"):
        if not balancer:
            errors.append(forbidden_value("spec.LoadBalancerSourceRanges", _ONLY_BALANCER))
        for i, cidr in enumerate(ranges):
            errors += validate_cidr(cidr.strip(), f"spec.LoadBalancerSourceRanges[{i}]", known)
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balancer:
        errors.append(forbidden_value("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCER))
    return errors + _validate_balancer_class(spec)


def _validate_balancer_class(spec: Json) -> list[FieldError]:
    name, at = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    if name is None:
        return []
    if spec.get("type") != "LoadBalancer":
        return [forbidden_value(at, _ONLY_BALANCER)]
    return [invalid_value(at, name, message) for message in is_qualified_name(name)]


def _needs_health_port(spec: Json) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _validate_traffic(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    external, at = spec.get("externalTrafficPolicy") or "", "spec.externalTrafficPolicy"
    if not is_externally_accessible(spec):
        if external:
            errors.append(invalid_value(at, external, "may only be set for externally-accessible services"))
    elif not external:
        errors.append(required(at))
    elif external not in _TRAFFIC:
        errors.append(not_supported(at, external, _TRAFFIC))
    health_port = spec.get("healthCheckNodePort") or 0
    if health_port:
        if not _needs_health_port(spec):
            detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            errors.append(invalid_value("spec.healthCheckNodePort", health_port, detail))
        else:
            messages = is_port_number(health_port)
            errors += [invalid_value("spec.healthCheckNodePort", health_port, message) for message in messages]
    internal, at = spec.get("internalTrafficPolicy"), "spec.internalTrafficPolicy"
    if internal is None:
        if spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
            errors.append(required(at))
    elif internal not in _TRAFFIC:
        errors.append(not_supported(at, internal, _TRAFFIC))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        errors.append(not_supported("spec.trafficDistribution", distribution, _DISTRIBUTIONS))
    return errors


# --- services -------------------------------------------------------------------------------------------------------


def _validate_service(service: Json, old: Json | None) -> list[FieldError]:
    spec = service.get("spec") or {}
    before: Json = (old or {}).get("spec") or {}
    annotations = service["metadata"].get("annotations") or {}
    errors = []
    if annotations.get(_HINTS) != annotations.get(_MODE) and _HINTS in annotations and _MODE in annotations:
        why = f"must match annotations[{_HINTS}] when both are specified"
        errors.append(invalid_value(f"metadata.annotations[{_MODE}]", annotations[_MODE], why))
    errors += _validate_type_needs(spec)
    ports = spec.get("ports") or ()
    names: set[str] = set()
    for i, port in enumerate(ports):
        errors += _validate_port(port, len(ports) > 1, names, f"spec.ports[{i}]")
    if selector := spec.get("selector"):
        errors += validate_labels(selector, "spec.selector")
    errors += _validate_affinity(spec)
    errors += _validate_cluster_ips(spec, tuple(before.get("clusterIPs") or ()))
    errors += _validate_external_ips(spec, tuple(before.get("externalIPs") or ()))
    kind = spec.get("type") or ""
    if kind not in _TYPES:
        errors.append(not_supported("spec.type", kind, _TYPES) if kind else required("spec.type"))
    errors += _validate_doubles(spec)
    errors += _validate_balancer(spec, tuple(map(str.strip, before.get("loadBalancerSourceRanges") or ())))
    return errors + _validate_traffic(spec)


def validate_service_create(service: Json) -> list[FieldError]:
    if errors := _addresses_first(service, None):
        return errors
    return validate_object_meta(service["metadata"], True, is_dns1123_label) + _validate_service(service, None)


def _addresses_first(service: Json, old: Json | None) -> list[FieldError]:
    """Addresses are checked before one is allocated; if they are wrong, no other error is reported."""
    spec = service.get("spec") or {}
    before = (old or {}).get("spec") or {}
    return _validate_cluster_ips(spec, tuple(before.get("clusterIPs") or ())) or _validate_configured(spec, before)


def _validate_configured(spec: Json, before: Json) -> list[FieldError]:
    """What a cluster that has IPv4 addresses alone can give."""
    if spec.get("type") == "ExternalName":
        return []
    policy, families = spec.get("ipFamilyPolicy"), spec.get("ipFamilies") or ()
    errors = [
        invalid_value("spec.ipFamilyPolicy", policy, f"must be 'SingleStack' to release the secondary {what}")
        for what in reduced(spec, before)
    ]
    if policy == "SingleStack":
        must = "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
        for name, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
            if len(spec.get(name) or ()) == 2:
                errors.append(invalid_value("spec.ipFamilyPolicy", policy, f"{must} {what} are specified"))
    if errors or (_is_headless(spec) and not spec.get("selector")):
        return errors
    if policy == "RequireDualStack":
        detail = "this cluster is not configured for dual-stack services"
        errors.append(invalid_value("spec.ipFamilyPolicy", policy, detail))
    return errors + [
        invalid_value(f"spec.ipFamilies[{i}]", family, "not configured on this cluster")
        for i, family in enumerate(families)
        if family != "IPv4"
    ]


def _validate_kept_addresses(spec: Json, before: Json) -> list[FieldError]:
    if "ExternalName" in (spec.get("type"), before.get("type")):
        return []
    errors: list[FieldError] = []
    if not (_is_headless(spec) and _is_headless(before)):
        errors += _validate_kept(spec, before, "clusterIPs", "primary clusterIP can not be unset", "clusterIP")
    if _is_headless(spec) == _is_headless(before) and not _is_headless(spec):
        errors += _validate_kept(spec, before, "ipFamilies", "primary ipFamily can not be unset", "ipFamily")
    return errors


def _validate_kept(spec: Json, before: Json, name: str, unset: str, one: str) -> list[FieldError]:
    """A list whose first value stays, and whose second may only come and go."""
    values, old = spec.get(name) or [], before.get(name) or []
    shown = values or None
    # If the number of families changed, upstream shows the addresses in the error about the families.
    shown_other = shown if name == "clusterIPs" else spec.get("clusterIPs") or None
    errors: list[FieldError] = []
    if len(values) == len(old):
        for i, (value, was) in enumerate(zip(values, old)):
            if value != was:
                index = i if name == "clusterIPs" else 0
                errors.append(invalid_value(f"spec.{name}[{index}]", shown, _CHANGED))
        return errors
    if len(old) > len(values):
        if not spec.get("clusterIPs"):
            errors.append(invalid_value(f"spec.{name}[0]", shown, unset))
        if values and values[0] != old[0]:
            errors.append(invalid_value(f"spec.{name}[0]", shown_other, _CHANGED))
        if len(values) == 1 and spec.get("ipFamilyPolicy") != "SingleStack":
            detail = f"must be set to 'SingleStack' when releasing the secondary {one}"
            policy = spec.get("ipFamilyPolicy")
            errors.append(invalid_value("spec.ipFamilyPolicy", policy and Verbatim(go_json(policy)), detail))
    elif old and values[0] != old[0]:
        errors.append(invalid_value(f"spec.{name}[0]", shown_other, _CHANGED))
    return errors


def validate_service_update(new: Json, old: Json) -> list[FieldError]:
    if errors := _addresses_first(new, old):
        return errors
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors += _validate_kept_addresses(spec, before)
    if spec.get("type") == before.get("type") == "LoadBalancer":
        name = spec.get("loadBalancerClass")
        if name != before.get("loadBalancerClass"):
            shown = None if name is None else Verbatim(go_json(name))
            errors.append(invalid_value("spec.loadBalancerClass", shown, _CHANGED))
    errors += _validate_balancer_class(spec)
    port_changed = (spec.get("healthCheckNodePort") or 0) != (before.get("healthCheckNodePort") or 0)
    if port_changed and _needs_health_port(spec) and _needs_health_port(before):
        errors.append(forbidden_value("spec.healthCheckNodePort", FIELD_IS_IMMUTABLE))
    return errors + _validate_service(new, old)


def validate_service_status_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    path = "status.loadBalancer.ingress"
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if ingress and (new.get("spec") or {}).get("type") != "LoadBalancer":
        return [*errors, forbidden_value(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = tuple(entry["ip"] for entry in before if entry.get("ip"))
    for i, entry in enumerate(ingress):
        errors += _validate_ingress(entry, known, f"{path}[{i}]")
    return errors


def _validate_ingress(entry: Json, known: tuple[str, ...], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    address, mode, host = entry.get("ip") or "", entry.get("ipMode"), entry.get("hostname") or ""
    if address:
        errors += validate_ip(address, f"{path}.ip", known)
        if mode is None:
            errors.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif mode is not None:
        errors.append(forbidden_value(f"{path}.ipMode", "may not be specified when `ip` is not set"))
    if mode is not None and address and mode not in ("Proxy", "VIP"):
        errors.append(not_supported(f"{path}.ipMode", mode, ("Proxy", "VIP")))
    if host:
        errors += [invalid_value(f"{path}.hostname", host, message) for message in is_dns1123_subdomain(host)]
        if parse_ip(host) is not None:
            errors.append(invalid_value(f"{path}.hostname", host, "must be a DNS name, not an IP address"))
    return errors
