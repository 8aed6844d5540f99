"""Drawn StatefulSets, CronJobs and Jobs to upstream's controllers and to ours, step by step: the objects at rest, and
the order of events, must be the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import drawn_cron_jobs
import drawn_jobs
import drawn_stateful_sets
import pytest
from api_targets import original
from drawn_worlds import CronJobs, Jobs, StatefulSets, World
from lockstep import in_lockstep
from side_by_side import judged
from test_controllers_vs_original import POD_GC, ours, theirs

from minikube_py.client.rest import RestClient

pytestmark = [pytest.mark.original, pytest.mark.slow]

SEED, CASES = 1, 12


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with original("--controllers", f"--without={POD_GC}") as path:
        yield path


def stateful_sets(client: RestClient) -> World:
    drawn = [drawn_stateful_sets.draw(SEED, f"s{at}") for at in range(CASES)]
    bare = [
        drawn_stateful_sets.without_claims(f"s{CASES + at}", policy)
        for at, policy in enumerate(("OrderedReady", "Parallel"))
    ]
    return StatefulSets(client, [*drawn, *bare])


def cron_jobs(client: RestClient) -> World:
    return CronJobs(client, [drawn_cron_jobs.draw(SEED, f"c{at}", CronJobs.now) for at in range(CASES)])


def jobs(client: RestClient) -> World:
    return Jobs(client, [drawn_jobs.draw(SEED, f"j{at}") for at in range(2 * CASES)])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("made", [stateful_sets, cron_jobs, jobs])
async def test_drawn_workloads_come_to_the_same(
    made: Callable[[RestClient], World], kubeconfig: Path, tmp_path: Path
) -> None:
    async with theirs(kubeconfig, tmp_path / "theirs") as upstreams, ours(tmp_path / "ours", [POD_GC]) as own:
        one, two = made(upstreams), made(own)
        await in_lockstep(one.run, two.run)
    judged(one, two, CASES // 2)
