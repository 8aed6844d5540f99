"""Timed queries: how long one took, and how long each alternative plan takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikube_py.env import Clock
from minikube_py.index.contract import Matches
from minikube_py.index.reports import Choice, Explanation
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import QueryStats, RangeRequest, RangeResult

TRIES: Final = 5
SLOW_US: Final = 2000.0
"""A plan that takes longer is run once."""


def measured(state: StateMachine, request: RangeRequest, clock: Clock) -> RangeResult:
    """The answer to a request with a `where` or with fields, with its duration. Raises: RequestError."""
    began_s = clock.monotonic_s()
    result = state.range(request)
    taken_us = (clock.monotonic_s() - began_s) * 1e6
    assert result.stats is not None
    return result._replace(stats=result.stats._replace(taken_us=taken_us))


async def explained(state: StateMachine, request: RangeRequest, clock: Clock) -> Explanation:
    """Runs each plan, a few times if that is quick, and takes the minimum; yields to other tasks between runs. Raises:
    RequestError."""
    found = state.explain(request)
    version = state.tables.version
    choices: list[Choice] = []
    for choice, run in found.ways:
        if run is None:
            choices.append(choice)
            continue
        if state.tables.version != version or state.compact_revision > found.revision:
            choices.append(choice._replace(reason="not tried: indexes or history have changed in the meantime"))
            continue
        choices.append(_tried(choice, run, clock))
        await clock.sleep(0)
    return Explanation(choices[0], tuple(choices[1:]), found.share, found.rows, found.revision)


def _tried(choice: Choice, run: Callable[[], tuple[Matches, QueryStats]], clock: Clock) -> Choice:
    times_us: list[float] = []
    while len(times_us) < TRIES and (not times_us or times_us[-1] < SLOW_US):
        began_s = clock.monotonic_s()
        matches, stats = run()
        times_us.append((clock.monotonic_s() - began_s) * 1e6)
    return choice._replace(
        taken_us=min(times_us),
        found=len(matches.keys),
        rows_examined=stats.rows_examined,
        objects_decoded=stats.objects_decoded,
        shards_examined=stats.shards_examined,
        shards_pruned=stats.shards_pruned,
        false_positives=stats.false_positives,
    )
