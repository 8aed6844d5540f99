"""Arguments of upstream's plugins: defaults, and validation with upstream's messages.

Sources: pkg/scheduler/apis/config/v1/defaults.go and pkg/scheduler/apis/config/validation/validation_pluginargs.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from minikube_py.api.errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import is_qualified_name
from minikube_py.api.values import duration_ns
from minikube_py.scheduler.selector_terms import term_errors

Args = dict[str, Any]
Errors = list[FieldError]
Check = Callable[[Args, str], Errors]

STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_RESOURCES: Final = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def with_defaults(plugin: str, given: Mapping[str, Any]) -> Args:
    """`given` with upstream's defaults filled in; unknown plugins have no defaults."""
    args = deepcopy(dict(given))
    for field, value in _DEFAULTS.get(plugin, {}).items():
        if args.get(field) is None:
            args[field] = value
    if plugin == "NodeResourcesBalancedAllocation":
        args["resources"] = _weighed(args.get("resources"))
    elif plugin == "NodeResourcesFit":
        strategy = args.setdefault("scoringStrategy", {"type": "LeastAllocated"})
        strategy["resources"] = _weighed(strategy.get("resources"))
    elif plugin == "PodTopologySpread":
        args["defaultingType"] = args.get("defaultingType") or "System"
    return args


_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
    "DynamicResources": {"filterTimeout": "10s", "bindingTimeout": "10m0s"},
    "InterPodAffinity": {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False},
    "VolumeBinding": {"bindTimeoutSeconds": 600},
}


def _weighed(resources: Sequence[Args] | None) -> list[Args]:
    return [{**each, "weight": each.get("weight") or 1} for each in resources or _RESOURCES]


def validate(plugin: str, args: Args, path: str) -> Errors:
    """`path`: of the arguments; "" if a plugin validates its own."""
    check = _CHECKS.get(plugin)
    return [] if check is None else check(args, f"{path}." if path else "")


# --- by plugin ------------------------------------------------------------------------------------------------------


def _preemption(args: Args, at: str) -> Errors:
    share, number = args["minCandidateNodesPercentage"], args["minCandidateNodesAbsolute"]
    errors = []
    if not 0 <= share <= 100:
        errors.append(invalid_value(f"{at}minCandidateNodesPercentage", share, "not in valid range [0, 100]"))
    if number < 0:
        errors.append(invalid_value(f"{at}minCandidateNodesAbsolute", number, "not in valid range [0, inf)"))
    if share == number == 0:
        text = "cannot be zero at the same time as"
        errors += [
            invalid_value(f"{at}minCandidateNodesPercentage", 0, f"{text} minCandidateNodesAbsolute"),
            invalid_value(f"{at}minCandidateNodesAbsolute", 0, f"{text} minCandidateNodesPercentage"),
        ]
    return errors


def _pod_affinity(args: Args, at: str) -> Errors:
    weight = args["hardPodAffinityWeight"]
    if 0 <= weight <= 100:
        return []
    return [invalid_value(f"{at}hardPodAffinityWeight", weight, "not in valid range [0, 100]")]


def _balanced(args: Args, at: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for i, resource in enumerate(args["resources"]):
        if resource["name"] in seen:
            errors.append(duplicate(f"{at}resources[{i}].name", resource["name"]))
        seen.add(resource["name"])
        if resource["weight"] != 1:
            errors.append(invalid_value(f"{at}resources[{i}].weight", resource["weight"], "must be 1"))
    return errors


def _volume_binding(args: Args, at: str) -> Errors:
    errors = []
    if args["bindTimeoutSeconds"] < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        errors.append(invalid_value(f"{at}bindTimeoutSeconds", args["bindTimeoutSeconds"], text))
    if args.get("shape") is not None:
        text = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        shape = ",".join(
            f'{{"Utilization":{p.get("utilization", 0)},"Score":{p.get("score", 0)}}}' for p in args["shape"]
        )
        errors.append(invalid_value(f"{at}shape", Verbatim(f"[{shape}]"), text))
    return errors


def _devices(args: Args, at: str) -> Errors:
    errors = []
    for field, least_ns, text in (
        ("filterTimeout", 0, "must be zero or positive"),
        ("bindingTimeout", 10**9, "must be at least 1 second"),
    ):
        if duration_ns(args[field]) < least_ns:
            errors.append(invalid_value(f"{at}{field}", args[field], text))
    return errors


def _label_name(name: str, path: str) -> Errors:
    return [invalid_value(path, name, message) for message in is_qualified_name(name)]


def _fit(args: Args, at: str) -> Errors:
    errors: Errors = []
    for i, name in enumerate(args.get("ignoredResources") or ()):
        errors += _label_name(name, f"{at}ignoredResources[{i}]")
    for i, group in enumerate(args.get("ignoredResourceGroups") or ()):
        path = f"{at}ignoredResourceGroups[{i}]"
        if "/" in group:
            errors.append(invalid_value(path, group, "resource group name can't contain '/'"))
        errors += _label_name(group, path)
    strategy, path = args["scoringStrategy"], f"{at}scoringStrategy"
    kind, ratio = strategy.get("type") or "", strategy.get("requestedToCapacityRatio")
    if kind not in STRATEGIES:
        errors.append(not_supported(f"{path}.type", kind, STRATEGIES))
    for i, resource in enumerate(strategy["resources"]):
        if not 0 < resource["weight"] <= 100:
            text = f"resource weight of {resource['name']} not in valid range (0, 100]"
            errors.append(invalid_value(f"{path}.resources[{i}].weight", resource["weight"], text))
    path += ".requestedToCapacityRatio"
    if kind == "RequestedToCapacityRatio":
        if ratio is None:
            errors.append(required(path, "must be specified when type is RequestedToCapacityRatio"))
        else:
            errors += _shape(ratio.get("shape") or (), f"{path}.shape")
    elif ratio is not None:
        errors.append(forbidden_value(path, "must be nil when type is not RequestedToCapacityRatio"))
    return errors


def _shape(points: Sequence[Args], path: str) -> Errors:
    if not points:
        return [required(path, "at least one point must be specified")]
    errors = []
    pairs = [(point.get("utilization", 0), point.get("score", 0)) for point in points]
    for i in range(1, len(pairs)):
        if pairs[i - 1][0] >= pairs[i][0]:
            text = "values must be sorted in increasing order"
            errors.append(invalid_value(f"{path}[{i}].utilization", pairs[i][0], text))
            break
    for i, (utilization, score) in enumerate(pairs):
        if not 0 <= utilization <= 100:
            errors.append(invalid_value(f"{path}[{i}].utilization", utilization, "not in valid range [0, 100]"))
        if not 0 <= score <= 10:
            errors.append(invalid_value(f"{path}[{i}].score", score, "not in valid range [0, 10]"))
    return errors


def _spread(args: Args, at: str) -> Errors:
    errors: Errors = []
    kind, constraints = args["defaultingType"], args.get("defaultConstraints") or ()
    if kind not in ("System", "List"):
        errors.append(not_supported(f"{at}defaultingType", kind, ("System", "List")))
    elif kind == "System" and constraints:
        errors.append(invalid_value(f"{at}defaultingType", kind, "when .defaultConstraints are not empty"))
    seen: list[tuple[str, str]] = []
    for i, constraint in enumerate(constraints):
        path = f"{at}defaultConstraints[{i}]"
        skew, key, action = (constraint.get(name) for name in ("maxSkew", "topologyKey", "whenUnsatisfiable"))
        if (skew or 0) <= 0:
            errors.append(invalid_value(f"{path}.maxSkew", skew or 0, "not in valid range (0, inf)"))
        if key:
            errors += _label_name(key, f"{path}.topologyKey")
        else:
            errors.append(required(f"{path}.topologyKey", "can not be empty"))
        if not action:
            errors.append(required(f"{path}.whenUnsatisfiable", "can not be empty"))
        elif action not in ("DoNotSchedule", "ScheduleAnyway"):
            errors.append(not_supported(f"{path}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        if constraint.get("labelSelector") is not None:
            text = "constraint must not define a selector, as they deduced for each pod"
            errors.append(forbidden_value(f"{path}.labelSelector", text))
        if (key or "", action or "") in seen:
            errors.append(duplicate(path, f"{{{key or ''}, {action or ''}}}"))
        seen.append((key or "", action or ""))
    return errors


# --- node affinity --------------------------------------------------------------------------------------------------


def _node_affinity(args: Args, at: str) -> Errors:
    affinity = args.get("addedAffinity")
    if affinity is None:
        return []
    errors: Errors = []
    selector = affinity.get(_REQUIRED)
    if selector is not None:
        for i, term in enumerate(selector.get("nodeSelectorTerms") or ()):
            errors += term_errors(term, f"{at}addedAffinity.{_REQUIRED}.nodeSelectorTerms[{i}]")
    for i, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        if preferred.get("weight"):
            errors += term_errors(preferred.get("preference") or {}, f"{at}addedAffinity.{_PREFERRED}[{i}]")
    return errors


_CHECKS: Final[Mapping[str, Check]] = {
    "DefaultPreemption": _preemption,
    "DynamicResources": _devices,
    "InterPodAffinity": _pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeResourcesBalancedAllocation": _balanced,
    "NodeResourcesFit": _fit,
    "PodTopologySpread": _spread,
    "VolumeBinding": _volume_binding,
}
CHECKED_BY_ITSELF: Final = "NodeResourcesFit"
"""Upstream looks at its arguments only when the plugin is made."""
