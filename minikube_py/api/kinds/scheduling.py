"""The group `scheduling.k8s.io`: priority classes."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import FieldError, Json, forbidden, forbidden_value
from minikube_py.api.kind import NAMESPACED, Cluster, Kind
from minikube_py.api.meta import first_generation, is_dns1123_subdomain, validate_immutable
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.rules import at, defaults, not_empty, one_of, rules
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update

USER_PRIORITY_MAX: Final = 1_000_000_000
SYSTEM_PREFIX: Final = "system-"
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
SYSTEM_USES: Final = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to "
    "another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}
PREEMPT_LOWER: Final = "PreemptLowerPriority"
POLICIES: Final = (PREEMPT_LOWER, "Never")


def _unknown_system_class(name: str, priority: Json) -> str:
    """Why a class may not have a system name, or empty."""
    value = SYSTEM_PRIORITIES.get(name)
    if value is None:
        return f"{name} is not a known system priority class"
    if priority.get("value", 0) != value:
        return f"value of {name} PriorityClass must be {value}"
    return f"globalDefault of {name} PriorityClass must be false" if priority.get("globalDefault") else ""


def _validate_value(priority: Json) -> list[FieldError]:
    name = priority["metadata"].get("name") or ""
    if name.startswith(SYSTEM_PREFIX):
        if why := _unknown_system_class(name, priority):
            reserved = (
                f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
            )
            return [forbidden_value("metadata.name", reserved)]
    elif priority.get("value", 0) > USER_PRIORITY_MAX:
        return [forbidden_value("value", f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}")]
    return []


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if new.get("value", 0) != old.get("value", 0):
        errors.append(forbidden_value("value", "may not be changed in an update."))
    return errors + validate_immutable(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")


def _validate_admission(new: Json, old: Json | None, cluster: Cluster) -> None:
    """At most one global default. Raises: StatusError 403."""
    name = new["metadata"]["name"]
    if not new.get("globalDefault") or (standing := default_class(cluster)) is None:
        return
    other = standing["metadata"]["name"]
    if old is None or other != name:
        why = f"PriorityClass {other} is already marked as default. Only one default can exist"
        raise forbidden(PRIORITYCLASSES, name, why)


def _print(priority: Json, age: Age) -> list[Any]:
    metadata = priority["metadata"]
    return [
        metadata["name"],
        priority.get("value", 0),
        bool(priority.get("globalDefault")),
        age(metadata.get("creationTimestamp")),
        priority.get("preemptionPolicy") or "",
    ]


PRIORITYCLASSES: Final = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass", False,
    short_names=("pc",),
    selectable=NAMESPACED,
    default=defaults({"preemptionPolicy": PREEMPT_LOWER, "value": 0}),
    prepare_create=first_generation,
    validate=rules(
        lambda priority: validate_object_meta(priority["metadata"], False, is_dns1123_subdomain),
        _validate_value,
        at("preemptionPolicy", not_empty, one_of("", *POLICIES)),
    ),
    validate_update={"": _validate_update},
    validate_admission=_validate_admission,
    sees=(("scheduling.k8s.io", "v1", "priorityclasses"),),
    is_default=lambda priority: bool(priority.get("globalDefault")),
    printer=Printer(
        (
            NAME,
            column("Value", "How much its pods matter.", 0, "integer"),
            column("Global-Default", "Whether pods that name no class have this one.", 0, "boolean"),
            AGE,
            column("PreemptionPolicy", "Whether its pods may preempt others."),
        ),
        _print,
    ),
)  # fmt: skip


def default_class(cluster: Cluster) -> Json | None:
    """The default class; of several, the one with the lowest value."""
    return min(cluster.defaults(PRIORITYCLASSES), key=lambda each: int(each.get("value", 0)), default=None)


KINDS: Final[tuple[Kind, ...]] = (PRIORITYCLASSES,)
