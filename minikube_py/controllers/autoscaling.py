"""Computes the replica count of a HorizontalPodAutoscaler from pod usage, limits, rates and windows. Pure.

Source: `pkg/controller/podautoscaler/{replica_calculator,horizontal}.go`, `metrics/utilization.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.values import INT64_MAX
from minikube_py.client.rest import Object
from minikube_py.errors import MinikubeError
from minikube_py.fields import quantity
from minikube_py.fields.pod_requests import pod_requests

_GENERIC: Final = {
    404: "the server could not find the requested resource",
    503: "the server is currently unable to handle the request",
}
INT32_MAX: Final = (1 << 31) - 1
_SCALE_UP_FACTOR, _SCALE_UP_LEAST = 2, 4
_FULL: Final = 100
_MILLI: Final = 1000


class Uncalculated(Exception):
    """Why no replica count can be computed."""


def told_by_server(error: MinikubeError, of: str) -> str:
    """Upstream's text of an error to a GET; `of`: the resource and the group, and the name if there is one. What serves
    a group answers with a Status, which has a reason."""
    generic = _GENERIC.get(error.code) if isinstance(error, StatusError) and not error.reason else None
    return f"{generic} (get {of})" if generic else str(error)


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """Defaults are those of kube-controller-manager 1.36."""

    period_s: float = 15.0
    downscale_window_s: int = 300
    tolerance: float = 0.1
    cpu_initialization_s: float = 300.0
    initial_readiness_s: float = 30.0


class Metric(NamedTuple):
    """In thousandths. It was measured from `at_s - window_s` to `at_s`."""

    value: int
    at_s: float = 0.0
    window_s: float = 0.0


class Tolerances(NamedTuple):
    down: float
    up: float

    def hold(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


def tolerances_of(behavior: Object | None, usual: float) -> Tolerances:
    told = [((behavior or {}).get(way) or {}).get("tolerance") for way in ("scaleDown", "scaleUp")]
    return Tolerances(*(usual if each is None else _approximate(each) for each in told))


def _approximate(text: str) -> float:
    found = quantity.parse(text)
    return found.unscaled * 10.0**found.scale


# --- usage ----------------------------------------------------------------------------------------------------------

Metrics = dict[str, Metric]
Ratio = Callable[[Metrics], tuple[float, int, int]]
"""The usage as a share of the target; the utilization, and the average."""


class Calculated(NamedTuple):
    replicas: int
    utilization: int
    average: int


class Scaled(NamedTuple):
    """The pods of the scale target, its current replica count, and the count of its status."""

    pods: Sequence[Object]
    current: int
    observed: int
    tolerances: Tolerances
    now_s: float
    config: AutoscalerConfig


def by_utilization(scaled: Scaled, metrics: Metrics, target: int, resource: str, container: str = "") -> Calculated:
    """For a target in percent of the pods' requests. Raises: Uncalculated."""
    requests: dict[str, int] = {}

    def ratio(used: Metrics) -> tuple[float, int, int]:
        if not requests:
            requests.update({_name(pod): _request(pod, container, resource) for pod in scaled.pods})
        known = [name for name in used if name in requests]
        total, wanted = sum(used[name].value for name in known), sum(requests[name] for name in known)
        if not wanted:
            raise Uncalculated("no metrics returned matched known pods")
        utilization = total * _FULL // wanted
        return utilization / target, utilization, total // len(known)

    return _calculated(scaled, metrics, resource, ratio, lambda name: requests[name] * max(_FULL, target) // _FULL)


def by_value(scaled: Scaled, metrics: Metrics, target: int, resource: str) -> Calculated:
    """For a target in thousandths per pod. Raises: Uncalculated."""

    def ratio(used: Metrics) -> tuple[float, int, int]:
        average = sum(each.value for each in used.values()) // len(used)
        return average / target, 0, average

    return _calculated(scaled, metrics, resource, ratio, lambda name: target)


def by_total(scaled: Scaled, used: int, target: int) -> Calculated:
    """For a metric of the whole, which the ready pods share, and its target, both in thousandths. Raises:
    Uncalculated."""
    share = used / target
    if scaled.tolerances.hold(share):
        return Calculated(scaled.current, 0, used)
    if not scaled.pods:
        why = "no pods returned by selector while calculating replica count"
        raise Uncalculated(f"unable to calculate ready pods: {why}")
    return Calculated(_ceil(share * sum(map(_is_ready, scaled.pods))), 0, used)


def total(values: Sequence[int], averaged: bool) -> int:
    """At most what 64 bits hold; to be averaged, a sum below 0 is taken for one beyond them, as upstream does."""
    found = 0
    for value in values:
        found = min(found + value, INT64_MAX)
        if averaged and found < 0:
            return INT64_MAX
    return found


def by_average(scaled: Scaled, used: int, target: int) -> Calculated:
    """The same, for a target per pod of the status. Counts beyond 32 bits, where Go's conversion goes astray for
    objects, are cut off."""
    observed = scaled.observed
    if not observed:
        # Go converts an infinite average, and one that is no number, to the least integer.
        return Calculated(_ceil(used / target), 0, -INT64_MAX - 1)
    kept = scaled.tolerances.hold(used / (target * observed))
    average = min(math.ceil(used / observed), INT64_MAX)
    return Calculated(observed if kept else _ceil(used / target), 0, average)


def _is_ready(pod: Object) -> bool:
    status = pod.get("status") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    return status.get("phase") == "Running" and ready


def _calculated(
    scaled: Scaled, metrics: Metrics, resource: str, ratio: Ratio, high: Callable[[str], int]
) -> Calculated:
    """`high`: the usage assumed for a pod without a metric when the count would decrease."""
    current, tolerances = scaled.current, scaled.tolerances
    if not scaled.pods:
        raise Uncalculated("no pods returned by selector while calculating replica count")
    ready, unready, missing, ignored = _grouped(scaled, metrics, resource)
    used = {name: each for name, each in metrics.items() if name not in ignored and name not in unready}
    if not used:
        raise Uncalculated("did not receive metrics for targeted pods (pods might be unready)")
    share, utilization, average = ratio(used)
    unready_count = share > 1.0 and bool(unready)
    if not unready_count and not missing:
        replicas = current if tolerances.hold(share) else _ceil(share * ready)
        return Calculated(replicas, utilization, average)
    if share < 1.0:
        used |= {name: Metric(high(name)) for name in missing}
    elif share > 1.0:
        used |= {name: Metric(0) for name in (*missing, *unready)}
    again, _, _ = ratio(used)
    replicas = _ceil(again * len(used))
    turned = (share < 1.0 < again) or (again < 1.0 < share)
    contrary = (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current)
    kept = tolerances.hold(again) or turned or contrary
    return Calculated(current if kept else replicas, utilization, average)


def _ceil(value: float) -> int:
    return min(math.ceil(value), INT32_MAX)


def _name(pod: Object) -> str:
    name: str = pod["metadata"]["name"]
    return name


def _grouped(scaled: Scaled, metrics: Metrics, resource: str) -> tuple[int, list[str], list[str], list[str]]:
    """The number of ready pods; the pods that are not ready, lack a metric, or are ignored."""
    ready = 0
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    for pod in scaled.pods:
        status = pod.get("status") or {}
        name, phase = _name(pod), status.get("phase")
        if pod["metadata"].get("deletionTimestamp") or phase == "Failed":
            ignored.append(name)
        elif phase == "Pending":
            unready.append(name)
        elif name not in metrics:
            missing.append(name)
        elif resource == "cpu" and _is_unready(status, metrics[name], scaled.now_s, scaled.config):
            unready.append(name)
        else:
            ready += 1
    return ready, unready, missing, ignored


def _is_unready(status: Object, metric: Metric, now_s: float, config: AutoscalerConfig) -> bool:
    condition = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
    if condition is None or not status.get("startTime"):
        return True
    started_s = parse_timestamp(status["startTime"])
    since_s = parse_timestamp(condition["lastTransitionTime"]) if condition.get("lastTransitionTime") else 0.0
    is_false = condition.get("status") == "False"
    if started_s + config.cpu_initialization_s > now_s:
        # Usage during startup may not be representative.
        return is_false or metric.at_s < since_s + metric.window_s
    return is_false and started_s + config.initial_readiness_s > since_s


def _request(pod: Object, container: str, resource: str) -> int:
    """In thousandths. Raises: Uncalculated."""
    spec, name = pod["spec"], _name(pod)
    of_pod = (spec.get("resources") or {}).get("requests") or {}
    if not container and any(each in ("cpu", "memory") or each.startswith("hugepages-") for each in of_pod):
        # Also of a pod that has finished, which holds none.
        units = pod_requests({"spec": spec}).get(resource)
        if units is None:
            raise Uncalculated(f"missing pod-level request for {resource} in Pod {name}")
        return units if resource == "cpu" else units * _MILLI
    beside = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    total = 0
    for each in (*(spec.get("containers") or ()), *beside):
        if container in ("", each["name"]):
            text = ((each.get("resources") or {}).get("requests") or {}).get(resource)
            if text is None:
                raise Uncalculated(f"missing request for {resource} in container {each['name']} of Pod {name}")
            total += quantity.parse(text).milli_value()
            if container:
                return total
    if container:
        raise Uncalculated(f"container {container} not found in Pod {name}")
    return total


# --- limits, rates and windows --------------------------------------------------------------------------------------


class Said(NamedTuple):
    """A replica count and its reason."""

    replicas: int
    reason: str
    message: str


@dataclass(slots=True)
class History:
    """What one autoscaler recommended, and its scaling events: pairs of (replicas, time)."""

    recommended: list[tuple[int, float]] = field(default_factory=list)
    up: list[tuple[int, float]] = field(default_factory=list)
    down: list[tuple[int, float]] = field(default_factory=list)

    def scaled(self, behavior: Mapping[str, Object] | None, before: int, after: int, now_s: float) -> None:
        if behavior is None:
            return
        way, events = ("scaleUp", self.up) if after > before else ("scaleDown", self.down)
        longest_s = max((each["periodSeconds"] for each in behavior[way].get("policies") or ()), default=0)
        _put(events, (abs(after - before), now_s), [at_s < now_s - longest_s for _, at_s in events])


def _put(kept: list[tuple[int, float]], new: tuple[int, float], old: list[bool]) -> None:
    """Overwrites the last outdated entry, or appends."""
    if True in old:
        kept[len(old) - 1 - old[::-1].index(True)] = new
    else:
        kept.append(new)


_RANGE: Final = ("DesiredWithinRange", "the desired count is within the acceptable range")
_FAST: Final = "the desired replica count is {} faster than the maximum scale rate"
_MORE: Final = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_FEWER: Final = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_LOWER: Final = "recent recommendations were lower than current one, applying the lowest recent recommendation"
HIGHER: Final = "recent recommendations were higher than current one, applying the highest recent recommendation"


def stabilized(history: History, desired: int, window_s: float, now_s: float) -> int:
    """The highest recommendation within the window, for autoscalers without a behavior."""
    old = [at_s < now_s - window_s for _, at_s in history.recommended]
    recent = [replicas for (replicas, _), is_old in zip(history.recommended, old) if not is_old]
    _put(history.recommended, (desired, now_s), old)
    return max([desired, *recent])


def limited(current: int, desired: int, least: int, most: int) -> Said:
    """For autoscalers without a behavior."""
    fastest = max(_SCALE_UP_FACTOR * current, _SCALE_UP_LEAST)
    top, why = (fastest, ("ScaleUpLimit", _FAST.format("increasing"))) if most > fastest else (most, _MORE)
    if desired < least:
        return Said(least, *_FEWER)
    return Said(top, *why) if desired > top else Said(desired, *_RANGE)


def stabilized_by(history: History, behavior: Mapping[str, Object], current: int, desired: int, now_s: float) -> Said:
    cut_up, cut_down = (now_s - behavior[way]["stabilizationWindowSeconds"] for way in ("scaleUp", "scaleDown"))
    low = min([desired, *(replicas for replicas, at_s in history.recommended if at_s > cut_up)])
    high = max([desired, *(replicas for replicas, at_s in history.recommended if at_s > cut_down)])
    old = [at_s < cut_up and at_s < cut_down for _, at_s in history.recommended]
    _put(history.recommended, (desired, now_s), old)
    found = min(max(current, low), high)
    return (
        Said(found, "ScaleUpStabilized", _LOWER) if desired >= current else Said(found, "ScaleDownStabilized", HIGHER)
    )


def limited_by(
    history: History, behavior: Mapping[str, Object], current: int, desired: int, least: int, most: int, now_s: float
) -> Said:
    if desired > current:
        limit = max(_rate(history, behavior["scaleUp"], current, now_s, True), current)
        top, why = (limit, ("ScaleUpLimit", _FAST.format("increasing"))) if most > limit else (most, _MORE)
        if desired > top:
            return Said(top, *why)
    elif desired < current:
        limit = min(_rate(history, behavior["scaleDown"], current, now_s, False), current)
        bottom, why = (limit, ("ScaleDownLimit", _FAST.format("decreasing"))) if least < limit else (least, _FEWER)
        if desired < bottom:
            return Said(bottom, *why)
    return Said(desired, *_RANGE)


def _rate(history: History, rules: Object, current: int, now_s: float, up: bool) -> int:
    """The replica count that the policies allow now."""
    select = rules.get("selectPolicy") or "Max"
    if select == "Disabled":
        return current
    proposed: list[int] = []
    for policy in rules.get("policies") or ():
        cutoff_s, value = now_s - policy["periodSeconds"], policy["value"]
        added, removed = (sum(n for n, at_s in events if at_s > cutoff_s) for events in (history.up, history.down))
        start = current - added + removed
        if policy["type"] == "Pods":
            proposed.append(start + value if up else start - value)
        elif up:
            proposed.append(_ceil(start * (1 + value / _FULL)))
        else:
            proposed.append(int(start * (1 - value / _FULL)))
    widest = (select == "Max") == up
    if not proposed:
        return -INT32_MAX - 1 if widest else INT32_MAX
    return max(proposed) if widest else min(proposed)
