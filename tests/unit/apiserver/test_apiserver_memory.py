"""Memory comes back, in virtual time and counted in Python's own blocks: under steady churn, and from dead watchers."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from minikube_py.apiserver.limits import Limits
from tests.support.api_core import MAPS, PODS, Core, config_map, pod

LIVE = 60
HISTORY = 256
"""Of events kept for watches that resume: reached within the warm-up."""
MINUTES_WARM = 6
"""The store keeps five minutes of history."""
GROWTH_MAX = 1.01


def blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


async def churned(core: Core, minute: int) -> None:
    """Each pod is replaced, bound, runs, and is deleted, within a minute."""
    for at in range(LIVE):
        name = f"p{minute}-{at}"
        await core.done("POST", PODS, pod(name, node=f"n{at % 5}"))
        status = {"status": {"phase": "Running", "message": f"{minute}"}}
        await core.done("PATCH", f"{PODS}/{name}/status", status, "application/merge-patch+json")
        if minute:
            await core.done("DELETE", f"{PODS}/p{minute - 1}-{at}?gracePeriodSeconds=0")
        await core.clock.sleep(1.0)


async def test_steady_churn_holds_what_it_held_when_it_was_warm(tmp_path: Path) -> None:
    core = await Core(tmp_path, Limits(history_events_max=HISTORY)).start()
    watched = await core.watch(PODS)
    found: list[int] = []
    for minute in range(MINUTES_WARM + 3):
        await churned(core, minute)
        while watched.stream.queued_events:
            await watched.stream.next()
        if minute >= MINUTES_WARM:
            found.append(blocks())
    watched.close()
    assert len((await core.done("GET", PODS))["items"]) == LIVE
    await core.stop()
    assert max(found[1:]) <= found[0] * GROWTH_MAX, found


async def test_watchers_that_die_with_events_unread_leave_nothing(tmp_path: Path) -> None:
    core = await Core(tmp_path, Limits(history_events_max=HISTORY)).start()
    for at in range(HISTORY):
        await core.done("POST", MAPS, config_map(f"warm{at}"))
    before = blocks()
    for lap in range(3):
        watchers = [await core.watch(f"{MAPS}?timeoutSeconds=60&labelSelector=lap,of!=w{at}") for at in range(700)]
        for at in range(3):
            await core.done("POST", MAPS, config_map(f"m{lap}-{at}", {"lap": str(lap)}, text="x" * 1000))
        await core.clock.sleep(1.0)
        held = blocks()
        assert sum(each.stream.queued_events for each in watchers) == 2100 and held > before + 700 * 10
        for each in watchers:
            each.close()
        del watchers, each
        # Until the timers are due that would have ended them: the simulated loop keeps what was cancelled so long.
        await core.clock.sleep(61.0)
        found = blocks()
        if not lap:
            # What is remembered of 700 selectors is remembered now.
            before = found
    assert found <= before * GROWTH_MAX, (before, found)
    assert not core.api.watching.metrics()["apiserver_watch_queues_bytes"]
    await core.stop()
