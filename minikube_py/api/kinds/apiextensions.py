"""The group `apiextensions.k8s.io`: definitions of custom resources. What they define is built by `api.custom`.

Source: apiextensions-apiserver `pkg/registry/customresourcedefinition`, `pkg/apis/apiextensions/v1/defaults.go`.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Final

from minikube_py.api import go_numbers
from minikube_py.api.defaulting import part
from minikube_py.api.errors import Json
from minikube_py.api.kind import NAMESPACED, Kind, status_of

GROUP: Final = "apiextensions.k8s.io"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that holds a definition until its objects are gone."""


def _default(definition: Json) -> None:
    spec = part(definition, "spec")
    names = part(spec, "names")
    kind = names.get("kind") or ""
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    webhook = spec["conversion"].get("webhook") or {}
    if webhook.get("clientConfig") is None and not webhook.get("conversionReviewVersions"):
        # As upstream's internal form, which has its members one by one.
        spec["conversion"].pop("webhook", None)
    service = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None and service.get("port") is None:
        service["port"] = 443
    _store_version(definition, first=True)


def _store_version(definition: Json, first: bool = False) -> None:
    """Adds the storage version to `storedVersions`. `first`: only where there is none yet."""
    status = part(definition, "status")
    stored = status.get("storedVersions") or []
    for version in definition["spec"].get("versions") or ():
        if version.get("storage"):
            if version.get("name") not in stored and not (first and stored):
                status["storedVersions"] = [*stored, version.get("name") or ""]
            return


def _create(definition: Json) -> None:
    definition["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None}
    definition["metadata"]["generation"] = 1
    _store_version(definition)


def _update(new: Json, old: Json) -> None:
    new["status"] = {**new["status"]}
    _store_version(new)


def set_condition(conditions: list[Json], type_: str, status: str, reason: str, message: str, now: str) -> list[Json]:
    """The conditions with this one updated."""
    old = next((each for each in conditions if each["type"] == type_), None)
    since = old["lastTransitionTime"] if old is not None and old.get("status") == status else now
    new = {"type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
    if old is None:
        return [*conditions, new]
    # Other fields, such as observedGeneration, are kept.
    return [{**old, **new} if each is old else each for each in conditions]


def _delete(definition: Json, now: str) -> None:
    metadata, status = definition["metadata"], part(definition, "status")
    metadata["deletionTimestamp"] = now
    if CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    pending = ("True", "InstanceDeletionPending", why)
    status["conditions"] = set_condition(status.get("conditions") or [], "Terminating", *pending, now)


def _warn(new: Json, old: Json | None) -> list[str]:
    known = _rules().unknown_formats(old) if old is not None else []
    return [f'unrecognized format "{name}"' for name in _rules().unknown_formats(new) if name not in known]


_rules: Final = partial(import_module, "minikube_py.api.custom.definition_rules")
"""Loaded on first use."""

CUSTOMRESOURCEDEFINITIONS: Final = Kind(
    GROUP, "v1", "CustomResourceDefinition", "customresourcedefinitions", "customresourcedefinition", False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=(status_of("CustomResourceDefinition", tabled=False),),
    selectable=NAMESPACED,
    generation=True,
    storage_version=f"{GROUP}/v1beta1",
    allow_unconditional_update=False,
    default=_default,
    prepare_create=_create,
    prepare_update=_update,
    # Defaults, enums and examples are values of the objects to come.
    canonicalize=go_numbers.write,
    validate=lambda new: _rules().validate_definition(new),
    validate_update={
        "": lambda new, old: _rules().validate_definition_update(new, old),
        "status": lambda new, old: _rules().validate_definition_status(new, old),
    },
    warn=_warn,
    prepare_delete=_delete,
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (CUSTOMRESOURCEDEFINITIONS,)
