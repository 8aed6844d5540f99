"""VolumeAttributesClass of `storage.k8s.io`: mutable parameters of an existing volume.

Source: `pkg/apis/storage/validation`, `pkg/registry/storage/volumeattributesclass`.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.errors import FieldError, Json, forbidden_value, required
from minikube_py.api.kind import NAMESPACED, Cluster, Kind
from minikube_py.api.kinds.core.volumes import protect
from minikube_py.api.kinds.storage import GROUP, validate_parameters, validate_provisioner
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.api.printing import AGE, NAME, Printer, column
from minikube_py.api.rules import at, defaults, rules
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update

PROTECTION: Final = "kubernetes.io/vac-protection"


def _not_none(parameters: Json | None, path: str) -> list[FieldError]:
    return [] if parameters else [required(path, "must contain at least one key/value pair")]


_validate = rules(
    lambda obj: validate_object_meta(obj["metadata"], False, is_dns1123_subdomain),
    at("driverName", validate_provisioner),
    at("parameters", validate_parameters, _not_none),
)


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    for name in ("driverName", "parameters"):
        if (new.get(name) or None) != (old.get(name) or None):
            errors.append(forbidden_value(name, f"updates to {name} are forbidden."))
    return errors + _validate(new)


def _admit(new: Json, old: Json | None, cluster: Cluster) -> None:
    if old is None:
        protect(PROTECTION, new["metadata"])


VOLUMEATTRIBUTESCLASSES: Final = Kind(
    GROUP, "v1", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass", False,
    short_names=("vac",),
    selectable=NAMESPACED,
    delete_answer="object",
    admit=_admit,
    default=defaults({"driverName": ""}),
    validate=_validate,
    validate_update={"": _validate_update},
    printer=Printer(
        (NAME, column("DriverName", "The driver that knows its parameters."), AGE),
        lambda obj, age: [
            obj["metadata"]["name"], obj.get("driverName") or "", age(obj["metadata"].get("creationTimestamp")),
        ],
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (VOLUMEATTRIBUTESCLASSES,)
