"""Namespace: a scope for names, with its own finalizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikube_py.api.apply.assigned import always, when
from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.kind import ALL_VERBS, NAMED, Kind, Selectable, Subresource, status_of
from minikube_py.api.meta import is_dns1123_label, is_qualified_name
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.strategy import keep
from minikube_py.api.validation.metadata import (
    validate_known_finalizer,
    validate_object_meta,
    validate_object_meta_update,
)

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
KUBERNETES_FINALIZER: Final = "kubernetes"


def _default_namespace(obj: Json) -> None:
    part(obj, "spec")
    status = part(obj, "status")
    name = obj["metadata"].get("name")
    if name:
        part(obj["metadata"], "labels")[NAMESPACE_NAME_LABEL] = name
    if not status.get("phase"):
        status["phase"] = "Active"


def _create_namespace(namespace: Json) -> None:
    namespace["status"] = {"phase": "Active"}
    spec = namespace["spec"]
    finalizers = spec.get("finalizers") or []
    if KUBERNETES_FINALIZER not in finalizers:
        spec["finalizers"] = [*finalizers, KUBERNETES_FINALIZER]


def _canonicalize(namespace: Json) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), NAMESPACE_NAME_LABEL: metadata["name"]}


def _keep_finalizers(new: Json, old: Json) -> None:
    keep(new["spec"], old["spec"], "finalizers")


def _validate_finalizer(name: str, path: str) -> list[FieldError]:
    errors = [invalid_value(path, name, message) for message in is_qualified_name(name)]
    return errors + validate_known_finalizer(name, path)


def _finalizers(namespace: Json) -> Sequence[str]:
    found: Sequence[str] | None = (namespace.get("spec") or {}).get("finalizers")
    return found or ()


def validate_namespace(namespace: Json) -> list[FieldError]:
    errors = validate_object_meta(namespace["metadata"], False, is_dns1123_label)
    for name in _finalizers(namespace):
        errors += _validate_finalizer(name, "spec.finalizers")
    return errors


def validate_namespace_update(new: Json, old: Json) -> list[FieldError]:
    return validate_namespace(new) + validate_object_meta_update(new["metadata"], old["metadata"])


def validate_namespace_status_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    phase = (new.get("status") or {}).get("phase") or ""
    deleted = bool(new["metadata"].get("deletionTimestamp"))
    wanted, state = ("Terminating", "not empty") if deleted else ("Active", "empty")
    if phase != wanted:
        detail = f"may only be '{wanted}' if `deletionTimestamp` is {state}"
        errors.append(invalid_value("status.Phase", phase, detail))
    return errors


def validate_namespace_finalize_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    for i, name in enumerate(_finalizers(new)):
        errors += _validate_finalizer(name, f"spec.finalizers[{i}]")
    return errors


def _print_namespace(namespace: Json, age: Age) -> list[Any]:
    metadata = namespace["metadata"]
    phase = (namespace.get("status") or {}).get("phase") or ""
    return [metadata["name"], phase, age(metadata.get("creationTimestamp"))]


NAMESPACES: Final = Kind(
    "", "v1", "Namespace", "namespaces", "namespace", False,
    short_names=("ns",),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    subresources=(Subresource("finalize", "Namespace", ("update",), tabled=False), status_of("Namespace")),
    selectable={**NAMED, "status.phase": Selectable(("status", "phase"))},
    default=_default_namespace,
    prepare_create=_create_namespace,
    prepare_update=_keep_finalizers,
    canonicalize=_canonicalize,
    assigned=(*always("spec.finalizers"), *when("status.phase", "Active")),
    validate=validate_namespace,
    validate_update={
        "": validate_namespace_update,
        "status": validate_namespace_status_update,
        "finalize": validate_namespace_finalize_update,
    },
    printer=Printer((NAME, column("Status", "Phase of the namespace."), AGE), _print_namespace),
)  # fmt: skip
