"""Which pods a controller deletes first when it has too many, and which are available.

Source: k8s.io/kubernetes/pkg/controller/controller_utils.go (ActivePodsWithRanks); KEP-2185 (random, logarithmic age).
"""

from __future__ import annotations

import math
from bisect import insort_right
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cmp_to_key, partial
from typing import Any, Final, NamedTuple

from minikube_py.controllers.views import PodView

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


class _Ranked(NamedTuple):
    pod: PodView
    co_located: int


def parse_time_s(text: str) -> float | None:
    """RFC 3339 to seconds since the epoch; None for "" and invalid times."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def age_rank_difference(first_s: float, second_s: float, now_s: float) -> int:
    """Compares the ages of two times by power of two (of nanoseconds): negative if the first is lower."""
    return _age_rank(first_s, now_s) - _age_rank(second_s, now_s)


def _age_rank(at_s: float, now_s: float) -> int:
    age_ns = (now_s - at_s) * 1e9
    return int(math.log2(age_ns)) if age_ns > 0 else -1


def pods_to_delete(active: Sequence[PodView], related: Iterable[PodView], count: int, now_s: float) -> list[PodView]:
    """The `count` pods to delete. `related`: pods of controllers with the same owner; co-located ones are deleted
    first."""
    if count >= len(active):
        return list(active)
    on_node = Counter(pod.node for pod in related if pod.active)
    as_key, ranked = cmp_to_key(partial(_compare, now_s)), list[Any]()
    for pod in active:
        # Upstream's comparison is not transitive, so the result depends on which pairs are compared. For list.sort that
        # depends on the Python version, for bisect it does not.
        insort_right(ranked, as_key(_Ranked(pod, on_node[pod.node])))
    return [entry.obj.pod for entry in ranked[:count]]


def _compare(now_s: float, a: _Ranked, b: _Ranked) -> int:
    """Negative if `a` goes first: unassigned; by phase; not ready; cheaper; more co-located; ready for less time; more
    restarts; newer."""
    first, second = a.pod, b.pod
    if first.node != second.node and (not first.node or not second.node):
        return -1 if not first.node else 1
    by_value = (
        _PHASES.get(first.phase, 0) - _PHASES.get(second.phase, 0)
        or first.ready - second.ready
        or first.deletion_cost - second.deletion_cost
        or b.co_located - a.co_located
    )
    if by_value:
        return by_value
    if first.ready and second.ready and first.ready_since != second.ready_since:
        return _by_age(first, second, first.ready_since, second.ready_since, now_s)
    if first.restarts != second.restarts:
        return second.restarts - first.restarts
    if first.created != second.created:
        return _by_age(first, second, first.created, second.created, now_s)
    return 0


def _by_age(first: PodView, second: PodView, first_at: str, second_at: str, now_s: float) -> int:
    first_s, second_s = parse_time_s(first_at), parse_time_s(second_at)
    if first_s is None or second_s is None:
        return (second_s is None) - (first_s is None)
    difference = age_rank_difference(first_s, second_s, now_s)
    if difference:
        return difference
    # Ages of the same order count as equal; the uid breaks ties randomly but consistently.
    return -1 if first.uid < second.uid else 1


def is_available(pod: PodView, min_ready_s: int, now_s: float) -> bool:
    if not pod.ready or min_ready_s == 0:
        return pod.ready
    since_s = parse_time_s(pod.ready_since)
    return since_s is not None and since_s + min_ready_s <= now_s


def next_availability_s(active: Iterable[PodView], min_ready_s: int, now_s: float) -> float:
    """How long until the next ready pod becomes available."""
    waits = [
        since_s + min_ready_s - now_s
        for pod in active
        if pod.ready and (since_s := parse_time_s(pod.ready_since)) is not None and since_s + min_ready_s > now_s
    ]
    return min(waits, default=float(min_ready_s))
