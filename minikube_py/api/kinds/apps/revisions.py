"""ControllerRevision: a past state of a DaemonSet or StatefulSet."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    invalid_value,
    required,
)
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.kinds.workloads import (
    changes,
    meta_update,
    of_new,
    subdomain_meta,
)
from minikube_py.api.meta import controller_of
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column
from minikube_py.api.rules import at, defaults, non_negative, rules


def _data(obj: Json) -> list[FieldError]:
    data = obj.get("data")
    if data is None:
        return [required("data", "data is mandatory")]
    return [] if isinstance(data, dict) else [required("data", "data must be a valid JSON object")]


def _data_stays(new: Json, old: Json) -> list[FieldError]:
    same = new.get("data") == old.get("data")
    return [] if same else [invalid_value("data", new.get("data"), "field is immutable")]


_revision: Final = rules(subdomain_meta, at("revision", non_negative))


def _print_revision(obj: Json, age: Age) -> list[Any]:
    metadata, owner, shown = obj["metadata"], controller_of(obj), NONE
    if owner is not None:
        group = owner.api_version.rpartition("/")[0]
        shown = f"{owner.kind}{'.' if group else ''}{group}".lower() + f"/{owner.name}"
    return [metadata["name"], shown, obj.get("revision") or 0, age(metadata.get("creationTimestamp"))]


CONTROLLERREVISIONS: Final = Kind(
    "apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision", True,
    selectable=NAMESPACED,
    default=defaults({"revision": 0}),
    validate=rules(_revision, _data),
    validate_update={"": changes(meta_update, of_new(_revision), _data_stays)},
    printer=Printer(
        (
            NAME,
            column("Controller", "The object that the revision is of."),
            column("Revision", "Number of the revision."),
            AGE,
        ),
        _print_revision,
    ),
)  # fmt: skip
