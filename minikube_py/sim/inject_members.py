"""Requests to the cluster itself during other faults, and leaders that fail as soon as they are elected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from minikube_py.env import Rng
from minikube_py.mvcc.types import Compact
from minikube_py.sim.faults import MS, Fault, Injection, Plan, S, at_once, everyone, lasting
from minikube_py.sim.inject_links import clog
from minikube_py.sim.inject_machines import slow_down
from minikube_py.sim.inject_rivals import SUPERSEDE

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


def _draw_outrun(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    place = rng.randrange(plan.members)
    others = tuple([other for other in range(plan.members) if other != place])
    away_us = lasting(rng, plan, 500 * MS, 3 * S)
    if others:
        yield Fault(at_us, "cut", (place,), others, away_us)
        yield Fault(at_us, "cut", others, (place,), away_us)
        yield Fault(at_us + away_us, "outrun", (place,), others, lasting(rng, plan, 2 * S, 8 * S), 500 * MS)
        for _ in range(rng.choice((0, 6, 12))):  # Its links are lost again while it receives snapshots.
            away_us += lasting(rng, plan, 40 * MS, 1 * S)
            yield Fault(at_us + away_us, "cut", (place,), others, 10 * MS)


def _outrun(player: FaultPlayer, fault: Fault) -> bool:
    """A returning member is offered a snapshot, and the next one while its disk is still busy with the first."""
    begun = slow_down(player, fault)
    for at_us in range(0, fault.duration_us, int(fault.amount) // 2):
        for place in fault.others:
            player.world.scheduler.after(at_us / S, player.cluster.take_snapshot, place)
    return begun


def _draw_depose(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    after_us = rng.choice((0, 200, 1 * MS, 5 * MS, 20 * MS, 60 * MS))
    yield Fault(at_us, "depose", everyone(plan), (), lasting(rng, plan, 1 * S, 20 * S), after_us)


def _depose(player: FaultPlayer, fault: Fault) -> bool:
    """A leader's last entries are to remain on only a few members."""
    cluster = player.cluster

    def strike(whom: tuple[int, Process | None]) -> None:
        place, process = whom
        if cluster.elected is elected and process is not None and process.ended is None:
            _strike(player, fault, place)

    def elected(place: int) -> None:
        player.world.scheduler.after(fault.amount / S, strike, (place, player.machine(place).process))

    def leave() -> None:
        cluster.elected = None

    cluster.elected = elected
    return player.until(fault, leave)


def _strike(player: FaultPlayer, deposed: Fault, place: int) -> None:
    rng = player.rng_of(deposed)
    how = rng.random()
    fault = deposed._replace(places=(place,), duration_us=rng.randint(50_000, 500_000))
    if how < 0.4:
        player.take_down(fault._replace(duration_us=fault.duration_us // 4), power=how >= 0.2)
        return
    cluster = player.cluster
    others = [other.number for other in cluster.places if other.number != place and cluster.takes_part(other.number)]
    if how < 0.8 and others:
        others.remove(rng.choice(others))
    rest = tuple(others)
    clog(player, fault._replace(others=rest))
    if how < 0.6 or how > 0.9:
        clog(player, fault._replace(places=rest, others=(place,)))


INJECTIONS: Final = (
    Injection("grow", "a new member joins", _draw_grow, _grow),
    Injection("shrink", "a member is removed permanently", at_once("shrink"), _shrink),
    Injection("transfer", "leadership is transferred to `places`", at_once("transfer"), _transfer),
    Injection(
        "depose",
        "each new leader meanwhile is cut off from all, or from all but one, or loses its process or its power, "
        "`amount` us after its election",
        _draw_depose,
        _depose,
    ),
    SUPERSEDE,
    Injection("compact", "history older than the share `amount` is compacted", at_once("compact"), _compact),
    Injection("snapshot", "`places` take one that nothing made due", at_once("snapshot"), _snapshot),
)
OUTRUN: Final = Injection(
    "outrun",
    "`places` were cut off, and come back to a disk whose syncs take `amount` us more, while `others` take one "
    "snapshot after the other",
    _draw_outrun,
    _outrun,
)
"""Share of separate histories for it: logs have to be short."""
