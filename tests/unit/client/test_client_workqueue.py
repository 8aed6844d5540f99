"""Queues: dedup while waiting, again after processing, delays, limits, shutdown and drain."""

import asyncio

import pytest
from step_clock import StepClock, settle

from minikube_py.client.workqueue import (
    BucketRateLimiter,
    DelayingQueue,
    ItemExponentialRateLimiter,
    MaxOfRateLimiter,
    RateLimitingQueue,
    ShutDown,
    WorkQueue,
    work,
)


async def test_an_item_added_twice_is_handed_out_once():
    queue: WorkQueue[str] = WorkQueue(StepClock())
    queue.add("a")
    queue.add("a")
    assert await queue.get() == "a"
    assert len(queue) == 0


async def test_an_item_added_while_processed_comes_again_only_when_done():
    queue: WorkQueue[str] = WorkQueue(StepClock())
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert queue.get_nowait() is None
    queue.done("a")
    assert queue.get_nowait() == "a"


async def test_items_come_in_order_and_waiting_getters_are_served_in_order():
    queue: WorkQueue[str] = WorkQueue(StepClock())
    getters = [asyncio.create_task(queue.get()) for _ in range(2)]
    await settle()
    queue.add("a")
    queue.add("b")
    assert await asyncio.gather(*getters) == ["a", "b"]


async def test_a_cancelled_getter_loses_no_item():
    queue: WorkQueue[str] = WorkQueue(StepClock())
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await settle()
    queue.add("a")
    first.cancel()
    assert await second == "a"
    await asyncio.gather(first, return_exceptions=True)


async def test_shutdown_hands_out_what_waits_then_ends_the_workers():
    queue: WorkQueue[str] = WorkQueue(StepClock())
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    assert await queue.get() == "a"
    with pytest.raises(ShutDown):
        await queue.get()


async def test_shutdown_wakes_those_who_wait():
    queue: WorkQueue[str] = WorkQueue(StepClock())
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.shut_down()
    outcomes = await asyncio.gather(*getters, return_exceptions=True)
    assert all(isinstance(outcome, ShutDown) for outcome in outcomes)


async def test_drain_waits_for_items_that_come_again():
    queue: WorkQueue[str] = WorkQueue(StepClock())
    queue.add("a")
    await queue.get()
    queue.add("a")
    drained = asyncio.create_task(queue.shut_down_with_drain())
    await settle()
    queue.done("a")
    await settle()
    assert not drained.done()
    await queue.get()
    queue.done("a")
    await drained


async def test_a_delayed_item_comes_when_its_delay_is_over_and_the_earliest_delay_counts():
    clock = StepClock()
    queue: DelayingQueue[str] = DelayingQueue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 5)
    await clock.advance(1.9)
    assert queue.get_nowait() is None
    await clock.advance(0.1)
    assert queue.get_nowait() == "a"
    queue.done("a")
    await clock.advance(60)
    assert queue.get_nowait() is None
    await queue.close()


async def test_a_negative_or_zero_delay_is_none():
    queue: DelayingQueue[str] = DelayingQueue(StepClock())
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert [queue.get_nowait(), queue.get_nowait()] == ["a", "b"]


async def test_shutdown_drops_delayed_items():
    clock = StepClock()
    queue: DelayingQueue[str] = DelayingQueue(clock)
    queue.add_after("a", 1)
    queue.shut_down()
    await clock.advance(2)
    assert queue.get_nowait() is None and queue.waiting == 0
    await queue.close()


def test_the_exponential_limiter_doubles_up_to_its_limit_and_forgets():
    limiter: ItemExponentialRateLimiter[str] = ItemExponentialRateLimiter(0.005, 1.0)
    assert [limiter.when_s("a") for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert limiter.when_s("b") == 0.005
    assert [limiter.when_s("a") for _ in range(100)][-1] == 1.0
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0 and limiter.when_s("a") == 0.005


async def test_the_bucket_lets_a_burst_through_then_paces():
    clock = StepClock()
    limiter: BucketRateLimiter[str] = BucketRateLimiter(clock, rate_per_s=10, burst=2)
    assert [round(limiter.when_s("x"), 6) for _ in range(4)] == [0, 0, 0.1, 0.2]
    await clock.advance(10)
    assert [round(limiter.when_s("x"), 6) for _ in range(3)] == [0, 0, 0.1]


def test_the_strictest_limiter_counts():
    clock = StepClock()
    limiter: MaxOfRateLimiter[str] = MaxOfRateLimiter(
        ItemExponentialRateLimiter(0.5), BucketRateLimiter(clock, rate_per_s=1, burst=1)
    )
    assert limiter.when_s("a") == 0.5
    assert limiter.when_s("b") == 1.0


async def test_a_worker_retries_what_failed_and_forgets_what_went_well():
    clock = StepClock()
    queue: RateLimitingQueue[str] = RateLimitingQueue(clock)
    seen: list[str] = []
    failed: list[str] = []

    async def handle(item: str) -> None:
        seen.append(item)
        if len(seen) < 3:
            raise ValueError("not yet")

    task = asyncio.create_task(work(queue, handle, lambda item, error: failed.append(str(error))))
    queue.add("a")
    await clock.advance(1)
    assert seen == ["a"] * 3 and failed == ["not yet"] * 2
    assert queue.num_requeues("a") == 0 and queue.stats().retries == 2
    queue.shut_down()
    await task
    await queue.close()


async def test_stats_tell_waiting_and_working_time():
    clock = StepClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a")
    await clock.advance(3)
    await queue.get()
    await clock.advance(2)
    queue.done("a")
    stats = queue.stats()
    assert (stats.adds, stats.queued_s, stats.worked_s, stats.depth, stats.processing) == (1, 3, 2, 0, 0)
