"""Usage as the cluster's `metrics.k8s.io` says, from metrics-server or this project's API server: asked for once a
minute, since that API cannot be watched.

Values of one minute stand for the minute before them. If the API stops telling anything new, nothing is known.
Source: scheduler-plugins v0.33.5, pkg/trimaran/collector.go; paypal/load-watcher, metricsprovider/k8s.go.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.client.rest import Object, ResourceRef
from minikube_py.errors import shown
from minikube_py.fields import quantity
from minikube_py.fields.times import parse_time
from minikube_py.scheduler.framework import Handle
from minikube_py.scheduler.objects import CPU, MEMORY, NodeInfo, PodInfo
from minikube_py.scheduler.plugin_informers import POLL_OBJECTS_MAX, SLICE
from minikube_py.scheduler.prediction.predictor import STEP_MINUTES
from minikube_py.scheduler.prediction.usage import RESOURCES, Load, Meter

logger = logging.getLogger(__name__)

NAME: Final = "metrics.k8s.io"
NODE_METRICS: Final = ResourceRef(NAME, "v1beta1", "nodes")
POD_METRICS: Final = ResourceRef(NAME, "v1beta1", "pods")
STALE_S: Final = 300.0
"""The most that an object's values count while its timestamp stands still, as load-watcher's."""
NEW_S: Final = 60.0
"""A pod that started within this time before the values is not in them, as upstream has it."""
WINDOW: Final = 15
"""Values of a node over which its deviation is taken: 15 minutes."""
KEY_MAX: Final = 253 + 1 + 253
"""Characters of a namespace and a name, as upstream's rules have them."""
REASON_MAX: Final = 200
_SCALE: Final = {CPU: (-9, 1e6), MEMORY: (0, 1.0)}
"""The unit of a quantity that is read, and how many of them the unit of usage has."""


class Told(NamedTuple):
    """What one object says: its key, its usage in milli-cores and bytes, and of when, by the clock of its node."""

    key: str
    usage: dict[str, float]
    time_us: int


class Heard(NamedTuple):
    """An object's timestamp, and since when and until when answers had it, by the scheduler's monotonic clock."""

    time_us: int
    since_s: float
    until_s: float


class Unreadable(Exception):
    """An object of the API that says no usage; the message names it."""


def told_by(item: Any) -> Told:
    """Of NodeMetrics, or PodMetrics, whose containers count together. Raises: Unreadable."""
    try:
        metadata = item["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace") or ""
    except (TypeError, KeyError, AttributeError):
        name = namespace = None
    if not isinstance(name, str) or not isinstance(namespace, str):
        raise Unreadable("an object without a name")
    key = f"{namespace}/{name}" if namespace else name
    try:
        parts = [item["usage"]] if "containers" not in item else [each["usage"] for each in item["containers"]]
        if not parts:
            # As missing, not as idle (kubernetes pkg/controller/podautoscaler/metrics/client.go).
            raise ValueError("it has no container")
        usage = {resource: math.fsum(_amount(part, resource) for part in parts) for resource in RESOURCES}
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise Unreadable(f"{key}: {error}") from None
    time = item.get("timestamp")
    if (time_us := parse_time(time) if isinstance(time, str) else None) is None:
        raise Unreadable(f"{key}: timestamp is {shown(time)}")
    return Told(key, usage, time_us)


def _said(item: Object) -> Told | Unreadable:
    """Of a size that does not depend on the object's."""
    try:
        told = told_by(item)
    except Unreadable as error:
        return Unreadable(str(error)[:REASON_MAX])
    return told if len(told.key) <= KEY_MAX else Unreadable(f"{told.key[:REASON_MAX]}: no name of an object is so long")


def _amount(usage: Mapping[str, Any], resource: str) -> float:
    """Raises: KeyError, TypeError, ValueError."""
    scale, units = _SCALE[resource]
    found = quantity.from_json(usage[resource]).saturated(scale)
    if usage[resource] is None or found < 0:
        raise ValueError(f"{resource} is {shown(usage[resource])}")
    return found / units


class _ByMinute(Meter):
    """Base of both: reads the answers. A step is an answer with new values, or -1 while nothing is known."""

    resource = NODE_METRICS

    def __init__(self, handle: Handle, keep: int) -> None:
        super().__init__(None, NAME, handle.clock, keep)
        self._columns = handle.columns
        self._answers = 0
        self._heard: dict[str, Heard] = {}
        self._wrong = ""
        self._renewed_s = -math.inf
        handle.polled(self.resource, _said).listen(self._take)

    @property
    def is_known(self) -> bool:
        return self._clock.monotonic_s() - self._renewed_s <= STALE_S

    def step(self) -> int:
        return self._answers if self.is_known else -1

    async def _take(self, said: Sequence[Told | Unreadable]) -> None:
        told: dict[str, Told] = {}
        wrong: list[str] = []
        async for each in _in_turns(said):
            if isinstance(each, Unreadable):
                wrong.append(str(each))
                continue
            # Pages, and several servers behind one name, may say an object twice.
            if (twice := told.get(each.key)) is None or twice.time_us < each.time_us:
                told[each.key] = each
        self._say(wrong)
        now_s, before = self._clock.monotonic_s(), self._heard
        # An answer may lack one that comes again with the same values.
        recent = ((key, each) for key, each in before.items() if now_s - each.until_s <= STALE_S)
        heard = dict(islice(recent, POLL_OBJECTS_MAX))
        found: dict[str, Mapping[str, float]] = {}
        has_news = False
        async for key, usage, time_us in _in_turns(list(told.values())):
            # Clocks of nodes may be wrong: a timestamp is compared with the same object's former one only.
            known = heard.get(key)
            is_news = known is None or known.time_us != time_us
            since_s = now_s if known is None or is_news else known.since_s
            heard[key] = Heard(time_us, since_s, now_s)
            has_news = has_news or is_news
            if now_s - since_s <= STALE_S:
                found[key] = usage
        self._heard = heard
        if not has_news:
            return
        self._renewed_s = now_s
        await self._keep(found)
        self._answers += 1

    def _say(self, wrong: Sequence[str]) -> None:
        """Once for each new reason."""
        reason = min(wrong, default="")
        if reason != self._wrong:
            such = f", such as {reason}" if reason else ""
            logger.warning("%d objects of %s say no usage%s", len(wrong), self.name, such)
        self._wrong = reason

    async def _keep(self, found: Mapping[str, Mapping[str, float]]) -> None:
        raise NotImplementedError


class NodeMeter(_ByMinute):
    """What nodes use: all that runs there, also what is no pod. Its mean is the latest value, as upstream's with
    `KubernetesMetricsServer`; its deviation, which upstream does not have then, is over the last `WINDOW` values."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle, WINDOW)
        self._values: dict[str, deque[Mapping[str, float]]] = {}
        self._before = ""

    async def _keep(self, found: Mapping[str, Mapping[str, float]]) -> None:
        before = self._values
        self._values = {name: before.get(name) or deque(maxlen=WINDOW) for name in found}
        for name, usage in found.items():
            self._values[name].append(usage)
        since_s = max(0.0, self._clock.wall_s() - NEW_S)
        self._before = datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def load(self, node: NodeInfo) -> Load:
        values = self._values.get(node.name)
        if values is None or not self.is_known:
            return Load(False, {}, ())
        of = {resource: np.array([each[resource] for each in values]) for resource in RESOURCES}
        figures = {resource: (float(row[-1]), float(row.std())) for resource, row in of.items()}
        # These texts are in one form, and in order of time.
        new = tuple(pod for pod in node.pods.values() if not pod.started or pod.started > self._before)
        return Load(True, figures, new)


class _Samples:
    """`step`: that of `minutes`, the values since its begin. `samples`: by resource."""

    __slots__ = ("minutes", "samples", "step")

    def __init__(self, step: int) -> None:
        self.step = step
        self.minutes: list[Mapping[str, float]] = []
        self.samples: dict[str, list[float]] = {resource: [] for resource in RESOURCES}

    def go_on(self, step: int, keep: int) -> None:
        """Ends the steps before; one without values is unknown."""
        for _ in range(min(step - self.step, keep)):
            for resource, samples in self.samples.items():
                values = [each[resource] for each in self.minutes]
                samples.append(math.fsum(values) / len(values) if values else math.nan)
                del samples[:-keep]
            self.minutes = []
        self.step = max(self.step, step)


class PodMeter(_ByMinute):
    """What pods use, as means of five minutes. The first of a pod begins when it is first reported."""

    resource = POD_METRICS

    def __init__(self, handle: Handle, keep: int) -> None:
        super().__init__(handle, keep)
        self._of: dict[str, _Samples] = {}

    async def _keep(self, found: Mapping[str, Mapping[str, float]]) -> None:
        step = self.minute // STEP_MINUTES
        left: dict[str, _Samples] = {}
        async for pod in _in_turns([pod for node in self._columns.by_slot if node for pod in node.pods.values()]):
            known, usage = self._of.get(pod.uid), found.get(pod.key)
            if known is None and usage is None:
                continue
            known = left[pod.uid] = known or _Samples(step)
            known.go_on(step, self.keep)
            if usage is not None:
                known.minutes.append(usage)
        self._of = left

    def _samples(self, pod: PodInfo, step: int) -> Mapping[str, Sequence[float]]:
        known = self._of.get(pod.uid) if step >= 0 else None
        return known.samples if known is not None else dict.fromkeys(RESOURCES, ())


async def _in_turns(items: Sequence[Any]) -> AsyncIterator[Any]:
    for at, item in enumerate(items):
        if at % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        yield item
