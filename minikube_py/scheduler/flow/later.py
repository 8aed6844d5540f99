"""Pods that are tried again by themselves, since a price may change without any event, and what is said of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from minikube_py.client.timers import Timers
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.reports import REASON_UNSCHEDULABLE

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import Scheduler

PRICED_AGAIN_MAX_S: Final = 60.0
"""Pricing pods again takes a twentieth of the time, but never comes later than this."""
_PRICE: Final = re.compile(r"(?<=, for )(-?\d{1,14})(?=:)")


def says(pod: PodInfo, message: str) -> bool:
    """Whether the pod's condition says so, with a price of as many bits."""
    status, reason, before, _ = pod.scheduled_condition or ("", "", "", "")
    told = status == "False" and reason == REASON_UNSCHEDULABLE and not pod.nominated_node
    return told and _roughly(before) == _roughly(message)


def _roughly(message: str) -> str:
    return _PRICE.sub(lambda found: f"of {int(found[1]).bit_length()} bits", message, count=1)


class Later:
    """All that are kept are tried `after_s` after the first of them."""

    def __init__(self, scheduler: Scheduler, timers: Timers, after_s: float) -> None:
        self._scheduler = scheduler
        self._timers = timers
        self._after_s = after_s
        self._kept: dict[str, PodInfo] = {}

    def keep(self, pod: PodInfo, after_s: float = 0.0) -> None:
        """`after_s`: if that is more than usual."""
        if not self._kept:
            self._timers.call_at(self._scheduler.clock.monotonic_s() + max(self._after_s, after_s), self._try)
        self._kept[pod.uid] = pod

    def _try(self) -> None:
        kept, self._kept = self._kept, {}
        self._scheduler.activate(kept.values())
