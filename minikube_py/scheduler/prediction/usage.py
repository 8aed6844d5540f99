"""Pod usage: its sources, and the samples kept per pod and node.

A source is any object with `usage(pod, minute)`; minutes are those of the scheduler's clock since the Unix epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from minikube_py.env import Clock
from minikube_py.own_code import BadCode, find_class, name_of, raised, told
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.configuration.own_args import (
    Kind,
    anything,
    fields,
    mapped,
    one_of,
    read_args,
    text,
    wrong,
)
from minikube_py.scheduler.framework import Handle, IntArray, PluginError
from minikube_py.scheduler.objects import CPU, MEMORY, NodeInfo, PodInfo
from minikube_py.scheduler.prediction.predictor import STEP_MINUTES, FloatArray, Past, PredictionError

RESOURCES: Final = (CPU, MEMORY)


class UsageSource(Protocol):
    """`ahead(pod, minute)`, only in experiments: the pod's usage from that minute on, as arrays by resource."""

    def usage(self, pod: PodInfo, minute: int) -> Mapping[str, float] | None:
        """By resource, in milli-cores and bytes, the mean of that minute; absent ones are 0. None: unknown."""


class Load(NamedTuple):
    """Of one node: by resource, mean and deviation, and the pods that are not in them. Not `known`: nothing is."""

    known: bool
    of: Mapping[str, tuple[float, float]]
    missing: Sequence[PodInfo]


class _Kept:
    """`next_step`: of the next sample. `samples`: by resource, NaN if unknown."""

    __slots__ = ("next_step", "samples")

    def __init__(self, step: int) -> None:
        self.next_step = step
        self.samples: dict[str, list[float]] = {resource: [] for resource in RESOURCES}


class Meter:
    """Samples of pods, from the first request on. `keep`: how many per pod. `cut_short`: an error ended a look at all
    pods in this step."""

    def __init__(self, source: UsageSource | None, name: str, clock: Clock, keep: int) -> None:
        self.source = source
        self.name = name
        self.keep = keep
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._asked: set[str] = set()
        self.cut_short = False
        self._step = -1

    @property
    def minute(self) -> int:
        return int(self._clock.wall_s() // 60)

    def step(self) -> int:
        """The current sample's step. At a new step, pods no longer requested are dropped; after a step that was cut
        short, only those whose samples no longer count."""
        step = self.minute // STEP_MINUTES
        if step != self._step:
            if self._asked:
                oldest = step - self.keep if self.cut_short else step + 1
                left = (uid for uid, kept in self._kept.items() if uid in self._asked or kept.next_step > oldest)
                self._kept = {uid: self._kept[uid] for uid in left}
                self._asked, self.cut_short = set(), False
            self._step = step
        return step

    def samples(self, pod: PodInfo) -> Mapping[str, Sequence[float]]:
        """Up to the last complete sample. Raises: PredictionError."""
        return self._samples(pod, self.step())

    def _samples(self, pod: PodInfo, step: int) -> Mapping[str, Sequence[float]]:
        kept = self._kept.get(pod.uid)
        if kept is None:
            # The current step is incomplete for this pod.
            kept = self._kept[pod.uid] = _Kept(step + 1)
        self._asked.add(pod.uid)
        if kept.next_step >= step:
            return kept.samples
        for each in range(max(kept.next_step, step - self.keep), step):
            first = each * STEP_MINUTES
            minutes = [self._of_minute(pod, minute) for minute in range(first, first + STEP_MINUTES)]
            for resource, samples in kept.samples.items():
                samples.append(sum(of[resource] for of in minutes) / STEP_MINUTES)
                del samples[: -self.keep]
        kept.next_step = step
        return kept.samples

    def _of_minute(self, pod: PodInfo, minute: int) -> dict[str, float]:
        try:
            found = self.source.usage(pod, minute) if self.source is not None else None
            if found is None:
                return dict.fromkeys(RESOURCES, math.nan)
            amounts = {resource: float(found.get(resource, 0.0)) for resource in RESOURCES}
        except raised() as error:
            raise PredictionError(f"source of usage {self.name}: pod {pod.key}: {told(error)}") from error
        for resource, amount in amounts.items():
            if not (math.isfinite(amount) and amount >= 0):
                text = f"{resource} is {amount:g}; a number not below 0 is expected"
                raise PredictionError(f"source of usage {self.name}: pod {pod.key}: {text}")
        return amounts

    def past(self, pods: Iterable[PodInfo], resource: str, with_ahead: bool = False) -> Past:
        """Raises: PredictionError."""
        pods, step = list(pods), self.step()
        rows = [self._samples(pod, step)[resource] for pod in pods]
        usage = np.full((len(pods), max(map(len, rows), default=0)), np.nan)
        for line, row in zip(usage, rows, strict=True):
            if row:
                line[len(line) - len(row) :] = row
        reserved = np.array([pod.spec.request(resource) for pod in pods], np.float64)
        return Past(reserved, usage, self._ahead(pods, resource) if with_ahead else None)

    def load(self, node: NodeInfo) -> Load:
        """By its pods. Unknown if no sample of any has a number; those of which nothing is known are missing.

        Raises: PredictionError."""
        samples = {uid: self.samples(pod)[CPU] for uid, pod in node.pods.items()}
        missing = [pod for uid, pod in node.pods.items() if all(map(math.isnan, samples[uid]))]
        found = {}
        for resource in RESOURCES:
            total = self.past(node.pods.values(), resource).total
            found[resource] = (float(total.mean()), float(total.std())) if len(total) else (0.0, 0.0)
        return Load(len(missing) < len(node.pods) or not any(map(len, samples.values())), found, missing)

    def _ahead(self, pods: Sequence[PodInfo], resource: str) -> FloatArray:
        source: Any = self.source
        rows = [source.ahead(pod, self.minute)[resource] for pod in pods]
        ahead = np.zeros((len(pods), max(map(len, rows), default=0)))
        for line, row in zip(ahead, rows, strict=True):
            line[: len(row)] = row
        return ahead


def meter_of(plugin: str, args: Mapping[str, Any], handle: Handle, keep: int, of_pods: bool = True) -> Meter:
    """By the args `usage` (FILE.py:CLASS or MODULE:CLASS) and `usageArgs`; without them the cluster's metrics.k8s.io,
    `of_pods` or of nodes. Raises: ConfigError."""
    target, given = args.get("usage"), args.get("usageArgs", {})
    if args.get("watcherAddress"):
        raise ConfigError(f'plugin "{plugin}": watcherAddress is not supported; name a source of usage as usage')
    if target is None:
        from minikube_py.scheduler.prediction.metrics_api import NodeMeter, PodMeter

        if given:
            raise ConfigError(f'plugin "{plugin}" has usageArgs, and no usage that takes them')
        return PodMeter(handle, keep) if of_pods else NodeMeter(handle)
    if "metricProvider" in args:
        raise ConfigError(f'plugin "{plugin}" has both usage and metricProvider; only one says what pods use')
    try:
        kind = find_class(target, "usage")
        source = kind(**given)
        usable, name = callable(getattr(source, "usage", None)), name_of(kind, target, "name")
    except BadCode as error:
        raise ConfigError(str(error)) from error
    except raised() as error:
        raise ConfigError(f"source of usage {target}: {told(error)}") from error
    if not usable:
        raise ConfigError(f"source of usage {target} has no method usage(pod, minute)")
    return Meter(source, name, handle.clock, keep)


def _unused(value: Any, path: str) -> Any:
    if value:
        raise wrong(value, path, f"must be absent: {PROVIDER} takes none")
    return value


PROVIDER: Final = "KubernetesMetricsServer"
"""Upstream's name and default. It reads metrics.k8s.io; its Prometheus and SignalFx are not read."""
_SOURCE: Final[Mapping[str, Kind]] = {
    "usage": text,
    "usageArgs": mapped(anything),
    "metricProvider": fields(
        {"type": one_of((PROVIDER,)), "address": _unused, "token": _unused, "insecureSkipVerify": _unused}
    ),
    "watcherAddress": anything,
}


def args_of(plugin: str, args: Any, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Those of the plugin and its source of usage. Raises: ConfigError."""
    return read_args(f'plugin "{plugin}"', args, {**kinds, **_SOURCE})


class Rows:
    """A row of numbers per node, updated from the columns' log: changed nodes are recomputed, and all of them at each
    new sample."""

    def __init__(
        self, columns: NodeColumns, meter: Meter, width: int, of: Callable[[NodeInfo], Sequence[float]]
    ) -> None:
        self._columns = columns
        self._meter = meter
        self._of = of
        self._version = -1
        self._step = -1
        self._stale: set[int] = set()
        self._rows: FloatArray = np.zeros((0, width))

    def all(self) -> FloatArray:
        """By slot. Raises: PluginError."""
        columns, step = self._columns, self._meter.step()
        if self._version == columns.version and self._step == step and not self._stale:
            return self._rows
        changed = columns.changed_since(self._version) if self._version >= 0 and self._step == step else None
        if changed is None or len(self._rows) != columns.capacity:
            changed = list(range(columns.size))
            self._rows = np.zeros((columns.capacity, self._rows.shape[1]))
        self._stale.update(changed)
        self._version, self._step = columns.version, step
        for slot in sorted(self._stale):
            node = columns.by_slot[slot]
            self._rows[slot] = 0.0 if node is None else self.of(node)
            self._stale.discard(slot)
        return self._rows

    def of(self, node: NodeInfo) -> Sequence[float]:
        """For any node, even a dry run's. Raises: PluginError."""
        try:
            return self._of(node)
        except PredictionError as error:
            self._meter.cut_short = True
            raise PluginError(str(error)) from error

    def one(self, node: NodeInfo) -> FloatArray:
        known = 0 <= node.slot < self._columns.size and self._columns.by_slot[node.slot] is node
        return self.all()[node.slot] if known else np.array(self.of(node))

    def of_slots(self, index: slice | IntArray) -> FloatArray:
        return self.all()[: self._columns.size][index]
