"""The group `networking.k8s.io`: ingresses and network policies.

Source: `pkg/apis/networking/{validation,v1/defaults.go}`, `pkg/registry/networking`, `plugin/pkg/admission/network`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
    too_long,
)  # fmt: skip
from minikube_py.api.kind import NAMESPACED, Cluster, Kind, status_of
from minikube_py.api.label_selectors import selector_text
from minikube_py.api.meta import (
    Messages,
    first_generation,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_path_segment,
    is_port_name,
    is_port_number,
    is_wildcard_subdomain,
    validate_immutable,
)
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column
from minikube_py.api.rules import Rule, at, defaults, named_by, rules
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.ips import cidr_warnings, ip_warnings, parse_cidr, parse_ip, validate_cidr, validate_ip
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.paths import domain_prefixed_path

GROUP: Final = "networking.k8s.io"
CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
DEFAULT_CLASS: Final = "ingressclass.kubernetes.io/is-default-class"
CONTROLLER_BYTES_MAX: Final = 250
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")


def _meta(namespaced: bool) -> Rule:
    return lambda obj: validate_object_meta(obj["metadata"], namespaced, is_dns1123_subdomain)


# --- ingresses ------------------------------------------------------------------------------------------------------


def _backends(ingress: Json) -> Iterator[Json]:
    spec = ingress["spec"]
    if spec.get("defaultBackend") is not None:
        yield spec["defaultBackend"]
    for rule in spec.get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            yield part(path, "backend")


def _default_ingress(ingress: Json) -> None:
    part(ingress, "spec")
    for backend in _backends(ingress):
        if backend.get("service") is not None:
            part(backend["service"], "port")
    for entry in part(part(ingress, "status"), "loadBalancer").get("ingress") or ():
        for port in entry.get("ports") or ():
            port.setdefault("port", 0)
            port.setdefault("protocol", "")


def _create_ingress(ingress: Json) -> None:
    ingress["status"] = {"loadBalancer": {}}
    first_generation(ingress)


def _admit_ingress(new: Json, old: Json | None, cluster: Cluster) -> None:
    """DefaultIngressClass: without a class, the newest default applies."""
    spec, annotations = new["spec"], new["metadata"].get("annotations") or {}
    if old is not None or spec.get("ingressClassName") is not None or CLASS_ANNOTATION in annotations:
        return
    by_name = sorted(cluster.defaults(INGRESSCLASSES), key=lambda each: str(each["metadata"]["name"]))
    if by_name:
        newest = max(by_name, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""))
        spec["ingressClassName"] = newest["metadata"]["name"]


def _is_host(host: str) -> Messages:
    return is_wildcard_subdomain(host) if "*" in host else is_dns1123_subdomain(host)


def _validate_reference(reference: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if (group := reference.get("apiGroup")) is not None:
        errors += named_by(is_dns1123_subdomain)(group, f"{path}.apiGroup")
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        errors += named_by(is_path_segment)(value, f"{path}.{name}") if value else [required(f"{path}.{name}")]
    return errors


def _validate_service(service: Json, path: str, backend_path: str) -> list[FieldError]:
    name, port = service.get("name") or "", service.get("port") or {}
    where = f"{path}.name"
    errors = list(named_by(is_dns1123_label)(name, where)) if name else [required(where)]
    port_name, number = port.get("name") or "", port.get("number") or 0
    if port_name and number:
        errors.append(invalid_value(backend_path, "", "cannot set both port name & port number"))
    elif port_name:
        errors += named_by(is_port_name)(port_name, f"{path}.port.name")
    elif number:
        errors += [invalid_value(f"{path}.port.number", number, message) for message in is_port_number(number)]
    else:
        errors.append(required(backend_path, "port name or number is required"))
    return errors


def _validate_backend(backend: Json | None, path: str) -> list[FieldError]:
    if backend is None:
        return []
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [invalid_value(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return _validate_reference(resource, f"{path}.resource")
    if service is not None:
        return _validate_service(service, f"{path}.service", path)
    return [invalid_value(path, "", "resource or service backend is required")]


def _validate_path(entry: Json, path: str) -> list[FieldError]:
    kind, text, where = entry.get("pathType"), entry.get("path") or "", f"{path}.path"
    if kind is None:
        return [required(f"{path}.pathType", "pathType must be specified")]
    errors: list[FieldError] = []
    exact = kind in ("Exact", "Prefix")
    if kind not in _PATH_TYPES:
        errors.append(not_supported(f"{path}.pathType", kind, _PATH_TYPES))
    elif not text.startswith("/") and (exact or text):
        errors.append(invalid_value(where, text, "must be an absolute path"))
    if exact:
        unwanted = ("//", "/./", "/../", "%2f", "%2F")
        errors += [invalid_value(where, text, f"must not contain '{each}'") for each in unwanted if each in text]
        errors += [
            invalid_value(where, text, f"cannot end with '{each}'") for each in ("/..", "/.") if text.endswith(each)
        ]
    return errors + _validate_backend(entry.get("backend") or {}, f"{path}.backend")


def _validate_rule(rule: Json, path: str) -> list[FieldError]:
    host, http, errors = rule.get("host") or "", rule.get("http"), []
    if host:
        if parse_ip(host) is not None:
            errors.append(invalid_value(f"{path}.host", host, "must be a DNS name, not an IP address"))
        errors += named_by(_is_host)(host, f"{path}.host")
    if http is None:
        return errors
    paths = http.get("paths") or ()
    if not paths:
        errors.append(required(f"{path}.http.paths"))
    return errors + [e for i, each in enumerate(paths) for e in _validate_path(each, f"{path}.http.paths[{i}]")]


def _validate_tls(tls: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, host in enumerate(tls.get("hosts") or ()):
        errors += named_by(_is_host)(host, f"{path}.hosts[{i}]")
    if secret := tls.get("secretName"):
        errors += named_by(is_dns1123_subdomain)(secret, f"{path}.secretName")
    return errors


def _something_served(spec: Json, path: str) -> list[FieldError]:
    if spec.get("rules") or spec.get("defaultBackend") is not None:
        return []
    return [invalid_value(path, spec.get("rules"), "either `defaultBackend` or `rules` must be specified")]


def _validate_class_name(name: str | None, path: str) -> list[FieldError]:
    return [] if name is None else list(named_by(is_dns1123_subdomain)(name, path))


_validate_ingress = rules(
    _meta(True),
    at("spec", _something_served),
    at("spec.defaultBackend", _validate_backend),
    at("spec.rules[*]", _validate_rule),
    at("spec.tls[*]", _validate_tls),
    at("spec.ingressClassName", _validate_class_name),
)


def _one_class(ingress: Json) -> list[FieldError]:
    annotated = (ingress["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if annotated is None or ingress["spec"].get("ingressClassName") in (None, annotated):
        return []
    detail = "must match `ingressClassName` when both are specified"
    return [invalid_value(f"annotations.{CLASS_ANNOTATION}", annotated, detail)]


def _validate_ingress_status(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    known = tuple(entry["ip"] for entry in _balancers(old) if entry.get("ip"))
    for i, entry in enumerate(_balancers(new)):
        path, address, host = f"status.loadBalancer.ingress[{i}]", entry.get("ip"), entry.get("hostname")
        if address:
            errors += validate_ip(address, f"{path}.ip", known)
        if host:
            errors += named_by(is_dns1123_subdomain)(host, f"{path}.hostname")
            if parse_ip(host) is not None:
                errors.append(invalid_value(f"{path}.hostname", host, "must be a DNS name, not an IP address"))
    return errors


def _balancers(ingress: Json) -> Sequence[Json]:
    found: Sequence[Json] = ((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return found


def _ingress_warnings(new: Json, old: Json | None) -> list[str]:
    if old is not None:
        if new.get("status") == old.get("status"):
            return []
        addresses = [entry.get("ip") or "" for entry in _balancers(new)]
        return [w for i, ip in enumerate(addresses) for w in ip_warnings(ip, f"status.loadBalancer.ingress[{i}]")]
    annotated = CLASS_ANNOTATION in (new["metadata"].get("annotations") or {})
    if not annotated or new["spec"].get("ingressClassName") is not None:
        return []
    return [f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"]


_HOSTS_SHOWN: Final = 3


def _hosts_text(rules: Sequence[Json]) -> str:
    hosts: list[str] = []
    more = False
    for rule in rules:
        more = more or len(hosts) == _HOSTS_SHOWN
        if rule.get("host") and not more:
            hosts.append(rule["host"])
    text = ",".join(hosts) or "*"
    return f"{text} + {len(rules) - _HOSTS_SHOWN} more..." if more else text


def _print_ingress(ingress: Json, age: Age) -> list[Any]:
    metadata, spec = ingress["metadata"], ingress.get("spec") or {}
    addresses = {entry.get("ip") or entry.get("hostname") or "" for entry in _balancers(ingress)} - {""}
    name = spec.get("ingressClassName")
    return [
        metadata["name"],
        NONE if name is None else name,
        _hosts_text(spec.get("rules") or ()),
        ",".join(sorted(addresses)),
        "80, 443" if spec.get("tls") else "80",
        age(metadata.get("creationTimestamp")),
    ]


INGRESSES: Final = Kind(
    GROUP, "v1", "Ingress", "ingresses", "ingress", True,
    short_names=("ing",),
    subresources=(status_of("Ingress"),),
    selectable=NAMESPACED,
    generation=True,
    sees=((GROUP, "v1", "ingressclasses"),),
    default=_default_ingress,
    admit=_admit_ingress,
    prepare_create=_create_ingress,
    validate=rules(_validate_ingress, _one_class),
    validate_update={
        "": lambda new, old: validate_object_meta_update(new["metadata"], old["metadata"]) + _validate_ingress(new),
        "status": _validate_ingress_status,
    },
    warn=_ingress_warnings,
    printer=Printer(
        (
            NAME,
            column("Class", "The IngressClass that serves it."),
            column("Hosts", "Hosts that its rules are for."),
            column("Address", "Where requests come in."),
            column("Ports", "Ports that are open."),
            AGE,
        ),
        _print_ingress,
    ),
)  # fmt: skip

# --- ingress classes ------------------------------------------------------------------------------------------------


def _default_class(obj: Json) -> None:
    parameters = part(obj, "spec").get("parameters")
    if parameters is not None and parameters.get("scope") is None:
        parameters["scope"] = "Cluster"


def _validate_controller(name: str | None, path: str) -> list[FieldError]:
    text = name or ""
    errors = [too_long(path, CONTROLLER_BYTES_MAX)] if len(text.encode()) > CONTROLLER_BYTES_MAX else []
    return errors + domain_prefixed_path(text, path) if text else [required(path)]


def _validate_parameters(parameters: Json | None, path: str) -> list[FieldError]:
    if parameters is None:
        return []
    errors = _validate_reference(parameters, path)
    scope, namespace, where = parameters["scope"], parameters.get("namespace"), f"{path}.namespace"
    if scope not in ("Cluster", "Namespace"):
        errors.append(not_supported(f"{path}.scope", scope, ("Cluster", "Namespace")))
    elif scope == "Cluster" and namespace is not None:
        errors.append(forbidden_value(where, "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and namespace is None:
        errors.append(required(where, "`parameters.scope` is set to 'Namespace'"))
    elif scope == "Namespace":
        errors += named_by(is_dns1123_label)(namespace, where)
    return errors


_validate_class = rules(
    _meta(False), at("spec.controller", _validate_controller), at("spec.parameters", _validate_parameters)
)


def _validate_class_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    controllers = (new["spec"].get("controller") or "", old["spec"].get("controller") or "")
    return errors + validate_immutable(*controllers, "spec.controller") + _validate_class(new)


def _is_default_class(obj: Json) -> bool:
    return bool((obj["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true")


def _print_class(obj: Json, age: Age) -> list[Any]:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    parameters, text = spec.get("parameters"), NONE
    if parameters is not None:
        group = parameters.get("apiGroup")
        suffix = f".{group}" if group is not None else ""
        text = f"{parameters.get('kind', '')}{suffix}/{parameters.get('name', '')}"
    name = metadata["name"] + (" (default)" if _is_default_class(obj) else "")
    return [name, spec.get("controller") or "", text, age(metadata.get("creationTimestamp"))]


INGRESSCLASSES: Final = Kind(
    GROUP, "v1", "IngressClass", "ingressclasses", "ingressclass", False,
    selectable=NAMESPACED,
    generation=True,
    is_default=_is_default_class,
    default=_default_class,
    prepare_create=first_generation,
    validate=_validate_class,
    validate_update={"": _validate_class_update},
    printer=Printer(
        (
            NAME,
            column("Controller", "Who serves ingresses of the class."),
            column("Parameters", "An object that holds more of its settings."),
            AGE,
        ),
        _print_class,
    ),
)  # fmt: skip

# --- network policies -----------------------------------------------------------------------------------------------


def _peers(policy: Json) -> Iterator[tuple[str, Json]]:
    """Each peer with its path."""
    for way, name in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(policy["spec"].get(way) or ()):
            for j, peer in enumerate(rule.get(name) or ()):
                yield f"spec.{way}[{i}].{name}[{j}]", peer


def _blocks(policy: Json) -> Iterator[tuple[str, str]]:
    """Each CIDR of the policy with its path."""
    for path, peer in _peers(policy):
        if (block := peer.get("ipBlock")) is not None:
            yield f"{path}.ipBlock.cidr", block.get("cidr") or ""
            for i, text in enumerate(block.get("except") or ()):
                yield f"{path}.ipBlock.except[{i}]", text


_POLICY_DEFAULTS: Final = defaults({"spec": {"podSelector": {}}})


def _default_policy(policy: Json) -> None:
    _POLICY_DEFAULTS(policy)
    spec = policy["spec"]
    for way in ("ingress", "egress"):
        for rule in spec.get(way) or ():
            for port in rule.get("ports") or ():
                if port.get("protocol") is None:
                    port["protocol"] = "TCP"
    for _, peer in _peers(policy):
        if peer.get("ipBlock") is not None:
            peer["ipBlock"].setdefault("cidr", "")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _validate_port(entry: Json, path: str) -> list[FieldError]:
    protocol, port, end = entry.get("protocol"), entry.get("port"), entry.get("endPort")
    known = ("TCP", "UDP", "SCTP")
    errors = [] if protocol in known else [not_supported(f"{path}.protocol", protocol, known)]
    where, end_path = f"{path}.port", f"{path}.endPort"
    if port is None:
        if end is not None:
            errors.append(invalid_value(end_path, end, "may not be specified when `port` is not specified"))
    elif isinstance(port, int):
        errors += [invalid_value(where, port, message) for message in is_port_number(port)]
        if end is not None:
            if end < port:
                errors.append(invalid_value(end_path, port, "must be greater than or equal to `port`"))
            errors += [invalid_value(end_path, end, message) for message in is_port_number(end)]
    else:
        if end is not None:
            errors.append(invalid_value(end_path, end, "may not be specified when `port` is non-numeric"))
        errors += named_by(is_port_name)(port, where)
    return errors


def _validate_block(block: Json, path: str, known: tuple[str, ...]) -> list[FieldError]:
    text = block.get("cidr") or ""
    if not text:
        return [required(f"{path}.cidr")]
    errors, whole = validate_cidr(text, f"{path}.cidr", known), parse_cidr(text)
    if whole is None:
        return errors
    for i, each in enumerate(block.get("except") or ()):
        where, less = f"{path}.except[{i}]", parse_cidr(each)
        errors += validate_cidr(each, where, known)
        inside = less is not None and less.version == whole.version and less.network_address in whole
        if less is not None and not (inside and whole.prefixlen < less.prefixlen):
            errors.append(invalid_value(where, each, "must be a strict subset of `cidr`"))
    return errors


def _validate_peer(peer: Json, path: str, known: tuple[str, ...]) -> list[FieldError]:
    selectors, block = [n for n in ("podSelector", "namespaceSelector") if peer.get(n) is not None], peer.get("ipBlock")
    errors = [error for name in selectors for error in validate_label_selector(peer[name], f"{path}.{name}")]
    if block is not None:
        errors += _validate_block(block, f"{path}.ipBlock", known)
        if selectors:
            errors.append(forbidden_value(path, "may not specify both ipBlock and another peer"))
    elif not selectors:
        errors.append(required(path, "must specify a peer"))
    return errors


def _validate_policy_spec(policy: Json, known: tuple[str, ...]) -> list[FieldError]:
    spec, kinds = policy["spec"], ("Ingress", "Egress")
    errors = validate_label_selector(spec["podSelector"], "spec.podSelector")
    for way, name in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(way) or ()):
            path = f"spec.{way}[{i}]"
            ports, peers = enumerate(rule.get("ports") or ()), enumerate(rule.get(name) or ())
            errors += [e for j, port in ports for e in _validate_port(port, f"{path}.ports[{j}]")]
            errors += [e for j, peer in peers for e in _validate_peer(peer, f"{path}.{name}[{j}]", known)]
    given, path = spec["policyTypes"], "spec.policyTypes"
    if len(given) > len(kinds):
        return [*errors, invalid_value(path, given, "may not specify more than two policyTypes")]
    return errors + [not_supported(f"{path}[{i}]", x, kinds) for i, x in enumerate(given) if x not in kinds]


def _validate_policy_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _validate_policy_spec(new, tuple(text for _, text in _blocks(old)))


NETWORKPOLICIES: Final = Kind(
    GROUP, "v1", "NetworkPolicy", "networkpolicies", "networkpolicy", True,
    short_names=("netpol",),
    selectable=NAMESPACED,
    generation=True,
    default=_default_policy,
    prepare_create=first_generation,
    validate=rules(_meta(True), lambda policy: _validate_policy_spec(policy, ())),
    validate_update={"": _validate_policy_update},
    warn=lambda policy, old: [w for path, text in _blocks(policy) for w in cidr_warnings(text, path)],
    printer=Printer(
        (NAME, column("Pod-Selector", "Which pods it speaks of."), AGE),
        lambda policy, age: [
            policy["metadata"]["name"],
            selector_text((policy.get("spec") or {}).get("podSelector") or {}),
            age(policy["metadata"].get("creationTimestamp")),
        ],
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (INGRESSCLASSES, INGRESSES, NETWORKPOLICIES)
