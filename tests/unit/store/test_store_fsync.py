"""Where syncs run, and garbage collection beside them."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref

import pytest
from manual_clock import ManualClock
from patience import PATIENCE_S, patience

from minikube_py.store import collector as collector_module
from minikube_py.store.collector import Collector
from minikube_py.store.fsync import SLOW_SYNC_S, SWITCH_INTERVAL_S, FsyncRunner, Histogram
from minikube_py.store.snapshotter import drive

pytestmark = pytest.mark.real_time("what is tested are threads")


async def run(runner: FsyncRunner, clock: ManualClock, duration_s: float) -> int:
    """One sync that takes so long; returns the thread it ran in."""
    where = []

    def sync() -> None:
        where.append(threading.get_ident())
        clock.now_s += duration_s

    done = asyncio.Event()
    runner.run(sync, lambda error: done.set())
    await done.wait()
    return where[0]


async def test_slow_syncs_move_to_a_thread_and_fast_ones_back():
    clock = ManualClock()
    runner = FsyncRunner(clock)
    interval_s = sys.getswitchinterval()
    here = threading.get_ident()
    assert {await run(runner, clock, SLOW_SYNC_S / 4) for _ in range(50)} == {here}
    for _ in range(50):
        await run(runner, clock, SLOW_SYNC_S * 3)
    assert runner.threaded
    assert await run(runner, clock, SLOW_SYNC_S * 3) != here
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    for _ in range(100):
        await run(runner, clock, SLOW_SYNC_S / 4)
    assert not runner.threaded and await run(runner, clock, 0) == here
    runner.close()
    assert sys.getswitchinterval() == pytest.approx(interval_s)


async def test_one_slow_sync_does_not_make_a_slow_disk():
    clock = ManualClock()
    runner = FsyncRunner(clock)
    for _ in range(50):
        await run(runner, clock, 0.0001)
    await run(runner, clock, SLOW_SYNC_S * 5)
    assert not runner.threaded


@pytest.mark.parametrize("mode", ["inline", "thread"])
async def test_a_failed_sync_is_reported_not_raised(mode):
    def sync() -> None:
        raise OSError("broken")

    runner = FsyncRunner(ManualClock(), mode)
    reported: asyncio.Future = asyncio.get_running_loop().create_future()
    runner.run(sync, reported.set_result)
    assert str(await reported) == "broken"
    with pytest.raises(OSError, match="broken"):
        await runner.wait(sync)
    runner.close()


def test_histogram():
    histogram = Histogram((1, 2, 5))
    for value in (0.5, 1, 1.5, 4, 100):
        histogram.observe(value)
    assert histogram.samples("h") == {
        'h_bucket{le="1"}': 2,
        'h_bucket{le="2"}': 3,
        'h_bucket{le="5"}': 4,
        'h_bucket{le="+Inf"}': 5,
        "h_sum": 107.0,
        "h_count": 5,
    }


class Node:
    def __init__(self) -> None:
        self.self = self


def test_the_collector_frees_new_cycles_and_freezes_what_lives():
    before = gc.get_threshold()
    collector, second = Collector(), Collector()
    collector.start()
    second.start()
    try:
        frozen = gc.get_freeze_count()
        keep = [[] for _ in range(200_000)]
        node = Node()
        gone = weakref.ref(node)
        del node
        collector.step()
        assert gone() is None
        assert gc.get_freeze_count() >= frozen + len(keep)
        second.stop()
        assert gc.get_threshold() != before, "only the owner gives collections back"
    finally:
        collector.stop()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_the_collector_walks_everything_only_when_what_is_frozen_has_grown(monkeypatch):
    monkeypatch.setattr(collector_module, "FREEZES_PER_FULL", 1)
    ballast = [[] for _ in range(600_000)]
    collector = Collector()
    collector.start()
    try:
        grown = [[] for _ in range(100_000)]
        collector.step()
        frozen = gc.get_freeze_count()
        node = Node()
        gone = weakref.ref(node)
        grown += [[] for _ in range(frozen // 10)]
        collector.step()
        del node
        grown += [[] for _ in range(frozen // 10)]
        collector.step()
        assert gone() is not None, "frozen cycles are not looked for while little has been added"
        grown += [[] for _ in range(frozen // 10)]
        collector.step()
        grown += [[] for _ in range(frozen // 10)]
        collector.step()
        assert gone() is None
        assert len(ballast) + len(grown) > 0
    finally:
        collector.stop()


async def test_a_bug_in_a_sync_is_told_as_a_failure_from_the_thread_too():
    runner = FsyncRunner(ManualClock(), "thread")
    told: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()

    def sync() -> None:
        raise AssertionError("a bug")

    runner.run(sync, told.set_result)
    async with patience():
        assert "AssertionError: a bug" in str(await told)
    runner.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_who_is_cancelled_waits_for_a_sync_that_runs(fails):
    """It would close the file under it. That the sync failed must not take the cancellation's place: who bears with
    failures, as housekeeping does, would go on forever."""
    runner = FsyncRunner(ManualClock(), "thread")
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def sync() -> None:
        began.set()
        go_on.wait(PATIENCE_S)
        ended.set()
        if fails:
            raise OSError("a bad disk")

    waiting = asyncio.create_task(runner.wait(sync))
    await asyncio.to_thread(began.wait, PATIENCE_S)
    for _ in range(2):
        waiting.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    running = not waiting.done()
    go_on.set()
    await asyncio.wait((waiting,))
    assert running and ended.is_set() and waiting.cancelled()


async def test_slices_that_are_ended_end_whatever_closing_them_raises():
    closed = []

    def steps():
        try:
            while True:
                yield None
        finally:
            closed.append(True)
            raise OSError("it cannot be closed")

    waiting = asyncio.create_task(drive(steps(), FsyncRunner(ManualClock()).wait, ManualClock(), 1.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled() and closed == [True]


async def test_what_is_told_to_use_holds_from_the_next_sync_on():
    clock = ManualClock()
    runner = FsyncRunner(clock)
    here = threading.get_ident()
    assert await run(runner, clock, 0) == here
    runner.use("thread")
    assert runner.threaded and await run(runner, clock, 0) != here
    assert runner.threaded, "however fast it is"
    runner.use("auto")
    assert await run(runner, clock, 0) == here
    runner.use("inline")
    for _ in range(50):
        assert await run(runner, clock, SLOW_SYNC_S * 10) == here
    runner.use("auto")
    assert runner.threaded, "slow as it was found to be"
    runner.close()


async def test_a_thread_that_could_not_be_started_is_no_thread(monkeypatch):
    runner = FsyncRunner(ManualClock(), "thread")
    interval_s = sys.getswitchinterval()

    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuses)
        with pytest.raises(RuntimeError):
            runner.run(lambda: None, lambda _: None)
    runner.close()
    assert sys.getswitchinterval() == interval_s
