"""Timers: order, cancelling, and failures that stay their own."""

import pytest
from step_clock import StepClock

from minikube_py.client.timers import Timers


async def test_callbacks_come_in_order_of_time_then_of_arrival():
    clock = StepClock()
    timers, seen = Timers(clock), []
    for name, delay_s in (("c", 3), ("a", 1), ("b1", 2), ("b2", 2)):
        timers.call_later(delay_s, lambda name=name: seen.append((name, clock.now_s)))
    await clock.advance(5)
    assert seen == [("a", 1), ("b1", 2), ("b2", 2), ("c", 3)]
    await timers.close()


async def test_a_cancelled_timer_does_not_fire():
    clock = StepClock()
    timers, seen = Timers(clock), []
    timers.call_later(1, lambda: seen.append("a")).cancel()
    kept = timers.call_later(1, lambda: seen.append("b"))
    await clock.advance(1)
    assert seen == ["b"] and kept.cancelled
    await timers.close()


async def test_a_callback_may_set_further_timers_even_earlier_ones():
    clock = StepClock()
    timers, seen = Timers(clock), []

    def first() -> None:
        seen.append("first")
        timers.call_later(1, lambda: seen.append("second"))
        timers.call_later(0, lambda: seen.append("at once"))

    timers.call_later(1, first)
    timers.call_later(10, lambda: seen.append("last"))
    await clock.advance(20)
    assert seen == ["first", "at once", "second", "last"]
    await timers.close()


async def test_a_failing_callback_is_logged_and_the_others_still_come(caplog: pytest.LogCaptureFixture):
    clock = StepClock()
    timers, seen = Timers(clock), []
    timers.call_later(1, lambda: 1 // 0)
    timers.call_later(2, lambda: seen.append("b"))
    await clock.advance(3)
    assert seen == ["b"] and "a timer's callback failed" in caplog.text
    await timers.close()


async def test_nothing_fires_after_close():
    clock = StepClock()
    timers, seen = Timers(clock), []
    timers.call_later(1, lambda: seen.append("a"))
    await timers.close()
    assert timers.call_later(1, lambda: seen.append("b")).cancelled
    await clock.advance(5)
    assert seen == []
