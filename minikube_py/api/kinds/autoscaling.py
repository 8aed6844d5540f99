"""The group `autoscaling`: HorizontalPodAutoscalers, stored as v2; v1 has annotations for missing fields.

Source: `pkg/apis/autoscaling/{validation,v1,v2}`, `pkg/registry/autoscaling/horizontalpodautoscaler`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, not_supported, required
from minikube_py.api.kind import NAMESPACED, Conversion, Form, Kind, status_of
from minikube_py.api.kinds import autoscaling_v1
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain, is_path_segment
from minikube_py.api.printing import AGE, NAME, NONE, UNKNOWN, Age, Printer, column
from minikube_py.api.rules import at, named_by, non_negative, non_negative_quantity, rules
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.resources import validate_resource_name
from minikube_py.fields import quantity

GROUP: Final = "autoscaling"
KIND: Final = "HorizontalPodAutoscaler"
PERIOD_S_MAX: Final = 1800
WINDOW_S_MAX: Final = 3600
_PODS_UP: Final = {"type": "Pods", "value": 4, "periodSeconds": 15}
_ALL: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}


def _rules(given: Json | None, usual: Json) -> Json:
    return {**usual, **{name: value for name, value in (given or {}).items() if value is not None}}


def default_v2(scaler: Json) -> None:
    spec = scaler["spec"] = scaler.get("spec") or {}
    if spec.get("minReplicas") is None:
        spec["minReplicas"] = 1
    if not spec.get("metrics"):
        spec["metrics"] = [autoscaling_v1.cpu_at(autoscaling_v1.CPU_UTILIZATION)]
    if (behavior := spec.get("behavior")) is not None:
        up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [dict(_PODS_UP), dict(_ALL)]}
        behavior["scaleUp"] = _rules(behavior.get("scaleUp"), up)
        down = {"selectPolicy": "Max", "policies": [dict(_ALL)]}
        behavior["scaleDown"] = _rules(behavior.get("scaleDown"), down)
    autoscaling_v1.complete(scaler, "v2")
    autoscaling_v1.drop_annotations(scaler)


def _create(scaler: Json) -> None:
    scaler["status"] = {"desiredReplicas": 0, "currentMetrics": None}


# --- validation -----------------------------------------------------------------------------------------------------


def _version_error(reference: Json, core: bool) -> str:
    """Errors of its apiVersion. `core`: the core group is allowed."""
    text = reference.get("apiVersion") or ""
    if text.count("/") > 1:
        return f"unexpected GroupVersion string: {text}"
    return "" if core or text.partition("/")[0 if "/" in text else 1] else "apiVersion must specify API group"


def _validate_reference(reference: Json, path: str, version_error: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        errors += named_by(is_path_segment)(value, f"{path}.{name}") if value else [required(f"{path}.{name}")]
    if version_error:
        errors.append(invalid_value(f"{path}.apiVersion", reference.get("apiVersion") or "", version_error))
    return errors


def _validate_counts(spec: Json, path: str, least: int) -> list[FieldError]:
    errors, low, high = [], spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if low is not None and low < least:
        errors.append(invalid_value(f"{path}.minReplicas", low, f"must be greater than or equal to {least}"))
    where = f"{path}.maxReplicas"
    if not high:
        errors.append(required(where, "must be set and greater than 0"))
    elif high < 0:
        errors.append(invalid_value(where, high, "must be greater than or equal to 1"))
    if low is not None and high < low:
        errors.append(invalid_value(where, high, "must be greater than or equal to `minReplicas`"))
    return errors


def _validate_target(target: Json, path: str) -> list[FieldError]:
    kind, errors = target.get("type") or "", []
    if not kind:
        errors.append(required(f"{path}.type", "must specify a metric target type"))
    if kind not in ("Utilization", "Value", "AverageValue"):
        errors.append(invalid_value(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
    amounts = [(name, target[name]) for name in ("value", "averageValue") if target.get(name) is not None]
    errors += [
        invalid_value(f"{path}.{name}", given, "must be positive")
        for name, given in amounts
        if quantity.parse(given).unscaled <= 0
    ]
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        errors.append(invalid_value(f"{path}.averageUtilization", share, "must be greater than 0"))
    return errors


def _validate_metric(source: Json, path: str) -> list[FieldError]:
    name, where = (source.get("metric") or {}).get("name") or "", f"{path}.metric.name"
    named = list(named_by(is_path_segment)(name, where)) if name else [required(where, "must specify a metric name")]
    return named + _validate_target(source.get("target") or {}, f"{path}.target")


def _lacks(source: Json, path: str, why: str, *names: str) -> list[FieldError]:
    target = source.get("target") or {}
    return [] if any(target.get(n) is not None for n in names) else [required(f"{path}.target.{names[0]}", why)]


def _has_both(source: Json, path: str, why: str, *names: str) -> list[FieldError]:
    target = source.get("target") or {}
    return [forbidden_value(f"{path}.target.{names[0]}", why)] if all(target.get(n) is not None for n in names) else []


def _validate_object(source: Json, path: str, any_version: bool) -> list[FieldError]:
    reference = source.get("describedObject") or {}
    wrong = "" if any_version else _version_error(reference, True)
    errors = _validate_reference(reference, f"{path}.describedObject", wrong) + _validate_metric(source, path)
    return errors + _lacks(source, path, "must set either a target value or averageValue", "averageValue", "value")


def _validate_external(source: Json, path: str) -> list[FieldError]:
    lacks = "must set either a target value for metric or a per-pod target"
    both = "may not set both a target value for metric and a per-pod target"
    errors = _validate_metric(source, path) + _lacks(source, path, lacks, "averageValue", "value")
    return errors + _has_both(source, path, both, "value", "averageValue")


def _validate_pods(source: Json, path: str) -> list[FieldError]:
    return _validate_metric(source, path) + _lacks(
        source, path, "must specify a positive target averageValue", "averageValue"
    )


def _validate_resource(source: Json, path: str, container: bool = False) -> list[FieldError]:
    name, errors = source.get("name") or "", []
    if not name:
        errors.append(required(f"{path}.name", "must specify a resource name"))
    elif container:
        errors += validate_resource_name(name, f"{path}.name", True)
    if container and not source.get("container"):
        errors.append(required(f"{path}.container", "must specify a container"))
    elif container:
        errors += named_by(is_dns1123_label)(source["container"], f"{path}.container")
    errors += _validate_target(source.get("target") or {}, f"{path}.target")
    lacks = "must set either a target raw value or a target utilization"
    errors += _lacks(source, path, lacks, "averageUtilization", "averageValue")
    both = "may not set both a target raw value and a target utilization"
    return errors + _has_both(source, path, both, "averageValue", "averageUtilization")


_FIELDS: Final = {
    "Object": "object", "External": "external", "Pods": "pods", "Resource": "resource",
    "ContainerResource": "containerResource",
}  # fmt: skip
"""By type of metric, in upstream's order."""


def _validate_source(metric: Json, path: str, any_version: bool) -> list[FieldError]:
    kind, errors = metric.get("type") or "", []
    if not kind:
        errors.append(required(f"{path}.type", "must specify a metric source type"))
    unknown = [] if kind in _FIELDS else [not_supported(f"{path}.type", kind, sorted(_FIELDS))]
    errors += unknown
    present = [name for name in _FIELDS.values() if metric.get(name) is not None]
    if present:
        first, where = metric[present[0]], f"{path}.{present[0]}"
        checks: dict[str, Callable[[], Iterable[FieldError]]] = {
            "object": lambda: _validate_object(first, where, any_version),
            "external": lambda: _validate_external(first, where),
            "pods": lambda: _validate_pods(first, where),
            "resource": lambda: _validate_resource(first, where),
            "containerResource": lambda: _validate_resource(first, where, True),
        }
        errors += checks[present[0]]()
    expected = _FIELDS.get(kind, "")
    if expected and metric.get(expected) is None:
        errors.append(required(f"{path}.{expected}", "must populate information for the given metric source"))
    errors += unknown
    if len(present) > 1:
        only = "must populate the given metric source only"
        errors += [forbidden_value(f"{path}.{name}", only) for name in present if name != expected]
    return errors


def _validate_metrics(spec: Json, path: str, any_version: bool) -> list[FieldError]:
    metrics = spec.get("metrics") or ()
    errors = [e for i, each in enumerate(metrics) for e in _validate_source(each, f"{path}[{i}]", any_version)]
    if spec.get("minReplicas") == 0 and not {"Object", "External"} & {each.get("type") for each in metrics}:
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden_value(path, why))
    return errors


def _validate_policy(policy: Json, path: str) -> list[FieldError]:
    kinds, errors = ("Percent", "Pods"), []
    if (kind := policy.get("type") or "") not in kinds:
        errors.append(not_supported(f"{path}.type", kind, kinds))
    numbers = [(name, policy.get(name) or 0) for name in ("value", "periodSeconds")]
    errors += [invalid_value(f"{path}.{n}", given, "must be greater than zero") for n, given in numbers if given <= 0]
    if (period_s := policy.get("periodSeconds") or 0) > PERIOD_S_MAX:
        why = f"must be less than or equal to {PERIOD_S_MAX}"
        errors.append(invalid_value(f"{path}.periodSeconds", period_s, why))
    return errors


def _validate_rules(given: Json | None, path: str) -> list[FieldError]:
    if given is None:
        return []
    errors: list[FieldError] = []
    window_s, where = given.get("stabilizationWindowSeconds"), f"{path}.stabilizationWindowSeconds"
    if window_s is not None and window_s < 0:
        errors.append(invalid_value(where, window_s, "must be greater than or equal to zero"))
    if window_s is not None and window_s > WINDOW_S_MAX:
        errors.append(invalid_value(where, window_s, f"must be less than or equal to {WINDOW_S_MAX}"))
    select, known = given.get("selectPolicy"), ("Disabled", "Max", "Min")
    if select is not None and select not in known:
        errors.append(not_supported(f"{path}.selectPolicy", select, known))
    policies = given.get("policies") or ()
    if not policies:
        errors.append(required(f"{path}.policies", "must specify at least one Policy"))
    errors += [e for i, each in enumerate(policies) for e in _validate_policy(each, f"{path}.policies[{i}]")]
    return errors + non_negative_quantity(given.get("tolerance"), f"{path}.tolerance")


def _described(scaler: Json) -> Iterable[Json]:
    for metric in scaler["spec"].get("metrics") or ():
        if metric.get("type") == "Object" and metric.get("object") is not None:
            yield metric["object"].get("describedObject") or {}


def _validate_spec(new: Json, old: Json | None) -> list[FieldError]:
    spec, path = new["spec"], "spec"
    reference, before = spec.get("scaleTargetRef") or {}, ((old or {}).get("spec") or {}).get("scaleTargetRef") or {}
    same = old is not None and all((reference.get(n) or "") == (before.get(n) or "") for n in ("apiVersion", "kind"))
    wrong = "" if same else _version_error(reference, reference.get("kind") == "ReplicationController")
    any_version = old is not None and any(_version_error(each, True) for each in _described(old))
    least = 0 if old is not None and old["spec"].get("minReplicas") == 0 else 1
    errors = _validate_counts(spec, path, least)
    errors += _validate_reference(reference, f"{path}.scaleTargetRef", wrong)
    errors += _validate_metrics(spec, f"{path}.metrics", any_version)
    behavior = spec.get("behavior") or {}
    return errors + [
        e for way in ("scaleUp", "scaleDown") for e in _validate_rules(behavior.get(way), f"{path}.behavior.{way}")
    ]


def _validate(scaler: Json) -> list[FieldError]:
    return validate_object_meta(scaler["metadata"], True, is_dns1123_subdomain) + _validate_spec(scaler, None)


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + _validate_spec(new, old)


_counts = rules(at("status.currentReplicas", non_negative), at("status.desiredReplicas", non_negative))


def _validate_status(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + _counts(new)


# --- printing -------------------------------------------------------------------------------------------------------

SHOWN_MAX: Final = 2


def _shown(metric: Json, status: Json) -> str:
    field = _FIELDS.get(metric.get("type") or "")
    if field is None:
        return "<unknown type>"
    source, reported = metric.get(field) or {}, status.get(field)
    target, current = source.get("target") or {}, (reported or {}).get("current") or {}
    prefix = f"{source.get('name') or ''}: " if field.endswith("esource") else ""
    average = target.get("averageValue")
    if prefix and average is None:
        share, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        now = f"{share}%" if share is not None else UNKNOWN
        return f"{prefix}{now}/{f'{wanted}%' if wanted is not None else '<auto>'}"
    name = "value" if average is None and field != "pods" else "averageValue"
    averaged = field in ("external", "object") and average is not None
    known = reported is not None and not (averaged and current.get(name) is None)
    now = (current.get(name) or "<nil>") if known else UNKNOWN
    return f"{prefix}{now}/{target.get(name) or '<nil>'}{' (avg)' if averaged else ''}"


def _metrics_text(scaler: Json) -> str:
    metrics = (scaler.get("spec") or {}).get("metrics") or ()
    statuses = (scaler.get("status") or {}).get("currentMetrics") or ()
    shown = [_shown(each, statuses[i] if i < len(statuses) else {}) for i, each in enumerate(metrics)]
    text = ", ".join(shown[:SHOWN_MAX]) or NONE
    return f"{text} + {len(shown) - SHOWN_MAX} more..." if len(shown) > SHOWN_MAX else text


def _print(scaler: Json, age: Age) -> list[Any]:
    metadata, spec = scaler["metadata"], scaler.get("spec") or {}
    reference, least = spec.get("scaleTargetRef") or {}, spec.get("minReplicas")
    return [
        metadata["name"],
        f"{reference.get('kind') or ''}/{reference.get('name') or ''}",
        _metrics_text(scaler),
        "<unset>" if least is None else str(least),
        spec.get("maxReplicas") or 0,
        (scaler.get("status") or {}).get("currentReplicas") or 0,
        age(metadata.get("creationTimestamp")),
    ]


_COLUMNS: Final = (
    NAME,
    column("Reference", "What it scales."),
    column("Targets", "What it measures, and what that should be."),
    column("MinPods", "The fewest pods."),
    column("MaxPods", "The most pods."),
    column("Replicas", "How many pods there are."),
    AGE,
)


def _print_v1(scaler: Json, age: Age) -> list[Any]:
    autoscaling_v1.to_v2(scaler)
    return _print(scaler, age)


_FACTS: Final[dict[str, Any]] = {
    "short_names": ("hpa",), "categories": ("all",), "subresources": (status_of(KIND),),
    "selectable": NAMESPACED,
    "forms": {
        f"{GROUP}/v1": Form(f"{GROUP}/v1.{KIND}", autoscaling_v1.to_v2, autoscaling_v1.from_v2),
        f"{GROUP}/v2": Form(f"{GROUP}/v2.{KIND}"),
    },
}  # fmt: skip
_NAMES: Final = (KIND, "horizontalpodautoscalers", "horizontalpodautoscaler", True)

AUTOSCALERS: Final = Kind(
    GROUP, "v2", *_NAMES, **_FACTS,
    default=default_v2,
    prepare_create=_create,
    validate=_validate,
    validate_update={"": _validate_update, "status": _validate_status},
    printer=Printer(_COLUMNS, _print),
)  # fmt: skip

AUTOSCALERS_V1: Final = Kind(
    GROUP, "v1", *_NAMES, **_FACTS,
    default=autoscaling_v1.default,
    converts=Conversion(AUTOSCALERS, autoscaling_v1.to_v2),
    read=autoscaling_v1.read,
    printer=Printer(_COLUMNS, _print_v1),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (AUTOSCALERS, AUTOSCALERS_V1)
