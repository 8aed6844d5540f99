"""Pods that are tried again by themselves, since a price may change without any event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikube_py.client.timers import Timers
from minikube_py.scheduler.objects import PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import Scheduler


class Later:
    """All that are kept are tried `after_s` after the first of them."""

    def __init__(self, scheduler: Scheduler, timers: Timers, after_s: float) -> None:
        self._scheduler = scheduler
        self._timers = timers
        self._after_s = after_s
        self._kept: dict[str, PodInfo] = {}

    def keep(self, pod: PodInfo) -> None:
        if not self._kept:
            self._timers.call_at(self._scheduler.clock.monotonic_s() + self._after_s, self._try)
        self._kept[pod.uid] = pod

    def _try(self) -> None:
        kept, self._kept = self._kept, {}
        self._scheduler.activate(kept.values())
