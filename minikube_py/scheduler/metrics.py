"""The scheduler's metrics, under upstream's names (pkg/scheduler/metrics) and with its buckets;
`scheduler_evaluations_*`, `scheduler_flow_*` and `scheduler_plugin_polls_total` are our own."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

Labels = tuple[tuple[str, str], ...]


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor**i for i in range(count))


ATTEMPT_BUCKETS: Final = exponential(0.001, 2, 15)
SLI_BUCKETS: Final = exponential(0.01, 2, 20)
POINT_BUCKETS: Final = exponential(0.0001, 2, 12)
TRIES_BUCKETS: Final = exponential(1, 2, 5)


class Histogram:
    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        self.count += 1


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
"""Names of plugins and profiles may have any character."""


def _series(name: str, labels: Labels) -> str:
    inner = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels)
    return f"{name}{{{inner}}}" if inner else name


class Metrics:
    """Counters and histograms by name and labels; `collect` adds the given gauges."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}

    def count(self, name: str, labels: Labels = (), by: float = 1) -> None:
        key = (name, labels)
        self._counters[key] = self._counters.get(key, 0) + by

    def histogram(self, name: str, bounds: tuple[float, ...], labels: Labels = ()) -> Histogram:
        key = (name, labels)
        found = self._histograms.get(key)
        if found is None:
            found = self._histograms[key] = Histogram(bounds)
        return found

    def collect(self, gauges: dict[tuple[str, Labels], float]) -> dict[str, float]:
        """Series in the Prometheus text form, e.g. `scheduler_pending_pods{queue="active"}`, to their value."""
        found = {_series(name, labels): value for (name, labels), value in {**self._counters, **gauges}.items()}
        for (name, labels), histogram in self._histograms.items():
            below = 0
            for bound, number in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
                below += number
                text = "+Inf" if bound == float("inf") else f"{bound:g}"
                found[_series(name + "_bucket", (*labels, ("le", text)))] = below
            found[_series(name + "_sum", labels)] = histogram.total
            found[_series(name + "_count", labels)] = histogram.count
        return found


class AttemptMetrics:
    """The metrics of one profile's attempts; looked up once."""

    __slots__ = ("_metrics", "_profile", "algorithm", "pod_attempts", "results")

    def __init__(self, metrics: Metrics, profile: str) -> None:
        self._metrics = metrics
        self._profile = profile
        self.algorithm = metrics.histogram("scheduler_scheduling_algorithm_duration_seconds", ATTEMPT_BUCKETS)
        self.pod_attempts = metrics.histogram("scheduler_pod_scheduling_attempts", TRIES_BUCKETS)
        self.results = {result: self._result(result) for result in ("scheduled", "unschedulable", "error")}

    def _result(self, result: str) -> tuple[Labels, Histogram]:
        labels: Labels = (("result", result), ("profile", self._profile))
        return labels, self._metrics.histogram("scheduler_scheduling_attempt_duration_seconds", ATTEMPT_BUCKETS, labels)

    def attempt(self, result: str, duration_s: float) -> None:
        labels, histogram = self.results[result]
        self._metrics.count("scheduler_schedule_attempts_total", labels)
        histogram.observe(duration_s)

    def scheduled(self, attempts: int, since_first_s: float) -> None:
        self.pod_attempts.observe(attempts)
        label = str(attempts) if attempts < 15 else "15+"
        self._metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds", SLI_BUCKETS, (("attempts", label),)
        ).observe(since_first_s)

    def point(self, point: str, status: str, duration_s: float) -> None:
        labels: Labels = (("extension_point", point), ("status", status), ("profile", self._profile))
        self._metrics.histogram("scheduler_framework_extension_point_duration_seconds", POINT_BUCKETS, labels).observe(
            duration_s
        )
