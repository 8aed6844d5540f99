"""Workload and PodGroup of `scheduling.k8s.io/v1alpha2`: pods that are scheduled together.

Served if the gate GenericWorkload is on. Fields behind gates that cannot be turned on here (topology, claims,
disruption mode, priority of a group) are dropped, as upstream drops them while these gates are off. Source:
`pkg/apis/scheduling`, `pkg/registry/scheduling`, `plugin/pkg/admission/{podgroup,scheduling}`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.apply.assigned import EACH
from minikube_py.api.defaulting import part
from minikube_py.api.equality import same_message
from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden,
    forbidden_value,
    go_quote,
    invalid_value,
    required,
    too_many,
)
from minikube_py.api.kind import NAMESPACED, Cluster, Kind, status_of
from minikube_py.api.meta import Messages, is_dns1123_label, is_dns1123_subdomain, is_path_segment
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.strategy import keep
from minikube_py.api.validation.conditions import validate_conditions
from minikube_py.api.validation.metadata import keep_metadata, validate_object_meta, validate_object_meta_update

GROUP: Final = "scheduling.k8s.io"
VERSION: Final = "v1alpha2"
PROTECTION: Final = f"{GROUP}/podgroup-protection"
"""The finalizer that holds a group while pods refer to it."""
TEMPLATES_MAX: Final = 8
SCHEDULED: Final = "PodGroupScheduled"
DISRUPTED: Final = "DisruptionTarget"
_PACKAGE: Final = "scheduling/v1alpha2"
_GATED: Final = ("schedulingConstraints", "resourceClaims", "priorityClassName", "priority")
_GATED_IN_TEMPLATES: Final = (*_GATED, "disruptionMode")
MODE: Final = "Pod"
"""The only disruption mode while the gate WorkloadAwarePreemption is off: other values are dropped."""
_POLICIES: Final = ("basic", "gang")
_IMMUTABLE: Final = "field is immutable"


def _named(value: str | None, path: str, messages: Any) -> list[FieldError]:
    if not value:
        return [required(path)]
    return _wrong(value, path, messages(value))


def _wrong(value: str, path: str, messages: Messages) -> list[FieldError]:
    """Declarative rules count bytes under this name; upstream's others count characters."""
    length = "must be no more than "
    found = [each.replace("characters", "bytes") if each.startswith(length) else each for each in messages]
    return [invalid_value(path, value, message) for message in found]


def _union(holder: Json, members: tuple[str, ...], path: str) -> list[FieldError]:
    """Exactly one must be set."""
    given = [name for name in members if holder.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in members)
    if not given:
        return [invalid_value(path, "", f"must specify one of: {listed}")]
    if len(given) > 1:
        return [invalid_value(path, "{" + ", ".join(given) + "}", f"must specify exactly one of: {listed}")]
    return []


def _validate_policy(policy: Json, path: str) -> list[FieldError]:
    errors = _union(policy, _POLICIES, path)
    gang = policy.get("gang")
    if gang is not None:
        count, at = gang.get("minCount") or 0, f"{path}.gang.minCount"
        if count == 0:
            errors.append(required(at))
        elif count < 1:
            errors.append(invalid_value(at, count, "must be greater than or equal to 1"))
    return errors


# --- Workload -------------------------------------------------------------------------------------------------------


def _validate_controller(reference: Json, path: str) -> list[FieldError]:
    errors = []
    if group := reference.get("apiGroup"):
        errors += _wrong(group, f"{path}.apiGroup", is_dns1123_subdomain(group))
    for name in ("kind", "name"):
        errors += _named(reference.get(name), f"{path}.{name}", is_path_segment)
    return errors


def _in_order(template: Json) -> Json:
    """As Go prints it."""
    policy = template.get("schedulingPolicy") or {}
    ordered = {name: policy[name] for name in _POLICIES if name in policy}
    return {"name": template.get("name"), "schedulingPolicy": ordered, "schedulingConstraints": None}


def _validate_templates(templates: list[Json], path: str) -> list[FieldError]:
    names = [template.get("name") or "" for template in templates]
    shown = [_in_order(template) for template in templates]
    errors = [duplicate(f"{path}[{i}]", shown[i]) for i in range(len(names)) if names[i] in names[:i]]
    for i, template in enumerate(templates):
        at = f"{path}[{i}]"
        errors += _named(template.get("name"), f"{at}.name", is_dns1123_label)
        errors += _validate_policy(template.get("schedulingPolicy") or {}, f"{at}.schedulingPolicy")
    return errors


def _wrong_length(templates: list[Json], path: str) -> list[FieldError]:
    if len(templates) > TEMPLATES_MAX:
        return [too_many(path, len(templates), TEMPLATES_MAX)]
    return [] if templates else [required(path)]


def _validate_workload(workload: Json) -> list[FieldError]:
    spec, path = workload.get("spec") or {}, "spec.podGroupTemplates"
    errors = validate_object_meta(workload["metadata"], True, is_dns1123_subdomain)
    if spec.get("controllerRef") is not None:
        errors += _validate_controller(spec["controllerRef"], "spec.controllerRef")
    templates = spec.get("podGroupTemplates") or []
    return errors + (_wrong_length(templates, path) or _validate_templates(templates, path))


def _validate_workload_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec.get("controllerRef") != before.get("controllerRef"):
        errors.append(invalid_value("spec.controllerRef", None, _IMMUTABLE))
    templates, path = spec.get("podGroupTemplates") or [], "spec.podGroupTemplates"
    wanted = {"podGroupTemplates": templates}
    if not same_message(f"{_PACKAGE}.WorkloadSpec", wanted, {"podGroupTemplates": before.get("podGroupTemplates")}):
        errors.append(invalid_value(path, None, _IMMUTABLE))
        errors += _wrong_length(templates, path)
    return errors


def _show_constraints(workload: Json) -> None:
    """Templates show that they have none."""
    for template in (workload.get("spec") or {}).get("podGroupTemplates") or ():
        template["schedulingConstraints"] = None


def _print_workload(workload: Json, age: Age) -> list[Any]:
    return [workload["metadata"]["name"], age(workload["metadata"].get("creationTimestamp"))]


WORKLOADS: Final = Kind(
    GROUP, VERSION, "Workload", "workloads", "workload", True,
    selectable=NAMESPACED,
    gated=tuple(("spec", "podGroupTemplates", EACH, name) for name in _GATED_IN_TEMPLATES),
    prepare_create=_show_constraints,
    prepare_update=lambda new, old: _show_constraints(new),
    validate=_validate_workload,
    validate_update={"": _validate_workload_update},
    printer=Printer((NAME, AGE), _print_workload),
)  # fmt: skip


# --- PodGroup -------------------------------------------------------------------------------------------------------


def _default_group(group: Json) -> None:
    spec = part(group, "spec")
    if spec.get("disruptionMode") is None:
        spec["disruptionMode"] = MODE
    part(group, "status")


def _create_group(group: Json) -> None:
    group["spec"]["disruptionMode"] = MODE
    group["status"] = {}
    _show_reference(group, group)


def _show_reference(new: Json, old: Json) -> None:
    """A group shows that it has none."""
    new["spec"]["podGroupTemplateRef"] = new["spec"].get("podGroupTemplateRef")


def _admit_group(new: Json, old: Json | None, cluster: Cluster) -> None:
    if old is None:
        finalizers = new["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            new["metadata"]["finalizers"] = [*finalizers, PROTECTION]


def _require_template(new: Json, old: Json | None, cluster: Cluster) -> None:
    """Raises: StatusError 403 if a new group's template is missing."""
    reference = ((new.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload")
    if old is not None or reference is None:
        return
    name, template = reference.get("workloadName") or "", reference.get("podGroupTemplateName") or ""
    found = cluster.get(WORKLOADS, new["metadata"].get("namespace") or "", name)
    if found is None:
        why = f"Workload {go_quote(name)} not found"
    elif found["metadata"].get("deletionTimestamp"):
        why = f"Workload {go_quote(name)} is being deleted"
    elif any(each.get("name") == template for each in (found.get("spec") or {}).get("podGroupTemplates") or ()):
        return
    else:
        why = f"PodGroupTemplate {go_quote(template)} not found in Workload {go_quote(name)}"
    raise forbidden(PODGROUPS, new["metadata"].get("name") or "", f"PodGroup rejected: {why}")


def _validate_reference(reference: Json, path: str) -> list[FieldError]:
    errors, workload, at = _union(reference, ("workload",), path), reference.get("workload"), f"{path}.workload"
    if workload is not None:
        errors += _named(workload.get("workloadName"), f"{at}.workloadName", is_dns1123_subdomain)
        errors += _named(workload.get("podGroupTemplateName"), f"{at}.podGroupTemplateName", is_dns1123_label)
    return errors


def _validate_group(group: Json) -> list[FieldError]:
    errors = validate_object_meta(group["metadata"], True, is_dns1123_subdomain)
    spec = group.get("spec") or {}
    if spec.get("podGroupTemplateRef") is not None:
        errors += _validate_reference(spec["podGroupTemplateRef"], "spec.podGroupTemplateRef")
    return errors + _validate_policy(spec.get("schedulingPolicy") or {}, "spec.schedulingPolicy")


def _validate_group_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for name in ("podGroupTemplateRef", "schedulingPolicy"):
        if not same_message(f"{_PACKAGE}.PodGroupSpec", {name: spec.get(name)}, {name: before.get(name)}):
            errors.append(invalid_value(f"spec.{name}", None, _IMMUTABLE))
    if spec.get("disruptionMode") != before.get("disruptionMode"):
        errors.append(forbidden_value("spec.disruptionMode", ""))
    return errors


def _update_status(new: Json, old: Json) -> None:
    keep_metadata(new, old)
    keep(new, old, "spec")
    # The gate DRAWorkloadResourceClaims is off.
    (new.get("status") or {}).pop("resourceClaimStatuses", None)


def _validate_status(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + validate_conditions((new.get("status") or {}).get("conditions"), "status.conditions")


def _print_group(group: Json, age: Age) -> list[Any]:
    spec, metadata = group.get("spec") or {}, group["metadata"]
    conditions = {each.get("type"): each for each in (group.get("status") or {}).get("conditions") or ()}
    status = "Pending"
    if (scheduled := conditions.get(SCHEDULED)) is not None:
        status = "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"
    if (disrupted := conditions.get(DISRUPTED)) is not None:
        status = disrupted.get("reason") or ""
    reference = (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    return [
        metadata["name"],
        "Gang" if (spec.get("schedulingPolicy") or {}).get("gang") is not None else "Basic",
        reference.get("workloadName") or "<none>",
        status,
        age(metadata.get("creationTimestamp")),
    ]


PODGROUPS: Final = Kind(
    GROUP, VERSION, "PodGroup", "podgroups", "podgroup", True,
    subresources=(status_of("PodGroup", tabled=False),),
    selectable=NAMESPACED,
    gated=tuple(("spec", name) for name in _GATED),
    sees=((GROUP, VERSION, "workloads"),),
    default=_default_group,
    admit=_admit_group,
    prepare_create=_create_group,
    prepare_update=_show_reference,
    prepare_status=_update_status,
    validate=_validate_group,
    validate_admission=_require_template,
    validate_update={"": _validate_group_update, "status": _validate_status},
    also_reset={"status": (("metadata",),)},
    printer=Printer(
        (
            NAME,
            column("Policy", "How its pods are scheduled: each by itself (Basic) or together (Gang)."),
            column("Workload", "The Workload whose template it was made by."),
            column("Status", "Whether its pods were scheduled."),
            AGE,
        ),
        _print_group,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (PODGROUPS, WORKLOADS)
