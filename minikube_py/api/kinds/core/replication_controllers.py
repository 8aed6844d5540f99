"""ReplicationController: so many pods of one template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_pod_spec
from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, not_supported, required
from minikube_py.api.kind import NAMESPACED, STATUS_VERBS, Kind, ScalePaths, Selectable, Subresource, status_of
from minikube_py.api.meta import is_dns1123_subdomain, validate_annotations, validate_labels
from minikube_py.api.pod_warnings import name_warnings, pod_warnings
from minikube_py.api.printing import AGE, NAME, Age, Printer, column, format_labels
from minikube_py.api.selectors import selector_from_map
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.pods import validate_pod_annotations, validate_pod_spec
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


def _create_replication_controller(controller: Json) -> None:
    controller["status"] = {"replicas": 0}
    controller["metadata"]["generation"] = 1


def _validate_template(template: Json, path: str) -> list[FieldError]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    errors = validate_labels(metadata.get("labels") or {}, f"{path}.labels")
    errors += validate_annotations(annotations, f"{path}.annotations")
    errors += validate_pod_annotations(annotations, spec, f"{path}.annotations")
    errors += validate_pod_spec(spec, f"{path}.spec", is_pod=False)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden_value(f"{path}.spec.ephemeralContainers", detail))
    return errors


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
        detail = "`selector` does not match template `labels`"
        errors.append(invalid_value("spec.template.metadata.labels", labels, detail))
    errors += _validate_template(template, "spec.template")
    pod = template.get("spec") or {}
    if pod.get("restartPolicy") != "Always":
        policy = pod.get("restartPolicy") or ""
        errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicationController is not Supported"
        errors.append(forbidden_value("spec.template.spec.activeDeadlineSeconds", detail))
    return errors


def validate_replication_controller(controller: Json) -> list[FieldError]:
    metadata = controller["metadata"]
    # The prefix of a generated name is not looked at here, only the name made from it.
    own = {key: value for key, value in metadata.items() if key != "generateName"}
    errors = validate_object_meta(own, True, is_dns1123_subdomain)
    return errors + _validate_controller_spec(controller.get("spec") or {})


def validate_replication_controller_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _validate_controller_spec(new.get("spec") or {})


_COUNTS: Final = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")


def validate_replication_controller_status_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    status = new.get("status") or {}
    count = {name: status.get(name) or 0 for name in _COUNTS}
    for name, value in count.items():
        if value < 0:
            errors.append(invalid_value(f"status.{name}", value, NEGATIVE))
    for name in _COUNTS[1:4]:
        if count[name] > count["replicas"]:
            errors.append(invalid_value(f"status.{name}", count[name], "cannot be greater than status.replicas"))
    if count["availableReplicas"] > count["readyReplicas"]:
        detail = "cannot be greater than readyReplicas"
        errors.append(invalid_value("status.availableReplicas", count["availableReplicas"], detail))
    return errors


def _warnings(controller: Json, old: Json | None) -> list[str]:
    metadata = controller["metadata"]
    if old is None:
        own = name_warnings(metadata.get("name") or "", "this is used in Pod names and hostnames")
    elif metadata.get("generation") == old["metadata"].get("generation"):
        return []
    else:
        own = []
    template = (controller.get("spec") or {}).get("template")
    if template is None:
        return own
    return own + pod_warnings(template.get("metadata") or {}, template.get("spec") or {}, "spec.template.")


def _print_replication_controller(controller: Json, age: Age) -> list[Any]:
    metadata, spec, status = controller["metadata"], controller.get("spec") or {}, controller.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    containers = template.get("containers") or ()
    return [
        metadata["name"],
        spec.get("replicas") or 0,
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        age(metadata.get("creationTimestamp")),
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        format_labels(spec.get("selector")),
    ]


REPLICATIONCONTROLLERS: Final = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller", True,
    short_names=("rc",),
    categories=("all",),
    subresources=(Subresource("scale", "Scale", STATUS_VERBS, "autoscaling", "v1"), status_of("ReplicationController")),
    selectable={**NAMESPACED, "status.replicas": Selectable(("status", "replicas"), "0")},
    generation=True,
    orphans_by_default=True,
    scale=ScalePaths(selector=lambda controller: str(selector_from_map(controller["spec"].get("selector")))),
    default=_default_replication_controller,
    prepare_create=_create_replication_controller,
    validate=validate_replication_controller,
    validate_update={
        "": validate_replication_controller_update,
        "status": validate_replication_controller_status_update,
    },
    warn=_warnings,
    printer=Printer(
        (
            NAME,
            column("Desired", "Replicas asked for.", 0, "integer"),
            column("Current", "Replicas there are.", 0, "integer"),
            column("Ready", "Replicas that are ready.", 0, "integer"),
            AGE,
            column("Containers", "Names of the template's containers.", 1),
            column("Images", "Images of the template's containers.", 1),
            column("Selector", "Labels of its pods.", 1),
        ),
        _print_replication_controller,
    ),
)  # fmt: skip
