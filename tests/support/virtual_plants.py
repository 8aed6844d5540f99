"""Nondeterminism planted into the product, to show that the digest detects it."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from minikube_py.controllers import resource_quotas
from minikube_py.kubelet import nodes
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.scheduler.preemption import Preemptions
from minikube_py.scheduler.queue import SchedulingQueue


def wall_clock() -> None:
    """A lease's renewal time comes from the machine's clock instead of the injected one."""
    proper = nodes.micro_timestamp
    nodes.micro_timestamp = lambda _: proper(time.time())  # type: ignore[attr-defined]


def set_of_names() -> None:
    """Pods are started in the order of a set of their names."""
    proper = FakeKubelet._start_seen

    def planted(self: Any) -> None:
        found = dict(self._to_start)
        self._to_start = [(key, found[key]) for key in set(found)]
        proper(self)

    FakeKubelet._start_seen = planted  # type: ignore[method-assign]


def heap_by_address() -> None:
    """The scheduler's queue is a heap in order of addresses."""
    proper = SchedulingQueue.__init__

    def planted(self: Any, now_s: Any, sort_key: Any, *arguments: Any, **named: Any) -> None:
        proper(self, now_s, id, *arguments, **named)

    SchedulingQueue.__init__ = planted  # type: ignore[method-assign]


def set_of_quotas() -> None:
    """Quotas of a namespace are counted in the order of a set of their keys."""
    resource_quotas.sorted = list  # type: ignore[attr-defined]


def time_of_the_processor() -> None:
    """The scheduler's queue asks as many of its questions as the processor has time for."""
    proper = SchedulingQueue._ask

    def used_s() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_utime

    def planted(self: Any) -> int:
        moved, left, since_s = 0, self._questions_left, used_s()
        while self._unasked and left > 0:
            left, self._questions_left = left - 1, 1
            moved += proper(self)
            if used_s() - since_s > 0.0005:
                left = 0
        self._questions_left = left
        return moved

    SchedulingQueue._ask = planted  # type: ignore[method-assign]


def address_in_an_event() -> None:
    """The Event of a preemption names an object as Python prints it."""
    proper = Preemptions._evict

    async def planted(self: Any, run: Any, pod: Any, node_name: str, victim: Any) -> None:
        await proper(self, run, pod, f"{node_name} by {object.__repr__(run)}", victim)

    Preemptions._evict = planted  # type: ignore[method-assign]


PLANTS: dict[str, Callable[[], None]] = {
    "wall-clock": wall_clock,
    "set-of-names": set_of_names,
    "heap-by-address": heap_by_address,
    "set-of-quotas": set_of_quotas,
    "time-of-the-processor": time_of_the_processor,
    "address-in-an-event": address_in_an_event,
}
