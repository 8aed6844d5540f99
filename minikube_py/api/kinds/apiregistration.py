"""The group `apiregistration.k8s.io`: groups, versions and their servers.

This server itself serves an APIService without a service, as upstream. Those of built-in groups are created at startup,
those of definitions with them; users create the one of `metrics.k8s.io` (`api.kinds.metrics`). Requests for the others
are passed on (`apiserver.aggregation`); a server without connections to others refuses them.

Source: kube-aggregator `pkg/apis/apiregistration`, `pkg/registry/apiservice`, kubernetes `pkg/controlplane/apiserver`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    go_quote,
    invalid,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.kind import NAMESPACED, Cluster, Kind, status_of
from minikube_py.api.meta import Messages, is_dns1035_label, is_dns1123_subdomain, is_path_segment, is_port_number
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.validation.metadata import keep_metadata, validate_object_meta, validate_object_meta_update

GROUP: Final = "apiregistration.k8s.io"
MANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
_GROUP_PRIORITY_MAX, _VERSION_PRIORITY_MAX = 20_000, 1_000
_REMOTE: Final = "this API server makes no connections to other servers: it runs in virtual time or in process"
_PRIORITIES: Final = {
    "": (18000, 1), "apps": (17800, 15), "events.k8s.io": (17750, 15), "authentication.k8s.io": (17700, 15),
    "authorization.k8s.io": (17600, 15), "autoscaling": (17500, 15), "batch": (17400, 15),
    "certificates.k8s.io": (17300, 15), "networking.k8s.io": (17200, 15), "policy": (17100, 15),
    "rbac.authorization.k8s.io": (17000, 15), "storage.k8s.io": (16800, 15), "apiextensions.k8s.io": (16700, 15),
    "admissionregistration.k8s.io": (16700, 15), "scheduling.k8s.io": (16600, 15), "coordination.k8s.io": (16500, 15),
    "node.k8s.io": (16300, 15), "discovery.k8s.io": (16200, 15), "resource.k8s.io": (16200, 21),
    "flowcontrol.apiserver.k8s.io": (16100, 21),
}  # fmt: skip
"""Of groups, and of their version `v1`, in upstream's order of discovery."""
LOCAL: Final = ("True", "Local", "Local APIServices are always available")
"""Status, reason and message of `Available`."""
_STATUSES: Final = ("True", "False", "Unknown")
_VERSIONS: Final = {("autoscaling", "v2"): 30}


def is_local(service: Json) -> bool:
    return service["spec"].get("service") is None


def with_condition(service: Json, status: str, reason: str, message: str, now: str) -> Json:
    """With this condition `Available`; the same object if it has it."""
    told = (service.get("status") or {}).get("conditions") or []
    new = {"type": "Available", "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    found = next((each for each in told if each.get("type") == "Available"), None)
    if found is not None and found.get("status") == status:
        new = {**found, "reason": reason, "message": message}
    if new == found:
        return service
    conditions = [new if each is found else each for each in told] if found is not None else [*told, new]
    return {**service, "status": {**(service.get("status") or {}), "conditions": conditions}}


def priority_of(group: str, version: str) -> tuple[int, int]:
    """Of the group, and of the version in it; custom resources have upstream's defaults."""
    found = _PRIORITIES.get(group, (_GROUP_PRIORITY_MAX, 15) if group == GROUP else (1000, 100))
    return found[0], _VERSIONS.get((group, version), found[1])


def listed_of(service: Json) -> tuple[str, str, int, int]:
    """What the lists of groups tell of it: group, version, and their priorities."""
    spec = service["spec"]
    return spec.get("group") or "", spec["version"], spec["groupPriorityMinimum"], spec["versionPriority"]


def of_definitions(group: str, version: str) -> Json:
    """The one of a served version of CustomResourceDefinitions."""
    first, second = priority_of(group, version)
    spec = {"group": group, "version": version, "groupPriorityMinimum": first, "versionPriority": second}
    return {"metadata": {"name": f"{version}.{group}", "labels": {MANAGED: "true"}}, "spec": spec}


def served_here(group_versions: Iterable[tuple[str, str]]) -> list[Json]:
    """Those that every server makes at its start."""
    return [
        {
            "metadata": {"name": f"{version}.{group}", "labels": {MANAGED: "onstart"}},
            "spec": {
                **({"group": group} if group else {}), "version": version,
                "groupPriorityMinimum": _PRIORITIES[group][0],
                "versionPriority": _VERSIONS.get((group, version), _PRIORITIES[group][1]),
            },
        }
        for group, version in group_versions
        if group in _PRIORITIES
    ]  # fmt: skip


def _default(service: Json) -> None:
    spec = service.setdefault("spec", {})
    for name in ("groupPriorityMinimum", "versionPriority"):
        spec[name] = spec.get(name) or 0
    if (reference := spec.get("service")) is not None and reference.get("port") is None:
        reference["port"] = 443


def _create(service: Json) -> None:
    service["status"] = {}
    if is_local(service):
        service["status"] = with_condition(service, *LOCAL, service["metadata"]["creationTimestamp"])["status"]


def as_managed(found: Json, expected: Json) -> Json | None:
    """With the correct spec; None if it has it or is user-managed."""
    ours = MANAGED in (found["metadata"].get("labels") or {})
    return {**found, "spec": expected["spec"]} if ours and found["spec"] != expected["spec"] else None


def _validate(service: Json) -> list[FieldError]:
    spec = service["spec"]
    group, version = spec.get("group") or "", spec.get("version") or ""
    wanted = f"{version}.{group}"

    def is_named_so(name: str) -> Messages:
        other = (f'must be `spec.version+"."+spec.group`: {go_quote(wanted)}',) if name != wanted else ()
        return is_path_segment(name) or other

    errors = validate_object_meta(service["metadata"], False, is_named_so)
    if not group and version != "v1":
        errors.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    if group:
        errors += [invalid_value("spec.group", group, each) for each in is_dns1123_subdomain(group)]
    errors += [invalid_value("spec.version", version, each) for each in is_dns1035_label(version)]
    for name, most in (("groupPriorityMinimum", _GROUP_PRIORITY_MAX), ("versionPriority", _VERSION_PRIORITY_MAX)):
        if not 0 < spec[name] <= most:
            errors.append(invalid_value(f"spec.{name}", spec[name], f"must be positive and less than {most}"))
    return errors + (_validate_local(spec) if spec.get("service") is None else _validate_remote(spec))


def _bundle(spec: Json) -> int:
    """The bundle's bytes, decoded from base64."""
    text = spec.get("caBundle") or ""
    return len(text) * 3 // 4 - text.count("=")


def _validate_local(spec: Json) -> list[FieldError]:
    errors = []
    if size := _bundle(spec):
        errors.append(invalid_value("spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle"))
    if spec.get("insecureSkipTLSVerify"):
        why = "local APIServices may not have insecureSkipTLSVerify"
        errors.append(invalid_value("spec.insecureSkipTLSVerify", True, why))
    return errors


def _validate_remote(spec: Json) -> list[FieldError]:
    service, path = spec["service"], "spec.service"
    errors = [required(f"{path}.{name}", "") for name in ("namespace", "name") if not service.get(name)]
    if wrong := is_port_number(service["port"]):
        errors.append(invalid_value(f"{path}.port", service["port"], f"port is not valid: {', '.join(wrong)}"))
    if spec.get("insecureSkipTLSVerify") and _bundle(spec):
        errors.append(invalid_value("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))
    return errors


def _passed_on(new: Json, old: Json | None, cluster: Cluster) -> None:
    """Raises: StatusError 422."""
    if not (cluster.passes_on or is_local(new) or (old and old["spec"].get("service") == new["spec"]["service"])):
        raise invalid(APISERVICES, new["metadata"]["name"], [forbidden_value("spec.service", _REMOTE)])


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + _validate(new)


def _validate_status(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    for i, each in enumerate((new.get("status") or {}).get("conditions") or ()):
        if (status := each.get("status") or "") not in _STATUSES:
            errors.append(not_supported(f"status.conditions[{i}].status", status, _STATUSES))
    return errors


def _print(service: Json, age: Age) -> list[Any]:
    metadata, remote = service["metadata"], service["spec"].get("service")
    conditions = (service.get("status") or {}).get("conditions") or ()
    told = next((each for each in conditions if each.get("type") == "Available"), {"status": "Unknown"})
    shown = told.get("status") or ""
    if shown != "True" and told.get("reason"):
        shown = f"{shown} ({told['reason']})"
    where = "Local" if remote is None else f"{remote.get('namespace') or ''}/{remote.get('name') or ''}"
    return [metadata["name"], where, shown, age(metadata.get("creationTimestamp"))]


APISERVICES: Final = Kind(
    GROUP, "v1", "APIService", "apiservices", "apiservice", False,
    categories=("api-extensions",),
    subresources=(status_of("APIService", tabled=False),),
    selectable=NAMESPACED,
    allow_unconditional_update=False,
    also_reset={"status": (("metadata",),)},
    default=_default,
    prepare_create=_create,
    prepare_status=keep_metadata,
    validate=_validate,
    validate_update={"": _validate_update, "status": _validate_status},
    validate_admission=_passed_on,
    printer=Printer(
        (
            NAME,
            column("Service", "The reference to the service that hosts this API endpoint."),
            column("Available", "Whether this service is available."),
            AGE,
        ),
        _print,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (APISERVICES,)
