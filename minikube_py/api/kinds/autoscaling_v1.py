"""HorizontalPodAutoscalers between autoscaling/v2, as they are stored, and autoscaling/v1.

Source: `pkg/apis/autoscaling/v1/conversion.go`. Annotations hold what v1 has no field for: metrics and conditions as
JSON of types of v1, the behavior as JSON of an internal type, whose members are named as in Go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from minikube_py.api import go_json
from minikube_py.api.decode import read_value
from minikube_py.api.errors import Json
from minikube_py.api.schema import SCHEMA, ordered
from minikube_py.api.typed import DecodeError, always, fill
from minikube_py.fields import quantity

CPU_UTILIZATION: Final = 80
_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_METRICS, _STATUSES = f"{_PREFIX}metrics", f"{_PREFIX}current-metrics"
_BEHAVIOR, _CONDITIONS = f"{_PREFIX}behavior", f"{_PREFIX}conditions"
_DROPPED: Final = (
    _METRICS, _STATUSES, _BEHAVIOR, _CONDITIONS, f"{_PREFIX}scale-down-tolerance", f"{_PREFIX}scale-up-tolerance",
)  # fmt: skip


def cpu_at(percent: int) -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def complete(scaler: Json, version: str) -> None:
    """With unset fields that Go prints."""
    message = SCHEMA.message(f"autoscaling/{version}.HorizontalPodAutoscaler")
    fill(always(message), scaler)
    for name in ("spec", "status"):
        scaler[name] = scaler[name] or {}
        fill(always(SCHEMA.message(message.fields[name].type.message)), scaler[name])


def drop_annotations(scaler: Json) -> None:
    annotations = scaler["metadata"].get("annotations")
    if annotations and any(name in annotations for name in _DROPPED):
        kept = {name: text for name, text in annotations.items() if name not in _DROPPED}
        scaler["metadata"]["annotations"] = kept
        if not kept:
            del scaler["metadata"]["annotations"]


def default(scaler: Json) -> None:
    complete(scaler, "v1")
    if scaler["spec"].get("minReplicas") is None:
        scaler["spec"]["minReplicas"] = 1


# --- metrics --------------------------------------------------------------------------------------------------------


def _some(**given: Any) -> Json:
    return {name: value for name, value in given.items() if value is not None}


def _metric(of: Json, selector: str = "selector") -> Json:
    return _some(name=of["metricName"], selector=of.get(selector))


def _object_to_v2(of: Json) -> Json:
    average, value = of.get("averageValue"), of["targetValue"]
    kept = value if average is None or quantity.parse(value).unscaled else None
    target = _some(type="Value" if average is None else "AverageValue", value=kept, averageValue=average)
    return {"describedObject": of["target"], "target": target, "metric": _metric(of)}


def _external_to_v2(of: Json) -> Json:
    value, average = of.get("targetValue"), of.get("targetAverageValue")
    target = _some(type="AverageValue" if value is None else "Value", value=value, averageValue=average)
    return {"metric": _metric(of, "metricSelector"), "target": target}


def _resource_to_v2(of: Json) -> Json:
    share, average = of.get("targetAverageUtilization"), of.get("targetAverageValue")
    kind = "AverageValue" if share is None else "Utilization"
    target = _some(type=kind, averageValue=average, averageUtilization=share)
    return _some(name=of["name"], target=target, container=of.get("container"))


def _resource_to_v1(of: Json) -> Json:
    target = of["target"]
    found = _some(
        name=of["name"], targetAverageUtilization=target.get("averageUtilization"),
        targetAverageValue=target.get("averageValue"), container=of.get("container"),
    )  # fmt: skip
    return found


def _resource_status_to_v2(of: Json) -> Json:
    current = _some(averageValue=of["currentAverageValue"], averageUtilization=of.get("currentAverageUtilization"))
    return _some(name=of["name"], current=current, container=of.get("container"))


def _resource_status_to_v1(of: Json) -> Json:
    current = of["current"]
    return _some(
        name=of["name"], currentAverageUtilization=current.get("averageUtilization"),
        currentAverageValue=current.get("averageValue") or "0", container=of.get("container"),
    )  # fmt: skip


_Change = Callable[[Json], Json]
_SPEC_TO_V2: Final[dict[str, _Change]] = {
    "object": _object_to_v2,
    "pods": lambda of: {
        "metric": _metric(of), "target": {"type": "AverageValue", "averageValue": of["targetAverageValue"]},
    },
    "resource": _resource_to_v2,
    "containerResource": _resource_to_v2,
    "external": _external_to_v2,
}  # fmt: skip
_SPEC_TO_V1: Final[dict[str, _Change]] = {
    "object": lambda of: _some(
        target=of["describedObject"], metricName=of["metric"]["name"], targetValue=of["target"].get("value") or "0",
        selector=of["metric"].get("selector"), averageValue=of["target"].get("averageValue"),
    ),
    "pods": lambda of: _some(
        metricName=of["metric"]["name"], targetAverageValue=of["target"].get("averageValue") or "0",
        selector=of["metric"].get("selector"),
    ),
    "resource": _resource_to_v1,
    "containerResource": _resource_to_v1,
    "external": lambda of: _some(
        metricName=of["metric"]["name"], metricSelector=of["metric"].get("selector"),
        targetValue=of["target"].get("value"), targetAverageValue=of["target"].get("averageValue"),
    ),
}  # fmt: skip
_STATUS_TO_V2: Final[dict[str, _Change]] = {
    "object": lambda of: {
        "metric": _metric(of), "current": _some(value=of["currentValue"], averageValue=of.get("averageValue")),
        "describedObject": of["target"],
    },
    "pods": lambda of: {"metric": _metric(of), "current": {"averageValue": of["currentAverageValue"]}},
    "resource": _resource_status_to_v2,
    "containerResource": _resource_status_to_v2,
    "external": lambda of: {
        "metric": _metric(of, "metricSelector"),
        "current": _some(value=of["currentValue"], averageValue=of.get("currentAverageValue")),
    },
}  # fmt: skip
_STATUS_TO_V1: Final[dict[str, _Change]] = {
    "object": lambda of: _some(
        target=of["describedObject"], metricName=of["metric"]["name"], currentValue=of["current"].get("value") or "0",
        selector=of["metric"].get("selector"), averageValue=of["current"].get("averageValue"),
    ),
    "pods": lambda of: _some(
        metricName=of["metric"]["name"], currentAverageValue=of["current"].get("averageValue") or "0",
        selector=of["metric"].get("selector"),
    ),
    "resource": _resource_status_to_v1,
    "containerResource": _resource_status_to_v1,
    "external": lambda of: _some(
        metricName=of["metric"]["name"], metricSelector=of["metric"].get("selector"),
        currentValue=of["current"].get("value") or "0", currentAverageValue=of["current"].get("averageValue"),
    ),
}  # fmt: skip


def _each(metric: Json, changes: dict[str, _Change]) -> Json:
    sources = {name: change(metric[name]) for name, change in changes.items() if metric.get(name) is not None}
    return {"type": metric.get("type") or "", **sources}


def _cpu_share(metric: Json, part: str) -> int | None:
    resource = metric.get("resource")
    if metric.get("type") != "Resource" or resource is None or resource["name"] != "cpu":
        return None
    share: int | None = resource[part].get("averageUtilization")
    return share


# --- annotations ----------------------------------------------------------------------------------------------------


def _text(values: list[Json], type_name: str) -> str:
    return orjson.dumps([ordered(value, f"autoscaling/v1.{type_name}") for value in values]).decode()


def _values(text: str | None, type_name: str) -> list[Json] | None:
    """None if the annotation is missing or invalid."""
    if text is None:
        return None
    try:
        found = orjson.loads(text)
        message = SCHEMA.message(f"autoscaling/v1.{type_name}")
        return [read_value(value, message)[0] for value in found or ()] if isinstance(found or [], list) else None
    except (orjson.JSONDecodeError, DecodeError, TypeError):
        return None


_GO_NAMES: Final = (
    "scaleUp", "scaleDown", "stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance", "type", "value",
    "periodSeconds",
)  # fmt: skip
_RULES: Final = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")


def _go(name: str) -> str:
    return name[0].upper() + name[1:]


def _behavior_text(behavior: Json) -> str:
    def rules(given: Json | None) -> Json | None:
        if given is None:
            return None
        found: Json = {_go(name): given.get(name) for name in _RULES}
        found["Policies"] = [
            {_go(name): each.get(name) for name in ("type", "value", "periodSeconds")} for each in given["policies"]
        ] if given.get("policies") is not None else None  # fmt: skip
        return found

    return orjson.dumps({_go(way): rules(behavior.get(way)) for way in ("scaleUp", "scaleDown")}).decode()


def _behavior(text: str | None) -> Json | None:
    if text is None:
        return None
    names = {name.lower(): name for name in _GO_NAMES}

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {names.get(name.lower(), name): renamed(item) for name, item in value.items()}
        return [renamed(item) for item in value] if isinstance(value, list) else value

    try:
        message = SCHEMA.message("autoscaling/v2.HorizontalPodAutoscalerBehavior")
        return read_value(renamed(orjson.loads(text)), message)[0] or None
    except (orjson.JSONDecodeError, DecodeError, TypeError):
        return None


# --- objects --------------------------------------------------------------------------------------------------------


def to_v2(scaler: Json) -> None:
    """In place, after `complete`."""
    spec, status = scaler["spec"], scaler["status"]
    annotations = scaler["metadata"].get("annotations") or {}
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    metrics = [] if percent is None else [cpu_at(percent)]
    if (others := _values(annotations.get(_METRICS), "MetricSpec")) is not None:
        metrics = [*(_each(each, _SPEC_TO_V2) for each in others), *metrics]
    spec["metrics"] = metrics or [cpu_at(CPU_UTILIZATION)]
    if (behavior := _behavior(annotations.get(_BEHAVIOR))) is not None:
        spec["behavior"] = behavior
    share = status.pop("currentCPUUtilizationPercentage", None)
    current = None
    if share is not None:
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": share}}}]
    if (reported := _values(annotations.get(_STATUSES), "MetricStatus")) is not None:
        current = [_each(each, _STATUS_TO_V2) for each in reported]
    status["currentMetrics"] = current
    if conditions := _values(annotations.get(_CONDITIONS), "HorizontalPodAutoscalerCondition"):
        status["conditions"] = conditions
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    drop_annotations(scaler)


def read(value: bytes) -> bytes:
    """A stored object as v1."""
    scaler = orjson.loads(value)
    from_v2(scaler)
    return go_json.dumps(scaler)


def from_v2(scaler: Json) -> None:
    """In place."""
    spec, status = scaler["spec"], scaler["status"]
    drop_annotations(scaler)
    added: dict[str, str] = {}
    metrics, current = spec.pop("metrics", None) or [], status.pop("currentMetrics", None) or []
    shares = [_cpu_share(each, "target") for each in metrics]
    first = next((share for share in shares if share is not None), None)
    if first is not None:
        spec["targetCPUUtilizationPercentage"] = first
    if others := [_each(each, _SPEC_TO_V1) for each, share in zip(metrics, shares) if share is None]:
        added[_METRICS] = _text(others, "MetricSpec")
    for each in current:
        if (share := _cpu_share(each, "current")) is not None:
            status["currentCPUUtilizationPercentage"] = share
    if current:
        added[_STATUSES] = _text([_each(each, _STATUS_TO_V1) for each in current], "MetricStatus")
    if (behavior := spec.pop("behavior", None)) is not None:
        added[_BEHAVIOR] = _behavior_text(behavior)
    if conditions := status.pop("conditions", None):
        added[_CONDITIONS] = _text(conditions, "HorizontalPodAutoscalerCondition")
    if added:
        scaler["metadata"]["annotations"] = {**(scaler["metadata"].get("annotations") or {}), **added}
    status.setdefault("currentReplicas", 0)
