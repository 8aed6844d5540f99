"""The group `batch`: pods that run to their end, and schedules that start them.

Source: k8s.io/kubernetes pkg/apis/batch (v1, validation), pkg/registry/batch, pkg/api/job.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_pod_spec
from minikube_py.api.equality import same, same_message
from minikube_py.api.errors import FieldError, Json, invalid_value, not_supported, required
from minikube_py.api.gates import of_pods
from minikube_py.api.kind import NAMESPACED, Kind, Selectable, status_of
from minikube_py.api.kinds.workloads import (
    CONTAINER_COLUMNS,
    SELECTOR_COLUMN,
    changes,
    container_cells,
    drop_status,
    generation_rose,
    meta_update,
    mismatch,
    selector_stays,
    shown_selector,
    subdomain_meta,
    template_labels,
    validate_template,
)
from minikube_py.api.label_selectors import InvalidSelector, selector_of, selector_text
from minikube_py.api.meta import FIELD_IS_IMMUTABLE, is_dns1123_label, parse_timestamp
from minikube_py.api.pod_warnings import name_warnings, pod_warnings
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column, human_duration
from minikube_py.api.rules import at, defaults, non_negative, rules
from minikube_py.api.schema import SCHEMA, ordered
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.go_view import go_view
from minikube_py.api.validation.jobs import (
    INDEXED,
    MANY_COMPLETIONS,
    PARALLELISM_OF_MANY_MAX,
    holds,
    validate_job_spec,
    validate_job_status,
    validate_schedule,
    validate_time_zone,
)
from minikube_py.api.validation.pod_diff import internal

UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
NAME_LABELS: Final = ("job-name", "batch.kubernetes.io/job-name")
CRON_NAME_BYTES_MAX: Final = 52
"""Job names get a suffix of 11 characters."""
_MANY: Final = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes "
    "might not be able to track completedIndexes when a big number of indexes fail"
)
_ORPHANS: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


# --- Job --------------------------------------------------------------------------------------------------------------


def _default_template(spec: Json) -> Json:
    template = part(spec, "template")
    part(template, "metadata")
    default_pod_spec(part(template, "spec"))
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"
    return template


def _default_job(obj: Json) -> None:
    spec = part(obj, "spec")
    _default_template(spec)
    part(obj, "status")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index, policy = spec.get("backoffLimitPerIndex"), spec.get("podFailurePolicy")
    filled = {
        "parallelism": 1,
        "backoffLimit": 6 if per_index is None else (1 << 31) - 1,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed" if policy is None else "Failed",
        "manualSelector": False,
    }
    defaults(filled)(spec)
    _label_as_template(obj)


def _label_as_template(obj: Json) -> None:
    labels = template_labels(obj["spec"])
    if labels and not obj["metadata"].get("labels"):
        # The same map: labels added to the template for the selector appear here too, as in upstream.
        obj["metadata"]["labels"] = labels


def _create_job(obj: Json) -> None:
    drop_status(obj)
    metadata, spec = obj["metadata"], obj["spec"]
    if spec.get("manualSelector"):
        return
    template = spec["template"]["metadata"]
    labels = template["labels"] = template.get("labels") or {}
    for names, value in ((NAME_LABELS, metadata.get("name") or ""), (UID_LABELS, metadata["uid"])):
        for name in names:
            labels.setdefault(name, value)
    selector = part(spec, "selector")
    selector["matchLabels"] = selector.get("matchLabels") or {}
    selector["matchLabels"].setdefault(UID_LABELS[1], metadata["uid"])


def _generated_selector(obj: Json, prefixed: bool) -> list[FieldError]:
    """Server-set labels must match this job, unless the sender set the selector."""
    spec, metadata = obj.get("spec") or {}, obj["metadata"]
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    uid, name, labels = metadata.get("uid") or "", metadata.get("name") or "", template_labels(spec) or {}
    wanted = {UID_LABELS[0]: uid, NAME_LABELS[0]: name}
    wanted |= {UID_LABELS[1]: uid, NAME_LABELS[1]: name} if prefixed else {}
    errors = [] if uid else [required("metadata.uid")]
    for key, value in wanted.items():
        path, why = f"spec.template.metadata.labels[{key}]", f"must be '{value}'"
        if key not in labels:
            errors.append(required(path, why))
        elif labels[key] != value:
            errors.append(invalid_value(path, dict(sorted(labels.items())), why))
    try:
        if not selector_of(spec["selector"]).matches(wanted):
            shown = shown_selector(spec["selector"])
            errors.append(invalid_value("spec.selector", shown, "`selector` not auto-generated"))
    except InvalidSelector:
        pass
    return errors


def _job_spec(obj: Json) -> list[FieldError]:
    spec = obj.get("spec") or {}
    errors = validate_job_spec(spec, "spec", validate_template)
    selector = spec.get("selector")
    errors += [required("spec.selector")] if selector is None else validate_label_selector(selector, "spec.selector")
    try:
        if not selector_of(selector).matches(template_labels(spec)):
            errors.append(mismatch(template_labels(spec)))
    except InvalidSelector:
        pass
    return errors


def _host_names(obj: Json) -> list[FieldError]:
    """The last pod of an indexed job must have a valid host name."""
    spec, name = obj.get("spec") or {}, obj["metadata"].get("name") or ""
    if spec.get("completionMode") != INDEXED or (spec.get("completions") or 0) <= 0:
        return []
    longest = f"{name}-{spec['completions'] - 1}"
    if not is_dns1123_label(longest):
        return []
    return [invalid_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {longest}")]


def _validate_job(obj: Json, prefixed: bool = True) -> list[FieldError]:
    return [*subdomain_meta(obj), *_generated_selector(obj, prefixed), *_job_spec(obj), *_host_names(obj)]


def _update_job(new: Json, old: Json) -> list[FieldError]:
    before, spec = old.get("spec") or {}, new.get("spec") or {}
    had = template_labels(before) or {}
    errors = _validate_job(new, prefixed=UID_LABELS[1] in had and NAME_LABELS[1] in had)
    errors += [*meta_update(new, old), *_job_spec(new), *_completions(spec, before), *selector_stays(new, old)]
    errors += _template_stays(spec, before, old.get("status") or {}, old)
    fields = SCHEMA.message("batch/v1.JobSpec").fields
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        type_, value = fields[name].type, spec.get(name)
        if not same(type_, value, before.get(name)):
            shown = go_view(type_.message, value) if type_.kind == "message" and value is not None else value
            errors.append(invalid_value(f"spec.{name}", shown, FIELD_IS_IMMUTABLE))
    return errors


def _completions(spec: Json, before: Json) -> list[FieldError]:
    path, value = "spec.completions", spec.get("completions")
    if value == before.get("completions"):
        return []
    if spec.get("completionMode") != INDEXED:
        return [invalid_value(path, value, FIELD_IS_IMMUTABLE)]
    if value is None or value == spec.get("parallelism"):
        return []
    return [invalid_value(path, value, "can only be modified in tandem with spec.parallelism")]


_PLACEMENT: Final = ("nodeSelector", "tolerations", "schedulingGates")


def _take(target: Json, source: Json, *names: str) -> None:
    for name in names:
        if source.get(name) is None:
            target.pop(name, None)
        else:
            target[name] = source[name]


def _template_stays(spec: Json, before: Json, status: Json, old: Json) -> list[FieldError]:
    """The template of a job that is suspended and has no pods may change scheduling and resources."""
    template, had = spec.get("template") or {}, before.get("template") or {}
    never_ran = status.get("startTime") is None or holds(old, "Suspended")
    may_change = bool(before.get("suspend")) and never_ran and not status.get("active")
    if not may_change:
        if same_message("core/v1.PodTemplateSpec", template, had):
            return []
        metadata = ordered(template.get("metadata") or {}, "meta/v1.ObjectMeta")
        shown = {**metadata, "Spec": internal(template.get("spec") or {}, "PodSpec")}
        return [invalid_value("spec.template", shown, FIELD_IS_IMMUTABLE)]
    pod, allowed = template.get("spec") or {}, copy.deepcopy(had.get("spec") or {})
    _allow_node_affinity(pod, allowed)
    _take(allowed, pod, *_PLACEMENT)
    for kind in ("containers", "initContainers"):
        ours, theirs = allowed.get(kind) or [], pod.get(kind) or []
        for mine, other in zip(ours, theirs) if len(ours) == len(theirs) else ():
            if mine.get("name") == other.get("name"):
                _take(mine, other, "resources")
    if same_message("core/v1.PodSpec", pod, allowed):
        return []
    return [invalid_value("spec.template.spec", internal(pod, "PodSpec"), FIELD_IS_IMMUTABLE)]


def _allow_node_affinity(pod: Json, allowed: Json) -> None:
    affinity, had = pod.get("affinity"), allowed.get("affinity")
    if affinity is None and had is not None:
        had.pop("nodeAffinity", None)
        if not had:
            del allowed["affinity"]
    elif affinity is not None:
        _take(part(allowed, "affinity"), affinity, "nodeAffinity")


def _job_warnings(spec: Json, path: str) -> list[str]:
    found: list[str] = []
    many = (spec.get("completions") or 0) > MANY_COMPLETIONS
    if spec.get("completionMode") == INDEXED and many and (spec.get("parallelism") or 0) > PARALLELISM_OF_MANY_MAX:
        found.append(f"{path}: {_MANY}")
    template = spec.get("template") or {}
    return found + pod_warnings(template.get("metadata") or {}, template.get("spec") or {}, f"{path}.template.")


def _warn_of_name(new: Json) -> list[str]:
    return name_warnings(new["metadata"].get("name") or "", "this is used in Pod names and hostnames")


def _warn_job(new: Json, old: Json | None) -> list[str]:
    if old is not None and not generation_rose(new, old):
        return []
    return [*(() if old is not None else _warn_of_name(new)), *_job_warnings(new.get("spec") or {}, "spec")]


_STATES: Final = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _state(obj: Json) -> str:
    for ended in ("Complete", "Failed"):
        if holds(obj, ended):
            return ended
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((state for state in _STATES if holds(obj, state)), "Running")


def _print_job(obj: Json, age: Age) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    succeeded, parallelism = status.get("succeeded") or 0, spec.get("parallelism") or 0
    wanted = spec.get("completions")
    if wanted is None:
        wanted = f"1 of {parallelism}" if parallelism > 1 else 1
    started, ended = status.get("startTime"), status.get("completionTime")
    took = "" if started is None else age(started)
    if started is not None and ended is not None:
        took = human_duration(parse_timestamp(ended) - parse_timestamp(started))
    return [
        metadata["name"],
        _state(obj),
        f"{succeeded}/{wanted}",
        took,
        age(metadata.get("creationTimestamp")),
        *container_cells(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


JOBS: Final = Kind(
    "batch", "v1", "Job", "jobs", "job", True,
    categories=("all",),
    subresources=(status_of("Job"),),
    selectable={**NAMESPACED, "status.successful": Selectable(("status", "succeeded"), "0")},
    generation=True,
    orphans_by_default=True,
    orphaning_warning=_ORPHANS,
    default=_default_job,
    prepare_create=_create_job,
    # Stored objects are defaulted on every read.
    canonicalize=_label_as_template,
    assigned=(
        (("spec", "selector"), lambda selector: list(selector.get("matchLabels") or ()) == [UID_LABELS[1]]),
        *((("spec", "template", "metadata", "labels", name), None) for name in (*UID_LABELS, *NAME_LABELS)),
        *((("metadata", "labels", name), None) for name in (*UID_LABELS, *NAME_LABELS)),
    ),
    validate=_validate_job,
    validate_update={"": _update_job, "status": changes(meta_update, validate_job_status)},
    gated=of_pods("spec", "template", "spec"),
    warn=_warn_job,
    printer=Printer(
        (
            NAME,
            column("Status", "How far the job is."),
            column("Completions", "Pods that succeeded, of those wanted."),
            column("Duration", "How long the job has run, or ran."),
            AGE,
            *CONTAINER_COLUMNS,
            SELECTOR_COLUMN,
        ),
        _print_job,
    ),
)  # fmt: skip

# --- CronJob ----------------------------------------------------------------------------------------------------------

_fill_cron_job: Final = defaults(
    {"spec": {"suspend": False, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}}
)


def _default_cron_job(obj: Json) -> None:
    template = part(part(obj, "spec"), "jobTemplate")
    part(template, "metadata")
    _default_template(part(template, "spec"))
    part(obj, "status")
    obj["spec"]["concurrencyPolicy"] = obj["spec"].get("concurrencyPolicy") or "Allow"
    _fill_cron_job(obj)


_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")


def _job_template(spec: Json) -> list[FieldError]:
    path, inner = "spec.jobTemplate.spec", (spec.get("jobTemplate") or {}).get("spec") or {}
    errors = validate_job_spec(inner, path, validate_template)
    if inner.get("selector") is not None:
        shown = shown_selector(inner["selector"])
        errors.append(invalid_value(f"{path}.selector", shown, "`selector` will be auto-generated"))
    if inner.get("manualSelector"):
        errors.append(not_supported(f"{path}.manualSelector", True, ("nil", "false")))
    return errors


def _cron_spec(new: Json, old: Json | None) -> list[FieldError]:
    spec, before = new.get("spec") or {}, None if old is None else old.get("spec") or {}
    errors = validate_schedule(spec, before)
    errors += non_negative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
    if before is None or before.get("timeZone") != spec.get("timeZone"):
        errors += validate_time_zone(spec.get("timeZone"))
    policy = spec.get("concurrencyPolicy")
    if policy not in _CONCURRENCY:
        errors.append(not_supported("spec.concurrencyPolicy", policy, _CONCURRENCY))
    return errors + _job_template(spec) + _limits(new)


_limits: Final = rules(
    at("spec.successfulJobsHistoryLimit", non_negative), at("spec.failedJobsHistoryLimit", non_negative)
)


def _short_name(obj: Json) -> list[FieldError]:
    name = obj["metadata"].get("name") or ""
    long = len(name.encode()) > CRON_NAME_BYTES_MAX
    return [invalid_value("metadata.name", name, "must be no more than 52 characters")] if long else []


def _warn_cron_job(new: Json, old: Json | None) -> list[str]:
    spec = new.get("spec") or {}
    found = _warn_of_name(new) if old is None else []
    if old is None or generation_rose(new, old):
        found += _job_warnings((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    if old is not None and "TZ" in (spec.get("schedule") or ""):
        found.append(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )
    return found


def _print_cron_job(obj: Json, age: Age) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    last, inner = status.get("lastScheduleTime"), (spec.get("jobTemplate") or {}).get("spec") or {}
    suspend = spec.get("suspend")
    return [
        metadata["name"],
        spec.get("schedule") or "",
        NONE if spec.get("timeZone") is None else spec["timeZone"],
        NONE if suspend is None else str(suspend).capitalize(),
        len(status.get("active") or ()),
        NONE if last is None else age(last),
        age(metadata.get("creationTimestamp")),
        *container_cells(inner.get("template")),
        selector_text(inner.get("selector")),
    ]


CRONJOBS: Final = Kind(
    "batch", "v1", "CronJob", "cronjobs", "cronjob", True,
    short_names=("cj",),
    categories=("all",),
    subresources=(status_of("CronJob"),),
    selectable=NAMESPACED,
    generation=True,
    default=_default_cron_job,
    prepare_create=drop_status,
    validate=rules(subdomain_meta, lambda obj: _cron_spec(obj, None), _short_name),
    validate_update={"": changes(meta_update, _cron_spec), "status": changes()},
    gated=of_pods("spec", "jobTemplate", "spec", "template", "spec"),
    warn=_warn_cron_job,
    printer=Printer(
        (
            NAME,
            column("Schedule", "When jobs are started."),
            column("Timezone", "Where the schedule's hours are."),
            column("Suspend", "Whether no jobs are started.", 0, "boolean"),
            column("Active", "Jobs that run.", 0, "integer"),
            column("Last Schedule", "Time since a job was started."),
            AGE,
            *CONTAINER_COLUMNS,
            SELECTOR_COLUMN,
        ),
        _print_cron_job,
    ),
)  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = (CRONJOBS, JOBS)
