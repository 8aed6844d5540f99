"""Faults of processes, their machines' power, disks and clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from minikube_py.env import Rng
from minikube_py.sim.faults import (
    DRIFT_MAX,
    MS,
    Fault,
    Injection,
    Plan,
    S,
    everyone,
    lasting,
    of_one,
    one,
    some,
    stopping,
)
from minikube_py.sim.syncs import SyncTimes

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer
    from minikube_py.sim.world import Machine

JUMP_S: Final = 100.0


def _draw_crash(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    """One, some, or all at once; immediately, or after a number of disk operations."""
    places = everyone(plan) if rng.random() < 0.2 else some(rng, plan) if rng.random() < 0.3 else one(rng, plan)
    after = rng.choice((0, 1, 2, 3, 5, 8, 13, 40))
    yield Fault(at_us, "crash", places, (), lasting(rng, plan, 20 * MS), after)


def _crash(player: FaultPlayer, fault: Fault) -> bool:
    if not fault.amount:
        return player.take_down(fault, power=True)
    for place in fault.places:
        player.cluster.hold_down(place)
        player.machine(place).disk.cut_after(int(fault.amount))
    return player.until(fault, lambda: player.release_surely(fault))


def _torn_sync(player: FaultPlayer, fault: Fault) -> bool:
    for place in fault.places:
        player.cluster.hold_down(place)
        process = player.machine(place).process
        if process is not None:
            process.syncs.in_the_next(partial(player.world.kill, process.name, power=True))
    return player.until(fault, lambda: player.release_surely(fault))


def _pause(player: FaultPlayer, fault: Fault) -> bool:
    return player.meanwhile(fault, player.hosts(fault.places), player.world.pause, player.world.resume)


def _damage(player: FaultPlayer, fault: Fault, damage: Callable[[int], None], *, power: bool) -> bool:
    """Of one member that is down and whose data the others can spare."""
    place = next((place for place in fault.places if player.cluster.may_lose(place)), None)
    if place is None:
        return False
    player.cluster.hold_down(place)
    player.world.kill(player.cluster.host(place), power=power)
    damage(place)
    return player.until(fault, lambda: player.release(fault._replace(places=(place,))))


def _rot(player: FaultPlayer, fault: Fault) -> bool:
    """No power cut: it might remove the last record's witness, which distinguishes damage from a torn write."""

    def rot(place: int) -> None:
        machine = player.machine(place)
        player.world.scheduler.log(f"rot on {machine.name}: {machine.disk.rot(player.rng_of(fault))}")
        player.cluster.corrupt(place)

    return _damage(player, fault, rot, power=False)


def _wipe(player: FaultPlayer, fault: Fault) -> bool:
    return _damage(player, fault, player.cluster.wipe, power=True)


def fill(player: FaultPlayer, fault: Fault) -> bool:
    player.cluster.sick(fault.places)

    def begin(machine: Machine) -> None:
        machine.disk.capacity_bytes = machine.disk.used_bytes() + int(fault.amount)

    def end(machine: Machine) -> None:
        machine.disk.capacity_bytes = None

    return player.meanwhile(fault, [player.machine(place) for place in fault.places], begin, end)


def _full_start(player: FaultPlayer, fault: Fault) -> bool:
    for place in fault.places:
        player.cluster.hold_down(place)
        player.world.kill(player.cluster.host(place), power=player.rng_of(fault).random() < 0.5)
    begun = fill(player, fault)
    player.release(fault)
    return begun


def slow_down(player: FaultPlayer, fault: Fault) -> bool:
    usual = player.world.options.syncs
    slow = replace(usual, sync_s=usual.sync_s + fault.amount / S)

    def use(syncs: SyncTimes, machine: Machine) -> None:
        machine.syncs = syncs

    machines = [player.machine(place) for place in fault.places]
    return player.meanwhile(fault, machines, partial(use, slow), partial(use, usual))


def _bad_sync(player: FaultPlayer, fault: Fault) -> bool:
    player.cluster.sick(fault.places)
    for place in fault.places:
        player.machine(place).disk.fail_sync_after(int(fault.amount))
    return True


def _draw_clock(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    rate = DRIFT_MAX ** rng.uniform(-1, 1)
    yield Fault(at_us, "clock", some(rng, plan), (), lasting(rng, plan, 500 * MS, 6 * S), round(rate, 3))


def _clock(player: FaultPlayer, fault: Fault) -> bool:
    world = player.world

    def begin(host: str) -> None:
        world.drift(host, fault.amount)
        world.machine(host).clock.jump(player.rng_of(fault).uniform(-JUMP_S, JUMP_S))

    def end(host: str) -> None:
        world.drift(host, world.machine(host).usual_rate)

    return player.meanwhile(fault, player.hosts(fault.places), begin, end)


INJECTIONS: Final = (
    Injection(
        "crash",
        "`places` lose power, at the `amount`-th operation of the disk from now (0: at once)",
        _draw_crash,
        _crash,
    ),
    Injection(
        "kill",
        "the processes of `places` end; what they wrote stays",
        stopping("kill"),
        lambda player, fault: player.take_down(fault, power=False),
    ),
    Injection("pause", "the processes of `places` stand still", stopping("pause"), _pause),
    Injection(
        "torn_sync", "power fails in the middle of the next sync, if there is one", stopping("torn_sync"), _torn_sync
    ),
    Injection(
        "rot",
        "a bit flips on the disk of a member that was killed; it must refuse to start, and returns empty",
        stopping("rot"),
        _rot,
    ),
    Injection("full", "a disk has room for `amount` bytes more", of_one("full", (0, 100, 5000, 60_000)), fill),
    Injection(
        "full_start",
        "a member is killed and starts on a disk that has room for `amount` bytes more",
        of_one("full_start", (0, 100, 5000)),
        _full_start,
    ),
    Injection(
        "slow_sync", "syncs take `amount` us more", of_one("slow_sync", (10 * MS, 200 * MS, 2 * S)), slow_down
    ),
    Injection("bad_sync", "the `amount`-th sync from now fails", of_one("bad_sync", (0, 1, 5)), _bad_sync),
    Injection(
        "clock", "the clocks of `places` count `amount` seconds a second; their dates jump", _draw_clock, _clock
    ),
    Injection("wipe", "a member loses its disk, and returns under a new id", stopping("wipe"), _wipe),
)
