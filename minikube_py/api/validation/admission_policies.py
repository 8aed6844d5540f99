"""Admission policies and their bindings: what they may say.

Source: `pkg/apis/admissionregistration/validation/validation.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from minikube_py.api.admission_expressions import validate_conditions
from minikube_py.api.admission_policies import PATCHES, Compiler
from minikube_py.api.custom.paths import BadPath, steps_of
from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import (
    is_dns1035_label,
    is_dns1123_subdomain,
    is_path_segment,
    is_qualified_name,
    validate_object_meta,
)
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.conditions import validate_conditions as validate_status_conditions
from minikube_py.cel.environment import Expression
from minikube_py.cel.syntax import RESERVED

POLICIES: Final = ("Fail", "Ignore")
MATCHES: Final = ("Equivalent", "Exact")
ACTIONS: Final = ("Audit", "Deny", "Warn")
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
ANNOTATIONS_MAX: Final = 20
ANNOTATION_BYTES_MAX: Final = 5 * 1024
_IDENTIFIER: Final = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_BOTH: Final = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the API response and "
    "headers serves no purpose)"
)
_EXCLUSIVE: Final = "name and selector are mutually exclusive"
RuleCheck = Callable[[Json, str], list[FieldError]]


_MUTATED: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_REINVOCATIONS: Final = ("IfNeeded", "Never")


def validate_policy(policy: Json, old: Json | None, check_rule: RuleCheck) -> list[FieldError]:
    spec, path = policy.get("spec") or {}, "spec"
    errors = validate_object_meta(policy["metadata"], False, is_dns1123_subdomain)
    errors += validate_head(spec, (old or {}).get("spec"), path, check_rule)
    compiler = Compiler(spec.get("paramKind") is not None, bool(spec.get("variables")), {})
    for i, each in enumerate(spec.get("variables") or ()):
        errors += validate_variable(compiler, each, f"{path}.variables[{i}]")
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        why = "validations or auditAnnotations must contain at least one item"
        return [*errors, required(f"{path}.validations", why), required(f"{path}.auditAnnotations", why)]
    for i, each in enumerate(validations):
        errors += _validate_validation(compiler, each, f"{path}.validations[{i}]")
    if len(annotations) > ANNOTATIONS_MAX:
        why = f"must not have more than {ANNOTATIONS_MAX} auditAnnotations"
        internal = {"Key": "key", "ValueExpression": "valueExpression"}
        shown = [{name: each.get(field) or "" for name, field in internal.items()} for each in annotations]
        errors.append(invalid_value(f"{path}.auditAnnotations", shown, why))
    keys = set()
    for i, each in enumerate(annotations):
        at, key = f"{path}.auditAnnotations[{i}]", each.get("key") or ""
        errors += _validate_annotation(compiler, policy["metadata"].get("name") or "", each, at)
        if key in keys:
            errors.append(duplicate(f"{at}.key", key))
        keys.add(key)
    return errors


def validate_mutating_policy(policy: Json, old: Json | None, check_rule: RuleCheck) -> list[FieldError]:
    spec, path = policy.get("spec") or {}, "spec"
    errors = validate_object_meta(policy["metadata"], False, is_dns1123_subdomain)
    errors += validate_head(spec, (old or {}).get("spec"), path, check_rule, _MUTATED)
    compiler = Compiler(spec.get("paramKind") is not None, True, {})
    for i, each in enumerate(spec.get("variables") or ()):
        errors += validate_variable(compiler, each, f"{path}.variables[{i}]")
    mutations, again = spec.get("mutations") or (), spec.get("reinvocationPolicy") or ""
    if not mutations:
        errors.append(required(f"{path}.mutations", "mutations must contain at least one item"))
    for i, each in enumerate(mutations):
        errors += _validate_mutation(compiler, each, f"{path}.mutations[{i}]")
    if not again:
        errors.append(required(f"{path}.reinvocationPolicy"))
    elif again not in _REINVOCATIONS:
        errors.append(not_supported(f"{path}.reinvocationPolicy", again, _REINVOCATIONS))
    return errors


def _validate_mutation(compiler: Compiler, each: Json, path: str) -> list[FieldError]:
    given, fields = each.get("patchType") or "", {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    if not given:
        return [required(f"{path}.patchType")]
    if given not in PATCHES:
        return [not_supported(f"{path}.patchType", given, PATCHES)]
    field, other = fields.pop(given), next(iter(fields.values()))
    at, when, errors = f"{path}.{field}", f"specified when patchType is {given}", []
    if each.get(field) is None:
        errors.append(required(at, f"must be {when}"))
    else:
        expression = (each[field].get("expression") or "").strip()
        found = compiler.mutation(given, expression) if expression else ""
        errors += _compiles(found, f"{at}.expression", expression) if expression else [required(f"{at}.expression")]
    if each.get(other) is not None:
        errors.append(invalid_value(f"{path}.{other}", f"{{{other}}}", f"must not be {when}"))
    return errors


def _validate_operations(resources: Json, allowed: Sequence[str], path: str) -> list[FieldError]:
    given = [each for rule in resources.get("resourceRules") or () for each in rule.get("operations") or ()]
    return [not_supported(f"{path}.resourceRules.operations", each, allowed) for each in given if each not in allowed]


def validate_head(
    spec: Json, old: Json | None, path: str, check_rule: RuleCheck, operations: Sequence[str] = ()
) -> list[FieldError]:
    """What both kinds of policies begin with. `operations`: the only ones, where not all are allowed."""
    errors, policy, kind = [], spec.get("failurePolicy"), spec.get("paramKind")
    if policy is None:
        errors.append(required(f"{path}.failurePolicy"))
    elif policy not in POLICIES:
        errors.append(not_supported(f"{path}.failurePolicy", policy, POLICIES))
    if kind is not None:
        errors += _validate_param_kind(kind, f"{path}.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        errors.append(required(f"{path}.matchConstraints"))
    else:
        errors += validate_resources(constraints, f"{path}.matchConstraints", check_rule)
        if not constraints.get("resourceRules"):
            errors.append(required(f"{path}.matchConstraints.resourceRules"))
        errors += _validate_operations(constraints, operations, f"{path}.matchConstraints") if operations else []
    conditions = spec.get("matchConditions") or []
    if old is None or old.get("paramKind") != kind or (old.get("matchConditions") or []) != conditions:
        errors += validate_conditions(conditions, f"{path}.matchConditions", kind is not None)
    return errors


def _validate_param_kind(given: Json, path: str) -> list[FieldError]:
    errors, text, kind = [], given.get("apiVersion") or "", given.get("kind") or ""
    at = f"{path}.apiVersion"
    group, _, version = text.rpartition("/")
    if not text:
        errors.append(required(at))
    elif text.count("/") > 1:
        errors.append(invalid_value(at, text, f"unexpected GroupVersion string: {text}"))
    else:
        if group and (messages := is_dns1123_subdomain(group)):
            errors.append(invalid_value(at, group, ",".join(messages)))
        if not version:
            errors.append(invalid_value(at, text, "version must be specified"))
        elif messages := is_dns1035_label(version):
            errors.append(invalid_value(at, version, ",".join(messages)))
    if not kind:
        errors.append(required(f"{path}.kind"))
    elif messages := is_dns1035_label(kind.lower()):
        why = f"may have mixed case, but should otherwise match: {','.join(messages)}"
        errors.append(invalid_value(f"{path}.kind", kind, why))
    return errors


def validate_resources(given: Json, path: str, check_rule: RuleCheck) -> list[FieldError]:
    errors, matching = [], given.get("matchPolicy")
    if matching is None:
        errors.append(required(f"{path}.matchPolicy"))
    elif matching not in MATCHES:
        errors.append(not_supported(f"{path}.matchPolicy", matching, MATCHES))
    for name in ("namespaceSelector", "objectSelector"):
        if given.get(name) is None:
            errors.append(required(f"{path}.{name}"))
        else:
            errors += validate_label_selector(given[name], f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(given.get(name) or ()):
            errors += _validate_named(rule, f"{path}.{name}[{i}]") + check_rule(rule, f"{path}.{name}[{i}]")
    return errors


def _validate_named(rule: Json, path: str) -> list[FieldError]:
    errors, names = [], rule.get("resourceNames") or ()
    for i, name in enumerate(names):
        at = f"{path}.resourceNames[{i}]"
        errors += [invalid_value(at, name, message) for message in is_path_segment(name)]
        if name in names[:i]:
            errors.append(duplicate(at, name))
    return errors


def _compiles(found: Expression | str, path: str, text: str) -> list[FieldError]:
    return [invalid_value(path, text, found)] if isinstance(found, str) else []


def validate_variable(compiler: Compiler, each: Json, path: str) -> list[FieldError]:
    errors, name, expression = [], each.get("name") or "", each.get("expression") or ""
    if not name.strip():
        errors.append(required(f"{path}.name", "name is not specified"))
    elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
        errors.append(invalid_value(f"{path}.name", name, "must be a valid CEL identifier"))
    if not expression.strip():
        return [*errors, required(f"{path}.expression", "expression is not specified")]
    return errors + _compiles(compiler.declare(name, expression), f"{path}.expression", expression)


def _validate_validation(compiler: Compiler, each: Json, path: str) -> list[FieldError]:
    errors, expression = [], each.get("expression") or ""
    if not expression.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        errors += _compiles(compiler.validation(expression), f"{path}.expression", expression)
    told, message = each.get("messageExpression") or "", each.get("message") or ""
    if told.strip():
        errors += _compiles(compiler.message(told), f"{path}.messageExpression", told)
    elif told:
        errors.append(invalid_value(f"{path}.messageExpression", told, "must be non-empty if specified"))
    if message and not message.strip():
        errors.append(invalid_value(f"{path}.message", message, "must be non-empty if specified"))
    elif re.search("[\n\r]", message.strip()):
        errors.append(invalid_value(f"{path}.message", message, "must not contain line breaks"))
    if each.get("reason") not in (None, *REASONS):
        errors.append(not_supported(f"{path}.reason", each["reason"], REASONS))
    return errors


def _validate_annotation(compiler: Compiler, name: str, each: Json, path: str) -> list[FieldError]:
    errors, key, expression = [], each.get("key") or "", each.get("valueExpression") or ""
    at, trimmed = f"{path}.valueExpression", expression.strip()
    if name:
        given = f"{name}/{key}"
        errors += [invalid_value(f"{path}.key", given, message) for message in is_qualified_name(given)]
    else:
        errors.append(invalid_value(f"{path}.key", key, "requires metadata.name be non-empty"))
    if not trimmed:
        return [*errors, required(at, "valueExpression is not specified")]
    if len(trimmed.encode()) > ANNOTATION_BYTES_MAX:
        return [*errors, required(at, f"must not exceed {ANNOTATION_BYTES_MAX} bytes in length")]
    return errors + _compiles(compiler.annotation(trimmed), at, expression)


def validate_binding(binding: Json, actions: bool, check_rule: RuleCheck) -> list[FieldError]:
    """`actions`: it says what becomes of a denial."""
    spec, path = binding.get("spec") or {}, "spec"
    errors = validate_object_meta(binding["metadata"], False, is_dns1123_subdomain)
    name, ref, resources = spec.get("policyName") or "", spec.get("paramRef"), spec.get("matchResources")
    if not name:
        errors.append(required(f"{path}.policyName"))
    else:
        errors += [invalid_value(f"{path}.policyName", name, message) for message in is_dns1123_subdomain(name)]
    errors += _validate_ref(ref, f"{path}.paramRef") if ref is not None else []
    if resources is not None:
        errors += validate_resources(resources, f"{path}.matchResources", check_rule)
        errors += _validate_operations(resources, _MUTATED, f"{path}.matchResources") if not actions else []
    return errors + (_validate_actions(spec.get("validationActions") or (), path) if actions else [])


def _validate_actions(given: Sequence[str], path: str) -> list[FieldError]:
    errors, at = [], f"{path}.validationActions"
    for i, action in enumerate(given):
        if action not in ACTIONS:
            errors.append(not_supported(f"{at}[{i}]", action, ACTIONS))
        if action in given[:i]:
            errors.append(duplicate(f"{at}[{i}]", action))
    if "Deny" in given and "Warn" in given:
        errors.append(invalid_value(at, given, _BOTH))
    return errors if given else [required(at, "at least one validation action is required")]


def _validate_ref(ref: Json, path: str) -> list[FieldError]:
    errors, name, selector = [], ref.get("name") or "", ref.get("selector")
    if name:
        errors += [invalid_value(f"{path}.name", name, message) for message in is_path_segment(name)]
        errors += [forbidden_value(f"{path}.name", _EXCLUSIVE)] if selector is not None else []
    if selector is not None:
        errors += validate_label_selector(selector, f"{path}.selector")
        errors += [forbidden_value(f"{path}.selector", _EXCLUSIVE)] if name else []
    if not name and selector is None:
        errors.append(required(path, "one of name or selector must be specified"))
    action = ref.get("parameterNotFoundAction")
    if not action:
        errors.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Allow", "Deny"):
        errors.append(not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))
    return errors


def validate_policy_status(new: Json, old: Json) -> list[FieldError]:
    status, path = new.get("status") or {}, "status"
    errors = []
    checking = status.get("typeChecking") or {}
    for i, each in enumerate(checking.get("expressionWarnings") or ()):
        at = f"{path}.typeChecking.expressionWarnings[{i}]"
        if not each.get("warning"):
            errors.append(required(f"{at}.warning"))
        ref = (each.get("fieldRef") or "").strip()
        if not ref:
            errors.append(required(f"{at}.fieldRef"))
            continue
        try:
            steps_of(ref if ref[0] in ".[" else f".{ref}")
        except BadPath as error:
            errors.append(invalid_value(f"{at}.fieldRef", ref, f"invalid JSONPath: {error}"))
    return errors + validate_status_conditions(status.get("conditions"), f"{path}.conditions")
