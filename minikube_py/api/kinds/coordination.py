"""The group `coordination.k8s.io`."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api import meta
from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.validation.resources import NEGATIVE


def _default_lease(lease: Json) -> None:
    part(lease, "spec")


def _validate_lease_spec(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    duration_s, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration_s is not None and duration_s <= 0:
        errors.append(invalid_value("spec.leaseDurationSeconds", duration_s, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid_value("spec.leaseTransitions", transitions, NEGATIVE))
    return errors


def validate_lease(lease: Json) -> list[FieldError]:
    errors = meta.validate_object_meta(lease["metadata"], True, is_dns1123_subdomain)
    return errors + _validate_lease_spec(lease.get("spec") or {})


def validate_lease_update(new: Json, old: Json) -> list[FieldError]:
    errors = meta.validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _validate_lease_spec(new.get("spec") or {})


def _print_lease(lease: Json, age: Age) -> list[Any]:
    metadata = lease["metadata"]
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    return [metadata["name"], holder, age(metadata.get("creationTimestamp"))]


LEASES: Final = Kind(
    "coordination.k8s.io", "v1", "Lease", "leases", "lease", True,
    selectable=NAMESPACED,
    allow_create_on_update=True,
    allow_unconditional_update=False,
    default=_default_lease,
    renews="renewTime",
    gated=(("spec", "strategy"), ("spec", "preferredHolder")),
    validate=validate_lease,
    validate_update={"": validate_lease_update},
    printer=Printer((NAME, column("Holder", "Who holds the lease."), AGE), _print_lease),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (LEASES,)
