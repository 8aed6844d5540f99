"""ReplicationController: replicated pods of one template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_pod_spec
from minikube_py.api.errors import FieldError, Json, invalid_value, required
from minikube_py.api.gates import of_pods
from minikube_py.api.kind import NAMESPACED, Kind, ScalePaths, Selectable, status_of
from minikube_py.api.kinds.workloads import (
    SCALE,
    counts,
    meta_update,
    mismatch,
    replicas_printer,
    runs_always,
    template_warnings,
    validate_template,
)
from minikube_py.api.meta import begins_with, is_dns1123_subdomain
from minikube_py.api.printing import format_labels
from minikube_py.api.selectors import selector_from_map
from minikube_py.api.validation.metadata import validate_object_meta
from minikube_py.api.validation.resources import NEGATIVE


def _default_replication_controller(obj: Json) -> None:
    spec = part(obj, "spec")
    status = part(obj, "status")
    status.setdefault("replicas", 0)
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    template = spec.get("template")
    if template is None:
        return
    metadata = part(template, "metadata")
    labels = metadata.get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)
    default_pod_spec(part(template, "spec"))


def _validate_controller_spec(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    selector: Mapping[str, str] = spec.get("selector") or {}
    for name, value in (("minReadySeconds", spec.get("minReadySeconds") or 0),):
        if value < 0:
            errors.append(invalid_value(f"spec.{name}", value, NEGATIVE))
    if not selector:
        errors.append(required("spec.selector"))
    replicas = spec.get("replicas")
    if replicas is None:
        errors.append(required("spec.replicas"))
    elif replicas < 0:
        errors.append(invalid_value("spec.replicas", replicas, NEGATIVE))
    template = spec.get("template")
    if template is None:
        return [*errors, required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels")
    if any((labels or {}).get(key) != value for key, value in selector.items()):
        errors.append(mismatch(labels))
    errors += validate_template(template, "spec.template")
    return errors + runs_always(template, "ReplicationController")


def validate_replication_controller(controller: Json) -> list[FieldError]:
    metadata = controller["metadata"]
    # The prefix of a generated name is not checked here, only the resulting name.
    own = {key: value for key, value in metadata.items() if key != "generateName"}
    errors = validate_object_meta(own, True, is_dns1123_subdomain)
    return errors + _validate_controller_spec(controller.get("spec") or {})


def validate_replication_controller_update(new: Json, old: Json) -> list[FieldError]:
    return meta_update(new, old) + _validate_controller_spec(new.get("spec") or {})


_COUNTS: Final = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
_validate_counts: Final = counts(_COUNTS, _COUNTS[1:4], "readyReplicas")


def validate_replication_controller_status_update(new: Json, old: Json) -> list[FieldError]:
    return meta_update(new, old) + list(_validate_counts(new))


REPLICATIONCONTROLLERS: Final = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller", True,
    short_names=("rc",),
    categories=("all",),
    subresources=(SCALE, status_of("ReplicationController")),
    selectable={**NAMESPACED, "status.replicas": Selectable(("status", "replicas"), "0")},
    generation=True,
    orphans_by_default=True,
    scale=ScalePaths(selector=lambda controller: str(selector_from_map(controller["spec"].get("selector")))),
    default=_default_replication_controller,
    prepare_create=begins_with(replicas=0),
    validate=validate_replication_controller,
    validate_update={
        "": validate_replication_controller_update,
        "status": validate_replication_controller_status_update,
    },
    gated=of_pods("spec", "template", "spec"),
    warn=template_warnings(named=True),
    printer=replicas_printer(format_labels),
)  # fmt: skip
