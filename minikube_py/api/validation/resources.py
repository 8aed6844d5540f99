"""Names and amounts of resources, and the requests and limits of containers and pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from minikube_py.api.errors import (
    NOT_FOUND,
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.memo import remembered
from minikube_py.api.meta import is_dns1123_label, is_qualified_name
from minikube_py.api.pod_resources import of_containers
from minikube_py.fields import quantity

NEGATIVE: Final = "must be greater than or equal to 0"
_CONTAINER_RESOURCES: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_STANDARD: Final = _CONTAINER_RESOURCES | {
    "requests.cpu", "requests.memory", "requests.ephemeral-storage", "limits.cpu", "limits.memory",
    "limits.ephemeral-storage", "pods", "resourcequotas", "services", "replicationcontrollers", "secrets",
    "configmaps", "persistentvolumeclaims", "storage", "requests.storage", "services.nodeports",
    "services.loadbalancers",
}  # fmt: skip
_INTEGER: Final = frozenset((
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
))  # fmt: skip
_ORDINARY: Final = frozenset(("cpu", "memory"))


def is_hugepages(name: str) -> bool:
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    return not (is_native(name) or name.startswith("requests.") or is_qualified_name(f"requests.{name}"))


def is_overcommit_allowed(name: str) -> bool:
    return is_native(name) and not is_hugepages(name)


def is_integer(name: str) -> bool:
    return name in _INTEGER or is_extended(name)


@remembered(1024)
def _resource_name_messages(name: str) -> tuple[str, ...]:
    messages = is_qualified_name(name)
    if messages:
        return messages
    standard = name in _STANDARD or is_hugepages(name) or name.startswith("requests.hugepages-")
    if "/" not in name and not standard:
        return ("must be a standard resource type or fully qualified",)
    return ()


@remembered(1024)
def _container_name_messages(name: str) -> tuple[str, ...]:
    messages = _resource_name_messages(name)
    if "/" not in name:
        if name not in _CONTAINER_RESOURCES and not is_hugepages(name):
            messages = (*messages, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        messages = (*messages, "doesn't follow extended resource name standard")
    return messages


def validate_resource_name(name: str, path: str, container: bool) -> list[FieldError]:
    """`container`: a resource that containers may ask for; otherwise any."""
    messages = _container_name_messages(name) if container else _resource_name_messages(name)
    return [invalid_value(path, name, message) for message in messages]


def _pod_level_name(name: str, path: str) -> list[FieldError]:
    if messages := _resource_name_messages(name):
        return [invalid_value(path, name, message) for message in messages]
    if name not in _ORDINARY and not is_hugepages(name):
        return [not_supported(path, name, ("cpu", "hugepages-", "memory"))]
    return []


@remembered(8192)
def _amount(text: str) -> tuple[bool, bool]:
    """Whether a quantity is negative, and whether it is whole."""
    parsed = quantity.parse(text)
    return parsed.unscaled < 0, parsed.milli_value() % 1000 == 0


def validate_amount(name: str, text: str, path: str) -> list[FieldError]:
    negative, whole = _amount(text)
    errors: list[FieldError] = []
    if negative:
        errors.append(invalid_value(path, text, NEGATIVE))
    if not whole and is_integer(name):
        errors.append(invalid_value(path, text, "must be an integer"))
    return errors


def _page_error(name: str, text: str, path: str) -> list[FieldError]:
    """Huge pages come whole."""
    try:
        page_bytes = quantity.parse(name.removeprefix("hugepages-")).value()
    except quantity.QuantityError as wrong:
        return [invalid_value(path, text, str(wrong))]
    if page_bytes <= 0 or quantity.parse(text).value() % page_bytes:
        return [invalid_value(path, text, f"{text} is not positive integer multiple of {name}")]
    return []


def validate_requirements(
    resources: Json, path: str, claim_names: Iterable[str] = (), *, pod_level: bool = False
) -> list[FieldError]:
    """Requests and limits of a container, or of a pod."""
    errors: list[FieldError] = []
    limits: Json = resources.get("limits") or {}
    requests: Json = resources.get("requests") or {}
    for name, text in limits.items():
        if name not in _ORDINARY or _amount(text)[0]:
            errors += _validate_one(name, text, f"{path}.limits[{name}]", pod_level)
    for name, text in requests.items():
        ordinary = name in _ORDINARY
        if not ordinary or _amount(text)[0]:
            at = f"{path}.requests[{name}]"
            errors += _validate_name_and_amount(name, text, at, pod_level)
        limit = limits.get(name)
        if limit is not None:
            if limit != text:
                errors += _validate_against_limit(name, text, limit, f"{path}.requests")
        elif not ordinary and not is_overcommit_allowed(name):
            errors.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        if not ordinary and is_hugepages(name):
            errors += _page_error(name, text, f"{path}.requests[{name}]")
    if _ORDINARY.isdisjoint(limits) and _ORDINARY.isdisjoint(requests) and any(map(is_hugepages, [*limits, *requests])):
        errors.append(forbidden_value(path, "HugePages require cpu or memory"))
    if claims := resources.get("claims"):
        errors += _validate_claims(claims, tuple(claim_names), f"{path}.claims")
    return errors


def validate_pod_level(spec: Json, path: str) -> list[FieldError]:
    """Pod-level resources must cover those of the containers."""
    errors: list[FieldError] = []
    own, pod = spec["resources"], {"spec": spec}
    for which, asked in (("requests", None), ("limits", is_hugepages)):
        whole = own.get(which) or {}
        for name, amount in of_containers(pod, which).items() if whole else ():
            if name in whole and (asked is None or asked(name)) and amount.compare(quantity.parse(whole[name])) > 0:
                detail = f"must be greater than or equal to aggregate container {which} of {amount}"
                errors.append(invalid_value(f"{path}.{which}[{name}]", whole[name], detail))
    most = own.get("limits") or {}
    for i, container in enumerate(spec.get("containers") or () if most else ()):
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in most and quantity.parse(text).compare(quantity.parse(most[name])) > 0:
                at = f"{path}.containers[{i}][{name}].limits"
                errors.append(invalid_value(at, text, f"must be less than or equal to pod limits of {most[name]}"))
    return errors


def _validate_name_and_amount(name: str, text: str, path: str, pod_level: bool) -> list[FieldError]:
    if pod_level:
        errors = _pod_level_name(name, path)
    else:
        errors = [invalid_value(path, name, message) for message in _container_name_messages(name)]
    return errors + validate_amount(name, text, path)


def _validate_one(name: str, text: str, path: str, pod_level: bool) -> list[FieldError]:
    errors = _validate_name_and_amount(name, text, path, pod_level)
    if is_hugepages(name):
        errors += _page_error(name, text, path)
    return errors


def _validate_against_limit(name: str, text: str, limit: str, path: str) -> list[FieldError]:
    order = quantity.parse(text).compare(quantity.parse(limit))
    if order and not is_overcommit_allowed(name):
        return [invalid_value(path, text, f"must be equal to {name} limit of {limit}")]
    if order > 0:
        return [invalid_value(path, text, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _validate_claims(claims: list[Json], known: tuple[str, ...], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for i, claim in enumerate(claims):
        at, name, request = f"{path}[{i}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errors.append(required(at))
            continue
        key = f"{name}/{request}" if request else name
        if name in names:
            errors.append(duplicate(at, name))
        else:
            if request:
                errors += [invalid_value(f"{at}.request", request, m) for m in is_dns1123_label(request)]
            if key in names:
                errors.append(duplicate(at, key))
            elif not request:
                errors += [duplicate(at, name) for other in sorted(names) if other.partition("/")[0] == name]
            names.add(key)
        if name not in known:
            listed = f": {', '.join(sorted(set(known)))}" if known else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
            errors.append(FieldError(NOT_FOUND, at, name, detail))
    return errors
