"""PodTemplate: a template of pods by itself."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_pod_spec
from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json
from minikube_py.api.gates import of_pods
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.kinds.workloads import (
    changes,
    container_cells,
    meta_update,
    of_new,
    subdomain_meta,
    template_warnings,
    validate_template,
)
from minikube_py.api.meta import first_generation, next_generation
from minikube_py.api.printing import NAME, Age, Printer, column, format_labels
from minikube_py.api.rules import rules


def _default(obj: Json) -> None:
    template = part(obj, "template")
    part(template, "metadata")
    default_pod_spec(part(template, "spec"))


def _update(new: Json, old: Json) -> None:
    if not same_message("core/v1.PodTemplateSpec", new.get("template"), old.get("template")):
        next_generation(new, old)


def _template(obj: Json) -> list[FieldError]:
    return validate_template(obj.get("template") or {}, "template")


def _print(obj: Json, age: Age) -> list[Any]:
    template = obj.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    return [obj["metadata"]["name"], *container_cells(template), format_labels(labels)]


PODTEMPLATES: Final = Kind(
    "", "v1", "PodTemplate", "podtemplates", "podtemplate", True,
    selectable=NAMESPACED,
    delete_answer="object",
    default=_default,
    prepare_create=first_generation,
    prepare_update=_update,
    validate=rules(subdomain_meta, _template),
    validate_update={"": changes(meta_update, of_new(_template))},
    gated=of_pods("template", "spec"),
    warn=template_warnings(path="template."),
    printer=Printer(
        (
            NAME,
            column("Containers", "Names of the template's containers."),
            column("Images", "Images of the template's containers."),
            column("Pod Labels", "Labels of pods made from the template."),
        ),
        _print,
    ),
)  # fmt: skip
