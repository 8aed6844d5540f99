"""The group `flowcontrol.apiserver.k8s.io`: flow schemas, priority levels, and those that every cluster has.

This server limits requests in flight, as upstream does with `--enable-priority-and-fairness=false`, and writes of these
objects return a warning. The objects themselves are as upstream's are with it.

Source: `pkg/apis/flowcontrol`, apiserver `pkg/apis/flowcontrol/bootstrap`.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    go_quote,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.meta import begins_with, is_dns1123_label, is_dns1123_subdomain
from minikube_py.api.printing import AGE, NAME, NONE, Age, Printer, column
from minikube_py.api.rules import Check, at, named_by, rules
from minikube_py.api.validation.conditions import validate_conditions
from minikube_py.api.validation.metadata import keep_metadata, validate_object_meta
from minikube_py.api.validation.pod_diff import internal

GROUP: Final = "flowcontrol.apiserver.k8s.io"
AUTO_UPDATE: Final = "apf.kubernetes.io/autoupdate-spec"
DANGLING: Final = "Dangling"
NOT_ENFORCED: Final = "flow schemas and priority levels are kept, but this server does not limit requests by them"
_PRESERVE_ZERO: Final = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
_ALL: Final = ["*"]
_PRECEDENCE: Final = 1000
_PRECEDENCE_MAX: Final = 10_000
_QUEUES_MAX: Final = 10_000_000
_HASH_BITS_MAX: Final = 60
_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_KINDS: Final = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}

# --- what every cluster has -------------------------------------------------------------------------------------------


def _level(shares: int, lendable: int, queues: int = 0, hand: int = 0) -> Json:
    queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": 50}
    response = {"type": "Queue", "queuing": queuing} if queues else {"type": "Reject"}
    limited = {"nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lendable}
    return {"type": "Limited", "limited": limited}


def _groups(*names: str) -> list[Json]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _users(*names: str) -> list[Json]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _rule(verbs: list[str], groups: list[str], resources: list[str], cluster: bool = True) -> Json:
    scope: Json = {"clusterScope": True} if cluster else {}
    return {"verbs": verbs, "apiGroups": groups, "resources": resources, **scope, "namespaces": _ALL}


_ANY: Final = (_rule(_ALL, _ALL, _ALL),)
_ANY_URL: Final = ({"verbs": _ALL, "nonResourceURLs": _ALL},)
_PROBES: Final = ({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]},)


def _flow(
    level: str,
    precedence: int,
    method: str,
    subjects: list[Json],
    on: Iterable[Json] = _ANY,
    urls: Iterable[Json] = _ANY_URL,
) -> Json:
    rule = {"subjects": subjects, "resourceRules": list(on), "nonResourceRules": list(urls)}
    return {
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
        **({"distinguisherMethod": {"type": method}} if method else {}),
        "rules": [{name: items for name, items in rule.items() if items}],
    }  # fmt: skip


_LEASES: Final = ["coordination.k8s.io"], ["leases"], False
_SYSTEM: Final = [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}]
_MANAGER, _SCHEDULER = "system:kube-controller-manager", "system:kube-scheduler"
_NODES, _EVERYBODY = _groups("system:nodes"), _groups("system:unauthenticated", "system:authenticated")
LEVELS: Final[dict[str, Json]] = {
    "exempt": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    "catch-all": _level(5, 0),
    "system": _level(30, 33, 64, 6),
    "node-high": _level(40, 25, 64, 6),
    "leader-election": _level(10, 0, 16, 4),
    "workload-high": _level(40, 50, 128, 6),
    "workload-low": _level(100, 90, 128, 6),
    "global-default": _level(20, 50, 128, 6),
}
FLOWS: Final[dict[str, Json]] = {
    "exempt": _flow("exempt", 1, "", _groups("system:masters")),
    "catch-all": _flow("catch-all", 10_000, "ByUser", _EVERYBODY),
    "system-nodes": _flow("system", 500, "ByUser", _NODES),
    "system-node-high": _flow(
        "node-high", 400, "ByUser", _NODES, (_rule(_ALL, [""], ["nodes", "nodes/status"]), _rule(_ALL, *_LEASES)), ()
    ),
    "probes": _flow("exempt", 2, "", _EVERYBODY, (), _PROBES),
    "system-leader-election": _flow(
        "leader-election", 100, "ByUser", _users(_MANAGER, _SCHEDULER) + _SYSTEM,
        (_rule(["get", "create", "update"], *_LEASES),), (),
    ),
    "kube-controller-manager": _flow("workload-high", 800, "ByNamespace", _users(_MANAGER)),
    "kube-scheduler": _flow("workload-high", 800, "ByNamespace", _users(_SCHEDULER)),
    "kube-system-service-accounts": _flow("workload-high", 900, "ByNamespace", _SYSTEM),
    "service-accounts": _flow("workload-low", 9000, "ByUser", _groups("system:serviceaccounts")),
    "global-default": _flow("global-default", 9900, "ByUser", _EVERYBODY),
}  # fmt: skip
MANDATORY: Final = ("exempt", "catch-all")
"""Both a level and a schema, whose specs are fixed."""

# --- defaults ---------------------------------------------------------------------------------------------------------


def _default_flow(flow: Json) -> None:
    spec = flow["spec"]
    spec["matchingPrecedence"] = spec.get("matchingPrecedence") or _PRECEDENCE


def _default_level(level: Json) -> None:
    spec = level["spec"]
    if (limited := spec.get("limited")) is not None:
        _fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        if (queuing := limited["limitResponse"].get("queuing")) is not None:
            for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
                queuing[name] = queuing.get(name) or value
    if (exempt := spec.get("exempt")) is not None:
        _fill(exempt, nominalConcurrencyShares=0, lendablePercent=0)


def _fill(obj: Json, **values: int) -> None:
    for name, value in values.items():
        if obj.get(name) is None:
            obj[name] = value


# --- rules ------------------------------------------------------------------------------------------------------------


def _meta(obj: Json) -> list[FieldError]:
    return validate_object_meta(obj["metadata"], False, is_dns1123_subdomain)


def _conditions(conditions: Sequence[Json] | None, path: str) -> list[FieldError]:
    return validate_conditions(conditions, path, lambda each, at: [] if each.get("type") else [required(f"{at}.type")])


def _precedence(flow: Json) -> list[FieldError]:
    path, found = "spec.matchingPrecedence", flow["spec"]["matchingPrecedence"]
    errors = []
    if found <= 0:
        errors.append(invalid_value(path, found, "must be a positive value"))
    if found > _PRECEDENCE_MAX:
        errors.append(invalid_value(path, found, f"must not be greater than {_PRECEDENCE_MAX}"))
    if found == 1 and flow["metadata"].get("name") != "exempt":
        errors.append(invalid_value(path, found, "only the schema named 'exempt' may have matchingPrecedence 1"))
    return errors


def _method(method: Json | None, path: str) -> list[FieldError]:
    if method is None or method.get("type") in ("ByNamespace", "ByUser"):
        return []
    return [not_supported(f"{path}.type", internal(method, "FlowDistinguisherMethod"), ("ByNamespace", "ByUser"))]


def _reference(name: str | None, path: str) -> list[FieldError]:
    if not name:
        return [required(path, "must reference a priority level")]
    return list(named_by(is_dns1123_subdomain)(name, path))


def _rules(given: Sequence[Json] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, rule in enumerate(given or ()):
        here = f"{path}[{i}]"
        for j, subject in enumerate(rule.get("subjects") or ()):
            errors += _subject(subject, f"{here}.subjects[{j}]")
        if not rule.get("subjects"):
            errors.append(required(f"{here}.subjects", "subjects must contain at least one value"))
        if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
            wanted = "at least one of resourceRules and nonResourceRules has to be non-empty"
            errors.append(required(here, wanted))
        for j, each in enumerate(rule.get("resourceRules") or ()):
            errors += _resource_rule(each, f"{here}.resourceRules[{j}]")
        for j, each in enumerate(rule.get("nonResourceRules") or ()):
            errors += _url_rule(each, f"{here}.nonResourceRules[{j}]")
    return errors


def _subject(subject: Json, path: str) -> list[FieldError]:
    kind = subject.get("kind") or ""
    if kind not in _KINDS:
        return [not_supported(f"{path}.kind", kind, sorted(_KINDS))]
    own = _KINDS[kind]
    errors = _named(subject.get(own), f"{path}.{own}", kind)
    for other in ("serviceAccount", "user", "group"):
        if other != own and subject.get(other) is not None:
            meant = next(each for each, name in _KINDS.items() if name == other)
            told = f"{other} is forbidden when subject kind is not '{meant}'"
            errors.append(forbidden_value(f"{path}.{other}", told))
    return errors


def _named(named: Json | None, path: str, kind: str) -> list[FieldError]:
    if named is None:
        return [required(path, f"{_KINDS[kind]} is required when subject kind is '{kind}'")]
    name = named.get("name") or ""
    errors = [] if name else [required(f"{path}.name")]
    if kind != "ServiceAccount":
        return errors
    if name and name != "*":
        errors += named_by(is_dns1123_subdomain)(name, f"{path}.name")
    if namespace := named.get("namespace"):
        return [*errors, *named_by(is_dns1123_label)(namespace, f"{path}.namespace")]
    return [*errors, required(f"{path}.namespace", "must specify namespace for service account")]


def _crowded(items: list[str], path: str, what: str) -> list[FieldError]:
    if len(items) > 1 and "*" in items:
        return [invalid_value(path, items, f"if '*' is present, must not specify other {what}")]
    return []


def _verbs(verbs: list[str] | None, path: str) -> list[FieldError]:
    if not verbs:
        return [required(path, "verbs must contain at least one value")]
    if "*" not in verbs and not set(verbs) <= set(_VERBS):
        return [not_supported(path, verbs, _VERBS)]
    return _crowded(verbs, path, "verbs")


def _listed(items: list[str] | None, path: str, one: str, others: str) -> list[FieldError]:
    if not items:
        return [required(path, f"resource rules must supply at least one {one}")]
    return _crowded(items, path, others)


def _resource_rule(rule: Json, path: str) -> list[FieldError]:
    errors = _verbs(rule.get("verbs"), f"{path}.verbs")
    errors += _listed(rule.get("apiGroups"), f"{path}.apiGroups", "api group", "api groups")
    errors += _listed(rule.get("resources"), f"{path}.resources", "resource", "resources")
    namespaces, path = rule.get("namespaces") or [], f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        wanted = "resource rules that are not cluster scoped must supply at least one namespace"
        return [*errors, required(path, wanted)]
    if "*" in namespaces:
        return errors + _crowded(namespaces, path, "namespaces")
    intro = "each member of this list must be '*' or a DNS-1123 label; "
    for i, each in enumerate(namespaces):
        errors += [invalid_value(f"{path}[{i}]", each, intro + message) for message in is_dns1123_label(each)]
    return errors


def _url_rule(rule: Json, path: str) -> list[FieldError]:
    errors = _verbs(rule.get("verbs"), f"{path}.verbs")
    urls, path = rule.get("nonResourceURLs") or [], f"{path}.nonResourceURLs"
    if not urls:
        return [*errors, required(path, "nonResourceURLs must contain at least one value")]
    if "*" in urls:
        return errors + _crowded(urls, path, "non-resource URLs")
    return errors + [
        invalid_value(f"{path}[{i}]", url, wrong) for i, url in enumerate(urls) if (wrong := _wrong_url(url))
    ]


def _wrong_url(url: str) -> str:
    if not url or url == "/":
        return "" if url else "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    return "wildcard can only do suffix matching" if stars > 1 or (stars == 1 and not url.endswith("/*")) else ""


def dangling(flow: Json, levels: Container[str], now: str) -> Json | None:
    """The condition that says whether the level of `flow` is among `levels`; None: it says so already."""
    name = flow["spec"]["priorityLevelConfiguration"].get("name") or ""
    told = f"This FlowSchema references the PriorityLevelConfiguration object named {go_quote(name)}"
    if name in levels:
        said = {"status": "False", "reason": "Found", "message": f"{told} and it exists"}
    else:
        said = {"status": "True", "reason": "NotFound", "message": f"{told} but there is no such object"}
    stated = (flow.get("status") or {}).get("conditions") or ()
    known: Json = next((each for each in stated if each.get("type") == DANGLING), {})
    if said.items() <= known.items():
        return None
    return {"type": DANGLING, "lastTransitionTime": now, **said}


def _fixed(flow: Json) -> list[FieldError]:
    name, shown = flow["metadata"].get("name"), internal(flow["spec"], "FlowSchemaSpec")
    if name not in MANDATORY or shown == internal(FLOWS[name], "FlowSchemaSpec"):
        return []
    return [invalid_value("spec", shown, f"spec of '{name}' must equal the fixed value")]


_validate_flow = rules(
    _meta,
    _precedence,
    at("spec.distinguisherMethod", _method),
    at("spec.priorityLevelConfiguration.name", _reference),
    at("spec.rules", _rules),
    _fixed,
    at("status.conditions", _conditions),
)


def _whole(text: str, most: int | None = None) -> Check:
    """Not below 0, nor above `most`; missing values pass."""
    return lambda value, path: (
        [] if value is None or 0 <= value <= (value if most is None else most) else [invalid_value(path, value, text)]
    )


_shares: Final = _whole("must be a non-negative integer")
_lendable: Final = _whole("must be between 0 and 100, inclusive", 100)


def _queuing(queuing: Json, path: str) -> list[FieldError]:
    limit, queues, hand = (queuing.get(name) or 0 for name in ("queueLengthLimit", "queues", "handSize"))
    errors = [] if limit > 0 else [invalid_value(f"{path}.queueLengthLimit", limit, "must be positive")]
    if queues <= 0:
        errors.append(invalid_value(f"{path}.queues", queues, "must be positive"))
    elif queues > _QUEUES_MAX:
        errors.append(invalid_value(f"{path}.queues", queues, f"must not be greater than {_QUEUES_MAX}"))
    if wrong := _wrong_hand(queues, hand):
        errors.append(invalid_value(f"{path}.handSize", hand, wrong))
    return errors


def _wrong_hand(queues: int, hand: int) -> str:
    if hand <= 0:
        return "must be positive"
    if hand > queues:
        return f"should not be greater than queues ({queues})"
    if math.ceil(math.log2(queues) * hand) > _HASH_BITS_MAX:
        bits = f"required entropy bits of deckSize {queues} and handSize {hand}"
        return f"{bits} should not be greater than {_HASH_BITS_MAX}"
    return ""


def _response(response: Json, path: str) -> list[FieldError]:
    type_, queuing = response.get("type") or "", response.get("queuing")
    if type_ == "Reject" and queuing is not None:
        wrong = "must be nil if limited.limitResponse.type is not Limited"
        return [forbidden_value(f"{path}.queuing", wrong)]
    if type_ == "Queue":
        missing = required(f"{path}.queuing", "must not be empty if limited.limitResponse.type is Limited")
        return [missing] if queuing is None else _queuing(queuing, f"{path}.queuing")
    return [] if type_ == "Reject" else [not_supported(f"{path}.type", type_, ("Queue", "Reject"))]


_validate_limited = rules(
    at("nominalConcurrencyShares", _shares),
    at("limitResponse", _response),
    at("lendablePercent", _lendable),
    at("borrowingLimitPercent", _whole("if specified, must be a non-negative integer")),
)
_validate_exempt = rules(at("nominalConcurrencyShares", _shares), at("lendablePercent", _lendable))


def _below(errors: Iterable[FieldError], path: str) -> list[FieldError]:
    return [error._replace(field=f"{path}.{error.field}") for error in errors]


def _level_spec(level: Json) -> list[FieldError]:
    spec, name = level["spec"], level["metadata"].get("name") or ""
    type_, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get("exempt")
    errors: list[FieldError] = []
    if (name == "exempt") is not (type_ == "Exempt"):
        errors.append(invalid_value("spec.type", type_, "must be 'Exempt' if and only if `name` is 'exempt'"))
    if type_ == "Exempt":
        if limited is not None:
            errors.append(forbidden_value("spec.limited", "must be nil if the type is not Limited"))
        return errors + _below(_validate_exempt(exempt or {}), "spec.exempt")
    if type_ != "Limited":
        return [*errors, not_supported("spec.type", type_, ("Exempt", "Limited"))]
    if exempt is not None:
        errors.append(forbidden_value("spec.exempt", "must be nil if the type is Limited"))
    if limited is None:
        return [*errors, required("spec.limited", "must not be empty when type is Limited")]
    return errors + _below(_validate_limited(limited), "spec.limited")


def _fixed_level(level: Json) -> list[FieldError]:
    name, spec = level["metadata"].get("name"), level["spec"]
    if name not in MANDATORY:
        return []
    kept = {**spec, "exempt": LEVELS[name].get("exempt")} if name == "exempt" else spec
    if internal(kept, _LEVEL) == internal(LEVELS[name], _LEVEL):
        return []
    but = " except the 'spec.exempt' field" if name == "exempt" else ""
    return [invalid_value("spec", internal(spec, _LEVEL), f"spec of '{name}'{but} must equal the fixed value")]


_LEVEL: Final = "PriorityLevelConfigurationSpec"


def _no_annotation(level: Json) -> list[FieldError]:
    if _PRESERVE_ZERO not in (level["metadata"].get("annotations") or {}):
        return []
    return [forbidden_value("metadata.annotations", f"annotation '{_PRESERVE_ZERO}' is forbidden")]


_validate_level = rules(_meta, _no_annotation, _level_spec, _fixed_level, at("status.conditions", _conditions))
_validate_status = rules(at("status.conditions", _conditions))

# --- the kinds --------------------------------------------------------------------------------------------------------


def _print_flow(flow: Json, age: Age) -> list[Any]:
    metadata, spec = flow["metadata"], flow["spec"]
    conditions = (flow.get("status") or {}).get("conditions") or ()
    dangling = next((each.get("status") for each in conditions if each.get("type") == DANGLING), "?")
    method = spec.get("distinguisherMethod")
    return [
        metadata["name"], spec["priorityLevelConfiguration"].get("name") or "", spec["matchingPrecedence"],
        NONE if method is None else method.get("type") or "", age(metadata.get("creationTimestamp")), dangling or "",
    ]  # fmt: skip


def _print_level(level: Json, age: Age) -> list[Any]:
    metadata, spec = level["metadata"], level["spec"]
    limited = spec.get("limited") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    told = [queuing.get(name, NONE) for name in ("queues", "handSize", "queueLengthLimit")]
    shares = limited.get("nominalConcurrencyShares", NONE)
    return [metadata["name"], spec.get("type") or "", shares, *told, age(metadata.get("creationTimestamp"))]


def _warn(new: Json, old: Json | None) -> list[str]:
    return [NOT_ENFORCED]


_FACTS: Final[dict[str, Any]] = {
    "selectable": NAMESPACED, "generation": True, "also_reset": {"status": (("metadata",),)},
    "prepare_create": begins_with(), "prepare_status": keep_metadata, "warn": _warn,
}  # fmt: skip
_STATUS: Final = {"status": lambda new, old: _validate_status(new)}

FLOWSCHEMAS: Final = Kind(
    GROUP, "v1", "FlowSchema", "flowschemas", "flowschema", False, **_FACTS,
    subresources=(status_of("FlowSchema"),),
    default=_default_flow,
    validate=_validate_flow,
    validate_update={"": lambda new, old: _validate_flow(new), **_STATUS},
    printer=Printer(
        (
            NAME,
            column("PriorityLevel", "By which level its requests are limited."),
            column("MatchingPrecedence", "The lowest of those that match a request wins."),
            column("DistinguisherMethod", "What distinguishes its flows."),
            AGE,
            column("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
        ),
        _print_flow,
        order=lambda flow: (flow["spec"]["matchingPrecedence"], flow["metadata"]["name"]),
    ),
)  # fmt: skip

PRIORITYLEVELS: Final = Kind(
    GROUP, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "prioritylevelconfiguration", False,
    **_FACTS,
    subresources=(status_of("PriorityLevelConfiguration"),),
    default=_default_level,
    validate=_validate_level,
    validate_update={"": lambda new, old: _validate_level(new), **_STATUS},
    printer=Printer(
        (
            NAME,
            column("Type", "Whether it limits requests."),
            column("NominalConcurrencyShares", "Its share of what runs at once."),
            column("Queues", "How many there are."),
            column("HandSize", "From how many of them each flow has its queue."),
            column("QueueLengthLimit", "How many requests wait in one."),
            AGE,
        ),
        _print_level,
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (FLOWSCHEMAS, PRIORITYLEVELS)
