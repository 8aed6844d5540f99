"""Nondeterminism planted into the product, to show that the digest detects it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from minikube_py.kubelet import nodes
from minikube_py.kubelet.fake import FakeKubelet
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


PLANTS: dict[str, Callable[[], None]] = {
    "wall-clock": wall_clock,
    "set-of-names": set_of_names,
    "heap-by-address": heap_by_address,
}
