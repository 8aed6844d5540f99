"""Upstream's workload files: test cases, their workloads, parameters, labels, feature gates and thresholds.

Source: test/integration/scheduler_perf/scheduler_perf.go, label_selector.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from minikube_py.errors import InvalidRequest
from minikube_py.lab.scheduler_perf.ops import (
    CreatePods,
    CreatePodSets,
    Op,
    StartCollectingMetrics,
    StopCollectingMetrics,
    patched,
    read_fields,
)
from minikube_py.lab.scheduler_perf.templates import read_text, read_yaml

THROUGHPUT: Final = "SchedulingThroughput"
HOOK_PARAM: Final = "numNodeDeclaredFeatures"
"""A parameter that no operation names: upstream reads it in Go in that folder's test."""
DEFAULT_METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "scheduler_framework_extension_point_duration_seconds": ("extension_point",),
    "scheduler_scheduling_attempt_duration_seconds": ("result",),
    "scheduler_pod_scheduling_duration_seconds": (),
    "scheduler_plugin_execution_duration_seconds": ("plugin", "extension_point"),
}
"""By histogram name: the labels that split it."""


@dataclass(frozen=True, slots=True)
class Selector:
    """The figure that a threshold applies to."""

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    data_bucket: str = ""
    expect_lower: bool = False


DEFAULT_SELECTOR: Final = Selector(THROUGHPUT, {}, "Average")


@dataclass(frozen=True, slots=True)
class LabelValues:
    label: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    place: str = ""
    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    threshold: Any = 0.0
    threshold_metric_selector: Selector | None = None
    feature_gates: Mapping[str, bool] = field(default_factory=dict)

    def threshold_of(self, topic: str) -> float:
        if isinstance(self.threshold, dict):
            return float(self.threshold.get(topic, 0.0))
        return float(self.threshold)

    def param(self, name: str, kind: type) -> Any:
        """Raises: InvalidRequest if it is missing or has another type."""
        if name not in self.params:
            raise InvalidRequest(f"{self.place}: parameter {name} is undefined")
        value = self.params[name]
        if kind is int and isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
        if kind is bool and isinstance(value, bool):
            return value
        if issubclass(kind, float) and isinstance(value, str):
            from minikube_py.lab.scheduler_perf.ops import duration

            return duration(value, f"{self.place}.params.{name}")
        raise InvalidRequest(f"{self.place}: parameter {name} has the wrong type: {value!r}")


@dataclass(frozen=True, slots=True)
class TestCase:
    """`folder`: the base of the file's relative paths."""

    place: str = ""
    name: str = ""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    metrics_collector_config: MetricsConfig | None = None
    workload_template: tuple[Op, ...] = ()
    workloads: tuple[Workload, ...] = ()
    scheduler_config_path: str = ""
    default_pod_template_path: str = ""
    labels: tuple[str, ...] = ()
    default_threshold_metric_selector: Selector | None = None
    folder: Path = Path()

    @property
    def metrics(self) -> Mapping[str, tuple[tuple[str, frozenset[str]], ...]]:
        """By histogram name: labels, and the values that count (empty: all)."""
        if self.metrics_collector_config is None:
            return {name: tuple((each, frozenset[str]()) for each in names) for name, names in DEFAULT_METRICS.items()}
        found = {}
        for name, filters in self.metrics_collector_config.metrics.items():
            place = f"{self.place}.metricsCollectorConfig.metrics.{name}"
            read = [read_fields(LabelValues, each, place) for each in filters or ()]
            found[name] = tuple((each.label, frozenset(each.values)) for each in read)
        return found

    def selector(self, workload: Workload) -> Selector:
        return workload.threshold_metric_selector or self.default_threshold_metric_selector or DEFAULT_SELECTOR


@dataclass(frozen=True, slots=True)
class Run:
    """A workload with executable operations: parameters substituted, pod sets unrolled."""

    case: TestCase
    workload: Workload
    ops: tuple[Op, ...]

    @property
    def name(self) -> str:
        return f"{self.case.name}/{self.workload.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.case.labels, *self.workload.labels)

    @property
    def gates(self) -> dict[str, bool]:
        return {**self.case.feature_gates, **self.workload.feature_gates}

    @property
    def declared_features(self) -> tuple[str, ...]:
        """Features that its nodes declare, and that pods with pod-level resources need."""
        count = self.workload.params.get(HOOK_PARAM, 0) if self.gates.get("NodeDeclaredFeatures") else 0
        return tuple(sorted(f"Feature{number}" for number in range(1, int(count) + 1)))

    @property
    def pods(self) -> int:
        return sum(op.count for op in self.ops if isinstance(op, CreatePods))


def read_file(path: Path) -> list[Run]:
    """All workloads of a file. Raises: InvalidRequest, with file and place."""
    document = read_yaml(read_text(path), str(path))
    if not isinstance(document, list):
        raise InvalidRequest(f"{path}: a list of test cases is expected")
    found: dict[str, Run] = {}
    for at, each in enumerate(document):
        name = each.get("name") if isinstance(each, dict) else None
        case = replace(read_fields(TestCase, each, f"{path}: {name or f'[{at}]'}"), folder=path.parent)
        _check_case(case)
        for workload in case.workloads:
            run = _run(case, workload)
            if run.name in found:
                raise InvalidRequest(f"{case.place}: workload name {workload.name} is not unique")
            found[run.name] = run
    return list(found.values())


def _check_case(case: TestCase) -> None:
    if not case.name:
        raise InvalidRequest(f"{case.place}: a test case has a name")
    if not case.workload_template:
        raise InvalidRequest(f"{case.place}: a test case has a workloadTemplate")
    if not case.workloads:
        raise InvalidRequest(f"{case.place}: a test case has workloads")
    selector = case.default_threshold_metric_selector
    known = {THROUGHPUT, *case.metrics}
    for each in (selector, *(workload.threshold_metric_selector for workload in case.workloads)):
        if each is not None and not each.data_bucket:
            raise InvalidRequest(f"{case.place}: dataBucket should be set for metric {each.name}")
        if each is not None and each.name not in known:
            raise InvalidRequest(
                f"{case.place}: the metric {each.name} is targeted, but it's not collected during the test"
            )


def _run(case: TestCase, workload: Workload) -> Run:
    workload = replace(workload, place=f"{case.place}/{workload.name}")
    limits = workload.threshold.values() if isinstance(workload.threshold, dict) else (workload.threshold,)
    if not all(isinstance(limit, int | float) and not isinstance(limit, bool) and limit >= 0 for limit in limits):
        raise InvalidRequest(f"{workload.place}: invalid threshold {workload.threshold!r}; should be non-negative")
    used: set[str] = {HOOK_PARAM}

    def param(name: str, kind: type) -> Any:
        used.add(name)
        return workload.param(name, kind)

    ops: list[Op] = []
    for op in case.workload_template:
        made = patched(op, param)
        if not isinstance(made, CreatePodSets):
            ops.append(made)
            continue
        each = patched(made.create_pods_op, param)
        assert isinstance(each, CreatePods)
        ops += (replace(each, namespace=f"{made.namespace_prefix}-{number}") for number in range(made.count))
    if unused := sorted(set(workload.params) - used):
        raise InvalidRequest(
            f"{workload.place}: the parameters {unused} are defined, but unused. Please make sure there are no typos"
        )
    _check_collecting(workload, ops)
    return Run(case, workload, tuple(ops))


def _check_collecting(workload: Workload, ops: Iterable[Op]) -> None:
    is_on = False
    for op in ops:
        begins = isinstance(op, StartCollectingMetrics) or (isinstance(op, CreatePods) and op.collect_metrics)
        if is_on and begins:
            raise InvalidRequest(f"{workload.place}: metrics collection is overlapping at {op.place}")
        if isinstance(op, StopCollectingMetrics) and not is_on:
            raise InvalidRequest(f"{workload.place}: missing startCollectingMetrics operation before {op.place}")
        is_on = isinstance(op, StartCollectingMetrics) or (is_on and not isinstance(op, StopCollectingMetrics))


def is_enabled(filters: str, labels: Iterable[str]) -> bool:
    """A filter in GitHub's format: comma-separated, `[+]label` is required, `-label` excluded."""
    has = set(labels)
    return all((each.lstrip("+-") in has) is not each.startswith("-") for each in filter(None, filters.split(",")))
