"""IPAddresses and ServiceCIDRs of the group `networking.k8s.io`: ranges and allocations of cluster addresses.

Source: `pkg/apis/networking/validation`, `pkg/registry/networking/{ipaddress,servicecidr}`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value, required
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.meta import is_dns1123_subdomain, is_path_segment, validate_immutable
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column
from minikube_py.api.rules import defaults, named_by
from minikube_py.api.validation.ips import parse_cidr, validate_canonical_ip, validate_cidr
from minikube_py.api.validation.metadata import keep_metadata, validate_object_meta, validate_object_meta_update

GROUP: Final = "networking.k8s.io"
FAMILY: Final = "ipaddress.kubernetes.io/ip-family"
MANAGED_BY: Final = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR: Final = "ipallocator.k8s.io"
"""Manages the addresses of services."""
DEFAULT_NAME: Final = "kubernetes"
_IMMUTABLE: Final = "field is immutable"

# --- addresses ------------------------------------------------------------------------------------------------------


def address_of(service: Json, address: str) -> Json:
    """The IPAddress object of a service's address."""
    metadata = service["metadata"]
    parent = {"resource": "services", "namespace": metadata["namespace"], "name": metadata["name"]}
    labels = {FAMILY: "IPv4", MANAGED_BY: ALLOCATOR}
    return {"metadata": {"name": address, "labels": labels}, "spec": {"parentRef": parent}}


def _default_address(obj: Json) -> None:
    part(obj, "spec").setdefault("parentRef", None)


def _validate_address(obj: Json) -> list[FieldError]:
    errors = validate_object_meta(
        obj["metadata"], False, lambda name: tuple(error.detail for error in validate_canonical_ip(name, ""))
    )
    parent, path = (obj.get("spec") or {}).get("parentRef"), "spec.parentRef"
    if parent is None:
        return [*errors, required(path)]
    if group := parent.get("group"):
        errors += named_by(is_dns1123_subdomain)(group, f"{path}.group")
    for name in ("resource", "name", "namespace"):
        if value := parent.get(name):
            errors += named_by(is_path_segment)(value, f"{path}.{name}")
        elif name != "namespace":
            errors.append(required(f"{path}.{name}"))
    return errors


def _shown(obj: Json) -> Json | None:
    """As upstream prints its internal type."""
    parent = (obj.get("spec") or {}).get("parentRef")
    fields = ("Group", "Resource", "Namespace", "Name")
    return None if parent is None else {field: parent.get(field.lower()) or "" for field in fields}


def _validate_address_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate_address(new) + validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + validate_immutable(_shown(new), _shown(old), "spec.parentRef")


def _print_address(obj: Json, age: Age) -> list[Any]:
    """A cell more than there are columns, as upstream has it."""
    metadata, parent, text = obj["metadata"], (obj.get("spec") or {}).get("parentRef"), NONE
    if parent is not None:
        group, namespace = parent.get("group"), parent.get("namespace")
        resource = (parent.get("resource") or "") + (f".{group}" if group else "")
        text = "/".join([resource.lower(), *([namespace] if namespace else []), parent.get("name") or ""])
    return [metadata["name"], text, age(metadata.get("creationTimestamp"))]


IPADDRESSES: Final = Kind(
    GROUP, "v1", "IPAddress", "ipaddresses", "ipaddress", False,
    short_names=("ip",),
    selectable=NAMESPACED,
    default=_default_address,
    validate=_validate_address,
    validate_update={"": _validate_address_update},
    printer=Printer((NAME, column("ParentRef", "What has the address.")), _print_address),
)  # fmt: skip

# --- ranges -------------------------------------------------------------------------------------------


def cidrs_of(obj: Json) -> list[str]:
    found: list[str] = (obj.get("spec") or {}).get("cidrs") or []
    return found


def is_ready(obj: Json) -> bool:
    """Whether addresses are allocated from it."""
    if obj["metadata"].get("deletionTimestamp"):
        return False
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return all(each["status"] == "True" for each in conditions if each["type"] == "Ready")


def _validate_cidr(text: str, path: str) -> list[FieldError]:
    """In the one form in which Go prints it."""
    if not (errors := validate_cidr(text, path)) and str(parse_cidr(text)) != text:
        errors.append(invalid_value(path, text, f'must be in canonical form ("{parse_cidr(text)}")'))
    return errors


def _validate_spec(obj: Json) -> list[FieldError]:
    path, cidrs = "spec.cidrs", cidrs_of(obj)
    if not cidrs:
        return [required(path, "at least one CIDR required")]
    if len(cidrs) > 2:
        return [invalid_value(path, {"CIDRs": cidrs}, "may only hold up to 2 values")]
    errors = [error for i, text in enumerate(cidrs) for error in _validate_cidr(text, f"{path}[{i}]")]
    families = [found.version for found in map(parse_cidr, cidrs) if found is not None]
    if families in ([4, 4], [6, 6]):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.append(invalid_value(path, cidrs, detail))
    return errors


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    cidrs, before, path = cidrs_of(new), cidrs_of(old), "spec.cidrs"
    grows = (len(before), len(cidrs)) == (1, 2)
    if len(before) != len(cidrs) and not grows:
        return [*errors, invalid_value(path, cidrs or None, _IMMUTABLE)]
    changed = [i for i, text in enumerate(before) if text != cidrs[i]]
    errors += [invalid_value(f"{path}[{i}]", cidrs[i], _IMMUTABLE) for i in changed]
    return errors + _validate_spec(new) if grows else errors


SERVICECIDRS: Final = Kind(
    GROUP, "v1", "ServiceCIDR", "servicecidrs", "servicecidr", False,
    subresources=(status_of("ServiceCIDR"),),
    selectable=NAMESPACED,
    also_reset={"status": (("metadata",),)},
    default=defaults({"spec": {}, "status": {}}),
    prepare_create=lambda obj: obj.update(status={}),
    prepare_status=keep_metadata,
    validate=lambda obj: validate_object_meta(obj["metadata"], False, is_dns1123_subdomain) + _validate_spec(obj),
    validate_update={
        "": _validate_update,
        "status": lambda new, old: validate_object_meta_update(new["metadata"], old["metadata"]),
    },
    printer=Printer(
        (NAME, column("CIDRs", "The networks that it holds."), AGE),
        lambda obj, age: [
            obj["metadata"]["name"], ",".join(cidrs_of(obj)), age(obj["metadata"].get("creationTimestamp")),
        ],
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (IPADDRESSES, SERVICECIDRS)
