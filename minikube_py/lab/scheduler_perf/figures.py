"""Metrics collected during a run, in the format of upstream's collectors (PerfData v1).

Source: test/integration/scheduler_perf/util.go; component-base/metrics/testutil.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from minikube_py.env import Clock, ended
from minikube_py.lab.measure import percentile
from minikube_py.lab.metrics import Samples, grown_buckets, histogram_quantile, parse
from minikube_py.lab.scheduler_perf.files import THROUGHPUT, Selector
from minikube_py.lab.scheduler_perf.pods import Pods, PodSeen

Item = dict[str, Any]
Filters = Mapping[str, tuple[tuple[str, frozenset[str]], ...]]

SAMPLE_S: Final = 1.0
LABELS: Final = ("Metric", "Name", "event", "extension_point", "plugin", "result")
_PERCENTS: Final = (50, 90, 95, 99)


class Collecting:
    """Collects from construction to `finish()`. `told`: the scheduler's metrics, by series."""

    def __init__(
        self,
        name: str,
        pods: Pods,
        clock: Clock,
        told: Callable[[], Mapping[str, float]],
        filters: Filters,
        namespaces: tuple[str, ...],
        labels: Mapping[str, str],
    ) -> None:
        self._name, self._clock, self._told, self._filters = name, clock, told, filters
        self._namespaces, self._labels = frozenset(namespaces), labels
        self._scheduled = 0
        self._rates: list[float] = []
        self._pods = pods
        self._before = _samples(told())
        pods.on_scheduled.append(self._one)
        self._started_s = clock.monotonic_s()
        self._sampling = asyncio.create_task(self._sample())

    def _one(self, pod: PodSeen) -> None:
        if pod.namespace in self._namespaces and pod.has(self._labels):
            self._scheduled += 1

    async def _sample(self) -> None:
        """Samples each second, from the first scheduled pods on; a rate also covers preceding seconds without any."""
        clock, last_s, last, is_on, skipped = self._clock, self._started_s, 0, False, 0
        next_s = self._started_s
        while True:
            next_s = max(next_s + SAMPLE_S, clock.monotonic_s())
            await clock.sleep(next_s - clock.monotonic_s())
            now_s, scheduled = clock.monotonic_s(), self._scheduled
            if not is_on:
                is_on, last, last_s = scheduled > 0, scheduled, now_s
            elif scheduled == last:
                skipped += 1
            else:
                self._rates += [(scheduled - last) / (now_s - last_s)] * (skipped + 1)
                last, last_s, skipped = scheduled, now_s, 0

    async def finish(self) -> list[Item]:
        duration_s = self._clock.monotonic_s() - self._started_s
        self._pods.on_scheduled.remove(self._one)
        self._sampling.cancel()
        await ended(self._sampling)
        items = [self._throughput()]
        after = _samples(self._told())
        for name, filters in self._filters.items():
            items += _histograms(name, filters, self._before, after, self._name)
        items.append(_item({"Duration": duration_s}, "s", {"Name": self._name, "Metric": "SchedulingDuration"}))
        return items

    async def cancel(self) -> None:
        self._sampling.cancel()
        await ended(self._sampling)

    def _throughput(self) -> Item:
        if not self._rates:
            # As upstream: everything was scheduled within the first second or two.
            return _item({}, "", {"Name": self._name})
        data = {"Average": sum(self._rates) / len(self._rates)}
        data |= {f"Perc{each}": percentile(self._rates, each) for each in _PERCENTS}
        return _item(data, "pods/s", {"Name": self._name, "Metric": THROUGHPUT})


def _item(data: dict[str, float], unit: str, labels: dict[str, str]) -> Item:
    return {"data": data, "unit": unit, "labels": labels}


def _samples(told: Mapping[str, float]) -> Samples:
    return parse("\n".join(f"{series} {value}" for series, value in told.items()))


def _histograms(
    name: str, filters: tuple[tuple[str, frozenset[str]], ...], before: Samples, after: Samples, run: str
) -> list[Item]:
    """One item per existing combination of the labels; other labels are summed."""

    def group_of(labels: Mapping[str, str]) -> tuple[str, ...] | None:
        if any(label not in labels or (values and labels[label] not in values) for label, values in filters):
            return None
        return tuple(labels[label] for label, _ in filters)

    totals: Counter[tuple[str, ...]] = Counter()
    for (series, pairs), value in after.items():
        if series == f"{name}_sum" and (group := group_of(dict(pairs))) is not None:
            totals[group] += value - before.get((series, pairs), 0.0)  # type: ignore[assignment]
    items = []
    for group, counts in sorted(grown_buckets(name, before, after, group_of).items()):
        if count := counts.get(math.inf, 0.0):
            data = {f"Perc{each}": 1000 * histogram_quantile(counts, each / 100) for each in _PERCENTS}
            data["Average"] = 1000 * totals[group] / count
            named = {label: value for (label, _), value in zip(filters, group, strict=True)}
            items.append(_item(data, "ms", {"Name": run, "Metric": name, **named}))
    return items


def apply_threshold(items: list[Item], threshold: float, selector: Selector) -> list[str]:
    """Adds the threshold to the matching figures; returns misses, with upstream's messages."""
    missed = []
    for item in items if threshold else ():
        labels, data = item["labels"], item["data"]
        if labels.get("Metric") != selector.name or not selector.labels.items() <= labels.items():
            continue
        bucket = selector.data_bucket
        data[f"{bucket}Threshold"] = threshold
        told = f'{labels["Name"]}: expected "{selector.name}" "{bucket}" to be'
        if bucket not in data:
            missed.append(f'{labels["Name"]}: no data present for "{selector.name}" metric "{bucket}" bucket')
        elif selector.expect_lower and data[bucket] >= threshold:
            missed.append(f"{told} lower: got {data[bucket]:f}, want {threshold:f}")
        elif not selector.expect_lower and data[bucket] <= threshold:
            missed.append(f"{told} higher: got {data[bucket]:f}, want {threshold:f}")
    return missed


def with_all_labels(items: list[Item]) -> list[Item]:
    """Perf-dash requires every label on every item, including the labels of upstream's own items."""
    names = sorted({*LABELS, *(label for item in items for label in item["labels"])})
    return [{**item, "labels": {name: item["labels"].get(name, "not applicable") for name in names}} for item in items]
