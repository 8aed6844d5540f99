"""The group `policy`: how many pods may be disrupted at a time.

Source: `pkg/apis/policy/validation`, `pkg/registry/policy/poddisruptionbudget`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.meta import begins_with, is_percent
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.rules import at, non_negative, one_of, rules
from minikube_py.api.schema import LABEL_SELECTOR, ordered
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.conditions import validate_conditions
from minikube_py.api.validation.resources import NEGATIVE
from minikube_py.fields.digits import whole_number

GROUP: Final = "policy"
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _default(budget: Json) -> None:
    part(budget, "spec")
    status = part(budget, "status")
    for name in _COUNTS:
        if status.get(name) is None:
            status[name] = 0


def validate_count_or_percent(value: int | str | None, path: str) -> list[FieldError]:
    """A whole number that is not negative, or a percentage up to 100."""
    if value is None:
        return []
    if isinstance(value, int):
        return [invalid_value(path, value, NEGATIVE)] if value < 0 else []
    errors = [invalid_value(path, value, message) for message in is_percent(value)]
    if not errors and whole_number(value[:-1]) > 100:
        errors.append(invalid_value(path, value, "must not be greater than 100%"))
    return errors


def _one_limit(budget: Json) -> list[FieldError]:
    spec = budget["spec"]
    if spec.get("minAvailable") is None or spec.get("maxUnavailable") is None:
        return []
    # As upstream prints its internal type.
    shown = {
        "MinAvailable": spec["minAvailable"],
        "Selector": ordered(spec.get("selector"), LABEL_SELECTOR),
        "MaxUnavailable": spec["maxUnavailable"],
        "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
    }
    return [invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set")]


_validate = rules(
    _one_limit,
    at("spec.minAvailable", validate_count_or_percent),
    at("spec.maxUnavailable", validate_count_or_percent),
    at("spec.selector", validate_label_selector),
    at("spec.unhealthyPodEvictionPolicy", one_of("AlwaysAllow", "IfHealthyBudget")),
)

_validate_status = rules(
    at("status.conditions", validate_conditions),
    *(at(f"status.{name}", non_negative) for name in _COUNTS),
)


def _shown(value: int | str | None) -> str:
    return "N/A" if value is None else str(value)


def _print(budget: Json, age: Age) -> list[Any]:
    metadata, spec, status = budget["metadata"], budget.get("spec") or {}, budget.get("status") or {}
    return [
        metadata["name"],
        _shown(spec.get("minAvailable")),
        _shown(spec.get("maxUnavailable")),
        status.get("disruptionsAllowed") or 0,
        age(metadata.get("creationTimestamp")),
    ]


PODDISRUPTIONBUDGETS: Final = Kind(
    GROUP, "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget", True,
    short_names=("pdb",),
    subresources=(status_of("PodDisruptionBudget"),),
    selectable=NAMESPACED,
    generation=True,
    allow_unconditional_update=False,
    default=_default,
    prepare_create=begins_with(**dict.fromkeys(_COUNTS, 0)),
    validate=_validate,
    checks_metadata=False,
    validate_update={"": lambda new, old: _validate(new), "status": lambda new, old: _validate_status(new)},
    printer=Printer(
        (
            NAME,
            column("Min Available", "How many of its pods must stay available."),
            column("Max Unavailable", "How many of its pods may be unavailable."),
            column("Allowed Disruptions", "How many of its pods may be disrupted now.", 0, "integer"),
            AGE,
        ),
        _print,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (PODDISRUPTIONBUDGETS,)
