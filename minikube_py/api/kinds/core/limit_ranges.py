"""LimitRange: limits on requests of pods, containers and claims in a namespace, and defaults.

Source: `pkg/apis/core/validation`, `plugin/pkg/admission/limitranger`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_resource_list
from minikube_py.api.errors import (
    FieldError,
    Json,
    aggregate,
    duplicate,
    forbidden,
    forbidden_value,
    invalid_value,
    required,
)
from minikube_py.api.kind import NAMESPACED, Cluster, Kind
from minikube_py.api.meta import is_dns1123_subdomain, is_qualified_name
from minikube_py.api.validation.metadata import validate_object_meta
from minikube_py.api.validation.resources import is_overcommit_allowed, validate_resource_name
from minikube_py.fields import quantity
from minikube_py.fields.quantity import Quantity

_LISTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_MILLI_MAX: Final = ((1 << 63) - 1) // 1000
Amounts = Mapping[str, str]


def _default(obj: Json) -> None:
    spec = part(obj, "spec")
    for limit in spec.get("limits") or ():
        limit.setdefault("type", "")
        if limit["type"] == "Container":
            limits, requests = part(limit, "default"), part(limit, "defaultRequest")
            for into, given in ((limits, limit.get("max")), (requests, limits), (requests, limit.get("min"))):
                for name, amount in (given or {}).items():
                    into.setdefault(name, amount)
        for name in _LISTS:
            if limit.get(name):
                default_resource_list(limit[name])
            else:
                limit.pop(name, None)


def _validate_type(kind: str, path: str) -> list[FieldError]:
    if messages := is_qualified_name(kind):
        return [invalid_value(path, kind, message) for message in messages]
    if "/" in kind or kind in _TYPES:
        return []
    return [invalid_value(path, kind, "must be a standard limit type or fully qualified")]


def _validate_limit(limit: Json, path: str) -> list[FieldError]:
    kind, errors = limit["type"], []
    pod = kind == "Pod"
    given = {name: limit.get(name) or {} for name in _LISTS}
    for name in _LISTS:
        if pod and name in ("default", "defaultRequest"):
            if given[name]:
                errors.append(forbidden_value(f"{path}.{name}", "may not be specified when `type` is 'Pod'"))
                given[name] = {}
            continue
        if name == "maxLimitRequestRatio" and kind == "PersistentVolumeClaim":
            errors += _needs_storage(given, path)
        for key in given[name]:
            errors += validate_resource_name(key, f"{path}.{name}[{key}]", kind in ("Pod", "Container"))
    keys = dict.fromkeys(key for amounts in given.values() for key in amounts)
    return errors + [error for key in keys for error in _validate_amounts(key, given, path)]


def _needs_storage(given: Mapping[str, Amounts], path: str) -> list[FieldError]:
    if "storage" in given["min"] or "storage" in given["max"]:
        return []
    detail = "either minimum or maximum storage value is required, but neither was provided"
    return [required(f"{path}.limits", detail)]


_ORDER: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest",
     "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest",
     "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest",
     "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)  # fmt: skip
"""Pairs that must be ordered, the named field, the shown value, and the message."""


def _validate_amounts(key: str, given: Mapping[str, Amounts], path: str) -> list[FieldError]:
    found = {name: quantity.parse(amounts[key]) for name, amounts in given.items() if key in amounts}
    errors = []
    for low, high, field, shown, words in _ORDER:
        if low in found and high in found and found[low].compare(found[high]) > 0:
            detail = words.format(found[low], found[high])
            errors.append(invalid_value(f"{path}.{field}[{key}]", str(found[shown]), detail))
    ratio, where = found.get("maxLimitRequestRatio"), f"{path}.maxLimitRequestRatio[{key}]"
    if ratio is not None:
        if ratio.compare(quantity.parse("1")) < 0:
            errors.append(invalid_value(where, str(ratio), f"ratio {ratio} is less than 1"))
        if "min" in found and "max" in found:
            errors += _validate_ratio(ratio, found["min"], found["max"], where)
    both = "default" in found and "defaultRequest" in found
    if not is_overcommit_allowed(key) and both and found["default"].compare(found["defaultRequest"]) != 0:
        limit, request = found["default"], found["defaultRequest"]
        detail = f"default value {limit} must equal to defaultRequest value {request} in {key}"
        errors.append(invalid_value(f"{path}.defaultRequest[{key}]", str(request), detail))
    return errors


def _validate_ratio(ratio: Quantity, low: Quantity, high: Quantity, path: str) -> list[FieldError]:
    fine = all(each.value() < _MILLI_MAX for each in (ratio, low, high))
    lowest, highest = (each.milli_value() if fine else each.value() for each in (low, high))
    most = highest / lowest if lowest else float("inf")
    if (ratio.milli_value() / 1000 if fine else float(ratio.value())) <= most:
        return []
    return [invalid_value(path, str(ratio), f"ratio {ratio} is greater than max/min = {most:f}")]


def _validate(obj: Json) -> list[FieldError]:
    errors = validate_object_meta(obj["metadata"], True, is_dns1123_subdomain)
    seen: set[str] = set()
    for i, limit in enumerate(obj["spec"]["limits"] or ()):
        path, kind = f"spec.limits[{i}]", limit["type"]
        errors += _validate_type(kind, f"{path}.type")
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        errors += _validate_limit(limit, path)
    return errors


LIMITRANGES: Final = Kind(
    "", "v1", "LimitRange", "limitranges", "limitrange", True,
    short_names=("limits",),
    selectable=NAMESPACED,
    allow_create_on_update=True,
    names_itself=True,
    default=_default,
    validate=_validate,
    validate_update={"": lambda new, old: _validate(new)},
)  # fmt: skip

SEEN: Final = (("", "v1", "limitranges"),)

# --- admission ------------------------------------------------------------------------------------------------------


def _ranges(obj: Json, cluster: Cluster, *kinds: str) -> Iterator[list[Json]]:
    """The limits of these types, range by range."""
    for each in cluster.all(LIMITRANGES, obj["metadata"].get("namespace") or ""):
        yield [limit for limit in (each.get("spec") or {}).get("limits") or () if limit["type"] in kinds]


def _containers(pod: Json) -> Iterator[tuple[str, Json]]:
    for name, what in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(name) or ():
            yield what, container


def fill_up(pod: Json, cluster: Cluster) -> None:
    """Applies the namespace's defaults to containers without requests, and records it in an annotation."""
    told: list[str] = []
    for limit in (limit for limits in _ranges(pod, cluster, "Container") for limit in limits):
        for what, container in _containers(pod):
            resources, set_here = part(container, "resources"), {}
            for name, default in (("limits", "default"), ("requests", "defaultRequest")):
                amounts = limit.get(default) or {}
                missing = sorted(amounts.keys() - (resources.get(name) or {}).keys())
                if missing:
                    resources[name] = {**(resources.get(name) or {}), **{key: amounts[key] for key in missing}}
                    set_here[name] = ", ".join(missing)
            told += [
                f"{set_here[name]} {word} for {what} {container.get('name') or ''}"
                for name, word in (("requests", "request"), ("limits", "limit"))
                if name in set_here
            ]
    if told:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, _ANNOTATION: "LimitRanger plugin set: " + "; ".join(told)}


def _common(*amounts: Quantity) -> list[int]:
    fine = all(each.value() <= _MILLI_MAX for each in amounts)
    return [each.milli_value() if fine else each.value() for each in amounts]


def _beyond(limit: Json, requests: Amounts, limits: Amounts) -> Iterator[str]:
    """The message for a violated limit."""
    kind, claim = limit["type"], limit["type"] == "PersistentVolumeClaim"
    for bound, words in (("min", "minimum"), ("max", "maximum")):
        for name, text in (limit.get(bound) or {}).items():
            head = f"{words} {name} usage per {kind} is {quantity.canonical(text)}"
            decisive, other = ("request", "limit") if bound == "min" or claim else ("limit", "request")
            given = {"request": requests.get(name), "limit": None if claim else limits.get(name)}
            if given[decisive] is None:
                yield f"{head}.  No {decisive} is specified"
                continue
            for which in (decisive, other):
                if (amount := given[which]) is None:
                    continue
                found, wanted = _common(quantity.parse(amount), quantity.parse(text))
                if found < wanted if bound == "min" else found > wanted:
                    yield f"{head}, but {which} is {quantity.canonical(amount)}"
                    break
    for name, text in () if claim else (limit.get("maxLimitRequestRatio") or {}).items():
        ratio = quantity.parse(text)
        head = f"{name} max limit to request ratio per {kind} is {ratio}"
        asked, most = quantity.parse(requests.get(name) or "0"), quantity.parse(limits.get(name) or "0")
        if asked.is_zero() or most.is_zero():
            which = "request" if asked.is_zero() else "limit"
            yield f"{head}, but no {which} is specified or {which} is 0"
            continue
        asked_units, most_units, _ = _common(asked, most, ratio)
        observed = most_units / asked_units
        if observed * 1000 > ratio.milli_value():
            yield f"{head}, but provided ratio is {observed:f}"


def _plus(left: Amounts, right: Amounts) -> dict[str, str]:
    names = dict.fromkeys((*left, *right))
    return {n: str(quantity.parse(left.get(n) or "0").plus(quantity.parse(right.get(n) or "0"))) for n in names}


def _most(left: Amounts, right: Amounts) -> dict[str, str]:
    above = {n for n in right if n not in left or quantity.parse(right[n]).compare(quantity.parse(left[n])) > 0}
    return {**left, **{n: right[n] for n in right if n in above}}


def _given(holder: Json, which: str) -> Amounts:
    found: Amounts = (holder.get("resources") or {}).get(which) or {}
    return found


def _of_pod(spec: Json, which: str) -> dict[str, str]:
    """The pod's total requests, including init containers and sidecars."""
    total: dict[str, str] = {}
    for container in spec.get("containers") or ():
        total = _plus(total, _given(container, which))
    beside: dict[str, str] = {}
    before: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        own = _given(container, which)
        if container.get("restartPolicy") == "Always":
            total, beside = _plus(total, own), _plus(beside, own)
            before = _most(before, beside)
        else:
            before = _most(before, _plus(own, beside))
    own = _given(spec, which)
    return {**_most(total, before), **{n: amount for n, amount in own.items() if n in ("cpu", "memory")}}


def _refuse(kind: Kind, obj: Json, why: Iterable[str]) -> None:
    if told := list(why):
        raise forbidden(kind, obj["metadata"].get("name") or "", aggregate(told))


def check_pod(kind: Kind, pod: Json, cluster: Cluster) -> None:
    """Raises: StatusError 403."""
    for limits in _ranges(pod, cluster, "Container", "Pod"):
        told: list[str] = []
        for limit in limits:
            asking = (
                [(_of_pod(pod["spec"], "requests"), _of_pod(pod["spec"], "limits"))]
                if limit["type"] == "Pod"
                else [(_given(container, "requests"), _given(container, "limits")) for _, container in _containers(pod)]
            )
            told += [words for requests, most in asking for words in _beyond(limit, requests, most)]
        _refuse(kind, pod, told)


def check_claim(kind: Kind, claim: Json, cluster: Cluster) -> None:
    """Raises: StatusError 403."""
    requests = _given(claim.get("spec") or {}, "requests")
    for limits in _ranges(claim, cluster, "PersistentVolumeClaim"):
        _refuse(kind, claim, (words for limit in limits for words in _beyond(limit, requests, {})))
