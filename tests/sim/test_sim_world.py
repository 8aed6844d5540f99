"""Processes of a simulated world end abruptly: at any await, at any operation of their disk."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from minikube_py.sim.loop import Killed, LoopOptions, SimFailure
from minikube_py.sim.syncs import SyncTimes
from minikube_py.sim.world import Ended, World, WorldOptions
from minikube_py.store.snapshot_transfer import TransferRefused


class Outside:
    """What the rest of the world could notice of a process."""

    def __init__(self):
        self.lines = []
        self.after_death = []


async def clings_to_life(process, outside, listener="listener"):
    """Tries, in every `finally`, to leave a trace of its death."""
    loop = asyncio.get_running_loop()
    file = process.disk.open("file", create=True) if not process.disk.names() else process.disk.open("file")
    _, writer = await asyncio.open_connection(listener, 9)
    number = 0

    def leave_traces():
        for trace in (
            lambda: file.write_at(0, b"D"),
            file.sync,
            process.disk.sync_folder,
            lambda: writer.write(b"D\n"),
            lambda: loop.call_soon(outside.after_death.append, "soon"),
            lambda: loop.call_later(0.001, outside.after_death.append, "later"),
            lambda: loop.create_task(speak_from_the_grave()),
        ):
            try:
                trace()
            except Exception:
                outside.after_death.append("an Exception where a BaseException was due")
            except BaseException:
                continue

    async def speak_from_the_grave():
        outside.after_death.append("task")

    async def work(delay_s):
        nonlocal number
        try:
            while True:
                await asyncio.sleep(delay_s)
                number += 1
                file.write_at(number, b"L")
                await process.syncs.wait(file.sync)
                writer.write(b"L\n")
        finally:
            leave_traces()
            await asyncio.sleep(0.01)
            leave_traces()

    async def generate():
        try:
            while True:
                await asyncio.sleep(0.003)
                yield 1
        finally:
            leave_traces()

    async def walk():
        async for _ in generate():
            pass

    async with asyncio.TaskGroup() as group:
        group.create_task(work(0.001))
        group.create_task(work(0.0017))
        group.create_task(walk())


def listening_world(seed, options=None):
    world = World(seed, options)
    outside = Outside()

    async def listen(process):
        async def take(reader, writer):
            try:
                while line := await reader.readline():
                    outside.lines.append(line)
            except OSError:
                pass
            writer.close()

        await asyncio.start_server(take, None, 9)
        await asyncio.get_running_loop().create_future()

    world.start("listener", listen)
    return world, outside


HOWS = {"process": {}, "power": {"power": True}, "silent": {"silently": True}}


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_a_kill_at_any_step_leaves_no_trace(how):
    options = WorldOptions(LoopOptions(shuffle=True))
    for step in range(1, 150, 3):
        world, outside = listening_world(step, options)

        async def main(world=world, outside=outside, step=step):
            await asyncio.sleep(0.01)
            process = world.start("victim", lambda process: clings_to_life(process, outside))
            before = world.scheduler.steps
            while world.scheduler.steps < before + step:  # noqa: ASYNC110
                await asyncio.sleep(0.0001)
            world.kill("victim", **how)
            assert process.ended.how == "killed" and world.running("victim") is None
            content = process.machine.disk.image().get("file", b"")
            await asyncio.sleep(1)
            assert b"D" not in content and process.machine.disk.image().get("file", b"") == content
            assert b"D\n" not in outside.lines and outside.after_death == []

        world.drive(main)


def test_a_power_failure_at_any_disk_operation():
    reached = set()
    for operations in range(1, 40):
        world, outside = listening_world(operations)

        async def main(world=world, outside=outside, operations=operations):
            await asyncio.sleep(0.01)
            machine = world.machine("victim")
            machine.disk.cut_after(operations)
            process = world.start("victim", lambda process: clings_to_life(process, outside))
            while process.ended is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert process.ended == Ended("killed", "the power failed at a disk operation")
            reached.add(process.disk.sequence)
            await asyncio.sleep(1)
            assert b"D" not in machine.disk.image().get("file", b"") and outside.after_death == []
            assert b"D\n" not in outside.lines

        world.drive(main)
    assert reached == set(range(1, 40))


def test_what_was_synced_is_there_after_a_power_failure():
    for seed in range(30):
        world = World(seed, WorldOptions(syncs=SyncTimes(0.001, 0.001, 5, 0.01)))
        acknowledged = []

        async def count(process, acknowledged=acknowledged):
            names = process.disk.names()
            file = process.disk.open("file", create=not names)
            if not names:
                process.disk.sync_folder()
            found = len(file.read_all().rstrip(b"\0"))
            assert found >= len(acknowledged)
            while True:
                file.write_at(found, b"x")
                found += 1
                await process.syncs.wait(file.sync)
                acknowledged.append(found)

        async def main(world=world, acknowledged=acknowledged, seed=seed):
            rng = random.Random(seed)
            world.start("machine", count)
            for _ in range(10):
                await asyncio.sleep(rng.random() * 0.1)
                world.kill("machine", power=True)
                world.start("machine")
            assert len(acknowledged) > 50

        world.drive(main)


def test_a_process_that_ends_itself_stops_there():
    world, outside = listening_world(1)

    async def suicidal(process):
        try:
            process.die("the log cannot be written")
        except Exception:
            outside.after_death.append("caught")
        finally:
            process.loop.call_soon(outside.after_death.append, "after")
        outside.after_death.append("went on")

    async def main():
        process = world.start("victim", suicidal)
        await asyncio.sleep(1)
        return process.ended

    assert world.drive(main) == Ended("died", "the log cannot be written") and outside.after_death == []


def test_a_main_that_raises_fails_the_run_unless_someone_takes_it():
    async def fails(process):
        raise ValueError("its own fault")

    def world_of(on_end):
        world = World(1)
        world.on_end = on_end

        async def main():
            world.start("p", fails)
            await asyncio.sleep(1)

        world.drive(main)

    with pytest.raises(SimFailure, match=r"p\.1 raised ValueError: its own fault"):
        world_of(None)
    ends = []
    world_of(lambda process, ended: ends.append((process.name, ended.how, str(ended.error))))
    assert ends == [("p", "raised", "its own fault")]


def test_a_main_that_returns_ends_its_tasks_in_order():
    """As `asyncio.run` does: this is no kill, and cleaning up is right."""
    log = []

    async def tidy(process):
        async def work():
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(0.001)
                log.append("tidied up")

        process.loop.create_task(work())
        await asyncio.sleep(0.001)

    world = World(1)

    async def main():
        process = world.start("p", tidy)
        await asyncio.sleep(1)
        assert process.ended == Ended("returned")

    world.drive(main)
    assert log == ["tidied up"]


def test_a_restart_is_another_life_on_the_same_disk():
    world = World(1, WorldOptions(drift_max=0.01, wall_offset_max_s=100.0))
    lives = []

    async def live(process):
        name = f"life {process.life}"
        process.disk.open(name, create=True)
        lives.append((process.disk.names(), process.rng.random(), process.clock.wall_s()))
        await asyncio.sleep(1000)

    async def main():
        world.start("p", live)
        await asyncio.sleep(1)
        with pytest.raises(ValueError, match="p runs already"):
            world.start("p")
        with pytest.raises(ValueError, match="kill it before"):
            world.wipe("p")
        world.kill("p")
        world.start("p")
        await asyncio.sleep(1)
        world.kill("p")
        world.kill("p")
        world.wipe("p")
        world.start("p")
        await asyncio.sleep(1)

    world.drive(main)
    assert [names for names, _, _ in lives] == [["life 1"], ["life 1", "life 2"], ["life 3"]]
    assert len({draw for _, draw, _ in lives}) == 3
    assert [later - earlier for (_, _, earlier), (_, _, later) in itertools.pairwise(lives)] == [
        pytest.approx(1.0, abs=0.02)
    ] * 2
    assert [each.how for each in world.machine("p").ends] == ["killed", "killed"]


def test_a_stopped_process_does_nothing_and_its_timers_are_late():
    world = World(1)
    seen = []

    async def live(process):
        while True:
            await process.clock.sleep(0.1)
            seen.append(round(world.scheduler.now_s, 3))

    async def main():
        world.start("p", live)
        await asyncio.sleep(0.25)
        world.pause("p")
        await asyncio.sleep(1)
        world.resume("p")
        await asyncio.sleep(0.15)

    world.drive(main)
    assert seen == [0.1, 0.2, 1.25, 1.35]


@pytest.mark.parametrize(("first_s", "second_s"), [(10, 20), (20, 10), (10, 3)])
def test_pauses_that_overlap_end_with_the_last(first_s, second_s):
    """As those of two faults of one history."""
    world, seen = World(1), []

    async def live(process):
        while True:
            await process.clock.sleep(1)
            seen.append(world.scheduler.now_s)

    async def main():
        after = world.scheduler.after
        world.start("p", live)
        await asyncio.sleep(0.5)
        for at_s, act in ((0, world.pause), (first_s, world.resume), (5, world.pause), (5 + second_s, world.resume)):
            after(at_s, act, "p")
        await asyncio.sleep(40)
        world.pause("p")
        world.pause("p")
        world.resume_wholly("p")
        await asyncio.sleep(2)

    world.drive(main)
    assert seen[0] == pytest.approx(0.5 + max(first_s, 5 + second_s)) and seen[-1] > 41


def test_clocks_drift_and_jump_and_monotonic_never_goes_back():
    world = World(1, WorldOptions(drift_max=0.1, wall_offset_max_s=50.0, reading_s=1e-6))
    readings = {"a": [], "b": []}

    async def live(process):
        while True:
            await process.clock.sleep(0.01)
            for _ in range(3):
                readings[process.name].append((process.clock.monotonic_s(), process.clock.wall_s()))

    async def main():
        rng = random.Random(1)
        world.start("a", live)
        world.start("b", live)
        for _ in range(50):
            await asyncio.sleep(0.1)
            world.machine("a").clock.jump(rng.uniform(-5, 5))
            world.drift("b", rng.uniform(0.5, 1.5))

    world.drive(main)
    for name in readings:
        times = [monotonic for monotonic, _ in readings[name]]
        assert all(earlier < later for earlier, later in itertools.pairwise(times))
    walls = {name: [wall for _, wall in readings[name]] for name in readings}
    assert any(later < earlier for earlier, later in zip(walls["a"], walls["a"][1:]))
    assert all(earlier <= later for earlier, later in zip(walls["b"], walls["b"][1:])), "a drift is no jump"
    assert abs(walls["a"][0] - walls["b"][0]) > 1


def test_a_slow_sync_covers_what_was_there_when_it_began():
    world = World(1, WorldOptions(syncs=SyncTimes(1.0, 0.0)))
    kept = []

    async def live(process):
        file = process.disk.open("file", create=True)
        process.disk.sync_folder()
        file.write_at(0, b"a" * 600)
        task = asyncio.create_task(process.syncs.wait(file.sync))
        await asyncio.sleep(0.5)
        file.write_at(0, b"b" * 600)
        await task
        kept.append(process.world.scheduler.now_s)
        process.die("enough")

    async def main():
        for seed in range(20):
            machine = world.machine(f"p{seed}")
            world.start(machine.name, live)
            await asyncio.sleep(3)
            [inode] = machine.disk._names.values()
            assert bytes(inode.durable) == b"a" * 600 and bytes(inode.current) == b"b" * 600

    world.drive(main)
    assert len(kept) == 20


def test_who_is_cancelled_during_a_sync_that_fails_is_cancelled():
    """As of a sync in a thread: a member that is stopped would bear with the failure, and go on."""
    world = World(1, WorldOptions(syncs=SyncTimes(1.0, 0.0)))
    ends = []

    async def live(process):
        file = process.disk.open("file", create=True)
        file.write_at(0, b"a")
        process.disk.fail_sync_after(0)
        task = asyncio.create_task(process.syncs.wait(file.sync))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait((task,))
        ends.append((task.cancelled(), process.world.scheduler.now_s))

    async def main():
        world.start("p", live)
        await asyncio.sleep(3)

    world.drive(main)
    assert ends == [(True, pytest.approx(1.0))]


def test_what_a_sync_raises_reaches_who_waits_for_it():
    """As from a thread; a file may have been closed meanwhile."""
    world = World(1, WorldOptions(syncs=SyncTimes(1.0, 0.0)))
    raised = []

    async def live(process):
        def sync():
            raise TransferRefused("it was replaced by another offer")

        with pytest.raises(TransferRefused):
            await process.syncs.wait(sync)
        raised.append(process.world.scheduler.now_s)

    async def main():
        world.start("p", live)
        await asyncio.sleep(3)

    world.drive(main)
    assert raised == [pytest.approx(1.0)]


def test_an_inline_sync_holds_the_loop_up():
    world = World(1, WorldOptions(syncs=SyncTimes(0.3, 0.0)))
    times = []

    async def live(process):
        file = process.disk.open("file", create=True)
        times.append(process.clock.monotonic_s())
        file.sync()
        times.append(process.clock.monotonic_s())
        await asyncio.sleep(0)
        times.append(world.scheduler.now_s)

    async def main():
        world.start("p", live)
        await asyncio.sleep(1)

    world.drive(main)
    assert times[1] - times[0] == pytest.approx(0.3) and times[2] == pytest.approx(0.3)


def test_killed_is_no_exception():
    assert not issubclass(Killed, Exception)
