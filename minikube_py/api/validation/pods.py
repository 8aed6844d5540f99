"""Pods: their specs, and what an update may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import (
    FieldError,
    Json,
    Verbatim,
    duplicate,
    forbidden_value,
    go_json,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
    value_not_found,
)
from minikube_py.api.meta import (
    between,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_qualified_name,
    regex_message,
    validate_labels,
)
from minikube_py.api.validation import profiles
from minikube_py.api.validation.affinity import validate_affinity, validate_topology_spread
from minikube_py.api.validation.containers import (
    WHITESPACE,
    PodContext,
    validate_containers,
    validate_ephemeral_containers,
    validate_init_containers,
)
from minikube_py.api.validation.ips import is_dual_stack, validate_ip
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.pod_diff import spec_diff
from minikube_py.api.validation.pod_update import validate_pod_spec_update
from minikube_py.api.validation.resources import (
    NEGATIVE,
    validate_amount,
    validate_pod_level,
    validate_requirements,
)
from minikube_py.api.validation.security import validate_for_system, validate_host_users, validate_pod_security
from minikube_py.api.validation.taints import validate_tolerations
from minikube_py.api.validation.volumes import validate_volumes
from minikube_py.api.validation.windows import validate_host_process

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION: Final = ("PreemptLowerPriority", "Never")
INT32_MAX: Final = (1 << 31) - 1
HOSTNAME_LIMIT: Final = 64
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
MIRROR: Final = "kubernetes.io/config.mirror"

# --- parts of the spec ----------------------------------------------------------------------------------------------


def _one_of(value: str, known: tuple[str, ...], path: str) -> list[FieldError]:
    if value in known:
        return []
    return [not_supported(path, value, known) if value else required(path)]


_SEARCH_LIMIT: Final = 32
_SEARCH_CHARS_LIMIT: Final = 2048
_UNDERSCORE_LABEL: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORE_FMT: Final = _UNDERSCORE_LABEL + r"(\." + _UNDERSCORE_LABEL + ")*"
_UNDERSCORE_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    "and must start and end with an alphanumeric character"
)


def _validate_search(search: str, path: str) -> list[FieldError]:
    if search == ".":
        return []
    search = search.removesuffix(".")
    # An underscore may stand where an inner character does, and in front of a label.
    plain = ".".join(part.removeprefix("_") for part in search.split(".")).replace("_", "-")
    messages = is_dns1123_subdomain(plain)
    ends_badly = any(part.endswith("_") for part in search.split("."))
    if not messages and not ends_badly:
        return []
    text = regex_message(_UNDERSCORE_TEXT, _UNDERSCORE_FMT, "example.com")
    return [invalid_value(path, search, text)]


def _validate_dns(config: Json | None, policy: str, path: str) -> list[FieldError]:
    if policy == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", detail)]
    if config is None:
        return []
    errors: list[FieldError] = []
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        errors.append(invalid_value(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for i, server in enumerate(servers):
        errors += validate_ip(server, f"{path}.nameservers[{i}]")
    if len(searches) > _SEARCH_LIMIT:
        detail = f"must not have more than {_SEARCH_LIMIT} search paths"
        errors.append(invalid_value(f"{path}.searches", searches, detail))
    if len(" ".join(searches)) > _SEARCH_CHARS_LIMIT:
        detail = f"must not have more than {_SEARCH_CHARS_LIMIT} characters (including spaces) in the search list"
        errors.append(invalid_value(f"{path}.searches", searches, detail))
    for i, search in enumerate(searches):
        errors += _validate_search(search, f"{path}.searches[{i}]")
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"{path}.options[{i}]", "must not be empty"))
    return errors


def _validate_gates(gates: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name") or ""
        errors += [invalid_value(f"{path}[{i}]", name, message) for message in is_qualified_name(name)]
        if name in seen:
            errors.append(duplicate(f"{path}[{i}]", name))
        seen.add(name)
    return errors


def _validate_host_network(spec: Json, path: str, is_pod: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports") or ()):
            host, own = port.get("hostPort") or 0, port.get("containerPort") or 0
            if (is_pod or host) and host != own:
                detail = "must match `containerPort` when `hostNetwork` is true"
                errors.append(invalid_value(f"{path}.containers[{i}].ports[{j}].hostPort", host, detail))
    return errors


def _validate_hostname(spec: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = spec["hostnameOverride"]
    at = f"{path}.hostnameOverride"
    if spec.get("setHostnameAsFQDN"):
        errors.append(forbidden_value(at, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        errors.append(forbidden_value(at, "may not be specified when hostNetwork is true"))
    if len(name) > HOSTNAME_LIMIT:
        errors.append(too_long(at, HOSTNAME_LIMIT))
    return errors + [invalid_value(at, name, message) for message in is_dns1123_subdomain(name)]


def _validate_claims(claims: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        at, name = f"{path}[{i}]", claim.get("name") or ""
        if not name:
            errors.append(required(f"{at}.name"))
        elif name in seen:
            errors.append(duplicate(f"{at}.name", name))
        else:
            errors += [invalid_value(f"{at}.name", name, message) for message in is_dns1123_label(name)]
            seen.add(name)
        direct, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        shown = {"Name": name, "ResourceClaimName": direct, "ResourceClaimTemplateName": template}
        if direct is not None and template is not None:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid_value(at, shown, detail))
        if direct is None and template is None:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid_value(at, shown, detail))
        for key, value in (("resourceClaimName", direct), ("resourceClaimTemplateName", template)):
            if value is not None:
                errors += [invalid_value(f"{at}.{key}", value, message) for message in is_dns1123_subdomain(value)]
    return errors


def _validate_file_volumes(spec: Json, volumes: Mapping[str, Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for kind in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(kind) or ()):
            for j, variable in enumerate(container.get("env") or ()):
                source = variable.get("valueFrom")
                if not source or (selector := source.get("fileKeyRef")) is None:
                    continue
                name = selector.get("volumeName") or ""
                at = f"{path}.{kind}[{i}].env[{j}].valueFrom.fileKeyRef.volumeName"
                if name not in volumes:
                    errors.append(value_not_found(at, name))
                elif volumes[name].get("emptyDir") is None:
                    errors.append(invalid_value(at, name, "referenced volume must be of type emptyDir"))
    return errors


# --- the spec -------------------------------------------------------------------------------------------------------


def validate_pod_spec(spec: Json, path: str, *, pod_name: str = "", is_pod: bool = True) -> list[FieldError]:
    """A pod's spec, or (`is_pod` false) a template's."""
    get = spec.get
    restart_policy = get("restartPolicy") or ""
    volumes: dict[str, Json] = {}
    errors: list[FieldError] = []
    grace_s = get("terminationGracePeriodSeconds")
    if grace_s is None:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    if given := get("volumes"):
        volumes, found = validate_volumes(given, f"{path}.volumes", pod_name)
        errors += found
    claims = get("resourceClaims") or ()
    if claims:
        errors += _validate_claims(claims, f"{path}.resourceClaims")
    context = PodContext(
        volumes,
        tuple(claim.get("name") or "" for claim in claims),
        grace_s,
        restart_policy,
        get("hostUsers") is not False,
    )
    containers = get("containers") or ()
    errors += validate_containers(containers, f"{path}.containers", context)
    if init := get("initContainers"):
        errors += validate_init_containers(init, containers, f"{path}.initContainers", context)
    if ephemeral := get("ephemeralContainers"):
        errors += validate_ephemeral_containers(
            ephemeral, [*containers, *(get("initContainers") or ())], f"{path}.ephemeralContainers", context
        )
    if (resources := get("resources")) is not None:
        if resources.get("claims"):
            at = f"{path}.resources.claims"
            errors.append(forbidden_value(at, "claims may not be set for Resources at pod-level"))
        errors += validate_requirements(resources, f"{path}.resources", context.claim_names, pod_level=True)
        errors += validate_pod_level(spec, f"{path}.resources")
    if get("hostNetwork"):
        errors += _validate_host_network(spec, path, is_pod)
    if restart_policy not in _RESTART_POLICIES:
        errors += _one_of(restart_policy, _RESTART_POLICIES, f"{path}.restartPolicy")
    dns_policy = get("dnsPolicy") or ""
    if dns_policy not in _DNS_POLICIES:
        errors += _one_of(dns_policy, _DNS_POLICIES, f"{path}.dnsPolicy")
    if selector := get("nodeSelector"):
        errors += validate_labels(selector, f"{path}.nodeSelector")
    errors += validate_pod_security(spec, f"{path}.securityContext")
    if (affinity := get("affinity")) is not None:
        errors += validate_affinity(affinity, f"{path}.affinity")
    if dns_policy == "None" or "dnsConfig" in spec:
        errors += _validate_dns(get("dnsConfig"), dns_policy, f"{path}.dnsConfig")
    return errors + _validate_rest_of_spec(spec, path, volumes)


def _validate_rest_of_spec(spec: Json, path: str, volumes: Mapping[str, Json]) -> list[FieldError]:
    """Names, and the parts that few pods have."""
    errors = _validate_commonest(spec, path) if _FEW_HAVE.isdisjoint(spec) else _validate_all_of_rest(spec, path)
    return errors + _validate_file_volumes(spec, volumes, path)


def _validate_commonest(spec: Json, path: str) -> list[FieldError]:
    """As `_validate_all_of_rest`, of a spec without `_FEW_HAVE`."""
    errors = validate_host_process(spec, path) + _validate_names(spec, path)
    if tolerations := spec.get("tolerations"):
        errors += validate_tolerations(tolerations, f"{path}.tolerations")
    return errors + _validate_preemption(spec, path)


def _validate_all_of_rest(spec: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    get = spec.get
    for i, gate in enumerate(get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        at = f"{path}.readinessGates[{i}].conditionType"
        errors += [invalid_value(at, kind, message) for message in is_qualified_name(kind)]
    if gates := get("schedulingGates"):
        errors += _validate_gates(gates, f"{path}.schedulingGates")
    if constraints := get("topologySpreadConstraints"):
        errors += validate_topology_spread(constraints, f"{path}.topologySpreadConstraints")
    errors += validate_host_process(spec, path)
    if get("hostUsers") is False:
        errors += validate_host_users(spec, path)
    if get("hostnameOverride") is not None:
        errors += _validate_hostname(spec, path)
    errors += _validate_names(spec, path)
    deadline_s = get("activeDeadlineSeconds")
    if deadline_s is not None and not 1 <= deadline_s <= INT32_MAX:
        errors.append(invalid_value(f"{path}.activeDeadlineSeconds", deadline_s, between(1, INT32_MAX)))
    for name in ("hostname", "subdomain"):
        if value := get(name):
            errors += [invalid_value(f"{path}.{name}", value, message) for message in is_dns1123_label(value)]
    if tolerations := get("tolerations"):
        errors += validate_tolerations(tolerations, f"{path}.tolerations")
    for i, alias in enumerate(get("hostAliases") or ()):
        errors += validate_ip(alias.get("ip") or "", f"{path}.hostAliases[{i}].ip")
        for j, name in enumerate(alias.get("hostnames") or ()):
            at = f"{path}.hostAliases[{i}].hostnames[{j}]"
            errors += [invalid_value(at, name, message) for message in is_dns1123_subdomain(name)]
    for name in ("priorityClassName", "runtimeClassName"):
        if value := get(name):
            errors += [invalid_value(f"{path}.{name}", value, message) for message in is_dns1123_subdomain(value)]
    errors += _validate_preemption(spec, path)
    for name, text in (get("overhead") or {}).items():
        errors += validate_amount(name, text, f"{path}.overhead.limits[{name}]")
    if (system := get("os")) is not None:
        errors += _one_of(system.get("name") or "", ("linux", "windows"), f"{path}.os")
        errors += validate_for_system(spec, system.get("name") or "", path)
    if (group := get("schedulingGroup")) is not None:
        errors += _validate_group(group, f"{path}.schedulingGroup.podGroupName")
    return errors


def _validate_preemption(spec: Json, path: str) -> list[FieldError]:
    policy = spec.get("preemptionPolicy")
    if policy is None or policy in _PREEMPTION:
        return []
    return _one_of(policy, _PREEMPTION, f"{path}.preemptionPolicy")


def _validate_group(group: Json, path: str) -> list[FieldError]:
    name = group.get("podGroupName")
    if name is None:
        return [invalid_value(path, None, "must specify one of: `podGroupName`")]
    return [invalid_value(path, name, message) for message in is_dns1123_subdomain(name)]


def _validate_names(spec: Json, path: str) -> list[FieldError]:
    return [
        invalid_value(f"{path}.{name}", value, message)
        for name in ("serviceAccountName", "nodeName")
        if (value := spec.get(name))
        for message in is_dns1123_subdomain(value)
    ]


_FEW_HAVE: Final = frozenset((
    "readinessGates", "schedulingGates", "topologySpreadConstraints", "hostUsers", "hostnameOverride",
    "activeDeadlineSeconds", "hostname", "subdomain", "hostAliases", "priorityClassName", "runtimeClassName",
    "overhead", "os", "schedulingGroup",
))  # fmt: skip


# --- pods -----------------------------------------------------------------------------------------------------------


def validate_pod_annotations(annotations: Mapping[str, str], spec: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if annotations.get(MIRROR) and not spec.get("nodeName"):
        errors.append(invalid_value(path, MIRROR, "must set spec.nodeName if mirror pod annotation is set"))
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_int32(cost):
        errors.append(invalid_value(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    return errors + profiles.validate_annotations(annotations, spec, path)


def _is_int32(text: str) -> bool:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and text != "0"):
        return False
    return len(digits) <= 10 and -(1 << 31) <= int(text) < 1 << 31


def validate_metadata_and_spec(pod: Json) -> list[FieldError]:
    metadata, spec = pod["metadata"], pod["spec"]
    errors = validate_object_meta(metadata, True, is_dns1123_subdomain)
    if annotations := metadata.get("annotations"):
        errors += validate_pod_annotations(annotations, spec, "metadata.annotations")
    errors += validate_pod_spec(spec, "spec", pod_name=metadata.get("name") or "")
    if not spec.get("serviceAccountName"):
        errors += _validate_token_sources(spec)
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            image = container.get("image") or ""
            if image and (image[0].isspace() or image[-1].isspace()):
                errors.append(invalid_value(f"spec.{kind}[{i}].image", image, WHITESPACE))
    return errors


def _validate_token_sources(spec: Json) -> list[FieldError]:
    detail = "must not be specified when serviceAccountName is not set"
    return [
        forbidden_value(f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken", detail)
        for i, volume in enumerate(spec.get("volumes") or ())
        for j, source in enumerate((volume.get("projected") or {}).get("sources") or ())
        if source.get("serviceAccountToken") is not None
    ]


def validate_pod_create(pod: Json) -> list[FieldError]:
    errors = validate_metadata_and_spec(pod)
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        errors.append(forbidden_value("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        errors.append(forbidden_value("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    if annotations := pod["metadata"].get("annotations"):
        errors += profiles.validate_fields_match(annotations, spec, "spec")
    return errors


def validate_pod_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += validate_metadata_and_spec(new)
    now, before = (each["metadata"].get("annotations") or {} for each in (new, old))
    if now != before:
        errors += profiles.validate_annotation_update(now, before)
    if now:
        errors += validate_pod_annotations(now, new["spec"], "metadata.annotations")
    return errors + validate_pod_spec_update(new["spec"], old["spec"])


def validate_pod_ephemeral(new: Json, old: Json) -> list[FieldError]:
    """Of a write of `ephemeralcontainers`, which may only add some."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden_value("[]", "static pods do not support ephemeral containers")]
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += validate_metadata_and_spec(new)
    known = {each.get("name"): each for each in new["spec"].get("ephemeralContainers") or ()}
    for each in old["spec"].get("ephemeralContainers") or ():
        name, path = each["name"], "spec.ephemeralContainers"
        if name not in known:
            errors.append(forbidden_value(path, f"existing ephemeral containers {go_quote(name)} may not be removed\n"))
        elif not same_message("core/v1.EphemeralContainer", known[name], each):
            change = f"may not be changed\n{spec_diff(each, known[name], 'EphemeralContainer')}"
            errors.append(forbidden_value(path, f"existing ephemeral containers {go_quote(name)} {change}"))
    return errors


# --- status ---------------------------------------------------------------------------------------------------------


def _validate_addresses(entries: Sequence[Json], before: Sequence[Json], path: str) -> list[FieldError]:
    known = tuple(entry.get("ip") or "" for entry in before)
    texts = [entry.get("ip") or "" for entry in entries]
    errors = [error for i, text in enumerate(texts) for error in validate_ip(text, f"{path}[{i}]", known)]
    if len(texts) > 1 and (len(texts) > 2 or not is_dual_stack(texts)):
        shown = Verbatim(go_json([{"IP": text} for text in texts]))
        errors.append(invalid_value(path, shown, "may specify no more than one IP for each IP family"))
    return errors


def validate_pod_status_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    status, before, spec = new.get("status") or {}, old.get("status") or {}, new.get("spec") or {}
    nominated, old_nominated = status.get("nominatedNodeName") or "", before.get("nominatedNodeName") or ""
    if nominated != old_nominated and nominated:
        errors += [invalid_value("status.nominatedNodeName", nominated, m) for m in is_dns1123_subdomain(nominated)]
    if spec.get("restartPolicy") != "OnFailure":
        errors += _validate_states(status.get("containerStatuses") or (), before.get("containerStatuses") or (), spec)
    if status.get("podIPs"):
        errors += _validate_addresses(status["podIPs"], before.get("podIPs") or (), "status.podIPs")
    hosts = status.get("hostIPs")
    if hosts:
        if hosts[0].get("ip") != status.get("hostIP"):
            errors.append(invalid_value("status.hostIPs[0].ip", hosts[0].get("ip") or "", "must be equal to `hostIP`"))
        errors += _validate_addresses(hosts, before.get("hostIPs") or (), "status.hostIPs")
    for i, condition in enumerate(status.get("conditions") or ()):
        if (generation := condition.get("observedGeneration") or 0) < 0:
            errors.append(invalid_value(f"status.conditions[{i}].observedGeneration", generation, NEGATIVE))
    if (generation := status.get("observedGeneration") or 0) < 0:
        errors.append(invalid_value("status.observedGeneration", generation, NEGATIVE))
    qos, old_qos = status.get("qosClass") or "", before.get("qosClass") or ""
    if old_qos and qos != old_qos:
        errors.append(invalid_value("status.qosClass", qos, "field is immutable"))
    errors += _validate_claim_statuses(status.get("resourceClaimStatuses") or (), spec)
    if (extended := status.get("extendedResourceClaimStatus")) is not None:
        errors += _validate_extended(extended, spec, "status.extendedResourceClaimStatus")
    return errors


def _validate_claim_statuses(statuses: Sequence[Json], spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen = set()
    for i, status in enumerate(statuses):
        path, name = f"status.resourceClaimStatuses[{i}]", status.get("name") or ""
        if name not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid_value(f"{path}.name", name, detail))
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        if (claim := status.get("resourceClaimName")) is not None:
            at = f"{path}.resourceClaimName"
            errors += [invalid_value(at, claim, message) for message in is_dns1123_subdomain(claim)]
    return errors


def _validate_extended(status: Json, spec: Json, path: str) -> list[FieldError]:
    """Which request of a claim serves which extended resource of which container."""
    errors: list[FieldError] = []
    every = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    containers = {each.get("name"): each for each in every}
    mappings = status.get("requestMappings") or ()
    if not mappings:
        errors.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    seen = set()
    for i, mapping in enumerate(mappings):
        at = f"{path}.requestMappings[{i}]"
        key = container, resource, request = [
            mapping.get(name) or "" for name in ("containerName", "resourceName", "requestName")
        ]
        if container not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            errors.append(invalid_value(f"{at}.containerName", container, detail))
        elif resource not in ((containers[container].get("resources") or {}).get("requests") or {}):
            detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
            errors.append(invalid_value(f"{at}.resourceName", resource, detail + "spec.containers.resources.requests"))
        errors += [invalid_value(f"{path}.requestName", request, message) for message in is_dns1123_label(request)]
        if tuple(key) in seen:
            names = ("containerName", "resourceName", "requestName")
            errors += [duplicate(f"{at}.{name}", value) for name, value in zip(names, key, strict=True)]
        seen.add(tuple(key))
    claim = status.get("resourceClaimName") or ""
    at = f"{path}.resourceClaimName"
    if not claim:
        return [*errors, required(at)]
    return errors + [invalid_value(at, claim, message) for message in is_dns1123_subdomain(claim)]


def _validate_states(new: Sequence[Json], old: Sequence[Json], spec: Json) -> list[FieldError]:
    """A terminated container that must not restart stays terminated."""
    if spec.get("restartPolicy") == "Always":
        return []
    errors: list[FieldError] = []
    ended = {s.get("name") for s in old if (s.get("state") or {}).get("terminated") is not None}
    restarts = {
        container.get("name")
        for container in spec.get("containers") or ()
        if container.get("restartPolicy") not in (None, "Never") or container.get("restartPolicyRules")
    }
    for i, status in enumerate(new):
        name = status.get("name")
        if name in ended and name not in restarts and (status.get("state") or {}).get("terminated") is None:
            at = f"status.containerStatuses[{i}].state"
            errors.append(forbidden_value(at, "may not be transitioned to non-terminated state"))
    return errors
