"""A pod's quota usage and scopes.

Source: `pkg/quota/v1/evaluator/core/pods.go`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from minikube_py.api.errors import Json
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.pod_resources import given, is_pod_level, limits_of, qos_class, requests_of
from minikube_py.api.quota.amounts import ONE, Amounts, read
from minikube_py.api.validation.resources import is_extended, is_hugepages, is_native
from minikube_py.fields.quantity import Quantity

COUNT: Final = "count/pods"
BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_NAMES: Final = frozenset((
    COUNT, "pods", *_PLAIN, *(f"requests.{name}" for name in _PLAIN), *(f"limits.{name}" for name in _PLAIN),
))  # fmt: skip
_NEEDED: Final = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
"""Every container must request those that a quota limits."""


def is_extended_request(name: str) -> bool:
    """Whether a quota by this name limits an extended resource."""
    return name.startswith("requests.") and (not is_native(name) or name.startswith(f"requests.{BY_CLASS}"))


def matching(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if name in _NAMES or name.startswith(("hugepages-", "requests.hugepages-")) or is_extended_request(name)
    ]


def is_terminating(pod: Json) -> bool:
    deadline_s = pod["spec"].get("activeDeadlineSeconds")
    return deadline_s is not None and deadline_s >= 0


def changes_scope(new: Json, old: Json) -> bool:
    return is_terminating(new) != is_terminating(old)


def _used(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    used: Amounts = {"pods": ONE}
    for name in _PLAIN:
        if name in requests:
            used[name] = used[f"requests.{name}"] = requests[name]
        if name in limits:
            used[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if is_hugepages(name):
            used[name] = used[f"requests.{name}"] = amount
        elif is_extended(name) or name.startswith(BY_CLASS):
            used[f"requests.{name}"] = amount
    return used


def is_charged(pod: Json, wall_s: float) -> bool:
    """Excludes pods that have ended, or should have: pods of a lost node may be replaced."""
    metadata = pod["metadata"]
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    deletion, grace_s = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return not deletion or grace_s is None or wall_s <= parse_timestamp(deletion) + grace_s


def usage(pod: Json, wall_s: float) -> Amounts:
    if not is_charged(pod, wall_s):
        return {COUNT: ONE}
    return {COUNT: ONE, **_used(requests_of(pod), limits_of(pod))}


def missing(required: Collection[str], pod: Json) -> str:
    """Required requests that containers lack, in upstream's words, or ""."""
    spec, needed = pod["spec"], _NEEDED.intersection(required)
    if any(is_pod_level(name) for which in ("requests", "limits") for name in given(spec, which)):
        return ""
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        used = _used(read(given(container, "requests")), read(given(container, "limits")))
        for name in sorted(needed - used.keys()):
            lacking.setdefault(name, set()).add(container.get("name") or "")
    return "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))


def _crosses_namespaces(pod: Json) -> bool:
    affinity = pod["spec"].get("affinity") or {}
    for which in ("podAffinity", "podAntiAffinity"):
        own = affinity.get(which) or {}
        terms = list(own.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = own.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [weighted.get("podAffinityTerm") or {} for weighted in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def _is_best_effort(pod: Json) -> bool:
    return ((pod.get("status") or {}).get("qosClass") or qos_class(pod["spec"])) == "BestEffort"


def is_in(scope: str, operator: str, values: Collection[str], pod: Json) -> bool:
    if scope == "PriorityClass":
        name = pod["spec"].get("priorityClassName") or ""
        return selects(operator, values, [name] if name else [])
    if scope == "CrossNamespacePodAffinity":
        return _crosses_namespaces(pod)
    if scope in ("Terminating", "NotTerminating"):
        return is_terminating(pod) == (scope == "Terminating")
    return scope in ("BestEffort", "NotBestEffort") and _is_best_effort(pod) == (scope == "BestEffort")


def selects(operator: str, values: Collection[str], names: Collection[str]) -> bool:
    """Whether a requirement selects what has one of these names, or none."""
    if operator == "Exists":
        return bool(names)
    if operator == "DoesNotExist":
        return not names
    return any((name in values) == (operator == "In") for name in names) if names else operator == "NotIn"
