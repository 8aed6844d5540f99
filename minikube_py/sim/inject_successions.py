"""Leader changes at moments when the successor does not know, or cannot do, what the last leader did."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from minikube_py.env import Rng
from minikube_py.sim.faults import LEADER, MS, Fault, Injection, Plan, S, lasting
from minikube_py.sim.inject_machines import fill, slow_down

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer

ROOM_BYTES: Final = 40_000
"""Less than the space reserved for deletes, and enough to continue."""
SLOW_US: Final = 1 * S
"""Heartbeats are answered meanwhile, so the leader stays."""


def _draw_announce(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    after_us = rng.choice((0, 100, 300, 1 * MS, 3 * MS, 10 * MS))
    place = rng.randrange(plan.members + plan.spare)
    yield Fault(at_us, "announce", (place,), (), lasting(rng, plan, 2 * S, 6 * S), after_us)


def _announce(player: FaultPlayer, fault: Fault) -> bool:
    """The next leader's log has an expected member, but it learns late that this entry is committed."""
    cluster, [place] = player.cluster, fault.places
    if not cluster.grow(place):
        return False

    def end_leader(_: object) -> None:
        leader = cluster.leader()
        if player.lasts(number) and leader is not None:
            cluster.elected = elected
            away_us = player.rng_of(fault).randint(300, 3000) * MS
            player.take_down(fault._replace(places=(leader.number,), duration_us=away_us), power=False)

    def elected(new: int) -> None:
        if cluster.elected is elected:
            cluster.elected = None
        others = tuple([each.number for each in cluster.places if each.number != new])
        slow_down(player, fault._replace(places=others, amount=SLOW_US))

    def leave() -> None:
        cluster.announced.pop(name, None)
        if cluster.elected is elected:
            cluster.elected = None

    name = cluster.places[place].name
    cluster.announced[name] = partial(player.world.scheduler.after, fault.amount / S, end_leader, None)
    number = player.begun(fault, leave)
    return True


def _draw_full_heirs(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    after_us = rng.choice((5 * MS, 20 * MS, 60 * MS, 200 * MS))
    yield Fault(at_us, "full_heirs", (LEADER,), (), lasting(rng, plan, 1 * S, 4 * S), after_us)


def _full_heirs(player: FaultPlayer, fault: Fault) -> bool:
    """Requests done by the last leader are repeated at one that accepts nothing new."""
    cluster, network = player.cluster, player.world.network
    [place] = fault.places
    others = tuple([each.number for each in cluster.places if each.number != place and cluster.takes_part(each.number)])
    members = {each.host for each in cluster.places}
    clients = [host for host in player.world.machines if host not in members]
    here = player.hosts(fault.places)
    network.clog(here, clients)

    def succeed(_: object) -> None:
        if player.lasts(number):
            fill(player, fault._replace(places=others, amount=ROOM_BYTES))
            player.take_down(fault, power=player.rng_of(fault).random() < 0.5)

    player.world.scheduler.after(fault.amount / S, succeed, None)
    number = player.begun(fault, lambda: network.unclog(here, clients))
    return True


ANNOUNCE: Final = Injection(
    "announce",
    "a new member is announced; the leader ends `amount` us after that is done, and the others' disks are slow then",
    _draw_announce,
    _announce,
)
FULL_HEIRS: Final = Injection(
    "full_heirs",
    "clients do not hear `places`, which ends after `amount` us, when the disks of all others have no room for more",
    _draw_full_heirs,
    _full_heirs,
)
