"""ResourceQuota: resource limits of a namespace, and their usage.

`api.quota` computes usage. Source: `pkg/apis/core/validation`, `pkg/registry/core/resourcequota`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_resource_list
from minikube_py.api.errors import FieldError, Json, Verbatim, go_json, invalid_value, required
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.resources import validate_amount, validate_resource_name
from minikube_py.fields import quantity

_COMPUTE: Final = frozenset(("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"))
_STANDARD: Final = _COMPUTE | {
    "ephemeral-storage", "requests.storage", "requests.ephemeral-storage", "limits.ephemeral-storage", "pods",
    "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps",
    "services.nodeports", "services.loadbalancers",
}  # fmt: skip
_PODS: Final = _COMPUTE | {"pods"}
_SCOPES: Final[Mapping[str, frozenset[str]]] = {
    "Terminating": _PODS,
    "NotTerminating": _PODS,
    "BestEffort": frozenset(("pods",)),
    "NotBestEffort": _PODS,
    "PriorityClass": _PODS,
    "CrossNamespacePodAffinity": _PODS,
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
"""The resources that quotas of a scope may limit, among the standard ones."""
_PLAIN: Final = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_PAIRS: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


def _default(obj: Json) -> None:
    for holder, names in ((part(obj, "spec"), ("hard",)), (part(obj, "status"), ("hard", "used"))):
        for name in names:
            if holder.get(name):
                default_resource_list(holder[name])
            else:
                holder.pop(name, None)


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith(("hugepages-", "requests.hugepages-"))


def _validate_amounts(amounts: Mapping[str, str] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name, amount in (amounts or {}).items():
        at = f"{path}[{name}]"
        errors += validate_resource_name(name, at, False)
        if "/" not in name and not _is_standard(name):
            errors.append(invalid_value(at, name, "must be a standard resource for quota"))
        errors += validate_amount(name, amount, at)
    return errors


def _unsuited(scope: str, hard: Mapping[str, str]) -> list[str]:
    return [name for name in hard if scope in _SCOPES and _is_standard(name) and name not in _SCOPES[scope]]


def _conflicts(scopes: list[str], shown: Any) -> list[FieldError]:
    pairs = [pair for pair in _PAIRS if set(pair) <= set(scopes)]
    return [invalid_value("spec.scopes", shown, "conflicting scopes") for _ in pairs]


def _validate_scopes(spec: Json) -> list[FieldError]:
    scopes, errors = spec.get("scopes") or [], []
    shown, path = _shown(scopes), "spec.scopes"
    for scope in scopes:
        if scope not in _SCOPES:
            errors.append(invalid_value(path, shown, "unsupported scope"))
        unsuited = _unsuited(scope, spec.get("hard") or {})
        errors += [invalid_value(path, shown, "unsupported scope applied to resource") for _ in unsuited]
    return errors + _conflicts(scopes, shown)


def _shown(scopes: list[str] | None) -> Verbatim:
    return Verbatim(go_json(scopes) if scopes is not None else "null")


def _selector_shown(selector: Json) -> Verbatim:
    """As upstream prints its internal type."""
    requirements = selector.get("matchExpressions")
    each = [
        {"ScopeName": one.get("scopeName") or "", "Operator": one.get("operator") or "", "Values": one.get("values")}
        for one in requirements or ()
    ]
    return Verbatim(go_json({"MatchExpressions": each if requirements is not None else None}))


def _validate_selector(spec: Json) -> list[FieldError]:
    selector = spec.get("scopeSelector")
    if selector is None:
        return []
    path, errors, scopes = "spec.scopeSelector.matchExpressions", [], []
    for requirement in selector.get("matchExpressions") or ():
        scope, operator = requirement.get("scopeName") or "", requirement.get("operator") or ""
        values = requirement.get("values") or []
        scopes.append(scope)
        if scope not in _SCOPES:
            errors.append(invalid_value(f"{path}.scopeName", scope, "unsupported scope"))
        unsuited, shown = _unsuited(scope, spec.get("hard") or {}), _selector_shown(selector)
        errors += [invalid_value(path, shown, "unsupported scope applied to resource") for _ in unsuited]
        if scope in _PLAIN and operator != "Exists":
            errors.append(invalid_value(f"{path}.operator", operator, _NEEDS_EXISTS))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(required(f"{path}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.append(invalid_value(f"{path}.values", _shown(values), detail))
        else:
            errors.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    return errors + _conflicts(scopes, _shown(spec.get("scopes")))


_NEEDS_EXISTS: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _validate_spec(spec: Json) -> list[FieldError]:
    return _validate_amounts(spec.get("hard"), "spec.hard") + _validate_scopes(spec) + _validate_selector(spec)


def _validate(obj: Json) -> list[FieldError]:
    return validate_object_meta(obj["metadata"], True, is_dns1123_subdomain) + _validate_spec(obj["spec"])


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"]) + _validate_spec(new["spec"])
    scopes = new["spec"].get("scopes")
    if set(scopes or ()) != set(old["spec"].get("scopes") or ()):
        errors.append(invalid_value("spec.scopes", _shown(scopes), "field is immutable"))
    return errors


def _validate_status(new: Json, old: Json) -> list[FieldError]:
    errors, status = validate_object_meta_update(new["metadata"], old["metadata"]), new.get("status") or {}
    for name in ("hard", "used"):
        errors += _validate_amounts(status.get(name), f"status.{name}")
    return errors


def _create(obj: Json) -> None:
    obj["status"] = {}


def _warnings(obj: Json, old: Json | None) -> list[str]:
    hard, found = obj["spec"].get("hard") or {}, []
    for name in ("cpu", "memory", "storage", "ephemeral-storage") if old is None else ():
        request = f"requests.{name}"
        if request not in hard and name in ("cpu", "memory"):
            request = name
        limit = f"limits.{name}"
        if request in hard and limit in hard:
            asked, most = quantity.parse(hard[request]), quantity.parse(hard[limit])
            if asked.compare(most) > 0:
                found.append(f"ResourceQuota {request} ({asked}) should be less than {limit} ({most})")
    return found


def _print(obj: Json, age: Age) -> list[Any]:
    status = obj.get("status") or {}
    used = status.get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name, most in sorted((status.get("hard") or {}).items()):
        (limits if name.startswith("limits.") else requests).append(f"{name}: {used.get(name, '0')}/{most}")
    metadata = obj["metadata"]
    return [metadata["name"], ", ".join(requests), ", ".join(limits), age(metadata.get("creationTimestamp"))]


RESOURCEQUOTAS: Final = Kind(
    "", "v1", "ResourceQuota", "resourcequotas", "resourcequota", True,
    short_names=("quota",),
    subresources=(status_of("ResourceQuota"),),
    selectable=NAMESPACED,
    delete_answer="object",
    default=_default,
    prepare_create=_create,
    validate=_validate,
    validate_update={"": _validate_update, "status": _validate_status},
    warn=_warnings,
    printer=Printer(
        (
            NAME,
            column("Request", "What is limited but limits, as used/hard."),
            column("Limit", "The sums of limits, as used/hard."),
            AGE,
        ),
        _print,
    ),
)  # fmt: skip
