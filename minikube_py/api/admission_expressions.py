"""CEL expressions of admission: conditions and policies over object, old object, request and namespace.

Source: apiserver `pkg/admission/plugin/cel/compile.go`, `pkg/admission/plugin/webhook/matchconditions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from minikube_py.api.authorizer_checks import AUTHORIZER_FUNCTIONS
from minikube_py.api.errors import FieldError, Json, duplicate, invalid_value, required, too_many
from minikube_py.api.meta import is_qualified_name
from minikube_py.api.named_formats import FORMATS
from minikube_py.cel.environment import Environment, Expression, compile
from minikube_py.cel.syntax import Invalid
from minikube_py.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of, parse_type, struct
from minikube_py.cel.values import EvaluationError

CALL_COST_MAX: Final = 1_000_000
CONDITIONS_COST_MAX: Final = 2_500_000
CONDITIONS_MAX: Final = 64
_TEXTS: Final = map_of(STRING, STRING)
_GO_NAMES: Final = {
    "any": "google.protobuf.Any", "duration": "google.protobuf.Duration", "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
}  # fmt: skip


def _structs(prefix: str, tree: Mapping[str, Mapping[str, Type]]) -> dict[str, Mapping[str, Type]]:
    return {f"{prefix}{name}": fields for name, fields in tree.items()}


FIELDS: Final = _structs("kubernetes.", {
    "GroupVersionKind": dict.fromkeys(("group", "version", "kind"), STRING),
    "GroupVersionResource": dict.fromkeys(("group", "version", "resource"), STRING),
    "UserInfo": {
        "username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING)),
    },
    "AdmissionRequest": {
        "kind": struct("kubernetes.GroupVersionKind"), "resource": struct("kubernetes.GroupVersionResource"),
        "subResource": STRING, "requestKind": struct("kubernetes.GroupVersionKind"),
        "requestResource": struct("kubernetes.GroupVersionResource"), "requestSubResource": STRING,
        "name": STRING, "namespace": STRING, "operation": STRING, "userInfo": struct("kubernetes.UserInfo"),
        "dryRun": BOOL, "options": DYN,
    },
    "NamespaceSpec": {"finalizers": list_of(STRING)},
    "NamespaceCondition": {
        "status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING,
    },
    "NamespaceStatus": {"conditions": list_of(struct("kubernetes.NamespaceCondition")), "phase": STRING},
    "NamespaceMetadata": {
        "name": STRING, "generateName": STRING, "namespace": STRING, "labels": _TEXTS, "annotations": _TEXTS,
        "UID": STRING, "creationTimestamp": TIMESTAMP, "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP, "generation": INT, "resourceVersion": STRING, "finalizers": list_of(STRING),
    },
    "Namespace": {
        "metadata": struct("kubernetes.NamespaceMetadata"), "spec": struct("kubernetes.NamespaceSpec"),
        "status": struct("kubernetes.NamespaceStatus"),
    },
})  # fmt: skip
VARIABLES: Final[Mapping[str, Type]] = {
    "object": DYN,
    "oldObject": DYN,
    "namespaceObject": struct("kubernetes.Namespace"),
    "request": struct("kubernetes.AdmissionRequest"),
}
AUTHORIZER: Final[Mapping[str, Type]] = {
    "authorizer": parse_type("Authorizer"),
    "authorizer.requestResource": parse_type("ResourceCheck"),
}
FUNCTIONS: Final = {**FORMATS, **AUTHORIZER_FUNCTIONS}
CONDITION: Final = Environment({**VARIABLES, **AUTHORIZER}, FIELDS, functions=FUNCTIONS)
CONDITION_WITH_PARAMS: Final = Environment({**VARIABLES, **AUTHORIZER, "params": DYN}, FIELDS, functions=FUNCTIONS)


@lru_cache(1024)
def condition(expression: str, params: bool = False) -> Expression | str:
    """The compiled condition, or why it is invalid."""
    return compiled(expression, CONDITION_WITH_PARAMS if params else CONDITION, (BOOL,))


def compiled(expression: str, environment: Environment, wanted: Sequence[Type]) -> Expression | str:
    """Requires one of the given types, if any."""
    try:
        found = compile(expression, environment)
    except Invalid as error:
        return f"compilation failed: {error}"
    if wanted and found.type not in wanted:
        given, kinds = _go_text(found.type), [*map(_go_text, wanted)]
        what = kinds[0] if len(kinds) == 1 else f"one of [{' '.join(kinds)}]"
        return f"must evaluate to {what} but got {given}"
    return found if found.unfit is None else f"program instantiation failed: {found.unfit}"


def _go_text(type_: Type) -> str:
    """A type as Go prints it; the checker's names are shorter."""
    name = _GO_NAMES.get(type_.kind, type_.name)
    return f"{name}({', '.join(map(_go_text, type_.params))})" if type_.params else name


def validate_conditions(conditions: Sequence[Json], path: str, params: bool = False) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(conditions) > CONDITIONS_MAX:
        errors.append(too_many(path, len(conditions), CONDITIONS_MAX))
    names = set()
    for i, each in enumerate(conditions):
        errors += validate_condition(each, f"{path}[{i}]", params)
        name = each.get("name") or ""
        if name and name in names:
            errors.append(duplicate(f"{path}[{i}].name", name))
        names.add(name)
    return errors


def validate_condition(each: Json, path: str, params: bool = False) -> list[FieldError]:
    errors = []
    expression, name = (each.get("expression") or "").strip(), each.get("name") or ""
    if not expression:
        errors.append(required(f"{path}.expression"))
    elif isinstance(wrong := condition(expression, params), str):
        errors.append(invalid_value(f"{path}.expression", expression, wrong))
    if not name:
        return [*errors, required(f"{path}.name")]
    return errors + [invalid_value(f"{path}.name", name, message) for message in is_qualified_name(name)]


class Matched(NamedTuple):
    """Whether all conditions hold. `error`: an evaluation error that rejects the request."""

    holds: bool
    error: str = ""
    failed: str = ""
    """The failed condition."""


def match(conditions: Sequence[Json], bindings: Mapping[str, object], fails: bool) -> Matched:
    """`fails`: an error rejects the request instead of skipping the policy or webhook."""
    left, errors = CONDITIONS_COST_MAX, []
    for each in conditions:
        found = condition(each["expression"].strip(), "params" in bindings)
        if isinstance(found, str):
            errors.append(found)
            continue
        value, cost = found.outcome(bindings, min(left, CALL_COST_MAX))
        left -= cost
        if type(value) is EvaluationError:
            if left <= 0:
                why = "validation failed due to running out of cost budget, no further validation rules will be run"
                return Matched(False, why if fails else "")
            errors.append(f"expression '{found.text}' resulted in error: {value}")
        elif value is False:
            return Matched(False, "", each.get("name") or "")
    if not errors:
        return Matched(True)
    distinct = list(dict.fromkeys(errors))
    told = distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
    return Matched(False, told if fails else "")
