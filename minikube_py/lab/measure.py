"""Pod latencies by both of their definitions, and the reported percentiles.

- **by call**: from the moment the create request was sent to the moment the watch delivered the state. This is the
  official startup SLI's view (creation -> all containers started, observed by watch;
  https://github.com/kubernetes/community/blob/main/sig-scalability/slos/pod_startup_latency.md).
- **by watch**: from the watch's first event of the pod to its event with the state, as ClusterLoader2 measures.
  This excludes the create call itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.env import Clock, ended, run_until
from minikube_py.errors import Unavailable

PERCENTILES = (50, 90, 99)


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest value that at least `percent` % of all do not exceed; nan if empty."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def summary_ms(values_s: Sequence[float]) -> dict[str, float]:
    """count, p50, p90, p99 and max; milliseconds."""
    ordered = sorted(values_s)
    figures = {f"p{percent}_ms": round(percentile(ordered, percent) * 1000, 3) for percent in PERCENTILES}
    return {"count": len(ordered), **figures, "max_ms": round(ordered[-1] * 1000, 3) if ordered else math.nan}


class PodTimes:
    """When each event of one pod was seen; monotonic seconds, None if it was not."""

    __slots__ = ("answered_s", "bound_s", "deleted", "node", "running_s", "seen_s", "sent_s")

    def __init__(self) -> None:
        self.sent_s: float | None = None
        self.answered_s: float | None = None
        self.seen_s: float | None = None
        self.bound_s: float | None = None
        self.running_s: float | None = None
        self.node = ""
        self.deleted = False


# name: (from, to), as attributes of PodTimes
BY_CALL = {"create call": ("sent_s", "answered_s"), "bound": ("sent_s", "bound_s"), "running": ("sent_s", "running_s")}
BY_WATCH = {"bound": ("seen_s", "bound_s"), "running": ("seen_s", "running_s")}
STAGES = {"created to bound": ("seen_s", "bound_s"), "bound to running": ("bound_s", "running_s")}


class PodRecorder:
    """Watches the pods of one label selector, and records when each was created, bound and Running.

    `unschedulable`: pods that the scheduler last reported to fit nowhere. `on_bound` and `on_gone` notify an owner:
    (pod key "namespace/name", node name).
    """

    def __init__(self, transport: ApiTransport, clock: Clock, selector: str) -> None:
        self.pods: dict[str, PodTimes] = {}
        self.created = self.bound = self.running = 0
        self.unschedulable: set[str] = set()
        self.on_bound: Callable[[str, str], None] = lambda key, node: None
        self.on_gone: Callable[[str, str], None] = lambda key, node: None
        self._transport, self._clock, self._selector = transport, clock, selector
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def start(self) -> None:
        """Watches from the current state on."""
        answer = await self._transport.request("GET", "/api/v1/pods", {"labelSelector": self._selector, "limit": "1"})
        if answer.status != 200:
            raise Unavailable(f"list of pods answered {answer.status}: {answer.body[:200].decode(errors='replace')}")
        version = orjson.loads(answer.body)["metadata"]["resourceVersion"]
        self._task = asyncio.create_task(self._follow(version))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)

    def sent(self, key: str) -> None:
        self._times(key).sent_s = self._clock.monotonic_s()

    def answered(self, key: str) -> None:
        self._times(key).answered_s = self._clock.monotonic_s()

    async def wait_until(self, reached: Callable[[], bool], quiet_s: float) -> bool:
        """Waits until `reached`, or until nothing was seen for `quiet_s`; returns whether it was reached.

        Raises: Unavailable if the watch broke.
        """
        while not reached():
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            try:
                await run_until(self._clock, self._clock.monotonic_s() + quiet_s, self._changed.wait())
            except TimeoutError:
                return reached()
        return True

    def durations_s(self, start: str, end: str) -> list[float]:
        """Over all pods with both events; never negative, as a watch event may arrive before the call's response."""
        return list(self.by_pod_s(start, end).values())

    def by_pod_s(self, start: str, end: str) -> dict[str, float]:
        """The same, by pod key."""
        pairs = ((key, getattr(times, start), getattr(times, end)) for key, times in self.pods.items())
        return {key: max(0.0, to - since) for key, since, to in pairs if since is not None and to is not None}

    def summaries(self) -> dict[str, dict[str, dict[str, float]]]:
        """Both definitions and the intermediate stages, by name; milliseconds."""
        groups: Mapping[str, Mapping[str, tuple[str, str]]] = {
            "by_call": BY_CALL,
            "by_watch": BY_WATCH,
            "stages": STAGES,
        }
        return {
            group: {name: summary_ms(self.durations_s(*ends)) for name, ends in names.items()}
            for group, names in groups.items()
        }

    def _times(self, key: str) -> PodTimes:
        times = self.pods.get(key)
        if times is None:
            times = self.pods[key] = PodTimes()
        return times

    async def _follow(self, version: str) -> None:
        try:
            while True:
                params = {"labelSelector": self._selector, "resourceVersion": version, "allowWatchBookmarks": "true"}
                async for batch in self._transport.watch("/api/v1/pods", params):
                    now_s = self._clock.monotonic_s()
                    for event in batch:
                        version = self._take(event.type, orjson.loads(event.object), now_s)
                    self._changed.set()
        except Exception as error:
            self._failure = error
            self._changed.set()

    def _take(self, kind: str, pod: dict[str, Any], now_s: float) -> str:
        if kind == "ERROR":
            raise Unavailable(f"the watch of pods ended: {pod.get('message', pod)}")
        metadata = pod["metadata"]
        version: str = metadata["resourceVersion"]
        if kind == "BOOKMARK":
            return version
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        times = self._times(key)
        if times.seen_s is None:
            times.seen_s = now_s
            self.created += 1
        node = pod["spec"].get("nodeName", "")
        if node and times.bound_s is None:
            times.bound_s, times.node = now_s, node
            self.bound += 1
            self.unschedulable.discard(key)
            self.on_bound(key, node)
        elif not node and is_unschedulable(pod):
            self.unschedulable.add(key)
        if times.running_s is None and all_started(pod):
            times.running_s = now_s
            self.running += 1
        if kind == "DELETED" and not times.deleted:
            times.deleted = True
            self.unschedulable.discard(key)
            self.on_gone(key, node)
        return version


def is_unschedulable(pod: Mapping[str, Any]) -> bool:
    """Whether the scheduler reports that the pod fits no node now."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def all_started(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is Running with each of its containers started."""
    status = pod.get("status", {})
    if status.get("phase") != "Running":
        return False
    started = [each for each in status.get("containerStatuses", ()) if "running" in each.get("state", {})]
    return len(started) == len(pod["spec"]["containers"])
