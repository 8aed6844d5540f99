"""ReplicaSet and Deployment: replicated pods of a template, and rollouts of a new template."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    invalid_value,
    not_supported,
)
from minikube_py.api.gates import of_pods
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.kinds.apps.common import (
    BY_SELECTOR,
    READY,
    ROLLBACK_TO,
    default_template,
    number_in_annotation,
    shown_rolling,
)
from minikube_py.api.kinds.workloads import (
    CONTAINER_COLUMNS,
    SCALE,
    SELECTOR_COLUMN,
    at_most_all,
    changes,
    collisions_grow,
    container_cells,
    counts,
    int_or_percent,
    internal,
    meta_update,
    number_of,
    of_new,
    replicas_printer,
    selector_stays,
    selects_its_template,
    subdomain_meta,
    template_warnings,
)
from minikube_py.api.label_selectors import selector_text
from minikube_py.api.meta import begins_with, next_generation
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.rules import at, defaults, non_negative, rules
from minikube_py.api.strategy import keep

_fill_replicas: Final = defaults({"spec": {"replicas": 1}})


def _default_replica_set(obj: Json) -> None:
    default_template(obj)
    _fill_replicas(obj)
    obj["status"].setdefault("replicas", 0)


_replica_set_spec: Final = rules(
    at("spec.replicas", non_negative), at("spec.minReadySeconds", non_negative), selects_its_template
)
_COPIES: Final = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


REPLICASETS: Final = Kind(
    "apps", "v1", "ReplicaSet", "replicasets", "replicaset", True,
    short_names=("rs",),
    categories=("all",),
    subresources=(SCALE, status_of("ReplicaSet")),
    selectable=NAMESPACED,
    generation=True,
    scale=BY_SELECTOR,
    default=_default_replica_set,
    prepare_create=begins_with(replicas=0),
    validate=rules(subdomain_meta, _replica_set_spec),
    validate_update={
        "": changes(meta_update, of_new(_replica_set_spec), selector_stays),
        "status": changes(
            meta_update,
            of_new(counts((*_COPIES, "observedGeneration", "terminatingReplicas"), _COPIES[1:], "readyReplicas")),
        ),
    },
    gated=of_pods("spec", "template", "spec"),
    warn=template_warnings(named=True),
    printer=replicas_printer(selector_text),
)  # fmt: skip

# --- Deployment -------------------------------------------------------------------------------------------------------

_fill_deployment: Final = defaults(
    {"spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}}
)
_fill_rolling: Final = defaults({"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})


def _default_deployment(obj: Json) -> None:
    default_template(obj)
    _fill_deployment(obj)
    strategy = part(obj["spec"], "strategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill_rolling(strategy)
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(ROLLBACK_TO) == "":
        del annotations[ROLLBACK_TO]
    number_in_annotation(obj, ROLLBACK_TO)


def _update_deployment(new: Json, old: Json) -> None:
    """Changed annotations are a new generation too: the controller copies them to ReplicaSets."""
    if (new["metadata"].get("annotations") or {}) != (old["metadata"].get("annotations") or {}):
        next_generation(new, old)


def _deployment_strategy(obj: Json) -> list[FieldError]:
    path, strategy = "spec.strategy", obj["spec"].get("strategy") or {}
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind == "Recreate":
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden_value(f"{path}.rollingUpdate", detail)]
    if kind != "RollingUpdate":
        shown = internal(Type=kind, RollingUpdate=shown_rolling(rolling))
        return [not_supported(path, shown, ("Recreate", "RollingUpdate"))]
    unavailable, surge = (rolling or {}).get("maxUnavailable"), (rolling or {}).get("maxSurge")
    at_unavailable = f"{path}.rollingUpdate.maxUnavailable"
    errors = int_or_percent(unavailable, at_unavailable)
    errors += int_or_percent(surge, f"{path}.rollingUpdate.maxSurge")
    if number_of(unavailable) == 0 and number_of(surge) == 0:
        errors.append(invalid_value(at_unavailable, unavailable, "may not be 0 when `maxSurge` is 0"))
    return errors + at_most_all(unavailable, at_unavailable)


def _rollback(obj: Json) -> list[FieldError]:
    text = (obj["metadata"].get("annotations") or {}).get(ROLLBACK_TO)
    return non_negative(int(text), "spec.rollback.version") if text else []


def _deadline(obj: Json) -> list[FieldError]:
    spec = obj["spec"]
    deadline_s, path = spec.get("progressDeadlineSeconds"), "spec.progressDeadlineSeconds"
    errors = non_negative(deadline_s, path)
    if deadline_s is not None and deadline_s <= (spec.get("minReadySeconds") or 0):
        errors.append(invalid_value(path, deadline_s, "must be greater than minReadySeconds"))
    return errors


_deployment_spec: Final = rules(
    at("spec.replicas", non_negative),
    selects_its_template,
    _deployment_strategy,
    at("spec.minReadySeconds", non_negative),
    at("spec.revisionHistoryLimit", non_negative),
    _rollback,
    _deadline,
)
_DEPLOYED: Final = (
    "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas",
    "terminatingReplicas", "collisionCount",
)  # fmt: skip


def _print_deployment(obj: Json, age: Age) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    return [
        metadata["name"],
        f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        age(metadata.get("creationTimestamp")),
        *container_cells(spec.get("template")),
        selector_text(spec.get("selector"), "<invalid>", ""),
    ]


DEPLOYMENTS: Final = Kind(
    "apps", "v1", "Deployment", "deployments", "deployment", True,
    short_names=("deploy",),
    categories=("all",),
    subresources=(SCALE, status_of("Deployment")),
    also_reset={"status": (("metadata", "labels"),)},
    selectable=NAMESPACED,
    generation=True,
    scale=BY_SELECTOR,
    default=_default_deployment,
    prepare_create=begins_with(),
    prepare_update=_update_deployment,
    prepare_status=lambda new, old: keep(new["metadata"], old["metadata"], "labels"),
    validate=rules(subdomain_meta, _deployment_spec),
    validate_update={
        "": changes(meta_update, of_new(_deployment_spec), selector_stays),
        "status": changes(meta_update, of_new(counts(_DEPLOYED, _DEPLOYED[2:5], "readyReplicas")), collisions_grow),
    },
    gated=of_pods("spec", "template", "spec"),
    warn=template_warnings(named=True),
    printer=Printer(
        (
            NAME,
            READY,
            column("Up-to-date", "Pods of the newest template."),
            column("Available", "Pods that have been ready for minReadySeconds."),
            AGE,
            *CONTAINER_COLUMNS,
            SELECTOR_COLUMN,
        ),
        _print_deployment,
    ),
)  # fmt: skip
