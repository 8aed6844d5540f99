"""The simulated loop does what asyncio's does, only in virtual time and always in the same way."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from minikube_py.sim import running as sim
from minikube_py.sim.local_time import LocalTime
from minikube_py.sim.loop import Deadlock, LoopOptions, Runaway, Scheduler, SimFailure, SimLoop
from minikube_py.sim.loop_base import REFUSED, LoopBase

# -- small programs: their outcome on asyncio's loop is the specification ---------------------------------------------


async def gathers_in_order():
    async def work(number):
        await asyncio.sleep(0.001 * (5 - number))
        if number == 3:
            raise ValueError(number)
        return number

    return [repr(each) for each in await asyncio.gather(*map(work, range(5)), return_exceptions=True)]


async def timeouts_nest():
    log = []
    try:
        async with asyncio.timeout(0.02):
            try:
                async with asyncio.timeout(0.005):
                    await asyncio.sleep(1)
            except TimeoutError:
                log.append("inner")
            await asyncio.sleep(1)
    except TimeoutError:
        log.append("outer")
    try:
        await asyncio.wait_for(asyncio.sleep(1, "late"), 0.001)
    except TimeoutError:
        log.append("wait_for")
    return log


async def a_group_cancels_the_rest():
    log = []

    async def work(name, delay_s, fails):
        try:
            await asyncio.sleep(delay_s)
            if fails:
                raise KeyError(name)
            log.append(name)
        except asyncio.CancelledError:
            log.append(f"{name} cancelled")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work("fast", 0.001, False))
            group.create_task(work("bad", 0.01, True))
            group.create_task(work("slow", 1, False))
    except* KeyError as errors:
        log.append(repr(errors.exceptions))
    return log


async def cancellation_is_delivered_once():
    log = []

    async def stubborn():
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            log.append("asked")
        await asyncio.sleep(0.001)
        return "stayed"

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0.001)
    log.append(task.cancel())
    log.append(await task)
    shielded = asyncio.ensure_future(asyncio.sleep(0.01, "shielded"))
    waiting = asyncio.create_task(asyncio.wait_for(asyncio.shield(shielded), 10))
    await asyncio.sleep(0.001)
    waiting.cancel()
    try:
        await waiting
    except asyncio.CancelledError:
        log.append("waiting ended")
    log.append(await shielded)
    return log


async def queues_and_locks():
    queue = asyncio.Queue(2)
    lock = asyncio.Lock()
    log = []

    async def produce(name):
        for number in range(4):
            await queue.put((name, number))

    async def consume():
        while True:
            item = await queue.get()
            async with lock:
                await asyncio.sleep(0)
                log.append(item)
            queue.task_done()

    consumers = [asyncio.create_task(consume()) for _ in range(2)]
    await asyncio.gather(produce("a"), produce("b"))
    await queue.join()
    for each in consumers:
        each.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    condition, event, semaphore = asyncio.Condition(), asyncio.Event(), asyncio.Semaphore(1)

    async def waits():
        async with condition:
            await condition.wait()
        await event.wait()
        async with semaphore:
            log.append("let through")

    tasks = [asyncio.create_task(waits()) for _ in range(3)]
    await asyncio.sleep(0.001)
    async with condition:
        condition.notify_all()
    event.set()
    await asyncio.gather(*tasks)
    return sorted(map(repr, log))


async def callbacks_keep_their_order():
    loop = asyncio.get_running_loop()
    log = []
    done = loop.create_future()
    loop.call_later(0.02, log.append, "later 2")
    loop.call_at(loop.time() + 0.01, log.append, "later 1")
    loop.call_later(0.015, log.append, "never").cancel()
    loop.call_soon(log.append, "soon 1")
    loop.call_soon(log.append, "soon 2")
    loop.call_soon(log.append, "cancelled").cancel()
    loop.call_later(0.03, done.set_result, None)
    await done
    return log


async def waits_for_the_first():
    async def work(delay_s, fails=False):
        await asyncio.sleep(delay_s)
        if fails:
            raise OSError("gone")
        return delay_s

    tasks = [asyncio.create_task(work(delay_s)) for delay_s in (0.001, 0.05, 0.1)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    first = ({task.result() for task in done}, len(pending))
    done, pending = await asyncio.wait([*pending, asyncio.create_task(work(0.001, True))],
                                       return_when=asyncio.FIRST_EXCEPTION)
    second = (len(done), len(pending), [repr(task.exception()) for task in done])
    done, pending = await asyncio.wait(pending, timeout=0.001)
    order = [await each for each in asyncio.as_completed(pending)]
    return first, second, len(done), order


async def contexts_are_copied():
    variable = contextvars.ContextVar("variable", default="unset")
    log = []

    async def child(value):
        variable.set(value)
        await asyncio.sleep(0)
        log.append(variable.get())

    variable.set("parent")
    await asyncio.gather(child("a"), child("b"))
    log.sort()
    asyncio.get_running_loop().call_soon(lambda: log.append(variable.get()))
    await asyncio.sleep(0.001)
    return [*log, variable.get()]


async def generators_end():
    log = []

    async def numbers():
        try:
            for number in range(10):
                await asyncio.sleep(0)
                yield number
        finally:
            await asyncio.sleep(0)
            log.append("ended")

    async for number in numbers():
        if number == 2:
            break
    # Dropped without aclose: the loop closes it.
    for _ in range(5):
        await asyncio.sleep(0)
    return log


async def executors_answer():
    loop = asyncio.get_running_loop()
    log = [await asyncio.to_thread(sum, (1, 2)), await loop.run_in_executor(None, max, 3, 4)]
    try:
        await asyncio.to_thread(int, "x")
    except ValueError as error:
        log.append(str(error))
    return log


async def errors_come_out():
    future = asyncio.get_running_loop().create_future()
    future.set_exception(LookupError("here"))
    try:
        await future
    except LookupError as error:
        log = [repr(error)]
    try:
        future.set_result(1)
    except asyncio.InvalidStateError:
        log.append("set twice")
    try:
        await asyncio.create_task(generators_end(), name="named")
        raise RuntimeError("as the program's own")
    except RuntimeError as error:
        log.append(repr(error))
    return log


async def anyio_groups_and_scopes():
    log = []

    async def work(name, delay_s):
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep(delay_s)
            log.append(name)
        log.append(f"{name} {scope.cancelled_caught}")

    async with anyio.create_task_group() as group:
        group.start_soon(work, "first", 0.001)
        group.start_soon(work, "late", 1)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1)
            raise KeyError("fails")
    except ExceptionGroup as errors:
        log.append(repr(errors.exceptions))
    return log


async def settings_of_the_loop():
    loop = asyncio.get_running_loop()
    log = [loop.get_task_factory(), loop.get_exception_handler(), loop.get_debug()]
    loop.set_task_factory(None)
    loop.set_debug(False)
    heard = []
    loop.set_exception_handler(lambda _, context: heard.append(context["message"]))
    log.append(loop.get_exception_handler() is not None)
    loop.call_exception_handler({"message": "heard"})
    loop.set_exception_handler(None)
    return [*log, *heard]


PROGRAMS = [
    anyio_groups_and_scopes, settings_of_the_loop,
    gathers_in_order, timeouts_nest, a_group_cancels_the_rest, cancellation_is_delivered_once, queues_and_locks,
    callbacks_keep_their_order, waits_for_the_first, contexts_are_copied, generators_end, executors_answer,
    errors_come_out,
]  # fmt: skip
REAL_RUNS = 10


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_asyncio_does(program):
    ours = sim.run(program)
    # On a busy machine a real loop's timers may all be late at once: then it is asked again.
    theirs = asyncio.run(program())
    for _ in range(REAL_RUNS - 1):
        if ours == theirs:
            break
        theirs = asyncio.run(program())
    assert ours == theirs


SAME_IN_ANY_ORDER = [each for each in PROGRAMS if each is not callbacks_keep_their_order]


@pytest.mark.parametrize("program", SAME_IN_ANY_ORDER, ids=lambda program: program.__name__)
def test_a_shuffled_run_comes_to_the_same_end(program):
    wanted = sim.run(program)
    for seed in range(20):
        assert sim.run(program, seed, LoopOptions(shuffle=True, turn_s=0.00001)) == wanted


def test_what_main_raises_comes_out():
    async def main():
        raise ZeroDivisionError("main's own")

    with pytest.raises(ZeroDivisionError, match="main's own"):
        sim.run(main)


# -- time -------------------------------------------------------------------------------------------------------------


def test_a_year_takes_no_time():
    async def main():
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await asyncio.sleep(365 * 86400)
        return loop.time() - start_s

    assert sim.run(main) == pytest.approx(365 * 86400)


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.000137, 3.0])
def test_a_timer_is_never_early_by_its_own_clock(rate):
    scheduler = Scheduler(1, LoopOptions(jitter_s=0.001))
    loop = SimLoop(scheduler, rate=rate)

    async def main():
        for number in range(500):
            when_s = loop.time() + number * 0.000_137
            future = loop.create_future()
            loop.call_at(when_s, future.set_result, None)
            await future
            assert when_s <= loop.time() <= when_s + 0.0011 * rate + 1e-6

    sim.run_on(loop, main)


def test_a_clock_that_changes_its_rate_neither_jumps_nor_wakes_early():
    scheduler = Scheduler(1)
    loop = SimLoop(scheduler)

    async def main():
        start_s, true_s = loop.time(), scheduler.now_s
        loop.call_later(1.0, loop.set_rate, 0.1)
        loop.call_later(1.2, loop.set_rate, 5.0)
        await asyncio.sleep(2.0)
        return loop.time() - start_s, scheduler.now_s - true_s

    local_s, true_s = sim.run_on(loop, main)
    # One second at 1, 0.2 local seconds at a tenth, 0.8 at five times: the timer was set for the old pace, and is late.
    assert true_s >= 1 + 2 + 0.16 and local_s >= 2.0


def test_a_turn_that_costs_time_moves_its_own_clock_and_delays_its_next_turn():
    scheduler = Scheduler(1)
    busy, other = SimLoop(scheduler, "busy"), SimLoop(scheduler, "other")
    seen = []

    async def work():
        before_s = busy.time()
        busy.charge(0.5)
        assert busy.time() - before_s == pytest.approx(0.5)
        await asyncio.sleep(0)
        seen.append(("busy", scheduler.now_s))

    async def main():
        task = []
        busy.call_soon(lambda: task.append(busy.create_task(work())))
        await asyncio.sleep(0.1)
        seen.append(("other", scheduler.now_s))
        await asyncio.sleep(1)

    sim.run_on(other, main)
    assert seen == [("other", pytest.approx(0.1)), ("busy", pytest.approx(0.5))]


# -- what a real run would only log, or suffer ------------------------------------------------------------------------


async def lost_exception():
    async def bad():
        raise KeyError("nobody asks")

    task = asyncio.create_task(bad())
    await asyncio.sleep(0.001)
    del task
    await asyncio.sleep(0.001)


async def lost_task():
    async def waits():
        await asyncio.get_running_loop().create_future()

    asyncio.create_task(waits())  # noqa: RUF006
    await asyncio.sleep(1)
    import gc

    gc.collect()
    await asyncio.sleep(1)


async def raising_callback():
    asyncio.get_running_loop().call_soon(int, "x")
    await asyncio.sleep(1)


async def waits_for_nothing():
    await asyncio.Event().wait()


async def never_rests():
    while True:  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("program", "error", "text"),
    [
        (lost_exception, SimFailure, "nobody asks"),
        (lost_task, SimFailure, "destroyed but it is pending.*lost_task.<locals>.waits"),
        (raising_callback, SimFailure, "invalid literal for int"),
        (waits_for_nothing, Deadlock, "waits_for_nothing|Event.wait"),
        (never_rests, Runaway, "steps_at_once_max=10000 steps .*without time passing"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_fails_the_run(program, error, text):
    with pytest.raises(error, match=f"(?s){text}"):
        sim.run(program, options=LoopOptions(steps_at_once_max=10_000))


def test_a_run_too_long_names_its_limit():
    with pytest.raises(Runaway, match="steps_max=5000"):
        sim.run(never_rests, options=LoopOptions(steps_max=5000, turn_s=0.001))


def test_another_event_loop_waits_while_a_simulation_runs_inside_it():
    """A notebook runs each cell in a task of its loop."""

    async def outer():
        here = asyncio.get_running_loop(), asyncio.current_task()
        found = sim.run(callbacks_keep_their_order)
        assert (asyncio.get_running_loop(), asyncio.current_task()) == here
        with pytest.raises(Deadlock):
            sim.run(waits_for_nothing)
        assert (asyncio.get_running_loop(), asyncio.current_task()) == here
        await asyncio.sleep(0)
        return found

    assert asyncio.run(outer()) == sim.run(callbacks_keep_their_order)


def test_a_simulation_inside_a_simulation_is_refused():
    async def inside():
        with pytest.raises(RuntimeError, match="inside another one"):
            sim.run(waits_for_nothing)

    sim.run(inside)


# -- the same seed, the same run --------------------------------------------------------------------------------------


async def full_of_sets():
    """What differs from process to process where tasks hash by address: the order in which a group cancels, and that
    of `asyncio.wait`."""
    log = []

    async def work(number):
        try:
            await asyncio.sleep(0.001 * (number % 7))
            await asyncio.get_running_loop().create_future()
        finally:
            log.append(number)
            await asyncio.sleep(0)

    async def fail():
        await asyncio.sleep(0.005)
        raise ValueError

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(work(number))
            group.create_task(fail())
    except* ValueError:
        pass
    tasks = {asyncio.create_task(asyncio.sleep(0.001 * (number % 3), number)) for number in range(40)}
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        log.extend(task.result() for task in done)
    return log


def traced(seed: int) -> list[str]:
    lines: list[str] = []
    options = LoopOptions(shuffle=True, jitter_s=0.001, turn_s=0.0001, stall_every=10, stall_s=0.01)
    lines.append(repr(sim.run(full_of_sets, seed, options, lines.append)))
    return lines


def test_other_seeds_are_other_runs():
    assert len({tuple(traced(seed)) for seed in range(10)}) == 10
    assert traced(3) == traced(3)


def test_the_same_run_in_other_processes():
    code = "import sys, test_sim_loop as t; sys.stdout.write(chr(10).join(t.traced(7)))"
    outputs = set()
    for hash_seed in ("0", "1", "random"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        outputs.add(subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, env=env, check=True,
                                   stdout=subprocess.PIPE).stdout)
    assert outputs == {"\n".join(traced(7)).encode()}


# -- async generators of killed processes -----------------------------------------------------------------------------


def test_async_generators_of_a_killed_process_are_closed_inside_out_in_each_python():
    """Before 3.13, closing a coroutine leaves the generator that it reads open."""
    told = []

    async def numbers(name, inner=None):
        try:
            if inner is not None:
                async for each in inner:
                    yield each
            await asyncio.get_running_loop().create_future()
            yield name
        finally:
            told.append(f"{name} ends")

    async def stubborn():
        try:
            await asyncio.get_running_loop().create_future()
            yield 1
        finally:
            told.append("stubborn tries")
            await asyncio.sleep(1)
            told.append("never")

    async def reads(name, generator):
        try:
            async for _ in generator:
                pass
        finally:
            await generator.aclose()
            told.append(f"{name} left")

    async def begins(name, generator):
        try:
            await anext(generator)
        finally:
            told.append(f"{name} left")

    loop = SimLoop(Scheduler(1, LoopOptions(shuffle=False)))
    work = (
        reads("reader", numbers("outer", numbers("inner"))),
        begins("beginner", numbers("one")),
        reads("late", stubborn()),
    )
    tasks = []
    loop.call_soon(lambda: tasks.extend(map(loop.create_task, work)))
    loop.scheduler.run_to(1_000_000)
    assert told == []
    loop.kill()
    loop.scheduler.run_to(2_000_000)
    left = ["inner ends", "outer ends", "reader left", "one ends", "beginner left", "stubborn tries", "late left"]
    assert told == left
    assert not any(map(asyncio.Task.done, tasks))


def test_each_method_of_a_loop_works_or_is_refused_by_name() -> None:
    """A library that meets neither would end with an error that says nothing."""
    methods = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    own = {name for each in (SimLoop, LocalTime, LoopBase) for name in vars(each)}
    assert methods <= own and set(REFUSED) <= methods and REFUSED.keys().isdisjoint(vars(SimLoop))
    loop = SimLoop(Scheduler(1))
    for name in REFUSED:
        with pytest.raises(NotImplementedError, match=name):
            getattr(loop, name)()
    with pytest.raises(NotImplementedError, match="debug"):
        loop.set_debug(True)
    with pytest.raises(NotImplementedError, match="tasks"):
        loop.set_task_factory(asyncio.Task)
