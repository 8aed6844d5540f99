"""Questions by the clock: how long one took, and the ways to answer it, tried one after the other."""

from __future__ import annotations

from typing import Final

from minikube_py.env import Clock
from minikube_py.index.reports import Choice, Explanation
from minikube_py.mvcc.reads import Explained
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import RangeRequest, RangeResult

TRIES: Final = 5
SLOW_US: Final = 2000.0
"""What takes longer is measured once."""


def measured(state: StateMachine, request: RangeRequest, clock: Clock) -> RangeResult:
    """The answer to a request with a `where` or with fields, which says how long it took. Raises: RequestError."""
    began_s = clock.monotonic_s()
    result = state.range(request)
    taken_us = (clock.monotonic_s() - began_s) * 1e6
    assert result.stats is not None
    return result._replace(stats=result.stats._replace(taken_us=taken_us))


def explained(found: Explained, clock: Clock) -> Explanation:
    """Each way is tried once to warm it and then measured, a few times where that is quick."""
    choices: list[Choice] = []
    for choice, run in found.ways:
        if run is None:
            choices.append(choice)
            continue
        matches, stats = run()
        taken_us = float("inf")
        for _ in range(TRIES):
            began_s = clock.monotonic_s()
            matches, stats = run()
            taken_us = min(taken_us, (clock.monotonic_s() - began_s) * 1e6)
            if taken_us > SLOW_US:
                break
        choices.append(
            choice._replace(
                taken_us=taken_us,
                found=len(matches.keys),
                rows_examined=stats.rows_examined,
                objects_decoded=stats.objects_decoded,
                shards_examined=stats.shards_examined,
                shards_pruned=stats.shards_pruned,
                false_positives=stats.false_positives,
            )
        )
    return Explanation(choices[0], tuple(choices[1:]), found.share, found.rows, found.revision)
