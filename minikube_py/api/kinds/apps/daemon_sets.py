"""DaemonSet: a pod on each eligible node."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import (
    FieldError,
    Json,
    Verbatim,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.gates import of_pods
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.kinds.apps.common import default_template, number_in_annotation, shown_rolling
from minikube_py.api.kinds.workloads import (
    CONTAINER_COLUMNS,
    SELECTOR_COLUMN,
    at_most_all,
    changes,
    collisions_grow,
    container_cells,
    counts,
    empty_selector,
    int_or_percent,
    internal,
    meta_update,
    mismatch,
    number_of,
    of_new,
    runs_always,
    selector_stays,
    subdomain_meta,
    template_labels,
    template_warnings,
    validate_template,
)
from minikube_py.api.label_selectors import InvalidSelector, selector_of, selector_text
from minikube_py.api.printing import AGE, NAME, Age, Printer, column, format_labels
from minikube_py.api.rules import at, defaults, non_negative, rules
from minikube_py.api.validation.affinity import validate_label_selector

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_fill_daemon_set: Final = defaults({"spec": {"revisionHistoryLimit": 10, "updateStrategy": {}}})
_fill_daemon_rolling: Final = defaults({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
_SHOWN_DAEMONS: Final = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")


def _default_daemon_set(obj: Json) -> None:
    default_template(obj)
    _fill_daemon_set(obj)
    strategy = obj["spec"]["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill_daemon_rolling(strategy)
    for name in _SHOWN_DAEMONS:
        obj["status"].setdefault(name, 0)
    number_in_annotation(obj, TEMPLATE_GENERATION)


def _template_generation(obj: Json) -> int:
    return int((obj["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or 0)


def _set_template_generation(obj: Json, generation: int) -> None:
    annotations = obj["metadata"].get("annotations") or {}
    obj["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: str(generation)}


def _create_daemon_set(obj: Json) -> None:
    obj["status"] = dict.fromkeys(_SHOWN_DAEMONS, 0)
    obj["metadata"]["generation"] = 1
    _set_template_generation(obj, max(_template_generation(obj), 1))


def _update_daemon_set(new: Json, old: Json) -> None:
    changed = not same_message("core/v1.PodTemplateSpec", new["spec"].get("template"), old["spec"].get("template"))
    _set_template_generation(new, _template_generation(old) + changed)


def _daemon_selector(obj: Json) -> list[FieldError]:
    spec = obj["spec"]
    errors = validate_label_selector(spec.get("selector"), "spec.selector")
    try:
        if not selector_of(spec.get("selector")).matches(template_labels(spec)):
            errors.append(mismatch(template_labels(spec)))
    except InvalidSelector:
        pass  # already reported
    errors += empty_selector(spec.get("selector"), "daemonset")
    template = spec.get("template") or {}
    return errors + validate_template(template, "spec.template") + runs_always(template, "DaemonSet")


def _daemon_strategy(obj: Json) -> list[FieldError]:
    path, strategy = "spec.updateStrategy", obj["spec"].get("updateStrategy") or {}
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        shown: Verbatim = internal(Type=kind, RollingUpdate=shown_rolling(rolling))
        return [not_supported(path, shown, ("RollingUpdate", "OnDelete"))]
    unavailable, surge = (rolling or {}).get("maxUnavailable"), (rolling or {}).get("maxSurge")
    at_unavailable, at_surge = f"{path}.rollingUpdate.maxUnavailable", f"{path}.rollingUpdate.maxSurge"
    errors = int_or_percent(unavailable, at_unavailable) + int_or_percent(surge, at_surge)
    errors += at_most_all(unavailable, at_unavailable) + at_most_all(surge, at_surge)
    if number_of(unavailable) and number_of(surge):
        errors.append(invalid_value(at_surge, surge, "may not be set when maxUnavailable is non-zero"))
    elif not number_of(unavailable) and not number_of(surge):
        errors.append(required(at_unavailable, "cannot be 0 when maxSurge is 0"))
    return errors


_daemon_set_spec: Final = rules(
    _daemon_selector,
    at("spec.minReadySeconds", non_negative),
    _daemon_strategy,
    at("spec.revisionHistoryLimit", non_negative),
)
_DAEMONS: Final = (
    *_SHOWN_DAEMONS, "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    "collisionCount",
)  # fmt: skip


_PRINTED: Final = (
    "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
)  # fmt: skip


def _print_daemon_set(obj: Json, age: Age) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    template = spec.get("template") or {}
    return [
        metadata["name"],
        *(status.get(name) or 0 for name in _PRINTED),
        format_labels((template.get("spec") or {}).get("nodeSelector")),
        age(metadata.get("creationTimestamp")),
        *container_cells(template),
        selector_text(spec.get("selector")),
    ]


DAEMONSETS: Final = Kind(
    "apps", "v1", "DaemonSet", "daemonsets", "daemonset", True,
    short_names=("ds",),
    categories=("all",),
    subresources=(status_of("DaemonSet"),),
    selectable=NAMESPACED,
    generation=True,
    default=_default_daemon_set,
    prepare_create=_create_daemon_set,
    prepare_update=_update_daemon_set,
    prepare_status=lambda new, old: _set_template_generation(new, _template_generation(old)),
    validate=rules(subdomain_meta, _daemon_set_spec),
    validate_update={
        "": changes(meta_update, selector_stays, of_new(_daemon_set_spec)),
        "status": changes(meta_update, of_new(counts(_DAEMONS)), collisions_grow),
    },
    gated=of_pods("spec", "template", "spec"),
    warn=template_warnings(changed=lambda new, old: _template_generation(new) != _template_generation(old)),
    printer=Printer(
        (
            NAME,
            column("Desired", "Nodes that should run its pod.", 0, "integer"),
            column("Current", "Nodes that should run its pod and do.", 0, "integer"),
            column("Ready", "Nodes on which its pod is ready.", 0, "integer"),
            column("Up-to-date", "Nodes that run the pod of the newest template.", 0, "integer"),
            column("Available", "Nodes on which its pod has been ready for minReadySeconds.", 0, "integer"),
            column("Node Selector", "Labels of the nodes that are to run its pod."),
            AGE,
            *CONTAINER_COLUMNS,
            SELECTOR_COLUMN,
        ),
        _print_daemon_set,
    ),
)  # fmt: skip
