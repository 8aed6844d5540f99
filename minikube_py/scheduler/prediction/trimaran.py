"""TargetLoadPacking and LoadVariationRiskBalancing of sigs.k8s.io/scheduler-plugins (trimaran), by its formulas.

Source: scheduler-plugins v0.33.5, pkg/trimaran. Differences: usage comes from metrics.k8s.io (`metrics_api`), or from
a custom source (`usage`) as means of five minutes, of which load and deviation of a node are over the last `WINDOW`;
TargetLoadPacking uses a node's allocatable CPU instead of its capacity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from minikube_py.fields.quantity import QuantityError, wide_units
from minikube_py.scheduler.columns import Nodes
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.configuration.own_args import Kind, mapped, number, whole, wrong
from minikube_py.scheduler.framework import MAX_NODE_SCORE, CycleState, Handle, IntArray
from minikube_py.scheduler.objects import CPU, MEMORY, NodeInfo, PodInfo
from minikube_py.scheduler.prediction.predictor import FloatArray
from minikube_py.scheduler.prediction.usage import RESOURCES, Meter, Rows, args_of, meter_of

WINDOW: Final = 3
"""Samples: 15 minutes, as for a load watcher."""
ANY_NUMBER: Final = number(-1e15, 1e15)
MIN_NODE_SCORE: Final = 0


def target_load_score(percent: float, target: float) -> int:
    """`percent`: of the node's CPU, including the pod. The score rises up to the target, then falls to 0."""
    if percent > 100:
        return 0
    if percent > target:
        return rounded(target * (100 - percent) / (100 - target))
    return rounded((100 - target) * percent / target + target)


def risk_score(capacity: float, request: float, mean: float, deviation: float, margin: float, power: float) -> float:
    """Of one resource, 0 to 100; `power` is upstream's sensitivity."""
    if capacity <= 0:
        return 0.0
    mu = _share((_within(mean, capacity) + max(request, 0.0)) / capacity)
    sigma = _within(deviation, capacity) / capacity
    if power >= 0:
        sigma = (1.0 if sigma == 1 else 0.0) if power == 0 else sigma ** (1 / power)
    return (1 - (mu + _share(sigma * margin)) / 2) * MAX_NODE_SCORE


def _within(value: float, capacity: float) -> float:
    return max(min(value, capacity), 0.0)


def _share(value: float) -> float:
    return max(min(value, 1.0), 0.0)


def rounded(value: float) -> int:
    """As Go's math.Round, for values of at least 0."""
    return math.floor(value + 0.5)


def _multiplier(value: Any, path: str) -> float:
    """As upstream's, a text of a number."""
    try:
        found = float(value) if isinstance(value, str) and len(value) < 40 else math.nan
        return float(number(0, 1e6)(found, path))
    except (ValueError, ConfigError):
        raise wrong(value, path, 'must be a text of a number from 0 to 1,000,000, such as "1.5"') from None


def _amount(value: Any, path: str) -> int:
    try:
        return wide_units(CPU, value)
    except (TypeError, QuantityError):
        raise wrong(value, path, "must be an amount of CPU, such as 500m") from None


class _ByLoad:
    """Scores nodes by their pods' load: by slot, the unseen load, and mean and deviation of each resource."""

    name = ""
    bounded = True
    known: Mapping[str, Kind] = {}

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.args = args_of(self.name, args, self.known)
        self.handle = handle
        self.meter: Meter = meter_of(self.name, self.args, handle, WINDOW, of_pods=False)
        self.rows = Rows(handle.columns, self.meter, 1 + 2 * len(RESOURCES), self._load)

    def number(self, field: str, usual: float, least: float) -> float:
        """As upstream's defaults: `usual` if absent or below `least`."""
        value: float = self.args.get(field, usual)
        return value if value >= least else usual

    def _load(self, node: NodeInfo) -> Sequence[float]:
        """Mean and deviation of each resource, after a NaN if the node's load is unknown. Pods that it lacks count as
        they would if they came now."""
        known, of, missing = self.meter.load(node)
        found = [0.0 if known else math.nan]
        for resource in RESOURCES:
            mean, deviation = of.get(resource, (0.0, 0.0))
            found += [mean + sum(self.assumed(pod, resource) for pod in missing), deviation]
        return found

    def assumed(self, pod: PodInfo, resource: str) -> int:
        """What a pod counts of which nothing is known."""
        raise NotImplementedError

    def _scored(self, pod: PodInfo, rows: FloatArray, capacities: Mapping[str, IntArray]) -> IntArray:
        scores, unknown = self.scores(pod, np.nan_to_num(rows), capacities), np.isnan(rows[:, 0])
        return np.where(unknown, MIN_NODE_SCORE, scores)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        rows = self.rows.one(node)[None, :]
        capacities = {resource: np.array([node.allocatable.get(resource, 0)]) for resource in RESOURCES}
        return int(self._scored(pod, rows, capacities)[0])

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray:
        capacities = {resource: nodes.allocatable(resource) for resource in RESOURCES}
        return self._scored(pod, self.rows.of_slots(nodes.index), capacities)

    def scores(self, pod: PodInfo, rows: FloatArray, capacities: Mapping[str, IntArray]) -> IntArray:
        raise NotImplementedError


class TargetLoadPacking(_ByLoad):
    """Fills nodes up to `targetUtilization` percent (40) of their CPU, and spreads above that."""

    name = "TargetLoadPacking"
    known = {
        "targetUtilization": whole(-(2**63), 2**63 - 1),
        "defaultRequests": mapped(_amount),
        "defaultRequestsMultiplier": _multiplier,
    }

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.target = 40.0
        self.default_milli = 1000
        super().__init__(args, handle)
        self.target = self.number("targetUtilization", 40, 1)
        if self.target > 100:
            raise ConfigError(f'plugin "{self.name}": targetUtilization is {self.target:g}; at most 100 is expected')
        self.multiplier: float = self.args.get("defaultRequestsMultiplier", 1.5)
        if "defaultRequests" in self.args:
            self.default_milli = self.args["defaultRequests"].get(CPU, 0)

    def expected(self, pod: PodInfo) -> int:
        """The expected CPU usage of a new pod: limits; else requests times the multiplier; else the default."""
        return pod.spec.cpu.overhead + sum(self._of_container(*each) for each in pod.spec.cpu.each)

    def _of_container(self, limit: int | None, request: int | None) -> int:
        if limit is not None:
            return limit
        return rounded(request * self.multiplier) if request is not None else self.default_milli

    def assumed(self, pod: PodInfo, resource: str) -> int:
        return self.expected(pod) if resource == CPU else 0

    def scores(self, pod: PodInfo, rows: FloatArray, capacities: Mapping[str, IntArray]) -> IntArray:
        used = rows[:, 1] + self.expected(pod)
        return _each(
            target_load_score(100 * each / capacity if capacity else 0.0, self.target)
            for each, capacity in zip(used.tolist(), capacities[CPU].tolist(), strict=True)
        )


class LoadVariationRiskBalancing(_ByLoad):
    """The lower of the CPU and memory scores by mean load and deviation: (1 - risk) x 100."""

    name = "LoadVariationRiskBalancing"
    known = {"safeVarianceMargin": ANY_NUMBER, "safeVarianceSensitivity": ANY_NUMBER}

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.margin = self.number("safeVarianceMargin", 1, 0)
        self.power = self.number("safeVarianceSensitivity", 1, 0)

    def assumed(self, pod: PodInfo, resource: str) -> int:
        return _requested(pod)[RESOURCES.index(resource)]

    def scores(self, pod: PodInfo, rows: FloatArray, capacities: Mapping[str, IntArray]) -> IntArray:
        cpu, memory = _requested(pod)
        of_each = [
            [
                risk_score(capacity, requested, mean, deviation, self.margin, self.power)
                for capacity, mean, deviation in zip(
                    capacities[resource].tolist(), rows[:, at].tolist(), rows[:, at + 1].tolist(), strict=True
                )
            ]
            for resource, requested, at in ((CPU, cpu, 1), (MEMORY, memory, 3))
        ]
        return _each(rounded(min(both)) for both in zip(*of_each, strict=True))


def _requested(pod: PodInfo) -> tuple[int, int]:
    """CPU and memory, as upstream's plugin counts them."""
    return pod.spec.cpu.trimaran or (pod.spec.request(CPU), pod.spec.request(MEMORY))


def _each(scores: Iterable[int]) -> IntArray:
    return np.fromiter(scores, np.int64)
