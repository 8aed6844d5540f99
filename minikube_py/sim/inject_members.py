"""Requests to the cluster itself during other faults, leaders that fail as soon as they are elected, and leaders that
come back behind another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from minikube_py.env import Rng
from minikube_py.mvcc.types import Compact
from minikube_py.sim.faults import MS, Fault, Injection, Plan, S, at_once, everyone, lasting
from minikube_py.sim.inject_links import clog
from minikube_py.sim.inject_machines import slow_down
from minikube_py.sim.loop import shuffle

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer
    from minikube_py.sim.world import Process


def _draw_grow(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    if plan.spare:
        yield Fault(at_us, "grow", (plan.members + rng.randrange(plan.spare),))


def _grow(player: FaultPlayer, fault: Fault) -> bool:
    return player.cluster.grow(fault.places[0])


def _shrink(player: FaultPlayer, fault: Fault) -> bool:
    return player.cluster.shrink(fault.places[0])


def _transfer(player: FaultPlayer, fault: Fault) -> bool:
    return player.cluster.transfer(fault.places[0])


def _compact(player: FaultPlayer, fault: Fault) -> bool:
    leader = player.cluster.leader()
    if leader is None or leader.member is None:
        return False
    player.cluster.traffic.ask(Compact(max(1, int(leader.member.state.revision * fault.amount))))
    return True


def _snapshot(player: FaultPlayer, fault: Fault) -> bool:
    taken = [player.cluster.take_snapshot(place) for place in fault.places]
    return any(taken)


def _draw_depose(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    after_us = rng.choice((0, 200, 1 * MS, 5 * MS, 20 * MS, 60 * MS))
    yield Fault(at_us, "depose", everyone(plan), (), lasting(rng, plan, 1 * S, 20 * S), after_us)


def _depose(player: FaultPlayer, fault: Fault) -> bool:
    """What a leader began is to be left with a few."""
    cluster = player.cluster

    def strike(whom: tuple[int, Process | None]) -> None:
        place, process = whom
        if cluster.elected is elected and process is not None and process.ended is None:
            _strike(player, place)

    def elected(place: int) -> None:
        player.world.scheduler.after(fault.amount / S, strike, (place, player.machine(place).process))

    def leave() -> None:
        cluster.elected = None

    cluster.elected = elected
    return player.until(fault, leave)


def _strike(player: FaultPlayer, place: int) -> None:
    how = player.rng.random()
    fault = Fault(0, "kill", (place,), (), player.rng.randint(50_000, 500_000))
    if how < 0.4:
        player.take_down(fault._replace(duration_us=fault.duration_us // 4), power=how >= 0.2)
        return
    cluster = player.cluster
    others = [other.number for other in cluster.places if other.number != place and cluster.takes_part(other.number)]
    if how < 0.8 and others:
        others.remove(player.rng.choice(others))
    rest = tuple(others)
    clog(player, fault._replace(others=rest))
    if how < 0.6 or how > 0.9:
        clog(player, fault._replace(places=rest, others=(place,)))


def _draw_supersede(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    if plan.members > 2:
        slow = rng.choice((0.5, 1.0, 1.5, 2.5, 4.0))
        yield Fault(at_us, "supersede", everyone(plan), (), lasting(rng, plan, 3 * S, 8 * S), slow)


def _supersede(player: FaultPlayer, fault: Fault) -> bool:
    """Entries that another leader replaces are still on their way to the disk: what was said of them is to be taken
    back, and what replaces them is not durable with them."""
    cluster, rng, old = player.cluster, player.rng, player.cluster.leader()
    others = [each.number for each in cluster.places if each.opened and each is not old and not each.gone]
    if old is None or len(others) < 2:
        return False
    shuffle(others, rng)
    few = (len(others) - 1) // 2
    island, rest = (old.number, *others[:few]), tuple(others[few:])
    slow_s = fault.amount * cluster.election_s
    slow_down(player, fault._replace(places=island, amount=slow_s * S))
    join = _part(player, fault, island, rest)

    def strike(then: tuple[int, Callable[[], None]]) -> None:
        """The power of those goes that hold what was committed last; who made it does not hear of it."""
        if not player.lasts(number):
            return
        new, gather = then
        gather()
        _part(player, fault, (new,), tuple([place for place in (*island, *rest) if place != new]))
        player.take_down(fault._replace(places=island, duration_us=rng.randint(1, 100) * MS), power=True)

    def elected(place: int) -> None:
        if cluster.elected is not elected or place in island or not player.lasts(number):
            return
        cluster.elected = None
        join()
        gather = _part(player, fault, tuple([each for each in rest if each != place]), (*island, place))
        player.world.scheduler.after(2 * slow_s * rng.random() ** 2, strike, (place, gather))

    cluster.elected = elected
    number = player.begun(fault, lambda: None)
    return True


def _part(player: FaultPlayer, fault: Fault, ones: tuple[int, ...], others: tuple[int, ...]) -> Callable[[], None]:
    """Neither side of members hears the other until the fault is over, or what is returned is called."""
    network, here, there = player.world.network, player.hosts(ones), player.hosts(others)
    network.clog(here, there)
    network.clog(there, here)

    def join() -> None:
        network.unclog(here, there)
        network.unclog(there, here)

    return partial(player.end, player.begun(fault, join))


INJECTIONS: Final = (
    Injection("grow", "a new member joins", _draw_grow, _grow),
    Injection("shrink", "a member is removed, for ever", at_once("shrink"), _shrink),
    Injection("transfer", "leadership goes to `places`", at_once("transfer"), _transfer),
    Injection(
        "depose",
        "whoever comes to lead meanwhile is cut off from all, or from all but one, or loses its process or its power, "
        "`amount` us after its election",
        _draw_depose,
        _depose,
    ),
    Injection(
        "supersede",
        "syncs of who leads and of as many as it can have without a majority take `amount` election timeouts; they are "
        "cut off until another leads, join it as its majority, and lose their power",
        _draw_supersede,
        _supersede,
    ),
    Injection("compact", "history older than the share `amount` of all goes", at_once("compact"), _compact),
    Injection("snapshot", "`places` take one that nothing made due", at_once("snapshot"), _snapshot),
)
