"""Placement of pods: label selectors, affinities and topology spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain, is_label_value, validate_labels
from minikube_py.api.validation.taints import validate_label_name

_IN: Final = ("In", "NotIn")
_EXISTS: Final = ("Exists", "DoesNotExist")
_NOT_AN_OPERATOR: Final = "not a valid selector operator"
_VALUES_NEEDED: Final = "must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_ONE_VALUE: Final = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"


def validate_label_selector(selector: Json | None, path: str) -> list[FieldError]:
    if not selector:
        return []
    errors = validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{i}]"
        operator, values = expression.get("operator") or "", expression.get("values") or []
        if operator in _IN:
            if not values:
                errors.append(required(f"{at}.values", _VALUES_NEEDED))
        elif operator in _EXISTS:
            if values:
                errors.append(forbidden_value(f"{at}.values", _NO_VALUES))
        else:
            errors.append(invalid_value(f"{at}.operator", operator, _NOT_AN_OPERATOR))
        errors += validate_label_name(expression.get("key") or "", f"{at}.key")
        errors += _validate_values(values, at)
    return errors


def _validate_values(values: Sequence[str], path: str) -> list[FieldError]:
    return [
        invalid_value(f"{path}.values[{i}]", value, message)
        for i, value in enumerate(values)
        for message in is_label_value(value)
    ]


# --- nodes ----------------------------------------------------------------------------------------------------------


def _validate_node_expression(expression: Json, path: str, any_value: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator in _IN:
        if not values:
            errors.append(required(f"{path}.values", _VALUES_NEEDED))
    elif operator in _EXISTS:
        if values:
            errors.append(forbidden_value(f"{path}.values", _NO_VALUES))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{path}.values", detail))
    else:
        errors.append(invalid_value(f"{path}.operator", operator, _NOT_AN_OPERATOR))
    errors += validate_label_name(expression.get("key") or "", f"{path}.key")
    return errors if any_value else errors + _validate_values(values, path)


def _validate_node_field(requirement: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in _IN:
        if len(values) != 1:
            errors.append(required(f"{path}.values", _ONE_VALUE))
    else:
        errors.append(invalid_value(f"{path}.operator", operator, _NOT_AN_OPERATOR))
    if requirement.get("key") != "metadata.name":
        errors.append(invalid_value(f"{path}.key", requirement.get("key") or "", "not a valid field selector key"))
    else:
        for i, value in enumerate(values):
            errors += [invalid_value(f"{path}.values[{i}]", value, m) for m in is_dns1123_subdomain(value)]
    return errors


def _validate_node_term(term: Json, path: str, any_value: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        errors += _validate_node_expression(expression, f"{path}.matchExpressions[{i}]", any_value)
    for i, requirement in enumerate(term.get("matchFields") or ()):
        errors += _validate_node_field(requirement, f"{path}.matchFields[{i}]")
    return errors


def _validate_weight(weight: int, path: str) -> list[FieldError]:
    return [] if 0 < weight <= 100 else [invalid_value(path, weight, "must be in the range 1-100")]


def validate_node_selector(selector: Json, path: str) -> list[FieldError]:
    at, terms = f"{path}.nodeSelectorTerms", selector.get("nodeSelectorTerms") or ()
    if not terms:
        return [required(at, "must have at least one node selector term")]
    return [error for i, term in enumerate(terms) for error in _validate_node_term(term, f"{at}[{i}]", False)]


def _validate_node_affinity(affinity: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    wanted = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if wanted is not None:
        errors += validate_node_selector(wanted, f"{path}.requiredDuringSchedulingIgnoredDuringExecution")
    for i, preferred in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        at = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}]"
        errors += _validate_weight(preferred.get("weight") or 0, f"{at}.weight")
        # An unsatisfiable preference is harmless, so its values are not validated.
        errors += _validate_node_term(preferred.get("preference") or {}, f"{at}.preference", True)
    return errors


# --- pods -----------------------------------------------------------------------------------------------------------


def _validate_label_keys(keys: Sequence[str], selector: Json | None, path: str) -> list[FieldError]:
    if not keys:
        return []
    if selector is None:
        return [forbidden_value(path, "must not be specified when labelSelector is not set")]
    return [error for i, key in enumerate(keys) for error in validate_label_name(key, f"{path}[{i}]")]


def _validate_match_keys(
    match: Sequence[str], mismatch: Sequence[str], selector: Json | None, path: str
) -> list[FieldError]:
    errors = _validate_label_keys(match, selector, f"{path}.matchLabelKeys")
    errors += _validate_label_keys(mismatch, selector, f"{path}.mismatchLabelKeys")
    if selector is not None:
        seen = set(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key") or ""
            if key in match and key in seen:
                index = len(match) - 1 - list(reversed(match)).index(key)
                detail = "exists in both matchLabelKeys and labelSelector"
                errors.append(invalid_value(f"{path}[{index}]", key, detail))
            seen.add(key)
    for i, key in enumerate(match):
        if key in mismatch:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid_value(f"{path}.matchLabelKeys[{i}]", key, detail))
    return errors


def _validate_pod_term(term: Json, path: str) -> list[FieldError]:
    selector = term.get("labelSelector")
    errors = validate_label_selector(selector, f"{path}.labelSelector")
    errors += validate_label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        errors += [invalid_value(f"{path}.namespace", name, message) for message in is_dns1123_label(name)]
    match, mismatch = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    errors += _validate_match_keys(match, mismatch, selector, path)
    key = term.get("topologyKey") or ""
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    return errors + validate_label_name(key, f"{path}.topologyKey")


def _validate_pod_affinity(affinity: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, term in enumerate(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
        errors += _validate_pod_term(term, f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{i}]")
    for i, weighted in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        at = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{i}]"
        errors += _validate_weight(weighted.get("weight") or 0, f"{at}.weight")
        errors += _validate_pod_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")
    return errors


def validate_affinity(affinity: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if (part := affinity.get("nodeAffinity")) is not None:
        errors += _validate_node_affinity(part, f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        if (part := affinity.get(name)) is not None:
            errors += _validate_pod_affinity(part, f"{path}.{name}")
    return errors


# --- topology spread ------------------------------------------------------------------------------------------------

_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES: Final = ("Honor", "Ignore")
POSITIVE: Final = "must be greater than zero"


def _spread_key(constraint: Json) -> tuple[str, str]:
    return constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""


def validate_topology_spread(constraints: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    last = {_spread_key(constraint): i for i, constraint in enumerate(constraints)}
    for i, constraint in enumerate(constraints):
        at = f"{path}[{i}]"
        get = constraint.get
        skew, key, action = get("maxSkew") or 0, get("topologyKey") or "", get("whenUnsatisfiable") or ""
        if skew <= 0:
            errors.append(invalid_value(f"{at}.maxSkew", skew, POSITIVE))
        if not key:
            errors.append(required(f"{at}.topologyKey", "can not be empty"))
        if action not in _ACTIONS:
            errors.append(not_supported(f"{at}.whenUnsatisfiable", action, _ACTIONS))
        if last[key, action] > i:
            errors.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        if (domains := get("minDomains")) is not None:
            if domains <= 0:
                errors.append(invalid_value(f"{at}.minDomains", domains, POSITIVE))
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errors.append(invalid_value(f"{at}.minDomains", domains, detail))
        errors += [
            not_supported(f"{at}.{name}", policy, _POLICIES)
            for name in ("nodeAffinityPolicy", "nodeTaintsPolicy")
            if (policy := get(name)) is not None and policy not in _POLICIES
        ]
        errors += _validate_match_keys(get("matchLabelKeys") or (), (), get("labelSelector"), at)
        errors += validate_label_selector(get("labelSelector"), f"{at}.labelSelector")
    return errors
